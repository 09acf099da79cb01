/* words.c: what other languages and papers write, and what a spec says in its place. In: a name, a function or a character
 * that the language does not have. Out: the end of the message, or NULL. It knows nothing of the spec: that a name is unknown
 * was found before. */
#include <string.h>
#include <strings.h>

#include "words.h"

typedef struct Word { const char *foreign, *here; } Word;

#define PRODUCT "a product is a sum over an index, as in sum[j] W[i,j] * h[j]"
#define EXCHANGE "nothing is transposed: exchange the indices where the value is read, as in W[j,i]"
#define JOIN "values are joined by a condition on the index, as in i < N ? a[i] : b[i - N]"
#define PLACES "nothing is reshaped: the indices say which place is read, as in x[h*N + i]"
#define RANDOM "a cell draws no numbers: what is random is an input"

static const Word functions[] = {
    {"matmul", PRODUCT},         {"mm", PRODUCT},            {"bmm", PRODUCT},
    {"mv", PRODUCT},             {"dot", PRODUCT},           {"vdot", PRODUCT},
    {"inner", PRODUCT},          {"einsum", PRODUCT},        {"tensordot", PRODUCT},
    {"linear", PRODUCT},         {"outer", "an outer product has the indices of both, as in a[i] * b[j]"},
    {"transpose", EXCHANGE},     {"permute", EXCHANGE},      {"swapaxes", EXCHANGE},
    {"moveaxis", EXCHANGE},      {"t", EXCHANGE},            {"T", EXCHANGE},
    {"concat", JOIN},            {"concatenate", JOIN},      {"cat", JOIN},
    {"stack", JOIN},             {"hstack", JOIN},           {"vstack", JOIN},
    {"reshape", PLACES},         {"view", PLACES},           {"split", PLACES},
    {"chunk", PLACES},           {"flatten", PLACES},        {"unsqueeze", PLACES},
    {"squeeze", PLACES},         {"repeat", PLACES},         {"expand", PLACES},
    {"sigma", "write sigmoid(x)"},      {"logistic", "write sigmoid(x)"},  {"expit", "write sigmoid(x)"},
    {"logit", "write log(x / (1 - x))"}, {"swish", "write silu(x)"},        {"ln", "write log(x)"},
    {"power", "write x^2"},             {"square", "write x^2"},           {"fabs", "write abs(x)"},
    {"absolute", "write abs(x)"},       {"maximum", "write max(a, b)"},    {"minimum", "write min(a, b)"},
    {"fmax", "write max(a, b)"},        {"fmin", "write min(a, b)"},       {"arctan2", "write atan2(a, b)"},
    {"clip", "write clamp(x, lo, hi)"}, {"detach", "write stop(x)"},       {"stop_gradient", "write stop(x)"},
    {"reciprocal", "write 1/x"},        {"cumsum", "what adds up over steps is a state, over an index sum[j:N] (j <= i ? x[j] : 0)"},
    {"where", "a choice is written c ? a : b"},
    {"if", "a choice is written c ? a : b"},
    {"heaviside", "write x > 0 ? 1 : 0"},
    {"step", "write x > 0 ? 1 : 0"},
    {"norm", "write sqrt(sum[i] x[i]^2)"},
    {"rms_norm", "write rmsnorm(x)[i], with import \"std.cell\";"},
    {"layer_norm", "write layernorm(x)[i], with import \"std.cell\";"},
    {"normalize", "write l2norm(x)[i], with import \"std.cell\";"},
    {"std", "write sqrt(mean[i] (x[i] - m)^2) with m = mean[i] x[i]"},
    {"var", "write mean[i] (x[i] - m)^2 with m = mean[i] x[i]"},
    {"average", "write mean[i] x[i]"},
    {"argmax", "an index is no value: max[i] x[i] is the largest one"},
    {"relu6", "write clamp(x, 0, 6)"},
    {"dropout", "a mask is an input: const input mask[N], and y[i] = mask[i] * x[i]"},
    {"len", "a size is a dim, declared by dim N;"},
    {"shape", "a size is a dim, declared by dim N;"},
    {"zeros", "a constant is written as it is, 0"},
    {"ones", "a constant is written as it is, 1"},
    {"fmod", "write a % b, which has the sign of b"},
    {"remainder", "write a % b"},
    {"trunc", "write sign(x) * floor(abs(x))"},
    {"rint", "write round(x)"},
    {"arctan", "write atan(x)"},
    {"asin", "write atan2(x, sqrt(1 - x^2))"},
    {"arcsin", "write atan2(x, sqrt(1 - x^2))"},
    {"acos", "write atan2(sqrt(1 - x^2), x)"},
    {"arccos", "write atan2(sqrt(1 - x^2), x)"},
    {"asinh", "write sign(x) * log(abs(x) + sqrt(x^2 + 1))"},
    {"acosh", "write log(x + sqrt(x^2 - 1))"},
    {"atanh", "write (log1p(x) - log1p(-x)) / 2"},
    {"prelu", "write leaky_relu(x, a)"},
    {"hardswish", "write x * clamp(x / 6 + 0.5, 0, 1)"},
    {"log2", "write log(x) / log(2)"},
    {"log10", "write log(x) / log(10)"},
    {"exp2", "write 2^x"},
    {"not", "write !(a > b)"},
    {"avg", "write mean[i] x[i]"},
    {"amax", "write max[i] x[i]"},
    {"amin", "write min[i] x[i]"},
    {"argmin", "an index is no value: min[i] x[i] is the smallest one"},
    {"layernorm", "write layernorm(x)[i], with import \"std.cell\";"},
    {"rmsnorm", "write rmsnorm(x)[i], with import \"std.cell\";"},
    {"l2norm", "write l2norm(x)[i], with import \"std.cell\";"},
    {"logsumexp", "write logsumexp(x), with import \"std.cell\";"},
    {"rand", RANDOM},            {"randn", RANDOM},          {"random", RANDOM},
    {"randint", RANDOM},         {"bernoulli", RANDOM},      {"normal", RANDOM},
};

static const Word initialisers[] = {
    {"glorot", "xavier"},         {"xavier_uniform", "xavier"}, {"xavier_normal", "xavier"}, {"glorot_uniform", "xavier"},
    {"glorot_normal", "xavier"},  {"gaussian", "normal"},       {"randn", "normal(1)"},      {"rand", "uniform(0, 1)"},
    {"zero", "zeros"},            {"one", "ones"},              {"constant", "const(1)"},    {"identity", "eye"},
    {"kaiming", "normal(sqrt(2/D)), with the dim that is summed over"},
    {"kaiming_uniform", "uniform(sqrt(6/D)), with the dim that is summed over"},
    {"kaiming_normal", "normal(sqrt(2/D)), with the dim that is summed over"},
    {"he", "normal(sqrt(2/D)), with the dim that is summed over"},
    {"he_normal", "normal(sqrt(2/D)), with the dim that is summed over"},
    {"lecun", "normal(sqrt(1/D)), with the dim that is summed over"},
    {"lecun_normal", "normal(sqrt(1/D)), with the dim that is summed over"},
};

static const Word characters[] = {
    {"′", "a prime is written ', as in S'"}, {"’", "a prime is written ', as in S'"}, {"‘", "a prime is written ', as in S'"},
    {"´", "a prime is written ', as in S'"}, {"ʹ", "a prime is written ', as in S'"}, {"ʼ", "a prime is written ', as in S'"},
    {"＇", "a prime is written ', as in S'"}, {"″", "a value has one prime at most"},
    {"×", "write *"}, {"·", "write *"}, {"⋅", "write *"}, {"∙", "write *"}, {"∗", "write *"}, {"⊙", "write *, as in a[i] * b[i]"},
    {"∘", "write *, as in a[i] * b[i]"}, {"⊗", "an outer product has the indices of both, as in a[i] * b[j]"},
    {"−", "write -"}, {"–", "write -"}, {"—", "write -"}, {"÷", "write /"}, {"∕", "write /"}, {"⁄", "write /"},
    {"≤", "write <="}, {"≥", "write >="}, {"≠", "write !="}, {"≡", "write =="}, {"←", "write ="}, {"≔", "write ="},
    {"∧", "write &&"}, {"∨", "write ||"}, {"¬", "write !"}, {"∞", "write inf"},
    {"√", "write sqrt(x)"}, {"Σ", "a sum is written sum[j]"}, {"∑", "a sum is written sum[j]"},
    {"Π", "a product over an index is written prod[j]"}, {"∏", "a product over an index is written prod[j]"},
    {"∇", "a gradient is written grad(loss, x[i])"}, {"∂", "a gradient is written grad(loss, x[i])"},
    {"²", "write ^2"}, {"³", "write ^3"}, {"ⁿ", "write ^n"}, {"¹", "write ^1"}, {"⁻", "write ^-1"}, {"½", "write 1/2"},
    {"ᵀ", EXCHANGE}, {"⊤", EXCHANGE}, {"“", "write \""}, {"”", "write \""}, {"∼", "write ~"}, {"∈", "an index has its range behind ':', as in i:N"},
    {"…", "nothing is left out in a spec"}, {"，", "write ,"}, {"；", "write ;"}, {"（", "write ("}, {"）", "write )"},
    {"\xc2\xa0", "this blank is no ASCII blank"}, {"\xe3\x80\x80", "this blank is no ASCII blank"},
    {"\xe2\x80\x8b", "this is a blank of no width: remove it"}, {"\xef\xbb\xbf", "a byte order mark stands only at the beginning: remove it"},
    {"σ", "the function is written sigmoid, a name sigma"}, {"φ", "write a name such as phi"},
    {"α", "write alpha"}, {"β", "write beta"}, {"γ", "write gamma"}, {"δ", "write delta"}, {"ε", "write eps"}, {"ϵ", "write eps"},
    {"ζ", "write zeta"}, {"η", "write eta"}, {"θ", "write theta"}, {"ι", "write iota"}, {"κ", "write kappa"}, {"λ", "write lambda"},
    {"μ", "write mu"}, {"µ", "write mu"}, {"ν", "write nu"}, {"ξ", "write xi"}, {"π", "write pi"}, {"ρ", "write rho"}, {"τ", "write tau"},
    {"υ", "write upsilon"}, {"ϕ", "write phi"}, {"χ", "write chi"}, {"ψ", "write psi"}, {"ω", "write omega"},
    {"Γ", "write Gamma"}, {"Δ", "write Delta"}, {"Θ", "write Theta"}, {"Λ", "write Lambda"}, {"Ξ", "write Xi"},
    {"Φ", "write Phi"}, {"Ψ", "write Psi"}, {"Ω", "write Omega"},
    {"@", PRODUCT},
    {"\\", "LaTeX is not read: a function is written by its name, tanh(x), a sum as sum[j]"},
    {"$", "a formula stands without it"}, {"`", "a prime is written ', as in S'"},
};

static const char *const reductions[] = {"sum", "mean", "max", "min", "prod", "softmax"};

#define FIND(table, name, len) find(table, sizeof table / sizeof *table, name, len)

static const char *find(const Word *table, size_t n, const char *name, size_t len)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(table[i].foreign) == len && strncasecmp(table[i].foreign, name, len) == 0)
            return table[i].here;
    return NULL;
}

const char *foreign_reduction(Compiler *c, const char *name)
{
    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++) {
        size_t n = strlen(reductions[i]);
        if (strncmp(name, reductions[i], n) == 0 && name[n] == '_' && name[n + 1])
            return intern_f(c, "the index of a reduction stands in brackets: %s[%s]", reductions[i], name + n + 1);
    }
    return NULL;
}

const char *foreign_function(Compiler *c, const char *name)
{
    const char *here = foreign_reduction(c, name);
    return here ? here : FIND(functions, name, strlen(name));
}

const char *foreign_initialiser(const char *name)
{
    return FIND(initialisers, name, strlen(name));
}

const char *foreign_character(const char *text, size_t len)
{
    int n = len ? utf8_len((const unsigned char *)text, (const unsigned char *)text + len) : 0;
    for (size_t i = 0; n && i < sizeof characters / sizeof *characters; i++)
        if (strlen(characters[i].foreign) == (size_t)n && memcmp(characters[i].foreign, text, (size_t)n) == 0)
            return characters[i].here;
    return NULL;
}

/* "torch.tanh", "np.exp", "nn.functional.silu" */
static bool is_module(const char *name, size_t len)
{
    static const char *const modules[] = {"torch", "np", "numpy", "jnp", "jax", "F", "nn", "tf", "math", "lax", "mx", "K", "xp", "std"};
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        if (strlen(modules[i]) == len && memcmp(modules[i], name, len) == 0)
            return true;
    return false;
}

static size_t word_length(const char *s)
{
    return strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
}

const char *foreign_member(Compiler *c, const char *owner, size_t owner_len, const char *behind)
{
    const char *word = behind;
    size_t len = word_length(word);
    while (word[len] == '.' && word_length(word + len + 1)) {
        word += len + 1;
        len = word_length(word);
    }
    if (!len)
        return NULL;
    const char *name = intern_n(c, word, len);
    if (!strcmp(name, "T") || !strcmp(name, "mT") || !strcmp(name, "H") || !strcmp(name, "mH"))
        return EXCHANGE;
    if (owner_len == 4 && memcmp(owner, "self", 4) == 0)
        return intern_f(c, "what is declared is read by its name alone: %s", name);
    const char *here = foreign_function(c, name);
    for (size_t i = 0; !here && i < sizeof reductions / sizeof *reductions; i++)
        if (strcmp(name, reductions[i]) == 0)
            here = intern_f(c, "a reduction names its index, as in %s[j]", name);
    if (here)
        return here;
    if (is_module(owner, owner_len))
        return intern_f(c, "a name of the language has no module in front: %s", name);
    return word[len] == '(' ? intern_f(c, "a function takes its value in parentheses: %s(x[i])", name) : NULL;
}

const char *foreign_statement(const char *word)
{
    static const Word statements[] = {
        {"for", "an equation holds for all its indices; 'repeat n:3 { ... }' does a block again"},
        {"while", "an equation holds for all its indices; 'repeat n:3 { ... }' does a block again"},
        {"loop", "an equation holds for all its indices; 'repeat n:3 { ... }' does a block again"},
        {"let", "a value is defined by its name alone, as in a = 2;"},
        {"var", "a value is defined by its name alone, as in a = 2;"},
        {"auto", "a value is defined by its name alone, as in a = 2;"},
        {"float", "a value is defined by its name alone, as in a = 2;"},
        {"double", "a value is defined by its name alone, as in a = 2;"},
        {"int", "a value is defined by its name alone, as in a = 2;"},
        {"set", "a value is defined by its name alone, as in a = 2;"},
        {"include", "another file is read by import \"FILE.cell\";"},
        {"from", "another file is read by import \"FILE.cell\";"},
        {"using", "another file is read by import \"FILE.cell\";"},
        {"return", "what a cell gives is an output, declared by output y[N]; and defined by y[i] = ...;"},
        {"def", "a function is written fn f(x) = ...;"},
        {"function", "a function is written fn f(x) = ...;"},
        {"func", "a function is written fn f(x) = ...;"},
        {"weight", "what is learned is a param"},
        {"parameter", "what is learned is a param"},
        {"hidden", "what is carried from step to step is a state"},
        {"switch", "a choice among options is written when act == tanh { ... }"},
    };
    return FIND(statements, word, strlen(word));
}

const char *foreign_value(const char *name)
{
    static const Word values[] = {
        {"pi", "write pi"}, {"e", "write exp(1), and e^x as exp(x)"}, {"true", "write 1, or a comparison"},
        {"false", "write 0, or a comparison"}, {"infinity", "write inf"}, {"inf", "write inf"},
        {"nan", "no number is missing in a spec: choose with a condition, as in m > 0 ? x : 0"},
        {"none", "every value is there: a state that the call does not give begins with 0"},
        {"null", "every value is there: a state that the call does not give begins with 0"},
    };
    return FIND(values, name, strlen(name));
}

/* h_prev, prev_h, hprev, h_old, h_tm1: -1; h_next, h_new, new_h: 1; h_t: 0. The name without it goes to *base. */
bool foreign_step(Compiler *c, const char *name, const char **base, int *step)
{
    static const struct { const char *word; int step; } words[] = {
        {"prev", -1}, {"previous", -1}, {"old", -1}, {"last", -1}, {"tm1", -1}, {"before", -1},
        {"next", 1},  {"new", 1},       {"tp1", 1},  {"t", 0},     {"cur", 0},  {"now", 0},
    };
    size_t len = strlen(name);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i].word);
        if (len <= n)
            continue;
        *step = words[i].step;
        if (memcmp(name + len - n, words[i].word, n) == 0) {
            size_t rest = len - n - (name[len - n - 1] == '_');
            bool joined = name[len - n - 1] != '_';
            *base = intern_n(c, name, rest);
            if (rest && !(joined && n < 3))
                return true;
        }
        if (memcmp(name, words[i].word, n) == 0 && name[n] == '_' && name[n + 1]) {
            *base = intern(c, name + n + 1);
            return true;
        }
    }
    return false;
}
