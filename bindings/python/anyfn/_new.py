"""The command ``anyfn new``, which creates a folder with a plugin that can be built, tested and loaded."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

from ._config import get_include

_PACKAGE = Path(__file__).resolve().parent

# Kinds of plugins, each with the file that it builds. The templates contain the same placeholders.
_LIBRARIES = {"rust": "target/debug/lib@LIBRARY@.so", "c": "./@NAME@.so", "cpp": "./@NAME@.so"}


def _templates() -> Path:
    """Returns the folder of the plugin templates: in the package in a wheel, in ``crates/cli`` in the source tree."""
    for folder in (_PACKAGE / "templates", *(parent / "crates/cli/templates" for parent in _PACKAGE.parents)):
        if folder.is_dir():
            return folder
    raise ValueError(f"this installation of anyfn has no templates: {_PACKAGE / 'templates'} does not exist")


def _source_tree() -> str:
    """Returns the path of the source tree of anyfn, against whose crates a plugin in Rust is built."""
    given = os.environ.get("ANYFN_ROOT")
    for root in [Path(given)] if given else _PACKAGE.parents:
        if (root / "crates" / "anyfn" / "Cargo.toml").is_file():
            return str(root)
    told = f"ANYFN_ROOT is {given}, which is not" if given else "set ANYFN_ROOT to"
    raise ValueError(f"plugins in Rust are built against the source tree of anyfn: {told} a checkout of it")


def _files(kind: str, is_package: bool) -> dict[Path, Path]:
    """Returns the templates of a plugin, or of its Python package, by their paths in the new folder."""
    templates = _templates()

    def inside(name: str) -> dict[Path, Path]:
        return {path.relative_to(templates / name): path for path in (templates / name).rglob("*.in")}

    if not is_package:
        return {**inside(kind), Path("README.md.in"): templates / "README.md.in"}
    if kind == "rust":
        sources = {path: templates / kind / path for path in (Path("Cargo.toml.in"), Path("src/lib.rs.in"))}
        return {**inside("python"), **inside("python-maturin"), **sources}
    sources = {Path("src") / path.name: path for path in (templates / kind).glob("@NAME@.c*.in")}
    return {**inside("python"), **inside("python-cmake"), **sources}


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit code. Raises ``ValueError`` or ``OSError`` if no plugin can be created."""
    folder = Path(options.folder)
    name = folder.name
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name):
        raise ValueError(f"`{name}` is not a valid plugin name: it begins with a lower-case letter, followed by such letters, digits, `_` and `-`")
    if folder.exists():
        raise ValueError(f"{folder} already exists")
    library = name.replace("-", "_")
    is_cpp = options.kind == "cpp"
    values = {
        "@FILE@": _LIBRARIES[options.kind].replace("@NAME@", name).replace("@LIBRARY@", library),
        "@NAME@": name,
        "@LIBRARY@": library,
        "@ANYFN@": _source_tree() if options.kind == "rust" else "",
        "@INCLUDE@": get_include(),
        "@COMMAND@": f"{shlex.quote(sys.executable)} -m anyfn",
        "@LANGUAGE@": "CXX" if is_cpp else "C",
        "@SOURCE@": f"{name}.cc" if is_cpp else f"{name}.c",
    }

    def filled(text: str) -> str:
        return re.sub("@[A-Z_]+@", lambda found: values[found[0]], text)

    files = _files(options.kind, options.python_package)
    folder.mkdir(parents=True)
    try:
        for inside, template in files.items():
            target = folder / filled(str(inside.with_suffix("")))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(filled(template.read_text(encoding="utf-8")), encoding="utf-8")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    use = "see its README.md" if options.python_package else "run `make test` in it to build the plugin and call it"
    print(f"created {folder}; {use}")
    return 0
