/* mutate.c: the fuzzer's mutator. In: a spec, or what earlier mutations made of one. Out: half of the time
 * bytes changed by libFuzzer, else whole tokens deleted, doubled, exchanged, or replaced by another token of
 * the same text or of a list, so that many results still parse and reach the passes behind the parser. */
#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

static const char *const words[] = {
    "0", "1", "2", "-1", "1e-6", "9007199254740992", "inf", "i", "j", "i:N", "x", "S", "S'", "S'[i,j]", "x[i]", "W[i, j]",
    "N", "D", "t", "T", "+", "-", "*", "/", "%", "^", "?", ":", "=", "==", "!=", "<", "&&", "||", "!", ",", ";", "[", "]",
    "(", ")", "{", "}", "sum[j]", "mean[j]", "max[j]", "prod[i,j]", "softmax[j]", "tanh(", "max(", "clamp(", "stop(",
    "input x[N];", "param W[N, N] ~ xavier;", "state S[N, N];", "output y[N];", "dim N = 3;", "dim D;", "const c = 2;",
    "option o = a | b;", "when o == a {", "} else {", "repeat n:3 {", "carry A = 1;", "fn f(u)[i] = u[i];", "f(x)[i]",
    "k[h,:]", "l2norm(x)[i]", "import \"std.cell\";", "y[0] = 1;", "S'[i,j] = S[j,i];", "(i + 1) % N", "i / 2", "N - 1 - i",
};
enum { NWORDS = sizeof words / sizeof *words, MAX_TOKENS = 4096 };

typedef struct Piece { size_t lo, hi; } Piece;

static int cut(const uint8_t *s, size_t n, Piece *out)
{
    int count = 0;
    for (size_t i = 0; i < n && count < MAX_TOKENS; count++) {
        size_t lo = i;
        if (isalnum(s[i]) || s[i] == '_')
            while (i < n && (isalnum(s[i]) || s[i] == '_' || s[i] == '.'))
                i++;
        else
            i++;
        while (i < n && isspace(s[i]))
            i++;
        out[count] = (Piece){lo, i};
    }
    return count;
}

/* Replaces bytes [at.lo, at.hi) by `with`; the new size, or `size` when it would not fit. */
static size_t splice(uint8_t *s, size_t size, size_t max_size, Piece at, const void *with, size_t len)
{
    if (size - (at.hi - at.lo) + len > max_size)
        return size;
    memmove(s + at.lo + len, s + at.hi, size - at.hi);
    memcpy(s + at.lo, with, len);
    return size - (at.hi - at.lo) + len;
}

static size_t change(uint8_t *data, size_t size, size_t max_size, unsigned *seed)
{
    static Piece tokens[MAX_TOKENS];
    uint8_t copy[64];
    int n = cut(data, size, tokens);
    if (n == 0)
        return LLVMFuzzerMutate(data, size, max_size);
    Piece a = tokens[rand_r(seed) % n], b = tokens[rand_r(seed) % n];
    const char *word = words[rand_r(seed) % NWORDS];
    size_t len = b.hi - b.lo < sizeof copy ? b.hi - b.lo : sizeof copy;
    memcpy(copy, data + b.lo, len);
    switch (rand_r(seed) % 5) {
    case 0: return splice(data, size, max_size, a, "", 0);
    case 1: return splice(data, size, max_size, a, copy, len);
    case 2: return splice(data, size, max_size, (Piece){a.lo, a.lo}, copy, len);
    case 3: return splice(data, size, max_size, a, word, strlen(word));
    default: return splice(data, size, max_size, (Piece){a.lo, a.lo}, word, strlen(word));
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    if (seed % 4 == 0 || size == 0)
        return LLVMFuzzerMutate(data, size, max_size);
    for (unsigned times = 1 + rand_r(&seed) % 3; times > 0 && size > 0; times--)
        size = change(data, size, max_size, &seed);
    return size;
}
