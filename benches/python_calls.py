"""Measures the Python rows for one contender: ``python_calls.py anyfn|peer|nanobind|pyo3 FOLDER [ROW...]``.

FOLDER contains the libraries that ``extensions.py`` has built. Prints ``name=nanoseconds`` for each row, or
``name!reason`` if the contender should have the row but does not.
"""

import asyncio
import ctypes
import functools
import inspect
import json
import os
import subprocess
import sys
import threading
import time
import timeit

import numpy as np

from rows import NODES, PYTHON_SECTIONS, SECTIONS

# Minimum seconds of a slice, and number of slices of each row.
SLICE_S, REPEATS = 0.004, 6


def common():
    """Returns a dict of the Python values and functions that the statements of all contenders use, by name."""

    def fail(*args):
        raise ValueError("told so")

    return dict(
        text="x" * 64, text_1mb="x" * 2**20, data=b"12345678", data_1mb=b"x" * 2**20, list_10=list(range(10)),
        list_1000=list(range(1000)), dict_4={"a": 1, "b": 2, "c": 3, "d": 4},
        dict_1000={f"key {i}": i for i in range(1000)}, nested=[[1, 2, 3], {"a": [4.0, None]}, "text"],
        range_100=range(100), a=np.zeros(4, np.float32), b=np.zeros(4, np.float32), c=np.zeros(4, np.float32),
        py0=lambda: None, callback=lambda *args: None, callback_any=lambda *args: None, callback_0=lambda: None,
        callback_1=lambda x: x, callback_3=lambda a, b, c: None, callback_text=lambda text: None, fail=fail,
        numpy_from_dlpack=np.from_dlpack, threads=threads,
    )  # fmt: skip


def runtime(m, folder, ours):
    """Returns a dict of functions that return the objects used by the rows. `m` is the Python package of anyfn or the peer."""
    get, convert = m.get_global_func, m.convert
    names = {}
    for name in "nop0 nop1 nop3 nop8 nop_float nop_bool nop_str nop_bytes nop_list nop_dict nop_arrays nop_object".split():
        names[name] = lambda: get("testing.nop")
    for name in "echo_int echo_float echo_str echo_bytes".split():
        names[name] = lambda: get("testing.echo")
    loop = "testing.call_n_with" if ours else "bench.call_n"
    for name in "loop1 loop3 loop_str loop_arrays".split():
        names[name] = lambda: get(loop)

    @functools.lru_cache(None)
    def kernels():
        return m.load_module(os.path.join(folder, "kernels.so"))

    @functools.lru_cache(None)
    def kept():
        # A copy of the library, because the setting of `keeping` belongs to the native function.
        return m.load_module(os.path.join(folder, "kernels_kept.so"))

    def keeping(function):
        """Returns a function of a library, after setting that its calls keep the GIL."""
        setattr(function, "releases_gil" if ours else "release_gil", False)
        return function

    for name, called in (("nop", "nop"), ("echo", "echo"), ("apply", "apply"), ("add", "add"), ("loop", "call_n")):
        names[f"library_{name}"] = lambda called=called: kernels()[called]
        names[f"kept_{name}"] = lambda called=called: keeping(kept()[called])
    array = list(range(100))
    names.update(
        get=lambda: get,
        convert=lambda: convert,
        nop=lambda: get("testing.nop"),
        nop_callable=lambda: get("testing.nop"),
        echo=lambda: get("testing.echo"),
        apply=lambda: get("testing.apply"),
        library=kernels,
        packed_any=lambda: convert(lambda *args: None),
        loop0=lambda: get("testing.call_n" if ours else "bench.call_n"),
        add3=lambda: get("testing.add3_i64" if ours else "bench.add3"),
        concat=lambda: get("testing.concat" if ours else "bench.concat"),
        raise_error=lambda: get("testing.raise_error" if ours else "testing.test_raise_error"),
        add=lambda: kernels()["add"],
        bytes_each=lambda: bytes_each(m.__name__, folder),
        module=kernels,
        module_nop=lambda: kernels()["nop"],
        library_loop=lambda: kernels()["call_n"],
        Array=lambda: m.Array,
        List=lambda: m.List,
        array=lambda: convert(array),
        array_str=lambda: convert(["a str that is kept on the heap"] * 100),
        items=lambda: m.List(array),
        map_int=lambda: convert({i: i for i in array}),
        map_str=lambda: convert({f"key {i}": i for i in array}),
        dictionary=lambda: m.Dict({i: i for i in array}),
        from_dlpack=lambda: m.from_dlpack,
        jax_time=lambda: jax_time(m.__name__, "const" if ours else "from_dlpack"),
        load_time=lambda: load_time(m.__name__, folder),
    )
    for name in "ta tb tc".split():
        names[name] = lambda: m.from_dlpack(np.zeros(4, np.float32))
    return names


def graphs(m, define, make_native, save, load):
    """Returns a dict of functions that return trees of `NODES` objects, classes of nodes, or operations on trees.

    `define` defines a class in Python and takes `frozen`; `make_native` creates a node of a type that native code defines.
    """
    get = m.get_global_func

    @functools.lru_cache(None)
    def classes():
        @define("bench.Node", frozen=True)
        class Node(m.Object):
            name: str
            value: int
            args: m.Array

        @define("bench.Other", frozen=True)
        class Other(m.Object):
            name: str

        @define("bench.MutableNode", frozen=False)
        class MutableNode(m.Object):
            name: str
            value: int
            args: m.Array

        return Node, Other, MutableNode

    @functools.lru_cache(None)
    def graph(twin=False, kind="frozen"):
        node = make_native if kind == "native" else classes()[0 if kind == "frozen" else 2]
        level = [node(f"leaf {i}", i, []) for i in range((NODES + 1) // 2)]
        while len(level) > 1:
            level = [node(f"node {i}", i, level[2 * i : 2 * i + 2]) for i in range(len(level) // 2)]
        return level[0]

    def rename(node):
        return classes()[0]("new name", node.value, node.args) if len(node.args) == 0 else node

    return dict(
        Node=lambda: classes()[0],
        Other=lambda: classes()[1],
        graph=graph,
        graph_twin=lambda: graph(True),
        mutable=lambda: graph(False, "mutable"),
        mutable_twin=lambda: graph(True, "mutable"),
        native=lambda: graph(False, "native"),
        native_twin=lambda: graph(True, "native"),
        graph_repr=lambda: repr,
        structural_equal=lambda: m.structural_equal,
        structural_hash=lambda: m.structural_hash,
        # The peer's package has these three only as global functions.
        recursive_equal=lambda: getattr(m, "recursive_equal", None) or get("ffi.RecursiveEq"),
        recursive_hash=lambda: getattr(m, "recursive_hash", None) or get("ffi.RecursiveHash"),
        deep_copy=lambda: getattr(m, "deep_copy", None) or get("ffi.DeepCopy"),
        structural_walk=lambda: m.structural_walk,
        structural_map=lambda: m.structural_map,
        see=lambda: lambda node: None,
        rename=lambda: rename,
        save_json=lambda: save,
        load_json=lambda: load,
        json_text=lambda: save(graph()),
    )


def anyfn(folder):
    import anyfn
    import anyfn.testing
    import anyfn.types

    get = anyfn.get_global_func
    nop = get("testing.nop")
    IntPair = anyfn.types.testing.IntPair

    @functools.lru_cache(None)
    def python_pair():
        @anyfn.object("bench.PythonPair")
        class PythonPair(anyfn.Object):
            a: int
            b: int

        return PythonPair

    return dict(
        runtime(anyfn, folder, True),
        **graphs(
            anyfn,
            functools.partial(anyfn.object, structural="tree"),
            lambda *args: anyfn.types.testing.Node(*args),
            anyfn.save_json,
            anyfn.load_json,
        ),
        add3_by_name=lambda: get("testing.add3_i64"),
        IntPair=lambda: IntPair,
        pair=lambda: IntPair(1, 2),
        to_numpy=lambda: anyfn.Tensor.numpy,
        signature=lambda: inspect.signature,
        type_info=lambda: anyfn.type_info,
        PythonPair=python_pair,
        python_pair=lambda: python_pair()(1, 2),
        async_calls=lambda: async_calls(lambda loop: nop.call_async(1)),
        import_time=lambda: import_time("anyfn"),
    )


def absent(what):
    """Raises the error that states why a contender has no such row."""
    raise NotImplementedError(what)


def peer(folder):
    import tvm_ffi
    import tvm_ffi.testing
    from tvm_ffi.utils import kwargs_wrapper

    tvm_ffi.load_module(os.path.join(folder, "peer_functions.so"))
    nop = tvm_ffi.get_global_func("testing.nop")

    @functools.lru_cache(None)
    def python_pair():
        @tvm_ffi.dataclasses.py_class("bench.PythonPair")
        class PythonPair(tvm_ffi.Object):
            a: int
            b: int

        return PythonPair

    return dict(
        runtime(tvm_ffi, folder, False),
        **graphs(
            tvm_ffi,
            functools.partial(tvm_ffi.dataclasses.py_class, structural_eq="tree"),
            lambda *args: tvm_ffi.get_global_func("bench.make_node")(*args),
            tvm_ffi.serialization.to_json_graph_str,
            tvm_ffi.serialization.from_json_graph_str,
        ),
        add3_by_name=lambda: kwargs_wrapper.make_kwargs_wrapper(tvm_ffi.get_global_func("bench.add3"), ["a", "b", "c"]),
        IntPair=lambda: tvm_ffi.testing.TestIntPair,
        pair=lambda: tvm_ffi.testing.TestIntPair(1, 2),
        to_numpy=lambda: np.from_dlpack,
        # Functions of tvm_ffi have no signature, which `inspect.signature` says.
        signature=lambda: inspect.signature,
        type_info=lambda: absent("tvm_ffi has no public function that returns the class of a type"),
        PythonPair=python_pair,
        python_pair=lambda: python_pair()(1, 2),
        async_calls=lambda: async_calls(lambda loop: loop.run_in_executor(None, nop, 1)),
        import_time=lambda: import_time("tvm_ffi"),
    )


def extension(module, folder):
    """Returns a dict from name to function. The names occur in rows; each function returns a member of an extension module."""
    sys.path.insert(0, folder)
    m = __import__(module)
    names = {name: (lambda value=value: value) for name, value in vars(m).items() if not name.startswith("_")}
    return dict(
        names,
        add3_by_name=lambda: m.add3,
        pair=lambda: m.IntPair(1, 2),
        module=lambda: m,
        import_time=lambda: import_time(module, folder),
    )


# Names of the packages whose objects are measured.
MODULES = {"anyfn": "anyfn", "peer": "tvm_ffi"}
CONTENDERS = {
    "anyfn": anyfn,
    "peer": peer,
    "nanobind": lambda folder: extension("bench_nanobind", folder),
    "pyo3": lambda folder: extension("bench_pyo3", folder),
}


def threads(number, function, count, *args):
    """Calls a function `count` times on each of several threads. Returns the elapsed nanoseconds divided by `count`."""
    ready = threading.Barrier(number + 1)

    def work():
        ready.wait()
        for _ in range(count):
            function(*args)

    started = [threading.Thread(target=work) for _ in range(number)]
    for thread in started:
        thread.start()
    ready.wait()
    start = time.perf_counter_ns()
    for thread in started:
        thread.join()
    return (time.perf_counter_ns() - start) / count


# Number of objects of which `bytes_each` takes the mean, where each is small.
OBJECTS = 20_000


def objects(names, m):
    """Returns a dict from the kind of object to a function that creates the object number `i`, and how many are created."""
    pair, python_pair, get, library = names["IntPair"](), names["PythonPair"](), m.get_global_func, names["library"]()
    array, ints, text, table = np.zeros(4, np.float32), range(1000), "x" * 62, {i: i for i in range(1000)}
    return {
        "pair": (lambda i: pair(i, i), OBJECTS),
        "python_pair": (lambda i: python_pair(i, i), OBJECTS),
        # Objects without a Python wrapper, as those of a graph: the array holds a copy of each.
        "pair_in_array": (lambda i: m.Array([pair(j, j) for j in range(100)]), 200),
        "function": (lambda i: m.convert(lambda: None), OBJECTS),
        "looked_up": (lambda i: get("testing.nop"), OBJECTS),
        "of_library": (lambda i: library["nop"], OBJECTS),
        "tensor": (lambda i: m.from_dlpack(array), OBJECTS),
        "array_4": (lambda i: m.Array(range(4)), OBJECTS),
        "array_1000": (lambda i: m.Array(ints), 200),
        "array_text": (lambda i: m.Array([f"{text}{j:02}" for j in range(100)]), 200),
        "list_1000": (lambda i: m.List(ints), 200),
        "map_4": (lambda i: m.Map({j: j for j in range(4)}), OBJECTS),
        "map_1000": (lambda i: m.Map(table), 200),
        "dict_1000": (lambda i: m.Dict(table), 200),
    }


class Mallinfo(ctypes.Structure):
    """`struct mallinfo2` of the C library."""

    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks used fordblks keep".split()]


def allocated():
    """Returns the number of bytes that are allocated in this process, including the headers of the allocations."""
    import gc

    gc.collect()
    function = ctypes.CDLL(None).mallinfo2
    function.restype = Mallinfo
    found = function()
    return found.used + found.hblkhd


def measure_objects(contender, folder):
    """Prints the bytes of one object of each kind as JSON. Python's allocator must be that of the C library."""
    names = CONTENDERS[contender](folder)
    found = {}
    for kind, (make, count) in objects(names, __import__(MODULES[contender])).items():
        # The first objects may create tables that all share.
        kept = [make(i) for i in range(10)]
        kept = [None] * count
        before = allocated()
        for i in range(count):
            kept[i] = make(i)
        found[kind] = (allocated() - before) / count
        del kept
    print(json.dumps(found))


@functools.lru_cache(None)
def bytes_of_objects(module, folder):
    contender = next(who for who, name in MODULES.items() if name == module)
    environment = dict(os.environ, PYTHONMALLOC="malloc")
    command = [sys.executable, __file__, contender, folder, "--objects"]
    return json.loads(subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout)


def bytes_each(module, folder):
    """Returns a function that returns how many bytes an object of a kind occupies, measured in another process."""
    return lambda kind: bytes_of_objects(module, folder)[kind]


def async_calls(start_call):
    """Returns a function that measures consecutive calls on an event loop, each of which is awaited before the next begins."""

    async def calls(count):
        loop = asyncio.get_running_loop()
        await start_call(loop)
        start = time.perf_counter_ns()
        for _ in range(count):
            await start_call(loop)
        return (time.perf_counter_ns() - start) / count

    return lambda count: asyncio.run(calls(count))


def import_time(module, folder=""):
    """Returns a function that measures importing a module in a fresh interpreter that has imported NumPy."""
    program = (
        "import numpy, sys, time; sys.path.insert(0, sys.argv[2]); start = time.perf_counter_ns();"
        "__import__(sys.argv[1]); print(time.perf_counter_ns() - start)"
    )
    return lambda: float(subprocess.check_output([sys.executable, "-c", program, module, folder]))


LOAD = """
import os, shutil, sys, tempfile, time
# As most processes have it, and with it the library of C++.
import numpy
module, library, what = sys.argv[1:]
load, now = __import__(module).load_module, time.perf_counter_ns
with tempfile.TemporaryDirectory() as folder:
    copies = [shutil.copy(library, os.path.join(folder, f"{i}.so")) for i in range(1 if what == "first" else 9)]
    found, kept = [], []
    for path in copies:
        start = now()
        library = load(path)
        loaded = now()
        if what in ("call", "and_call"):
            try:
                # Refused by its own code.
                library["add"](None)
            except TypeError:
                pass
        end = now()
        if what == "again":
            load(path)
            start, loaded = end, now()
        found.append(end - loaded if what == "call" else max(loaded, end) - start)
        kept.append(library)
# The first one is the first use of the runtime, too.
print(min(found[1:] or found))
"""


def load_time(module, folder):
    """Returns a function that measures loading a library in a fresh process.

    The result is in nanoseconds: the minimum of several copies, or the first copy.
    """

    def measured(name, what):
        command = [sys.executable, "-c", LOAD, module, os.path.join(folder, name), what]
        return float(subprocess.check_output(command, stderr=subprocess.PIPE))

    return measured


JAX = """
import os, sys, timeit
import numpy
# JAX is installed only beside the peer.
sys.path.extend(filter(None, [os.environ.get("BENCH_JAX")]))
import jax
module, name = sys.argv[1:]
convert, array = getattr(__import__(module), name), jax.numpy.zeros(4, numpy.float32)
print(min(timeit.repeat("convert(array)", repeat=20, number=1000, globals=globals())) * 1e6)
"""


def jax_time(module, name):
    """Returns a function that measures making a tensor from an array of JAX, in a fresh process: JAX starts threads."""
    command = [sys.executable, "-c", JAX, module, name]
    return lambda: float(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout)


def measure(row, names):
    """Measures one row of the benchmark and returns its nanoseconds per item."""
    if row.statement.startswith("="):
        return direct(row.statement[1:], names) / row.per
    timer = timeit.Timer(row.statement, row.setup, globals=names)
    count = 1
    while timer.timeit(count) < SLICE_S:
        count *= 2
    best = min(timer.repeat(REPEATS, count))
    empty = min(timeit.repeat("pass", repeat=REPEATS, number=count))
    return (best - empty) / count * 1e9 / row.per


def direct(expression, names):
    """Returns the minimum of several evaluations of an expression that measures nanoseconds. `{n}` becomes a number of calls."""
    count = 64
    if "{n}" in expression:
        while eval(expression.format(n=count), names) * count < SLICE_S * 1e9:
            count *= 2
    return min(eval(expression.format(n=count), names) for _ in range(REPEATS))


def main(contender, folder, *only):
    if only == ("--objects",):
        measure_objects(contender, folder)
        return
    names, why = common(), {}
    for name, make in CONTENDERS[contender](folder).items():
        try:
            names[name] = make()
        except Exception as error:
            why[name] = f"{type(error).__name__}: {error}"
    expected = contender in ("anyfn", "peer")
    for row in (row for section in PYTHON_SECTIONS for row in SECTIONS[section]):
        if only and row.name not in only:
            continue
        try:
            print(f"{row.name}={measure(row, names):.2f}", flush=True)
        except Exception as error:
            missing = isinstance(error, NameError)
            if missing and not expected:
                continue
            reason = why.get(getattr(error, "name", None)) if missing else None
            print(f"{row.name}!{reason or f'{type(error).__name__}: {error}'}".replace("\n", " "), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
