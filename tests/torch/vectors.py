# Writes vector files (tests/vectors/README.md) with what PyTorch gives for torch.nn.Embedding and cross_entropy, in
# double on the CPU. usage: vectors.py DIRECTORY
import sys

import torch
import torch.nn.functional as F

B, T, V, D = 2, 7, 5, 3


def write(path, sizes, tensors):
    with open(path, "w") as out:
        print("# sizes:", " ".join(f"{k}={v}" for k, v in sizes.items()), file=out)
        for kind, name, value in tensors:
            print("tensor", kind, name, *value.shape, file=out)
            print(*(repr(x) for x in value.flatten().tolist()), file=out)


def embedding(path):
    weight = torch.randn(V, D, dtype=torch.float64, requires_grad=True)
    place = torch.randint(V, (B, T))
    y = F.embedding(place, weight)
    g = torch.randn_like(y)
    y.backward(g)
    write(path, dict(B=B, T=T, V=V, D=D),
          [("input", "id", place), ("param", "weight", weight.detach()), ("output", "y", y.detach()),
           ("dout", "y", g), ("dparam", "weight", weight.grad)])


def cross_entropy(path, smoothing, ignored):
    logits = torch.randn(B, T, V, dtype=torch.float64, requires_grad=True)
    target = torch.randint(V, (B, T))
    if ignored is not None:
        target[0, ::2] = ignored
    loss = F.cross_entropy(logits.reshape(B * T, V), target.reshape(B * T), reduction="none", label_smoothing=smoothing,
                           ignore_index=-100 if ignored is None else ignored).reshape(B, T)
    g = torch.randn_like(loss)
    loss.backward(g)
    write(path, dict(B=B, T=T, V=V),
          [("input", "logits", logits.detach()), ("input", "target", target), ("output", "loss", loss.detach()),
           ("dout", "loss", g), ("dinput", "logits", logits.grad)])


torch.manual_seed(1)
embedding(f"{sys.argv[1]}/embedding.vec")
cross_entropy(f"{sys.argv[1]}/plain.vec", 0.0, None)
cross_entropy(f"{sys.argv[1]}/smoothed.vec", 0.1, None)
cross_entropy(f"{sys.argv[1]}/ignored.vec", 0.1, -100)
