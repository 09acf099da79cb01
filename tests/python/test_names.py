"""Names of a spec that C, the call or Python have already: they are bound by the spec's name."""

import numpy

import cellc

SPEC = """cell taken {
    dim I, B, t0, log;
    input  x[B];
    param  class[I, B], int[t0], real[log];
    output y[I], z[t0], lambda[log];
    y[i] = sum[b] class[i,b] * x[b] * B;
    z[i] = int[i] + t0;
    lambda[i] = real[i] * I;
}"""


def test_dims_are_bound_by_the_names_of_the_spec():
    cell = cellc.load(SPEC, framework="numpy", dtype="f64")
    params = {"class": numpy.array([[1., 2, 3], [4, 5, 6]]), "int": numpy.arange(5.), "real": numpy.array([7.])}
    (y, z, last), _ = cell(params, numpy.ones((4, 2, 3)))
    assert y.shape == (4, 2, 2) and (y == [18, 45]).all()
    assert (z == [5, 6, 7, 8, 9]).all() and (last == 14).all()
    made = cell.init(0, I=2, B=3, t0=5, log=1)
    assert {name: value.shape for name, value in made.items()} == {"class": (2, 3), "int": (5,), "real": (1,)}
