"""Tests of library modules: references that keep a library mapped, and contents that are read without loading the file."""

import gc
import json
import os
import re
import subprocess
import sys
import threading

import anyfn
import pytest
from anyfn.__main__ import main

LIBRARY = r"""
#include <anyfn/anyfn.h>
#include <stdlib.h>
static int add(void* self, const TVMFFIAny* args, int32_t n, TVMFFIAny* result) {
  int64_t x;
  if (anyfn_arg_int(args, n, 0, &x)) return -1;
  return anyfn_return_int(result, x + *(int64_t*)self);
}
ANYFN_EXPORT(adder) {
  int64_t x;
  if (anyfn_arg_int(args, num_args, 0, &x)) return -1;
  int64_t* data = malloc(sizeof *data);
  *data = x;
  result->type_index = kTVMFFIFunction;
  return TVMFFIFunctionCreate(data, add, free_it, (TVMFFIObjectHandle*)&result->v_obj);
}
"""


def is_mapped(path):
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return os.path.realpath(path) in maps.read()


@pytest.fixture
def library(tmp_path, compile_source):
    text = LIBRARY.replace("ANYFN_EXPORT(adder)", "static void free_it(void* p) { free(p); }\nANYFN_EXPORT(adder)")
    return compile_source(text, tmp_path / "lease.so")


def test_a_string_is_no_list(tmp_path):
    with pytest.raises(TypeError, match="^extensions: expected a list, got a str$"):
        anyfn.register_module_loader("modules_kind", lambda data: None, extensions="scale")
    with pytest.raises(TypeError, match="^compile_options: expected a list, got a str$"):
        anyfn.bundle(tmp_path / "f.so", [], compile_options="-I/x")


def test_library_names_agree_with_the_loader(tmp_path):
    for name, is_library in [
        ("f.so", True), ("f.so.1.2", True), ("f.dll", True), ("f.so.", False), ("f.so..", False), ("f.so.x", False)
    ]:  # fmt: skip
        assert anyfn._module._is_library_name(str(tmp_path / name)) is is_library
        with pytest.raises(RuntimeError) as caught:
            anyfn.load_module(tmp_path / name)
        assert ("there is no such file" in str(caught.value)) is is_library, name


def test_what_to_do_about_files_that_are_no_libraries(library, tmp_path):
    (tmp_path / "folder").mkdir()
    path = str(tmp_path / "lease")
    for name, text in [
        ("lease", f"its file name has no extension, which selects the loader; did you mean `{path}.so`?"),
        ("folder", "it is a directory"),
        ("lease.c", f"Compile it first, as with `cc -shared -fPIC {path}.c -o {path}.so`"),
    ]:
        with pytest.raises(RuntimeError) as caught:
            anyfn.load_module(tmp_path / name)
        assert str(caught.value).endswith(text)


def test_a_module_keeps_the_functions_that_it_has_found(tmp_path, compile_source):
    text = """
#include <anyfn/anyfn.h>
ANYFN_EXPORT(one) { (void)args; (void)num_args; return anyfn_return_int(result, 1); }
ANYFN_EXPORT(kind) { (void)args; (void)num_args; return anyfn_return_int(result, 2); }
"""
    path = str(compile_source(text, tmp_path / "found.so"))
    module = anyfn.load_module(path)
    other = "".join(["o", "ne"])
    for _ in range(3):
        assert module.one is module.one is module["one"] is module[other] is getattr(module, other)
        assert module.one() == module["one"]() == 1
        # The attributes of the class come first.
        assert module.kind == "library" and module["kind"]() == 2
        assert module.get_function("one")() == 1
        with pytest.raises(AttributeError, match="two"):
            _ = module.two
        with pytest.raises(AttributeError, match="two"):
            _ = module["two"]
        with pytest.raises(TypeError, match="^expected the name of a function but got int$"):
            _ = module[1]

    class Name(str):
        __slots__ = ()

    assert module[Name("one")]() == 1
    assert module.leases() == {"modules": 1}
    assert module.one() == 1
    found = module.one
    del module
    gc.collect()
    assert library_leases(path) == {"modules": 1} and found() == 1
    del found
    gc.collect()
    assert library_leases(path) == {}
    assert os.path.realpath(path) in anyfn.reap()


def test_functions_that_a_module_has_found_on_threads(library):
    module = anyfn.load_module(library)
    found = []

    def work():
        for _ in range(200):
            found.append(module.adder(1)(2))
            module.leases()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [3] * 800


def test_a_function_made_by_a_library_keeps_it(library):
    module = anyfn.load_module(library)
    assert module.pinned is None
    adder = module["adder"](5)
    assert module.leases() == {"functions": 1, "modules": 1}
    del module
    gc.collect()
    assert library_leases(library) == {"functions": 1}
    assert os.path.realpath(library) not in anyfn.reap()
    assert adder(1) == 6
    kept = [adder]
    del adder
    assert kept[0](2) == 7
    kept.clear()
    assert library_leases(library) == {}
    assert is_mapped(library)
    assert os.path.realpath(library) in anyfn.reap()
    assert not is_mapped(library)
    assert anyfn.load_module(library)["adder"](1)(1) == 2


def test_loading_and_unloading_leaves_nothing(library, flat_memory):
    def mappings():
        with open("/proc/self/maps", encoding="utf-8") as maps:
            return len(maps.readlines())

    def cycles(count):
        for _ in range(count):
            module = anyfn.load_module(library)
            assert module["adder"](1)(2) == 3
            del module
            assert os.path.realpath(library) in anyfn.reap()

    cycles(10)
    before = mappings()
    flat_memory(cycles, 1000)
    # Python's heap may need a few more mappings.
    assert mappings() <= before + 8


def library_leases(path):
    (found,) = [entry["leases"] for entry in anyfn.mapped_libraries() if entry["file"] == os.path.realpath(path)]
    return found


def test_a_newer_build_is_loaded_beside_the_older_one(tmp_path, compile_source):
    source = "#include <anyfn/anyfn.h>\nANYFN_EXPORT(version) { (void)args; (void)num_args; return anyfn_return_int(result, %d); }\n"
    path = tmp_path / "reload.so"
    versions = []
    for version in range(5):
        compile_source(source % version, tmp_path / "new.so")
        os.replace(tmp_path / "new.so", path)
        versions.append(anyfn.load_module(path)["version"])
    assert [version() for version in versions] == [0, 1, 2, 3, 4]
    del versions[1:4]
    gc.collect()
    assert anyfn.reap().count(os.path.realpath(path)) == 3
    assert [version() for version in versions] == [0, 4]
    assert anyfn.load_module(path)["version"]() == 4


def test_a_file_is_described_without_being_loaded(library):
    found = anyfn.inspect_library(library)
    assert found["functions"] == ["adder"]
    assert found["problem"] is None
    assert "TVMFFIFunctionCreate" in found["runtime_symbols"]
    assert not is_mapped(library)
    with pytest.raises(RuntimeError, match="there is no such file"):
        anyfn.inspect_library("absent.so")
    with pytest.raises(RuntimeError, match="a text file"):
        anyfn.inspect_library(__file__)


def test_the_command_inspect(library, capsys, tmp_path):
    assert main(["inspect", str(library)]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{library}\n  size ") and re.search(r"\n  functions +.*\badder\b", text), text
    assert main(["inspect", "--json", str(library)]) == 0
    assert json.loads(capsys.readouterr().out) == anyfn.inspect_library(library)
    # A file that cannot be read is reported, and the other files are shown.
    other = tmp_path / "text.so"
    other.write_text("text")
    assert main(["inspect", str(other), str(library)]) == 1
    out, err = capsys.readouterr()
    assert "it is not an ELF shared library" in err and err.startswith("anyfn inspect: ") and "adder" in out


@pytest.mark.parametrize("command", [("inspect", "--json"), ("stubs", "module")])
def test_a_reader_that_has_seen_enough(library, command):
    arguments = [sys.executable, "-m", "anyfn", *command, str(library)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_versions_of_libraries_are_no_extensions(library, tmp_path):
    name = tmp_path / "libkernels.so.1.2"
    name.symlink_to(library)
    assert anyfn.load_module(name).adder(1)(2) == 3
    with pytest.raises(RuntimeError, match="Loader for `.1` files is not registered"):
        anyfn.load_module(tmp_path / "libkernels.1")


def test_a_library_of_another_convention_is_told_of(tmp_path, compile_source):
    path = compile_source("int plain(void) { return 1; }", tmp_path / "plain.so")
    module = anyfn.load_module(path)
    with pytest.raises(AttributeError, match=r"has no function `plain`; the library exports no functions \(no symbols `__tvm_ffi_NAME`\)$"):
        module.plain()
