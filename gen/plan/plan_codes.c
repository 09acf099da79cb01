/* plan_codes.c: products of numbers of 8 bits as they are. In comes a plan with its products and storage;
 * out goes, for each product for all steps whose operands are copies of what is stored in 8 bits, how the
 * same product reads the codes themselves, or why it cannot (Codes). A launch plan has both ways, by a
 * condition on sizes and device (form_takes_codes), and leaves out copies that no product then reads
 * (form_copies_read). */
#include "base/mutate.h"
#include "plan_pass.h"

/* A number of f32 that is the same everywhere. */
static bool is_one_scale(const Plan *p, NodeId id)
{
    const Node *n = at(p, id);
    return n->kind == N_LOAD && n->nmap == 0 && !n->step && p->m->tensors.data[n->tensor].kind == T_PARAM &&
           p->m->tensors.data[n->tensor].dtype == DT_F32;
}

/* A tensor of 8 bits, at the array's own place. */
static bool is_own_code(const Plan *p, NodeId id, const Node *array)
{
    const Node *n = at(p, id);
    bool own = n->kind == N_LOAD && !n->step && n->nmap == array->naxes &&
               dtype_is_fp8(p->m->tensors.data[n->tensor].dtype);
    for (int i = 0; own && i < n->nmap; i++)
        own = n->map[i] == ix_index(p->m, array->axes[i]);
    return own;
}

/* What a copy for products is made of: codes times their scales. Is it that of one tensor; and has that one
 * scale? */
typedef struct Coded {
    bool is_codes, one_scale;
    TensorId tensor, scale;
} Coded;

static Coded source_of(const Plan *p, const Read *r)
{
    const Node *array = r->is_tensor || !p->rounded[r->id] ? NULL : at(p, r->id);
    NodeId body = array ? array->args[0] : -1;
    while (body >= 0 && at(p, body)->kind == N_ARRAY)
        body = at(p, body)->args[0];
    const Node *mul = body >= 0 ? at(p, body) : NULL;
    if (!mul || mul->kind != N_MAP || mul->op != OP_MUL)
        return (Coded){ 0 };
    bool first = is_own_code(p, mul->args[0], array);
    NodeId code = mul->args[!first], scale = mul->args[first];
    if (!is_own_code(p, code, array))
        return (Coded){ 0 };
    return (Coded){ true, is_one_scale(p, scale), at(p, code)->tensor,
                    at(p, scale)->kind == N_LOAD ? at(p, scale)->tensor : -1 };
}

/* cuBLASLt takes operands of which the sum goes along rows. */
static bool along_sum(const Gemm *x)
{
    return poly_is_one(x->a.col) && poly_is_one(x->b.row);
}

static const char *find_operands(Plan *p, const Group *g, const Coded *a, const Coded *b, Gemm *to)
{
    const Module *m = p->m;
    if (!a->one_scale || !b->one_scale)
        return "scales of blocks are no scales of cuBLASLt's here";
    if (m->tensors.data[a->tensor].dtype == DT_E5M2 && m->tensors.data[b->tensor].dtype == DT_E5M2)
        return "cuBLASLt multiplies no two operands of e5m2";
    if (p->request->products == PRODUCTS_PLAIN)
        return "--products plain";
    if (!codes_contraction(p, g->arrays.data[0], a->tensor, b->tensor, to) || to->m != g->gemm.m ||
        to->n != g->gemm.n || to->k != g->gemm.k || to->batch != g->gemm.batch)
        return "the codes do not lie as their copies do";
    return along_sum(to) ? NULL : "an operand's last axis is not the one that is summed over";
}

static void find_codes_of(Plan *p, Group *g)
{
    Coded a = source_of(p, &g->gemm.a.read), b = source_of(p, &g->gemm.b.read);
    if (!a.is_codes || !b.is_codes)
        return;
    Gemm x;
    Codes *codes = arena_alloc(p->m->arena, sizeof *codes);
    *codes = (Codes){ .why_not = find_operands(p, g, &a, &b, &x) };
    if (!codes->why_not) {
        codes->a = x.a;
        codes->b = x.b;
        codes->scale[0] = a.scale;
        codes->scale[1] = mutate("other-scale") ? a.scale : b.scale;
    }
    g->gemm.codes = codes;
}

void find_codes(Plan *p)
{
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < p->program[d].groups.len; i++) {
            Group *g = &p->program[d].groups.data[i];
            if (g->kind == G_GEMM && g->phase != PHASE_DURING && (p->dtype == DT_BF16 || p->dtype == DT_F16))
                find_codes_of(p, g);
        }
}

bool takes_codes(const Gemm *g)
{
    return g->codes && !g->codes->why_not;
}

static bool walk_reads(const Group *g, NodeId id)
{
    for (int i = 0; g->walk && i < g->walk->refs.len; i++)
        if (g->walk->refs.data[i].kind == REF_NODE && g->walk->refs.data[i].id == id)
            return true;
    return false;
}

static bool same_array(const GemmSide *s, NodeId id)
{
    return !s->read.is_tensor && s->read.id == id;
}

/* Is the copy read by such products alone? */
static bool only_products_read(const Program *pr, NodeId id)
{
    for (int i = 0; i < pr->groups.len; i++) {
        const Group *g = &pr->groups.data[i];
        bool product = g->kind == G_GEMM && (same_array(&g->gemm.a, id) || same_array(&g->gemm.b, id));
        if (product ? !takes_codes(&g->gemm) : group_reads(g, id) || walk_reads(g, id))
            return false;
    }
    return true;
}

bool copies_codes(const Plan *p, const Program *pr, const Group *g)
{
    bool any = false;
    for (int i = 0; i < g->arrays.len && g->kind == G_MAP; i++) {
        NodeId id = g->arrays.data[i];
        const Storage *st = &pr->node[id];
        if (st->home == HOME_NONE)
            continue;
        Read own = { .id = id };
        if (st->home == HOME_ARG || st->alias_offset || !source_of(p, &own).is_codes ||
            !only_products_read(pr, id))
            return false;
        any = true;
    }
    return any && !g->fused;
}
