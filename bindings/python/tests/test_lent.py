"""Tests of borrowed tensors, which native code passes to a callback for the duration of the call.

A tensor shares the memory of an array if an array owns that memory. Otherwise it is a copy, which is written back.
"""

import ctypes
import gc
import subprocess
import sys
import textwrap
import threading
import time
import typing

import numpy as np
import pytest

import anyfn
import anyfn.testing as t
from anyfn import _core, rpc, te, tir

F32 = np.float32


class Value(ctypes.Structure):
    """The struct ``TVMFFIAny`` of the ABI, which contains a value."""

    _fields_ = [("type_index", ctypes.c_int32), ("len", ctypes.c_uint32), ("value", ctypes.c_void_p)]


class View(ctypes.Structure):
    """The struct ``DLTensor``, which describes a tensor."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64),
    ]  # fmt: skip


def numbers(values):
    return (ctypes.c_int64 * max(len(values), 1))(*values)


def view(address, shape, strides=None, dtype=(2, 32, 1), offset=0, device=(1, 0)):
    strides = None if strides is None else numbers(strides)
    return View(address, (ctypes.c_int32 * 2)(*device), len(shape), *dtype, numbers(shape), strides, offset)


def lend(callback, *views):
    """Passes borrowed tensors to a callback as C code does: the tensors are valid only during the call."""
    library = ctypes.CDLL(_core.LIBRARY)
    arguments = (Value * len(views))(*(Value(7, 0, ctypes.addressof(view)) for view in views))
    result, function = Value(), anyfn.convert(callback)
    handle = ctypes.c_void_p(_core.address(function))
    code = library.TVMFFIFunctionCall(handle, arguments, len(views), ctypes.byref(result))
    if code == 0:
        return
    error = ctypes.c_void_p()
    library.TVMFFIErrorMoveFromRaised(ctypes.byref(error))
    # The header of 24 bytes is followed by the address and size of the kind, and then of the message.
    texts = (ctypes.c_uint64 * 4).from_address(error.value + 24)
    kind, message = (ctypes.string_at(texts[i], texts[i + 1]).decode() for i in (0, 2))
    library.TVMFFIObjectDecRef(error)
    raise {"RuntimeError": RuntimeError, "TypeError": TypeError, "ValueError": ValueError}[kind](message)


def lend_array(callback, *arrays):
    """Passes the memory of arrays to a callback as borrowed tensors that do not refer to the arrays."""
    return lend(
        callback,
        *(view(a.ctypes.data, a.shape, [s // a.itemsize for s in a.strides], ("iuf".index(a.dtype.kind), a.itemsize * 8, 1))
          for a in arrays),
    )  # fmt: skip


ESCAPES = {
    "array": "kept.append(np.asarray(x))",
    "part": "kept.append(x[1:])",
    "view": "kept.append(x.view('uint32'))",
    "reshaped": "kept.append(x.reshape(2, -1))",
    "memoryview": "kept.append(memoryview(np.asarray(x)))",
    "dlpack": "kept.append(np.from_dlpack(x))",
    "capsule": "kept.append(Holder(x.__dlpack__(max_version=(1, 0))))",
    "list": "kept.append(anyfn.List([x]))",
}


@pytest.mark.parametrize("escape", ESCAPES)
def test_what_outlives_the_call_never_shows_memory_that_is_gone(escape):
    # The tensor has separate memory that is unmapped after the call, so that reading it would crash.
    program = f"""
    import ctypes, mmap, sys
    sys.path.insert(0, {str(__file__.rsplit("/", 1)[0])!r})
    from test_lent import *
    class Holder:
        def __init__(self, capsule): self.capsule = capsule
        def __dlpack__(self, **options): return self.capsule
        def __dlpack_device__(self): return (1, 0)
    kept = []
    memory = mmap.mmap(-1, 1 << 20)
    array = np.frombuffer(memory, F32)
    array[:] = 3
    def callback(x):
        {ESCAPES[escape]}
    try:
        lend_array(callback, array)
    except RuntimeError as error:
        print("kept its argument #0" in str(error))
    del array
    memory.close()
    for one in kept:
        one = one[0] if isinstance(one, anyfn.List) else one
        one = anyfn.from_dlpack(one) if isinstance(one, (Holder, anyfn.Tensor)) else one
        one = one.numpy() if isinstance(one, anyfn.Tensor) else np.asarray(one)
        print(sorted(set(one.ravel().view("f4").tolist())))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True\n[3.0]\n"


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=F32),
        np.arange(24, dtype=F32).reshape(4, 6)[1:3, ::2],
        np.arange(24, dtype=np.int64).reshape(4, 6).T[::-1],
        np.arange(5, dtype=np.uint8)[::-1],
        np.zeros((3, 0), F32),
        np.array(7, F32),
    ],
    ids=["plain", "strided", "reversed", "bytes", "empty", "single"],
)
def test_changes_are_written_back(array):
    expected, seen = array * 2 + 1, []

    def change(x):
        seen.append((x.shape, x.is_contiguous, np.asarray(x).tolist()))
        shown = np.asarray(x)
        shown[...] = shown * 2 + 1
        # The tensor and the array made from it share their memory.
        assert x.tolist() == shown.tolist()

    before = array.tolist()
    lend_array(change, array)
    assert seen == [(array.shape, True, before)]
    np.testing.assert_array_equal(array, expected)


def test_changes_are_written_back_when_the_callback_fails():
    array = np.zeros(4, F32)

    def fail(x):
        np.asarray(x)[1] = 5
        raise ValueError("after the change")

    with pytest.raises(ValueError, match="after the change"):
        lend_array(fail, array)
    assert array.tolist() == [0, 5, 0, 0]


def test_only_bytes_that_have_changed_are_written_back():
    array = np.arange(6, dtype=F32)

    def change(x):
        np.asarray(x)[2] = 20
        # Writes concurrently, as another task of a parallel loop would.
        array[4] = 40

    lend_array(change, array)
    assert array.tolist() == [0, 1, 20, 3, 40, 5]


def test_packed_elements_are_written_back():
    memory = ctypes.create_string_buffer(b"\x21\x43", 2)
    def change(x):
        x.copyfrom([1, 7, 3, 4])

    lend(change, view(ctypes.addressof(memory), [4], dtype=(0, 4, 1)))
    assert memory.raw == b"\x71\x43"


def test_two_arguments_of_the_same_memory():
    array, seen = np.zeros(3, F32), []

    def change(a, b, part):
        np.asarray(a)[0] = 1
        seen.append(b.tolist())
        np.asarray(b)[1] = 2
        np.asarray(part)[1] = 3

    lend_array(change, array, array, array[1:])
    assert seen == [[1, 0, 0]]
    assert array.tolist() == [1, 2, 3]


def test_a_kept_tensor_is_empty_and_keeps_the_copy_for_others():
    array, kept = np.ones(3, F32), []
    with pytest.raises(RuntimeError, match=r"kept its argument #1.*copy"):
        lend_array(lambda a, b: kept.append(b), array, np.zeros(2, F32))
    assert kept[0].shape == (0,) and kept[0].tolist() == []
    with pytest.raises(RuntimeError, match=r"returned its argument #0"):
        lend_array(lambda a: a, array)


def test_memory_of_a_device_without_a_driver_is_not_lent():
    """Memory of other devices is copied on the device; ``test_opencl_compiled.py`` tests that."""
    with pytest.raises(RuntimeError, match="device cuda:0 is not available"):
        lend(lambda x: None, view(4096, [2], device=(2, 0)))


@pytest.fixture
def kernel():
    """Returns a function that compiles a kernel, which calls a Python function with the buffers X and Y."""

    def build(function, shape=(4,), kind=None):
        anyfn.register_func("lent.function", function, override=True)

        def body(ins, outs):
            call = lambda i: tir.call_packed("lent.function", tir.read_only(ins[0]), outs[0])  # noqa: E731
            return tir.for_loop(8, call, kind=kind) if kind else call(0)

        x = te.placeholder(shape, name="X")
        y = te.extern(shape, [x], body, name="Y", dtype="float32")
        return anyfn.build(te.create_prim_func([x, y], name="f"))["f"]

    yield build
    anyfn.remove_global_func("lent.function")


def test_arguments_of_the_caller_are_shown_in_place_and_may_be_kept(kernel):
    kept = []

    def function(x, y):
        assert type(x) is type(y) is anyfn.Tensor
        np.asarray(y)[:] = np.asarray(x) + 1
        kept.extend([x, np.asarray(y), y[1:3]])

    f = kernel(function)
    x, y = np.arange(4, dtype=F32), np.zeros(4, F32)
    f(x, y)
    assert np.shares_memory(kept[0].numpy(), x) and np.shares_memory(kept[1], y)
    address = y.ctypes.data
    del x, y
    gc.collect()
    assert kept[1].ctypes.data == address and kept[1].tolist() == [1, 2, 3, 4] and kept[2].tolist() == [2, 3]


def test_a_part_that_comes_back_is_not_taken_for_the_array():
    array, parts = np.arange(6, dtype=F32), []

    def inner(x):
        # Describes part of the array that the enclosing call has as an argument.
        part = view(x.ctypes.data + 4, [2])
        lend(parts.append, part)
        return parts[0]

    result = t.apply(inner, array)
    assert type(result) is anyfn.Tensor and result.tolist() == [1, 2]


# ---- Memory that must not be written


def test_read_only_arrays_stay_so_in_callbacks(kernel):
    seen = []

    def function(x, y):
        seen.append((x.read_only, y.read_only, np.asarray(x).flags.writeable))
        for write in (lambda: x.__setitem__(0, 9), lambda: np.asarray(x).__setitem__(0, 9)):
            with pytest.raises(ValueError, match="read-only"):
                write()

    x = np.frombuffer(b"\0" * 16, F32)
    kernel(function)(x, np.zeros(4, F32))
    assert seen == [(True, False, False)]
    assert x.tolist() == [0] * 4


def test_read_only_memory_in_a_parallel_loop(kernel):
    # Only the calling thread finds the arguments of its calls.
    seen = []

    def function(x, y):
        time.sleep(0.005)
        seen.append(x.read_only)

    f, x = kernel(function, kind="parallel"), np.frombuffer(b"\0" * 16, F32)
    for _ in range(3):
        f(x, np.zeros(4, F32))
    assert set(seen) == {True}


def test_arguments_of_calls_on_other_threads_do_not_count(kernel):
    memory, seen = np.zeros(4, F32), []
    part = memory[:2]
    part.flags.writeable = False
    ready, done = threading.Event(), threading.Event()
    waits = anyfn.convert(lambda x: (ready.set(), done.wait()))
    other = threading.Thread(target=waits, args=(memory,))
    other.start()
    try:
        assert ready.wait(60)
        kernel(lambda x, y: seen.append(x.read_only), shape=(2,))(part, np.zeros(2, F32))
        assert seen == [True]
        with pytest.raises(RuntimeError, match="kept its argument"):
            lend(seen.append, view(memory.ctypes.data, [4]))
    finally:
        done.set()
        other.join()


def test_read_only_memory_in_callbacks_of_a_session(kernel):
    x, y, seen = np.frombuffer(b"\0" * 16, F32), np.zeros(4, F32), []
    anyfn.register_func("lent.run", lambda callback: kernel(callback)(x, y), override=True)

    def back(a, b):
        b.copy_from(np.full(4, 3, F32))
        try:
            a.copy_from(np.ones(4, F32))
        except Exception as error:
            seen.append(str(error))

    with rpc.local() as session:
        session["lent.run"](back)
    anyfn.remove_global_func("lent.run")
    assert len(seen) == 1 and "cannot write to a read-only tensor" in seen[0]
    assert x.tolist() == [0] * 4 and y.tolist() == [3] * 4


# ---- Greenlets


def test_greenlets_take_turns_inside_calls():
    greenlet = pytest.importorskip("greenlet")
    main = greenlet.getcurrent()
    arrays = [np.full(3, i, F32) for i in range(40)]
    wrong = []

    def work(i):
        def inner(x):
            for _ in range(3):
                main.switch()
                # The description of the array, which lies on a stack that others have used meanwhile.
                if x is not arrays[i] or t.apply(lambda y: y, x) is not arrays[i]:
                    wrong.append(i)
            return x

        if t.apply(inner, arrays[i]) is not arrays[i]:
            wrong.append(i)

    workers = [greenlet.greenlet(lambda i=i: work(i)) for i in range(40)]
    # The calls end in the order in which they began, which is not the reverse order of nested calls.
    while any(not worker.dead for worker in workers):
        for worker in workers:
            if not worker.dead:
                worker.switch()
        t.apply(lambda x: None, np.zeros(2, F32))
    assert not wrong


def test_calls_of_greenlets_that_can_be_cancelled_take_turns():
    greenlet = pytest.importorskip("greenlet")
    main = greenlet.getcurrent()
    current = []

    def work():
        _core.CallToken().run(anyfn.convert(lambda: main.switch()), (), None)
        current.append(_core.current_call())

    first, second = greenlet.greenlet(work), greenlet.greenlet(work)
    for worker in (first, second, first, second):
        worker.switch()
        gc.collect()
    # The second call ran within the first one, whose token no longer exists.
    assert isinstance(current[0], _core.CallToken) and current[1] is None


def test_a_greenlet_that_is_never_resumed():
    pytest.importorskip("greenlet")
    program = f"""
    import gc, sys
    sys.path.insert(0, {str(__file__.rsplit("/", 1)[0])!r})
    import greenlet
    from test_lent import *
    main = greenlet.getcurrent()
    def stuck(depth):
        def inner(x):
            if depth:
                return stuck(depth - 1)
            main.switch()
        t.apply(inner, np.zeros(1000))
    def deep(depth):
        # A tensor of nobody's array: all calls are asked for it.
        array = np.full(5, depth, F32)
        lend_array(lambda x: seen.append(x.tolist()), array)
        return t.apply(lambda x: deep(depth - 1) if depth else t.echo(x), array)
    seen = []
    for _ in range(50):
        worker = greenlet.greenlet(stuck)
        worker.switch(5)
        assert deep(20).tolist() == [0.0] * 5
        del worker
        gc.collect()
        assert deep(3).tolist() == [0.0] * 5
    assert len(seen) == 50 * 25 and set(map(tuple, seen)) == {{(float(i),) * 5 for i in range(21)}}
    last = greenlet.greenlet(stuck)
    last.switch(2)
    print("done")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr


USES = {
    "visit": (anyfn.structural_visit, lambda tool: tool.visit(5)),
    "default_visit": (anyfn.structural_visit, lambda tool: tool.default_visit(5)),
    "mutate": (anyfn.structural_mutate, lambda tool: tool.mutate(5)),
    "default_mutate": (anyfn.structural_mutate, lambda tool: tool.default_mutate(5)),
    "remap_get": (anyfn.structural_mutate, lambda tool: tool.var_remap_get(anyfn.Array([5]))),
    "remap_set": (anyfn.structural_mutate, lambda tool: tool.var_remap_set(anyfn.Array([5]), 6)),
}


@pytest.mark.parametrize("walker", ["main", "other"])
@pytest.mark.parametrize("use", USES)
def test_greenlets_do_not_use_the_visitors_of_others(use, walker):
    greenlet = pytest.importorskip("greenlet")
    (run, go), tools, sums = USES[use], [], []

    def on_items(items, tool):
        tools.append(tool)
        away()
        go(tool)
        return (tool.default_visit if run is anyfn.structural_visit else tool.default_mutate)(items)

    def on_number(number, tool):
        sums.append(number)
        return None if run is anyfn.structural_visit else number

    def walk():
        run(anyfn.Array([1, [2, [3]], 4]), [(tuple, on_items), (int, on_number)])

    def refused():
        for tool in tools:
            with pytest.raises(RuntimeError, match="on the same thread .and greenlet."):
                go(tool)

    if walker == "main":
        away = lambda: greenlet.greenlet(refused).switch()  # noqa: E731
        walk()
    else:
        away = greenlet.getcurrent().switch
        worker = greenlet.greenlet(walk)
        worker.switch()
        while not worker.dead:
            refused()
            worker.switch()
    assert len(tools) >= 3 and [n for n in sums if n < 5] == [1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="during the callback"):
        go(tools[0])


def test_walks_of_greenlets_take_turns():
    greenlet = pytest.importorskip("greenlet")
    main, results = greenlet.getcurrent(), {}

    def work(i):
        def on_items(items, tool):
            main.switch()
            result = tool.default_mutate(items)
            main.switch()
            return tool.mutate(result[0]) and result

        def on_number(number, tool):
            main.switch()
            return number + i

        results[i] = anyfn.structural_mutate(anyfn.Array([1, [2, 3]]), [(tuple, on_items), (int, on_number)])

    workers = [greenlet.greenlet(lambda i=i: work(i)) for i in range(5)]
    while any(not worker.dead for worker in workers):
        for worker in workers:
            if not worker.dead:
                worker.switch()
    assert {i: (new[0], list(new[1])) for i, new in results.items()} == {
        i: (1 + i, [2 + i, 3 + i]) for i in range(5)
    }


def test_a_visitor_works_on_when_its_callback_imports_greenlet():
    pytest.importorskip("greenlet")
    program = """
    import sys, anyfn
    def on(items, visitor):
        assert "greenlet" not in sys.modules
        import greenlet
        return visitor.default_visit(items)
    seen = []
    anyfn.structural_visit([1, 2], [(tuple, on), (int, lambda n, visitor: seen.append(n))])
    print(seen)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout == "[1, 2]\n", done.stderr


@pytest.mark.parametrize("hide", ["del sys.modules['greenlet']", "del greenlet._C_API", "sys.modules['greenlet'] = 5"])
def test_no_greenlet_uses_a_visitor_where_the_module_is_hidden(hide):
    pytest.importorskip("greenlet")
    program = f"""
    import sys, anyfn, greenlet
    {hide}
    errors = []
    def on(items, visitor):
        def use():
            try:
                visitor.default_visit(items)
            except RuntimeError as error:
                errors.append(str(error))
        greenlet.greenlet(use).switch()
    anyfn.structural_visit([1, 2], [(tuple, on)])
    print(errors)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "on the same thread (and greenlet)" in done.stdout, done.stderr + done.stdout


def test_the_stack_hooks_cannot_be_replaced():
    set_hooks = anyfn.get_global_func("anyfn.set_stack_hooks")
    for hooks in [(None, None), (None, ctypes.c_void_p(64)), (ctypes.c_void_p(64), None)]:
        with pytest.raises(ValueError, match="expected two functions"):
            set_hooks(*hooks)
    with pytest.raises(RuntimeError, match="cannot be replaced"):
        set_hooks(ctypes.c_void_p(64), ctypes.c_void_p(64))


@anyfn.object("test.lent.Shown")
class Shown(anyfn.Object):
    """An object whose ``repr`` formats the value of the object in another greenlet."""

    value: typing.Any
    kept: typing.ClassVar = []

    def __ffi_repr__(self, show):
        greenlet = pytest.importorskip("greenlet")
        self.kept.append(show)
        texts = []
        greenlet.greenlet(lambda: texts.append(show(self.value))).switch()
        return f"<{texts[0]}, {show(self.value)}>"


def test_greenlets_use_what_a_hook_got():
    greenlet = pytest.importorskip("greenlet")
    assert repr(Shown(Shown([1, 2]))) == "<<(1, 2), (1, 2)>, <(1, 2), (1, 2)>>"
    for show in Shown.kept:
        with pytest.raises(RuntimeError, match="can only be called during the call of the hook"):
            show(5)

    # One greenlet is in a hook when the callback of its operation continues in the main greenlet.
    main = greenlet.getcurrent()

    @anyfn.object("test.lent.Waits")
    class Waits(anyfn.Object):
        value: typing.Any

        def __ffi_repr__(self, show):
            Shown.kept[:] = [show]
            main.switch()
            return show(self.value)

    texts = []
    worker = greenlet.greenlet(lambda: texts.append(repr([Waits(Waits(7))])))
    worker.switch()
    assert Shown.kept[0](3) == "3"
    outer = Shown.kept[0]
    worker.switch()
    # The operation of the outer hook is in use by the inner one.
    with pytest.raises(RuntimeError, match="by one thread at a time"):
        outer(3)
    assert Shown.kept[0]([4]) == "(4,)"
    worker.switch()
    assert worker.dead and texts == ["[7]"]


def test_constants_of_native_code_are_not_written():
    """Checks that a tensor in read-only memory stays read-only in a callback. A write would crash the process."""
    lend_constants = anyfn.get_global_func("testing.lend_constants")
    assert lend_constants(lambda x: x.numpy().tolist()) == [5, 6]

    def change(x):
        with pytest.raises(ValueError, match="read-only"):
            x.numpy()[:] = 7
        with pytest.raises(ValueError, match="read-only|may be written"):
            anyfn.get_global_func("anyfn.tensor_fill")(x, 7)

    lend_constants(change)
    with pytest.raises(ValueError, match="read-only"):
        lend_constants(lambda x: anyfn.get_global_func("anyfn.tensor_fill")(x, 7))
    assert lend_constants(lambda x: x.numpy().tolist()) == [5, 6]
