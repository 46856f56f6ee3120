"""Registry of global functions, which all languages of the process share."""

import sys

from . import _core
from ._core import PackedFunc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal, Optional, Protocol, TypeVar, Union, overload

    from typing_extensions import ParamSpec

    from ._core import Array, Map

    _P = ParamSpec("_P")
    _R = TypeVar("_R")
    _K = TypeVar("_K")
    _V = TypeVar("_V")

    class _Decorator(Protocol):
        # Lists, tuples and dicts are converted to containers.
        @overload
        def __call__(self, f: Callable[_P, list[_V]], /) -> PackedFunc[_P, Array[_V]]: ...
        @overload
        def __call__(self, f: Callable[_P, dict[_K, _V]], /) -> PackedFunc[_P, Map[_K, _V]]: ...
        @overload
        def __call__(self, f: Callable[_P, tuple[Any, ...]], /) -> PackedFunc[_P, Array[Any]]: ...
        @overload
        def __call__(self, f: Callable[_P, _R], /) -> PackedFunc[_P, _R]: ...

if TYPE_CHECKING:

    @overload
    def get_global_func(name: str, allow_missing: Literal[False] = False) -> PackedFunc: ...
    @overload
    def get_global_func(name: str, allow_missing: bool) -> Optional[PackedFunc]: ...


def get_global_func(name: str, allow_missing: bool = False) -> "Optional[PackedFunc]":
    """Returns the global function with the given name.

    If the function does not exist, raises ``ValueError``, or returns ``None`` with ``allow_missing``.
    """
    return _core.get_global_func(name, allow_missing)


if not TYPE_CHECKING:
    # The native function itself, with the same documentation: a look-up then runs no Python code.
    get_global_func = _core.get_global_func


if TYPE_CHECKING:

    @overload
    def register_func(func_name: Optional[str] = None, f: None = None, override: bool = False) -> _Decorator: ...
    @overload
    def register_func(
        func_name: str, f: Callable[_P, list[_V]], override: bool = False
    ) -> PackedFunc[_P, Array[_V]]: ...
    @overload
    def register_func(
        func_name: str, f: Callable[_P, dict[_K, _V]], override: bool = False
    ) -> PackedFunc[_P, Map[_K, _V]]: ...
    @overload
    def register_func(
        func_name: str, f: Callable[_P, tuple[Any, ...]], override: bool = False
    ) -> PackedFunc[_P, Array[Any]]: ...
    @overload
    def register_func(func_name: str, f: Callable[_P, _R], override: bool = False) -> PackedFunc[_P, _R]: ...
    @overload
    def register_func(
        func_name: Callable[_P, list[_V]], f: None = None, override: bool = False
    ) -> PackedFunc[_P, Array[_V]]: ...
    @overload
    def register_func(
        func_name: Callable[_P, dict[_K, _V]], f: None = None, override: bool = False
    ) -> PackedFunc[_P, Map[_K, _V]]: ...
    @overload
    def register_func(
        func_name: Callable[_P, tuple[Any, ...]], f: None = None, override: bool = False
    ) -> PackedFunc[_P, Array[Any]]: ...
    @overload
    def register_func(
        func_name: Callable[_P, _R], f: None = None, override: bool = False
    ) -> PackedFunc[_P, _R]: ...


def register_func(
    func_name: "Union[str, Callable[..., Any], None]" = None,
    f: "Optional[Callable[..., Any]]" = None,
    override: bool = False,
) -> "Union[PackedFunc, Callable[[Callable[..., Any]], PackedFunc]]":
    """Registers a Python function under a global name.

    Can be used as a decorator, with or without a name; the default is the function's own name. Returns the function as a
    PackedFunc, which has the same signature for type checkers. The registry holds the function until
    ``remove_global_func`` removes it. Raises ``RuntimeError`` if the name is taken and ``override`` is false.

    >>> @register_func("doc.greet", override=True)
    ... def greet(name):
    ...     return "hello " + name
    >>> get_global_func("doc.greet")("world")
    'hello world'
    """
    if callable(func_name):
        f, func_name = func_name, None
    if not (func_name is None or isinstance(func_name, str)):
        raise ValueError(f"expect string function name, but got {type(func_name).__name__}")

    def register(func):
        packed = func if isinstance(func, PackedFunc) else convert(func)
        if not isinstance(packed, PackedFunc):
            raise TypeError(f"register_func: expected a callable but got {type(func).__name__}")
        _core.set_global_func(func.__name__ if func_name is None else func_name, packed, override)
        return packed

    return register if f is None else register(f)


def list_global_func_names() -> "list[str]":
    """Returns the names of all global functions, sorted."""
    return _core.list_global_func_names()


def remove_global_func(name: str) -> bool:
    """Removes a global function; returns ``False`` if it does not exist. Existing references to it stay valid."""
    return _core.remove_global_func(name)


def convert(value: "Any") -> "Any":
    """Converts a value as if it were passed to a native function.

    A callable becomes a PackedFunc, a list an Array, and an array of another library a Tensor. The memory of an array is
    shared; lists and dicts are copied recursively. Raises ``TypeError`` or ``OverflowError`` with
    the path of a value that cannot be passed.

    >>> convert({"a": [1, (2, 3)]})
    anyfn.Map({'a': anyfn.Array([1, anyfn.Array([2, 3])])})
    """
    return _core.convert(value)


def _init_api(prefix: str, module_name: "Optional[str]" = None) -> None:
    """Adds the global functions ``<prefix>.<name>`` to a module as attributes.

    Functions without documentation receive a docstring of one line. ``module_name`` is usually the ``__name__`` of the
    calling module. Raises ``ValueError`` if no such module is imported.
    """
    target_name = prefix if module_name is None else module_name
    target = sys.modules.get(target_name)
    if target is None:
        raise ValueError(
            f"_init_api: no module {target_name!r} is imported, so nothing can be added to it; "
            "pass the __name__ of the module that calls"
        )
    start = prefix + "."
    for name in list_global_func_names():
        fname = name[len(start) :]
        if not name.startswith(start) or "." in fname:
            continue
        f = get_global_func(name)
        f.__name__ = fname
        if not f.__doc__:
            f.__doc__ = f"TVM PackedFunc {fname}. "
        setattr(target, fname, f)
