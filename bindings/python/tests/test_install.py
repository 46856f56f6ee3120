"""Tests of the wheel: its files and metadata, and how it is installed and removed."""

import base64
import email
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import anyfn
import pytest

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))


def load_build():
    spec = importlib.util.spec_from_file_location("anyfn_build", ROOT / "bindings/python/build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = load_build()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Returns the path of the wheel to be tested. If none is given, packs a wheel from the files in the package."""
    given = os.environ.get("ANYFN_WHEEL")
    if given:
        return Path(given)
    folder = tmp_path_factory.mktemp("wheel")
    return folder / build.pack_placed(folder)


@pytest.fixture
def placed():
    """Skips tests of files of the source tree if its libraries have not been built, as when only ``./x dist`` has run."""
    missing = [path.name for path in (*build.PACKED.values(), build.STATIC) if not path.exists()]
    if missing:
        pytest.skip(f"{missing[0]} is not in the source tree; `./x build` places it there")


@pytest.fixture(scope="module")
def files(wheel):
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def in_dist_info(files, name):
    return files[f"anyfn-{anyfn.__version__}.dist-info/{name}"].decode()


def test_what_the_wheel_holds(files):
    folder = ROOT / "bindings/python"
    sources = {path.relative_to(folder).as_posix() for path in (folder / "anyfn").rglob("*.py*") if path.suffix != ".pyc"}
    assert sources >= {"anyfn/__init__.py", "anyfn/__main__.py"}
    libraries = {"anyfn/_core.abi3.so", "anyfn/lib/libanyfn.so", "anyfn/lib/libanyfn_devices.so", "anyfn/lib/libanyfn_compiler.so"}
    info = {f"anyfn-{anyfn.__version__}.dist-info/{name}" for name in
            ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")}
    headers = {f"anyfn/include/anyfn/{name}.h" for name in ("anyfn", "board", "c_api", "classic_c_api", "object", "program", "signature")}
    cpp = ROOT / "bindings/cpp/include"
    headers |= {f"anyfn/include/{path.relative_to(cpp)}" for path in cpp.rglob("*") if path.is_file()}
    headers |= {"anyfn/lib/cmake/anyfn/anyfnConfig.cmake", "anyfn/lib/cmake/anyfn/anyfnConfigVersion.cmake"}
    headers |= {"anyfn/lib/pkgconfig/anyfn.pc", "anyfn/lib/pkgconfig/anyfn-classic.pc"}
    templates = {name for name in files if name.startswith("anyfn/templates/")}
    assert templates >= {"anyfn/templates/README.md.in", "anyfn/templates/c/.gitignore.in", "anyfn/templates/rust/src/lib.rs.in"}
    static = {f"anyfn/lib/static/{name}" for name in ("libanyfn_static.a", "start.c", "unwind.c", "format.c")}
    assert len(files["anyfn/lib/static/libanyfn_static.a"]) < 3_000_000
    # `./x dist` adds it, if there is a C++ compiler.
    optional = {"anyfn/compat/libtvm_ffi.so"} & set(files)
    assert set(files) == sources | libraries | info | headers | templates | static | optional | {"anyfn/py.typed"}


def test_the_wheel_can_hold_the_library_for_tvm_ffi(placed, tmp_path):
    built = tmp_path / "built"
    built.mkdir()
    for name in ("libanyfn_python.so", "libanyfn.so", "libanyfn_devices.so", "libanyfn_compiler_lib.so", "libtvm_ffi.so",
                 "libanyfn_static.a"):
        shutil.copy(build.PACKED["anyfn-lib"], built / name)
    for compat in (None, built / "libtvm_ffi.so"):
        with zipfile.ZipFile(tmp_path / build.pack_built(tmp_path, built, compat)) as archive:
            assert ("anyfn/compat/libtvm_ffi.so" in archive.namelist()) == (compat is not None)


def test_a_plugin_needs_only_the_wheel(environment, wheel):
    if shutil.which("make") is None or shutil.which("cc") is None:
        pytest.skip("no make or no C compiler")
    environment.pip("install", "--no-index", "--no-compile", wheel)
    command = environment.folder / "bin/anyfn"
    environment.run(command, "new", "--c", "my-plugin")
    makefile = environment.folder / "my-plugin/Makefile"
    assert str(ROOT) not in makefile.read_text(encoding="utf-8")
    assert "passed" in environment.run("make", "-C", "my-plugin", "test")
    (environment.folder / "host.c").write_text(PROGRAM, encoding="utf-8")
    flags = environment.run(command, "config", "--cflags", "--ldflags").split()
    environment.run("cc", "host.c", "-o", "host", *flags)
    environment.run(environment.folder / "host")


def test_the_record_lists_all_files(files):
    record = {}
    for line in in_dist_info(files, "RECORD").splitlines():
        name, digest, size = line.rsplit(",", 2)
        record[name] = digest, size
    assert set(record) == set(files)
    for name, content in files.items():
        if not name.endswith("/RECORD"):
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            assert record[name] == (f"sha256={digest}", str(len(content)))


def test_metadata(wheel, files):
    said = email.message_from_string(in_dist_info(files, "METADATA"))
    assert (said["Name"], said["Version"]) == ("anyfn", anyfn.__version__)
    assert said["Requires-Python"] == ">=3.9"
    assert said.get_all("Requires-Dist") == ['numpy>=1.21; extra == "numpy"', 'tqdm>=4.66.3; extra == "progress"']
    assert said.get_all("Provides-Extra") == ["numpy", "progress"]
    assert "Programming Language :: Python :: 3.13" in said.get_all("Classifier")
    assert said.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")
    assert in_dist_info(files, "entry_points.txt") == "[console_scripts]\nanyfn = anyfn.__main__:main\n"
    tags = email.message_from_string(in_dist_info(files, "WHEEL")).get_all("Tag")
    assert [f"anyfn-{anyfn.__version__}-{tag}.whl" for tag in tags] == [wheel.name]


def test_the_tag_says_what_the_libraries_need(wheel, files, tmp_path):
    python, abi, platform = wheel.stem.split("-")[2:]
    assert (python, abi) == ("cp39", "abi3")
    newest = tuple(int(part) for part in platform.split("_")[1:3])
    # Libraries that `manylinux` wheels may need. Most of them are parts of glibc, which newer versions have merged.
    allowed = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1",
               "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
    found = []
    for name in ("anyfn/_core.abi3.so", "anyfn/lib/libanyfn.so", "anyfn/lib/libanyfn_devices.so", "anyfn/lib/libanyfn_compiler.so"):
        library = tmp_path / "library.so"
        library.write_bytes(files[name])
        for file, version in build.needed_versions(library):
            assert file in allowed
            if version.startswith("GLIBC_"):
                found.append(tuple(int(part) for part in version[6:].split("."))[:2])
    assert max(found) == newest or (max(found) < newest == (2, 17))
    other = tmp_path / "other.so"
    other.write_bytes(files[name][:18] + (0xB7 if files[name][18] == 0x3E else 0x3E).to_bytes(2, "little") + files[name][20:])
    assert {build.machine_of(library), build.machine_of(other)} == {"x86_64", "aarch64"}
    with pytest.raises(ValueError, match="libraries for aarch64 and x86_64 cannot be in one wheel"):
        build.wheel_tag([library, other])
    with pytest.raises(ValueError, match="no ELF file"):
        build.needed_versions(ROOT / "README.md")


def test_release_libraries_are_stripped(files):
    if Path(os.environ.get("ANYFN_LIB_DIR", "")).name != "release":
        pytest.skip("not a release build")
    for name, content in files.items():
        assert not name.endswith(".so") or b".debug_info\0" not in content, name


def test_the_same_files_give_the_same_wheel(placed, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = (tmp_path / name / build.pack_placed(tmp_path / name) for name in ("one", "two"))
    assert one.name == two.name and one.read_bytes() == two.read_bytes()


# A C program that starts the runtime and looks a global function up.
PROGRAM = """
#include <anyfn/anyfn.h>

int main(void) {
  TVMFFIByteArray name = {"anyfn.abi_version", 17};
  TVMFFIObjectHandle function = NULL;
  return TVMFFIFunctionGetGlobal(&name, &function) != 0 || function == NULL;
}
"""


class Environment:
    """A virtual environment without any package, not even pip. The pip of this interpreter installs in it."""

    def __init__(self, folder):
        self.folder = folder
        self.python = folder / "bin/python"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)

    def run(self, *args, timeout=120, **options):
        # The program runs outside of the source tree, without the variables that make the tree importable.
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(args, capture_output=True, text=True, cwd=self.folder, env=environment, timeout=timeout, **options)
        assert done.returncode == 0, f"{args}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def pip(self, *args, **options):
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", self.python)
        return self.run(*pip, *args, **options)

    def files(self):
        return {path.relative_to(self.folder) for path in self.folder.rglob("*")}


@pytest.fixture
def environment(tmp_path):
    if importlib.util.find_spec("pip") is None:
        pytest.skip("no pip")
    return Environment(tmp_path / "environment")


SMOKE = """
import sys
import anyfn
assert anyfn.__file__.startswith(sys.prefix) is {inside}, anyfn.__file__
add = anyfn.register_func("test.add", lambda a, b: a + b)
assert anyfn.get_global_func("test.add")(1, 2) == 3
import anyfn.testing
echo = anyfn.testing.echo
assert echo("text") == "text" and echo(1.5) == 1.5 and list(echo([1, 2])) == [1, 2] and echo(None) is None
assert anyfn.testing.apply(lambda *args: sum(args), 1, 2, 3) == 6
try:
    anyfn.testing.raise_error("ValueError", "as it should")
except ValueError as error:
    assert str(error) == "as it should"
assert "numpy" not in sys.modules
try:
    import numpy
except ImportError:
    print("without NumPy")
"""


def test_install_and_uninstall(environment, wheel):
    before = environment.files()
    environment.pip("install", "--no-index", "--no-compile", wheel)
    assert environment.run(environment.python, "-I", "-B", "-c", SMOKE.format(inside=True)) == "without NumPy\n"
    version = f"anyfn {anyfn.__version__} (ABI {anyfn.get_global_func('anyfn.abi_version')()})\n"
    assert environment.run(environment.folder / "bin/anyfn", "--version") == version
    assert environment.run(environment.python, "-I", "-m", "anyfn", "--version") == version
    shown = environment.pip("show", "--files", "anyfn")
    assert f"Version: {anyfn.__version__}" in shown and "anyfn/py.typed" in shown
    assert "libanyfn_testing" not in shown
    assert "No broken requirements" in environment.pip("check")
    environment.pip("uninstall", "--yes", "anyfn")
    left = environment.files() - before
    assert not {path for path in left if "__pycache__" not in path.parts}


def test_a_link_to_the_sources(placed, environment, tmp_path, monkeypatch):
    # Files of an editable installation (`pip install -e`); the libraries have already been built.
    monkeypatch.setattr(build, "build", lambda targets: None)
    link = tmp_path / build.build_editable(tmp_path)
    before = environment.files()
    environment.pip("install", "--no-index", link)
    assert environment.run(environment.python, "-I", "-B", "-c", SMOKE.format(inside=False)) == "without NumPy\n"
    environment.pip("uninstall", "--yes", "anyfn")
    assert not environment.files() - before


def test_flags_of_the_environment_do_not_empty_the_static_runtime(monkeypatch):
    seen = []
    monkeypatch.setattr(build.subprocess, "run", lambda command, env=None, **options: seen.append(env))
    # Cargo prefers this variable to RUSTFLAGS.
    monkeypatch.setenv("CARGO_ENCODED_RUSTFLAGS", "-Cdebuginfo=0")
    build.build_static()
    assert "--cfg=anyfn_static" in seen[0]["CARGO_ENCODED_RUSTFLAGS"].split("\x1f") and seen[0]["RUSTC_BOOTSTRAP"] == "1"


def test_packing_what_was_built(placed, files, tmp_path, monkeypatch):
    # Files of `pip install bindings/python` for the outputs of cargo.
    built = list(build.PACKED.items())
    monkeypatch.setattr(build, "cargo_build", lambda packages, release: iter(built) if release else None)
    monkeypatch.setattr(build, "build_static", lambda: build.STATIC)
    made = tmp_path / build.build_wheel(tmp_path)
    with zipfile.ZipFile(made) as archive:
        assert set(archive.namelist()) == set(files)
    info = tmp_path / build.prepare_metadata_for_build_wheel(tmp_path)
    assert (info / "METADATA").read_text(encoding="utf-8") == in_dist_info(files, "METADATA")


def test_what_cannot_be_built_is_said(tmp_path, monkeypatch):
    with pytest.raises(build.UnsupportedOperation, match="x dist"):
        build.build_sdist(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="cargo"):
        build.build_wheel(tmp_path)
    monkeypatch.setattr(build, "PACKED", {"anyfn-lib": tmp_path / "libanyfn.so"})
    with pytest.raises(SystemExit, match="libanyfn.so not built yet"):
        build.pack_placed(tmp_path)


@pytest.mark.soak
def test_install_from_the_sources(environment):
    # The libraries are built unless a release build of the same sources exists.
    environment.pip("install", "--no-index", ROOT / "bindings/python", timeout=3600)
    environment.run(environment.python, "-I", "-c", SMOKE.format(inside=True))
