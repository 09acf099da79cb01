// The ring of tiles between warps that only copy and warps that multiply, on GPUs with wgmma: barriers in
// shared memory, and which warps have how many registers.
//
// In: the facts of a kernel (cell_attention_facts) whose shape has copiers. A tile has a stage of the ring. A
// copier waits until all warps that multiply have left the stage, copies, and opens the gate FULL; a warp
// that multiplies waits for it and opens FREE. So no barrier of the whole block stands between two tiles, and
// warpgroups need not go in step.
#ifndef CELL_DEVICE_ATTENTION_RING_CUH
#define CELL_DEVICE_ATTENTION_RING_CUH

// What was copied, or stored by other threads, is there.
template <class F> __device__ __forceinline__ void cell_attention_arrived()
{
    cell_cp_async_wait<0>();
    if constexpr (cell_attention_by_groups<F>)
        cell_bulk_fence_shared();
    cell_barrier();
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// Barriers in shared memory, for warps that multiply and warps that copy for them. A wait is for the end of a
// phase, 0 and 1 in turn; the one before the first, a 1, is over from the start. What was written before an
// arrival is seen behind the wait.
struct cell_attention_gate {
    uint32_t at;
    __device__ __forceinline__ void init(int arrivals) const
    {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
    }
    __device__ __forceinline__ void end() const
    {
        asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(at) : "memory");
    }
    // Is it over now? Asked without waiting: try_wait may hold a warp for microseconds.
    __device__ __forceinline__ bool is_open(uint32_t phase) const
    {
        uint32_t done;
        asm volatile(
            "{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
            : "=r"(done)
            : "r"(at), "r"(phase)
            : "memory");
        return done != 0;
    }
    __device__ __forceinline__ bool open(uint32_t phase) const
    {
        uint32_t done;
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, "
                     "0, p; }"
                     : "=r"(done)
                     : "r"(at), "r"(phase)
                     : "memory");
        return done != 0;
    }
    __device__ __forceinline__ void wait(uint32_t phase) const
    {
        while (!open(phase))
            ;
    }
    // Once for each warp.
    __device__ __forceinline__ void arrive() const
    {
        cell_warp_barrier();
        if (cell_lane() == 0)
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
    }
};
template <class F> struct cell_attention_gates {
    uint32_t at;
    enum { KEY_FULL, VALUE_FULL, KEY_FREE, VALUE_FREE };
    __device__ __forceinline__ cell_attention_gate operator()(int what, int stage) const
    {
        return { at + (what * F::stages + stage) * 8 };
    }
    __device__ __forceinline__ void init() const
    {
        for (int n = 0; n < F::stages; n++) {
            for (int what = KEY_FULL; what <= VALUE_FULL; what++)
                (*this)(what, n).init(F::copiers / 32);
            for (int what = KEY_FREE; what <= VALUE_FREE; what++)
                (*this)(what, n).init((F::threads - F::copiers) / 32);
        }
    }
    __device__ __forceinline__ void end() const
    {
        for (int n = 0; n < F::stages * CELL_ATTENTION_GATES; n++)
            cell_attention_gate{ at + n * 8 }.end();
    }
};
template <class F> struct cell_attention_turn {
    int stage = 0;
    uint32_t phase = 0;
    __device__ __forceinline__ void next()
    {
        if (++stage == F::stages)
            stage = 0, phase ^= 1;
    }
};

// What a thread has begun to copy, and the gates of it that are to be opened: two are under way at most.
struct cell_attention_under_way {
    cell_attention_gate first, second;
    int count = 0;
    __device__ __forceinline__ static void tell(const cell_attention_gate &gate)
    {
        cell_bulk_fence_shared();
        gate.arrive();
    }
    __device__ __forceinline__ void add(const cell_attention_gate &gate)
    {
        cell_cp_async_commit();
        if (count == 2) {
            cell_cp_async_wait<2>();
            tell(first);
            first = second, second = gate;
        } else if (count == 1) {
            second = gate, count = 2;
        } else {
            first = gate, count = 1;
        }
    }
    __device__ __forceinline__ void finish()
    {
        cell_cp_async_wait<0>();
        if (count > 0)
            tell(first);
        if (count > 1)
            tell(second);
        count = 0;
    }
    // Who frees it may wait for what is under way.
    __device__ __forceinline__ void wait(const cell_attention_gate &gate, uint32_t phase)
    {
        if (!cell_all(gate.is_open(phase))) {
            finish();
            gate.wait(phase);
        }
    }
};

// Of 512 threads 384 multiply, with 160 registers, and of 384 threads 256, with 232; each had 128, or 168.
template <class F> __device__ __forceinline__ void cell_attention_fewer_registers()
{
    if constexpr (F::threads == 512)
        asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
    else
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
}
template <class F> __device__ __forceinline__ void cell_attention_more_registers()
{
    if constexpr (F::threads == 512)
        asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
    else
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
}
template <class F, bool Copier> __device__ __forceinline__ void cell_attention_usual_registers()
{
    if constexpr (F::threads == 512 && Copier)
        asm volatile("setmaxnreg.inc.sync.aligned.u32 128;");
    else if constexpr (F::threads == 512)
        asm volatile("setmaxnreg.dec.sync.aligned.u32 128;");
    else if constexpr (Copier)
        asm volatile("setmaxnreg.inc.sync.aligned.u32 168;");
    else
        asm volatile("setmaxnreg.dec.sync.aligned.u32 168;");
}

// What the warps that multiply have begun to copy is there, for all of them.
template <class F> __device__ __forceinline__ void cell_attention_own_arrived()
{
    cell_cp_async_commit();
    cell_cp_async_wait<0>();
    cell_bulk_fence_shared();
    asm volatile("bar.sync 1, %0;" ::"n"(F::threads - F::copiers) : "memory");
}

// Runs bring(gates) in the warps that copy and take(gates) in those that multiply, in a block whose shared
// memory is laid out up to `memory`.
template <class F, class Bring, class Take>
__device__ __forceinline__ void cell_attention_by_ring(const unsigned char *memory, Bring bring, Take take)
{
    const cell_attention_gates<F> gates = { (uint32_t)__cvta_generic_to_shared(memory) };
    if (cell_thread() == 0)
        gates.init();
    cell_barrier();
    // Registers go where they are needed, and back.
    if (cell_shfl(cell_warp(), 0) >= F::own / 16) {
        cell_attention_fewer_registers<F>();
        bring(gates);
        cell_attention_usual_registers<F, true>();
    } else {
        cell_attention_more_registers<F>();
        take(gates);
        cell_attention_usual_registers<F, false>();
    }
    cell_barrier();
    if (cell_thread() == 0)
        gates.end();
}
#endif

#endif
