"""Modules of a user's own kind, and libraries that carry modules of any kind in one file."""

import gc
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import anyfn
import pytest
import test_guide
from anyfn.__main__ import main

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
INCLUDE = f"-I{ROOT / 'bindings/c/include'}"

# Host code as compilers make it: it finds the functions of the modules that it imports by its context, once.
KERNEL = r"""
#include <anyfn/anyfn.h>
ANYFN_DLL_EXPORT void* __tvm_ffi__library_ctx;
static void* add_ten;
static int find(void** out) { return TVMFFIEnvModLookupFromImports(__tvm_ffi__library_ctx, "bundle_add_ten", (TVMFFIObjectHandle*)out); }
ANYFN_EXPORT(twice) {
  int64_t x;
  if (anyfn_arg_int(args, num_args, 0, &x)) return -1;
  return anyfn_return_int(result, 2 * x);
}
ANYFN_EXPORT(on_device) {
  if (TVMFFIHandleInitOnce(&add_ten, find)) return -1;
  return TVMFFIFunctionCall((TVMFFIObjectHandle)add_ten, (TVMFFIAny*)args, num_args, result);
}
"""

KIND = '''
import anyfn

class Device:
    """A module whose "code" is a text: names and what they add."""
    kind = "bundle_device"
    write_formats = ["bdev"]

    def __init__(self, code):
        self.code = code
        self.adds = {name: int(n) for name, n in (line.split("=") for line in code.decode().split())}

    def get_function(self, name):
        add = self.adds.get(name)
        return None if add is None else lambda x: x + add

    def functions(self):
        return list(self.adds)

    def save_to_bytes(self):
        return self.code

    def inspect_source(self, fmt):
        return self.code.decode() if fmt in ("", "bdev") else ""
'''
exec(KIND)  # noqa: S102
CODE = b"bundle_add_ten=10 bundle_add_two=2"


@pytest.fixture
def loader():
    anyfn.register_module_loader(Device.kind, Device, extensions=[".bdev"])  # noqa: F821
    yield
    anyfn.remove_global_func("ffi.Module.load_from_bytes.bundle_device")
    anyfn.remove_global_func("ffi.Module.load_from_file.bdev")


@pytest.fixture
def kernel(tmp_path):
    """An object file."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    source = tmp_path / "kernel.c"
    source.write_text(KERNEL, encoding="utf-8")
    done = [compiler, "-O1", "-fPIC", INCLUDE, "-c", source, "-o", tmp_path / "kernel.o"]
    subprocess.run(done, check=True)
    return tmp_path / "kernel.o"


def device(code=CODE):
    return anyfn.make_module(Device(code))  # noqa: F821


# --- A kind of one's own ---------------------------------------------------------------------------------------------


def test_a_kind_defined_in_python():
    module = device()
    assert module.kind == "bundle_device"
    assert module.list_functions() == ["bundle_add_ten", "bundle_add_two"]
    assert module["bundle_add_ten"](1) == 11
    assert module.bundle_add_two(1) == 3
    assert module.implements_function("bundle_add_two") and not module.implements_function("other")
    with pytest.raises(AttributeError, match="did you mean `bundle_add_two`"):
        module["bundle_add_tow"]
    assert module.save_to_bytes() == CODE
    assert module.inspect_source() == CODE.decode() and module.inspect_source("c") == ""
    assert module.get_write_formats() == ["bdev"]
    assert module.get_property_mask() == 3
    assert module.is_binary_serializable() and module.is_runnable() and not module.is_compilation_exportable()
    assert module.get_function_doc("bundle_add_ten") is None and module.get_function_metadata("bundle_add_ten") is None
    assert module.imports == [] and module.leases() == {} and module.pinned is None


def test_a_kind_with_the_least():
    class Least:
        kind = "bundle_least"

        def get_function(self, name):
            return {"f": lambda: 7}.get(name)

    module = anyfn.make_module(Least())
    assert module.f() == 7
    assert module.list_functions() == [] and module.inspect_source() == "" and module.get_write_formats() == []
    assert module.get_property_mask() == 2
    with pytest.raises(RuntimeError, match="a module of kind `bundle_least` cannot be saved as bytes"):
        module.save_to_bytes()
    with pytest.raises(RuntimeError, match="a module of kind `bundle_least` cannot be written to a file"):
        module.write_to_file("x.least")


def test_what_a_kind_may_not_be():
    class Wrong:
        kind = "bundle_wrong"

        def get_function(self, name):
            return {"number": 5}.get(name)

        def functions(self):
            return 5

        def save_to_bytes(self):
            raise KeyError("mine")

    module = anyfn.make_module(Wrong())
    with pytest.raises(TypeError, match="`get_function` of the module of kind `bundle_wrong`"):
        module["number"]
    with pytest.raises(TypeError, match="`functions` of the module of kind `bundle_wrong`"):
        module.list_functions()
    with pytest.raises(KeyError, match="mine"):
        module.save_to_bytes()
    Wrong.kind = "library"
    with pytest.raises(ValueError, match="taken by shared libraries"):
        anyfn.make_module(Wrong())
    create = anyfn.get_global_func("ffi.ModuleCreate")
    with pytest.raises(ValueError, match="it needs `get_function`"):
        create("bundle_x")
    with pytest.raises(ValueError, match="there is nothing behind `get_function`"):
        create("bundle_x", "get_function")
    with pytest.raises(ValueError, match="`get_func` is none of get_function, functions"):
        create("bundle_x", "get_func", lambda name: None)
    with pytest.raises(ValueError, match="there is no `save_to_bytes`"):
        create("bundle_x", "get_function", lambda name: None, "property_mask", 1)
    with pytest.raises(ValueError, match="NUL"):
        create("bundle\0x", "get_function", lambda name: None)


def test_a_module_keeps_and_releases_its_object():
    content = Device(CODE)  # noqa: F821
    alive = weakref.ref(content)
    module = anyfn.make_module(content)
    del content
    gc.collect()
    assert alive() is not None
    del module
    gc.collect()
    assert alive() is None


def test_imports():
    first, second, third = device(), device(b"c=3"), device(b"d=4")
    first.import_module(second)
    second.import_module(third)
    assert first.imports == [second] and [m.kind for m in first.imports] == ["bundle_device"]
    assert first.get_function("d", query_imports=True)(1) == 5
    assert first.list_functions(query_imports=True) == ["bundle_add_ten", "bundle_add_two", "c", "d"]
    with pytest.raises(AttributeError):
        first["d"]
    for module in (first, second, third):
        with pytest.raises(RuntimeError, match="Cyclic dependency"):
            module.import_module(first)
    first.clear_imports()
    assert first.imports == []


def test_a_long_chain_of_imports_is_searched_and_released():
    last = device(b"deep=1")

    class Link:
        kind = "bundle_link"

        def get_function(self, name):
            return None

    for _ in range(2000):
        module = anyfn.make_module(Link())
        module.import_module(last)
        last = module
    assert last.get_function("deep", True)(1) == 2
    del last, module
    gc.collect()


def test_files_by_extension(tmp_path, loader):
    device().write_to_file(tmp_path / "code.bdev")
    assert (tmp_path / "code.bdev").read_bytes() == CODE
    module = anyfn.load_module(tmp_path / "code.bdev")
    assert module.kind == "bundle_device" and module.bundle_add_ten(5) == 15
    with pytest.raises(RuntimeError, match="Cannot write .*there/is/none.bdev"):
        device().write_to_file(tmp_path / "there/is/none.bdev")
    assert os.listdir(tmp_path) == ["code.bdev"]
    with pytest.raises(RuntimeError, match="already registered"):
        anyfn.register_module_loader("bundle_device", lambda data: None)


def test_a_kind_that_writes_files_itself(tmp_path):
    class Writer:
        kind = "bundle_writer"

        def get_function(self, name):
            return None

        def write_to_file(self, path, fmt):
            Path(path).write_text(f"as {fmt}", encoding="utf-8")

    anyfn.make_module(Writer()).write_to_file(tmp_path / "a.own")
    assert (tmp_path / "a.own").read_text(encoding="utf-8") == "as own"


# --- Bundles ---------------------------------------------------------------------------------------------------------


def check(path):
    module = anyfn.load_module(path)
    assert module.twice(4) == 8
    assert module.on_device(4) == 14
    assert [m.kind for m in module.imports] == ["bundle_device"]
    assert module.get_function("bundle_add_two", query_imports=True)(1) == 3
    return module


def test_objects_and_modules_in_one_file(tmp_path, kernel, loader):
    anyfn.bundle(tmp_path / "f.so", kernel, device())
    check(tmp_path / "f.so")
    # The other way round: a module that is exported with the code that it goes with.
    device().export(tmp_path / "g.so", [kernel])
    check(tmp_path / "g.so")
    assert (tmp_path / "f.so").read_bytes() == (tmp_path / "g.so").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["f.so", "g.so", "kernel.c", "kernel.o"]


def test_the_same_parts_give_the_same_bytes(tmp_path, kernel, loader):
    for name in ("a.so", "b.so"):
        anyfn.bundle(tmp_path / name, [tmp_path / "kernel.c"], device(), compile_options=[INCLUDE])
    anyfn.bundle(tmp_path / "plain.so", kernel)
    for name in ("c.so", "d.so"):
        anyfn.bundle(tmp_path / name, tmp_path / "plain.so", [device()])
    a, b, c, d = [(tmp_path / f"{name}.so").read_bytes() for name in "abcd"]
    assert a == b and c == d
    for name in "ac":
        check(tmp_path / f"{name}.so")


@pytest.mark.parametrize("options", [[], ["-Wl,--hash-style=sysv"], ["-Wl,--hash-style=both"], ["-s", "-Wl,-z,now"]])
def test_a_library_that_is_linked_already_needs_no_linker(tmp_path, kernel, loader, monkeypatch, options):
    plain = tmp_path / "plain.so"
    anyfn.bundle(plain, kernel, link_options=options)
    before = plain.read_bytes()
    monkeypatch.setenv("PATH", "")
    anyfn.bundle(tmp_path / "f.so", plain, [device()])
    module = check(tmp_path / "f.so")
    assert plain.read_bytes() == before
    assert anyfn.load_module(plain).imports == []
    # A loaded bundle with one more module, and without any.
    module.import_module(device(b"more=5"))
    module.export(tmp_path / "g.so")
    again = check_kinds(tmp_path / "g.so", ["bundle_device", "bundle_device"])
    assert again.get_function("more", True)(1) == 6 and again.on_device(1) == 11
    again.clear_imports()
    again.export(tmp_path / "h.so")
    assert check_kinds(tmp_path / "h.so", []).twice(1) == 2
    # In place: the file is replaced, what is loaded stays.
    module.export(tmp_path / "f.so")
    assert module.on_device(1) == 11
    check_kinds(tmp_path / "f.so", ["bundle_device", "bundle_device"])
    with pytest.raises(RuntimeError, match="f.so has changed since it was loaded; load it again before it is exported"):
        module.export(tmp_path / "i.so")
    with pytest.raises(RuntimeError, match="it carries modules already"):
        anyfn.bundle(tmp_path / "i.so", tmp_path / "f.so", [device()])


def check_kinds(path, kinds):
    module = anyfn.load_module(path)
    assert [m.kind for m in module.imports] == kinds
    return module


def test_tools_understand_a_library_with_modules(tmp_path, kernel, loader):
    plain, bundled = tmp_path / "plain.so", tmp_path / "f.so"
    anyfn.bundle(plain, kernel)
    anyfn.bundle(bundled, plain, device())
    readelf, nm = [shutil.which(name) or pytest.skip(f"no {name}") for name in ("readelf", "nm")]

    def run(*command):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stderr == "", done.stderr
        return done.stdout

    assert ".anyfn.bundle" in run(readelf, "-aW", bundled)
    names = [line.split()[-1] for line in run(nm, "-D", bundled).splitlines()]
    assert "__tvm_ffi__library_bin" in names and "__tvm_ffi_twice" in names


def test_large_libraries_with_versions_and_thread_locals(tmp_path):
    # A Rust plugin: thread-local data, symbol versions, thousands of relocations.
    plugin = os.environ.get("ANYFN_TESTING_LIB") or pytest.skip("no ANYFN_TESTING_LIB")
    anyfn.bundle(tmp_path / "plugin.so", plugin, [device()])
    program = f"""{KIND}
module = anyfn.load_module({str(tmp_path / "plugin.so")!r})
assert anyfn.get_global_func("testing.echo")(5) == 5
(carried,) = module.imports
assert carried.kind == "bundle_device"
print(len(carried.save_to_bytes()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment())
    assert (done.returncode, done.stdout) == (0, f"{len(CODE)}\n"), done.stderr


def environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_static_archives_and_trees(tmp_path, kernel, loader):
    ar = shutil.which("ar") or pytest.skip("no ar")
    subprocess.run([ar, "rcsD", tmp_path / "kernel.a", kernel], check=True)
    # Two that share a third one.
    shared, left, right = device(b"shared=1"), device(), device(b"right=2")
    left.import_module(shared)
    right.import_module(shared)
    anyfn.bundle(tmp_path / "f.so", tmp_path / "kernel.a", [left, right])
    module = anyfn.load_module(tmp_path / "f.so")
    assert module.on_device(1) == 11
    left, right = module.imports
    assert left.imports == right.imports and left.imports[0].shared(1) == 2
    carried = anyfn.inspect_library(tmp_path / "f.so")["imports"]
    assert [(m["kind"], m["imports"]) for m in carried] == [
        ("library", [1, 3]),
        ("bundle_device", [2]),
        ("bundle_device", []),
        ("bundle_device", [2]),
    ]


def test_a_module_above_the_library_stays_there(tmp_path, kernel, loader):
    anyfn.bundle(tmp_path / "plain.so", kernel)
    top = device(b"top=1")
    top.import_module(anyfn.load_module(tmp_path / "plain.so"))
    top.export(tmp_path / "f.so")
    module = anyfn.load_module(tmp_path / "f.so")
    assert module.kind == "bundle_device" and module.top(1) == 2
    assert module.get_function("twice", True)(4) == 8


def test_a_module_that_is_code(tmp_path, loader):
    shutil.which("cc") or pytest.skip("no C compiler")

    class Source:
        kind = "bundle_c"
        property_mask = 4
        write_formats = ["c"]

        def get_function(self, name):
            return None

        def write_to_file(self, path, fmt):
            assert fmt == "c"
            Path(path).write_text(KERNEL, encoding="utf-8")

    source = anyfn.make_module(Source())
    source.import_module(device())
    source.export(tmp_path / "f.so", compile_options=[INCLUDE])
    check(tmp_path / "f.so")
    Source.write_formats = ["wasm"]
    with pytest.raises(RuntimeError, match="the module of kind `bundle_c` is code to be linked, but writes none of"):
        anyfn.make_module(Source()).export(tmp_path / "g.so")


def test_the_command_shows_the_tree(tmp_path, kernel, loader, capsys):
    shared, left, right = device(b"shared=1"), device(), device(b"right=2")
    left.import_module(shared)
    right.import_module(shared)
    anyfn.bundle(tmp_path / "f.so", kernel, [left, right])
    assert main(["inspect", str(tmp_path / "f.so")]) == 0
    lines = capsys.readouterr().out.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("  carries"))
    assert [line[23:] for line in lines[begin : begin + 5]] == [
        "library (this file)",
        f"  bundle_device ({len(CODE)} bytes)",
        "    bundle_device (8 bytes)",
        "  bundle_device (7 bytes)",
        "    bundle_device (shown above)",
    ]


def test_the_command_makes_bundles(tmp_path, kernel, loader, capsys):
    device().write_to_file(tmp_path / "code.bdev")
    out, code = str(tmp_path / "f.so"), str(tmp_path / "code.bdev")
    for how in (["--import", code], ["--carry", f"bundle_device={code}"]):
        assert main(["bundle", out, str(kernel), *how, "-Wl,-soname,f.so", "-lm"]) == 0
        check(out)
        assert anyfn.inspect_library(out)["soname"] == "f.so"
    source = str(tmp_path / "kernel.c")
    assert main(["bundle", out, source, "--carry", f"bundle_device={code}", INCLUDE, "-DX=1", "-O1"]) == 0
    check(out)

    def fails(code, message, *args):
        assert main(["bundle", *map(str, args)]) == code
        assert message in capsys.readouterr().err

    fails(2, "as KIND=FILE, got `x`", out, kernel, "--carry", "x")
    fails(1, "No such file", out, kernel, "--carry", "x=no/such")
    fails(1, "there is no code", out)
    fails(1, "none.so: there is no such file", out, kernel, "--load", tmp_path / "none.so")
    fails(1, "no_such_tool cannot be run", out, kernel, "--linker", "no_such_tool")
    check(out)


# --- Failures --------------------------------------------------------------------------------------------------------


def test_nothing_is_left_of_a_bundle_that_fails(tmp_path, kernel, loader):
    out = tmp_path / "f.so"
    out.write_bytes(b"what was there")
    before = sorted(os.listdir(tmp_path))

    def fails(match, *args, error=RuntimeError, **options):
        with pytest.raises(error, match=match):
            anyfn.bundle(out, *args, **options)
        assert out.read_bytes() == b"what was there" and sorted(os.listdir(tmp_path)) == before

    class Unsaved:
        kind = "bundle_unsaved"

        def get_function(self, name):
            return None

    fails("the module of kind `bundle_unsaved` cannot be put into a bundle", kernel, anyfn.make_module(Unsaved()))
    fails("there is no code", [], [device()], error=ValueError)
    fails("none.o: No such file", tmp_path / "none.o", device())
    fails("no_such_linker cannot be run: No such file", kernel, device(), linker="no_such_linker")
    fails("cannot run the linker: expected a closing quotation mark", kernel, device(), linker="'cc -O1")
    fails("option `-nonsense`|unrecognized .*-nonsense|unknown argument", kernel, device(), link_options=["-nonsense"])
    fails("it is no object file, static archive", __file__, device())
    fails("it is a program", "/proc/self/exe", device()) if not is_pie(sys.executable) else None
    (tmp_path / "bad.c").write_text("int f( {", encoding="utf-8")
    (tmp_path / "lost.c").write_text("int nobody(void); int f(void) { return nobody(); }", encoding="utf-8")
    before = sorted(os.listdir(tmp_path))
    fails("bad.c:1", tmp_path / "bad.c", device())
    fails("(?s)finds symbols that nothing defines:.*undefined reference to `nobody'", tmp_path / "lost.c", device())
    with pytest.raises(RuntimeError, match="there is no folder"):
        anyfn.bundle(tmp_path / "no/such/f.so", kernel, device())
    with pytest.raises(RuntimeError, match="plain.so is linked already, so nothing can be linked with it"):
        anyfn.bundle(tmp_path / "plain.so", kernel)
        anyfn.bundle(out, [tmp_path / "plain.so", kernel], device())
    with pytest.raises(TypeError, match="unexpected keyword"):
        anyfn.bundle(out, kernel, device(), optimise=True)
    with pytest.raises(ValueError, match="a bundle has no option `optimise`"):
        anyfn.get_global_func("anyfn.bundle")(str(out), None, [str(kernel)], [], {"optimise": 1})


def is_pie(program):
    with open(program, "rb") as file:
        return file.read(18)[16] == 3


def test_a_linker_is_enough(tmp_path, kernel, loader, monkeypatch):
    ld = shutil.which("ld") or pytest.skip("no ld")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ld").symlink_to(ld)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CC", raising=False)
    anyfn.bundle(tmp_path / "f.so", kernel, device())
    check(tmp_path / "f.so")
    # Nor are the libraries of C needed to link with.
    anyfn.bundle(tmp_path / "h.so", kernel, device(), linker=f"{ld} --sysroot=/nowhere -nostdlib")
    check(tmp_path / "h.so")
    with pytest.raises(RuntimeError, match="there is no C compiler .*or give object files"):
        anyfn.bundle(tmp_path / "g.so", tmp_path / "kernel.c")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RuntimeError, match="there is no linker .*or bundle a library that is linked already"):
        anyfn.bundle(tmp_path / "g.so", kernel)


def lld():
    """A linker for all machines: the one that comes with Rust."""
    rustc = shutil.which("rustc") or pytest.skip("no rustc")
    sysroot = subprocess.run([rustc, "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip()
    found = list(Path(sysroot).glob("lib/rustlib/*/bin/rust-lld"))
    return found[0] if found else pytest.skip("no rust-lld")


def test_another_machine(tmp_path):
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    linker = f"{lld()} -flavor gnu"
    # Data is the same for both machines but for the number in the header.
    source, out = tmp_path / "data.c", tmp_path / "data.o"
    source.write_text("int __tvm_ffi_answer = 42;", encoding="utf-8")
    subprocess.run([compiler, "-c", "-fPIC", "-fno-asynchronous-unwind-tables", source, "-o", out], check=True)
    content = bytearray(out.read_bytes())
    content[18:20] = (183).to_bytes(2, "little")
    out.write_bytes(content)
    # Linked with the modules, and put into what was linked before.
    anyfn.bundle(tmp_path / "f.so", out, device(), linker=linker)
    anyfn.bundle(tmp_path / "plain.so", out, linker=linker)
    anyfn.bundle(tmp_path / "g.so", tmp_path / "plain.so", device())
    for name in ("f.so", "g.so"):
        bundle = (tmp_path / name).read_bytes()
        assert int.from_bytes(bundle[18:20], "little") == 183
        assert b"".join(WHOLE) in bundle
        with pytest.raises(RuntimeError, match="it is a library for AArch64"):
            anyfn.load_module(tmp_path / name)
        readelf = shutil.which("readelf")
        if readelf is not None:
            shown = subprocess.run([readelf, "-W", "--dyn-syms", tmp_path / name], capture_output=True, text=True)
            assert f"{len(b''.join(WHOLE))} OBJECT  GLOBAL DEFAULT" in shown.stdout and shown.stderr == ""


def test_a_kind_without_a_loader_is_an_error_where_it_is_used(tmp_path, kernel):
    anyfn.bundle(tmp_path / "f.so", kernel, device())
    module = anyfn.load_module(tmp_path / "f.so")
    assert module.twice(4) == 8
    missing = (
        "Cannot find function bundle_add_ten: it may be in the module of kind `bundle_device` that the library carries, "
        "whose loader ffi.Module.load_from_bytes.bundle_device is not registered"
    )
    for _ in range(2):
        with pytest.raises(RuntimeError, match=missing):
            module.on_device(4)
    with pytest.raises(RuntimeError, match=missing):
        module.get_function("bundle_add_ten", query_imports=True)
    with pytest.raises(RuntimeError, match=missing):
        module.imports[0]["bundle_add_ten"]
    assert not module.implements_function("bundle_add_ten", query_imports=True)
    assert module.list_functions(query_imports=True) == ["on_device", "twice"]
    # It can still be bundled again as it is,
    (carried,) = module.imports
    assert carried.kind == "bundle_device" and carried.save_to_bytes() == CODE
    module.export(tmp_path / "g.so")
    # another module or the registry may have the function,
    anyfn.register_func("bundle_add_ten", lambda x: x + 1000)
    again = anyfn.load_module(tmp_path / "g.so")
    assert again.on_device(4) == 1004
    anyfn.remove_global_func("bundle_add_ten")
    # and a loader that comes later is used.
    anyfn.register_module_loader(Device.kind, Device)  # noqa: F821
    assert module.on_device(4) == 14
    assert carried["bundle_add_two"](1) == 3 and carried.list_functions() == ["bundle_add_ten", "bundle_add_two"]
    anyfn.remove_global_func("ffi.Module.load_from_bytes.bundle_device")
    assert carried["bundle_add_two"](1) == 3


def test_a_loader_that_fails(tmp_path, kernel):
    class Refused(ValueError):
        pass

    wrong = anyfn.get_global_func("ffi.ModuleCreate")
    wrong = wrong("bundle_device", "get_function", lambda name: None, "save_to_bytes", lambda: b"is not code")
    anyfn.bundle(tmp_path / "f.so", kernel, wrong)

    def load(data):
        raise Refused(f"{data} is no code of mine")

    anyfn.register_module_loader(Device.kind, load)  # noqa: F821
    try:
        with pytest.raises(Refused, match="b'is not code' is no code of mine"):
            anyfn.load_module(tmp_path / "f.so")
    finally:
        anyfn.remove_global_func("ffi.Module.load_from_bytes.bundle_device")
    # The file is fine, and loads where its kind does.
    anyfn.register_module_loader(Device.kind, lambda data: anyfn.make_module(Nothing()))  # noqa: F821
    assert anyfn.load_module(tmp_path / "f.so").twice(1) == 2
    anyfn.remove_global_func("ffi.Module.load_from_bytes.bundle_device")


class Nothing:
    kind = "bundle_device"

    def get_function(self, name):
        return None


def number(value):
    return value.to_bytes(8, "little")


def text(value):
    return number(len(value)) + value


HUGE = 2**64 - 1
# What carries a module looks like this; each row replaces a part of the same length.
WHOLE = [
    number(8 * 6 + 12 + 21 + 8 + len(CODE)),
    number(3) + number(0) + number(1) + number(1),
    number(1) + number(1),
    text(b"_lib"),
    text(b"bundle_device"),
    text(CODE),
]
DAMAGE = {
    "size too large": (0, number(HUGE), "it claims 18446744073709551615 bytes and has"),
    "size too small": (0, number(60), "it ends in the middle of the kind of a module"),
    "size zero": (0, number(0), "it ends in the middle of the list of rows"),
    "huge count of rows": (1, number(HUGE) + number(0) + number(1) + number(1), "the middle of the list of rows"),
    "huge count, times eight small": (1, number(2**61) + number(0) * 3, "the middle of the list of rows"),
    "no rows": (1, number(0) + number(0) + number(1) + number(1), "it has no module"),
    "rows backwards": (1, number(3) + number(1) + number(0) + number(1), "module 0 has an invalid list of imports"),
    "rows too long": (1, number(3) + number(0) + number(9) + number(9), "module 0 has an invalid list of imports"),
    "rows too short": (1, number(3) + number(0) + number(0) + number(0), "1 of its 1 imports belong to no module"),
    "huge count of imports": (2, number(HUGE) + number(1), "the middle of the list of imports"),
    "an import that is not there": (2, number(1) + number(2), "module 0 imports module 2 of 2"),
    "an import of itself": (2, number(1) + number(0), "modules import each other in a cycle"),
    "no library": (3, text(b"_lob"), "it ends in the middle of|it has no place for the library itself"),
    "two libraries": (4, text(b"_lib") + b"123456789", "it ends in the middle of|bytes are left behind"),
    "no kind": (4, number(0) + b"bundle_device", "a module has no kind"),
    "a kind that is no text": (4, text(b"bundle\xff\xfeevice"), r'is no text: "bundle\\xff\\xfeevice"'),
    "a huge kind": (4, number(2**40) + b"bundle_device", "the middle of the kind of a module"),
    "huge content": (5, number(2**63) + CODE, "the middle of the content of a module"),
    "shorter content": (5, number(3) + CODE, f"{len(CODE) - 3} bytes are left behind its last module"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damage(tmp_path, kernel, loader, how, linked=[]):
    at, part, message = DAMAGE[how]
    if not linked:
        # Once for all rows; the file is read, not loaded.
        anyfn.bundle(tmp_path / "f.so", kernel, device())
        linked.append((tmp_path / "f.so").read_bytes())
    whole = b"".join(WHOLE)
    assert linked[0].count(whole) == 1
    assert len(part) == len(WHOLE[at])
    damaged = linked[0].replace(whole, b"".join([*WHOLE[:at], part, *WHOLE[at + 1 :]]))
    (tmp_path / "damaged.so").write_bytes(damaged)
    with pytest.raises(RuntimeError, match=f"damaged.so: the library's import tree is damaged: .*({message})"):
        anyfn.load_module(tmp_path / "damaged.so")
    if not how.startswith("size"):
        with pytest.raises(RuntimeError, match=f"the library's import tree is damaged: .*({message})"):
            anyfn.inspect_library(tmp_path / "damaged.so")


# --- Everywhere ------------------------------------------------------------------------------------------------------


def test_a_new_process(tmp_path, kernel):
    anyfn.bundle(tmp_path / "f.so", kernel, device())
    program = f"""{KIND}
anyfn.register_module_loader("bundle_device", Device)
module = anyfn.load_module({str(tmp_path / "f.so")!r})
print(module.twice(4), module.on_device(4))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment())
    assert (done.returncode, done.stdout) == (0, "8 14\n"), done.stderr


def test_one_file_in_python_c_and_rust(tmp_path):
    """The example: one bundle, and a kind that each language defines for itself."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    folder, libraries = ROOT / "examples/bundle", os.environ.get("ANYFN_LIB_DIR")
    python = [sys.executable, folder / "calc.py"]
    compile_it = [compiler, "-O1", "-Wall", "-Wextra", "-Werror", INCLUDE]

    def run(*command):
        done = subprocess.run(command, capture_output=True, text=True, env=environment())
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(*compile_it, "-fPIC", "-c", folder / "kernel.c", "-o", tmp_path / "kernel.o")
    run(*python, "make", tmp_path / "calc.so", tmp_path / "kernel.o")
    expected = "half=10\nsum_scaled=145\nshift=105\n"
    assert run(*python, tmp_path / "calc.so") == expected
    if libraries is None:
        pytest.skip("no ANYFN_LIB_DIR, so neither C nor Rust")
    rpath = f"-Wl,-rpath,{libraries}"
    run(*compile_it, folder / "calc.c", "-o", tmp_path / "calc", f"-L{libraries}", "-lanyfn", rpath)
    assert run(tmp_path / "calc", tmp_path / "calc.so") == expected
    program = Path(libraries) / "calc"
    if not program.exists():
        pytest.skip("the Rust program is not built")
    assert run(program, tmp_path / "calc.so") == expected
    # A bundle that Rust has written is the same, to the byte.
    run(program, "make", tmp_path / "rust.so", tmp_path / "kernel.o")
    assert (tmp_path / "rust.so").read_bytes() == (tmp_path / "calc.so").read_bytes()


def test_the_guide(tmp_path, monkeypatch):
    """``docs/bundles.md``, run line by line."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    text = (ROOT / "docs/bundles.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    Path("kernel.c").write_text(re.search("```c\n(.*?)```", text, re.DOTALL).group(1), encoding="utf-8")
    subprocess.run([compiler, "-O2", "-fPIC", INCLUDE, "-c", "kernel.c"], check=True)
    blocks = list(re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    assert len(blocks) >= 6
    names = {"__name__": "guide", "include": INCLUDE}
    try:
        for block in blocks:
            test_guide.run_python_block(block.group(1), text.count("\n", 0, block.start(1)), names)
    finally:
        for name in ("load_from_bytes.scaler", "load_from_file.scale"):
            anyfn.remove_global_func(f"ffi.Module.{name}")


def test_a_library_that_carries_a_kind_of_its_own(tmp_path):
    """A Rust plugin whose own loader makes what it carries: the module holds code of the library that holds it."""
    plugin = os.environ.get("ANYFN_TESTING_LIB") or pytest.skip("no ANYFN_TESTING_LIB")
    table = anyfn.get_global_func("testing.make_table")(b"abc")
    assert table.kind == "testing_table" and table.list_functions() == ["at", "len"] and table.at(2) == 99
    anyfn.bundle(tmp_path / "app.so", plugin, table)
    program = f"""
import anyfn
path = {str(tmp_path / "app.so")!r}
for _ in range(3):
    module = anyfn.load_module(path)
    (table,) = module.imports
    assert table.len() == 3 and module.get_function("at", query_imports=True)(0) == 97
    at = table["at"]
    del module, table
    # The function keeps the code, and nothing else.
    assert at(1) == 98 and anyfn.reap() == []
    try:
        at(3)
    except IndexError as error:
        print(error)
    del at
    assert anyfn.mapped_libraries()[0]["pinned"] is not None or anyfn.reap() == [path], anyfn.mapped_libraries()
print(anyfn.mapped_libraries())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment())
    assert (done.returncode, done.stdout) == (0, "there is no byte 3 among 3\n" * 3 + "[]\n"), done.stderr


def test_a_bundle_in_the_peer(tmp_path, kernel):
    peer = ROOT / ".x/venv-peer/bin/python"
    if not peer.exists():
        pytest.skip("apache-tvm-ffi is not installed")
    anyfn.bundle(tmp_path / "linked.so", kernel, device())
    anyfn.bundle(tmp_path / "plain.so", kernel)
    anyfn.bundle(tmp_path / "embedded.so", tmp_path / "plain.so", device())
    program = """
import sys, tvm_ffi
for path in sys.argv[1:]:
    try:
        tvm_ffi.load_module(path)
    except RuntimeError as error:
        print("load_from_bytes.bundle_device" in str(error))
@tvm_ffi.register_global_func("ffi.Module.load_from_bytes.bundle_device")
def load(data):
    assert bytes(data) == b"bundle_add_ten=10 bundle_add_two=2", data
    return tvm_ffi.system_lib()
@tvm_ffi.register_global_func("bundle_add_ten")
def add_ten(x):
    return x + 10
for path in sys.argv[1:]:
    module = tvm_ffi.load_module(path)
    print(module.twice(4), module.on_device(4), len(module.imports))
"""
    command = [peer, "-c", program, tmp_path / "linked.so", tmp_path / "embedded.so"]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout) == (0, "True\nTrue\n8 14 1\n8 14 1\n"), done.stderr


CPP = r"""
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/tvm_ffi.h>
namespace ffi = tvm::ffi;

// What C++ code sees of a module: the class that it is there.
ffi::Array<ffi::Any> Describe(ffi::Module m) {
  ffi::Array<ffi::Any> all;
  all.push_back(ffi::String(m->kind()));
  all.push_back(m->GetPropertyMask());
  all.push_back(m->SaveToBytes());
  all.push_back(m->InspectSource("bdev"));
  all.push_back(m->GetWriteFormats());
  all.push_back(m->imports().size());
  ffi::Optional<ffi::Function> f = m->GetFunction("bundle_add_ten");
  all.push_back(f.value()(5).cast<int64_t>());
  all.push_back(m->ImplementsFunction("other"));
  all.push_back(m->GetFunction("other").has_value());
  all.push_back(m->GetFunctionDoc("bundle_add_ten").has_value());
  return all;
}
void Write(ffi::Module m, ffi::String path) { m->WriteToFile(path, "bdev"); }
void Import(ffi::Module m, ffi::Module other) { m->ImportModule(other); }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(describe, Describe);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(write, Write);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(import_it, Import);
"""


def test_cpp_code_sees_a_module_of_ones_own(tmp_path):
    peer = ROOT / ".x/venv-peer/bin/python"
    if shutil.which("g++") is None or not peer.exists():
        pytest.skip("no g++, or apache-tvm-ffi is not installed")
    find = "import importlib.util as u; print(u.find_spec('tvm_ffi').submodule_search_locations[0])"
    package = subprocess.run([peer, "-c", find], capture_output=True, text=True, check=True).stdout.strip()
    (tmp_path / "see.cc").write_text(CPP, encoding="utf-8")
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-isystem", f"{package}/include"]
    subprocess.run(["g++", *flags, tmp_path / "see.cc", "-o", tmp_path / "see.so"], check=True)
    see, module = anyfn.load_module(tmp_path / "see.so"), device()
    module.import_module(device(b"a=1"))
    described = list(see.describe(module))
    assert described[:4] == ["bundle_device", 3, CODE, CODE.decode()]
    assert list(described[4]) == ["bdev"]
    assert described[5:] == [1, 15, False, False, False]
    see.write(module, str(tmp_path / "cpp.bdev"))
    assert (tmp_path / "cpp.bdev").read_bytes() == CODE
    see.import_it(module, device(b"b=2"))
    assert module.get_function("b", True)(1) == 3


# --- Load and unload -------------------------------------------------------------------------------------------------


@pytest.fixture
def bundled(tmp_path, kernel, loader):
    anyfn.bundle(tmp_path / "f.so", kernel, device())
    return tmp_path / "f.so"


def cycle(path):
    module = anyfn.load_module(path)
    assert module.on_device(4) == 14 and module.twice(4) == 8
    del module
    assert os.path.realpath(path) in anyfn.reap()


def cycles_in_flat_memory(path, count, flat_memory):
    def cycles(count):
        for _ in range(count):
            cycle(path)

    def live():
        gc.collect()
        return sum(isinstance(o, Device) for o in gc.get_objects())  # noqa: F821

    cycles(10)
    before = live()
    flat_memory(cycles, count)
    assert live() == before


def test_loading_and_unloading_leaves_nothing(bundled, flat_memory):
    cycles_in_flat_memory(bundled, 200, flat_memory)


def calls_on_threads(path, seconds):
    """Eight threads that load the bundle, call it, and drop it now and then."""
    end = time.monotonic() + seconds
    wrong, counts = [], []

    def work(seed):
        module, count = anyfn.load_module(path), 0
        while time.monotonic() < end and not wrong:
            for x in range(50):
                try:
                    if (module.on_device(x), module.twice(x), module.get_function("bundle_add_two", True)(x)) != (
                        x + 10,
                        2 * x,
                        x + 2,
                    ):
                        wrong.append(x)
                except Exception as error:
                    wrong.append(error)
            count += 1
            if (count + seed) % 7 == 0:
                del module
                module = anyfn.load_module(path)
        counts.append(count)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 60)
    assert wrong == [] and len(counts) == 8 and min(counts) > 0
    gc.collect()
    assert os.path.realpath(path) in anyfn.reap()


def test_threads_call_a_bundle(bundled):
    calls_on_threads(bundled, 2)


@pytest.mark.soak
def test_a_thousand_cycles(bundled, flat_memory):
    cycles_in_flat_memory(bundled, 1000, flat_memory)


@pytest.mark.soak
def test_threads_call_a_bundle_for_a_minute(bundled):
    calls_on_threads(bundled, 60)
