"""Tests of conversions between a Rust value type and a Python value type of the user, both for complex numbers."""

import copy

import anyfn
import anyfn._core as core
import anyfn.testing
import pytest

multiply = anyfn.get_global_func("testing.complex_multiply")
total = anyfn.get_global_func("testing.complex_sum")
ECHO = anyfn.get_global_func("testing.echo")
Complex = anyfn.type_info("testing.Complex").cls


@pytest.fixture
def converted():
    anyfn.register_converter(
        complex,
        "testing.Complex",
        to_native=lambda z: Complex(z.real, z.imag),
        from_native=lambda z: complex(z.re, z.im),
    )
    yield
    anyfn.remove_converter(complex)


def test_without_a_converter_it_is_an_object():
    made = multiply(Complex(1, 2), Complex(re=3, im=4))
    assert type(made) is Complex and (made.re, made.im) == (-5.0, 10.0)
    assert total([Complex(1), Complex(2, 3)]).im == 3.0
    assert repr(made) == "testing.Complex(re=-5, im=10)" and anyfn.structural_equal(made, copy.copy(made))
    with pytest.raises(TypeError, match="argument #0 when calling: `testing.complex_multiply.*Expected `testing.Complex`"):
        multiply(1, Complex(1))
    with pytest.raises(TypeError, match=r"(?s)Array.*testing.Complex.*\[1\]"):
        total([Complex(1), 2])


def test_by_value_in_both_directions(converted):
    made = multiply(1 + 2j, 3 + 4j)
    assert type(made) is complex and made == -5 + 10j
    assert total([1j, 2 + 0j, 3 + 1j]) == 5 + 2j
    assert ECHO([1j])[0] == 1j and ECHO({"z": 2j})["z"] == 2j
    assert anyfn.load_json(anyfn.save_json([1.5 - 2j]))[0] == 1.5 - 2j


def test_as_fields_of_objects(converted):
    Wave = anyfn.type_info("testing.Wave").cls
    wave = Wave(2j)
    assert (wave.start, wave.now) == (2j, 1j)
    wave.now = wave.now * 2
    assert wave.now == 2j and copy.copy(wave).now == 2j
    with pytest.raises(TypeError, match="testing.Complex"):
        wave.now = "x"
    with pytest.raises(AttributeError):
        wave.start = 1j

    @anyfn.object("test_value_types.Pair")
    class Pair(anyfn.Object):
        a: complex
        b: complex = 1j

    pair = Pair(3 + 0j)
    assert (pair.a, pair.b) == (3, 1j) and multiply(pair.a, pair.b) == 3j
    assert repr(pair) == "Pair(a=(3+0j), b=1j)"


def test_nothing_is_left(converted):
    alive = anyfn.get_global_func("testing.live_objects")
    before = alive()
    for _ in range(10):
        multiply(1j, 2j)
    assert alive() == before
