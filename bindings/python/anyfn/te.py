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
from .tir import const, exp, log, select, sigmoid, size_var, sqrt, tanh, var  # noqa: F401

_call = _compiler.functions("te")


@register_object("te.Operation")
class Operation(Object):
    """An operation, which gives one or more tensors."""


@register_object("te.Tensor")
class Tensor(Object):
    """A tensor of a computation. ``a[i, j]``, or ``a(i, j)``, is an element of it."""

    # Indices are not tried one after the other.
    __iter__ = None

    def __getitem__(self, indices):
        indices = indices if isinstance(indices, tuple) else (indices,)
        for place, index in enumerate(indices):
            if index is None or index is ... or isinstance(index, slice):
                raise TypeError(f"index {place} of tensor `{self.name}` is {index}; indices must be expressions")
        return _call.element(self, list(indices))

    def __call__(self, *indices):
        return self[indices]

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


@register_object("te.ExternOp")
class ExternOp(Operation):
    """Tensors that a statement computes."""


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


def sum(expr, axis, where=None):
    """The sum over axes; of those for which the condition ``where`` holds, if there is one."""
    return _call.sum(expr, _axes(axis), where)


def prod(expr, axis, where=None):
    """The product over axes; of those for which the condition ``where`` holds, if there is one."""
    return _call.prod(expr, _axes(axis), where)


def min(expr, axis, where=None):
    """The smallest value over axes; of those for which the condition ``where`` holds, if there is one."""
    return _call.min(expr, _axes(axis), where)


def max(expr, axis, where=None):
    """The largest value over axes; of those for which the condition ``where`` holds, if there is one."""
    return _call.max(expr, _axes(axis), where)


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


def extern(shape, inputs, fcompute, name="extern", dtype=None):
    """A tensor, or a list of them, that a statement computes of other tensors.

    ``fcompute(ins, outs)`` gets lists of buffers that stand for inputs and results and gives a statement, or a call such as
    ``tir.call_packed("scale", ins[0], outs[0])``. ``shape`` is that of the result, or a list of shapes; ``dtype`` its data
    type, a list of them, or by default that of the inputs.
    """
    is_one = not (isinstance(shape, list) and any(isinstance(extent, (tuple, list)) for extent in shape))
    shapes = [_shape(shape)] if is_one else [_shape(one) for one in shape]
    if dtype is None:
        known = {str(tensor.dtype) for tensor in inputs}
        if len(known) != 1:
            raise TypeError(f"the data type of `{name}` has to be given: those of its inputs are {sorted(known) or 'none'}")
        dtype = known.pop()
    dtypes = list(dtype) if isinstance(dtype, (tuple, list)) else [dtype] * len(shapes)
    results = _call["extern"](shapes, dtypes, list(inputs), lambda ins, outs: fcompute(list(ins), list(outs)), name)
    return results[0] if is_one else list(results)
