"""Saving and loading of any graph of values as JSON, and saving as an HTML page."""

from . import _core
from ._registry import get_global_func

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from typing import Any, Literal, Optional, Union, overload

    from ._container import Map
    from ._core import Object

    _Path = Union[str, os.PathLike[str]]
    _UnknownFields = Literal["keep", "drop", "error"]

if TYPE_CHECKING:

    @overload
    def save_json(value: Any, path: None = None, *, metadata: Optional[Mapping[str, Any]] = None) -> str: ...
    @overload
    def save_json(value: Any, path: _Path, *, metadata: Optional[Mapping[str, Any]] = None) -> None: ...


def save_json(
    value: "Any", path: "Optional[_Path]" = None, *, metadata: "Optional[Mapping[str, Any]]" = None
) -> "Optional[str]":
    """Saves a value, and all values that it refers to, as JSON.

    Returns the JSON as a string. With ``path``, writes it to that file instead, which is replaced atomically once everything
    is written. ``metadata`` is a dict of JSON values that are saved in addition.

    A shared value is saved once and is shared again after loading; cycles are preserved, too. Raises ``TypeError``, with the
    path, for a value that cannot be recreated, such as a function.

    >>> text = save_json([1, "x", [2.5]])
    >>> load_json(text)
    anyfn.Array([1, 'x', anyfn.Array([2.5])])
    """
    text = get_global_func("anyfn.save_json")(value, metadata)
    if path is None:
        return text
    _replace(path, text)
    return None


if TYPE_CHECKING:

    @overload
    def save_html(value: Any, path: None = None, *, depth: int = 20, children: int = 100, size: int = 1 << 18) -> str: ...
    @overload
    def save_html(value: Any, path: _Path, *, depth: int = 20, children: int = 100, size: int = 1 << 18) -> None: ...


def save_html(
    value: "Any", path: "Optional[_Path]" = None, *, depth: int = 20, children: int = 100, size: int = 1 << 18
) -> "Optional[str]":
    """Saves what a notebook shows for a value as an HTML page, which needs neither a network nor scripts.

    Containers and objects are trees that fold, functions and modules of the compiler are source, and a schedule is its
    source with a table of its steps. Lists, tuples and dicts are converted to containers first. Values that notebooks show
    as text are text.

    Returns the page as a string. With ``path``, writes it to that file instead, which is replaced atomically. A tree shows
    values up to the given ``depth``, from 1 to 150, and ``children`` of each value. ``size`` limits the length of the page,
    in characters; the page may be slightly longer. Raises ``ValueError`` for other limits.

    >>> page = save_html([1, "x", [2.5]])
    >>> "<details" in page, "<script" in page
    (True, False)
    """
    from . import _html

    limits = _html.Limits(depth, children, size)
    if isinstance(value, (list, tuple, dict)):
        value = _core.convert(value)
    text = _html.page(value, limits)
    if path is None:
        return text
    _replace(path, text)
    return None


if TYPE_CHECKING:

    @overload
    def load_json(text: str, *, path: None = None, unknown_fields: _UnknownFields = "keep") -> Any: ...
    @overload
    def load_json(text: None = None, *, path: _Path, unknown_fields: _UnknownFields = "keep") -> Any: ...


def load_json(
    text: "Optional[str]" = None, *, path: "Optional[_Path]" = None, unknown_fields: "_UnknownFields" = "keep"
) -> "Any":
    """Loads a value that ``save_json``, or another runtime with this ABI, has saved. The source is a string or the file
    ``path``.

    A saved field that its type no longer has is kept with the object, and saved again with it; ``unknown_fields`` can be
    ``"drop"`` or ``"error"`` instead. A field that is missing in the file gets its default. Renamed types and fields are
    found through the aliases of ``register_alias``.

    Raises ``ValueError``, ``RuntimeError`` (for an unknown type) or ``TypeError`` (for a field), with line, column and path.
    """
    if (text is None) == (path is None):
        raise TypeError("load_json: expected either `text` or `path`")
    if path is not None:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
    return get_global_func("anyfn.load_json")(text, unknown_fields)


if TYPE_CHECKING:

    @overload
    def json_metadata(text: str, *, path: None = None) -> Map[str, Any]: ...
    @overload
    def json_metadata(text: None = None, *, path: _Path) -> Map[str, Any]: ...


def json_metadata(text: "Optional[str]" = None, *, path: "Optional[_Path]" = None) -> "Map[str, Any]":
    """Returns the metadata that ``save_json`` saved: that of the caller, and the format and version under ``"anyfn"``.

    >>> json_metadata(save_json(1, metadata={"name": "x"}))["name"]
    'x'
    """
    if (text is None) == (path is None):
        raise TypeError("json_metadata: expected either `text` or `path`")
    if path is not None:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
    return get_global_func("anyfn.json_metadata")(text)


def register_alias(old: str, new: str, *, of: "Union[None, str, type[Object]]" = None) -> None:
    """Registers ``old`` as a former key of the type with the key ``new``, so that files with the old key can be loaded.

    With ``of``, which is a class of objects or the key of its type, registers ``old`` as a former name of the field ``new``.

    >>> register_alias("doc.OldName", "doc.NewName")
    >>> register_alias("begin", "start", of="doc.Range")
    """
    if of is None:
        return get_global_func("anyfn.alias_type")(old, new)
    if isinstance(of, type):
        told = _core.type_of_class(of)
        if told is None:
            raise TypeError(f"{of.__name__} does not represent a native type")
        of = told[1]
    return get_global_func("anyfn.alias_field")(of, old, new)


# ---- pickle


def _reduce(self):
    """Implements pickling of objects. An object is pickled as the JSON that ``save_json`` returns."""
    cls = type(self)
    try:
        text = save_json(self)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"cannot pickle or copy {cls.__name__} object: {error}; its class may define __reduce__"
        ) from None
    known = _core.registered_class(self.type_index)
    if known is not cls:
        raise TypeError(
            f"cannot pickle or copy {cls.__name__} object: objects of type {self.type_key} are loaded as "
            f"{known.__name__}; its class may define __reduce__"
        )
    made = (_load_pickled, (_classes_of(text), text))
    state = getattr(self, "__dict__", None) or None
    slots = _slots_of(self, cls)
    return (*made, (state, slots) if slots else state) if state or slots else made


def _load_pickled(classes, text):
    """Loads a pickled object. ``classes`` is unused, but unpickling it has imported the modules that define the types."""
    return load_json(text)


def _classes_of(text):
    """Returns the classes of all types in saved JSON, so that unpickling imports the modules that define them."""
    import re

    classes = []
    # A JSON string cannot contain this pattern, because its quotes would be escaped.
    for key in sorted(set(re.findall(r'\{"type":"([^"\\]*)"', text))):
        index = _core.type_index(key)
        if index is not None and index >= 128:
            cls = _core.registered_class(index)
            if cls is not _core.Object and cls.__module__ not in ("anyfn", "anyfn.types"):
                classes.append(cls)
    return tuple(classes)


def _slots_of(self, cls):
    """Returns the values of an instance's ``__slots__`` by name."""
    import copyreg

    return {name: getattr(self, name) for name in copyreg._slotnames(cls) if hasattr(self, name)}


_core.Object.__reduce__ = _reduce  # type: ignore[method-assign]


def _replace(path, text):
    """Replaces a file atomically: writes a new file in the same folder, then renames it."""
    import os

    path = os.path.realpath(os.fspath(path))
    folder, name = os.path.split(path)
    beside = os.path.join(folder, f".{name}.{os.urandom(6).hex()}.new")
    mode = os.stat(path).st_mode & 0o777 if os.path.exists(path) else None
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        with open(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            if mode is not None:
                os.chmod(beside, mode)
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise
