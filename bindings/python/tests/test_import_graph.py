"""Tests that the modules of the package import each other without cycles.

Imports inside of functions count, so that no cycle is hidden by delaying an import. Imports for type checkers do not count.
"""

import ast
import os
import re
from pathlib import Path

import anyfn
import pytest

PACKAGE = Path(anyfn.__file__).parent
ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))


def module_name(path):
    """Returns the name under which a file of the package is imported."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(name, source, is_package, modules):
    """Returns the modules among ``modules`` that a module imports, each with the line of its first import."""
    found = {}

    def add(target, line):
        if target in modules:
            found.setdefault(target, line)

    def visit(node):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            children = node.orelse
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "not TYPE_CHECKING":
            children = node.body
        else:
            children = ast.iter_child_nodes(node)
        for child in children:
            visit(child)
        if isinstance(node, ast.Import):
            for alias in node.names:
                add(alias.name, node.lineno)
                if alias.asname is None:
                    # The statement binds the outermost package.
                    add(alias.name.partition(".")[0], node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = name.split(".") + [""] * is_package
                base = ".".join(filter(None, [*parents[: -node.level], base]))
            for alias in node.names:
                submodule = f"{base}.{alias.name}"
                add(submodule if submodule in modules else base, node.lineno)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_LAZY_MODULES":
            # The function `__getattr__` of the package imports these modules on first use.
            for submodule in ast.literal_eval(node.value):
                add(f"{name}.{submodule}", node.lineno)

    visit(ast.parse(source))
    return found


def graph_of(sources, packages=("anyfn",)):
    """Returns the imports of all modules. ``sources`` maps the names of modules to their source code."""
    modules = {*sources, "anyfn._core"}
    return {name: imported(name, source, name in packages, modules) for name, source in sources.items()}


def cycle_in(graph):
    """Returns the first cycle of an import graph as a string, or None if the graph has no cycle."""
    path, done = [], set()

    def search(name):
        if name in path:
            cycle = [*path[path.index(name) :], name]
            steps = [f"{one}:{graph[one][other]}" for one, other in zip(cycle, cycle[1:])]
            return " -> ".join([*steps, name])
        if name in done:
            return None
        path.append(name)
        for other in sorted(graph.get(name, ())):
            found = search(other)
            if found:
                return found
        path.pop()
        done.add(name)
        return None

    return next(filter(None, map(search, sorted(graph))), None)


def test_no_cycle():
    files = {module_name(path): path for path in PACKAGE.rglob("*.py")}
    packages = {name for name, path in files.items() if path.stem == "__init__"}
    graph = graph_of({name: path.read_text(encoding="utf-8") for name, path in files.items()}, packages)
    # Guards against a check that finds no imports.
    assert "anyfn.tir" in graph["anyfn"] and "anyfn.tir" in graph["anyfn._compiler"] and "anyfn._core" in graph["anyfn._object"]
    cycle = cycle_in(graph)
    assert cycle is None, f"modules import each other in a cycle (module:line -> ..): {cycle}"


def test_the_extension_imports_no_module_of_the_package():
    folder = ROOT / "bindings/python/src"
    if not folder.exists():
        pytest.skip("no sources of the extension")

    def importing(begin):
        pattern = re.compile(r'\bimport\(c"' + begin)
        return [path.name for path in folder.rglob("*.rs") if pattern.search(path.read_text(encoding="utf-8"))]

    assert importing("os"), "the extension imports modules in another way now"
    found = importing("anyfn")
    assert not found, f"{found}: the module that defines a function passes it to the extension, as `_setup` does"


@pytest.mark.parametrize(
    ("sources", "cycle"),
    [
        ({"anyfn._a": "from ._b import f", "anyfn._b": "import os\nfrom . import _a"}, "anyfn._a:1 -> anyfn._b:2 -> anyfn._a"),
        (
            {"anyfn._a": "from ._b import f", "anyfn._b": "def f():\n    if f:\n        from ._a import g\n"},
            "anyfn._a:1 -> anyfn._b:3 -> anyfn._a",
        ),
        ({"anyfn": "from ._a import f", "anyfn._a": "def f():\n    import anyfn\n"}, "anyfn:1 -> anyfn._a:2 -> anyfn"),
        ({"anyfn": "from ._a import f", "anyfn._a": "def f():\n    from . import g\n"}, "anyfn:1 -> anyfn._a:2 -> anyfn"),
        ({"anyfn": "_LAZY_MODULES = ('a',)", "anyfn.a": "from . import f"}, "anyfn:1 -> anyfn.a:1 -> anyfn"),
        ({"anyfn._a": "from ._b import f", "anyfn._b": "if TYPE_CHECKING:\n    from ._a import T\nelse:\n    T = 1\n"}, None),
        ({"anyfn._a": "from ._b import f\nfrom ._c import g", "anyfn._b": "from ._c import g", "anyfn._c": "import _a"}, None),
        ({"anyfn": "from . import _a, _core", "anyfn._a": "from . import _core"}, None),
    ],
)
def test_planted_cycles(sources, cycle):
    assert cycle_in(graph_of(sources)) == cycle
