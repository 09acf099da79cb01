#!/usr/bin/env python3
"""Decodes many sequences at once from one store of sessions: `python examples/serve.py`.

Requests come at random times, each with a prompt and a number of bytes that it wants. A request's prompt goes through the
cells by their forms for whole sequences, then it joins the others: each turn is one step of all sequences that are open, by
whatever numbers they have in the store. One request in four is continued twice, from a fork; with --guess, each turn guesses
that many bytes ahead by repeating the last one, checks them, and takes back those that were wrong.

The model is a stack of residual blocks with random weights: what it says is noise, and the same noise whichever requests
happen to share a batch, which the end of the run compares. Nothing is trained here, and nothing listens on a network."""

import argparse
import random
import statistics
import time

import torch

import cellc


class Block(torch.nn.Module):
    def __init__(self, Cell, width):
        super().__init__()
        self.norm = torch.nn.RMSNorm(width)
        self.cell = Cell(D=width, H=width)

    def forward(self, x, state=None):
        y, state = self.cell(self.norm(x), state=state)
        return x + y, state


class Model(torch.nn.Module):
    def __init__(self, Cell, width, layers):
        super().__init__()
        self.embed = torch.nn.Embedding(256, width)
        self.blocks = torch.nn.ModuleList(Block(Cell, width) for _ in range(layers))
        self.head = torch.nn.Linear(width, 256, bias=False)


class Server:
    """A session is one number, which each layer's store knows."""

    def __init__(self, model, capacity, back, keep):
        self.model = model
        self.stores = [cellc.Sessions(b.cell, capacity, back=back, keep=keep) for b in model.blocks]

    def each(self, name, *arguments):
        """The stores do the same in the same order, so that numbers of sessions agree."""
        found = [getattr(store, name)(*arguments) for store in self.stores]
        assert all(f == found[0] for f in found)
        return found[0]

    def prefill(self, session, prompt):
        """The next byte behind the prompt."""
        x = self.model.embed(prompt[None])
        for block, store in zip(self.model.blocks, self.stores):
            x = x + store.prefill([session], block.norm(x))
        return self.model.head(x[0, -1]).argmax()

    def step(self, sessions, tokens):
        x = self.model.embed(tokens)
        for block, store in zip(self.model.blocks, self.stores):
            x = x + store.step(sessions, block.norm(x))
        return self.model.head(x).argmax(-1)


class Request:
    def __init__(self, session, prompt, token, wanted):
        self.session, self.prompt, self.wanted, self.said = session, prompt, wanted, [token]


def admit(server, waiting, running, capacity, device):
    while waiting and len(running) < capacity - 1:
        prompt, wanted, twice = waiting.pop()
        session = server.each("open")
        token = int(server.prefill(session, torch.tensor(list(prompt), device=device)))
        running.append(Request(session, prompt, token, wanted))
        if twice:                                     # a second answer, which begins otherwise
            running.append(Request(server.each("fork", session), prompt, (token + 1) % 256, wanted))


def guess(server, running, steps, device):
    """Each request's last byte, guessed to come `steps` times more; guesses behind a wrong one are taken back."""
    sessions = [r.session for r in running]
    tokens = torch.tensor([r.said[-1] for r in running], device=device)
    found = torch.stack([server.step(sessions, tokens) for _ in range(steps + 1)]).tolist()
    for i, request in enumerate(running):
        right = 0
        while right < steps and found[right][i] == request.said[-1]:
            right += 1
        server.each("back", request.session, steps - right)
        request.said += [row[i] for row in found[:right + 1]]


def serve(arguments, server, requests, device):
    waiting, running, done, times = list(reversed(requests)), [], [], []
    while waiting or running:
        admit(server, waiting, running, arguments.capacity, device)
        start = time.perf_counter()
        before = sum(len(r.said) for r in running)
        if arguments.guess:
            guess(server, running, arguments.guess, device)
        else:
            tokens = torch.tensor([r.said[-1] for r in running], device=device)
            for request, token in zip(running, server.step([r.session for r in running], tokens).tolist()):
                request.said.append(token)
        times.append((time.perf_counter() - start, sum(len(r.said) for r in running) - before))
        for request in [r for r in running if len(r.said) >= r.wanted]:
            server.each("close", request.session)
            running.remove(request)
            done.append(request)
    return done, times


def alone(model, request, device):
    """What the modules say to the request, without a store: every byte from the whole sequence before it."""
    said = [request.said[0]]
    x = torch.tensor([*request.prompt, *said], device=device)[None]
    states = [None] * len(model.blocks)
    while len(said) < len(request.said):
        h = model.embed(x)
        for i, block in enumerate(model.blocks):
            h, states[i] = block(h, states[i])
        said.append(int(model.head(h[0, -1]).argmax()))
        x = torch.tensor([[said[-1]]], device=device)
    return said


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cell", default="gru", help="a cell with dims D and H and one input, such as gru, lstm, mingru")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--capacity", type=int, default=12, help="sessions that are open at once")
    parser.add_argument("--guess", type=int, default=0, metavar="N", help="guess N bytes ahead")
    parser.add_argument("--keep", choices=["bf16", "int8"], help="store states in fewer bits")
    arguments = parser.parse_args()
    if arguments.capacity < 3:
        parser.error("--capacity: a request and its fork want room beside another, 3 at least")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    random.seed(0)
    model = Model(cellc.load(arguments.cell), arguments.width, arguments.layers).to(device)
    with torch.inference_mode():
        server = Server(model, arguments.capacity, arguments.guess, arguments.keep)
        requests = [(random.randbytes(random.randint(4, 40)), random.randint(8, 32), i % 4 == 0)
                    for i in range(arguments.requests)]
        done, times = serve(arguments, server, requests, device)
        said = sum(n for _, n in times)
        turns = sorted(1e3 * t for t, _ in times)
        print(f"{len(done)} answers, {said} bytes in {len(times)} turns on {device}, states {server.stores[0].how}")
        print(f"a turn takes {statistics.median(turns):.2f} ms, one in a hundred {turns[int(len(turns) * 0.99)]:.2f} or more; "
              f"{said / sum(t for t, _ in times):,.0f} bytes/s")
        same = sum(alone(model, r, device) == r.said for r in done)
        print(f"{same} of {len(done)} answers are what the modules say without a store")
    if not arguments.keep and same < len(done) * 0.9:       # products of other sizes round otherwise, and two bytes may be as likely
        raise SystemExit("the store says something else than the modules")


if __name__ == "__main__":
    main()
