"""The simulated CUDA driver (``testing/cuda/simulated.cc``), with which CUDA is tested on machines without a GPU."""

import functools
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
FOLDER = ROOT / "testing" / "cuda"


@functools.cache
def environment():
    """Compiles the driver unless that was done before. Returns the variables of a process that uses it, or the reason why not."""
    compiler = os.environ.get("CXX") or "c++"
    if shutil.which(compiler) is None:
        return f"no C++ compiler {compiler}"
    source = FOLDER / "simulated.cc"
    content = source.read_bytes() + (FOLDER / "threads.h").read_bytes()
    library = ROOT / "target" / "simulated-cuda" / f"libcuda-{hashlib.sha256(content).hexdigest()[:16]}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        made = library.with_suffix(f".{os.getpid()}")
        options = ["-std=c++17", "-O1", "-shared", "-fPIC", "-fvisibility=hidden", "-o", str(made)]
        done = subprocess.run([compiler, *options, str(source), "-ldl", "-lpthread"], capture_output=True, text=True)
        if done.returncode != 0:
            return f"{compiler} cannot compile the simulated CUDA driver: {done.stderr}"
        made.rename(library)
    return {
        "ANYFN_CUDA_LIBRARY": str(library),
        "ANYFN_NVRTC_LIBRARY": str(library),
        "SIMULATED_CUDA_SHIM": str(FOLDER / "shim.h"),
    }
