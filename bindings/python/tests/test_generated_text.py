"""Tests that generated code passes on strings from users unchanged, for all characters and all C standards."""

import itertools
import os
import random

import numpy as np
import pytest

import anyfn
from anyfn import te, tir

# The later of two contradicting options takes effect; `-std=c11` alone implies `-trigraphs`.
STANDARDS = ["c11", "gnu11", "gnu17"]
# Strings with a special meaning in literals, comments, directives, formats, shells or names.
HOSTILE = [
    "what??!",
    '??/";system("touch owned");//',
    '";system("touch owned");//',
    "*/ int owned; /*",
    "\\\n#error owned\n",
    "%s%n%99999d%%",
    "\\x41\\101\\u0041\\",
    "\x01\x7f\x801\xff2\u20ac\U0001f600",
    "#include </dev/zero>\r\n",
    "@V @I @N restrict anyfn_failed __tvm_ffi__library_ctx ??=??(??/??)??'??<??!??>??-",
    "",
    " ",
]


def target(standard):
    return anyfn.Target("c", options=[f"-std={standard}", "-trigraphs"])


@pytest.fixture
def take():
    """Returns a function that compiles and runs calls with the given strings, and returns the strings that arrive."""
    taken = []
    anyfn.register_func("generated_text.take", lambda *texts: taken.extend(texts), override=True)

    def through(texts, standard="c11"):
        x = te.placeholder((1,), name="X")

        def body(ins, outs):
            calls = [tir.call_packed("generated_text.take", *texts[at : at + 64]) for at in range(0, len(texts), 64)]
            return tir.SeqStmt([*map(tir.Evaluate, calls), tir.BufferStore(outs[0], tir.const(1.0), [tir.const(0)])])

        y = te.extern((1,), [x], body, name="Y")
        taken.clear()
        anyfn.build(te.create_prim_func([x, y], name="f"), target(standard), cache=False)(np.zeros(1, "f4"), np.zeros(1, "f4"))
        return list(taken)

    yield through
    anyfn.remove_global_func("generated_text.take")


def all_pairs(letters):
    """Returns a string that contains each pair of the given letters, and each letter after `??`."""
    return "".join(a + b for a, b in itertools.product(letters, repeat=2)) + "".join("??" + a for a in letters)


@pytest.mark.parametrize("standard", STANDARDS)
def test_texts_arrive_as_they_are(take, standard):
    letters = [chr(n) for n in range(1, 256)]
    special = [c for c in map(chr, range(1, 128)) if not c.isalnum()] + ["0", "7", "8", "a", "f", "x", "\u20ac"]
    texts = [*HOSTILE, *letters, "".join(letters), all_pairs(special), "x" * 70_000]
    assert take(texts, standard) == texts


def test_random_texts_arrive_as_they_are(take):
    """Checks random strings as arguments of calls. ``ANYFN_FUZZ_TEXTS`` sets the number of strings."""
    choose = random.Random(os.environ.get("ANYFN_FUZZ_SEED", "texts"))
    letters = [*map(chr, range(1, 128)), *"??????/\\\"%\n", "\u00e9", "\u20ac", "\U0001f600"]
    count = int(os.environ.get("ANYFN_FUZZ_TEXTS", "500"))
    texts = ["".join(choose.choices(letters, k=choose.randrange(1, 40))) for _ in range(count)]
    assert take(texts) == texts


def shown(text):
    return text.replace("\0", "\\0")


@pytest.mark.parametrize("standard", STANDARDS)
def test_names_are_shown_as_they_are_in_messages(standard, tmp_path, monkeypatch):
    """Checks that messages and signatures show names of parameters and buffers unchanged, except NUL as an escape."""
    monkeypatch.chdir(tmp_path)
    functions, names = [], [*HOSTILE, "a\0b", "int", "I", "linux", "errno", "NULL", "__x", "P_tmpdir", "f0_compute", "x" * 5000]
    for place, name in enumerate(names):
        n = te.var(name, "int32")
        x = te.placeholder((n,), name=name)
        y = te.compute((n,), lambda i: x[i] + 1, name=name)
        z = te.compute((n,), lambda i: y[n - 1 - i] * 2, name=name)
        functions.append(te.create_prim_func([x, z, n], name=f"f{place}"))
    module = anyfn.build(functions, target(standard), cache=False)
    for place, name in enumerate(names):
        f = module[f"f{place}"]
        out = np.zeros(3, "f4")
        f(np.arange(3, dtype="f4"), out, 3)
        np.testing.assert_array_equal(out, [6, 4, 2])
        with pytest.raises(TypeError) as caught:
            f(1.5, out, 3)
        assert str(caught.value) == f"f{place}: argument 0 `{shown(name)}`: expected a tensor but got float"
        with pytest.raises(OverflowError) as caught:
            f(out, out, 1 << 40)
        assert f"argument 2 `{shown(name)}`: {1 << 40} does not fit into int32" in str(caught.value)
        with pytest.raises(ValueError) as caught:
            f(out, out, 3)
        assert f"arguments 0 `{shown(name)}` and 1 `{shown(name)}`" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("standard", STANDARDS)
def test_messages_of_assertions_are_shown_as_they_are(standard):
    texts = [text for text in HOSTILE if text] + ["100%d", "x" * 3000 + "\u20ac"]
    functions = []
    for place, text in enumerate(texts):
        n = te.var("n", "int32")
        x = te.placeholder((2,), name="X")

        def body(ins, outs, text=text, n=n):
            check = tir.AssertStmt(n < 3, "ValueError", [tir.StringImm(text), n, tir.StringImm(text)])
            return tir.SeqStmt([check, tir.BufferStore(outs[0], tir.const(1.0), [tir.const(0)])])

        y = te.extern((2,), [x], body, name="Y")
        functions.append(te.create_prim_func([x, y, n], name=f"f{place}"))
    module = anyfn.build(functions, target(standard), cache=False)
    for place, text in enumerate(texts):
        with pytest.raises(ValueError) as caught:
            module[f"f{place}"](np.zeros(2, "f4"), np.zeros(2, "f4"), 7)
        assert str(caught.value).splitlines() == f"{text}7{text}".splitlines()


def raw_call(op, *args):
    x = te.placeholder((1,), name="X")
    call = tir.Call("int32", op, [tir.StringImm(arg) if isinstance(arg, str) else arg for arg in args])
    y = te.extern((1,), [x], lambda ins, outs: tir.Evaluate(call), name="Y")
    return te.create_prim_func([x, y], name="f")


@pytest.mark.parametrize("name", ['abs");system("touch owned");//', "a b", "", "1", "\u00e9", "abs\0", "abs\n", "a??/"])
def test_functions_of_c_have_names_of_c(name, tmp_path, monkeypatch):
    """Checks that the name of a C function is validated even if `tir.Call` creates the call, not `tir.call_extern`."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="is not a valid name of a C function"):
        anyfn.build(raw_call("call_extern", name, tir.const(1)))
    assert list(tmp_path.iterdir()) == []


def test_texts_that_cannot_be_passed_are_refused():
    for func in [raw_call("call_packed", "a\0b"), raw_call("call_packed", "f", "a\0b"), raw_call("call_extern", "puts", "a\0b")]:
        with pytest.raises(ValueError, match="contains a NUL character"):
            anyfn.build(func)
    for op in ["call_packed", "call_extern"]:
        with pytest.raises((TypeError, ValueError), match="name"):
            anyfn.build(raw_call(op))
        with pytest.raises((TypeError, ValueError), match="name"):
            anyfn.build(raw_call(op, tir.const(3)))


@pytest.mark.parametrize("name", ["_metadata_f", "_library_ctx", "a b", "f\0", "f\n", "\u00e9", "??/", ""])
def test_names_of_functions_that_cannot_be_are_refused(name):
    x = te.placeholder((1,), name="X")
    y = te.compute((1,), lambda i: x[i], name="Y")
    with pytest.raises(ValueError, match="function name"):
        anyfn.build([te.create_prim_func([x, y], name="f"), te.create_prim_func([x, y], name=name)])


def test_a_name_beside_that_of_a_parallel_loop():
    """Checks that the names which generated code derives from a parallel loop do not collide with names of tensors."""
    x = te.placeholder((8,), name="i_begin")
    w = te.placeholder((8,), name="i_count")
    y = te.compute((8,), lambda i: x[i] + w[i], name="f_task0")
    schedule = tir.Schedule(te.create_prim_func([x, w, y], name="f"))
    (loop,) = schedule.get_loops("f_task0")
    schedule.parallel(loop)
    out = np.zeros(8, "f4")
    anyfn.build(schedule, cache=False)(np.ones(8, "f4"), np.arange(8, dtype="f4"), out)
    np.testing.assert_array_equal(out, np.arange(8) + 1)
