#!/usr/bin/env python3
"""What the final states of attention over the whole past cost on a GPU, from PyTorch: causal_attention with and without them
(final_state=False), from the first step (the rows of the call are written, the room behind them is set to 0) and behind
earlier steps (all that was there is copied as well). In: B, T, H, PAST, ROOM (2, 1024, 16, 3072, 4096), DTYPE (bf16). Out: a
line for each: median ms of a call with and without, the difference, the bytes that the copies read and write, and the
rate that the difference makes of them beside what torch.Tensor.copy_ of as many bytes reaches."""
import os
import statistics

import torch

import cellc

B, T, H, PAST, ROOM = (int(os.environ.get(name, value)) for name, value in (
    ("B", 2), ("T", 1024), ("H", 16), ("PAST", 3072), ("ROOM", 4096)))
DTYPE = os.environ.get("DTYPE", "bf16")
CALLS = 30


def milliseconds(call):
    """Median of calls that each find the caches as a call of another size left them."""
    flush, found = torch.empty(1 << 28, dtype=torch.uint8, device="cuda"), []
    for k in range(CALLS + 3):
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        if k >= 3:
            found.append(start.elapsed_time(end))
    return statistics.median(found)


def main():
    cell = cellc.load("causal_attention", dtype=DTYPE)()
    m = cell.instance.manifest
    n = {t.name: t.axes[-1].of({}) for t in m.inputs}
    stored = cell.instance.stored
    q, k, v = (torch.randn(B, T, H, n[name], device="cuda", dtype=stored) for name in ("q", "k", "v"))
    types = {t.name: cellc.ops.DTYPES[t.dtype] for t in m.states}
    past = [torch.randn(B, ROOM, H, n[t.name[0]], device="cuda").to(types[t.name]) for t in m.states]
    print(f"B {B}, T {T}, H {H}, room {ROOM}, {DTYPE}, {torch.cuda.get_device_name()}")
    with torch.no_grad():
        for what, given in (("from the first step", {"sizes": ROOM}), (f"behind {PAST} steps", {"state": past, "t0": PAST})):
            if "sizes" in given:
                made = cellc.load("causal_attention", dtype=DTYPE)(history=given.pop("sizes"))
            else:
                made = cell
            with_states = milliseconds(lambda: made(q, k, v, **given))
            without = milliseconds(lambda: made(q, k, v, final_state=False, **given))
            state = sum(p.numel() * p.element_size() for p in past)
            row = state // ROOM
            moved = state + (row * ROOM if given else row * T)                 # written, and read
            like = torch.empty(moved // 2, dtype=torch.uint8, device="cuda")
            rate = moved / milliseconds(lambda: like.clone()) / 1e6
            took = with_states - without
            print(f"{what:20} with {with_states:.3f} ms, without {without:.3f} ms, the states {took:.3f} ms for "
                  f"{moved / 1e6:.0f} MB: {moved / took / 1e6:.0f} GB/s (clone: {rate:.0f} GB/s)")


if __name__ == "__main__":
    main()
