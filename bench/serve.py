#!/usr/bin/env python3
"""Times a step of a store of sessions on a GPU: microseconds per token at the median and at one in a hundred.

`host` is one call and a wait for it, from Python; `device` is the time between two events around each of many calls that
the host does not wait for. The floor is what the states' bytes take, read and written, at the speed at which this card copies as many
bytes by one kernel of PyTorch. Beside the store is the module's own step, which reads and writes states that are passed in and out.
usage: serve.py [--steps N] [--heads 32] [--size 128] [--batch 1 128]"""

import argparse
import time

import torch

import cellc


def at(values, share):
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


def timed(call, steps):
    """(host p50, host p99, device p50, device p99) in microseconds."""
    for _ in range(20):
        call()
    torch.cuda.synchronize()
    host, marks = [], [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    for _ in range(steps):
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        host.append(1e6 * (time.perf_counter() - start))
    torch.cuda._sleep(2_000_000)                    # so that calls are ahead of the card
    marks[0].record()
    for mark in marks[1:]:
        call()
        mark.record()
    torch.cuda.synchronize()
    device = [1e3 * a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
    return at(host, 0.5), at(host, 0.99), at(device, 0.5), at(device, 0.99)


def floor(count):
    """Microseconds that reading and writing as many bytes takes."""
    a = torch.empty(max(count, 4) // 4, dtype=torch.float32, device="cuda")
    b = torch.empty_like(a)
    return timed(lambda: b.copy_(a), 100)[2]


def row(name, bytes_each, found):
    print(f"{name:34} {found[0]:8.1f} {found[1]:8.1f} {found[2]:8.1f} {found[3]:8.1f} {bytes_each / 1e6:9.1f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--schedule", help="as cellc's option")
    parser.add_argument("--keeps", nargs="*", default=["f32", "bf16", "int8"])
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 128])
    arguments = parser.parse_args()
    H, N = arguments.heads, arguments.size
    Cell = cellc.load("gated_delta", N=N, V=N, dtype="bf16", schedule=arguments.schedule)
    cell = Cell(H=H).cuda()
    print(f"gated_delta, schedule {arguments.schedule or 'auto'}, {H} heads of {N} x {N}, bf16, "
          f"{torch.cuda.get_device_name()}; us a step of B sequences")
    print(f"{'':34} {'host p50':>8} {'p99':>8} {'dev p50':>8} {'p99':>8} {'MB moved':>9}")
    with torch.inference_mode():
        for B in arguments.batch:
            shapes = [(B, H, N), (B, H, N), (B, H, N), (B, H), (B, H)]
            inputs = [torch.randn(s, dtype=torch.bfloat16, device="cuda") for s in shapes]
            for keep, back in [(None if k == "f32" else k, back) for k in arguments.keeps for back in (0, 4)]:
                store = cellc.Sessions(cell, B, back=back, keep=keep)
                sessions = [store.open() for _ in range(B)]
                out = store.step(sessions, *inputs)
                moved = 2 * store.nbytes * B // (B * (back + 1) + 1)
                found = timed(lambda: store.step(sessions, *inputs, out=out), arguments.steps)  # noqa: B023
                row(f"B {B} store, {keep or 'f32'}, back {back}", moved, found)
                if back == 0:
                    print(f"    floor {floor(moved // 2):.1f}; {store.how}", flush=True)
            _, state = cell.step(*inputs)
            row(f"B {B} module.step", 2 * 4 * B * H * N * N, timed(lambda: cell.step(*inputs, state=state), arguments.steps))  # noqa: B023


if __name__ == "__main__":
    main()
