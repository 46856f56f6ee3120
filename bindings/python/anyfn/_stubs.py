"""Type stubs of functions and native types, generated from their signatures for ``anyfn stubs``."""

from __future__ import annotations

import builtins
import json
import keyword
import os
import re
import sys
from collections.abc import Iterable, Iterator
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
    """Functions and nested namespaces by name, from which the stub of a Python module is generated."""

    def __init__(self) -> None:
        self.functions: dict[str, PackedFunc] = {}
        self.spaces: dict[str, Namespace] = {}

    def add(self, path: list[str], function: PackedFunc) -> None:
        """Adds a function named ``path[-1]`` to the nested namespace ``path[:-1]``."""
        space = self
        for name in path[:-1]:
            space = space.spaces.setdefault(name, Namespace())
        space.functions[path[-1]] = function


def of_registry(prefix: str) -> Namespace:
    """Returns the global functions whose names begin with a prefix."""
    found = Namespace()
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


# --- Names -----------------------------------------------------------------------------------------------------------


def is_name(text: str) -> bool:
    """Returns true if a string is a Python identifier and not a keyword."""
    return text.isidentifier() and not keyword.iskeyword(text)


def python_name(text: str, taken: Iterable[str]) -> str:
    """Converts a string to a Python name that is not taken: ``not_`` for ``not``, ``a_b`` for ``a-b``."""
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
    """Returns a unique Python name for each name, in sorted order; valid Python names are kept."""
    names = sorted(names)
    found = {name: name for name in names if is_name(name) and name not in taken}
    for name in names:
        if name not in found:
            found[name] = python_name(name, {*found.values(), *taken})
    return {name: found[name] for name in names}


# --- Types -----------------------------------------------------------------------------------------------------------


class Imports:
    """Names that a stub imports, each under an alias that differs from the names of the stub's own functions."""

    def __init__(self, own: Iterable[str], classes: Optional[dict[str, str]] = None) -> None:
        self.own = frozenset(own)
        self.used: dict[str, str] = {}
        # Classes that the stub itself defines, by type key.
        self.classes = classes or {}

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
    if origin in imports.classes:
        return imports.classes[origin]
    return imports.use(_class_of(origin) if "." in origin else "typing.Any")


def _class_of(key: str) -> str:
    """Returns the import path of the class that is registered for a type, or ``anyfn.Object`` if there is no such class."""
    index = _core.type_index(key)
    cls = None if index is None else _core.registered_class(index)
    if cls is None or cls is Object:
        return "anyfn.Object"
    importable: object = getattr(sys.modules.get(cls.__module__), cls.__name__, None)
    return f"{cls.__module__}.{cls.__name__}" if importable is cls else "anyfn.Object"


# --- Signatures ------------------------------------------------------------------------------------------------------


def _loads(text: Any) -> dict[str, Any]:
    """Parses a string as a JSON object; returns an empty dict if it is not one."""
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

    def head(self, imports: Imports) -> str:
        """Returns parameters and result, such as ``(a: int, b: int = 2) -> int``."""
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


# --- Files -----------------------------------------------------------------------------------------------------------


def stub(space: Namespace, title: str) -> str:
    """Returns the stub of a namespace: definitions of its functions, and imports of the modules of nested namespaces."""
    names = python_names(space.functions)
    spaces = python_names(space.spaces, names.values())
    imports = Imports([*names.values(), *spaces.values()])
    body: list[str] = []
    for name, function in space.functions.items():
        signature = Signature(function.signature)
        body.append(f"@{imports.use('anyfn.typing.packed')}")
        head = f"def {names[name]}{signature.head(imports)}:"
        doc = signature.doc
        if names[name] != name:
            doc = f"The function {name!r}.\n\n{doc}".strip()
        body += [f"{head}\n{_docstring(doc)}\n" if doc else f"{head} ...\n"]
    lines = [HEADER, _docstring(title, ""), ""]
    lines += imports.lines()
    lines += [f"from . import {spaces[name]} as {spaces[name]}" for name in space.spaces]
    return "\n".join([*lines, "", *body]).rstrip() + "\n"


def _docstring(text: str, indent: str = "    ") -> str:
    """Formats a string as an indented docstring literal."""
    text = text.replace("\\", "\\\\")
    if '"""' in text or text.endswith('"'):
        text = text.replace('"', '\\"')
    text = "".join(c if c == "\n" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    lines = [indent + line.rstrip() if line.strip() else "" for line in text.split("\n")]
    end = f"\n{indent}" if len(lines) > 1 else ""
    return f'{indent}"""{lines[0][len(indent):]}' + "".join("\n" + line for line in lines[1:]) + f'{end}"""'


def _title(path: str) -> str:
    return f"Global functions: {path}." if path else "Global functions without a prefix."


def registry_runtime(space: Namespace, path: str, libraries: list[str]) -> str:
    """Returns the source of a Python module that looks up global functions on import; ``stub`` generates its type stub."""
    names = python_names(space.functions)
    spaces = python_names(space.spaces, names.values())
    lines = [HEADER, _docstring(_title(path), "") + "\n"]
    lines += _loads_of(libraries)
    lines += [f"from . import {name}" for name in spaces.values()]
    start = f"{path}." if path else ""
    lines += [f"{names[name]} = _anyfn.get_global_func({start + name!r})" for name in space.functions]
    return "\n".join(lines) + "\n"


def module_runtime(space: Namespace, library: str, title: str) -> str:
    """Returns the source of a Python module that loads a library on import; ``stub`` generates its type stub."""
    names = python_names(space.functions)
    lines = [HEADER, _docstring(title, "") + "\n", *_loads_of([library])]
    lines += [f"{names[name]} = _libraries[0].get_function({name!r})" for name in space.functions]
    return "\n".join(lines) + "\n"


def _loads_of(libraries: list[str]) -> Iterator[str]:
    """Yields statements by which a module loads libraries from paths relative to the module's file."""
    if libraries:
        yield "import os as _os\n"
    yield "import anyfn as _anyfn\n"
    if libraries:
        yield "_here = _os.path.dirname(_os.path.abspath(__file__))"
        paths = ", ".join(f"_anyfn.load_module(_os.path.join(_here, {path!r}))" for path in libraries)
        yield f"_libraries = [{paths}]"


def registry_files(
    prefix: str, libraries: list[str], folder: str, runtime: bool
) -> dict[str, str]:
    """Returns stub files in ``folder`` for the global functions with a prefix, as a dict from path to source."""
    files: dict[str, str] = {}

    def add(space: Namespace, path: str, file: str) -> None:
        if space.spaces:
            file = os.path.join(file, "__init__")
        files[file + ".pyi"] = stub(space, _title(path))
        if runtime:
            start = os.path.dirname(file)
            loads = [os.path.relpath(library, start) for library in libraries]
            files[file + ".py"] = registry_runtime(space, path, loads)
        inner = python_names(space.spaces, python_names(space.functions).values())
        for name, below in space.spaces.items():
            add(below, f"{path}.{name}" if path else name, os.path.join(os.path.dirname(file), inner[name]))

    root = of_registry(prefix)
    for name, file in python_names(root.spaces, _MODULES).items():
        add(root.spaces[name], name, os.path.join(folder, file))
    if root.functions:
        plain = Namespace()
        plain.functions = root.functions
        add(plain, "", os.path.join(folder, python_name("globals", python_names(root.spaces, _MODULES).values())))
    return files


def module_files(module: Module, library: str, file: str, runtime: bool) -> dict[str, str]:
    """Returns a dict from path to source: a library's stub and, if ``runtime``, the module that the stub describes."""
    space = of_module(module)
    title = f"Functions of {os.path.basename(library)}."
    files = {file: stub(space, title)}
    if runtime:
        relative = os.path.relpath(library, os.path.dirname(os.path.abspath(file)))
        files[os.path.splitext(file)[0] + ".py"] = module_runtime(space, relative, title)
    return files


# --- Classes of native types -----------------------------------------------------------------------------------------

# Lower type indices belong to the ABI's built-in types.
_FIRST_OTHER = 128


def of_types(prefix: str) -> dict[str, dict[str, TypeInfo]]:
    """Returns the types that have fields or methods and whose keys begin with a prefix.

    The result is a dict from the part of the key before the last dot to a dict of types by key.
    """
    found: dict[str, dict[str, TypeInfo]] = {}
    keys = [str(key) for key in get_global_func("ffi.GetRegisteredTypeKeys")()]
    for key in sorted(keys, key=lambda key: (_core.type_index(key) or 0, key)):
        info = type_info(key)
        if not key.startswith(prefix) or info.index < _FIRST_OTHER or (key.startswith("ffi.") and not prefix):
            continue
        if info.fields or info.methods:
            found.setdefault(key.rpartition(".")[0], {})[key] = info
    return found


def types_files(prefix: str, folder: str, runtime: bool) -> dict[str, str]:
    """Returns stub files in ``folder`` for the classes of native types, as a dict from path to source."""
    files: dict[str, str] = {}
    spaces = of_types(prefix)
    for space, types in spaces.items():
        path = [python_name(part, _MODULES if not at else ()) for at, part in enumerate(space.split("."))]
        file = os.path.join(folder, *path) if space else os.path.join(folder, "types_")
        if any(other.startswith(f"{space}.") for other in spaces):
            file = os.path.join(file, "__init__")
        title = f"Native types: {space}." if space else "Native types."
        names = python_names(key.rpartition(".")[2] for key in types)
        classes = {key: names[key.rpartition(".")[2]] for key in types}
        files[file + ".pyi"] = types_stub(types, classes, title)
        if runtime:
            lines = [HEADER, _docstring(title, "") + "\n", "from anyfn import type_info as _type_info", ""]
            lines += [f"{name} = _type_info({key!r}).cls" for key, name in classes.items()]
            files[file + ".py"] = "\n".join(lines) + "\n"
    return files


def types_stub(types: dict[str, TypeInfo], classes: dict[str, str], title: str) -> str:
    """Returns the source of the stub for the native types of one Python module."""
    imports = Imports(classes.values(), classes)
    body: list[str] = []
    for key, info in types.items():
        body += [*_class_lines(info, classes[key], imports), ""]
    lines = [HEADER, _docstring(title, ""), "", *imports.lines()]
    return "\n".join([*lines, "", *body]).rstrip() + "\n"


def _class_lines(info: TypeInfo, name: str, imports: Imports) -> list[str]:
    parent = info.parent
    local = imports.classes.get(parent.key) if parent is not None else None
    base = local or imports.use(_class_of(parent.key) if parent is not None else "anyfn.Object")
    # If the base class cannot be imported, its members are repeated in the class itself.
    inherited = base if base != "Object" else ""
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
