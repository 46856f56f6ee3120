"""The command ``anyfn``, which is also available as ``python -m anyfn``."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from typing import Any, Optional

from . import Module, __version__, _call, _config, _new, _serve, bundle, get_global_func, inspect_library, load_module, make_module


class _Failed(Exception):
    """Error that ends the command with a message."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="anyfn", description="Define a function in any language, and call it from any other."
    )
    parser.add_argument("--version", action="version", version=f"anyfn {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    stubs = commands.add_parser(
        "stubs",
        help="write type stubs (.pyi) of functions and native types",
        description="Writes type stubs (.pyi) of functions of any language, with the names, types, defaults and "
        "documentation that the functions provide. Type checkers and editors read stubs.",
    )
    kinds = stubs.add_subparsers(title="kinds of stubs", metavar="KIND", dest="kind", required=True)

    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--runtime",
        action="store_true",
        help="also write a module (.py) beside each stub, from which the functions can be imported",
    )
    common.add_argument(
        "--check",
        action="store_true",
        help="write no files; exit with code 1 if a file is missing or differs from the output",
    )
    common.add_argument(
        "--import",
        metavar="MODULE",
        action="append",
        default=[],
        dest="imports",
        help="import a Python module first, for the functions and classes that it registers; can be repeated",
    )
    load = {
        "metavar": "LIB",
        "action": "append",
        "default": [],
        "help": "load a library first; can be repeated",
    }

    registry = kinds.add_parser(
        "registry",
        parents=[common],
        help="stubs of the global functions",
        description="Writes stubs of the global functions, and of the native types to which they refer. Dots in names "
        "separate modules: `testing.add` is `add` in testing.pyi. Stubs of native types in the same folder are kept.",
        epilog="example: anyfn stubs registry --load libkernels.so --prefix kernels. -o typings",
    )
    registry.add_argument("--prefix", default="", help="only functions whose names have this prefix, such as `testing.`")
    registry.add_argument("--load", **load)  # type: ignore[arg-type]
    registry.add_argument("-o", "--output", metavar="DIR", help="folder for the files; by default, print them")

    types = kinds.add_parser(
        "types",
        parents=[common],
        help="stubs of the classes of native types",
        description="Writes stubs of native object types, with their fields, constructors and methods. Dots in keys separate "
        "modules: `my.ir.Add` is the class `Add` in my/ir.pyi. With --runtime, the classes can be imported. Stubs of global "
        "functions in the same folder are kept.",
        epilog="example: anyfn stubs types --load libir.so --prefix ir. -o typings",
    )
    types.add_argument("--prefix", default="", help="only types whose keys have this prefix, such as `testing.`")
    types.add_argument("--load", **load)  # type: ignore[arg-type]
    types.add_argument("-o", "--output", metavar="DIR", help="folder for the files; by default, print them")

    module = kinds.add_parser(
        "module",
        parents=[common],
        help="stubs of the functions of a library",
        description="Writes a stub of the functions that a library exports, for a module with the name of the stub.",
        epilog="example: anyfn stubs module build/axpy.so -o axpy_api.pyi --runtime; python -c 'import axpy_api'",
    )
    module.add_argument("library", metavar="FILE.so", help="library; it is loaded, which may run its code")
    module.add_argument("--load", **load)  # type: ignore[arg-type]
    module.add_argument("-o", "--output", metavar="FILE.pyi", help="file for the stub; by default, print it")

    inspect = commands.add_parser(
        "inspect",
        help="show what a library contains, what it needs and what it was built for",
        description="Shows what a library contains, what it needs and what it was built for, as anyfn.inspect_library does. "
        "None of its code runs. The exit code is 1 if a file cannot be loaded on this machine.",
    )
    inspect.add_argument("files", metavar="FILE", nargs="+", help="library to inspect")
    inspect.add_argument("--json", action="store_true", help="print one JSON object for each file")
    _call.add_parser(commands)
    _add_bundle(commands)
    _new.add_parser(commands)
    _config.add_parser(commands)
    _serve.add_parser(commands)
    doctor = commands.add_parser(
        "doctor",
        help="test what works on this machine and report why the rest does not",
        description="Tests what works on this machine: the runtime, a C compiler, threads, memory, devices, and so on. "
        "Reports why the rest does not work and how to fix it. The exit code is 1 if something that should work does not.",
    )
    doctor.add_argument("--json", action="store_true", help="print JSON")
    commands.add_parser("version", help="print the versions of this package and of its ABI")
    for command in commands.choices.values():
        command.set_defaults(parser=command)
    for kind in (registry, types, module):
        kind.set_defaults(parser=kind)
    return parser


def _add_bundle(commands: Any) -> None:
    several: dict[str, Any] = {"action": "append", "default": []}
    parser = commands.add_parser(
        "bundle",
        help="write a library and the modules that it imports to one file",
        description="Writes a library and the modules that it imports to one file. The library is linked from object files, "
        "static archives and C or C++ sources, or is a single library that is linked already.",
        epilog="example: anyfn bundle f.so kernel.o --carry opencl=kernels.bin",
    )
    parser.add_argument("output", metavar="OUT", help="file to write")
    parser.add_argument("files", metavar="FILE", nargs="*", default=[], help="code to link")
    parser.add_argument("--import", metavar="FILE", **several, dest="imports", help="import a module, loaded from a file")
    parser.add_argument(
        "--carry",
        metavar="KIND=FILE",
        **several,
        help="import a module of a kind with the bytes of a file; its loader is not needed",
    )
    parser.add_argument("--load", metavar="LIB", **several, help="load a library first, for the loaders it registers")
    parser.add_argument("--linker", metavar="CMD", help="linker; by default $ANYFN_LINKER, $CC or cc")
    parser.add_argument("--compiler", metavar="CMD", help="compiler; by default $CC or cc, and $CXX or c++ for C++")
    for option in "IDO":
        parser.add_argument(f"-{option}", metavar="..", **several, help="option for the compiler")
    for option in "lLW":
        parser.add_argument(f"-{option}", metavar="..", **several, help="option for the linker")


def main(args: Optional[Sequence[str]] = None) -> int:
    """Runs the command and returns its exit code; ``args`` defaults to the arguments of the process."""
    parser = _parser()
    options, unknown = parser.parse_known_args(args)
    if unknown:
        # The error of the command shows its own usage, not that of `anyfn`.
        getattr(options, "parser", parser).error(f"unrecognized arguments: {' '.join(unknown)}")
    if options.command is None:
        parser.print_help()
        return 0
    try:
        if options.command == "inspect":
            code = _inspect(options.files, options.json)
        elif options.command == "doctor":
            code = _doctor(options.json)
        elif options.command == "version":
            print(f"anyfn {__version__} (ABI {get_global_func('anyfn.abi_version')()})")
            code = 0
        elif options.command in _RUN:
            code = _run(options)
        else:
            code = _bundle(options) if options.command == "bundle" else _stubs(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader has closed the pipe. Flushing the remaining output at exit would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except _Failed as error:
        print(f"{parser.prog} {options.command}: {error}", file=sys.stderr)
        return 2


def _inspect(files: list[str], as_json: bool) -> int:
    code = 0
    for index, file in enumerate(files):
        try:
            found = inspect_library(file)
        except RuntimeError as error:
            print(f"anyfn inspect: {error}", file=sys.stderr)
            code = 1
            continue
        if found["problem"] is not None:
            code = 1
        if as_json:
            import json

            print(json.dumps(found, indent=2))
        else:
            print(("\n" if index else "") + _shown(found))
    return code


def _doctor(as_json: bool) -> int:
    from . import doctor

    found = doctor()
    print(found.json() if as_json else found)
    return 0 if found.ok else 1


# Commands that modules of their own implement.
_RUN = {"call": _call.run, "config": _config.run, "new": _new.run, "rpc": _serve.run}


def _run(options: argparse.Namespace) -> int:
    try:
        return _RUN[options.command](options)
    except Exception as error:
        # `call` shows whatever the function raises, with its kind. Other commands have errors of these kinds only.
        if options.command != "call" and not isinstance(error, (RuntimeError, ValueError, OSError, ImportError)):
            raise
        kind = f"{type(error).__name__}: " if options.command == "call" else ""
        # `str` of a KeyError is the repr of the message.
        message = error.args[0] if isinstance(error, KeyError) and len(error.args) == 1 else error
        print(f"anyfn {options.command}: {kind}{message}", file=sys.stderr)
        return 1


def _shown(found: dict[str, Any]) -> str:
    """Formats the description of a library, one field per line, and omits empty fields."""
    import textwrap

    lines = [found["file"]]
    for key, value in found.items():
        if key in ("file", "problem") or value is None or value is False:
            continue
        if key == "imports":
            lines += [f"  {title:<20} {line}" for title, line in zip(["carries"] + [""] * len(value), _tree(value))]
            continue
        if isinstance(value, dict):
            value = [f"{name} {number}" for name, number in value.items()]
        if isinstance(value, list):
            # A versioned symbol names the library that it comes from, so it needs no mention.
            value = ", ".join(name for name in value if key != "other_symbols" or "@" not in name)
        text = "yes" if value is True else str(value)
        title = f"  {key.replace('_', ' '):<20} "
        lines += textwrap.wrap(text, 110, initial_indent=title, subsequent_indent=" " * len(title))
    if found["problem"] is not None:
        lines.append(f"  does not load here: {found['problem']}")
    return "\n".join(lines)


def _tree(modules: list[dict[str, Any]]) -> list[str]:
    """Returns lines that show the modules in a library, each indented below the module that imports it."""
    lines, shown, open_ = [], set(), [(0, 0)]
    while open_:
        at, depth = open_.pop()
        kind, size = modules[at]["kind"], modules[at]["size"]
        what = "shown above" if at in shown else "this file" if kind == "library" else f"{size} bytes"
        lines.append(f"{'  ' * depth}{kind} ({what})")
        if at not in shown:
            shown.add(at)
            open_ += [(to, depth + 1) for to in reversed(modules[at]["imports"])]
    others = [module for at, module in enumerate(modules) if at not in shown]
    return lines + [f"{module['kind']} ({module['size']} bytes), not imported" for module in others]


class _Carried:
    """Module without functions that makes a bundle store the bytes of a ``--carry`` file."""

    property_mask = 1

    def __init__(self, kind: str, data: bytes):
        self.kind, self._data = kind, data

    def get_function(self, name: str) -> None:
        return None

    def save_to_bytes(self) -> bytes:
        return self._data


def _bundle(options: argparse.Namespace) -> int:
    carried = []
    for item in options.carry:
        kind, equals, file = item.partition("=")
        if not equals:
            raise _Failed(f"--carry: expected a kind and a file as KIND=FILE, got `{item}`")
        carried.append((kind, file))
    try:
        kept = [load_module(library) for library in options.load]
        modules = [load_module(file) for file in options.imports]
        for kind, file in carried:
            with open(file, "rb") as opened:
                modules.append(make_module(_Carried(kind, opened.read())))
        bundle(
            options.output,
            options.files,
            modules,
            linker=options.linker,
            compiler=options.compiler,
            compile_options=[f"-{option}{value}" for option in "IDO" for value in getattr(options, option)],
            link_options=[f"-{option}{value}" for option in "WLl" for value in getattr(options, option)],
        )
        del kept
    except (RuntimeError, ValueError, OSError) as error:
        print(f"anyfn bundle: {error}", file=sys.stderr)
        return 1
    return 0


def _stubs(options: argparse.Namespace) -> int:
    # Imported here because other commands do not need it.
    from . import _stubs

    if options.output is None and (options.runtime or options.check):
        raise _Failed("--runtime and --check require an output: pass -o")
    # Keeps the libraries loaded until the stubs are written: unloading a module removes its library's global functions.
    loaded = [_load(library) for library in options.load]
    for name in options.imports:
        _import(name)
    if options.kind == "registry":
        files = _stubs.registry_files(options.prefix, options.load, options.output or "", options.runtime)
        if not files:
            what = f"no global function has a name that begins with {options.prefix!r}"
            raise _Failed(f"{what}; load its library with --load, or import its module with --import")
    elif options.kind == "types":
        files = _stubs.types_files(options.prefix, options.load, options.output or "", options.runtime)
        if not files:
            what = f"no native type has a key that begins with {options.prefix!r}"
            raise _Failed(f"{what}; load its library with --load, or import its module with --import")
    else:
        files = _module_files(options, loaded)
    if options.output is None:
        texts = (f"# {path}\n{text}" if len(files) > 1 else text for path, text in files.items())
        print("\n".join(texts), end="")
        return 0
    outdated = [] if options.kind == "module" else _stubs.outdated(files)
    if options.check:
        return _check(files, outdated)
    for path, text in files.items():
        _write(path, text)
    for path in outdated:
        os.remove(path)
    return 0


def _module_files(options: argparse.Namespace, loaded: list[Module]) -> dict[str, str]:
    from . import _stubs

    module = _load(options.library)
    loaded.append(module)
    if not module.list_functions():
        raise _Failed(
            f"{options.library} exports no functions (symbols __tvm_ffi_NAME); for functions that it registers "
            f"globally: anyfn stubs registry --load {options.library}"
        )
    for function in module.list_functions():
        try:
            module.get_function_metadata(function)
        except Exception as error:  # of any kind: a function of the library made the signature
            raise _Failed(f"{options.library}: {error}") from error
    file = options.output or "-"
    name, extension = os.path.splitext(os.path.basename(file))
    if options.output is not None and extension != ".pyi":
        raise _Failed(f"expected an output file whose name ends in .pyi, got {file}")
    if options.runtime:
        if not _stubs.is_name(name):
            raise _Failed(f"Python cannot import a module named {name!r}; choose another name for {file}")
        if os.path.exists(os.path.splitext(file)[0] + ".so"):
            what = f"`import {name}` would load {name}.so itself as a Python module"
            raise _Failed(f"{what}; choose another name than {file}")
    return _stubs.module_files(module, options.library, file, options.runtime)


def _load(library: str) -> Module:
    try:
        return load_module(library)
    except (RuntimeError, ValueError, OSError) as error:
        raise _Failed(str(error)) from error


def _import(name: str) -> None:
    import importlib

    # `python -m` has the current directory first, too.
    sys.path.insert(0, os.getcwd())
    try:
        importlib.import_module(name)
    except ImportError as error:
        raise _Failed(f"cannot import {name}: {error}") from error
    finally:
        sys.path.remove(os.getcwd())


def _write(path: str, text: str) -> None:
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except OSError as error:
        raise _Failed(f"cannot write {path}: {error.strerror}") from error
    print(path)


def _check(files: dict[str, str], outdated: list[str]) -> int:
    """Compares files with their expected content and prints the differences. Returns the exit code, 0 if all files match."""
    code = 1 if outdated else 0
    for path in outdated:
        print(f"{path}: replaced by a package of the same name")
    for path, text in files.items():
        try:
            with open(path, encoding="utf-8", newline="") as file:
                old = file.read()
        except FileNotFoundError:
            print(f"{path}: missing")
            code = 1
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise _Failed(f"cannot read {path}: {error}") from error
        if old != text:
            code = 1
            print(f"{path}: differs from the current signatures of the functions")
            lines = difflib.unified_diff(old.splitlines(), text.splitlines(), "file", "now", lineterm="", n=1)
            print("\n".join(list(lines)[:40]))
    return code


if __name__ == "__main__":
    raise SystemExit(main())
