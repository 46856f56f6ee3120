"""Tests of ``export(.., runtime="static")``: programs, archives and libraries that contain the runtime (crates/static).

The start-up code of programs is start.c; `format.c` prints. The guide is docs/static.md.
"""

import ctypes
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import anyfn
import numpy as np
import pytest
import samples
from anyfn import te, tir

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))
EXAMPLE = ROOT / "examples/static"
GUIDE = "docs/static.md"
RUNTIME = Path(anyfn._config.static_runtime())

if "ANYFN_WHEEL" in os.environ and not RUNTIME.is_dir():
    pytest.skip("the wheel has no static runtime", allow_module_level=True)
if shutil.which("cc") is None:
    pytest.skip("no C compiler", allow_module_level=True)


def matmul(m=64, k=32, n=48, **options):
    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    axis = te.reduce_axis((0, k), name="axis")
    product = te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), name="product")
    return anyfn.build([a, b, product], name="matmul", **options)


@pytest.fixture(scope="module")
def module():
    return matmul()


def run(program, *args, data=b"", code=0, env=None):
    done = subprocess.run([program, *args], input=data, capture_output=True, timeout=60, env=env)
    assert done.returncode == code, (done.returncode, done.stdout[-1000:], done.stderr)
    return done


def segments(program):
    """Returns the types of the segments of an ELF file of 64 bits."""
    data = Path(program).read_bytes()
    (table,), (size, count) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
    return [struct.unpack_from("<I", data, table + i * size)[0] for i in range(count)]


def is_static(program):
    """Returns true if a program has neither a dynamic section nor a program that loads it."""
    return not {2, 3} & set(segments(program))


# --- Programs --------------------------------------------------------------------------------------------------------


def test_the_example(tmp_path):
    done = subprocess.run([sys.executable, EXAMPLE / "build.py", tmp_path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    first, *table = done.stdout.splitlines()
    assert first == "the product is equal to that of NumPy"
    parts = {part: int(size.replace(",", "")) for size, part in (re.fullmatch(r" *([\d,]+) bytes  (.*)", line).groups() for line in table)}
    whole = parts.pop("the whole program")
    assert whole == os.path.getsize(tmp_path / "matmul") < 100_000
    assert sum(parts.values()) == whole
    assert list(parts) == ["runtime (the core)", "compiled function", "main.c", "start-up code", "headers and alignment"]
    assert all(size > 0 for size in parts.values()), parts
    # The guide states these sizes, in kilobytes; compilers differ.
    guide = (ROOT / GUIDE).read_text(encoding="utf-8")
    for name, size in {**parts, "the whole program": whole}.items():
        stated = int(re.search(rf"^\| {re.escape(name)} \| (\d+) KB \|", guide, re.MULTILINE)[1])
        assert abs(stated - size / 1000) <= 3 + stated / 4, (name, stated, size)
    assert is_static(tmp_path / "matmul")
    if shutil.which("file"):
        assert "statically linked" in run("file", "-b", tmp_path / "matmul").stdout.decode()


def test_errors_of_a_program(module, tmp_path):
    module.export(tmp_path / "program", [EXAMPLE / "main.c"], runtime="static")
    data = bytes(4 * (64 * 32 + 32 * 48))
    wrong = run(tmp_path / "program", "wrong", data=data, code=255)
    assert wrong.stderr.startswith(b"TypeError: matmul: expected 3 arguments but got 2\n")
    short = run(tmp_path / "program", data=data[:-1], code=255)
    assert short.stderr.startswith(b"ValueError: expected 6144 bytes, got 6143\n")
    # Nothing of the environment is needed, and no file is opened but the program.
    assert run(tmp_path / "program", data=data, env={}).stdout == bytes(4 * 64 * 48)


def test_the_same_inputs_give_the_same_bytes(module, tmp_path):
    for name in ("one", "two"):
        module.export(tmp_path / name, [EXAMPLE / "main.c"], runtime="static")
        module.export(tmp_path / f"{name}.a", runtime="static")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert (tmp_path / "one.a").read_bytes() == (tmp_path / "two.a").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["one", "one.a", "two", "two.a"]


def test_parallel_loops_run_on_the_calling_thread(tmp_path):
    a = te.placeholder((1000,), "int32", name="a")
    b = te.compute((1000,), lambda i: a[i] * 3, name="b")
    schedule = tir.Schedule(te.create_prim_func([a, b], name="triple"))
    schedule.parallel(schedule.get_loops(schedule.get_block("b"))[0])
    triple = anyfn.build(schedule.mod)
    assert "ParallelLaunch(" in triple.inspect_source()
    triple.export(tmp_path / "program", [write(tmp_path, TRIPLE)], runtime="static")
    assert run(tmp_path / "program").stdout == b"0 3 2997\n"


TRIPLE = r"""
#include <anyfn/anyfn.h>
extern int __tvm_ffi_triple(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);
int main(void) {
  static int32_t a[1000], b[1000];
  int64_t shape[] = {1000};
  DLTensor x = {a, {kDLCPU, 0}, 1, {kDLInt, 32, 1}, shape, NULL, 0}, y = {b, {kDLCPU, 0}, 1, {kDLInt, 32, 1}, shape, NULL, 0};
  TVMFFIAny args[] = {anyfn_tensor(&x), anyfn_tensor(&y)}, result;
  for (int i = 0; i < 1000; ++i) a[i] = i;
  if (__tvm_ffi_triple(NULL, args, 2, &result)) return anyfn_print_error(stderr);
  printf("%d %d %d\n", b[0], b[1], b[999]);
  return 0;
}
"""


# The values in units of 0.0001.
SMOOTH = TRIPLE.replace("triple", "smooth").replace("int32_t a[1000], b[1000]", "float a[4], b[4]").replace("kDLInt", "kDLFloat")
SMOOTH = SMOOTH.replace("{1000}", "{4}").replace("i < 1000", "i < 4").replace("b[0], b[1], b[999]", "(int)(b[0] * 1e4f), (int)(b[1] * 1e4f), (int)(b[3] * 1e4f)")


def test_mathematics_needs_no_c_library(tmp_path):
    smooth().export(tmp_path / "program", [write(tmp_path, SMOOTH)], runtime="static")
    assert run(tmp_path / "program").stdout == b"5000 7310 9525\n"


def write(folder, text, name="main.c"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# A program that uses the functions of start.c and format.c; each failed check prints its line.
FUNCTIONS = r"""
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define CHECK(x) do { if (!(x)) { printf("line %d: %s\n", __LINE__, #x); return 1; } } while (0)
static _Thread_local int counter = 41;
static _Thread_local char zeros[100];
static int began;
__attribute__((constructor)) static void begin(void) { began = 1; }
static void at_end(void) { puts("the end"); }
int main(int argc, char** argv) {
  unsigned char bytes[64], *blocks[400];
  char text[64];
  volatile size_t all = SIZE_MAX;
  void* aligned;
  int i, k;
  size_t j;
  CHECK(began && argc == 3 && strcmp(argv[1], "one") == 0 && strcmp(argv[2], "") == 0 && argv[3] == NULL);
  CHECK(strcmp(getenv("NAME"), "value") == 0 && getenv("NAM") == NULL);
  CHECK(++counter == 42 && zeros[0] == 0 && zeros[99] == 0);
  for (i = 0; i < 64; ++i) bytes[i] = (unsigned char)i;
  memmove(bytes + 3, bytes, 40);
  CHECK(bytes[3] == 0 && bytes[42] == 39 && bytes[43] == 43);
  memmove(bytes, bytes + 3, 40);
  CHECK(bytes[0] == 0 && bytes[39] == 39);
  memset(bytes, 7, 5);
  CHECK(bytes[4] == 7 && bytes[5] == 5 && memcmp("abc", "abd", 3) < 0 && memcmp("\xff", "a", 1) > 0 && strlen("") == 0);
  for (k = 0; k < 3; ++k) {
    for (i = 0; i < 400; ++i) {
      j = (size_t)(i * i * 7 % 200000);
      blocks[i] = k == 1 && posix_memalign(&aligned, 64, j) == 0 ? aligned : malloc(j);
      CHECK(blocks[i] && ((uintptr_t)blocks[i] & (k == 1 ? 63 : 15)) == 0);
      memset(blocks[i], i, j);
    }
    for (i = 0; i < 400; ++i) {
      const size_t size = (size_t)(i * i * 7 % 200000);
      for (j = 0; j < size; j += 97) CHECK(blocks[i][j] == (unsigned char)i);
      if (i % 3) {
        blocks[i] = realloc(blocks[i], size * 2 + 1);
        for (j = 0; j < size; j += 97) CHECK(blocks[i][j] == (unsigned char)i);
      }
    }
    for (i = 0; i < 400; ++i) free(blocks[i]);
  }
  blocks[0] = calloc(1000, 3);
  for (i = 0; i < 3000; ++i) CHECK(blocks[0][i] == 0);
  CHECK(calloc(all / 2, 3) == NULL && malloc(all) == NULL && malloc(all / 2) == NULL);
  free(NULL);
  CHECK(snprintf(text, sizeof text, "%s|%d|%llu|%x|%c|%%|%.*s|%zu", "x", -5, 18446744073709551615ull, 255u, 'y', 2, "abc", (size_t)9) == 37);
  CHECK(strcmp(text, "x|-5|18446744073709551615|ff|y|%|ab|9") == 0);
  CHECK(snprintf(text, 4, "%d", 123456) == 6 && strcmp(text, "123") == 0);
  CHECK(snprintf(text, sizeof text, "%ld %lx %zu %lld", -5000000000L, 0x123456789aul, (size_t)1 << 40, (long long)INT64_MIN) == 57);
  CHECK(strcmp(text, "-5000000000 123456789a 1099511627776 -9223372036854775808") == 0);
  /* Freed memory is used again or returned: these blocks together have more than 2 GB, and the process may have 100 MB. */
  for (i = 0; i < 20000; ++i) {
    blocks[0] = malloc((size_t)(60000 + i % 72000)), blocks[1] = malloc(24);
    CHECK(blocks[0] && blocks[1]);
    blocks[0][i % 60000] = blocks[1][0] = 1;
    free(blocks[0]);
  }
  CHECK(posix_memalign(&aligned, 0, 8) == EINVAL && posix_memalign(&aligned, 24, 8) == EINVAL);
  CHECK(posix_memalign(&aligned, 64, all) == ENOMEM && posix_memalign(&aligned, all / 2 + 1, 8) == ENOMEM);
  CHECK(posix_memalign(&aligned, 1 << 20, 8) == 0 && ((uintptr_t)aligned & ((1 << 20) - 1)) == 0);
  free(aligned);
  CHECK(open("/no/such/file", O_RDONLY) == -1 && errno == ENOENT);
  CHECK(atexit(at_end) == 0);
  fprintf(stderr, "%s", "to stderr");
  putchar('a'), puts("b"), fputs("c\n", stdout);
  exit(7);
}
"""


def test_the_functions_for_programs_without_a_c_library(module, tmp_path):
    # Without the option, a compiler may leave out allocations whose results are only compared with NULL.
    for number, options in enumerate(([], ["-O2", "-D_FORTIFY_SOURCE=2", "-fstack-protector-all"], ["-O0"])):
        program = tmp_path / f"program{number}"
        module.export(program, [write(tmp_path, FUNCTIONS)], runtime="static", compile_options=[*options, "-fno-builtin"])
        limited = ["/bin/sh", "-c", 'ulimit -v 100000; exec "$@"', "sh", program]
        done = run(*limited, "one", "", code=7, env={"NAMES": "no", "NAME": "value"})
        assert (done.stdout, done.stderr) == (b"ab\nc\nthe end\n", b"to stderr"), options


def test_names_with_spaces_and_marks(module, tmp_path, monkeypatch):
    folder = tmp_path / "a folder, $HOME; `touch x` \"'"
    folder.mkdir()
    temporary = tmp_path / "temporary, files"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.chdir(folder)
    source = (EXAMPLE / "main.c").read_text(encoding="utf-8")
    for name in ("main file.c", "-o.c", "@main.c"):
        module.export("the program", [write(folder, source, name)], runtime="static")
        module.export("-p", [name], runtime="static")
        for program in ("the program", "-p"):
            assert run(folder / program, data=bytes(4 * (64 * 32 + 32 * 48))).stdout == bytes(4 * 64 * 48)
    module.export("-a.a", ["main file.c"], runtime="static")
    module.export("-a.so", runtime="static")
    with pytest.raises(RuntimeError, match="undefined reference"):
        module.export("no program", [write(folder, "int other(void) { return 0; }", "no main.c")], runtime="static")
    assert sorted(os.listdir()) == ["-a.a", "-a.so", "-o.c", "-p", "@main.c", "main file.c", "no main.c", "the program"]
    assert os.listdir(temporary) == [] and sorted(os.listdir(tmp_path)) == [folder.name, temporary.name]


def test_the_guide(tmp_path, monkeypatch):
    text = (ROOT / GUIDE).read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    write(tmp_path, re.search("```c\n(.*?)```", text, re.DOTALL)[1])
    samples.run_page("docs/static.md", {}, 1)
    assert run(tmp_path / "matmul").stdout == b"done\n"
    assert sorted(os.listdir(tmp_path)) == ["main.c", "matmul", "matmul.a", "matmul.so"]
    # The table of functions lists those of the start-up code.
    source = "".join((RUNTIME / name).read_text(encoding="utf-8") for name in ("start.c", "format.c"))
    for name in re.findall(r"`(\w+)`", "".join(re.findall(r"^\| `<.*$", text, re.MULTILINE))):
        if name not in ("stdout", "stderr"):
            assert re.search(rf"^[A-Za-z].*\b{name}\(.*\{{", source, re.MULTILINE), name


# --- Archives --------------------------------------------------------------------------------------------------------

THREADS = r"""
#include <anyfn/anyfn.h>
#include <pthread.h>
extern int __tvm_ffi_matmul(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);
extern int __tvm_ffi_smooth(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);
static int failures;
static void* fail_often(void* number) {
  for (int i = 0; i < 2000; ++i) {
    TVMFFIAny args[9], result;
    TVMFFIObjectHandle error = NULL;
    char expected[80];
    const TVMFFIErrorCell* cell;
    const int count = 4 + (int)(intptr_t)number;
    for (int at = 0; at < count; ++at) args[at] = anyfn_none();
    snprintf(expected, sizeof expected, "matmul: expected 3 arguments but got %d", count);
    if (__tvm_ffi_matmul(NULL, args, count, &result) == 0) ++failures;
    TVMFFIErrorMoveFromRaised(&error);
    if (error == NULL) return ++failures, NULL;
    cell = (const TVMFFIErrorCell*)((const char*)error + sizeof(TVMFFIObject));
    if (cell->message.size != strlen(expected) || memcmp(cell->message.data, expected, cell->message.size)) ++failures;
    anyfn_release_object(error);
  }
  return NULL;
}
int main(void) {
  float x[4] = {0, 1, 2, 3}, y[4];
  int64_t shape[] = {4};
  DLTensor from = {x, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape, NULL, 0}, to = {y, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, shape, NULL, 0};
  TVMFFIAny args[] = {anyfn_tensor(&from), anyfn_tensor(&to)}, result, found;
  TVMFFIObjectHandle function;
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, fail_often, (void*)(intptr_t)i);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  /* The registry is there, too. */
  if (anyfn_register("smooth", __tvm_ffi_smooth, 0) || anyfn_get_global("smooth", &function)) return anyfn_print_error(stderr);
  if (anyfn_call(function, args, 2, &result)) return anyfn_print_error(stderr);
  anyfn_release_object(function);
  if (!anyfn_call_global("no.such", NULL, 0, &found)) return 9;
  anyfn_print_error(stdout);
  printf("%d %.4f %.4f\n", failures, y[0], y[3]);
  return 0;
}
"""


def smooth(name="smooth"):
    x = te.placeholder((4,), name="x")
    y = te.compute((4,), lambda i: tir.exp(x[i]) / (1 + tir.exp(x[i])), name="y")
    return anyfn.build([x, y], name=name)


def test_archives_in_a_program_with_threads(module, tmp_path):
    module.export(tmp_path / "matmul.a", runtime="static")
    smooth().export(tmp_path / "smooth.a", runtime="static")
    words = ["cc", "-O1", "-Wall", "-Werror", "-I", anyfn.get_include(), write(tmp_path, THREADS), "-o", tmp_path / "program"]
    words += [tmp_path / "matmul.a", tmp_path / "smooth.a", "-lm", "-pthread", "-Wl,--gc-sections"]
    subprocess.run(words, check=True)
    out = run(tmp_path / "program").stdout.decode()
    assert out.endswith("\n0 0.5000 0.9526\n") and "no.such" in out, out


def test_an_archive_in_a_static_program_with_a_c_library(module, tmp_path):
    module.export(tmp_path / "matmul.a", runtime="static")
    words = ["-O1", "-static", "-I", anyfn.get_include(), EXAMPLE / "main.c", tmp_path / "matmul.a", "-o", tmp_path / "program"]
    empty = write(tmp_path, "int main(void) { return 0; }", "empty.c")
    if subprocess.run(["cc", "-static", empty, "-o", tmp_path / "empty"], capture_output=True).returncode != 0:
        pytest.skip("no static C library")
    subprocess.run(["cc", *words], check=True)
    a, b = (np.random.default_rng(1).standard_normal(shape, "float32") for shape in ((64, 32), (32, 48)))
    product = np.frombuffer(run(tmp_path / "program", data=a.tobytes() + b.tobytes()).stdout, "float32")
    np.testing.assert_allclose(product.reshape(64, 48), a @ b, 1e-4, 1e-4)


def test_compiled_functions_in_an_archive_of_the_user(module, tmp_path):
    module.export(tmp_path / "matmul.o")
    x = te.placeholder((4,), name="x")
    y = te.extern((4,), [x], lambda ins, outs: tir.call_packed("static.fill", ins[0], outs[0]), name="y", dtype="float32")
    anyfn.build([x, y], name="fill").export(tmp_path / "fill.o")
    for name in ("matmul", "fill"):
        subprocess.run(["ar", "rcs", tmp_path / f"{name}.a", tmp_path / f"{name}.o"], check=True)
    write_static = anyfn.get_global_func("anyfn.bundle")
    options = {"static_runtime": str(RUNTIME), "compile_options": [f"-I{anyfn.get_include()}"]}
    write_static(str(tmp_path / "program"), None, [str(EXAMPLE / "main.c"), str(tmp_path / "matmul.a")], [], options)
    wrong = run(tmp_path / "program", "wrong", data=bytes(4 * (64 * 32 + 32 * 48)), code=255)
    assert wrong.stderr.startswith(b"TypeError: matmul: expected 3 arguments but got 2\n")
    with pytest.raises(ValueError, match=r"fill\.a uses calls of functions by their names \(TVMFFIEnvModLookupFromImports\)"):
        write_static(str(tmp_path / "other"), None, [str(EXAMPLE / "main.c"), str(tmp_path / "matmul.a"), str(tmp_path / "fill.a")], [], options)


# --- Libraries -------------------------------------------------------------------------------------------------------


class Any(ctypes.Structure):
    _fields_ = [("type_index", ctypes.c_int32), ("size", ctypes.c_uint32), ("value", ctypes.c_int64)]


def test_a_library_needs_no_runtime_and_works_with_one(module, tmp_path):
    module.export(tmp_path / "matmul.so", runtime="static")
    a, b = (np.random.default_rng(2).standard_normal(shape, "float32") for shape in ((64, 32), (32, 48)))
    out = np.zeros((64, 48), "float32")
    loaded = anyfn.load_module(tmp_path / "matmul.so")
    loaded.matmul(a, b, out)
    np.testing.assert_allclose(out, a @ b, 1e-4, 1e-4)
    # The runtime that has loaded it raises its errors.
    with pytest.raises(TypeError, match="expected 3 arguments but got 1"):
        loaded.matmul(a)
    # A process without a runtime.
    code = f"""
import ctypes
library = ctypes.CDLL({str(tmp_path / "matmul.so")!r})
out = (ctypes.c_int64 * 2)()
assert library.__tvm_ffi_matmul(None, None, 0, out) == -1
error = ctypes.c_void_p()
library.TVMFFIErrorMoveFromRaised(ctypes.byref(error))
kind = (ctypes.c_void_p * 4).from_address(error.value + 24)
print(ctypes.string_at(kind[0], kind[1]).decode(), ctypes.string_at(kind[2], kind[3]).decode())
library.TVMFFIObjectDecRef(error)
"""
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert done.stdout == "TypeError matmul: expected 3 arguments but got 0\n", done.stderr
    assert os.path.getsize(tmp_path / "matmul.so") < 100_000


# --- Errors ----------------------------------------------------------------------------------------------------------


def test_what_cannot_be_written_is_said(module, tmp_path, monkeypatch):
    main = EXAMPLE / "main.c"
    (tmp_path / "out").mkdir()

    def fails(match, error, name="f", objects=(main,), of=module, runtime="static", **options):
        with pytest.raises(error, match=match):
            of.export(tmp_path / "out" / name, objects, runtime=runtime, **options)
        assert not os.listdir(tmp_path / "out")

    fails("expected the runtime 'static' or None, got 'dynamic'", ValueError, runtime="dynamic")
    fails("a program needs the file that defines `main`", ValueError, objects=())
    for name in ("f.o", "f.c", "f.dll"):
        fails(f"cannot write .*/{name} with the static runtime: expected a name that ends in `.so`", ValueError, name)
    fails("f.c: No such file", RuntimeError, objects=[tmp_path / "f.c"])
    fails("cannot run no_such_cc: No such file", RuntimeError, linker="no_such_cc")
    fails("the linker must be a compiler", RuntimeError, linker="ld")
    fails("(?s)undefined reference to `strtod'.*linked without a C library.*write an archive", RuntimeError,
          objects=[write(tmp_path, "#include <stdlib.h>\nint main(int n, char** a) { return (int)strtod(a[0], 0); }")])
    module.export(tmp_path / "plain.so")
    fails("plain.so is a shared library; pass the object files", ValueError, objects=[main, tmp_path / "plain.so"])
    fails("`build` did not create it in this process", ValueError, of=anyfn.load_module(tmp_path / "plain.so"))
    monkeypatch.setattr(anyfn._config, "static_runtime", lambda: str(tmp_path / "none"))
    fails("this installation of anyfn has no static runtime: .*/none/libanyfn_static.a: No such file", RuntimeError)
    monkeypatch.undo()
    module.export(tmp_path / "f.o")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    write_static = anyfn.get_global_func("anyfn.bundle")
    with pytest.raises(RuntimeError, match=r"no C compiler was found \(tried cc, gcc, clang\)"):
        write_static(str(tmp_path / "f.so"), None, [str(tmp_path / "f.o")], [], {"static_runtime": str(RUNTIME)})
    with pytest.raises(RuntimeError, match=r"no archiver was found \(tried ar, gcc-ar, llvm-ar\)"):
        write_static(str(tmp_path / "f.a"), None, [str(tmp_path / "f.o")], [], {"static_runtime": str(RUNTIME)})


def test_modules_that_need_a_loader_are_refused(tmp_path):
    class Table:
        kind = "static_table"

        def get_function(self, name):
            return None

        def save_to_bytes(self):
            return b""

    table = anyfn.make_module(Table())
    with pytest.raises(ValueError, match="it has no modules of kind `static_table`"):
        table.export(tmp_path / "f", [EXAMPLE / "main.c"], runtime="static")
    importing = matmul(8, 8, 8)
    importing.import_module(table)
    with pytest.raises(ValueError, match="the module imports one of kind `static_table`, and it has no modules"):
        importing.export(tmp_path / "f.a", runtime="static")
    importing.clear_imports()
    x = te.placeholder((4,), name="x")
    y = te.extern((4,), [x], lambda ins, outs: tir.call_packed("static.fill", ins[0], outs[0]), name="y", dtype="float32")
    with pytest.raises(ValueError, match=r"the module uses calls of functions by their names \(TVMFFIEnvModLookupFromImports\)"):
        anyfn.build([x, y], name="fill").export(tmp_path / "f.a", runtime="static")
    if shutil.which("aarch64-linux-gnu-gcc") and RUNTIME.joinpath("libanyfn_static.a").is_file() and sys.platform == "linux":
        if os.uname().machine == "x86_64":
            with pytest.raises(ValueError, match="the module was compiled for another kind of processor than the runtime"):
                matmul(8, 8, 8, target=anyfn.Target("c", cc="aarch64-linux-gnu-gcc")).export(tmp_path / "f.a", runtime="static")
    assert not os.listdir(tmp_path)
