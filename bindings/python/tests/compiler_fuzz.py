"""Random programs with random schedules, whose interpreted and compiled forms must give the same results.

Each seed is a program of tensor expressions with a schedule. The program is interpreted as written, after scheduling and
after lowering, and it is run as compiled code. All results must agree: integers and exact floats bit for bit, other floats
within the error that a reordered sum may have. A failure therefore shows which form is wrong. Inputs are small integers, so
that most sums are exact.

``python compiler_fuzz.py --seconds 3600`` runs for an hour from a seed that it chooses and prints; ``--first N`` sets the
first seed. ``--seed N`` runs one seed and, if it fails, removes schedule steps as long as the failure remains.
"""

import argparse
import random
import sys
import time
import traceback

import anyfn
import numpy as np
from anyfn import te, tir

EXTENTS = [1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 32, 33]
DTYPES = ["float32"] * 6 + ["float64", "int32", "int32", "int64", "int8", "uint8", "int16", "uint16", "uint32",
                           "uint64", "bool"]
BATCH = 40  # seeds that are compiled together
STEPS = ["split", "split", "split3", "fuse", "reorder", "parallel", "vectorize", "vectorize", "unroll", "decompose",
         "inline", "reverse_inline", "cache_read", "cache_write", "compute_at", "reverse_compute_at", "layout", "rfactor",
         "pad_axes"]


@anyfn.register_func("compiler_fuzz.reverse", override=True)
def reverse(source, target):
    """Copies the array ``source`` to ``target``, with its elements reversed along every axis."""
    np.copyto(np.asarray(target), np.flip(np.asarray(source)))


def lowest(dtype):
    """Returns the smallest value of a data type."""
    dtype = str(dtype)
    return tir.const(float("-inf") if dtype.startswith("float") else int(np.iinfo(dtype).min), dtype)


class Wrong(Exception):
    """Error that is raised when two forms of a program give different results."""


EXACT, DOUBLE, SINGLE = 2, 1, 0

# Sizes that floats do not reach. Nearer to the largest number, the order of operations decides if a sum is infinite, or NaN.
LARGEST = {"float32": 2**100, "float64": 2**900}


class Value:
    """A tensor or expression with its data type and precision.

    Unless it is exact, its precision is at most that of the least precise value in ``of``, from which it is computed.
    """

    def __init__(self, tensor, dtype, exact, size, of=()):
        self.tensor, self.dtype, self.exact, self.size = tensor, dtype, exact, size
        own = SINGLE if dtype == "float32" else DOUBLE
        self.precision = EXACT if exact else min([own, *(value.precision for value in of)])


class Program:
    """A random function of tensor expressions, and the arrays with which it is called."""

    dtypes = DTYPES
    """Data types of tensors; those that occur more often are chosen more often."""
    inner_dtypes = DTYPES
    """Data types of parts of expressions that are converted."""
    compared_dtypes = ["int32", "float32", "int64", "uint8", "uint64"]
    """Data types of compared expressions."""
    wide_indices = 0.1
    """Probability that indices are ``int64``."""

    def __init__(self, seed):
        self.choose = random.Random(f"program {seed}")
        self.numbers = np.random.default_rng(seed)
        self.values, self.inputs, self.extents = [], [], []
        self.names = 0
        choose = self.choose
        self.rank = choose.choice([1, 2, 2, 2, 3])
        limit = {1: 64, 2: 33, 3: 9}[self.rank]
        sizes = [e for e in EXTENTS if e <= limit] + ([100, 1000] if self.rank == 1 else [])
        self.sizes = [choose.choice(sizes) for _ in range(self.rank)]
        if choose.random() < 0.05:
            self.sizes[choose.randrange(self.rank)] = 0
        self.index_dtype = "int64" if choose.random() < self.wide_indices else "int32"
        self.symbolic = [choose.random() < 0.2 for _ in range(self.rank)]
        self.vars = [tir.var(f"n{d}", self.index_dtype) if s else None for d, s in enumerate(self.symbolic)]
        self.shape = [v if v is not None else tir.const(n, self.index_dtype) for v, n in zip(self.vars, self.sizes)]
        for place in range(choose.randint(1, 3)):
            self.placeholder(place)
        outputs = []
        for place in range(choose.randint(1, 4)):
            made = self.stage(place)
            self.values.extend(made)
            outputs = made if choose.random() < 0.8 else [*outputs, *made]
        tensors = [value.tensor for value in outputs]
        self.outputs = outputs
        self.func = te.create_prim_func([*self.inputs, *tensors], name=f"f{seed}")
        self.precision = [value.precision for value in outputs]

    # --- parts of a program

    def placeholder(self, place):
        choose = self.choose
        dtype = choose.choice(self.dtypes)
        # The first input has all dimensions, so that all extents are determined.
        dims = list(range(self.rank))
        if place > 0 and choose.random() < 0.4:
            dims = sorted(choose.sample(dims, choose.randint(1, self.rank)))
        tensor = te.placeholder([self.shape[d] for d in dims], dtype, name=f"in{place}")
        self.inputs.append(tensor)
        value = Value(tensor, dtype, True, 4)
        value.dims = dims
        self.values.append(value)

    def arrays(self):
        """Returns arrays for the parameters. Output arrays initially contain values that the function must overwrite."""
        given = []
        for value in self.values[: len(self.inputs)]:
            shape = [self.sizes[d] for d in value.dims]
            low = 0 if value.dtype.startswith("u") or value.dtype == "bool" else -4
            high = 2 if value.dtype == "bool" else 5
            given.append(self.numbers.integers(low, high, shape).astype(value.dtype))
        outs = []
        for value in self.outputs:
            fill = 77 if value.dtype != "bool" else 1
            outs.append(np.full([self.sizes[d] for d in value.dims], fill, value.dtype))
        return given, outs

    def index(self, d, axis):
        """Returns an index expression for a dimension. In most cases, the expression is the axis itself."""
        n = self.shape[d]
        way = self.choose.random()
        if way < 0.7 or self.sizes[d] == 0:
            return axis
        if way < 0.8:
            return n - 1 - axis
        if way < 0.9:
            return (axis + self.choose.randint(1, 5)) % n
        return tir.max(tir.min(axis + self.choose.randint(-3, 3), n - 1), 0)

    def element(self, axes, want=None):
        """Returns an element of a tensor whose dimensions are all among ``axes``, or a constant if no tensor fits."""
        known = [value for value in self.values if all(d in axes for d in value.dims)]
        known = [value for value in known if value.size <= LARGEST.get(value.dtype, value.size)]
        if not known:
            return Value(tir.const(self.choose.randint(-3, 3), "int32"), "int32", True, 3)
        value = self.choose.choice(known)
        expr = value.tensor[tuple(self.index(d, axes[d]) for d in value.dims)]
        return Value(expr, value.dtype, value.exact, value.size, [value])

    def cast(self, value, dtype):
        if value.dtype == dtype:
            return value
        if dtype == "bool":
            return self.cast(value, "int32") if value.dtype == "bool" else Value(value.tensor != self.zero(value), "bool", value.exact, 1, [value])
        narrow = {"int8": 2**7, "uint8": 2**7, "int16": 2**15, "uint16": 2**15}.get(dtype, 2**31)
        is_float = value.dtype.startswith("float")
        if is_float and not dtype.startswith("float"):
            if not value.exact or value.size >= narrow or dtype.startswith("u"):
                # The conversion of values that do not fit is unspecified, and values close to an integer may round differently.
                number = self.choose.randint(0, 3)
                return Value(tir.const(number, dtype), dtype, True, number)
        if value.size > LARGEST.get(dtype, value.size):
            return Value(tir.const(1, dtype), dtype, True, 1)
        exact = value.exact and (not dtype.startswith("float") or value.size < 2**24)
        size = value.size if dtype.startswith("float") or value.size < narrow else narrow
        if dtype.startswith("u"):
            size = max(size, 2 ** (8 * np.dtype(dtype).itemsize))
        return Value(value.tensor.astype(dtype), dtype, exact, size, [value])

    def zero(self, value):
        return tir.const(0, value.dtype)

    def expr(self, axes, dtype, depth):
        """Returns a random expression with the data type ``dtype``."""
        choose = self.choose
        if depth == 0 or choose.random() < 0.15:
            way = choose.random()
            if way < 0.1:
                low = 0 if dtype.startswith("u") or dtype == "bool" else -3
                number = choose.randint(low, 1 if dtype == "bool" else 4)
                return Value(tir.const(bool(number) if dtype == "bool" else number, dtype), dtype, True, 4)
            if way < 0.2 and axes:
                axis = choose.choice(list(axes.values()))
                return self.cast(Value(axis + 0, self.index_dtype, True, 1000), dtype)
            return self.cast(self.element(axes), dtype)
        below = depth - 1
        a = self.expr(axes, dtype, below)
        if dtype == "bool":
            way = choose.randrange(4)
            if way == 0:
                return Value(~a.tensor, dtype, a.exact, 1, [a])
            if way == 1:
                b = self.expr(axes, dtype, below)
                expr = a.tensor & b.tensor if choose.random() < 0.5 else a.tensor | b.tensor
                return Value(expr, dtype, a.exact and b.exact, 1, [a, b])
            of = choose.choice(self.compared_dtypes)
            return self.compare(axes, of, below)
        is_float = dtype.startswith("float")
        way = choose.randrange(12)
        if way == 0:
            other = choose.choice(self.inner_dtypes)
            return self.cast(self.expr(axes, other, below), dtype)
        b = self.expr(axes, dtype, below)
        exact = a.exact and b.exact
        if way <= 2:
            condition = self.compare(axes, choose.choice(["int32", "float32"]), min(below, 1))
            if not condition.exact:
                condition = Value(list(axes.values())[0] % 2 == 0, "bool", True, 1)
            return Value(tir.select(condition.tensor, a.tensor, b.tensor), dtype, exact, max(a.size, b.size), [a, b])
        if way <= 4:
            function = tir.min if way == 3 else tir.max
            return Value(function(a.tensor, b.tensor), dtype, exact, max(a.size, b.size), [a, b])
        if way == 5 and is_float:
            if choose.random() < 0.5:
                return Value(a.tensor / (b.tensor * b.tensor + 1), dtype, False, a.size, [a, b])
            names = ["exp", "tanh", "sigmoid", "sqrt", "log", "erf", "sin", "floor", "fmax", "hypot"]
            name = choose.choice(names)
            inner = a.tensor
            if name in ("fmax", "hypot"):
                symbol = name + ("f" if dtype == "float32" else "")
                called = tir.call_extern(symbol, inner, b.tensor, dtype=dtype)
                return Value(called, dtype, name == "fmax" and exact, a.size + b.size, [a, b])
            if name == "floor" and not a.exact:
                name = "tanh"
            if name == "exp":
                inner = tir.min(inner, 4)
            if name in ("sqrt", "log"):
                inner = inner * inner + 1
            return Value(getattr(tir, name)(inner), dtype, name == "floor" and a.exact, max(a.size, 60), [a])
        if way == 5:
            sign = choose.choice(["//", "%", "truncmod", "/", "&", "|", "^", "<<", ">>"])
            size = 2**64 if sign == "<<" else 2 * (a.size + b.size) if sign in "&|^" else max(a.size, b.size)
            try:
                return Value(tir._call.binary(sign, a.tensor, b.tensor), dtype, True, size)
            except (ZeroDivisionError, ValueError):
                # The operand is an invalid constant.
                return a
        if way <= 8:
            expr = a.tensor + b.tensor if way <= 7 else a.tensor - b.tensor
            # Values below 0 wrap around to the largest number.
            wraps = way == 8 and dtype.startswith("u")
            size = 2 ** (8 * np.dtype(dtype).itemsize) if wraps else a.size + b.size
        else:
            expr, size = a.tensor * b.tensor, a.size * b.size
        if is_float and size > LARGEST[dtype]:
            return a
        return Value(expr, dtype, exact and (not is_float or size < 2**24), size, [a, b])

    def compare(self, axes, dtype, depth):
        a, b = self.expr(axes, dtype, depth), self.expr(axes, dtype, depth)
        sign = self.choose.choice(["<", "<=", ">", ">=", "==", "!="])
        return Value(tir._call.binary(sign, a.tensor, b.tensor), "bool", a.exact and b.exact, 1, [a, b])

    def stage(self, place):
        """Creates a random stage, an operation that computes one or two tensors, and returns a value for each tensor."""
        choose = self.choose
        if choose.random() < 0.06:
            return self.packed(place)
        dtype = choose.choice(self.dtypes)
        if choose.random() < 0.35 and dtype != "bool":
            return self.reduction(place, dtype)
        made, dims = [], list(range(self.rank))
        if choose.random() < 0.15:
            dims = sorted(choose.sample(dims, choose.randint(1, self.rank)))
        dtypes = [dtype] if choose.random() < 0.9 else [dtype, choose.choice(self.dtypes)]

        def body(*axes):
            named = dict(zip(dims, axes))
            made.extend(self.expr(named, of, choose.randint(1, 3)) for of in dtypes)
            return tuple(value.tensor for value in made) if len(made) > 1 else made[0].tensor

        tensors = te.compute([self.shape[d] for d in dims], body, name=f"s{place}")
        values = []
        for tensor, value in zip(tensors if isinstance(tensors, tuple) else [tensors], made):
            values.append(Value(tensor, value.dtype, value.exact, value.size, [value]))
            values[-1].dims = dims
        return values

    def packed(self, place):
        """Returns a value for a tensor that the compiled code computes by calling a Python function."""
        value = self.choose.choice([value for value in self.values if value.dtype != "bool"] or [None])
        if value is None:
            return self.reduction(place, "int32")

        def body(ins, outs):
            return tir.call_packed("compiler_fuzz.reverse", ins[0], outs[0])

        shape = [self.shape[d] for d in value.dims]
        tensor = te.extern(shape, [value.tensor], body, name=f"s{place}", dtype=value.dtype)
        result = Value(tensor, value.dtype, value.exact, value.size, [value])
        result.dims = value.dims
        return [result]

    def reduction(self, place, dtype):
        choose = self.choose
        dims = list(range(self.rank))
        reduced = sorted(choose.sample(dims, choose.randint(1, min(2, self.rank))))
        kept = [d for d in dims if d not in reduced]
        axes = {d: te.reduce_axis((tir.const(0, self.index_dtype), self.shape[d]), f"k{d}") for d in reduced}
        kind = choose.choice(["sum", "sum", "sum", "sum", "min", "max", "own", "several"])
        made = []

        def body(*indices):
            named = {**dict(zip(kept, indices)), **{d: axis + 0 for d, axis in axes.items()}}
            value = self.expr(named, dtype, choose.randint(0, 2))
            made.append(value)
            over = list(axes.values())
            if kind == "several":
                reducer, second = self.several(named, reduced, value)
                made.append(second)
                return reducer((value.tensor, second.tensor), axis=over)
            if kind == "own":
                own = te.comm_reducer(lambda x, y: x + y, lambda t: tir.const(0, t), name="own")
                where = named[reduced[0]] % 2 == 0 if choose.random() < 0.5 else None
                return own(value.tensor, axis=over, where=where)
            return getattr(te, kind)(value.tensor, axis=over)

        tensors = te.compute([self.shape[d] for d in kept], body, name=f"s{place}")
        count = 1
        for d in reduced:
            count *= max(self.sizes[d], 1)
        is_empty = any(self.sizes[d] == 0 for d in reduced)
        results = []
        for tensor, value in zip(tensors if isinstance(tensors, tuple) else [tensors], made):
            size = value.size * (count if kind in ("sum", "own", "several") else 1)
            if kind in ("min", "max", "several") and is_empty:
                # The largest or smallest value of the data type.
                size = 2**63
            exact = value.exact and (not value.dtype.startswith("float") or size < 2**24)
            results.append(Value(tensor, value.dtype, exact, size, [value]))
            results[-1].dims = kept
        return results

    def several(self, axes, reduced, value):
        """Returns a reducer of two values, and the second value: the index of the maximum, or a value to be summed."""
        if value.exact and self.choose.random() < 0.6:
            where = axes[reduced[0]]
            for d in reduced[1:]:
                where = where * self.shape[d] + axes[d]

            def largest(x, y):
                is_first = (x[0] > y[0]) | ((x[0] == y[0]) & (x[1] < y[1]))
                return tuple(tir.select(is_first, a, b) for a, b in zip(x, y))

            second = Value(where, self.index_dtype, True, 2**20)
            return te.comm_reducer(largest, lambda a, b: (lowest(a), tir.const(2**20, b))), second
        dtype = self.choose.choice([dtype for dtype in self.dtypes if dtype != "bool"])
        second = self.expr(axes, dtype, 1)
        return te.comm_reducer(lambda x, y: (tir.max(x[0], y[0]), x[1] + y[1]),
                               lambda a, b: (lowest(a), tir.const(0, b))), second

    # --- schedules

    def schedule(self, seed, skipped=()):
        """Returns a random schedule. Steps that the schedule rejects have no effect."""
        choose = random.Random(f"schedule {seed}")
        base = self.func
        schedule = tir.default_schedule(base) if choose.random() < 0.15 else tir.Schedule(base)
        for number in range(choose.choice([0, 2, 4, 8, 12])):
            # Each step has its own random numbers, so that the other steps do not change when one is left out.
            if number not in skipped:
                self.step(schedule, random.Random(f"step {seed} {number}"))
        return schedule

    def step(self, schedule, choose):
        blocks = [name for name in schedule.get_blocks() if name != "root"]
        if not blocks:
            return
        block = choose.choice(blocks)
        name = choose.choice(STEPS)
        buffers = [v.op.name for v in self.inputs] + blocks
        try:
            loops = schedule.get_loops(block)
            if name in ("compute_at", "reverse_compute_at"):
                if hasattr(schedule, name):
                    targets = schedule.get_loops(choose.choice(blocks))
                    if targets:
                        getattr(schedule, name)(block, choose.choice(targets))
                return
            if name == "inline":
                return schedule.compute_inline(block)
            if name == "reverse_inline":
                return schedule.reverse_compute_inline(block)
            if name in ("cache_read", "cache_write"):
                return getattr(schedule, name)(block, choose.choice(buffers), choose.choice(["global", "local"]))
            if name == "layout":
                maps = [
                    lambda *i: i[::-1],
                    lambda *i: (*i[:-1], i[-1] // 4, i[-1] % 4) if i else (),
                    lambda *i: (i[0] // 8, *i[1:], i[0] % 8) if i else (),
                ]
                return schedule.transform_layout(block, choose.choice(buffers), choose.choice(maps))
            if not loops:
                return
            loop = choose.choice(loops)
            if name == "split":
                schedule.split(loop, [None, choose.choice([1, 2, 3, 4, 8, 16])])
            elif name == "split3":
                schedule.split(loop, [choose.randint(1, 4), None, choose.choice([2, 4, 8])])
            elif name == "fuse":
                at = choose.randrange(len(loops))
                schedule.fuse(loops[at : at + choose.randint(2, 3)])
            elif name == "reorder":
                schedule.reorder(choose.sample(list(loops), choose.randint(1, len(loops))))
            elif name == "parallel":
                schedule.parallel(choose.choice([loops[0], loop]))
            elif name == "vectorize":
                schedule.vectorize(loops[-1])
            elif name == "unroll":
                schedule.unroll(choose.choice([loops[-1], loop]))
            elif name == "decompose":
                schedule.decompose_reduction(block, loop)
            elif name == "pad_axes":
                schedule.pad_axes(block, [choose.choice([None, 2, 4, 8]) for _ in range(choose.randint(1, 3))])
            elif name == "rfactor" and hasattr(schedule, "rfactor"):
                schedule.rfactor(block, loop)
        except ValueError:
            pass


def run(call, program):
    given, outs = program.arrays_now
    outs = [out.copy() for out in outs]
    call(*given, *outs)
    return outs


def compare(what, expected, got, program):
    for place, (a, b, precision) in enumerate(zip(expected, got, program.precision)):
        if precision == EXACT or a.dtype.kind != "f":
            same = np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        else:
            same = np.allclose(a, b, rtol=2e-3 if precision == SINGLE else 1e-7, atol=2e-3, equal_nan=True)
        if not same:
            at = np.argwhere(~np.isclose(a.astype("float64"), b.astype("float64"), equal_nan=True))
            first = tuple(at[0]) if len(at) else ()
            raise Wrong(
                f"{what}: output {place} differs in {len(at)} of {a.size} elements, first at {first}: "
                f"expected {a[first]} but got {b[first]}"
            )


class Case:
    """A test case: the random program of a seed, and its scheduled and lowered forms."""

    def __init__(self, seed, skipped=()):
        self.seed = seed
        self.program = Program(seed)
        self.program.arrays_now = self.program.arrays()
        self.schedule = None
        self.skipped = skipped
        self.func = self.program.func

    def prepare(self, target):
        """Checks that the interpreted, scheduled and lowered forms agree, and returns the scheduled function."""
        program, func = self.program, self.program.func
        self.expected = run(lambda *args: tir.interpret(func, *args), program)
        self.where = "parse"
        read = tir.parse(str(func))
        if not anyfn.structural_equal(read, func, map_free_vars=True):
            raise Wrong("the function is not what is read from its text")
        self.where = "schedule"
        if self.seed % 4 != 0:
            self.schedule = program.schedule(self.seed, self.skipped)
            self.func = self.schedule.func()
            scheduled = self.func
            self.where = "the scheduled function"
            got = run(lambda *args: tir.interpret(scheduled, *args), program)
            compare("the scheduled function", self.expected, got, program)
            read = tir.parse(str(scheduled))
            if str(read) != str(tir.parse(str(read))):
                raise Wrong("the scheduled function is not what is read from its text")
            again = tir.Schedule.replay(func, self.schedule.trace())
            if str(again) != str(self.schedule):
                raise Wrong("the steps of the schedule, done again, give another function")
        self.where = "passes"
        lowered = anyfn.lower(self.func, target)
        (lowered_func,) = lowered.functions.values()
        self.lowered = lowered_func
        self.where = "the lowered function"
        got = run(lambda *args: tir.interpret(lowered_func, *args), program)
        compare("the lowered function", self.expected, got, program)
        self.where = "compiled code"
        return self.func

    def check(self, call):
        self.where = "compiled code"
        compare("compiled code", self.expected, run(call, self.program), self.program)

    def report(self):
        parts = [f"seed {self.seed}, at {getattr(self, 'where', 'the interpreter')}", str(self.program.func)]
        if self.schedule is not None:
            parts += ["--- steps", str(self.schedule.trace()), "--- scheduled", str(self.func)]
        if hasattr(self, "lowered"):
            parts += ["--- lowered", str(self.lowered)]
        return "\n".join(parts)


def targets():
    """Returns the targets to compile for. Code for the last target is accepted by any C compiler."""
    return [{"kind": "c", "vector_bytes": size} for size in (16, 32, 64, 0)]


def target_of(seed):
    return targets()[seed // BATCH % len(targets())]


def fails(seed, skipped=(), target=None):
    """Returns a description of the failure of a seed's program, or None if the program passes."""
    case = None
    try:
        case = Case(seed, skipped)
        func = case.prepare(target)
        case.check(anyfn.build(func, target, cache=False)[func.attrs["global_symbol"]])
    except Exception as error:
        return f"{traceback.format_exc(limit=-3)}\n{type(error).__name__}: {error}\n{case.report() if case else seed}"
    return None


def shrunk(seed, target=None):
    """Returns a description of the failure of a seed's program without unnecessary steps, or None if the program passes.

    A schedule step is unnecessary if the program still fails without it.
    """
    text = fails(seed, (), target)
    if text is None:
        return None
    skipped = ()
    for number in range(12):
        shorter = fails(seed, (*skipped, number), target)
        if shorter is not None:
            skipped, text = (*skipped, number), shorter
    return f"{text}\n(without steps {skipped})"


def batch(seeds, target, is_compiled=True):
    """Returns the failing seeds of a list, each with a description of the failure.

    One call of the C compiler compiles all of them, unless ``is_compiled`` is false, in which case they are only lowered.
    """
    wrong, ready = [], []
    for seed in seeds:
        case = None
        try:
            case = Case(seed)
            ready.append((case, case.prepare(target)))
        except Exception:
            wrong.append((seed, f"{traceback.format_exc(limit=-2)}\n{case.report() if case else seed}"))
    if not ready or not is_compiled:
        return wrong
    functions = {func.attrs["global_symbol"]: func for _, func in ready}
    try:
        module = anyfn.build(functions, target, cache=False)
    except Exception:
        # Finds the function that fails.
        for case, _ in ready:
            text = fails(case.seed, (), target)
            if text is not None:
                wrong.append((case.seed, text))
        return wrong
    for case, func in ready:
        try:
            case.check(module[func.attrs["global_symbol"]])
        except Exception:
            wrong.append((case.seed, f"{traceback.format_exc(limit=-2)}\n{case.report()}"))
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--first", type=int, help="the first seed; otherwise a new one each time")
    parser.add_argument("--most", type=int, default=10, help="end after so many failures")
    parser.add_argument("--lowered", action="store_true", help="compile nothing: look for errors of schedules and passes")
    options = parser.parse_args()
    if options.seed is not None:
        text = shrunk(options.seed, target_of(options.seed))
        print(text or "nothing is wrong")
        return int(text is not None)
    if options.first is None:
        options.first = random.randrange(1_000_000) * BATCH
    print(f"from seed {options.first}", flush=True)
    begin, first, failures = time.monotonic(), options.first, 0
    while time.monotonic() - begin < options.seconds and failures < options.most:
        target = target_of(first)
        for seed, text in batch(range(first, first + BATCH), target, not options.lowered):
            failures += 1
            print(f"=== seed {seed}, target {target}\n{text}\n", flush=True)
        first += BATCH
    print(f"{first - options.first} programs in {time.monotonic() - begin:.0f} s, {failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
