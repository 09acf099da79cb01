/* Calls of a cell from Python without Python between them. In: the tensors or arrays of a call, and plans:
 * what earlier calls with tensors of the same shapes, types and device found out. Out: new tensors that the
 * cell's library has written. Guaranteed: where no plan fits, or anything about a tensor is not plain
 * (strides, an address that is not aligned, a class derived from the framework's), nothing has happened and
 * the answer is None; the caller then goes the long way, which says what is wrong. Tensors of PyTorch are
 * read through DLPack's table of functions, arrays of NumPy through the buffer protocol. What the
 * interpreter exports is declared here, from its stable ABI, so that one binary serves every Python from
 * 3.11 on and no header of one is wanted. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if !defined __LP64__
#error "written for 64-bit addresses"
#endif

typedef struct PyObject PyObject;
typedef ptrdiff_t Py_ssize_t;
typedef PyObject *Function(PyObject *self, PyObject *const *args, Py_ssize_t count);

typedef struct Method {
    const char *name;
    Function *function;
    int flags;
    const char *doc;
} Method; /* PyMethodDef */

typedef struct Buffer {
    char *data;
    PyObject *owner;
    Py_ssize_t bytes, itemsize;
    int readonly, ndim;
    char *format;
    Py_ssize_t *shape, *strides, *suboffsets;
    void *internal;
} Buffer; /* Py_buffer */

enum { METH_FASTCALL = 0x80, PyBUF_RECORDS_RO = 0x1C };

extern PyObject *PyExc_TypeError;
extern PyObject *PyCFunction_NewEx(Method *, PyObject *self, PyObject *module);
extern void Py_IncRef(PyObject *);
extern void Py_DecRef(PyObject *);
extern PyObject *PyObject_Type(PyObject *);
extern PyObject *PyObject_Vectorcall(PyObject *, PyObject *const *args, size_t count, PyObject *names);
extern int PyObject_IsTrue(PyObject *);
extern int PyObject_GetBuffer(PyObject *, Buffer *, int flags);
extern void PyBuffer_Release(Buffer *);
extern PyObject *PyBytes_FromStringAndSize(const char *, Py_ssize_t);
extern char *PyBytes_AsString(PyObject *);
extern PyObject *PyDict_GetItemWithError(PyObject *, PyObject *key);
extern Py_ssize_t PyList_Size(PyObject *);
extern PyObject *PyList_GetItem(PyObject *, Py_ssize_t);
extern int PyList_SetSlice(PyObject *, Py_ssize_t, Py_ssize_t, PyObject *);
extern int PyList_Append(PyObject *, PyObject *);
extern PyObject *PyTuple_New(Py_ssize_t);
extern Py_ssize_t PyTuple_Size(PyObject *);
extern PyObject *PyTuple_GetItem(PyObject *, Py_ssize_t);
extern int PyTuple_SetItem(PyObject *, Py_ssize_t, PyObject *);
extern PyObject *PyLong_FromLong(long);
extern long PyLong_AsLong(PyObject *);
extern void *PyLong_AsVoidPtr(PyObject *);
extern void *PyCapsule_GetPointer(PyObject *, const char *name);
extern PyObject *PyErr_Occurred(void);
extern void PyErr_Clear(void);
extern void PyErr_SetString(PyObject *, const char *);
extern void *PyEval_SaveThread(void);
extern void PyEval_RestoreThread(void *);
extern PyObject _Py_NoneStruct;

#define NONE (&_Py_NoneStruct)

/* DLPack 1. */
enum { DL_CPU = 1, DL_CUDA = 2, DL_FLOAT = 2, DL_BFLOAT = 4, DL_COMPLEX = 5 };

typedef struct DLTensor {
    void *data;
    int32_t device_type, device;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t offset;
} DLTensor;

typedef struct DLTable {
    uint32_t major, minor;
    void *previous;
    void *allocate, *from_object, *to_object;
    int (*read)(void *object, DLTensor *);
    int (*current_stream)(int32_t device_type, int32_t device, void **stream);
} DLTable;

/* The same as in native.py. */
typedef struct Context {
    void *ctx, *stream;
    int32_t stream_set, threads;
} Context;

typedef struct Plan {
    int (*run)(void *ctx, const void *desc, const int64_t *sizes, void *const *args, const void *memory,
               int flags);
    int (*set_stream)(void *ctx, void *stream);
    int (*set_threads)(void *ctx, int threads);
    const void *desc;
    const int64_t *sizes;
    int32_t arguments; /* how many of the tensors are arguments of the cell; one behind them is the reserve */
    int32_t made; /* how many arguments behind these are made here, or left out */
    int32_t makes_reserve; /* what is made next */
    int32_t makes_workspace; /* what is made last, and not given back */
    int32_t device; /* number of a GPU, or -1 */
    int32_t unused;
} Plan;

/* What stands in the tuple that Python makes of a plan. */
enum { P_PLAN, P_MAKERS, P_CONTEXTS, P_OPEN, P_FAIL };

/* A call of a store of sessions (cell_sessions.h). All calls of a store share its context. */
typedef struct SessionPlan {
    int (*step)(void *store, const int32_t *sessions, int64_t n, void *const *args);
    int (*prefill)(void *store, const int32_t *sessions, int64_t n, int64_t steps, void *const *args);
    int (*set_stream)(void *ctx, void *stream);
    int (*set_threads)(void *ctx, int threads);
    void *store;
    Context *context;
    void *const *places; /* of all arguments; those of inputs and outputs are the call's */
    int64_t sessions, steps; /* steps: 0 for one without the axis of time */
    int32_t arguments, inputs; /* the first ones are the inputs */
    int32_t outputs; /* where these begin; the tensors behind the inputs */
    int32_t device; /* number of a GPU, or -1 */
} SessionPlan;

typedef struct Memory {
    void *workspace;
    size_t workspace_bytes;
    void *reserve;
    size_t reserve_bytes;
} Memory; /* cell_memory */

enum { MAX_TENSORS = 128, MAX_RANK = 16, KEY = 64 * MAX_TENSORS, ALIGNMENT = 16, LEGACY_STREAM = 1 };

/* A tensor as the library wants it. */
typedef struct Given {
    void *data;
    size_t bytes;
    int32_t device_type, device, ndim;
    char type[8];
    int64_t shape[MAX_RANK];
} Given;

static const DLTable *table; /* PyTorch's */
static PyObject *tensor_type, *parameter_type; /* the classes that are nothing but memory */
static PyObject *array_type;
static PyObject *is_negative, *is_conjugate, *current_device; /* functions of PyTorch */

static int no_zero(const int64_t *shape, int ndim)
{
    for (int k = 0; k < ndim; ++k)
        if (shape[k] == 0)
            return 0;
    return 1;
}

/* Of a stride for each axis, in units of `item`. */
static int is_contiguous(const int64_t *shape, const int64_t *strides, int ndim, int64_t item)
{
    int64_t next = item;
    for (int k = ndim; k-- > 0;) {
        if (shape[k] != 1 && strides[k] != next)
            return 0;
        next *= shape[k];
    }
    return 1;
}

/* 1 where a function of one argument says no. */
static int denies(PyObject *function, PyObject *argument)
{
    PyObject *found = PyObject_Vectorcall(function, &argument, 1, NULL);
    int yes = found ? PyObject_IsTrue(found) : -1;
    if (found)
        Py_DecRef(found);
    return yes == 0;
}

static int read_tensor(PyObject *object, Given *given)
{
    DLTensor t;
    if (table->read(object, &t) != 0 || t.ndim > MAX_RANK)
        return 0;
    if ((t.device_type != DL_CPU && t.device_type != DL_CUDA) ||
        (t.strides && !is_contiguous(t.shape, t.strides, t.ndim, 1)))
        return 0;
    given->data = (char *)t.data + t.offset;
    given->device_type = t.device_type;
    given->device = t.device_type == DL_CPU ? 0 : t.device;
    given->ndim = t.ndim;
    size_t count = t.bits / 8;
    for (int k = 0; k < t.ndim; ++k) {
        given->shape[k] = t.shape[k];
        count *= (size_t)t.shape[k];
    }
    given->bytes = count;
    memset(given->type, 0, sizeof given->type);
    given->type[0] = (char)('0' + t.code);
    given->type[1] = (char)t.bits;
    given->type[2] = (char)t.lanes;
    if ((t.code == DL_FLOAT || t.code == DL_BFLOAT || t.code == DL_COMPLEX) && !denies(is_negative, object))
        return 0;
    return t.code != DL_COMPLEX || denies(is_conjugate, object);
}

static int read_array(PyObject *object, Given *given)
{
    Buffer b;
    if (PyObject_GetBuffer(object, &b, PyBUF_RECORDS_RO) != 0)
        return 0;
    int right = b.ndim <= MAX_RANK && b.format && strlen(b.format) < sizeof given->type;
    if (right) {
        right = is_contiguous(b.shape, b.strides, b.ndim, b.itemsize);
        memset(given->type, 0, sizeof given->type);
        memcpy(given->type, b.format, strlen(b.format));
        for (int k = 0; k < b.ndim; ++k)
            given->shape[k] = b.shape[k];
        given->data = b.data;
        given->bytes = (size_t)b.bytes;
        given->device_type = DL_CPU;
        given->device = 0;
        given->ndim = b.ndim;
    }
    PyBuffer_Release(&b); /* the caller has the array, which keeps its memory */
    return right;
}

/* 1, or 0 where the object is no plain tensor in one piece. An error of the interpreter may be set then. */
static int read_given(PyObject *object, Given *given)
{
    PyObject *type = PyObject_Type(object);
    Py_DecRef(type); /* the object keeps it */
    int right = type == array_type                              ? read_array(object, given)
                : type == tensor_type || type == parameter_type ? table && read_tensor(object, given)
                                                                : 0;
    return right && ((uintptr_t)given->data % ALIGNMENT == 0) &&
           (given->data || !no_zero(given->shape, given->ndim));
}

/* The tensors of a call: for each its data (NULL for None) and bytes; the text that stands for their shapes,
 * types and device goes behind `length` of `key`. 0 where one of them is not plain. */
static int read_all(PyObject *const *objects, Py_ssize_t count, void **data, size_t *bytes, char *key,
                    size_t *length)
{
    if (count > MAX_TENSORS)
        return 0;
    for (Py_ssize_t i = 0; i < count; ++i) {
        Given given;
        data[i] = NULL;
        bytes[i] = 0;
        if (objects[i] == NONE) {
            if (*length + 1 > KEY)
                return 0;
            key[(*length)++] = '-';
            continue;
        }
        if (!read_given(objects[i], &given)) {
            PyErr_Clear();
            return 0;
        }
        size_t axes = (size_t)given.ndim * sizeof given.shape[0];
        char head[12] = { (char)given.device_type, (char)given.device, (char)(given.device >> 8),
                          (char)given.ndim };
        memcpy(head + 4, given.type, sizeof given.type);
        if (*length + sizeof head + axes > KEY)
            return 0;
        memcpy(key + *length, head, sizeof head);
        memcpy(key + *length + sizeof head, given.shape, axes);
        *length += sizeof head + axes;
        data[i] = given.data;
        bytes[i] = given.bytes;
    }
    return 1;
}

static PyObject *none(void)
{
    Py_IncRef(NONE);
    return NONE;
}

/* key(tensors...): what a plan for these is kept under, or None. */
static PyObject *make_key(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    void *data[MAX_TENSORS];
    size_t bytes[MAX_TENSORS], length = 0;
    char key[KEY];
    if (!read_all(args, count, data, bytes, key, &length))
        return none();
    return PyBytes_FromStringAndSize(key, (Py_ssize_t)length);
}

/* The plan for these, borrowed from `plans`, or NULL, with an error only where one is set. */
static PyObject *look_up(PyObject *plans, PyObject *const *objects, Py_ssize_t count, void **data,
                         size_t *bytes)
{
    size_t length = 0;
    char text[KEY];
    if (!read_all(objects, count, data, bytes, text, &length))
        return NULL;
    PyObject *key = PyBytes_FromStringAndSize(text, (Py_ssize_t)length);
    if (!key)
        return NULL;
    PyObject *plan = PyDict_GetItemWithError(plans, key);
    Py_DecRef(key);
    return plan;
}

/* A new tensor, by the function and its arguments that stand in `maker`; its memory in *data. NULL with an
 * error. */
static PyObject *make(PyObject *maker, void **data, size_t *bytes)
{
    PyObject *args[MAX_RANK + 2];
    Py_ssize_t count = PyTuple_Size(maker);
    for (Py_ssize_t i = 0; i < count; ++i)
        args[i] = PyTuple_GetItem(maker, i);
    PyObject *made = PyObject_Vectorcall(args[0], args + 1, (size_t)count - 1, NULL);
    Given given;
    if (!made)
        return NULL;
    if (!read_given(made, &given)) {
        Py_DecRef(made);
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "memory from the framework is not as a cell takes it");
        return NULL;
    }
    *data = given.data;
    *bytes = given.bytes;
    return made;
}

/* A context that no other call has: its address as a number. */
static PyObject *take_context(PyObject *plan)
{
    PyObject *contexts = PyTuple_GetItem(plan, P_CONTEXTS);
    Py_ssize_t count = PyList_Size(contexts);
    if (count <= 0)
        return PyObject_Vectorcall(PyTuple_GetItem(plan, P_OPEN), NULL, 0, NULL);
    PyObject *last = PyList_GetItem(contexts, count - 1);
    Py_IncRef(last);
    if (PyList_SetSlice(contexts, count - 1, count, NULL) == 0)
        return last;
    Py_DecRef(last);
    return NULL;
}

/* Tells the context what the call's stream is, or how many threads it may have (0: as many as before), where
 * it does not know; the status of the library. device: number of a GPU, or -1. */
static int prepare(Context *context, int device, void *stream, int threads, int (*set_stream)(void *, void *),
                   int (*set_threads)(void *, int))
{
    int status = 0;
    if (device >= 0 && (!context->stream_set || context->stream != stream)) {
        context->stream_set = 0; /* where it fails */
        status = set_stream(context->ctx, stream ? stream : (void *)LEGACY_STREAM);
        context->stream = stream;
        context->stream_set = status == 0;
    } else if (device < 0 && threads > 0 && context->threads != threads) {
        status = set_threads(context->ctx, threads);
        context->threads = status == 0 ? threads : 0;
    }
    return status;
}

/* The status of the library. Without the interpreter's lock, as the call may take long. */
static int run_plan(const Plan *plan, Context *context, void *stream, int threads, void *const *data,
                    const Memory *memory)
{
    void *thread = PyEval_SaveThread();
    int status = prepare(context, plan->device, stream, threads, plan->set_stream, plan->set_threads);
    if (status == 0)
        status = plan->run(context->ctx, plan->desc, plan->sizes, data, memory, 0);
    PyEval_RestoreThread(thread);
    return status;
}

static const Plan *plan_of(PyObject *tuple)
{
    return (const Plan *)(const void *)PyBytes_AsString(PyTuple_GetItem(tuple, P_PLAN));
}

/* Is this GPU the current one, or is it none? -1 with an error. */
static int is_current(int device)
{
    if (device < 0)
        return 1;
    PyObject *found = PyObject_Vectorcall(current_device, NULL, 0, NULL);
    if (!found)
        return -1;
    long number = PyLong_AsLong(found);
    Py_DecRef(found);
    return number == device;
}

/* A tuple of results, or NULL with an error. The plan's GPU is the current one. */
static PyObject *call_by(PyObject *tuple, void **data, const size_t *bytes, Py_ssize_t count, int threads)
{
    const Plan *plan = plan_of(tuple);
    PyObject *makers = PyTuple_GetItem(tuple, P_MAKERS);
    Memory memory = { NULL, 0, NULL, 0 };
    void *stream = NULL;
    if (plan->device >= 0 && table->current_stream(DL_CUDA, plan->device, &stream) != 0)
        return NULL;
    if (count > plan->arguments) {
        memory.reserve = data[plan->arguments];
        memory.reserve_bytes = bytes[plan->arguments];
    }
    Py_ssize_t all = PyTuple_Size(makers), given_back = 0, at = 0;
    for (Py_ssize_t i = 0; i < all - plan->makes_workspace; ++i)
        given_back += PyTuple_GetItem(makers, i) != NONE;
    PyObject *results = PyTuple_New(given_back), *workspace = NULL, *context = NULL;
    int right = results != NULL;
    for (Py_ssize_t i = 0; right && i < all; ++i) {
        PyObject *maker = PyTuple_GetItem(makers, i), *made = NULL;
        void *where = NULL;
        size_t size = 0;
        if (maker != NONE) {
            made = make(maker, &where, &size);
            right = made != NULL;
        }
        if (i < plan->made) {
            data[plan->arguments + i] = where;
        } else if (i == plan->made && plan->makes_reserve) {
            memory.reserve = where;
            memory.reserve_bytes = size;
        } else {
            memory.workspace = where;
            memory.workspace_bytes = size;
            workspace = made;
            continue;
        }
        if (made)
            PyTuple_SetItem(results, at++, made);
    }
    if (right)
        right = (context = take_context(tuple)) != NULL;
    if (right) {
        Context *place = PyLong_AsVoidPtr(context);
        int status = run_plan(plan, place, stream, threads, data, &memory);
        if (status == 0) {
            right = PyList_Append(PyTuple_GetItem(tuple, P_CONTEXTS), context) == 0;
        } else { /* raises what the library says, and puts the context back */
            PyObject *said[2] = { context, PyLong_FromLong(status) };
            PyObject *nothing =
                said[1] ? PyObject_Vectorcall(PyTuple_GetItem(tuple, P_FAIL), said, 2, NULL) : NULL;
            if (nothing)
                Py_DecRef(nothing);
            if (said[1])
                Py_DecRef(said[1]);
            right = 0;
        }
    }
    if (context)
        Py_DecRef(context);
    if (workspace)
        Py_DecRef(workspace);
    if (right)
        return results;
    if (results)
        Py_DecRef(results);
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "the library failed and did not say why");
    return NULL;
}

/* find(plans, tensors...): the plan for these, or None, also where its GPU is not the current one. */
static PyObject *find(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    void *data[MAX_TENSORS];
    size_t bytes[MAX_TENSORS];
    PyObject *plan = look_up(args[0], args + 1, count - 1, data, bytes);
    int right = plan ? is_current(plan_of(plan)->device) : 0;
    if (!right && !PyErr_Occurred())
        return none();
    if (right > 0)
        Py_IncRef(plan);
    return right > 0 ? plan : NULL;
}

/* run(plan, threads, tensors...): a tuple of results for the tensors that the plan was found for. */
static PyObject *run(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    void *data[MAX_TENSORS];
    size_t bytes[MAX_TENSORS], length = 0;
    char key[KEY];
    if (read_all(args + 2, count - 2, data, bytes, key, &length))
        return call_by(args[0], data, bytes, count - 2, (int)PyLong_AsLong(args[1]));
    PyErr_SetString(PyExc_TypeError, "a tensor was changed while the call was under way");
    return NULL;
}

/* call(plans, threads, tensors...): a tuple of results, or None where no plan is for these tensors. threads:
 * 0 leaves their number as it is. */
static PyObject *call(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    void *data[MAX_TENSORS];
    size_t bytes[MAX_TENSORS];
    PyObject *plan = look_up(args[0], args + 2, count - 2, data, bytes);
    int right = plan ? is_current(plan_of(plan)->device) : 0;
    if (right <= 0)
        return PyErr_Occurred() ? NULL : none();
    Py_IncRef(plan); /* another thread may forget all plans meanwhile */
    PyObject *found = call_by(plan, data, bytes, count - 2, (int)PyLong_AsLong(args[1]));
    Py_DecRef(plan);
    return found;
}

/* serve(plans, sessions, threads, inputs..., outputs...): the status of a call of a store, whose outputs are
 * written, or None where no plan is for these tensors. sessions: the address of their numbers. */
static PyObject *serve(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    (void)self;
    void *data[MAX_TENSORS], *all[MAX_TENSORS], *stream = NULL;
    size_t bytes[MAX_TENSORS];
    const Py_ssize_t tensors = count - 3;
    PyObject *found = look_up(args[0], args + 3, tensors, data, bytes);
    const SessionPlan *plan =
        found ? (const SessionPlan *)(const void *)PyBytes_AsString(PyTuple_GetItem(found, P_PLAN)) : NULL;
    int right = plan ? is_current(plan->device) : 0;
    if (right <= 0)
        return PyErr_Occurred() ? NULL : none();
    if (plan->device >= 0 && table->current_stream(DL_CUDA, plan->device, &stream) != 0)
        return NULL;
    const int32_t *sessions = PyLong_AsVoidPtr(args[1]);
    const int threads = (int)PyLong_AsLong(args[2]);
    memcpy(all, plan->places, (size_t)plan->arguments * sizeof *all);
    memcpy(all, data, (size_t)plan->inputs * sizeof *all);
    memcpy(all + plan->outputs, data + plan->inputs, (size_t)(tensors - plan->inputs) * sizeof *all);
    Py_IncRef(found); /* another thread may forget all plans meanwhile */
    void *thread = PyEval_SaveThread();
    int status =
        prepare(plan->context, plan->device, stream, threads, plan->set_stream, plan->set_threads);
    if (status == 0)
        status = plan->steps ? plan->prefill(plan->store, sessions, plan->sessions, plan->steps, all)
                             : plan->step(plan->store, sessions, plan->sessions, all);
    PyEval_RestoreThread(thread);
    Py_DecRef(found);
    return PyLong_FromLong(status);
}

static Method methods[] = {
    { "key", make_key, METH_FASTCALL,
      "key(*tensors): bytes that stand for their shapes, types and device, or None" },
    { "find", find, METH_FASTCALL, "find(plans, *tensors): the plan for these, or None" },
    { "run", run, METH_FASTCALL, "run(plan, threads, *tensors): a tuple of new tensors" },
    { "call", call, METH_FASTCALL, "call(plans, threads, *tensors): a tuple of new tensors, or None" },
    { "serve", serve, METH_FASTCALL, "serve(plans, sessions, threads, *tensors): a store's status, or None" },
};

/* A function of `methods`, as an object of Python. Called with the interpreter's lock. */
PyObject *cellc_fast_function(int which)
{
    return PyCFunction_NewEx(&methods[which], NULL, NULL);
}

static void keep(PyObject **place, PyObject *object)
{
    Py_IncRef(object);
    *place = object;
}

/* What is used of PyTorch. 0, or -1 where its table is another version's. */
int cellc_fast_torch(PyObject *capsule, PyObject *tensor, PyObject *parameter, PyObject *negative,
                     PyObject *conjugate, PyObject *device)
{
    const DLTable *found = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (!found || found->major != 1 || !found->read) {
        PyErr_Clear();
        return -1;
    }
    table = found;
    keep(&tensor_type, tensor);
    keep(&parameter_type, parameter);
    keep(&is_negative, negative);
    keep(&is_conjugate, conjugate);
    keep(&current_device, device);
    return 0;
}

int cellc_fast_numpy(PyObject *array)
{
    keep(&array_type, array);
    return 0;
}
