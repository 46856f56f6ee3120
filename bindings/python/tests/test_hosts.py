"""Tests of each kind of plugin in each kind of host program. The plugin works, or the error describes the remedy.

The hosts (`testing/hosts`) are programs that use a plugin in the same way and print the same lines. They call the functions
of the plugin. Then they drop the module before the objects that they keep of it: a function, a tensor, an object, an error and
a registration. The output in place of `*` depends on the build.
"""

import fnmatch
import os
import shutil
import subprocess
import sys
from pathlib import Path

import anyfn
import pytest

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
SOURCES = ROOT / "testing/hosts"
PACKAGE = str(Path(anyfn.__file__).parent.parent)
BUILT = Path(os.environ.get("ANYFN_LIB_DIR", ROOT / "target/debug"))
PEER = ROOT / ".x/venv-peer/bin/python"

if "ANYFN_WHEEL" in os.environ:
    pytest.skip("runs with the sources, not with the wheel", allow_module_level=True)

COMMON = """
call 5
error ValueError: told so, at some length
mistake TypeError
"""
BY_CALLBACK = """
callback 21
through IndexError: of the host
"""
OBJECTS = """
map a=1 b=2
object 7
field {field}
not its TypeError
"""
KEPT = """
function 6
tensor 1.5 2.5
"""
# Output of the hosts for each plugin.
WORKS = {
    "rust": COMMON + BY_CALLBACK + "caught IndexError: of the host\narray 3 2 1" + OBJECTS.format(field=7) + """
registered 42
pinned None
""" + KEPT + """
field 7
error kept, and long enough
registered 42 gone
leases tensors 1 objects *
leases none
mapped no
""",
    "c": COMMON + BY_CALLBACK + """
caught IndexError: of the host
array 3 2 1
registered 42
pinned None
""" + KEPT + """
error kept, and long enough
registered 42 there
leases functions 2 tensors 1
leases none
mapped no
""",
    "compiled": COMMON + BY_CALLBACK + """
array 3 2 1
pinned None
error kept, and long enough
leases none
leases none
mapped no
""",
    "c++": COMMON + "foreign InternalError: told so, at some length" + BY_CALLBACK + """
caught IndexError: of the host
array 3 2 1
""" + OBJECTS.format(field=7) + """
registered 42
pinned it is C++ code, whose objects are not counted
""" + KEPT + """
field 7
error kept, and long enough
registered 42 there
leases none
leases none
mapped yes
""",
}  # fmt: skip
SECOND_RUNTIME = "*: it needs libtvm_ffi.so, which would load a second runtime beside *; link it without libtvm_ffi.so*"
NOT_SHOWN = "*: it needs TVMFFI* from the runtime, which this program contains but does not export to libraries; link the program with -rdynamic *, or with libanyfn.so"
NOT_OURS = "*: it needs TVMFFI* from the runtime and would get them from *libtvm_ffi.so instead of *libanyfn.so: *; load the library before that runtime is loaded (in Python: before importing tvm_ffi), or with that runtime"
OF_THE_PEER = "*: it uses the runtime *libtvm_ffi.so, but this is *libanyfn.so; load it with that runtime, or link it without libtvm_ffi.so"

# Error that a host reports for a plugin; None if the plugin works there.
PLUGINS = ["rust", "c", "c++", "compiled", "linked with the peer"]
TABLE = {
    "python": [None, None, None, None, SECOND_RUNTIME],
    "python, tvm_ffi imported later": [None, None, None, None, SECOND_RUNTIME],
    "python, tvm_ffi imported before": [NOT_OURS, NOT_OURS, NOT_OURS, None, OF_THE_PEER],
    "c": [None, None, None, None, SECOND_RUNTIME],
    "c, libanyfn.a, exporting": [None, None, None, None, SECOND_RUNTIME],
    "c, libanyfn.a": [NOT_SHOWN, NOT_SHOWN, NOT_SHOWN, None, SECOND_RUNTIME],
    "rust, exporting": [None, None, None, None, SECOND_RUNTIME],
    "rust, plain": [NOT_SHOWN, NOT_SHOWN, NOT_SHOWN, None, SECOND_RUNTIME],
}
CELLS = [(host, plugin, answer) for host, row in TABLE.items() for plugin, answer in zip(PLUGINS, row)]


def run(command, **kwargs):
    """Runs a command, checks that it succeeds, and returns its output."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, **kwargs)
    assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def peer():
    """Returns the path of the Python interpreter for which apache-tvm-ffi is installed."""
    if not PEER.exists():
        pytest.skip("apache-tvm-ffi is not installed; `./x setup --peer`")
    return PEER


def compiler(*names):
    for name in names:
        if shutil.which(name):
            return name
    pytest.skip(f"no {names[0]}")


def built(name):
    """Returns the path of a file that cargo has built. Skips the test if the file is missing."""
    if not (BUILT / name).exists():
        pytest.skip(f"{name} is not built; `cargo build -p anyfn-lib -p anyfn-hosts -p anyfn-hosts-plugin`")
    return BUILT / name


def compile_cpp(source, target, level="-O1"):
    """Compiles a C++ file against the headers of apache-tvm-ffi."""
    folders = [run([peer(), "-m", "tvm_ffi.config", f"--{which}includedir"]).strip() for which in ("", "dlpack-")]
    flags = ["-std=c++17", level, "-Wall", "-shared", "-fPIC", *(f"-isystem{folder}" for folder in folders)]
    run([compiler("c++", "g++"), *flags, source, "-o", target])


@pytest.fixture(scope="session")
def plugin(tmp_path_factory):
    """Returns a function that compiles a plugin on first use and returns the path of the plugin."""
    folder = tmp_path_factory.mktemp("plugins")
    strict = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", f"-I{ROOT}/bindings/c/include"]

    def make(name, target):
        if name == "c":
            run([compiler("cc", "gcc"), *strict, SOURCES / "plugin.c", "-o", target])
        elif name == "compiled":
            run([compiler("cc", "gcc"), *strict, SOURCES / "slots.c", "-o", target])
        elif name == "linked with the peer":
            where = run([peer(), "-c", "import tvm_ffi.libinfo as l; print(l.find_libtvm_ffi())"]).strip()
            run([compiler("cc", "gcc"), *strict, SOURCES / "plugin.c", "-Wl,--no-as-needed", where, "-o", target])
        else:
            compile_cpp(SOURCES / "plugin.cc", target)

    def get(name):
        if name == "rust":
            return built("libanyfn_hosts_plugin.so")
        path = folder / f"{PLUGINS.index(name)}.so"
        if not path.exists():
            make(name, path)
        return path

    return get


@pytest.fixture(scope="session")
def host(tmp_path_factory):
    """Returns a function that builds a host program if necessary and returns the command that runs it."""
    folder = tmp_path_factory.mktemp("hosts")

    def in_c(name):
        program = folder / name.replace(", ", "-")
        if not program.exists():
            strict = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/bindings/c/include"]
            if name == "c":
                link = [f"-L{BUILT}", "-lanyfn", f"-Wl,-rpath,{BUILT}"]
            else:
                # The archive of a release is one object. That of a development build has many, and the linker would leave out
                # those that no symbol of the program needs, such as the loader of modules.
                whole = ["-Wl,--whole-archive", built("libanyfn.a"), "-Wl,--no-whole-archive"]
                link = [*whole, "-lpthread", "-ldl", "-lm", *(["-rdynamic"] if "exporting" in name else [])]
            run([compiler("cc", "gcc"), *strict, SOURCES / "host.c", "-o", program, *link])
        return [program]

    def get(name):
        if name.startswith("c"):
            return in_c(name)
        if name.startswith("rust"):
            return [built({"rust, exporting": "host_exporting", "rust, plain": "host_plain"}[name])]
        python = sys.executable if name == "python" else peer()
        return [python, "-X", "faulthandler", SOURCES / "host.py"]

    return get


def lines(text):
    return [line for line in text.splitlines() if line]


def check(found, expected):
    """Compares output line by line; `*` in the expected output matches any characters."""
    found, expected = lines(found), lines(expected)
    same = len(found) == len(expected) and all(map(fnmatch.fnmatchcase, found, map(escape, expected)))
    assert same, "\n".join(["found:", *found, "expected:", *expected])


def escape(line):
    return line.replace("[", "[[]")


ORDER = {"python": "never", "python, tvm_ffi imported later": "after", "python, tvm_ffi imported before": "before"}


@pytest.mark.parametrize(("name", "kind", "answer"), CELLS, ids=[f"{host} - {plugin}" for host, plugin, _ in CELLS])
def test_a_plugin_in_a_host(host, plugin, name, kind, answer, tmp_path):
    path = tmp_path / "plugin.so"
    shutil.copy(plugin(kind), path)
    command = [*host(name), path, *([ORDER[name]] if name in ORDER else [])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path if name == "python" else [PACKAGE])}
    found = run(command, env=env)
    check(found, WORKS[kind] if answer is None else f"refused {answer}")


@pytest.mark.parametrize("kind", ["rust", "c", "compiled", "c++"])
def test_a_plugin_in_the_peer(host, plugin, kind):
    """Checks that our plugins work in `tvm_ffi.load_module`, except for features that only our own loader has."""
    found = run([*host("python, tvm_ffi imported before"), plugin(kind), "peer"])
    ours = ("pinned", "leases", "mapped")
    expected = [line for line in lines(WORKS[kind]) if not line.startswith(ours)]
    if kind == "rust":
        # The peer's loader does not query the global functions of a plugin.
        expected = [line for line in expected if not line.startswith("registered")]
    # The peer maps this kind to another kind.
    expected = "\n".join(expected).replace("foreign InternalError", "foreign RuntimeError")
    check(found, expected)


BOTH = """
import sys
import anyfn
ours = anyfn.load_module(sys.argv[1])
first = ours.cell(1)
import tvm_ffi
theirs = tvm_ffi.load_module(sys.argv[2])
def fail(x):
    raise IndexError("of the host")
for n in range(3):
    one, two = ours.cell(n), theirs.cell(n)
    assert one.value == two.value == ours.cell_value(one) == theirs.cell_value(two) == n
    assert list(ours.reverse([1, 2])) == list(theirs.reverse([1, 2])) == [2, 1]
    assert dict(ours.tally(["a"]).items()) == dict(theirs.tally(["a"]).items()) == {"a": 1}
    assert ours.caught(fail, 1) == theirs.caught(fail, 1) == "IndexError: of the host"
assert ours.cell_value(first) == 1
# Objects are of their runtime.
for module, cell in ((ours, two), (theirs, one)):
    try:
        module.cell_value(cell)
    except TypeError as error:
        assert "Expected `hosts.cpp.Cell` but got `ffi.OpaquePyObject`" in str(error), error
    else:
        raise AssertionError
"""


def test_each_runtime_has_its_own_copy_of_a_cpp_plugin(host, plugin, tmp_path):
    """Checks that two copies of a C++ plugin have separate types, although g++ would merge the types by default."""
    copies = [shutil.copy(plugin("c++"), tmp_path / f"{name}.so") for name in ("ours", "theirs")]
    env = {**os.environ, "PYTHONPATH": PACKAGE}
    run([*host("python, tvm_ffi imported later")[:-1], "-c", BOTH, *copies], env=env)


RELOAD = """
import os, sys
import anyfn
old, new, other = sys.argv[1:]
path = old + ".plugin.so"
def load(build):
    # As linkers do: another file of the same name.
    with open(build, "rb") as source, open(path + ".new", "wb") as target:
        target.write(source.read())
    os.replace(path + ".new", path)
    return anyfn.load_module(path)
first = load(old)
cell = first.cell(7)
assert anyfn.get_global_func("hosts.answer")() == 42
second = load(new)
later = second.cell(8)
# The newer function, one type for the objects of both, and the code of both works.
assert anyfn.get_global_func("hosts.answer")() == 43
assert type(cell) is type(later) and (cell.value, later.value) == (7, 8)
assert (first.cell_value(later), second.cell_value(cell)) == (8, 7)
for _ in range(2):
    try:
        load(other)
    except RuntimeError as error:
        assert "the type hosts.cpp.Cell is already registered, with another layout" in str(error), error
    else:
        raise AssertionError
assert anyfn.get_global_func("hosts.answer")() == 43
# The same names in another file.
try:
    anyfn.load_module(new)
except RuntimeError as error:
    assert f"Global Function `hosts.answer` is already registered by the library {path}" in str(error), error
else:
    raise AssertionError
assert second.cell(9).value == 9 and first.add(1, 2) == 3
"""


def test_a_cpp_plugin_that_is_built_again(plugin, tmp_path):
    """Checks that a changed C++ plugin is loaded again. Its static constructors register types and must not throw."""
    text = (SOURCES / "plugin.cc").read_text(encoding="utf-8")
    changes = {"new": ("return 42", "return 43"), "other": ("int64_t value;\n", "int64_t more = 1, value;\n")}
    builds = [shutil.copy(plugin("c++"), tmp_path / "old.so")]
    for name, change in changes.items():
        assert text.count(change[0]) == 1
        (tmp_path / f"{name}.cc").write_text(text.replace(*change), encoding="utf-8")
        builds.append(tmp_path / f"{name}.so")
        compile_cpp(tmp_path / f"{name}.cc", builds[-1], "-O0")
    run([sys.executable, "-c", RELOAD, *builds], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
