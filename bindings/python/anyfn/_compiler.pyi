from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Union

from ._module import Module
from .te import Tensor
from .tir import IRModule, PrimFunc, Schedule, Target, Var
from .transform import _PassLike, Pipeline

_Inputs = Union[PrimFunc, Schedule, IRModule, Mapping[str, PrimFunc], Sequence[Union[PrimFunc, Schedule]], Sequence[Union[Tensor, Var]]]
_Target = Union[Target, str, Mapping[str, Any], None]

_Pipeline = Union[Pipeline, Iterable[_PassLike], None]

def build(
    inputs: _Inputs,
    target: _Target = None,
    name: str = "main",
    *,
    pipeline: _Pipeline = None,
    passes: Iterable[_PassLike] = (),
    cache: bool = True,
    progress: Union[Callable[[str, float], object], None] = None,
) -> Module: ...
def source(
    inputs: _Inputs,
    target: _Target = None,
    name: str = "main",
    *,
    pipeline: _Pipeline = None,
    passes: Iterable[_PassLike] = (),
) -> str: ...
def lower(
    inputs: _Inputs,
    target: _Target = None,
    name: str = "main",
    *,
    pipeline: _Pipeline = None,
    passes: Iterable[_PassLike] = (),
) -> IRModule: ...
