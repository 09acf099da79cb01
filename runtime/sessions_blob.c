/* A session as bytes: a head, the sizes, the instance's key, then each state's row and factors as they lie.
 * In: a session, or bytes from anywhere. Out: bytes, or a new session. Guaranteed: all of the bytes are
 * looked at before a session is made. Numbers are little-endian. */
#include "sessions.h"

#include <stdlib.h>
#include <string.h>

enum { BLOB_VERSION = 1 };
static const char magic[8] = { 'c', 'e', 'l', 'l', 's', 'e', 's', 's' };

typedef struct BlobHead {
    char magic[8];
    uint32_t version, check; /* check: of all that follows this word */
    uint64_t bytes; /* of the whole */
    int64_t steps;
    uint64_t states; /* a hash of names, types and elements */
    char program[24];
    uint32_t keep, n_sizes, key_bytes,
        initial; /* initial: nothing follows the key, the session has begun nothing */
} BlobHead;
enum { CHECKED_FROM = 16 };
typedef char blob_head_has_no_gaps[sizeof(BlobHead) == 80 ? 1 : -1];

/* CRC-32 of IEEE 802.3, four bits at a time. */
static uint32_t checksum(const unsigned char *p, size_t bytes)
{
    static const uint32_t table[16] = { 0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac,
                                        0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
                                        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                        0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c };
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < bytes; i++) {
        crc = crc >> 4 ^ table[(crc ^ p[i]) & 15];
        crc = crc >> 4 ^ table[(crc ^ (uint32_t)p[i] >> 4) & 15];
    }
    return ~crc;
}

static uint64_t hash_bytes(uint64_t hash, const void *from, size_t bytes)
{
    const unsigned char *p = from;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t hash_states(const cell_sessions *s)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < s->n_states; i++) {
        const Kept *k = &s->states[i];
        const char *name = s->desc->tensors[k->tensor].name;
        int32_t type = (int32_t)k->dtype;
        hash = hash_bytes(hash, name, strlen(name) + 1);
        hash = hash_bytes(hash, &type, sizeof type);
        hash = hash_bytes(hash, &k->elements, sizeof k->elements);
    }
    return hash;
}

static size_t factor_bytes(const Kept *k)
{
    return (size_t)k->factors * sizeof(float);
}

static BlobHead head_of(const cell_sessions *s, int initial)
{
    size_t each = 0;
    BlobHead h = { .version = BLOB_VERSION,
                   .states = hash_states(s),
                   .keep = (uint32_t)s->options.keep,
                   .n_sizes = (uint32_t)s->desc->n_sizes,
                   .key_bytes = (uint32_t)strlen(s->desc->key),
                   .initial = (uint32_t)initial };
    memcpy(h.magic, magic, sizeof magic);
    if (s->desc->program)
        strncpy(h.program, s->desc->program, sizeof h.program - 1);
    cell_sessions_bytes(s, NULL, &each);
    h.bytes = sizeof h + 8 * (uint64_t)h.n_sizes + h.key_bytes + (initial ? 0 : each);
    return h;
}

static const Past *now(cell_sessions *s, int32_t session)
{
    return &s->past[(size_t)session * ((size_t)s->options.back + 1) + (size_t)s->sessions[session].n - 1];
}

/* Each state's row and factors in their order, to the bytes or from them. */
static cell_status copy_states(cell_sessions *s, int32_t row, char *bytes, int in)
{
    cell_status status = CELL_OK;
    for (int i = 0; status == CELL_OK && i < s->n_states; i++) {
        const Kept *k = &s->states[i];
        char *rows = (char *)k->rows + (size_t)row * k->row;
        float *scale = k->factors ? k->scale + row * k->factors : NULL;
        status = cell_copy(s->ctx, in ? rows : bytes, in ? bytes : rows, k->row);
        bytes += k->row;
        if (status == CELL_OK)
            status =
                cell_copy(s->ctx, in ? (char *)scale : bytes, in ? bytes : (char *)scale, factor_bytes(k));
        bytes += factor_bytes(k);
    }
    return status;
}

cell_status cell_sessions_save(cell_sessions *s, int32_t session, void *blob, size_t bytes, size_t *need)
{
    int64_t steps;
    cell_status status = s ? cell_sessions_at(s, session, &steps, NULL) : CELL_NULL_POINTER;
    if (status != CELL_OK)
        return status;
    int32_t row = now(s, session)->row;
    BlobHead h = head_of(s, row == 0);
    h.steps = steps;
    if (need)
        *need = (size_t)h.bytes;
    if (!blob)
        return CELL_OK;
    if (bytes < h.bytes)
        return cell_fail(&s->ctx->error, CELL_TOO_SMALL, "sessions: %zu bytes for a session of %llu", bytes,
                         (unsigned long long)h.bytes);
    char *at = (char *)blob + sizeof h;
    memcpy(at, s->sizes, 8 * (size_t)h.n_sizes);
    at += 8 * (size_t)h.n_sizes;
    memcpy(at, s->desc->key, h.key_bytes);
    if (row)
        status = copy_states(s, row, at + h.key_bytes, 0);
    memcpy(blob, &h, sizeof h);
    h.check = checksum((unsigned char *)blob + CHECKED_FROM, (size_t)h.bytes - CHECKED_FROM);
    memcpy(blob, &h, sizeof h);
    return status;
}

/* Is it whole, and of a version that is known? */
static cell_status check_bytes(cell_sessions *s, const void *blob, size_t bytes, BlobHead *h)
{
    cell_error *err = &s->ctx->error;
    if (!blob)
        return cell_fail(err, CELL_NULL_POINTER, "sessions: the bytes of a session are null");
    if (bytes < CHECKED_FROM || memcmp(blob, magic, sizeof magic) != 0)
        return cell_fail(err, CELL_BAD_ARGUMENT, "sessions: the %zu bytes are no session", bytes);
    memset(h, 0, sizeof *h);
    memcpy(h, blob, bytes < sizeof *h ? bytes : sizeof *h);
    if (h->version > BLOB_VERSION)
        return cell_fail(err, CELL_UNSUPPORTED,
                         "sessions: the session was written in version %u, and this runtime reads %d",
                         h->version, BLOB_VERSION);
    if (bytes < sizeof *h || h->bytes != bytes)
        return cell_fail(err, CELL_BAD_ARGUMENT, "sessions: there are %zu bytes of a session of %llu", bytes,
                         (unsigned long long)(bytes < sizeof *h ? sizeof *h : h->bytes));
    uint32_t check = checksum((const unsigned char *)blob + CHECKED_FROM, bytes - CHECKED_FROM);
    if (check != h->check)
        return cell_fail(err, CELL_BAD_ARGUMENT,
                         "sessions: the session's bytes were changed: their checksum is %08x, not %08x",
                         check, h->check);
    return CELL_OK;
}

static const char *keep_name(uint32_t keep)
{
    static const char *const names[] = { "as they are", "in bf16", "in int8" };
    return keep < 3 ? names[keep] : "otherwise";
}

static cell_status check_cell(cell_sessions *s, const void *blob, const BlobHead *h)
{
    cell_error *err = &s->ctx->error;
    const char *at = (const char *)blob + sizeof *h, *key = at + 8 * (size_t)h->n_sizes;
    BlobHead mine = head_of(s, h->initial != 0);
    if (sizeof *h + 8 * (uint64_t)h->n_sizes + h->key_bytes > h->bytes)
        return cell_fail(err, CELL_BAD_ARGUMENT, "sessions: the session's bytes contradict themselves");
    if (h->key_bytes != mine.key_bytes || memcmp(key, s->desc->key, mine.key_bytes) != 0)
        return cell_fail(err, CELL_BAD_ARGUMENT, "sessions: the session is of %.*s, the store of %s",
                         (int)(h->key_bytes < 200 ? h->key_bytes : 200), key, s->desc->key);
    if (*h->program && *mine.program && memcmp(h->program, mine.program, sizeof mine.program) != 0)
        return cell_fail(err, CELL_BAD_ARGUMENT,
                         "sessions: the session is of another %s: its spec has other equations",
                         s->desc->key);
    if (h->n_sizes != mine.n_sizes || memcmp(at, s->sizes, 8 * (size_t)mine.n_sizes) != 0) {
        char text[2][200];
        int64_t sizes[CELL_MAX_SIZES] = { 0 };
        memcpy(sizes, at, 8 * (size_t)(h->n_sizes < mine.n_sizes ? h->n_sizes : mine.n_sizes));
        cell_list_sizes(s->desc, sizes, text[0], sizeof text[0]);
        cell_list_sizes(s->desc, s->sizes, text[1], sizeof text[1]);
        return cell_fail(err, CELL_BAD_ARGUMENT, "sessions: the session has sizes %s, the store %s", text[0],
                         text[1]);
    }
    if (h->keep != mine.keep)
        return cell_fail(err, CELL_BAD_ARGUMENT, "sessions: the session's states are kept %s, the store's %s",
                         keep_name(h->keep), keep_name(mine.keep));
    if (h->states != mine.states || h->bytes != mine.bytes || h->steps < 0)
        return cell_fail(err, CELL_BAD_ARGUMENT, "sessions: the session has other states than the store");
    return CELL_OK;
}

cell_status cell_sessions_load(cell_sessions *s, const void *blob, size_t bytes, int32_t *session)
{
    BlobHead h;
    if (session)
        *session = -1;
    cell_status status = s ? cell_context_check(s->ctx) : CELL_NULL_POINTER;
    if (status == CELL_OK)
        status = check_bytes(s, blob, bytes, &h);
    if (status == CELL_OK)
        status = check_cell(s, blob, &h);
    if (status == CELL_OK)
        status = cell_sessions_open(s, session);
    if (status != CELL_OK || h.initial)
        return status;
    Past *past = &s->past[(size_t)*session * ((size_t)s->options.back + 1)];
    past->row = s->free[--s->n_free];
    past->steps = h.steps;
    s->users[past->row] = 1;
    const char *states = (const char *)blob + sizeof h + 8 * (size_t)h.n_sizes + h.key_bytes;
    status = copy_states(s, past->row, (char *)(uintptr_t)states, 1);
    if (status == CELL_OK)
        return CELL_OK;
    cell_sessions_close(s, *session);
    *session = -1;
    return status;
}
