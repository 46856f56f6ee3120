"""Tests of names from Apache TVM: some are also names of anyfn, and the errors for the others name the replacement."""

import importlib
import os
import re
import sys
from pathlib import Path

import anyfn
import numpy as np
import pytest
from anyfn import _tvm_names, nd, te, tir, transform

pytestmark = pytest.mark.compiler

HINTS = [(owner, name, hint) for owner, hints in _tvm_names.HINTS.items() for name, hint in hints.items()]


def product(name="main"):
    a, b = te.placeholder((4, 8), name="a"), te.placeholder((8, 2), name="b")
    k = te.reduce_axis((0, 8), name="k")
    c = te.compute((4, 2), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return te.create_prim_func([a, b, c], name=name)


# --- Names that work -------------------------------------------------------------------------------------------------


def test_show_and_script(capsys):
    func = product()
    schedule = tir.Schedule(func)
    for node in (func, schedule, tir.IRModule({"main": func})):
        assert "@T.prim_func" in node.script()
        node.show()
        assert capsys.readouterr().out == str(node) + "\n"
    assert anyfn.structural_equal(tir.parse(func.script()), func)


def test_the_module_of_a_schedule():
    schedule = tir.Schedule(product("f"))
    i, _, _ = schedule.get_loops("c")
    schedule.split(i, [None, 2])
    assert isinstance(schedule.mod, tir.IRModule) and list(schedule.mod.functions) == ["f"]
    assert anyfn.structural_equal(schedule.mod["f"], schedule.func())
    a, b, out = np.ones((4, 8), "float32"), np.ones((8, 2), "float32"), np.zeros((4, 2), "float32")
    anyfn.build(schedule.mod)(a, b, out)
    assert (out == 8).all()


def test_the_module_of_a_function_without_a_name():
    func = product()
    assert list(tir.Schedule(tir.PrimFunc(func.params, func.buffer_map, func.body, {})).mod.functions) == ["main"]


def test_ir_modules():
    f, g = product("f"), product("g")
    module = tir.IRModule({"f": f})
    assert module["f"].same_as(f) and "f" in module and "g" not in module and not module.attrs
    assert not tir.IRModule().functions
    assert tir.IRModule({"f": f}, {"a": 1}).attrs == tir.IRModule(functions={"f": f}, attrs={"a": 1}).attrs == {"a": 1}
    both = tir.IRModule({**module.functions, "g": g}, module.attrs)
    assert set(both.functions) == {"f", "g"} and anyfn.build(both).list_functions() == ["f", "g"]
    assert set(anyfn.replace(both, functions={"g": g}).functions) == {"g"}
    assert anyfn.structural_equal(anyfn.load_json(anyfn.save_json(both)), both)
    with pytest.raises(TypeError, match=r"immutable; create a new one: tir.IRModule\({\*\*module.functions, 'g': func}\)"):
        module["g"] = g
    for name, text in (("g", "unknown function 'g'"), ("product", "unknown function 'product'; known are f")):
        with pytest.raises(KeyError, match=text):
            module[name]
    with pytest.raises(KeyError, match="did you mean 'main'"):
        tir.IRModule({"main": f})["mian"]
    with pytest.raises(TypeError, match="tir.PrimFunc"):
        tir.IRModule({"f": 1})
    with pytest.raises(TypeError):
        tir.IRModule([f])


def test_operations():
    x, index = te.placeholder((8,), name="x"), te.placeholder((8,), "int32", name="index")
    k = te.reduce_axis((0, 8), name="k")
    y = te.compute((8,), lambda i: x[index[i]] + x[i], name="y")
    total = te.compute((1,), lambda _: te.sum(y[k] * x[k], axis=k, where=index[k] > 0), name="total")
    packed = te.extern((8,), [y, x], lambda ins, outs: tir.call_packed("f", ins[0], ins[1], outs[0]), name="packed")

    def inputs(tensor):
        assert all(isinstance(one, te.Tensor) for one in tensor.op.input_tensors)
        return [one.name for one in tensor.op.input_tensors]

    assert (inputs(x), inputs(y), inputs(packed)) == ([], ["x", "index"], ["y", "x"])
    assert sorted(inputs(total)) == ["index", "x", "y"]
    assert y.op.input_tensors[0].same_as(x)
    [axis] = total.op.reduce_axis
    assert axis.same_as(k) and y.op.reduce_axis == [] and len(y.op.axis) == 1


def test_the_inputs_of_shared_and_several_expressions():
    x = te.placeholder((8,), name="x")

    def element(i):
        value = x[i]
        for _ in range(60):  # 2**60 paths to the same element
            value = value + value
        return value

    assert [one.name for one in te.compute((8,), element).op.input_tensors] == ["x"]
    k = te.reduce_axis((0, 8), name="k")
    pairs = te.comm_reducer(
        lambda a, b: (a[0] + b[0], a[1] + b[1]), lambda s, t: (tir.const(0, s), tir.const(0, t)), name="pairs"
    )
    first, second = te.compute((), lambda: pairs((x[k], x[k] * 2), axis=k), name="both")
    assert [axis.same_as(k) for axis in first.op.reduce_axis] == [True] and len(second.op.input_tensors) == 1


def test_functions_of_tir_in_te():
    for name in "abs acos all any ceil cos erf exp floor floordiv if_then_else isnan log2 max_value power round rsqrt".split():
        assert getattr(te, name) is getattr(tir, name)
    # Reductions, unlike the functions of `tir` with these names.
    assert te.max is not tir.max and te.min is not tir.min


def test_libraries(tmp_path):
    module = anyfn.build(product("f"))
    module.export_library(tmp_path / "f.so")
    loaded = anyfn.load_module(tmp_path / "f.so")
    assert loaded.list_functions() == ["f"] and loaded.entry_name == "f"
    module.export(tmp_path / "g.so")
    assert (tmp_path / "f.so").read_bytes() == (tmp_path / "g.so").read_bytes()
    both = anyfn.build([product("f"), product("main")])
    assert both.entry_name == "main"
    several = anyfn.build([product("f"), product("g")])
    for name in ("entry_name", "entry_func"):
        with pytest.raises(AttributeError, match="has no function `main`"):
            getattr(several, name)


def test_tensors():
    data = np.arange(6, dtype="int16").reshape(2, 3)
    for tensor in (nd.array(data), nd.array(data, nd.cpu(0)), nd.array(data, device="cpu")):
        assert isinstance(tensor, nd.NDArray) and nd.NDArray is anyfn.Tensor
        assert tensor.tolist() == anyfn.tensor(data).tolist() and tensor.dtype == "int16"
    assert nd.array([1.5]).dtype == anyfn.tensor([1.5]).dtype
    for tensor in (nd.empty((2, 3)), nd.empty((2, 3), "float32", nd.cpu()), nd.empty((2, 3), device="cpu")):
        assert tensor.shape == (2, 3) and tensor.dtype == "float32"
    assert nd.device is anyfn.device and nd.cuda is anyfn.cuda and anyfn.nd is nd
    with pytest.raises(RuntimeError, match="not available"):
        nd.array(data, nd.cuda(7))


def test_functions_of_modules_precede_hints():
    assert anyfn.build(product("save")).save.__name__ == "save"
    with pytest.raises(AttributeError, match="has no function `sav`"):
        anyfn.build(product("save")).sav  # noqa: B018


def test_schedules_of_modules():
    func = product("f")
    assert anyfn.structural_equal(tir.Schedule(tir.IRModule({"f": func})).func(), tir.Schedule(func).func())
    with pytest.raises(ValueError, match='expected a module with one function, got one with 2; pass one of them, such as `module\\["f"\\]`'):
        tir.Schedule(tir.IRModule({"g": func, "f": func}))
    with pytest.raises(ValueError, match="expected a module with one function, got one with 0$"):
        tir.Schedule(tir.IRModule())


def test_steps_on_tensors():
    a = te.placeholder((8, 8), name="a")
    b = te.compute((8, 8), lambda i, j: a[i, j] + 1, name="b")
    c = te.compute((8, 8), lambda i, j: b[i, j] * 2, name="c")
    func = te.create_prim_func([a, c])
    by_tensor, by_name = tir.Schedule(func), tir.Schedule(func)
    for schedule, inner, outer in ((by_tensor, b, c), (by_name, "b", "c")):
        schedule.compute_at(inner, schedule.get_loops(block=outer)[0])
        schedule.compute_inline(inner)
    assert str(by_tensor) == str(by_name) and str(by_tensor.trace()) == str(by_name.trace())
    with pytest.raises(ValueError, match="unknown block `a`; known blocks are root, c"):
        by_tensor.get_loops(a)
    with pytest.raises(TypeError, match="Expected `str` but got `int`"):
        by_tensor.get_loops(1)


def test_builds_in_the_style_of_te_schedules():
    a = te.placeholder((8,), name="a")
    b = te.compute((8,), lambda i: a[i] + 1, name="b")
    for build in (anyfn.build, anyfn.lower, anyfn.source):
        with pytest.raises(TypeError, match=r"got a list; a function or schedule knows its arguments: `build\(schedule\)`"):
            build(tir.Schedule(te.create_prim_func([a, b])), [a, b], "llvm")
        with pytest.raises(TypeError, match=r"expected the tensors in one list: `build\(\[a, b, c\]\)`"):
            build(a, b)


def test_passes():
    assert tir.transform is transform and transform.Sequential is transform.Pipeline
    for ours in _tvm_names._PASSES.values():
        assert ours in transform.names()


# --- Names that do not exist -----------------------------------------------------------------------------------------


def owner_of(text):
    """Returns the module or object to which a key of the table of hints refers."""
    objects = {
        "'IRModule' object": tir.IRModule,
        "'Module' object": lambda: anyfn.build(product()),
        "'Schedule' object": lambda: tir.Schedule(product()),
        "'Tensor' object": lambda: anyfn.zeros((1,)),
    }
    return objects[text]() if text in objects else importlib.import_module(text.split("'")[1])


@pytest.mark.parametrize(("owner", "name", "hint"), HINTS, ids=[f"{owner}.{name}" for owner, name, _ in HINTS])
def test_hints(owner, name, hint):
    with pytest.raises(AttributeError) as caught:
        getattr(owner_of(owner), name)
    assert str(caught.value) == f"{owner} has no attribute {name!r}: {hint}"
    assert not hasattr(owner_of(owner), name) and name not in dir(owner_of(owner))
    named = re.findall(r"anyfn(?:\.\w+)*", hint)
    assert named, "the hint names nothing of anyfn"
    for path in named:
        value = anyfn
        for part in path.split(".")[1:]:
            value = getattr(value, part)
    for code in re.findall(r'`(anyfn\.(?:device|transform\.get)\("\w+"\))`', hint):
        eval(code, {"anyfn": anyfn})


def test_a_hint_in_the_traceback(run_python):
    """Checks that Python adds no suggestion to the hint for a TVM name, but still suggests names for misspelt ones."""
    out = run_python("""
import sys, traceback
import anyfn
from anyfn import te, tir, transform

schedule = tir.Schedule(te.create_prim_func([te.compute((4,), lambda i: i)]))
for owner, name in ((anyfn, "relay"), (te, "create_schedule"), (transform, "PassContext"), (schedule, "get_sblock"),
                    (anyfn, "zero"), (te, "placeholde"), (tir, "if_then_els"), (transform, "Pipelin"), (schedule, "reordr")):
    try:
        getattr(owner, name)
    except AttributeError:
        print(traceback.format_exc().splitlines()[-1])
""")
    hints, typos = out.splitlines()[:4], out.splitlines()[4:]
    assert len(typos) == 5 and not [line for line in hints if "id you mean" in line or "anyfn" not in line.split("attribute")[1]]
    if sys.version_info >= (3, 12):
        expected = ["zeros", "placeholder", "if_then_else", "Pipeline", "reorder"]
        assert [re.search("mean: '(.*)'", line).group(1) for line in typos] == expected


def test_other_names_are_missing_as_usual():
    for owner, text in ((anyfn, "module 'anyfn'"), (te, "module 'anyfn.te'"), (tir.IRModule(), "'IRModule' object")):
        with pytest.raises(AttributeError) as caught:
            owner.no_such_name
        assert str(caught.value) == f"{text} has no attribute 'no_such_name'"
        assert not hasattr(caught.value, "name") or caught.value.name == "no_such_name"


def test_the_table_is_read_only_after_a_failure(run_python):
    run_python("""
import sys
from pathlib import Path
import anyfn
from anyfn import nd, rpc, te, tir, transform
from anyfn.tir import transform as same

assert same is transform
tir.Schedule(te.create_prim_func([te.compute((4,), lambda i: i)])).mod.show()
assert "anyfn._tvm_names" not in sys.modules
assert not hasattr(te, "create_schedule") and "anyfn._tvm_names" in sys.modules
""")


# --- The page --------------------------------------------------------------------------------------------------------

if "ANYFN_WHEEL" not in os.environ:
    ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
    PAGE = (ROOT / "docs/coming-from-tvm.md").read_text(encoding="utf-8")

    def test_the_samples_of_the_page(tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        names = {"__name__": "page"}
        samples = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
        for sample in samples:
            exec(compile(sample, "docs/coming-from-tvm.md", "exec"), names)
        assert len(samples) > 8

    def test_the_names_in_the_tables():
        """Checks that all names of anyfn in the page's tables exist."""
        column, checked = None, 0
        for line in PAGE.splitlines():
            if not line.startswith("|"):
                column = None
                continue
            cells = line.strip("| ").split(" | ")
            if column is None:
                column = next(at for at, title in enumerate(cells) if title.lower().endswith("anyfn"))
            elif column < len(cells):
                for path in re.findall(r"\b(?<!\.)((?:anyfn|te|tir|transform|rpc)\.[a-zA-Z_.]+\w)", cells[column]):
                    value = anyfn if path.startswith("anyfn.") else getattr(anyfn, path.split(".")[0])
                    for part in path.split(".")[1:]:
                        value = getattr(value, part)
                    checked += 1
        assert checked > 60, checked
