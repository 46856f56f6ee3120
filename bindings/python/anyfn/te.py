"""Tensor expressions, which define what is computed but not how.

>>> from anyfn import te
>>> a = te.placeholder((4,), name="a")
>>> b = te.compute((4,), lambda i: a[i] + 1, name="b")
>>> b.op.name
'b'
"""

from __future__ import annotations

from . import _compiler_library, tir
from ._core import Object
from ._missing import getattr_of
from ._object import register_object
from ._rewrite import WalkResult, structural_walk
from .tir import (
    abs as abs,
    acos as acos,
    acosh as acosh,
    all as all,
    any as any,
    asin as asin,
    asinh as asinh,
    atan as atan,
    atanh as atanh,
    ceil as ceil,
    const as const,
    cos as cos,
    cosh as cosh,
    erf as erf,
    exp as exp,
    floor as floor,
    floordiv as floordiv,
    floormod as floormod,
    fmod as fmod,
    if_then_else as if_then_else,
    indexdiv as indexdiv,
    indexmod as indexmod,
    isnan as isnan,
    log as log,
    log2 as log2,
    log10 as log10,
    max_value as max_value,
    min_value as min_value,
    nearbyint as nearbyint,
    power as power,
    round as round,
    rsqrt as rsqrt,
    select as select,
    sigmoid as sigmoid,
    sin as sin,
    sinh as sinh,
    size_var as size_var,
    sqrt as sqrt,
    tan as tan,
    tanh as tanh,
    trunc as trunc,
    truncdiv as truncdiv,
    truncmod as truncmod,
    var as var,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, Optional, Union

    from ._container import Array, Map
    from ._values import dtype as _DType
    from .tir import _Operand, Buffer, IterVar, PrimExpr, PrimFunc, Stmt, Var

_call = _compiler_library.functions("te")


@register_object("te.Operation")
class Operation(Object):
    """An operation that produces one or more tensors."""

    if TYPE_CHECKING:

        @property
        def name(self) -> str: ...
        @property
        def attrs(self) -> Map[str, Any]: ...

    @property
    def input_tensors(self) -> list[Tensor]:
        """Tensors that the operation reads, each once, in the order of their first use."""
        return []


@register_object("te.Tensor")
class Tensor(Object):
    """A tensor of a computation; ``a[i, j]`` or ``a(i, j)`` is one of its elements."""

    if TYPE_CHECKING:

        @property
        def op(self) -> Operation: ...
        @property
        def value_index(self) -> int: ...
        @property
        def shape(self) -> Array[PrimExpr]: ...
        @property
        def dtype(self) -> _DType: ...

    # Prevents iteration by trying indices from 0 on.
    __iter__ = None

    def __getitem__(self, indices: Union[_Operand, tuple[_Operand, ...]]) -> PrimExpr:
        indices = indices if isinstance(indices, tuple) else (indices,)
        for place, index in enumerate(indices):
            if index is None or index is ... or isinstance(index, slice):  # type: ignore[comparison-overlap]
                raise TypeError(f"index {place} of tensor `{self.name}` is {index}; indices must be expressions")
        return _call.element(self, list(indices))

    def __call__(self, *indices: _Operand) -> PrimExpr:
        return self[indices]

    @property
    def name(self) -> str:
        """Name of the operation that produces the tensor."""
        return self.op.name

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    if not TYPE_CHECKING:

        def _refuse(self, _other=None):
            raise TypeError(tir._not_indexed(self))

        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
        __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __neg__ = __abs__ = _refuse
        __lt__ = __le__ = __gt__ = __ge__ = _refuse

    def __str__(self) -> str:
        extents = ", ".join(map(str, self.shape))
        return f"Tensor(shape=[{extents}], dtype={self.dtype}, op.name={self.op.name})"

    __repr__ = __str__


@register_object("te.PlaceholderOp")
class PlaceholderOp(Operation):
    """An operation that represents an input tensor."""

    if TYPE_CHECKING:

        @property
        def shape(self) -> Array[PrimExpr]: ...
        @property
        def dtype(self) -> _DType: ...


@register_object("te.ComputeOp")
class ComputeOp(Operation):
    """An operation that computes each element of its tensors by an expression."""

    if TYPE_CHECKING:

        @property
        def axis(self) -> Array[IterVar]: ...
        @property
        def body(self) -> Array[PrimExpr]: ...

    @property
    def input_tensors(self) -> list[Tensor]:
        """Tensors that the operation reads, each once, in the order of their first use."""
        found: list[Tensor] = []

        def visit(tensor):
            found.append(tensor)
            return WalkResult.SKIP

        structural_walk(self.body, (Tensor, visit), order="pre", once=True)
        return found

    @property
    def reduce_axis(self) -> list[IterVar]:
        """Reduction axes of the expression, outermost first; empty if the expression is not a reduction."""
        body = self.body[0]
        return list(body.axis) if isinstance(body, tir.Reduce) else []


@register_object("te.ExternOp")
class ExternOp(Operation):
    """An operation that computes its tensors by a statement."""

    if TYPE_CHECKING:

        @property
        def inputs(self) -> Array[Tensor]: ...
        @property
        def input_buffers(self) -> Array[Buffer]: ...
        @property
        def output_buffers(self) -> Array[Buffer]: ...
        @property
        def body(self) -> Stmt: ...

    @property
    def input_tensors(self) -> list[Tensor]:
        """Tensors that the operation reads."""
        return list(self.inputs)


def _shape(shape):
    return list(shape) if isinstance(shape, (tuple, list)) or hasattr(shape, "__iter__") else [shape]


def placeholder(
    shape: Union[_Operand, Sequence[_Operand]],
    dtype: Union[str, _DType] = "float32",
    name: str = "placeholder",
) -> Tensor:
    """Returns an input tensor, which the caller of the compiled function passes."""
    return _call.placeholder(_shape(shape), dtype, name)


def compute(
    shape: Union[_Operand, Sequence[_Operand]], fcompute: Callable[..., Any], name: str = "compute"
) -> Any:
    """Returns a tensor. ``fcompute`` receives the indices of an element and returns the expression that computes it.

    If ``fcompute`` returns a tuple of values, the result is a tuple of tensors.
    """
    extents = _shape(shape)
    try:
        result = _call.compute(extents, lambda *indices: _element(fcompute(*indices)), name)
    except TypeError as error:
        _check_indices(fcompute, len(extents), error)
        raise
    return result if isinstance(result, Tensor) else tuple(result)


def _check_indices(fcompute, ndim, error):
    """Raises an error if a function does not take one index for each dimension."""
    import inspect

    try:
        signature = inspect.signature(fcompute)
    except (TypeError, ValueError):
        return
    dimensions, indices = ("dimension", "index") if ndim == 1 else ("dimensions", "indices")
    try:
        signature.bind(*range(ndim))
    except TypeError:
        raise TypeError(
            f"te.compute: the shape has {ndim} {dimensions}, so `fcompute` is called with {ndim} {indices}, but its parameters "
            f"are {signature}"
        ) from error


def _element(value):
    if value is None:
        raise TypeError("te.compute: `fcompute` returned None: is a `return` missing?")
    if isinstance(value, Tensor):
        raise TypeError(f"te.compute: {tir._not_indexed(value)}")
    return _value(value)


def _value(value):
    return list(value) if isinstance(value, tuple) else value


def reduce_axis(dom: Union[tuple[_Operand, _Operand], _Operand], name: str = "k") -> IterVar:
    """Returns a reduction axis over ``range(*dom)``; ``dom`` may also be only the end of a range that begins at 0."""
    begin, end = dom if hasattr(dom, "__iter__") else (0, dom)
    return _call.reduce_axis(begin, end - begin, name)


def _axes(axis):
    axes = list(axis) if hasattr(axis, "__iter__") else [axis]
    for one in axes:
        if not isinstance(one, tir.IterVar):
            raise TypeError(f"axis: expected a `te.reduce_axis`, got {type(one).__name__}")
    return axes


def sum(
    expr: _Operand, axis: Union[IterVar, Iterable[IterVar]], where: Optional[_Operand] = None
) -> PrimExpr:
    """Returns the sum of ``expr`` over reduction axes; ``where`` is a condition that selects the values to include."""
    return _call.sum(expr, _axes(axis), where)


def prod(
    expr: _Operand, axis: Union[IterVar, Iterable[IterVar]], where: Optional[_Operand] = None
) -> PrimExpr:
    """Returns the product of ``expr`` over reduction axes; ``where`` is a condition that selects the values to include."""
    return _call.prod(expr, _axes(axis), where)


def min(
    expr: _Operand, axis: Union[IterVar, Iterable[IterVar]], where: Optional[_Operand] = None
) -> PrimExpr:
    """Returns the minimum of ``expr`` over reduction axes; ``where`` is a condition that selects the values to include."""
    return _call.min(expr, _axes(axis), where)


def max(
    expr: _Operand, axis: Union[IterVar, Iterable[IterVar]], where: Optional[_Operand] = None
) -> PrimExpr:
    """Returns the maximum of ``expr`` over reduction axes; ``where`` is a condition that selects the values to include."""
    return _call.max(expr, _axes(axis), where)


def comm_reducer(
    fcombine: Callable[..., Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]:
    """Defines a custom reduction: ``fcombine(x, y)`` combines two values, ``fidentity(dtype)`` is the initial value.

    Returns a function of values and reduction axes, like ``te.sum``.
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


def create_prim_func(args: Iterable[Union[Tensor, Var]], name: str = "main") -> PrimFunc:
    """Returns a PrimFunc that computes tensors. Its parameters ``args`` are input tensors, output tensors and variables."""
    return _call.create_prim_func(list(args), name)


def extern(
    shape: Union[_Operand, Sequence[_Operand], list[Sequence[_Operand]]],
    inputs: Sequence[Tensor],
    fcompute: Callable[[list[Buffer], list[Buffer]], Union[PrimExpr, Stmt]],
    name: str = "extern",
    dtype: Union[str, _DType, Sequence[Union[str, _DType]], None] = None,
) -> Any:
    """Returns a tensor, or a list of tensors, that a statement computes from other tensors.

    ``fcompute(ins, outs)`` receives lists of the buffers of inputs and results. It returns a statement, or a call such as
    ``tir.call_packed("scale", ins[0], outs[0])``. ``shape`` is the shape of the result, or a list of shapes. ``dtype`` is its
    data type, or a list of them; the default is that of the inputs.
    """
    is_one = not (isinstance(shape, list) and [extent for extent in shape if isinstance(extent, (tuple, list))])
    shapes = [_shape(shape)] if is_one else [_shape(one) for one in shape]  # type: ignore[union-attr]
    if dtype is None:
        known = {str(tensor.dtype) for tensor in inputs}
        if len(known) != 1:
            raise TypeError(
                f"cannot infer the data type of `{name}`: its inputs have the data types {sorted(known) or 'none'}; "
                "pass `dtype`"
            )
        dtype = known.pop()
    dtypes = list(dtype) if isinstance(dtype, (tuple, list)) else [dtype] * len(shapes)
    results = _call["extern"](shapes, dtypes, list(inputs), lambda ins, outs: fcompute(list(ins), list(outs)), name)
    return results[0] if is_one else list(results)


if not TYPE_CHECKING:
    __getattr__ = getattr_of(__name__)
