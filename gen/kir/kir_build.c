/* kir_build.c: expressions of the kernel IR. In come operands; out goes a node with its type, folded where
 * the operands are numbers. Nodes are immutable, so that one may stand in several places. What cannot be
 * (types that do not agree, a load of a number) is built all the same, and the verifier says it with the
 * statement that it is in. */
#include <math.h>
#include <string.h>

#include "kir.h"

const char *const kir_scalar_words[KT_COUNT] = { "void", "bool", "i32",  "u32", "i64", "bf16",
                                                 "f16",  "e4m3", "e5m2", "f32", "f64", "place" };
const char *const kir_special_words[KP_COUNT] = { "size",  "pointer", "table",      "step",     "adds",
                                                  "saves", "thread",  "threads",    "lane",     "warp",
                                                  "block", "blocks",  "first_item", "end_item", "scratch" };
const char *const kir_binary_words[KB_COUNT] = { "+", "-", "*", "/", "%", "<", "<=", ">", ">=", "==", "!=",
                                                 "&&", "||", "&" };

const KirFunction kir_functions[] = {
    { "cell_product_agree", 0, 4, 0, true, KIR_THREAD, KIR_BLOCK, KT_VOID },
    { "cell_product_ahead_agree", 0, 1, 0, true, KIR_THREAD, KIR_BLOCK, KT_VOID },
    { "cell_multiply", 11, 1, 1 << 4 | 1 << 9, true, KIR_BLOCK, KIR_BLOCK, KT_VOID },
    { "cell_multiply_ahead", 15, -2, 1 | 1 << 3 | 1 << 9 | 1 << 10 | 1 << 11, true, KIR_BLOCK, KIR_BLOCK,
      KT_VOID },
    { "cell_split_matrix", 6, 2, 1, true, KIR_BLOCK, KIR_BLOCK, KT_VOID },
    { "cell_sort_count", 6, 0, 4 | 32, true, KIR_THREAD, KIR_BLOCK, KT_VOID },
    { "cell_sort_scan", 3, 0, 1 | 4, true, KIR_BLOCK, KIR_BLOCK, KT_VOID },
    { "cell_sort_move", 6, 0, 2 | 32, true, KIR_THREAD, KIR_BLOCK, KT_VOID },
    { "cell_sort_half", 1, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_I64 },
    { "cell_sort_entry", 5, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_I64 },
    { "cell_shares", 1, 2, 0, false, KIR_THREAD, KIR_BLOCK, KT_I64 },
    { "cell_share", 3, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_I64 },
    { "cell_column_chunks", 2, 6, 0, false, KIR_THREAD, KIR_BLOCK, KT_I64 },
    { "cell_chunk_sum", 4, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_COUNT },
    { "cell_part_store", 2, 0, 1, true, KIR_THREAD, KIR_BLOCK, KT_VOID },
    { "cell_part_sums", 2, 0, 2, true, KIR_THREAD, KIR_THREAD, KT_VOID },
    { "cell_part_total", 1, 1, 0, false, KIR_THREAD, KIR_THREAD, KT_COUNT },
    { "cell_inside", 2, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_BOOL },
    { "cell_nearest", 2, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_I64 },
    { "cell_sequence_of", 3, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_I64 },
    { "cell_first_row", 3, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_I64 },
    { "cell_own_steps", 4, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_I64 },
    { "cell_floordiv", 2, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_I64 },
    { "cell_floormod", 2, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_I64 },
    { "cell_whole_sum", 2, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_I64 },
    { "cell_whole_difference", 2, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_I64 },
    { "cell_whole_product", 2, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_I64 },
    { "cell_mul", 2, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_COUNT },
    { "cell_fma", 3, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_COUNT },
    { "cell_max", 2, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_COUNT },
    { "cell_min", 2, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_COUNT },
    { "cell_fast_div", 2, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_COUNT },
    { "cell_row_lanes", 1, 1, 0, false, KIR_THREAD, KIR_BLOCK, KT_I32 },
    { "cell_fast_gelu_slope", 1, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_COUNT },
    { "cell_load_bits", 1, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_U32 },
    { "cell_load_two", 1, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_U32 },
    { "cell_from_bits", 1, 1, 0, false, KIR_THREAD, KIR_BLOCK, KT_F32 },
    { "cell_from_two", 2, 1, 0, false, KIR_THREAD, KIR_BLOCK, KT_F32 },
    { "cell_copy_word", -2, 0, 1, true, KIR_THREAD, KIR_BLOCK, KT_VOID },
    { "cell_copy_four", -2, 0, 1, true, KIR_WARP, KIR_BLOCK, KT_VOID },
    { "cell_place_in_fours", 0, 0, 0, false, KIR_THREAD, KIR_THREAD, KT_I32 },
    { "cell_prefetch", 1, 0, 0, true, KIR_THREAD, KIR_BLOCK, KT_VOID },
    { "cell_ahead", 2, 0, 0, true, KIR_THREAD, KIR_BLOCK, KT_VOID },
    { "cell_load_words", 2, 0, 1, true, KIR_THREAD, KIR_BLOCK, KT_VOID },
    { "cell_store_words", 2, 0, 1, true, KIR_THREAD, KIR_BLOCK, KT_VOID },
    { "cell_sort_places", 5, 0, 2 | 16, true, KIR_THREAD, KIR_BLOCK, KT_VOID },
    { "cell_place_end", 4, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_I64 },
    { "cell_place_begins", 3, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_BOOL },
    { "cell_lanes_sum", 1, 1, 0, false, KIR_THREAD, KIR_BLOCK, KT_COUNT },
    { "cell_lanes_prod", 1, 1, 0, false, KIR_THREAD, KIR_BLOCK, KT_COUNT },
    { "cell_lanes_max", 1, 1, 0, false, KIR_THREAD, KIR_BLOCK, KT_COUNT },
    { "cell_lanes_min", 1, 1, 0, false, KIR_THREAD, KIR_BLOCK, KT_COUNT },
    { "cell_shfl_xor", 2, 0, 0, false, KIR_WARP, KIR_THREAD, KT_COUNT },
    { "cell_shfl", 2, 0, 0, false, KIR_WARP, KIR_THREAD, KT_COUNT },
    { "cell_shfl_up", 2, 0, 0, false, KIR_WARP, KIR_THREAD, KT_COUNT },
    { "cell_shfl_down", 2, 0, 0, false, KIR_WARP, KIR_THREAD, KT_COUNT },
    { "cell_warp_sum", 1, 0, 0, false, KIR_WARP, KIR_WARP, KT_COUNT },
    { "cell_warp_prod", 1, 0, 0, false, KIR_WARP, KIR_WARP, KT_COUNT },
    { "cell_warp_max", 1, 0, 0, false, KIR_WARP, KIR_WARP, KT_COUNT },
    { "cell_warp_min", 1, 0, 0, false, KIR_WARP, KIR_WARP, KT_COUNT },
    { "cell_group_sum", 1, 1, 0, false, KIR_WARP, KIR_THREAD, KT_COUNT },
    { "cell_group_prod", 1, 1, 0, false, KIR_WARP, KIR_THREAD, KT_COUNT },
    { "cell_group_max", 1, 1, 0, false, KIR_WARP, KIR_THREAD, KT_COUNT },
    { "cell_group_min", 1, 1, 0, false, KIR_WARP, KIR_THREAD, KT_COUNT },
    { "cell_block_sum", -2, 0, ~0u, true, KIR_BLOCK, KIR_BLOCK, KT_VOID },
    { "cell_block_prod", -2, 0, ~0u, true, KIR_BLOCK, KIR_BLOCK, KT_VOID },
    { "cell_block_max", -2, 0, ~0u, true, KIR_BLOCK, KIR_BLOCK, KT_VOID },
    { "cell_block_min", -2, 0, ~0u, true, KIR_BLOCK, KIR_BLOCK, KT_VOID },
    { "cell_part_sum", 2, 0, 1, true, KIR_BLOCK, KIR_THREAD, KT_COUNT },
    { "cell_slots", 2, 1, 0, false, KIR_THREAD, KIR_BLOCK, KT_PLACE },
    { ".load", 3, 0, 1, true, KIR_THREAD, KIR_BLOCK, KT_VOID },
    { ".load_or_zero", 4, 0, 1, true, KIR_THREAD, KIR_BLOCK, KT_VOID },
    { ".values", 4, 0, 2, true, KIR_THREAD, KIR_BLOCK, KT_VOID },
    { ".values_or_zero", 5, 0, 2, true, KIR_THREAD, KIR_BLOCK, KT_VOID },
    { ".turn", 1, 0, 1, true, KIR_THREAD, KIR_BLOCK, KT_VOID },
    { ".open", 5, 0, 2, true, KIR_THREAD, KIR_BLOCK, KT_VOID },
    { ".close", 4, 0, 1, true, KIR_THREAD, KIR_BLOCK, KT_VOID },
    { ".flush", 4, 0, 0, true, KIR_THREAD, KIR_BLOCK, KT_VOID },
    { "cell_mma_load_a", 3, 0, 1, true, KIR_WARP, KIR_BLOCK, KT_VOID },
    { "cell_mma_load_b", 3, 0, 1, true, KIR_WARP, KIR_BLOCK, KT_VOID },
    { "cell_mma_load_c", 3, 0, 1, true, KIR_WARP, KIR_BLOCK, KT_VOID },
    { "cell_mma_store_c", 3, 0, 1, true, KIR_WARP, KIR_BLOCK, KT_VOID },
    { "cell_mma_zero", 1, 0, 1, true, KIR_WARP, KIR_BLOCK, KT_VOID },
    { "cell_assume", 1, 0, 0, true, KIR_THREAD, KIR_BLOCK, KT_VOID },
    { "cell_window_agree", 0, 2, 0, true, KIR_THREAD, KIR_BLOCK, KT_VOID },
    { "cell_window_row", 1, 0, 0, false, KIR_THREAD, KIR_THREAD, KT_I32 },
    { "cell_window_column", 1, 0, 0, false, KIR_THREAD, KIR_THREAD, KT_I32 },
    { "cell_window_multiply", 4, 2, 1, true, KIR_WARP, KIR_THREAD, KT_VOID },
    { "cell_window_weigh", 3, 2, 1, true, KIR_WARP, KIR_THREAD, KT_VOID },
    { "cell_window_put", 2, 0, 1, true, KIR_THREAD, KIR_THREAD, KT_VOID },
    { "cell_window_most", 2, 0, 1, true, KIR_BLOCK, KIR_THREAD, KT_COUNT },
    { "cell_window_total", 2, 0, 1, true, KIR_BLOCK, KIR_THREAD, KT_COUNT },
    { "cell_window_growth", 3, 0, 1, true, KIR_THREAD, KIR_THREAD, KT_COUNT },
    { "cell_window_rescale", 2, 0, 1, true, KIR_THREAD, KIR_THREAD, KT_VOID },
    { NULL, 0, 0, 0, false, KIR_THREAD, KIR_BLOCK, KT_VOID }
};

const KirFunction *kir_function(const char *name)
{
    for (const KirFunction *f = kir_functions; f->name; f++)
        if (strcmp(f->name, name) == 0)
            return f;
    return NULL;
}

/* ---- types ---- */

bool kir_writes(const KirFunction *f, int argument)
{
    return f->writes >> (argument < 31 ? argument : 31) & 1;
}

int kir_bytes(KirScalar of)
{
    static const int bytes[KT_COUNT] = { 0, 1, 4, 4, 8, 2, 2, 1, 1, 4, 8, 8 };
    return bytes[of];
}

KirType kir_value(KirScalar of)
{
    return (KirType){ .of = of };
}

KirType kir_global(KirScalar of, bool written)
{
    return (KirType){ .of = of, .space = KS_GLOBAL, .written = written };
}

bool kir_is_place(KirType t)
{
    return t.space == KS_GLOBAL || t.space == KS_SHARED;
}

bool kir_is_whole(KirScalar s)
{
    return s == KT_I32 || s == KT_U32 || s == KT_I64 || s == KT_PLACE;
}

bool kir_is_real(KirScalar s)
{
    return s == KT_F32 || s == KT_F64;
}

bool kir_same_type(KirType a, KirType b)
{
    return a.of == b.of && a.space == b.space && a.layout == b.layout;
}

/* ---- nodes ---- */

static KirExpr *node(Kir *k, KirKind kind, KirType type, const KirExpr *const *args, int n)
{
    KirExpr *e = arena_alloc(k->arena, sizeof *e + sizeof *e->args * (size_t)n);
    *e = (KirExpr){ .kind = kind, .type = type, .nargs = n };
    if (n) {
        e->args = (const KirExpr **)(e + 1);
        memcpy(e->args, args, sizeof *e->args * (size_t)n);
    }
    return e;
}

/* Small numbers are an int in C, and take the type of what they meet. */
const KirExpr *kir_whole(Kir *k, int64_t v)
{
    bool small = v >= 0 && v < KIR_SMALL;
    if (small && k->small[v])
        return k->small[v];
    KirExpr *e = node(k, KX_WHOLE, kir_value(v == (int32_t)v ? KT_I32 : KT_I64), NULL, 0);
    e->whole = v;
    if (small)
        k->small[v] = e;
    return e;
}

const KirExpr *kir_real(Kir *k, KirScalar type, double v)
{
    KirExpr *e = node(k, KX_REAL, kir_value(type), NULL, 0);
    e->real = v;
    return e;
}

const KirExpr *kir_truth(Kir *k, bool v)
{
    KirExpr *e = node(k, KX_TRUTH, kir_value(KT_BOOL), NULL, 0);
    e->whole = v;
    return e;
}

const KirExpr *kir_var(Kir *k, KirVar *v)
{
    KirExpr *e = node(k, KX_VAR, v->type, NULL, 0);
    e->var = v;
    return e;
}

const KirExpr *kir_special(Kir *k, KirSpecial s, int64_t which)
{
    static const KirScalar of[KP_COUNT] = { KT_I64,  KT_VOID, KT_VOID, KT_I64, KT_BOOL,
                                            KT_BOOL, KT_I32,  KT_I32,  KT_I32, KT_I32,
                                            KT_I64,  KT_I64,  KT_I64,  KT_I64, KT_VOID };
    bool place = s == KP_POINTER || s == KP_TABLE || s == KP_SCRATCH;
    KirType type = place ? kir_global(KT_VOID, s != KP_TABLE) : kir_value(of[s]);
    KirExpr *e = node(k, KX_SPECIAL, type, NULL, 0);
    e->op = (int)s;
    e->whole = which;
    return e;
}

bool kir_is_number(const KirExpr *e, int64_t v)
{
    return e->kind == KX_WHOLE && e->whole == v;
}

static KirScalar wider(KirScalar a, KirScalar b)
{
    if (a == b || b == KT_VOID)
        return a;
    if (kir_is_real(a) || kir_is_real(b))
        return a == KT_F64 || b == KT_F64 ? KT_F64 : KT_F32;
    if (a == KT_I64 || b == KT_I64 || a == KT_PLACE || b == KT_PLACE)
        return a == KT_I64 || b == KT_I64 ? KT_I64 : KT_PLACE;
    return a == KT_U32 || b == KT_U32 ? KT_U32 : KT_I32;
}

/* Of two whole numbers, unless it overflows or is none. */
static bool folded(KirBinary op, int64_t a, int64_t b, int64_t *v)
{
    switch (op) {
    case KB_ADD: return !__builtin_add_overflow(a, b, v);
    case KB_SUB: return !__builtin_sub_overflow(a, b, v);
    case KB_MUL: return !__builtin_mul_overflow(a, b, v);
    case KB_DIV: return a >= 0 && b > 0 && (*v = a / b, true);
    case KB_MOD: return a >= 0 && b > 0 && (*v = a % b, true);
    default: return false;
    }
}

const KirExpr *kir_binary(Kir *k, KirBinary op, const KirExpr *a, const KirExpr *b)
{
    int64_t v = 0;
    if (a->kind == KX_WHOLE && b->kind == KX_WHOLE && folded(op, a->whole, b->whole, &v))
        return kir_whole(k, v);
    if ((op == KB_ADD || op == KB_SUB) && kir_is_number(b, 0))
        return a;
    if ((op == KB_ADD && kir_is_number(a, 0)) || (op == KB_MUL && kir_is_number(a, 1)))
        return b;
    if ((op == KB_MUL || op == KB_DIV) && kir_is_number(b, 1))
        return a;
    if (op == KB_MUL && (kir_is_number(a, 0) || kir_is_number(b, 0)))
        return kir_whole(k, 0);
    if (op == KB_AND && (a->kind == KX_TRUTH || b->kind == KX_TRUTH) && (a->kind == KX_TRUTH ? a : b)->whole)
        return a->kind == KX_TRUTH ? b : a;
    KirType type;
    if (op >= KB_LT && op <= KB_OR)
        type = kir_value(KT_BOOL);
    else if (kir_is_place(a->type))
        type = a->type;
    else
        type = kir_value(wider(a->type.of, b->type.of));
    KirExpr *e = node(k, KX_BINARY, type, (const KirExpr *[]){ a, b }, 2);
    e->op = (int)op;
    return e;
}

const KirExpr *kir_neg(Kir *k, const KirExpr *a)
{
    return node(k, KX_NEG, a->type, &a, 1);
}

const KirExpr *kir_not(Kir *k, const KirExpr *a)
{
    return a->kind == KX_NOT && a->args[0]->type.of == KT_BOOL ? a->args[0]
        : node(k, KX_NOT, kir_value(KT_BOOL), &a, 1);
}

const KirExpr *kir_select(Kir *k, const KirExpr *c, const KirExpr *a, const KirExpr *b)
{
    KirType type = a->type;
    if (!kir_is_place(type))
        type.of = wider(a->type.of, b->type.of);
    else
        type.written &= b->type.written;
    return node(k, KX_SELECT, type, (const KirExpr *[]){ c, a, b }, 3);
}

const KirExpr *kir_convert(Kir *k, KirType to, const KirExpr *a)
{
    return node(k, KX_CONVERT, to, &a, 1);
}

const KirExpr *kir_load(Kir *k, KirAccess how, KirScalar as, const KirExpr *place)
{
    KirExpr *e = node(k, KX_LOAD, kir_value(how == KA_ELEMENT ? place->type.of : as), &place, 1);
    e->op = (int)how;
    return e;
}

const KirExpr *kir_element(Kir *k, const KirExpr *place, const KirExpr *at)
{
    bool row = place->kind == KX_VAR && place->var->rows;
    KirType type = row ? place->type : kir_value(place->type.of);
    KirExpr *e = node(k, KX_LOAD, type, (const KirExpr *[]){ place, at }, 2);
    e->op = KA_ELEMENT;
    return e;
}

KirVar *kir_array_var(const KirExpr *e)
{
    if (e->kind == KX_LOAD && e->nargs == 2 && e->type.space == KS_REGISTERS)
        e = e->args[0];
    return e->kind == KX_VAR && e->type.space == KS_REGISTERS ? e->var : NULL;
}

const KirExpr *kir_op(Kir *k, Op op, KirScalar gives, bool fast, const KirExpr *const *args, int n)
{
    KirExpr *e = node(k, KX_OP, kir_value(gives), args, n);
    e->op = (int)op;
    e->fast = fast && op_table[op].fast;
    return e;
}

const KirExpr *kir_call(Kir *k, const char *function, const KirTemplate *t, int nt,
                        const KirExpr *const *args, int n)
{
    const KirFunction *f = kir_function(function);
    KirScalar gives = !f ? KT_VOID : f->gives == KT_COUNT && n ? args[0]->type.of : f->gives;
    KirExpr *e = node(k, KX_CALL, kir_value(gives), args, n);
    KirTemplate *own = arena_alloc(k->arena, sizeof *own * (size_t)(nt + 1));
    for (int i = 0; i < nt; i++)
        own[i] = t[i];
    e->function = f;
    e->text = function;
    e->templates = own;
    e->ntemplates = nt;
    return e;
}

const KirExpr *kir_call1(Kir *k, const char *function, const KirExpr *a)
{
    return kir_call(k, function, NULL, 0, &a, 1);
}

const KirExpr *kir_call2(Kir *k, const char *function, const KirExpr *a, const KirExpr *b)
{
    return kir_call(k, function, NULL, 0, (const KirExpr *[]){ a, b }, 2);
}

const KirExpr *kir_applied(Kir *k, const KirExpr *function, const KirExpr *const *args, int n)
{
    KirExpr *e = node(k, KX_APPLY, kir_value(KT_VOID), args, n);
    e->var = function->var;
    return e;
}

const KirExpr *kir_null(Kir *k, KirType type)
{
    return node(k, KX_NULL, type, NULL, 0);
}

const KirExpr *kir_text(Kir *k, KirScalar type, const char *text)
{
    KirExpr *e = node(k, KX_TEXT, kir_value(type), NULL, 0);
    e->text = text;
    return e;
}

const KirExpr *kir_within(Kir *k, KirBlock *body, const KirExpr *value)
{
    KirExpr *e = node(k, KX_WITHIN, value->type, &value, 1);
    e->body = body;
    return e;
}

const int kir_binary_precedence[KB_COUNT] = { 7, 7, 8, 8, 8, 6, 6, 6, 6, 5, 5, 3, 2, 4 };

int kir_precedence(const KirExpr *e)
{
    switch (e->kind) {
    case KX_SELECT: return 1;
    case KX_BINARY: return kir_binary_precedence[e->op];
    case KX_NEG: case KX_NOT: case KX_CONVERT: return 9;
    default: return 10;
    }
}

/* ---- with other variables */

static void replace_in(Kir *k, KirBlock *to, const KirBlock *from, const KirReplaced *r, int n);

/* Under a truth a statement stands alone. */
static void replace_statement(Kir *k, KirBlock *to, const KirStmt *s, const KirReplaced *r, int n)
{
    KirStmt *own = arena_alloc(k->arena, sizeof *own);
    *own = *s;
    for (int j = 0; j < 3; j++)
        own->x[j] = s->x[j] ? kir_replaced(k, s->x[j], r, n) : NULL;
    if (s->kind == KI_IF && own->x[0]->kind == KX_TRUTH) {
        replace_in(k, to, own->x[0]->whole ? &s->body : &s->other, r, n);
        return;
    }
    own->body = own->other = (KirBlock){ .data = NULL };
    replace_in(k, &own->body, &s->body, r, n);
    replace_in(k, &own->other, &s->other, r, n);
    vec_push(k->arena, to, own);
}

static void replace_in(Kir *k, KirBlock *to, const KirBlock *from, const KirReplaced *r, int n)
{
    for (int i = 0; i < from->len; i++)
        replace_statement(k, to, from->data[i], r, n);
}

void kir_append_replaced(Kir *k, const KirBlock *statements, const KirReplaced *r, int n)
{
    replace_in(k, k->at, statements, r, n);
}

const KirExpr *kir_replaced(Kir *k, const KirExpr *e, const KirReplaced *r, int n)
{
    for (int i = 0; e->kind == KX_VAR && i < n; i++)
        if (r[i].from == e->var)
            return r[i].to;
    if (e->nargs == 0 && !e->body)
        return e;
    KirExpr *own = node(k, e->kind, e->type, e->args, e->nargs);
    const KirExpr **args = own->args;
    *own = *e;
    own->args = args;
    for (int i = 0; i < e->nargs; i++)
        args[i] = kir_replaced(k, e->args[i], r, n);
    if (e->kind == KX_SELECT && args[0]->kind == KX_TRUTH)
        return args[args[0]->whole ? 1 : 2];
    if (e->body) {
        own->body = arena_alloc(k->arena, sizeof *own->body);
        replace_in(k, own->body, e->body, r, n);
    }
    return own;
}

static void fold_expr(Kir *k, const KirExpr *e)
{
    for (int i = 0; e && i < e->nargs; i++)
        fold_expr(k, e->args[i]);
    bool number = e && e->kind == KX_BINARY && (e->args[0]->kind == KX_WHOLE || e->args[1]->kind == KX_WHOLE);
    if (number)
        *(KirExpr *)e = *kir_binary(k, (KirBinary)e->op, e->args[0], e->args[1]);
}

static void fold_statement(KirStmt *s, void *data)
{
    for (int i = 0; i < 3; i++)
        fold_expr(data, s->x[i]);
    if (s->var && s->var->count)
        fold_expr(data, s->var->count);
}

void kir_fold(Kir *k)
{
    kir_each(&k->body, fold_statement, k);
}
