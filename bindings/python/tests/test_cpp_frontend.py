"""Tests of functions and object types that the C++ headers of anyfn define, used from Python, and of the CMake package."""

import copy
import inspect
import os
import shutil
import subprocess
import traceback
from pathlib import Path

import anyfn
import numpy as np
import pytest
from anyfn.__main__ import main

HERE = Path(__file__).resolve().parent
ROOT = Path(os.environ.get("ANYFN_ROOT", HERE.parents[2]))


def options(capsys, *names):
    main(["config", *names])
    return capsys.readouterr().out.split()


def compile_library(source, target):
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    include = [f"-I{ROOT}/bindings/c/include", f"-I{ROOT}/bindings/cpp/include"]
    subprocess.run(["g++", *flags, *include, source, "-o", target], check=True)


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    library = tmp_path_factory.mktemp("cpp_frontend") / "cpp_frontend.so"
    compile_library(HERE / "cpp_frontend.cc", library)
    return anyfn.load_module(library)


def test_functions_have_names_and_documentation(module):
    scale = anyfn.get_global_func("cppf.scale")
    assert scale(3) == 6 and scale(3, factor=4) == 12 and scale(x=1.5) == 3
    assert scale.__doc__ == "Returns x * factor." and str(inspect.signature(scale)) == "(x: float, factor: float = 2.0) -> float"
    with pytest.raises(TypeError, match="unexpected keyword argument 'facter'; did you mean 'factor'"):
        scale(1, facter=2)
    savings = module.make_savings("Grace", rate=1.5)
    assert savings.owner == "Grace" and savings.rate == 1.5 and module.make_savings.__doc__ == "Opens an account."
    array = np.ones(4, "float32")
    array.flags.writeable = False
    assert anyfn.get_global_func("cppf.sum")(array) == 4


def test_objects(module):
    account = module.Account("Ada", balance=3)
    assert account.deposit(5) == 8 and account.deposit(amount=1, times=2) == 10
    assert account.deposit.__doc__ == "Adds an amount."
    account.next = module.Savings("Grace", 7, notes=["x"])
    account.notes = ["a", "b"]
    assert anyfn.get_global_func("cppf.total")(account) == 17 and list(account.notes) == ["a", "b"]
    assert isinstance(account.next, module.Account) and account.next.rate == 0.5
    assert repr(account.next) == 'cppf.Savings(owner="Grace", balance=7, next=None, notes=("x",), rate=0.5)'
    loaded = anyfn.load_json(anyfn.save_json(account))
    assert anyfn.structural_equal(account, loaded) and anyfn.structural_equal(account, copy.deepcopy(account))
    with pytest.raises(AttributeError, match="owner"):
        account.owner = "x"
    with pytest.raises(TypeError, match="expected `cppf.Account` but got `int`"):
        account.next = 5
    with pytest.raises(TypeError, match="missing required argument: 'owner'"):
        module.Account()


def test_a_python_class_derives_from_a_cpp_type(module):
    @anyfn.object("cppf.Child", structural="tree")
    class Child(module.Account):
        extra: int = 7

    child = Child("x", extra=8)
    assert child.deposit(4) == 4 and child.extra == 8
    # Strings of C++ refer to themselves: the content of the parent is moved by its own code.
    assert [Child("x" * n).owner for n in (0, 15, 16, 100)] == ["x" * n for n in (0, 15, 16, 100)]
    assert anyfn.get_global_func("cppf.total")(child) == 4

    @anyfn.object("cppf.Named")
    class Named(anyfn.Object):
        name: str

    assert anyfn.get_global_func("cppf.describe")(Named("n")) == "cppf.Named n"


def test_a_cpp_type_derives_from_a_python_class(module):
    @anyfn.object("cppf.PyBase", structural="tree")
    class PyBase(anyfn.Object):
        name: str

        def shout(self):
            return self.name.upper()

    made = anyfn.get_global_func("cppf.derive")("cppf.PyBase", "ada")
    assert isinstance(made, PyBase) and made.shout() == "ADA" and made.weight == 1.5
    assert made.described() == "a ada" and made.described(prefix="the ") == "the ada"
    assert made.described.__doc__ == "Describes it."
    made.weight = 2
    with pytest.raises(TypeError, match="expected float but got str"):
        made.weight = "x"
    other = type(made)("grace", weight=3)
    assert isinstance(other, PyBase) and other.described() == "a grace"
    assert copy.deepcopy(made).weight == 2
    with pytest.raises(TypeError, match="the parent 'cppf.NoSuchClass' of type 'cppf.OfPython' is not registered"):
        anyfn.get_global_func("cppf.derive")("cppf.NoSuchClass", "x")


def test_errors(module):
    with pytest.raises(ValueError, match="expected an amount of 0 or more, got -1") as caught:
        module.Account("x").deposit(-1)
    lines = "".join(traceback.format_exception(caught.type, caught.value, caught.tb))
    assert "cpp_frontend.cc" in lines and "in deposit" in lines
    with pytest.raises(TypeError, match=r"when calling: `cppf.Account.deposit\(0: cppf.Account, 1: int, 2: int\) -> int`") as wrong:
        module.Account("x").deposit("x")
    detail = wrong.value.__anyfn_error__
    assert (detail.argument, detail.expected, detail.got) == ("amount", "int", "str")
    with pytest.raises(RuntimeError, match="C\\+\\+ exception of type `int`"):
        anyfn.get_global_func("cppf.throw")()

    mine = KeyError("mine")

    def fail(x):
        raise mine

    with pytest.raises(KeyError) as same:
        anyfn.get_global_func("cppf.apply")(fail, 1)
    assert same.value is mine


def test_a_library_that_is_built_again(tmp_path):
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    source = (HERE / "cpp_frontend.cc").read_text(encoding="utf-8").replace("cppf.", "cppagain.")
    library = tmp_path / "again.so"

    def load(text):
        # As linkers do: another file of the same name.
        (tmp_path / "again.cc").write_text(text, encoding="utf-8")
        compile_library(tmp_path / "again.cc", tmp_path / "new.so")
        os.replace(tmp_path / "new.so", library)
        return anyfn.load_module(library)

    old = load(source)
    scale = anyfn.get_global_func("cppagain.scale")
    new = load(source.replace("= 0.25", "= 0.75").replace("factor\") = 2.0", "factor\") = 3.0"))
    assert old.make_savings("x").rate == 0.25 and new.make_savings("x").rate == 0.75
    assert type(old.make_savings("x")) is type(new.make_savings("x"))
    assert scale(1) == 2 and anyfn.get_global_func("cppagain.scale")(1) == 3
    # Other fields are an error, and what was loaded before still works.
    with pytest.raises(RuntimeError, match="the type cppagain.Savings is already registered, with another layout"):
        load(source.replace("double rate = 0.5;", "double rate = 0.5, more = 0;"))
    assert old.Account("x").deposit(1) == 1 and new.make_savings("x").deposit(2) == 2


CMAKE_LISTS = """
cmake_minimum_required(VERSION 3.15)
project(test LANGUAGES CXX)
find_package(anyfn 0.1 CONFIG REQUIRED)
add_executable(program program.cc)
target_link_libraries(program PRIVATE anyfn::anyfn)
add_library(plugin MODULE plugin.cc)
target_link_libraries(plugin PRIVATE anyfn::headers)
add_library(classic MODULE classic.cc)
target_link_libraries(classic PRIVATE anyfn::classic)
set_target_properties(program plugin classic PROPERTIES CXX_STANDARD 17)
"""
PROGRAM = """
#include <anyfn/anyfn.hpp>
int main(int, char** argv) {
  const int sum = anyfn::Module::load(argv[1])["add"](1, 2), product = anyfn::Module::load(argv[2])["mul"](2, 3);
  return sum == 3 && product == 6 ? 0 : 1;
}
"""
PLUGIN = """
#include <anyfn/export.hpp>
#if __has_include(<tvm/runtime/packed_func.h>)
#error "the headers of TVM 0.8 are found without being asked for"
#endif
ANYFN_EXPORT_FUNC(add, [](int a, int b) { return a + b; });
"""
CLASSIC = """
#include <tvm/runtime/packed_func.h>
static int mul(int a, int b) { return a * b; }
TVM_DLL_EXPORT_TYPED_FUNC(mul, mul);
"""


def installation(folder):
    """Makes a folder such as that of a wheel or of ``./x dist``."""
    for source, target in [("c/include", "include"), ("cpp/include", "include"), ("cpp/cmake", "lib/cmake/anyfn"),
                           ("cpp/pkgconfig", "lib/pkgconfig")]:
        shutil.copytree(ROOT / "bindings" / source, folder / target, dirs_exist_ok=True)
    library = os.environ.get("ANYFN_LIB_DIR", Path(anyfn.__file__).parent / "lib")
    shutil.copy(Path(library) / "libanyfn.so", folder / "lib/libanyfn.so")
    return folder


@pytest.mark.parametrize("is_installed", [True, False], ids=["installed", "source tree"])
def test_find_package(tmp_path, is_installed):
    cmake = shutil.which("cmake") or shutil.which("cmake", path=ROOT / ".x/venv-peer/bin")
    if cmake is None or shutil.which("g++") is None or shutil.which("make") is None:
        pytest.skip("no cmake, g++ or make")
    for name, text in [("CMakeLists.txt", CMAKE_LISTS), ("program.cc", PROGRAM), ("plugin.cc", PLUGIN), ("classic.cc", CLASSIC)]:
        (tmp_path / name).write_text(text, encoding="utf-8")
    if is_installed:
        where = f"-DCMAKE_PREFIX_PATH={installation(tmp_path / 'prefix')}"
    else:
        where = f"-Danyfn_DIR={ROOT / 'bindings/cpp/cmake'}"
        if not any((ROOT / "target" / kind / "libanyfn.so").exists() for kind in ("debug", "release")):
            pytest.skip("no libanyfn.so in the source tree")
    build = tmp_path / "build"
    subprocess.run([cmake, "-S", tmp_path, "-B", build, "-G", "Unix Makefiles", where], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([cmake, "--build", build], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([build / "program", build / "libplugin.so", build / "libclassic.so"], check=True)


def test_pkg_config(tmp_path):
    if shutil.which("pkg-config") is None:
        pytest.skip("no pkg-config")
    folder = installation(tmp_path / "prefix")
    environment = {**os.environ, "PKG_CONFIG_PATH": str(folder / "lib/pkgconfig")}
    done = subprocess.run(["pkg-config", "--cflags", "--libs", "anyfn"], env=environment, check=True, capture_output=True, text=True)
    assert "/include" in done.stdout and "-lanyfn" in done.stdout
    done = subprocess.run(["pkg-config", "--cflags", "anyfn-classic"], env=environment, check=True, capture_output=True, text=True)
    folders = [Path(option[2:]) for option in done.stdout.split() if option.startswith("-I")]
    assert any((folder / "tvm/runtime/packed_func.h").exists() for folder in folders)
    assert any((folder / "anyfn/classic.h").exists() for folder in folders)


def test_the_versions_are_those_of_the_package():
    version = anyfn.__version__
    assert f'PACKAGE_VERSION "{version}"' in (ROOT / "bindings/cpp/cmake/anyfnConfigVersion.cmake").read_text(encoding="utf-8")
    for name in ("anyfn", "anyfn-classic"):
        assert f"Version: {version}\n" in (ROOT / f"bindings/cpp/pkgconfig/{name}.pc").read_text(encoding="utf-8")


def test_the_options_of_the_compiler_find_the_headers(capsys):
    folders = [option[2:] for option in options(capsys, "--cflags")]
    assert any((Path(folder) / "anyfn/anyfn.hpp").exists() for folder in folders)
