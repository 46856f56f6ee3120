"""The compiler: a library of its own, loaded when it is first used."""

import os

from . import _module, _registry

_library = None


def load():
    """Loads the compiler; it stays loaded."""
    global _library
    if _library is None:
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "libanyfn_compiler.so")
        if not os.path.exists(path):
            raise ImportError(f"this installation of anyfn has no compiler: there is no {path}")
        _library = _module.load_module(path)


class functions:
    """The compiler's functions whose names begin with a prefix, as attributes."""

    def __init__(self, prefix):
        load()
        self._prefix = prefix

    def __getattr__(self, name):
        function = _registry.get_global_func(f"{self._prefix}.{name}")
        self.__dict__[name] = function
        return function

    def __getitem__(self, name):
        return getattr(self, name)


def build(inputs, name="main"):
    """Compiles for this machine and loads: a function, a module, or functions by name.

    The result is a module; it is called as its only function, or ``name``.
    """
    call = functions("compiler")
    return call.build(_as_module(inputs, name))


def source(inputs, name="main"):
    """The C source of what ``build`` compiles."""
    return functions("compiler").source(_as_module(inputs, name))


def lower(inputs, name="main"):
    """The module as code generators take it."""
    return functions("compiler").lower(_as_module(inputs, name))


def _as_module(inputs, name):
    from . import tir

    if isinstance(inputs, tir.PrimFunc):
        inputs = {inputs.attrs.get("global_symbol", name): inputs}
    if isinstance(inputs, dict):
        inputs = functions("tir").module(inputs)
    return inputs
