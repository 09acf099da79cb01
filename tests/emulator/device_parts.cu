// Matrices of f32 as parts of bf16 (cell_device_parts.cuh).
//
// In: nothing. Out: `N passed, N failed`. Guaranteed: the parts of a number add up to it, its first one has it within
// half a unit of bf16, subnormal numbers are within half of bf16's smallest, the largest ones stay finite, what is not
// finite becomes NaN; parts lie in rows and in planes, rising and falling, of rows that vectors fit and of others.
#include "harness.h"

// ptr: the matrix, the copy; size: offset, rows, columns, pitch.
template <bool Planes, bool Rising> __global__ void k_split(const __grid_constant__ cell_kernel_args args)
{
    cell_split_matrix<Planes, Rising>((cell_bf16 *)args.ptr[1], (const float *)args.ptr[0], args.size[0], args.size[1],
                                      args.size[2], args.size[3]);
}

static float as_float(cell_bf16 x)
{
    const uint32_t bits = (uint32_t)x.bits << 16;
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

// The largest part first. Sums in double are exact.
static void check_parts(float x, const float (&part)[3])
{
    if (!isfinite(x)) {
        check(isnan(part[0] + part[1] + part[2]), "%g gives %g, %g and %g", x, part[0], part[1], part[2]);
        return;
    }
    const double off = fabs((double)part[0] + part[1] + part[2] - x), first = fabs((double)part[0] - x);
    check(off <= (fabs(x) < 0x1p-110 ? 0x1p-134 : 0), "%a is off by %a", x, off);
    check(first <= fmax(fabs(x) * 0x1p-8, 0x1p-134), "the first part of %a is off by %a", x, first);
    check(fabs(part[1]) <= fmax(fabs(x) * 0x1.01p-8, 0x1p-133) && fabs(part[2]) <= fmax(fabs(x) * 0x1.01p-16, 0x1p-133),
          "%a has the parts %a and %a", x, part[1], part[2]);
}

// Where element (row, column) of the part is, the largest being 0.
template <bool Planes, bool Rising>
static size_t place(int64_t rows, int64_t columns, int64_t row, int64_t column, int part)
{
    const int64_t which = Rising ? 2 - part : part;
    return (size_t)(Planes ? (which * rows + row) * columns + column : (row * 3 + which) * columns + column);
}

template <bool Planes, bool Rising>
static void test_matrix(const char *what, int64_t offset, int64_t rows, int64_t columns, int64_t pitch, bool given)
{
    static const float special[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 0x1.fffffep127f, -0x1.fffffep127f, 0x1.fep127f,
                                    0x1.ff0002p127f, 0x1p-149f, -0x1.fffffcp-127f, 0x1.234568p-110f, 1.0f, -0x1.fffffep0f};
    enum { SPECIAL = sizeof special / sizeof *special };
    Random random(11);
    Array<float> from((size_t)(offset + rows * pitch));
    Array<cell_bf16> to((size_t)(3 * rows * columns));
    for (size_t i = 0; i < from.count; i++)
        from[i] = i % 3 == 0 ? special[i / 3 % SPECIAL]
                             : ldexpf((float)random.uniform(-2, 2), (int)random.uniform(-140, 126));
    cell_kernel_args args = arguments({given ? from.data : nullptr, to.data});
    args.size[0] = offset, args.size[1] = rows, args.size[2] = columns, args.size[3] = pitch;
    launch(what, k_split<Planes, Rising>, args, Shape{2, 128});
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < columns; column++) {
            float part[3];
            for (int i = 0; i < 3; i++)
                part[i] = as_float(to[place<Planes, Rising>(rows, columns, row, column, i)]);
            check_parts(given ? from[(size_t)(offset + row * pitch + column)] : 0, part);
        }
}

template <bool Planes, bool Rising> static void test_order(const char *what)
{
    test_matrix<Planes, Rising>(what, 0, 5, 2080, 2080, true);
    test_matrix<Planes, Rising>(what, 4, 7, 16, 20, true);
    test_matrix<Planes, Rising>(what, 1, 7, 16, 16, true);
    test_matrix<Planes, Rising>(what, 0, 3, 13, 14, true);
    test_matrix<Planes, Rising>(what, 0, 3, 16, 16, false);
}

int main()
{
    test_order<false, false>("rows, falling");
    test_order<false, true>("rows, rising");
    test_order<true, false>("planes, falling");
    test_order<true, true>("planes, rising");
    return report();
}
