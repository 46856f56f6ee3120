"""Compiles C++ plugins with the headers of anyfn and of the peer, and prints compile times and sizes of object files.

``plugins.py WORK PEER_PACKAGE [ROW...]`` prints lines ``row@contender=figure``: the processor time of the compiler in
nanoseconds, without that of the linker, or the bytes of code and data of the object file. The two contenders take turns. If
the folder of the peer's package is an empty string, only anyfn is measured.
"""

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLAGS = "-std=c++17 -O2 -fPIC -fvisibility=hidden -c".split()
# Compilations of each plugin, of which the fastest counts.
ROUNDS = 2

# The macro makes the peer export signatures and documentations, which anyfn always exports.
INCLUDE = {
    "anyfn": "#include <anyfn/anyfn.hpp>\n",
    "peer": "#define TVM_FFI_DLL_EXPORT_INCLUDE_METADATA 1\n#include <tvm/ffi/tvm_ffi.h>\n",
}
NOTHING = "static void nothing() {}\n"
# A function with a documentation and two parameters of different types for each number.
FUNCTION = """
static double scale{n}({string} name, double x) {{ return x * {n} + static_cast<double>(name.size()); }}
"""
EXPORT = {
    "anyfn": 'ANYFN_EXPORT_FUNC({name}, {name}, "A function.");\n',
    "peer": 'TVM_FFI_DLL_EXPORT_TYPED_FUNC({name}, {name});\nTVM_FFI_DLL_EXPORT_TYPED_FUNC_DOC({name}, "A function.");\n',
}
# A type of objects with three fields, a constructor and a method for each number.
TYPE = {
    "anyfn": """
struct Item{n} : anyfn::Object {{
  ANYFN_DECLARE_OBJECT(Item{n}, anyfn::Object, "bench.Item{n}");
  anyfn::String name;
  int64_t size = 0;
  double weight = 0;
  double total() const {{ return weight * static_cast<double>(size); }}
}};
ANYFN_REGISTER_OBJECT(Item{n}, "An item.")
    .field("name", &Item{n}::name, "Its name.")
    .field("size", &Item{n}::size, "Its size.")
    .field("weight", &Item{n}::weight, "Its weight.", anyfn::writable)
    .method("total", &Item{n}::total, "Weight of all.");
""",
    "peer": """
class Item{n} : public tvm::ffi::Object {{
 public:
  static constexpr bool _type_mutable = true;
  tvm::ffi::String name;
  int64_t size = 0;
  double weight = 0;
  Item{n}(tvm::ffi::String name, int64_t size, double weight) : name(name), size(size), weight(weight) {{}}
  double total() const {{ return weight * static_cast<double>(size); }}
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("bench.Item{n}", Item{n}, tvm::ffi::Object);
}};
TVM_FFI_STATIC_INIT_BLOCK() {{
  tvm::ffi::reflection::ObjectDef<Item{n}>()
      .def(tvm::ffi::reflection::init<tvm::ffi::String, int64_t, double>())
      .def_ro("name", &Item{n}::name, "Its name.")
      .def_ro("size", &Item{n}::size, "Its size.")
      .def_rw("weight", &Item{n}::weight, "Its weight.")
      .def("total", &Item{n}::total, "Weight of all.");
}}
""",
}
STRING = {"anyfn": "anyfn::String", "peer": "tvm::ffi::String"}


def source(kind, who):
    """Returns the source of a plugin."""
    text = INCLUDE[who]
    if kind == "empty":
        text += NOTHING + EXPORT[who].format(name="nothing")
    for n in range(1, 11):
        if kind == "ten_functions":
            text += FUNCTION.format(n=n, string=STRING[who]) + EXPORT[who].format(name=f"scale{n}")
        elif kind == "ten_types":
            text += TYPE[who].format(n=n)
    return text


def compile_time(command):
    """Runs a command and returns the processor time of the processes that it starts, in nanoseconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e9


def size(file):
    """Returns the bytes of code and data of an object file."""
    line = subprocess.run(["size", file], check=True, capture_output=True, text=True).stdout.splitlines()[1]
    return sum(map(int, re.findall(r"\d+", line)[:3]))


def main():
    work, package, only = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    include = {"anyfn": [f"-I{ROOT}/bindings/c/include", f"-I{ROOT}/bindings/cpp/include"]}
    if package:
        include["peer"] = [f"-I{package}/include", f"-I{package}/3rdparty/dlpack/include"]
    compiler = os.environ.get("CXX", "c++")
    for kind in ("include", "empty", "ten_functions", "ten_types"):
        if only and not {f"cpp_compile_{kind}", f"cpp_size_{kind}"} & set(only):
            continue
        best = {}
        for _ in range(ROUNDS):
            for who, folders in include.items():
                file = work / f"plugin_{kind}_{who}"
                file.with_suffix(".cc").write_text(source(kind, who), encoding="utf-8")
                command = [compiler, *FLAGS, *folders, file.with_suffix(".cc"), "-o", file.with_suffix(".o")]
                best[who] = min(best.get(who, float("inf")), compile_time(command))
        for who, time in best.items():
            print(f"cpp_compile_{kind}@{who}={time:.0f}")
            print(f"cpp_size_{kind}@{who}={size(work / f'plugin_{kind}_{who}.o')}", flush=True)


if __name__ == "__main__":
    main()
