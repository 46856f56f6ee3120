"""Tests of a type that is defined by a compiled library, which is loaded at run time.

The objects are printed, called, extended and converted.
"""

import copy
import gc
import inspect
from typing import Optional

import anyfn
import anyfn._core as core
import anyfn.testing
import pytest

ECHO = anyfn.get_global_func("testing.echo")
SHOW = anyfn.get_global_func("ffi.ReprPrint")
INIT = anyfn.get_global_func("ffi._RegisterFFIInit")


@pytest.fixture(scope="module")
def plugin(compile_c):
    module = anyfn.load_module(str(compile_c("complex_type")))
    module.get_function("setup")()
    INIT(core.type_index("plugin.Complex"))
    return module


@pytest.fixture
def make(plugin):
    return core.type_attribute("__ffi_init__", core.type_index("plugin.Complex"))


def test_a_new_type_and_its_printer(make):
    """Checks the fields, methods and printing of a type that only the library knows."""
    z = make(1.5, -2)
    assert (z.re, z.im, z.note) == (1.5, -2.0, None)
    assert SHOW(z) == "1.5-2i" and SHOW(anyfn.Array([z, "x"])) == '(1.5-2i, "x")'
    z.re = 3
    z.note = "a text that is longer than seven bytes"
    assert z.norm() == 13.0 and SHOW(z) == "3-2i" and z.note.startswith("a text")
    assert {"re", "im", "note", "norm", "alive"} <= set(dir(z))
    assert type(z).norm.__doc__ == "The square of its length." and type(z).alive() >= 1
    info = anyfn.type_info(z)
    assert (info.key, info.doc, info.structural) == ("plugin.Complex", "A complex number.", "tree")
    assert [method.static for method in info.methods] == [False, True]
    assert repr(info).splitlines()[:3] == ["type plugin.Complex(ffi.Object):", '    """A complex number."""', "    re: float"]
    with pytest.raises(TypeError, match="is a float"):
        z.im = "text"


def test_extended_by_a_python_class(make):
    Complex = type(make(0, 0))
    before = Complex.alive()

    @anyfn.object("rt.Named")
    class Named(Complex):
        tags: list = anyfn.field(default_factory=list)
        name: str = anyfn.field(kw_only=True)

        def full(self):
            return f"{self.name}: {self.norm()}"

    one = Named(3, 4, "a note, a longer one", [1, 2], name="x")
    assert (one.re, one.im, one.note, one.name, list(one.tags)) == (3, 4, "a note, a longer one", "x", [1, 2])
    assert one.norm() == 25.0 and one.full() == "x: 25.0" and isinstance(one, Complex)
    assert list(inspect.signature(Named).parameters) == ["re", "im", "note", "tags", "name"]
    # A hook belongs to one type, because code of the library treats its argument as an object of this type.
    assert SHOW(one).startswith("rt.Named(re=3, im=4") and Complex.norm(one) == 25.0
    one.re, one.note, one.name = 0, None, "a name of more than seven letters"
    one.note = "another note, longer than seven bytes"
    assert one.norm() == 16.0 and type(ECHO(one)) is Named and one.note.startswith("another")
    other = anyfn.replace(one, im=1, name="y")
    assert (other.norm(), other.name, other.note, one.name[:6]) == (1.0, "y", one.note, "a name")
    assert other.tags.same_as(one.tags)
    with pytest.raises(TypeError, match="is a float"):
        Named("x", 4, name="x")
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'name'"):
        Named(1, 2)

    @anyfn.object("rt.NamedChild")
    class NamedChild(Named):
        child: Optional[Named] = None

    chain = None
    for index in range(1000):
        chain = NamedChild(index, 0, "note that is long enough", name="n", child=chain)
    assert chain.child.child.re == 997.0 and Complex.alive() >= before + 1002
    del one, other, chain
    gc.collect()
    assert Complex.alive() == before


def test_what_cannot_be_extended(plugin):
    Point = core.registered_class(core.type_index("testing.Point"))
    if core.type_attribute("__ffi_new__", core.type_index("testing.Point")) is None and Point is anyfn.Object:

        @anyfn.register_object("testing.Point")
        class Point(anyfn.Object):
            pass

        try:
            with pytest.raises(TypeError, match="that type has registered no object size or no creator"):
                anyfn.object("rt.Point3")(type("Point3", (Point,), {"__annotations__": {"z": float}}))
        finally:
            core.register_class(core.type_index("testing.Point"), anyfn.Object)
    assert core.type_index("rt.Point3") is None


def test_by_value_as_the_complex_numbers_of_python(make):
    """Checks that complex numbers of Python are converted to a type of the library and back."""
    natural = type(make(0, 0))
    anyfn.register_converter(
        complex, natural, to_native=lambda z: make(z.real, z.imag), from_native=lambda z: complex(z.re, z.im)
    )
    try:
        assert ECHO(1 + 2j) == 1 + 2j and type(ECHO(1j)) is complex
        assert SHOW([1j, 2]) == "(0+1i, 2)" and make(1, 2) == 1 + 2j
        assert copy.copy(anyfn.List([3j]))[0] == 3j
    finally:
        anyfn.remove_converter(complex)
    assert type(make(1, 2)) is natural and ECHO(1j) == 1j
    with pytest.raises(KeyError, match="complex has no converter"):
        anyfn.remove_converter(complex)
