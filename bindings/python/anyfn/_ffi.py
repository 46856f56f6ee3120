"""Alias of the registry module, under the name that older code imports."""

from ._registry import (
    _init_api,
    convert,
    get_global_func,
    list_global_func_names,
    register_func,
    remove_global_func,
)

__all__ = [
    "_init_api",
    "convert",
    "get_global_func",
    "list_global_func_names",
    "register_func",
    "remove_global_func",
]
