"""Runs the guide ``docs/python.md``. A comment after an expression states the expected value."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import anyfn
import anyfn.testing
import numpy as np
import pytest
from anyfn.__main__ import main
from samples import run_python_block

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
TEXT = (ROOT / "docs/python.md").read_text(encoding="utf-8")


def blocks():
    """Yields the language, source and first line of each code block."""
    for match in re.finditer(r"^```(\w+)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE):
        yield match.group(1), match.group(2), TEXT.count("\n", 0, match.start(2))


@pytest.fixture
def axpy(tmp_path, monkeypatch):
    """Yields a temporary folder with the files that the guide uses."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (tmp_path / "axpy.c").write_text(re.search("```c\n(.*?)```", readme, re.DOTALL).group(1))
    command = [compiler, "-O2", "-shared", "-fPIC", "-I", str(ROOT / "bindings/c/include"), "axpy.c", "-o", "axpy.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    (tmp_path / "guide_functions.py").write_text('import anyfn\nanyfn.register_func("guide.from_a_module", abs)\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in anyfn.list_global_func_names():
        if name.startswith("guide."):
            anyfn.remove_global_func(name)
    for name in ("axpy_api", "guide_functions"):
        sys.modules.pop(name, None)
    anyfn._core.register_class(anyfn._core.type_index("testing.Point"), anyfn.Object)


def test_the_guide(axpy):
    names = {"__name__": "guide"}
    languages = []
    for language, source, line in blocks():
        languages.append(language)
        if language == "python":
            run_python_block("docs/python.md", source, line, names)
        elif language == "sh":
            for command in source.splitlines():
                program, *arguments = command.split()
                assert program == "anyfn" and main(arguments) == 0
    assert set(languages) == {"python", "sh"} and languages.count("python") > 10
    assert (axpy / "typings" / "guide.pyi").exists() and (axpy / "axpy_api.pyi").exists()


def table():
    """Returns the rows of the guide's table of values, each as a tuple of its three cells."""
    rows = re.search(r"\| Python \| native code gets \|.*?\n\n", TEXT, re.DOTALL).group(0).splitlines()[2:]
    return [re.fullmatch(r"\| `(.*)` \| `(.*)` \| `(.*)` \|", row).groups() for row in rows if row]


@pytest.mark.parametrize("python, native, back", table())
def test_the_table_of_values(python, native, back):
    value = eval(python, {"anyfn": anyfn, "np": np, "ctypes": ctypes})
    assert anyfn.testing.type_key(value) == native
    assert repr(anyfn.testing.echo(value)) == repr(anyfn.convert(value)) == back


def test_the_contents():
    """Checks that the table of contents at the top names all sections in order."""
    titles = re.findall(r"^## (.*)$", TEXT, re.MULTILINE)
    anchors = ["".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c == "-") for title in titles]
    assert re.findall(r"\[[^]]+\]\(#([a-z-]+)\)", TEXT.split("## ")[0]) == anchors
