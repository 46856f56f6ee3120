"""Tests of ``anyfn stubs types``, which writes stubs for native types. mypy checks the types like Python classes."""

import ast
import importlib
import importlib.util
import os
import subprocess
import sys
from typing import Any, Optional

import anyfn
import anyfn.testing
import pytest
from anyfn.__main__ import main


@anyfn.object("stubbed.ir.Expr", frozen=True)
class Expr(anyfn.Object):
    """An expression."""

    span: Optional[str] = anyfn.field(default=None, kw_only=True, doc="Where it comes from.")


@anyfn.object("stubbed.ir.Add", frozen=True)
class Add(Expr):
    left: Expr
    right: Expr

    def swapped(self, times: int = 1) -> Expr:
        """The other way round."""
        return Add(self.right, self.left)

    @staticmethod
    def zero(name: str) -> Expr:
        return Expr(span=name)


@anyfn.object("stubbed.Config")
class Config(anyfn.Object):
    rate: float = 0.5
    names: "list[str]" = anyfn.field(default_factory=list)
    extra: Any = None
    hidden: int = anyfn.field(default=0, init=False)


# As if no class could be imported: a type checker sees only the stubs.
@pytest.fixture
def files(tmp_path):
    assert main(["stubs", "types", "--prefix", "stubbed.", "-o", str(tmp_path), "--runtime"]) == 0
    return tmp_path


def classes(path):
    return {node.name: node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)}


def test_classes(files, capsys):
    assert {str(path.relative_to(files)) for path in files.rglob("*.py*")} == {
        "stubbed/__init__.pyi", "stubbed/__init__.py", "stubbed/ir.pyi", "stubbed/ir.py",
        "stubbed/walk.pyi", "stubbed/walk.py"
    }  # fmt: skip
    text = (files / "stubbed/ir.pyi").read_text()
    found = classes(files / "stubbed/ir.pyi")
    assert list(found) == ["Expr", "Add"] and ast.get_docstring(found["Expr"]) == "An expression."
    assert "class Add(Expr):" in text and "def left(self) -> Expr: ..." in text
    assert "def __init__(self, left: Expr, right: Expr, *, span: Optional[str] = None) -> None: ..." in text
    assert "def swapped(self, times: IntLike = 1) -> " in text and "The other way round." in text
    assert "@staticmethod" in text and "def zero(name: str) -> " in text and "Where it comes from." in text
    text = (files / "stubbed/__init__.pyi").read_text()
    assert "    rate: float" in text and "names: List[str]" in text and "def __init__(self, rate: FloatLike = 0.5" in text
    assert "hidden" not in text.split("__init__")[1]
    assert main(["stubs", "types", "--prefix", "stubbed.", "-o", str(files), "--runtime", "--check"]) == 0
    assert main(["stubs", "types", "--prefix", "no.such."]) == 2
    assert "no native type has a key that begins with 'no.such.'" in capsys.readouterr().err


@anyfn.object("stubbed.walk.Visitor")
class Visitor(anyfn.Object):
    root: Expr


def test_a_type_of_another_module(files):
    text = (files / "stubbed/walk.pyi").read_text()
    # The Python class can be imported here; a class that cannot be is imported from its stub.
    assert "from test_type_stubs import Expr\n" in text and "    root: Expr\n" in text


def test_the_module_of_the_classes(files, monkeypatch):
    monkeypatch.syspath_prepend(files)
    try:
        assert importlib.import_module("stubbed.ir").Add is Add
        assert importlib.import_module("stubbed").Config().rate == 0.5
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "stubbed"]:
            del sys.modules[name]


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None or "ANYFN_WHEEL" in os.environ, reason="no mypy")
def test_mypy(files):
    (files / "program.py").write_text(
        """
from stubbed import Config
from stubbed.ir import Add, Expr

config = Config(1, names=["x"])
config.rate = 2.0
rate: float = config.rate
tree = Add(Expr(), Add(Expr(), Expr()), span="here")
left: Expr = tree.left
Add.zero("x")
tree.swapped(2)
config.rate = "x"  # wrong: assignment
tree.left = left  # wrong: misc
Add(1, 2)  # wrong: arg-type
Config(hidden=1)  # wrong: call-arg
tree.swaped()  # wrong: attr-defined
"""
    )
    package = os.path.dirname(os.path.dirname(anyfn.__file__))
    command = [sys.executable, "-m", "mypy", "--strict", "--hide-error-context", "--no-color-output", "program.py"]
    environment = {**os.environ, "MYPYPATH": os.pathsep.join([str(files), package])}
    done = subprocess.run(command, cwd=files, env=environment, capture_output=True, text=True)
    lines = (files / "program.py").read_text().splitlines()
    wrong = {at for at, line in enumerate(lines, 1) if "# wrong" in line}
    found = {int(line.split(":")[1]) for line in done.stdout.splitlines() if line.startswith("program.py")}
    assert found == wrong, done.stdout
    other = [line for line in done.stdout.splitlines() if ".pyi" in line and "stubbed" in line]
    assert not other, other
