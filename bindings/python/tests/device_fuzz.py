"""Random programs with random schedules for a device, whose kernels must give the results of the interpreter.

The programs are those of ``compiler_fuzz.py``. A schedule consists of random steps, some of which bind loops to thread axes and
put buffers into shared memory, or is the default schedule. What a device cannot do is refused when the program is built; the
reasons are known, and any other error is a failure.

``python device_fuzz.py --seconds 3600`` runs for an hour from a seed that it chooses and prints; ``--first N`` sets the first
seed, ``--seed N`` runs one seed, and ``--kind vulkan`` uses a device of that kind instead of an OpenCL device. ``--kind cuda`` and
``--kind metal`` with ``--simulated`` use simulated drivers; for Metal there is no other.
"""

import argparse
import os
import random
import re
import sys
import time
import traceback

import compiler_fuzz
import numpy as np
import simulated_cuda
import simulated_metal

import anyfn
from anyfn import tir

AXES = ["blockIdx.x", "blockIdx.x", "blockIdx.y", "threadIdx.x", "threadIdx.x", "threadIdx.y"]

# Reasons for which a schedule is refused when it is built for a device.
REFUSED = re.compile(
    "must be a constant of at least 1|is not known before the kernel starts|loops of different extents are bound|"
    "cannot place a barrier|accessed outside of a loop that is bound|allocated between loops over threads|"
    "allocated outside of the loops over blocks|its size must be constant|more than the limit|around kernels reads memory|"
    "shared by the threads of a block, but"
)


class Small(compiler_fuzz.Program):
    """A program with the data types of WGSL."""

    dtypes = ["float32"] * 6 + ["int32", "int32", "uint32"]
    inner_dtypes = [*dtypes, "bool"]
    compared_dtypes = ["int32", "float32", "uint32"]
    wide_indices = 0


class Single(compiler_fuzz.Program):
    """A program with the data types of MSL, which has no ``float64``."""

    dtypes = [dtype for dtype in compiler_fuzz.Program.dtypes if dtype != "float64"]
    inner_dtypes = [dtype for dtype in compiler_fuzz.Program.inner_dtypes if dtype != "float64"]
    compared_dtypes = [dtype for dtype in compiler_fuzz.Program.compared_dtypes if dtype != "float64"]


PROGRAMS = {"cuda": compiler_fuzz.Program, "metal": Single, "opencl": compiler_fuzz.Program, "vulkan": Small}


def schedule_of(program, seed, kind):
    """Returns a random schedule for a device. Steps that the schedule rejects have no effect."""
    choose = random.Random(f"device {seed}")
    if choose.random() < 0.25:
        return None
    schedule = tir.Schedule(program.func)
    for number in range(choose.choice([0, 0, 2, 4, 8])):
        program.step(schedule, random.Random(f"step {seed} {number}"))
    for number in range(choose.choice([1, 3, 6])):
        step(schedule, random.Random(f"device step {seed} {number}"))
    if choose.random() < 0.3:
        schedule.finish(kind)
    return schedule


def tile(schedule, choose, block, loops):
    """Copies what blocks of threads read to shared memory."""
    copy = schedule.cache_read(block, choose.choice([0, 0, 1]))
    loops = schedule.get_loops(block)
    outer, inner = schedule.split(loops[0], [None, choose.choice([2, 4, 8])])
    schedule.bind(outer, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")
    schedule.compute_at(copy, outer)
    threads(schedule, choose, copy, outer)
    schedule.set_scope(copy, 0, "shared")


def rows(schedule, choose, block, loops, blocks):
    """Computes the rows of several blocks in blocks of threads."""
    schedule.bind(loops[0], "blockIdx.x")
    for other in reversed(blocks[: blocks.index(block)]):
        try:
            schedule.compute_at(other, loops[0])
            threads(schedule, choose, other, loops[0])
            if choose.random() < 0.5:
                schedule.set_scope(other, 0, "shared")
        except ValueError:
            pass
    threads(schedule, choose, block, loops[0])


def threads(schedule, choose, block, outer):
    """Binds the first loop of a block within the loop ``outer`` to threads."""
    loops = schedule.get_loops(block)
    names = [loop.name for loop in loops]
    own = loops[names.index(outer.name) + 1 :] if outer.name in names else loops[1:]
    if own and choose.random() < 0.9:
        first, last = schedule.split(own[0], [None, choose.choice([2, 4, 8])])
        if choose.random() < 0.5:
            schedule.reorder([last, first])
        schedule.bind(last, choose.choice(["threadIdx.x", "threadIdx.x", "threadIdx.y"]))


def step(schedule, choose):
    """Applies a random step for devices."""
    blocks = [name for name in schedule.get_blocks() if name != "root"]
    if not blocks:
        return
    block = choose.choice(blocks)
    try:
        loops = schedule.get_loops(block)
        kind = choose.choice(["bind", "grid", "copy", "tile", "tile", "tile", "rows", "rows", "rows"])
        if kind == "tile" and loops:
            tile(schedule, choose, block, loops)
        elif kind == "rows" and loops:
            rows(schedule, choose, block, loops, blocks)
        elif kind == "copy":
            schedule.cache_read(block, 0, choose.choice(["global", "global", "shared"]))
        elif kind == "bind" and loops:
            schedule.bind(choose.choice(loops), choose.choice(AXES))
        elif kind == "grid" and loops:
            outer, inner = schedule.split(loops[0], [None, choose.choice([1, 2, 4, 8, 16])])
            schedule.bind(outer, "blockIdx.x")
            schedule.bind(inner, choose.choice(["threadIdx.x", "threadIdx.y"]))
    except ValueError:
        pass


class Case:
    def __init__(self, seed, kind="opencl"):
        self.seed, self.kind = seed, kind
        self.program = PROGRAMS[kind](seed)
        self.program.arrays_now = self.program.arrays()
        self.schedule = schedule_of(self.program, seed, kind)
        self.func = self.program.func if self.schedule is None else self.schedule.func()
        self.expected = compiler_fuzz.run(lambda *args: tir.interpret(self.program.func, *args), self.program)

    def check(self, function):
        def call(*args):
            tensors = [anyfn.tensor(arg, device=f"{self.kind}:0") if isinstance(arg, np.ndarray) else arg for arg in args]
            function(*tensors)
            for arg, tensor in zip(args, tensors):
                if isinstance(arg, np.ndarray):
                    arg[...] = tensor.to("cpu").numpy()

        compiler_fuzz.compare("kernels", self.expected, compiler_fuzz.run(call, self.program), self.program)

    def report(self):
        steps = "default schedule" if self.schedule is None else str(self.schedule.trace())
        return f"seed {self.seed}\n{self.program.func}\n--- steps\n{steps}\n--- scheduled\n{self.func}"


def batch(seeds, kind="opencl"):
    """Returns the number of programs that were run, the number that were refused, and descriptions of the failures.

    One call of the C compiler compiles the host code of all of them.
    """
    ready, refused, wrong = [], 0, []
    for seed in seeds:
        case = None
        try:
            case = Case(seed, kind)
            if "call_packed(" in str(case.func) or "call_extern(" in str(case.func):
                refused += 1
                continue
            anyfn.source(case.func, kind)
            ready.append(case)
        except ValueError as error:
            if case is not None and REFUSED.search(str(error)):
                refused += 1
            else:
                wrong.append(f"{traceback.format_exc(limit=-2)}\n{case.report() if case else seed}")
        except Exception:
            wrong.append(f"{traceback.format_exc(limit=-2)}\n{case.report() if case else seed}")
    if ready:
        module = anyfn.build({case.func.attrs["global_symbol"]: case.func for case in ready}, kind, cache=False)
    for case in ready:
        try:
            case.check(module[case.func.attrs["global_symbol"]])
        except Exception:
            wrong.append(f"{traceback.format_exc(limit=-2)}\n{case.report()}")
    return len(ready), refused, wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--first", type=int, help="the first seed; otherwise a new one each time")
    parser.add_argument("--kind", choices=sorted(PROGRAMS), default="opencl")
    parser.add_argument("--simulated", action="store_true", help="with --kind cuda or metal: a simulated driver, which is not a GPU")
    options = parser.parse_args()
    if options.simulated:
        found = simulated_metal.start() if options.kind == "metal" else simulated_cuda.environment()
        if isinstance(found, str):
            print(f"skipped: {found}")
            return 0
        os.environ.update(found or {})
    reason = anyfn.device(options.kind, 0).why_missing
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    first = options.first if options.first is not None else random.randrange(1_000_000) * 24
    if options.seed is not None:
        print(batch([options.seed], options.kind))
        return 0
    print(f"from seed {first}", flush=True)
    begin, all_done, all_refused, failures = time.monotonic(), 0, 0, 0
    while time.monotonic() - begin < options.seconds and failures < 10:
        done, refused, wrong = batch(range(first, first + 24), options.kind)
        for text in wrong:
            print(f"=== {text}\n", flush=True)
        all_done, all_refused, failures, first = all_done + done, all_refused + refused, failures + len(wrong), first + 24
    print(f"{all_done} programs ran and {all_refused} were refused in {time.monotonic() - begin:.0f} s, {failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
