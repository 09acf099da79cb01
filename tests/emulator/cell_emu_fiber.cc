// Stacks and the switch between them.
//
// In: an entry function. Out: fibers that can be switched to, a few nanoseconds each way. Guaranteed:
// AddressSanitizer is told of every switch where it is linked in; a stack ends in a page that cannot be
// touched. Stacks are kept for the next fibers: kernels of other shapes alternate, and making one takes three system
// calls and a fault for every page.
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "cell_emu_internal.h"

extern "C" {
void __sanitizer_start_switch_fiber(void **save, const void *bottom, size_t size) __attribute__((weak));
void __sanitizer_finish_switch_fiber(void *save, const void **bottom, size_t *size) __attribute__((weak));
void *__asan_get_current_fake_stack() __attribute__((weak));
void __asan_unpoison_memory_region(const volatile void *at, size_t bytes) __attribute__((weak));
}

// -DCELL_EMU_UCONTEXT takes the portable way, which costs a system call per switch.
#if defined(CELL_EMU_UCONTEXT)
#include <ucontext.h>
#elif defined(__x86_64__)
// Saves what the ABI says a call preserves on the old stack, takes the same from the new one. Rounding modes
// are the same on all fibers.
asm(R"(
    .text
    .p2align 4
    .globl cell_emu_switch_stack
    .type cell_emu_switch_stack, @function
cell_emu_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size cell_emu_switch_stack, .-cell_emu_switch_stack
)");
static const size_t kFrameWords = 8; // six registers, the entry, a return address of zero for the unwinder
static const size_t kEntryWord = 6;
#elif defined(__aarch64__)
asm(R"(
    .text
    .p2align 4
    .globl cell_emu_switch_stack
    .type cell_emu_switch_stack, %function
cell_emu_switch_stack:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x2, sp
    str x2, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size cell_emu_switch_stack, .-cell_emu_switch_stack
)");
static const size_t kFrameWords = 20;
static const size_t kEntryWord = 11;
#else
#define CELL_EMU_UCONTEXT
#include <ucontext.h>
#endif

#ifndef CELL_EMU_UCONTEXT
extern "C" void cell_emu_switch_stack(void **save_sp, void *load_sp);

static void prepare(Fiber *fiber, int color, void (*entry)())
{
    // Equal places on all stacks would share the cache's sets: each starts a bit lower than the last.
    char *top = fiber->stack + fiber->bytes - (size_t)(color % 32) * 192;
    void **frame = (void **)((uintptr_t)top & ~(uintptr_t)63) - 8 - kFrameWords;
    for (size_t i = 0; i < kFrameWords; i++)
        frame[i] = nullptr;
    frame[kEntryWord] = (void *)entry;
    fiber->sp = frame;
}

static void switch_stack(Fiber *from, Fiber *to) { cell_emu_switch_stack(&from->sp, to->sp); }
static void forget(Fiber *) {}
#else
static void prepare(Fiber *fiber, int, void (*entry)())
{
    ucontext_t *context = new ucontext_t();
    getcontext(context);
    context->uc_stack.ss_sp = fiber->stack;
    context->uc_stack.ss_size = fiber->bytes;
    makecontext(context, entry, 0);
    fiber->sp = context;
}

static void switch_stack(Fiber *from, Fiber *to)
{
    if (!from->sp)
        from->sp = new ucontext_t();
    swapcontext((ucontext_t *)from->sp, (ucontext_t *)to->sp);
}

static void forget(Fiber *fiber) { delete (ucontext_t *)fiber->sp; }
#endif

static size_t page_bytes() { return (size_t)sysconf(_SC_PAGESIZE); }

struct Stack {
    char *lowest; // behind the guard page
    size_t bytes;
};

struct Stacks {
    std::vector<Stack> spare;
    ~Stacks()
    {
        const size_t page = page_bytes();
        for (Stack &s : spare)
            munmap(s.lowest - page, s.bytes + page);
    }
};
static thread_local Stacks stacks;

static Stack new_stack(size_t bytes)
{
    const size_t page = page_bytes();
    void *base = mmap(nullptr, bytes + page, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        perror("cell emulator: no memory for a thread's stack");
        _exit(CELL_EMU_EXIT);
    }
    // Every guard page splits a mapping; the system allows some 65,000. Beyond that it is left off.
    (void)mprotect(base, page, PROT_NONE);
    return Stack{ (char *)base + page, bytes };
}

static Stack take_stack(size_t bytes)
{
    if (stacks.spare.empty() || stacks.spare.back().bytes != bytes)
        return new_stack(bytes);
    Stack s = stacks.spare.back();
    stacks.spare.pop_back();
    return s;
}

void fiber_create(Fiber *fiber, size_t bytes, int color, void (*entry)())
{
    const size_t page = page_bytes();
    const Stack s = take_stack((bytes + page - 1) / page * page);
    fiber->stack = s.lowest;
    fiber->bytes = s.bytes;
    fiber->fake_stack = nullptr;
    prepare(fiber, color, entry);
}

// What instrumented frames that the fiber never left have poisoned; frames that returned have cleared their own. Clearing
// the whole stack took a quarter of the time of a ladder's program.
static void clear_frames(const Fiber *fiber)
{
    char *from = fiber->stack;
#ifndef CELL_EMU_UCONTEXT
    from = (char *)fiber->sp;
#endif
    if (__asan_unpoison_memory_region)
        __asan_unpoison_memory_region(from, (size_t)(fiber->stack + fiber->bytes - from));
}

void fiber_destroy(Fiber *fiber)
{
    clear_frames(fiber);
    forget(fiber);
    stacks.spare.push_back(Stack{ fiber->stack, fiber->bytes });
    *fiber = Fiber();
}

// AddressSanitizer is told of switches for what it says of an error, the calls that led there; it sees the
// error without that, unless it keeps frames elsewhere.
static bool tells()
{
    static const bool untold = getenv("CELL_EMU_TRACES") && getenv("CELL_EMU_TRACES")[0] == '0';
    static const bool told = __sanitizer_start_switch_fiber && __sanitizer_finish_switch_fiber &&
                             (!untold || (__asan_get_current_fake_stack && __asan_get_current_fake_stack()));
    return told;
}

static void finish(void *fake_stack)
{
    if (!tells())
        return;
    const void *bottom = nullptr;
    size_t size = 0;
    __sanitizer_finish_switch_fiber(fake_stack, &bottom, &size);
    Fiber *main = &emu_launch->main;
    if (!main->stack) { // the first switch comes from the program's own stack
        main->stack = (char *)bottom;
        main->bytes = size;
    }
}

void fiber_entered() { finish(nullptr); }

void fiber_switch(Fiber *from, Fiber *to)
{
    if (tells())
        __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->bytes);
    switch_stack(from, to);
    finish(from->fake_stack);
}
