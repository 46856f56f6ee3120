"""Tests of passes written in Python, and of pipelines that are listed, changed, observed, timed and printed."""

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import anyfn
from anyfn import te, tir, transform

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))


def square(name="f", n=8):
    x = te.placeholder((n,), name="X")
    y = te.compute((n,), lambda i: x[i] * x[i], name="Y")
    return te.create_prim_func([x, y], name=name)


def run(func, x, name="f", **options):
    out = np.empty_like(x)
    anyfn.build(func, **options)[name](x, out)
    return out


def mul_to_pow(node):
    return tir.pow(node.a, 2.0) if anyfn.structural_equal(node.a, node.b) else node


@transform.prim_func_pass
def with_pow(func):
    return anyfn.structural_map(func, (tir.Mul, mul_to_pow))


def test_a_pass_is_applied_to_a_function_a_module_and_in_a_build():
    assert (with_pow.name, with_pow.kind, repr(with_pow)) == ("with_pow", "prim_func", "<prim_func pass 'with_pow'>")
    assert "pow(X[v_i0], 2.0)" in str(with_pow(square()))
    module = with_pow(tir.IRModule({"f": square(), "g": square("g")}, {}))
    assert str(module).count("pow(") == 2
    x = np.arange(8, dtype="float32")
    source = anyfn._compiler.source(square(), passes=[with_pow])
    assert "powf(" in source and "powf(" not in anyfn._compiler.source(square())
    np.testing.assert_allclose(run(square(), x, passes=[with_pow]), x * x)


def test_what_does_not_change_stays_the_same_object():
    func = square()
    same = transform.prim_func_pass(lambda func: func, name="same")
    assert same(func).same_as(func)
    module = tir.IRModule({"f": func}, {})
    assert same(module).same_as(module)


def test_a_pass_takes_the_module_too_if_it_has_two_parameters():
    seen = []

    @transform.prim_func_pass(name="see")
    def look(func, module):
        seen.append(sorted(module.functions))
        return func

    look(tir.IRModule({"f": square(), "g": square("g")}, {}))
    assert seen == [["f", "g"], ["f", "g"]]

    @transform.module_pass
    def rename(module):
        return tir.IRModule({f"{name}_2": func for name, func in module.functions.items()}, {})

    assert (rename.kind, list(rename(tir.IRModule({"f": square()}, {})).functions)) == ("module", ["f_2"])
    with pytest.raises(ValueError, match="pass `rename` has removed function `f`"):
        rename(square())


def test_an_exception_comes_back_as_itself_and_tells_pass_and_function():
    mistake = KeyError("inside")

    @transform.prim_func_pass
    def broken(func):
        raise mistake

    pipeline = transform.default_pipeline()
    pipeline.insert_after("lower_blocks", broken)
    for call in (lambda: broken(square()), lambda: anyfn.build(square(), pipeline=pipeline)):
        with pytest.raises(KeyError) as caught:
            call()
        assert caught.value is mistake
        assert mistake.__notes__ == ["in pass `broken` on function `f`"]

    @transform.module_pass
    def outer(module):
        return broken(module)

    with pytest.raises(KeyError) as caught:
        outer(square())
    assert caught.value is mistake
    assert mistake.__notes__ == ["in pass `broken` on function `f`", "in pass `outer`"]


def test_a_native_error_tells_the_pass():
    @transform.prim_func_pass
    def wrong(func):
        return anyfn.get_global_func("tir.binary")("?", 1, 2)

    with pytest.raises(ValueError, match="unknown binary operator") as caught:
        wrong(square())
    assert caught.value.__notes__ == ["in pass `wrong` on function `f`"]


@pytest.mark.parametrize(
    "op, args, text",
    [
        ("exp", lambda i, x: [i], "expected a floating-point number as argument 0 of `exp`, got int32 (`astype` converts it)"),
        ("pow", lambda i, x: [x, i], "expected a floating-point number as argument 1 of `pow`, got int32"),
        ("rsqrt", lambda i, x: [], "`rsqrt` takes 1 argument, got 0"),
        ("hypot", lambda i, x: [x, x.astype("float64")], "the arguments of `hypot` have different data types"),
    ],
)
def test_a_pass_that_calls_a_function_with_wrong_operands(op, args, text):
    @transform.prim_func_pass
    def wrong(func):
        def call(node):
            is_product = isinstance(node.a, tir.BufferLoad)
            return tir.Call("float32", op, args(node.a.indices[0], node.a)) if is_product else node

        return anyfn.structural_map(func, (tir.Mul, call))

    pipeline = transform.default_pipeline()
    pipeline.insert_before("lower_blocks", wrong)
    for options in ({"passes": [wrong]}, {"pipeline": pipeline}):
        with pytest.raises(TypeError) as caught:
            anyfn.build(square(), **options)
        message = str(caught.value)
        assert message.startswith(f"function `f`: {text}") and f": {op}(" in message, message
        assert caught.value.__notes__ == ["in pass `wrong`"]


@pytest.mark.parametrize(
    "result, text",
    [
        (None, "pass `odd` must return a `tir.PrimFunc` but returned `None` (is a `return` missing?)"),
        (3, "pass `odd` must return a `tir.PrimFunc` but returned `int`"),
        (tir.var("i"), "pass `odd` must return a `tir.PrimFunc` but returned `tir.Var`"),
    ],
)
def test_a_pass_that_returns_something_else(result, text):
    with pytest.raises(TypeError) as caught:
        transform.prim_func_pass(lambda func: result, name="odd")(square())
    assert str(caught.value) == text
    module_pass = transform.module_pass(lambda module: result, name="odd")
    with pytest.raises(TypeError) as caught:
        module_pass(square())
    assert str(caught.value) == text.replace("PrimFunc", "IRModule")


def test_what_is_no_pass_and_no_program():
    with pytest.raises(TypeError, match="expected a pass, a pipeline or a function but got int"):
        transform.Pipeline([3])
    with pytest.raises(TypeError, match="expected a function but got str"):
        transform.module_pass("x")
    for passes in ("simplify", ["simplify"]):
        with pytest.raises(TypeError, match=r'got a string; look up the pass by its name: `transform.get\("simplify"\)`'):
            anyfn.build(square(), passes=passes)
    with pytest.raises(TypeError, match=r"`three\(func, mod, ctx\)`: a pass takes `func`, or `func, mod`; there is no context"):

        @transform.prim_func_pass
        def three(func, mod, ctx):
            return func

    with pytest.raises(TypeError, match=r"`two\(mod, ctx\)`: a module pass takes `mod`; there is no context"):

        @transform.module_pass
        def two(mod, ctx):
            return mod


def test_one_pass_instead_of_a_list():
    for one in (with_pow, transform.Pipeline([with_pow]), lambda func: with_pow(func)):
        assert "pow" in str(anyfn.lower(square(), passes=one))
    with pytest.raises(TypeError, match="pass `with_pow` takes a tir.PrimFunc or tir.IRModule but got `tir.Var`"):
        with_pow(tir.var("i"))


def nothing(name):
    return transform.prim_func_pass(lambda func: func, name=name)


def test_a_pipeline_is_listed_and_changed():
    pipeline = transform.Pipeline([nothing("a"), nothing("b"), nothing("a")], name="mine")
    assert list(pipeline.names()) == ["a", "b", "a_2"]
    pipeline.append(nothing("z"))
    pipeline.insert_before("b", nothing("b0"))
    pipeline.insert_after("b", nothing("b1"))
    pipeline.replace("a_2", nothing("c"))
    pipeline.remove("a")
    assert list(pipeline.names()) == ["b0", "b", "b1", "c", "z"]
    assert repr(pipeline) == "<pipeline 'mine': b0, b, b1, c, z>"
    copy = pipeline.copy()
    copy.remove("z")
    assert (len(copy.names()), len(pipeline.names())) == (4, 5)
    with pytest.raises(ValueError, match="pipeline `mine` has no pass `x`; it has b0, b, b1, c, z"):
        pipeline.insert_before("x", nothing("y"))
    for show in (pipeline.print_before, pipeline.print_after):
        with pytest.raises(ValueError, match="pipeline `mine` has no pass `x`; it has b0, b, b1, c, z"):
            show(["b", "x"])
    assert transform.Sequential is transform.Pipeline


def test_a_pipeline_in_a_pipeline_and_plain_functions():
    calls = []

    def plain(func):
        calls.append(func.attrs["global_symbol"])
        return func

    inner = transform.Sequential([plain], name="inner")
    outer = transform.Sequential([inner, plain])
    assert list(outer.names()) == ["inner", "plain"]
    func = square()
    assert outer(func).same_as(func)
    assert calls == ["f", "f"]


def test_each_pass_of_the_compiler_can_be_applied_alone():
    names = transform.names()
    assert {"lower_blocks", "vectorize", "unroll"} <= set(names)
    for name in names:
        assert transform.get(name).name == name
        anyfn.get_global_func(f"tir.transform.{name}")
    lowered = anyfn.get_global_func("tir.transform.lower_blocks")(square())
    assert "block(" in str(square()) and "block(" not in str(lowered)
    with pytest.raises(ValueError, match="unknown pass 'simplyfy'; did you mean 'simplify'?"):
        transform.get("simplyfy")
    with pytest.raises(ValueError, match="unknown pass 'fold'; known are inline, default_schedule, "):
        transform.get("fold")


def test_the_page_tells_what_each_pass_does():
    told = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/passes.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert told == list(transform.default_pipeline().names())


def test_the_default_pipeline_can_be_taken_apart():
    default = transform.default_pipeline()
    module = tir.IRModule({"f": square()}, {})
    expected = default(module)
    for one in default.passes():
        module = one(module)
    assert str(module) == str(expected)
    x = np.arange(8, dtype="float32")
    np.testing.assert_allclose(run(square(), x, pipeline=default.passes()), x * x)


def test_a_run_is_timed_and_watched():
    pipeline = transform.default_pipeline()
    events = []
    pipeline.watch(lambda *event: events.append(event))
    pipeline(square())
    assert [name for name, _ in pipeline.times()] == list(pipeline.names())
    assert all(0 <= seconds < 10 for _, seconds in pipeline.times())
    names = [name for name in pipeline.names() for _ in (False, True)]
    assert [event[2] for event in events] == names
    assert [event[:2] for event in events[:3]] == [(False, 0), (True, 0), (False, 1)]
    assert all(isinstance(event[3], tir.IRModule) for event in events)

    def refuse(is_after, place, name, module):
        raise OSError("enough")

    pipeline.watch(refuse)
    with pytest.raises(OSError, match="enough"):
        pipeline(square())


def test_the_program_is_printed_before_and_after(capsys):
    pipeline = transform.default_pipeline()
    pipeline.insert_before("lower_blocks", with_pow)
    printed = []
    pipeline.print_before("lower_blocks", to=lambda *shown: printed.append(shown))
    pipeline.print_after(["lower_blocks", "with_pow"], to=lambda *shown: printed.append(shown))
    pipeline(square())
    assert [title for title, _ in printed] == ["after with_pow", "before lower_blocks", "after lower_blocks"]
    assert printed[0][1] == printed[1][1] and "pow(X[v_i0]" in printed[0][1]
    assert "block(" not in printed[2][1] and "pow(X[i0]" in printed[2][1]
    pipeline = transform.Pipeline([with_pow])
    pipeline.print_after()
    pipeline(square())
    shown = capsys.readouterr().err
    assert shown.startswith("# after with_pow\nmodule()\n\ndef f(")


def test_the_stages_are_written_into_a_folder(tmp_path):
    pipeline = transform.default_pipeline()
    pipeline.dump(str(tmp_path / "stages"))
    anyfn.build(square(), pipeline=pipeline)
    files = sorted(path.name for path in (tmp_path / "stages").iterdir())
    stages = [f"{place:02}_{name}.txt" for place, name in enumerate(pipeline.names(), 1)]
    assert files == ["00_input.txt", *stages]
    assert "with block(" in (tmp_path / "stages" / "00_input.txt").read_text()
    assert "with block(" not in (tmp_path / "stages" / files[-1]).read_text()
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="file"):
        pipeline.dump(str(tmp_path / "file" / "inside"))


def test_scheduling_is_done_by_passes():
    x = te.placeholder((64,), name="X")
    y = te.compute((64,), lambda i: x[i] + 1, name="Y")
    func = te.create_prim_func([x, te.compute((64,), lambda i: y[i] * 2, name="Z")], name="f")

    def lowered(*without):
        pipeline = transform.default_pipeline()
        for name in without:
            pipeline.remove(name)
        given = np.arange(64, dtype="float32")
        assert (run(func, given, pipeline=pipeline) == (given + 1) * 2).all()
        return str(anyfn.lower(func, pipeline=pipeline))

    assert list(transform.default_pipeline().names())[:3] == ["inline", "default_schedule", "lower_blocks"]
    inlined, separate, serial = lowered(), lowered("inline"), lowered("inline", "default_schedule")
    assert "alloc(" not in inlined and "ramp(" in inlined
    assert "alloc(" in separate and "ramp(" in separate
    assert "alloc(" in serial and "ramp(" not in serial and "scheduled" not in serial
    only = transform.get("inline")(func)
    assert str(only).count("with block(") == 2 and "scheduled" not in only.attrs
    assert transform.get("inline")(only).same_as(only)


def rows(n=33):
    """Returns a function with a parallel loop, and arrays for its parameters."""
    func = tir.parse(
        """
        def f(A: Buffer((n, 8), float32), B: Buffer((n, 8), float32)):
            for i in parallel(n):
                for j in range(8):
                    B[i, j] = A[i, j] * 2.0
        """
    )
    return func, np.arange(n * 8, dtype="float32").reshape(n, 8), np.zeros((n, 8), "float32")


def test_parallel_lowering_is_a_pass_that_a_pipeline_replaces():
    func, x, out = rows()
    assert "with launch(A, B):\n" in str(anyfn.lower(func))
    assert "anyfn_parallel(f_task0, &shared)" in anyfn.source(func)

    @transform.prim_func_pass
    def serial(func):
        """Makes parallel loops serial."""

        def change(node):
            if node.kind != "parallel":
                return node
            return tir.For(node.loop_var, node.min, node.extent, "serial", node.body, node.annotations)

        return anyfn.structural_map(func, (tir.For, change))

    @transform.prim_func_pass
    def two_tasks(func):
        """Launches each parallel loop in two tasks."""
        func = transform.get("lower_parallel")(func)
        two = tir.IntImm("int32", 2)
        return anyfn.structural_map(func, (tir.Launch, lambda node: tir.Launch(two, node.captures, node.body)))

    for one, part in ((serial, None), (two_tasks, "anyfn_parallel_in(2, f_task0, &shared)")):
        pipeline = transform.default_pipeline()
        pipeline.replace("lower_parallel", one)
        source = anyfn.source(func, pipeline=pipeline)
        assert part in source if part else "f_task0" not in source
        out[:] = 0
        anyfn.build(func, pipeline=pipeline)["f"](x, out)
        assert (out == x * 2).all()
        assert one.name in [name for name, _ in pipeline.times()]


def test_code_needs_lowered_loops():
    pipeline = transform.default_pipeline()
    pipeline.remove("lower_parallel")
    with pytest.raises(ValueError, match="cannot generate C code for parallel loop `i`; run the pass `lower_parallel`"):
        anyfn.source(rows()[0], pipeline=pipeline)


def test_a_function_without_a_packed_entry_is_a_plain_function_of_c(tmp_path):
    func, x, out = rows()
    pipeline = transform.default_pipeline()
    pipeline.remove("make_packed_api")
    source = anyfn.source(func, {"kind": "c", "vector_bytes": 0}, pipeline=pipeline)
    assert "ANYFN_EXPORT int32_t f(int32_t n, const float* restrict A, float* restrict B) {" in source
    assert "__tvm_ffi_f(" not in source and "__tvm_ffi_f(" in anyfn.source(func)
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "f.c").write_text(source)
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", tmp_path / "f.so", tmp_path / "f.c", "-lm"]
    subprocess.run(command, check=True)
    plain = ctypes.CDLL(os.fspath(tmp_path / "f.so")).f
    assert plain(len(x), *(ctypes.c_void_p(array.ctypes.data) for array in (x, out))) == 0
    assert (out == x * 2).all()


def break_it(func):
    """Replaces all loads from buffers by loads from an undefined buffer."""
    stranger = tir.decl_buffer((8,), name="stranger")
    return anyfn.structural_map(func, (tir.BufferLoad, lambda node: stranger[node.indices[0]]))


def test_a_pass_that_breaks_the_program_is_named():
    pipeline = transform.default_pipeline()
    pipeline.insert_after("lower_blocks", break_it)
    with pytest.raises(NameError, match="stranger") as caught:
        anyfn.build(square(), pipeline=pipeline)
    assert caught.value.__notes__ == ["in pass `break_it`"]


def test_a_pipeline_in_itself_is_an_error():
    alone = transform.Pipeline([], name="alone")
    alone.append(alone)
    outer, inner = transform.Pipeline([], name="outer"), transform.Pipeline([], name="inner")
    outer.append(inner)
    inner.append(outer)
    for pipeline in (alone, inner, outer):
        with pytest.raises(RecursionError, match=f"does `{pipeline.name}` contain itself"):
            pipeline(square())
        with pytest.raises(RecursionError, match="contain itself"):
            anyfn.build(square(), pipeline=pipeline)
    assert repr(alone) == "<pipeline 'alone': alone>"
    alone.remove("alone")
    assert alone(square()) is not None
    for _ in range(50):
        alone = transform.Pipeline([alone])
    assert alone(square()) is not None


def test_the_guide():
    """Runs the samples of ``docs/passes.md`` in order."""
    text = (ROOT / "docs/passes.md").read_text(encoding="utf-8")
    names = {}
    samples = re.findall(r"```python\n(.*?)```", text, re.S)
    assert samples
    for sample in samples:
        exec(compile(sample, "docs/passes.md", "exec"), names)
    for name in ("doc.sort", "doc.rate"):
        anyfn.remove_global_func(name)
