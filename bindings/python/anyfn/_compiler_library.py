"""The compiler library, which is loaded on first use, and its global functions."""

from __future__ import annotations

import os

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._core import PackedFunc

_library = None


def load() -> None:
    """Loads the compiler library, which stays loaded for the lifetime of the process."""
    global _library
    if _library is None:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "libanyfn_compiler.so")
        if not os.path.exists(path):
            raise ImportError(f"this installation of anyfn does not include the compiler: {path} does not exist")
        _library = _core.get_global_func("ffi.ModuleLoadFromFile", False)(path)
        # `build` shows its progress, so the compiler need not print a message.
        _core.get_global_func("compiler.print_progress", False)(False)


class functions:
    """Namespace of the global functions of the compiler: the attribute ``name`` is the function ``<prefix>.<name>``."""

    def __init__(self, prefix: str) -> None:
        load()
        self._prefix = prefix

    def __getattr__(self, name: str) -> PackedFunc:
        full = f"{self._prefix}.{name}"
        function = _core.get_global_func(full, True)
        if function is None:
            # Tools that probe for attributes expect this exception.
            raise AttributeError(f"the compiler has no function {full}")
        self.__dict__[name] = function
        return function

    def __getitem__(self, name: str) -> PackedFunc:
        return getattr(self, name)
