from collections.abc import Callable
from typing import Any, Optional, TypeVar, overload

from typing_extensions import Literal, dataclass_transform

from ._core import Object

_O = TypeVar("_O", bound=type[Object])
_T = TypeVar("_T")

_FieldStructural = Optional[Literal["ignore", "def", "def_pattern"]]
_Structural = Optional[Literal["tree", "dag", "const_tree", "var", "unique"]]

class Field:
    default: Any
    default_factory: Any
    doc: Optional[str]
    flags: int
    kw_only: Optional[bool]
    def __init__(
        self,
        default: Any = ...,
        default_factory: Any = ...,
        doc: Optional[str] = None,
        flags: int = 0,
        kw_only: Optional[bool] = None,
    ) -> None: ...

# For type checkers, the result has the type of the field.
@overload
def field(
    *,
    default: _T,
    init: bool = True,
    repr: bool = True,
    compare: bool = True,
    hash: Optional[bool] = None,
    kw_only: Optional[bool] = None,
    structural: _FieldStructural = None,
    doc: Optional[str] = None,
) -> _T: ...
@overload
def field(
    *,
    default_factory: Callable[[], _T],
    init: bool = True,
    repr: bool = True,
    compare: bool = True,
    hash: Optional[bool] = None,
    kw_only: Optional[bool] = None,
    structural: _FieldStructural = None,
    doc: Optional[str] = None,
) -> _T: ...
@overload
def field(
    *,
    init: bool = True,
    repr: bool = True,
    compare: bool = True,
    hash: Optional[bool] = None,
    kw_only: Optional[bool] = None,
    structural: _FieldStructural = None,
    doc: Optional[str] = None,
) -> Any: ...

# Fields and their defaults become the arguments of the constructor.
@overload
@dataclass_transform(eq_default=False, field_specifiers=(field,))
def object(
    key: _O,
    *,
    frozen: bool = False,
    eq: bool = False,
    order: bool = False,
    unsafe_hash: bool = False,
    kw_only: bool = False,
    structural: _Structural = None,
) -> _O: ...
@overload
@dataclass_transform(eq_default=False, field_specifiers=(field,))
def object(
    key: Optional[str] = None,
    *,
    frozen: bool = False,
    eq: bool = False,
    order: bool = False,
    unsafe_hash: bool = False,
    kw_only: bool = False,
    structural: _Structural = None,
) -> Callable[[_O], _O]: ...
