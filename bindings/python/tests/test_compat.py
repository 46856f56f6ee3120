"""Tests ``anyfn compat`` with environments that the tests make: a package ``tvm_ffi`` of a few lines, and small C libraries.

The real package is tested with the real library in ``testing/peer_package``.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BINARY = Path(os.environ.get("ANYFN_LIB_DIR", ROOT / "target/debug")) / "anyfn"
PROGRAMS = {"python": [sys.executable, "-m", "anyfn"], "rust": [str(BINARY)]}
NAME, KEPT = "libtvm_ffi.so", "libtvm_ffi.so.original"
VERSION = f"python3.{sys.version_info[1]}"

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

# Asks its library for the runtime, as `tvm_ffi` does.
PACKAGE = """
import ctypes, os

_LIBRARY = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "lib", "libtvm_ffi.so"))


def get_global_func(name, allow_missing=False):
    assert name == "anyfn.runtime"
    return (lambda: "anyfn 9.9 (libtvm_ffi.so)") if hasattr(_LIBRARY, "anyfn_api") else None
"""


def compile_library(file, source, *options):
    file.parent.mkdir(parents=True, exist_ok=True)
    words = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(file), *map(str, options)]
    subprocess.run(words, input=source, text=True, check=True)
    return file


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    """Returns a folder with libraries: ``ours``, another build of it, one that crashes, the original and a newer one, and clients."""
    folder = tmp_path_factory.mktemp("libraries")
    soname = f"-Wl,-soname,{NAME}"
    functions = "int TVMFFIOne(void) { return 1; } int TVMFFITwo(void) { return 2; }\n"
    marked = f"int anyfn_api; {functions}"
    for name, source in {
        "ours": marked,
        "other": f"int other_build; {marked}",
        "crashing": f"{marked} #include <stdlib.h>\n__attribute__((constructor)) static void end(void) {{ abort(); }}".replace(
            " #include", "\n#include"
        ),
        "original": f"{functions} int helper(void) {{ return 3; }}",
        "upgraded": f"int upgraded; {functions} int helper(void) {{ return 3; }}",
    }.items():
        compile_library(folder / name / NAME, source, soname)
    linked = ["-L", folder / "original", "-ltvm_ffi"]
    compile_library(folder / "good.so", "int TVMFFITwo(void); int f(void) { return TVMFFITwo(); }", *linked)
    compile_library(folder / "bad.so", "int helper(void); int f(void) { return helper(); }", *linked)
    cxx = "void _ZN3tvm3ffi4newsEv(void); int TVMFFIThree(void); int f(void) { _ZN3tvm3ffi4newsEv(); return TVMFFIThree(); }"
    compile_library(folder / "newer.so", cxx, *linked)
    compile_library(folder / "unrelated.so", "int g(void) { return 1; }")
    return folder


class Environment:
    """A Python environment with a package ``tvm_ffi``, and the program that is tested."""

    def __init__(self, folder, libraries, program):
        self.folder, self.libraries, self.program = folder, libraries, program
        self.site = folder / "lib" / VERSION / "site-packages"
        self.lib = self.site / "tvm_ffi/lib"
        self.file, self.kept = self.lib / NAME, self.lib / KEPT
        self.lib.mkdir(parents=True)
        (self.site / "tvm_ffi/__init__.py").write_text(PACKAGE, encoding="utf-8")
        (self.site / "apache_tvm_ffi-0.1.15.post2.dist-info").mkdir()
        (folder / "bin").mkdir()
        (folder / "bin" / VERSION).symlink_to(sys.executable)
        self.put("original")
        shutil.copy(libraries / "good.so", self.site / "good.so")

    def put(self, name):
        """Installs a library as a package manager does, which removes the old file first."""
        if self.file.is_symlink() or self.file.exists():
            self.file.unlink()
        shutil.copy(self.libraries / name / NAME, self.file)

    def bytes_of(self, name):
        return (self.libraries / name / NAME).read_bytes()

    def has(self, name, kept=None):
        """Checks which library the package has, and which one is kept beside it."""
        assert self.file.read_bytes() == self.bytes_of(name)
        files = {NAME} if kept is None else {NAME, KEPT}
        assert {file.name for file in self.lib.iterdir()} == files
        assert kept is None or self.kept.read_bytes() == self.bytes_of(kept)

    def run(self, *words):
        words = [*self.program, "compat", *map(str, words)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout, done.stderr

    def install(self, *words, library="ours"):
        return self.run("install", self.folder, "--library", self.libraries / library / NAME, *words)

    def check(self, *paths):
        return self.run("check", "--library", self.libraries / "ours" / NAME, *(paths or [self.folder]))

    def restore(self):
        return self.run("restore", self.folder)


@pytest.fixture(params=PROGRAMS)
def environment(request, tmp_path, libraries):
    if request.param == "rust" and not BINARY.exists():
        pytest.skip("the command in Rust is not built")
    return Environment(tmp_path / "env", libraries, PROGRAMS[request.param])


def test_install_and_restore(environment):
    before = environment.file.stat()
    assert environment.check()[0] == 0
    code, out, err = environment.install()
    assert code == 0 and not err and "is now anyfn 9.9 (libtvm_ffi.so)" in out and KEPT in out
    assert f"`anyfn compat restore {environment.folder}` undoes this" in out
    environment.has("ours", kept="original")
    code, out, _ = environment.check()
    assert code == 0 and "  runtime     anyfn\n" in out
    code, out, _ = environment.install()
    assert code == 0 and "already; nothing was changed" in out
    environment.has("ours", kept="original")
    code, out, err = environment.restore()
    assert code == 0 and "is the original library again" in out and not err
    environment.has("original")
    after = environment.file.stat()
    assert (before.st_ino, before.st_mtime_ns, before.st_mode) == (after.st_ino, after.st_mtime_ns, after.st_mode)
    code, out, _ = environment.restore()
    assert code == 0 and "is not the library of anyfn; nothing was changed" in out


def test_check_describes_an_environment(environment):
    shutil.copy(environment.libraries / "unrelated.so", environment.site / "unrelated.so")
    (environment.site / "script.so").write_text("INPUT(-lm)", encoding="utf-8")
    code, out, err = environment.check()
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert (code, err) == (0, "") and lines == [
        str(environment.site),
        "package apache-tvm-ffi 0.1.15.post2",
        "runtime tvm-ffi",
        "libraries good.so 1 symbols",
        "result works with the library of anyfn",
    ]
    found = json.loads(environment.check("--json", environment.folder)[1])
    (package,) = found["packages"]
    assert found["works"] and found["path"] == str(environment.folder) and package["problems"] == []
    assert (package["version"], package["runtime"]) == ("0.1.15.post2", "tvm-ffi")
    assert package["libraries"] == [{"file": str(environment.site / "good.so"), "symbols": 1, "missing": []}]


def test_missing_symbols(environment):
    """The original defines ``helper``, which ours lacks."""
    shutil.copy(environment.libraries / "bad.so", environment.site / "bad.so")
    code, out, _ = environment.check()
    assert code == 1 and "bad.so needs symbols that the library of anyfn lacks: helper\n" in out
    assert "does not work with the library of anyfn" in out
    code, out, err = environment.install()
    assert code == 1 and not out and "lacks: helper; nothing was changed here; `--force`" in err
    environment.has("original")
    code, out, _ = environment.install("--force")
    assert code == 0 and "although bad.so needs symbols" in out
    environment.has("ours", kept="original")
    code, out, _ = environment.check()
    assert code == 1 and "lacks: helper" in out, "the kept original still tells what is missing"


def test_single_libraries(environment):
    libraries = environment.libraries
    assert environment.check(libraries / "good.so")[0] == 0
    code, out, _ = environment.check(libraries / "newer.so", libraries / "good.so")
    assert code == 1 and "lacks: TVMFFIThree, _ZN3tvm3ffi4newsEv\n" in out and out.count("  result ") == 2
    found = json.loads(environment.check("--json", libraries / "newer.so")[1])
    assert found["libraries"][0]["missing"] == ["TVMFFIThree", "_ZN3tvm3ffi4newsEv"] and not found["works"]
    code, out, _ = environment.check(libraries / "unrelated.so")
    assert code == 0 and f"none need {NAME}" in out


def test_an_untested_version(environment):
    (environment.site / "apache_tvm_ffi-0.1.15.post2.dist-info").rename(environment.site / "apache_tvm_ffi-0.1.99.dist-info")
    code, out, _ = environment.check()
    assert code == 1 and "apache-tvm-ffi 0.1.99 was not tested with this library" in out
    assert environment.install()[0] == 1
    environment.has("original")
    assert environment.install("--force")[0] == 0
    environment.has("ours", kept="original")


def test_a_library_with_which_the_package_fails(environment):
    code, out, err = environment.install(library="crashing")
    assert code == 1 and not out and "`import tvm_ffi` fails with the library of anyfn" in err
    assert "the previous library was put back" in err
    environment.has("original")
    assert environment.install()[0] == 0
    code, _, err = environment.install(library="crashing")
    assert code == 1 and "put back" in err
    environment.has("ours", kept="original")


def test_a_package_that_loads_another_file(environment):
    text = PACKAGE.replace('os.path.join(os.path.dirname(__file__), "lib", "libtvm_ffi.so")', repr(str(environment.libraries / "original" / NAME)))
    (environment.site / "tvm_ffi/__init__.py").write_text(text, encoding="utf-8")
    code, _, err = environment.install()
    assert code == 1 and "`import tvm_ffi` used the library of tvm-ffi, not this file" in err
    environment.has("original")


def test_another_build(environment):
    assert environment.install(library="other")[0] == 0
    code, out, _ = environment.check()
    assert code == 0 and "anyfn, another build" in out
    assert environment.install()[0] == 0
    environment.has("ours", kept="original")
    assert environment.restore()[0] == 0
    environment.has("original")


def test_an_upgraded_package(environment):
    """After an upgrade, neither command may bring back the file of the older version."""
    assert environment.install()[0] == 0
    environment.put("upgraded")
    code, out, _ = environment.restore()
    assert code == 0 and "the package was reinstalled or upgraded: it stays" in out
    environment.has("upgraded")
    environment.put("original")
    assert environment.install()[0] == 0
    environment.put("upgraded")
    assert environment.install()[0] == 0
    environment.has("ours", kept="upgraded")
    assert environment.restore()[0] == 0
    environment.has("upgraded")


def test_a_removed_package(environment):
    assert environment.install()[0] == 0
    environment.file.unlink()
    code, out, _ = environment.restore()
    assert code == 0 and "was missing, and is the original library again" in out
    environment.has("original")
    assert environment.install()[0] == 0
    environment.file.unlink()
    (environment.site / "apache_tvm_ffi-0.1.15.post2.dist-info").rmdir()
    code, out, _ = environment.restore()
    assert code == 0 and "the package was removed" in out and not list(environment.lib.iterdir())
    code, _, err = environment.install()
    assert code == 1 and "does not contain the package apache-tvm-ffi" in err


def test_a_file_that_was_copied_by_hand(environment):
    environment.put("ours")
    code, _, err = environment.restore()
    assert code == 1 and f"{KEPT} is not there; `pip install --force-reinstall --no-deps apache-tvm-ffi==0.1.15.post2`" in err
    environment.has("ours")
    environment.put("other")
    code, out, _ = environment.install()
    assert code == 0 and "the original is not there: `pip install --force-reinstall" in out
    environment.has("ours")


def test_files_of_a_cache_are_not_changed(environment, tmp_path):
    """Package managers make hard links, or symbolic links, to the files of a cache."""
    cached = tmp_path / "cache" / NAME
    cached.parent.mkdir()
    shutil.copy(environment.file, cached)
    for link in (os.link, os.symlink):
        environment.file.unlink()
        link(cached, environment.file)
        assert environment.install()[0] == 0
        environment.has("ours", kept="original")
        assert cached.read_bytes() == environment.bytes_of("original") and not cached.is_symlink()
        assert not environment.file.is_symlink() and not environment.file.samefile(cached)
        assert environment.restore()[0] == 0
        environment.has("original")
        assert environment.file.samefile(cached) and environment.file.is_symlink() == (link is os.symlink)


def test_a_linked_folder_is_not_changed(environment, tmp_path):
    shared = tmp_path / "shared"
    environment.lib.rename(shared)
    environment.lib.symlink_to(shared)
    code, _, err = environment.install()
    assert code == 1 and f"is a link to {shared}, outside of {environment.folder}" in err
    environment.has("original")
    assert environment.run("check", "--library", environment.libraries / "ours" / NAME, environment.folder)[0] == 1


def test_an_interrupted_installation(environment):
    # Before the replacement, the original has two names.
    os.link(environment.file, environment.kept)
    (environment.lib / f"{NAME}.anyfn-new").write_bytes(b"half a library")
    code, out, _ = environment.restore()
    assert code == 0 and "already; its copy was removed" in out
    environment.has("original")
    os.link(environment.file, environment.kept)
    (environment.lib / f"{NAME}.anyfn-new").write_bytes(b"half a library")
    assert environment.install()[0] == 0
    environment.has("ours", kept="original")


def test_several_versions_of_python(environment):
    """Each version of Python in an environment has its own package."""
    other = environment.folder / "lib/python3.99/site-packages"
    shutil.copytree(environment.site, other)
    (environment.folder / "bin/python3.99").symlink_to(sys.executable)
    (environment.folder / "lib64").symlink_to("lib")
    code, out, _ = environment.check()
    assert code == 0 and out.count("apache-tvm-ffi 0.1.15.post2") == 2
    assert environment.install()[0] == 0
    for folder in (environment.site, other):
        assert (folder / "tvm_ffi/lib" / NAME).read_bytes() == environment.bytes_of("ours")
    assert environment.restore()[0] == 0
    for folder in (environment.site, other):
        assert (folder / "tvm_ffi/lib" / NAME).read_bytes() == environment.bytes_of("original")


def test_an_environment_without_an_interpreter(environment):
    (environment.folder / "bin" / VERSION).unlink()
    code, _, err = environment.install()
    assert code == 1 and "has no interpreter in its folder bin" in err
    environment.has("original")
    code, out, _ = environment.install("--force")
    assert code == 0 and "which was not tested without an interpreter" in out
    environment.has("ours", kept="original")


def test_the_folder_of_the_packages_itself(environment):
    library = environment.libraries / "ours" / NAME
    assert environment.run("install", environment.site, "--library", library)[0] == 0
    environment.has("ours", kept="original")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to a read-only folder")
def test_a_read_only_folder(environment):
    environment.lib.chmod(0o555)
    try:
        code, _, err = environment.install()
        assert code == 1 and "cannot write" in err and "nothing was changed" in err
        environment.has("original")
    finally:
        environment.lib.chmod(0o755)


@pytest.mark.parametrize(
    "path, message",
    [
        ("absent", "cannot open {path}: No such file or directory"),
        ("empty", "{path} is not a Python environment: it has no folder lib/python3.*/site-packages"),
        ("bare", "{path} does not contain the package apache-tvm-ffi"),
    ],
)
def test_folders_that_are_not_environments(environment, tmp_path, path, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "bare" / "lib" / VERSION / "site-packages").mkdir(parents=True)
    path = tmp_path / path
    for words in (["check"], ["install"]):
        code, out, err = environment.run(*words, "--library", environment.libraries / "ours" / NAME, path)
        assert code == 1 and not out and err.startswith("anyfn compat: " + message.format(path=path)), err


@pytest.mark.parametrize("name", ["original/libtvm_ffi.so", "good.so", "absent.so"])
def test_files_that_are_not_our_library(environment, name):
    for words in (["check"], ["install"]):
        code, out, err = environment.run(*words, "--library", environment.libraries / name, environment.folder)
        assert code == 1 and not out and ("is not a library of anyfn" in err or "there is no such file" in err)
    environment.has("original")


def test_another_command_at_the_same_time(environment):
    import fcntl

    folder = os.open(environment.lib, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        for done in (environment.install(), environment.restore()):
            assert done[0] == 1 and "another `anyfn compat` changes this file now" in done[2]
    finally:
        os.close(folder)
    environment.has("original")


def test_wrong_command_lines(environment):
    for words in ([], ["check"], ["install"], ["restore"], ["nope"], ["restore", "--force", "x"], ["install", "a", "b"]):
        code, out, err = environment.run(*words)
        assert code == 2 and not out and err.startswith("usage: anyfn compat"), (words, err)
