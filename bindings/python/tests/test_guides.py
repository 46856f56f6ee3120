"""Tests that every code sample of the guides runs, either in this file or in the test file that names the guide."""

import asyncio
import ctypes
import os
import re
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyfn
import anyfn.testing
import numpy as np
import pytest
from samples import run_page

if "ANYFN_WHEEL" in os.environ:
    pytest.skip("runs with the sources, not with the wheel", allow_module_level=True)
ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")])


def samples(page, language):
    """Returns the code blocks of a language in a page. Attributes after the language, such as ``ignore``, stay in the block."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(rf"^ *```{language}\b(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(block) for block in found]


def named_in(page, *patterns):
    """Returns the source files that contain the path of a page in quotation marks."""
    files = [path for pattern in patterns for path in ROOT.glob(pattern)]
    return [path for path in files if re.search(rf"""["'/]{re.escape(page)}["'`]""", path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", PAGES)
def test_all_samples_are_run_by_some_test(page):
    if samples(page, "python"):
        assert named_in(page, "bindings/python/tests/test_*.py"), f"no test runs the Python samples of {page}"
    if samples(page, "rust"):
        assert named_in(page, "crates/*/src/lib.rs", "compiler/*/src/lib.rs"), f"no doctest has the Rust samples of {page}"
        assert not [block for block in samples(page, "rust") if block.startswith(",")], f"{page} has samples that do not run"
    if samples(page, "c"):
        assert named_in(page, "xtask/src/c_tests.rs"), f"nothing compiles the C samples of {page}"


def test_abi(compile_source, tmp_path):
    add, caller = samples("docs/abi.md", "c")
    compile_source(add, tmp_path / "add.so")
    compile_source(caller, tmp_path / "caller.so")
    run_page("docs/abi.md", {"module": anyfn.load_module(tmp_path / "add.so")}, 1)
    # The caller of the page returns what the function returns, whose result is at an address of ours.
    call = ctypes.CDLL(tmp_path / "caller.so").call_with_answer
    result = (ctypes.c_int64 * 2)(-1, -1)
    function = anyfn.convert(lambda x: x + 1)
    address = anyfn._core.address(function)
    assert call(ctypes.c_void_p(address), result) == 0 and list(result) == [1, 43]


def test_async():
    [sample] = samples("docs/async.md", "python")
    names = {"f": anyfn.testing.add_i64, "x": 1, "y": 2}

    async def main():
        results = []
        body = f"async def run(loop):\n{textwrap.indent(sample, '    ')}"
        # Each line of the sample has a result.
        body = body.replace("result = await", "results.append(result := await").replace("y)\n", "y))\n")
        body = re.sub(r"(timeout=2.5|2.5)\)", r"\1))", body)
        names["results"] = results
        exec(compile(body, "docs/async.md", "exec"), names)
        await names["run"](asyncio.get_running_loop())
        return results

    assert asyncio.run(main()) == [3, 3, 3]


def test_coming_from_tvm_ffi(compile_source, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    compile_source(*samples("docs/coming-from-tvm-ffi.md", "c"), tmp_path / "add_one.so")
    try:
        run_page("docs/coming-from-tvm-ffi.md", {"__name__": "coming"}, 6)
    finally:
        anyfn.remove_global_func("ffi_guide.scale")


def test_coming_from_pyo3():
    run_page("docs/coming-from-pyo3.md", {"__name__": "coming"}, 1)


def test_coming_from_nanobind(compile_source, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name, source in zip(("vectors", "apply", "points"), samples("docs/coming-from-nanobind.md", "c")):
        compile_source(source, tmp_path / f"{name}.so")
    run_page("docs/coming-from-nanobind.md", {"__name__": "coming"}, 3)


def test_compiled(compile_source, monkeypatch, tmp_path):
    library = """
#include <anyfn/anyfn.h>
ANYFN_EXPORT(main) {
  DLTensor* tensors[3];
  for (int i = 0; i < 3; ++i) if (anyfn_arg_tensor(args, num_args, i, &tensors[i])) return -1;
  for (int64_t i = 0; i < anyfn_tensor_size(tensors[2]); ++i)
    ((float*)anyfn_tensor_data(tensors[2]))[i] = ((float*)anyfn_tensor_data(tensors[0]))[i] + ((float*)anyfn_tensor_data(tensors[1]))[i];
  return anyfn_return_none(result);
}
"""
    compile_source(library, tmp_path / "add.so")
    monkeypatch.chdir(tmp_path)
    a, b, c = (np.full(4, value, "float32") for value in (1, 2, 0))
    names = {"anyfn": anyfn, "a": a, "b": b, "c": c}
    first, second = samples("docs/compiled.md", "python")
    exec(compile(first, "docs/compiled.md", "exec"), names)
    assert c.tolist() == [3.0] * 4
    try:
        exec(compile(second, "docs/compiled.md", "exec"), names)
        assert isinstance(names["pool"], ThreadPoolExecutor)
    finally:
        anyfn.set_parallel_launcher(None)
        names["pool"].shutdown()


def test_errors(compile_source, tmp_path):
    names = {}
    try:
        run_page("docs/errors.md", names, 2)
    finally:
        anyfn.remove_global_func("errors.set_threads")
    compile_source(*samples("docs/errors.md", "c"), tmp_path / "errors.so")
    module = anyfn.load_module(tmp_path / "errors.so")
    with pytest.raises(ValueError, match="expected at least one thread, got 0"):
        module.set_threads(0)
    assert module.message(module.set_threads, -1) == "expected at least one thread, got -1"
    with pytest.raises(names["ParseError"], match="text"):
        anyfn.testing.raise_error("ParseError", "text")


def test_functions(compile_source, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    libraries = ("register", "times", "scaled", "twice")
    for name, source in zip(libraries, samples("docs/functions.md", "c")):
        compile_source(source, tmp_path / f"{name}.so")
    try:
        run_page("docs/functions.md", {"__name__": "functions"}, 4)
        modules = [anyfn.load_module(tmp_path / f"{name}.so") for name in libraries]
        modules[0].register_scale()
        assert anyfn.get_global_func("functions.scale_in_c")(1.5) == modules[1].times(1.5) == modules[2].scaled() == 3.0
        assert modules[3].twice(lambda x: x + 1, 40) == 42
    finally:
        for name in ("scale", "scale_in_c", "twice"):
            anyfn.remove_global_func(f"functions.{name}")


def test_objects_in_c(compile_source, run_python, tmp_path):
    """Defines the type of ``docs/objects.md`` in C. A process has one type of each key."""
    compile_source(samples("docs/objects.md", "c")[0], tmp_path / "objects.so")
    run_python(f"""
import anyfn, anyfn.types
anyfn.load_module({str(tmp_path / "objects.so")!r}).setup()
node = anyfn.types.my.Node("a", next=anyfn.types.my.Node("b", size=2))
assert (node.name, node.size, node.next.size, node.next.next) == ("a", 1, 2, None)
""")


def test_tensors_in_c(compile_source, tmp_path):
    compile_source(samples("docs/tensors.md", "c")[0], tmp_path / "tensors.so")
    module = anyfn.load_module(tmp_path / "tensors.so")
    tensor = module.make_tensor()
    assert tensor.tolist() == [[1.5] * 3] * 2
    assert module.sum(tensor) == 9.0 and module.sum(np.arange(4, dtype="float32")) == 6.0


def test_objects(run_python):
    """Runs the samples of ``docs/objects.md``. First defines a function and types that the plugins of the page would define.

    The samples register a converter of ``complex``, so they run in a separate process.
    """
    node, first, second = samples("docs/objects.md", "python")
    run_python(f"""
exec(compile({node!r}, "docs/objects.md", "exec"))
assert str(node) == "Node(name='a', size=1, next=Node(name='b', size=2, next=None))"

@anyfn.object("guide.Placeholder")
class Placeholder(anyfn.Object):
    name: str

@anyfn.object("guide.Tensor")
class Tensor(anyfn.Object):
    op: Placeholder
    shape: anyfn.Array

@anyfn.object("my.Complex")
class Complex(anyfn.Object):
    re: float
    im: float = 0.0

@anyfn.register_func("graph.placeholder")
def placeholder(shape, name):
    return Tensor(Placeholder(name), anyfn.Array(shape))

@anyfn.convert
def multiply(a: Complex, b: Complex) -> Complex:
    return a * b

exec(compile({first!r}, "docs/objects.md", "exec"))
assert x.op.name == "x" and x.shape == [3, 4]
exec(compile({second!r}, "docs/objects.md", "exec"))
assert multiply(2j, 2j) == -4 + 0j
""")


def test_mistakes():
    """Runs ``docs/mistakes.md`` and checks that every line raises the error that the page shows."""
    try:
        run_page("docs/mistakes.md", {"__name__": "mistakes"}, 9)
    finally:
        anyfn.remove_global_func("demo.add")
    text = (ROOT / "docs/mistakes.md").read_text(encoding="utf-8")
    assert len(re.findall(r"  # \w+Error: ", text)) >= 50
