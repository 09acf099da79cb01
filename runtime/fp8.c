/* Numbers of 8 bits and their scales, in host memory. In: numbers of f32, as many for a scale as `block`
 * says. Out: codes and scales, of which cell_fp8_decode makes the numbers that a cell computes with. */
#include "cell.h"
#include "half.h"

#include <float.h>
#include <math.h>

static int is_fp8(cell_dtype type)
{
    return type == CELL_E4M3 || type == CELL_E5M2;
}

/* How many numbers have one scale; 0: the arguments are wrong. */
static int64_t block_of(cell_dtype type, int64_t count, int64_t block)
{
    if (!is_fp8(type) || count < 0 || block < 0)
        return 0;
    if (block == 0)
        return count > 0 ? count : 1;
    return count % block == 0 ? block : 0;
}

static float largest_of(const float *values, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fabsf(values[i]) > most ? fabsf(values[i]) : most;
    return most;
}

cell_status cell_fp8_encode(cell_dtype type, int64_t count, int64_t block, const float *values,
                            uint8_t *codes, float *scales)
{
    int64_t each = block_of(type, count, block);
    if (!each)
        return CELL_BAD_ARGUMENT;
    if (!scales || (count > 0 && (!values || !codes)))
        return CELL_NULL_POINTER;
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return CELL_BAD_ARGUMENT;
    if (count == 0 && block == 0)
        scales[0] = 1;
    for (int64_t at = 0; at < count; at += each) {
        float most = largest_of(values + at, each), scale = most / (type == CELL_E4M3 ? 448.0f : 57344.0f);
        scale = most == 0 ? 1 : scale < FLT_MIN ? FLT_MIN : scale;
        scales[at / each] = scale;
        for (int64_t i = at; i < at + each; i++)
            codes[i] =
                type == CELL_E4M3 ? cell_f32_to_e4m3(values[i] / scale) : cell_f32_to_e5m2(values[i] / scale);
    }
    return CELL_OK;
}

cell_status cell_fp8_decode(cell_dtype type, int64_t count, int64_t block, const uint8_t *codes,
                            const float *scales, float *values)
{
    int64_t each = block_of(type, count, block);
    if (!each)
        return CELL_BAD_ARGUMENT;
    if (count > 0 && (!values || !codes || !scales))
        return CELL_NULL_POINTER;
    for (int64_t i = 0; i < count; i++)
        values[i] =
            scales[i / each] * (type == CELL_E4M3 ? cell_e4m3_to_f32(codes[i]) : cell_e5m2_to_f32(codes[i]));
    return CELL_OK;
}
