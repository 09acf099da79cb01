// The emulator under the runtime: a plan with one kernel, run through the public calls.
//
// In: libcell with the emulator linked in. Out: `N passed, N failed`. Guaranteed: what the kernel computes is
// compared with a loop; a launch that a GPU would refuse comes back as a status with the sentence.
#include "harness.h"

#include "../../runtime/cell_backend.h"

// y[b, t] = 2 x[b, t] + the sum of x over the sequence; one block per sequence.
KERNEL(k_row_sum)
{
    auto cursor = cell_shared();
    cell_smem<float> scratch = cell_carve<float>(cursor, 32);
    const float *x = (const float *)args.ptr[0] + cell_block_index(0) * args.size[1];
    float *y = (float *)args.ptr[1] + cell_block_index(0) * args.size[1];
    float sum = 0;
    for (int64_t t = cell_thread(); t < args.size[1]; t += cell_threads())
        sum += x[t];
    cell_block_sum(scratch, sum);
    for (int64_t t = cell_thread(); t < args.size[1]; t += cell_threads())
        y[t] = 2 * x[t] + sum;
}

static const int64_t size_b[] = {CELL_X_SIZE, CELL_SIZE_B, CELL_X_END};
static const int64_t smem_bytes[] = {CELL_X_PUSH, 128, CELL_X_END};
static const int64_t smem_for_t[] = {CELL_X_SIZE, CELL_SIZE_T, CELL_X_PUSH, 1000, CELL_X_MUL, CELL_X_END};

struct Toy {
    cell_tensor tensors[2];
    cell_arg args[2];
    cell_buffer buffers[2];
    cell_ref refs[2];
    cell_kernel kernel;
    cell_op op;
    cell_plan plan;
    cell_desc desc;
    const char *size_names[3] = {"B", "T", "t0"};

    explicit Toy(cell_expr smem)
    {
        memset(tensors, 0, sizeof tensors);
        memset(args, 0, sizeof args);
        memset(buffers, 0, sizeof buffers);
        memset(refs, 0, sizeof refs);
        memset(&kernel, 0, sizeof kernel);
        memset(&op, 0, sizeof op);
        memset(&plan, 0, sizeof plan);
        memset(&desc, 0, sizeof desc);
        for (int i = 0; i < 2; i++) {
            tensors[i].name = buffers[i].name = i ? "y" : "x";
            tensors[i].kind = i ? CELL_OUTPUT : CELL_INPUT;
            tensors[i].dtype = CELL_F32;
            args[i].tensor = buffers[i].index = refs[i].buffer = (int16_t)i;
            args[i].dtype = buffers[i].dtype = CELL_F32;
            args[i].role = CELL_ROLE_VALUE;
            buffers[i].origin = CELL_FROM_ARG;
        }
        kernel.name = "k_row_sum";
        kernel.symbol = k_row_sum;
        kernel.threads = 64;
        kernel.smem = smem;
        op.name = "row sums";
        op.kind = CELL_OP_KERNEL;
        op.u.kernel.n_refs = 2;
        op.u.kernel.refs = refs;
        op.u.kernel.grid[0] = size_b;
        plan.buffers = buffers;
        plan.ops = &op;
        plan.n_buffers = 2;
        plan.n_ops = 1;
        fill_desc();
    }

    void fill_desc()
    {
        desc.plan_version = CELL_PLAN_VERSION;
        desc.name = "toy";
        desc.key = "toy:";
        desc.size_names = size_names;
        desc.tensors = tensors;
        desc.forward_args = args;
        desc.kernels = &kernel;
        desc.forward = &plan;
        desc.n_sizes = 3;
        desc.n_tensors = 2;
        desc.n_forward_args = 2;
        desc.n_kernels = 1;
    }
};

static cell_status run(cell_context *context, const Toy &toy, int64_t b, int64_t t, std::vector<float> &x,
                       std::vector<float> &y)
{
    const int64_t sizes[] = {b, t, 0};
    void *const args[] = {x.data(), y.data()};
    const cell_memory memory = {nullptr, 0, nullptr, 0};
    return cell_run_forward(context, &toy.desc, sizes, args, &memory, 0);
}

static void check_values(cell_context *context, int64_t b, int64_t t)
{
    open_group();
    const Toy toy(smem_bytes);
    std::vector<float> x((size_t)(b * t)), y((size_t)(b * t), NAN);
    for (size_t i = 0; i < x.size(); i++)
        x[i] = (float)(i % 13) - 5;
    const cell_status status = run(context, toy, b, t, x, y);
    check(status == CELL_OK, "B = %d, T = %d: %s", (int)b, (int)t, cell_last_error(context));
    for (int64_t row = 0; row < b; row++) {
        double sum = 0;
        for (int64_t i = 0; i < t; i++)
            sum += x[(size_t)(row * t + i)];
        for (int64_t i = 0; i < t; i++)
            check(y[(size_t)(row * t + i)] == 2 * x[(size_t)(row * t + i)] + sum, "B = %d, T = %d: y[%d, %d]",
                  (int)b, (int)t, (int)row, (int)i);
    }
}

int main()
{
    cell_context *context = nullptr;
    char message[256] = "";
    const cell_status status =
        cell_context_create(&context, CELL_BACKEND_EMULATED, 0, message, sizeof message);
    check(status == CELL_OK, "no context: %s", message);
    if (status == CELL_OK) {
        check(!strcmp(cell_backend_name(context), "emulated"), "backend is %s", cell_backend_name(context));
        for (int64_t b : {0, 1, 3})
            for (int64_t t : {1, 63, 64, 200})
                check_values(context, b, t);
        open_group();
        const Toy large(smem_for_t);
        std::vector<float> x(300), y(300);
        check(run(context, large, 1, 300, x, y) != CELL_OK, "300000 bytes of shared memory are not refused");
        check(strstr(cell_last_error(context), "shared memory"), "the refusal says: %s",
              cell_last_error(context));
        cell_context_destroy(context);
    }
    return report();
}
