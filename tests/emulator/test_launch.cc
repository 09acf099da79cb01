// The emulator's launches: every block and thread once, orders that follow the seed, several launches at a
// time, speed.
//
// In: nothing. Out: `N passed, N failed`. Guaranteed: expectations come from counting, not from the emulator.
#include <time.h>

#include <set>
#include <string>
#include <thread>

#include "harness.h"

// ptr[0]: a counter per thread of the grid; ptr[1]: a ticket; ptr[2]: who drew each ticket.
KERNEL(k_visit)
{
    const int64_t x = cell_block_index(0), y = cell_block_index(1), z = cell_block_index(2);
    const int64_t block = (z * cell_block_count(1) + y) * cell_block_count(0) + x;
    const int64_t me = block * cell_threads() + cell_thread();
    ((int *)args.ptr[0])[me]++;
    if (args.ptr[1]) {
        const int ticket = (*(int *)args.ptr[1])++;
        ((int *)args.ptr[2])[ticket] = (int)me;
    }
}

static void check_grid(uint32_t x, uint32_t y, uint32_t z, uint32_t threads, uint32_t cluster,
                       int cooperative)
{
    const size_t n = (size_t)x * y * z * threads;
    std::vector<int> counts(n, 0);
    cell_kernel_args args = arguments({counts.data()});
    const uint32_t grid[3] = {x, y, z};
    char message[256] = "";
    const int status = cell_emu_launch(k_visit, "k_visit", &args, grid, threads, 0, cluster, cooperative,
                                       message, sizeof message);
    bool once = status == 0;
    for (int c : counts)
        once = once && c == 1;
    check(once, "grid %u x %u x %u of %u threads, cluster %u: not every thread once %s", x, y, z, threads,
          cluster, message);
}

static std::vector<int> visiting_order(uint64_t seed)
{
    const uint32_t blocks = 5, threads = 64;
    std::vector<int> counts(blocks * threads, 0), order(blocks * threads, -1);
    int ticket = 0;
    cell_kernel_args args = arguments({counts.data(), &ticket, order.data()});
    const uint32_t grid[3] = {blocks, 1, 1};
    cell_emu_set_seed(seed);
    cell_emu_launch(k_visit, "k_visit", &args, grid, threads, 0, 0, 0, nullptr, 0);
    return order;
}

static void check_orders()
{
    std::set<std::vector<int>> seen;
    for (uint64_t seed = 0; seed < 20; seed++) {
        open_group();
        const std::vector<int> order = visiting_order(seed);
        check(order == visiting_order(seed), "seed %d gives two orders", (int)seed);
        seen.insert(order);
        for (size_t i = 0; i < order.size(); i++)
            check(order[i] / 64 == order[i / 64 * 64] / 64, "blocks overlap in a plain launch");
    }
    close_group();
    check(seen.size() == 20, "20 seeds give %zu orders", seen.size());
    cell_emu_set_seed(1);
}

// A walk as the tile schedule makes it: six barriers and thirty shuffles per step.
KERNEL(k_walk)
{
    auto cursor = cell_shared();
    cell_smem<float> exchange = cell_carve<float>(cursor, 2 * cell_threads());
    const int n = cell_threads(), i = cell_thread();
    float state[16];
    for (int r = 0; r < 16; r++)
        state[r] = (float)((i * 7 + r) % 5);
    for (int t = 0; t < args.size[0]; t++) {
        for (int level = 0; level < 6; level++) {
            float v = 0;
            for (int r = 0; r < 16; r++)
                v += state[r];
            v = cell_warp_sum(v);
            cell_smem<float> buffer = exchange + level % 2 * n;
            buffer[i] = v;
            cell_barrier();
            const float other = buffer[(i + 32) % n];
            for (int r = 0; r < 16; r++)
                state[r] = state[r] * 0.5f + other * 0x1p-10f;
        }
    }
    ((float *)args.ptr[0])[cell_block_index(0) * n + i] = state[3];
}

// Adds the sums of a warp in the butterfly's order.
static void walk_on_host(std::vector<float> &out, int n, int steps)
{
    std::vector<float> state((size_t)n * 16), sums((size_t)n), next((size_t)n);
    for (int i = 0; i < n * 16; i++)
        state[(size_t)i] = (float)((i / 16 * 7 + i % 16) % 5);
    for (int s = 0; s < steps * 6; s++) {
        for (int i = 0; i < n; i++) {
            sums[(size_t)i] = 0;
            for (int r = 0; r < 16; r++)
                sums[(size_t)i] += state[(size_t)(i * 16 + r)];
        }
        for (int mask = 1; mask < 32; mask *= 2) {
            for (int i = 0; i < n; i++)
                next[(size_t)i] = sums[(size_t)i] + sums[(size_t)(i ^ mask)];
            sums = next;
        }
        for (int i = 0; i < n * 16; i++)
            state[(size_t)i] = state[(size_t)i] * 0.5f + sums[(size_t)((i / 16 + 32) % n)] * 0x1p-10f;
    }
    for (int i = 0; i < n; i++)
        out[(size_t)i] = state[(size_t)(i * 16 + 3)];
}

static int walk(std::vector<float> &out, uint32_t threads, int steps, uint64_t seed)
{
    cell_kernel_args args = arguments({out.data()}, steps);
    const uint32_t grid[3] = {1, 1, 1};
    cell_emu_set_seed(seed);
    return cell_emu_launch(k_walk, "k_walk", &args, grid, threads, threads * 8, 0, 0, nullptr, 0);
}

static double seconds()
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void check_walk()
{
    std::vector<float> want(128), got(128);
    walk_on_host(want, 128, 100);
    const double start = seconds();
    check(walk(got, 128, 100, 1) == 0 && got == want, "a walk of 100 steps differs from the host's");
    const double took = seconds() - start;
    printf("128 threads, 100 steps, 6 barriers and 30 shuffles each: %.0f ms\n", took * 1e3);
    check(took < 2, "a walk of 100 steps takes %.2f s", took);
    for (uint64_t seed = 2; seed < 6; seed++)
        check(walk(got, 128, 20, seed) == 0 && walk(want, 128, 20, 1) == 0 && got == want,
              "seed %d changes the result", (int)seed);
}

// Launches of several program threads do not meet.
static void check_threads()
{
    std::vector<std::thread> workers;
    std::vector<std::vector<float>> got(4, std::vector<float>(128));
    for (int w = 0; w < 4; w++)
        workers.emplace_back([&got, w] {
            for (int again = 0; again < 3; again++)
                walk(got[(size_t)w], 64u + 64u * (unsigned)(w % 2), 10 + w / 2, (uint64_t)w);
            cell_emu_release();
        });
    for (std::thread &worker : workers)
        worker.join();
    for (int w = 0; w < 4; w++) {
        open_group();
        const int n = 64 + 64 * (w % 2);
        std::vector<float> want(128, got[(size_t)w][127]);
        walk_on_host(want, n, 10 + w / 2);
        for (int i = 0; i < n; i++)
            check(got[(size_t)w][(size_t)i] == want[(size_t)i], "program thread %d, element %d", w, i);
    }
}

int main()
{
    for (uint32_t blocks = 1; blocks <= 40; blocks++)
        check_grid(blocks, 1, 1, 32, 0, 0);
    check_grid(1000, 1, 1, 64, 0, 0);
    check_grid(3, 5, 7, 32, 0, 0);
    check_grid(6, 2, 2, 96, 2, 0);
    check_grid(32, 1, 1, 32, 16, 0);
    check_grid(132, 1, 1, 64, 0, 1);
    check_grid(24, 1, 1, 64, 4, 1);
    check_grid(1, 1, 1, 1024, 0, 0);
    check_orders();
    check_walk();
    check_threads();
    cell_emu_release();
    return report();
}
