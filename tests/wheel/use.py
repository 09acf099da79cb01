"""What a user of an installed package does first, with nothing but Python and NumPy: a cell that comes with
it, a cell of their own, forwards and backwards. Prints a line for each, and for what cannot be done what is
said.

    python use.py [torch]"""

import sys

import numpy

import cellc

OWN = """cell own {
    dim N;
    input  x[N];
    state  h[N];
    output y[N];
    h'[i] = 0.5 * h[i] + x[i];
    y[i] = h'[i] * h'[i];
}
"""


def sigmoid(a):
    return 1 / (1 + numpy.exp(-a))


def lstm_by_hand(p, x):
    """Outputs of an LSTM in double, for one layer."""
    h, c, found = 0.0, 0.0, []
    for t in range(x.shape[1]):
        z = x[:, t] @ p["weight_ih"].T + p["bias_ih"] + p["bias_hh"]
        z = z + (h @ p["weight_hh"].T if t else 0)
        i, f, g, o = numpy.split(z, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * numpy.tanh(g)
        h = sigmoid(o) * numpy.tanh(c)
        found.append(h)
    return numpy.stack(found, 1)


def shipped():
    lstm = cellc.load("lstm", framework="numpy")
    p = lstm.init(0, D=3, H=4)
    x = numpy.linspace(-1, 1, 30, dtype="f4").reshape(2, 5, 3)
    y, _, pull = lstm.vjp(p, x)
    double = {name: value.astype("f8") for name, value in p.items()}
    assert abs(y - lstm_by_hand(double, x.astype("f8"))).max() < 1e-6
    weight = numpy.cos(numpy.arange(y.size)).reshape(y.shape).astype("f4")
    found, step = pull(weight).params["weight_ih"], 1e-6
    for at in ((0, 0), (7, 2), (15, 1)):             # central differences in double: off by 1e-10 and less
        ends = []
        for sign in (1, -1):
            moved = {**double, "weight_ih": double["weight_ih"].copy()}
            moved["weight_ih"][at] += sign * step
            ends.append((lstm_by_hand(moved, x.astype("f8")) * weight).sum())
        assert abs(found[at] - (ends[0] - ends[1]) / (2 * step)) < 1e-5, at
    print("lstm:", "came compiled" if "libcells" in lstm.library.path else "was compiled here")


def own():
    try:
        cell = cellc.load(OWN, framework="numpy")
    except cellc.BuildError as error:
        print("own:", error)
        return
    y, _, pull = cell.vjp({}, numpy.ones((1, 3, 1), "f4"))
    d_x = pull(numpy.ones_like(y)).inputs[0]
    assert y.ravel().tolist() == [1, 2.25, 3.0625] and d_x.ravel().tolist() == [4.375, 4.75, 3.5]
    print("own: was compiled here")


def torch_too():
    import torch
    cell = cellc.load("lstm", cuda=False)(D=3, H=4)
    x = torch.randn(2, 5, 3, requires_grad=True)
    other = torch.nn.LSTM(3, 4, batch_first=True)
    for name, value in other.named_parameters():
        cell.param(name.replace("_l0", "")).data.copy_(value)
    y, wanted = cell(x)[0], other(x)[0]
    assert torch.allclose(y, wanted, atol=1e-6)
    for a, b in zip(torch.autograd.grad(y.sum(), x), torch.autograd.grad(wanted.sum(), x)):
        assert torch.allclose(a, b, atol=1e-5)
    print("torch: agrees")


shipped()
own()
if "torch" in sys.argv[1:]:
    torch_too()
