/* bytelm.c: trains the model of model.h on a text and lets it write. In: a text file and sizes. Out: a
 * line of progress, the loss on the last twentieth of the text, which is not trained on, and a sample. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "model.h"

typedef struct Text { uint8_t *bytes; int64_t n, n_train; } Text;

typedef struct Settings {
    ModelSizes sizes;
    double seconds, rate;
    const char *path, *prompt;
    uint64_t seed;
} Settings;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int load_text(Text *text, const char *path)
{
    FILE *f = fopen(path, "rb");
    long n = -1;
    if (f && fseek(f, 0, SEEK_END) == 0 && (n = ftell(f)) > 0 && fseek(f, 0, SEEK_SET) == 0) {
        text->bytes = malloc((size_t)n);
        if (text->bytes && fread(text->bytes, 1, (size_t)n, f) != (size_t)n)
            n = -1;
    }
    if (f)
        fclose(f);
    if (n <= 0 || !text->bytes) {
        fprintf(stderr, "bytelm: cannot read %s\n", path);
        return -1;
    }
    text->n = n;
    text->n_train = n - n / 20;
    return 0;
}

/* Each sequence reads its own part of the text, so that states carry over from one chunk to the next. */
static void next_chunk(const Text *text, const ModelSizes *s, int64_t step, uint8_t *chunk)
{
    int64_t part = text->n_train / s->B;
    for (int64_t b = 0; b < s->B; b++)
        for (int64_t t = 0; t <= s->T; t++)
            chunk[b * (s->T + 1) + t] = text->bytes[b * part + (step * s->T + t) % part];
}

static void held_out_chunk(const Text *text, const ModelSizes *s, uint8_t *chunk)
{
    int64_t part = (text->n - text->n_train) / s->B;
    for (int64_t b = 0; b < s->B; b++)
        for (int64_t t = 0; t <= s->T; t++)
            chunk[b * (s->T + 1) + t] = text->bytes[text->n_train + b * part + t % part];
}

/* A bar on a terminal, a line every tenth of the way elsewhere. */
static void show_progress(double done, double loss, double rate, bool last)
{
    static int shown = -1;
    enum { WIDTH = 30 };
    char bar[WIDTH + 1];
    int full = (int)(done * WIDTH + 0.5), tenth = (int)(done * 10);
    bool terminal = isatty(STDOUT_FILENO);
    if (!terminal && tenth == shown && !last)
        return;
    shown = tenth;
    memset(bar, '.', WIDTH);
    memset(bar, '#', (size_t)(full > WIDTH ? WIDTH : full));
    bar[WIDTH] = 0;
    printf("%s[%s] %3.0f%%  loss %.3f nats  %.2f bits/byte  %6.0f tokens/s%s", terminal ? "\r" : "", bar,
           100 * done, loss, loss / log(2.0), rate, terminal && !last ? "" : "\n");
    fflush(stdout);
}

/* Trains for the given time; the learning rate warms up, then falls along a cosine of the time used. */
static int train(Model *m, const Text *text, const Settings *s, uint8_t *chunk)
{
    double start = now(), smooth = 0;
    int64_t step = 0, tokens = 0;
    for (double done = 0; done < 1; step++) {
        double warm = step < 20 ? (double)(step + 1) / 20 : 1;
        double fall = 0.05 + 0.95 * 0.5 * (1 + cos(M_PI * done));
        next_chunk(text, &s->sizes, step, chunk);
        double loss = model_train(m, chunk, s->rate * warm * fall);
        if (!(loss >= 0))
            return -1;
        tokens += s->sizes.B * s->sizes.T;
        smooth = step ? 0.95 * smooth + 0.05 * loss : loss;
        done = fmin(1, (now() - start) / s->seconds);
        show_progress(done, smooth, (double)tokens / (now() - start), done >= 1);
    }
    printf("%lld steps, %lld bytes read\n", (long long)step, (long long)tokens);
    return 0;
}

static int usage(void)
{
    fprintf(stderr, "usage: bytelm [-s SECONDS] [-d WIDTH] [-n UNITS] [-l LAYERS] [-b SEQUENCES] [-t STEPS] "
                    "[-r RATE] [-p PROMPT] [-x SEED] [TEXT]\n");
    return 2;
}

static int read_settings(Settings *s, int argc, char **argv)
{
    int c;
    while ((c = getopt(argc, argv, "s:d:n:l:b:t:r:p:x:")) != -1) {
        switch (c) {
        case 's': s->seconds = atof(optarg); break;
        case 'd': s->sizes.D = atoll(optarg); break;
        case 'n': s->sizes.H = atoll(optarg); break;
        case 'l': s->sizes.layers = atoi(optarg); break;
        case 'b': s->sizes.B = atoll(optarg); break;
        case 't': s->sizes.T = atoll(optarg); break;
        case 'r': s->rate = atof(optarg); break;
        case 'p': s->prompt = optarg; break;
        case 'x': s->seed = strtoull(optarg, NULL, 10); break;
        default: return -1;
        }
    }
    if (optind < argc)
        s->path = argv[optind++];
    bool wrong = optind < argc || s->seconds <= 0 || s->sizes.D < 1 || s->sizes.H < 1 || s->sizes.B < 1 ||
                 s->sizes.T < 1 || s->sizes.layers < 1 || s->sizes.layers > MAX_LAYERS;
    return wrong ? -1 : 0;
}

static int report(Model *m, const Text *text, const Settings *s, uint8_t *chunk)
{
    enum { LENGTH = 500 };
    char sample[LENGTH + 1];
    held_out_chunk(text, &s->sizes, chunk);
    double loss = model_loss(m, chunk);
    if (!(loss >= 0) || model_sample(m, s->prompt, 0.7, s->seed + 1, sample, LENGTH) != 0)
        return -1;
    sample[LENGTH] = 0;
    printf("held-out text: %.2f bits/byte\n\n%s%s\n", loss / log(2.0), s->prompt, sample);
    return 0;
}

static void introduce(const Model *m, const Text *text, const Settings *s)
{
    const char *layers = s->sizes.layers > 1 ? "s" : "", *workers = model_workers(m) > 1 ? "s" : "";
    printf("training on %s (%lld bytes)\n", s->path, (long long)text->n);
    printf("gru of %lld units, width %lld, %d layer%s, %lld parameters, backend %s, %d worker%s\n",
           (long long)s->sizes.H, (long long)s->sizes.D, s->sizes.layers, layers,
           (long long)model_parameters(m), model_backend(m), model_workers(m), workers);
}

int main(int argc, char **argv)
{
    Settings s = {
        .sizes = { .D = 128, .H = 128, .B = 16, .T = 48, .layers = 1 },
        .seconds = 30, .rate = 1e-2, .seed = 1,
        .path = "examples/bytelm/opticks.txt", .prompt = "The Rays of Light ",
    };
    Text text = { 0 };
    if (read_settings(&s, argc, argv) != 0)
        return usage();
    if (load_text(&text, s.path) != 0)
        return 1;
    if (text.n / 20 / s.sizes.B <= s.sizes.T) {
        fprintf(stderr, "bytelm: %s is too short for %lld sequences\n", s.path, (long long)s.sizes.B);
        return 1;
    }
    uint8_t *chunk = malloc((size_t)(s.sizes.B * (s.sizes.T + 1)));
    Model *m = chunk ? model_new(&s.sizes, s.seed) : NULL;
    if (!m)
        return 1;
    introduce(m, &text, &s);
    int rc = train(m, &text, &s, chunk) != 0 || report(m, &text, &s, chunk) != 0;
    model_free(m);
    free(chunk);
    free(text.bytes);
    return rc;
}
