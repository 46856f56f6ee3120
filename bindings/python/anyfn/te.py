"""Tensor expressions: what is computed, without how.

>>> from anyfn import te
>>> a = te.placeholder((4,), name="a")
>>> b = te.compute((4,), lambda i: a[i] + 1, name="b")
>>> b.op.name
'b'
"""

from . import _compiler, tir
from ._core import Object
from ._object import register_object
from .tir import const, exp, log, select, sigmoid, sqrt, tanh, var  # noqa: F401

_call = _compiler.functions("te")


@register_object("te.Operation")
class Operation(Object):
    """An operation, which gives one or more tensors."""


@register_object("te.Tensor")
class Tensor(Object):
    """A tensor of a computation. ``a[i, j]`` is an element of it."""

    def __getitem__(self, indices):
        return _call.element(self, list(indices) if isinstance(indices, tuple) else [indices])

    @property
    def name(self):
        """Name for people."""
        return self.op.name

    @property
    def ndim(self):
        """Number of dimensions."""
        return len(self.shape)

    def __str__(self):
        extents = ", ".join(map(str, self.shape))
        return f"Tensor(shape=[{extents}], dtype={self.dtype}, op.name={self.op.name})"

    __repr__ = __str__


@register_object("te.PlaceholderOp")
class PlaceholderOp(Operation):
    """A tensor that is given."""


@register_object("te.ComputeOp")
class ComputeOp(Operation):
    """Tensors whose elements are computed one by one."""


def _shape(shape):
    return list(shape) if isinstance(shape, (tuple, list)) or hasattr(shape, "__iter__") else [shape]


def placeholder(shape, dtype="float32", name="placeholder"):
    """A tensor that is given when the function is called."""
    return _call.placeholder(_shape(shape), dtype, name)


def compute(shape, fcompute, name="compute"):
    """A tensor whose elements ``fcompute`` computes from their indices; a tuple of them if it gives several values."""
    result = _call.compute(_shape(shape), lambda *indices: _value(fcompute(*indices)), name)
    return result if isinstance(result, Tensor) else tuple(result)


def _value(value):
    return list(value) if isinstance(value, tuple) else value


def reduce_axis(dom, name="k"):
    """An axis over which values are combined: over ``range(*dom)``."""
    begin, end = dom
    return _call.reduce_axis(begin, end - begin, name)


def _axes(axis):
    return [axis] if isinstance(axis, tir.IterVar) else list(axis)


def sum(expr, axis):
    """The sum over axes."""
    return _call.sum(expr, _axes(axis))


def min(expr, axis):
    """The smallest value over axes."""
    return _call.min(expr, _axes(axis))


def max(expr, axis):
    """The largest value over axes."""
    return _call.max(expr, _axes(axis))


def comm_reducer(fcombine, fidentity, name="reduce"):
    """A reduction of one's own: ``fcombine(x, y)`` combines two values, ``fidentity(dtype)`` is what to begin with.

    The result is a function of values and axes, as ``te.sum`` is.
    """

    def reduction(expr, axis, where=None):
        values = list(expr) if isinstance(expr, (tuple, list)) else [expr]
        identity = fidentity(*(value.dtype for value in values))
        identity = list(identity) if isinstance(identity, (tuple, list)) else [identity]
        reducer = _call.reducer(lambda x, y: _value(fcombine(x, y)), identity)
        results = _call.reduce(reducer, values, _axes(axis), where)
        return tuple(results) if isinstance(expr, (tuple, list)) else results[0]

    reduction.__name__ = reduction.__qualname__ = name
    return reduction


def create_prim_func(args, name="main"):
    """A function that computes tensors; its parameters are ``args``, tensors given and computed, and variables."""
    return _call.create_prim_func(list(args), name)
