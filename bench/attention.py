#!/usr/bin/env python3
"""Times PyTorch's attention (cuDNN, FlashAttention, FlexAttention) on the workloads of
attention.cu, in its way: medians of calls behind each other, caches warm. `attention.py cold`: in bench.c's
way, caches cold. Prints one line each. Needs a GPU and PyTorch, and for FlexAttention Triton; what a peer
cannot take is said, and the rest is measured."""
import statistics
import sys
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
import cold

COLD = sys.argv[1:] == ["cold"]
if COLD:
    cold.begin()


def timed(call):
    if COLD:
        return cold.timed(call)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(5):
        call()
    times = []
    for _ in range(7):
        begin.record()
        for _ in range(4):
            call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 4)
    return statistics.median(times)


def say(name, peer, forward, both):
    try:
        times = f"{timed(cold.graph_of(forward).replay):.4f}"
        if both:
            times += f", both ways {timed(cold.graph_of(both).replay):.4f}"
        print(f"{name}: {peer}: {times} ms", flush=True)
    except Exception as error:                  # of any kind, of a peer: the others are measured
        print(f"{name}: {peer}: {str(error).splitlines()[0]}", flush=True)


def drawn(batch, heads, steps, size, grad=True):
    return torch.randn(batch, heads, steps, size, device="cuda", dtype=torch.bfloat16, requires_grad=grad)


def row(name, batch, heads, steps, size):
    q, k, v = (drawn(batch, heads, steps, size) for _ in range(3))
    dy = torch.randn_like(q)
    for backend in SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION:
        with sdpa_kernel(backend):

            def forward():
                with torch.no_grad():
                    F.scaled_dot_product_attention(q, k, v, is_causal=True)

            def both():
                torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v), dy)

            say(name, backend.name, forward, both)


def flex(name, batch, heads, steps, size, mask, score=None, learned=()):
    """FlexAttention with a mask of whole tiles; `score` changes a score, by what is learned."""
    try:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention
        blocks = create_block_mask(mask, None, None, steps, steps, device="cuda")
    except Exception as error:
        print(f"{name}: FlexAttention: {error}", flush=True)
        return
    compiled = torch.compile(flex_attention, dynamic=False)
    q, k, v = (drawn(batch, heads, steps, size) for _ in range(3))
    dy = torch.randn_like(q)

    def forward():
        with torch.no_grad():
            compiled(q, k, v, score_mod=score, block_mask=blocks)

    def both():
        torch.autograd.grad(compiled(q, k, v, score_mod=score, block_mask=blocks), (q, k, v, *learned), dy)

    say(name, "FlexAttention", forward, both)


def decode(name, batch, heads, shared, steps, size):
    q = drawn(batch, heads, 1, size, False)
    k, v = (drawn(batch, heads // shared, steps, size, False) for _ in range(2))

    def forward():
        F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    def repeated():
        F.scaled_dot_product_attention(q, wide[0], wide[1])

    for backend in SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION:
        with sdpa_kernel(backend):
            say(name, backend.name, forward, None)
    wide = [x.repeat_interleave(shared, 1) for x in (k, v)]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        say(name, "FLASH_ATTENTION with keys repeated", repeated, None)


def causal(b, h, i, j):
    return i >= j


def near(b, h, i, j):
    return (i >= j) & (i - j < 256)


print(torch.__version__, torch.cuda.get_device_name())
row("causal, 4 x 16 x 64, T 2048", 4, 16, 2048, 64)
row("causal, 4 x 16 x 128, T 2048", 4, 16, 2048, 128)
row("causal, 2 x 16 x 64, T 8192", 2, 16, 8192, 64)
row("causal, 2 x 16 x 128, T 8192", 2, 16, 8192, 128)
decode("decode, 8 x 32 (8) x 128, history 8192", 8, 32, 4, 8192, 128)
flex("window 256, 4 x 16 x 64, T 4096", 4, 16, 4096, 64, near)
slopes = torch.full((16,), 0.1, device="cuda", requires_grad=True)
flex("causal with learned slopes, 4 x 16 x 64, T 2048", 4, 16, 2048, 64, causal,
     lambda s, b, h, i, j: s - slopes[h] * (i - j), (slopes,))
