/* wanted.c: what a backward walk does for the gradients that are asked for. In: an instance on the emulator,
 * linked with --wrap for its barriers, shuffles and shared reads; sizes, and names of arguments. Out: verdicts.
 * Asked for nothing, backward launches no walk. Each named gradient alone costs fewer shuffles or shared
 * reads than all together, and no gradient alone costs fewer than those of the initial states: what is carried
 * is always done. */
#include "zeros.h"

typedef struct Work { int64_t barriers, shuffles, reads; } Work;
static Work done;

/* The emulator's C++ names. */
void __real__Z16cell_emu_barrieriii(int id, int count, int wait);
void __wrap__Z16cell_emu_barrieriii(int id, int count, int wait);
uint64_t __real__Z16cell_emu_shuffleimi(int how, uint64_t value, int operand);
uint64_t __wrap__Z16cell_emu_shuffleimi(int how, uint64_t value, int operand);
void __real__Z13cell_emu_readPKvm(const void *p, size_t bytes);
void __wrap__Z13cell_emu_readPKvm(const void *p, size_t bytes);

void __wrap__Z16cell_emu_barrieriii(int id, int count, int wait)
{
    done.barriers++;
    __real__Z16cell_emu_barrieriii(id, count, wait);
}

uint64_t __wrap__Z16cell_emu_shuffleimi(int how, uint64_t value, int operand)
{
    done.shuffles++;
    return __real__Z16cell_emu_shuffleimi(how, value, operand);
}

void __wrap__Z13cell_emu_readPKvm(const void *p, size_t bytes)
{
    done.reads++;
    __real__Z13cell_emu_readPKvm(p, bytes);
}

static int passed, failed;

static void verdict(int ok, const char *what, const char *of)
{
    passed += ok;
    failed += !ok;
    if (!ok)
        printf("FAIL %s: %s\n", of, what);
}

static int is_gradient(const cell_arg *a)
{
    return a->role == CELL_ROLE_D_VALUE;
}

/* Backward with the gradients for which chosen says so. */
static Work backward(cell_context *ctx, const int64_t *sizes, const cell_memory *memory, void *const *args,
                     const char *chosen)
{
    const cell_desc *d = ladder_instance();
    void *some[CELL_MAX_ARGS];
    for (int i = 0; i < d->n_backward_args; i++)
        some[i] = is_gradient(&d->backward_args[i]) && !chosen[i] ? NULL : args[i];
    done = (Work){ 0, 0, 0 };
    must(ctx, cell_run_backward(ctx, d, sizes, some, memory, 0));
    return done;
}

static void compare(cell_context *ctx, const int64_t *sizes, const cell_memory *memory, void *const *args,
                    char *const *names, int n_names)
{
    const cell_desc *d = ladder_instance();
    char none[CELL_MAX_ARGS] = "", every[CELL_MAX_ARGS], states[CELL_MAX_ARGS], one[CELL_MAX_ARGS];
    memset(every, 1, sizeof every);
    for (int i = 0; i < d->n_backward_args; i++)
        states[i] = d->tensors[d->backward_args[i].tensor].kind == CELL_STATE;
    Work nothing = backward(ctx, sizes, memory, args, none), all = backward(ctx, sizes, memory, args, every);
    Work least = backward(ctx, sizes, memory, args, states);
    verdict(nothing.barriers == 0 && nothing.shuffles == 0, "a walk for nobody", d->key);
    verdict(least.shuffles < all.shuffles && least.reads < all.reads, "the initial states' gradients cost all",
            d->key);
    for (int i = 0; i < d->n_backward_args; i++) {
        const cell_arg *a = &d->backward_args[i];
        const char *name = d->tensors[a->tensor].name;
        int named = 0;
        if (!is_gradient(a))
            continue;
        for (int k = 0; k < n_names; k++)
            named |= strcmp(names[k], name) == 0;
        memset(one, 0, sizeof one);
        one[i] = 1;
        Work w = backward(ctx, sizes, memory, args, one);
        if (getenv("WANTED_VERBOSE"))
            printf("%s: %lld of %lld shuffles, %lld of %lld shared reads, %lld of %lld barriers\n", name,
                   (long long)w.shuffles, (long long)all.shuffles, (long long)w.reads, (long long)all.reads,
                   (long long)w.barriers, (long long)all.barriers);
        verdict(w.shuffles >= least.shuffles && w.barriers >= least.barriers, "less than what is carried", name);
        verdict(w.shuffles <= all.shuffles && w.reads <= all.reads, "more than all together", name);
        verdict(!named || w.shuffles + w.reads < all.shuffles + all.reads, "no less than all together", name);
    }
}

int main(int argc, char **argv)
{
    cell_context *ctx = NULL;
    char message[512] = "";
    Zeros z;
    if (argc < 2 || cell_context_create(&ctx, CELL_BACKEND_EMULATED, 0, message, sizeof message) != CELL_OK) {
        fprintf(stderr, "usage: wanted SIZES NAME... %s\n", message);
        return 2;
    }
    zeros_forward(&z, ctx, argv[1]);
    compare(ctx, z.sizes, &z.memory, z.backward, argv + 2, argc - 2);
    cell_context_destroy(ctx);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
