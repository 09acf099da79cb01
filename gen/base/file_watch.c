/* file_watch.c: waiting until files change. In: paths. Out: which of them are other files than they were, or
 * have come or gone. Guaranteed: no change is missed, in whatever way a program writes: into the file, beside
 * it and then over it, through a symbolic link, or by removing the folder and making it again.
 *
 * What has changed is seen by stat, always. inotify only says when it is worth looking: it reports what
 * happens in the folders of the files, since a file that is replaced is another inode. Once in LOOK_MS the
 * files are looked at without a report too, which finds what inotify does not tell, such as writes by other
 * machines. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/inotify.h>
#endif

#include "file_watch.h"

enum {
    LOOK_MS = 2000,               /* between two looks, where the system reports changes */
    POLL_MS = 250,                /* where it does not */
    SETTLE_MS = 60,               /* without a change, before a change is told */
    GONE_MS = 400,                /* the same where a file is gone: what replaces it may be on its way */
    LONGEST_MS = 2000             /* a change is told after so long, even if there are more of them */
};

/* All that tells one state of a file from another. */
typedef struct Look {
    bool there;
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec written, changed;
} Look;

typedef struct Watched {
    char *path;
    Look seen;
    bool changed;                 /* since the last file_watch_forget */
} Watched;

struct FileWatch {
    bool poll;
    bool missing;                 /* a folder is not watched: it is not there, or was replaced */
    int reports;                  /* inotify's descriptor; -1: none */
    Watched *files;
    int n;
};

static Look look_at(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return (Look){ .there = false };
    return (Look){ true, st.st_dev, st.st_ino, st.st_size, st.st_mtim, st.st_ctim };
}

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool same_look(const Look *a, const Look *b)
{
    if (!a->there || !b->there)
        return a->there == b->there;
    return a->device == b->device && a->inode == b->inode && a->size == b->size &&
           same_time(a->written, b->written) && same_time(a->changed, b->changed);
}

/* Looks at all files; has any of them changed since the last look? */
static bool look_at_all(FileWatch *w)
{
    bool any = false;
    for (int i = 0; i < w->n; i++) {
        Look now = look_at(w->files[i].path);
        if (same_look(&now, &w->files[i].seen))
            continue;
        w->files[i].seen = now;
        w->files[i].changed = any = true;
    }
    return any;
}

/* ---- what the system reports */

static void stop_reports(FileWatch *w)
{
    if (w->reports >= 0)
        close(w->reports);
    w->reports = -1;
}

#ifdef __linux__
/* The folder that holds the path's last component. */
static bool watch_folder(FileWatch *w, const char *path)
{
    const uint32_t events = IN_CLOSE_WRITE | IN_MODIFY | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_FROM |
                            IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    bool ok = folder && inotify_add_watch(w->reports, folder, events) >= 0;
    free(folder);
    return ok;
}

/* Reports of every folder: of the path, and of what it leads to where it is a link. */
static void start_reports(FileWatch *w)
{
    stop_reports(w);
    w->missing = false;
    w->reports = w->poll ? -1 : inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    for (int i = 0; i < w->n && w->reports >= 0; i++) {
        char *real = realpath(w->files[i].path, NULL);
        bool ok = watch_folder(w, w->files[i].path);
        bool full = !ok && (errno == ENOSPC || errno == ENOMEM);
        if (real && strcmp(real, w->files[i].path) != 0)
            ok = watch_folder(w, real) && ok;
        free(real);
        w->missing |= !ok;
        if (full)                 /* fs.inotify.max_user_watches: the files are looked at */
            stop_reports(w);
    }
}

static void take_reports(FileWatch *w)
{
    union { struct inotify_event event; char bytes[8192]; } buffer;
    for (ssize_t n; w->reports >= 0 && (n = read(w->reports, buffer.bytes, sizeof buffer)) > 0;)
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *e = (const void *)(buffer.bytes + at);
            w->missing |= (e->mask & (IN_IGNORED | IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT)) != 0;
            at += (ssize_t)(sizeof *e + e->len);
        }
}
#else
static void start_reports(FileWatch *w)
{
    w->missing = false;
}

static void take_reports(FileWatch *w)
{
    (void)w;
}
#endif

/* ---- waiting */

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static bool any_gone(const FileWatch *w)
{
    bool gone = false;
    for (int i = 0; i < w->n; i++)
        gone |= w->files[i].changed && !w->files[i].seen.there;
    return gone;
}

static bool any_changed(const FileWatch *w)
{
    bool changed = false;
    for (int i = 0; i < w->n; i++)
        changed |= w->files[i].changed;
    return changed;
}

WatchEvent file_watch_wait(FileWatch *w, int descriptor)
{
    int64_t first = any_changed(w) ? now_ms() : -1, last = first;      /* change that is not told yet */
    for (;;) {
        int64_t now = now_ms(), until = now + (w->reports >= 0 && !w->missing ? LOOK_MS : POLL_MS);
        if (first >= 0) {
            int64_t quiet = last + (any_gone(w) ? GONE_MS : SETTLE_MS), longest = first + LONGEST_MS;
            until = quiet < longest ? quiet : longest;
            if (until <= now)
                return WATCH_FILES;
        }
        struct pollfd on[2] = { { .fd = descriptor, .events = POLLIN },
                                { .fd = w->reports, .events = POLLIN } };
        int ready = poll(on, 2, (int)(until - now));
        if (ready > 0 && on[0].revents)
            return WATCH_READY;
        if (ready > 0 && on[1].revents)
            take_reports(w);
        if (ready == 0 && w->missing)
            start_reports(w);
        if (look_at_all(w)) {
            last = now_ms();
            first = first >= 0 ? first : last;
        }
    }
}

/* ---- the files */

FileWatch *file_watch_new(bool poll)
{
    FileWatch *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->poll = poll;
    w->reports = -1;
    start_reports(w);
    return w;
}

static void free_files(Watched *files, int n)
{
    for (int i = 0; i < n; i++)
        free(files[i].path);
    free(files);
}

void file_watch_free(FileWatch *w)
{
    if (!w)
        return;
    stop_reports(w);
    free_files(w->files, w->n);
    free(w);
}

bool file_watch_reports(const FileWatch *w)
{
    return w->reports >= 0;
}

static Watched *find(const FileWatch *w, const char *path)
{
    for (int i = 0; i < w->n; i++)
        if (strcmp(w->files[i].path, path) == 0)
            return &w->files[i];
    return NULL;
}

bool file_watch_set(FileWatch *w, const char *const *paths, int n)
{
    Watched *files = calloc((size_t)n + 1, sizeof *files);
    bool ok = files != NULL;
    for (int i = 0; ok && i < n; i++) {
        const Watched *before = find(w, paths[i]);
        if (before)
            files[i] = *before;
        ok = (files[i].path = strdup(paths[i])) != NULL;
        if (!before)
            files[i].seen = look_at(paths[i]);
    }
    if (!ok) {
        free_files(files, files ? n : 0);
        return false;
    }
    free_files(w->files, w->n);
    w->files = files;
    w->n = n;
    start_reports(w);
    look_at_all(w);               /* what happened before the reports began */
    return true;
}

bool file_watch_changed(const FileWatch *w, const char *path)
{
    const Watched *file = find(w, path);
    return file && file->changed;
}

void file_watch_forget(FileWatch *w)
{
    for (int i = 0; i < w->n; i++)
        w->files[i].changed = false;
}
