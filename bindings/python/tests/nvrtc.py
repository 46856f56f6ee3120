"""NVRTC, the compiler of CUDA C, called by ctypes: what it makes of generated kernels is tested independently of the driver of anyfn."""

import ctypes
import functools
import os
import re
from pathlib import Path

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))

# Compute capabilities for which kernels are compiled: Turing, Ampere, Hopper and two of Blackwell.
ARCHITECTURES = ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"]


@functools.cache
def library():
    """Returns the library and its name, or None and the reason why it cannot be opened."""
    chosen = os.environ.get("ANYFN_REAL_NVRTC")
    installed = ROOT / ".x" / "nvrtc" / "nvidia" / "cuda_nvrtc" / "lib" / "libnvrtc.so.12"
    names = [chosen] if chosen else [str(installed), "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]
    reasons = []
    for name in names:
        try:
            return ctypes.CDLL(name), name
        except OSError as error:
            reasons.append(str(error))
    return None, "NVRTC cannot be opened: " + "; ".join(reasons)


class Failed(Exception):
    """The log of a source that does not compile."""


def compile(source, arch, *options, ptx=False):
    """Compiles CUDA C. Returns the code and the log, which contains the report of the assembler."""
    nvrtc, reason = library()
    assert nvrtc is not None, reason
    program = ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None) == 0
    try:
        words = [f"--gpu-architecture={arch}", "--ptxas-options=-v", *options]
        array = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
        code = nvrtc.nvrtcCompileProgram(program, len(words), array)
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode().rstrip("\0")
        if code != 0:
            raise Failed(log)
        if ptx:
            return _text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program), log
        return _text(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program), log
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _text(size_of, get, program):
    size = ctypes.c_size_t()
    assert size_of(program, ctypes.byref(size)) == 0
    text = ctypes.create_string_buffer(max(size.value, 1))
    assert get(program, text) == 0
    return text.raw[: size.value]


def usage(log):
    """Reads registers, spilled bytes, bytes of the stack and of shared memory from the report of a source with one kernel."""

    def number(pattern):
        found = re.search(pattern, log)
        return int(found[1]) if found else 0

    assert "registers" in log, log
    return {
        "registers": number(r"Used (\d+) registers"),
        "spilled": number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads"),
        "stack": number(r"(\d+) bytes stack frame"),
        "shared": number(r"(\d+) bytes smem"),
    }
