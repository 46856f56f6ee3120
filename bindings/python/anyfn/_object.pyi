from collections.abc import Callable
from typing import Any, Optional, TypeVar, Union, overload

from ._core import Object

_O = TypeVar("_O", bound=type[Object])

@overload
def register_object(type_key: _O, constructor: Union[Callable[..., Any], str, None] = None) -> _O: ...
@overload
def register_object(
    type_key: Optional[str] = None, constructor: Union[Callable[..., Any], str, None] = None
) -> Callable[[_O], _O]: ...
