// Linear recurrences step by step, forward and backward, in double: what the chunk form's kernels are
// compared with.
//
// In: a member (which additions and reads there are), sizes, operands. Out: reads, final states, and from
// cotangents of both the gradient of every operand. It is written from the step alone and knows no chunks:
//
//     d_n = z_n + w' S      n < additions; only n = 0 may have a w
//     S  <- a o S + sum_n c_n d_n'
//     o_r = q_r' S          of the state before the step or behind it
//
// Several steps may be one update: then the S of w, and of reads before, is that in front of the first of them.
//
// Of two states that feed one another, S_i has the keys 2 k + i, and a step
//
//     S_i <- sum_j a_ij S_j + sum_n c_ni d_n'
//
// Each vector is a number times a vector. Rows behind a sequence's length do nothing, and their reads are 0.
#ifndef CHUNK_DEVICE_STEPS_H
#define CHUNK_DEVICE_STEPS_H

#include "../emulator/judge.h"

enum Decay { NO_DECAY, DECAY_NUMBER, DECAY_PER_KEY, DECAY_OF_TWO, DECAY_PER_VALUE };

struct Member {
    int keys, values, additions, reads;
    Decay decay;
    bool corrected;  // addition 0 has a w
    unsigned known;  // bit n: addition n has a z
    unsigned before; // bit r: read r is of the state before the step
    unsigned scaled; // bit i: vector i, in the order of Operands, has a number
    int together;    // steps of an update
};

// The operands of all rows, in the order b, t, h, element; a tensor that the member has not is empty. The
// same struct has their gradients. Vectors in order: c of each addition, z of each, w, q of each read.
enum { MOST_ADDITIONS = 4, MOST_READS = 4, VECTORS = 2 * MOST_ADDITIONS + 1 + MOST_READS };
static inline int vector_c(int n) { return n; }
static inline int vector_z(int n) { return MOST_ADDITIONS + n; }
static inline int vector_w() { return 2 * MOST_ADDITIONS; }
static inline int vector_q(int r) { return 2 * MOST_ADDITIONS + 1 + r; }

struct Operands {
    Numbers vector[VECTORS], number[VECTORS];
    Numbers decay; // one, or one per key or value, or a_ij at 2 i + j
    Numbers state; // b, h, key, value: in front of the first step; or its cotangent
};

// What a call leaves, and the cotangents of it.
struct Results {
    Numbers read[MOST_READS]; // b, t, h, value
    Numbers state;            // b, h, key, value
};

struct Sizes {
    int batch, steps, heads;
    std::vector<int> lengths; // of each sequence; empty: all steps
    bool reverse;             // the last row comes first
    int length(int b) const { return lengths.empty() ? steps : lengths[(size_t)b]; }
};

static inline bool has_vector(const Member &m, int i)
{
    if (i < MOST_ADDITIONS)
        return i < m.additions;
    if (i < 2 * MOST_ADDITIONS)
        return i - MOST_ADDITIONS < m.additions && m.known >> (i - MOST_ADDITIONS) & 1;
    return i == vector_w() ? m.corrected : i - vector_q(0) < m.reads;
}
static inline int vector_extent(const Member &m, int i)
{
    return i >= MOST_ADDITIONS && i < 2 * MOST_ADDITIONS ? m.values : m.keys;
}
static inline int decay_extent(const Member &m)
{
    switch (m.decay) {
    case NO_DECAY: return 0;
    case DECAY_NUMBER: return 1;
    case DECAY_OF_TWO: return 4;
    default: return m.decay == DECAY_PER_KEY ? m.keys : m.values;
    }
}

// One head of one sequence.
class Walk
{
    const Member &m;
    const Sizes &n;
    const Operands &x;
    Blur &blur;
    int b, h;
    std::vector<Numbers> states;                 // [row]: in front of it
    std::vector<std::vector<Numbers>> additions; // [row][n]: d

    size_t row(int t) const // of the t-th step that is walked
    {
        const int at = n.reverse ? n.length(b) - 1 - t : t;
        return ((size_t)b * (size_t)n.steps + (size_t)at) * (size_t)n.heads + (size_t)h;
    }
    size_t state_at(int k, int v) const
    {
        return (((size_t)b * (size_t)n.heads + (size_t)h) * (size_t)m.keys + (size_t)k) * (size_t)m.values +
               (size_t)v;
    }
    Numbers vector(int i, int t) const
    {
        const int extent = vector_extent(m, i);
        Numbers y((size_t)extent, 0.0);
        for (int e = 0; e < extent && has_vector(m, i); e++)
            y[(size_t)e] = x.vector[i][row(t) * (size_t)extent + (size_t)e] *
                           (m.scaled >> i & 1 ? x.number[i][row(t)] : 1.0);
        return y;
    }
    // The gradient of number times vector becomes that of both.
    void put_vector(Operands &to, int i, int t, const Numbers &g) const
    {
        const int extent = vector_extent(m, i);
        if (!has_vector(m, i))
            return;
        double sum = 0;
        for (int e = 0; e < extent; e++) {
            const size_t at = row(t) * (size_t)extent + (size_t)e;
            to.vector[i][at] = g[(size_t)e] * (m.scaled >> i & 1 ? x.number[i][row(t)] : 1.0);
            sum += g[(size_t)e] * x.vector[i][at];
        }
        if (m.scaled >> i & 1)
            to.number[i][row(t)] = sum;
    }
    size_t decay_at(int t, int k, int v) const
    {
        const int of = m.decay == DECAY_PER_KEY ? k : m.decay == DECAY_PER_VALUE ? v : 0;
        return row(t) * (size_t)decay_extent(m) + (size_t)of;
    }
    double decay(int t, int k, int v) const { return m.decay == NO_DECAY ? 1 : x.decay[decay_at(t, k, v)]; }
    // The key's state in a_ij, and the other state's same key.
    double coupling(int t, int to, int from) const
    {
        return x.decay[row(t) * 4 + (size_t)(to % 2 * 2 + from % 2)];
    }
    size_t lead(int t) const { return (size_t)(t - t % m.together); }
    double &at(Numbers &s, int k, int v) const { return s[(size_t)(k * m.values + v)]; }

public:
    Walk(const Member &member, const Sizes &sizes, const Operands &operands, Blur &of, int sequence, int head)
        : m(member), n(sizes), x(operands), blur(of), b(sequence), h(head)
    {
    }
    void forward(Results &to)
    {
        Numbers s((size_t)(m.keys * m.values));
        for (int k = 0; k < m.keys; k++)
            for (int v = 0; v < m.values; v++)
                at(s, k, v) = x.state[state_at(k, v)];
        for (int t = 0; t < n.length(b); t++) {
            states.push_back(s);
            std::vector<Numbers> d;
            for (int i = 0; i < m.additions; i++) {
                d.push_back(vector(vector_z(i), t));
                const Numbers w =
                    i == 0 && m.corrected ? vector(vector_w(), t) : Numbers((size_t)m.keys, 0.0);
                for (int v = 0; v < m.values; v++) {
                    for (int k = 0; k < m.keys; k++)
                        d[(size_t)i][(size_t)v] += w[(size_t)k] * at(states[lead(t)], k, v);
                    d[(size_t)i][(size_t)v] = blur.of(d[(size_t)i][(size_t)v]);
                }
            }
            additions.push_back(d);
            if (m.decay == DECAY_OF_TWO)
                couple(t, false, s);
            for (int k = 0; k < m.keys && m.decay != DECAY_OF_TWO; k++)
                for (int v = 0; v < m.values; v++)
                    at(s, k, v) *= decay(t, k, v);
            for (int i = 0; i < m.additions; i++) {
                const Numbers c = vector(vector_c(i), t);
                for (int k = 0; k < m.keys; k++)
                    for (int v = 0; v < m.values; v++)
                        at(s, k, v) += c[(size_t)k] * d[(size_t)i][(size_t)v];
            }
            for (double &e : s)
                e = blur.of(e);
            for (int r = 0; r < m.reads; r++) {
                const Numbers q = vector(vector_q(r), t);
                for (int v = 0; v < m.values; v++) {
                    double sum = 0;
                    for (int k = 0; k < m.keys; k++)
                        sum += q[(size_t)k] * at(m.before >> r & 1 ? states[lead(t)] : s, k, v);
                    to.read[r][row(t) * (size_t)m.values + (size_t)v] = sum;
                }
            }
        }
        states.push_back(s);
        for (int k = 0; k < m.keys; k++)
            for (int v = 0; v < m.values; v++)
                to.state[state_at(k, v)] = at(s, k, v);
    }
    // Behind forward.
    void backward(const Results &from, Operands &to)
    {
        Numbers g((size_t)(m.keys * m.values));
        for (int k = 0; k < m.keys; k++)
            for (int v = 0; v < m.values; v++)
                at(g, k, v) = from.state[state_at(k, v)];
        Numbers ahead(g.size(), 0.0); // of the state in front of the update
        for (int t = n.length(b) - 1; t >= 0; t--) {
            read_back(from, to, t, false, g);
            Numbers before = g;
            if (m.decay == DECAY_OF_TWO) {
                couple(t, true, before);
                couple_back(t, g, to);
            }
            for (int k = 0; k < m.keys && m.decay != DECAY_OF_TWO; k++)
                for (int v = 0; v < m.values; v++)
                    at(before, k, v) *= decay(t, k, v);
            for (int k = 0; k < m.keys && m.decay != NO_DECAY && m.decay != DECAY_OF_TWO; k++)
                for (int v = 0; v < m.values; v++)
                    to.decay[decay_at(t, k, v)] += at(g, k, v) * at(states[(size_t)t], k, v);
            for (int i = 0; i < m.additions; i++) {
                const Numbers c = vector(vector_c(i), t);
                Numbers dc((size_t)m.keys), dd((size_t)m.values), dw((size_t)m.keys);
                for (int k = 0; k < m.keys; k++)
                    for (int v = 0; v < m.values; v++) {
                        dc[(size_t)k] += at(g, k, v) * additions[(size_t)t][(size_t)i][(size_t)v];
                        dd[(size_t)v] += at(g, k, v) * c[(size_t)k];
                    }
                for (double &e : dd)
                    e = blur.of(e);
                put_vector(to, vector_c(i), t, dc);
                put_vector(to, vector_z(i), t, dd);
                if (i > 0 || !m.corrected)
                    continue;
                const Numbers w = vector(vector_w(), t);
                for (int k = 0; k < m.keys; k++)
                    for (int v = 0; v < m.values; v++) {
                        dw[(size_t)k] += at(states[lead(t)], k, v) * dd[(size_t)v];
                        at(ahead, k, v) += w[(size_t)k] * dd[(size_t)v];
                    }
                put_vector(to, vector_w(), t, dw);
            }
            g = before;
            read_back(from, to, t, true, ahead);
            for (size_t i = 0; i < g.size() && (size_t)t == lead(t); i++) {
                g[i] += ahead[i];
                ahead[i] = 0;
            }
            for (double &e : g)
                e = blur.of(e);
        }
        for (int k = 0; k < m.keys; k++)
            for (int v = 0; v < m.values; v++)
                to.state[state_at(k, v)] = at(g, k, v);
    }

private:
    // s becomes a s, or a' s.
    void couple(int t, bool across, Numbers &s) const
    {
        for (int k = 0; k < m.keys; k += 2)
            for (int v = 0; v < m.values; v++) {
                const double had[2] = {at(s, k, v), at(s, k + 1, v)};
                for (int i = 0; i < 2; i++) {
                    at(s, k + i, v) = 0;
                    for (int j = 0; j < 2; j++)
                        at(s, k + i, v) += (across ? coupling(t, j, i) : coupling(t, i, j)) * had[j];
                }
            }
    }
    void couple_back(int t, Numbers &g, Operands &to)
    {
        for (int k = 0; k < m.keys; k++)
            for (int j = 0; j < 2; j++)
                for (int v = 0; v < m.values; v++)
                    to.decay[row(t) * 4 + (size_t)(k % 2 * 2 + j)] +=
                        at(g, k, v) * at(states[(size_t)t], k / 2 * 2 + j, v);
    }
    void read_back(const Results &from, Operands &to, int t, bool before, Numbers &g)
    {
        Numbers &s = states[before ? lead(t) : (size_t)(t + 1)];
        for (int r = 0; r < m.reads; r++) {
            if ((m.before >> r & 1) != before)
                continue;
            const Numbers q = vector(vector_q(r), t);
            Numbers dq((size_t)m.keys);
            for (int k = 0; k < m.keys; k++)
                for (int v = 0; v < m.values; v++) {
                    const double y = from.read[r][row(t) * (size_t)m.values + (size_t)v];
                    dq[(size_t)k] += at(s, k, v) * y;
                    at(g, k, v) += q[(size_t)k] * y;
                }
            put_vector(to, vector_q(r), t, dq);
        }
    }
};

static inline size_t rows_of(const Sizes &n) { return (size_t)n.batch * (size_t)n.steps * (size_t)n.heads; }

// Zeros for everything that the member has.
static inline Operands operands_like(const Member &m, const Sizes &n)
{
    Operands x;
    for (int i = 0; i < VECTORS; i++)
        if (has_vector(m, i)) {
            x.vector[i].assign(rows_of(n) * (size_t)vector_extent(m, i), 0.0);
            x.number[i].assign(m.scaled >> i & 1 ? rows_of(n) : 0, 0.0);
        }
    x.decay.assign(rows_of(n) * (size_t)decay_extent(m), 0.0);
    x.state.assign((size_t)(n.batch * n.heads * m.keys * m.values), 0.0);
    return x;
}
static inline Results results_like(const Member &m, const Sizes &n)
{
    Results y;
    for (int r = 0; r < m.reads; r++)
        y.read[r].assign(rows_of(n) * (size_t)m.values, 0.0);
    y.state.assign((size_t)(n.batch * n.heads * m.keys * m.values), 0.0);
    return y;
}

// Reads and final states, and the gradient of every operand by `cotangents`.
static inline void walk_steps(const Member &m, const Sizes &n, const Operands &x, const Results &cotangents,
                              Blur blur, Results &to, Operands &gradients)
{
    to = results_like(m, n);
    gradients = operands_like(m, n);
    for (int b = 0; b < n.batch; b++)
        for (int h = 0; h < n.heads; h++) {
            Walk walk(m, n, x, blur, b, h);
            walk.forward(to);
            walk.backward(cotangents, gradients);
        }
}

#endif
