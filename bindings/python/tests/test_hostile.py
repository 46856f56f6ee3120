"""Python code that does what nobody should: it gets exceptions, never a crash."""

import functools
import gc
import os
import subprocess
import sys
import textwrap

import anyfn
import anyfn.testing as t
import numpy as np
import pytest
from anyfn import _core

DEPTH = 40_000


def run(code):
    """Runs code in a process of its own, which must end well: the fault may be a crash."""
    code = "import anyfn, anyfn.testing as t, functools, gc\nfrom anyfn import _core\n" + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=os.environ)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize(
    "step",
    [
        "anyfn.convert(functools.partial(x))",
        "anyfn.List([iter(x)])[0] if isinstance(x, anyfn.List) else anyfn.List([x])",
        "iter(anyfn.List([x]))",
        "anyfn.Dict({1: anyfn.Dict({2: x}).values()})",
    ],
)
def test_chains_of_any_length_are_released(step):
    out = run(f"""
    import threading
    def work():
        x = anyfn.convert(lambda: 1)
        for _ in range({DEPTH}):
            x = {step}
        del x
        print("released")
    threading.stack_size(1 << 19)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    """)
    assert out == "released\n"


def test_what_a_deep_chain_holds_is_released():
    class Last:
        pass

    import weakref

    last = Last()
    gone = weakref.ref(last)
    x = anyfn.List([last])
    for _ in range(1000):
        x = anyfn.convert(functools.partial(print, iter(anyfn.List([x]))))
    del last
    before = t.live_objects()
    del x
    assert gone() is None
    assert t.live_objects().get("ffi.Function", 0) <= before.get("ffi.Function", 0) - 1000


def test_a_key_that_replaces_the_attributes():
    f = anyfn.convert(lambda: 1)

    class Key(str):
        __slots__ = ()

        def __hash__(self):
            return hash("__qualname__")

        def __eq__(self, other):
            f.__dict__ = {}
            gc.collect()
            return False

    f.__dict__[Key("other")] = 1
    assert isinstance(f.__qualname__, str)
    assert f.__dict__ == {}


def test_an_order_of_classes_that_is_none():
    class Meta(type):
        @property
        def __mro__(cls):
            return [cls]

    class Odd(anyfn.Object, metaclass=Meta):
        __constructor__ = t.make_point

    with pytest.raises(TypeError, match="tuple of classes"):
        Odd(1.0, 2.0)


class MakesLists(Exception):
    def __new__(cls, *args):
        return [1, 2, 3]


def test_an_error_class_that_makes_no_exceptions():
    _core.register_error_class("MakesLists", MakesLists)
    for kind, cause in (("MakesLists", "ValueError"), ("ValueError", "MakesLists"), ("MakesLists", "MakesLists")):
        with pytest.raises(TypeError, match="makes no exceptions"):
            t.raise_error_with_cause(kind, "text", cause, "text")


def test_an_exception_whose_error_cannot_be_read():
    class Odd(Exception):
        @property
        def __anyfn_error__(self):
            raise RuntimeError("not for you")

    odd = Odd("text")

    def fail():
        raise odd

    with pytest.raises(Odd) as raised:
        t.apply(fail)
    assert raised.value is odd


def test_functions_of_the_package_itself_check_their_arguments():
    class Plain:
        pass

    index = t.make_point(1.0, 2.0).type_index
    with pytest.raises(TypeError, match="derived from anyfn.Object"):
        _core.add_fields(index, Plain)
    with pytest.raises(TypeError, match="derived from anyfn.Object"):
        _core.add_fields(index, 5)
    with pytest.raises(TypeError, match="functions only"):
        _core.register_class(index, anyfn.PackedFunc)
    for args, kwargs in (([1, 2], None), (3, None), ((1, 2), 3)):
        with pytest.raises(TypeError, match="a tuple and a dict"):
            _core.CallToken().run(t.add_i64, args, kwargs)
    assert _core.CallToken().run(t.add_i64, (1, 2), None) == 3


@pytest.mark.filterwarnings("ignore:Setting the shape")
def test_an_array_gets_another_shape_while_it_is_an_argument():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y = np.zeros((2, 3), np.float32)
    others = []

    class Reshapes:
        def __dlpack__(self, **options):
            x.shape = (3, 2, 1)
            # These get the memory that the old shape had.
            others.extend(np.broadcast_to(np.float32(0), (10**6, 10**6)) for _ in range(100))
            return y.__dlpack__(**options)

        def __dlpack_device__(self):
            return y.__dlpack_device__()

    t.saxpy(2.0, x, Reshapes())
    assert y.tolist() == [[0, 2, 4], [6, 8, 10]]


def test_instances_without_a_native_object_in_all_bases():
    class Mine(anyfn.Object):
        __slots__ = ()

    for base in (anyfn.Array, anyfn.List, anyfn.Map, anyfn.Dict, anyfn.Tensor, anyfn.Shape):
        made = type("Made", (Mine, base), {"__slots__": ()})
        made = anyfn.Object.__new__(made)
        for use in (len, list, repr, hash, t.apply, t.type_key, anyfn.to_python, lambda x: x == [1], lambda x: [x] == x):
            try:
                use(made)
            except (TypeError, ValueError):
                pass
        gc.collect()
        del made


def test_cycles_through_chains_are_collected_while_they_are_made():
    run("""
    gc.set_threshold(1)
    for _ in range(200):
        values = anyfn.List([1])
        values.append(lambda values=values: values)
        pairs = anyfn.Dict({"values": lambda values=values: values})
        function = anyfn.convert(lambda pairs=pairs: pairs)
        function.again = function
        pairs["call"] = lambda function=function: function
        anyfn.Map({"x": pairs, "y": [values, pairs, function]})
    gc.set_threshold(700)
    del values, pairs, function
    gc.collect()
    left = [x for x in gc.get_objects() if type(x) in (anyfn.List, anyfn.Dict)]
    assert not left, left
    """)
