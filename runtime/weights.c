/* Weights to files and back. In: tensors in a backend's memory, the path of a safetensors file. Out: the
 * file, or the tensors filled. Guaranteed: of what is asked for, all is found, compared and read before the
 * first tensor is written; a file appears under its name when it is whole. */
#include "cell_weights.h"
#include "context.h"
#include "half.h"
#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static cell_status check_weight(cell_context *ctx, const cell_weight *w, size_t *bytes)
{
    *bytes = 0;
    uint64_t elements = cell_dtype_bytes(w->dtype);
    if (!memchr(w->name, 0, sizeof w->name))
        return cell_fail(&ctx->error, CELL_BAD_ARGUMENT, "weights: the name '%.40s…' has no end", w->name);
    if (!cell_is_utf8(w->name))
        return cell_fail(&ctx->error, CELL_BAD_ARGUMENT, "weights: a name is no UTF-8");
    if (!*w->name || strcmp(w->name, "__metadata__") == 0)
        return cell_fail(&ctx->error, CELL_BAD_ARGUMENT, "weights: no tensor can be called '%s'", w->name);
    if (!elements || w->rank < 0 || w->rank > CELL_WEIGHT_RANK)
        return cell_fail(&ctx->error, CELL_BAD_ARGUMENT, "weights: '%s' has no type, or not 0 to %d axes",
                         w->name, CELL_WEIGHT_RANK);
    for (int i = 0; i < w->rank; i++) {
        if (w->shape[i] < 0 || (w->shape[i] && elements > (uint64_t)INT64_MAX / (uint64_t)w->shape[i]))
            return cell_fail(&ctx->error, CELL_BAD_SIZE, "weights: axis %d of '%s' is %lld", i, w->name,
                             (long long)w->shape[i]);
        elements *= (uint64_t)w->shape[i];
    }
    if (elements > PTRDIFF_MAX)
        return cell_fail(&ctx->error, CELL_BAD_SIZE,
                         "weights: '%s' has %llu bytes, more than can be addressed", w->name,
                         (unsigned long long)elements);
    if (elements && !w->data)
        return cell_fail(&ctx->error, CELL_NULL_POINTER, "weights: the memory of '%s' is null", w->name);
    *bytes = (size_t)elements;
    return CELL_OK;
}

static cell_status check_list(cell_context *ctx, const char *path, const cell_weight *list, int n)
{
    size_t bytes;
    if (!path || (n > 0 && !list) || n < 0) {
        cell_fail(&ctx->error, CELL_NULL_POINTER, "weights: the path or the list is null");
        return CELL_NULL_POINTER;
    }
    for (int i = 0; i < n; i++) {
        cell_status status = check_weight(ctx, &list[i], &bytes);
        if (status != CELL_OK)
            return status;
        for (int k = 0; k < i; k++)
            if (strcmp(list[i].name, list[k].name) == 0)
                return cell_fail(&ctx->error, CELL_BAD_ARGUMENT, "weights: '%s' comes twice in the list",
                                 list[i].name);
    }
    return CELL_OK;
}

cell_status cell_weights_of(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                            const char *prefix, void *const *data, cell_weight *list, int room, int *n)
{
    cell_status status = cell_context_check(ctx);
    if (status != CELL_OK)
        return status;
    if (!desc || !sizes || !data || !n)
        return cell_fail(&ctx->error, CELL_NULL_POINTER, "weights: a description, sizes or a list is null");
    *n = 0;
    for (int i = 0; i < desc->n_tensors; i++) {
        const cell_tensor *t = &desc->tensors[i];
        if (t->kind != CELL_PARAM)
            continue;
        int at = (*n)++;
        if (at >= room)
            continue;
        cell_weight *w = &list[at];
        memset(w, 0, sizeof *w);
        if (snprintf(w->name, sizeof w->name, "%s%s", prefix ? prefix : "", t->name) >= (int)sizeof w->name)
            return cell_fail(&ctx->error, CELL_BAD_ARGUMENT, "weights: the name of '%s' is too long",
                             t->name);
        if (t->rank > CELL_WEIGHT_RANK)
            return cell_fail(&ctx->error, CELL_UNSUPPORTED, "weights: '%s' has %d axes, a file can have %d",
                             t->name, t->rank, CELL_WEIGHT_RANK);
        w->dtype = t->dtype;
        w->rank = t->rank;
        w->data = data[at];
        for (int k = 0; k < t->rank && status == CELL_OK; k++)
            status = cell_eval(t->axes[k], sizes, desc->n_sizes, &w->shape[k]);
        if (status != CELL_OK)
            return cell_fail(&ctx->error, status, "weights: the sizes give '%s' no shape", t->name);
    }
    if (*n > room)
        return cell_fail(&ctx->error, CELL_TOO_SMALL, "weights: there are %d params, and room for %d", *n,
                         room);
    return CELL_OK;
}

/* ---- saving */

/* Keys and values by turns: a value for each key, no key twice, all of them UTF-8. */
static cell_status check_metadata(cell_context *ctx, const char *const *metadata)
{
    for (int i = 0; metadata && metadata[i]; i += 2) {
        if (!cell_is_utf8(metadata[i]) || (metadata[i + 1] && !cell_is_utf8(metadata[i + 1])))
            return cell_fail(&ctx->error, CELL_BAD_ARGUMENT, "weights: number %d of the metadata is no UTF-8", i / 2);
        if (!metadata[i + 1])
            return cell_fail(&ctx->error, CELL_BAD_ARGUMENT, "weights: the key '%s' of the metadata has no value",
                             metadata[i]);
        for (int k = 0; k < i; k += 2)
            if (strcmp(metadata[i], metadata[k]) == 0)
                return cell_fail(&ctx->error, CELL_BAD_ARGUMENT, "weights: the key '%s' comes twice in the metadata",
                                 metadata[i]);
    }
    return CELL_OK;
}

/* The file that the path means: where it is a link, what that leads to, so that the link stays and its file is written.
 * NULL: there is no memory, or the link leads nowhere. The caller frees it. */
static char *resolved(const char *path)
{
    struct stat is;
    if (lstat(path, &is) == 0 && S_ISLNK(is.st_mode)) {
#ifdef __wasi__ /* its library has no realpath */
        errno = ENOTSUP;
        return NULL;
#else
        return realpath(path, NULL);
#endif
    }
    return strdup(path);
}

/* A new file beside the path, of this call alone, whatever other calls and processes save there; *name is to be freed. It has
 * the permissions that any new file gets, which one of mkstemp has not. NULL: errno says why. */
static FILE *open_beside(const char *path, char **name)
{
    enum { ATTEMPTS = 100 };
    size_t room = strlen(path) + 64;
    *name = malloc(room);
    for (int i = 0; *name && i < ATTEMPTS; i++) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        snprintf(*name, room, "%s.%ld.%lx.part", path, (long)getpid(), (unsigned long)now.tv_nsec ^ (unsigned long)(uintptr_t)&now);
        int file = open(*name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file >= 0)
            return fdopen(file, "wb");
        if (errno != EEXIST)
            break;
    }
    return NULL;
}

static cell_status cannot(cell_context *ctx, const char *what, const char *path)
{
    return cell_fail(&ctx->error, CELL_BACKEND_FAILED, "cannot %s %s: %s", what, path, strerror(errno));
}

static cell_status write_tensors(cell_context *ctx, FILE *file, const char *path, const cell_weight *list,
                                 int n)
{
    size_t bytes;
    for (int i = 0; i < n; i++) {
        cell_status status = check_weight(ctx, &list[i], &bytes);
        if (status != CELL_OK || !bytes)
            continue;
        void *host = malloc(bytes);
        if (!host)
            return cell_fail(&ctx->error, CELL_OUT_OF_MEMORY, "out of memory: %zu bytes of '%s'", bytes,
                             list[i].name);
        status = cell_copy(ctx, host, list[i].data, bytes);
        if (status == CELL_OK && fwrite(host, 1, bytes, file) != bytes)
            status = cannot(ctx, "write", path);
        free(host);
        if (status != CELL_OK)
            return status;
    }
    return CELL_OK;
}

cell_status cell_weights_save(cell_context *ctx, const char *path, const cell_weight *list, int n,
                              const char *const *metadata)
{
    cell_status status = cell_context_check(ctx);
    if (status == CELL_OK)
        status = check_list(ctx, path, list, n);
    if (status == CELL_OK)
        status = check_metadata(ctx, metadata);
    if (status != CELL_OK)
        return status;
    char *target = resolved(path), *beside = NULL;
    FILE *file = target ? open_beside(target, &beside) : NULL;
    if (!file) {
        status = cannot(ctx, target ? "write" : "follow the link", path);
        free(target);
        free(beside);
        return status;
    }
    status = cell_header_write(file, path, list, n, metadata, &ctx->error);
    if (status == CELL_OK)
        status = write_tensors(ctx, file, path, list, n);
    if (status == CELL_OK && (fflush(file) != 0 || fsync(fileno(file)) != 0))
        status = cannot(ctx, "write", path);
    if (fclose(file) != 0 && status == CELL_OK)
        status = cannot(ctx, "write", path);
    if (status == CELL_OK && rename(beside, target) != 0)
        status = cannot(ctx, "write", path);
    if (status != CELL_OK)
        unlink(beside);
    free(target);
    free(beside);
    return status;
}

/* ---- loading */

static double load_number(const void *from, int64_t i, cell_dtype dtype)
{
    switch (dtype) {
    case CELL_F64: return ((const double *)from)[i];
    case CELL_BF16: return cell_bf16_to_f32(((const uint16_t *)from)[i]);
    case CELL_F16: return cell_f16_to_f32(((const uint16_t *)from)[i]);
    default: return ((const float *)from)[i];
    }
}

static void store_number(void *to, int64_t i, cell_dtype dtype, double value)
{
    switch (dtype) {
    case CELL_F64: ((double *)to)[i] = value; break;
    case CELL_BF16: ((uint16_t *)to)[i] = cell_f64_to_bf16(value); break;
    case CELL_F16: ((uint16_t *)to)[i] = cell_f64_to_f16(value); break;
    default: ((float *)to)[i] = (float)value; break;
    }
}

static int is_floating(int dtype)
{
    return dtype == CELL_F32 || dtype == CELL_BF16 || dtype == CELL_F16 || dtype == CELL_F64;
}

static const cell_stored *find_stored(const cell_file_header *h, const char *name)
{
    for (int low = 0, high = h->n_tensors; low < high;) {
        int middle = (low + high) / 2, order = strcmp(name, h->tensors[middle].name);
        if (order == 0)
            return &h->tensors[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static void put_shape(char *text, size_t bytes, const int64_t *shape, int rank)
{
    size_t used = (size_t)snprintf(text, bytes, "[");
    for (int i = 0; i < rank && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%lld", i ? ", " : "", (long long)shape[i]);
    if (used < bytes)
        snprintf(text + used, bytes - used, "]");
}

/* Is this what the list asks for? */
static cell_status compare(cell_context *ctx, const char *path, const cell_file_header *h,
                           const cell_weight *w)
{
    const cell_stored *t = find_stored(h, w->name);
    char there[200], wanted[200];
    if (!t)
        return cell_fail(&ctx->error, CELL_BAD_ARGUMENT,
                         "%s has no tensor '%s'; it has %d, the first is '%s'", path, w->name, h->n_tensors,
                         h->n_tensors ? h->tensors[0].name : "");
    if (t->rank != w->rank || memcmp(t->shape, w->shape, sizeof *t->shape * (size_t)t->rank) != 0) {
        put_shape(there, sizeof there, t->shape, t->rank);
        put_shape(wanted, sizeof wanted, w->shape, w->rank);
        return cell_fail(&ctx->error, CELL_BAD_SIZE, "%s: '%s' has the shape %s, wanted is %s", path, w->name,
                         there, wanted);
    }
    int type = cell_type_of_file(t->dtype);
    if (type != (int)w->dtype && !(is_floating(type) && is_floating((int)w->dtype)))
        return cell_fail(&ctx->error, CELL_BAD_ARGUMENT, "%s: '%s' is of type %s, wanted is %s", path,
                         w->name, t->dtype, cell_file_type(w->dtype));
    return CELL_OK;
}

/* The tensor in the list's type, allocated. */
static cell_status read_tensor(cell_context *ctx, FILE *file, const char *path, const cell_file_header *h,
                               const cell_weight *w, void **host)
{
    const cell_stored *t = find_stored(h, w->name);
    size_t stored = (size_t)(t->end - t->begin), bytes;
    cell_status status = check_weight(ctx, w, &bytes);
    cell_dtype type = (cell_dtype)cell_type_of_file(t->dtype);
    void *raw = t->end - t->begin < PTRDIFF_MAX ? calloc(stored + 1, 1) : NULL;
    *host = raw && type != w->dtype ? malloc(bytes + 1) : raw;
    if (!*host) {
        free(raw);
        return cell_fail(&ctx->error, CELL_OUT_OF_MEMORY, "out of memory: %zu bytes of '%s'", stored,
                         w->name);
    }
    if (fseeko(file, (off_t)(h->data + t->begin), SEEK_SET) != 0 || fread(raw, 1, stored, file) != stored)
        status = cell_fail(&ctx->error, CELL_BACKEND_FAILED, "%s: '%s' cannot be read", path, w->name);
    if (*host == raw)
        return status;
    int64_t elements = (int64_t)(bytes / cell_dtype_bytes(w->dtype));
    for (int64_t i = 0; i < elements && status == CELL_OK; i++)
        store_number(*host, i, w->dtype, load_number(raw, i, type));
    free(raw);
    return status;
}

static cell_status open_weights(cell_context *ctx, const char *path, FILE *file, cell_file_header *header)
{
    memset(header, 0, sizeof *header);
    if (!file)
        return cannot(ctx, "read", path);
    return cell_header_read(file, path, header, &ctx->error);
}

/* The file is closed; it may be NULL, and then errno says why. */
static cell_status load(cell_context *ctx, const char *path, FILE *file, const cell_weight *list, int n)
{
    cell_file_header header;
    cell_status status = open_weights(ctx, path, file, &header);
    void **host = calloc((size_t)n + 1, sizeof *host);
    if (status == CELL_OK && !host)
        status = cell_fail(&ctx->error, CELL_OUT_OF_MEMORY, "out of memory: a list of %d tensors", n);
    for (int i = 0; i < n && status == CELL_OK; i++)
        status = compare(ctx, path, &header, &list[i]);
    for (int i = 0; i < n && status == CELL_OK; i++)
        status = read_tensor(ctx, file, path, &header, &list[i], &host[i]);
    for (int i = 0; i < n && status == CELL_OK; i++) {
        size_t bytes = 0;
        status = check_weight(ctx, &list[i], &bytes);
        if (status == CELL_OK)
            status = cell_copy(ctx, list[i].data, host[i], bytes);
    }
    for (int i = 0; host && i < n; i++)
        free(host[i]);
    free(host);
    cell_header_free(&header);
    if (file)
        fclose(file);
    return status;
}

cell_status cell_weights_load(cell_context *ctx, const char *path, const cell_weight *list, int n)
{
    cell_status status = cell_context_check(ctx);
    if (status == CELL_OK)
        status = check_list(ctx, path, list, n);
    return status == CELL_OK ? load(ctx, path, fopen(path, "rb"), list, n) : status;
}

/* Where there is nothing, a byte that is no file of weights either: fmemopen wants one. */
cell_status cell_weights_load_memory(cell_context *ctx, const void *bytes, size_t n_bytes,
                                     const cell_weight *list, int n)
{
    static const char name[] = "the file in memory";
    cell_status status = cell_context_check(ctx);
    if (status == CELL_OK && n_bytes && !bytes)
        status = cell_fail(&ctx->error, CELL_NULL_POINTER, "weights: the file in memory is null");
    if (status == CELL_OK)
        status = check_list(ctx, name, list, n);
    if (status != CELL_OK)
        return status;
    void *from = (void *)(uintptr_t)(n_bytes ? bytes : ""); /* it is read only */
    return load(ctx, name, fmemopen(from, n_bytes ? n_bytes : 1, "rb"), list, n);
}

cell_status cell_weights_metadata(cell_context *ctx, const char *path, const char *key, char *text,
                                  size_t bytes)
{
    cell_file_header header;
    FILE *file;
    const char *found = NULL;
    cell_status status = cell_context_check(ctx);
    if (status != CELL_OK)
        return status;
    if (!path || !key || !text || !bytes)
        return cell_fail(&ctx->error, CELL_NULL_POINTER, "weights: the path, the key or the text is null");
    file = fopen(path, "rb");
    status = open_weights(ctx, path, file, &header);
    for (int i = 0; status == CELL_OK && i < header.n_texts; i++)
        if (strcmp(header.texts[i].key, key) == 0)
            found = header.texts[i].value;
    if (found)
        snprintf(text, bytes, "%s", found);
    else if (status == CELL_OK)
        status = cell_fail(&ctx->error, CELL_BAD_ARGUMENT, "%s has no metadata of the key '%s'", path, key);
    cell_header_free(&header);
    if (file)
        fclose(file);
    return status;
}
