"""Compilation of functions by the compiler, which is a separate library that is loaded on first use."""

from ._core import Object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, Optional, Union

    from ._module import Module
    from .te import Tensor
    from .tir import IRModule, PrimFunc, Schedule, Target, Var
    from .transform import _PassLike, Pipeline

    _Inputs = Union[
        PrimFunc,
        Schedule,
        IRModule,
        Mapping[str, PrimFunc],
        Sequence[Union[PrimFunc, Schedule]],
        Sequence[Union[Tensor, Var]],
    ]
    _Target = Union[Target, str, Mapping[str, Any], None]
    _Pipeline = Union[Pipeline, Iterable[_PassLike], None]


def _functions(prefix):
    """Returns the namespace of the compiler's global functions ``<prefix>.*``. Loads the compiler on first use."""
    from ._compiler_library import functions

    return functions(prefix)


def build(
    inputs: "_Inputs",
    target: "_Target" = None,
    name: "Optional[str]" = None,
    *,
    pipeline: "_Pipeline" = None,
    passes: "Union[_PassLike, Iterable[_PassLike]]" = (),
    cache: bool = True,
    progress: "Union[Callable[[str, float], object], None]" = None,
    verbose: bool = False,
) -> "Module":
    """Compiles functions and loads the result as a module.

    ``inputs`` is a function, a schedule, an ``IRModule``, a list or dict of functions, or a list of input and output tensors.
    ``name`` names a single function, in place of the name that it has; the default for tensors is ``main``. ``target`` is an
    ``anyfn.Target``, a string such as ``"c -mcpu=x86-64-v3"``, or a dict of its options; the default is this machine.
    ``pipeline`` replaces the default pipeline of passes. ``passes``, one pass or several, run after the pipeline's pass
    ``default_schedule``, or before all passes of a pipeline that does not schedule. Calling the module calls its only
    function, or ``main``. A module for another kind of processor cannot be called here, only exported.

    Compiled code is cached and reused unless ``cache`` is false. The cache is the folder ``~/.cache/anyfn``, or the one that
    the environment variable ``ANYFN_CACHE_DIR`` names, with at most ``ANYFN_CACHE_MB`` MiB (512 by default);
    ``ANYFN_CACHE=off`` disables it. ``progress(text, seconds)`` is called once a second while the C compiler runs. Without it,
    a build that takes longer than a second is shown on a terminal or in a notebook.

    If ``verbose`` is true, notes are printed on standard error. They name costly blocks that a hand-written schedule leaves
    unscheduled; ``Schedule.finish`` schedules them.
    """
    from . import _progress

    module = _as_module(inputs, name, target)
    pipeline = _pipeline(pipeline, passes)
    with _progress.waiting(lambda: f"building {_names(module)}", progress) as heard:
        built = _functions("compiler").build(module, target, pipeline, cache, heard)
    if verbose:
        import sys

        for note in _functions("compiler").notes(module, target):
            print(f"anyfn.build: note: {note}", file=sys.stderr)
    return built


def _names(module):
    """Returns the names of the first three functions of a module and the number of further ones, for messages."""
    names = sorted(f"`{name}`" for name in module.functions)
    return ", ".join([*names[:3], f"{len(names) - 3} more"] if names[3:] else names)


def source(
    inputs: "_Inputs",
    target: "_Target" = None,
    name: "Optional[str]" = None,
    *,
    pipeline: "_Pipeline" = None,
    passes: "Union[_PassLike, Iterable[_PassLike]]" = (),
) -> str:
    """Returns the C source that ``build`` compiles for these arguments."""
    return _functions("compiler").source(_as_module(inputs, name, target), target, _pipeline(pipeline, passes))


def lower(
    inputs: "_Inputs",
    target: "_Target" = None,
    name: "Optional[str]" = None,
    *,
    pipeline: "_Pipeline" = None,
    passes: "Union[_PassLike, Iterable[_PassLike]]" = (),
) -> "IRModule":
    """Returns the lowered ``IRModule`` from which code is generated."""
    return _functions("compiler").lower(_as_module(inputs, name, target), target, _pipeline(pipeline, passes))


def _pipeline(pipeline, passes):
    """Returns ``pipeline``, by default the default pipeline, with ``passes`` inserted; None if neither argument is given."""
    passes = [passes] if callable(passes) or isinstance(passes, str) else list(passes)
    if not passes and pipeline is None:
        return None
    from . import transform

    if pipeline is None:
        pipeline = transform.default_pipeline()
    elif not isinstance(pipeline, transform.Pipeline):
        pipeline = transform.Pipeline(pipeline)
    elif passes:
        pipeline = pipeline.copy()
    place = ("after", "default_schedule") if "default_schedule" in pipeline.names() else ("before", None)
    for one in reversed(passes):
        pipeline.put(*place, transform.as_pass(one))
    return pipeline


def _as_module(inputs, name, target):
    """Converts the inputs of ``build`` to a module. If ``name`` is not None, renames the module's only function."""
    from . import tir

    if isinstance(target, (list, tuple)):
        raise TypeError(
            "expected a target as second argument, got a list; a function or schedule knows its arguments: `build(schedule)`"
        )
    if _is_tensor(inputs) and _is_tensor(target):
        raise TypeError("expected the tensors in one list: `build([a, b, c])`")
    if isinstance(inputs, dict):
        inputs = _functions("tir").module(inputs)
    if isinstance(inputs, tir.IRModule):
        return inputs if name is None else _named(inputs, name)
    inputs = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    if any(map(_is_tensor, inputs)):
        inputs = [_functions("te").create_prim_func(inputs, "main" if name is None else name)]
    if name is not None:
        _check_single(len(inputs))
    named = {}
    for func in inputs:
        if isinstance(func, tir.Schedule):
            func = func.func()
        if not isinstance(func, tir.PrimFunc):
            raise TypeError(f"expected a function, a schedule or a module to build but got {type(func).__name__}")
        symbol = func.attrs.get("global_symbol", "main")
        if symbol in named:
            raise ValueError(f"two functions have the name `{symbol}`")
        named[symbol] = func
    module = _functions("tir").module(named)
    return module if name is None else _named(module, name)


def _is_tensor(value):
    return isinstance(value, Object) and value.type_key == "te.Tensor"


def _named(module, name):
    """Returns a copy of a module whose only function is renamed to ``name``."""
    from . import tir

    _check_single(len(module.functions))
    renamed = {name: func.with_attr("global_symbol", name) for func in module.functions.values()}
    return tir.IRModule(renamed, module.attrs)


def _check_single(count):
    if count == 0:
        raise ValueError("cannot use `name`: there is no function to name")
    if count > 1:
        raise ValueError(
            f"cannot give one name to {count} functions: omit `name`, and name each function when it is created, or pass a "
            "dict of functions by name"
        )
