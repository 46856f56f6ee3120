import inspect
from collections.abc import Mapping
from typing import Any, Optional, TypeVar, Union

from ._core import Object, PackedFunc

_O = TypeVar("_O", bound=Object)

class FieldInfo:
    owner: str
    name: str
    type: str
    schema: Mapping[str, Any]
    doc: str
    flags: frozenset[str]
    default: Any
    default_factory: Optional[PackedFunc]
    def __init__(self, owner: str, name: str, schema: str, doc: str, flags: int, default: Any) -> None: ...

class MethodInfo:
    owner: str
    name: str
    doc: str
    static: bool
    function: PackedFunc
    @property
    def signature(self) -> Optional[inspect.Signature]: ...
    def __init__(self, owner: str, name: str, doc: str, static: bool, function: PackedFunc) -> None: ...

class TypeInfo:
    key: str
    index: int
    doc: str
    structural: Optional[str]
    fields: tuple[FieldInfo, ...]
    methods: tuple[MethodInfo, ...]
    def __init__(self, told: Any) -> None: ...
    @property
    def parent(self) -> Optional[TypeInfo]: ...
    @property
    def cls(self) -> type[Object]: ...
    def field(self, name: str) -> FieldInfo: ...
    def method(self, name: str) -> MethodInfo: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

def type_info(of: Union[Object, type[Object], str, int]) -> TypeInfo: ...
def replace(obj: _O, /, **changes: Any) -> _O: ...
