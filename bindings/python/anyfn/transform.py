"""Passes, which are functions from IR to IR, and pipelines of passes.

>>> import anyfn
>>> from anyfn import te, transform
>>> @transform.prim_func_pass
... def greet(func):
...     print("pass on", func.attrs["global_symbol"])
...     return func
>>> x = te.placeholder((4,), name="x")
>>> func = te.create_prim_func([x, te.compute((4,), lambda i: x[i] + 1, name="y")], name="f")
>>> greet(func).same_as(func)
pass on f
True
>>> "vectorize" in transform.default_pipeline().names()
True
"""

from __future__ import annotations

from . import _compiler_library
from ._core import Object, unknown_name
from ._missing import getattr_of
from ._object import register_object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Literal, Optional, Union, overload

    from ._container import Array
    from .tir import IRModule, PrimFunc

    _PassLike = Union["Pass", "Pipeline", Callable[[PrimFunc], PrimFunc], Callable[[PrimFunc, IRModule], PrimFunc]]
    _Names = Union[str, Iterable[str], None]
    _To = Optional[Callable[[str, str], Any]]
    _OnFuncs = Union[Callable[[PrimFunc], PrimFunc], Callable[[PrimFunc, IRModule], PrimFunc]]
    _OnModules = Callable[[IRModule], IRModule]

_call = _compiler_library.functions("tir.transform")


@register_object("tir.Pass")
class Pass(Object):
    """A named transformation of IR. Calling it with a function or module returns the transformed function or module."""

    if TYPE_CHECKING:

        def __init__(self, name: str, kind: str, function: Callable[..., Any]) -> None: ...
        @property
        def name(self) -> str: ...
        @property
        def kind(self) -> Literal["prim_func", "module"]: ...
        @overload
        def run(self, node: PrimFunc) -> PrimFunc: ...
        @overload
        def run(self, node: IRModule) -> IRModule: ...
        def run(self, node: Union[PrimFunc, IRModule]) -> Union[PrimFunc, IRModule]: ...

    if TYPE_CHECKING:

        @overload
        def __call__(self, node: PrimFunc) -> PrimFunc: ...
        @overload
        def __call__(self, node: IRModule) -> IRModule: ...

    def __call__(self, node: Union[PrimFunc, IRModule]) -> Union[PrimFunc, IRModule]:
        return self.run(node)

    def __repr__(self) -> str:
        return f"<{self.kind} pass {self.name!r}>"


@register_object("tir.Pipeline")
class Pipeline(Object):
    """An ordered list of passes, each with a unique name, such as ``simplify`` and ``simplify_2``.

    It is created from passes, pipelines, and plain functions, which become passes on functions. It is called like a pass.
    """

    if TYPE_CHECKING:

        @property
        def name(self) -> str: ...
        @overload
        def run(self, node: PrimFunc) -> PrimFunc: ...
        @overload
        def run(self, node: IRModule) -> IRModule: ...
        def run(self, node: Union[PrimFunc, IRModule]) -> Union[PrimFunc, IRModule]: ...
        def names(self) -> Array[str]: ...
        def passes(self) -> Array[Pass]: ...
        def put(self, place: str, name: Optional[str], pass_: Pass, /) -> None: ...
        def remove(self, name: str) -> None: ...
        def copy(self) -> Pipeline: ...
        def as_pass(self) -> Pass: ...
        def times(self) -> Array[Any]: ...
        def watch(self, callback: Callable[[bool, int, str, IRModule], Any]) -> None: ...
        def show(self, is_after: bool, names: Optional[list[str]], callback: Callable[[str, str], Any]) -> None: ...
        def dump(self, folder: str) -> None: ...

    def __init__(self, passes: Iterable[_PassLike] = (), name: str = "pipeline") -> None:
        self.__init_handle_by_constructor__(_call.pipeline, [as_pass(one) for one in passes], name)

    if TYPE_CHECKING:

        @overload
        def __call__(self, node: PrimFunc) -> PrimFunc: ...
        @overload
        def __call__(self, node: IRModule) -> IRModule: ...

    def __call__(self, node: Union[PrimFunc, IRModule]) -> Union[PrimFunc, IRModule]:
        return self.run(node)

    def append(self, one: _PassLike) -> None:
        """Appends a pass."""
        self.put("after", None, as_pass(one))

    def insert_before(self, name: str, one: _PassLike) -> None:
        """Inserts a pass before the pass ``name``."""
        self.put("before", name, as_pass(one))

    def insert_after(self, name: str, one: _PassLike) -> None:
        """Inserts a pass after the pass ``name``."""
        self.put("after", name, as_pass(one))

    def replace(self, name: str, one: _PassLike) -> None:
        """Replaces the pass ``name`` by another pass."""
        self.put("instead", name, as_pass(one))

    def print_before(self, names: _Names = None, to: _To = None) -> None:
        """Enables printing of the IR before each pass, or before the passes ``names``.

        Output goes to ``to(title, text)``, or to stderr by default.
        """
        self.show(False, _names(names), to or _to_stderr)

    def print_after(self, names: _Names = None, to: _To = None) -> None:
        """Enables printing of the IR after each pass, or after the passes ``names``.

        Output goes to ``to(title, text)``, or to stderr by default.
        """
        self.show(True, _names(names), to or _to_stderr)

    def __repr__(self) -> str:
        return f"<pipeline {self.name!r}: {', '.join(self.names())}>"


Sequential = Pipeline


if TYPE_CHECKING:

    @overload
    def prim_func_pass(function: _OnFuncs, *, name: Optional[str] = None) -> Pass: ...
    @overload
    def prim_func_pass(function: None = None, *, name: Optional[str] = None) -> Callable[[_OnFuncs], Pass]: ...


def prim_func_pass(
    function: Optional[_OnFuncs] = None, *, name: Optional[str] = None
) -> Union[Pass, Callable[[_OnFuncs], Pass]]:
    """Creates a pass from a function that takes a PrimFunc and, if it has two parameters, the PrimFunc's module."""
    return _decorator(function, name, "prim_func")


if TYPE_CHECKING:

    @overload
    def module_pass(function: _OnModules, *, name: Optional[str] = None) -> Pass: ...
    @overload
    def module_pass(function: None = None, *, name: Optional[str] = None) -> Callable[[_OnModules], Pass]: ...


def module_pass(
    function: Optional[_OnModules] = None, *, name: Optional[str] = None
) -> Union[Pass, Callable[[_OnModules], Pass]]:
    """Creates a pass from a function that receives an IRModule and returns the new IRModule."""
    return _decorator(function, name, "module")


def as_pass(one: _PassLike) -> Pass:
    """Converts a pipeline, or a plain function that takes a PrimFunc, to a pass; a pass is returned unchanged."""
    if isinstance(one, Pass):
        return one
    if isinstance(one, Pipeline):
        return Pipeline.as_pass(one)
    if callable(one):
        return prim_func_pass(one)
    if isinstance(one, str):
        raise TypeError(f'expected a pass, got a string; look up the pass by its name: `transform.get("{one}")`')
    raise TypeError(f"expected a pass, a pipeline or a function but got {type(one).__name__}")


def get(name: str) -> Pass:
    """Returns a built-in pass by name."""
    try:
        return _call.get(name)
    except ValueError:
        raise ValueError(unknown_name("pass", name, names())) from None


def names() -> list[str]:
    """Returns the names of all built-in passes."""
    return list(_call.names())


def default_pipeline() -> Pipeline:
    """Returns a new default pipeline, which can be modified. Its passes schedule and lower functions for code generation."""
    return _call.default_pipeline()


def _decorator(function, name, kind):
    if function is None:
        return lambda function: _decorator(function, name, kind)
    if not callable(function):
        raise TypeError(f"expected a function but got {type(function).__name__}")
    name = name or getattr(function, "__name__", type(function).__name__)
    body = function
    if _most_arguments(function, kind, name) == 1 and kind == "prim_func":

        def body(func, module):
            return function(func)

    return Pass(name, kind, body)


def _most_arguments(function, kind, name):
    """Returns the number of arguments with which a pass calls its function: 1 or 2, and 2 if the signature is unknown."""
    import inspect

    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return 2
    for count in (2, 1):
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        if kind == "prim_func" or count == 1:
            return count
    takes = "a pass takes `func`, or `func, mod`" if kind == "prim_func" else "a module pass takes `mod`"
    raise TypeError(f"`{name}{signature}`: {takes}; there is no context")


def _names(names):
    return [names] if isinstance(names, str) else names if names is None else list(names)


def _to_stderr(title, text):
    import sys

    sys.stderr.write(f"# {title}\n{text}\n")


if not TYPE_CHECKING:
    __getattr__ = getattr_of(__name__)
