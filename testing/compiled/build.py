"""Builds libraries with apache-tvm, for the tests of calls into compiled code.

    .x/venv-tvm/bin/python testing/compiled/build.py FOLDER

A second run without changes does nothing. Only this program needs apache-tvm; the libraries need anyfn alone.
"""

import fcntl
import hashlib
import sys
from pathlib import Path

# Libraries to build, by name: the function that creates the module, and the target. The decorator `library`
# adds them.
LIBRARIES = {}


def library(target="llvm"):
    """Returns a decorator for functions that create a module. Each module becomes a library named after its function."""

    def register(make):
        LIBRARIES[make.__name__] = (make, target)
        return make

    return register


def stamp():
    import importlib.metadata as metadata

    text = Path(__file__).read_bytes()
    versions = [metadata.version(name) for name in ("apache-tvm", "apache-tvm-ffi")]
    return hashlib.sha256(text + " ".join([*versions, *native()]).encode()).hexdigest()


def native():
    """Returns a list with the highest supported x86-64 level, v4 or v3, or an empty list."""
    flags = set()
    if Path("/proc/cpuinfo").exists():
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("flags"):
                flags |= set(line.split())
    for name, needs in (("x86-64-v4", "avx512f avx512bw avx512cd avx512dq avx512vl"), ("x86-64-v3", "avx2 bmi2 fma f16c")):
        if flags.issuperset(needs.split()):
            return [name]
    return []


def widest():
    names = native()
    return {"kind": "llvm", "mcpu": names[0]} if names else "llvm"


def elementwise(op, shape, dtype="float32", name="main", out=None):
    from tvm import te

    a = te.placeholder(shape, name="A", dtype=dtype)
    b = te.placeholder(shape, name="B", dtype=dtype)
    c = te.compute(shape, lambda *at: op(a(*at), b(*at)).astype(out or dtype), name="C")
    return te.create_prim_func([a, b, c]).with_attr("global_symbol", name)


@library()
def add():
    return elementwise(lambda x, y: x + y, (1024,))


@library(widest)
def wide():
    return elementwise(lambda x, y: x + y, (1024,))


@library()
def small():
    return elementwise(lambda x, y: x + y, (4,))


@library()
def parallel():
    from tvm import s_tir

    schedule = s_tir.Schedule(elementwise(lambda x, y: x * y + x, (1 << 16,)))
    (loop,) = schedule.get_loops(schedule.get_sblock("C"))
    outer, _ = schedule.split(loop, [None, 1024])
    schedule.parallel(outer)
    return schedule.mod


@library()
def parallel_small():
    from tvm import s_tir

    schedule = s_tir.Schedule(elementwise(lambda x, y: x + y, (16,)))
    schedule.parallel(*schedule.get_loops(schedule.get_sblock("C")))
    return schedule.mod


@library()
def parallel_large():
    from tvm import s_tir, te, tirx

    a = te.placeholder((1 << 20,), name="A")
    c = te.compute((1 << 20,), lambda i: tirx.exp(tirx.sin(a[i])) + tirx.sqrt(a[i]), name="C")
    schedule = s_tir.Schedule(te.create_prim_func([a, c]))
    (loop,) = schedule.get_loops(schedule.get_sblock("C"))
    outer, _ = schedule.split(loop, [None, 4096])
    schedule.parallel(outer)
    return schedule.mod


def reversed_twice():
    from tvm import te

    a = te.placeholder((512, 512), name="A")
    # This buffer is too large for the stack.
    t = te.compute((512, 512), lambda i, j: a[i, j] * 2, name="T")
    s = te.compute((512, 512), lambda i, j: t[511 - i, 511 - j] + 1, name="S")
    return te.create_prim_func([a, s])


@library()
def workspace():
    return reversed_twice()


@library()
def call_packed():
    from tvm import te, tirx

    a = te.placeholder((16,), name="A")
    call = lambda ins, outs: tirx.call_packed("compiled_test.double", ins[0], outs[0])  # noqa: E731
    c = te.extern((16,), [a], call, name="C", dtype="float32")
    return te.create_prim_func([a, c])


@library()
def matmul():
    from tvm import te

    k = te.reduce_axis((0, 96), "k")
    a = te.placeholder((64, 96), name="A")
    b = te.placeholder((96, 32), name="B")
    c = te.compute((64, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_prim_func([a, b, c])


@library()
def rowsum():
    from tvm import te

    n, m = te.var("n"), te.var("m")
    k = te.reduce_axis((0, m), "k")
    a = te.placeholder((n, m), name="A", dtype="int32")
    c = te.compute((n,), lambda i: te.sum(a[i, k].astype("int64"), axis=k), name="C")
    return te.create_prim_func([a, c])


@library()
def softmax():
    from tvm import te, tirx

    rows, columns = 33, 65
    a = te.placeholder((rows, columns), name="A")
    k1, k2 = te.reduce_axis((0, columns), "k1"), te.reduce_axis((0, columns), "k2")
    top = te.compute((rows,), lambda i: te.max(a[i, k1], axis=k1), name="M")
    e = te.compute((rows, columns), lambda i, j: tirx.exp(a[i, j] - top[i]), name="E")
    total = te.compute((rows,), lambda i: te.sum(e[i, k2], axis=k2), name="S")
    c = te.compute((rows, columns), lambda i, j: e[i, j] / total[i], name="C")
    return te.create_prim_func([a, c])


@library()
def half():
    return elementwise(lambda x, y: x * y, (100,), "float16")


@library()
def bytes_product():
    return elementwise(lambda x, y: x.astype("int32") * y.astype("int32"), (5, 7), "int8", out="int32")


@library()
def dynamic():
    from tvm import te

    n = te.var("n")
    return elementwise(lambda x, y: x - y, (n,))


@library()
def scaled():
    from tvm import te

    n, k = te.var("n"), te.var("k", "float32")
    a = te.placeholder((n,), name="A")
    c = te.compute((n,), lambda i: a[i] * k, name="C")
    return te.create_prim_func([k, a, c])


@library("c")
def c_add():
    return elementwise(lambda x, y: x + y, (1024,))


@library("c")
def c_workspace():
    return reversed_twice()


@library()
def several():
    import tvm

    plus, minus = (lambda x, y: x + y), (lambda x, y: x - y)
    return tvm.IRModule(
        {"plus": elementwise(plus, (8,), name="plus"), "minus": elementwise(minus, (8,), "int64", name="minus")}
    )


@library()
def system():
    import tvm

    name = "compiled_test_plus"
    mod = tvm.IRModule({name: elementwise(lambda x, y: x + y, (1024,), name=name)})
    return mod.with_attr("system_lib_prefix", "compiled_test_")


def build(folder):
    import tvm

    for name, (make, target) in LIBRARIES.items():
        target = target() if callable(target) else target
        built = tvm.compile(make(), target=tvm.target.Target(target))
        # A process may have mapped the old file, so a new file replaces it.
        built.export_library(str(folder / f"{name}.new.so"))
        (folder / f"{name}.new.so").rename(folder / f"{name}.so")


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    # Tests that run at the same time may build the libraries, so they take a lock.
    with open(folder / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done, now = folder / "stamp", stamp()
        if not done.exists() or done.read_text(encoding="ascii") != now:
            build(folder)
            done.write_text(now, encoding="ascii")


if __name__ == "__main__":
    main()
