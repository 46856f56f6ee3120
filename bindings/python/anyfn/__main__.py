"""The command ``anyfn``, which is also available as ``python -m anyfn``."""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from typing import Any, Optional

from . import Module, __version__, _call, _compat, _config, _new, _serve, bundle, get_global_func, inspect_library, load_module, make_module
from ._commands import COMPLETION, HELP, TABLE


class _Failed(Exception):
    """Error that ends the command with a message."""


class _Parser(argparse.ArgumentParser):
    """Parser of a command, whose help is generated from the table of commands."""

    # `argparse` passes the name of the program, which follows from the path.
    def __init__(self, path: str = "", prog: Optional[str] = None):
        super().__init__(prog=f"anyfn {path}".rstrip(), allow_abbrev=False)
        self.path = path

    def format_help(self) -> str:
        return HELP[self.path]

    def format_usage(self) -> str:
        return HELP[self.path].partition("\n\n")[0] + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = _Parser()
    _add_commands(parser, TABLE)
    return parser


def _add_commands(parser: _Parser, entry: dict[str, Any]) -> None:
    """Adds the options, arguments and subcommands of an entry of the table of commands to a parser."""
    parser.set_defaults(parser=parser)
    groups: dict[str, Any] = {}
    for option in entry.get("options", ()):
        group = option.get("group")
        if group is not None and group not in groups:
            groups[group] = parser.add_mutually_exclusive_group(required=group == "required")
        made: dict[str, Any] = {key: option[key] for key in ("dest", "default", "choices", "const") if key in option}
        if option.get("type") == "int":
            made["type"] = int
        if option.get("many"):
            made.update(action="append", default=[])
        elif "const" in option:
            made["action"] = "store_const"
        elif "value" not in option:
            made["action"] = "store_true"
        if "value" in option:
            made["metavar"] = option["value"]
        groups.get(group, parser).add_argument(*option["names"], **made)
    for argument in entry.get("arguments", ()):
        count = argument.get("count")
        made = {"metavar": argument["name"]}
        if "choices" in argument:
            made["choices"] = argument["choices"]
        if count is not None:
            made["nargs"] = argparse.REMAINDER if count == "rest" else count
        if count == "*":
            made["default"] = []
        added = parser.add_argument(argument["dest"], **made)
        if count == "rest":
            added.required = False
    if "commands" in entry:
        # `anyfn --version` needs no command.
        required = parser.path != ""
        commands = parser.add_subparsers(metavar="COMMAND", dest=entry["dest"], required=required, parser_class=_Parser)
        for command in entry["commands"]:
            _add_commands(commands.add_parser(command["name"], path=f"{parser.path} {command['name']}".lstrip()), command)


def main(args: Optional[Sequence[str]] = None) -> int:
    """Runs the command and returns its exit code; ``args`` defaults to the arguments of the process."""
    args = list(sys.argv[1:] if args is None else args)
    if args[:2] == ["rpc", "session"]:
        return _serve.session(args[2:])
    parser = _parser()
    if args[:1] == ["call"]:
        missing = _call.missing(args[1:])
        if missing is not None:
            _Parser("call").error(missing)
    words: list[str] = []
    if args[:1] == ["call"] and not any(word.startswith("-") for word in args[1:3]):
        # `argparse` would take `--` out of the arguments of the function.
        args, words = args[:3], args[3:]
    options, unknown = parser.parse_known_args(args)
    if words:
        options.args = words
    if unknown:
        # The error of the command shows its own usage, not that of `anyfn`.
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if options.version:
        options.command = "version"
    if options.command is None:
        parser.error("expected a command, got nothing; `anyfn help` lists the commands")
    try:
        if options.command == "inspect":
            code = _inspect(options.files, options.json)
        elif options.command == "doctor":
            code = _doctor(options.json)
        elif options.command == "version":
            print(f"anyfn {__version__} (ABI {get_global_func('anyfn.abi_version')()})")
            code = 0
        elif options.command == "completion":
            print(COMPLETION[options.shell], end="")
            code = 0
        elif options.command == "help":
            path = " ".join(options.words)
            if path not in HELP:
                options.parser.error(f"there is no command `{path}`; `anyfn help` lists the commands")
            print(HELP[path], end="")
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
_RUN = {"call": _call.run, "compat": _compat.run, "config": _config.run, "new": _new.run, "rpc": _serve.run}


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
