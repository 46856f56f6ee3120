"""Builds the libraries that the Python benchmarks load, and the extension modules of other binding generators."""

import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


class Unavailable(Exception):
    """Error that contains the reason why a library or extension cannot be built on this machine."""


def run(command, **environment):
    """Runs a command and returns its standard output. Raises `Unavailable` with the command's error message if it fails."""
    done = subprocess.run(
        list(map(str, command)), env=dict(os.environ, **environment), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
        raise Unavailable(f"{Path(command[0]).name}: {next((x for x in lines if 'error' in x), lines[-1]).strip()}")
    return done.stdout


def ask(python, expression, imports="sys"):
    """Evaluates an expression in another Python interpreter and returns the value as a string."""
    return run([python, "-c", f"import {imports}; print({expression})"]).strip()


def kernels(work):
    """Builds the library of C kernels, which both anyfn and the peer load."""
    include = f"-I{ROOT}/bindings/c/include"
    run(["cc", "-O3", "-shared", "-fPIC", include, HERE / "kernels.c", "-o", work / "kernels.so"])
    # Functions whose calls keep the GIL, which is a setting of a native function.
    shutil.copyfile(work / "kernels.so", work / "kernels_kept.so")


# Options for `cpp/calls.cc`. The position of a function or loop in memory changes the time of a call by a clock cycle.
CPP_FLAGS = "-O2 -std=c++17 -falign-functions=64 -falign-loops=32".split()


def cpp_calls(library, work):
    """Builds the program that measures the C++ headers, and returns its path."""
    headers = [f"-I{ROOT}/bindings/cpp/include", f"-I{ROOT}/bindings/c/include"]
    folder = Path(library).parent
    run(
        ["c++", *CPP_FLAGS, HERE / "cpp/calls.cc", *headers, f"-L{folder}", "-lanyfn", f"-Wl,-rpath,{folder}"]
        + ["-o", work / "cpp_calls"]
    )
    return work / "cpp_calls"


def node_addon(work):
    """Builds the plain addon for Node.js, and returns its path."""
    run(["cc", "-O2", "-shared", "-fPIC", HERE / "js/plain.c", "-o", work / "plain.node"])
    return work / "plain.node"


def java_version(home):
    """Returns the version of a JDK, such as 17."""
    return int(run([Path(home) / "bin/javac", "-version"]).split()[1].split(".")[0].split("-")[0])


def java(classes, *homes, work):
    """Builds the programs of the rows in Java, with the JDKs in `homes`, the oldest first. Returns the last arguments of `java/calls.py`."""
    folder = work / "java"
    folder.mkdir(exist_ok=True)
    includes = [f"-I{homes[0]}/include", f"-I{homes[0]}/include/linux"]
    run(["cc", "-O2", "-shared", "-fPIC", *includes, HERE / "java/plain.c", "-o", folder / "libplain.so"])
    sources = [HERE / "java/Plain.java", HERE / "java/Calls.java"]
    run([f"{homes[0]}/bin/javac", "--release", "17", "-cp", classes, "-d", folder, *sources])
    if java_version(homes[-1]) >= 22:
        path = f"{classes}:{folder}"
        run([f"{homes[-1]}/bin/javac", "--release", "22", "-cp", path, "-d", folder / "ffm", HERE / "java/Ffm.java"])
    named = [f"java={homes[-1]}"]
    if java_version(homes[0]) == 17 and len(homes) > 1:
        named.append(f"java17={homes[0]}")
    return [folder, classes, *named]


def peer(python, work):
    """Builds the benchmarks' C++ files with the headers of the peer: a program, a function library and a plugin."""
    package = Path(ask(python, "tvm_ffi.__file__", "tvm_ffi")).parent
    library = package / "lib/libtvm_ffi.so"
    flags = [f"-I{package}/include", f"-I{package}/3rdparty/dlpack/include", library, f"-Wl,-rpath,{package}/lib"]
    run(["c++", "-O3", "-std=c++17", HERE / "peer_native.cc", *flags, "-o", work / "peer_native"])
    run(["c++", *CPP_FLAGS, "-DBENCH_PEER", HERE / "cpp/calls.cc", *flags, "-o", work / "peer_cpp_calls"])
    functions = [HERE / "peer_functions.cc", *flags, "-o", work / "peer_functions.so"]
    run(["c++", "-O3", "-std=c++17", "-shared", "-fPIC", *functions])
    # Not linked to a runtime, so that both can load it.
    plugin = [ROOT / "testing/hosts/plugin.cc", *flags[:2], "-o", work / "host_plugin.so"]
    run(["c++", "-O2", "-std=c++17", "-shared", "-fPIC", *plugin])
    return library


def nanobind(python, work):
    """Builds the benchmark extension module that uses nanobind, with the flags of nanobind's build system."""
    package = Path(ask(python, "nanobind.__file__", "nanobind")).parent
    includes = [ask(python, "sysconfig.get_path('include')", "sysconfig"), package / "include"]
    includes.append(package / "ext/robin_map/include")
    suffix = ask(python, "sysconfig.get_config_var('EXT_SUFFIX')", "sysconfig")
    flags = "-std=c++17 -O3 -DNDEBUG -shared -fPIC -fvisibility=hidden -fno-strict-aliasing -fno-stack-protector"
    run(
        ["c++", *flags.split(), "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"]
        + [f"-I{path}" for path in includes]
        + [package / "src/nb_combined.cpp", HERE / "nanobind_functions.cc", "-o", work / f"bench_nanobind{suffix}"]
    )


def pyo3(python, work):
    """Builds the benchmark extension module that uses PyO3."""
    target = work / "pyo3"
    run(
        ["cargo", "build", "--release", "--locked", "--manifest-path", HERE / "pyo3/Cargo.toml"],
        PYO3_PYTHON=str(python),
        CARGO_TARGET_DIR=str(target),
    )
    shutil.copyfile(target / "release/libbench_pyo3.so", work / "bench_pyo3.so")


def versions(options):
    """Returns a dict from the name of each package that is compared with anyfn to its version."""
    found = {}
    if options.peer_python:
        found["peer"] = ask(options.peer_python, "tvm_ffi.__version__", "tvm_ffi")
    if options.tvm_python:
        found["tvm"] = ask(options.tvm_python, "importlib.metadata.version('apache-tvm')", "importlib.metadata")
    if options.bench_python:
        found["nanobind"] = ask(options.bench_python, "nanobind.__version__", "nanobind")
    lock = (HERE / "pyo3/Cargo.lock").read_text().split('name = "pyo3"\nversion = "')
    found["pyo3"] = lock[1].split('"')[0]
    return found
