"""The tensor IR of the compiler: expressions with operators, statements, functions and modules.

All nodes are native objects of the compiler, and their fields are attributes. ``print(node)`` shows a node as source.
"""

from __future__ import annotations

import functools
import operator

from . import _compiler_library, _core
from ._caller import caller
from ._core import Object
from ._missing import missing
from ._object import register_object
from ._reflection import type_info

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, NoReturn, Union

    from ._values import dtype as _DType

    _Operand = Union["PrimExpr", "IterVar", int, float, bool]
    _Part = Union[_Operand, slice]
    _Arg = Union[_Operand, str, "Buffer", "BufferRegion"]

    from . import transform as transform

_call = _compiler_library.functions("tir")


class _Operators:
    """Mixin with the operators that build expressions. ``a == b`` is an expression, too; ``a.same_as(b)`` compares identity."""

    __slots__ = ()
    __hash__ = Object.__hash__

    def __add__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "+", self, other)

    def __radd__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "+", other, self)

    def __sub__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "-", self, other)

    def __rsub__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "-", other, self)

    def __mul__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "*", self, other)

    def __rmul__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "*", other, self)

    def __truediv__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "/", self, other)

    def __rtruediv__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "/", other, self)

    def __floordiv__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "//", self, other)

    def __rfloordiv__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "//", other, self)

    def __mod__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "%", self, other)

    def __rmod__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "%", other, self)

    def __neg__(self) -> PrimExpr:
        return _call.neg(self)

    def __invert__(self) -> PrimExpr:
        return _call["not"](self)

    def __and__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "&", self, other)

    def __rand__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "&", other, self)

    def __or__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "|", self, other)

    def __ror__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "|", other, self)

    def __xor__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "^", self, other)

    def __rxor__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "^", other, self)

    def __lshift__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "<<", self, other)

    def __rlshift__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "<<", other, self)

    def __rshift__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, ">>", self, other)

    def __rrshift__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, ">>", other, self)

    def __pow__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.power, self, other)

    def __rpow__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.power, other, self)

    def __abs__(self) -> PrimExpr:
        return _call.abs(self)

    def __lt__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "<", self, other)

    def __le__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "<=", self, other)

    def __gt__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, ">", self, other)

    def __ge__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, ">=", self, other)

    def __eq__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "==", self, other)

    def __ne__(self, other: _Operand) -> PrimExpr:
        return _operator(_call.binary, "!=", self, other)

    def __bool__(self) -> bool:
        hint = "and `tir.select` instead of `if`"
        if isinstance(self, (EQ, NE)):
            hint += (
                "; to compare two expressions, for example in a pass, use `anyfn.structural_equal(a, b)`, where a number is "
                "`tir.const(2, a.dtype)`"
            )
        elif isinstance(self, (LT, LE, GT, GE)):
            hint = "`tir.select` instead of `if`, and `tir.max` and `tir.min` instead of `max` and `min`"
        raise TypeError(
            f"the value of `{self}` is not known before the function runs; use `&`, `|`, `~` instead of `and`, `or`, `not`, {hint}"
        )

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        # NumPy calls this for its functions, such as `numpy.sin(x)`, and for its numbers, as in `numpy.float32(2) * x`.
        if [value for value in inputs if _is_array(value)]:
            return _with_arrays(getattr(function, method), inputs, options)
        name, own = function.__name__, _of_numpy(function.__name__)
        if method != "__call__":
            raise TypeError(f"`numpy.{name}.{method}` does not take expressions")
        if options:
            raise TypeError(f"`numpy.{name}` with `{next(iter(options))}=` does not take expressions")
        if own is None:
            raise TypeError(f"`numpy.{name}` does not take expressions; use the functions of `anyfn.tir`")
        return own(*(value if isinstance(value, Object) or not hasattr(value, "item") else value.item() for value in inputs))

    def astype(self, dtype: Union[str, _DType]) -> PrimExpr:
        """Returns the value converted to another data type.

        A floating-point value that is converted to an integer type is rounded towards zero. The result is unspecified
        if the value is NaN or does not fit in the type.
        """
        return _call.cast(self, dtype)


# Functions of NumPy that are operators of expressions, and those whose names differ in this module.
_NUMPY_OPERATORS = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "true_divide": "/",
    "floor_divide": "//",
    "remainder": "%",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "equal": "==",
    "not_equal": "!=",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "logical_and": "and",
    "logical_or": "or",
    "left_shift": "<<",
    "right_shift": ">>",
}
_NUMPY_NAMES = {"absolute": "abs", "maximum": "max", "minimum": "min", "arctan2": "atan2"}
_NUMPY_NAMES.update((f"arc{name}", f"a{name}") for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh"))
_NUMPY_NAMES.update((name, name) for name in "exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan sinh cosh tanh".split())
_NUMPY_NAMES.update((name, name) for name in "floor ceil trunc fmod power hypot copysign isnan".split())
_NUMPY_FUNCTIONS = {
    "fabs": lambda x: _call.call("fabs", [x], None),
    "invert": lambda x: ~x,
    "logical_not": lambda x: ~x if getattr(x, "dtype", None) == "bool" else x == 0,
    "negative": operator.neg,
    "positive": lambda x: x,
    "square": lambda x: x * x,
}


def _of_numpy(name):
    """Returns the function on expressions that corresponds to a NumPy function, or ``None`` if no such function exists."""
    if name in _NUMPY_OPERATORS:
        return functools.partial(_call.binary, _NUMPY_OPERATORS[name])
    return _NUMPY_FUNCTIONS.get(name) or globals().get(_NUMPY_NAMES.get(name))


def _is_array(value):
    return isinstance(value, (list, tuple)) or bool(getattr(value, "ndim", 0))


def _with_arrays(function, inputs, options):
    """Applies a NumPy function to arrays and expressions. Unless all expressions are constants, one array must hold objects."""
    import numpy

    inputs = [numpy.asarray(value) if isinstance(value, (list, tuple)) else value for value in inputs]
    numbers = [_number(value) for value in inputs]
    if not [value for value in numbers if isinstance(value, _Operators)]:
        return function(*numbers, **options)
    if not [value for value in inputs if _is_array(value) and getattr(value, "dtype", None) == object]:
        raise TypeError(
            "an array cannot be an operand of an expression; declare a `te.placeholder` and pass the array to the call"
        )
    return function(*map(_cell, inputs), **options)


def _number(value):
    """Converts a constant expression to a Python number; other values are returned unchanged."""
    if isinstance(value, FloatImm):
        return float(value)
    if isinstance(value, IntImm):
        return bool(value) if value.dtype == "bool" else int(value)
    return value


def _cell(value):
    """Wraps an expression in a zero-dimensional NumPy array of objects; other values are returned unchanged."""
    if not isinstance(value, _Operators):
        return value
    import numpy

    cell = numpy.empty((), object)
    cell[()] = value
    return cell


def _operator(function, *operands):
    """Calls the function of an operator. Returns NotImplemented if it rejects an array, so that NumPy's operator is called."""
    try:
        return function(*operands)
    except TypeError:
        for value in operands:
            if hasattr(type(value), "__array_ufunc__") and not isinstance(value, _Operators):
                return NotImplemented
        _check_indexed(operands)
        raise


def _function(function, *operands):
    """Calls a function. If an operand is a tensor that is not indexed, the error message says so."""
    try:
        return function(*operands)
    except TypeError:
        _check_indexed(operands)
        raise


def _check_indexed(values):
    for value in values:
        if isinstance(value, list):
            _check_indexed(value)
        elif isinstance(value, Object) and value.type_key == "te.Tensor":
            raise TypeError(_not_indexed(value)) from None


def _not_indexed(tensor):
    """Returns the error message for an operand that is a tensor instead of one of its elements."""
    indices = ", ".join("ijklmnop"[: len(tensor.shape)]) or "()"
    return f"tensor `{tensor.name}` is not an expression; index it: `{tensor.name}[{indices}]`"


class _Text:
    __slots__ = ()

    def __str__(self) -> str:
        return _call.text(self)

    __repr__ = __str__

    def _anyfn_html(self, limits):
        from . import _html_ir

        return _html_ir.source(str(self), limits)


class _Shown:
    """Mixin with two methods of Apache TVM: to print the source, and to return TVMScript."""

    __slots__ = ()

    def show(self) -> None:
        """Prints the source, as ``print`` does."""
        print(str(self))

    def script(self) -> str:
        """Returns the source as TVMScript, which Apache TVM and ``tir.parse`` read.

        Raises ``NotImplementedError`` for a construct that TVMScript lacks; ``str`` prints all functions.
        """
        return _call.tvmscript(self.func() if isinstance(self, Schedule) else self)


@register_object("tir.PrimExpr")
class PrimExpr(_Operators, _Text, Object):
    """Base class of expressions; ``dtype`` is the data type of the value."""


def _node(key, base=PrimExpr):
    """Creates, registers and returns the Python class of an IR node type."""
    name = key.rpartition(".")[2]
    return register_object(key)(type(name, (base,), {"__module__": __name__}))


Var = _node("tir.Var")


@register_object("tir.IntImm")
class IntImm(PrimExpr):
    """An integer or boolean constant, which Python accepts in place of an int or bool, such as in ``range`` or ``if``."""

    def __index__(self) -> int:
        return self.value % 2**64 if self.dtype == "uint64" else self.value

    __int__ = __index__

    def __bool__(self) -> bool:
        return self.value != 0


@register_object("tir.FloatImm")
class FloatImm(PrimExpr):
    """A floating-point constant; ``float`` returns its value, and ``bool`` is false if the value is 0."""

    def __float__(self) -> float:
        return self.value

    def __bool__(self) -> bool:
        return self.value != 0


StringImm = _node("tir.StringImm")
Cast = _node("tir.Cast")
BinaryExpr = _node("tir.BinaryExpr")
Add = _node("tir.Add", BinaryExpr)
Sub = _node("tir.Sub", BinaryExpr)
Mul = _node("tir.Mul", BinaryExpr)
Div = _node("tir.Div", BinaryExpr)
Mod = _node("tir.Mod", BinaryExpr)
FloorDiv = _node("tir.FloorDiv", BinaryExpr)
FloorMod = _node("tir.FloorMod", BinaryExpr)
Min = _node("tir.Min", BinaryExpr)
Max = _node("tir.Max", BinaryExpr)
EQ = _node("tir.EQ", BinaryExpr)
NE = _node("tir.NE", BinaryExpr)
LT = _node("tir.LT", BinaryExpr)
LE = _node("tir.LE", BinaryExpr)
GT = _node("tir.GT", BinaryExpr)
GE = _node("tir.GE", BinaryExpr)
And = _node("tir.And", BinaryExpr)
Or = _node("tir.Or", BinaryExpr)
BitAnd = _node("tir.BitAnd", BinaryExpr)
BitOr = _node("tir.BitOr", BinaryExpr)
BitXor = _node("tir.BitXor", BinaryExpr)
ShiftLeft = _node("tir.ShiftLeft", BinaryExpr)
ShiftRight = _node("tir.ShiftRight", BinaryExpr)
Not = _node("tir.Not")
Select = _node("tir.Select")
BufferLoad = _node("tir.BufferLoad")
ProducerLoad = _node("tir.ProducerLoad")
Ramp = _node("tir.Ramp")
Broadcast = _node("tir.Broadcast")
Call = _node("tir.Call")
Let = _node("tir.Let")
Reduce = _node("tir.Reduce")


@register_object("tir.IterVar")
class IterVar(_Operators, Object):
    """An axis, which expressions can use in place of its variable."""


@register_object("tir.Stmt")
class Stmt(_Text, Object):
    """Base class of statements."""


BufferStore = _node("tir.BufferStore", Stmt)
For = _node("tir.For", Stmt)
Launch = _node("tir.Launch", Stmt)
SeqStmt = _node("tir.SeqStmt", Stmt)
IfThenElse = _node("tir.IfThenElse", Stmt)
LetStmt = _node("tir.LetStmt", Stmt)
Allocate = _node("tir.Allocate", Stmt)
Evaluate = _node("tir.Evaluate", Stmt)
AssertStmt = _node("tir.AssertStmt", Stmt)
Block = _node("tir.Block", Stmt)
BlockRealize = _node("tir.BlockRealize", Stmt)


@register_object("tir.Buffer")
class Buffer(Object):
    """Typed memory with a shape. ``b[i, j]`` is an element, and ``b[i, 0:4]`` is a region."""

    # Prevents iteration by trying indices from 0 on.
    __iter__ = None

    def __getitem__(self, indices: Union[_Part, tuple[_Part, ...]]) -> Any:
        begins, ends = [], []
        for place, index in enumerate(indices if isinstance(indices, tuple) else (indices,)):
            end = None
            if isinstance(index, slice):
                if index.step is not None:
                    raise ValueError(f"a region of `{self.name}` has no gaps: expected a slice without a step")
                end = self.shape[place] if index.stop is None and place < len(self.shape) else index.stop
                index = 0 if index.start is None else index.start
            begins.append(index)
            ends.append(end)
        return _call.buffer_at(self, begins, ends)

    def store(self, value: _Operand, *indices: _Operand) -> Stmt:
        """Returns a statement that stores a value in an element of the buffer."""
        return _call.store(self, value, list(indices))


@register_object("tir.BufferRegion")
class BufferRegion(_Text, Object):
    """A region of a buffer."""


@register_object("tir.PrimFunc")
class PrimFunc(_Text, _Shown, Object):
    """A primitive function, whose parameters are buffers and numbers."""


@register_object("tir.IRModule")
class IRModule(_Text, _Shown, Object):
    """A module of functions by name, which passes transform; ``module["main"]`` is the function ``main``.

    It is immutable. ``IRModule({**module.functions, "f": func})`` is a module with a further function.
    """

    # Prevents iteration by trying indices from 0 on.
    __iter__ = None

    def __init__(self, functions: Mapping[str, PrimFunc] = {}, attrs: Mapping[str, Any] = {}) -> None:
        self.__init_handle_by_constructor__(self.__constructor__, functions, attrs)

    def __getitem__(self, name: str) -> PrimFunc:
        try:
            return self.functions[name]
        except KeyError:
            if not isinstance(name, str):
                raise
            raise KeyError(_core.unknown_name("function", name, sorted(self.functions))) from None

    def __contains__(self, name: str) -> bool:
        return name in self.functions

    def __setitem__(self, name: str, func: PrimFunc) -> NoReturn:
        raise TypeError(f"an IRModule is immutable; create a new one: tir.IRModule({{**module.functions, {name!r}: func}})")

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            raise missing("'IRModule' object", name)


@register_object("tir.Target")
class Target(Object):
    """The processor for which code is generated, and the C compiler that compiles the code.

    ``Target()`` is this machine. ``mcpu`` is the compiler's name of a processor. ``cc`` is the compiler, such as
    ``aarch64-linux-gnu-gcc``, and ``options`` are further arguments of it. The features of the processor are detected.

    ``Target("opencl")`` is an OpenCL device, whose kernels host code for the processor launches. ``max_threads`` is the largest
    number of threads of a block, and ``local_memory`` the bytes of memory that they share. ``Target("cuda", device_arch="sm_90")``,
    or ``Target("cuda -arch=sm_90")``, is a CUDA device, for whose architecture the kernels are also compiled to machine code.

    The options may follow the kind in one string: ``Target("c -mcpu=x86-64-v3 -O2")`` is the same as
    ``Target("c", mcpu="x86-64-v3", options=["-O2"])``.
    """


@register_object("tir.Trace")
class Trace(Object):
    """The recorded steps of a schedule, which can be printed, saved, and replayed by ``Schedule.replay(func, trace)``.

    ``text(sources=True)`` adds to each step the location and the source line of the call that applied it.
    """

    def __str__(self) -> str:
        return self.text()

    def _anyfn_html(self, limits):
        from . import _html_ir

        return _html_ir.steps(self, limits)


@register_object("tir.ScheduleStep")
class ScheduleStep(Object):
    """A recorded step of a schedule.

    ``source`` is the location of the call that applied the step, such as ``tune.py:14`` or ``In[3]:2`` for a cell of a
    notebook, and ``code`` the source line there; both are None if they are unknown. ``origin`` is ``"default_schedule"``,
    ``"replay"`` or ``"replay of default_schedule"``, or None for a step that a call of its method applied.
    """


@register_object("tir.IndexMap")
class IndexMap(Object):
    """A mapping from indices to new indices, defined by a function: ``IndexMap(lambda i, j: [j // 8, i, j % 8], 2)``."""

    def __str__(self) -> str:
        return self.text()


@register_object("tir.Schedule")
class Schedule(_Shown, Object):
    """A function whose loops are transformed step by step; a step that would change the result raises an error.

    A module with only one function stands for that function.
    """

    def __init__(self, func: Union[PrimFunc, IRModule]) -> None:
        if isinstance(func, IRModule):
            names = sorted(func.functions)
            if len(names) != 1:
                example = f'; pass one of them, such as `module["{names[0]}"]`' if names else ""
                raise ValueError(f"expected a module with one function, got one with {len(names)}{example}")
            func = func[names[0]]
        self.__init_handle_by_constructor__(self.__constructor__, func)

    # Generated by `./x codegen` from compiler/schedule/src/steps.rs. Do not edit.
    def fuse(self, loops: Union[Var, Sequence[Var]], *more: Var) -> Var:
        """Fuses perfectly nested loops into one loop, and returns the fused loop.

        The loops are a list, or separate arguments: ``fuse(i, j)``.

        The page ``docs/schedule-steps.md`` shows a function before and after this step.
        """
        return _step("fuse")(self, _loops(loops, more))

    def reorder(self, loops: Union[Var, Sequence[Var]], *more: Var) -> None:
        """Reorders nested loops into the given order, outermost first. Other loops of the nest keep their positions.

        The loops are a list, or separate arguments: ``reorder(i, j)``.

        The page ``docs/schedule-steps.md`` shows a function before and after this step.
        """
        return _step("reorder")(self, _loops(loops, more))
    # End of the generated part.

    @property
    def mod(self) -> IRModule:
        """Module that contains the current function, ``func()``, under the function's name."""
        func = self.func()
        return IRModule({func.attrs.get("global_symbol", "main"): func})

    def finish(self, target: Union[Target, str, Mapping[str, Any], None] = None) -> None:
        """Applies the default schedule to each block if no step has been applied to the block or to a loop around it.

        All other blocks stay as they are, and blocks that a step has added are not inlined. The steps are added to the
        schedule, so ``trace()`` shows them. ``target`` is that of ``anyfn.build``.
        """
        num_steps = len(self.trace().steps)
        _call.finish_schedule(self, target)
        _set_source(self, num_steps)

    def __str__(self) -> str:
        return str(self.func())

    def _anyfn_html(self, limits):
        from . import _html_ir

        return _html_ir.schedule(str(self), self.trace(), limits)

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            raise missing("'Schedule' object", name)


@functools.cache
def _step(name):
    """Returns the native method of the schedule step ``name``, for a Python method that overrides the step."""
    return type_info("tir.Schedule").method(name).function


def _by_tensor(step):
    """Wraps a schedule step so that its argument ``block`` may also be a tensor, which selects the block of the same name."""

    @functools.wraps(step)
    def named(self, block, *args, **options):
        if isinstance(block, Object) and block.type_key == "te.Tensor":
            block = block.name
        return step(self, block, *args, **options)

    return named


for _name in (
    "get_loops decompose_reduction cache_read cache_write set_scope transform_layout rfactor compute_at reverse_compute_at "
    "pad_axes compute_inline reverse_compute_inline"
).split():
    setattr(Schedule, _name, _by_tensor(getattr(Schedule, _name)))


# Methods of a schedule that are not steps.
_NO_STEPS = {"copy", "func", "get_block", "get_blocks", "new", "replay", "set_source", "trace"}


def _located(step):
    """Wraps a schedule step so that the trace contains the location and the source line of the call."""

    @functools.wraps(step)
    def located(*args, **options):
        result = step(*args, **options)
        _set_source(args[0])
        return result

    return located


def _set_source(schedule, first=None):
    """Stores the location of the caller in the latest step of a schedule, or in all steps from number ``first`` on."""
    source, code = caller()
    if source is not None:
        schedule.set_source(source, code, first)


for _name in {_method.name for _method in type_info("tir.Schedule").methods} - _NO_STEPS:
    setattr(Schedule, _name, _located(getattr(Schedule, _name)))
del _name


def _loops(loops, more):
    return [loops, *more] if more or isinstance(loops, Var) else loops


@register_object("arith.Analyzer")
class Analyzer(Object):
    """Analysis of integer expressions, based on known bounds of variables and on conditions that are known to hold.

    >>> from anyfn import tir
    >>> i, j = tir.var("i"), tir.var("j")
    >>> known = tir.Analyzer()
    >>> known.bind(i, 0, 16), known.bind(j, 0, 8)
    (None, None)
    >>> print(known.simplify((i * 8 + j) // 8), known.can_prove(i * 8 + j < 128), known.const_bound(i * 8 + j))
    i True anyfn.Array([0, 127])

    Facts that are added inside ``with known:`` are dropped at the end of the block.
    """

    def __init__(self) -> None:
        self.__init_handle_by_constructor__(_compiler_library.functions("arith").analyzer)

    def __enter__(self) -> Analyzer:
        self.enter()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()


def verify(func: PrimFunc) -> None:
    """Verifies a function, as ``build`` does, too. Raises an error that describes the problem, if there is one.

    Checks include data types, undefined variables and buffers, and indices outside of a buffer.
    """
    _call.verify(func)


def default_schedule(func: PrimFunc, target: Union[Target, str, Mapping[str, Any], None] = None) -> Schedule:
    """Returns the schedule that ``build`` uses for an unscheduled function; it has a ``trace()`` and can be extended."""
    schedule = _call.default_schedule(func, target)
    _set_source(schedule, 0)
    return schedule


def var(name: str, dtype: Union[str, _DType] = "int32") -> Var:
    """Returns a new variable."""
    return _call.var(name, dtype)


size_var = var


def parse(text: str, names: Mapping[str, Union[int, float, bool, str]] = {}) -> Union[PrimFunc, IRModule]:
    """Parses the source of functions or a module in the syntax of ``docs/ir-text.md``, such as the result of ``str(func)``.

    Also parses TVMScript, in which the source may use ``names``: numbers, and strings that name data types.
    Returns a ``PrimFunc`` for a single function, and an ``IRModule`` for several functions, or after ``module()`` or
    ``@I.ir_module``.
    """
    return _call.parse(text, names)


def interpret(func: PrimFunc, *args: Any) -> None:
    """Interprets a function and checks each operation for errors; ``args`` are the arguments of the compiled function.

    The error for an element that is out of bounds or has no value names the buffer, the element and the values of the
    loop variables.
    """
    _call.interpret(func, list(args))


def const(value: Union[int, float, bool], dtype: Union[str, _DType, None] = None) -> PrimExpr:
    """Returns a constant of a data type for an int, float or bool."""
    return _call.const(value, dtype)


def min_value(dtype: Union[str, _DType]) -> PrimExpr:
    """Returns the smallest value of a data type; for a floating-point type, the smallest finite value."""
    return _call.limit(dtype, False)


def max_value(dtype: Union[str, _DType]) -> PrimExpr:
    """Returns the largest value of a data type; for a floating-point type, the largest finite value."""
    return _call.limit(dtype, True)


def infinity(dtype: Union[str, _DType]) -> PrimExpr:
    """Returns the positive infinity of a floating-point type."""
    return _call.const(float("inf"), dtype)


def select(condition: _Operand, true_value: _Operand, false_value: _Operand) -> PrimExpr:
    """Returns one of two values; reads of the other value are not executed, so they may be out of bounds."""
    return _function(_call.select, condition, true_value, false_value)


if_then_else = select


def all(*conditions: _Operand) -> PrimExpr:
    """Returns the conjunction of conditions. Reads in a condition are not executed if an earlier condition is false."""
    return functools.reduce(lambda a, b: _call.binary("and", a, b), conditions, const(True))


def any(*conditions: _Operand) -> PrimExpr:
    """Returns the disjunction of conditions. Reads in a condition are not executed if an earlier condition is true."""
    return functools.reduce(lambda a, b: _call.binary("or", a, b), conditions, const(False))


def isnan(x: _Operand) -> PrimExpr:
    """Returns an expression that is true if a floating-point value is NaN."""
    return _call.isnan(x)


def floordiv(a: _Operand, b: _Operand) -> PrimExpr:
    """Returns ``a // b`` of integers, the quotient rounded down."""
    return _call.binary("//", a, b)


def floormod(a: _Operand, b: _Operand) -> PrimExpr:
    """Returns ``a % b`` of integers, the remainder of ``floordiv``, which has the sign of ``b``."""
    return _call.binary("%", a, b)


indexdiv, indexmod = floordiv, floormod


def truncdiv(a: _Operand, b: _Operand) -> PrimExpr:
    """Returns the quotient of integers ``a`` and ``b``, rounded towards zero."""
    return _call.truncdiv(a, b)


def truncmod(a: _Operand, b: _Operand) -> PrimExpr:
    """Returns the remainder of ``truncdiv``, which has the sign of ``a``."""
    return _call.binary("truncmod", a, b)


def min(a: _Operand, b: _Operand) -> PrimExpr:
    """Returns the smaller of two values."""
    return _function(_call.binary, "min", a, b)


def max(a: _Operand, b: _Operand) -> PrimExpr:
    """Returns the larger of two values."""
    return _function(_call.binary, "max", a, b)


def _of_one(name):
    def function(x: _Operand) -> PrimExpr:
        return _function(_call.call, name, [x], None)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Returns ``{name}(x)`` of a floating-point value."
    return function


exp, exp2, expm1, log, log2, log10, log1p, sqrt, rsqrt, erf, sigmoid = map(
    _of_one, "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt erf sigmoid".split()
)
sin, cos, tan, asin, acos, atan = map(_of_one, "sin cos tan asin acos atan".split())
sinh, cosh, tanh, asinh, acosh, atanh = map(_of_one, "sinh cosh tanh asinh acosh atanh".split())
floor, ceil, trunc, round, nearbyint = map(_of_one, "floor ceil trunc round nearbyint".split())


def _of_two(name):
    def function(x: _Operand, y: _Operand) -> PrimExpr:
        return _function(_call.call, name, [x, y], None)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Returns ``{name}(x, y)`` of floating-point values."
    return function


pow, atan2, fmod, hypot, copysign = map(_of_two, "pow atan2 fmod hypot copysign".split())


def power(x: _Operand, y: _Operand) -> PrimExpr:
    """Returns ``x ** y``, as multiplications if ``y`` is a small integer constant and otherwise as a floating-point ``pow``."""
    return _function(_call.power, x, y)


def abs(x: _Operand) -> PrimExpr:
    """Returns the absolute value."""
    return _function(_call.abs, x)


def call_packed(name: str, *args: _Arg, dtype: Union[str, _DType] = "int32") -> PrimExpr:
    """Returns a call of a packed function; the function is looked up by name at the first call.

    Arguments are numbers, strings, buffers and regions of buffers. For a buffer, the function receives a tensor of the same
    memory. The result has the data type ``dtype``; it is ignored if the call is a statement. An error of the function ends
    the calling function.
    """
    return _call.call_packed(name, list(args), dtype)


def call_extern(name: str, *args: _Arg, dtype: Union[str, _DType] = "int32") -> PrimExpr:
    """Returns a call of a C function by its symbol; a buffer is passed as the address of its first element."""
    return _call.call_extern(name, list(args), dtype)


def read_only(buffer: Union[Buffer, BufferRegion]) -> PrimExpr:
    """Returns a call argument for a buffer or buffer region that the callee does not write to."""
    return _call.read_only(buffer)


def decl_buffer(
    shape: Union[_Operand, Sequence[_Operand]],
    dtype: Union[str, _DType] = "float32",
    name: str = "buffer",
    scope: str = "global",
) -> Buffer:
    """Declares a compact buffer with a shape and a data type.

    ``scope`` is ``"global"``, ``"shared"`` for memory that the threads of a block of a device share, or ``"local"``.
    """
    return _call.decl_buffer(list(shape) if isinstance(shape, (tuple, list)) else [shape], dtype, name, scope)


def seq(*stmts: Union[Stmt, PrimExpr]) -> Stmt:
    """Returns a sequence of statements. A call expression can be used as a statement."""
    return _call.seq(list(stmts))


def for_loop(
    extent: _Operand, body: Callable[[Var], Union[Stmt, PrimExpr]], kind: str = "serial", name: str = "i"
) -> Stmt:
    """Returns a loop over ``0 <= i < extent``, whose body is the statement ``body(i)``.

    ``kind`` is ``"serial"``, ``"parallel"``, ``"vectorized"``, ``"unrolled"``, or the thread axis of a device to which the
    loop is bound: ``"blockIdx.x"``, ``"threadIdx.x"``, and the same for ``y`` and ``z``.
    """
    return _call.for_loop(extent, body, kind, name)


if not TYPE_CHECKING:

    def __getattr__(name):
        if name == "transform":
            from . import transform

            globals()["transform"] = transform
            return transform
        raise missing("module 'anyfn.tir'", name)
