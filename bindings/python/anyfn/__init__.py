"""Define a function in any language, and call it from any other.

>>> import anyfn
>>> my_add = anyfn.register_func("doc.my_add", lambda a, b: a + b, override=True)
>>> anyfn.get_global_func("doc.my_add")(1, 2)
3

Contents:

    functions       register_func, get_global_func, list_global_func_names, remove_global_func, PackedFunc
    values          convert, to_python, as_map, dtype
    containers      Array and Map (immutable), List and Dict (mutable, shared by all languages), Shape
    tensors         tensor, empty, zeros, full; Tensor, from_dlpack, const
    devices         device, cpu, cuda, devices, Stream; cuda_module, metal_module, opencl_module and vulkan_module make modules of kernels in
                    CUDA C, OpenCL C and WGSL
    libraries       load_module, Module, inspect_library, system_lib, mapped_libraries, reap; watch and Watch reload a library
                    whose file changes; bundle writes a library that contains modules; make_module and
                    register_module_loader define custom module kinds
    saving          save_json, load_json, json_metadata, register_alias; save_html writes a value as a page
    leak detection  start_ledger, live_handles, live_handles_text
    native objects  Object, object and field (types defined in Python), register_object, type_info, replace,
                    register_converter and remove_converter (custom value types)
    graphs          structural_walk, structural_map, structural_visit, structural_mutate; WalkResult, VisitInterrupt,
                    DefRegionKind, StructuralVisitor, StructuralMutator
    comparison      structural_equal, structural_hash, get_first_structural_mismatch, StructuralKey, AccessPath, AccessStep;
                    recursive_equal, recursive_less, recursive_hash
    operations      deep_copy, register_type_attr
    errors          Error, ErrorObject, register_error
    async           PackedFunc.call_async, check_signals, set_async_threads
    measurement     time_evaluator, profile
    diagnosis       doctor
    threads         num_threads, set_num_threads, set_parallel_launcher (for parallel loops in compiled code)
    annotations     the module anyfn.typing
    compiler        the modules anyfn.te (tensor expressions), anyfn.tir (the tensor IR) and anyfn.transform (passes); build
                    compiles for a Target; lower and source return the lowered IR and the generated source
    development     the module anyfn.debug, which groups leak detection, measurement, diagnosis and inspection of libraries
    Apache TVM      the module anyfn.nd (names for tensors); docs/coming-from-tvm.md compares both interfaces
    plugins         get_include (folder of the C headers)
    commands        anyfn call, inspect, stubs, bundle, new, config, rpc, doctor, completion, version and help; also python -m anyfn

Importing this package loads the packaged runtime and has no other effect: it imports no other library, starts no thread
and installs no signal handler.
"""

import sys as _sys

if _sys.version_info < (3, 9) or _sys.implementation.name != "cpython" or "t" in _sys.abiflags:
    # The extension module is built for CPython's stable ABI. Loaded into another interpreter, it would misread objects.
    raise ImportError(
        "anyfn needs CPython 3.9 or later, and no free-threaded build, but this is "
        f"{_sys.implementation.name} {' '.join(_sys.version.split())}"
    )

from . import _core
from ._core import Object, PackedFunc
from ._values import as_map, cpu, cuda, device, dtype
from ._error import Error, ErrorObject, register_error
from ._tensor import Tensor, const, from_dlpack
from ._tensor_make import empty, full, tensor, zeros
from ._device import Stream, devices
from ._container import Array, Dict, List, Map, Shape, to_python
from ._object import register_object
# Not in `__all__`: `import *` would hide the built-in `object`.
from ._define import field, object as object
from ._reflection import replace, type_info
from ._convert import register_converter, remove_converter
from ._module import (
    Module,
    Watch,
    bundle,
    cuda_module,
    inspect_library,
    live_handles,
    live_handles_text,
    load_module,
    make_module,
    mapped_libraries,
    metal_module,
    opencl_module,
    reap,
    register_module_loader,
    start_ledger,
    system_lib,
    vulkan_module,
    watch,
)
from ._registry import (
    _init_api,
    convert,
    get_global_func,
    list_global_func_names,
    register_func,
    remove_global_func,
)
from ._saving import json_metadata, load_json, register_alias, save_html, save_json
from ._structural import (
    AccessPath,
    AccessStep,
    StructuralKey,
    deep_copy,
    get_first_structural_mismatch,
    recursive_equal,
    recursive_hash,
    recursive_less,
    register_type_attr,
    structural_equal,
    structural_hash,
)
from ._compiler import build, lower, source
from ._config import get_include
from ._async import check_signals, set_async_threads
from ._measure import doctor, profile, time_evaluator
from ._threads import num_threads, set_num_threads, set_parallel_launcher
from ._rewrite import (
    DefRegionKind,
    StructuralMutator,
    StructuralVisitor,
    VisitInterrupt,
    WalkResult,
    structural_map,
    structural_mutate,
    structural_visit,
    structural_walk,
)
from . import _ffi, _setup

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import debug as debug, nd as nd, rpc as rpc, te as te, tir as tir, transform as transform
    from . import types as types, typing as typing
    from .tir import Target as Target

__version__ = _core.VERSION

__all__ = [
    "AccessPath",
    "AccessStep",
    "Array",
    "DefRegionKind",
    "Dict",
    "Error",
    "ErrorObject",
    "List",
    "Map",
    "Module",
    "Object",
    "PackedFunc",
    "Shape",
    "Stream",
    "StructuralKey",
    "StructuralMutator",
    "StructuralVisitor",
    "Tensor",
    "VisitInterrupt",
    "WalkResult",
    "Watch",
    "as_map",
    "build",
    "bundle",
    "check_signals",
    "const",
    "convert",
    "cpu",
    "cuda",
    "cuda_module",
    "deep_copy",
    "device",
    "doctor",
    "devices",
    "dtype",
    "empty",
    "field",
    "from_dlpack",
    "full",
    "get_first_structural_mismatch",
    "get_global_func",
    "get_include",
    "inspect_library",
    "json_metadata",
    "list_global_func_names",
    "lower",
    "load_json",
    "live_handles",
    "live_handles_text",
    "load_module",
    "make_module",
    "mapped_libraries",
    "metal_module",
    "num_threads",
    "opencl_module",
    "profile",
    "reap",
    "recursive_equal",
    "recursive_hash",
    "recursive_less",
    "register_alias",
    "register_converter",
    "register_error",
    "register_func",
    "register_module_loader",
    "register_object",
    "register_type_attr",
    "remove_converter",
    "remove_global_func",
    "replace",
    "save_html",
    "save_json",
    "set_async_threads",
    "set_num_threads",
    "set_parallel_launcher",
    "source",
    "start_ledger",
    "structural_equal",
    "structural_hash",
    "structural_map",
    "structural_mutate",
    "structural_visit",
    "structural_walk",
    "system_lib",
    "tensor",
    "time_evaluator",
    "to_python",
    "type_info",
    "vulkan_module",
    "watch",
    "zeros",
]

if not TYPE_CHECKING:

    # Imported on first use, which keeps importing the package cheap. Not in `__all__` either.
    _LAZY_MODULES = ("debug", "nd", "rpc", "script", "te", "tir", "transform", "types", "typing")

    def __getattr__(name):
        if name in _LAZY_MODULES:
            # The import binds the attribute.
            return __import__(f"{__name__}.{name}", fromlist=["_"])
        if name == "Target":
            from .tir import Target

            globals()["Target"] = Target
            return Target
        from ._missing import missing

        raise missing("module 'anyfn'", name)

    def __dir__():
        return sorted({*globals(), *_LAZY_MODULES, "Target"})
