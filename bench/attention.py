#!/usr/bin/env python3
"""Times PyTorch's attention (cuDNN, FlashAttention, FlexAttention) on the workloads of attention.cu, in its way: medians of calls
behind each other. Prints one line each. Needs a GPU and PyTorch."""
import statistics
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


def timed(call):
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


def graphed(call):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def row(name, batch, heads, steps, size):
    q, k, v = (torch.randn(batch, heads, steps, size, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    for backend in SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION:
        with sdpa_kernel(backend):
            dy = torch.randn_like(q)

            def forward():
                with torch.no_grad():
                    F.scaled_dot_product_attention(q, k, v, is_causal=True)

            def both():
                torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v), dy)

            try:
                print(f"{name}: {backend.name}: {timed(graphed(forward)):.4f}, both ways {timed(graphed(both)):.4f} ms", flush=True)
            except RuntimeError as error:
                print(f"{name}: {backend.name}: {error}")


print(torch.__version__, torch.cuda.get_device_name())
row("causal, 4 x 16 x 64, T 2048", 4, 16, 2048, 64)
row("causal, 4 x 16 x 128, T 2048", 4, 16, 2048, 128)
row("causal, 2 x 16 x 64, T 8192", 2, 16, 8192, 64)
row("causal, 2 x 16 x 128, T 8192", 2, 16, 8192, 128)
