"""Random changes to functions and schedule traces. The compiler must then reject them or execute them correctly.

Each seed is a function of ``compiler_fuzz``, as written, scheduled or lowered. The function is saved, and parts of the saved
JSON are changed at random. If the result loads again, it is printed, parsed, verified, scheduled, lowered, written as C,
compiled and interpreted. Traces are changed in the same way and replayed. Functions that the interpreter can run are also run
as compiled code, which must give the same results. Failures are: a process that ends, a panic, a step that does not react to a
signal, and C code that the C compiler rejects.

``python compiler_nonsense.py --seconds 600`` runs for ten minutes from a seed that it prints; ``--first N`` sets the first seed.
"""

import argparse
import copy
import faulthandler
import json
import random
import signal
import sys
import time

import anyfn
import compiler_fuzz
import numpy as np
from anyfn import tir, transform

DTYPES = ["int32", "int64", "int8", "uint8", "uint64", "float32", "float64", "float16", "bfloat16", "bool", "handle", "void"]
DTYPES += ["int32x4", "float32x8", "float32x65535", "boolx3", "int0", "int128", "uint1", "int7", "float8", "complex64", "float32x1"]
NUMBERS = [0, 1, -1, 2, 3, 7, 8, 63, 64, 65, 127, 128, 255, 256, 65535, 65536, 2**24, 2**31 - 1, 2**31, -(2**31), 2**32]
NUMBERS += [2**53 + 1, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1]
FLOATS = [0.0, -0.0, 1.5, 1e308, -1e-320, float("inf"), float("-inf"), float("nan")]
TEXTS = ["", "serial", "parallel", "vectorized", "unrolled", "spatial", "reduce", "ordered", "global", "local", "root", "exp"]
TEXTS += ["call_packed", "call_extern", "read_only", "pow", "sqrt", "nothing", "a b", "1", "..", "x" * 300, "\0", "é\n", "if"]
TEXTS += ["split", "fuse", "reorder", "vectorize", "unroll", "compute_at", "reverse_compute_at", "compute_inline", "rfactor"]
TEXTS += ["reverse_compute_inline", "cache_read", "cache_write", "decompose_reduction", "pad_axes", "transform_layout"]
TEXTS += ["shared", "blockIdx.x", "threadIdx.x", "threadIdx.y"]
TEXTS += ["annotate", "get_loops", "global_symbol", "scheduled", "partial", "func", "B", "in0"]
BINARY = ["Add", "Sub", "Mul", "Div", "Mod", "FloorDiv", "FloorMod", "Min", "Max", "EQ", "NE", "LT", "LE", "GT", "GE"]
BINARY += ["BitAnd", "BitOr", "BitXor", "ShiftLeft", "ShiftRight", "And", "Or"]
BINARY = [f"tir.{name}" for name in BINARY]
STATEMENTS = ["BufferStore", "For", "Launch", "SeqStmt", "IfThenElse", "LetStmt", "Allocate", "Evaluate", "AssertStmt"]
STATEMENTS += ["BlockRealize"]
STATEMENTS = [f"tir.{name}" for name in STATEMENTS]
# Exception types that invalid input may raise.
REFUSALS = (TypeError, SyntaxError, ValueError, NameError, LookupError, ArithmeticError, MemoryError, RuntimeError, AttributeError, RecursionError)
INTERPRETED = 0.3  # seconds
HANGS = 30  # seconds that a step may take without looking at signals
LIMIT = 2  # seconds after which a step is interrupted


class Wrong(Exception):
    """Error that is raised when the compiler reports an internal failure, hangs or produces wrong results."""


class Interrupted(Exception):
    """Exception that the signal handler raises in a step that exceeds its time limit."""


def interrupted(*_):
    raise Interrupted


def mutated(text, choose):
    """Makes random changes to a saved object, and returns the changed object as JSON."""
    saved = json.loads(text)
    nodes = saved["nodes"]
    for _ in range(choose.choice([1, 1, 1, 2, 3, 5, 20])):
        change(saved, nodes, choose)
    return json.dumps(saved)


def group(node):
    """Returns the category of a saved node, such as ``expression``. Many fields accept any node of a category."""
    kind, data = node["type"], node.get("data")
    if kind in ("tir.Buffer", "tir.PrimFunc") or not kind.startswith("tir."):
        return kind
    if isinstance(data, dict) and "dtype" in data:
        return "expression" if kind != "tir.Var" or data["dtype"] != "handle" else "address"
    return "statement" if kind in STATEMENTS else kind


def references(node):
    """Returns the fields or items of a saved node as pairs of container and key.

    The values in the container are indices of nodes, or inline values.
    """
    data = node.get("data")
    if isinstance(data, dict):
        return [(data, key) for key in data]
    if isinstance(data, list):
        return [(data, place) for place in range(len(data))]
    return []


def change(saved, nodes, choose):
    """Changes one random part of a saved object in place."""
    at = choose.randrange(len(nodes))
    node = nodes[at]
    kind, data = node["type"], node.get("data")
    way = choose.random()
    if way < 0.01:
        saved["root_index"] = choose.randrange(-1, len(nodes) + 1)
    elif way < 0.04:
        # Replaces the node by a copy of another node.
        other = choose.randrange(len(nodes))
        nodes[at] = copy.deepcopy(nodes[other])
    elif way < 0.30 and kind in BINARY:
        node["type"] = choose.choice(BINARY)
    elif way < 0.05:
        node["type"] = choose.choice([other["type"] for other in nodes])
    elif way < 0.06 and isinstance(data, dict) and data:
        del data[choose.choice(list(data))]
    elif way < 0.40 and isinstance(data, list):
        # Sequences with fewer or more items, or in another order.
        step = choose.randrange(4)
        if step == 0 and data:
            del data[choose.randrange(len(data))]
        elif step == 1:
            data.insert(choose.randrange(len(data) + 1), choose.randrange(len(nodes)))
        elif step == 2 and data:
            data += data * choose.choice([1, 3])
        else:
            choose.shuffle(data)
    elif kind == "ffi.String" or (isinstance(data, str) and way < 0.7):
        node["data"] = choose.choice(TEXTS + [other.get("data", "") for other in nodes if other["type"] == "ffi.String"])
    elif not references(node):
        node["data"] = choose.choice([*NUMBERS, *FLOATS, *DTYPES, True, None])
    else:
        place, key = choose.choice(references(node))
        value = place[key]
        if isinstance(value, str):
            place[key] = choose.choice(DTYPES)
        elif key in ("value", "alignment", "lanes", "results", "value_index", "bits") or isinstance(value, (float, bool)):
            place[key] = choose.choice([*NUMBERS, *FLOATS[:4]] if choose.random() < 0.9 else DTYPES)
        elif choose.random() < 0.9 and isinstance(value, int) and 0 <= value < len(nodes):
            # A node of the same kind, which is often of the right type.
            alike = [i for i, other in enumerate(nodes) if group(other) == group(nodes[value])]
            place[key] = choose.choice(alike)
        else:
            place[key] = choose.randrange(-1, len(nodes) + 2)


class Case:
    """A test case: random changes that depend on a seed, and the compiler steps that use the changed object."""

    def __init__(self, seed):
        self.seed = seed
        self.choose = random.Random(f"nonsense {seed}")
        self.counts = {}

    def step(self, name, do, *args, limit=LIMIT, **more):
        """Runs a step and returns its result, or None if the step raises an expected error or exceeds its time limit."""
        print(f"{self.seed} {name}", file=sys.stderr, flush=True)
        faulthandler.dump_traceback_later(HANGS, exit=True)
        signal.setitimer(signal.ITIMER_REAL, limit)
        try:
            result = do(*args, **more)
            self.counts[name] = self.counts.get(name, 0) + 1
            return result
        except Interrupted:
            return None
        except REFUSALS as error:
            check(name, error)
            return None
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            faulthandler.cancel_dump_traceback_later()

    def run(self):
        program = compiler_fuzz.Program(self.choose.randrange(400))
        func, scheduled = program.func, program.schedule(self.choose.randrange(400))
        if self.choose.random() < 0.3:
            self.trace(func, scheduled.trace())
            return self
        way = self.choose.random()
        if way < 0.4:
            func = scheduled.func()
        elif way < 0.6:
            func = next(iter(anyfn.lower(func).functions.values()))
        self.func(mutated(anyfn.save_json(func), self.choose), program)
        return self

    def trace(self, func, trace):
        """Changes a trace at random, and replays it on the function that it was recorded for and on another one."""
        trace = self.step("load", anyfn.load_json, mutated(anyfn.save_json(trace), self.choose))
        if not isinstance(trace, tir.Trace):
            return
        self.step("trace", str, trace)
        other = compiler_fuzz.Program(self.choose.randrange(400)).func
        for target in (func, other):
            schedule = self.step("replay", tir.Schedule.replay, target, trace)
            if schedule is not None:
                # The result of the steps must be valid.
                self.must(schedule.func(), "the replayed schedule is refused")

    def must(self, func, text):
        """Checks that a function produced by the compiler passes the verifier, and that C can be generated from it."""
        try:
            tir.verify(func)
            anyfn.source(func)
        except Exception as error:
            raise Wrong(f"{text}: {type(error).__name__}: {error}\n{func}") from error

    def func(self, text, program):
        """Loads a changed function from JSON, and applies all steps of the compiler to it."""
        func = self.step("load", anyfn.load_json, text)
        if not isinstance(func, tir.PrimFunc):
            if isinstance(func, anyfn.Object):
                self.step("print", str, func)
            return
        text = self.step("print", str, func)
        self.step("repr", repr, func)
        again = self.step("parse", tir.parse, text) if text is not None else None
        if again is not None:
            self.step("print", str, again)
        given = self.arguments(func, program)
        said = [array.copy() for array in given]
        is_run = self.step("interpret", lambda: tir.interpret(func, *said) is None, limit=INTERPRETED)
        name = self.choose.choice(transform.names())
        self.step(f"pass {name}", transform.get(name), func)
        schedule = self.step("schedule", tir.Schedule, func)
        if schedule is not None:
            self.steps(schedule)
        self.step("default schedule", tir.default_schedule, func)
        is_right = self.step("verify", lambda: tir.verify(func) is None)
        lowered = self.step("lower", anyfn.lower, func)
        if lowered is not None and not is_right:
            raise Wrong(f"it is lowered but refused by verify\n{func}")
        source = self.step("source", anyfn.source, func)
        if source is not None and (is_run or self.choose.random() < 0.1):
            module = self.step("build", anyfn.build, func, limit=20)
            # The order of iterations of parallel and vectorized loops is unspecified.
            is_serial = not any(f"in {kind}(" in text for kind in ("parallel", "vectorized"))
            # A called function may read memory that was not written, or write to a read-only argument.
            is_closed = "call_packed" not in text
            if module is not None and is_run and is_serial and is_closed and not converts_floats(func):
                self.compare(module, given, said, func)

    def compare(self, module, given, said, func):
        """Checks that the compiled function gives the same results as the interpreter."""
        try:
            module(*given)
        except REFUSALS as error:
            # Compiled code refuses extents that wrap around.
            if f"expected extent {2**63 - 1}" in str(error):
                return
            raise Wrong(f"what is interpreted is refused: {error}\n{func}") from error
        self.counts["compare"] = self.counts.get("compare", 0) + 1
        for number, (ours, theirs) in enumerate(zip(given, said)):
            if ours.dtype.kind == "f":
                is_same = np.allclose(ours, theirs, rtol=1e-3, atol=1e-3, equal_nan=True)
            else:
                is_same = (ours == theirs).all()
            if not is_same:
                raise Wrong(f"argument {number} is {ours}\nbut interpreted it is {theirs}\n{func}")

    def steps(self, schedule):
        """Applies random schedule steps to the function of ``schedule``, which may be invalid IR, and then lowers it."""
        blocks = schedule.get_blocks()
        for name in ("compute_inline", "reverse_compute_inline"):
            if blocks:
                self.step(name, getattr(schedule, name), self.choose.choice(blocks))
        for block in blocks[:4]:
            loops = self.step("get_loops", schedule.get_loops, block)
            if loops:
                loop = self.choose.choice(loops)
                step = self.choose.choice(["split", "vectorize", "parallel", "unroll", "decompose_reduction", "rfactor", "compute_at"])
                args = {"split": (loop, [None, self.choose.choice([2, 3, 2**31 - 1])])}.get(step)
                args = args or ((block, loop) if step in ("decompose_reduction", "rfactor", "compute_at") else (loop,))
                self.step(step, getattr(schedule, step), *args)
        self.step("lower schedule", lambda: anyfn.source(schedule))

    def arguments(self, func, program):
        """Returns arrays that fit the parameters of the unchanged function."""
        given, outs = program.arrays()
        return [*given, *outs][: len(func.params)]


def converts_floats(func):
    """Returns true if a function converts a float to an integer.

    The result of such a conversion is unspecified if the integer type cannot hold the value.
    """
    found = []

    def look(cast):
        if "float" in str(cast.value.dtype) and "float" not in str(cast.dtype):
            found.append(cast)

    anyfn.structural_walk(func, (tir.Cast, look), once=True)
    return bool(found)


def check(name, error):
    """Raises ``Wrong`` if an error reports an internal failure instead of invalid input."""
    text = str(error)
    if "panic: " in text or "InternalError" in type(error).__name__ or "C compiler failed" in text:
        raise Wrong(f"{name}: {type(error).__name__}: {text}") from error


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--seconds", type=float, default=60)
    args.add_argument("--first", type=int, default=None)
    args.add_argument("--count", type=int, default=2**62)
    args = args.parse_args()
    signal.signal(signal.SIGALRM, interrupted)
    first = args.first if args.first is not None else random.randrange(10**9)
    print(f"from seed {first}", flush=True)
    end, counts, wrong = time.monotonic() + args.seconds, {}, 0
    for seed in range(first, first + args.count):
        if time.monotonic() > end:
            break
        case = Case(seed)
        try:
            case.run()
        except Wrong as error:
            wrong += 1
            print(f"seed {seed}: {error}", flush=True)
        for name, count in case.counts.items():
            counts[name] = counts.get(name, 0) + count
    print(json.dumps({"seeds": seed - first + 1, "wrong": wrong, "counts": counts}), flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
