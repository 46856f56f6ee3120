"""The compiler's intermediate representation: expressions with operators, statements, functions and modules.

All nodes are objects of the compiler; their fields are attributes. ``print(node)`` shows the program that a node is.
"""

import functools

from . import _compiler
from ._core import Object
from ._object import register_object
from ._reflection import type_info

_call = _compiler.functions("tir")


class _Operators:
    """Operators that make expressions. Comparisons do, too, so ``a == b`` is an expression: ask ``a.same_as(b)``."""

    __slots__ = ()
    __hash__ = Object.__hash__

    def __add__(self, other):
        return _call.binary("+", self, other)

    def __radd__(self, other):
        return _call.binary("+", other, self)

    def __sub__(self, other):
        return _call.binary("-", self, other)

    def __rsub__(self, other):
        return _call.binary("-", other, self)

    def __mul__(self, other):
        return _call.binary("*", self, other)

    def __rmul__(self, other):
        return _call.binary("*", other, self)

    def __truediv__(self, other):
        return _call.binary("/", self, other)

    def __rtruediv__(self, other):
        return _call.binary("/", other, self)

    def __floordiv__(self, other):
        return _call.binary("//", self, other)

    def __rfloordiv__(self, other):
        return _call.binary("//", other, self)

    def __mod__(self, other):
        return _call.binary("%", self, other)

    def __rmod__(self, other):
        return _call.binary("%", other, self)

    def __neg__(self):
        return _call.neg(self)

    def __invert__(self):
        return _call["not"](self)

    def __and__(self, other):
        return _call.binary("&", self, other)

    def __rand__(self, other):
        return _call.binary("&", other, self)

    def __or__(self, other):
        return _call.binary("|", self, other)

    def __ror__(self, other):
        return _call.binary("|", other, self)

    def __xor__(self, other):
        return _call.binary("^", self, other)

    def __rxor__(self, other):
        return _call.binary("^", other, self)

    def __lshift__(self, other):
        return _call.binary("<<", self, other)

    def __rlshift__(self, other):
        return _call.binary("<<", other, self)

    def __rshift__(self, other):
        return _call.binary(">>", self, other)

    def __rrshift__(self, other):
        return _call.binary(">>", other, self)

    def __pow__(self, other):
        return _call.power(self, other)

    def __rpow__(self, other):
        return _call.power(other, self)

    def __abs__(self):
        return _call.abs(self)

    def __lt__(self, other):
        return _call.binary("<", self, other)

    def __le__(self, other):
        return _call.binary("<=", self, other)

    def __gt__(self, other):
        return _call.binary(">", self, other)

    def __ge__(self, other):
        return _call.binary(">=", self, other)

    def __eq__(self, other):
        return _call.binary("==", self, other)

    def __ne__(self, other):
        return _call.binary("!=", self, other)

    def __bool__(self):
        raise TypeError(
            f"the value of `{self}` is not known before the function runs; use `&`, `|`, `~` instead of `and`, `or`, "
            "`not`, and `tir.select` instead of `if`"
        )

    def astype(self, dtype):
        """The value converted to another data type."""
        return _call.cast(self, dtype)


class _Text:
    __slots__ = ()

    def __str__(self):
        return _call.text(self)

    __repr__ = __str__


@register_object("tir.PrimExpr")
class PrimExpr(_Operators, _Text, Object):
    """An expression of any kind; ``dtype`` is the data type of its value."""


def _node(key, base=PrimExpr):
    """The class of a node type."""
    name = key.rpartition(".")[2]
    return register_object(key)(type(name, (base,), {"__module__": __name__}))


Var = _node("tir.Var")


@register_object("tir.IntImm")
class IntImm(PrimExpr):
    """An integer or truth value; where Python needs one, such as in ``range`` or ``if``, it is that."""

    def __index__(self):
        return self.value % 2**64 if self.dtype == "uint64" else self.value

    __int__ = __index__

    def __bool__(self):
        return self.value != 0


@register_object("tir.FloatImm")
class FloatImm(PrimExpr):
    """A floating-point number, as ``float`` takes it."""

    def __float__(self):
        return self.value


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
    """An axis. In expressions it stands for its variable."""


@register_object("tir.Stmt")
class Stmt(_Text, Object):
    """A statement of any kind."""


BufferStore = _node("tir.BufferStore", Stmt)
For = _node("tir.For", Stmt)
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
    """Memory with a shape and a data type. ``b[i, j]`` is an element, ``b[i, 0:4]`` a part."""

    # Indices are not tried one after the other.
    __iter__ = None

    def __getitem__(self, indices):
        begins, ends = [], []
        for place, index in enumerate(indices if isinstance(indices, tuple) else (indices,)):
            end = None
            if isinstance(index, slice):
                if index.step is not None:
                    raise ValueError(f"a part of `{self.name}` has no gaps, so a slice has no step")
                end = self.shape[place] if index.stop is None and place < len(self.shape) else index.stop
                index = 0 if index.start is None else index.start
            begins.append(index)
            ends.append(end)
        return _call.buffer_at(self, begins, ends)

    def store(self, value, *indices):
        """The statement that sets an element."""
        return _call.store(self, value, list(indices))


@register_object("tir.BufferRegion")
class BufferRegion(_Text, Object):
    """A part of a buffer."""


@register_object("tir.PrimFunc")
class PrimFunc(_Text, Object):
    """A function on buffers and numbers."""


@register_object("tir.IRModule")
class IRModule(_Text, Object):
    """Functions by name: what passes take and give. ``module["main"]`` is one of them."""

    # Functions are not tried one after the other.
    __iter__ = None

    def __getitem__(self, name):
        return self.functions[name]


@register_object("tir.Target")
class Target(Object):
    """The machine that code is generated for, and the C compiler that compiles it.

    ``Target()`` is this machine. ``mcpu`` is a processor as the compiler calls it, ``cc`` the compiler, such as
    ``aarch64-linux-gnu-gcc``, ``options`` are further arguments of it. What the processor has is found out.
    """


@register_object("tir.Trace")
class Trace(Object):
    """The steps of a schedule: printed, saved, and done again by ``Schedule.replay(func, trace)``."""

    def __str__(self):
        return self.text()


@register_object("tir.ScheduleStep")
class ScheduleStep(Object):
    """A step of a schedule."""


@register_object("tir.IndexMap")
class IndexMap(Object):
    """Indices of elements and their new ones, made of a function: ``IndexMap(lambda i, j: [j // 8, i, j % 8], 2)``."""

    def __str__(self):
        return self.text()


@register_object("tir.Schedule")
class Schedule(Object):
    """A function whose loops are being transformed, step by step; a step that would change the result is an error."""

    def fuse(self, loops, *more):
        """Makes one loop of several, each right inside of the one before: ``fuse(i, j)``, or a list of them."""
        return _fuse(self, _loops(loops, more))

    def reorder(self, loops, *more):
        """Puts nested loops into this order: ``reorder(i, j)``, or a list of them."""
        _reorder(self, _loops(loops, more))

    def __str__(self):
        return str(self.func())


_fuse, _reorder = (type_info("tir.Schedule").method(name).function for name in ("fuse", "reorder"))


def _loops(loops, more):
    return [loops, *more] if more or isinstance(loops, Var) else loops


@register_object("arith.Analyzer")
class Analyzer(Object):
    """What is known of integer expressions: of the values of variables, and of conditions that hold.

    >>> from anyfn import tir
    >>> i, j = tir.var("i"), tir.var("j")
    >>> known = tir.Analyzer()
    >>> known.bind(i, 0, 16), known.bind(j, 0, 8)
    (None, None)
    >>> print(known.simplify((i * 8 + j) // 8), known.can_prove(i * 8 + j < 128), known.const_bound(i * 8 + j))
    i True anyfn.Array([0, 127])

    What is said inside of ``with known:`` is forgotten behind it.
    """

    def __init__(self):
        self.__init_handle_by_constructor__(_compiler.functions("arith").analyzer)

    def __enter__(self):
        self.enter()
        return self

    def __exit__(self, *_):
        self.leave()


def verify(func):
    """Raises an error that tells what is wrong with a function: data types, undefined variables and buffers, places outside
    of a buffer. ``build`` does the same."""
    _call.verify(func)


def default_schedule(func, target=None):
    """The schedule that ``build`` gives a function that has none: look at its ``trace()``, and go on from it."""
    return _call.default_schedule(func, target)


def var(name, dtype="int32"):
    """A new variable."""
    return _call.var(name, dtype)


size_var = var


def parse(text):
    """The function or module that a text is: what ``str(func)`` gives, or what was written by hand (``docs/ir-text.md``).

    One function is a ``PrimFunc``; several, or ``module()`` in front of them, an ``IRModule``.
    """
    return _call.parse(text)


def interpret(func, *args):
    """Runs a function step by step, without compiling it, and checks each step; ``args`` are as its compiled form takes them.

    An error says which element of which buffer is outside of it or has no value, with the values of the loop variables.
    """
    _call.interpret(func, list(args))


def const(value, dtype=None):
    """A constant: an int, float or bool as a value of a data type."""
    return _call.const(value, dtype)


def min_value(dtype):
    """The smallest value of a data type; of floating-point numbers the smallest finite one."""
    return _call.limit(dtype, False)


def max_value(dtype):
    """The largest value of a data type; of floating-point numbers the largest finite one."""
    return _call.limit(dtype, True)


def infinity(dtype):
    """The infinity of a floating-point type."""
    return _call.const(float("inf"), dtype)


def select(condition, true_value, false_value):
    """One of two values; of the other one nothing is read, so it may lie outside of a buffer."""
    return _call.select(condition, true_value, false_value)


if_then_else = select


def all(*conditions):
    """Whether all conditions hold; one behind another that does not hold reads nothing."""
    return functools.reduce(lambda a, b: _call.binary("and", a, b), conditions, const(True))


def any(*conditions):
    """Whether one of the conditions holds; one behind another that holds reads nothing."""
    return functools.reduce(lambda a, b: _call.binary("or", a, b), conditions, const(False))


def isnan(x):
    """Whether a floating-point number is none."""
    return _call.isnan(x)


def floordiv(a, b):
    """``a // b`` of integers: the quotient rounded down."""
    return _call.binary("//", a, b)


def floormod(a, b):
    """``a % b`` of integers: the remainder of ``floordiv``, which has the sign of ``b``."""
    return _call.binary("%", a, b)


indexdiv, indexmod = floordiv, floormod


def truncdiv(a, b):
    """The quotient of integers, rounded towards zero."""
    return _call.truncdiv(a, b)


def truncmod(a, b):
    """The remainder of ``truncdiv``, which has the sign of ``a``."""
    return _call.binary("truncmod", a, b)


def min(a, b):
    """The smaller of two values."""
    return _call.binary("min", a, b)


def max(a, b):
    """The larger of two values."""
    return _call.binary("max", a, b)


def _of_one(name):
    def function(x):
        return _call.call(name, [x], None)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{name}(x)`` of a floating-point value."
    return function


exp, exp2, expm1, log, log2, log10, log1p, sqrt, rsqrt, erf, sigmoid = map(
    _of_one, "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt erf sigmoid".split()
)
sin, cos, tan, asin, acos, atan = map(_of_one, "sin cos tan asin acos atan".split())
sinh, cosh, tanh, asinh, acosh, atanh = map(_of_one, "sinh cosh tanh asinh acosh atanh".split())
floor, ceil, trunc, round = map(_of_one, "floor ceil trunc round".split())


def _of_two(name):
    def function(x, y):
        return _call.call(name, [x, y], None)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{name}(x, y)`` of floating-point values."
    return function


pow, atan2, fmod, hypot, copysign = map(_of_two, "pow atan2 fmod hypot copysign".split())


def power(x, y):
    """``x ** y``: products if ``y`` is a small whole number, else ``pow`` of floating-point values."""
    return _call.power(x, y)


def abs(x):
    """The value without its sign."""
    return _call.abs(x)


def call_packed(name, *args, dtype="int32"):
    """A call of a packed function, found by its name when the call is first made.

    Arguments are numbers, texts, buffers and parts of buffers; the function gets tensors that are the memory itself. The
    result is of data type ``dtype``; where the call is a statement, the result is ignored. Errors of the function end the
    function that calls.
    """
    return _call.call_packed(name, list(args), dtype)


def call_extern(name, *args, dtype="int32"):
    """A call of a function of C by its symbol; a buffer is passed as the address of its first element."""
    return _call.call_extern(name, list(args), dtype)


def read_only(buffer):
    """A buffer, or a part of one, as an argument of a call that does not write it."""
    return _call.read_only(buffer)


def decl_buffer(shape, dtype="float32", name="buffer"):
    """Memory of a shape, row by row without gaps."""
    return _call.decl_buffer(list(shape) if isinstance(shape, (tuple, list)) else [shape], dtype, name)


def seq(*stmts):
    """Statements one after the other; calls among them are statements, too."""
    return _call.seq(list(stmts))


def for_loop(extent, body, kind="serial", name="i"):
    """A loop over ``0 <= i < extent``; ``body(i)`` gives the statement. ``kind``: serial, parallel, vectorized, unrolled."""
    return _call.for_loop(extent, body, kind, name)
