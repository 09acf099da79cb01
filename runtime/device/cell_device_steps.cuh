// The rows of some steps on their way from memory into shared memory, asynchronously (cell_cp_async; the caller commits and waits).
//
// In: Bytes of one copy; Pieces, the copies of a row; Pitch, elements between rows in shared memory; Steps, the rows of a whole
// chunk; Threads that share the work, at least one for each piece of a row, of which the caller is number `thread`. `from` is the
// first step's row, aligned to Bytes, with `pitch` elements to the next step's (negative where time runs backwards). Where `valid`
// is false nothing is read, and rows are zeros. Out: the first `steps` rows of `to`, at most Steps.
//
// A thread has the same place in each of its rows, so that the next one's address is an addition, and a whole chunk, which all but
// the last are, has no conditions: a loop over pieces took 23 instructions a copy, half of them products of 64 bits.
#ifndef CELL_DEVICE_STEPS_CUH
#define CELL_DEVICE_STEPS_CUH

template <int Bytes, int Pieces, int Pitch, int Steps, int Threads, class T>
__device__ __forceinline__ void cell_copy_steps(cell_smem<T> to, const T *from, int64_t pitch, int steps, int thread, bool valid = true)
{
    static_assert(Pieces <= Threads, "a row is copied at once");
    constexpr int rows = Threads / Pieces, per = Bytes / (int)sizeof(T);
    const int row = thread / Pieces, at = thread % Pieces * per;
    if (row >= rows)
        return;
    to = to + (row * Pitch + at);
    if (valid)
        from += row * pitch + at;
    CELL_UNROLL
    for (int s = 0; s < Steps && steps == Steps; s += rows) {
        if (Steps % rows == 0 || s + row < Steps)
            cell_cp_async_zfill<Bytes>(to + s * Pitch, from, valid);
        if (valid)
            from += rows * pitch;
    }
    CELL_UNROLL_BY(1)
    for (int s = row; s < steps && steps != Steps; s += rows) {
        cell_cp_async_zfill<Bytes>(to, from, valid);
        to = to + rows * Pitch;
        if (valid)
            from += rows * pitch;
    }
}

#endif
