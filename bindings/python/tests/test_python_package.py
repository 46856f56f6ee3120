"""Tests of ``anyfn new --python-package``: the package is built, installed into fresh environments and called."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import anyfn
import pytest
from anyfn.__main__ import main

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
ANYFN = Path(anyfn.__file__).resolve().parents[1]
LANGUAGES = ["c", "cpp", "rust"]
# The packages, and the program, that build the package of a language.
CMAKE = ["scikit_build_core", "cmake", "ninja"]
BUILDERS = {"c": (CMAKE, "cc"), "cpp": (CMAKE, "c++"), "rust": (["maturin", "cffi"], "cargo")}
# What the function `add` of the template states, where the language has signatures.
ADD = "def add(a: IntLike, b: IntLike) -> int:"


def run(*command, path=(ANYFN, *sys.path), status=0, target=None, **options):
    # The programs of the packages that build lie beside this Python.
    programs = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    environment = {**os.environ, "PATH": programs, "PYTHONPATH": os.pathsep.join(map(str, path)), "ANYFN_ROOT": str(ROOT)}
    # What Cargo needs was downloaded for the project itself, and its variables would change the build of the plugin.
    environment["CARGO_NET_OFFLINE"] = "true"
    for name in ("CARGO_TARGET_DIR", "RUSTFLAGS"):
        environment.pop(name, None)
    if target is not None:
        environment["CARGO_TARGET_DIR"] = str(target)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, **options)
    assert done.returncode == status, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout if status == 0 else done.stdout + done.stderr


def pip(*words, **options):
    return run(sys.executable, "-m", "pip", "--disable-pip-version-check", *words, **options)


class Built:
    """A package that ``anyfn new`` has made, and its wheel. The environments of Python are made when they are needed."""

    def __init__(self, language, folder):
        self.language, self.folder, self.project = language, folder, folder / "my-package"
        self.environments = {}
        run(sys.executable, "-m", "anyfn", "new", f"--{language}", "--python-package", self.project)
        # maturin leaves out what Git ignores.
        (self.project / ".git").mkdir()
        pip("wheel", "-q", "--no-index", "--no-build-isolation", "--no-deps", "-w", folder / "out", self.project)
        [self.wheel] = (folder / "out").iterdir()

    def environment(self, version):
        """Returns the Python of a fresh environment with the wheel. It finds anyfn by PYTHONPATH."""
        python = ROOT / f".x/venv-{version}/bin/python"
        if not python.exists():
            pytest.skip(f"no CPython {version} was found by `./x setup`")
        if version not in self.environments:
            folder = self.folder / f"venv-{version}"
            run(python, "-m", "venv", "--without-pip", folder, path=())
            pip("--python", folder / "bin/python", "install", "-q", "--no-index", "--no-deps", self.wheel, path=())
            self.environments[version] = folder / "bin/python"
        return self.environments[version]

    def site(self, version):
        """Returns the folder into which the environment of a version installs packages."""
        program = "import sysconfig; print(sysconfig.get_path('purelib'))"
        return Path(run(self.environment(version), "-c", program, path=()).strip())


@pytest.fixture(scope="module", params=LANGUAGES)
def built(request, tmp_path_factory):
    packages, program = BUILDERS[request.param]
    for name in packages:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"no package {name}; `./x setup --peer` installs it, and these tests run beside the peer")
    if shutil.which(program) is None:
        pytest.skip(f"no program {program}")
    return Built(request.param, tmp_path_factory.mktemp(request.param))


only_rust = pytest.mark.parametrize("built", ["rust"], indirect=True)


def test_the_wheel_serves_all_versions(built):
    assert re.fullmatch("my_package-0.1.0-py3-none-linux_[a-z0-9_]+[.]whl", built.wheel.name)
    with zipfile.ZipFile(built.wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        [metadata] = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    python = {f"my_package/{name}" for name in ("__init__.py", "_functions.py", "_functions.pyi", "py.typed")}
    library = {"my_package/plugin.so"}
    if built.language == "rust":
        # The two modules are maturin's, and nothing imports them.
        library = {f"my_package/_plugin/{name}" for name in ("__init__.py", "ffi.py", "lib_plugin.so")}
    assert names == python | library
    assert re.findall("^Requires-Dist: (.*)$", metadata, re.MULTILINE)[0] == "anyfn"
    assert "Requires-Python: >=3.9" in metadata


@pytest.mark.parametrize("version", ["3.9", "3.13"])
def test_a_fresh_environment_calls_it(built, version):
    python = built.environment(version)
    program = "import my_package, sys; print(sys.version_info[:2], my_package.add(1, 2), my_package.add.__doc__)"
    major, minor = version.split(".")
    assert run(python, "-c", program, path=[ANYFN]).startswith(f"({major}, {minor}) 3 ")
    if built.language == "rust":
        program = "import anyfn, my_package; print(anyfn.get_global_func('my-package.greet')('you'))"
        assert run(python, "-c", program, path=[ANYFN]) == "hello you\n"


def test_its_own_test_passes(built):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    assert "1 passed" in run(*command, path=[built.site("3.13"), ANYFN, *sys.path], cwd=built.project)


@only_rust
def test_the_guide_runs(built):
    program = "from samples import run_page; run_page('docs/start/rust.md', {'__name__': 'start'}, 1)"
    run(sys.executable, "-c", program, path=[built.site("3.13"), Path(__file__).parent, ANYFN, *sys.path])


def test_type_checkers_read_its_stubs(built):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("no mypy")
    stub = (built.site("3.13") / "my_package/_functions.pyi").read_text(encoding="utf-8")
    assert "def add(" in stub
    assert ADD in stub
    program = built.folder / "program.py"
    program.write_text("import my_package\n\nx: int = my_package.add(1, b=2)\ny: str = my_package.add(1, 'two')\n")
    # mypy finds the package where the environment's Python does, and anyfn beside the program.
    mypy = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--python-executable", built.environment("3.13")]
    environment = {**os.environ, "MYPYPATH": str(ANYFN), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([*mypy, program], capture_output=True, text=True, env=environment, cwd=built.folder)
    errors = [line for line in done.stdout.splitlines() if "program.py" in line]
    assert len(errors) == 2 and all("program.py:4: error" in line for line in errors), done.stdout + done.stderr
    assert "[arg-type]" in done.stdout and "[assignment]" in done.stdout


@pytest.fixture
def build(built, tmp_path):
    """Returns a function that builds a copy of the project with a changed source, by a hook of the build backend."""

    def build(change, hook, status=0):
        project = tmp_path / "my-package"
        shutil.copytree(built.project, project, ignore=shutil.ignore_patterns("target", "_functions.py*", "_plugin"))
        source = project / "src/lib.rs"
        source.write_text(change(source.read_text(encoding="utf-8")), encoding="utf-8")
        where = [project, ANYFN, *sys.path]
        # The crates that the plugin uses are compiled already.
        program, target = f"import backend; backend.{hook}('.')", built.project / "target"
        return project, run(sys.executable, "-c", program, path=where, cwd=project, target=target, status=status)

    return build


@only_rust
def test_stubs_follow_the_source(build):
    added = "export! {\n    fn thrice(a: i64) -> i64 {\n        3 * a\n    }\n"
    # An editable installation: the library and the stubs are in the source tree.
    project, _ = build(lambda text: text.replace("export! {", added), "build_editable")
    stub = (project / "src/my_package/_functions.pyi").read_text(encoding="utf-8")
    assert ADD in stub and "def thrice(a: IntLike) -> int:" in stub
    program = "import my_package; print(my_package.thrice(5))"
    assert run(sys.executable, "-c", program, path=[project / "src", ANYFN, *sys.path]) == "15\n"


@only_rust
def test_a_library_without_functions_is_an_error(build):
    _, said = build(lambda text: "//! A plugin without functions.\nuse anyfn as _;\n", "build_wheel", status=1)
    assert "lib_plugin.so exports no functions" in said and "cannot write the type stubs" in said


def files_in(folder):
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("language", LANGUAGES)
def test_both_commands_make_the_same_package(tmp_path, monkeypatch, capsys, language):
    program = Path(os.environ.get("ANYFN_LIB_DIR", ROOT / "target/debug")) / "anyfn"
    if not program.exists():
        pytest.skip("the command in Rust is not built; `./x build` builds it")
    monkeypatch.setenv("ANYFN_ROOT", str(ROOT))
    words = ["new", f"--{language}", "--python-package", "my-package"]
    (tmp_path / "python").mkdir()
    monkeypatch.chdir(tmp_path / "python")
    assert main(words) == 0
    said = capsys.readouterr().out
    assert said == "created my-package; see its README.md\n"
    (tmp_path / "rust").mkdir()
    assert run(program, *words, cwd=tmp_path / "rust") == said
    made = files_in(tmp_path / "python")
    assert made == files_in(tmp_path / "rust")
    assert not [name for name, text in made.items() if re.search("@[A-Z_]+@", name + text)]
