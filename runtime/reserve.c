/* What a reserve is. In: forward and backward calls with a reserve. Out: at the reserve's front, a mark that says
 * which instance filled it, where and at which sizes; backward refuses a reserve that another call filled.
 * Guaranteed: a reserve in host memory is always checked. One on a device is not read where that would mean to
 * wait: a context remembers the last reserves that it filled, and reads the mark only of one that it knows to
 * have held something else; that it was filled elsewhere, or copied there, is taken on trust. */
#include "context.h"

#include <stdio.h>
#include <string.h>

static const char magic[8] = "cellrsv";

static uint64_t hash_of(const char *text, uint64_t hash) {
    for (; text && *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

static const uint64_t empty = 14695981039346656037u;

/* The plans of an instance, for other devices or calls, have kernels of other names. */
static uint64_t hash_of_plan(const cell_desc *desc) {
    uint64_t hash = hash_of(desc->how, empty) ^ (uint64_t)desc->block_memory << 8;
    for (int i = 0; i < desc->n_kernels; i++)
        hash = hash_of(desc->kernels[i].name, hash);
    return hash;
}

static cell_mark mark_of(const cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                         const cell_pieces *pieces)
{
    cell_mark mark;
    memset(&mark, 0, sizeof mark); /* padding is compared too */
    memcpy(mark.magic, magic, sizeof magic);
    snprintf(mark.key, sizeof mark.key, "%s", desc->key);
    mark.reference = !ctx->backend->launch;
    mark.hash = hash_of(desc->key, empty) + (uint64_t)desc->plan_version;
    mark.plan = mark.reference ? 0 : hash_of_plan(desc);
    mark.n_sizes = desc->n_sizes;
    mark.length = pieces ? pieces->length : 0;
    mark.slots = pieces ? pieces->slots : 0;
    mark.call = pieces ? pieces->call : 0;
    memcpy(mark.sizes, sizes, sizeof *sizes * (size_t)desc->n_sizes);
    return mark;
}

static int same(const cell_mark *a, const cell_mark *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

static cell_known_reserve *known(cell_context *ctx, const void *reserve) {
    for (int i = 0; i < CELL_KNOWN_RESERVES; i++)
        if (ctx->reserves[i].at == reserve)
            return &ctx->reserves[i];
    return NULL;
}

/* In the place of what was known of it, or of what was not used for the longest time. */
static void remember(cell_context *ctx, const void *reserve, const cell_mark *mark) {
    cell_known_reserve *entry = known(ctx, reserve);
    for (int i = 0; !entry && i < CELL_KNOWN_RESERVES; i++)
        if (!ctx->reserves[i].at)
            entry = &ctx->reserves[i];
    if (!entry)
        entry = &ctx->reserves[0];
    for (int i = 1; entry->at && entry->at != reserve && i < CELL_KNOWN_RESERVES; i++)
        if (ctx->reserves[i].used < entry->used)
            entry = &ctx->reserves[i];
    *entry = (cell_known_reserve){.at = reserve, .mark = *mark, .used = ++ctx->clock};
}

cell_status cell_reserve_mark(cell_context *ctx, const cell_desc *desc, const int64_t *sizes, void *reserve,
                              int filled, const cell_pieces *pieces)
{
    cell_mark mark = mark_of(ctx, desc, sizes, pieces);
    const cell_backend *backend = ctx->backend;
    if (!filled)
        memcpy(mark.magic, "nothing", sizeof mark.magic);
    if (pieces && pieces->host)
        memcpy(ctx->host, &mark, sizeof mark);
    if (backend->host_memory) {
        memcpy(reserve, &mark, sizeof mark);
        return CELL_OK;
    }
    if (!backend->put)
        return CELL_OK;
    /* Also where this context put the same mark there before: another may have filled the reserve since. */
    remember(ctx, reserve, &mark);
    return backend->put(ctx->self, reserve, &mark, sizeof mark, &ctx->error);
}

static cell_status refuse(const cell_context *ctx, const cell_desc *desc, const char *what,
                          const cell_mark *wanted, const cell_mark *found, cell_error *err)
{
    char was[256] = "", is[256];
    cell_list_sizes(desc, wanted->sizes, is, sizeof is);
    if (memcmp(found->magic, magic, sizeof magic) != 0)
        return cell_fail(err, CELL_BAD_ARGUMENT,
                         "%s: backward's %s holds nothing that a forward call saved; wanted that of forward "
                         "with %s",
                         desc->key, what, is);
    if (found->hash == wanted->hash && found->n_sizes == wanted->n_sizes)
        cell_list_sizes(desc, found->sizes, was, sizeof was);
    const char *by = "";
    if (*was && found->reference == wanted->reference &&
        (found->length != wanted->length || found->slots != wanted->slots || !found->call != !wanted->call))
        by = " in other pieces: with another number of bytes, or other flags of CELL_RECOMPUTE and "
             "CELL_OFFLOAD";
    else if (*was && found->call != wanted->call)
        by = " in another call than the host memory";
    else if (found->reference)
        by = " on the reference backend";
    else if (*was && found->plan != wanted->plan)
        by = " by the kernels of another plan, for other devices or calls";
    return cell_fail(err, CELL_BAD_ARGUMENT,
                     "%s: backward's %s was filled by forward of %.247s%s%s%s; wanted that of %s with %s on "
                     "the %s backend",
                     desc->key, what, found->key, *was ? " with " : "", was, by, desc->key, is,
                     ctx->backend->name);
}

static int is_blank(const cell_mark *mark) {
    static const cell_mark blank;
    return same(mark, &blank);
}

cell_status cell_reserve_check(cell_context *ctx, const cell_desc *desc, const int64_t *sizes,
                               const void *reserve, const cell_pieces *pieces)
{
    cell_mark wanted = mark_of(ctx, desc, sizes, pieces), found;
    const cell_backend *backend = ctx->backend;
    if (pieces && pieces->host) {
        memcpy(&found, ctx->host, sizeof found);
        wanted.call = found.call;
        if (!same(&found, &wanted))
            return refuse(ctx, desc, "host memory", &wanted, &found, &ctx->error);
    }
    if (backend->host_memory) {
        memcpy(&found, reserve, sizeof found);
        return same(&found, &wanted) ? CELL_OK : refuse(ctx, desc, "reserve", &wanted, &found, &ctx->error);
    }
    const cell_known_reserve *entry = known(ctx, reserve);
    if (!entry || same(&entry->mark, &wanted) || (backend->graph_busy && backend->graph_busy(ctx->self)))
        return CELL_OK;
    cell_status status = backend->transfer(ctx->self, &found, reserve, sizeof found, &ctx->error);
    /* Blank: filled by a recorded forward call. */
    if (status != CELL_OK || same(&found, &wanted) || is_blank(&found))
        return status;
    return refuse(ctx, desc, "reserve", &wanted, &found, &ctx->error);
}
