from ._registry import _init_api as _init_api
from ._registry import convert as convert
from ._registry import get_global_func as get_global_func
from ._registry import list_global_func_names as list_global_func_names
from ._registry import register_func as register_func
from ._registry import remove_global_func as remove_global_func

__all__ = [
    "_init_api",
    "convert",
    "get_global_func",
    "list_global_func_names",
    "register_func",
    "remove_global_func",
]
