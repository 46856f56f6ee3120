"""Tests that anyfn and apache-tvm-ffi, another runtime with the same ABI, load each other's saved values."""

import json
import math
import random

import anyfn
import pytest

tvm_ffi = pytest.importorskip("tvm_ffi", reason="apache-tvm-ffi is not installed; runs beside the peer")

OURS = {
    name: anyfn.get_global_func(name)
    for name in ("ffi.ToJSONGraphString", "ffi.FromJSONGraphString", "ffi.json.Parse", "ffi.json.Stringify")
}
THEIRS = {name: tvm_ffi.get_global_func(name) for name in OURS}
SAVE, LOAD, PARSE, WRITE = OURS


@anyfn.object("testing.TestIntPair")
class IntPair(anyfn.Object):
    a: int
    b: int


def in_both(make, depth=0):
    """Returns a random value twice: as a value of anyfn and as a value of apache-tvm-ffi."""
    kind = make.randrange(12 if depth < 4 else 8)
    if kind == 0:
        value = make.choice([None, True, False])
    elif kind == 1:
        value = make.choice([0, 1, -1, 2**63 - 1, -(2**63), make.randrange(-1000, 1000)])
    elif kind == 2:
        value = make.choice([0.0, -0.0, 1e16, 1e17, 0.1, math.inf, -math.inf, make.uniform(-1, 1) * 10.0 ** make.randint(-290, 290)])
    elif kind in (3, 4):
        value = "".join(make.choice("ab\"\\/\n\t\x01\x7fé\u2028🦀") for _ in range(make.randrange(12)))
    elif kind == 5:
        value = make.randbytes(make.randrange(12)) if hasattr(make, "randbytes") else b"\x00\xffxyz"
    elif kind == 6:
        value = make.choice([2**64, -(2**70), 10**50])
    elif kind == 7:
        shape, name = (2, make.randrange(9)), make.choice(["float32", "int8", "bool", "bfloat16x2"])
        return make.choice([
            (anyfn.Shape(shape), tvm_ffi.Shape(shape)),
            (anyfn.dtype(name), tvm_ffi.dtype(name)),
            (anyfn.device("cuda", 1), tvm_ffi.device("cuda", 1)),
        ])  # fmt: skip
    else:
        parts = [in_both(make, depth + 1) for _ in range(make.randrange(5))]
        if parts and make.random() < 0.3:
            parts.append(parts[0])
        mine, other = [part[0] for part in parts], [part[1] for part in parts]
        if kind < 10:
            name = make.choice(["Array", "List"])
            return getattr(anyfn, name)(mine), getattr(tvm_ffi, name)(other)
        name = make.choice(["Map", "Dict"])
        keys = [make.choice(["k", 7, None, True, "a longer key"]) for _ in parts]
        # A repeated key keeps its position in anyfn, but moves to the end in the peer.
        pairs = list(dict.fromkeys(map(str, keys)))
        return getattr(anyfn, name)(dict(zip(pairs, mine))), getattr(tvm_ffi, name)(dict(zip(pairs, other)))
    return value, value


@pytest.mark.parametrize("seed", range(150))
def test_texts_are_the_same(seed):
    make = random.Random(seed)
    parts = [in_both(make) for _ in range(4)]
    mine, other = anyfn.Array([part[0] for part in parts]), tvm_ffi.Array([part[1] for part in parts])
    text = OURS[SAVE](mine, None)
    assert text == THEIRS[SAVE](other, None)
    assert OURS[SAVE](OURS[LOAD](text), None) == text
    assert THEIRS[SAVE](THEIRS[LOAD](text), None) == text
    # The peer ignores the additional entries.
    tagged = anyfn.save_json(mine)
    assert THEIRS[SAVE](THEIRS[LOAD](tagged), None) == text
    value = json.loads(text)
    for indent in (None, 2):
        assert OURS[WRITE](OURS[PARSE](text), indent) == THEIRS[WRITE](THEIRS[PARSE](text), indent)
    assert value["root_index"] == len(value["nodes"]) - 1


def test_objects_go_both_ways():
    from tvm_ffi import testing

    pair = testing.TestIntPair(3, -4)
    text = THEIRS[SAVE](tvm_ffi.Array([pair, pair]), None)
    mine = OURS[LOAD](text)
    assert type(mine[0]) is IntPair and (mine[0].a, mine[1].b) == (3, -4) and mine[0].same_as(mine[1])
    assert OURS[SAVE](mine, None) == text
    assert THEIRS[LOAD](anyfn.save_json(mine))[1].b == -4


def test_errors_say_the_same():
    """Checks that errors have the same kind in both runtimes, and that our message begins with the peer's message."""
    texts = [
        "", "  ", "nul", "[1 2]", '{"a"}', "{a:1}", '"x', '"\\x"', '"\\u12"', '"\\ud800"', "1 2", '"a\tb"', "[\n1,\n x]",
    ]  # fmt: skip
    for text in texts:
        assert failure(OURS[PARSE], text) == failure(THEIRS[PARSE], text), text
    node = '{"root_index":0,"nodes":[%s]}'
    graphs = [
        "1", "{}", '{"root_index":"a"}', '{"root_index":0}', node % "", node % "1",
        node % '{"type":1}', node % '{"type":"int","data":"a"}', node % '{"type":"int","data":1.5}',
        node % '{"type":"DataType","data":"foo"}', node % '{"type":"Device","data":[1]}',
        node % '{"type":"ffi.Array","data":[5]}', node % '{"type":"ffi.Array","data":["a"]}',
        node % '{"type":"ffi.Tensor2","data":[]}',
        node % '{"type":"ffi.BigInt","data":"12x"}', node % '{"type":"testing.TestIntPair","data":{"a":1}}',
        node % '{"type":"testing.TestIntPair","data":{"a":1,"b":"x"}}', node % '{"type":"ffi.Object","data":{}}',
    ]  # fmt: skip
    for text in graphs:
        (our_kind, ours), (their_kind, theirs) = failure(OURS[LOAD], text), failure(THEIRS[LOAD], text)
        assert our_kind == their_kind, (text, ours, theirs)
        if "Check failed" not in theirs:
            assert ours.startswith(theirs), text
    for value in ({1: "x"}, b"x", 2**70):
        assert failure(OURS[WRITE], value, None) == failure(THEIRS[WRITE], value, None)


def failure(function, *args):
    with pytest.raises(Exception) as caught:
        function(*args)
    return type(caught.value).__name__, str(caught.value)
