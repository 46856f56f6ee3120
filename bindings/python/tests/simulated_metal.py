"""A simulated driver of Metal devices (``testing/metal``), with which generated kernels are run on machines without one.

The kernels are compiled as C++ behind a header that imitates the Metal standard library: what passes has not run on a Mac.
"""

import ctypes
import functools
import hashlib
import os
import shutil
import struct
import subprocess
from pathlib import Path

import anyfn

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
FOLDER = ROOT / "testing" / "metal"
SOURCES = [FOLDER / "simulated.cc", ROOT / "testing" / "cuda" / "threads.h"]
FORMATS = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q", "float32": "f"}


@functools.cache
def library():
    """Compiles the driver unless that was done before. Returns its path, or the reason why not."""
    compiler = os.environ.get("CXX") or "c++"
    if shutil.which(compiler) is None:
        return f"no C++ compiler {compiler}"
    include = ROOT / "bindings" / "c" / "include"
    content = b"".join(path.read_bytes() for path in [*SOURCES, include / "anyfn" / "c_api.h", include / "anyfn" / "anyfn.h"])
    path = ROOT / "target" / "simulated-metal" / f"libmetal-{hashlib.sha256(content).hexdigest()[:16]}.so"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_suffix(f".{os.getpid()}")
        options = ["-std=c++17", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{include}", "-o", str(made)]
        done = subprocess.run([compiler, *options, str(SOURCES[0]), "-ldl", "-lpthread"], capture_output=True, text=True)
        if done.returncode != 0:
            return f"{compiler} cannot compile the simulated Metal driver: {done.stderr}"
        made.rename(path)
    return path


@functools.cache
def start():
    """Registers the driver in this process. Returns None, or the reason why not."""
    path = library()
    if isinstance(path, str):
        return path
    anyfn.load_module(path).register_driver()
    own = ctypes.CDLL(str(path))
    own.simulated_compile.restype = ctypes.c_void_p
    own.simulated_launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
    own.simulated_owns.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    anyfn.register_func("anyfn.metal_compile", functools.partial(compile, own))
    anyfn.register_func("anyfn.metal_device_of", lambda address: 0 if own.simulated_owns(address, 1) else None)
    return None


def address(value):
    """Returns the address of a tensor or an opaque pointer."""
    return value.data_ptr if isinstance(value, anyfn.Tensor) else getattr(value, "value", value)


def compile(own, source, name, params, device):
    """Compiles a kernel. Returns the function that launches it."""
    params, log = [str(param) for param in params], ctypes.create_string_buffer(10_000)
    code = own.simulated_compile(str(source).encode(), str(name).encode(), str(FOLDER).encode(), log, len(log))
    if not code:
        raise RuntimeError(f"cannot compile the kernel `{name}` for {device}: {log.value.decode()}")
    args = [param for param in params if "Idx" not in param]

    def launch(*values):
        pointers, numbers, extents = [], b"", {"blockIdx": [1, 1, 1], "threadIdx": [1, 1, 1]}
        for param, value in zip(params, values):
            if param == "pointer":
                pointers.append(ctypes.c_void_p(None if value is None else address(value)))
            elif param in args:
                numbers += struct.pack(f"<{FORMATS[param]}", value).ljust(8, b"\0")
            else:
                axis, dimension = param.split(".")
                extents[axis]["xyz".index(dimension)] = value
        if numbers:
            kept = (ctypes.c_uint64 * (len(numbers) // 8)).from_buffer_copy(numbers)
            pointers.append(ctypes.cast(kept, ctypes.c_void_p))
        given = (ctypes.c_void_p * len(pointers))(*pointers)
        grid, block = ((ctypes.c_uint * 3)(*extents[axis]) for axis in ("blockIdx", "threadIdx"))
        failed = own.simulated_launch(code, given, len(pointers), grid, block)
        if failed:
            raise RuntimeError(f"the kernel `{name}` failed on {device} ({failed})")

    return launch
