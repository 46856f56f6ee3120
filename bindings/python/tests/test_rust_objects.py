"""Tests of object types that Rust code defines. Their fields and constructors work without a Python class."""

import copy

import anyfn
import anyfn._core as core
import anyfn.testing
import pytest

MAKE = anyfn.get_global_func("ffi.MakeObjectFromPackedArgs")


def var(name):
    return MAKE("testing.Var", "name", name)


def imm(value):
    return MAKE("testing.IntImm", "value", value)


def add(lhs, rhs):
    return MAKE("testing.Add", "lhs", lhs, "rhs", rhs)


def test_objects_are_made_and_their_fields_are_attributes():
    x = var("a name of some length")
    total = add(x, add(imm(1), x))
    assert total.lhs.name == "a name of some length" and total.lhs == total.rhs.rhs == x
    assert total.rhs.lhs.value == 1 and total.type_key == "testing.Add"
    let = MAKE("testing.Let", "var", x, "value", imm(2), "body", total)
    assert let.body.rhs.rhs == let.var
    op = MAKE("testing.Operation", "name", "placeholder", "inputs", [])
    node = MAKE("testing.TensorNode", "shape", [imm(3), imm(4)], "dtype", "float32", "op", op)
    assert node.op.name == "placeholder" and [i.value for i in node.shape] == [3, 4]
    assert str(node.dtype) == "float32" and node.value_index == 0 and len(op.inputs) == 0
    assert MAKE("testing.TensorNode", "shape", [], "dtype", "int8").op is None
    func = MAKE("testing.Func", "params", [x], "body", total)
    assert func.comment == "" and func.params[0] == x


def test_what_follows_from_fields():
    total = add(imm(1), add(imm(2), var("x")))
    assert repr(imm(3)) == "testing.IntImm(value=3)"
    back = anyfn.load_json(anyfn.save_json(total))
    assert back.rhs.lhs.value == 2 and back.rhs.rhs.name == "x"
    assert not anyfn.structural_equal(total, back) and anyfn.structural_equal(total, back, map_free_vars=True)
    x, y = var("x"), var("y")
    one, two = (MAKE("testing.Func", "params", [v], "body", add(v, imm(1))) for v in (x, y))
    assert anyfn.structural_equal(one, two) and anyfn.structural_hash(one) == anyfn.structural_hash(two)
    assert not anyfn.structural_equal(one, MAKE("testing.Func", "params", [x], "body", add(y, imm(1))))


def test_copies():
    total = add(imm(1), imm(2))
    for again in (copy.copy(total), anyfn.get_global_func("ffi.DeepCopy")(total)):
        assert again != total and again.type_key == "testing.Add" and again.rhs.value == 2
    assert copy.copy(total).lhs == total.lhs


def test_what_a_constructor_refuses():
    cases = [
        (TypeError, "testing.Add missing required argument: 'rhs'", ["testing.Add", "lhs", imm(1)]),
        (TypeError, "field 'lhs'.*Expr.*int", ["testing.Add", "lhs", 1, "rhs", imm(1)]),
        (
            TypeError,
            "field 'var'.*testing.Var.*testing.IntImm",
            ["testing.Let", "var", imm(1), "value", imm(1), "body", imm(1)],
        ),
        (TypeError, "does not have field `lsh`; did you mean `lhs`", ["testing.Add", "lsh", imm(1)]),
        (TypeError, "cannot be constructed", ["testing.Counter"]),
        (TypeError, "Cannot find type `testing.Ad`", ["testing.Ad"]),
        (OverflowError, "value_index", ["testing.TensorNode", "shape", [], "dtype", "int8", "value_index", 2**40]),
    ]
    for kind, message, args in cases:
        with pytest.raises(kind, match="(?s)" + message):
            MAKE(*args)


def test_fields_that_are_read_only_stay():
    total = add(imm(1), imm(2))
    with pytest.raises(AttributeError):
        total.lhs = imm(3)
    with pytest.raises(AttributeError):
        del total.lhs
    assert total.lhs.value == 1


def test_the_constructor_of_a_registered_class():
    @anyfn.register_object("testing.IntImm")
    class IntImm(anyfn.Object):
        def twice(self):
            return 2 * self.value

    try:
        assert IntImm(4).twice() == 8 and type(add(imm(1), imm(2)).lhs) is IntImm
        with pytest.raises(TypeError, match="missing required argument: 'value'"):
            IntImm()
        with pytest.raises(TypeError, match="at most 1 positional"):
            IntImm(1, 2)
    finally:
        core.register_class(core.type_index("testing.IntImm"), anyfn.Object)


def test_derived_objects_are_taken_for_their_base():
    named = anyfn.testing.make_named_point("n")
    assert anyfn.testing.point_x(named) == 0.0 and named.name == "n"
    assert core.type_attribute("__ffi_type_final__", core.type_index("testing.Point")) is False


def test_a_class_of_python_derives_from_a_type_of_rust():
    def native(key):
        return anyfn.register_object(key)(type(key.rsplit(".")[-1], (anyfn.Object,), {}))

    @anyfn.object("test_rust_objects.Neg")
    class Neg(native("testing.Expr")):
        value: anyfn.Object

    @anyfn.object("test_rust_objects.Named")
    class Named(native("testing.Point")):
        name: str = "p"

    try:
        minus = Neg(value=imm(3))
        total = add(minus, imm(4))
        assert total.lhs == minus and type(total.lhs) is Neg and total.lhs.value.value == 3
        named = Named(x=1.5, y=2.5)
        assert (named.x, named.name, anyfn.testing.point_y(named)) == (1.5, "p", 2.5)
        with pytest.raises(TypeError):
            add(named, imm(4))
    finally:
        for key in ("testing.Expr", "testing.Point"):
            core.register_class(core.type_index(key), anyfn.Object)
