#!/usr/bin/env python3
"""Times a linear layer whose weights and inputs are stored in e4m3, one scale each, beside torch._scaled_mm and PyTorch's
layer in bf16, in the way of bench.c: caches cold, medians of 30, replays of CUDA graphs. By turns, twice. Then how far its
results are from exact ones. CELL_CUBLASLT=none: the layer multiplies copies. Needs a GPU of capability 8.9 or later,
PyTorch, and cellc on PYTHONPATH."""
import json
import os
import sys
import torch
import cellc
import cold

SPEC = """cell linear_8 {
    dim D, F;
    input  x[D] : e4m3;
    param  W[F, D] : e4m3 ~ xavier;
    output y[F]%s;
    y[f] = sum[d] W[f,d] * x[d];
}
"""


def layer_of(stored, D, F):
    layer = stored(D=D, F=F).cuda()
    layer.encode()
    return layer


def rows_of(layer, rows, D, F):
    """Each way's name and call."""
    x = torch.randn(1, rows, D, device="cuda")
    codes, scale = cellc.encode(x, "e4m3")
    layer.x_scale.copy_(scale)
    weights = layer.W.detach()
    wide, plain = x.bfloat16(), cellc.decode(weights, layer.W_scale).bfloat16()

    def scaled(fast):
        return lambda: torch._scaled_mm(codes[0], weights.t(), scale, layer.W_scale, out_dtype=torch.bfloat16, use_fast_accum=fast)

    return {"cellc": lambda: layer(codes), "torch._scaled_mm": scaled(False), "torch._scaled_mm, fast accumulation": scaled(True),
            "PyTorch in bf16": lambda: torch.nn.functional.linear(wide, plain)}


def times(stored):
    for rows, D, F in ((8192, 4096, 4096), (1024, 4096, 4096), (16, 4096, 4096), (8192, 1024, 1024)):
        ways = {name: cold.graph_of(call).replay for name, call in rows_of(layer_of(stored, D, F), rows, D, F).items()}
        for turn in range(2):
            row = {name: round(cold.timed(call), 4) for name, call in ways.items()}
            print(json.dumps({"rows": rows, "D": D, "F": F} | row), flush=True)


def errors():
    """Of results in f32, against f64: by the sum of the terms' magnitudes, of which tensor cores and f32 leave out a part."""
    wide = cellc.load(SPEC % " : f32", dtype="bf16")
    for D in (64, 512, 4096, 16384):
        layer = layer_of(wide, D, 256)
        for kind in ("normal", "positive", "few large"):
            x = torch.randn(1, 512, D, device="cuda")
            x = x.abs() if kind == "positive" else x * torch.where(torch.rand_like(x) < 0.01, 100, 1) if kind == "few large" else x
            codes, scale = cellc.encode(x, "e4m3")
            layer.x_scale.copy_(scale)
            y = layer(codes)[0][0].double()
            a, b = codes[0].double() * scale.double(), layer.W.detach().double() * layer.W_scale.double()
            exact, terms = a @ b.t(), a.abs() @ b.abs().t()
            off = ((y - exact).abs() / terms).max().item()
            print(f"D {D}, {kind}: off by at most {off:.2e} of the terms' magnitudes, {(y - exact).norm() / exact.norm():.2e} in all")


def main():
    cold.begin()
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, CELL_CUBLASLT={os.environ.get('CELL_CUBLASLT', '')}", flush=True)
    with torch.no_grad():
        times(cellc.load(SPEC % "", dtype="bf16"))
        errors()


if __name__ == "__main__":
    sys.exit(main())
