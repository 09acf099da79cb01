/* Launch plans on a GPU: the cell of toy_cell.h against its model, with graphs, on the context's stream and
 * on the caller's, inside the caller's own capture; pointers of the wrong kind; shared memory beyond 48 KB,
 * cooperative grids and clusters; two runs with the same bits. Ends with `N passed, N failed`; without a GPU
 * with status 2 and a sentence. */
#define TOY_DEVICE
#include "../expect.h"
#include "../toy_cell.h"

#include <cuda_runtime_api.h>
#include <math.h>

void toy_much_shared(cell_kernel_args args);
void toy_cooperative(cell_kernel_args args);
void toy_cluster(cell_kernel_args args);

static cell_context *ctx;
static uint32_t random_state = 3;

/* A tensor on both sides. */
typedef struct Tensor {
    float *host, *device;
    int64_t count;
} Tensor;

static Tensor create(int64_t count, int random) {
    Tensor tensor = {.count = count, .host = malloc((size_t)(count + 1) * sizeof(float))};
    for (int64_t i = 0; i < count; i++) {
        random_state = random_state * 1664525u + 1013904223u;
        tensor.host[i] = random ? ((float)(random_state >> 8) / 8388608.0f - 1.0f) * 0.3f : NAN;
    }
    EXPECT(cell_alloc(ctx, (void **)&tensor.device, (size_t)(count + 1) * sizeof(float)) == CELL_OK, "%s",
           cell_last_error(ctx));
    EXPECT(cell_copy(ctx, tensor.device, tensor.host, (size_t)count * sizeof(float)) == CELL_OK, "%s",
           cell_last_error(ctx));
    return tensor;
}

static void destroy(Tensor *tensor) {
    cell_free(ctx, tensor->device);
    free(tensor->host);
}

static void expect_close(const char *what, const Tensor *got, const float *want) {
    float *values = malloc((size_t)(got->count + 1) * sizeof(float));
    double worst = 0;
    EXPECT(cell_copy(ctx, values, got->device, (size_t)got->count * sizeof(float)) == CELL_OK, "%s",
           cell_last_error(ctx));
    for (int64_t i = 0; i < got->count; i++) {
        double error = fabs((double)values[i] - (double)want[i]) / (1 + fabs((double)want[i]));
        worst = error > worst || isnan(error) ? error : worst;
    }
    EXPECT(worst <= 2e-4, "%s is off by %g", what, worst);
    free(values);
}

enum { TENSORS = 10 };
typedef struct Problem {
    int64_t sizes[4];
    Tensor t[TENSORS]; /* x W h0 y hT dy dhT dx dW dh0 */
    float *want[TENSORS];
    float *model_reserve;
    cell_memory memory;
} Problem;

static void set_up(Problem *p, int64_t b, int64_t t, int64_t d) {
    int64_t x = b * t * d, s = b * d, w = d * d, counts[] = {x, w, s, x, s, x, s, x, w, s};
    memcpy(p->sizes, (int64_t[]){b, t, d, 1}, sizeof p->sizes);
    for (int i = 0; i < TENSORS; i++) {
        p->t[i] = create(counts[i], i < 3 || i == 5 || i == 6);
        p->want[i] = calloc((size_t)counts[i] + 1, sizeof(float));
    }
    p->model_reserve = malloc((size_t)((t + 1) * s + 1) * sizeof(float));
    memset(&p->memory, 0, sizeof p->memory);
    EXPECT(cell_reserve_bytes(ctx, &toy_desc, p->sizes, &p->memory.reserve_bytes) == CELL_OK, "%s",
           cell_last_error(ctx));
    EXPECT(cell_alloc(ctx, &p->memory.reserve, p->memory.reserve_bytes) == CELL_OK, "%s",
           cell_last_error(ctx));
    void *forward[] = {p->t[0].host, p->t[1].host, p->t[2].host, p->want[3], p->want[4]};
    void *backward[] = {p->t[0].host, p->t[1].host, p->t[2].host, p->t[5].host,
                        p->t[6].host, p->want[7],   p->want[8],   p->want[9]};
    toy_forward_model(p->sizes, forward, p->model_reserve, 0);
    toy_backward_model(p->sizes, backward, p->model_reserve, 0);
}

static void tear_down(Problem *p) {
    for (int i = 0; i < TENSORS; i++) {
        destroy(&p->t[i]);
        free(p->want[i]);
    }
    cell_free(ctx, p->memory.reserve);
    free(p->model_reserve);
}

static void run(Problem *p, int flags) {
    void *forward[] = {p->t[0].device, p->t[1].device, p->t[2].device, p->t[3].device, p->t[4].device};
    void *backward[] = {p->t[0].device, p->t[1].device, p->t[2].device, p->t[5].device,
                        p->t[6].device, p->t[7].device, p->t[8].device, p->t[9].device};
    EXPECT(cell_run_forward(ctx, &toy_desc, p->sizes, forward, &p->memory, 0) == CELL_OK, "%s",
           cell_last_error(ctx));
    EXPECT(cell_run_backward(ctx, &toy_desc, p->sizes, backward, &p->memory, flags) == CELL_OK, "%s",
           cell_last_error(ctx));
}

static void check_results(Problem *p, const char *how) {
    static const char *const names[] = {"", "", "", "y", "hT", "", "", "dx", "dW", "dh0"};
    char what[64];
    for (int i = 3; i < TENSORS; i++) {
        snprintf(what, sizeof what, "%s %s", names[i], how);
        if (names[i][0])
            expect_close(what, &p->t[i], p->want[i]);
    }
}

static void poison(Problem *p) {
    static const int written[] = {3, 4, 7, 8, 9};
    for (int i = 0; i < 5; i++)
        cell_fill(ctx, p->t[written[i]].device, 0xff, (size_t)p->t[written[i]].count * sizeof(float));
}

/* First plain, then recorded, then replayed. */
static void sizes_and_graphs(void) {
    static const int64_t sizes[][3] = {{2, 3, 4}, {1, 1, 1}, {3, 40, 33}, {0, 3, 4}, {2, 0, 4}, {70, 5, 64}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        Problem p;
        set_up(&p, sizes[i][0], sizes[i][1], sizes[i][2]);
        for (int again = 0; again < 4; again++) {
            poison(&p);
            run(&p, 0);
            check_results(&p, again == 0 ? "plain" : again == 1 ? "recorded" : "replayed");
        }
        run(&p, CELL_ACCUMULATE);
        for (int t = 7; t < 10; t++)
            for (int64_t j = 0; j < p.t[t].count; j++)
                p.want[t][j] *= 2;
        check_results(&p, "accumulated");
        tear_down(&p);
    }
}

static void same_bits(void) {
    Problem p;
    set_up(&p, 5, 20, 48);
    size_t bytes = (size_t)p.t[8].count * sizeof(float);
    float *first = malloc(bytes), *second = malloc(bytes);
    run(&p, 0);
    cell_copy(ctx, first, p.t[8].device, bytes);
    for (int i = 0; i < 5; i++) {
        run(&p, 0);
        cell_copy(ctx, second, p.t[8].device, bytes);
        EXPECT(memcmp(first, second, bytes) == 0, "dW differs in run %d", i);
    }
    free(first), free(second);
    tear_down(&p);
}

/* On the caller's stream, and recorded by the caller as part of a larger graph. */
static void streams(void) {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t ready;
    Problem p;
    set_up(&p, 4, 6, 16);
    EXPECT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "stream");
    EXPECT(cell_context_set_stream(ctx, stream) == CELL_OK, "%s", cell_last_error(ctx));
    for (int i = 0; i < 3; i++) {
        poison(&p);
        run(&p, 0);
        check_results(&p, "on the caller's stream");
    }
    poison(&p);
    cell_synchronize(ctx);
    EXPECT(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess, "capture");
    run(&p, 0);
    EXPECT(cudaStreamEndCapture(stream, &graph) == cudaSuccess, "end of capture");
    EXPECT(cudaGraphInstantiate(&ready, graph, 0) == cudaSuccess, "instantiate");
    EXPECT(cudaGraphLaunch(ready, stream) == cudaSuccess, "launch");
    check_results(&p, "in the caller's graph");
    cudaGraphExecDestroy(ready), cudaGraphDestroy(graph);
    EXPECT(cell_context_set_stream(ctx, NULL) == CELL_OK, "%s", cell_last_error(ctx));
    cudaStreamDestroy(stream);
    tear_down(&p);
}

static void pointers(void) {
    Problem p;
    set_up(&p, 2, 3, 4);
    void *pinned, *managed;
    EXPECT(cudaMallocHost(&pinned, 4096) == cudaSuccess &&
               cudaMallocManaged(&managed, 4096, 1) == cudaSuccess,
           "memory");
    void *args[] = {p.t[0].host, p.t[1].device, p.t[2].device, p.t[3].device, p.t[4].device};
    void *aligned = aligned_alloc(256, 4096);
    void *host[] = {aligned, pinned};
    for (int i = 0; i < 2; i++) {
        args[0] = host[i];
        EXPECT(cell_run_forward(ctx, &toy_desc, p.sizes, args, &p.memory, 0) == CELL_WRONG_DEVICE,
               "host memory");
        EXPECT(strstr(cell_last_error(ctx), "x is at") && strstr(cell_last_error(ctx), "host memory"), "%s",
               cell_last_error(ctx));
    }
    args[0] = managed;
    EXPECT(cell_run_forward(ctx, &toy_desc, p.sizes, args, &p.memory, 0) == CELL_OK, "%s",
           cell_last_error(ctx));
    EXPECT(cell_synchronize(ctx) == CELL_OK, "%s", cell_last_error(ctx));
    cudaFreeHost(pinned), cudaFree(managed), free(aligned);
    tear_down(&p);
}

/* A cell of one kernel that writes out[B]. */
static cell_status launch_one(cell_kernel kernel, int64_t blocks, const int64_t *grid, float *result) {
    static const int64_t one[] = {CELL_X_PUSH, 1, CELL_X_END};
    const cell_expr axes[] = {one};
    const cell_tensor tensor = {"out", CELL_OUTPUT, CELL_F32, 1, axes};
    const cell_arg arg = {0, CELL_ROLE_VALUE, 0, CELL_F32};
    const cell_buffer buffer = {"out", CELL_FROM_ARG, CELL_F32, 0, NULL};
    const cell_ref ref = {0, NULL};
    const cell_op op = {
        .name = "one", .kind = CELL_OP_KERNEL, .u.kernel = {0, 1, {grid, NULL, NULL}, &ref, NULL}};
    const cell_plan plan = {&buffer, &op, 1, 1};
    const char *const names[] = {"B", "T", "t0"};
    cell_desc desc = {.plan_version = CELL_PLAN_VERSION,
                      .name = "one",
                      .key = "one",
                      .size_names = names,
                      .tensors = &tensor,
                      .forward_args = &arg,
                      .kernels = &kernel,
                      .forward = &plan,
                      .n_sizes = 3,
                      .n_tensors = 1,
                      .n_forward_args = 1,
                      .n_kernels = 1};
    int64_t sizes[] = {blocks, 1, 0};
    void *out;
    cell_alloc(ctx, &out, (size_t)blocks * sizeof(float));
    cell_fill(ctx, out, 0xff, (size_t)blocks * sizeof(float));
    cell_status status = cell_run_forward(ctx, &desc, sizes, &out, NULL, 0);
    if (status == CELL_OK)
        status = cell_copy(ctx, result, out, (size_t)blocks * sizeof(float));
    cell_free(ctx, out);
    return status;
}

static const int64_t batch_grid[] = {CELL_X_SIZE, 0, CELL_X_END};
static const int64_t hundred_kb[] = {CELL_X_PUSH, 100000, CELL_X_END};
static const int64_t megabyte[] = {CELL_X_PUSH, 1 << 20, CELL_X_END};

static void launches(void) {
    static float out[100000];
    cell_kernel much = {"toy_much_shared", toy_much_shared, 32, 0, 0, hundred_kb};
    cell_kernel cooperative = {"toy_cooperative", toy_cooperative, 64, 0, 1, NULL};
    cell_kernel cluster = {"toy_cluster", toy_cluster, 32, 4, 0, NULL};
    EXPECT(launch_one(much, 300, batch_grid, out) == CELL_OK && out[299] == 300, "%s", cell_last_error(ctx));
    much.smem = megabyte;
    EXPECT(launch_one(much, 1, batch_grid, out) == CELL_UNSUPPORTED, "1 MB of shared memory");
    EXPECT(strstr(cell_last_error(ctx), "1048576 bytes of shared memory"), "%s", cell_last_error(ctx));
    EXPECT(launch_one(cooperative, 100, batch_grid, out) == CELL_OK && out[5] == 6 && out[0] == 1, "%s",
           cell_last_error(ctx));
    EXPECT(launch_one(cooperative, 100000, batch_grid, out) == CELL_UNSUPPORTED,
           "a cooperative grid too large");
    EXPECT(strstr(cell_last_error(ctx), "must run at once"), "%s", cell_last_error(ctx));
    static const int64_t most[] = {CELL_X_RESIDENT, 0, CELL_X_SIZE, 0, CELL_X_MIN, CELL_X_END};
    EXPECT(launch_one(cooperative, 100000, most, out) == CELL_OK, "%s", cell_last_error(ctx));
    cell_status status = launch_one(cluster, 64, batch_grid, out);
    if (status != CELL_UNSUPPORTED || !strstr(cell_last_error(ctx), "sm_90"))
        EXPECT(status == CELL_OK && out[0] == 0 && out[7] == 3 && out[62] == 2, "%s", cell_last_error(ctx));
    EXPECT(launch_one(cluster, 63, batch_grid, out) == CELL_UNSUPPORTED, "63 blocks in clusters of 4");
    cluster.threads = 2048;
    EXPECT(launch_one(cluster, 64, batch_grid, out) == CELL_UNSUPPORTED, "2048 threads");
}

int main(void) {
    char message[512];
    if (cell_context_create(&ctx, CELL_BACKEND_CUDA, 0, message, sizeof message) != CELL_OK) {
        printf("%s\n", message);
        return 2;
    }
    sizes_and_graphs();
    same_bits();
    streams();
    pointers();
    launches();
    cell_context_destroy(ctx);
    return report();
}
