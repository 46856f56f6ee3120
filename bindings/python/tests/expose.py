"""Everything that the compiler does, done by its registered functions and the methods of its objects alone, as any language
can: ``anyfn.te`` and ``anyfn.tir`` are not imported. Run by ``test_expose.py`` with the compiler's library; prints the
registered functions that were not needed.
"""

import os
import sys
import tempfile

import numpy as np

import anyfn

compiler = anyfn.load_module(sys.argv[1])
used = set()


def call(name, *args):
    used.add(name)
    return anyfn.get_global_func(name)(*args)


# Tensor expressions: a matrix product with bias and relu, and a reduction of one's own.
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
least, most, all_of_them = (
    call("te.compute", [4], make, name)
    for name, make in {
        "least": lambda i: call("te.min", call("tir.neg", call("te.element", x, [i, r])), [r]),
        "most": lambda i: call("te.max", call("tir.call", "exp", [call("te.element", x, [i, r])], None), [r]),
        "all": lambda i: call("te.reduce", product_of, [call("te.element", x, [i, r])], [r], None)[0],
    }.items()
)
reductions = call("te.create_prim_func", [x, least, most, all_of_them], "reductions")

# Calls out of compiled code, and statements.
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

# Text, and back; what is wrong with it.
assert anyfn.structural_equal(call("tir.parse", call("tir.text", func)), func)
call("tir.verify", func)
assert call("tir.text", call("tir.var", "n", "int64")) == "n" and "hi" in call("tir.text", call("tir.string", "hi"))

# What is known of integers.
n = call("tir.var", "n", "int32")
once = call("tir.binary", "-", call("tir.binary", "+", n, n), n)
assert call("tir.text", call("arith.analyzer").simplify(once)) == "n"

# A schedule, by its methods; the default one.
schedule = call("tir.default_schedule", func)
assert schedule.trace().steps

# Each pass by itself, then as pipelines.
for name in call("tir.transform.names"):
    if name in ("vectorize", "unroll"):
        continue
    func_after = call(f"tir.transform.{name}", func)
    assert call("tir.transform.get", name).run(func).same_as(func_after) or func_after is not None
call("tir.transform.unroll", call("tir.transform.vectorize", call("tir.transform.lower_blocks", schedule.func())))
pipeline = call("tir.transform.pipeline", call("tir.transform.default_pipeline").passes(), "mine")

# Built, run, exported.
module = call("tir.module", {"dense": func, "reductions": reductions, "calls": calls})
target = call("compiler.target", {"kind": "c", "options": ["-O2"]})
assert "dense" in call("tir.text", call("compiler.lower", module, target, pipeline))
assert "__tvm_ffi_dense" in call("compiler.source", module, target, None)
built = call("compiler.build", module, target, pipeline, True, None)
left, right = (np.random.default_rng(0).standard_normal(shape).astype("float32") for shape in ((8, 16), (16, 12)))
out = np.empty((8, 12), "float32")
built.dense(left, right, out)
np.testing.assert_allclose(out, np.maximum(left @ right, 0), rtol=1e-4, atol=1e-4)
stepped = np.empty((8, 12), "float32")
call("tir.interpret", func, [left, right, stepped])
np.testing.assert_allclose(out, stepped, rtol=1e-4, atol=1e-4)
rows = np.random.default_rng(1).standard_normal((4, 16)).astype("float32")
results = [np.empty(4, "float32") for _ in range(3)]
built.reductions(rows, *results)
for got, expected in zip(results, ((-rows).min(1), np.exp(rows).max(1), rows.prod(1))):
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
print("unused:", *sorted(set(known) - used))
