"""Tests of inputs that must not crash or hang the compiler.

The inputs are small graphs that expand to huge trees, statements and expressions of any depth, extents beyond every integer
type, and names that are file paths.
"""

import json
import os
import subprocess
import sys
import textwrap

import anyfn
import pytest
from anyfn import te, tir, transform

np = pytest.importorskip("numpy")

PRELUDE = """
import faulthandler, resource
faulthandler.dump_traceback_later(100, exit=True)
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
import anyfn
import numpy as np
from anyfn import te, tir, transform

def doubled(x, levels=60):
    for _ in range(levels):
        x = x + x
    return x

def statements():
    made = tir.decl_buffer((8,), name="q").store(1.0, 0)
    for _ in range(60):
        made = tir.SeqStmt(anyfn.Array([made, made]))
    return made

def function(body):
    a = te.placeholder((8,), name="a")
    func = te.create_prim_func([a, te.compute((8,), lambda i: a[i], name="b")])
    return tir.PrimFunc(func.params, func.buffer_map, body, func.attrs)

def refused(do, error=ValueError, text="more than 4194304 nodes"):
    try:
        do()
    except error as raised:
        assert text in str(raised), raised
    else:
        raise AssertionError("nothing was refused")

v = tir.var("v")
a = te.placeholder((8,), name="a")
array = np.zeros(8, "float32")
"""


def run(code):
    """Runs code in a separate process, because a failure may crash or hang the process that runs the code."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code)], capture_output=True, text=True, timeout=120, env=os.environ
    )
    assert done.returncode == 0, done.stderr[-2000:]


SHARED = {
    "text": "assert len(str(doubled(v))) < 20 << 20 and str(doubled(v)).endswith(' ...')",
    "text of statements": "assert len(str(statements())) < 20 << 20 and len(str(function(statements()))) < 20 << 20",
    "repr": "assert len(anyfn.get_global_func('ffi.ReprPrint')(doubled(v))) < 4 << 20",
    "repr of objects": """
        shared = anyfn.Array([v])
        for _ in range(60):
            shared = anyfn.Array([shared, shared])
        text = anyfn.get_global_func("ffi.ReprPrint")(shared)
        assert len(text) < 4 << 20 and "..." in text
    """,
    "comparison": "assert anyfn.structural_equal(doubled(v), doubled(v))",
    "simplification": "assert tir.Analyzer().simplify(doubled(v)).dtype == 'int32'",
    "powers": """
        made = v
        for _ in range(60):
            made = made * made
        assert tir.Analyzer().simplify(made).dtype == "int32" and not tir.Analyzer().can_prove(made > 0)
    """,
    "proof": "assert tir.Analyzer().can_prove(doubled(v) < doubled(v) + 1)",
    "bounds": "refused(lambda: tir.Analyzer().bounds(doubled(v), [v]))",
    "extent": "refused(lambda: te.placeholder((doubled(v),)))",
    "extent of a reduction": "refused(lambda: te.reduce_axis((0, doubled(v))))",
    "part of a buffer": "refused(lambda: tir.decl_buffer((8,))[doubled(v):doubled(v) + 1])",
    "index": "refused(lambda: anyfn.build([a, te.compute((8,), lambda i: a[doubled(i) % 8])]))",
    "index map": "refused(lambda: tir.IndexMap(lambda i: [doubled(i)], 1))",
    "saved index map": """
        made = anyfn.load_json(anyfn.save_json(tir.IndexMap(lambda i: [doubled(i, 10)], 1)))
        assert len(made.text()) < 1 << 20
    """,
    "extern": "refused(lambda: te.extern((8,), [a], lambda i, o: statements(), name='e'))",
    "verify": "refused(lambda: tir.verify(function(statements())))",
    "build": "refused(lambda: anyfn.build(function(statements())))",
    "schedule": "refused(lambda: tir.Schedule(function(statements())))",
    "default schedule": "refused(lambda: tir.default_schedule(function(statements())))",
    "passes": "[refused(lambda: transform.get(name)(function(statements()))) for name in transform.names()]",
    "pipeline": "refused(lambda: transform.default_pipeline()(function(statements())))",
    "pass of a user": "refused(lambda: anyfn.lower([a, te.compute((8,), lambda i: a[i])], passes=[lambda f: function(statements())]))",
    "interpreter": "refused(lambda: tir.interpret(function(statements()), array, array.copy()))",
    "condition": """
        x = tir.decl_buffer((8,), name="x")
        value = x[0]
        for _ in range(60):
            value = tir.select(value > 0.5, value, value + value)
        refused(lambda: tir.verify(function(tir.Allocate(x, x.store(value, 0)))))
    """,
    "arguments of a call": """
        given = anyfn.Array([v])
        for _ in range(60):
            given = anyfn.Array([given, given])
        refused(lambda: tir.verify(function(tir.Evaluate(tir.Call("int32", "exp", [given])))))
        assert len(str(function(tir.Evaluate(tir.Call("int32", "exp", [given]))))) < 20 << 20
    """,
}


@pytest.mark.parametrize("name", SHARED)
def test_shared_nodes_are_not_copied_as_a_tree(name):
    run(SHARED[name])


def test_inlining_does_not_double_for_ever():
    run("""
    tensors = [te.placeholder((8,), name="t")]
    for number in range(40):
        last = tensors[-1]
        tensors.append(te.compute((8,), lambda i: last[i] + last[7 - i], name=f"t{number}"))
    schedule = tir.Schedule(te.create_prim_func([tensors[0], tensors[-1]]))
    def inline():
        for number in range(39):
            schedule.compute_inline(f"t{number}")
    refused(inline)
    out = np.zeros(8, "float32")
    anyfn.build([tensors[0], tensors[12]])(np.ones(8, "float32"), out)
    assert (out == 2.0**12).all()
    """)


DEEP = {
    "text": "assert str(chain(v)).count('+') == DEPTH",
    "simplification": "assert str(tir.Analyzer().simplify(chain(v))) == f'v + {DEPTH}'",
    "index": "anyfn.source([b, te.compute((8,), lambda i: b[chain(i, 5000)])])",
    "index map": """
        c = te.compute((8,), lambda i: a[i], name="c")
        schedule = tir.Schedule(te.create_prim_func([a, te.compute((8,), lambda i: c[i])]))
        refused(lambda: schedule.transform_layout("c", "c", lambda i: [chain(i)]), ValueError, "the index map")
    """,
    "sequences": "refused(lambda: tir.verify(function(nested())), NameError, 'is not defined where it is used')",
    "text of sequences": "assert len(str(function(nested()))) < 20 << 20",
    "vectors of vectors": """
        import json
        saved = json.loads(anyfn.save_json(tir.Broadcast(tir.const(1.0), 4)))
        nodes, root = saved["nodes"], saved["root_index"]
        for _ in range(DEPTH):
            nodes.append({"type": "tir.Broadcast", "data": dict(nodes[root]["data"], value=root)})
            root = len(nodes) - 1
        loaded = anyfn.load_json(json.dumps(dict(saved, root_index=root)))
        str(loaded + loaded)
    """,
    "arguments of a call": """
        given = anyfn.Array([v])
        for _ in range(DEPTH):
            given = anyfn.Array([given])
        call = tir.Evaluate(tir.Call("int32", "exp", [given]))
        str(function(call))
        refused(lambda: anyfn.source(function(call)), (NameError, TypeError, ValueError), "")
    """,
}


@pytest.mark.parametrize("name", DEEP)
def test_depth_does_not_end_the_process(name):
    run(f"""
    import threading
    DEPTH = 200_000
    b = te.placeholder((100_000,), name="b")
    def chain(x, depth=DEPTH):
        for _ in range(depth):
            x = tir.Add(x, 1)
        return x
    def nested():
        made = tir.decl_buffer((8,), name="q").store(1.0, 0)
        for _ in range(DEPTH):
            made = tir.SeqStmt(anyfn.Array([made]))
        return made
    done = []
    def work():
{textwrap.indent(textwrap.dedent(DEEP[name]), " " * 8)}
        done.append(True)
    # Little stack, so that what recurses on it shows.
    threading.stack_size(1 << 19)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done
    """)


def test_the_source_of_a_deep_function_is_not_mostly_blanks():
    x = te.placeholder((8,), name="x")

    def value(i):
        made = x[i]
        for _ in range(3000):
            made = made * made + 1.0
        return made

    assert len(anyfn.source([x, te.compute((8,), value, name="y")])) < 4 << 20


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: te.placeholder((2**63,), name="a"), r"extent 0 of `a` must fit into int64 but is uint64\(9223372036854775808\)"),
        (lambda: te.compute((2, 2**64 - 1), lambda i, j: 1.0, name="a"), "extent 1 of `a` must fit into int64"),
        (lambda: te.placeholder((-1,), name="a"), "must not be negative but is -1"),
        (lambda: te.reduce_axis((0, 2**63), "k"), "the bounds of axis `k` must fit into int64"),
        (lambda: tir.verify(allocated((2**63,))), "an extent of buffer `q` must fit into int64"),
        (lambda: tir.verify(looped(2**63)), "a bound of loop `i` must fit into int64"),
        (lambda: te.placeholder((2**64,), name="a"), "int 18446744073709551616"),
    ],
)
def test_extents_that_no_integer_holds(make, text):
    with pytest.raises((ValueError, OverflowError), match=text):
        make()


def allocated(shape):
    q = tir.decl_buffer(shape, name="q")
    return function(tir.Allocate(q, q.store(1.0, 0)))


def looped(extent):
    q = tir.decl_buffer((8,), name="q")
    return function(tir.Allocate(q, tir.for_loop(extent, lambda i: q.store(1.0, 0))))


def function(body):
    a = te.placeholder((8,), name="a")
    func = te.create_prim_func([a, te.compute((8,), lambda i: a[i], name="b")])
    return tir.PrimFunc(func.params, func.buffer_map, body, func.attrs)


def test_products_of_extents_that_no_integer_holds():
    """Checks that an allocation of 2 ** 64 bytes or more fails, and is not reduced modulo 2 ** 64 to a smaller one."""
    run("""
    x = te.placeholder((8,), name="x")
    for shape in ((2**31, 2**31, 4), (2**62,), (2**33, 2**31), (2**21, 2**21, 2**22), (2**40,)):
        first = te.compute(shape, lambda *i: x[i[0] % 8], name="first")
        second = te.compute(shape, lambda *i: first[i], name="second")
        zeros = [0] * (len(shape) - 1)
        schedule = tir.Schedule(te.create_prim_func([x, te.compute((8,), lambda i: second[tuple([i, *zeros])])]))
        refused(lambda: anyfn.build(schedule)(array, array.copy()), MemoryError, "cannot allocate buffer `first`: out of memory")
        refused(lambda: tir.interpret(schedule.func(), array, array.copy()), (MemoryError,), "bytes")
    """)


def test_a_loop_of_more_than_int64_is_not_an_empty_one():
    """Checks that a loop extent beyond int64 is rejected. As a signed number, it would be negative."""
    with pytest.raises(ValueError, match="must fit into int64"):
        anyfn.source(looped(2**63))


@pytest.mark.parametrize("lanes", [0, 1])
def test_vectors_without_lanes(lanes):
    with pytest.raises(ValueError, match="at least 2 lanes"):
        tir.Broadcast(tir.const(1), lanes)


def test_index_maps_of_many_dimensions():
    with pytest.raises(ValueError, match="at most 1024 indices, not 1000000000"):
        tir.IndexMap(lambda *i: [0], 10**9)


def test_code_that_never_runs_is_checked():
    """Checks that unreachable code is verified for names, types and counts, on which later passes rely.

    Only accesses outside of a buffer are allowed in such code.
    """
    lost = tir.var("lost")
    q = tir.decl_buffer((8,), name="q")
    with pytest.raises(NameError, match="`lost` is not defined"):
        tir.verify(function(tir.Allocate(q, tir.for_loop(0, lambda i: q.store(1.0, lost)))))
    with pytest.raises(NameError, match="`lost` is not defined"):
        tir.verify(function(tir.Allocate(q, tir.IfThenElse(tir.const(False, "bool"), q.store(1.0, lost)))))
    tir.verify(function(tir.Allocate(q, tir.for_loop(0, lambda i: q.store(1.0, 99)))))


def test_passes_and_schedules_take_what_verify_takes():
    q = tir.decl_buffer((8,), name="q")
    wrong = function(q.store(1.0, 0))
    for name in transform.names():
        with pytest.raises(NameError, match="buffer `q` is not defined where it is used"):
            transform.get(name)(wrong)
    for take in (tir.Schedule, tir.default_schedule, transform.default_pipeline()):
        with pytest.raises(NameError, match="buffer `q` is not defined where it is used"):
            take(wrong)
    with pytest.raises(NameError, match="in pass `spoil`"):
        transform.Pipeline([transform.prim_func_pass(lambda f: wrong, name="spoil"), transform.get("simplify")])(allocated((8,)))


def test_a_hostile_trace():
    """Checks that a trace is not replayed if its index map has an operation with operands of different data types."""
    x = te.placeholder((8, 8), name="x")
    y = te.compute((8, 8), lambda i, j: x[i, j], name="y")
    func = te.create_prim_func([x, te.compute((8, 8), lambda i, j: y[i, j], name="z")])
    schedule = tir.Schedule(func)
    schedule.transform_layout("y", "y", lambda i, j: [i, j // 4, j % 4])
    saved = json.loads(anyfn.save_json(schedule.trace()))
    (number,) = [n for n in saved["nodes"] if n["type"] == "tir.FloorMod"]
    saved["nodes"][number["data"]["b"]]["data"]["dtype"] = "float32"
    with pytest.raises(TypeError, match="the operands of `%` have different data types: int32 and float32"):
        tir.Schedule.replay(func, anyfn.load_json(json.dumps(saved)))


@pytest.mark.parametrize(
    "name", ["../../escaped", "/anyfn-escaped", "..", "", "a\0b", "a/b", "x" * 5000, "\n", "é", "C:\\x", "simplify"], ids=repr
)
def test_names_of_passes_are_no_paths(tmp_path, name):
    folder = tmp_path / "here" / "dump"
    pipeline = transform.Pipeline([transform.prim_func_pass(lambda func: func, name=name)])
    pipeline.dump(str(folder))
    pipeline(allocated((8,)))
    files = sorted(file.name for file in folder.iterdir())
    assert len(files) == 2 and files[0] == "00_input.txt" and files[1].startswith("01_") and files[1].endswith(".txt")
    assert len(files[1]) <= 107 and (name != "simplify" or files[1] == "01_simplify.txt")
    assert sorted(file.name for file in tmp_path.rglob("*")) == sorted(["here", "dump", *files])


@pytest.mark.parametrize(
    "options, text",
    [
        ({"cc": ""}, "expected the command of a C compiler, got an empty string"),
        ({"cc": " \t"}, "expected the command of a C compiler, got an empty string"),
        ({"vector_bytes": -16}, "expected 16, 32 or 64, or 0 for no vectors, got -16"),
        ({"vector_bytes": 2**62}, "expected 16, 32 or 64, or 0 for no vectors"),
        ({"vector_bytes": 24}, "expected 16, 32 or 64, or 0 for no vectors, got 24"),
        ({"num_cores": 0}, "at least one core, not 0"),
        ({"num_cores": -(2**63)}, "at least one core"),
        ({"num_cores": 2**62}, "at most 65536 cores"),
        ({"mcpu": "native -o x"}, "option `mcpu` of a target: expected the name of a processor"),
        ({"kind": ""}, "unknown target kind ``"),
        ({"kind": "rocm"}, "unknown target kind `rocm`"),
        ({"opt_level": 3}, "a target has no option `opt_level`"),
    ],
)
def test_targets_that_make_no_sense(options, text):
    with pytest.raises(ValueError, match=text):
        anyfn.lower(allocated((8,)), options)


@pytest.mark.parametrize("field, value", [("vector_bytes", -16), ("vector_bytes", 2**40), ("num_cores", 0), ("kind", "nothing")])
def test_saved_targets_that_make_no_sense(field, value):
    saved = json.loads(anyfn.save_json(anyfn.Target()))
    (target,) = [node for node in saved["nodes"] if node["type"] == "tir.Target"]
    if isinstance(value, str):
        saved["nodes"][target["data"][field]]["data"] = value
    else:
        target["data"][field] = value
    with pytest.raises(ValueError, match="target"):
        anyfn.source(allocated((8,)), anyfn.load_json(json.dumps(saved)))


@pytest.mark.parametrize("alignment", [0, -5, 3, -(2**31)])
def test_alignments_are_powers_of_two(alignment):
    saved = json.loads(anyfn.save_json(allocated((8,))))
    for node in saved["nodes"]:
        if node["type"] == "tir.Buffer":
            node["data"]["alignment"] = alignment
    with pytest.raises(ValueError, match="must be a power of two but is"):
        tir.verify(anyfn.load_json(json.dumps(saved)))


def test_environment_variables_that_make_no_sense(tmp_path):
    code = """
    x = te.placeholder((8,), name="x")
    for number in range(2):
        anyfn.build([x, te.compute((8,), lambda i: x[i] + number)])
    """
    program = PRELUDE + textwrap.dedent(code)
    for variable, value, said in [
        ("ANYFN_CACHE_MB", "-5", 'ANYFN_CACHE_MB must be a number of megabytes, got "-5"'),
        ("ANYFN_CACHE_MB", "much", 'ANYFN_CACHE_MB must be a number of megabytes, got "much"'),
        ("ANYFN_CACHE", "of", 'ANYFN_CACHE must be `off` or `on`, got "of"'),
        ("ANYFN_CACHE_MB", "7", ""),
        ("ANYFN_CACHE", "on", ""),
    ]:
        environment = {**os.environ, "ANYFN_CACHE_DIR": str(tmp_path), variable: value}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env=environment)
        assert done.returncode == 0, done.stderr
        expected = [f"anyfn: warning: {said}; it is ignored"] if said else []
        assert done.stderr.splitlines() == expected


def test_expressions_that_contain_themselves():
    """Checks that expressions which contain themselves are rejected.

    They contain a node of a user-defined type with a settable field.
    """
    run("""
    from typing import Any

    @anyfn.object("limits.Odd")
    class Odd(tir.PrimExpr):
        inner: Any = None

    odd = Odd(dtype="int32", inner=None)
    odd.inner = odd
    statement = tir.Evaluate(odd)
    assert len(str(statement)) < 20 << 20
    known = tir.Analyzer()
    for ask in (known.simplify, known.const_bound, known.modular, lambda x: known.can_prove(x > 0), lambda x: known.assume(x > 0),
                lambda x: known.bind(v, 0, x), lambda x: known.bounds(x, [v]), lambda x: tir.IndexMap(lambda i: [x], 1),
                lambda x: te.compute((8,), lambda i: x.astype("float32")), lambda x: te.placeholder((x,)),
                lambda x: te.reduce_axis((0, x))):
        refused(lambda: ask(odd), text="contains itself")
    for take in (tir.verify, tir.Schedule, anyfn.build, anyfn.source, tir.default_schedule, transform.get("simplify"),
                 lambda f: tir.interpret(f, array, array.copy())):
        refused(lambda: take(function(statement)), text="")
    """)


def test_loops_end_within_their_data_type():
    program = """
    def f(a: Buffer((33,), "int32"), n: "int32"):
        attr("global_symbol", "f")
        for k in range({first}, extent=33):
            a[k - {first}] = k
    """
    program = textwrap.dedent(program)
    for first in (2**31 - 33, 2**31 - 1):
        with pytest.raises(ValueError, match=f"loop `k` ends at {first + 33}, which int32 cannot represent"):
            tir.verify(tir.parse(program.format(first=first)))
    out = np.zeros(33, "int32")
    last = tir.parse(program.format(first=2**31 - 34))
    for run in (lambda *args: tir.interpret(last, *args), anyfn.build(last)):
        run(out, 0)
        assert (out == np.arange(2**31 - 34, 2**31 - 1)).all()
    # The values are known only at run time.
    at_run_time = tir.parse(program.format(first="n"))
    tir.verify(at_run_time)
    tir.interpret(at_run_time, out, 2**31 - 34)
    with pytest.raises(OverflowError, match="loop `k` ends at 2147483648, which int32 cannot represent"):
        tir.interpret(at_run_time, out, 2**31 - 33)


def test_the_interpreter_refuses_or_computes_operands_of_wrong_types():
    # A float in place of an integer may exceed all integers of 64 bits.
    text = anyfn.save_json(tir.parse(textwrap.dedent("""
    def f(a: Buffer((1,), "float64"), b: Buffer((1,), "float64")):
        attr("global_symbol", "f")
        b[0] = a[0] * a[0] + a[0]
    """)))
    func = anyfn.load_json(text.replace("tir.Mul", "tir.And"))
    with pytest.raises(TypeError, match="does not take float64"):
        tir.verify(func)
    tir.interpret(func, np.array([1e300]), np.zeros(1))
