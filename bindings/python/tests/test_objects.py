"""Tests of classes for native types: construction from Python, objects returned by native code, and rejected operations."""

import copy
import gc
import pickle
import sys
import threading
import weakref

import anyfn
import anyfn._core as core
import anyfn.testing
import pytest

MAKE = anyfn.get_global_func("testing.make_point")
X = anyfn.get_global_func("testing.point_x")
ECHO = anyfn.get_global_func("testing.echo")
APPLY = anyfn.get_global_func("testing.apply")


@pytest.fixture(autouse=True)
def points():
    """Restores the classes of the sample types after each test, since a test may register other classes for them."""
    yield
    for key in ("testing.Point", "testing.NamedPoint", "testing.Counter"):
        index = core.type_index(key)
        if index is not None:
            core.register_class(index, anyfn.Object)


@pytest.fixture
def Point():
    @anyfn.register_object("testing.Point")
    class Point(anyfn.Object):
        def __init__(self, x, y=0.0):
            self.__init_handle_by_constructor__(MAKE, x, y)

        @property
        def x(self):
            return X(self)

        def norm(self):
            return abs(self.x) + abs(anyfn.testing.point_y(self))

    return Point


@pytest.fixture
def Fast():
    @anyfn.register_object("testing.Point", constructor="testing.make_point")
    class Fast(anyfn.Object):
        __slots__ = ()

    return Fast


def test_made_by_init(Point):
    point = Point(1.5, y=2.0)
    assert type(point) is Point and point.x == 1.5 and point.norm() == 3.5
    assert point.type_key == "testing.Point" and core.use_count(point) == 1
    assert Point(3).x == 3.0
    assert repr(point) == "testing.Point(x=1.5, y=2)"
    named = Point.__new__(Point)
    named.__init_handle_by_constructor__(MAKE, y=1.0, x=6.0)
    assert named.x == 6.0
    with pytest.raises(TypeError):
        Point.__new__(Point).__init_handle_by_constructor__(MAKE, 1.0, z=6.0)


def test_made_by_a_declared_constructor(Fast):
    point = Fast(1.0, 2.0)
    assert type(point) is Fast and X(point) == 1.0 and core.use_count(point) == 1
    with pytest.raises(TypeError, match="argument #0 .*testing.make_point"):
        Fast("a", 1.0)
    assert X(Fast(y=3.0, x=4.0)) == 4.0 and X(Fast(5.0, y=3.0)) == 5.0
    with pytest.raises(TypeError, match="testing.make_point"):
        Fast(1.0)
    with pytest.raises(TypeError, match="testing.make_point"):
        Fast(*range(12))


def test_the_constructor_can_be_an_attribute_or_any_callable():
    @anyfn.register_object("testing.Point")
    class Named(anyfn.Object):
        __constructor__ = "testing.make_point"

    assert X(Named(1.0, 2.0)) == 1.0

    def scaled(x, y=1.0, *, factor=1.0):
        return MAKE(x * factor, y)

    @anyfn.register_object("testing.Point", constructor=scaled)
    class Scaled(anyfn.Object):
        pass

    assert X(Scaled(2.0)) == 2.0 and X(Scaled(2.0, factor=3.0)) == 6.0

    class Derived(Scaled):
        def __init__(self, x):
            super().__init__(x, factor=10.0)

    assert X(Derived(2.0)) == 20.0 and type(Derived(1)) is Derived


def test_objects_that_come_back(Point):
    back = ECHO(Point(1.0))
    assert type(back) is Point and back.x == 1.0
    assert type(MAKE(1.0, 2.0)) is Point
    assert [type(p) for p in ECHO([MAKE(1.0, 2.0)])] == [Point]
    assert APPLY(lambda p: type(p) is Point, MAKE(1.0, 2.0)) is True
    point = Point(2.0)
    assert ECHO(point) == point and ECHO(point).same_as(point) and hash(ECHO(point)) == hash(point)
    assert Point(2.0) != point and ECHO(point) is not point and not point.same_as(5)
    assert point != 5 and point in {point}


def test_without_a_key_the_name_of_the_class_counts():
    with pytest.raises(ValueError, match="no native type 'Pointless' is registered"):

        @anyfn.register_object
        class Pointless(anyfn.Object):
            pass

    class Named(anyfn.Object):
        pass

    Named.__name__ = "testing.Point"
    assert anyfn.register_object(Named) is Named
    assert anyfn.register_object()(Named) is Named
    assert type(MAKE(1.0, 2.0)) is Named


def test_registered_again(Point):
    old = Point(1.0)

    @anyfn.register_object("testing.Point")
    class Other(anyfn.Object):
        pass

    assert type(ECHO(old)) is Other and type(old) is Point and old.x == 1.0
    # Instances of the old class can still be created.
    assert Point(4.0).x == 4.0
    gone = weakref.ref(Other)
    del Other
    anyfn.register_object("testing.Point")(Point)
    gc.collect()
    assert type(MAKE(1.0, 2.0)) is Point
    # The table of types may keep the class alive, but no longer uses it.
    assert gone() is None or type(MAKE(0.0, 0.0)) is not gone()


def test_derived_types_use_the_class_of_the_nearest_ancestor(Point):
    make = anyfn.get_global_func("testing.make_named_point")
    key = "testing.NamedPoint"
    named = make("a name of some length")
    # The type registers an additional field, so it gets a class that derives from that of its ancestor.
    assert named.type_key == key and isinstance(named, Point) and named.name == "a name of some length"

    @anyfn.register_object(key, constructor=make)
    class Named(Point):
        def __init__(self, name):
            self.__init_handle_by_constructor__(make, name)

        def name(self):
            return anyfn.testing.point_name(self)

    own = Named("n")
    assert own.name() == "n"
    assert type(own) is Named and isinstance(own, Point) and own.type_key == key
    assert type(make("")) is Named
    assert type(MAKE(1.0, 2.0)) is Point


def test_subclasses_with_state(Point):
    class Marked(Point):
        def __init__(self, x, mark):
            super().__init__(x)
            self.mark = mark

    marked = Marked(1.0, [5])
    gone = weakref.ref(marked)
    assert marked.mark == [5] and type(ECHO(marked)) is Point
    marked.own = marked  # a cycle in Python is collected
    del marked
    gc.collect()
    assert gone() is None


def test_slots_dict_and_weak_references(Point, Fast):
    point = Point(1.0)
    point.anything = 1
    assert weakref.ref(point)() is point
    fast = Fast(1.0, 2.0)
    with pytest.raises(AttributeError):
        fast.anything = 1
    with pytest.raises(TypeError):
        weakref.ref(fast)

    class Slotted(Fast):
        __slots__ = ("a", "__weakref__")

    slotted = Slotted(1.0, 2.0)
    slotted.a = point
    gone = weakref.ref(slotted)
    references = sys.getrefcount(point)
    del slotted
    assert gone() is None and sys.getrefcount(point) == references - 1


def test_pickling_and_copying(Point):
    for act in (
        copy.copy,
        copy.deepcopy,
        *(lambda p, n=n: pickle.dumps(p, n) for n in range(pickle.HIGHEST_PROTOCOL + 1)),
    ):
        # A type without reflected fields.
        with pytest.raises(TypeError, match="cannot"):
            act(anyfn.testing.make_counter(1))

    class Stored(Point):
        def __reduce__(self):
            return MAKE, (self.x, 0.0)

    assert X(copy.copy(Stored(5.0))) == 5.0


USES = [
    lambda p: ECHO(p),
    lambda p: ECHO([p]),
    lambda p: ECHO({"a": (1, p)}),
    lambda p: X(p),
    lambda p: APPLY(lambda: p),
    lambda p: p.type_key,
    lambda p: p.type_index,
    lambda p: hash(p),
    lambda p: p.same_as(p),
    lambda p: anyfn.convert(p),
    lambda p: APPLY(p),
    lambda p: core.use_count(p),
    lambda p: core.address(p),
    lambda p: core.module_function(p, "x", False),
    lambda p: core.tensor_info(p),
    lambda p: core.error_texts(p),
    lambda p: core.shape_values(p),
    lambda p: core.set_global_func("test.uninitialised", p, True),
    lambda p: core.tensor_capsule(p, True),
    lambda p: pickle.dumps(p),
]


@pytest.mark.parametrize("use", USES)
def test_instances_without_a_native_object(Point, use):
    class Lazy(Point):
        def __init__(self):
            pass

    for point in (Lazy(), Point.__new__(Point), anyfn.Object.__new__(Point)):
        with pytest.raises((ValueError, TypeError), match="not initialised|[Ee]xpected|cannot pickle"):
            use(point)
        assert "not initialised" in repr(point)
        assert point == point and point != Lazy() and point != Point(1.0)


def test_what_object_new_refuses(Point):
    for cls in (anyfn.Object, anyfn.PackedFunc, anyfn.Tensor, anyfn.Module, core.BuiltinObject):
        with pytest.raises(TypeError):
            anyfn.Object.__new__(cls)
        with pytest.raises(TypeError):
            object.__new__(cls)
        with pytest.raises(TypeError):
            cls.__new__(cls)
    with pytest.raises(TypeError):
        object.__new__(Point)


def test_an_object_is_initialised_once(Point, Fast):
    point = Point(1.0)
    with pytest.raises(RuntimeError, match="already initialised"):
        point.__init__(2.0)
    assert point.x == 1.0
    back = ECHO(point)
    with pytest.raises(RuntimeError, match="already initialised"):
        back.__init_handle_by_constructor__(MAKE, 3.0, 4.0)
    fast = Fast(1.0, 2.0)
    fast.__init__(5.0, 6.0)
    assert X(fast) == 1.0
    with pytest.raises((RuntimeError, TypeError)):
        ECHO.__init_handle_by_constructor__(MAKE, 3.0, 4.0)
    assert ECHO(1) == 1
    empty = Point.__new__(Point)

    def inside(x, y):
        empty.__init_handle_by_constructor__(MAKE, 7.0, 8.0)
        return MAKE(x, y)

    with pytest.raises(RuntimeError, match="already initialised"):
        empty.__init_handle_by_constructor__(inside, 1.0, 2.0)
    assert empty.x == 7.0


def test_constructors_that_make_something_else(Point):
    empty = Point.__new__(Point)
    for result in (5, None, "text", 2.5, [1], MAKE, anyfn.testing.make_counter(1)):
        for constructor in (lambda r=result: r, anyfn.convert(lambda r=result: r)):
            with pytest.raises(TypeError, match="constructor"):
                empty.__init_handle_by_constructor__(constructor)
    with pytest.raises(TypeError, match="constructor testing.add_i64 returned int, not an object"):
        empty.__init_handle_by_constructor__(anyfn.get_global_func("testing.add_i64"), 1, 2)
    with pytest.raises(TypeError, match="testing.Counter, which Point does not represent"):
        empty.__init_handle_by_constructor__(anyfn.testing.make_counter, 1)
    with pytest.raises(TypeError):
        empty.__init_handle_by_constructor__()
    with pytest.raises(TypeError):
        empty.__init_handle_by_constructor__(5)
    with pytest.raises(KeyError):
        empty.__init_handle_by_constructor__(anyfn.get_global_func("testing.raise_error"), "KeyError", "x")
    assert "not initialised" in repr(empty)


def test_without_a_constructor():
    @anyfn.register_object("testing.Counter")
    class Bare(anyfn.Object):
        pass

    with pytest.raises(TypeError, match="Bare has no constructor"):
        Bare()
    with pytest.raises(TypeError, match="Bare has no constructor"):
        Bare(1.0, x=2.0)

    class Unregistered(anyfn.Object):
        pass

    with pytest.raises(TypeError, match="Unregistered has no constructor"):
        Unregistered()


def test_bad_registrations():
    with pytest.raises(ValueError, match="no native type 'testing.Pont' is registered; did you mean 'testing.Point'"):

        @anyfn.register_object("testing.Pont")
        class Wrong(anyfn.Object):
            pass

    for bad in (int, 5, "text", lambda: 1):
        with pytest.raises(TypeError, match="derived from anyfn.Object"):
            anyfn.register_object("testing.Point")(bad)
    with pytest.raises(TypeError, match="key of a type"):
        anyfn.register_object(5)
    with pytest.raises(TypeError, match="constructor"):

        @anyfn.register_object("testing.Point", constructor=5)
        class Wrong2(anyfn.Object):
            pass

    with pytest.raises(ValueError, match="no.such.function"):

        @anyfn.register_object("testing.Point", constructor="no.such.function")
        class Wrong3(anyfn.Object):
            pass

    for key in ("ffi.Array", "ffi.Tensor", "ffi.Function", "ffi.String", "ffi.Object"):
        with pytest.raises(TypeError, match="built-in"):

            @anyfn.register_object(key)
            class Wrong4(anyfn.Object):
                pass

    with pytest.raises(TypeError, match="built-in"):

        @anyfn.register_object("testing.Point")
        class Wrong5(anyfn.Tensor):
            pass


def test_types_are_known_as_soon_as_their_library_is_loaded(run_python):
    run_python("""
import anyfn, anyfn.testing
@anyfn.register_object("testing.Counter", constructor="testing.make_counter")
class Counter(anyfn.Object):
    def add(self, n):
        return anyfn.testing.counter_add(self, n)
counter = Counter(5)
assert counter.add(3) == 8
""")


def test_made_by_many_threads_at_once(Point, Fast):
    made = []

    def work():
        made.extend((Point(float(i)), Fast(float(i), 0.0)) for i in range(2000))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8000 and all(X(a) == X(b) for a, b in made)


def test_memory_of_objects(Point, Fast, flat_memory):
    def body(count):
        for _ in range(count):
            ECHO(Point(1.0))
            ECHO(Fast(1.0, 2.0))
            try:
                Fast("x", 1)
            except TypeError:
                pass
            Point.__new__(Point)

    flat_memory(body, 20_000)



# Registers a field of `testing.Counter`, as types of C++ libraries do, and a read-only field.
FIELDS = """
import ctypes
import anyfn, anyfn._core as core, anyfn.testing
import pytest

class Text(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_size_t)]
    def __init__(self, text):
        super().__init__(text, len(text))

class Value(ctypes.Structure):
    _fields_ = [("type_index", ctypes.c_int32), ("small", ctypes.c_uint32), ("bits", ctypes.c_int64)]

Function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(Value))

class Field(ctypes.Structure):
    _fields_ = [
        ("name", Text), ("doc", Text), ("metadata", Text), ("flags", ctypes.c_int64), ("size", ctypes.c_int64),
        ("alignment", ctypes.c_int64), ("offset", ctypes.c_int64), ("getter", Function), ("setter", ctypes.c_void_p),
        ("default", Value), ("static_type", ctypes.c_int32),
    ]

@Function
def getter(field, result):
    result[0] = Value(1, 0, field[0])
    return 0

@Function
def setter(field, value):
    if value[0].type_index != 1:
        library.TVMFFIErrorSetRaisedFromCStr(b"TypeError", b"expected an int")
        return -1
    field[0] = value[0].bits
    return 0

def check_setter(address, value):
    ctypes.c_int64.from_address(address.value).value = value

library = ctypes.CDLL(core.LIBRARY)
index = core.type_index("testing.Counter")
by_function = anyfn.convert(check_setter)
address = ctypes.cast(setter, ctypes.c_void_p).value
for name, flags, setter_address in [
    (b"value", 1, address), (b"fixed", 0, None), (b"by_function", 1 | 1 << 11, core.address(by_function)),
]:
    # The number lies right behind the header.
    field = Field(Text(name), Text(b"A number."), Text(b""), flags, 8, 8, 24, getter, setter_address, Value(), -1)
    assert library.TVMFFITypeRegisterField(index, ctypes.byref(field)) == 0
make = anyfn.get_global_func("testing.make_counter")
echo = anyfn.get_global_func("testing.echo")
"""


def test_fields_without_a_class(run_python):
    run_python(
        FIELDS
        + """
counter = make(7)
assert type(counter).__name__ == "Counter" and isinstance(counter, anyfn.Object)
assert counter.value == counter.fixed == counter.by_function == 7
assert {"value", "fixed", "type_key"} <= set(dir(counter)) and type(counter).value.__doc__ == "A number."
counter.value = 2**40
assert counter.value == anyfn.testing.counter_value(counter) == echo(counter).value == 2**40
assert type(echo(counter)) is type(counter)
counter.by_function = 5
assert counter.value == 5
for value in ("text", None, 2.5, [1]):
    with pytest.raises(TypeError, match="int"):
        counter.value = value
for refused in ("counter.fixed = 1", "del counter.value", "counter.other = 1"):
    with pytest.raises(AttributeError):
        exec(refused)
assert counter.value == 5
before = anyfn.testing.live_objects()
for i in range(10_000):
    counter.value = counter.by_function = i
    assert counter.value == i
assert anyfn.testing.live_objects() == before and core.use_count(counter) == 1
"""
    )


def test_fields_of_a_registered_class(run_python):
    run_python(
        FIELDS
        + """
old = make(7)

@anyfn.register_object("testing.Counter", constructor=make)
class Box(anyfn.Object):
    __slots__ = ()

    @property
    def fixed(self):
        return "the class's own"

box = Box(1)
box.value += 4
assert (box.value, box.fixed) == (5, "the class's own")
assert type(echo(old)) is Box and echo(old).value == 7
empty = Box.__new__(Box)
with pytest.raises(ValueError, match="not initialised"):
    empty.value
with pytest.raises(ValueError, match="not initialised"):
    empty.value = 1

# A class that stands for two types has no field of the one on objects of the other.
anyfn.register_object("testing.Point")(Box)
point = anyfn.testing.make_point(1.0, 2.0)
assert type(point) is Box
with pytest.raises(AttributeError, match="testing.Point"):
    point.value
with pytest.raises(AttributeError, match="testing.Point"):
    point.value = 3
"""
    )


def test_a_constructor_that_the_type_names(run_python):
    run_python(
        FIELDS
        + """
assert core.type_attribute("__ffi_init__", index) is None
assert core.type_attribute("no such attribute", index) is None and core.type_attribute("x", -5) is None
view = Value(make.type_index, 0, core.address(make))
assert library.TVMFFITypeRegisterAttr(index, ctypes.byref(Text(b"__ffi_init__")), ctypes.byref(view)) == 0

@anyfn.register_object("testing.Counter")
class Counter(anyfn.Object):
    pass

counter = Counter(5)
assert counter.value == 5 and type(counter) is Counter
"""
    )
