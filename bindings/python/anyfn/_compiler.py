"""The compiler: a library of its own, loaded when it is first used."""

import os

from . import _module, _registry
from ._core import Object

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
        full = f"{self._prefix}.{name}"
        function = _registry.get_global_func(full, allow_missing=True)
        if function is None:
            # What tools that look for attributes expect.
            raise AttributeError(f"the compiler has no function {full}")
        self.__dict__[name] = function
        return function

    def __getitem__(self, name):
        return getattr(self, name)


def build(inputs, target=None, name="main", *, pipeline=None, passes=(), cache=True, progress=None):
    """Compiles and loads: a function, a schedule, a module, functions in a list or by name, or a list of tensors that are
    given and wanted.

    ``target`` is an ``anyfn.Target``, its kind, or a dict of its options; without it, this machine. ``pipeline`` takes the
    place of the default pipeline of passes, ``passes`` come before it. The result is a module; it is called as its only
    function, or ``main``. One for another kind of processor is not called but exported.

    What was compiled before is not compiled again, unless ``cache`` is false: it is kept in ``~/.cache/anyfn``, or where the
    environment variable ``ANYFN_CACHE_DIR`` says, up to ``ANYFN_CACHE_MB`` (512); ``ANYFN_CACHE=off`` switches that off.
    ``progress(text, seconds)`` is called each second while the C compiler runs.
    """
    return functions("compiler").build(_as_module(inputs, name), target, _pipeline(pipeline, passes), cache, progress)


def source(inputs, target=None, name="main", *, pipeline=None, passes=()):
    """The C source of what ``build`` compiles."""
    return functions("compiler").source(_as_module(inputs, name), target, _pipeline(pipeline, passes))


def lower(inputs, target=None, name="main", *, pipeline=None, passes=()):
    """The module as code generators take it."""
    return functions("compiler").lower(_as_module(inputs, name), target, _pipeline(pipeline, passes))


def _pipeline(pipeline, passes):
    """The pipeline with other passes in front of it; None for the default one alone."""
    passes = list(passes)
    if not passes and pipeline is None:
        return None
    from . import transform

    if pipeline is None:
        pipeline = transform.default_pipeline()
    elif not isinstance(pipeline, transform.Pipeline):
        pipeline = transform.Pipeline(pipeline)
    elif passes:
        pipeline = pipeline.copy()
    for one in reversed(passes):
        pipeline.put("before", None, transform.as_pass(one))
    return pipeline


def _as_module(inputs, name):
    from . import tir

    if isinstance(inputs, tir.IRModule):
        return inputs
    if isinstance(inputs, dict):
        return functions("tir").module(inputs)
    inputs = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    if any(value.type_key == "te.Tensor" for value in inputs if isinstance(value, Object)):
        inputs = [functions("te").create_prim_func(inputs, name)]
    named = {}
    for func in inputs:
        if isinstance(func, tir.Schedule):
            func = func.func()
        if not isinstance(func, tir.PrimFunc):
            raise TypeError(f"expected a function, a schedule or a module to build but got {type(func).__name__}")
        symbol = func.attrs.get("global_symbol", name)
        if symbol in named:
            raise ValueError(f"two functions have the name `{symbol}`")
        named[symbol] = func
    return functions("tir").module(named)
