/* chunk_sizes.c: shared memory of the kernels of schedule chunk, and bytes of a chunk's record, as the device
 * library has them (cell_device_chunk.cuh and the files beside it, in whose words they are written). The
 * launch plan needs them as numbers; every kernel's text asserts that they are the library's. */
#include "chunk_plan.h"

static int64_t carve(int64_t count, int64_t bytes)
{
    return (count * bytes + 15) / 16 * 16;
}

static int64_t windows(const ChunkFacts *f, int64_t width)
{
    const int64_t C = f->rows;
    return 4 * carve(C * width, f->real) + carve((C + 1) * width, f->real) + carve(C / 16 * width, f->real);
}

/* A matrix in shared memory, of the part's type. */
static int64_t matrix(const ChunkFacts *f, int64_t rows, int64_t columns)
{
    return carve(rows * (columns + 16 / f->part), f->part);
}

/* Of a matrix with `columns` on tensor cores, from a row to the next: elements. */
static int64_t pitch(const ChunkFacts *f, int64_t columns)
{
    return columns + 16 / f->part;
}

static int64_t prep_double(const ChunkFacts *f)
{
    const int64_t C = f->rows;
    return 2 * carve(C * (C + 1), f->real) + 2 * carve(C * 17, f->real) + 2 * carve(C, f->real) +
           (f->decays ? windows(f, f->by_key ? 16 : 1) : 0);
}

/* Windows of two states. */
static int64_t matrices(const ChunkFacts *f)
{
    const int64_t C = f->rows;
    return carve(4 * C, f->real) + carve(4 * C * C, f->real) + carve(4 * (C + 1), f->real);
}

static int64_t prep_coupled(const ChunkFacts *f)
{
    const int64_t C = f->rows, slab = f->keys % 64 == 0 ? 64 : f->keys % 32 == 0 ? 32 : 16;
    return 2 * carve(C * (C + 1), f->real) + 2 * carve(C * (slab + 1), f->real) + 2 * carve(C, f->real) +
           windows(f, 1) + matrices(f);
}

static int64_t read_apart(const ChunkFacts *f)
{
    const int64_t C = f->rows, vectors = f->writes + f->reads;
    return carve(vectors * C * pitch(f, f->keys), f->part) +
           carve(vectors * C + (f->decays ? 22 * C : 0), 4) +
           carve(f->read_values * pitch(f, f->keys) + f->writes * C * pitch(f, f->read_values), f->part) +
           carve(f->writes * C, 4);
}

static int64_t prep(const ChunkFacts *f)
{
    const int64_t C = f->rows, K = f->keys, u = f->corrections, additions = f->writes + u,
                  readers = u + f->reads;
    const int64_t vectors = additions + readers, two = f->part == 2 ? 2 : 1;
    if (f->coupled)
        return prep_coupled(f);
    if (f->real == 8)
        return prep_double(f);
    if (f->apart)
        return 0;
    const int64_t wide = C * pitch(f, K), squares = 2 * u * two * C * pitch(f, C);
    bool early = u && !f->by_key && additions == 1 && f->reads == 1;
    int64_t parts = early && squares < (vectors - 1) * wide ? vectors * wide
                                                            : (early ? wide : vectors * wide) + squares;
    int64_t floats = vectors * C + (f->by_key ? 0 : 16 * u * C);
    if (f->by_key)
        floats += 2 * C * (K + 4) + 3 * (C / 16) * K + 20 * readers * additions * C;
    else if (f->decays)
        floats += 22 * C;
    return carve(parts, f->part) + carve(floats, 4);
}

/* Where a record's rows of numbers begin. */
static int64_t record_numbers(const ChunkFacts *f)
{
    const int64_t C = f->rows, u = f->corrections, w = f->writes, r = f->reads;
    const int64_t squares = f->apart ? 0 : u * r + w * r + u * w;
    return f->part * (C * C * squares + C * f->keys * (u + (f->by_key ? u + r + w : 0)));
}

int64_t chunk_record(const ChunkFacts *f)
{
    const int64_t vectors = f->corrections + f->writes + f->reads;
    int64_t n =
        record_numbers(f) + f->real * ((f->by_key ? 0 : f->rows * vectors) + (f->decays ? f->keys : 0));
    return (n + 127) / 128 * 128;
}

/* In double; else on tensor cores, with so many stages. */
static int64_t walk(const ChunkFacts *f)
{
    const int64_t C = f->rows, K = f->keys, u = f->corrections, w = f->writes, r = f->reads;
    if (f->real == 8)
        return carve(K * f->values, f->real) + (w + 2 * u) * carve(C * f->values, f->real);
    if (f->apart)
        return carve(f->stages * w * C * (pitch(f, K) + pitch(f, f->values)), f->part) +
               carve(f->stages * (chunk_record(f) / 4 + w * C), 4);
    int64_t parts = (u * w + (u + w) * r) * C * pitch(f, C) + (2 * u + w + r) * C * pitch(f, K) +
                    (w + u) * C * pitch(f, f->values);
    int64_t floats = (chunk_record(f) - record_numbers(f)) / 4 + (f->by_key ? 0 : r * C) + (w + u) * C;
    int64_t depth = f->part == 2 ? 16 : 8, left = (K / depth + (u + w) * (C / depth)) * 128;
    return carve(f->stages * parts, f->part) + carve(f->stages * floats, 4) +
           carve(2 * (f->values / 16) * left, 4);
}

static int64_t walk_back(const ChunkFacts *f)
{
    const int64_t C = f->rows, u = f->corrections, r = f->reads;
    if (f->real == 4) {
        int64_t parts =
            u * r * C * pitch(f, C) + (2 * u + r) * C * pitch(f, f->keys) + r * C * pitch(f, f->values);
        return carve(f->stages * parts, f->part) +
               carve(f->stages * ((chunk_record(f) - record_numbers(f)) / 4), 4);
    }
    const int64_t slab = f->keys % 64 == 0   ? 64
                         : f->keys % 32 == 0 ? 32
                                             : 16,
                  staged = slab > f->rows ? slab : f->rows;
    return matrix(f, f->keys, f->values) + (f->reads + f->corrections) * matrix(f, f->rows, f->values) +
           matrix(f, f->rows, staged);
}

/* Of a head, in shared memory: what the kernels' operands take. */
static int64_t operands(const ChunkFacts *f)
{
    return 400 + 320 * (f->writes + f->corrections) + 192 * f->reads;
}

static int64_t rest_coupled(const ChunkFacts *f)
{
    const int64_t C = f->rows, V = f->rest_values, slab = 32, wide = V > slab ? V : slab;
    const int64_t readers = f->reads + f->corrections, additions = f->writes + f->corrections,
                  vectors = readers + additions;
    int64_t reals = readers * additions * C * (C + 1) + vectors * C * (V + 1) + 2 * slab * (V + 1) +
                    2 * vectors * C * (slab + 1) + C * (wide + 1) + 2 * (vectors + additions) * C +
                    4 * C * C + 4 * (C + 1) + slab / 2 * 4;
    return carve(operands(f), 1) + matrices(f) + carve(reals, f->real);
}

static int64_t rest(const ChunkFacts *f)
{
    if (f->coupled)
        return rest_coupled(f);
    const int64_t C = f->rows, B = C / 16, threads = f->rest_threads, warps = threads / 32;
    const int64_t K = f->rest_keys, V = f->rest_values, line = K + 4;
    const int64_t readers = f->reads + f->corrections, additions = f->writes + f->corrections;
    const int64_t across = warps / (B < warps ? B : warps);
    int64_t parts = readers * additions * C * pitch(f, C) +
                    (readers + additions) * C * ((f->by_key ? 2 : 1) * pitch(f, K) + pitch(f, V)) +
                    2 * V * pitch(f, K);
    int64_t reals = (readers + 2 * additions) * C + (readers + 2 + additions) * C * across +
                    additions * C * (f->by_key ? across : B) + threads;
    if (f->by_key)
        reals += 5 * C * line + B * K + (B + 1) * B * K + (B + 1) * K;
    else if (f->decays)
        reals += 5 * C + B + 1 + 2 * C * 17 + B * B + C * (across + B) + (B + 1) * (B + 1);
    int64_t lines = 2 * (readers + additions) + 2 + f->corrections * (f->part == f->real ? 1 : 2);
    return carve(operands(f), 1) + carve(lines, 24) + carve(parts, f->part) + carve(reals, f->real);
}

/* ---- with a gate for each value: cell_device_chunk_valued.cuh ---- */

/* Bytes of 16 rows of keys, of 16 rows of `values` values, and of a state of these, of the part's type. */
static int64_t value_keys(const ChunkFacts *f)
{
    return carve(16 * pitch(f, f->keys), f->part);
}
static int64_t value_rows(const ChunkFacts *f, int64_t values)
{
    return carve(16 * pitch(f, values), f->part);
}
static int64_t value_state(const ChunkFacts *f, int64_t values)
{
    return carve(f->keys * pitch(f, values), f->part);
}

static int64_t value_sums(const ChunkFacts *f)
{
    int64_t most = f->writes > f->reads ? f->writes : f->reads;
    return most * (value_keys(f) + value_rows(f, f->values)) + carve(f->values, f->real);
}

static int64_t value_reader(const ChunkFacts *f)
{
    return (f->writes + f->reads) * value_keys(f) + f->writes * value_rows(f, f->values) +
           value_state(f, f->values) + f->reads * f->writes * carve(16 * 17, f->real) +
           f->reads * carve(16 * (f->values + 1), f->real) + carve(f->values, f->real);
}

static int64_t value_rest(const ChunkFacts *f)
{
    const int64_t C = f->rows, blocks = C / 16, V = f->rest_values, r = f->reads, n = f->writes,
                  warps = f->rest_threads / 32;
    const int64_t vectors = r + n, rows = 1 + 2 * vectors, square = 16 * 17;
    return carve(operands(f), 1) + carve(vectors * 16 * pitch(f, f->keys), f->part) +
           carve((n + 2 * r) * 16 * pitch(f, V), f->part) +
           carve((blocks + 1) * f->keys * pitch(f, V), f->part) + carve(2 * 16 * pitch(f, 16), f->part) +
           carve(vectors * C * (f->keys + 1), f->real) + carve(rows * 16 * (V + 1), f->real) +
           carve(r * n * square, f->real) + carve(r * n * warps * square, f->real) +
           carve(r * n * blocks * square, f->real) + carve(n * C, f->real) + carve(vectors * 16, f->real) +
           2 * carve(V, f->real);
}

static int64_t value_smem(const ChunkFacts *f, int direction, ChunkKind kind)
{
    switch (kind) {
    case CHUNK_PREP: return value_sums(f);
    case CHUNK_READ: return direction == FORWARD ? value_reader(f) : 0;
    case CHUNK_REST: return direction == FORWARD ? 0 : value_rest(f);
    default: return 0;
    }
}

static int64_t join(const ChunkFacts *f)
{
    return carve((int64_t)f->keys * CHUNK_JOINED, f->real) + carve(f->keys, f->real);
}

int chunk_resident(const ChunkFacts *f, ChunkKind kind)
{
    if (f->by_value)
        return kind == CHUNK_REST ? (value_rest(f) <= 113 << 10 ? 2 : 1) : f->real == 4 ? 4 : 1;
    const int64_t read = read_apart(f);
    if (kind == CHUNK_READ)
        return read <= 44 << 10 ? 5 : read <= 56 << 10 ? 4 : read <= 75 << 10 ? 3 : read <= 113 << 10 ? 2 : 1;
    if (kind == CHUNK_PREP)
        return f->real == 4 && !f->coupled && !f->apart && prep(f) <= 56 << 10 ? 4 : 1;
    return rest(f) <= 113 << 10 ? 2 : 1;
}

int chunk_threads(const ChunkFacts *f, int direction, ChunkKind kind)
{
    if (kind == CHUNK_REST)
        return f->rest_threads;
    if (kind == CHUNK_JOIN)
        return CHUNK_JOIN_THREADS;
    bool walks = kind == CHUNK_PASS || kind == CHUNK_WALK;
    if (f->apart && kind == CHUNK_PREP)
        return CHUNK_NUMBERS_THREADS;
    if (f->apart && walks)
        return CHUNK_STATES_THREADS;
    bool pairs = walks && !f->by_value && direction == FORWARD && f->real == 4 && f->values > 32;
    return pairs ? f->values * 4 : CHUNK_THREADS;
}

/* Forward has no rest. */
int64_t chunk_smem(const ChunkFacts *f, int direction, ChunkKind kind)
{
    if (f->by_value)
        return value_smem(f, direction, kind);
    switch (kind) {
    case CHUNK_PREP: return prep(f);
    case CHUNK_JOIN: return join(f);
    case CHUNK_READ: return f->apart ? read_apart(f) : 0;
    case CHUNK_PASS:
    case CHUNK_WALK: return direction == FORWARD ? walk(f) : walk_back(f);
    default: return direction == FORWARD ? 0 : rest(f);
    }
}

int64_t chunk_most_smem(const ChunkFacts *f)
{
    int64_t most = 0;
    for (int d = 0; d < 2; d++)
        for (ChunkKind k = 0; k < CHUNK_KINDS; k++) {
            int64_t n = chunk_smem(f, d, k);
            most = n > most ? n : most;
        }
    return most;
}
