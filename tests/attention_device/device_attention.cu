// Attention's kernels (cell_device_attention*.cuh), forward and backward, against sums pair by pair
// (pairs.h).
//
// In: nothing; MEMBERS and TYPES when it is compiled; FULL in the environment. Out: what differs, `N passed,
// N failed`. It compiles for the emulator and for a GPU. Guaranteed: operands of all layouts that kernels may
// get; nothing beside the operands is read (between elements there are NaNs), and what is not wanted is not
// written.
#include "../emulator/judge.h"

#include "pairs.h"

// ---- members ----

// The conditions and the score of pairs.h, for the kernels. Of conditions on tiles, documents are known to
// come one after the other.
template <class StoreT, class RealT, int K, int V, int Segments, unsigned Facts, int Memory> struct Member {
    typedef StoreT Store;
    typedef RealT Real;
    static constexpr unsigned facts = Facts;
    static constexpr int keys = K, values = V, segments = Segments, memory = Memory,
                         kind = Facts & WEIGHTS ? CELL_ATTENTION_WEIGHTS : CELL_ATTENTION_SOFTMAX;
    static constexpr bool scaled = !(Facts & (CAP | SLOPE | COLUMN | TABLE | WEIGHTS)),
                          sink = (Facts & SINK) != 0, apart = Memory == CELL_ATTENTION_MOST_MEMORY;
    static constexpr int terms = !!(Facts & SLOPE) + !!(Facts & COLUMN) + !!(Facts & TABLE);
    static __host__ __device__ constexpr int slope_term()
    {
        return 0;
    }
    static __host__ __device__ constexpr int column_term()
    {
        return !!(Facts & SLOPE);
    }
    static __host__ __device__ constexpr int table_term()
    {
        return column_term() + !!(Facts & COLUMN);
    }
    static __host__ __device__ constexpr int term_kind(int n)
    {
        return (Facts & SLOPE) && n == slope_term()     ? CELL_ATTENTION_ROW
               : (Facts & COLUMN) && n == column_term() ? CELL_ATTENTION_COLUMN
                                                        : CELL_ATTENTION_DISTANCE;
    }
    struct Uses {
        const Real *slope, *column[SEGMENTS], *table, *sink;
        const int *document;
        int group, history, length, window;
        Real scale, cap;
    };
    static __device__ Real bounded(const Uses &u, Real dot)
    {
        return Facts & CAP ? u.cap * cell_tanh(dot * u.scale / u.cap) : dot * u.scale;
    }
    static __device__ Real sum(const Uses &u, Real dot, const cell_attention_pair &p)
    {
        Real x = bounded(u, dot);
        if ((Facts & SLOPE) && p.segment < 2)
            x += u.slope[p.i * u.group + p.r] * (Real)(p.i - p.j);
        if (Facts & COLUMN)
            x += u.column[p.segment][p.segment == 1 ? p.j + u.history : p.j];
        if ((Facts & TABLE) && p.segment < 2 && p.j <= p.i)
            x += u.table[p.i - p.j];
        return x;
    }
    static __device__ Real score(const Uses &u, Real dot, const cell_attention_pair &p)
    {
        return Facts & WEIGHTS ? cell_sigmoid(sum(u, dot, p)) : sum(u, dot, p);
    }
    static __device__ Real back(const Uses &u, Real dot, const cell_attention_pair &p, Real d,
                                Real (&g)[terms ? terms : 1])
    {
        if (Facts & WEIGHTS) {
            const Real w = score(u, dot, p);
            d *= w * (1 - w);
        }
        if (Facts & SLOPE)
            g[slope_term()] = p.segment < 2 ? d * (Real)(p.i - p.j) : (Real)0;
        if constexpr ((Facts & COLUMN) != 0)
            g[column_term()] = d;
        if constexpr ((Facts & TABLE) != 0)
            g[table_term()] = d;
        const Real t = Facts & CAP ? bounded(u, dot) / u.cap : (Real)0;
        return d * (1 - t * t) * u.scale;
    }
    static __device__ Real sink_score(const Uses &u, int i, int r)
    {
        return u.sink[i * u.group + r];
    }
    static __device__ bool there(const Uses &u, const cell_attention_pair &p)
    {
        if (p.i >= u.length)
            return false;
        if (p.segment == 2)
            return true;
        if (p.j >= u.length || ((Facts & CAUSAL) && p.j > p.i) || ((Facts & WINDOW) && p.i - p.j >= u.window))
            return false;
        return !(Facts & DOCUMENTS) || u.document[p.i + u.history] == u.document[p.j + u.history];
    }
    static __device__ int least(int a, int b)
    {
        return a < b ? a : b;
    }
    static __device__ int most(int a, int b)
    {
        return a > b ? a : b;
    }
    static __device__ void keys_of(const Uses &u, int segment, int i0, int i1, int &j0, int &j1)
    {
        i1 = least(i1, u.length);
        if (i0 >= i1) {
            j1 = j0;
        } else if (segment < 2) {
            j1 = least(j1, Facts & CAUSAL ? least(u.length, i1) : u.length);
            if (Facts & WINDOW)
                j0 = most(j0, i0 - u.window + 1);
        }
    }
    static __device__ void steps_of(const Uses &u, int segment, int j0, int j1, int &i0, int &i1)
    {
        i1 = least(i1, u.length);
        if (segment < 2) {
            if (Facts & CAUSAL)
                i0 = most(i0, j0);
            if (Facts & WINDOW)
                i1 = least(i1, j1 - 1 + u.window);
        }
    }
    static __device__ bool none(const Uses &u, int segment, int i0, int i1, int j0, int j1)
    {
        return (Facts & DOCUMENTS) && segment < 2 &&
               (u.document[i0 + u.history] > u.document[j1 - 1 + u.history] ||
                u.document[i1 - 1 + u.history] < u.document[j0 + u.history]);
    }
    static __device__ bool all(const Uses &u, int segment, int i0, int i1, int j0, int j1)
    {
        if (i1 > u.length)
            return false;
        if (segment == 2)
            return true;
        return j1 <= u.length && (!(Facts & CAUSAL) || j1 - 1 <= i0) &&
               (!(Facts & WINDOW) || i1 - 1 - j0 < u.window) &&
               (!(Facts & DOCUMENTS) || (u.document[i0 + u.history] == u.document[j1 - 1 + u.history] &&
                                         u.document[i1 - 1 + u.history] == u.document[j0 + u.history] &&
                                         u.document[i0 + u.history] == u.document[i1 - 1 + u.history]));
    }
};

// ---- kernels: ptr 0: a struct for each head; size 0: blocks of a head; size 1: parts ----

template <class M> static __device__ const cell_attention<M> &head_of(const cell_kernel_args &args)
{
    return ((const cell_attention<M> *)args.ptr[0])[cell_block_index(0) / args.size[0]];
}
static __device__ int64_t block_of(const cell_kernel_args &args)
{
    return cell_block_index(0) % args.size[0];
}
template <class M>
__global__ void __launch_bounds__(cell_attention_facts<M, CELL_ATTENTION_FORWARD>::threads)
    k_forward(const __grid_constant__ cell_kernel_args args)
{
    const int parts = (int)args.size[1];
    cell_attention_forward<M>(head_of<M>(args), block_of(args) / parts, (int)(block_of(args) % parts), parts);
}
template <class M>
__global__ void __launch_bounds__(cell_attention_facts<M, CELL_ATTENTION_FEW>::threads)
    k_few(const __grid_constant__ cell_kernel_args args)
{
    const int parts = (int)args.size[1];
    cell_attention_forward<M, CELL_ATTENTION_FEW>(head_of<M>(args), block_of(args) / parts,
                                                  (int)(block_of(args) % parts), parts);
}
template <class M>
__global__ void __launch_bounds__(CELL_ATTENTION_THREADS)
    k_combine(const __grid_constant__ cell_kernel_args args)
{
    cell_attention_combine<M>(head_of<M>(args), block_of(args), (int)args.size[1]);
}
template <class M>
__global__ void __launch_bounds__(CELL_ATTENTION_THREADS)
    k_dots(const __grid_constant__ cell_kernel_args args)
{
    cell_attention_dots<M>(head_of<M>(args), block_of(args));
}
template <class M>
__global__ void __launch_bounds__(cell_attention_facts<M, CELL_ATTENTION_BACK_ROWS>::threads)
    k_back_rows(const __grid_constant__ cell_kernel_args args)
{
    cell_attention_back_rows<M>(head_of<M>(args), block_of(args));
}
template <class M>
__global__ void __launch_bounds__(cell_attention_facts<M, CELL_ATTENTION_BACK_KEYS>::threads)
    k_back_keys(const __grid_constant__ cell_kernel_args args)
{
    cell_attention_back_keys<M>(head_of<M>(args), block_of(args));
}

// ---- cases ----

struct Case {
    Sizes sizes;
    int element = 1; // distance of elements
    bool real = false; // operands and gradients lie in Real
    bool adds = false; // gradients are added to what is there
    int parts = 1; // of forward
    bool paged = false; // keys of the call lie in pages
    bool huge = false; // scores of 1e4 and of -inf
    bool rising = false; // scores that grow from key to key, by more than 2^8 from one tile to the next
    bool by_log = false; // the sum's logarithm has a cotangent
    unsigned wanted = 7; // gradients: 1: of queries, 2: of keys, 4: of values
};

template <class M> class Run
{
    typedef typename M::Real R;
    typedef typename M::Store S;

    const char *const name;
    const Case &c;
    const Sizes &n;
    static constexpr unsigned facts = M::facts;
    std::vector<Array<R> *> reals;
    std::vector<Array<S> *> stores;
    Operands x, gradients;
    Results y, cotangents;
    enum { PAGE = 3 };

    // Elements of rows, `element` apart, in Real or in Store: what is there after rounding goes back to
    // `values`.
    struct Tensor {
        void *data = nullptr;
        bool real = false;
        int step = 1;
    };
    Tensor room(size_t count, bool real, int step)
    {
        Tensor t;
        t.real = real, t.step = step;
        if (real) {
            reals.push_back(new Array<R>(count * (size_t)step + 8));
            t.data = reals.back()->data;
        } else {
            stores.push_back(new Array<S>(count * (size_t)step + 8));
            t.data = stores.back()->data;
        }
        return t;
    }
    Tensor put(Numbers &values, bool real, int step)
    {
        Tensor t = room(values.size(), real, step);
        for (size_t i = 0; i < values.size(); i++) {
            if (real) {
                put_value(((R *)t.data)[i * (size_t)step], values[i]);
                values[i] = value_of(((R *)t.data)[i * (size_t)step]);
            } else {
                put_value(((S *)t.data)[i * (size_t)step], values[i]);
                values[i] = value_of(((S *)t.data)[i * (size_t)step]);
            }
        }
        return t;
    }
    Numbers take(const Tensor &t, size_t count) const
    {
        Numbers v(count);
        for (size_t i = 0; i < count; i++)
            v[i] = t.real ? value_of(((const R *)t.data)[i * (size_t)t.step])
                          : value_of(((const S *)t.data)[i * (size_t)t.step]);
        return v;
    }
    static void *at(const Tensor &t, size_t offset)
    {
        return (char *)t.data + offset * (size_t)t.step * (t.real ? sizeof(R) : sizeof(S));
    }
    // Rows of a head of keys: by step, head of queries, element.
    cell_attention_rows rows(const Tensor &t, int head, int places, int heads, int extent) const
    {
        return { at(t, (size_t)(head * places * heads * extent)), (int64_t)heads * extent * t.step,
                 (int64_t)extent * t.step, t.step, t.real };
    }
    cell_attention_result result(const Tensor &t, int head, int places, int heads, int extent) const
    {
        const cell_attention_rows r = rows(t, head, places, heads, extent);
        return { (void *)(uintptr_t)r.at, r.row, r.head, r.element, t.real, c.adds };
    }
    Numbers drawn(Random &random, size_t count, double size)
    {
        Numbers v(count);
        for (double &e : v)
            e = random.uniform(-size, size);
        return v;
    }

    Tensor q, k[SEGMENTS], v[SEGMENTS], dy, out, kept, dq, dk[SEGMENTS], dv[SEGMENTS], slope,
        column[SEGMENTS], table, sink, d_slope, d_column[SEGMENTS], d_sink, d_log, lse, dots;
    Array<int> *document = nullptr, *pages = nullptr;
    Tensor d_table, part_sums, part_stats;
    int table_tiles = 0;

    void fill()
    {
        Random random((uint64_t)(n.steps * 131 + n.keys * 7 + n.values + facts * 17 + n.history));
        x = operands_like(facts, n);
        x.q = drawn(random, x.q.size(), 1.5);
        for (int s = 0; s < SEGMENTS; s++) {
            x.k[s] = drawn(random, x.k[s].size(), 1.5);
            x.v[s] = drawn(random, x.v[s].size(), 1);
            x.column[s] = drawn(random, x.column[s].size(), 1);
            for (double &e : x.column[s])
                if (c.rising)
                    e += 0.2 * (double)(&e - x.column[s].data());
                else if (c.huge)
                    e = random.integer(0, 2) == 0 ? -INFINITY : random.integer(0, 1) ? 1e4 : -1e4;
        }
        x.slope = drawn(random, x.slope.size(), 0.1);
        x.table = drawn(random, x.table.size(), 1);
        x.sink = drawn(random, x.sink.size(), 2);
        int which = 0;
        for (int i = 0; i < n.history + n.steps; i++) {
            which += random.integer(0, 12) == 0;
            x.document.push_back(which);
        }
        const size_t all = (size_t)(n.heads * n.rows());
        cotangents.y = drawn(random, all * (size_t)n.values, 1);
        cotangents.log_sum = c.by_log ? drawn(random, all, 1) : Numbers(all, 0.0);
    }

    void lay_out()
    {
        const size_t all = (size_t)(n.heads * n.rows());
        q = put(x.q, c.real, c.element);
        dy = put(cotangents.y, c.real, c.element);
        out = room(cotangents.y.size(), c.real, c.element);
        kept = room(cotangents.y.size(), false, 1);
        for (int s = 0; s < SEGMENTS; s++) {
            k[s] = put(x.k[s], c.real, c.element);
            v[s] = put(x.v[s], c.real, c.element);
            column[s] = put(x.column[s], true, 1);
            dk[s] = gradient(x.k[s].size(), c.real);
            dv[s] = gradient(x.v[s].size(), c.real);
            d_column[s] = gradient(x.column[s].size(), true);
        }
        dq = gradient(x.q.size(), c.real);
        slope = put(x.slope, true, 1);
        table = put(x.table, true, 1);
        sink = put(x.sink, true, 1);
        d_slope = gradient(x.slope.size(), true);
        d_sink = gradient(x.sink.size(), true);
        d_log = put(cotangents.log_sum, true, 1);
        lse = room(all, true, 1);
        dots = room(all, true, 1);
        table_tiles =
            (int)cell_attention_tiles(n.rows(), cell_attention_facts<M, CELL_ATTENTION_BACK_ROWS>::own);
        d_table = room((size_t)(table_tiles * n.heads * n.distances()), true, 1);
        part_sums = room(all * (size_t)(c.parts * n.values), true, 1);
        part_stats = room(all * (size_t)(c.parts * 2), true, 1);
        document = new Array<int>(x.document.size());
        for (size_t i = 0; i < x.document.size(); i++)
            (*document)[i] = x.document[i];
        if (c.paged)
            turn_pages();
    }
    // Where gradients are added, 0.5 is there.
    Tensor gradient(size_t count, bool real)
    {
        Numbers there(count, 0.5);
        return c.adds ? put(there, real, c.element) : room(count, real, c.element);
    }
    // The call's keys of each head in pages of PAGE rows, last page first.
    void turn_pages()
    {
        const int count = (n.steps + PAGE - 1) / PAGE;
        pages = new Array<int>((size_t)count);
        for (int i = 0; i < count; i++)
            (*pages)[(size_t)i] = count - 1 - i;
        for (Tensor *t : { &k[0], &v[0] }) {
            const int extent = t == &k[0] ? n.keys : n.values;
            const Numbers old = take(*t, (size_t)(n.heads * n.steps * extent));
            *t = room((size_t)(n.heads * count * PAGE * extent), c.real, c.element);
            for (int head = 0; head < n.heads; head++)
                for (int j = 0; j < n.steps * extent; j++) {
                    const int row = j / extent,
                              to = (head * count + count - 1 - row / PAGE) * PAGE + row % PAGE;
                    const size_t place = (size_t)((to * extent + j % extent) * c.element);
                    const double e = old[(size_t)(head * n.steps * extent + j)];
                    if (c.real)
                        put_value(((R *)t->data)[place], e);
                    else
                        put_value(((S *)t->data)[place], e);
                }
        }
    }

    cell_attention<M> head(int h)
    {
        cell_attention<M> a;
        memset((void *)&a, 0, sizeof a);
        const size_t row = (size_t)(h * n.rows());
        a.q = rows(q, h, n.steps, n.group, n.keys);
        a.y = rows(kept, h, n.steps, n.group, n.values);
        a.dy = rows(dy, h, n.steps, n.group, n.values);
        a.out = result(out, h, n.steps, n.group, n.values), a.out.adds = false;
        a.kept = result(kept, h, n.steps, n.group, n.values), a.kept.adds = false;
        if (c.wanted & 1)
            a.dq = result(dq, h, n.steps, n.group, n.keys);
        a.lse = (R *)lse.data + row, a.lse_row = n.group, a.lse_head = 1;
        a.dots = (R *)dots.data + row, a.dots_row = n.group, a.dots_head = 1;
        if (c.by_log)
            a.d_lse = { (const R *)d_log.data + row, n.group, 1, 0, true };
        if (facts & SLOPE)
            a.d_row[M::slope_term()] = result(d_slope, h, n.steps, n.group, 1);
        if (facts & SINK)
            a.d_sink = result(d_sink, h, n.steps, n.group, 1);
        if constexpr ((facts & TABLE) != 0)
            a.d_distance[M::table_term()] =
                (R *)d_table.data + (size_t)h * (size_t)(table_tiles * n.distances());
        a.distances = n.distances();
        for (int s = 0; s < M::segments; s++) {
            cell_attention_segment<M> &to = a.segment[s];
            const int count = n.places(s),
                      laid = c.paged && s == 0 ? (count + PAGE - 1) / PAGE * PAGE : count;
            to.begin = s == 1 ? -n.history : 0, to.end = to.begin + count;
            to.k = rows(k[s], h, laid, 1, n.keys);
            to.v = rows(v[s], h, laid, 1, n.values);
            if (c.wanted & 2)
                to.dk = result(dk[s], h, count, 1, n.keys);
            if (c.wanted & 4)
                to.dv = result(dv[s], h, count, 1, n.values);
            if constexpr ((facts & COLUMN) != 0)
                to.d_column[M::column_term()] = result(d_column[s], h, count, 1, 1);
            if (s == 1) { // row 0 is step 0
                to.k.at = at(k[s], (size_t)((h + 1) * count * n.keys));
                to.v.at = at(v[s], (size_t)((h + 1) * count * n.values));
                shift(to.dk, count);
                shift(to.dv, count);
                if constexpr ((facts & COLUMN) != 0)
                    shift(to.d_column[M::column_term()], count);
            }
            if (c.paged && s == 0)
                to.pages = pages->data, to.page = PAGE;
            a.uses.column[s] = (const R *)column[s].data + (size_t)(h * count);
        }
        a.keys = n.keys, a.values = n.values, a.steps = n.steps, a.group = n.group;
        a.scale = (R)n.scale;
        a.part_sums = (R *)part_sums.data + row * (size_t)(c.parts * n.values);
        a.part_stats = (R *)part_stats.data + row * (size_t)(c.parts * 2);
        a.uses.slope = (const R *)slope.data + row;
        a.uses.sink = (const R *)sink.data + row;
        a.uses.table = (const R *)table.data + (size_t)(h * n.distances());
        a.uses.document = document->data;
        a.uses.group = n.group, a.uses.history = n.history, a.uses.length = n.length,
        a.uses.window = n.window;
        a.uses.scale = (R)n.scale, a.uses.cap = (R)n.cap;
        return a;
    }
    static void shift(cell_attention_result &r, int count)
    {
        if (r.at)
            r.at = (char *)r.at + (int64_t)count * r.row * (int64_t)(r.real ? sizeof(R) : sizeof(S));
    }

    void judge(const char *what, int i, const Numbers &right, const std::vector<const Numbers *> &moved,
               const Tensor &made, bool wanted = true)
    {
        if (right.empty())
            return;
        std::string why;
        const Numbers is = take(made, right.size());
        if (!wanted) {
            check(untouched(made, right.size()), "%s: %s %d, which is not wanted, is written", name, what, i);
            return;
        }
        const bool ok = same_tensor(right, moved, is, Type<S>::unit, Type<S>::least, why);
        check(ok, "%s: %s %d: %s", name, what, i, why.c_str());
        if (getenv("SHOW")) {
            Numbers off(right.size());
            for (size_t e = 0; e < right.size(); e++)
                off[e] = is[e] - right[e];
            printf("  %s: %s %d: %.2g\n", name, what, i, rms(off) / (rms(right) + 1e-300));
        }
    }
    static bool untouched(const Tensor &t, size_t count)
    {
        bool same = true;
        for (size_t i = 0; i < count * (size_t)t.step * (t.real ? sizeof(R) : sizeof(S)); i++)
            same &= ((const unsigned char *)t.data)[i] == 0xff;
        return same;
    }

    enum { RUNS = 3 };
    Operands moved[RUNS];
    Results moved_results[RUNS];

    void judge_gradient(const char *what, int i, Numbers Operands::*of, const Tensor &made,
                        bool wanted = true)
    {
        judge_gradient(what, i, gradients.*of, { &(moved[0].*of), &(moved[1].*of), &(moved[2].*of) }, made,
                       wanted);
    }
    void judge_gradient(const char *what, int i, Numbers &right, std::initializer_list<Numbers *> others,
                        const Tensor &made, bool wanted = true)
    {
        std::vector<const Numbers *> runs;
        for (Numbers *o : others) {
            for (double &e : *o)
                e += c.adds ? 0.5 : 0;
            runs.push_back(o);
        }
        for (double &e : right)
            e += c.adds ? 0.5 : 0;
        judge(what, i, right, runs, made, wanted);
    }
    void compare()
    {
        Pairs(facts, n, x, cotangents, Blur{ 0, 1 }, y, gradients);
        for (int i = 0; i < RUNS; i++)
            Pairs(facts, n, x, cotangents, Blur{ Type<S>::unit, (uint64_t)i * 977 + 12345 }, moved_results[i],
                  moved[i]);
        const std::vector<const Numbers *> ys = { &moved_results[0].y, &moved_results[1].y,
                                                  &moved_results[2].y };
        judge("y", 0, y.y, ys, out);
        judge("y", 1, y.y, ys, kept);
        if (c.paged)
            return; // no gradients
        judge_gradient("gradient of queries", 0, &Operands::q, dq, c.wanted & 1);
        for (int s = 0; s < M::segments; s++) {
            judge_gradient("gradient of keys", s, gradients.k[s],
                           { &moved[0].k[s], &moved[1].k[s], &moved[2].k[s] }, dk[s], c.wanted & 2);
            judge_gradient("gradient of values", s, gradients.v[s],
                           { &moved[0].v[s], &moved[1].v[s], &moved[2].v[s] }, dv[s], c.wanted & 4);
            judge_gradient("gradient of columns", s, gradients.column[s],
                           { &moved[0].column[s], &moved[1].column[s], &moved[2].column[s] }, d_column[s]);
        }
        judge_gradient("gradient of slopes", 0, &Operands::slope, d_slope);
        judge_gradient("gradient of sinks", 0, &Operands::sink, d_sink);
        if (facts & TABLE) {
            Numbers sums((size_t)(n.heads * n.distances()), 0.0);
            const Numbers parts = take(d_table, (size_t)(table_tiles * n.heads * n.distances()));
            for (size_t i = 0; i < parts.size(); i++)
                sums[i / (size_t)(table_tiles * n.distances()) * (size_t)n.distances() +
                     i % (size_t)n.distances()] += parts[i];
            std::string why;
            check(same_tensor(gradients.table, { &moved[0].table, &moved[1].table, &moved[2].table }, sums,
                              Type<S>::unit, Type<S>::least, why),
                  "%s: gradient of the table: %s", name, why.c_str());
        }
    }
    void go(const char *kernel, test_kernel function, int64_t blocks, Array<cell_attention<M>> &heads,
            int threads = CELL_ATTENTION_THREADS, int smem = 0)
    {
        char text[200];
        snprintf(text, sizeof text, "%s, %s", name, kernel);
        cell_kernel_args args = arguments({ heads.data }, blocks, c.parts);
        launch(text, function, args, Shape{ (unsigned)(blocks * n.heads), (unsigned)threads, (size_t)smem });
    }

  public:
    ~Run()
    {
        for (Array<R> *a : reals)
            delete a;
        for (Array<S> *a : stores)
            delete a;
        delete document;
        delete pages;
    }
    Run(const char *of, const Case &which) : name(of), c(which), n(which.sizes)
    {
        fill();
        lay_out();
        Array<cell_attention<M>> heads((size_t)n.heads);
        for (int h = 0; h < n.heads; h++)
            heads[(size_t)h] = head(h);
        typedef cell_attention_facts<M, CELL_ATTENTION_FORWARD> Forward;
        typedef cell_attention_facts<M, CELL_ATTENTION_BACK_ROWS> Rows;
        typedef cell_attention_facts<M, CELL_ATTENTION_BACK_KEYS> Keys;
        const int64_t others = cell_attention_tiles(n.rows(), CELL_ATTENTION_DOTS_ROWS);
        typedef cell_attention_facts<M, CELL_ATTENTION_FEW> Few;
        if (n.rows() <= Few::own)
            go("forward of few rows", k_few<M>,
               cell_attention_forward_blocks<M, CELL_ATTENTION_FEW>(n.rows()) * c.parts, heads, Few::threads,
               Few::smem);
        else
            go("forward", k_forward<M>, cell_attention_forward_blocks<M>(n.rows()) * c.parts, heads,
               Forward::threads, Forward::smem);
        if (c.parts > 1)
            go("combine", k_combine<M>, others, heads);
        if (!c.paged) {
            go("dots", k_dots<M>, others, heads);
            go("back_rows", k_back_rows<M>, cell_attention_tiles(n.rows(), Rows::own) * Rows::slabs, heads,
               Rows::threads, Rows::smem);
            go("back_keys", k_back_keys<M>, cell_attention_key_tiles(heads[0]) * (int64_t)Keys::slabs, heads,
               Keys::threads, Keys::smem);
        }
        compare();
        close_group();
    }
};

static bool full()
{
    return getenv("FULL") && *getenv("FULL") && strcmp(getenv("FULL"), "0");
}

template <class M> static void run(const char *type, const char *what, const Case &c)
{
    char name[160];
    snprintf(name, sizeof name, "%s %s (%d steps)", type, what, c.sizes.steps);
    Run<M>(name, c);
}

// What is compiled: members and types by their bits.
#ifndef MEMBERS
#define MEMBERS 0xff
#endif
#ifndef TYPES
#define TYPES 0xf
#endif

// heads, group, steps, keys, values, history, prefix, length, window, scale, cap
template <class S, class R, int Members> static void test_type(const char *type)
{
    constexpr int memory = CELL_ATTENTION_LEAST_MEMORY;
    if constexpr (Members & 1) {
        typedef Member<S, R, 64, 64, 1, CAUSAL, memory> M;
        Case c = { { 2, 1, 130, 64, 64, 0, 0, 130, 0, 0.125, 0 } };
        run<M>(type, "causal", c);
        for (int steps : { 1, 63, 64, 65 }) {
            c.sizes.steps = c.sizes.length = steps;
            c.sizes.heads = 1;
            c.parts = steps == 65 ? 3 : 1;
            c.sizes.length -= steps == 64 ? 20 : 0;
            if (full() || steps != 63)
                run<M>(type, "causal, tiles", c);
        }
    }
    if constexpr (Members & 2) {
        typedef Member<S, R, 16, 32, 2, CAUSAL | WINDOW | CAP | SLOPE | COLUMN, memory> M;
        Case c = { { 2, 2, 70, 13, 21, 30, 0, 70, 40, 0.3, 2 } };
        c.element = 2;
        run<M>(type, "a window, cap, slopes and columns, over a history, apart", c);
        c = { { 1, 3, 43, 16, 32, 100, 0, 43, 50, 0.3, 2 } };
        c.adds = true, c.parts = 2;
        run<M>(type, "a window over a longer history, added", c);
        c = { { 1, 1, 70, 16, 32, 0, 0, 70, 40, 0.3, 2 } };
        c.huge = true;
        run<M>(type, "scores of 1e4 and of -inf", c);
        c = { { 1, 1, 150, 16, 32, 0, 0, 150, 150, 0.3, 2 } };
        c.rising = true;
        run<M>(type, "scores that grow from tile to tile", c);
    }
    if constexpr (Members & 4) {
        typedef Member<S, R, 32, 16, 3, CAUSAL | DOCUMENTS | TABLE | SINK, memory> M;
        Case c = { { 2, 1, 140, 24, 16, 9, 5, 133, 0, 0.3, 0 } };
        c.real = sizeof(S) == 2, c.by_log = true;
        run<M>(type, "documents, a table of distances, a sink, a prefix", c);
        c = { { 1, 4, 33, 32, 9, 65, 70, 33, 0, 0.3, 0 } };
        c.wanted = 1;
        run<M>(type, "documents, groups, gradients of queries", c);
    }
    if constexpr (Members & 8) {
        typedef Member<S, R, 48, 16, 1, WEIGHTS | COLUMN, memory> M;
        Case c = { { 1, 2, 75, 48, 8, 0, 0, 66, 0, 0.2, 0 } };
        c.wanted = 6;
        run<M>(type, "sigmoid, lengths, gradients of keys and values", c);
        c.sizes.length = 0, c.sizes.steps = 5, c.wanted = 7, c.parts = 2;
        run<M>(type, "sigmoid, nothing there", c);
    }
    if constexpr (Members & 16) {
        typedef Member<S, R, 256, 256, 1, CAUSAL | WINDOW, memory> M;
        Case c = { { 1, 1, 68, 250, 255, 0, 0, 68, 20, 0.06, 0 } };
        run<M>(type, "256 x 256, odd", c);
        c = { { 1, 1, 33, 256, 256, 0, 0, 33, 70, 0.06, 0 } };
        run<M>(type, "256 x 256", c);
    }
    if constexpr (Members & 32) {
        typedef Member<S, R, 64, 32, 2, 0, memory> M;
        Case c = { { 1, 4, 1, 64, 32, 200, 0, 1, 0, 0.125, 0 } };
        c.parts = 4;
        run<M>(type, "one step against a history, in parts", c);
        c = { { 1, 1, 75, 64, 32, 3, 0, 75, 0, 0.125, 0 } };
        c.paged = true;
        run<M>(type, "pages", c);
    }
    if constexpr ((Members & 64) && sizeof(S) == 2) {
        typedef Member<S, R, 64, 64, 2, CAUSAL | WINDOW, CELL_ATTENTION_MOST_MEMORY> M;
        Case c = { { 1, 1, 330, 64, 64, 60, 0, 330, 70, 0.125, 0 } };
        run<M>(type, "a window, warps that copy", c);
        c = { { 1, 3, 70, 56, 64, 300, 0, 70, 400, 0.125, 0 } };
        c.parts = 2;
        run<M>(type, "groups, a history, in parts, warps that copy", c);
        for (int steps : { 65, 191, 192, 193 })
            if (full() || steps == 193) {
                c = { { 1, 1, steps, 64, 64, 0, 0, steps - 3, steps, 0.125, 0 } };
                c.element = 2;
                run<M>(type, "tiles, warps that copy", c);
            }
    }
    if constexpr ((Members & 128) && sizeof(S) == 2) {
        typedef Member<S, R, 128, 64, 1, CAUSAL | CAP | SINK | DOCUMENTS, CELL_ATTENTION_MOST_MEMORY> M;
        Case c = { { 1, 1, 260, 128, 64, 0, 0, 250, 0, 0.1, 2 } };
        c.by_log = true;
        run<M>(type, "documents, a sink, warps that copy", c);
        typedef Member<S, R, 128, 128, 1, CAUSAL, CELL_ATTENTION_MOST_MEMORY> W;
        c = { { 1, 1, 129, 128, 120, 0, 0, 129, 0, 0.1, 0 } };
        c.huge = true;
        run<W>(type, "scores of 1e4 and of -inf, warps that copy", c);
    }
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
    test_type<cell_bf16, float, MEMBERS>("bf16");
#endif
#if TYPES & 8
    test_type<cell_f16, float, MEMBERS>("f16");
#endif
    return report();
}
