"""Prints functions with apache-tvm as TVMScript, and reads TVMScript that anyfn has printed, for tests of that syntax.

    .x/venv-tvm/bin/python testing/compiled/scripts.py print FOLDER
    .x/venv-tvm/bin/python testing/compiled/scripts.py read FOLDER

`print` writes NAME.py, a script, and NAME.npz, its inputs (in0, ..) and the outputs (out0, ..) that apache-tvm computes.
A second run without changes does nothing. `read` reads each NAME.py of a folder, compares it with NAME.origin.py (if there
is one) node by node, and compares its outputs for the inputs in NAME.npz with the outputs there.
"""

import fcntl
import hashlib
import sys
from pathlib import Path

import numpy as np

# Functions by name, with the number of their inputs.
FUNCTIONS = {}


def add(name, inputs, *outputs):
    from tvm import te

    FUNCTIONS[name] = (te.create_prim_func([*inputs, *outputs]).with_attr("global_symbol", name), len(inputs))


def tensor(name, shape, dtype="float32"):
    from tvm import te

    return te.placeholder(shape, name=name, dtype=dtype)


def of_one(name, op, shape=(6, 5), dtype="float32"):
    a = tensor("A", shape, dtype)
    results = op(a)
    add(name, [a], *(results if isinstance(results, (list, tuple)) else [results]))


def of_two(name, op, first=(6, 5), second=(6, 5), dtype="float32", other=None):
    a, b = tensor("A", first, dtype), tensor("B", second, other or dtype)
    add(name, [a, b], op(a, b))


def elementwise():
    from tvm import topi

    names = """exp log sqrt sin cos tan tanh sigmoid erf floor ceil round trunc abs sign negative rsqrt isnan isfinite isinf log2
               log10 asin acos atan sinh cosh fast_tanh"""
    for name in names.split():
        of_one(name, getattr(topi, name))
    names = """add subtract multiply divide maximum minimum power floor_divide floor_mod mod less greater_equal equal not_equal
               log_add_exp"""
    for name in names.split():
        of_two(name, getattr(topi, name))
    for name in "left_shift right_shift bitwise_and bitwise_or bitwise_xor floor_divide floor_mod mod divide".split():
        of_two(f"int_{name}", getattr(topi, name), dtype="int32")
    of_one("bitwise_not", topi.bitwise_not, dtype="int32")
    of_two("logical_and", topi.logical_and, dtype="bool")
    of_two("logical_or", topi.logical_or, dtype="bool")
    of_one("logical_not", topi.logical_not, dtype="bool")
    of_two("broadcast_add", topi.add, (6, 5), (5,))
    for dtype in ("int32", "int8", "float16", "float64", "bool"):
        of_one(f"cast_{dtype}", lambda a: topi.cast(a, dtype))
    of_one("clip", lambda a: topi.clip(a, -0.5, 0.5))
    of_two("where", lambda a, b: topi.where(topi.greater(a, b), a, b))


def reductions_and_shapes():
    from tvm import tirx, topi

    of_one("sum", lambda a: topi.sum(a, axis=1))
    of_one("sum_all", topi.sum)
    of_one("max", lambda a: topi.max(a, axis=0, keepdims=True))
    of_one("min", lambda a: topi.min(a, axis=1))
    of_one("prod", lambda a: topi.prod(a, axis=1))
    of_one("all", lambda a: topi.all(a, axis=1), dtype="bool")
    of_one("any", lambda a: topi.any(a, axis=1), dtype="bool")
    of_one("argmax", lambda a: topi.argmax(a, axis=1))
    of_one("argmin", lambda a: topi.argmin(a, axis=1))
    of_one("cumsum", lambda a: topi.cumsum(a, axis=1))
    of_one("cumprod", lambda a: topi.cumprod(a, axis=1))
    of_one("transpose", topi.transpose)
    of_one("reshape", lambda a: topi.reshape(a, (5, 6)))
    of_one("expand_dims", lambda a: topi.expand_dims(a, 1))
    of_one("flip", lambda a: topi.flip(a, 0))
    of_one("tile", lambda a: topi.tile(a, (2, 3)))
    of_one("repeat", lambda a: topi.repeat(a, 2, 0))
    of_one("strided_slice", lambda a: topi.strided_slice(a, [1, 0], [5, 5], [2, 1]))
    of_one("split", lambda a: topi.split(a, 2, 0))
    of_one("broadcast_to", lambda a: topi.broadcast_to(a, (4, 6, 5)))
    of_one("layout_transform", lambda a: topi.layout_transform(a, "NCHW", "NCHW4c"), (1, 8, 3, 3))
    of_one("trilu", lambda a: topi.trilu(a, tirx.const(0, "int32"), True))
    of_two("concatenate", lambda a, b: topi.concatenate([a, b], axis=0))
    of_two("stack", lambda a, b: topi.stack([a, b], axis=0))
    of_two("take", lambda a, b: topi.take(a, b, axis=0), (6, 5), (3,), other="int32")
    of_two("gather", lambda a, b: topi.gather(a, 0, b), (6, 5), (3, 5), other="int64")
    of_two("gather_nd", topi.gather_nd, (6, 5), (2, 3), other="int32")
    of_two("one_hot", lambda a, b: topi.one_hot(b, 1.0, 0.0, 5, 1, "float32"), (6, 5), (3,), other="int32")
    of_two("sequence_mask", topi.sequence_mask, (6, 5), (5,), other="int32")
    of_two("matmul", topi.matmul, (6, 5), (5, 7))
    of_two("tensordot", lambda a, b: topi.tensordot(a, b, axes=1), (6, 5), (5, 4))
    of_two("einsum", lambda a, b: topi.einsum("ij,jk->ik", a, b), (6, 5), (5, 4))


def networks():
    from tvm import topi
    from tvm.topi import nn

    of_one("relu", nn.relu)
    of_one("leaky_relu", lambda a: nn.leaky_relu(a, 0.1))
    of_one("softmax", lambda a: nn.softmax(a, axis=1))
    of_one("log_softmax", lambda a: nn.log_softmax(a, axis=1))
    of_one("pad", lambda a: nn.pad(a, (1, 2), (0, 1), 1.5))
    of_one("max_pool", lambda a: nn.pool2d(a, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max"), (1, 3, 8, 8))
    mean = lambda a: nn.pool2d(a, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "avg", count_include_pad=False)
    of_one("mean_pool", mean, (1, 3, 8, 8))
    of_one("global_pool", lambda a: nn.global_pool(a, "avg"), (1, 3, 8, 8))
    of_one("adaptive_pool", lambda a: nn.adaptive_pool(a, (2, 2), "avg"), (1, 3, 8, 8))
    of_one("lrn", lambda a: nn.lrn(a, 3), (1, 4, 5, 5))
    of_one("depth_to_space", lambda a: nn.depth_to_space(a, 2), (1, 8, 3, 3))
    of_one("dilate", lambda a: nn.dilate(a, (2, 1)))
    sizes = (0.0, 0.0, 0.0, 0.0), (8, 8)
    of_one("bilinear", lambda a: topi.image.resize2d(a, *sizes, method="linear"), (1, 2, 4, 4))
    of_two("dense", nn.dense, (6, 5), (7, 5))
    of_two("batch_matmul", nn.batch_matmul, (2, 6, 5), (2, 7, 5))
    of_two("conv2d", lambda a, b: nn.conv2d_nchw(a, b, 1, 1, 1), (1, 3, 8, 8), (4, 3, 3, 3))
    of_two("conv2d_nhwc", lambda a, b: nn.conv2d_nhwc(a, b, 2, 1, 1), (1, 8, 8, 3), (3, 3, 3, 4))
    of_two("depthwise", lambda a, b: nn.depthwise_conv2d_nchw(a, b, 1, 1, 1), (1, 3, 8, 8), (3, 1, 3, 3))
    of_two("group_conv2d", lambda a, b: nn.group_conv2d_nchw(a, b, 1, 1, 1, 2), (1, 4, 8, 8), (4, 2, 3, 3))
    transposed = lambda a, b: nn.conv2d_transpose_nchw(a, b, (2, 2), (1, 1), "float32", (0, 0))
    of_two("conv2d_transpose", transposed, (1, 3, 8, 8), (3, 4, 3, 3))
    of_two("conv3d", lambda a, b: nn.conv3d_ncdhw(a, b, 1, 1, 1, 1), (1, 2, 4, 6, 6), (3, 2, 3, 3, 3))
    x, scale, bias = tensor("x", (4, 6, 5)), tensor("scale", (5,)), tensor("bias", (5,))
    add("layer_norm", [x, scale, bias], nn.layer_norm(x, scale, bias, [2]))
    add("rms_norm", [x, scale], nn.rms_norm(x, scale, [2]))


def symbolic():
    from tvm import te, topi

    n, m = te.var("n"), te.var("m", "int64")
    x = tensor("x", (n, 8))
    add("symbolic_exp", [x], topi.exp(x))
    x, y = tensor("x", (m,)), tensor("y", (m,))
    add("symbolic_add", [x, y], topi.add(x, y))
    k = te.reduce_axis((0, n), name="k")
    a, b = tensor("a", (n,)), tensor("b", (n,))
    add("symbolic_dot", [a, b], te.compute((), lambda: te.sum(a[k] * b[k], axis=k), name="dot"))


def scheduled():
    from tvm import s_tir

    def of(name, base, steps):
        func, inputs = FUNCTIONS[base]
        schedule = s_tir.Schedule(func)
        steps(schedule)
        FUNCTIONS[name] = (schedule.mod["main"].with_attr("global_symbol", name), inputs)

    def tiled(schedule):
        block = schedule.get_sblock("T_matmul")
        i, j, k = schedule.get_loops(block)
        outer, inner = schedule.split(i, [None, 2])
        left, right = schedule.split(j, [None, 4])
        schedule.reorder(outer, left, k, inner, right)
        schedule.vectorize(right)
        schedule.parallel(outer)
        schedule.unroll(inner)
        schedule.decompose_reduction(block, k)

    def cached(schedule):
        block = schedule.get_sblock("T_matmul")
        result = schedule.cache_write(block, 0, "local")
        schedule.reverse_compute_at(result, schedule.get_loops(block)[0])
        schedule.annotate(schedule.get_loops(block)[0], "note", 1)

    def fused(schedule):
        i, j = schedule.get_loops(schedule.get_sblock("compute"))
        _, lanes = schedule.split(schedule.fuse(i, j), [None, 8])
        schedule.vectorize(lanes)

    def factored(schedule):
        block = schedule.get_sblock("A_red")
        _, inner = schedule.split(schedule.get_loops(block)[-1], [None, 5])
        schedule.rfactor(inner, 0)

    of("scheduled_tiles", "matmul", tiled)
    of("scheduled_cache", "matmul", cached)
    of("scheduled_vectors", "tanh", fused)
    of("scheduled_factor", "sum", factored)


# Scripts by hand, whose statements Python and apache-tvm evaluate: body of the loop over i, input type, output type.
BY_HAND = {
    "python_division": ("B[i] = A[i] * T.float32(1 / 4) + 1 / 2", "float32", "float32"),
    "python_comparison": ("B[i] = T.if_then_else(3 / 2 > 1, A[i], 0)", "float32", "float32"),
    "python_large": ("B[i] = A[i] + (1 << 33) + 100000 * 100000", "int64", "int64"),
    "python_floor": ("B[i] = A[i] + -7 // 2 + -7 % 3 + ~5 - -(3)", "int32", "int32"),
    "wider_integer": ("B[i] = T.Cast(\"int32\", A[i] * T.int64(1000000000) // T.int64(1000))", "int32", "int32"),
    "wider_float": ("B[i] = T.Cast(\"float32\", (A[i] + T.float64(1e9)) - T.float64(1e9))", "float32", "float32"),
    "half": ("B[i] = T.Cast(\"float32\", A[i] * 20000.0 * 0.001)", "float16", "float32"),
    "byte": ("B[i] = T.if_then_else(A[i] * 100 > 300, 1, 0)", "int8", "int32"),
    "unsigned_byte": ("B[i] = T.if_then_else(A[i] - 4 < 0, 1, 0)", "uint8", "int32"),
    "halves_to_even": ("B[i] = T.round(A[i] * 0.0 + T.Cast(\"float32\", i) + 0.5 - 4.0)", "float32", "float32"),
    "bits_of_conditions": ("B[i] = T.if_then_else((A[i] > 1) & (A[i] < 3) | (A[i] == 0), 1, 2)", "int32", "int32"),
}


def by_hand(name):
    body, taken, given = BY_HAND[name]
    return f"""# from tvm.script import tirx as T

@T.prim_func(s_tir=True)
def {name}(A: T.Buffer((8,), "{taken}"), B: T.Buffer((8,), "{given}")):
    for i in range(8):
        {body}
"""


def arrays(name, func, inputs):
    """Returns arrays for all parameters: inputs with small numbers that suit all functions, and empty outputs."""
    random, made = np.random.default_rng(len(name)), []
    for place, param in enumerate(func.params):
        buffer = func.buffer_map[param] if hasattr(func, "buffer_map") else param
        shape = [int(extent) if hasattr(extent, "value") else 7 for extent in buffer.shape]
        dtype = str(buffer.dtype)
        if place >= inputs:
            made.append(np.zeros(shape, dtype))
        elif dtype == "bool":
            made.append(random.integers(0, 2, shape).astype(bool))
        elif "int" in dtype:
            # Also indices and divisors.
            made.append(random.integers(1, 4, shape).astype(dtype))
        else:
            made.append(random.uniform(0.1, 0.9, shape).astype(dtype))
    return made


def compiled(func, name):
    import tvm

    return tvm.compile(func, target="llvm")[name]


def call(function, given):
    import tvm

    tensors = [tvm.runtime.tensor(array) for array in given]
    function(*tensors)
    return [one.numpy() for one in tensors]


def write(folder):
    elementwise()
    reductions_and_shapes()
    networks()
    symbolic()
    scheduled()
    for old in folder.glob("*.py"):
        old.unlink()
    sources = {name: by_hand(name) for name in BY_HAND}
    for name, source in sources.items():
        import tvm

        FUNCTIONS[name] = (tvm.script.from_source(source), 1)
    for name, (func, inputs) in FUNCTIONS.items():
        given = arrays(name, func, inputs)
        results = call(compiled(func, name), given)
        saved = {f"in{place}": array for place, array in enumerate(given[:inputs])}
        saved |= {f"out{place}": array for place, array in enumerate(results[inputs:])}
        np.savez(folder / f"{name}.npz", **saved)
        (folder / f"{name}.py").write_text(sources.get(name, func.script() + "\n"), encoding="utf-8")


def read(folder):
    import tvm

    count, failed = 0, []
    for path in sorted(folder.glob("*.py")):
        if path.name.endswith(".origin.py"):
            continue
        name = path.stem
        try:
            func = tvm.script.from_source(path.read_text(encoding="utf-8"))
            origin = path.with_name(f"{name}.origin.py")
            if origin.exists():
                expected = tvm.script.from_source(origin.read_text(encoding="utf-8"))
                tvm.ir.assert_structural_equal(func, expected)
            saved = np.load(path.with_suffix(".npz"))
            given = [saved[key] for key in saved if key.startswith("in")]
            outputs = [saved[key] for key in saved if key.startswith("out")]
            got = call(compiled(func, name), [*given, *(np.zeros_like(output) for output in outputs)])
            for one, output in zip(got[len(given) :], outputs):
                np.testing.assert_allclose(one, output, rtol=1e-5, atol=1e-6)
        except Exception as error:
            failed.append(f"{name}: {error}\n{path.read_text(encoding='utf-8')}")
        count += 1
    if failed:
        sys.exit("\n".join(failed))
    print(count)


def stamp():
    import importlib.metadata as metadata

    versions = [metadata.version(name) for name in ("apache-tvm", "apache-tvm-ffi")]
    return hashlib.sha256(Path(__file__).read_bytes() + " ".join(versions).encode()).hexdigest()


def main():
    task, folder = sys.argv[1], Path(sys.argv[2])
    if task == "read":
        return read(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # Tests that run at the same time may need the scripts, so they take a lock.
    with open(folder / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done, now = folder / "stamp", stamp()
        if not done.exists() or done.read_text(encoding="ascii") != now:
            write(folder)
            done.write_text(now, encoding="ascii")


if __name__ == "__main__":
    main()
