// Attention pair by pair, forward and backward, in double: what the kernels are compared with.
//
// In: what the score is made of, sizes, operands. Out: y, the logarithm of each row's sum, and from
// cotangents of both the gradient of every operand. It is written from the sums alone and knows no tiles:
//
//     x(i, j) = bound(dot * scale) + slope * (i - j) + column[j] + table[i - j]
//     bound(a) = cap tanh(a / cap)
//     softmax: w = exp(x) / (exp(sink) + sum_j exp(x));  else w = 1 / (1 + exp(-x))
//     y_i = sum_j w(i, j) v_j
//
// Keys: those of the call, j = 0 ..., of a history, j = -history ... -1, and of a prefix, which has no
// distance and no conditions but that of the length.
#ifndef ATTENTION_DEVICE_PAIRS_H
#define ATTENTION_DEVICE_PAIRS_H

#include "../emulator/judge.h"

enum {
    CAUSAL = 1,
    WINDOW = 2,
    DOCUMENTS = 4,
    CAP = 8,
    SLOPE = 16,
    COLUMN = 32,
    TABLE = 64,
    SINK = 128,
    WEIGHTS = 256
};

struct Sizes {
    int heads, group, steps, keys, values; // heads: of keys, of all sequences
    int history, prefix;
    int length; // steps and keys behind it take part in nothing
    int window;
    double scale, cap;
    int rows() const
    {
        return steps * group;
    }
    int places(int segment) const
    {
        return segment == 0 ? steps : segment == 1 ? history : prefix;
    }
    int distances() const
    {
        return steps + history;
    }
};

enum { SEGMENTS = 3 };

// By head and row (or key): q, y and dy have rows of group heads each step. The same struct has the
// gradients.
struct Operands {
    Numbers q, k[SEGMENTS], v[SEGMENTS], slope, column[SEGMENTS], table, sink; // slope, sink: by head and row
    std::vector<int> document; // of the history's keys, then of the steps
};
struct Results {
    Numbers y, log_sum;
};

static inline Operands operands_like(unsigned facts, const Sizes &n)
{
    Operands x;
    const size_t heads = (size_t)n.heads, rows = heads * (size_t)n.rows();
    x.q.assign(rows * (size_t)n.keys, 0.0);
    for (int s = 0; s < SEGMENTS; s++) {
        x.k[s].assign(heads * (size_t)(n.places(s) * n.keys), 0.0);
        x.v[s].assign(heads * (size_t)(n.places(s) * n.values), 0.0);
        x.column[s].assign(facts & COLUMN ? heads * (size_t)n.places(s) : 0, 0.0);
    }
    x.slope.assign(facts & SLOPE ? rows : 0, 0.0);
    x.sink.assign(facts & SINK ? rows : 0, 0.0);
    x.table.assign(facts & TABLE ? heads * (size_t)n.distances() : 0, 0.0);
    return x;
}

class Pairs
{
    const unsigned facts;
    const Sizes &n;
    const Operands &x;
    const Results &cotangents;
    Blur blur;
    Results &to;
    Operands &gradients;

    bool there(int head, int i, int segment, int j) const
    {
        (void)head;
        if (i >= n.length)
            return false;
        if (segment == 2)
            return true;
        if (j >= n.length || ((facts & CAUSAL) && j > i) || ((facts & WINDOW) && i - j >= n.window))
            return false;
        return !(facts & DOCUMENTS) ||
               x.document[(size_t)(i + n.history)] == x.document[(size_t)(j + n.history)];
    }
    struct Pair {
        int segment, place, j;
        double dot, score, weight;
    };
    static double dot(const double *a, const double *b, int count)
    {
        double sum = 0;
        for (int e = 0; e < count; e++)
            sum += a[e] * b[e];
        return sum;
    }
    bool finite(double v) const
    {
        return v - v == 0;
    }

    void one(int head, int row)
    {
        const int i = row / n.group;
        const size_t at = (size_t)head * (size_t)n.rows() + (size_t)row, K = (size_t)n.keys,
                     V = (size_t)n.values;
        const double *const q = &x.q[at * K], *const dy = &cotangents.y[at * V];
        std::vector<Pair> pairs;
        double high = facts & SINK ? x.sink[at] : -INFINITY;
        for (int s = 0; s < SEGMENTS; s++)
            for (int p = 0; p < n.places(s); p++) {
                const int j = s == 1 ? p - n.history : p;
                if (!there(head, i, s, j))
                    continue;
                const size_t key = (size_t)head * (size_t)n.places(s) + (size_t)p;
                const double a = blur.of(dot(q, &x.k[s][key * K], n.keys));
                double score = a * n.scale;
                if (facts & CAP)
                    score = n.cap * tanh(score / n.cap);
                if ((facts & SLOPE) && s < 2)
                    score += x.slope[at] * (i - j);
                if (facts & COLUMN)
                    score += x.column[s][key];
                if ((facts & TABLE) && s < 2)
                    score += x.table[(size_t)head * (size_t)n.distances() + (size_t)(i - j)];
                score = blur.of(score);
                pairs.push_back({ s, p, j, a, score, 0 });
                high = fmax(high, score);
            }
        double sum = facts & SINK ? exp(x.sink[at] - high) : 0;
        for (Pair &p : pairs)
            sum += p.score == -INFINITY ? 0 : exp(p.score - high);
        std::vector<double> y(V, 0.0);
        for (Pair &p : pairs) {
            if (facts & WEIGHTS)
                p.weight = 1 / (1 + exp(-p.score));
            else
                p.weight = p.score == -INFINITY ? 0 : exp(p.score - high) / sum;
            p.weight = blur.of(p.weight);
            const size_t key = (size_t)head * (size_t)n.places(p.segment) + (size_t)p.place;
            for (size_t e = 0; e < V; e++)
                y[e] += p.weight * x.v[p.segment][key * V + e];
        }
        for (size_t e = 0; e < V; e++)
            to.y[at * V + e] = y[e] = blur.of(y[e]);
        to.log_sum[at] = sum > 0 ? high + log(sum) : -INFINITY;
        const double d =
            facts & WEIGHTS ? 0 : dot(y.data(), dy, n.values) - (sum > 0 ? cotangents.log_sum[at] : 0);
        if (facts & SINK)
            gradients.sink[at] = -exp(x.sink[at] - high) / sum * d;
        for (const Pair &p : pairs) {
            const size_t key = (size_t)head * (size_t)n.places(p.segment) + (size_t)p.place;
            const double dw = dot(dy, &x.v[p.segment][key * V], n.values);
            double ds = blur.of(facts & WEIGHTS ? p.weight * (1 - p.weight) * dw : p.weight * (dw - d));
            if (p.score == -INFINITY)
                ds = 0;
            for (size_t e = 0; e < V; e++)
                gradients.v[p.segment][key * V + e] += p.weight * dy[e];
            if ((facts & SLOPE) && p.segment < 2)
                gradients.slope[at] += ds * (i - p.j);
            if (facts & COLUMN)
                gradients.column[p.segment][key] += ds;
            if ((facts & TABLE) && p.segment < 2)
                gradients.table[(size_t)head * (size_t)n.distances() + (size_t)(i - p.j)] += ds;
            if (facts & CAP) {
                const double t = tanh(p.dot * n.scale / n.cap);
                ds *= 1 - t * t;
            }
            ds *= n.scale;
            for (size_t e = 0; e < K; e++) {
                gradients.q[at * K + e] += ds * x.k[p.segment][key * K + e];
                gradients.k[p.segment][key * K + e] += ds * q[e];
            }
        }
    }

  public:
    Pairs(unsigned what, const Sizes &sizes, const Operands &operands, const Results &by, Blur errors,
          Results &results, Operands &back)
        : facts(what), n(sizes), x(operands), cotangents(by), blur(errors), to(results), gradients(back)
    {
        to.y.assign((size_t)(n.heads * n.rows() * n.values), 0.0);
        to.log_sum.assign((size_t)(n.heads * n.rows()), 0.0);
        gradients = operands_like(facts, n);
        for (int head = 0; head < n.heads; head++)
            for (int row = 0; row < n.rows(); row++)
                one(head, row);
    }
};

#endif
