"""Uses every feature of the compiler through registered functions and methods of objects only, as code in any language can.

``anyfn.te`` and ``anyfn.tir`` are not imported. ``test_expose.py`` runs this program with the compiler's library. The
program prints the registered functions, and the methods of ``CLASSES``, that it did not use.
"""

import os
import sys
import tempfile

import numpy as np

import anyfn

CLASSES = ("tir.Schedule", "tir.Trace", "tir.Pipeline", "tir.PrimFunc", "arith.Analyzer")
compiler = anyfn.load_module(sys.argv[1])
used = set()


def call(name, *args):
    used.add(name)
    return anyfn.get_global_func(name)(*args)


def method(name, *args):
    """Calls a method by its qualified name, such as `tir.Schedule.split`, with the object as the first argument."""
    used.add(name)
    key, _, name = name.rpartition(".")
    return anyfn.type_info(key).method(name).function(*args)


# Tensor expressions: a matrix product with bias and relu, and a custom reduction.
a = call("te.placeholder", [8, 16], "float32", "A")
b = call("te.placeholder", [16, 12], "float32", "B")
k = call("te.reduce_axis", 0, 16, "k")


def product(i, j):
    return call("te.sum", call("tir.binary", "*", call("te.element", a, [i, k]), call("te.element", b, [k, j])), [k])


c = call("te.compute", [8, 12], product, "C")
relu = call(
    "te.compute",
    [8, 12],
    lambda i, j: call(
        "tir.select",
        call("tir.not", call("tir.binary", "<", call("te.element", c, [i, j]), call("tir.const", 0.0, "float32"))),
        call("te.element", c, [i, j]),
        call("tir.cast", 0, "float32"),
    ),
    "relu",
)
func = call("te.create_prim_func", [a, b, relu], "dense")
r = call("te.reduce_axis", 0, 16, "r")
product_of = call("te.reducer", lambda x, y: call("tir.binary", "*", x, y), [1.0])
x = call("te.placeholder", [4, 16], "float32", "X")
least, most, prod, all_of_them = (
    call("te.compute", [4], make, name)
    for name, make in {
        "least": lambda i: call("te.min", call("tir.neg", call("te.element", x, [i, r])), [r]),
        "most": lambda i: call("te.max", call("tir.call", "exp", [call("te.element", x, [i, r])], None), [r]),
        "prod": lambda i: call("te.prod", call("te.element", x, [i, r]), [r]),
        "all": lambda i: call("te.reduce", product_of, [call("te.element", x, [i, r])], [r], None)[0],
    }.items()
)
reductions = call("te.create_prim_func", [x, least, most, prod, all_of_them], "reductions")

# Calls from compiled code, and statements.
def double(given, wanted):
    np.multiply(np.asarray(given), 2, out=np.asarray(wanted))


anyfn.register_func("expose.double", double)
y = call("te.placeholder", [4], "float64", "Y")


def body(ins, outs):
    part = call("tir.buffer_at", ins[0], [0], [4])
    loop = call("tir.for_loop", 4, lambda i: call("tir.store", outs[1], call("tir.call_extern", "cbrt", [8.0], "float64"), [i]))
    return call("tir.seq", [call("tir.call_packed", "expose.double", [call("tir.read_only", part), outs[0]]), loop])


doubled, twos = call("te.extern", [[4], [4]], ["float64", "float64"], [y], body, "doubled")
calls = call("te.create_prim_func", [y, doubled, twos], "calls")
assert call("tir.decl_buffer", [4], "int8", "memory").name == "memory"

# Printing and parsing, and errors in the source.
assert anyfn.structural_equal(call("tir.parse", call("tir.text", func)), func)
assert anyfn.structural_equal(call("tir.parse", call("tir.tvmscript", func), {}), func)
call("tir.verify", func)
assert call("tir.text", call("tir.var", "n", "int64")) == "n" and "hi" in call("tir.text", call("tir.string", "hi"))

# Integer analysis.
n = call("tir.var", "n", "int32")
once = call("tir.binary", "-", call("tir.binary", "+", n, n), n)
analyzer, m = call("arith.analyzer"), call("tir.var", "m", "int32")
assert call("tir.text", method("arith.Analyzer.simplify", analyzer, once)) == "n"
method("arith.Analyzer.enter", analyzer)
method("arith.Analyzer.bind", analyzer, n, 0, 8)
method("arith.Analyzer.assume", analyzer, call("tir.binary", "<", m, 3))
assert method("arith.Analyzer.can_prove", analyzer, call("tir.binary", "<", m, 4))
four = call("tir.binary", "+", call("tir.binary", "*", n, 4), 1)
assert list(method("arith.Analyzer.const_bound", analyzer, four)) == [1, 29]
assert list(method("arith.Analyzer.modular", analyzer, four)) == [4, 1]
assert [call("tir.text", limit) for limit in method("arith.Analyzer.bounds", analyzer, four, [n])] == ["1", "29"]
assert [[call("tir.text", part) for part in span] for span in method("arith.Analyzer.region", analyzer, [[n]], [n])] == [["0", "8"]]
method("arith.Analyzer.leave", analyzer)
assert not method("arith.Analyzer.can_prove", analyzer, call("tir.binary", "<", m, 4))

# Parts of a function, and constants.
marked = method("tir.PrimFunc.with_attr", func, "mark", 1)
assert marked.attrs["mark"] == 1 and method("tir.PrimFunc.with_body", marked, marked.body).same_as(marked)
assert [call("tir.limit", "int8", largest).value for largest in (False, True)] == [-128, 127]
assert call("tir.text", call("tir.truncdiv", n, 2)) == "n / 2" and call("tir.text", call("tir.isnan", n)) == "False"
assert call("tir.text", call("tir.power", n, 2)) == "n * n" and call("tir.text", call("tir.abs", n)) == "max(n, 0 - n)"

# Schedules: their methods, and the default schedule.
schedule = call("tir.default_schedule", func)
assert method("tir.Schedule.trace", schedule).steps
rest = method("tir.Schedule.new", func)
call("tir.finish_schedule", rest, None)
assert anyfn.structural_equal(method("tir.Schedule.func", rest), method("tir.Schedule.func", schedule))
p = call("te.compute", [8], lambda i: call("tir.binary", "+", call("te.element", a, [i, 0]), 1.0), "P")
q = call("te.compute", [8], lambda i: call("tir.binary", "*", call("te.element", p, [i]), 2.0), "Q")
line = call("te.create_prim_func", [a, q], "line")


def scheduled(func, steps):
    """Applies steps to a function, checks that replaying their trace gives the same result, and returns it as source."""
    schedule = method("tir.Schedule.new", func)
    steps(schedule, lambda block: method("tir.Schedule.get_loops", schedule, block))
    method("tir.Schedule.set_source", schedule, "steps.c:7", "split(loop);", 0)
    result, trace = method("tir.Schedule.func", method("tir.Schedule.copy", schedule)), method("tir.Schedule.trace", schedule)
    assert anyfn.structural_equal(method("tir.Schedule.func", method("tir.Schedule.replay", func, trace)), result)
    assert "  # steps.c:7: split(loop);" in method("tir.Trace.text", trace, True)
    call("tir.verify", result)
    return call("tir.text", result)


def tiles(schedule, loops):
    assert [method("tir.Schedule.get_block", schedule, name) for name in method("tir.Schedule.get_blocks", schedule)]
    i, j, k = loops("C")
    outer, inner = method("tir.Schedule.split", schedule, i, [None, 4])
    method("tir.Schedule.reorder", schedule, [outer, j, inner, k])
    method("tir.Schedule.decompose_reduction", schedule, "C", k)
    method("tir.Schedule.parallel", schedule, method("tir.Schedule.fuse", schedule, [outer, j]))
    method("tir.Schedule.unroll", schedule, loops("relu")[0])
    method("tir.Schedule.vectorize", schedule, loops("relu")[1])


def copies(schedule, loops):
    copy = method("tir.Schedule.cache_read", schedule, "C", "A", "global")
    method("tir.Schedule.transform_layout", schedule, copy, copy, lambda i, k: [k, i], None)
    method("tir.Schedule.pad_axes", schedule, "C", [16])
    method("tir.Schedule.annotate", schedule, "C", "note", 1)
    method("tir.Schedule.compute_at", schedule, "C", loops("relu")[0])


def results(schedule, loops):
    method("tir.Schedule.cache_write", schedule, "relu", 0, "local")
    method("tir.Schedule.rfactor", schedule, "C", loops("C")[2])


def threads(schedule, loops):
    method("tir.Schedule.set_scope", schedule, "C", 0, "shared")
    method("tir.Schedule.bind", schedule, loops("relu")[0], "blockIdx.x")


assert 'bind("blockIdx.x", 8)' in scheduled(func, threads)
assert "parallel" in scheduled(func, tiles) and "note" in scheduled(func, copies) and "C_rf" in scheduled(func, results)
scheduled(func, lambda schedule, loops: method("tir.Schedule.reverse_compute_at", schedule, "relu", loops("C")[1]))
for name, block in (("compute_inline", "P"), ("reverse_compute_inline", "Q")):
    text = scheduled(line, lambda schedule, _: method(f"tir.Schedule.{name}", schedule, block))
    assert text.count("with block") == 2

# Each pass alone, then passes in pipelines.
for name in call("tir.transform.names"):
    if name in ("vectorize", "unroll"):
        continue
    assert anyfn.structural_equal(call("tir.transform.get", name).run(func), call(f"tir.transform.{name}", func))
call("tir.transform.unroll", call("tir.transform.vectorize", call("tir.transform.lower_blocks", schedule.func())))
pipeline = call("tir.transform.pipeline", method("tir.Pipeline.passes", call("tir.transform.default_pipeline")), "mine")
other, seen = method("tir.Pipeline.copy", pipeline), []
method("tir.Pipeline.put", other, "before", None, call("tir.transform.get", "check_bounds"))
method("tir.Pipeline.remove", other, "hoist")
names = list(method("tir.Pipeline.names", other))
assert names[0] == "check_bounds" and sorted([*names, "hoist"]) == sorted(["check_bounds", *method("tir.Pipeline.names", pipeline)])
method("tir.Pipeline.watch", other, lambda is_after, place, name, module: seen.append(name) if is_after else None)
method("tir.Pipeline.show", other, True, ["simplify"], lambda title, text: seen.append(title))
with tempfile.TemporaryDirectory() as folder:
    method("tir.Pipeline.dump", other, folder)
    after = method("tir.Pipeline.run", other, func)
    assert len(os.listdir(folder)) == len(names) + 1
    assert anyfn.structural_equal(method("tir.Pipeline.as_pass", other).run(func), after)
    seen = seen[: len(seen) // 2]
assert [name for name in seen if name != "after simplify"] == names and "after simplify" in seen
assert [name for name, _ in method("tir.Pipeline.times", other)] == names

# Building, running, exporting.
module = call("tir.module", {"dense": func, "reductions": reductions, "calls": calls})
target = call("compiler.target", {"kind": "c", "options": ["-O2"]})
assert "dense" in call("tir.text", call("compiler.lower", module, target, pipeline))
assert "__tvm_ffi_dense" in call("compiler.source", module, target, None)
assert list(call("compiler.notes", module, target)) == []
call("compiler.print_progress", False)
built = call("compiler.build", module, target, pipeline, True, None)
left, right = (np.random.default_rng(0).standard_normal(shape).astype("float32") for shape in ((8, 16), (16, 12)))
out = np.empty((8, 12), "float32")
built.dense(left, right, out)
np.testing.assert_allclose(out, np.maximum(left @ right, 0), rtol=1e-4, atol=1e-4)
stepped = np.empty((8, 12), "float32")
call("tir.interpret", func, [left, right, stepped])
np.testing.assert_allclose(out, stepped, rtol=1e-4, atol=1e-4)
rows = np.random.default_rng(1).standard_normal((4, 16)).astype("float32")
results = [np.empty(4, "float32") for _ in range(4)]
built.reductions(rows, *results)
for got, expected in zip(results, ((-rows).min(1), np.exp(rows).max(1), rows.prod(1), rows.prod(1))):
    np.testing.assert_allclose(got, expected, rtol=1e-4)
assert "__tvm_ffi_calls" in call("compiler.source_of_built", built)
numbers, results = np.arange(4.0), [np.empty(4), np.empty(4)]
built.calls(numbers, *results)
assert results[0].tolist() == [0, 2, 4, 6] and results[1].tolist() == [2, 2, 2, 2]
with tempfile.TemporaryDirectory() as folder:
    call("compiler.export", built, os.path.join(folder, "f.c"))
    assert "__tvm_ffi_dense" in open(os.path.join(folder, "f.c"), encoding="utf-8").read()

assert not {"anyfn.te", "anyfn.tir", "anyfn.transform"} & set(sys.modules)
known = (name for name in anyfn.list_global_func_names() if name.partition(".")[0] in ("te", "tir", "arith", "compiler"))
methods = (f"{key}.{method.name}" for key in CLASSES for method in anyfn.type_info(key).methods)
print("unused:", *sorted({*known, *methods} - used))
