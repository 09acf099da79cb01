/* Cells as a custom call of XLA, through its C interface. In: call frames whose attributes name a cell that was
 * registered here, what to run, the sizes and which of the cell's arguments are operands, results or absent. Out: the
 * cell's library is called, with XLA's stream and, on a GPU, memory from XLA's allocator. Guaranteed: calls from any
 * number of threads at once; nothing of a cell's is kept but contexts, to the end of the process. Compiled beside
 * JAX's own headers when JAX is first used. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cell_plan.h"
#include "xla/ffi/api/c_api.h"

/* XLA refuses to align scratch memory to more than this. */
enum { XLA_ALIGNMENT = 16, MAX_DEVICES = 64, WORDS = 256, MAX_SIZES = CELL_MAX_SIZES, HOST = -1 };

typedef cell_status RunFn(cell_context *, const cell_desc *, const int64_t *, void *const *, const cell_memory *, int);
typedef cell_status BytesFn(cell_context *, const cell_desc *, const int64_t *, size_t *);
typedef cell_status RecomputeFn(cell_context *, const cell_desc *, const int64_t *, size_t, size_t *,
                                size_t *);

/* A cell's library, as the package opened it. */
typedef struct CellcLibrary {
    const cell_desc *desc;
    cell_status (*create)(cell_context **, cell_backend_kind, int, char *, size_t);
    cell_status (*create_image)(cell_context **, int, const void *, char *, size_t);
    cell_status (*set_stream)(cell_context *, void *);
    const char *(*last_error)(const cell_context *);
    RunFn *forward, *backward, *step;
    BytesFn *workspace_bytes, *inference_bytes;
    RecomputeFn *recompute_bytes;
    const char *no_kernels; /* why it has none, or NULL */
    int apart;              /* kernels are in images, by the GPU's number, which stay where they are */
    const char *images[MAX_DEVICES];
} CellcLibrary;

typedef struct Context {
    cell_context *ctx;
    int device; /* HOST or the GPU's number */
    struct Context *next;
} Context;

typedef struct Entry {
    char *title;
    CellcLibrary library;
    Context *free;
    struct Entry *next;
} Entry;

static Entry *entries;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* 0, or -1 without memory. `title` stands for one library for ever. */
int cellc_xla_register(const char *title, const CellcLibrary *library) {
    Entry *entry = calloc(1, sizeof *entry);
    if (entry)
        entry->title = strdup(title);
    if (!entry || !entry->title) {
        free(entry);
        return -1;
    }
    entry->library = *library;
    if (library->no_kernels)
        entry->library.no_kernels = strdup(library->no_kernels);
    pthread_mutex_lock(&lock);
    entry->next = entries;
    entries = entry;
    pthread_mutex_unlock(&lock);
    return 0;
}

static Entry *find(const char *title) {
    pthread_mutex_lock(&lock);
    Entry *entry = entries;
    while (entry && strcmp(entry->title, title) != 0)
        entry = entry->next;
    pthread_mutex_unlock(&lock);
    return entry;
}

static XLA_FFI_Error *fail(const XLA_FFI_CallFrame *frame, XLA_FFI_Error_Code code, const char *text) {
    XLA_FFI_Error_Create_Args args = {
        .struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE, .message = text, .errc = code};
    return frame->api->XLA_FFI_Error_Create(&args);
}

static XLA_FFI_Error *fail_as(const XLA_FFI_CallFrame *frame, cell_status status, const char *text) {
    XLA_FFI_Error_Code code = XLA_FFI_Error_Code_INTERNAL;
    if (status == CELL_OUT_OF_MEMORY)
        code = XLA_FFI_Error_Code_RESOURCE_EXHAUSTED;
    else if (status <= CELL_WRONG_DEVICE || status == CELL_BAD_ARGUMENT)
        code = XLA_FFI_Error_Code_INVALID_ARGUMENT;
    return fail(frame, code, text);
}

/* As native.py has it. */
static cell_backend_kind host_backend(void) {
    const char *word = getenv("CELL_BACKEND");
    return word && strcmp(word, "reference") == 0 ? CELL_BACKEND_REFERENCE : CELL_BACKEND_CPU;
}

static cell_status open_context(const CellcLibrary *library, int device, cell_context **ctx, char *why, size_t room) {
    if (device == HOST)
        return library->create(ctx, host_backend(), 0, why, room);
    if (!library->apart)
        return library->create(ctx, CELL_BACKEND_CUDA, device, why, room);
    if (device < MAX_DEVICES && library->images[device])
        return library->create_image(ctx, device, library->images[device], why, room);
    snprintf(why, room, "%s has no kernels for GPU %d: it was compiled for others", library->desc->name, device);
    return CELL_NO_IMAGE;
}

/* A context that no other thread uses, by put(). NULL and `why` where there is none. */
static Context *take(Entry *entry, int device, char *why, size_t room) {
    Context *found = NULL;
    pthread_mutex_lock(&lock);
    for (Context **at = &entry->free; *at && !found; at = &(*at)->next)
        if ((*at)->device == device) {
            found = *at;
            *at = found->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    if (found)
        return found;
    snprintf(why, room, "out of memory");
    found = calloc(1, sizeof *found);
    if (found && open_context(&entry->library, device, &found->ctx, why, room) != CELL_OK) {
        free(found);
        return NULL;
    }
    if (found)
        found->device = device;
    return found;
}

static void put(Entry *entry, Context *context) {
    pthread_mutex_lock(&lock);
    context->next = entry->free;
    entry->free = context;
    pthread_mutex_unlock(&lock);
}

/* The text of an attribute, ended by a NUL; 0 where there is none or it is too long. */
static int attribute(const XLA_FFI_CallFrame *frame, const char *name, char *text) {
    for (int64_t i = 0; i < frame->attrs.size; i++) {
        const XLA_FFI_ByteSpan *is = frame->attrs.names[i], *value = frame->attrs.attrs[i];
        if (is->len != strlen(name) || memcmp(is->ptr, name, is->len) != 0 ||
            frame->attrs.types[i] != XLA_FFI_AttrType_STRING || value->len >= CELL_MAX_ARGS + WORDS)
            continue;
        memcpy(text, value->ptr, value->len);
        text[value->len] = 0;
        return 1;
    }
    return 0;
}

typedef struct Call {
    const XLA_FFI_CallFrame *frame;
    char title[CELL_MAX_ARGS + WORDS], way[CELL_MAX_ARGS + WORDS], layout[CELL_MAX_ARGS + WORDS];
    int64_t sizes[MAX_SIZES];
    void *args[CELL_MAX_ARGS];
    cell_memory memory;
    void *scratch;             /* what XLA gave for the workspace, which begins at the next multiple of CELL_ALIGNMENT */
    size_t scratch_bytes;
    int64_t operands, results; /* taken so far */
    Entry *entry;
    RunFn *run;
    int flags;
} Call;

/* An array without elements may have no address, which the library would take for one that was left out. */
static void *address(const XLA_FFI_Buffer *buffer) {
    static _Alignas(256) char nothing[256];
    return buffer->data ? buffer->data : nothing;
}

static size_t bytes_of(const XLA_FFI_Buffer *buffer) {
    size_t count = 1;
    for (int64_t i = 0; i < buffer->rank; i++)
        count *= (size_t)buffer->dims[i];
    return count; /* the reserve is of bytes */
}

/* The next operand ('a') or result ('r'), or NULL ('-'); 0 where the frame has no more. */
static int next(Call *call, char kind, const XLA_FFI_Buffer **buffer) {
    *buffer = NULL;
    if (kind == 'a' && call->operands < call->frame->args.size)
        *buffer = call->frame->args.args[call->operands++];
    else if (kind == 'r' && call->results < call->frame->rets.size)
        *buffer = call->frame->rets.rets[call->results++];
    return kind == '-' || *buffer;
}

/* Reads the layout: a letter for each argument of the library, and one for the reserve. */
static int bind(Call *call) {
    const XLA_FFI_Buffer *buffer;
    size_t n = strlen(call->layout);
    if (n == 0 || n > CELL_MAX_ARGS)
        return 0;
    for (size_t i = 0; i + 1 < n; i++) {
        if (!next(call, call->layout[i], &buffer))
            return 0;
        call->args[i] = buffer ? address(buffer) : NULL;
    }
    if (!next(call, call->layout[n - 1], &buffer))
        return 0;
    if (buffer) {
        call->memory.reserve = address(buffer);
        call->memory.reserve_bytes = bytes_of(buffer);
    }
    return call->operands == call->frame->args.size && call->results == call->frame->rets.size;
}

static int read_sizes(Call *call) {
    char text[CELL_MAX_ARGS + WORDS], *at = text;
    int n = 0;
    if (!attribute(call->frame, "sizes", text))
        return 0;
    while (*at && n < MAX_SIZES) {
        call->sizes[n++] = strtoll(at, &at, 10);
        at += *at == ',';
    }
    return !*at && n == call->entry->library.desc->n_sizes;
}

/* What the frame asks for; an error, or NULL. */
static XLA_FFI_Error *read_call(Call *call) {
    if (!attribute(call->frame, "cell", call->title) || !attribute(call->frame, "way", call->way) ||
        !attribute(call->frame, "layout", call->layout))
        return fail(call->frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "cellc: a call without its attributes");
    call->entry = find(call->title);
    if (!call->entry) {
        char text[CELL_MAX_ARGS + 2 * WORDS];
        snprintf(text, sizeof text, "cellc: the cell %s is not loaded in this process; load it with cellc.load first",
                 call->title);
        return fail(call->frame, XLA_FFI_Error_Code_FAILED_PRECONDITION, text);
    }
    const CellcLibrary *library = &call->entry->library;
    call->run = strncmp(call->way, "forward", 7) == 0 ? library->forward
                : strcmp(call->way, "step") == 0      ? library->step
                                                      : library->backward;
    call->flags = strstr(call->way, " again") ? CELL_RECOMPUTE : 0; /* the reserve has a budget */
    if (!read_sizes(call) || !bind(call))
        return fail(call->frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "cellc: a call whose attributes do not fit it");
    return NULL;
}

/* XLA's memory for a call on a GPU; the host's runtime takes its own. */
static XLA_FFI_Error *allocate(Call *call, cell_context *ctx) {
    const CellcLibrary *library = &call->entry->library;
    BytesFn *count = call->memory.reserve ? library->workspace_bytes : library->inference_bytes;
    size_t bytes = 0;
    cell_status status = CELL_OK;
    if (call->flags)
        status = library->recompute_bytes(ctx, library->desc, call->sizes, call->memory.reserve_bytes, NULL,
                                          &bytes);
    else
        status = count(ctx, library->desc, call->sizes, &bytes);
    if (status != CELL_OK)
        return fail_as(call->frame, status, library->last_error(ctx));
    if (!bytes)
        return NULL;
    XLA_FFI_DeviceMemory_Allocate_Args args = {
        .struct_size = XLA_FFI_DeviceMemory_Allocate_Args_STRUCT_SIZE,
        .ctx = call->frame->ctx,
        .size = bytes + CELL_ALIGNMENT - XLA_ALIGNMENT,
        .alignment = XLA_ALIGNMENT,
    };
    XLA_FFI_Error *error = call->frame->api->XLA_FFI_DeviceMemory_Allocate(&args);
    if (error)
        return error;
    call->scratch = args.data;
    call->scratch_bytes = args.size;
    uintptr_t start = ((uintptr_t)args.data + CELL_ALIGNMENT - 1) / CELL_ALIGNMENT * CELL_ALIGNMENT;
    call->memory.workspace = (void *)start;
    call->memory.workspace_bytes = bytes;
    return NULL;
}

/* Work that follows on the stream may have the memory again at once. */
static XLA_FFI_Error *give_back(Call *call) {
    XLA_FFI_DeviceMemory_Free_Args args = {
        .struct_size = XLA_FFI_DeviceMemory_Free_Args_STRUCT_SIZE,
        .ctx = call->frame->ctx,
        .size = call->scratch_bytes,
        .data = call->scratch,
    };
    return call->scratch_bytes ? call->frame->api->XLA_FFI_DeviceMemory_Free(&args) : NULL;
}

static XLA_FFI_Error *run_with(Call *call, Context *context, void *stream) {
    const CellcLibrary *library = &call->entry->library;
    cell_context *ctx = context->ctx;
    cell_status status = CELL_OK;
    if (context->device != HOST) {
        status = library->set_stream(ctx, stream);
        XLA_FFI_Error *error = status == CELL_OK ? allocate(call, ctx) : NULL;
        if (error)
            return error;
    }
    if (status == CELL_OK)
        status = call->run(ctx, library->desc, call->sizes, call->args, &call->memory, call->flags);
    XLA_FFI_Error *error = status == CELL_OK ? NULL : fail_as(call->frame, status, library->last_error(ctx));
    XLA_FFI_Error *later = give_back(call);
    return error ? error : later;
}

static XLA_FFI_Error *run(const XLA_FFI_CallFrame *frame, int device, void *stream) {
    char why[512];
    Call *call = calloc(1, sizeof *call);
    if (!call)
        return fail(frame, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "cellc: out of memory");
    call->frame = frame;
    XLA_FFI_Error *error = read_call(call);
    if (!error && device != HOST && call->entry->library.no_kernels) {
        snprintf(why, sizeof why, "%s: the arrays are on a GPU, but this build has no kernels: %s",
                 call->entry->library.desc->name, call->entry->library.no_kernels);
        error = fail(frame, XLA_FFI_Error_Code_UNIMPLEMENTED, why);
    }
    Context *context = error ? NULL : take(call->entry, device, why, sizeof why);
    if (!error && !context)
        error = fail(frame, XLA_FFI_Error_Code_INTERNAL, why);
    if (context) {
        error = run_with(call, context, stream);
        put(call->entry, context);
    }
    free(call);
    return error;
}

/* XLA asks first which version of the interface this was compiled with. What an extension begins with has had several
 * names (another one since JAX 0.11), so it is read as the one that is asked for. */
static int answers_metadata(XLA_FFI_CallFrame *frame) {
    const XLA_FFI_Metadata_Extension *extension = (const XLA_FFI_Metadata_Extension *)frame->extension_start;
    if (!extension || extension->extension_base.type != XLA_FFI_Extension_Metadata)
        return 0;
    XLA_FFI_Metadata *metadata = extension->metadata;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    return 1;
}

XLA_FFI_Error *cellc_xla_host(XLA_FFI_CallFrame *frame) {
    return answers_metadata(frame) ? NULL : run(frame, HOST, NULL);
}

XLA_FFI_Error *cellc_xla_cuda(XLA_FFI_CallFrame *frame) {
    if (answers_metadata(frame))
        return NULL;
    XLA_FFI_Stream_Get_Args stream = {.struct_size = XLA_FFI_Stream_Get_Args_STRUCT_SIZE, .ctx = frame->ctx};
    XLA_FFI_DeviceOrdinal_Get_Args device = {
        .struct_size = XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE, .ctx = frame->ctx};
    XLA_FFI_Error *error = frame->api->XLA_FFI_Stream_Get(&stream);
    if (!error)
        error = frame->api->XLA_FFI_DeviceOrdinal_Get(&device);
    return error ? error : run(frame, device.device_ordinal, stream.stream);
}
