from collections.abc import Callable
from typing import Any, Optional, TypeVar, overload

from typing_extensions import dataclass_transform

from ._core import Object

_O = TypeVar("_O", bound=type[Object])
_T = TypeVar("_T")

class Field:
    default: Any
    default_factory: Any
    def __init__(self, default: Any, default_factory: Any) -> None: ...

# The result is what the field holds, for type checkers.
@overload
def field(*, default: _T) -> _T: ...
@overload
def field(*, default_factory: Callable[[], _T]) -> _T: ...
@overload
def field() -> Any: ...

# Names and defaults are the arguments of the class.
@overload
@dataclass_transform(field_specifiers=(field,))
def object(key: _O, *, frozen: bool = False) -> _O: ...
@overload
@dataclass_transform(field_specifiers=(field,))
def object(key: Optional[str] = None, *, frozen: bool = False) -> Callable[[_O], _O]: ...
