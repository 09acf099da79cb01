/* packed.c: packed sequences against each of them alone, and against two pieces of each, as generated C in double. In: two
 * shared objects, a cell with --packed and the same cell without, and the name of their instance function. Guaranteed when
 * it passes: outputs, final states, gradients of inputs and of what a sequence was given are those of a call with this one
 * sequence; gradients of params are the sums, up to their roundings; and so it is when the sequences are cut, the states
 * carried to the second piece and their gradients back to the first (truncated backpropagation that truncates nothing).
 * Sequences without steps leave what they were given, and calls without sequences or steps change nothing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

enum { MOST = 5 };
typedef struct Batch { int64_t n, steps[MOST]; } Batch;

static const double NEAR = 1e-12;             /* other orders of a few dozen terms, of numbers near 1 */

static int64_t total_of(const Batch *s)
{
    int64_t total = 0;
    for (int64_t b = 0; b < s->n; b++)
        total += s->steps[b];
    return total;
}

static int64_t longest_of(const Batch *s)
{
    int64_t longest = 0;
    for (int64_t b = 0; b < s->n; b++)
        longest = s->steps[b] > longest ? s->steps[b] : longest;
    return longest;
}

static void sizes_of(const cell_desc *d, const Batch *s, int64_t *sizes)
{
    calls_sizes(d, s->n, longest_of(s), sizes);
    sizes[d->total] = total_of(s);
}

static int64_t first_row(const Batch *s, int64_t b)
{
    const Batch before = { .n = b, .steps = { s->steps[0], s->steps[1], s->steps[2], s->steps[3], s->steps[4] } };
    return total_of(&before);
}

static void draw(const List *l, Args *a, const Batch *s, const List *forward, const Args *known)
{
    for (int i = 0; i < l->n; i++) {
        if (arg_is_written(l, i) || (known && calls_known(l, i, a, forward, known)))
            continue;
        for (int64_t k = 0; k < a->n[i]; k++)
            if (arg_kind(l, i) == CELL_STARTS)
                ((int32_t *)(void *)a->p[i])[k] = (int32_t)first_row(s, k);
            else
                a->p[i][k] = 0.5 * calls_uniform();
    }
}

static int same_arg(const List *from, int i, const List *to)
{
    for (int k = 0; k < to->n; k++)
        if (to->arg[k].role == from->arg[i].role && strcmp(arg_name(to, k), arg_name(from, i)) == 0)
            return k;
    return -1;
}

static void compare(const List *l, int i, const double *got, const double *want, int64_t n, const char *what)
{
    double size = 0;
    bool near = true;
    for (int64_t k = 0; k < n; k++)
        size = fmax(size, fabs(want[k]));
    for (int64_t k = 0; k < n; k++)
        near &= fabs(got[k] - want[k]) <= NEAR * fmax(size, 1);
    calls_verdict(l, i, near, what);
}

/* ---- each sequence alone */

typedef struct Pair { List packed, plain; } Pair;

/* Elements of an argument that belong to sequence b: where they begin among those of all, and how many. */
static int64_t part_of(const List *l, int i, const Args *a, const Batch *s, int64_t b, int64_t *n)
{
    int64_t rows = arg_is_timed(l, i) ? total_of(s) : s->n, row = rows ? a->n[i] / rows : 0;
    bool param = arg_kind(l, i) == CELL_PARAM;
    *n = param ? a->n[i] : arg_is_timed(l, i) ? s->steps[b] * row : row;
    return param ? 0 : arg_is_timed(l, i) ? first_row(s, b) * row : b * row;
}

static void take_part(const Pair *p, const Args *whole, const Batch *s, int64_t b, Args *one)
{
    for (int i = 0; i < p->packed.n; i++) {
        int k = same_arg(&p->packed, i, &p->plain);
        int64_t n;
        if (k < 0 || arg_is_written(&p->plain, k))
            continue;
        int64_t first = part_of(&p->packed, i, whole, s, b, &n);
        memcpy(one->p[k], whole->p[i] + first, sizeof(double) * (size_t)n);
    }
}

static void compare_parts(const Pair *p, const Args *whole, const Batch *s, const Args *one)
{
    for (int i = 0; i < p->packed.n; i++) {
        int k = same_arg(&p->packed, i, &p->plain);
        if (!arg_is_written(&p->packed, i) || (p->packed.arg[i].flags & CELL_ARG_IGNORED) || k < 0)
            continue;
        for (int64_t b = 0; b < s->n; b++) {
            int64_t n, first = part_of(&p->packed, i, whole, s, b, &n);
            if (arg_kind(&p->packed, i) != CELL_PARAM)
                compare(&p->packed, i, whole->p[i] + first, one[b].p[k], n, "alone there is another value or gradient");
            for (int64_t j = 0; b > 0 && arg_kind(&p->packed, i) == CELL_PARAM && j < n; j++)
                one[0].p[k][j] += one[b].p[k][j];
        }
        if (arg_kind(&p->packed, i) == CELL_PARAM && s->n)
            compare(&p->packed, i, whole->p[i], one[0].p[k], whole->n[i], "each alone, the sum differs: the gradient");
    }
}

static void check_alone(const Pair *f, const Pair *b, const Batch *s, const Args *fw, const Args *bw)
{
    const cell_desc *d = f->plain.d;
    Args fo[MOST], bo[MOST];
    for (int64_t k = 0; k < s->n; k++) {
        int64_t sizes[CELL_MAX_SIZES];
        calls_sizes(d, 1, s->steps[k], sizes);
        fo[k] = calls_room(&f->plain, sizes);
        bo[k] = calls_room(&b->plain, sizes);
        take_part(f, fw, s, k, &fo[k]);
        take_part(b, bw, s, k, &bo[k]);
        calls_run(d, sizes, &fo[k], &bo[k]);
    }
    compare_parts(f, fw, s, fo);
    compare_parts(b, bw, s, bo);
}

/* ---- two pieces of each sequence */

static bool is_reversed(const cell_desc *d)
{
    for (int k = 0; k < d->n_bindings; k++)
        if (strcmp(d->bindings[k].name, "reverse") == 0)
            return strcmp(d->bindings[k].value, "true") == 0;
    return false;
}

/* Rows of the pieces between the whole and a piece. later: the piece that is walked second. */
static void move_rows(const List *l, int i, Args *whole, const Batch *all, Args *piece, const Batch *own, bool later, bool in)
{
    int64_t row = total_of(all) ? whole->n[i] / total_of(all) : 0;
    for (int64_t b = 0; b < all->n; b++) {
        int64_t skipped = later != is_reversed(l->d) ? all->steps[b] - own->steps[b] : 0, n = own->steps[b] * row;
        double *w = whole->p[i] + (first_row(all, b) + skipped) * row, *p = piece->p[i] + first_row(own, b) * row;
        memcpy(in ? p : w, in ? w : p, sizeof(double) * (size_t)n);
    }
}

/* What a piece reads: rows of the whole, where it begins, and else what the whole is given. */
static void take_piece(const List *l, Args *whole, const Batch *all, Args *piece, const Batch *own, bool later)
{
    for (int i = 0; i < l->n; i++)
        if (arg_is_written(l, i))
            continue;
        else if (arg_is_timed(l, i))
            move_rows(l, i, whole, all, piece, own, later, true);
        else
            memcpy(piece->p[i], whole->p[i], arg_bytes(l, i) * (size_t)piece->n[i]);
    for (int i = 0; i < l->n; i++)
        for (int64_t b = 0; arg_kind(l, i) == CELL_STARTS && b <= own->n && l->arg[i].role == CELL_ROLE_VALUE; b++)
            ((int32_t *)(void *)piece->p[i])[b] = (int32_t)first_row(own, b);
}

/* States go from a piece's results to what the other is given. */
static void carry(const List *from, const Args *a, int from_role, const List *to, Args *b, int to_role)
{
    for (int i = 0; i < to->n; i++)
        for (int k = 0; k < from->n && to->arg[i].role == to_role && arg_kind(to, i) == CELL_STATE; k++)
            if (from->arg[k].role == from_role && strcmp(arg_name(from, k), arg_name(to, i)) == 0)
                memcpy(b->p[i], a->p[k], sizeof(double) * (size_t)b->n[i]);
}

static void compare_pieces(const List *l, Args *whole, const Batch *all, Args *piece, const Batch *own)
{
    for (int i = 0; i < l->n; i++) {
        if (!arg_is_written(l, i) || l->arg[i].flags & CELL_ARG_IGNORED)
            continue;
        bool param = arg_kind(l, i) == CELL_PARAM, final = l->arg[i].role == CELL_ROLE_FINAL;
        double *room = calloc((size_t)whole->n[i] + 1, sizeof *room);
        Args joined = { 0 };
        joined.n[i] = whole->n[i];
        joined.p[i] = room;
        for (int64_t k = 0; param && k < whole->n[i]; k++)
            room[k] = piece[0].p[i][k] + piece[1].p[i][k];
        for (int later = 0; arg_is_timed(l, i) && later < 2; later++)
            move_rows(l, i, &joined, all, &piece[later], &own[later], later, false);
        if (!param && !arg_is_timed(l, i))
            memcpy(room, piece[final].p[i], sizeof(double) * (size_t)whole->n[i]);
        compare(l, i, room, whole->p[i], whole->n[i], "in pieces there is another value or gradient");
        free(room);
    }
}

static void check_pieces(const List *f, const List *b, const Batch *all, Args *fw, Args *bw)
{
    Batch own[2] = { { .n = all->n }, { .n = all->n } };
    Args fp[2], bp[2];
    void *reserve[2];
    int64_t sizes[2][CELL_MAX_SIZES];
    bool ok = true;
    for (int64_t k = 0; k < all->n; k++) {
        own[0].steps[k] = all->steps[k] / 2;
        own[1].steps[k] = all->steps[k] - own[0].steps[k];
    }
    for (int later = 0; later < 2; later++) {
        sizes_of(f->d, &own[later], sizes[later]);
        fp[later] = calls_room(f, sizes[later]);
        bp[later] = calls_room(b, sizes[later]);
        take_piece(f, fw, all, &fp[later], &own[later], later);
        take_piece(b, bw, all, &bp[later], &own[later], later);
        reserve[later] = calls_reserve(f->d, sizes[later]);
        if (later) {
            carry(f, &fp[0], CELL_ROLE_FINAL, f, &fp[1], CELL_ROLE_VALUE);
            carry(f, &fp[0], CELL_ROLE_FINAL, b, &bp[1], CELL_ROLE_VALUE);
        }
        ok &= f->d->ref_forward(sizes[later], (void *const *)fp[later].p, reserve[later], 0) == CELL_OK;
    }
    for (int later = 1; later >= 0; later--) {
        if (!later)
            carry(b, &bp[1], CELL_ROLE_D_VALUE, b, &bp[0], CELL_ROLE_D_FINAL);
        ok &= b->d->ref_backward(sizes[later], (void *const *)bp[later].p, reserve[later], 0) == CELL_OK;
    }
    calls_verdict(f, 0, ok, "a piece fails: the call");
    compare_pieces(f, fw, all, fp, own);
    compare_pieces(b, bw, all, bp, own);
}

int main(int argc, char **argv)
{
    static const Batch batches[] = { { 4, { 3, 0, 6, 1 } }, { 1, { 5 } }, { 5, { 0, 0, 2, 2, 0 } }, { 2, { 0, 0 } }, { 0, { 0 } } };
    if (argc != 5)
        return 2;
    const cell_desc *d = calls_load(argv[1], argv[3]), *plain = calls_load(argv[2], argv[3]);
    const Pair f = { calls_forward(d), calls_forward(plain) }, b = { calls_backward(d), calls_backward(plain) };
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        const Batch *s = &batches[i];
        int64_t sizes[CELL_MAX_SIZES];
        sizes_of(d, s, sizes);
        Args fw = calls_room(&f.packed, sizes), bw = calls_room(&b.packed, sizes);
        draw(&f.packed, &fw, s, NULL, NULL);
        draw(&b.packed, &bw, s, &f.packed, &fw);
        calls_run(d, sizes, &fw, &bw);
        check_alone(&f, &b, s, &fw, &bw);
        if (strcmp(argv[4], "pieces") == 0)
            check_pieces(&f.packed, &b.packed, s, &fw, &bw);
    }
    return calls_close(d);
}
