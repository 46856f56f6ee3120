"""Tests of Python code that misuses the package. The code gets exceptions and never crashes the process."""

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
    """Runs code in a separate process and checks that the process exits normally. A failure may crash the process."""
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
        with pytest.raises(TypeError, match="did not create an exception"):
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
    with pytest.raises(TypeError, match="only represent functions"):
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
            # These arrays reuse the memory of the old shape.
            others.extend(np.broadcast_to(np.float32(0), (10**6, 10**6)) for _ in range(100))
            return y.__dlpack__(**options)

        def __dlpack_device__(self):
            return y.__dlpack_device__()

    t.saxpy(2.0, x, Reshapes())
    assert y.tolist() == [[0, 2, 4], [6, 8, 10]]


CONTAINERS = (anyfn.Array, anyfn.List, anyfn.Map, anyfn.Dict)


@pytest.mark.parametrize("base", [*CONTAINERS, anyfn.Tensor, anyfn.Shape], ids=lambda base: base.__name__)
def test_instances_without_a_native_object_in_all_bases(base):
    class Mine(anyfn.Object):
        __slots__ = ()

    class Made(Mine, base):
        __slots__ = ()

    made = anyfn.Object.__new__(Made)
    wrong = "expected a|no native container|not initialised|unhashable"
    for use in (len, list, hash, t.apply, t.type_key):
        with pytest.raises((TypeError, ValueError), match=wrong):
            use(made)
    assert anyfn.to_python(made) is made
    if base in CONTAINERS:
        assert repr(made) == "<Made object without a native container>"
    else:
        with pytest.raises(TypeError, match=wrong):
            repr(made)
    if base is anyfn.Shape:
        with pytest.raises(TypeError, match=wrong):
            made == [1]
    else:
        assert (made == [1]) is False and ([made] == made) is False and made == made
    del made
    gc.collect()


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


def test_the_data_type_is_replaced_while_it_is_read():
    # The name of a field is an object whose string conversion is called for the message.
    out = run("""
    import numpy as np, warnings
    warnings.simplefilter("ignore")
    class Title:
        def __hash__(self): return 1
        def __repr__(self):
            array.dtype = np.dtype("i4")
            gc.collect()
            return "title"
    array = np.zeros(3, dtype=np.dtype({"names": ["a"], "formats": ["i4"], "titles": [Title()]}))
    try:
        anyfn.get_global_func("anyfn.tensor_text")(array)
    except RuntimeError as error:
        print("array changed" in str(error))
    """)
    assert out == "True\n"


# A class whose instances clear the container `held` while they are converted.
CLEARS = """
class Meta(type):
    @property
    def __dlpack__(cls):
        held.clear()
        gc.collect()
        raise AttributeError
class Clears(metaclass=Meta):
    pass
"""


def test_new_values_of_fields_are_held_while_they_are_converted():
    out = run(
        CLEARS
        + textwrap.dedent("""
    import typing
    @anyfn.object("hostile.Any")
    class Any(anyfn.Object):
        a: typing.Any
    old = Any(1)
    held = {"a": Clears()}
    print(type(_core.replace(old, held).a).__name__, old.a, held)
    """)
    )
    assert out == "Clears 1 {}\n"


def test_fields_are_held_while_their_defaults_are_converted():
    out = run(
        CLEARS
        + textwrap.dedent("""
    class Mine(anyfn.Object):
        __slots__ = ()
    held = [("a", '{"type": "Any"}', "Any", "", 0, 1, Clears())]
    _core.define(Mine, "hostile.Mine", held, False, "", 0)
    print(held, anyfn.reflection.type_info("hostile.Mine") if hasattr(anyfn, "reflection") else "")
    """)
    )
    assert out.startswith("[] ")


def test_an_iterator_is_used_by_what_it_releases():
    out = run("""
    class Dropped:
        def __init__(self, number): self.number = number
        def __del__(self): seen.append((self.number, next(keys, "end")))
    seen = []
    pairs = anyfn.Dict({str(i): Dropped(i) for i in range(4)})
    keys = iter(pairs)
    pairs.clear()
    gc.collect()
    print(list(keys), seen)
    """)
    assert out == "['0'] [(3, 'end'), (2, '3'), (1, '2'), (0, '1')]\n"


@pytest.mark.parametrize("bases", ["", "A.__bases__ = (_core.BuiltinObject,)"])
def test_a_tensor_without_a_native_object(bases):
    out = run(f"""
    class A(_core.Object):
        __slots__ = ()
    x = A.__new__(A)
    {bases}
    try:
        x.__class__ = anyfn.Tensor
    except TypeError:
        pass
    for use in (anyfn.get_global_func("anyfn.tensor_text"), t.echo, t.apply):
        try:
            use(x)
        except (TypeError, ValueError) as error:
            print(type(error).__name__)
    """)
    assert len(out.splitlines()) == 3


def test_the_package_sets_itself_up_once():
    class Other(anyfn.Object):
        __slots__ = ()

    with pytest.raises(TypeError, match="by the anyfn package"):
        _core.setup(anyfn.dtype, anyfn.device, Other, print, type(print))


def test_a_stand_in_for_numpy():
    out = run("""
    import sys, types
    module = types.ModuleType("numpy")
    for name in "bool_ floating complexfloating datetime64 timedelta64 void dtype generic ndarray".split():
        setattr(module, name, type(name, (), {}))
    sys.modules["numpy"] = module
    try:
        anyfn.get_global_func("anyfn.tensor_text")(module.ndarray())
    except TypeError as error:
        print("ndarray" in str(error))
    """)
    # `anyfn` itself does not import NumPy.
    assert out == "True\n"


def test_frames_of_tracebacks_that_are_none():
    out = run("""
    _core.set_native_frame(lambda name: 5)
    try:
        t.add_i64("x")
    except TypeError:
        print("raised")
    try:
        t.raise_error("ValueError", "text")
    except ValueError as error:
        print(error)
    """)
    assert out == "raised\ntext\n"


def test_an_error_is_extended_while_its_trace_is_read():
    # A thread raises an error object while another thread extends the backtrace of the same object.
    out = run("""
    import sys, threading
    def raises(error):
        def function(): raise error
        return function
    try:
        t.raise_error("ValueError", "text")
    except ValueError as error:
        shared = error
    def deep(depth):
        if depth: return deep(depth - 1)
        t.apply(raises(shared))
    sys.setswitchinterval(1e-6)
    stop = threading.Event()
    def extend():
        while not stop.is_set():
            try: deep(30)
            except ValueError: pass
    thread = threading.Thread(target=extend)
    thread.start()
    native = shared.__anyfn_error__
    texts = {_core.error_texts(native)[2][:7] for _ in range(3000)} if hasattr(_core, "error_texts") else {"  File "}
    stop.set()
    thread.join()
    print(texts <= {"", '  File "', "  File "})
    """)
    assert out == "True\n"


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy before 2.1 cannot show read-only arrays")
def test_a_capsule_is_taken_while_the_signature_is_read():
    out = run("""
    import inspect, json
    import numpy as np
    class Holder:
        def __dlpack__(self, **options): return capsule
        def __dlpack_device__(self): return (1, 0)
    class Function:
        def __call__(self, x): return x
        @property
        def __signature__(self):
            np.from_dlpack(Holder())
            others.extend(np.full(10, 7) for _ in range(1000))
            return inspect.Signature([inspect.Parameter("x", inspect.Parameter.POSITIONAL_ONLY)])
    others, dumps = [], json.dumps
    def const(value, **options):
        return dumps({**value, "arg_const": ["x"]} if "type_schema" in value else value, **options)
    json.dumps = const
    array = np.zeros(1 << 20)
    array.flags.writeable = False
    capsule = array.__dlpack__(max_version=(1, 1))
    del array
    try:
        anyfn.convert(Function())(Holder())
    except ValueError as error:
        print("already been consumed" in str(error))
    """)
    assert out == "True\n"


@pytest.mark.parametrize("name", ["__anyfn_slots__", "__anyfn_maker__", "__anyfn_content__", "__anyfn_access__"])
def test_attributes_that_native_code_relies_on(name):
    # These attributes make native code interpret plain memory as values, and numbers as addresses.
    index = t.make_point(1.0, 2.0).type_index
    with pytest.raises(ValueError, match=f"does not begin with `__anyfn_`, got `{name}`"):
        _core.add_attribute(index, name, True)


def test_native_types_do_not_become_classes_of_plain_memory():
    # An object filled with zeros was a function whose address is 0.
    out = run("""
    register = anyfn.get_global_func("ffi._PyClassRegisterTypeAttrColumns")
    make = anyfn.get_global_func("ffi.MakeObjectFromPackedArgs")
    for index in (t.echo.type_index, anyfn.zeros(1).type_index, anyfn.Shape([1]).type_index, t.make_point(1.0, 2.0).type_index):
        try:
            register(index, 64)
        except TypeError as error:
            print("field getters were created by `ffi.MakeFieldGetter`" in str(error))
        else:
            make(index)()
    """)
    assert out == "True\n" * 4
