"""cellc.Sessions: a store of states gives what the module gives."""

import pytest
import torch

import cellc


DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(scope="module", params=DEVICES)
def gru(request):
    torch.manual_seed(0)
    return cellc.load("gru")(D=5, H=7, device=request.param)


@pytest.fixture(autouse=True)
def on_device(request):
    """Tensors are made where the module is."""
    if "gru" not in request.fixturenames:
        yield
        return
    with next(request.getfixturevalue("gru").parameters()).device:
        yield


def test_steps_are_the_module(gru):
    store = cellc.Sessions(gru, capacity=3, back=2)
    a, b = store.open(), store.open()
    x = torch.randn(2, 6, 5)
    with torch.no_grad():
        wanted, _ = gru(x)
        got = [store.prefill([b], x[1:, :2])]
        first = store.prefill([a], x[:1, :2])
        assert torch.allclose(torch.cat([first, got[0]]), wanted[:, :2], atol=1e-6)
        y = torch.empty(2, 7)
        for t in range(2, 6):
            given = store.step([b, a], x[[1, 0], t].contiguous(), out=y)
            assert given is y and torch.allclose(y, wanted[[1, 0], t], atol=1e-5)
        assert store.steps(a) == store.steps(b) == 6
        c = store.fork(a)
        store.back(c, 2)
        assert store.steps(c) == 4 and store.steps(a) == 6
        assert torch.allclose(store.step([c], x[:1, 4].contiguous()), wanted[:1, 4], atol=1e-5)
        with pytest.raises(cellc.ShapeError, match="can be"):
            store.back(c, 3)
        with pytest.raises(cellc.ShapeError, match="room for no more"):
            store.open()
    on_gpu = next(gru.parameters()).is_cuda
    assert store.how == ("by a kernel in front of the step and one behind it" if on_gpu else "by the CPU")
    assert store.nbytes == (3 * 3 + 1) * 7 * 4


@pytest.mark.parametrize("keep, close", [(None, 1e-6), ("bf16", 0.02), ("int8", 0.03)])
def test_bytes_move(gru, keep, close):
    store, other = cellc.Sessions(gru, 2, keep=keep), cellc.Sessions(gru, 1, keep=keep)
    x = torch.randn(1, 4, 5)
    with torch.no_grad():
        wanted, _ = gru(x)
        a = store.open()
        store.prefill([a], x[:, :3])
        blob = store.save(a)
        b = other.load(blob)
        assert other.save(b) == blob and other.steps(b) == 3
        assert torch.allclose(other.step([b], x[:, 3]), wanted[:, 3], atol=close)
    for broken in (blob[:-1], blob[:40] + b"x" + blob[41:], b"", blob + b"\0"):
        with pytest.raises(cellc.CellcError):
            store.load(broken)
    with pytest.raises(cellc.ShapeError, match="kept|is of"):
        cellc.Sessions(cellc.load("lstm")(D=5, H=7), 1, keep=keep).load(blob)


def test_params_are_read_again(gru):
    store = cellc.Sessions(gru, 1)
    a = store.open()
    x = torch.randn(1, 5)
    with torch.no_grad():
        before = store.step([a], x)
        for p in gru.parameters():
            p.mul_(2)
        store.read_params()
        store.close(a)
        a = store.open()
        after = store.step([a], x)
        assert not torch.allclose(before, after) and torch.allclose(after, gru.step(x)[0], atol=1e-6)
        for p in gru.parameters():
            p.div_(2)


def test_wrong_calls(gru):
    with pytest.raises(cellc.TypeMismatch, match="wanted a module"):
        cellc.Sessions(torch.nn.Linear(2, 3))
    with pytest.raises(TypeError, match="keep"):
        cellc.Sessions(gru, keep="fp4")
    with pytest.raises(TypeError, match="capacity"):
        cellc.Sessions(gru, capacity=-1)
    store = cellc.Sessions(gru, 2)
    a = store.open()
    with pytest.raises(cellc.TypeMismatch, match="inputs for 2"), torch.no_grad():
        store.step([a], torch.randn(2, 5))
    with pytest.raises(cellc.ShapeError, match="twice"), torch.no_grad():
        store.step([a, a], torch.randn(2, 5))
    with pytest.raises(cellc.ShapeError, match="there is no session 1"), torch.no_grad():
        store.step([1], torch.randn(1, 5))
    with pytest.raises(cellc.TypeMismatch, match="out is not"), torch.no_grad():
        store.step([a], torch.randn(1, 5), out=torch.empty(1, 6))
    with pytest.raises(NotImplementedError), torch.enable_grad():
        store.step([a], torch.randn(1, 5, requires_grad=True))
    assert store.steps(a) == 0


def test_cells_that_count():
    cell = cellc.load("""cell counts { input x; output y; state h; h' = h + x / (1 + t); y = h'; }""")()
    store = cellc.Sessions(cell, 2)
    a, b = store.open(), store.open()
    x = torch.randn(2, 3)
    with torch.no_grad():
        wanted, _ = cell(x)
        store.step([a], x[:1, 0])
        for t in range(1, 3):                       # b is one step behind
            y = store.step([a, b], torch.stack([x[0, t], x[1, t - 1]]))
            assert torch.allclose(y, torch.stack([wanted[0, t], wanted[1, t - 1]]), atol=1e-6)


@pytest.mark.skipif(len(DEVICES) == 1, reason="no GPU")
@pytest.mark.parametrize("keep, close", [(None, 2e-3), ("bf16", 0.05), ("int8", 0.06)])
@pytest.mark.parametrize("back", [0, 3])
def test_rows_on_a_gpu(keep, close, back):
    """The kernels find rows by themselves, graphs of several batches among the steps; and sessions go to the CPU and back."""
    torch.manual_seed(0)
    cell = cellc.load("gated_delta", N=64, V=64)(H=3).cuda()
    host = cellc.load("gated_delta", N=64, V=64)(H=3)
    host.load_state_dict(cell.state_dict())
    store, other = cellc.Sessions(cell, 9, back=back, keep=keep), cellc.Sessions(host, 1, keep=keep)
    assert store.how == ("in the step's kernels" if keep != "int8" else "by a kernel in front of the step and one behind it")
    x = [torch.randn(9, 40, 3, *n, device="cuda") for n in ([64], [64], [64], [], [])]
    with torch.no_grad():
        wanted, _ = cell(*x)
        sessions = [store.open() for _ in range(9)]
        order, buffers = list(range(9)), {}
        store.prefill(sessions, *[a[:, :4].contiguous() for a in x])
        for t in range(4, 40):
            n = (9, 5, 9, 4)[t % 4] if t < 36 else 9
            order = order[2:] + order[:2]
            for part in (order[:n], order[n:]):
                if not part:
                    continue
                given, out = buffers.setdefault(len(part), ([torch.empty_like(a[:len(part), 0]) for a in x],
                                                            torch.empty(len(part), 3, 64, device="cuda")))
                for to, a in zip(given, x):
                    to.copy_(a[part, t])
                store.step([sessions[i] for i in part], *given, out=out)
                assert (out - wanted[part, t]).abs().max() < close
        for i in (0, 8):
            blob = store.save(sessions[i])
            there = other.load(blob)
            assert other.save(there) == blob
            other.close(there)
            store.close(sessions[i])
            sessions[i] = store.load(blob)
        if back:
            for s in sessions[1:8]:
                store.back(s, 2)
            again = store.step(sessions[1:8], *[a[1:8, 38].contiguous() for a in x])
            assert (again - wanted[1:8, 38]).abs().max() < close
