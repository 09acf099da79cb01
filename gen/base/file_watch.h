/* file_watch.h: waiting until files change, for `cellc watch`. */
#ifndef CELLC_FILE_WATCH_H
#define CELLC_FILE_WATCH_H

#include <stdbool.h>

typedef struct FileWatch FileWatch;

/* What ended a wait. */
typedef enum { WATCH_FILES, WATCH_READY } WatchEvent;

/* poll: never asks the system to report changes, but looks at the files several times a second, as folders of
 * other machines want it. NULL where there is no memory. */
FileWatch *file_watch_new(bool poll);
void file_watch_free(FileWatch *w);
/* Does the system report changes? Where not, and always with poll, the files are looked at. */
bool file_watch_reports(const FileWatch *w);
/* Watches these files from here on, which need not exist. Of those that were watched before it is known what
 * they were like then; a new one counts as it is now. false: no memory. */
bool file_watch_set(FileWatch *w, const char *const *paths, int n);
/* Waits until one of the files is another one than it was and stays so for a moment, which takes a burst of
 * writes, or a removal and what comes in its place, as one change: WATCH_FILES. Or until the descriptor can
 * be read or has been closed at its other end: WATCH_READY; -1: there is none. */
WatchEvent file_watch_wait(FileWatch *w, int descriptor);
/* Has the file changed since the last file_watch_forget? */
bool file_watch_changed(const FileWatch *w, const char *path);
void file_watch_forget(FileWatch *w);

#endif
