from collections.abc import Callable
from typing import Any, Optional, TypeVar, Union

from ._core import Object

_T = TypeVar("_T")

def register_converter(
    cls: type[_T],
    native: Union[type[Object], str],
    *,
    to_native: Optional[Callable[[_T], Any]] = None,
    from_native: Optional[Callable[[Any], Any]] = None,
) -> None: ...
def remove_converter(cls: type[Any]) -> None: ...
