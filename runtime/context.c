/* Contexts: creation on a backend, messages, memory. In: the caller's choice of backend, or CELL_BACKEND.
 * Out: a context that the other entry points take. Guaranteed: on failure nothing is left behind, and the
 * reason is one sentence. */
#include "context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Its address tells apart two copies of the runtime in one process: kernels are registered with the copy they
 * were linked with. */
static const char owner_mark = 0;

const char *cell_status_string(cell_status status) {
    static const char *const names[] = {
        "ok",
        "null pointer",
        "bad size",
        "misaligned",
        "memory given too small",
        "out of memory",
        "wrong device",
        "no device",
        "no device image",
        "unsupported",
        "bad argument",
        "backend failed",
        "no instance",
    };
    if ((unsigned)status >= sizeof names / sizeof *names)
        return "unknown status";
    return names[status];
}

const char *cell_dtype_name(cell_dtype dtype) {
    static const char *const names[] = { "f32", "bf16", "f16", "f64", "i32", "bool", "e4m3", "e5m2" };
    return (unsigned)dtype < sizeof names / sizeof *names ? names[dtype] : "?";
}

size_t cell_dtype_bytes(cell_dtype dtype) {
    static const size_t bytes[] = { 4, 2, 2, 8, 4, 1, 1, 1 };
    return (unsigned)dtype < sizeof bytes / sizeof *bytes ? bytes[dtype] : 0;
}

cell_status cell_fail(cell_error *err, cell_status status, const char *format, ...) {
    if (!err)
        return status;
    va_list list;
    va_start(list, format);
    vsnprintf(err->text, sizeof err->text, format, list);
    va_end(list);
    return status;
}

/* Host memory is copied by a fork; a device's state is not. */
static int is_inherited(const cell_context *ctx) {
    return !ctx->backend->host_memory && ctx->process != (int64_t)getpid();
}

cell_status cell_context_check(cell_context *ctx) {
    if (!ctx)
        return CELL_NULL_POINTER;
    if (ctx->owner != &owner_mark)
        return CELL_BAD_ARGUMENT; /* its layout may differ, so no message can be left in it */
    if (is_inherited(ctx))
        return cell_fail(&ctx->error, CELL_UNSUPPORTED,
                         "the context was created before a fork, and a device does not follow into the child: "
                         "create one there, in a process whose parent has not used the device");
    return CELL_OK;
}

static void give_message(char *message, size_t bytes, const cell_error *err) {
    if (message && bytes)
        snprintf(message, bytes, "%s", err->text);
}

/* CELL_VERBOSE: absent, empty or 0 is silence; a word that is no number is 1. */
static int verbosity(void) {
    const char *value = getenv("CELL_VERBOSE");
    if (!value || !*value || strcmp(value, "0") == 0)
        return 0;
    int level = atoi(value);
    return level > 0 ? level : 1;
}

static cell_status create_on(cell_context **out, const cell_backend *backend, int device, cell_error *err) {
    cell_context *ctx = calloc(1, sizeof *ctx);
    if (!ctx)
        return cell_fail(err, CELL_OUT_OF_MEMORY, "out of memory for a context");
    ctx->owner = &owner_mark;
    ctx->backend = backend;
    ctx->process = (int64_t)getpid();
    ctx->verbose = verbosity();
    cell_status status = backend->create(&ctx->self, device, err);
    if (status != CELL_OK) {
        free(ctx);
        return status;
    }
    *out = ctx;
    return CELL_OK;
}

/* The backend that the environment asks for; an unknown word is an error, not a default. */
static cell_status backend_from_environment(cell_backend_kind *kind, cell_error *err) {
    static const char *const words[] = { "auto", "cuda", "reference", "emulated", "cpu" };
    const char *word = getenv("CELL_BACKEND");
    if (!word || !*word)
        return CELL_OK;
    for (int i = 0; i < 5; i++) {
        if (strcmp(word, words[i]) == 0) {
            *kind = (cell_backend_kind)i;
            return CELL_OK;
        }
    }
    return cell_fail(err, CELL_BAD_ARGUMENT,
                     "CELL_BACKEND is '%.40s'; wanted auto, cuda, reference, emulated or cpu", word);
}

/* The backend with the CUDA runtime is an object of its own (backend_cuda.c), which `cellc build` compiles
 * where it finds a toolkit; NULL in what is linked without it. */
#ifndef CELL_HAVE_CUDA
#pragma weak cell_cuda_backend
#endif

static cell_status create_cuda(cell_context **out, int device, cell_error *err) {
#ifndef CELL_HAVE_CUDA
    if (!cell_cuda_backend)
        return cell_fail(err, CELL_NO_DEVICE,
                         "this runtime was built without CUDA; use the backend cpu, or reference");
#endif
    return create_on(out, cell_cuda_backend(), device, err);
}

/* Only the absence of a device leads to the CPU; a device that cannot be used is an error. */
static cell_status create_auto(cell_context **out, int device, cell_error *err) {
    cell_status status = create_cuda(out, device, err);
    if (status != CELL_NO_DEVICE || device > 0)
        return status;
    if (verbosity())
        fprintf(stderr, "cell: %s: taking the backend cpu\n", err->text);
    return create_on(out, cell_cpu_backend(), 0, err);
}

static cell_status create(cell_context **out, cell_backend_kind kind, int device, cell_error *err) {
    if (kind == CELL_BACKEND_AUTO) {
        cell_status status = backend_from_environment(&kind, err);
        if (status != CELL_OK)
            return status;
    }
    switch (kind) {
    case CELL_BACKEND_AUTO:
        return create_auto(out, device, err);
    case CELL_BACKEND_CUDA:
        return create_cuda(out, device, err);
    case CELL_BACKEND_REFERENCE:
        return create_on(out, cell_reference_backend(), device, err);
    case CELL_BACKEND_EMULATED:
        return create_on(out, cell_emulated_backend(), device, err);
    case CELL_BACKEND_CPU: return create_on(out, cell_cpu_backend(), device, err);
    }
    return cell_fail(err, CELL_BAD_ARGUMENT, "%d is no backend", (int)kind);
}

cell_status cell_context_create(cell_context **ctx, cell_backend_kind backend, int device, char *message,
                                size_t message_bytes) {
    cell_error err = {""};
    if (!ctx)
        return CELL_NULL_POINTER;
    *ctx = NULL;
    cell_status status = create(ctx, backend, device, &err);
    give_message(message, message_bytes, status == CELL_OK ? &(cell_error){""} : &err);
    return status;
}

cell_status cell_context_create_with(cell_context **ctx, const cell_backend *backend, int device,
                                     char *message, size_t message_bytes) {
    cell_error err = {""};
    if (!ctx || !backend)
        return CELL_NULL_POINTER;
    *ctx = NULL;
    cell_status status = create_on(ctx, backend, device, &err);
    give_message(message, message_bytes, &err);
    return status;
}

void cell_graphs_clear(cell_context *ctx) {
    for (int i = 0; i < CELL_GRAPH_CACHE; i++) {
        if (ctx->graphs[i].graph)
            ctx->backend->graph_free(ctx->self, ctx->graphs[i].graph);
        free(ctx->graphs[i].key);
        ctx->graphs[i] = (cell_graph_entry){0};
    }
}

void cell_context_destroy(cell_context *ctx) {
    if (!ctx || ctx->owner != &owner_mark)
        return;
    if (is_inherited(ctx)) { /* what the device holds is the parent's */
        for (int i = 0; i < CELL_GRAPH_CACHE; i++)
            free(ctx->graphs[i].key);
        free(ctx->allocations);
        free(ctx);
        return;
    }
    ctx->backend->sync(ctx->self, NULL);
    cell_graphs_clear(ctx);
    if (ctx->workspace)
        cell_memory_give(ctx, ctx->workspace, NULL);
    ctx->backend->destroy(ctx->self);
    free(ctx->allocations);
    free(ctx);
}

cell_status cell_drop_workspace(cell_context *ctx)
{
    cell_status status = CELL_OK;
    if (ctx->workspace)
        status = cell_memory_give(ctx, ctx->workspace, &ctx->error);
    ctx->workspace = NULL;
    ctx->workspace_bytes = 0;
    return status;
}

cell_status cell_context_workspace(cell_context *ctx, size_t bytes) {
    if (bytes <= ctx->workspace_bytes)
        return CELL_OK;
    if (ctx->backend->graph_busy && ctx->backend->graph_busy(ctx->self))
        return cell_fail(
            &ctx->error, CELL_UNSUPPORTED,
            "the stream is being captured: give a workspace of %zu bytes, or make one call before", bytes);
    cell_status status = cell_drop_workspace(ctx);
    if (status == CELL_OK)
        status = cell_memory_take(ctx, &ctx->workspace, bytes);
    if (status == CELL_OK)
        ctx->workspace_bytes = bytes;
    return status;
}

cell_status cell_context_set_stream(cell_context *ctx, void *stream) {
    cell_status status = cell_context_check(ctx);
    if (status != CELL_OK || stream == ctx->stream)
        return status;
    status = cell_drop_workspace(ctx); /* it goes back in the order of the old stream */
    if (status == CELL_OK)
        status = ctx->backend->set_stream(ctx->self, stream, &ctx->error);
    if (status == CELL_OK)
        ctx->stream = stream;
    return status;
}

cell_status cell_context_set_threads(cell_context *ctx, int threads)
{
    cell_status status = cell_context_check(ctx);
    if (status == CELL_OK && threads < 0)
        return cell_fail(&ctx->error, CELL_BAD_ARGUMENT,
                         "%d threads; wanted some, or 0 for as many as there are", threads);
    if (status == CELL_OK && ctx->backend->set_threads)
        ctx->backend->set_threads(ctx->self, threads);
    return status;
}

cell_status cell_context_set_host(cell_context *ctx, void *host, size_t bytes)
{
    cell_status status = cell_context_check(ctx);
    if (status == CELL_OK && !host && bytes)
        return cell_fail(&ctx->error, CELL_NULL_POINTER, "host memory is null, but said to have %zu bytes",
                         bytes);
    if (status == CELL_OK) {
        ctx->host = host;
        ctx->host_bytes = host ? bytes : 0;
    }
    return status;
}

const char *cell_last_error(const cell_context *ctx) {
    if (!ctx)
        return "no context was given";
    if (ctx->owner != &owner_mark)
        return "the context was created by another copy of the runtime";
    return ctx->error.text;
}

const char *cell_backend_name(const cell_context *ctx) {
    return ctx ? ctx->backend->name : "none";
}

cell_backend_kind cell_backend_of(const cell_context *ctx) {
    return ctx ? ctx->backend->kind : CELL_BACKEND_AUTO;
}

cell_status cell_synchronize(cell_context *ctx) {
    cell_status status = cell_context_check(ctx);
    return status == CELL_OK ? ctx->backend->sync(ctx->self, &ctx->error) : status;
}

cell_status cell_copy(cell_context *ctx, void *to, const void *from, size_t bytes) {
    cell_status status = cell_context_check(ctx);
    if (status != CELL_OK || bytes == 0)
        return status;
    if (!to || !from)
        return cell_fail(&ctx->error, CELL_NULL_POINTER, "cell_copy: %s is null",
                         to ? "source" : "destination");
    return ctx->backend->transfer(ctx->self, to, from, bytes, &ctx->error);
}

cell_status cell_fill(cell_context *ctx, void *to, int byte, size_t bytes) {
    cell_status status = cell_context_check(ctx);
    if (status != CELL_OK || bytes == 0)
        return status;
    if (!to)
        return cell_fail(&ctx->error, CELL_NULL_POINTER, "cell_fill: the destination is null");
    return ctx->backend->fill(ctx->self, to, byte, bytes, &ctx->error);
}
