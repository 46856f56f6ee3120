"""Type stubs of functions and native types, generated from their signatures for ``anyfn stubs``."""

from __future__ import annotations

import builtins
import json
import keyword
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Optional

from . import Module, Object, PackedFunc, _core, get_global_func, list_global_func_names
from ._reflection import FieldInfo, MethodInfo, TypeInfo, type_info

# Modules that stubs import. A generated module of the same name would hide them.
_MODULES = ("anyfn", "builtins", "collections", "typing")
HEADER = '# Written by "anyfn stubs": run it again instead of editing.\n'

# Python types of arguments and of results. A name with a dot is imported; other names are built in.
_SIMPLE = {
    "Any": ("typing.Any", "typing.Any"),
    "None": ("None", "None"),
    "int": ("anyfn.typing.IntLike", "int"),
    "float": ("anyfn.typing.FloatLike", "float"),
    "bool": ("bool", "bool"),
    "ffi.String": ("str", "str"),
    "ffi.SmallStr": ("str", "str"),
    "std::string": ("str", "str"),
    "const char*": ("str", "str"),
    "ffi.Bytes": ("anyfn.typing.BytesLike", "bytes"),
    "ffi.SmallBytes": ("anyfn.typing.BytesLike", "bytes"),
    "TVMFFIByteArray*": ("anyfn.typing.BytesLike", "bytes"),
    "DataType": ("anyfn.typing.DTypeLike", "anyfn.dtype"),
    "Device": ("anyfn.typing.DeviceLike", "anyfn.device"),
    "void*": ("anyfn.typing.HandleLike", "anyfn.typing.HandleLike"),
    "DLTensor*": ("anyfn.typing.TensorLike", "anyfn.Tensor"),
    "ffi.Tensor": ("anyfn.typing.TensorLike", "anyfn.Tensor"),
    "ffi.Shape": ("anyfn.typing.ShapeLike", "anyfn.Shape"),
    "ffi.Error": ("anyfn.typing.ErrorLike", "BaseException"),
    "ffi.Module": ("anyfn.Module", "anyfn.Module"),
    # Any value that is an object in native code, which includes strings and lists.
    "ffi.Object": ("typing.Any", "typing.Any"),
}
# Containers: type of arguments, type of results, and number of type parameters.
_CONTAINERS = {
    "ffi.Array": ("collections.abc.Sequence", "anyfn.Array", 1),
    "ffi.List": ("collections.abc.Sequence", "anyfn.List", 1),
    "ffi.Map": ("collections.abc.Mapping", "anyfn.Map", 2),
    "ffi.Dict": ("collections.abc.Mapping", "anyfn.Dict", 2),
}
# Value types are widened for arguments, but key types are not: a dict[int, T] is not a Mapping[IntLike, T].
_BUILTIN = frozenset(dir(builtins))


class Namespace:
    """Functions, native types and nested namespaces from which the stub of a Python module is generated.

    Functions and namespaces are stored by name, types by key.
    """

    def __init__(self) -> None:
        self.functions: dict[str, PackedFunc] = {}
        self.types: dict[str, TypeInfo] = {}
        self.spaces: dict[str, Namespace] = {}

    def space(self, path: Iterable[str]) -> Namespace:
        """Returns the nested namespace ``path``, which is created if it does not exist."""
        space = self
        for name in path:
            space = space.spaces.setdefault(name, Namespace())
        return space

    def add(self, path: list[str], function: PackedFunc) -> None:
        """Adds a function named ``path[-1]`` to the nested namespace ``path[:-1]``."""
        self.space(path[:-1]).functions[path[-1]] = function


def of_registry(prefix: str) -> Namespace:
    """Returns the global functions whose names begin with a prefix."""
    found = Namespace()
    driver_function = "anyfn.opencl_module"
    if driver_function.startswith(prefix):
        # The functions of the device drivers are registered once their library is opened.
        get_global_func(driver_function, allow_missing=True)
    for name in list_global_func_names():
        if name.startswith(prefix):
            found.add(name.split("."), get_global_func(name))
    return found


def of_module(module: Module) -> Namespace:
    """Returns the functions of a module."""
    found = Namespace()
    for name in module.list_functions():
        found.functions[name] = module.get_function(name)
    return found


# Lower type indices belong to the ABI's built-in types.
_FIRST_OTHER = 128


def of_types(prefix: str) -> dict[str, TypeInfo]:
    """Returns a dict from key to native type, for keys with a prefix. Without a prefix, omits the types of the runtime."""
    keys = [str(key) for key in get_global_func("ffi.GetRegisteredTypeKeys")()]
    keys.sort(key=lambda key: (_core.type_index(key) or 0, key))
    wanted = [key for key in keys if key.startswith(prefix) and (prefix or not key.startswith("ffi."))]
    return {key: info for key, info in zip(wanted, map(type_info, wanted)) if info.index >= _FIRST_OTHER}


# --- Names -----------------------------------------------------------------------------------------------------------


def is_name(text: str) -> bool:
    """Returns true if a string is a Python identifier and not a keyword."""
    return text.isidentifier() and not keyword.iskeyword(text)


def python_name(text: str, taken: Iterable[str]) -> str:
    """Converts a string to a Python name that is not in ``taken``: ``not_`` for ``not``, ``a_b`` for ``a-b``."""
    name = re.sub(r"\W", "_", text) or "_"
    if not ("_" + name).isidentifier():
        # Some digits and letters are not allowed in identifiers.
        name = re.sub(r"[^A-Za-z0-9_]", "_", name)
    if not name.isidentifier():
        name = "_" + name
    if keyword.iskeyword(name):
        name += "_"
    taken = set(taken)
    while name in taken:
        name += "_"
    return name


def python_names(names: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """Returns a dict from each name, in sorted order, to a unique Python name. Valid Python names are kept."""
    names = sorted(names)
    found = {name: name for name in names if is_name(name) and name not in taken}
    for name in names:
        if name not in found:
            found[name] = python_name(name, {*found.values(), *taken})
    return {name: found[name] for name in names}


# --- Types -----------------------------------------------------------------------------------------------------------


class Imports:
    """Names that a stub imports, each under an alias that differs from the names of the stub's own functions.

    ``classes`` are the classes that the stub itself defines, by type key. ``find`` returns the module and the name of the
    class in another stub, or None; the module is empty if it is the stub's own.
    """

    def __init__(
        self,
        own: Iterable[str],
        classes: Optional[dict[str, str]] = None,
        find: Optional[Callable[[str], Optional[tuple[str, str]]]] = None,
    ) -> None:
        self.own = frozenset(own)
        self.used: dict[str, str] = {}
        self.classes = classes or {}
        self.find = find

    def class_name(self, key: str) -> str:
        """Returns the name by which the stub refers to the class of a native type, and imports it if needed."""
        if key in self.classes:
            return self.classes[key]
        path = _class_of(key)
        found = self.find(key) if self.find is not None and path == _NO_CLASS else None
        if found is None:
            return self.use(path)
        module, name = found
        return self.use(f"{module}.{name}") if module else name

    def use(self, path: str) -> str:
        """Returns the name by which the stub refers to ``module.name`` or to a built-in name, and imports it if needed."""
        if "." not in path:
            if path == "None" or path not in self.own:
                return path
            path = f"builtins.{path}"
        if path not in self.used:
            name = path.rpartition(".")[2]
            local = name
            while local in self.own or local in self.used.values():
                local = "_" + local
            self.used[path] = local
        return self.used[path]

    def lines(self) -> Iterator[str]:
        """Yields the import statements."""
        modules: dict[str, list[str]] = {}
        for path, local in self.used.items():
            module, _, name = path.rpartition(".")
            # In a stub, `import X as X` would re-export the name, so `as` is used only to rename.
            modules.setdefault(module, []).append(name if name == local else f"{name} as {local}")
        for module in sorted(modules, key=lambda module: (module.startswith("anyfn"), module)):
            line = f"from {module} import {', '.join(sorted(modules[module]))}"
            if len(line) > 100:
                line = f"from {module} import (\n" + "".join(f"    {name},\n" for name in sorted(modules[module])) + ")"
            yield line


def type_text(schema: Any, imports: Imports, argument: bool) -> str:
    """Returns the Python annotation for the type that a schema describes: ``Any`` for an unknown type."""
    which = 0 if argument else 1
    origin = schema.get("type") if isinstance(schema, dict) else None
    if not isinstance(origin, str):
        return imports.use("typing.Any")
    args = schema.get("args")
    args = args if isinstance(args, list) else []
    if origin in _SIMPLE:
        return imports.use(_SIMPLE[origin][which])
    if origin in _CONTAINERS:
        *names, count = _CONTAINERS[origin]
        items = [type_text(item, imports, argument) for item in args[:count]]
        items += [imports.use("typing.Any")] * (count - len(items))
        if count == 2 and args:
            items[0] = type_text(args[0], imports, False)
        return f"{imports.use(str(names[which]))}[{', '.join(items)}]"
    if origin == "Optional" and len(args) == 1:
        inner = type_text(args[0], imports, argument)
        # Any includes None, so Optional adds nothing.
        return inner if args[0].get("type") == "Any" else f"{imports.use('typing.Optional')}[{inner}]"
    if origin in ("Union", "Variant") and args:
        members = dict.fromkeys(type_text(item, imports, argument) for item in args)
        return f"{imports.use('typing.Union')}[{', '.join(members)}]"
    if origin == "Coroutine" and len(args) == 1:
        any_ = imports.use("typing.Any")
        return f"{imports.use('collections.abc.Coroutine')}[{any_}, {any_}, {type_text(args[0], imports, argument)}]"
    if origin in ("Tuple", "tuple"):
        items = [type_text(item, imports, argument) for item in args]
        if argument:
            return f"{imports.use('tuple')}[{', '.join(items) or '()'}]" if args else imports.use("tuple")
        return f"{imports.use('anyfn.Array')}[{imports.use('typing.Any')}]"
    if origin == "ffi.Function":
        if not argument:
            return imports.use("anyfn.PackedFunc")
        return f"{imports.use('collections.abc.Callable')}[..., {imports.use('typing.Any')}]"
    # `origin` is a type key.
    if origin in imports.classes or "." in origin:
        return imports.class_name(origin)
    return imports.use("typing.Any")


# Class of the objects whose type has no class that can be imported.
_NO_CLASS = "anyfn.Object"


def _class_of(key: str) -> str:
    """Returns the import path of the class that represents a type, or ``anyfn.Object`` if no such class can be imported."""
    index = _core.type_index(key)
    cls = None if index is None else _core.registered_class(index)
    # The classes in `anyfn.types` are made at run time, so type checkers do not know their members.
    if cls is None or cls is Object or cls.__module__ == "anyfn.types":
        return _NO_CLASS
    importable: object = getattr(sys.modules.get(cls.__module__), cls.__name__, None)
    return f"{cls.__module__}.{cls.__name__}" if importable is cls else _NO_CLASS


def _keys_in(schema: Any) -> Iterator[str]:
    """Yields the keys of those native types in a schema whose class cannot be imported."""
    if not isinstance(schema, dict):
        return
    origin = schema.get("type")
    if isinstance(origin, str) and "." in origin and _class_of(origin) == _NO_CLASS:
        yield origin
    args = schema.get("args")
    for arg in args if isinstance(args, list) else []:
        yield from _keys_in(arg)


def _keys_of_type(info: TypeInfo) -> Iterator[str]:
    """Yields the keys of the native types to which the stub of a type refers and whose class cannot be imported."""
    if info.parent is not None:
        yield from _keys_in({"type": info.parent.key})
    for field in info.fields:
        yield from _keys_in(field.schema)
    for method in info.methods:
        yield from Signature(method.function.signature).keys()


def _members(types: Iterable[TypeInfo]) -> Iterator[str]:
    """Yields the names of the fields and methods of types."""
    for info in types:
        yield from (field.name for field in info.fields)
        yield from (method.name for method in info.methods)


# --- Signatures ------------------------------------------------------------------------------------------------------


def _loads(text: Any) -> dict[str, Any]:
    """Parses a string as a JSON object; returns an empty dict if the string is not a JSON object."""
    try:
        value = json.loads(text)
    except (TypeError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _texts(value: Any) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


class Signature:
    """Parsed signature and documentation of a function."""

    def __init__(self, text: Optional[str]) -> None:
        about = _loads(text)
        schema = _loads(about.get("type_schema"))
        named = schema.get("named_args")
        self.params: Optional[list[Any]] = None
        self.result: Any = None
        if isinstance(named, dict):
            params, results = named.get("params"), named.get("return")
            self.params = params if isinstance(params, list) else None
            self.result = results[0] if isinstance(results, list) and results else None
        elif isinstance(schema.get("args"), list) and schema["args"]:
            # Other producers write one list of the result, followed by the arguments.
            self.result, *self.params = schema["args"]
        self.names = _texts(about.get("arg_names"))
        defaults = about.get("arg_defaults")
        self.defaults: dict[str, Any] = defaults if isinstance(defaults, dict) else {}
        # These arguments may be omitted, too, but their defaults are unknown.
        self.optional = _texts(about.get("arg_optional"))
        self.keyword_only = _texts(about.get("keyword_only"))
        self.variadic = bool(about.get("variadic"))
        doc = about.get("doc")
        self.doc = doc.strip() if isinstance(doc, str) else ""

    def keys(self) -> Iterator[str]:
        """Yields the keys of those native types in the signature whose class cannot be imported."""
        for schema in (*(self.params or ()), self.result):
            yield from _keys_in(schema)

    def head(self, imports: Imports) -> str:
        """Returns the parameters and result as written in a stub, such as ``(a: int, b: int = 2) -> int``."""
        result = type_text(self.result, imports, False)
        if self.params is None:
            return f"(*args: {imports.use('typing.Any')}) -> {result}"
        count = len(self.params)
        by_name = len(self.names) == count and len(set(self.names)) == count
        names = self.names if by_name else [f"arg{i}" for i in range(count)]
        # All parameters up to the last one whose name is not a Python name are positional-only.
        first = max((i + 1 for i, name in enumerate(names) if not is_name(name)), default=0) if by_name else count
        shown = python_names(names)
        optional = count
        while optional > 0 and (names[optional - 1] in self.defaults or names[optional - 1] in self.optional):
            optional -= 1
        parts = []
        for i, (name, schema) in enumerate(zip(names, self.params)):
            part = f"{shown[name]}: {type_text(schema, imports, True)}"
            if i >= optional:
                part += f" = {_default(self.defaults.get(name, ...))}"
            parts.append(part)
            if i + 1 == first:
                parts.append("/")
        if self.variadic:
            parts.append(f"*args: {imports.use('typing.Any')}")
        keywords = [name for name in self.keyword_only if is_name(name)]
        if keywords and not self.variadic:
            parts.append("*")
        parts += [f"{name}: {imports.use('typing.Any')} = ..." for name in keywords]
        return f"({', '.join(parts)}) -> {result}"


def _default(value: Any) -> str:
    """Formats a default value for a stub."""
    shown = repr(value)
    simple = value is None or isinstance(value, (bool, int, float, str))
    return shown if simple and len(shown) <= 40 and shown not in ("inf", "-inf", "nan") else "..."


# --- Text of stubs ---------------------------------------------------------------------------------------------------


def stub(space: Namespace, title: str) -> str:
    """Returns the stub of a namespace: definitions of its functions, and imports of the modules of nested namespaces."""
    names = python_names(space.functions)
    spaces = python_names(space.spaces, names.values())
    imports = Imports([*names.values(), *spaces.values()])
    body = _function_lines(space.functions, names, imports)
    lines = [HEADER, _docstring(title, ""), "", *imports.lines()]
    lines += [f"from . import {spaces[name]} as {spaces[name]}" for name in space.spaces]
    return "\n".join([*lines, "", *body]).rstrip() + "\n"


def _function_lines(functions: Mapping[str, PackedFunc], names: dict[str, str], imports: Imports) -> list[str]:
    """Returns the definitions of functions; ``names`` are their Python names."""
    body: list[str] = []
    for name, function in functions.items():
        signature = Signature(function.signature)
        body.append(f"@{imports.use('anyfn.typing.packed')}")
        head = f"def {names[name]}{signature.head(imports)}:"
        doc = signature.doc
        if names[name] != name:
            doc = f"The function {name!r}.\n\n{doc}".strip()
        body += [f"{head}\n{_docstring(doc)}\n" if doc else f"{head} ...\n"]
    return body


def _docstring(text: str, indent: str = "    ") -> str:
    """Formats a string as an indented docstring literal."""
    text = text.replace("\\", "\\\\")
    if '"""' in text or text.endswith('"'):
        text = text.replace('"', '\\"')
    text = "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    lines = [indent + line.rstrip() if line.strip() else "" for line in text.split("\n")]
    end = f"\n{indent}" if len(lines) > 1 else ""
    return f'{indent}"""{lines[0][len(indent):]}' + "".join("\n" + line for line in lines[1:]) + f'{end}"""'


def _loads_of(libraries: list[str], variable: str = "_libraries") -> Iterator[str]:
    """Yields the statements with which a module loads libraries from paths relative to the module's file."""
    if libraries:
        yield "import os as _os\n"
    yield "import anyfn as _anyfn\n"
    if libraries:
        yield "_here = _os.path.dirname(_os.path.abspath(__file__))"
        paths = ", ".join(f"_anyfn.load_module(_os.path.join(_here, {path!r}))" for path in libraries)
        yield f"{variable} = [{paths}]"


# --- Packages of stubs -----------------------------------------------------------------------------------------------

# A file has a section for functions, which `anyfn stubs registry` writes, and one for classes, which `anyfn stubs types`
# writes. Each command keeps the other one's section.
_FUNCTIONS, _TYPES = "functions", "types"
_MARKERS = {_FUNCTIONS: "# --- Global functions ---", _TYPES: "# --- Native types ---"}
# A native type may override a field or method by one of another type.
_ANY_OVERRIDE = '# mypy: disable-error-code="override,misc"'

# Names of a namespace, from the outermost to the innermost one.
_Path = tuple[str, ...]


class _Module:
    """A Python module of a package of stubs: its path below the output folder, and the Python names of its members."""

    # True if the module has submodules with functions or types that the command selects.
    is_package = False

    def __init__(self, space: Namespace, path: _Path) -> None:
        self.space, self.path = space, path
        short = {key: key.rpartition(".")[2] for key in space.types}
        names = python_names(short.values())
        self.classes = {key: names[name] for key, name in short.items()}
        self.functions = python_names(space.functions, self.classes.values())
        self.spaces = python_names(space.spaces, [*self.functions.values(), *self.classes.values()])
        self.own = [*self.functions.values(), *self.classes.values(), *self.spaces.values()]


class Layout:
    """Python modules for the global functions and native types of the process, arranged by namespace.

    Both commands that write a package use the same layout, so that their files fit together. ``prefix`` selects functions
    and types. If ``folder`` is empty, nothing is written.
    """

    def __init__(self, folder: str, prefix: str, types: Mapping[str, TypeInfo]) -> None:
        root = of_registry("")
        for key, info in types.items():
            root.space(key.split(".")[:-1]).types[key] = info
        self.folder, self.prefix = folder, prefix
        self.package = _package_of(folder) if folder else ""
        self.modules: dict[_Path, _Module] = {}
        files = python_names(root.spaces, _MODULES)
        for name, file in files.items():
            self._add(root.spaces[name], (name,), (file,))
        # Names without a dot have modules of their own.
        plain, plain_types = Namespace(), Namespace()
        plain.functions, plain_types.types = root.functions, root.types
        self.plain = _Module(plain, (python_name("globals", files.values()),))
        self.plain_types = _Module(plain_types, ("types_",))

    def _add(self, space: Namespace, path: _Path, files: _Path) -> bool:
        """Adds a namespace and its nested namespaces. Returns true if one of their functions or types is selected."""
        module = self.modules[path] = _Module(space, files)
        spaces = space.spaces.items()
        below = [self._add(inner, (*path, name), (*files, module.spaces[name])) for name, inner in spaces]
        module.is_package = any(below)
        names = [".".join((*path, name)) for name in space.functions]
        return module.is_package or any(name.startswith(self.prefix) for name in (*names, *space.types))

    def module_of(self, key: str) -> Optional[_Module]:
        """Returns the module that contains the class of a native type, or None if no module contains it."""
        module = self.modules.get(tuple(key.split(".")[:-1])) if "." in key else self.plain_types
        return module if module is not None and key in module.classes else None

    def file(self, module: _Module) -> str:
        """Returns the path of a module's file without the extension. The file of a module with submodules is ``__init__``."""
        path = os.path.join(self.folder, *module.path)
        is_package = module.is_package
        if self.folder and not is_package and os.path.isdir(path):
            # An earlier run has written submodules.
            is_package = any(name.endswith(".pyi") for name in os.listdir(path))
        return os.path.join(path, "__init__") if is_package else path

    def find(self, module: _Module, key: str) -> Optional[tuple[str, str]]:
        """Returns the module path (empty for ``module`` itself) and the name of a type's class, or None if no class exists."""
        target = self.module_of(key)
        if target is None:
            return None
        return ("" if target is module else ".".join(filter(None, (self.package, *target.path)))), target.classes[key]


def _package_of(folder: str) -> str:
    """Returns the dotted import path of a folder, from the outermost enclosing Python package on; empty outside of packages."""
    found, name = "", ""
    folder = os.path.abspath(folder)
    while os.path.basename(folder).isidentifier():
        name = f"{os.path.basename(folder)}.{name}" if name else os.path.basename(folder)
        if any(os.path.isfile(os.path.join(folder, f"__init__.{end}")) for end in ("py", "pyi")):
            found = name
        folder = os.path.dirname(folder)
    return found


class _Package:
    """Files of a package of stubs. The content of the files is added section by section."""

    def __init__(self, layout: Layout, libraries: list[str], runtime: bool) -> None:
        self.layout, self.libraries, self.runtime = layout, libraries, runtime
        # Sections by kind, of the stub (`.pyi`) and of the module (`.py`) at a path.
        self.written: dict[_Path, tuple[_Module, dict[str, str], dict[str, str]]] = {}

    def _add(self, kind: str, module: _Module, stub: list[str], source: list[str]) -> None:
        for outer in self.layout.modules.values():
            if len(outer.path) < len(module.path) and outer.path == module.path[: len(outer.path)]:
                # A stub that an earlier run has written for it becomes the `__init__` of the package.
                outer.is_package = True
                self.written.setdefault(outer.path, (outer, {}, {}))
        _, stubs, sources = self.written.setdefault(module.path, (module, {}, {}))
        stubs[kind] = "\n".join(stub).strip("\n")
        if self.runtime:
            sources[kind] = "\n".join(source)

    def _loads(self, module: _Module, variable: str) -> Iterator[str]:
        start = os.path.dirname(self.layout.file(module))
        return _loads_of([os.path.relpath(library, start) for library in self.libraries], variable)

    def add_functions(self, module: _Module, path: str, names: list[str], spaces: list[str]) -> None:
        """Adds a module's functions ``names``, and imports of its submodules ``spaces``."""
        functions = {name: module.space.functions[name] for name in names}
        imports = Imports(module.own, find=lambda key: self.layout.find(module, key))
        body = _function_lines(functions, module.functions, imports)
        modules = [module.spaces[name] for name in spaces]
        source = [*self._loads(module, "_libraries"), *(f"from . import {name}" for name in modules)]
        start = f"{path}." if path else ""
        source += [f"{module.functions[name]} = _anyfn.get_global_func({start + name!r})" for name in names]
        stub = [*imports.lines(), *(f"from . import {name} as {name}" for name in modules), "", *body]
        self._add(_FUNCTIONS, module, stub, source)

    def add_types(self, keys: Iterable[str], keep: bool = False) -> None:
        """Adds the modules that define the classes of native types, and of the types to which those classes refer.

        With ``keep``, a module is not added if an earlier run has written the class.
        """
        open_ = list(keys)
        done: set[_Path] = set()
        while open_:
            key = open_.pop(0)
            module = self.layout.module_of(key)
            if module is None or module.path in done or (keep and self._is_written(module, module.classes[key])):
                continue
            done.add(module.path)
            self._add_classes(module)
            for info in module.space.types.values():
                open_ += _keys_of_type(info)

    def _is_written(self, module: _Module, name: str) -> bool:
        """Returns true if an earlier run has written the class ``name`` to the module's stub."""
        known = self._known(module, ".pyi").get(_TYPES, "")
        return re.search(rf"^class {name}\b", known, re.MULTILINE) is not None

    def _add_classes(self, module: _Module) -> None:
        types = module.space.types
        own = [*module.own, *_members(types.values())]
        imports = Imports(own, module.classes, lambda key: self.layout.find(module, key))
        body = [line for key, info in types.items() for line in (*_class_lines(info, module.classes[key], imports), "")]
        source = [*self._loads(module, "_type_libraries")]
        source += [_class_source(types[key], name) for key, name in module.classes.items()]
        self._add(_TYPES, module, [_ANY_OVERRIDE, *imports.lines(), "", *body], source)

    def _known(self, module: _Module, end: str) -> dict[str, str]:
        """Returns the sections that earlier runs of ``anyfn stubs`` wrote to a module's file with the extension ``end``, by kind."""
        if not self.layout.folder:
            return {}
        file = self.layout.file(module)
        known = _sections_in(os.path.dirname(file) + end) if os.path.basename(file) == "__init__" else {}
        return {**known, **_sections_in(file + end)}

    def files(self) -> dict[str, str]:
        """Returns a dict from path to source. Sections of earlier runs that this run has not written are kept."""
        files: dict[str, str] = {}
        for module, stubs, sources in self.written.values():
            file = self.layout.file(module)
            for end, new in ((".pyi", stubs), (".py", sources)):
                sections = {**self._known(module, end), **new}
                if new or sections and not os.path.exists(file + end):
                    files[file + end] = _text_of(self._path_of(module), sections)
        return files

    def _path_of(self, module: _Module) -> str:
        """Returns the dotted name of a module's namespace; empty for the module of functions and types whose names have no dot."""
        return next((".".join(path) for path, other in self.layout.modules.items() if other is module), "")


def _text_of(path: str, sections: dict[str, str]) -> str:
    """Returns the content of a file for the namespace ``path``."""
    kinds = [kind for kind in _MARKERS if kind in sections]
    what = " and ".join({_FUNCTIONS: "global functions", _TYPES: "native types"}[kind] for kind in kinds)
    title = f"{what.capitalize()}: {path}." if path else f"{what.capitalize()} without a prefix."
    lines = [HEADER, _docstring(title, "")]
    for kind in kinds:
        lines += ["", _MARKERS[kind], "", sections[kind]]
    return "\n".join(lines).rstrip() + "\n"


def _sections_in(file: str) -> dict[str, str]:
    """Returns the sections of a file by kind; an empty dict if the file does not exist or ``anyfn stubs`` did not write it."""
    try:
        with open(file, encoding="utf-8") as opened:
            text = opened.read()
    except (OSError, UnicodeDecodeError):
        return {}
    if not text.startswith(HEADER):
        return {}
    kinds = {marker: kind for kind, marker in _MARKERS.items()}
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.split("\n"):
        if line in kinds:
            lines = found[kinds[line]] = []
        else:
            lines.append(line)
    return {kind: "\n".join(lines).strip("\n") for kind, lines in found.items()}


def outdated(files: Iterable[str]) -> list[str]:
    """Returns the existing files that ``files`` replace, such as ``a.pyi`` if its content is now in ``a/__init__.pyi``."""
    found = []
    for path in files:
        folder, name = os.path.split(path)
        stem, end = os.path.splitext(name)
        if stem == "__init__" and _sections_in(folder + end):
            found.append(folder + end)
    return found


def registry_files(prefix: str, libraries: list[str], folder: str, runtime: bool) -> dict[str, str]:
    """Returns stub files in ``folder`` for the global functions with a prefix, as a dict from path to source.

    The files also contain the classes of the native types to which the functions refer.
    """
    layout = Layout(folder, prefix, of_types(""))
    package = _Package(layout, libraries, runtime)

    def selected(names: Iterable[str], path: str) -> list[str]:
        start = f"{path}." if path else ""
        return [name for name in names if (start + name).startswith(prefix)]

    found: list[PackedFunc] = []
    wanted: dict[_Path, list[str]] = {}
    for path, module in layout.modules.items():
        names = selected(module.space.functions, ".".join(path))
        found += [module.space.functions[name] for name in names]
        if names:
            for length in range(1, len(path)):
                wanted.setdefault(path[:length], [])
            wanted[path] = names
    for path, module in layout.modules.items():
        if path in wanted:
            spaces = [name for name in module.space.spaces if (*path, name) in wanted]
            package.add_functions(module, ".".join(path), wanted[path], spaces)
    names = selected(layout.plain.space.functions, "")
    if names:
        found += [layout.plain.space.functions[name] for name in names]
        package.add_functions(layout.plain, "", names, [])
    keys = (key for function in found for key in Signature(function.signature).keys())
    package.add_types(dict.fromkeys(keys), keep=True)
    return package.files()


def types_files(prefix: str, libraries: list[str], folder: str, runtime: bool) -> dict[str, str]:
    """Returns stub files in ``folder`` for the classes of native types, as a dict from path to source.

    The files contain the types whose keys begin with a prefix, the other types of their namespaces, and those to which they
    refer.
    """
    wanted = of_types(prefix)
    package = _Package(Layout(folder, prefix, {**of_types(""), **wanted}), libraries, runtime)
    package.add_types(wanted)
    return package.files()


# --- Stub of a library -----------------------------------------------------------------------------------------------


def module_files(module: Module, library: str, file: str, runtime: bool) -> dict[str, str]:
    """Returns a dict from path to content: the stub of a library and, if ``runtime`` is true, the module that it describes.

    Both contain the classes of the native types to which the functions refer.
    """
    space = of_module(module)
    title = f"Functions of {os.path.basename(library)}."
    names = python_names(space.functions)
    types = _types_of(space.functions.values())
    classes: dict[str, str] = {}
    for key in types:
        classes[key] = python_name(key.rpartition(".")[2], {*names.values(), *classes.values()})
    imports = Imports([*names.values(), *classes.values(), *_members(types.values())], classes)
    body = _function_lines(space.functions, names, imports)
    body += [line for key, info in types.items() for line in ("", *_class_lines(info, classes[key], imports))]
    lines = [HEADER, _docstring(title, ""), "", *([_ANY_OVERRIDE] if types else []), *imports.lines(), "", *body]
    files = {file: "\n".join(lines).rstrip() + "\n"}
    if runtime:
        relative = os.path.relpath(library, os.path.dirname(os.path.abspath(file)))
        lines = [HEADER, _docstring(title, "") + "\n", *_loads_of([relative])]
        lines += [f"{names[name]} = _libraries[0].get_function({name!r})" for name in space.functions]
        lines += [_class_source(types[key], name) for key, name in classes.items()]
        files[os.path.splitext(file)[0] + ".py"] = "\n".join(lines) + "\n"
    return files


def _types_of(functions: Iterable[PackedFunc]) -> dict[str, TypeInfo]:
    """Returns, by key, the native types without an importable class to which functions refer, directly or indirectly."""
    known = of_types("")
    found: dict[str, TypeInfo] = {}
    open_ = [key for function in functions for key in Signature(function.signature).keys()]
    while open_:
        key = open_.pop(0)
        if key in known and key not in found:
            found[key] = known[key]
            open_ += _keys_of_type(known[key])
    # A class is defined after its base.
    return dict(sorted(found.items(), key=lambda item: item[1].index))


# --- Classes of native types -----------------------------------------------------------------------------------------


def _class_lines(info: TypeInfo, name: str, imports: Imports) -> list[str]:
    parent = info.parent
    base = imports.class_name(parent.key) if parent is not None else imports.use(_NO_CLASS)
    # If the base class cannot be imported, its members are repeated in the class itself.
    inherited = base != imports.used.get(_NO_CLASS)
    fields = [field for field in info.fields if not inherited or field.owner == info.key]
    methods = [method for method in info.methods if not inherited or method.owner == info.key]
    doc = info.doc if name == info.key.rpartition(".")[2] else f"The type {info.key!r}.\n\n{info.doc}".strip()
    lines = [f"class {name}({base}):", *([_docstring(doc)] if doc else [])]
    for field in fields:
        lines += _field_lines(field, imports)
    lines += _init_lines(info, imports)
    for method in methods:
        lines += _method_lines(method, imports)
    return lines if len(lines) > 1 else [f"{lines[0]} ..."]


def _class_source(info: TypeInfo, name: str) -> str:
    """Returns the statement that defines the class of a native type in a module."""
    cls = f"_anyfn.type_info({info.key!r}).cls"
    if _core.type_of_class(info.cls) == (info.index, info.key):
        return f"{name} = {cls}"
    # Python has no class for a type without fields and methods: `cls` is the class of its parent, or `Object`.
    return f"\n\n@_anyfn.register_object({info.key!r})\nclass {name}({cls}):\n    pass\n\n"


def _field_lines(field: FieldInfo, imports: Imports) -> list[str]:
    if not is_name(field.name):
        return []
    shown = type_text(field.schema, imports, False)
    doc = [_docstring(field.doc)] if field.doc else []
    if "writable" in field.flags:
        return [f"    {field.name}: {shown}", *doc]
    head = f"    def {field.name}(self) -> {shown}:"
    rest = [_docstring(field.doc, "        ")] if doc else []
    return [f"    @{imports.use('property')}", head if rest else f"{head} ...", *rest]


def _init_lines(info: TypeInfo, imports: Imports) -> list[str]:
    """Returns the lines of the stub for the constructor of a type; empty if the type registers no constructor."""
    if _core.type_attribute("__ffi_init__", info.index) is None:
        return []
    taken = [field for field in info.fields if "init_off" not in field.flags]
    if not all(is_name(field.name) for field in taken):
        return [f"    def __init__(self, *args: {imports.use('typing.Any')}, **kwargs: {imports.use('typing.Any')}) -> None: ..."]
    parts = ["self"]
    for by_name in (False, True):
        some = [field for field in taken if ("kw_only" in field.flags) == by_name]
        if not by_name:
            some.sort(key=lambda field: "has_default" in field.flags)
        elif some:
            parts.append("*")
        for field in some:
            part = f"{field.name}: {type_text(field.schema, imports, True)}"
            if "has_default" in field.flags:
                part += f" = {'...' if field.default_factory is not None else _default(field.default)}"
            parts.append(part)
    return [f"    def __init__({', '.join(parts)}) -> None: ..."]


def _method_lines(method: MethodInfo, imports: Imports) -> list[str]:
    if not is_name(method.name) or hasattr(Object, method.name):
        return []
    signature = Signature(method.function.signature)
    doc = method.doc.strip() or signature.doc
    any_ = imports.use("typing.Any")
    head = signature.head(imports)
    lines = [f"    @{imports.use('staticmethod')}"] if method.static else []
    if not method.static and (signature.params is None or signature.params[:1] == []):
        head = f"(self, *args: {any_}) -> {type_text(signature.result, imports, False)}"
    elif not method.static:
        # The first parameter is the object, under any name.
        signature.params = (signature.params or [])[1:]
        signature.names = signature.names[1:]
        rest = signature.head(imports)[1:]
        head = f"(self{'' if rest.startswith(')') else ', '}{rest}"
    return [*lines, f"    def {method.name}{head}:", _docstring(doc, "        ")] if doc else [
        *lines, f"    def {method.name}{head}: ..."
    ]  # fmt: skip
