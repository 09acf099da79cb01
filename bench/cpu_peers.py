"""What bench/cpu.py compares cells with: the same formulas as plain code, written once for PyTorch, JAX and NumPy. In:
a library's functions (Torch, Jax, Numpy), params by the spec's names, inputs [B, T, ...]. Out: outputs. A Peer has
`prepare`, what depends on no state, for all steps at once; `step`; and `finish`, what stands behind the steps. So
each peer is as good as a careful user would write it: products over all steps are hoisted."""

import types


class Torch:
    def __init__(self):
        import torch
        from torch.nn import functional

        self.xp, self.sigmoid, self.silu, self.softplus = torch, torch.sigmoid, functional.silu, functional.softplus
        self.exp, self.tanh, self.sqrt, self.where, self.stack = torch.exp, torch.tanh, torch.sqrt, torch.where, torch.stack
        self.least = lambda x, bound: torch.clamp(x, max=bound)
        self.polar = lambda size, angle: torch.polar(size, angle)
        self.real = torch.real

    @staticmethod
    def total(x, *axes):
        return x.sum(axes, keepdim=True)

    def zeros(self, like, *shape):
        return like.new_zeros(shape)

    def complex(self, x):
        return x.to(self.xp.complex64)


class Arrays:
    """What JAX and NumPy spell the same; `xp` is the module."""

    @staticmethod
    def total(x, *axes):
        return x.sum(axes, keepdims=True)

    def zeros(self, like, *shape):
        return self.xp.zeros(shape, like.dtype)

    def complex(self, x):
        return x.astype(self.xp.complex64)


class Jax(Arrays):
    def __init__(self):
        import jax
        import jax.numpy as xp

        self.jax, self.xp, self.sigmoid, self.silu, self.softplus = jax, xp, jax.nn.sigmoid, jax.nn.silu, jax.nn.softplus
        self.exp, self.tanh, self.sqrt, self.where, self.least = xp.exp, xp.tanh, xp.sqrt, xp.where, xp.minimum
        self.stack, self.real = xp.stack, xp.real
        self.polar = lambda size, angle: size * xp.exp(1j * angle)


class Numpy(Arrays):
    def __init__(self):
        import numpy as xp

        self.xp, self.exp, self.tanh, self.sqrt, self.where = xp, xp.exp, xp.tanh, xp.sqrt, xp.where
        self.least, self.stack, self.real = xp.minimum, xp.stack, xp.real
        self.sigmoid = lambda x: 1 / (1 + xp.exp(-x))
        self.silu = lambda x: x / (1 + xp.exp(-x))
        self.softplus = lambda x: xp.logaddexp(x, 0)
        self.polar = lambda size, angle: size * xp.exp(1j * angle)


class Peer:
    """`first(m, p, at)`: the states before the first step, of the params and the first step's prepared values. A peer
    whose step is h' = a h + b says which prepared values these are, so that `lax.associative_scan` takes it."""

    linear = None

    @staticmethod
    def finish(m, p, found, prepared):
        return found


def unit(m, x, eps=1e-6):
    return x / (m.sqrt(m.total(x * x, -1)) + eps)


def times(matrix, vector):
    """[..., r, c] by [..., c]"""
    return (matrix @ vector[..., None])[..., 0]


def times_rows(vector, matrix):
    """[..., r] by [..., r, c]"""
    return (vector[..., None, :] @ matrix)[..., 0, :]


def outer(rows, columns):
    return rows[..., :, None] * columns[..., None, :]


class E79(Peer):
    @staticmethod
    def prepare(m, p, x):
        n = p["W_kvqm"].shape[0] // 4
        all_of = x @ p["W_kvqm"].T
        k, v, q, w = (all_of[..., i * n:(i + 1) * n] for i in range(4))
        return unit(m, k), v, q, unit(m, w)

    @staticmethod
    def first(m, p, at):
        b, n = at[0].shape
        return m.zeros(at[0], b, n, n), m.zeros(at[0], b, n, n)

    @staticmethod
    def step(m, p, state, at):
        S, M = state
        k, v, q, w = at
        row, column = m.sigmoid(times(M, k) + p["b_s_gate"]), m.sigmoid(times_rows(k, M) + p["b_s_gate"])
        ds = v - times(S, k)
        dm = ds - times(M, w)
        S = S * outer(row, column) + outer(ds, k)
        row, column = m.sigmoid(times(S, w) + p["b_m_gate"]), m.sigmoid(times_rows(w, S) + p["b_m_gate"])
        M = M * outer(row, column) + outer(dm, w)
        r = times(S, q)
        return (S, M), r * m.silu(r)


class E88(Peer):
    @staticmethod
    def prepare(m, p, x):
        heads = p["A_log"].shape[0]
        all_of = m.silu(x @ p["qkv_proj"].T)
        n = all_of.shape[-1] // (3 * heads)
        q, k, v = (all_of[..., i * heads * n:(i + 1) * heads * n].reshape(*x.shape[:2], heads, n) for i in range(3))
        decay = m.exp(-m.exp(m.least(p["A_log"], 60.0)) * m.softplus(x @ p["a_proj"].T + p["dt_bias"]))
        return unit(m, q), unit(m, k), v, decay

    @staticmethod
    def first(m, p, at):
        b, heads, n = at[0].shape
        return (m.zeros(at[0], b, heads, n, n),)

    @staticmethod
    def step(m, p, state, at):
        (S,) = state
        q, k, v, decay = at
        S = m.tanh(S * decay[..., None, None] + outer(k, v - times_rows(k, S)))
        return (S,), times_rows(q, S)

    @staticmethod
    def finish(m, p, found, prepared):
        return found.reshape(*found.shape[:2], -1) @ p["o_proj"].T


class Delta(Peer):
    @staticmethod
    def prepare(m, p, q, k, v, b):
        return q, unit(m, k), v, m.sigmoid(b)[..., None]

    @staticmethod
    def first(m, p, at):
        b, heads, n = at[0].shape
        return (m.zeros(at[0], b, heads, at[2].shape[-1], n),)

    @staticmethod
    def step(m, p, state, at):
        (S,) = state
        q, k, v, b = at
        S = S + outer(b * (v - times(S, k)), k)
        return (S,), times(S, q)


class GatedDelta(Delta):
    @staticmethod
    def prepare(m, p, q, k, v, g, b):
        decay = m.exp(-m.exp(m.least(p["A_log"], 60.0)) * m.softplus(g + p["dt_bias"]))
        return unit(m, q), unit(m, k), v, decay[..., None], m.sigmoid(b)[..., None]

    @staticmethod
    def step(m, p, state, at):
        (S,) = state
        q, k, v, decay, b = at
        S = S * decay[..., None] + outer(b * (v - decay * times(S, k)), k)
        return (S,), times(S, q)


class Titans(Peer):
    @staticmethod
    def prepare(m, p, x):
        gates = m.sigmoid(x @ p["W_g"].T + p["b_g"])
        return (unit(m, x @ p["W_k"].T), unit(m, x @ p["W_q"].T), x @ p["W_v"].T,
                *(gates[..., i, None] for i in range(3)))

    @staticmethod
    def first(m, p, at):
        b, n = at[0].shape
        return m.zeros(at[0], b, n, n), m.zeros(at[0], b, n, n)

    @staticmethod
    def step(m, p, state, at):
        M, S = state
        k, q, v, alpha, eta, theta = at
        S = S * eta[..., None] - outer(theta * (times(M, k) - v), k)
        M = M * (1 - alpha)[..., None] + S
        return (M, S), times(M, q)


class Moneta(Peer):
    @staticmethod
    def prepare(m, p, k, v, q):
        width = k.shape[-1]
        gates = k @ p["W_g"][:, :width].T + v @ p["W_g"][:, width:].T + p["b_g"]
        return k, v, q, m.sigmoid(gates[..., 0, None]), m.least(m.softplus(gates[..., 1, None]), 0.01)

    @staticmethod
    def first(m, p, at):
        nothing = m.zeros(at[0], at[0].shape[0], 1, 1)
        return p["A1_start"] + nothing, p["A2_start"] + nothing

    @staticmethod
    def ball(m, A):
        return A / m.sqrt(m.total((A * A + 1e-12) ** 2, -2, -1))

    @staticmethod
    def step(m, p, state, at):
        A1, A2 = state
        k, v, q, alpha, theta = at
        W1, W2 = Moneta.ball(m, A1), Moneta.ball(m, A2)
        u = times(W1, k)
        s = m.sigmoid(u)
        miss = times(W2, u * s) - v
        g = 3 * m.tanh(4 * miss) * (miss * miss + 1e-6)
        inner = times_rows(g, W2) * s * (1 + u * (1 - s))
        alpha, theta = alpha[..., None], theta[..., None]
        A1 = alpha * A1 - theta * (outer(inner, k) + 0.02 * W1)
        A2 = alpha * A2 - theta * (outer(g, u * s) + 0.02 * W2)
        return (A1, A2), times(Moneta.ball(m, A2), m.silu(times(Moneta.ball(m, A1), q)))


class Linear(Peer):
    """h' = a h + b; prepared values begin with a and b."""

    linear = True

    @staticmethod
    def first(m, p, at):
        return (m.zeros(at[1], *at[1].shape),)

    @staticmethod
    def step(m, p, state, at):
        h = at[0] * state[0] + at[1]
        return (h,), h


class Hgrn(Linear):
    @staticmethod
    def prepare(m, p, i, f, o):
        low = m.sigmoid(p["lb"])
        g = low + (1 - low) * m.sigmoid(f)
        return g, (1 - g) * m.silu(i), m.sigmoid(o)

    @staticmethod
    def finish(m, p, found, prepared):
        return found * prepared[2]


class MinGru(Linear):
    @staticmethod
    def prepare(m, p, x):
        both = x @ p["to_hidden_and_gate"].T
        n = both.shape[-1] // 2
        c, z = both[..., :n], m.sigmoid(both[..., n:])
        return 1 - z, z * m.where(c >= 0, c + 0.5, m.sigmoid(c))

    @staticmethod
    def finish(m, p, found, prepared):
        return found @ p["to_out"].T


class S5(Linear):
    @staticmethod
    def prepare(m, p, x):
        u = m.complex(x) @ p["B"].T
        return m.polar(m.exp(-m.exp(p["nu"])), p["theta"]) + 0 * u, u, p["skip"] * x

    @staticmethod
    def finish(m, p, found, prepared):
        return m.real(found @ p["C"].T) + prepared[2]


class Lstm(Peer):
    @staticmethod
    def prepare(m, p, x):
        return (x @ p["weight_ih"].T + p["bias_ih"] + p["bias_hh"],)

    @staticmethod
    def first(m, p, at):
        b, wide = at[0].shape
        return m.zeros(at[0], b, wide // 4), m.zeros(at[0], b, wide // 4)

    @staticmethod
    def step(m, p, state, at):
        h, c = state
        n = c.shape[-1]
        gates = at[0] + h @ p["weight_hh"].T
        c = m.sigmoid(gates[..., n:2 * n]) * c + m.sigmoid(gates[..., :n]) * m.tanh(gates[..., 2 * n:3 * n])
        h = m.sigmoid(gates[..., 3 * n:]) * m.tanh(c)
        return (h, c), h


class Gru(Peer):
    @staticmethod
    def prepare(m, p, x):
        return (x @ p["weight_ih"].T + p["bias_ih"],)

    @staticmethod
    def first(m, p, at):
        b, wide = at[0].shape
        return (m.zeros(at[0], b, wide // 3),)

    @staticmethod
    def step(m, p, state, at):
        (h,) = state
        n = h.shape[-1]
        own = h @ p["weight_hh"].T + p["bias_hh"]
        gates = m.sigmoid(at[0][..., :2 * n] + own[..., :2 * n])
        new = m.tanh(at[0][..., 2 * n:] + gates[..., :n] * own[..., 2 * n:])
        h = new + gates[..., n:] * (h - new)
        return (h,), h


# ---- ways through the steps


def loop(m, peer, step=None):
    """A plain loop over the steps; `step` is the peer's, or its compiled form."""
    step = step or (lambda p, state, at: peer.step(m, p, state, at))

    def run(p, inputs):
        prepared = peer.prepare(m, p, *inputs)
        at = [a.unbind(1) if len(a.shape) > 1 and hasattr(a, "unbind") else a for a in prepared]
        state, found = peer.first(m, p, [a[0] for a in at]), []
        for t in range(inputs[0].shape[1]):
            state, y = step(p, state, [a[t] for a in at])
            found.append(y)
        return peer.finish(m, p, m.stack(found, 1), prepared)

    return run


def jax_scan(m, peer):
    def run(p, inputs):
        prepared = peer.prepare(m, p, *inputs)
        over = [m.xp.moveaxis(a, 1, 0) for a in prepared]
        first = peer.first(m, p, [a[0] for a in over])
        _, found = m.jax.lax.scan(lambda state, at: peer.step(m, p, state, at), first, over)
        return peer.finish(m, p, m.xp.moveaxis(found, 0, 1), prepared)

    return run


def jax_associative(m, peer):
    def join(left, right):
        return right[0] * left[0], right[0] * left[1] + right[1]

    def run(p, inputs):
        prepared = peer.prepare(m, p, *inputs)
        _, found = m.jax.lax.associative_scan(join, prepared[:2], axis=1)
        return peer.finish(m, p, found, prepared)

    return run


peers = types.MappingProxyType({"e79": E79, "e88": E88, "delta": Delta, "gated_delta": GatedDelta, "titans": Titans,
                                "moneta": Moneta, "hgrn": Hgrn, "mingru": MinGru, "s5": S5, "lstm": Lstm, "gru": Gru})
