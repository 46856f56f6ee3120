"""Tests of the library of the device drivers, which the runtime opens when one of its devices is first asked for."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import anyfn
from conftest import compile_library
from samples import ROOT

LIBRARY = "libanyfn_devices.so"
# Shows whether the library is mapped.
MAPPED = f"def mapped(): return any({LIBRARY!r} in line for line in open('/proc/self/maps'))\n"


def run(code, folder=None, **variables):
    """Runs Python code in a new process with additional environment variables. Returns what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_work_on_the_processor_does_not_open_it():
    code = """
import numpy as np, anyfn
x = anyfn.tensor(np.arange(5), device="cpu")
assert x.to("cpu").tolist() == [0, 1, 2, 3, 4] and anyfn.cpu().exists
anyfn.device("opencl", 0), anyfn.device("vulkan", 0)
f = anyfn.get_global_func("anyfn.no_such_function", allow_missing=True)
with anyfn.profile() as profile:
    anyfn.get_global_func("anyfn.device_why_missing")(anyfn.cpu())
str(profile)
assert anyfn.list_global_func_names()
anyfn.load_module(TESTING)
print(mapped())
""".replace("TESTING", repr(os.environ.get("ANYFN_TESTING_LIB", "")))
    if not os.environ.get("ANYFN_TESTING_LIB"):
        code = code.replace("anyfn.load_module('')\n", "")
    assert run(MAPPED + code) == "False\n"


@pytest.mark.parametrize(
    "question",
    [
        "anyfn.device('opencl', 0).exists",
        "anyfn.device('vulkan', 5).exists",
        "anyfn.devices()",
        "anyfn.get_global_func('anyfn.opencl_module')",
        "anyfn.device('cuda', 0).exists",
        "anyfn.cuda_module(b'.version 7.0', {'f': ['pointer']}, format='ptx')",
        "anyfn.get_global_func('ffi.Module.load_from_bytes.vulkan', allow_missing=True)",
        "anyfn.get_global_func('anyfn.doctor')()",
    ],
)
def test_the_first_question_opens_it(question):
    code = f"import anyfn\nbefore = mapped()\nanswer = {question}\nassert answer is not None\nprint(before, mapped())"
    assert run(MAPPED + code) == "False True\n"


def test_a_missing_file_is_named(tmp_path):
    code = """
import json, sys, anyfn
def message(of):
    try:
        of()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
print(message(lambda: anyfn.empty(3, device="opencl:0")))
print(message(lambda: anyfn.opencl_module("", {"f": ["pointer"]})))
print(message(lambda: anyfn.get_global_func("anyfn.doctor.vulkan")))
print([str(device) for device in anyfn.devices()])
print(anyfn.device("vulkan", 0).exists, anyfn.get_global_func("anyfn.opencl_module", allow_missing=True))
checks = anyfn.get_global_func("anyfn.doctor.devices")()
print([(check["id"], check["status"], check["why"]) for check in checks if "opencl" in check["id"]])
"""
    lines = run(code, ANYFN_DEVICES_LIBRARY=str(tmp_path / "none.so")).splitlines()
    reason = f"its driver is in the library {LIBRARY}, and there is no file {tmp_path}/none.so; it lies beside"
    assert lines[0].startswith(f"RuntimeError: device opencl:0 is not available: {reason}")
    assert lines[1].startswith(f"ValueError: Cannot find global function anyfn.opencl_module: {reason}")
    assert lines[2].startswith(f"ValueError: Cannot find global function anyfn.doctor.vulkan: {reason}")
    assert lines[3] == "['cpu:0']" and lines[4] == "False None"
    assert lines[5].startswith("[('device.opencl', 'problem', ") and reason in lines[5]


def test_other_files_are_refused(tmp_path, compile_source):
    text = tmp_path / "text.so"
    text.write_text("no library", encoding="utf-8")
    plain, newer = tmp_path / "plain.so", tmp_path / "newer.so"
    compile_source("int nothing(void) { return 0; }", plain)
    compile_source(
        """
        #include <anyfn/anyfn.h>
        static AnyfnDeviceDriver driver = {.size = sizeof(AnyfnDeviceDriver) + 8, .version = 2, .device_type = kDLOpenCL};
        ANYFN_EXPORT(register_drivers) {
          TVMFFIAny table = anyfn_ptr(&driver);
          (void)args, (void)num_args;
          return anyfn_call_global("anyfn.register_device_driver", &table, 1, result);
        }
        """,
        newer,
    )
    code = "import anyfn\nprint(anyfn.get_global_func('anyfn.device_why_missing')(anyfn.device('opencl', 0)))"
    for file, reason in [
        (text, "which cannot be used: Failed to load dynamic shared library"),
        (plain, "has no function `register_drivers`"),
        (newer, "its table has version 2 and 216 bytes, but this runtime needs version 1 and at least 208 bytes"),
    ]:
        found = run(code, ANYFN_DEVICES_LIBRARY=str(file))
        assert found.startswith(f"its driver is in the library {file}, ") and reason in found, found


def test_threads_that_ask_first_at_the_same_time():
    code = """
import threading, anyfn
barrier, answers = threading.Barrier(8), []
def ask(number):
    barrier.wait()
    if number % 2:
        answers.append(anyfn.get_global_func("anyfn.device_why_missing")(anyfn.device("opencl", 99)))
    else:
        answers.append(anyfn.get_global_func("ffi.Module.load_from_bytes.opencl") is not None)
threads = [threading.Thread(target=ask, args=[number]) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert answers.count(True) == 4 and len(set(answers)) == 2, answers
print(sum("r-x" in line and "libanyfn_devices.so" in line for line in open("/proc/self/maps")))
"""
    for _ in range(5):
        assert run(code) == "1\n"


@pytest.mark.usefixtures("opencl")
def test_a_forked_child_uses_what_its_parent_has_opened():
    """A child has no OpenCL devices only if its parent has initialised OpenCL."""
    code = """
import os, sys, warnings, anyfn
warnings.simplefilter("ignore")
if FIRST: anyfn.device("opencl", 0).exists
module = anyfn.opencl_module("kernel void f(global int *x) { x[0] = 7; }", {"f": ["pointer"]})
def child():
    try:
        x = anyfn.zeros(1, "int32", "opencl:0")
        module.f(x)
        return str(x.numpy()[0])
    except RuntimeError as error:
        return str(error)
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    print(child(), flush=True)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert FIRST or child() == "7"
"""
    assert run(code.replace("FIRST", "False")) == "7\n"
    assert "was forked after OpenCL was initialised" in run(code.replace("FIRST", "True"))


def test_sessions_list_only_granted_devices():
    """A session asks nothing about the devices that are not granted, so it opens the library only for those of its drivers."""
    code = """
import os, pathlib
from anyfn import rpc
def below(pid):
    children = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
    found = [int(child) for file in children for child in file.read_text().split()]
    return found + [pid for child in found for pid in below(child)]
def mapped(pid): return LIBRARY in pathlib.Path(f"/proc/{pid}/maps").read_text()
for granted in [["opencl"], ["cpu"], ["ext_dev", "rocm:1"]]:
    with rpc.serve(devices=granted) as server, rpc.connect(server.host, server.port) as session:
        kinds = {str(device).split(":")[0] for device in session.info()["devices"]}
        print(granted, kinds <= {"cpu", "opencl"} & set(granted), "cpu" in kinds, any(map(mapped, below(os.getpid()))))
print(mapped(os.getpid()))
""".replace("LIBRARY", repr(LIBRARY))
    # The processes of the sessions open the library, and this one does not.
    assert run(code).splitlines() == [
        "['opencl'] True False True",
        "['cpu'] True True False",
        "['ext_dev', 'rocm:1'] True False False",
        "False",
    ]


# A program that opens one or two runtimes privately, changes its folder in between, and prints why a device does not exist.
PROGRAM = """
#include <anyfn/c_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const AnyfnApi* open_runtime(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) puts(dlerror()), exit(1);
  const AnyfnApi* (*table)(void);
  *(void**)&table = dlsym(library, "anyfn_api");
  return table();
}

static void print_why(const AnyfnApi* api) {
  TVMFFIByteArray name = {"anyfn.device_why_missing", strlen("anyfn.device_why_missing")};
  TVMFFIObjectHandle function = NULL;
  TVMFFIAny device, reason;
  memset(&device, 0, sizeof(device)), memset(&reason, 0, sizeof(reason));
  device.type_index = kTVMFFIDevice, device.v_device.device_type = kDLOpenCL, device.v_device.device_id = 99;
  if (api->TVMFFIFunctionGetGlobal(&name, &function) != 0) exit(2);
  if (api->TVMFFIFunctionCall(function, &device, 1, &reason) != 0) exit(3);
  if (reason.type_index != kTVMFFIStr) exit(4);
  TVMFFIByteArray* text = (TVMFFIByteArray*)((char*)reason.v_obj + sizeof(TVMFFIObject));
  printf("%.*s\\n", (int)text->size, text->data);
}

int main(int count, char** args) {
  const AnyfnApi* first = open_runtime(args[1]);
  if (chdir(args[2]) != 0) return 5;
  print_why(first);
  if (count == 4) print_why(open_runtime(args[3])), print_why(first);
  return 0;
}
"""


@pytest.fixture
def program(tmp_path):
    """Returns a function that runs the program above in a folder, and returns the lines that it prints."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, built = tmp_path / "program.c", tmp_path / "program"
    source.write_text(PROGRAM, encoding="utf-8")
    subprocess.run([compiler, f"-I{ROOT / 'bindings/c/include'}", source, "-o", built, "-ldl"], check=True)

    def run_program(folder, *arguments, **variables):
        command = [built, *arguments]
        environment = {**os.environ, **variables}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines()

    return run_program


def place_runtime(folder):
    """Copies the runtime without the library of drivers to a folder, and returns its path."""
    folder.mkdir(parents=True)
    return shutil.copy(Path(anyfn.__file__).parent / "lib/libanyfn.so", folder)


def test_the_current_folder_is_not_searched(tmp_path, program, compile_source):
    """A runtime that was loaded by a relative path is found where it was, not in the folder that is current later."""
    place_runtime(tmp_path / "good/lib")
    (tmp_path / "bad/lib").mkdir(parents=True)
    harm = '#include <stdlib.h>\n__attribute__((constructor)) static void harm(void) { exit(42); }'
    compile_source(harm, tmp_path / "bad/lib" / LIBRARY)
    (line,) = program(tmp_path / "good", "lib/libanyfn.so", tmp_path / "bad")
    assert f"there is no file {tmp_path}/good/lib/{LIBRARY}; it lies beside" in line


def test_a_second_runtime_does_not_take_it_over(tmp_path, program):
    library = str(Path(anyfn.__file__).parent / "lib" / LIBRARY)
    first, second = place_runtime(tmp_path / "first"), place_runtime(tmp_path / "second")
    before, other, after = program(tmp_path, first, tmp_path, second, ANYFN_DEVICES_LIBRARY=library)
    assert f"two copies of anyfn are loaded: {first} and {second}" in other, other
    assert before == after and "two copies" not in after


GUIDE = ROOT / "docs/drivers.md"


@pytest.mark.skipif("ANYFN_WHEEL" in os.environ, reason="runs with the sources, not with the wheel")
def test_the_guide(tmp_path):
    """Compiles and loads the driver in ``docs/drivers.md``, and runs the page and the suite with it."""
    source = tmp_path / "driver.c"
    (text,) = re.findall(r"^```c\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    source.write_text(text, encoding="utf-8")
    compile_library(source, tmp_path / "driver.so")
    code = f"""
import gc, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from samples import run_page
run_page("docs/drivers.md", {{}}, 1)
gc.collect()
import anyfn
# The module is gone, and the driver stays.
anyfn.get_global_func("ffi.ModuleReap")()
assert anyfn.tensor([1, 2, 3], device="ext_dev:0").to("cpu").tolist() == [1, 2, 3]
unsupported = [("scopes", "one scope"), ("elapsed", "no clock")]
assert len(anyfn.get_global_func("anyfn.device_suite")(anyfn.device("ext_dev", 0), unsupported)) > 10
# It is loaded again, and the same driver is registered again.
anyfn.load_module("driver.so").register_driver()
try:
    anyfn.get_global_func("anyfn.device_enable_null")()
except RuntimeError as error:
    print(error)
"""
    printed = run(code, tmp_path)
    assert "a driver for ext_dev is already registered" in printed, printed
