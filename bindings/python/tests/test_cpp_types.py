"""Tests of object types that a library defines in C++ with the headers of apache-tvm-ffi.

All operations work on them and give the same results as in that runtime.
"""

import copy
import gc
import inspect
import json
import os
import shutil
import subprocess
from pathlib import Path

import anyfn
import pytest
from cpp_types_ops import results

HERE = Path(__file__).resolve().parent
ROOT = Path(os.environ.get("ANYFN_ROOT", HERE.parents[2]))
PEER = ROOT / ".x/venv-peer/bin/python"

if not PEER.exists() or not shutil.which("g++"):
    pytest.skip("needs g++ and the headers of apache-tvm-ffi (`./x setup --peer`)", allow_module_level=True)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    command = [PEER, "-c", "import tvm_ffi.libinfo as l; print(l.find_include_path(), l.find_dlpack_include_path())"]
    includes = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    library = tmp_path_factory.mktemp("cpp_types") / "cpp_types.so"
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", *(f"-I{path}" for path in includes)]
    subprocess.run(["g++", *flags, HERE / "cpp_types.cc", "-o", library], check=True)
    return library


@pytest.fixture(scope="module")
def ours(library):
    return results(anyfn, str(library))


@pytest.fixture(scope="module")
def types(ours):
    def register(name, base=anyfn.Object):
        return anyfn.register_object(f"cpp.{name}")(type(name, (base,), {}))

    found = {name: register(name) for name in ("Expr", "Func", "Block", "Const", "Op", "Custom", "Colour")}
    found.update((name, register(name, found["Expr"])) for name in ("Var", "Add", "Let"))
    return found


# Cases in which our message contains more: the field, and the constructor.
OURS = {
    "copy handle": ("Check failed: (copy_fn.has_value()) is false: ", ""),
    "make handle": "TypeError: type `cpp.Handle` cannot be constructed: it has no creator and no __ffi_new__",
    "missing": "TypeError: cpp.Add missing required argument: 'lhs'",
    "wrong": "TypeError: cpp.Const field 'value':",
}


def test_as_the_other_runtime(library, ours):
    other = library.with_name("other.so")
    shutil.copy(library, other)
    done = subprocess.run([PEER, HERE / "cpp_types_ops.py", other], check=True, capture_output=True, text=True)
    theirs = json.loads(done.stdout)
    assert len(theirs) > 800 and ours.keys() == theirs.keys()
    for name, told in OURS.items():
        theirs[name] = theirs[name].replace(*told) if isinstance(told, tuple) else told
    assert {name: (ours[name], theirs[name]) for name in theirs if ours[name] != theirs[name]} == {}


def test_classes(types):
    Add, Const, Func, Var = (types[name] for name in ("Add", "Const", "Func", "Var"))
    x = Var("x", line=3)
    assert (x.name, x.type, x.line) == ("x", None, 3) and isinstance(x, types["Expr"])
    x.line = 4
    assert x.line == 4
    with pytest.raises(AttributeError):
        x.name = "y"
    total = Add(x, Add(lhs=Const(1), rhs=x))
    assert total.rhs.rhs.same_as(x) and total.rhs.lhs.value == 1 and total.depth() == 1
    assert Add.of(x, x).depth() == 1 and type(total.rhs) is Add
    assert {"lhs", "rhs", "line", "depth", "of"} <= set(dir(total))
    assert list(inspect.signature(Var).parameters) == ["name", "type", "line"]
    const = Const(7, dtype="int8", device=anyfn.cpu(0))
    assert (const.value, const.scale, str(const.dtype), const.device) == (7, 1.5, "int8", anyfn.cpu(0))
    assert copy.copy(total).lhs.same_as(x) and not copy.deepcopy(total).lhs.same_as(x)
    one, two = Func([x], total), Func([y := Var("y")], Add(y, Add(Const(1), y)), "comment")
    assert anyfn.structural_equal(one, two) and anyfn.structural_hash(one) == anyfn.structural_hash(two)
    assert repr(two) == repr(Func([y], two.body, "other")) and "comment" not in repr(two)
    replaced = anyfn.structural_map(one, (Const, lambda const: Const(const.value + 1)))
    assert replaced.body.rhs.lhs.value == 2 and one.body.rhs.lhs.value == 1
    assert [str(path) for path in anyfn.get_first_structural_mismatch(one, replaced)] == ["root.body.rhs.lhs.value"] * 2
    assert anyfn.structural_equal(anyfn.load_json(anyfn.save_json(one)), one)
    with pytest.raises(TypeError, match="(?s)'value'.*`ffi.SmallStr` to `int`"):
        Const("x")
    assert anyfn.type_info("cpp.Const").field("scale").type == "float"


def test_hooks_in_cpp(types):
    Custom = types["Custom"]
    one, other, smaller = Custom([1], "a"), Custom([1], "b"), Custom([0], "c")
    assert repr(one) == "<(1,)>" and anyfn.recursive_equal(one, other) and anyfn.structural_equal(one, other)
    assert anyfn.recursive_hash(one) == anyfn.recursive_hash(other)
    assert anyfn.structural_hash(one) == anyfn.structural_hash(other)
    assert anyfn.recursive_less(one, smaller) and not anyfn.recursive_less(smaller, one)
    nested = Custom(None, None)
    for _ in range(100):
        nested = Custom(nested, None)
    assert anyfn.structural_equal(nested, anyfn.deep_copy(nested)) and repr(nested).count("<") == 101


def test_enumerations(library, types):
    module = anyfn.load_module(str(library))
    red, green = (module.get_function("colour")(name) for name in ("red", "green"))
    assert (red._str_index, red._int_index, green._int_index) == ("red", 0, 1) and repr(red) == "cpp.Colour.red"
    assert anyfn.structural_equal(red, module.get_function("colour")("red")) and not anyfn.structural_equal(red, green)
    low = module.get_function("level")(10)
    assert low.value == 10 and module.get_function("unit")("metre").value == "metre"
    assert anyfn.load_json(anyfn.save_json({"a": [red, low], "b": low}))["b"].same_as(low)
    state = anyfn._core.type_attribute("__ffi_enum__", red.type_index)
    assert [entry._str_index for entry in state.entries] == ["red", "green"]
    assert state.attrs["hex"][green] == "00ff00" and state.indexes["red"].same_as(red)
    with pytest.raises(ValueError, match="no instance with index blue"):
        module.get_function("colour")("blue")


def test_a_python_class_derives_from_a_type_in_cpp(types):
    @anyfn.object("cpp.Call", structural="tree")
    class Call(types["Expr"]):
        name: str
        args: list

    call = Call("f", [types["Var"]("x")], line=9)
    assert (call.line, call.name, len(call.args)) == (9, "f", 1)
    graph = types["Add"](call, call)
    assert graph.lhs.same_as(graph.rhs) and type(graph.lhs) is Call
    other = copy.deepcopy(graph)
    assert other.lhs.same_as(other.rhs) and not other.lhs.same_as(call)
    assert anyfn.structural_equal(graph, other, map_free_vars=True)
    assert anyfn.recursive_equal(anyfn.load_json(anyfn.save_json(graph)), graph)


def test_memory(types, flat_memory):
    Add, Block, Const = (types[name] for name in ("Add", "Block", "Const"))

    def body(count):
        for i in range(count):
            block = Block([Const(i), Add(Const(i), Const(2))])
            block.items.append(block.items[0])
            anyfn.structural_hash(block)
            copy.deepcopy(block)
        gc.collect()

    flat_memory(body, 5_000)
