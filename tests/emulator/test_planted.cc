// Mistakes planted in kernels: the emulator must catch each, whatever the order of the threads.
//
// In: nothing, or the name of one case, which then runs in this process. Out: `N passed, N failed`.
// Guaranteed: each case runs as a child of its own under several seeds; it passes when the child ends as
// expected and says what is expected. The cases that are right must run through, so a checker that always
// shouts fails.
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "harness.h"

// Each kernel has 64 threads unless its case says otherwise, two blocks, and two arrays of 64 floats in
// shared memory. ptr[0] is an array of 64 floats, ptr[1] a counter.

#define TWO_ARRAYS                                                                                           \
    auto cursor = cell_shared();                                                                             \
    cell_smem<float> a = cell_carve<float>(cursor, 64);                                                      \
    cell_smem<float> b = cell_carve<float>(cursor, 64);                                                      \
    float *out = (float *)args.ptr[0];                                                                       \
    const int i = cell_thread();                                                                             \
    (void)a, (void)b, (void)out, (void)i

KERNEL(right)
{
    TWO_ARRAYS;
    a[i] = (float)i;
    cell_barrier();
    const float v = a[63 - i];
    b[i] = v;
    cell_barrier();
    a[i] = b[(i + 5) % 64];
    out[i] = a[i];
}

KERNEL(right_equal_values)
{
    TWO_ARRAYS;
    a[0] = 3.0f; // all write the same
    cell_barrier();
    out[i] = a[0];
}

KERNEL(read_after_write)
{
    TWO_ARRAYS;
    a[i] = (float)i;
    out[i] = a[(i + 32) % 64];
}

// Elements of 8, 4 and 2 bytes, each a thread's own.
#define THREE_TYPES                                                                                          \
    auto cursor = cell_shared();                                                                             \
    cell_smem<double> a = cell_carve<double>(cursor, 32);                                                    \
    cell_smem<float> b = cell_carve<float>(cursor, 32);                                                      \
    cell_smem<cell_bf16> c = cell_carve<cell_bf16>(cursor, 64);                                              \
    float *out = (float *)args.ptr[0];                                                                       \
    const int i = cell_thread();                                                                             \
    if (i < 32) {                                                                                            \
        a[i] = i;                                                                                            \
        b[i] = (float)i;                                                                                     \
    }                                                                                                        \
    c[i] = cell_convert<cell_bf16>((float)i)

KERNEL(right_neighbours)
{
    THREE_TYPES;
    const float v = cell_convert<float>((cell_bf16)c[i]);
    out[i] = i < 32 ? v + (float)(double)a[i] + b[i] : v;
}

KERNEL(half_of_an_element)
{
    THREE_TYPES;
    out[i] = cell_smem<float>((float *)a.p)[2 * (i % 16) + (i < 32 ? 33 : 1)];
}

KERNEL(neighbour_of_two_bytes)
{
    THREE_TYPES;
    out[i] = cell_convert<float>((cell_bf16)c[i ^ 1]);
}

KERNEL(write_after_read)
{
    TWO_ARRAYS;
    a[i] = (float)i;
    cell_barrier();
    const float v = a[(i + 40) % 64];
    a[i] = v + 1;
    cell_barrier();
    out[i] = a[i];
}

KERNEL(write_after_write)
{
    TWO_ARRAYS;
    a[i / 2] = (float)i;
    cell_barrier();
    out[i] = a[i / 2];
}

KERNEL(within_a_warp)
{
    TWO_ARRAYS;
    a[i] = (float)i;
    out[i] = a[i ^ 1];
}

KERNEL(shuffle_is_no_barrier)
{
    TWO_ARRAYS;
    a[i] = (float)i;
    const float v = cell_shfl_xor((float)i, 1);
    out[i] = a[i ^ 1] + v;
}

KERNEL(warp_barrier_is_not_enough)
{
    TWO_ARRAYS;
    a[i] = (float)i;
    cell_warp_barrier();
    out[i] = a[(i + 32) % 64];
}

// The second buffer's barrier is missing in a double-buffered exchange only every other step.
KERNEL(one_buffer_too_few)
{
    TWO_ARRAYS;
    float v = (float)i;
    for (int s = 0; s < 4; s++) {
        a[i] = v;
        cell_barrier();
        v += a[(i + 33) % 64];
    }
    out[i] = v;
}

KERNEL(read_while_others_wait)
{
    auto cursor = cell_shared();
    cell_smem<float> a = cell_carve<float>(cursor, 64);
    cell_split_barrier split = cell_split_carve(cursor);
    cell_split_init(split);
    cell_barrier();
    a[cell_thread()] = 1.0f + (float)cell_thread();
    cell_split_arrive(split);
    const float early = a[(cell_thread() + 32) % 64];
    cell_split_wait(split);
    ((float *)args.ptr[0])[cell_thread()] = early;
}

KERNEL(arrive_twice)
{
    auto cursor = cell_shared();
    cell_split_barrier split = cell_split_carve(cursor);
    cell_split_init(split);
    cell_barrier();
    cell_split_arrive(split);
    cell_split_arrive(split);
    cell_split_wait(split);
}

KERNEL(split_not_published)
{
    auto cursor = cell_shared();
    cell_split_barrier split = cell_split_carve(cursor);
    cell_split_init(split);
    cell_split_arrive(split);
    cell_split_wait(split);
}

KERNEL(barrier_in_one_warp)
{
    if (cell_warp() == 0)
        cell_barrier();
    ((float *)args.ptr[0])[cell_thread()] = 0;
}

KERNEL(barrier_in_half_a_warp)
{
    if (cell_lane() < 16)
        cell_barrier();
    ((float *)args.ptr[0])[cell_thread()] = 0;
}

KERNEL(shuffle_without_a_lane)
{
    float v = (float)cell_lane();
    if (cell_lane() != 7)
        v = cell_shfl_xor(v, 1);
    ((float *)args.ptr[0])[cell_thread()] = v;
}

KERNEL(shuffle_against_barrier)
{
    float v = (float)cell_lane();
    if (cell_lane() == 7)
        cell_barrier();
    else
        v = cell_shfl_xor(v, 1);
    ((float *)args.ptr[0])[cell_thread()] = v;
}

KERNEL(different_masks)
{
    const float v = cell_shfl_xor((float)cell_lane(), cell_lane() < 3 ? 2 : 4);
    ((float *)args.ptr[0])[cell_thread()] = v;
}

KERNEL(early_return)
{
    if (cell_thread() >= 60)
        return;
    cell_barrier();
    ((float *)args.ptr[0])[cell_thread()] = 0;
}

KERNEL(one_barrier_more)
{
    for (int s = 0; s < 3 + cell_warp(); s++)
        cell_barrier();
}

KERNEL(counts_differ)
{
    if (cell_warp() == 0)
        cell_barrier_wait(1, 64);
    else
        cell_barrier_wait(1, 32);
}

KERNEL(shared_behind_the_end)
{
    TWO_ARRAYS;
    a[i + 1] = 1.0f;
}

KERNEL(shared_before_the_start)
{
    TWO_ARRAYS;
    out[i] = a[i - 1];
}

KERNEL(global_behind_the_end) { ((float *)args.ptr[0])[cell_thread() + 1] = 1.0f; }

KERNEL(vector_behind_the_end)
{
    float v[4];
    cell_load_vec<4>(v, (const float *)args.ptr[0] + cell_thread() / 16 * 4 + 52);
    ((float *)args.ptr[0])[0] = v[0];
}

KERNEL(copy_behind_the_end)
{
    TWO_ARRAYS;
    if (i < 4)
        cell_cp_async<16>(a + i * 4, (const float *)out + 52 + i * 4);
    cell_cp_async_commit();
    cell_cp_async_wait<0>();
}

KERNEL(copy_not_waited_for)
{
    TWO_ARRAYS;
    cell_cp_async<4>(a + i, (const float *)out + i);
    cell_cp_async_commit();
    const float v = a[i];
    cell_cp_async_wait<0>();
    out[i] = v;
}

KERNEL(copy_wrong_group)
{
    TWO_ARRAYS;
    cell_cp_async<4>(a + i, (const float *)out + i);
    cell_cp_async_commit();
    cell_cp_async<4>(b + i, (const float *)out + i);
    cell_cp_async_commit();
    cell_cp_async_wait<1>();
    out[i] = b[i];
}

KERNEL(copy_without_barrier)
{
    TWO_ARRAYS;
    cell_cp_async<4>(a + i, (const float *)out + i);
    cell_cp_async_commit();
    cell_cp_async_wait<0>();
    b[i] = a[(i + 1) % 64];
}

KERNEL(copy_over_one_of_four)
{
    TWO_ARRAYS;
    if (i == 40)
        a[2] = 1.0f;
    if (i == 0) {
        cell_cp_async<16>(a, out);
        cell_cp_async_commit();
        cell_cp_async_wait<0>();
    }
}

KERNEL(copy_over_what_is_read)
{
    TWO_ARRAYS;
    a[i] = 1.0f;
    cell_barrier();
    const float v = a[(i + 1) % 64];
    cell_cp_async<4>(a + i, (const float *)out + i);
    cell_cp_async_commit();
    cell_cp_async_wait<0>();
    b[i] = v;
}

KERNEL(misaligned_vector)
{
    float v[4];
    cell_load_vec<4>(v, (const float *)args.ptr[0] + 1);
    ((float *)args.ptr[0])[cell_thread()] = v[0];
}

KERNEL(more_shared_than_launched)
{
    auto cursor = cell_shared();
    cell_smem<float> a = cell_carve<float>(cursor, 64);
    cell_smem<float> b = cell_carve<float>(cursor, 65);
    a[cell_thread()] = 0;
    b[cell_thread()] = 0;
}

KERNEL(carved_differently)
{
    auto cursor = cell_shared();
    cell_smem<float> a = cell_carve<float>(cursor, cell_thread() == 5 ? 32 : 64);
    a[0] = 0;
}

KERNEL(not_resident)
{
    unsigned *counter = (unsigned *)args.ptr[1];
    cell_grid_barrier(counter);
}

KERNEL(nobody_posts) { cell_block_wait((unsigned *)args.ptr[1], 1); }

KERNEL(remote_without_barrier)
{
    TWO_ARRAYS;
    a[i] = (float)(cell_cluster_rank() + 1);
    cell_barrier();
    b[i] = cell_cluster_load(a + i, (cell_cluster_rank() + 1) % 2);
}

KERNEL(remote_after_the_end)
{
    TWO_ARRAYS;
    a[i] = (float)(cell_cluster_rank() + 1);
    cell_cluster_barrier();
    if (cell_cluster_rank() == 0)
        return;
    for (int s = 0; s < 50; s++)
        cell_barrier();
    b[i] = cell_cluster_load(a + i, 0);
}

// 64 floats that the other block of the cluster sends, and the inbox that counts them.
#define INBOX                                                                                                \
    auto cursor = cell_shared();                                                                             \
    cell_smem<float> a = cell_carve<float>(cursor, 64);                                                      \
    cell_inbox inbox = cell_inbox_carve(cursor);                                                             \
    float *out = (float *)args.ptr[0];                                                                       \
    const int i = cell_thread();                                                                             \
    (void)out;                                                                                               \
    cell_inbox_init(inbox);                                                                                  \
    cell_cluster_barrier()

static void send_all(cell_smem<float> a, const cell_inbox &inbox)
{
    const uint32_t words[4] = {0x3f800000u, 0x3f800000u, 0x3f800000u, 0x3f800000u};
    if (cell_thread() < 16)
        cell_cluster_send(a + 4 * cell_thread(), 1 - cell_cluster_rank(), inbox, words);
}

KERNEL(sent)
{
    INBOX;
    if (i == 0)
        cell_inbox_expect(inbox, 256);
    send_all(a, inbox);
    cell_inbox_wait(inbox);
    out[i] = a[63 - i];
}

KERNEL(sent_and_not_awaited)
{
    INBOX;
    if (i == 0)
        cell_inbox_expect(inbox, 256);
    send_all(a, inbox);
    out[i] = a[63 - i];
    cell_inbox_wait(inbox);
}

KERNEL(sent_more_than_expected)
{
    INBOX;
    if (i == 0)
        cell_inbox_expect(inbox, 200);
    send_all(a, inbox);
    cell_inbox_wait(inbox);
    out[i] = a[63 - i];
}

KERNEL(expected_twice)
{
    INBOX;
    if (i == 0) {
        cell_inbox_expect(inbox, 128);
        cell_inbox_expect(inbox, 512);
    }
    send_all(a, inbox);
}

// What is read before it is written is NaN.
KERNEL(garbage)
{
    TWO_ARRAYS;
    out[i] = a[i];
}

struct Case {
    const char *name;
    test_kernel kernel;
    const char *says; // "" where the kernel is right
    unsigned threads = 64, cluster = 1;
    bool cooperative = false;
};

#define CASE(kernel, ...)                                                                                    \
    {                                                                                                        \
#kernel, kernel, __VA_ARGS__                                                                         \
    }

static const Case cases[] = {
    CASE(right, ""),
    CASE(right_equal_values, ""),
    CASE(garbage, ""),
    CASE(read_after_write, "race: thread"),
    CASE(right_neighbours, ""),
    CASE(half_of_an_element, "race: thread"),
    CASE(neighbour_of_two_bytes, "race: thread"),
    CASE(write_after_read, "race: thread"),
    CASE(write_after_write, "race: thread"),
    CASE(within_a_warp, "race: thread"),
    CASE(shuffle_is_no_barrier, "race: thread"),
    CASE(warp_barrier_is_not_enough, "race: thread"),
    CASE(one_buffer_too_few, "race: thread"),
    CASE(read_while_others_wait, "race: thread"),
    CASE(arrive_twice, "cell_split_arrive twice"),
    CASE(split_not_published, "split barrier is used"),
    CASE(barrier_in_one_warp, "divergent barrier"),
    CASE(barrier_in_half_a_warp, "divergent warp"),
    CASE(shuffle_without_a_lane, "divergent warp"),
    CASE(shuffle_against_barrier, "divergent warp"),
    CASE(different_masks, "different arguments (2 and 4)|different arguments (4 and 2)"),
    CASE(early_return, "divergent warp"),
    CASE(one_barrier_more, "divergent barrier"),
    CASE(counts_differ, "barrier 1 is for|divergent barrier"),
    CASE(shared_behind_the_end, "AddressSanitizer: use-after-poison"),
    CASE(shared_before_the_start,
         "AddressSanitizer: heap-buffer-overflow|AddressSanitizer: use-after-poison"),
    CASE(global_behind_the_end, "AddressSanitizer: heap-buffer-overflow"),
    CASE(vector_behind_the_end, "AddressSanitizer: heap-buffer-overflow"),
    CASE(copy_behind_the_end, "AddressSanitizer: heap-buffer-overflow"),
    CASE(copy_not_waited_for, "a copy is still on its way"),
    CASE(copy_wrong_group, "a copy is still on its way"),
    CASE(copy_without_barrier, "race: thread|a copy is still on its way"),
    CASE(copy_over_one_of_four, "race: thread|a copy is still on its way"),
    CASE(copy_over_what_is_read, "race: thread|a copy is still on its way"),
    CASE(misaligned_vector, "misaligned address: cell_load_vec"),
    CASE(more_shared_than_launched, "too little shared memory: the launch gives 512 bytes"),
    CASE(carved_differently, "cell_carve: "),
    CASE(not_resident, "deadlock: blocks wait for a counter, and the launch is not cooperative"),
    CASE(nobody_posts, "deadlock", 64, 1, true),
    CASE(remote_without_barrier, "race: thread|has not carved", 64, 2),
    CASE(remote_after_the_end, "still reaches into its memory", 64, 2),
    CASE(sent, "", 64, 2),
    CASE(sent_and_not_awaited, "race: thread", 64, 2),
    CASE(sent_more_than_expected, "an inbox expects 200 bytes", 64, 2),
    CASE(expected_twice, "cell_inbox_expect twice in a round|still reaches into its memory", 64, 2),
};

static int run_case(const Case &c)
{
    Array<float> out(64);
    Array<unsigned> counter(1);
    counter[0] = 0;
    for (size_t i = 0; i < 64; i++)
        out[i] = (float)i;
    cell_kernel_args args = arguments({out.data, counter.data});
    launch(c.name, c.kernel, args, Shape{2, c.threads, 512, c.cluster, c.cooperative});
    for (size_t i = 0; i < 64; i++) {
        if (c.kernel == right)
            check(out[i] == (float)(63 - (i + 5) % 64), "right: %zu", i);
        if (c.kernel == right_equal_values)
            check(out[i] == 3.0f, "right_equal_values: %zu", i);
        if (c.kernel == garbage)
            check(isnan(out[i]), "garbage: %zu", i);
    }
    return failed != 0;
}

static bool says_one_of(const std::string &text, const std::string &options)
{
    size_t from = 0;
    for (;;) {
        const size_t bar = options.find('|', from);
        if (text.find(options.substr(from, bar - from)) != std::string::npos)
            return true;
        if (bar == std::string::npos)
            return false;
        from = bar + 1;
    }
}

// Runs this program on one case; gives its exit code and what it printed.
static int run_child(const char *program, const char *name, int seed, std::string &text)
{
    int ends[2];
    if (pipe(ends))
        return -1;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        close(ends[0]);
        setenv("ASAN_OPTIONS", "symbolize=0", 1); // the slowest part of a report, and not looked at
        setenv("CELL_EMU_SEED", std::to_string(seed).c_str(), 1);
        execl(program, program, name, (char *)nullptr);
        _exit(127);
    }
    close(ends[1]);
    char buffer[4096];
    ssize_t n;
    while ((n = read(ends[0], buffer, sizeof buffer)) > 0)
        text.append(buffer, (size_t)n);
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void check_case(const char *program, const Case &c)
{
    for (int seed = 1; seed <= 4; seed++) {
        std::string text;
        const int code = run_child(program, c.name, seed, text);
        if (!*c.says) {
            check(code == 0, "%s, seed %d: must run through, ends with %d:\n%s", c.name, seed, code,
                  text.c_str());
            continue;
        }
        check(code != 0, "%s, seed %d: not caught", c.name, seed);
        check(says_one_of(text, c.says), "%s, seed %d: does not say `%s', but:\n%s", c.name, seed, c.says,
              text.c_str());
        const std::string place = std::string("kernel `") + c.name + "'";
        check(text.find(place) != std::string::npos, "%s, seed %d: the report does not name the kernel",
              c.name, seed);
    }
}

static void check_refused(const char *says, uint32_t threads, size_t smem, uint32_t grid0, uint32_t cluster)
{
    char message[256] = "";
    cell_kernel_args args = arguments({});
    const uint32_t grid[3] = {grid0, 1, 1};
    const int status =
        cell_emu_launch(right, "right", &args, grid, threads, smem, cluster, 0, message, sizeof message);
    check(status == -1 && strstr(message, says), "refusal says `%s', not `%s'", message, says);
}

static int all_cases(const char *program)
{
    for (const Case &c : cases)
        check_case(program, c);
    check_refused("1056 threads per block, allowed are 1 to 1024", 1056, 0, 1, 1);
    check_refused("0 threads per block", 0, 0, 1, 1);
    check_refused("48 threads per block is not a multiple of 32", 48, 0, 1, 1);
    check_refused("232449 bytes of shared memory, a block may have 232448", 64, 232449, 1, 1);
    check_refused("has no blocks", 64, 512, 0, 1);
    check_refused("not a multiple of the cluster's 2", 64, 512, 3, 2);
    check_refused("clusters of 32 blocks", 64, 512, 32, 32);
    return report();
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return all_cases(argv[0]);
    for (const Case &c : cases) {
        if (!strcmp(c.name, argv[1]))
            return run_case(c);
    }
    fprintf(stderr, "no case `%s'\n", argv[1]);
    return 2;
}
