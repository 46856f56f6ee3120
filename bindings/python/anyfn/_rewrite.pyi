from collections.abc import Callable, Iterable
from typing import Any, Literal, Optional, TypeVar, Union

from ._core import Object

_T = TypeVar("_T")

_Type = Union[type[Any], str, None]
_Types = Union[_Type, tuple[_Type, ...]]
_F = TypeVar("_F", bound=Callable[..., Any])
_Callbacks = Union[_F, tuple[_Types, _F], Iterable[tuple[_Types, _F]]]
_Order = Union[Literal["post", "pre"], int]

class WalkResult:
    ADVANCE: int
    SKIP: int

class DefRegionKind:
    NONE: int
    DEF_PATTERN: int
    DEF_SIMPLE: int

class VisitInterrupt(Object):
    @property
    def value(self) -> Any: ...
    def __init__(self, value: Any = None) -> None: ...

class StructuralVisitor(Object):
    def visit(self, value: Any) -> Optional[VisitInterrupt]: ...
    def default_visit(self, value: Any) -> Optional[VisitInterrupt]: ...
    def def_region_kind(self) -> int: ...
    def with_def_region_kind(self, kind: int, callback: Callable[[], _T]) -> _T: ...

class StructuralMutator(Object):
    def mutate(self, value: Any) -> Any: ...
    def default_mutate(self, value: Any) -> Any: ...
    def var_remap_get(self, var: Object) -> Any: ...
    def var_remap_set(self, var: Object, mapped_value: Any) -> None: ...
    def def_region_kind(self) -> int: ...
    def with_def_region_kind(self, kind: int, callback: Callable[[], _T]) -> _T: ...

def structural_walk(
    root: Any,
    callbacks: _Callbacks[Callable[[Any], Any]] = (),
    with_def_region_kind: _Callbacks[Callable[[Any, int], Any]] = (),
    order: _Order = "post",
    once: bool = False,
) -> Optional[VisitInterrupt]: ...
def structural_visit(
    root: Any, callbacks: _Callbacks[Callable[[Any, StructuralVisitor], Any]] = ()
) -> Optional[VisitInterrupt]: ...
def structural_map(
    root: Any,
    callbacks: _Callbacks[Callable[[Any], Any]] = (),
    with_def_region_kind: _Callbacks[Callable[[Any, int], Any]] = (),
    order: _Order = "post",
    share: bool = True,
    inplace: bool = False,
) -> Any: ...
def structural_mutate(
    root: Any, callbacks: _Callbacks[Callable[..., Any]] = (), inplace: bool = False
) -> Any: ...
