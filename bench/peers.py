#!/usr/bin/env python3
"""Times PyTorch's own operators (cuDNN among them) on the workloads of workloads.txt, in the way of bench.c: caches cold,
median of 30, as called and as replays of a CUDA graph, and the memory that a step takes at its worst; then those of
flash-linear-attention where it is installed (pip install fla-core), else says so. Prints one JSON object a line. Needs a GPU and
PyTorch. `peers.py pytorch` and `peers.py fla` leave the others out; `peers.py chunks` has the sizes of chunk_workloads.txt."""
import json
import sys
import torch
import cold


def peak(call, inputs):
    """What a step holds at its worst: its inputs and params, and what PyTorch takes meanwhile, gradients among it. What else
    lies there (the buffer that flushes the caches, other workloads' tensors) is not counted."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before + sum(x.numel() * x.element_size() for x in inputs)


def both(name, forward, inputs):
    grads = {}

    def run(backward):
        out = forward()
        if backward:
            if "dy" not in grads:
                grads["dy"] = torch.randn_like(out)
            torch.autograd.grad(out, inputs, grads["dy"])

    row = measure(name, run, say=False)
    grads.clear()
    row["peak_bytes"] = peak(lambda: run(True), inputs)
    print(json.dumps(row), flush=True)


def measure(name, run, say=True):
    row = {"workload": name}
    for backward in (False, True):
        label = "fwd_bwd" if backward else "fwd"
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(5):
                run(backward)
        torch.cuda.current_stream().wait_stream(stream)
        row[label + "_ms"] = round(cold.timed(lambda: run(backward)), 4)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run(backward)
        row[label + "_graph_ms"] = round(cold.timed(graph.replay), 4)
        del graph
    if say:
        print(json.dumps(row), flush=True)
    return row


def products(name, rows, inner, columns):
    """A linear layer's three products alone: forward, and with the gradients of its input and of its weights."""
    kind = dict(device="cuda", dtype=torch.bfloat16)
    x, w, dy = torch.randn(rows, inner, **kind), torch.randn(columns, inner, **kind), torch.randn(rows, columns, **kind)
    y, dx, dw = torch.empty_like(dy), torch.empty_like(x), torch.empty_like(w)

    def run(backward):
        torch.mm(x, w.t(), out=y)
        if backward:
            torch.mm(dy, w, out=dx)
            torch.mm(dy.t(), x, out=dw)

    measure(name, run)


def pytorch():
    kind = dict(device="cuda", dtype=torch.bfloat16)
    x = torch.randn(16, 512, 1024, requires_grad=True, **kind)
    for name, make in (("lstm_1024", torch.nn.LSTM), ("gru_1024", torch.nn.GRU)):
        net = make(1024, 1024, batch_first=True).to(**kind)
        both(name + " (cuDNN)", lambda: net(x)[0], [x, *net.parameters()])
    u = torch.randn(8192, 4096, requires_grad=True, **kind)
    g = torch.randn(8192, 4096, requires_grad=True, **kind)
    norm = torch.nn.LayerNorm(4096).to(**kind)
    both("layernorm (PyTorch)", lambda: norm(u), [u, *norm.parameters()])
    both("swiglu (PyTorch)", lambda: torch.nn.functional.silu(g) * u, [u, g])
    linear = torch.nn.Linear(4096, 4096).to(**kind)
    both("linear_gelu (PyTorch)", lambda: torch.nn.functional.gelu(linear(u)), [u, *linear.parameters()])
    products("linear_gelu (its three products alone)", 8192, 4096, 4096)


def linear_attention():
    """The recurrences alone, of inputs whose norms and gates were computed before: the peer's share of the workload is smaller
    than ours. Sizes are those of workloads.txt."""
    try:
        from fla.ops.delta_rule import chunk_delta_rule, fused_recurrent_delta_rule
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule
        from fla.ops.hgrn import chunk_hgrn
        from fla.ops.linear_attn import chunk_linear_attn
    except ImportError as missing:
        print(f"peers: flash-linear-attention's rows are left out: {missing} (pip install fla-core)", file=sys.stderr)
        return

    def leaf(x):
        return x.to(device="cuda", dtype=torch.bfloat16).requires_grad_()

    def row(name, form, op, inputs, **options):
        try:
            both(f"{name} (flash-linear-attention, {form})", lambda: op(*inputs, **options)[0], inputs)
        except Exception as refused:
            print(json.dumps(refusal(f"{name} (flash-linear-attention, {form})", refused)), flush=True)

    for name, batch, steps in (("hgrn_2048", 8, 2048), ("hgrn_2048_long", 2, 8192)):
        x, f = torch.randn(2, batch, steps, 2048)
        row(name, "chunked", chunk_hgrn, [leaf(x), leaf(torch.nn.functional.logsigmoid(f))])
    q, k, v = torch.randn(3, 8, 2048, 16, 64)
    k = torch.nn.functional.normalize(k, dim=-1)
    strength, decay = torch.rand(2, 8, 2048, 16)
    given = [leaf(q), leaf(k), leaf(v), leaf(strength)]
    row("delta_16x64", "recurrent", fused_recurrent_delta_rule, given, scale=1.0)
    row("linear_attention_16x64", "chunked", chunk_linear_attn, given[:3], scale=1.0, normalize=False)
    row("delta_16x64", "chunked", chunk_delta_rule, given, scale=1.0)
    row("gated_delta_16x64", "chunked", chunk_gated_delta_rule, given[:3] + [leaf(torch.log(0.9 + 0.1 * decay)), given[3]], scale=1.0)


def refusal(name, refused):
    """By its version of Triton, or on this GPU."""
    return {"workload": name, "refused": str(refused).split("\n")[0]}


def chunk_rows():
    """What chunks() times: name, the op, its inputs and options, one at a time. ImportError where flash-linear-attention is not
    installed. Gates and strengths are f32 where its documentation has them so."""
    from fla.ops.delta_rule import chunk_delta_rule
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    from fla.ops.gla import chunk_gla
    from fla.ops.kda import chunk_kda
    from fla.ops.linear_attn import chunk_linear_attn
    from fla.ops.rwkv7 import chunk_rwkv7
    from fla.ops.simple_gla import chunk_simple_gla

    def leaf(x, dtype=torch.bfloat16):
        return x.to(device="cuda", dtype=dtype).requires_grad_()

    for width, batch, steps, heads, tail in ((64, 8, 2048, 16, ""), (128, 2, 8192, 16, ""), (128, 1, 32768, 8, "_b1")):
        shape = (batch, steps, heads)
        q, k, v, gate = torch.randn(4, *shape, width, device="cuda")
        k = torch.nn.functional.normalize(k, dim=-1)
        strength, decay = torch.rand(2, *shape, device="cuda")
        q, k, v, strength = leaf(q), leaf(k), leaf(v), leaf(strength)
        number = leaf(torch.log(0.9 + 0.1 * decay), torch.float32)
        by_key = leaf(torch.nn.functional.logsigmoid(gate) / 16, torch.float32)
        name = f"{width}{tail}"
        yield f"delta_{name}", chunk_delta_rule, [q, k, v, strength], {"scale": 1.0}
        yield f"gated_delta_{name}", chunk_gated_delta_rule, [q, k, v, number, strength], {"scale": 1.0}
        if tail:
            continue
        yield f"linear_attention_{name}", chunk_linear_attn, [q, k, v], {"scale": 1.0, "normalize": False}
        yield f"retnet_{name}", chunk_simple_gla, [q, k, v, number], {"scale": 1.0}
        yield f"gla_{name}", chunk_gla, [q, k, v, by_key], {"scale": 1.0}
        yield f"kda_{name}", chunk_kda, [q, k, v, by_key, strength], {"scale": 1.0}
        rate = leaf(torch.rand(*shape, width, device="cuda"))
        removed = leaf(-k.detach().float())
        added = leaf(k.detach().float() * rate.detach().float())
        yield f"rwkv7_{name}", chunk_rwkv7, [q, by_key, k, v, removed, added], {}


def chunks():
    """flash-linear-attention's chunk kernels at the sizes of chunk_workloads.txt: the recurrences alone, of keys that were
    normalised and gates whose logarithms were taken before."""
    try:
        for name, op, inputs, options in chunk_rows():
            name = f"{name} (flash-linear-attention, chunked)"
            try:
                both(name, lambda: op(*inputs, **options)[0], inputs)
            except Exception as refused:
                print(json.dumps(refusal(name, refused)), flush=True)
    except ImportError as missing:
        print(f"peers: flash-linear-attention's rows are left out: {missing} (pip install fla-core)", file=sys.stderr)


def main():
    parts = {"pytorch": pytorch, "fla": linear_attention, "chunks": chunks}
    chosen = sys.argv[1:] or ["pytorch", "fla"]
    if set(chosen) - set(parts):
        sys.exit(f"usage: peers.py [{' | '.join(parts)}]...")
    cold.begin()
    torch.manual_seed(1)
    for part in chosen:
        parts[part]()


if __name__ == "__main__":
    main()
