"""A matrix product to schedule, and the line of a call, for the tests that show where a schedule's steps come from."""

import sys

from anyfn import te


def matmul(n=64):
    """Returns the function of a matrix product, and its tensor."""
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_prim_func([a, b, c], name="matmul"), c


def line():
    """Returns the number of the line that calls this function."""
    return sys._getframe(1).f_lineno
