/* words.c: what other languages and papers write, and what a spec says in its place. In: a name, a function or a character
 * that the language does not have. Out: the end of the message, or NULL. It knows nothing of the spec: that a name is unknown
 * was found before. */
#include <string.h>
#include <strings.h>

#include "base/say.h"
#include "words.h"

typedef struct Word { const char *foreign, *here; } Word;

#define PRODUCT "a product is a sum over an index, as in sum[j] W[i,j] * h[j]"
#define EXCHANGE "nothing is transposed: exchange the indices where the value is read, as in W[j,i]"
#define JOIN "values are joined by a condition on the index, as in i < N ? a[i] : b[i - N]"
#define PLACES "nothing is reshaped: the indices say which place is read, as in x[h*N + i]"
#define RANDOM "a cell draws no numbers: what is random is an input"
#define CAST "no value is cast: numbers are of --dtype, and real(id) is that of an integer"

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
    {"float", CAST},             {"double", CAST},           {"half", CAST},
    {"float32", CAST},           {"float64", CAST},          {"float16", CAST},
    {"bfloat16", CAST},          {"f32", CAST},              {"f64", CAST},
    {"f16", CAST},               {"bf16", CAST},             {"cast", CAST},
    {"astype", CAST},            {"to", CAST},               {"type", CAST},
    {"bool", "a condition is a comparison, as in x != 0"},
    {"int", "write floor(x), or sign(x) * floor(abs(x)); in an index, id is an input : i32"},
    {"i32", "write floor(x), or sign(x) * floor(abs(x)); in an index, id is an input : i32"},
    {"long", "write floor(x), or sign(x) * floor(abs(x)); in an index, id is an input : i32"},
    {"rand", RANDOM},            {"randn", RANDOM},          {"random", RANDOM},
    {"randint", RANDOM},         {"bernoulli", RANDOM},      {"normal", RANDOM},
};

static const Word initialisers[] = {
    {"glorot", "xavier"},
    {"xavier_uniform", "xavier"},
    {"xavier_normal", "xavier"},
    {"glorot_uniform", "xavier"},
    {"glorot_normal", "xavier"},
    {"gaussian", "normal"},
    {"randn", "normal(1)"},
    {"rand", "uniform(0, 1)"},
    {"zero", "zeros"},
    {"one", "ones"},
    {"constant", "const(1)"},
    {"identity", "eye"},
    {"n", "normal(deviation) or normal(mean, deviation)"},
    {"u", "uniform(a, b)"},
    {"zeros_", "zeros"},
    {"random", "normal(1)"},
    {"empty", "zeros"},
    {"none", "zeros"},
    {"ones_", "ones"},
    {"normal_", "normal(1)"},
    {"uniform_", "uniform(1)"},
    {"xavier_uniform_", "xavier"},
    {"xavier_normal_", "xavier"},
    {"orthogonal_", "orthogonal"},
    {"eye_", "eye"},
    {"trunc_normal", "normal(1)"},
    {"truncated_normal", "normal(1)"},
    {"trunc_normal_", "normal(1)"},
    {"i", "eye"},
    {"fill", "const(1)"},
    {"full", "const(1)"},
    {"kaiming", "normal(sqrt(2/D)), with the dim that is summed over"},
    {"kaiming_uniform", "uniform(sqrt(6/D)), with the dim that is summed over"},
    {"kaiming_normal", "normal(sqrt(2/D)), with the dim that is summed over"},
    {"he", "normal(sqrt(2/D)), with the dim that is summed over"},
    {"he_normal", "normal(sqrt(2/D)), with the dim that is summed over"},
    {"lecun", "normal(sqrt(1/D)), with the dim that is summed over"},
    {"lecun_normal", "normal(sqrt(1/D)), with the dim that is summed over"},
};

#define STEP                                                                                                 \
    "a step is not written: h[i] is the state before it, h'[i] the one after it, x[i; t - 1] an earlier "    \
    "input"
#define CONVOLUTION "a convolution over steps is written sum[w:K] c[w] * x[d; t - w]"

static const Word characters[] = {
    {"′", "a prime is written ', as in S'"},
    {"’", "a prime is written ', as in S'"},
    {"‘", "a prime is written ', as in S'"},
    {"´", "a prime is written ', as in S'"},
    {"ʹ", "a prime is written ', as in S'"},
    {"ʼ", "a prime is written ', as in S'"},
    {"＇", "a prime is written ', as in S'"},
    {"″", "a value has one prime at most"},
    {"×", "write *"},
    {"·", "write *"},
    {"⋅", "write *"},
    {"∙", "write *"},
    {"∗", "write *"},
    {"⊙", "write *, as in a[i] * b[i]"},
    {"∘", "write *, as in a[i] * b[i]"},
    {"⊗", "an outer product has the indices of both, as in a[i] * b[j]"},
    {"−", "write -"},
    {"–", "write -"},
    {"—", "write -"},
    {"÷", "write /"},
    {"∕", "write /"},
    {"⁄", "write /"},
    {"≤", "write <="},
    {"≥", "write >="},
    {"≠", "write !="},
    {"≡", "write =="},
    {"←", "write ="},
    {"≔", "write ="},
    {"∧", "write &&"},
    {"∨", "write ||"},
    {"¬", "write !"},
    {"∞", "write inf"},
    {"√", "write sqrt(x)"},
    {"Σ", "a sum is written sum[j]"},
    {"∑", "a sum is written sum[j]"},
    {"Π", "a product over an index is written prod[j]"},
    {"∏", "a product over an index is written prod[j]"},
    {"∇", "a gradient is written grad(loss, x[i])"},
    {"∂", "a gradient is written grad(loss, x[i])"},
    {"²", "write ^2"},
    {"³", "write ^3"},
    {"ⁿ", "write ^n"},
    {"¹", "write ^1"},
    {"⁻", "write ^-1"},
    {"½", "write 1/2"},
    {"ᵀ", EXCHANGE},
    {"⊤", EXCHANGE},
    {"“", "write \""},
    {"”", "write \""},
    {"∼", "write ~"},
    {"∈", "an index has its range behind ':', as in i:N"},
    {"…", "nothing is left out in a spec"},
    {"，", "write ,"},
    {"；", "write ;"},
    {"（", "write ("},
    {"）", "write )"},
    {"\xc2\xa0", "this blank is no ASCII blank"},
    {"\xe3\x80\x80", "this blank is no ASCII blank"},
    {"\xe2\x80\x8b", "this is a blank of no width: remove it"},
    {"\xef\xbb\xbf", "a byte order mark stands only at the beginning: remove it"},
    {"σ", "the function is written sigmoid, a name sigma"},
    {"φ", "write a name such as phi"},
    {"α", "write alpha"},
    {"β", "write beta"},
    {"γ", "write gamma"},
    {"δ", "write delta"},
    {"ε", "write eps"},
    {"ϵ", "write eps"},
    {"ζ", "write zeta"},
    {"η", "write eta"},
    {"θ", "write theta"},
    {"ι", "write iota"},
    {"κ", "write kappa"},
    {"λ", "write lambda"},
    {"μ", "write mu"},
    {"µ", "write mu"},
    {"ν", "write nu"},
    {"ξ", "write xi"},
    {"π", "write pi"},
    {"ρ", "write rho"},
    {"τ", "write tau"},
    {"υ", "write upsilon"},
    {"ϕ", "write phi"},
    {"χ", "write chi"},
    {"ψ", "write psi"},
    {"ω", "write omega"},
    {"Γ", "write Gamma"},
    {"Δ", "write Delta"},
    {"Θ", "write Theta"},
    {"Λ", "write Lambda"},
    {"Ξ", "write Xi"},
    {"Φ", "write Phi"},
    {"Ψ", "write Psi"},
    {"Ω", "write Omega"},
    {"ς", "write sigma"},
    {"ο", "write o"},
    {"ϑ", "write theta"},
    {"ϱ", "write rho"},
    {"ϖ", "write pi"},
    {"ϰ", "write kappa"},
    {"ℓ", "write l"},
    {"ℎ", "write h"},
    {"ℯ", "write exp(1), and e^x as exp(x)"},
    {"ı", "write i"},
    {"ȷ", "write j"},
    {"ₜ", STEP},
    {"₍", STEP},
    {"₊", STEP},
    {"₋", STEP},
    {"⁽", STEP},
    {"ᵗ", STEP},
    {"⁺", STEP},
    {"⨀", "write *, as in a[i] * b[i]"},
    {"⊛", CONVOLUTION},
    {"⋆", CONVOLUTION},
    {"★", CONVOLUTION},
    {"✱", "write *"},
    {"⨂", "an outer product has the indices of both, as in a[i] * b[j]"},
    {"✕", "write *"},
    {"✖", "write *"},
    {"⨯", "write *"},
    {"•", "write *"},
    {"●", "write *"},
    {"˙", "write *"},
    {"＊", "write *"},
    {"∣", "a size is written abs(x)"},
    {"⊕", "write +, as in a[i] + b[i]; " JOIN},
    {"⊖", "write -, as in a[i] - b[i]"},
    {"⊘", "write /, as in a[i] / b[i]"},
    {"∥", "a norm is written sqrt(sum[i] x[i]^2)"},
    {"‖", "a norm is written sqrt(sum[i] x[i]^2)"},
    {"⌊", "write floor(x)"},
    {"⌋", "write floor(x)"},
    {"⌈", "write ceil(x)"},
    {"⌉", "write ceil(x)"},
    {"⟨", "an inner product is a sum over an index, as in sum[i] a[i] * b[i]"},
    {"⟩", "an inner product is a sum over an index, as in sum[i] a[i] * b[i]"},
    {"ℝ", "axes stand in brackets behind the name, as in x[D]"},
    {"ℂ", "axes stand in brackets, a complex type behind them, as in z[D] : complex"},
    {"ℤ", "an integer is declared by input id : i32"},
    {"ℕ", "an integer is declared by input id : i32"},
    {"∀", "an equation holds for all its indices"},
    {"∃", "a condition over an index is written max[j] (x[j] > 0 ? 1 : 0) > 0"},
    {"∉", "a condition is made of comparisons, as in i < 0 || i >= N"},
    {"±", "write each of the two, with + and with -"},
    {"→", "a value is defined by y[i] = ...; a function by fn f(x) = ...;"},
    {"↦", "a function is written fn f(x) = ...;"},
    {"⇒", "a choice is written c ? a : b"},
    {"⟵", "write ="},
    {"⇐", "write ="},
    {"≜", "write ="},
    {"≝", "write ="},
    {"＝", "write ="},
    {"≈", "an equation is written with ="},
    {"≅", "an equation is written with ="},
    {"∝", "an equation is written with ="},
    {"‐", "write -"},
    {"‑", "write -"},
    {"‒", "write -"},
    {"―", "write -"},
    {"⁰", "write ^0"},
    {"⁴", "write ^4"},
    {"⁵", "write ^5"},
    {"⁶", "write ^6"},
    {"⁷", "write ^7"},
    {"⁸", "write ^8"},
    {"⁹", "write ^9"},
    {"⅓", "write 1/3"},
    {"¼", "write 1/4"},
    {"¾", "write 3/4"},
    {"⅔", "write 2/3"},
    {"„", "write \""},
    {"«", "write \""},
    {"»", "write \""},
    {"‟", "write \""},
    {"‚", "write ,"},
    {"‹", "write <"},
    {"›", "write >"},
    {"ˆ", "write ^"},
    {"˜", "write ~"},
    {"≪", "write <"},
    {"≫", "write >"},
    {"⊻", "write (a || b) && !(a && b)"},
    {"⇔", "write =="},
    {"ᴴ", EXCHANGE ", and conj(z) of a complex one"},
    {"†", EXCHANGE ", and conj(z) of a complex one"},
    {"∅", "a list is never empty"},
    {"∫", "an integral is a sum over steps, or a state"},
    {"𝟙", "write c ? 1 : 0"},
    {"𝟏", "write 1"},
    {"𝟎", "write 0"},
    {"∎", "a cell ends with }"},
    {"°", "an angle is in radians, pi / 180 times as many"},
    {"@", PRODUCT},
    {"\\", "LaTeX is not read: a function is written by its name, tanh(x), a sum as sum[j]"},
    {"$", "a formula stands without it"},
    {"`", "a prime is written ', as in S'"},
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

bool names_reduction(const char *word)
{
    for (size_t i = 0; i < sizeof reductions / sizeof *reductions; i++)
        if (strcmp(word, reductions[i]) == 0)
            return true;
    return false;
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

#define COUNTED "a value is defined once, with '='; what counts is a state, as in n' = n + 1"
#define FUNCTION_VALUE "the value of a function stands behind '=', as in fn f(x) = 2 * x;"

const char *foreign_operator(const char *text, int *len)
{
    /* Longer ones first where one begins with another. */
    static const Word operators[] = {
        {"<=>", "a comparison is one of < <= > >= == !="},
        {"===", "to compare, write '=='"},
        {"!==", "to compare, write '!='"},
        {"%*%", PRODUCT},
        {"...", "every index is written, the batch and the time never, as in x[i]"},
        {"<<", "bits are not shifted: write x * 2^n"},
        {">>", "bits are not shifted: write floor(x / 2^n), of whole numbers div(x, 2^n)"},
        {"<>", "write '!='"},
        {"~=", "write '!='"},
        {"=/", "write '!='"},
        {"/=", "to compare, write '!='"},
        {"=<", "write '<='"},
        {"=>", "write '>='"},
        {"=~", "to compare, write '=='"},
        {"->", "a value has no parts behind an arrow, it is read by its own name; a function is written fn "
               "f(x) = ...;"},
        {"<-", "a value is defined once, with '='"},
        {"++", COUNTED},
        {"--", COUNTED},
        {"^^", "a power is written with one '^'"},
        {"::", "a name of the language has no module in front"},
        {"|>", "a function takes its value in parentheses, as in tanh(x[i])"},
        {"<|", "a function takes its value in parentheses, as in tanh(x[i])"},
        {"?:", "a choice names both values, as in c ? a : b"},
        {"??", "a choice is written c ? a : b"},
        {"..", "an index runs from 0 to below its range, as in j:N"},
        {"%%", "the remainder is written with one '%'"},
    };
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        *len = (int)strlen(operators[i].foreign);
        if (strncmp(operators[i].foreign, text, (size_t)*len) == 0)
            return operators[i].here;
    }
    return NULL;
}

const char *foreign_infix(const char *word)
{
    static const Word words[] = {
        {"mod", "the remainder is written a % b"},
        {"rem", "the remainder is written a % b"},
        {"div", "write floor(a / b), of whole numbers div(a, b)"},
        {"is", "to compare, write '=='"},
        {"eq", "to compare, write '=='"},
        {"equals", "to compare, write '=='"},
        {"ne", "to compare, write '!='"},
        {"lt", "to compare, write '<'"},
        {"le", "to compare, write '<='"},
        {"gt", "to compare, write '>'"},
        {"ge", "to compare, write '>='"},
        {"xor", "write (a || b) && !(a && b)"},
        {"then", "a choice is written with '?', as in x > 0 ? x : 0"},
        {"else", "a choice is written with '?', as in x > 0 ? x : 0"},
        {"otherwise", "a choice is written with '?', as in x > 0 ? x : 0"},
        {"unless", "a choice is written with '?', as in x > 0 ? x : 0"},
        {"where", "a choice is written with '?', as in x > 0 ? x : 0; a value has an equation of its own"},
        {"for", "an equation holds for all its indices, as in y[i] = 2 * x[i]; their range stands behind "
                "':', as in y[i:N]"},
        {"forall", "an equation holds for all its indices, as in y[i] = 2 * x[i]"},
        {"over", "a reduction names its index in brackets, as in sum[j] x[j]"},
        {"in", "the range of an index stands behind ':', as in j:N"},
        {"times", "a product is written with '*'"},
        {"matmul", PRODUCT},
        {"dot", PRODUCT},
        {"plus", "a sum is written with '+'"},
        {"minus", "a difference is written with '-'"},
        {"as", "what is read has one name"},
    };
    return FIND(words, word, strlen(word));
}

const char *foreign_type(const char *word)
{
    static const Word types[] = {
        {"float", "f32"},
        {"float32", "f32"},
        {"single", "f32"},
        {"fp32", "f32"},
        {"double", "f64"},
        {"float64", "f64"},
        {"fp64", "f64"},
        {"half", "f16"},
        {"float16", "f16"},
        {"fp16", "f16"},
        {"bfloat16", "bf16"},
        {"bfloat", "bf16"},
        {"int", "i32"},
        {"int32", "i32"},
        {"int64", "i32"},
        {"long", "i32"},
        {"i64", "i32"},
        {"u32", "i32"},
        {"uint32", "i32"},
        {"integer", "i32"},
        {"int32_t", "i32"},
        {"size_t", "i32"},
        {"i16", "i32"},
        {"i8", "i32"},
        {"u8", "i32"},
        {"uint8", "i32"},
        {"complex64", "c64"},
        {"complex128", "c128"},
        {"cfloat", "c64"},
        {"cdouble", "c128"},
        {"bool", "a number, 1 or 0, read by m > 0"},
        {"boolean", "a number, 1 or 0, read by m > 0"},
        {"tensor", NULL},
        {"vector", NULL},
        {"matrix", NULL},
        {"real", NULL},
        {"number", NULL},
        {"scalar", NULL},
        {"array", NULL},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcasecmp(types[i].foreign, word) == 0)
            return types[i].here ? types[i].here : "";
    return NULL;
}

const char *foreign_initialiser(const char *name)
{
    return FIND(initialisers, name, strlen(name));
}

/* Characters that stand in Unicode by the hundred: what looks like ASCII and is none, and small letters and
 * digits. */
static const char *foreign_letter(Compiler *c, unsigned code)
{
    static const struct { unsigned first, last; const char *here;
    } ranges[] = {
        {0x00c0, 0x024f, "a name is made of the letters a to z, A to Z, digits and '_', as in h_hat"},
        {0x0300, 0x036f, "a letter carries no mark: write a name such as h_hat"},
        {0x0370, 0x03ff, "a Greek letter is written by its name, as in alpha"},
        {0x0400, 0x052f, "this letter is Cyrillic: write the Latin one"},
        {0x2070, 0x207f, "a power is written with ^, as in x^2"},
        {0x2080, 0x2089,
         "a number in a name stands behind it, as in h1, one that is an index in brackets, as in h[1]"},
        {0x2090, 0x209c, "an index stands in brackets, as in h[i]"},
        {0x1d62, 0x1d6a, "an index stands in brackets, as in h[i]"},
        {0x1d43, 0x1d61, "a power is written with ^, as in x^n, a name such as h_r"},
        {0x2000, 0x200f, "this blank is no ASCII blank"},
        {0x2028, 0x202f, "this blank is no ASCII blank"},
        {0x1d400, 0x1d7ff, "write the plain letter or digit"},
        {0x2100, 0x214f, "write the plain letter"},
        {0x2c7c, 0x2c7c, "an index stands in brackets, as in h[j]"},
    };
    if (code >= 0xff01 && code <= 0xff5e)
        return intern_f(c, "write %c", (char)(code - 0xfee0));
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (code >= ranges[i].first && code <= ranges[i].last)
            return ranges[i].here;
    return NULL;
}

const char *foreign_character(Compiler *c, const char *text, size_t len)
{
    int n = len ? utf8_len((const unsigned char *)text, (const unsigned char *)text + len) : 0;
    for (size_t i = 0; n && i < sizeof characters / sizeof *characters; i++)
        if (strlen(characters[i].foreign) == (size_t)n && memcmp(characters[i].foreign, text, (size_t)n) == 0)
            return characters[i].here;
    return n > 1 && n <= 4 ? foreign_letter(c, code_point((const unsigned char *)text, n)) : NULL;
}

/* "torch.tanh", "np.exp", "nn.functional.silu" */
bool is_foreign_module(const char *name, size_t len)
{
    static const char *const modules[] = {"torch",      "np",    "numpy", "jnp",   "jax",    "F",      "nn",
                                          "tf",         "math",  "lax",   "mx",    "K",      "xp",     "std",
                                          "tensorflow", "keras", "scipy", "cmath", "random", "triton", "mlx"};
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
    if (!here && names_reduction(name))
        here = intern_f(c, "a reduction names its index, as in %s[j]", name);
    if (here)
        return here;
    if (is_foreign_module(owner, owner_len))
        return intern_f(c, "a name of the language has no module in front: %s", name);
    return word[len] == '(' ? intern_f(c, "a function takes its value in parentheses: %s(x[i])", name) : NULL;
}

#define LOOP "an equation holds for all its indices; 'repeat n:3 { ... }' does a block again"
#define VALUE "a value is defined by its name alone, as in a = 2;"
#define DECLARED                                                                                             \
    "a value is declared as an input, param, state or output, as in input x[D];, or defined by its name "    \
    "alone, a[i:N] = ...;"
#define IMPORTED "another file is read by import \"FILE.cell\";"
#define FUNCTION "a function is written fn f(x) = ...;"
#define BLOCK "a cell is written cell NAME { ... }"
#define CHOICE "a choice among options is written when act == tanh { ... }, one among values c ? a : b"
#define OTHERWISE "what holds otherwise stands behind else { ... }, or else when N == 4 { ... }"
#define PRINTED "a cell prints nothing: a value that is to be seen is an output"

const char *foreign_statement(const char *word)
{
    static const Word statements[] = {
        {"for", LOOP},
        {"while", LOOP},
        {"loop", LOOP},
        {"do", LOOP},
        {"foreach", LOOP},
        {"forall", LOOP},
        {"break", LOOP},
        {"continue", LOOP},
        {"end", "a block ends with }"},
        {"begin", "a block stands between { and }"},
        {"let", VALUE},
        {"var", VALUE},
        {"auto", VALUE},
        {"float", VALUE},
        {"double", VALUE},
        {"int", VALUE},
        {"set", VALUE},
        {"real", VALUE},
        {"number", VALUE},
        {"bool", VALUE},
        {"val", VALUE},
        {"mut", VALUE},
        {"define", VALUE},
        {"local", VALUE},
        {"half", VALUE},
        {"long", VALUE},
        {"static", VALUE},
        {"final", VALUE},
        {"f32", VALUE},
        {"f64", VALUE},
        {"complex", VALUE},
        {"global", VALUE},
        {"nonlocal", VALUE},
        {"letrec", VALUE},
        {"given", VALUE},
        {"where", VALUE},
        {"vector", DECLARED},
        {"matrix", DECLARED},
        {"tensor", DECLARED},
        {"array", DECLARED},
        {"buffer", DECLARED},
        {"size", "a size is a dim, as in dim N;"},
        {"sizes", "a size is a dim, as in dim N;"},
        {"shape", "a size is a dim, as in dim N;"},
        {"hyperparameter", "a number is a const, as in const eps = 1e-6; a choice an option, as in option "
                           "act = tanh | relu;"},
        {"enum", "a choice is an option, as in option act = tanh | relu;"},
        {"include", IMPORTED},
        {"from", IMPORTED},
        {"using", IMPORTED},
        {"use", IMPORTED},
        {"require", IMPORTED},
        {"load", IMPORTED},
        {"return", "what a cell gives is an output, declared by output y[N]; and defined by y[i] = ...;"},
        {"yield", "what a cell gives is an output, declared by output y[N]; and defined by y[i] = ...;"},
        {"def", FUNCTION},
        {"function", FUNCTION},
        {"func", FUNCTION},
        {"fun", FUNCTION},
        {"proc", FUNCTION},
        {"lambda", FUNCTION},
        {"void", FUNCTION},
        {"inline", FUNCTION},
        {"macro", FUNCTION},
        {"fct", FUNCTION},
        {"procedure", FUNCTION},
        {"class", BLOCK},
        {"struct", BLOCK},
        {"module", BLOCK},
        {"model", BLOCK},
        {"layer", BLOCK},
        {"network", BLOCK},
        {"interface", BLOCK},
        {"object", BLOCK},
        {"rnn", BLOCK},
        {"kernel", BLOCK},
        {"package", BLOCK},
        {"namespace", BLOCK},
        {"weight", "what is learned is a param"},
        {"weights", "what is learned is a param"},
        {"bias", "what is learned is a param"},
        {"parameter", "what is learned is a param"},
        {"learned", "what is learned is a param"},
        {"hidden", "what is carried from step to step is a state"},
        {"memory", "what is carried from step to step is a state"},
        {"init", "a param begins as its '~' says, a state as its '='"},
        {"switch", CHOICE},
        {"match", CHOICE},
        {"case", CHOICE},
        {"select", CHOICE},
        {"unless", CHOICE},
        {"elif", OTHERWISE},
        {"elseif", OTHERWISE},
        {"elsif", OTHERWISE},
        {"otherwise", OTHERWISE},
        {"elsewhen", OTHERWISE},
        {"print", PRINTED},
        {"printf", PRINTED},
        {"println", PRINTED},
        {"echo", PRINTED},
        {"show", PRINTED},
        {"log", PRINTED},
        {"debug", PRINTED},
        {"display", PRINTED},
        {"write", PRINTED},
        {"puts", PRINTED},
        {"cout", PRINTED},
        {"assert", "where a value lies is said where it is declared, as in input dt in (0, 1];"},
        {"static_assert", "where a value lies is said where it is declared, as in input dt in (0, 1];"},
        {"assume", "where a value lies is said where it is declared, as in input dt in (0, 1];"},
        {"pass", "an empty block is written { }"},
        {"rem", "a comment begins with '//'"},
        {"comment", "a comment begins with '//'"},
        {"note", "a comment begins with '//'"},
        {"todo", "a comment begins with '//'"},
        {"del", "no value is removed: what nothing reads is not computed"},
        {"delete", "no value is removed: what nothing reads is not computed"},
        {"try", "a step has no exceptions: a choice is written c ? a : b"},
        {"raise", "a step has no exceptions: a choice is written c ? a : b"},
        {"throw", "a step has no exceptions: a choice is written c ? a : b"},
        {"with", "a block stands behind cell, fn, when or repeat"},
        {"backward", "gradients are made by the compiler; one of your own is an adjoint fn"},
        {"grad", "gradients are made by the compiler; one of your own is an adjoint fn"},
        {"forward", "the equations of a cell are its step"},
        {"detach", "write stop(x) where the value is read"},
        {"export", "what a cell gives is an output"},
        {"public", "what a cell gives is an output"},
        {"private", "what is no output is the cell's own"},
        {"type", "a type stands behind the name of a value, as in x[D] : f32"},
        {"typedef", "a type stands behind the name of a value, as in x[D] : f32"},
    };
    return FIND(statements, word, strlen(word));
}

const char *foreign_value(const char *name)
{
    static const Word values[] = {
        {"pi", "write pi"},
        {"e", "write exp(1), and e^x as exp(x)"},
        {"true", "write 1, or a comparison"},
        {"false", "write 0, or a comparison"},
        {"infinity", "write inf"},
        {"inf", "write inf"},
        {"nan", "no number is missing in a spec: choose with a condition, as in m > 0 ? x : 0"},
        {"none", "every value is there: a state that the call does not give begins with 0"},
        {"null", "every value is there: a state that the call does not give begins with 0"},
        {"m_pi", "write pi"},
        {"tau", "declare it, as in const tau = 10; a full turn is 2 * pi"},
        {"m_e", "write exp(1)"},
        {"eps", "declare it, const eps = 1e-6;"},
        {"epsilon", "declare it, const epsilon = 1e-6;"},
        {"self", "what is declared is read by its name alone"},
        {"zeros", "a constant is written as it is, 0"},
        {"ones", "a constant is written as it is, 1"},
        {"one", "write 1"},
        {"zero", "write 0"},
        {"iota", "an index is a number as well: i"},
        {"arange", "an index is a number as well: i"},
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
