/* declare.c: declarations -> symbols and tensors. In come dims, constants, options and data as the text has
 * them, with the settings of the command line; out go symbols in their scope and tensors in the module. Sizes
 * are whole and at least 1, options have one of their choices. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bind.h"
#include "words.h"

static Setting *find_setting(Setting *settings, int n, const char *name)
{
    Setting *found = NULL;
    for (int i = 0; i < n; i++)
        if (strcmp(settings[i].name, name) == 0) {
            found = &settings[i];
            found->used = true;
        }
    return found;
}

const Span no_span = { -1, 0, 0 };

/* What --dim says: a size, or 0 where a dim with a value is to be left to the run time. */
static bool set_dim(Flat *f, const Setting *set, int64_t *value)
{
    char *end;
    if (strcmp(set->value, "open") == 0)
        return true;
    *value = strtoll(set->value, &end, 10);
    if (!*end && end != set->value && *value >= 1 && *value <= 1 << 28)
        return true;
    FLAT_ERROR(f, NULL, no_span, "--dim %s=%s: a dim is a whole number from 1 to %d, or open", set->name, set->value,
               1 << 28);
    return false;
}

void declare_dim(Flat *f, Scope *scope, const Stmt *s, const CallSite *chain)
{
    Symbol *d = new_symbol(f, SYM_DIM, s->name, s->name_span, NULL);
    Setting *set = find_setting(f->c->dims.data, f->c->dims.len, s->name);
    int64_t value = 0;
    d->decl = s;
    if (set) {
        d->failed = !set_dim(f, set, &value);
    } else if (s->value) {
        d->failed = !fold_integer(f, s->value, scope, chain, "the size of a dim", &value);
        if (!d->failed && value < 1) {
            FLAT_ERROR(f, chain, s->value->span, "the size of dim '%s' is %lld, but a dim is at least 1",
                       s->name, (long long)value);
            d->failed = true;
        }
    }
    if (!declare(f, scope, d, chain))
        return;
    if (value >= 1 && !d->failed) {
        Setting bound = { s->name, intern_f(f->c, "%lld", (long long)value), true };
        vec_push(f->c->arena, &f->m->bound, bound);
        d->size = poly_const(f->m, value);
        return;
    }
    if (f->m->dims.len == MAX_USER_DIMS) {
        FLAT_ERROR(f, chain, s->name_span, "more than %d dims without a size", MAX_USER_DIMS);
        d->failed = true;
        return;
    }
    vec_push(f->c->arena, &f->m->dims, s->name);
    d->size = poly_dim(f->m, f->m->dims.len - 1);
}

void declare_const(Flat *f, Scope *scope, const Stmt *s, const CallSite *chain)
{
    Symbol *d = new_symbol(f, SYM_CONST, s->name, s->name_span, NULL);
    Setting *set = find_setting(f->c->sets.data, f->c->sets.len, s->name);
    d->decl = s;
    d->failed = !s->value || !fold_constant(f, s->value, scope, chain, &d->value);
    if (!d->failed && d->value.is_name) {
        FLAT_ERROR(f, chain, s->value->span, "constant '%s' must be a number", s->name);
        d->failed = true;
    }
    if (set) {
        char *end;
        d->value = (Constant){ .num = strtod(set->value, &end) };
        d->value.is_int = !strpbrk(set->value, ".eExXnN") && fabs(d->value.num) < 1e15;
        if (*end || isnan(d->value.num) || end == set->value || isspace((unsigned char)set->value[0])) {
            FLAT_ERROR(f, NULL, no_span, "--set %s=%s: constant '%s' needs a number", set->name, set->value,
                       s->name);
            FLAT_NOTE(f, s->name_span, "constant '%s' is declared here", s->name);
            d->failed = true;
        }
    }
    declare(f, scope, d, chain);
}

void declare_option(Flat *f, Scope *scope, const Stmt *s, const CallSite *chain)
{
    Symbol *d = new_symbol(f, SYM_OPTION, s->name, s->name_span, NULL);
    Setting *set = find_setting(f->c->sets.data, f->c->sets.len, s->name);
    const char *chosen = s->choices.len ? s->choices.data[0] : NULL;
    d->decl = s;
    for (int i = 1; i < s->choices.len; i++)
        for (int k = 0; k < i; k++)
            if (s->choices.data[i] == s->choices.data[k])
                FLAT_ERROR(f, chain, s->choice_spans.len > i ? s->choice_spans.data[i] : s->span,
                           "choice '%s' of option '%s' stands twice", s->choices.data[i], s->name);
    if (set) {
        chosen = NULL;
        for (int i = 0; i < s->choices.len; i++)
            if (strcmp(s->choices.data[i], set->value) == 0)
                chosen = s->choices.data[i];
        if (!chosen) {
            const char *near = suggest(set->value, (const char *const *)s->choices.data, s->choices.len), *list = "";
            for (int i = 0; i < s->choices.len; i++)
                list = intern_f(f->c, "%s%s%s", list, i ? ", " : "", s->choices.data[i]);
            FLAT_ERROR(f, NULL, no_span,
                       near ? "--set %s=%s: option '%s' has no such choice; did you mean '%s'?"
                            : "--set %s=%s: option '%s' has no such choice; it has %s",
                       set->name, set->value, s->name, near ? near : list);
            FLAT_NOTE(f, s->name_span, "option '%s' is declared here", s->name);
        }
    }
    if (!chosen && s->choices.len)
        chosen = s->choices.data[0];
    d->failed = !chosen;
    d->value = (Constant){ .is_name = true, .name = chosen };
    if (declare(f, scope, d, chain) && chosen) {
        Setting in_force = { s->name, chosen, true };
        vec_push(f->c->arena, &f->m->options, in_force);
    }
}

static bool may_be_integer(Flat *f, const Stmt *s)
{
    if (s->kind == S_INPUT)
        return true;
    FLAT_ERROR(f, NULL, s->text_span, "only inputs can be integers, but '%s' is %s", s->name,
               kind_name(data_kind(s->kind)));
    return false;
}

/* The types of complex tensors, as pairs of which type. `complex` is what --dtype gives; pairs of 16-bit
 * numbers are hardly known elsewhere, so those of bf16 and f16 are of f32. */
static bool complex_type(const Flat *f, const char *name, Dtype *out)
{
    if (strcmp(name, "complex") == 0)
        *out = f->c->dtype == DT_F64 ? DT_F64 : DT_F32;
    else if (strcmp(name, "c64") == 0 || strcmp(name, "c128") == 0)
        *out = strcmp(name, "c64") == 0 ? DT_F32 : DT_F64;
    else
        return false;
    return true;
}

enum { N_TYPES = 14 };
static const char *const type_names[N_TYPES] = { "f32",     "bf16",    "f16",      "f64",     "i32",
                                                 "c64",     "c128",    "complex",  "e4m3",    "e5m2",
                                                 "e4m3_32", "e5m2_32", "e4m3_128", "e5m2_128" };

const char *tensor_type_at(int i)
{
    return i < N_TYPES ? type_names[i] : NULL;
}

bool is_tensor_type(const char *name)
{
    for (int i = 0; i < N_TYPES; i++)
        if (strcmp(name, type_names[i]) == 0)
            return true;
    return false;
}

/* Numbers of 8 bits beside scales: of what the call gives, and has no other use for. */
static bool fp8_type(Flat *f, const Stmt *s, Tensor *t)
{
    int block = fp8_block(s->text);
    t->dtype = strncmp(s->text, "e4m3", 4) == 0 ? DT_E4M3 : DT_E5M2;
    if (s->kind == S_INPUT || s->kind == S_PARAM) {
        if (block == 0 || s->axes.len)
            return true;
        FLAT_ERROR(f, NULL, s->text_span, "blocks of type '%s' lie along the last axis, but '%s' has none",
                   s->text, s->name);
        return false;
    }
    FLAT_ERROR(
        f, NULL, s->text_span,
        s->kind == S_OUTPUT
            ? "type '%s' is for inputs and params; output '%s' would need a scale that the cell chooses"
            : "type '%s' is for inputs and params; state '%s' is kept in the type of the arithmetic",
        s->text, s->name);
    return false;
}

static bool parse_type(Flat *f, const Stmt *s, Tensor *t)
{
    t->complex = complex_type(f, s->text, &t->dtype);
    if (t->complex)
        return true;
    for (int i = 0; i < 5; i++)
        if (strcmp(s->text, type_names[i]) == 0) {
            t->dtype = (Dtype)i;
            return i != DT_I32 || may_be_integer(f, s);
        }
    if (fp8_block(s->text) >= 0)
        return fp8_type(f, s, t);
    if (strcmp(s->text, "dtype") == 0) {
        FLAT_ERROR(f, NULL, s->text_span, s->kind == S_STATE ? "': dtype' is for definitions; '%s' is kept in the type of the arithmetic"
                   : "': dtype' is for definitions; without a type, '%s' is what --dtype makes it", s->name);
        return false;
    }
    const char *here = foreign_type(s->text);
    if (here) {
        FLAT_ERROR(f, NULL, s->text_span,
                   *here ? "unknown type '%s'; write %s"
                         : "unknown type '%s'; leave it out: all values are numbers",
                   s->text, here);
        return false;
    }
    const Symbol *size = scope_find(f->scope, s->text);
    if (size && size->kind == SYM_DIM) {
        FLAT_ERROR(f, NULL, s->text_span, "'%s' is a dim, not a type: axes stand in brackets, %s[%s]",
                   s->text, s->name, s->text);
        return false;
    }
    const char *near = suggest(s->text, type_names, N_TYPES);
    FLAT_ERROR(f, NULL, s->text_span,
               near ? "unknown type '%s'; did you mean '%s'?"
                    : "unknown type '%s'; the types are f32, bf16, f16, f64, i32, c64, c128, complex, e4m3, "
                      "e5m2, and these "
                      "two with _32 or _128 behind them",
               s->text, near);
    diag_fix(f->c, s->text_span, near);
    return false;
}

/* Does the product of what is known of the extents stay below 2^48 elements? */
bool fits(const Poly *const *axes, int rank)
{
    double elements = 1;
    for (int i = 0; i < rank; i++)
        elements *= axes[i]->is_const ? (double)axes[i]->value : 1;
    return elements <= (double)((int64_t)1 << 48);
}

void declare_axes(Flat *f, Symbol *d, const Stmt *s, const Scope *scope, const CallSite *chain)
{
    if (s->axes.len > MAX_AXES_OF_VALUE) {
        FLAT_ERROR(f, chain, s->span, "'%s' has %d axes; at most %d are possible", s->name, s->axes.len,
                   MAX_AXES_OF_VALUE);
        d->failed = true;
        return;
    }
    d->rank = s->axes.len;
    d->declared = true;
    const Poly **axes = arena_alloc(f->c->arena, sizeof *axes * (size_t)(d->rank + 1));
    Span *spans = arena_alloc(f->c->arena, sizeof *spans * (size_t)(d->rank + 1));
    for (int i = 0; i < d->rank; i++) {
        spans[i] = s->axes.data[i]->span;
        axes[i] = fold_extent(f, s->axes.data[i], scope, chain);
        if (!axes[i]) {
            d->failed = true;
            continue;
        }
        d->failed |= !require_positive(f, axes[i], spans[i], chain);
    }
    if (!d->failed && !fits(axes, d->rank)) {
        FLAT_ERROR(f, chain, s->span, "'%s' has more than 2^48 elements", s->name);
        d->failed = true;
    }
    d->axes = axes;
    d->axis_spans = spans;
}

static Symbol *derived_symbol(Flat *f, SymbolKind kind, const Symbol *of, SymbolVec *out)
{
    Symbol *n = new_symbol(f, kind, of->name, of->span, of->owner);
    n->decl = of->decl;
    n->chain = of->chain;
    n->rank = of->rank;
    n->axes = of->axes;
    n->axis_spans = of->axis_spans;
    n->declared = true;
    n->failed = of->failed;
    n->used = true;
    n->tensor = of->tensor;
    n->is_complex = of->is_complex;
    vec_push(f->c->arena, out, n);
    return n;
}

/* The axis of the real and the imaginary part, which only the tensor has. */
static void add_parts(Flat *f, Symbol *d, Tensor *t)
{
    d->is_complex = true;
    if (d->rank == MAX_AXES_OF_VALUE) {
        FLAT_ERROR(f, NULL, d->decl->span, "'%s' has %d axes; at most %d are possible where it is complex", d->name,
                   d->rank, MAX_AXES_OF_VALUE - 1);
        d->failed = true;
    }
    if (!d->failed)
        t->axes[t->rank++] = poly_const(f->m, 2);
}

/* The declaration with the type that --dtype-of gives it. Complex values, integers and flags have no other
 * one. */
static const Stmt *retyped(Flat *f, const Stmt *s)
{
    static const char *const floats[] = { "f32", "bf16", "f16", "f64" };
    Setting *set = s->kind == S_INPUT || s->kind == S_PARAM
                       ? find_setting(f->c->types.data, f->c->types.len, s->name)
                       : NULL;
    Dtype of;
    if (!set)
        return s;
    set->used = true;
    bool known = fp8_block(set->value) >= 0;
    for (int i = 0; i < 4; i++)
        known |= strcmp(set->value, floats[i]) == 0;
    if (!known) {
        FLAT_ERROR(f, NULL, no_span,
                   "--dtype-of %s=%s: a type is one of f32, bf16, f16, f64, e4m3, e5m2, and these two with "
                   "_32 or _128 behind them",
                   set->name, set->value);
        return s;
    }
    if (s->text && (strcmp(s->text, "i32") == 0 || complex_type(f, s->text, &of))) {
        FLAT_ERROR(f, NULL, no_span, "--dtype-of %s=%s: '%s' is of real numbers only", set->name, set->value,
                   set->value);
        FLAT_NOTE(f, s->text_span, "'%s' is declared as %s here", s->name, s->text);
        return s;
    }
    Stmt *t = arena_alloc(f->c->arena, sizeof *t);
    *t = *s;
    t->text = set->value;
    t->text_span = s->name_span;
    return t;
}

static void declare_scales(Flat *f, Scope *scope, const Stmt *s, Symbol *of, SymbolVec *out)
{
    const Stmt *scales = ast_scales(f->c, s);
    int errors = f->c->errors, before = out->len;
    declare_data(f, scope, scales, out);
    if (f->c->errors > errors)
        FLAT_NOTE(f, s->text_span, "the scales of '%s', which is of type %s, are called '%s'", s->name,
                  s->text, scales->name);
    of->block = fp8_block(s->text);
    of->scale = out->len > before ? out->data[before] : NULL;
    if (of->scale)
        of->scale->used = true;
    else
        of->failed = true;
}

void declare_data(Flat *f, Scope *scope, const Stmt *declared, SymbolVec *out)
{
    const Stmt *s = retyped(f, declared);
    static const TensorKind kinds[] = { T_INPUT, T_PARAM, T_STATE, T_OUTPUT };
    SymbolKind kind = data_kind(s->kind);
    Symbol *d = new_symbol(f, kind, s->name, s->name_span, NULL);
    Tensor t = { .name = s->name,
                 .kind = kinds[kind - SYM_INPUT],
                 .of = -1,
                 .no_grad = s->is_const || s->kind == S_RESET,
                 .dtype = f->c->dtype,
                 .span = s->name_span };
    d->decl = s;
    declare_axes(f, d, s, scope, NULL);
    if (s->text && !parse_type(f, s, &t))
        d->failed = true;
    t.no_grad |= t.dtype == DT_I32;
    if (kind == SYM_STATE)
        t.dtype = f->c->dtype == DT_F64 ? DT_F64 : DT_F32;
    if (s->kind == S_PARAM && s->init)
        read_initialiser(f, s, scope, &t);
    t.rank = d->rank;
    read_domain(f, s, scope, &t);
    t.axes = (const Poly **)(uintptr_t)d->axes;
    if (t.complex)
        add_parts(f, d, &t);
    if (!declare(f, scope, d, NULL))
        return;
    d->tensor = module_tensor(f->m, t);
    if (kind == SYM_STATE) {
        d->next = derived_symbol(f, SYM_NEXT, d, out);
        if (s->init) {
            d->init = derived_symbol(f, SYM_INIT, d, out);
            add_equation(f, d->init, s, ast_initial(f->c, s->init), scope, NULL);
        }
    }
    if (kind == SYM_OUTPUT || s->kind == S_RESET)
        d->used = true;
    if (s->kind == S_RESET)
        vec_push(f->c->arena, &f->resets, d);
    vec_push(f->c->arena, out, d);
    if (dtype_is_fp8(t.dtype) && !d->failed)
        declare_scales(f, scope, s, d, out);
}
