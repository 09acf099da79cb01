// Linear recurrences in chunks (cell_device_chunk*.cuh), forward and backward, against the step (steps.h).
//
// In: nothing; MEMBERS and TYPES when it is compiled; FULL in the environment. Out: what differs, `N passed,
// N failed`. It compiles for the emulator and for a GPU. Guaranteed: random initial states and cotangents of
// final ones, but where a case leaves them out; operands of all layouts that kernels may get; nothing beside
// the operands is read (between elements there are NaNs), and what is not wanted is not written.
#include "../emulator/harness.h"

#include "../emulator/judge.h"
#include "steps.h"

// ---- members ----

template <class RealT, class PartT, int C, int K, int V, int Additions, int Reads, int Corrected, int Known,
          int Before, int Gates, int Together = 1>
struct Facts {
    typedef RealT Real;
    typedef PartT Part;
    typedef PartT Store;
    static constexpr int rows = C, keys = K, values = V, additions = Additions, reads = Reads,
                         corrected = Corrected, known = Known, before = Before, decay = Gates, together = Together,
                         rest_keys = Gates == 0 || K % 32 ? K : sizeof(RealT) == 8 ? 16 : 32,
                         rest_values = Gates == 0 ? 2 * V : V, read_values = 16,
                         rest_threads = Gates == 4   ? (sizeof(RealT) == 8 ? 128 : 256)
                                        : C < 64 || Gates == 3 ? 128
                                        : Gates == 2           ? 512
                                                               : 256,
                         stages = C > 32 ? 2 : 3;
};

// ---- kernels: ptr 0: a struct for each head of each sequence; size 0: chunks, or blocks of values ----

template <class M> static __device__ const cell_chunk_backward<M> &head_of(const cell_kernel_args &args)
{
    return ((const cell_chunk_backward<M> *)args.ptr[0])[cell_block_index(0) / args.size[0]];
}
template <class M> __global__ void __launch_bounds__(cell_chunk_prep<M>::threads)
    k_prep(const __grid_constant__ cell_kernel_args args)
{
    cell_chunk_prepare<M>(head_of<M>(args).of, cell_block_index(0) % args.size[0]);
}
// size 0: blocks and segments of a head, size 1: segments; ptr 1, 2: what `pass` leaves of each head and segment.
template <class M> struct Segment {
    const int64_t n, i, block, head;
    typename M::Real *const sums, *const factors;
    __device__ Segment(const cell_kernel_args &args, int64_t keys, int64_t values)
        : n(args.size[1]), i(cell_block_index(0) % args.size[0] % n), block(cell_block_index(0) % args.size[0] / n),
          head(cell_block_index(0) / args.size[0]), sums((typename M::Real *)args.ptr[1] + head * n * keys * values),
          factors((typename M::Real *)args.ptr[2] + head * n * keys * keys)
    {
    }
};
template <class M> __global__ void __launch_bounds__(cell_chunk_walker<M>::threads)
    k_walk(const __grid_constant__ cell_kernel_args args)
{
    cell_chunk<M> x = head_of<M>(args).of;
    const Segment<M> s(args, x.keys, x.values);
    cell_chunk_begin(x, s.i, s.n, s.sums);
    cell_chunk_walk<M>(x, s.block * M::values);
}
template <class M> __global__ void __launch_bounds__(cell_chunk_back_walker<M>::threads)
    k_back(const __grid_constant__ cell_kernel_args args)
{
    cell_chunk_backward<M> g = head_of<M>(args);
    const Segment<M> s(args, g.of.keys, g.of.values);
    cell_chunk_begin_back(g, s.i, s.n, s.sums);
    cell_chunk_walk_back<M>(g, s.block * M::values);
}
template <class M> __global__ void __launch_bounds__(cell_chunk_walker<M>::threads)
    k_pass(const __grid_constant__ cell_kernel_args args)
{
    const cell_chunk<M> &x = head_of<M>(args).of;
    const Segment<M> s(args, x.keys, x.values);
    cell_chunk_pass<M>(x, s.i, s.n, s.block, s.sums, s.factors);
}
template <class M> __global__ void __launch_bounds__(cell_chunk_back_walker<M>::threads)
    k_pass_back(const __grid_constant__ cell_kernel_args args)
{
    const cell_chunk_backward<M> &g = head_of<M>(args);
    const Segment<M> s(args, g.of.keys, g.of.values);
    cell_chunk_pass_back<M>(g, s.i, s.n, s.block, s.sums, s.factors);
}
template <class M> __global__ void __launch_bounds__(CELL_CHUNK_JOIN_THREADS)
    k_join(const __grid_constant__ cell_kernel_args args)
{
    const cell_chunk<M> &x = head_of<M>(args).of;
    const Segment<M> s(args, x.keys, x.values);
    cell_chunk_join<M>(x, s.n, cell_block_index(0) % args.size[0], s.sums, s.factors);
}
template <class M> __global__ void __launch_bounds__(CELL_CHUNK_JOIN_THREADS)
    k_join_back(const __grid_constant__ cell_kernel_args args)
{
    const cell_chunk_backward<M> &g = head_of<M>(args);
    const Segment<M> s(args, g.of.keys, g.of.values);
    cell_chunk_join_back<M>(g, s.n, cell_block_index(0) % args.size[0], s.sums, s.factors);
}
// size 0: chunks times blocks of values
template <class M> __global__ void __launch_bounds__(CELL_CHUNK_THREADS)
    k_read(const __grid_constant__ cell_kernel_args args)
{
    const cell_chunk<M> &x = head_of<M>(args).of;
    const int64_t blocks = (x.values + M::read_values - 1) / M::read_values,
                  n = cell_block_index(0) % args.size[0];
    cell_chunk_read<M>(x, n / blocks, n % blocks * M::read_values);
}
template <class M> __global__ void __launch_bounds__(cell_chunk_rester<M>::threads)
    k_rest(const __grid_constant__ cell_kernel_args args)
{
    cell_chunk_finish<M>(head_of<M>(args), cell_block_index(0) % args.size[0]);
}

// Of gates by value: blocks of values of a chunk are neighbours; size 1: how many there are.
template <class M> __global__ void __launch_bounds__(CELL_CHUNK_THREADS)
    k_value_sum(const __grid_constant__ cell_kernel_args args)
{
    const int64_t share = cell_block_index(0) % args.size[0];
    cell_chunk_value_sum<M>(head_of<M>(args).of, share / args.size[1], share % args.size[1] * M::values);
}
template <class M> __global__ void __launch_bounds__(CELL_CHUNK_THREADS)
    k_value_sum_back(const __grid_constant__ cell_kernel_args args)
{
    const int64_t share = cell_block_index(0) % args.size[0];
    cell_chunk_value_sum_back<M>(head_of<M>(args), share / args.size[1], share % args.size[1] * M::values);
}
template <class M> __global__ void __launch_bounds__(CELL_CHUNK_THREADS)
    k_value_walk(const __grid_constant__ cell_kernel_args args)
{
    cell_chunk_value_walk<M>(head_of<M>(args).of, cell_block_index(0) % args.size[0]);
}
template <class M> __global__ void __launch_bounds__(CELL_CHUNK_THREADS)
    k_value_walk_back(const __grid_constant__ cell_kernel_args args)
{
    cell_chunk_value_walk_back<M>(head_of<M>(args), cell_block_index(0) % args.size[0]);
}
template <class M> __global__ void __launch_bounds__(CELL_CHUNK_THREADS)
    k_value_read(const __grid_constant__ cell_kernel_args args)
{
    const int64_t share = cell_block_index(0) % args.size[0];
    cell_chunk_value_read<M>(head_of<M>(args).of, share / args.size[1], share % args.size[1] * M::values);
}
template <class M> __global__ void __launch_bounds__(M::rest_threads)
    k_value_rest(const __grid_constant__ cell_kernel_args args)
{
    cell_chunk_value_rest<M>(head_of<M>(args), cell_block_index(0) % args.size[0]);
}

// ---- cases ----

enum Kind {
    MIXED,      // gates of any sign, now and then exactly 0, 1 or tiny
    FORGETTING, // gates of e^-80 everywhere
    KEEPING,    // gates near 1 and -1, whose product over a chunk is no small number
    ONE_KEY,    // the correction takes off what the same key has at every step
    TWO_KEYS,   // two keys in turn, with a strength of 1.9
    WHOLE       // small whole numbers, which every type sums exactly
};

struct Case {
    int keys, values;
    Sizes sizes;
    Kind kind = MIXED;
    unsigned scaled = 0;   // vectors with a number (steps.h)
    unsigned real = 0;     // vectors that lie in Real; bit VECTORS: the gates, VECTORS + 1: the states
    int element = 1;       // distance of elements of vectors
    bool constant = false; // one row of w and of q for all steps
    bool joined = false;   // the gradients of w and of the first c go to one place
    bool paired = false;   // two states of one another lie apart
    bool partial = false;  // no initial state, no cotangent of the last one
    bool adds = false;     // the state's gradient is added to what is there
    int segments = 1;      // that are walked side by side
    unsigned wanted = ~0u; // gradients of vectors; bit VECTORS: of the gates, VECTORS + 1: of the state
};

static void draw(const Member &m, const Case &c, Random &random, Operands &x)
{
    const double size = 1.2 / sqrt((double)m.keys);
    for (int i = 0; i < VECTORS; i++) {
        const bool by_value = i >= vector_z(0) && i < vector_z(MOST_ADDITIONS);
        for (double &e : x.vector[i])
            e = random.uniform(-1, 1) * (by_value ? 1 : size);
        for (double &e : x.number[i])
            e = random.uniform(0.2, 1) * (random.integer(0, 5) ? 1 : random.integer(-1, 0));
    }
    for (double &e : x.decay) {
        const int which = random.integer(0, 23);
        e = c.kind == FORGETTING ? exp(-80)
            : c.kind == KEEPING  ? random.uniform(0.97, 1) * (which ? 1 : -1)
            : which == 0         ? 0
            : which == 1         ? 1
            : which == 2         ? exp(-60.0)
                                 : random.uniform(0.3, 1);
        if (c.kind == MIXED && random.integer(0, 5) == 0)
            e = -e;
    }
    // Of two states: rows whose sum of magnitudes is at most 1, so that products of many stay small.
    for (size_t i = 0; i < x.decay.size() && m.decay == DECAY_OF_TWO && c.kind != FORGETTING; i++)
        x.decay[i] *= i % 4 % 3 == 0 ? (c.kind == KEEPING ? 1 : 0.7) : c.kind == KEEPING ? 0.02 : 0.3;
    for (double &e : x.state)
        e = random.uniform(-1, 1);
    for (int i : {vector_w(), vector_q(0), vector_q(1)})
        for (size_t e = 0; c.constant && e < x.vector[i].size(); e++) {
            const size_t row = (size_t)(m.keys * c.sizes.heads), all = row * (size_t)c.sizes.steps;
            x.vector[i][e] = x.vector[i][e / all * all + e % row];
        }
    if (c.kind == WHOLE) {
        for (int i = 0; i < VECTORS; i++) {
            for (double &e : x.vector[i])
                e = random.integer(0, 3) ? 0 : random.integer(-1, 1);
            for (double &e : x.number[i])
                e = random.integer(-1, 1);
        }
        for (double &e : x.decay)
            e = random.integer(-1, 1);
        // Of two states a sign for each, or one for the other.
        for (size_t i = 0; i < x.decay.size() && m.decay == DECAY_OF_TWO; i += 4) {
            const bool crossed = random.integer(0, 1);
            for (size_t ij = 0; ij < 4; ij++)
                x.decay[i + ij] *= (ij % 3 == 0) != crossed;
        }
        for (double &e : x.state)
            e = random.integer(-2, 2);
    }
    if ((c.kind == ONE_KEY || c.kind == TWO_KEYS) && m.corrected) {
        Numbers &key = x.vector[vector_c(0)], &w = x.vector[vector_w()];
        for (size_t i = 0; i < key.size(); i++) {
            const size_t k = i % (size_t)m.keys, row = i / (size_t)m.keys;
            const bool other = c.kind == TWO_KEYS && row / (size_t)c.sizes.heads % 2;
            const double unit = ((k * 7 + (other ? 3 : 0)) % 5 < 2 ? -1 : 1) / sqrt((double)m.keys);
            key[i] = unit * (c.kind == TWO_KEYS ? 1.9 : random.uniform(0.3, 0.9));
            w[i] = -unit;
        }
    }
}

// What lies in memory as the kernels take it; and what is really there, after rounding.
template <class M> class Device
{
    typedef typename M::Real R;
    typedef typename M::Store S;
    std::vector<Array<R> *> reals;
    std::vector<Array<S> *> stores;

public:
    ~Device()
    {
        for (Array<R> *a : reals)
            delete a;
        for (Array<S> *a : stores)
            delete a;
    }
    // n elements, `step` apart; those between are NaN. `x` becomes what they are.
    void *put(Numbers &x, bool real, int step)
    {
        if (real) {
            Array<R> *a = new Array<R>(x.size() * (size_t)step + 1);
            reals.push_back(a);
            for (size_t i = 0; i < x.size(); i++) {
                put_value((*a)[i * (size_t)step], x[i]);
                x[i] = value_of((*a)[i * (size_t)step]);
            }
            return a->data;
        }
        Array<S> *a = new Array<S>(x.size() * (size_t)step + 1);
        stores.push_back(a);
        for (size_t i = 0; i < x.size(); i++) {
            put_value((*a)[i * (size_t)step], x[i]);
            x[i] = value_of((*a)[i * (size_t)step]);
        }
        return a->data;
    }
    void *room(size_t n, bool real)
    {
        if (real) {
            reals.push_back(new Array<R>(n + 1));
            return reals.back()->data;
        }
        stores.push_back(new Array<S>(n + 1));
        return stores.back()->data;
    }
};

template <class T> static Numbers numbers_of(const void *p, size_t n)
{
    Numbers x(n);
    for (size_t i = 0; i < n; i++)
        x[i] = value_of(((const T *)p)[i]);
    return x;
}

// A tensor by b, t, h, element from the place of a head's first row on, in the order that the sequence is
// walked.
struct Place {
    const Sizes &n;
    int b, h;
    size_t size;
    const void *at(const void *p, int extent, int step) const
    {
        const size_t row =
            ((size_t)b * (size_t)n.steps + (size_t)(n.reverse ? n.length(b) - 1 : 0)) * (size_t)n.heads +
            (size_t)h;
        return (const char *)p + row * (size_t)extent * (size_t)step * size;
    }
    int64_t row(int extent, int step) const
    {
        return (n.reverse ? -1 : 1) * (int64_t)n.heads * extent * step;
    }
};

template <class M> class Run
{
    typedef typename M::Real R;
    typedef typename M::Store S;
    typedef typename M::Part P;

    const char *const name;
    const Case &c;
    const Sizes &n;
    Member m;
    Device<M> device;
    Operands x, gradients;
    Results y, cotangents;
    void *vector_at[VECTORS], *number_at[VECTORS], *decay_at, *state_at, *last_at, *cotangent_at[MOST_READS];
    void *vector_to[VECTORS], *number_to[VECTORS], *decay_to, *state_to, *first_to, *read_to[MOST_READS];

    bool wanted(int i) const { return c.wanted >> i & 1; }
    bool real(int i) const { return c.real >> i & 1; }
    static size_t size(bool is_real) { return is_real ? sizeof(R) : sizeof(S); }

    cell_rows rows_at(const void *p, int extent, int step, bool is_real, int b, int h) const
    {
        const Place place = {n, b, h, size(is_real)};
        return {place.at(p, extent, step), place.row(extent, step), step, is_real};
    }
    cell_chunk_vector vector(int i, int b, int h) const
    {
        cell_chunk_vector v = {rows_at(vector_at[i], vector_extent(m, i), c.element, real(i), b, h),
                               {nullptr, 0, true, 1}};
        if (c.constant && (i == vector_w() || i >= vector_q(0)))
            v.vector.row = 0;
        if (m.scaled >> i & 1) {
            const cell_rows number = rows_at(number_at[i], 1, 1, true, b, h);
            v.number = {number.at, number.row, true, i % 2 ? -1.0 : 1.0};
        }
        return v;
    }
    cell_chunk_result result(void *p, int extent, int b, int h) const
    {
        const cell_rows r = rows_at(p, extent, 1, true, b, h);
        return { (void *)(uintptr_t)r.at, r.row, r.element, true, false };
    }
    cell_chunk_gradient gradient(int i, int b, int h) const
    {
        cell_chunk_gradient to = { added(result(vector_to[i], vector_extent(m, i), b, h)), {} };
        if (!(c.wanted >> i & 1))
            return {};
        if (m.scaled >> i & 1)
            to.number = added(result(number_to[i], 1, b, h));
        return to;
    }
    cell_chunk_result added(cell_chunk_result to) const
    {
        to.adds = c.adds;
        return to;
    }
    // Room for a gradient, in which something is where it is added to that.
    void *gradient_room(size_t elements)
    {
        Numbers there(elements, 0.5);
        return c.adds ? device.put(there, true, 1) : device.room(elements, true);
    }
    cell_chunk_state state(void *p, int b, int h, bool is_real) const
    {
        const size_t at = (size_t)(b * n.heads + h) * (size_t)(m.keys * m.values);
        if (!p)
            return {nullptr, 0, 0, true, c.paired, nullptr};
        char *const first = (char *)p + at * size(is_real);
        if (c.paired)
            return {first, 2 * m.values, 1, is_real, true, first + (size_t)m.values * size(is_real)};
        return {first, m.values, 1, is_real, false, nullptr};
    }

    void fill()
    {
        Random random((uint64_t)(m.keys * 31 + m.values * 7 + n.steps * 131 + M::decay + 17 * (int)c.kind));
        x = operands_like(m, n);
        cotangents = results_like(m, n);
        draw(m, c, random, x);
        if (c.partial)
            x.state.assign(x.state.size(), 0.0);
        for (int i = 0; i < VECTORS; i++) {
            if (!has_vector(m, i))
                continue;
            vector_at[i] = device.put(x.vector[i], real(i), c.element);
            number_at[i] = device.put(x.number[i], true, 1);
            for (double &e : x.number[i])
                e *= i % 2 ? -1 : 1; // `times`
            vector_to[i] = gradient_room(x.vector[i].size());
            number_to[i] = gradient_room(x.number[i].size());
        }
        decay_at = device.put(x.decay, real(VECTORS), 1);
        decay_to = gradient_room(x.decay.size());
        state_at = device.put(x.state, real(VECTORS + 1), 1);
        for (int r = 0; r < m.reads; r++) {
            for (double &e : cotangents.read[r])
                e = c.kind == WHOLE ? random.integer(-1, 1) : random.uniform(-1, 1);
            cotangent_at[r] = device.put(cotangents.read[r], real(VECTORS), 1);
            read_to[r] = device.room(cotangents.read[r].size(), true);
        }
        for (double &e : cotangents.state)
            e = c.partial ? 0 : c.kind == WHOLE ? random.integer(-1, 1) : random.uniform(-1, 1);
        last_at = device.put(cotangents.state, real(VECTORS + 1), 1);
        state_to = device.room(x.state.size(), true);
        first_to = gradient_room(x.state.size());
    }

    cell_chunk_backward<M> head(int b, int h, P *saved, P *ends, P *inverse, P *corrections, P *solved,
                                unsigned char *records)
    {
        cell_chunk_backward<M> g;
        memset((void *)&g, 0, sizeof g);
        const int64_t chunks = cell_chunk_count(n.steps, M::rows), of = (int64_t)(b * n.heads + h) * chunks;
        constexpr int parts = sizeof(R) == sizeof(P) ? 1 : 2;
        if (M::decay)
            g.of.decay = rows_at(decay_at, decay_extent(m), 1, real(VECTORS), b, h);
        for (int i = 0; i < m.additions; i++) {
            g.of.addition[i].column = vector(vector_c(i), b, h);
            g.column[i] = gradient(vector_c(i), b, h);
            if (m.known >> i & 1) {
                g.of.addition[i].known = vector(vector_z(i), b, h);
                g.known[i] = gradient(vector_z(i), b, h);
            }
        }
        if (m.corrected) {
            g.of.addition[0].weight = vector(vector_w(), b, h);
            g.weight = gradient(vector_w(), b, h);
            if (c.joined)
                g.weight.vector = g.column[0].vector;
        }
        for (int r = 0; r < m.reads; r++) {
            g.of.read[r] = vector(vector_q(r), b, h);
            g.read[r] = gradient(vector_q(r), b, h);
            g.of.result[r] = result(read_to[r], m.values, b, h);
            g.cotangent[r] = rows_at(cotangent_at[r], m.values, 1, real(VECTORS), b, h);
        }
        g.of.from = state(c.partial ? nullptr : state_at, b, h, real(VECTORS + 1));
        g.of.to = state(state_to, b, h, true);
        g.last = state(c.partial ? nullptr : last_at, b, h, real(VECTORS + 1));
        g.adds = c.adds;
        if (c.wanted >> (VECTORS + 1) & 1)
            g.first = state(first_to, b, h, true);
        if (M::decay && c.wanted >> VECTORS & 1)
            g.decay = added(result(decay_to, decay_extent(m), b, h));
        g.of.saved = saved + of * m.keys * m.values;
        g.of.records = records + of * record_bytes();
        g.of.inverse = m.corrected ? inverse + of * parts * M::rows * M::rows : nullptr;
        g.of.keys = m.keys, g.of.values = m.values, g.of.length = n.length(b);
        g.of.steps = n.reverse ? n.length(b) : n.steps;
        g.ends = ends + of * m.keys * m.values;
        g.corrections = corrections + of * M::rows * m.values;
        g.solved = solved + of * M::rows * m.values;
        return g;
    }

    int64_t record_bytes() const
    {
        if constexpr (M::decay == DECAY_PER_VALUE)
            return cell_chunk_value_record<M>(m.keys, m.values);
        else
            return cell_chunk_record<M>::bytes;
    }

    static bool untouched(const void *made, size_t n)
    {
        bool same = true;
        for (size_t i = 0; i < n * sizeof(R); i++)
            same &= ((const unsigned char *)made)[i] == 0xff;
        return same;
    }
    void judge(const char *what, int i, const Numbers &right, const std::vector<const Numbers *> &moved,
               const void *made, bool wanted = true)
    {
        if (right.empty())
            return;
        if (!wanted) {
            check(untouched(made, right.size()), "%s: %s %d, which is not wanted, is written", name, what, i);
            return;
        }
        std::string why;
        const Numbers is = numbers_of<R>(made, right.size());
        const bool ok =
            c.kind == WHOLE ? is == right : same_tensor(right, moved, is, Type<P>::unit, Type<P>::least, why);
        check(ok, "%s: %s %d: %s", name, what, i,
              c.kind == WHOLE ? "whole numbers are not exact" : why.c_str());
        if (getenv("SHOW"))
            printf("  %s: %s %d: %.2g\n", name, what, i, distance(right, is));
    }
    static double distance(const Numbers &right, const Numbers &made)
    {
        Numbers off(right.size());
        for (size_t i = 0; i < right.size(); i++)
            off[i] = made[i] - right[i];
        return rms(off) / (rms(right) + 1e-300);
    }

    void add_what_was(Numbers &x) const
    {
        for (double &e : x)
            e += c.adds ? 0.5 : 0;
    }

    void compare()
    {
        enum { RUNS = 3 };
        Operands moved[RUNS];
        Results moved_results[RUNS];
        walk_steps(m, n, x, cotangents, Blur{0, 1}, y, gradients);
        for (int i = 0; i < RUNS; i++)
            walk_steps(m, n, x, cotangents, Blur{Type<P>::unit, (uint64_t)i * 977 + 12345}, moved_results[i],
                       moved[i]);
        for (int r = 0; r < m.reads; r++)
            judge("read", r, y.read[r],
                  {&moved_results[0].read[r], &moved_results[1].read[r], &moved_results[2].read[r]},
                  read_to[r]);
        judge("final state", 0, y.state,
              {&moved_results[0].state, &moved_results[1].state, &moved_results[2].state}, state_to);
        for (Operands *of : { &gradients, &moved[0], &moved[1], &moved[2] }) {
            Numbers &to = of->vector[vector_c(0)], &from = of->vector[vector_w()];
            for (size_t e = 0; c.joined && e < to.size(); e++)
                to[e] += from[e];
            if (c.joined)
                from.clear();
        }
        for (int i = 0; i < VECTORS; i++) {
            for (Numbers *of :
                 { &gradients.vector[i], &moved[0].vector[i], &moved[1].vector[i], &moved[2].vector[i] })
                add_what_was(*of);
            judge("gradient of vector", i, gradients.vector[i],
                  {&moved[0].vector[i], &moved[1].vector[i], &moved[2].vector[i]}, vector_to[i], wanted(i));
            for (double &e : gradients.number[i])
                e *= i % 2 ? -1 : 1;
            for (Operands &o : moved)
                for (double &e : o.number[i])
                    e *= i % 2 ? -1 : 1;
            for (Numbers *of :
                 { &gradients.number[i], &moved[0].number[i], &moved[1].number[i], &moved[2].number[i] })
                if (m.scaled >> i & 1)
                    add_what_was(*of);
            judge("gradient of number", i, gradients.number[i],
                  {&moved[0].number[i], &moved[1].number[i], &moved[2].number[i]}, number_to[i], wanted(i));
        }
        for (Numbers *of : { &gradients.decay, &moved[0].decay, &moved[1].decay, &moved[2].decay })
            add_what_was(*of);
        judge("gradient of the gates", 0, gradients.decay,
              {&moved[0].decay, &moved[1].decay, &moved[2].decay}, decay_to, wanted(VECTORS));
        for (Numbers *of : {&gradients.state, &moved[0].state, &moved[1].state, &moved[2].state})
            add_what_was(*of);
        judge("gradient of the state", 0, gradients.state,
              {&moved[0].state, &moved[1].state, &moved[2].state}, first_to, wanted(VECTORS + 1));
    }

    void walk(Array<cell_chunk_backward<M>> &all)
    {
        const size_t heads = (size_t)(n.batch * n.heads);
        const unsigned blocks = (unsigned)((m.values + M::values - 1) / M::values), segments = (unsigned)c.segments,
                       joins = (unsigned)((m.values + CELL_CHUNK_JOINED - 1) / CELL_CHUNK_JOINED),
                       passes = (unsigned)cell_chunk_pass_blocks<M>(m.keys, m.values);
        Array<R> sums(heads * segments * (size_t)(m.keys * m.values)), factors(heads * segments * (size_t)(m.keys * m.keys));
        cell_kernel_args args = arguments({all.data, sums.data, factors.data}, cell_chunk_count(n.steps, M::rows));
        args.size[1] = segments;
        auto start = [&](auto kernel, unsigned of_head, int threads, int64_t smem) {
            args.size[0] = of_head;
            launch(name, kernel, args, Shape{of_head * (unsigned)heads, (unsigned)threads, (size_t)smem});
        };
        const unsigned grid = (unsigned)((size_t)cell_chunk_count(n.steps, M::rows) * heads);
        if (grid)
            launch(name, k_prep<M>, args,
                   Shape{grid, cell_chunk_prep<M>::threads, (size_t)cell_chunk_prep<M>::smem()});
        if (segments > 1) {
            start(k_pass<M>, passes * segments, cell_chunk_walker<M>::threads, cell_chunk_walker<M>::smem());
            start(k_join<M>, joins, CELL_CHUNK_JOIN_THREADS, cell_chunk_joiner<M>::smem());
        }
        start(k_walk<M>, blocks * segments, cell_chunk_walker<M>::threads, cell_chunk_walker<M>::smem());
        if constexpr (cell_chunk_apart<M>())
            if (grid) {
                const int64_t of_values = (m.values + M::read_values - 1) / M::read_values;
                start(k_read<M>, (unsigned)(cell_chunk_count(n.steps, M::rows) * of_values),
                      CELL_CHUNK_THREADS, cell_chunk_reads<M>::smem());
            }
        if (segments > 1) {
            start(k_pass_back<M>, passes * segments, cell_chunk_back_walker<M>::threads,
                  cell_chunk_back_walker<M>::smem());
            start(k_join_back<M>, joins, CELL_CHUNK_JOIN_THREADS, cell_chunk_joiner<M>::smem());
        }
        start(k_back<M>, blocks * segments, cell_chunk_back_walker<M>::threads,
              cell_chunk_back_walker<M>::smem());
        args.size[0] = cell_chunk_count(n.steps, M::rows);
        if (grid)
            launch(name, k_rest<M>, args,
                   Shape{grid, (unsigned)cell_chunk_rester<M>::threads, (size_t)cell_chunk_rester<M>::smem()});
    }
    void walk_values(Array<cell_chunk_backward<M>> &all)
    {
        const unsigned chunks = (unsigned)cell_chunk_count(n.steps, M::rows),
                       blocks = (unsigned)((m.values + M::values - 1) / M::values),
                       walks = (unsigned)((m.keys * m.values + CELL_CHUNK_THREADS - 1) / CELL_CHUNK_THREADS);
        cell_kernel_args args = arguments({all.data}, 0);
        args.size[1] = blocks;
        auto start = [&](auto kernel, unsigned of_head, int64_t smem, int threads = CELL_CHUNK_THREADS) {
            args.size[0] = of_head;
            if (of_head)
                launch(name, kernel, args,
                       Shape{of_head * (unsigned)(n.batch * n.heads), (unsigned)threads, (size_t)smem});
        };
        start(k_value_sum<M>, chunks * blocks, cell_chunk_value_sums<M>::smem());
        start(k_value_walk<M>, walks, 0);
        start(k_value_read<M>, chunks * blocks, cell_chunk_value_reader<M>::smem());
        start(k_value_sum_back<M>, chunks * blocks, cell_chunk_value_sums<M>::smem());
        start(k_value_walk_back<M>, walks, 0);
        start(k_value_rest<M>, chunks, cell_chunk_value_rester<M>::smem(), M::rest_threads);
    }

public:
    Run(const char *of, const Case &which) : name(of), c(which), n(which.sizes)
    {
        m = {c.keys,   c.values,  M::additions, M::reads, (Decay)M::decay, M::corrected != 0,
             M::known, M::before, c.scaled, M::together};
        fill();
        const size_t heads = (size_t)(n.batch * n.heads),
                     chunks = (size_t)cell_chunk_count(n.steps, M::rows) * heads,
                     states = chunks * (size_t)(m.keys * m.values),
                     rows = chunks * (size_t)(M::rows * m.values);
        Array<P> saved(states), ends(states), inverse(chunks * 2 * M::rows * M::rows), corrections(rows),
            solved(rows);
        Array<unsigned char> records(chunks * (size_t)record_bytes() + 128);
        unsigned char *const record = records.data + (-(uintptr_t)records.data & 127);
        Array<cell_chunk_backward<M>> all(heads);
        for (size_t i = 0; i < heads; i++)
            all[i] = head((int)i / n.heads, (int)i % n.heads, saved.data, ends.data, inverse.data,
                          corrections.data, solved.data, record);
        if constexpr (M::decay == DECAY_PER_VALUE)
            walk_values(all);
        else
            walk(all);
        compare();
        close_group();
    }
};

static const unsigned every = (1u << (VECTORS + 2)) - 1;

// A member in all cases that its sizes allow. Mixed gates everywhere; each case has something of its own
// besides.
template <class M> static void test_member(const char *type, const char *member)
{
    const bool full = getenv("FULL") && *getenv("FULL") && strcmp(getenv("FULL"), "0");
    const int C = M::rows, K = M::keys, V = M::values;
    auto run = [&](const char *what, Case c) {
        char name[128];
        if (M::decay == DECAY_OF_TWO) {
            c.keys += c.keys % 2;
            c.paired = c.sizes.heads > 1;
        }
        snprintf(name, sizeof name, "%s %s, %s", type, member, what);
        Run<M>(name, c);
    };
    Case c = {K, V, {1, 3 * C + 5, 1, {}, false}};
    c.scaled = every;
    run("chunks and a rest, numbers", c);
    c = {K - 3, V + 1, {1, C + 1, 2, {}, false}};
    c.element = 2, c.adds = true, c.real = every;
    run("odd sizes, elements apart, two heads, gradient added", c);
    c = {K > 16 ? K - 16 : 5, 1, {3, C + 17, 1, {C + 17, C - 1, 0}, false}};
    c.scaled = 0x155, c.real = 0x2aa;
    run("lengths", c);
    c = {1, 5, {2, 17, 1, {}, true}};
    c.scaled = 0x2aa, c.real = 1u << VECTORS;
    run("a key, the last row first", c);
    c = {K - 3, V + 1, {2, 4 * C + 3, 1, {4 * C + 3, C + 2}, false}};
    c.scaled = every, c.segments = 3, c.adds = true;
    run("segments, lengths", c);
    c = {K, V, {1, C, 1, {}, false}};
    c.partial = true, c.constant = true;
    run("a chunk, constant rows, zero states", c);
    c = {K, V, {1, 2 * C, 1, {}, false}, M::decay ? FORGETTING : ONE_KEY};
    c.scaled = every;
    run(M::decay ? "gates of e^-80" : "one key", c);
    if (M::decay) {
        c = {K, V, {1, 2 * C, 1, {}, false}, KEEPING};
        run("gates near 1", c);
    }
    if (M::corrected && M::decay < 2) {
        c = {K, V, {1, C + 7, 2, {}, false}};
        c.scaled = every, c.joined = true, c.adds = true;
        run("one gradient of w and of c, added", c);
    }
    if (M::corrected) {
        c = {K, V, {1, C + 16, 1, {}, false}, M::decay ? ONE_KEY : TWO_KEYS};
        run(M::decay ? "one key" : "two keys", c);
    } else {
        c = {5, V, {1, C + 16, 1, {}, false}, WHOLE};
        run("whole numbers", c);
    }
    c = {K, V, {1, 16, 1, {}, false}};
    c.wanted = 1u << VECTORS | 1u << vector_q(0);
    run("gradients of the gates and of a read", c);
    for (int steps : {0, 1, 2, 15, C - 1, 2 * C + 1}) {
        if (!full)
            break;
        c = {K, 2 * V + 5, {1, steps, 2, {}, false}};
        c.scaled = every;
        run("steps", c);
        c.wanted = 1u << vector_c(0) | 1u << vector_z(0) | 1u << (VECTORS + 1);
        c.sizes.reverse = true;
        run("steps, the last row first, some gradients", c);
    }
}

// What is compiled: members and types by their bits.
#ifndef MEMBERS
#define MEMBERS 0x7fff
#endif
#ifndef TYPES
#define TYPES 0xf
#endif

template <class R, class P, int Members> static void test_type(const char *type)
{
    constexpr int some = sizeof(R) == 8 ? 32 : 48;
    if constexpr (Members & 1)
        test_member<Facts<R, P, 16, 128, 16, 1, 1, 1, 1, 0, 0>>(type, "delta rule");
    if constexpr (Members & 2)
        test_member<Facts<R, P, some, 32, 16, 2, 2, 1, 3, 2, 1>>(type, "correction and write, a gate");
    if constexpr (Members & 4)
        test_member<Facts<R, P, 64, 16, 32, 1, 1, 0, 1, 0, 1>>(type, "write, a gate");
    if constexpr (Members & 8)
        test_member<Facts<R, P, 64, 32, 16, 1, 1, 0, 1, 1, 2>>(type, "write, gates by key");
    if constexpr (Members & 16)
        test_member<Facts<R, P, some, 32, 16, 2, 1, 1, 2, 0, 2>>(type, "correction and write, gates by key");
    if constexpr (Members & 32)
        test_member<Facts<R, P, some, 16, 32, 1, 1, 1, 1, 0, 1>>(type, "gated delta rule");
    if constexpr (Members & 64)
        test_member<Facts<R, P, some, 16, 16, 2, 2, 1, 3, 2, 1, 2>>(type, "two corrections at once, a gate");
    if constexpr (Members & 128)
        test_member<Facts<R, P, 32, 32, 16, 1, 2, 1, 1, 1, 2, 4>>(type, "four corrections at once, gates by key");
    if constexpr (Members & 256)
        test_member<Facts<R, P, sizeof(R) == 8 ? 16 : 32, 32, 16, 1, 1, 1, 1, 0, 3>>(
            type, "a correction of two states");
    if constexpr (Members & 512)
        test_member<Facts<R, P, 16, 16, 16, 2, 2, 0, 3, 2, 3>>(type, "writes of two states");
    if constexpr (Members & 2048)
        test_member<Facts<R, P, 32, sizeof(R) == 8 ? 16 : 64, 32, 2, 2, 0, 3, 2, 0>>(
            type, "two writes and two reads");
    if constexpr (Members & 1024)
        test_member<Facts<R, P, 16, 16, 16, 2, 2, 1, 3, 2, 3>>(type, "correction and write of two states");
    if constexpr (Members & 4096)
        test_member<Facts<R, P, some, 32, 32, 1, 1, 0, 1, 0, 4>>(type, "write, gates by value");
    if constexpr (Members & 8192)
        test_member<Facts<R, P, 32, 16, 16, 2, 2, 0, 3, 2, 4>>(type, "writes, reads, gates by value");
    if constexpr (Members & 16384)
        test_member<Facts<R, P, sizeof(R) == 8 ? 32 : 64, 48, 64, 1, 1, 0, 1, 1, 4>>(
            type, "read before, gates by value");
}

int main()
{
#if TYPES & 1
    test_type<double, double, MEMBERS>("f64");
#endif
#if TYPES & 2
    test_type<float, float, MEMBERS>("f32");
#endif
#if TYPES & 4
    test_type<float, cell_bf16, MEMBERS>("bf16");
#endif
#if TYPES & 8
    test_type<float, cell_f16, MEMBERS>("f16");
#endif
    return report();
}
