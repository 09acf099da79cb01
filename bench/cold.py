"""Times of calls on a GPU in the way of bench.c: between events, caches cold, the median of 30. begin() comes first: it
takes 256 MB, which are written in front of each call."""
import statistics
import torch

flush = None


def begin():
    global flush
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")


def timed(call):
    """Milliseconds."""
    before, behind = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    for _ in range(30):
        flush.zero_()
        before.record()
        call()
        behind.record()
        torch.cuda.synchronize()
        times.append(before.elapsed_time(behind))
    return statistics.median(times)


def graph_of(call):
    """A CUDA graph of the call, behind three calls on another stream, so that nothing is made for the first
    time in it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph
