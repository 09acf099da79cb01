/* util.c: memory, interned strings and text buffers. In: sizes and bytes. Out: zeroed memory that lives until
 * its arena is freed, and strings whose equality is pointer equality. Guaranteed: no caller sees a failed
 * allocation, the process ends with status 70 instead. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "say.h"
#include "texts.h"

/* ---- arena ---- */

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_EXACT 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_EXACT 1
#endif
#endif
#ifndef ARENA_EXACT
#define ARENA_EXACT 0
#endif

enum {
    CHUNK_BYTES = 256 * 1024, MOST_BYTES = 4 * 1024 * 1024, HUGE_PAGE = 2 * 1024 * 1024, ALIGNMENT = 16,
    CLASSES = 40,             /* of released blocks: class c has those of 2^c bytes and more, below 2^(c+1) */
    LEAST_RELEASED = 64,      /* bytes: smaller ones are not kept */
    LEAST_REUSED = 1024       /* for what asks for zeros: smaller ones cost less in a row */
};

typedef struct Chunk {
    struct Chunk *next, *before;
    size_t used, size; /* bytes behind the header */
    bool mapped;
} Chunk;

typedef struct Released { struct Released *next; size_t bytes; } Released;

struct Arena {
    Chunk *chunks, *spare; /* spare: without blocks, of zeros */
    size_t filling;    /* bytes of the last chunk that was made to be filled */
    Released *released[CLASSES];
};

/* Without memory for a message of `say`. */
static _Noreturn void no_memory(size_t bytes)
{
    fprintf(stderr, says_json() ? "{\"level\": \"error\", \"message\": \"out of memory (%zu bytes wanted)\", \"notes\": []}\n"
                                : "cellc: out of memory (%zu bytes wanted)\n", bytes);
    exit(70);
}

static void *must_calloc(size_t bytes)
{
    void *p = calloc(1, bytes);
    if (!p) {
        no_memory(bytes);
    }
    return p;
}

static size_t header_bytes(void)
{
    return (sizeof(Chunk) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t room_for(size_t bytes)
{
    return bytes ? (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : ALIGNMENT;
}

Arena *arena_new(void)
{
    return must_calloc(sizeof(Arena));
}

static void free_chunks(Chunk *k)
{
    for (Chunk *next; k; k = next) {
        next = k->next;
        if (k->mapped)
            munmap(k, header_bytes() + k->size);
        else
            free(k);
    }
}

void arena_free(Arena *a)
{
    if (!a)
        return;
    free_chunks(a->chunks);
    free_chunks(a->spare);
    free(a);
}

void arena_reset(Arena *a)
{
    Chunk *others = NULL;
    for (Chunk *k = a->chunks, *next; k; k = next) {
        next = k->next;
        Chunk **list = k->mapped ? &a->spare : &others;
        if (k->mapped)
            memset((char *)k + header_bytes(), 0, k->used);
        k->used = 0;
        k->before = NULL;
        k->next = *list;
        *list = k;
    }
    free_chunks(others);
    a->chunks = NULL;
    memset(a->released, 0, sizeof a->released);
}

/* A block that has a chunk of its own goes behind the one that is being filled. */
static Chunk *chunk_for(Arena *a, size_t size)
{
    Chunk *k = must_calloc(header_bytes() + size);
    k->size = size;
    k->before = a->chunks;
    k->next = a->chunks ? a->chunks->next : NULL;
    *(a->chunks ? &a->chunks->next : &a->chunks) = k;
    if (k->next)
        k->next->before = k;
    return k;
}

/* Zeroed memory that will be filled: its pages come at once, or as huge ones, which is cheaper than one by one as they
 * are touched. NULL: there is none. */
static void *map_pages(size_t bytes)
{
    size_t spare = bytes % HUGE_PAGE ? 0 : HUGE_PAGE;
    char *p = mmap(NULL, bytes + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (spare ? 0 : MAP_POPULATE),
                   -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (spare) {
        size_t before = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
        if (before)
            munmap(p, before);
        p += before;
        if (spare > before)
            munmap(p + bytes, spare - before);
        madvise(p, bytes, MADV_HUGEPAGE);     /* where it is not to be had, they are small */
    }
    return p;
}

/* Twice as much each time. */
static Chunk *more_pages(Arena *a)
{
    size_t bytes = a->filling ? 2 * a->filling : CHUNK_BYTES;
    a->filling = bytes = bytes > MOST_BYTES ? MOST_BYTES : bytes;
    Chunk *k = map_pages(bytes);
    bool mapped = k != NULL;
    if (!mapped)
        k = must_calloc(bytes);
    *k = (Chunk){ .size = bytes - header_bytes(), .mapped = mapped };
    return k;
}

static Chunk *chunk_new(Arena *a)
{
    Chunk *k = a->spare;
    if (k)
        a->spare = k->next;
    else
        k = more_pages(a);
    k->next = a->chunks;
    if (k->next)
        k->next->before = k;
    a->chunks = k;
    return k;
}

static int size_class(size_t bytes)
{
    int c = 63 - __builtin_clzll((unsigned long long)bytes);
    return c < CLASSES ? c : CLASSES - 1;
}

/* The next large block may have these bytes, which is cheaper than pages that were never touched. Under
 * AddressSanitizer they are freed, so that whoever still reads them is seen. */
void arena_release(Arena *a, void *old, size_t bytes)
{
    if (!old)
        return;
    if (ARENA_EXACT) {
        Chunk *k = (Chunk *)((char *)old - header_bytes());
        *(k->before ? &k->before->next : &a->chunks) = k->next;
        if (k->next)
            k->next->before = k->before;
        free(k);
    } else if (bytes >= LEAST_RELEASED) {
        Released *o = old, **list = &a->released[size_class(bytes)];
        *o = (Released){ *list, bytes };
        *list = o;
    }
}

/* NULL: there is none of its class; its bytes are not zero. */
static void *take_released(Arena *a, size_t bytes)
{
    Released **list = bytes >= LEAST_RELEASED ? &a->released[size_class(bytes)] : NULL, *o = list ? *list : NULL;
    if (!o || o->bytes < bytes)
        return NULL;
    *list = o->next;
    return o;
}

void *arena_alloc(Arena *a, size_t bytes)
{
    if (bytes > SIZE_MAX / 4) {
        no_memory(bytes);
    }
    /* Under AddressSanitizer each block is an allocation of its exact size, so that an overrun is seen. */
    if (ARENA_EXACT)
        return (char *)chunk_for(a, bytes ? bytes : 1) + header_bytes();
    void *released = bytes >= LEAST_REUSED ? take_released(a, bytes) : NULL;
    if (released)
        return memset(released, 0, bytes);
    size_t need = room_for(bytes);
    Chunk *k = a->chunks;
    if (!k || k->size - k->used < need)
        k = need > CHUNK_BYTES / 4 ? chunk_for(a, need) : chunk_new(a);
    void *p = (char *)k + header_bytes() + k->used;
    k->used += need;
    return p;
}

/* Does the block end where the next one would begin, with so much room behind it? */
static bool grows_in_place(const Arena *a, const void *old, size_t old_bytes, size_t new_bytes)
{
    const Chunk *k = a->chunks;
    if (ARENA_EXACT || !old || !k || new_bytes > SIZE_MAX / 4 || new_bytes < old_bytes)
        return false;
    const char *end = (const char *)k + header_bytes() + k->used;
    return (const char *)old + room_for(old_bytes) == end && room_for(new_bytes) - room_for(old_bytes) <= k->size - k->used;
}

void *arena_grow(Arena *a, void *old, size_t old_bytes, size_t new_bytes)
{
    if (grows_in_place(a, old, old_bytes, new_bytes)) {
        a->chunks->used += room_for(new_bytes) - room_for(old_bytes);
        return old;
    }
    size_t kept = !old ? 0 : old_bytes < new_bytes ? old_bytes : new_bytes;
    char *p = take_released(a, new_bytes);
    if (p)
        memset(p + kept, 0, new_bytes - kept);
    else
        p = arena_alloc(a, new_bytes);
    if (kept)
        memcpy(p, old, kept);
    if (old_bytes)
        arena_release(a, old, old_bytes);
    return p;
}

/* ---- formats ---- */

/* Nearly all formats hold nothing but %s, %.*s, %*s, %d, %u, %lld, %llu, %c and %%: these are printed here,
 * without the machinery that vsnprintf sets up for every call. */
typedef struct Printed { char *to; size_t size, n; } Printed;     /* n: bytes of the whole, also beyond the size */

static void put_bytes(Printed *p, const char *s, size_t bytes)
{
    size_t room = p->size > p->n ? p->size - p->n : 0;
    if (room)
        memcpy(p->to + p->n, s, bytes < room ? bytes : room);
    p->n += bytes;
}

enum { DIGITS = 24 };             /* room for a number of 64 bits */

/* The number's digits up to `end`; returns where they begin. */
static char *digits_before(char *end, unsigned long long v, bool minus)
{
    do
        *--end = (char)('0' + v % 10);
    while (v /= 10);
    if (minus)
        *--end = '-';
    return end;
}

static unsigned long long magnitude(long long v)
{
    return v < 0 ? 0ull - (unsigned long long)v : (unsigned long long)v;
}

static void put_number(Printed *p, unsigned long long v, bool minus)
{
    char digits[DIGITS], *end = digits + DIGITS, *s = digits_before(end, v, minus);
    put_bytes(p, s, (size_t)(end - s));
}

static void put_int(Printed *p, long long v)
{
    put_number(p, magnitude(v), v < 0);
}

/* False where the format holds something else. */
static bool print_plain(Printed *p, const char *fmt, va_list ap)
{
    for (const char *s = fmt; *s;) {
        for (; *s && *s != '%'; s++, p->n++)
            if (p->n < p->size)
                p->to[p->n] = *s;
        if (!*s++)
            break;
        if (*s == 's') {
            const char *text = va_arg(ap, const char *);
            put_bytes(p, text ? text : "(null)", strlen(text ? text : "(null)"));
        } else if (*s == 'd') {
            put_int(p, va_arg(ap, int));
        } else if (strncmp(s, "lld", 3) == 0) {
            put_int(p, va_arg(ap, long long));
            s += 2;
        } else if (strncmp(s, "llu", 3) == 0) {
            put_number(p, va_arg(ap, unsigned long long), false);
            s += 2;
        } else if (*s == 'u') {
            put_int(p, va_arg(ap, unsigned));
        } else if (*s == 'c') {
            put_bytes(p, &(char){ (char)va_arg(ap, int) }, 1);
        } else if (*s == '%') {
            put_bytes(p, s, 1);
        } else if (strncmp(s, ".*s", 3) == 0) {
            int most = va_arg(ap, int);
            const char *text = va_arg(ap, const char *);
            if (text)
                put_bytes(p, text, most < 0 ? strlen(text) : strnlen(text, (size_t)most));
            s += 2;
        } else if (strncmp(s, "*s", 2) == 0) {
            int width = va_arg(ap, int);
            const char *text = va_arg(ap, const char *);
            size_t n = strlen(text);
            if (width < 0)
                return false;
            for (size_t pad = n; pad < (size_t)width; pad++)
                put_bytes(p, " ", 1);
            put_bytes(p, text, n);
            s++;
        } else {
            return false;
        }
        s++;
    }
    if (p->size)
        p->to[p->n < p->size ? p->n : p->size - 1] = 0;
    return true;
}

/* As vsnprintf: bytes of the whole text without its NUL, of which there is what `size` has room for. */
static size_t format(char *to, size_t size, const char *fmt, va_list ap)
{
    Printed p = { to, size, 0 };
    va_list again;
    va_copy(again, ap);
    bool plain = print_plain(&p, fmt, again);
    va_end(again);
    if (plain)
        return p.n;
    va_copy(again, ap);
    int n = vsnprintf(to, size, fmt, again);
    va_end(again);
    return n < 0 ? 0 : (size_t)n;
}

const char *arena_text(Arena *a, const char *fmt, va_list ap)
{
    char most[512];
    size_t n = format(most, sizeof most, fmt, ap);
    char *s = arena_alloc(a, n + 1);
    if (n < sizeof most)
        memcpy(s, most, n + 1);
    else
        format(s, n + 1, fmt, ap);
    return s;
}

/* ---- interned strings ---- */

typedef struct Interned {
    struct Interned *next;
    uint32_t hash;
    size_t len;
    char text[];
} Interned;

struct InternTable {
    Interned **buckets;
    size_t nbuckets, count;
};

static uint32_t hash_bytes(const char *s, size_t n)
{
    uint64_t h = n, word;
    for (; n >= sizeof word; s += sizeof word, n -= sizeof word) {
        memcpy(&word, s, sizeof word);
        h = (h ^ word) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 32;
    }
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)s[i]) * 0x100000001b3ull;
    return (uint32_t)(h ^ h >> 32);
}

static void intern_rehash(Compiler *c, struct InternTable *t)
{
    size_t n = t->nbuckets ? 2 * t->nbuckets : 256;
    Interned **buckets = arena_alloc(c->arena, n * sizeof *buckets);
    for (size_t i = 0; i < t->nbuckets; i++) {
        for (Interned *e = t->buckets[i], *next; e; e = next) {
            next = e->next;
            e->next = buckets[e->hash & (n - 1)];
            buckets[e->hash & (n - 1)] = e;
        }
    }
    t->buckets = buckets;
    t->nbuckets = n;
}

const char *intern_n(Compiler *c, const char *s, size_t n)
{
    struct InternTable *t = c->interned;
    if (t->count >= t->nbuckets)
        intern_rehash(c, t);
    uint32_t h = hash_bytes(s, n);
    Interned **slot = &t->buckets[h & (t->nbuckets - 1)];
    for (Interned *e = *slot; e; e = e->next)
        if (e->hash == h && e->len == n && memcmp(e->text, s, n) == 0)
            return e->text;
    Interned *e = arena_alloc(c->arena, sizeof *e + n + 1);
    e->next = *slot;
    e->hash = h;
    e->len = n;
    memcpy(e->text, s, n);
    *slot = e;
    t->count++;
    return e->text;
}

const char *intern(Compiler *c, const char *s)
{
    return intern_n(c, s, strlen(s));
}

const char *intern_f(Compiler *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char small[512], *text = small;
    size_t n = format(small, sizeof small, fmt, ap);
    if (n >= sizeof small) {
        text = must_calloc(n + 1);
        format(text, n + 1, fmt, ap);
    }
    va_end(ap);
    const char *s = intern_n(c, text, n);
    if (text != small)
        free(text);
    return s;
}

/* ---- text buffers ---- */

static void buf_reserve(Buf *b, size_t more)
{
    if (b->len + more + 1 <= b->cap)
        return;
    size_t cap = b->cap ? 2 * b->cap : 64;
    while (cap < b->len + more + 1)
        cap *= 2;
    b->data = arena_grow(b->arena, b->data, b->cap, cap);
    b->cap = cap;
}

Buf buf_like(const Buf *b)
{
    return (Buf){ .arena = b->arena, .indent = b->indent, .dropped = b->dropped };
}

void buf_release(Buf *b)
{
    arena_release(b->arena, b->data, b->cap);
    b->data = NULL;
    b->len = b->cap = 0;
}

void buf_bytes(Buf *b, const char *s, size_t n)
{
    if (b->dropped)
        return;
    buf_reserve(b, n);
    memcpy(b->data + b->len, s, n);
    b->len += n;
    b->data[b->len] = 0;
}

void buf_blanks(Buf *b, int n)
{
    if (b->dropped || n <= 0)
        return;
    buf_reserve(b, (size_t)n);
    memset(b->data + b->len, ' ', (size_t)n);
    b->len += (size_t)n;
    b->data[b->len] = 0;
}

void buf_text(Buf *b, const char *s)
{
    buf_bytes(b, s, strlen(s));
}

void buf_int(Buf *b, long long v)
{
    char digits[DIGITS], *end = digits + DIGITS, *s = digits_before(end, magnitude(v), v < 0);
    buf_bytes(b, s, (size_t)(end - s));
}

static void buf_v(Buf *b, const char *fmt, va_list ap)
{
    if (b->dropped)
        return;
    buf_reserve(b, 24);
    size_t room = b->cap - b->len, n = format(b->data + b->len, room, fmt, ap);
    if (n >= room) {
        buf_reserve(b, n);
        format(b->data + b->len, n + 1, fmt, ap);
    }
    b->len += n;
}

void buf_f(Buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    buf_v(b, fmt, ap);
    va_end(ap);
}

/* indent counts levels of four spaces; an empty line stays empty. */
void buf_line(Buf *b, const char *fmt, ...)
{
    size_t start = b->len, pad = b->indent > 0 ? 4 * (size_t)b->indent : 0, text = start + pad;
    if (b->dropped)
        return;
    buf_reserve(b, pad);
    memset(b->data + start, ' ', pad);
    b->len = text;
    va_list ap;
    va_start(ap, fmt);
    buf_v(b, fmt, ap);
    va_end(ap);
    if (b->len == text)
        b->len = start;
    buf_bytes(b, "\n", 1);
}

/* ---- the compilation ---- */

Compiler *compiler_new(void)
{
    Compiler *c = must_calloc(sizeof *c);
    c->arena = arena_new();
    c->interned = arena_alloc(c->arena, sizeof *c->interned);
    const char *verify = getenv("CELLC_VERIFY_PASSES");
    c->verify_passes = verify && strcmp(verify, "0") != 0;
    texts_open(c);
    return c;
}

void compiler_free(Compiler *c)
{
    if (!c)
        return;
    texts_release(c);
    arena_free(c->arena);
    free(c);
}

/* What is no UTF-8, of a broken source, comes out as '?', what cannot be shown as its code. */
void buf_json(Buf *b, const char *s, size_t len)
{
    const unsigned char *p = (const unsigned char *)s, *end = p + len;
    buf_f(b, "\"");
    for (int n; p < end; p += n) {
        bool shown, utf8 = utf8_len(p, end) > 0;
        n = shown_char(p, end, &shown);
        if (!utf8)
            buf_f(b, "?");
        else if (*p == '"' || *p == '\\')
            buf_f(b, "\\%c", *p);
        else if (!shown)
            buf_f(b, "\\u%04x", code_point(p, n));
        else
            buf_f(b, "%.*s", n, (const char *)p);
    }
    buf_f(b, "\"");
}
