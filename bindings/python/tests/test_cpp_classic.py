"""Tests of C++ libraries in the spelling of TVM 0.8, used from Python."""

import os
import shutil
import subprocess
from pathlib import Path

import anyfn
import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
ROOT = Path(os.environ.get("ANYFN_ROOT", HERE.parents[2]))
PAGE = ROOT / "docs/coming-from-tvm-cpp.md"


def compile_library(source, target):
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-shared", "-fPIC"]
    folders = ["bindings/cpp/include/anyfn/classic", "bindings/cpp/include", "bindings/c/include"]
    subprocess.run(["g++", *flags, *(f"-I{ROOT / folder}" for folder in folders), source, "-o", target], check=True)
    return target


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    return anyfn.load_module(compile_library(HERE / "classic_plugin.cc", tmp_path_factory.mktemp("classic") / "plugin.so"))


def test_objects(plugin):
    grow, names = (anyfn.get_global_func(f"classicplugin.{name}") for name in ("grow", "names"))
    leaf = plugin.Leaf("a leaf of many bytes")
    tree = grow("oak", [leaf, plugin.Leaf("b")])
    assert isinstance(tree, plugin.Tree) and isinstance(tree, plugin.Leaf)
    assert (tree.name, tree.mode, tree.weight) == ("oak", 1, 0.5) and tree.first.same_as(leaf)
    assert list(names(tree)) == ["a leaf of many bytes", "b"]
    # Strings of up to seven bytes and null references are values of their own in other languages.
    assert dict(tree.attrs)["short"] == "oak" and type(dict(tree.attrs)["short"]) is str
    assert dict(grow("x", []).attrs)["leaf"] is None and grow("x", []).first is None
    made = plugin.Tree(name="elm", leaves=[tree], weight=2)
    assert made.leaves[0].leaves[1].name == "b" and made.mode == 1 and made.first is None
    assert anyfn.structural_equal(anyfn.load_json(anyfn.save_json(made)), made)
    assert 'name="elm"' in repr(made) and repr(made).endswith("weight=2)")
    with pytest.raises(TypeError, match="expected `Optional<classicplugin.Leaf>` but got `int`"):
        plugin.Tree(name="x", first=1)
    with pytest.raises(TypeError, match="Expected `Array<Optional<classicplugin.Leaf>>` but got `Array whose element 1 is int`"):
        grow("x", [leaf, 1])
    with pytest.raises(AttributeError, match="weight"):
        tree.weight = 2

    # Objects have a table of virtual functions, which those of a Python class would not have.
    with pytest.raises(TypeError, match="cannot derive from 'classicplugin.Leaf', which is final"):

        @anyfn.object("classicplugin.Python")
        class Python(plugin.Leaf):
            more: int = 1


def test_functions(plugin):
    apply = anyfn.get_global_func("classicplugin.apply")
    assert apply(lambda a, b, c: (a, b, c), np.float64(1.5)) is not None
    assert apply(lambda a, b, c: f"{a} {b} {c}", 1) == "1 from C++ None"
    with pytest.raises(ZeroDivisionError):
        apply(lambda a, b, c: a // 0, 1)
    with pytest.raises(TypeError, match="argument #0"):
        apply(1)
    assert plugin.half(3) == 1.5
    with pytest.raises(ValueError, match="^expected 0 or more, got -1$"):
        plugin.half(-1)
    module = anyfn.get_global_func("classicplugin.EchoModule")()
    assert module["echo"]("x") == "x" and module.kind == "classicplugin_echo"


def test_the_example_of_the_documentation(tmp_path):
    text = PAGE.read_text(encoding="utf-8")
    source = tmp_path / "shop.cc"
    source.write_text(text.split("```cpp\n")[1].split("```")[0], encoding="utf-8")
    anyfn.load_module(compile_library(source, tmp_path / "libshop.so"))
    lines = text.split("```text\n")[1].split("```")[0].splitlines()
    names = {"anyfn": anyfn, "np": np}
    results = 0
    for line in lines:
        code, _, expected = line.partition("  # ") if "  # " in line else line.partition(" # ")
        if expected:
            assert eval(code, names) == float(expected)
            results += 1
        else:
            exec(code, names)
    assert results == 2
    with pytest.raises(ValueError, match="expected a positive amount, got -1"):
        anyfn.get_global_func("shop.deposit")(names["account"], -1)
