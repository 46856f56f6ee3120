"""Modules, which are objects that contain functions by name, usually compiled ones."""

import os

from . import _core
from ._object import _own_class
from ._values import device as _device

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Literal, Optional, TypeVar, Union, overload

    from ._core import Object as _Base, PackedFunc
    from ._measure import Timing
    from .rpc import Device as RemoteDevice

    _C = TypeVar("_C", bound=type)
    _Path = Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]
else:
    _Base = object

_ENTRY = "main"


def _methods_of(native: "Any") -> "Callable[[_C], _C]":
    """Returns a decorator that copies the attributes of a class to ``native`` and replaces the class by ``native``."""

    def move(cls):
        for name, value in vars(cls).items():
            if name not in ("__dict__", "__weakref__"):
                setattr(native, name, value)
        return native

    return move


@_methods_of(_core.Module)
class Module(_Base):
    """An object that contains functions by name, usually compiled ones, and can import other modules.

    ``module["name"]`` and ``module.name`` return the function of that name. They raise ``AttributeError`` with the nearest
    name and the names of the module's functions if there is no such function. The functions release the GIL while they run.
    Calling the module calls its entry function, which is ``main`` or the module's only function.

    Functions keep the module's code alive. Global functions that its library registers are removed with the module.
    """

    def get_function(self, name: str, query_imports: bool = False) -> "PackedFunc":
        """Returns the function with the given name. Raises ``AttributeError`` if the module has no such function."""
        function = _core.module_function(self, name, query_imports)
        if function is None:
            _core.module_missing(self, name)
        return function

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Returns true if the module has a function with the given name."""
        return _core.get_global_func("ffi.ModuleImplementsFunction", False)(self, name, query_imports)

    def list_functions(self, query_imports: bool = False) -> "list[str]":
        """Returns the names of the functions, sorted; the list is empty if the module cannot enumerate them."""
        return list(_core.get_global_func("ffi.ModuleListFunctions", False)(self, query_imports))

    def list_types(self) -> "list[str]":
        """Returns the keys of the object types that the library registered, sorted; ``module.Account`` is a class of one."""
        return list(_core.get_global_func("ffi.ModuleListTypes", False)(self))

    def get_function_doc(self, name: str, query_imports: bool = False) -> "Optional[str]":
        """Returns the documentation of a function, or None if it has no documentation."""
        return _core.get_global_func("ffi.ModuleGetFunctionDoc", False)(self, name, query_imports)

    def get_function_metadata(self, name: str, query_imports: bool = False) -> "Optional[dict[str, Any]]":
        """Returns the metadata of a function, such as its signature, as a dict; None if it has no metadata."""
        text = _core.get_global_func("ffi.ModuleGetFunctionMetadata", False)(self, name, query_imports)
        if text is None:
            return None
        import json

        return json.loads(text)

    @property
    def imports(self) -> "list[Module]":
        """Copy of the list of imported modules; ``import_module`` and ``clear_imports`` change the list itself."""
        return list(_core.get_global_func("ffi.ModuleGetImports", False)(self))

    def import_module(self, module: "Module") -> None:
        """Imports a module, whose functions are then found by lookups with ``query_imports`` and by this module's code.

        Raises ``RuntimeError`` if ``module`` already imports this one, directly or indirectly.
        """
        _core.get_global_func("ffi.ModuleImportModule", False)(self, module)

    def clear_imports(self) -> None:
        """Removes all imports. This module's code can still call the imported functions that it has already looked up."""
        _core.get_global_func("ffi.ModuleClearImports", False)(self)

    def get_property_mask(self) -> int:
        """Returns the properties of the module as a bit mask: 1 (can be saved), 2 (can run), 4 (exported as library code)."""
        return _core.get_global_func("ffi.ModuleGetPropertyMask", False)(self)

    def is_binary_serializable(self) -> bool:
        """Returns true if the module states that it can be saved as bytes."""
        return bool(self.get_property_mask() & 1)

    def is_runnable(self) -> bool:
        """Returns true if functions of the module can be called."""
        return bool(self.get_property_mask() & 2)

    def is_compilation_exportable(self) -> bool:
        """Returns true if exporting the module adds the module's code to the exported library."""
        return bool(self.get_property_mask() & 4)

    def save_to_bytes(self) -> bytes:
        """Returns the bytes from which the loader of the module's kind recreates the module, without its imports.

        Raises ``RuntimeError``, which names the kind, if the module cannot be saved.
        """
        return _core.get_global_func("ffi.ModuleSaveToBytes", False)(self)

    def get_write_formats(self) -> "list[str]":
        """Returns the extensions of the file formats in which the module can write itself to a file."""
        return list(_core.get_global_func("ffi.ModuleGetWriteFormats", False)(self))

    def write_to_file(self, file_name: "_Path", fmt: str = "") -> None:
        """Writes the module to a file, without its imports. The format defaults to the extension of the file.

        A module without its own writer writes the result of ``save_to_bytes``. Raises ``RuntimeError`` if it has neither.
        """
        _releasing("ffi.ModuleWriteToFile")(self, os.fsdecode(file_name), fmt)

    def inspect_source(self, fmt: str = "") -> str:
        """Returns the module's source code, or an empty string. A module that ``anyfn.build`` returned has C source."""
        text = _core.get_global_func("ffi.ModuleInspectSource", False)(self, fmt)
        if text or fmt not in ("", "c") or self.kind != "library":
            return text
        # The function exists only if the compiler is loaded.
        compiled = _core.get_global_func("compiler.source_of_built", True)
        return "" if compiled is None else compiled(self) or ""

    def export(
        self,
        path: "_Path",
        objects: "Union[_Path, Iterable[_Path]]" = (),
        *,
        linker: "Optional[str]" = None,
        compiler: "Optional[str]" = None,
        compile_options: "Iterable[str]" = (),
        link_options: "Iterable[str]" = (),
        runtime: "Optional[Literal['static']]" = None,
    ) -> None:
        """Writes the module, with its imports of any kind, as one library file (``f.so``) that ``load_module`` reads.

        If one of the modules is a library, it becomes the library of the bundle. Otherwise ``objects`` are linked to a
        library that imports this module. See ``bundle`` for ``objects``, the options and errors.

        A module that ``anyfn.build`` returned can also be written as C source (``f.c``) or object file (``f.o``). Such a
        module for another kind of processor is written as a library without its imports, and one for WebAssembly as ``f.wasm``.
        Raises ``ValueError`` for other extensions.

        With ``runtime="static"``, the file contains the compiled functions and the part of the runtime that they need, and uses
        no other file of anyfn. ``f.so`` is then a library, ``f.a`` an archive for any linker, and any other name a program;
        ``objects`` must contain the file that defines its ``main``, such as ``["main.c"]``, for which the C headers are found.
        The program is linked statically, without a C library. Needs a C compiler. Raises ``ValueError`` for a module that
        imports others or calls functions by name, and ``RuntimeError`` with the output of the compiler or linker.
        """
        path = os.fsdecode(path)
        if runtime is not None:
            _write_static(path, self, objects, linker, compiler, compile_options, link_options, runtime)
            return
        is_source = path.endswith((".c", ".o", ".wasm")) and not objects
        if not is_source and not _is_library_name(path):
            others = "" if objects else ", `.o` (an object file) or `.c` (C source)"
            raise ValueError(
                f"cannot export the module to {path}: expected a file name that ends in `.so` (a library){others}"
            )
        if not objects and (is_source or self.kind == "foreign"):
            from . import _progress
            from ._compiler_library import functions

            with _progress.waiting(f"writing {os.path.basename(path)}"):
                return functions("compiler").export(self, path)
        _write_bundle(path, self, objects, (), linker, compiler, compile_options, link_options)

    def export_library(self, path: "_Path") -> None:
        """Calls ``export``. The name is that of Apache TVM; ``export`` has further parameters."""
        self.export(path)

    if TYPE_CHECKING:

        @overload
        def leases(self, detail: Literal[False] = False) -> dict[str, int]: ...
        @overload
        def leases(self, detail: Literal[True]) -> dict[str, list[dict[str, Any]]]: ...

    def leases(self, detail: bool = False) -> "Union[dict[str, int], dict[str, list[dict[str, Any]]]]":
        """Returns a dict from kind of lease to the number of leases that keep the module's library mapped; zeros are omitted.

        With ``detail``, returns a dict of lists instead: the entries of ``live_handles`` by kind of lease.
        """
        _core.module_forget(self)
        if not detail:
            return _core.to_python(_core.get_global_func("ffi.ModuleLeases", False)(self))
        leases: "dict[str, list[dict[str, Any]]]" = {}
        for handle in live_handles(self):
            leases.setdefault(handle["lease"], []).append(handle)
        return leases

    def time_evaluator(
        self, name: str, device: "Optional[Union[str, _device, RemoteDevice]]" = None, **options: "Any"
    ) -> "PackedFunc[..., Timing]":
        """Returns a function that measures the function ``name``; the options are those of ``anyfn.time_evaluator``."""
        return self.get_function(name).time_evaluator(device, **options)

    def is_current(
        self, path: "Optional[Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]]" = None
    ) -> bool:
        """Returns true if loading ``path`` now, by default the module's own file, would yield the code of this module."""
        return _core.get_global_func("ffi.ModuleIsCurrent", False)(self, None if path is None else os.fsdecode(path))

    @property
    def pinned(self) -> "Optional[str]":
        """Reason why the module's library is never unmapped, or None."""
        return _core.get_global_func("ffi.ModulePinned", False)(self)

    @property
    def entry_func(self) -> "PackedFunc":
        """Function that a call of the module itself runs: ``main``, or the module's only function."""
        return _entry_of(self)

    @property
    def entry_name(self) -> str:
        """Name of the function that a call of the module itself runs: ``main``, or the name of the module's only function."""
        return _ENTRY if self.implements_function(_ENTRY) else _only_name_of(self)

    @property
    def kind(self) -> str:
        """Kind of the module, such as ``library``."""
        return _core.get_global_func("ffi.ModuleGetKind", False)(self)

    if TYPE_CHECKING:
        # Native.
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

        def __getitem__(self, name: str, /) -> PackedFunc: ...

        def __getattr__(self, name: str) -> Any: ...

    # The class itself implements `__getitem__` and `__getattr__`, and keeps the functions that it finds. It calls these methods
    # for names that it has not found yet.
    def _find_item(self, name: str) -> "PackedFunc":
        if not isinstance(name, str):
            raise TypeError(f"expected the name of a function but got {type(name).__name__}")
        return self.get_function(name)

    def _find_attribute(self, name: str) -> "Any":
        if name.startswith("__"):
            raise AttributeError(f"module has no attribute {name!r}")
        # Python also calls this if one of these properties raises `AttributeError`.
        if name in ("entry_func", "entry_name"):
            return getattr(type(self), name).fget(self)
        try:
            return self.get_function(name)
        except AttributeError:
            from ._missing import hint_for, missing

            found = _type_named(self, name)
            if found is not None:
                return found
            if hint_for("'Module' object", name) is None:
                raise
            raise missing("'Module' object", name) from None

    def __dir__(self) -> "list[str]":
        try:
            functions = self.list_functions()
        except RuntimeError:
            # The module is implemented by a C++ class of another library.
            functions = []
        types = [key.rpartition(".")[2] for key in _types_of(self)]
        types = [name for name in types if types.count(name) == 1]
        return sorted({*object.__dir__(self), *filter(str.isidentifier, [*functions, *types])})

    def __repr__(self) -> str:
        return f"<anyfn.Module of kind {self.kind}>"


def _types_of(module):
    try:
        return module.list_types()
    except (RuntimeError, ValueError):
        # The module is implemented by a C++ class of another library, or the runtime is an older one.
        return []


def _type_named(module, name):
    """Returns the class of the only type of a module whose key is ``name`` or ends with ``.name``, or None."""
    keys = [key for key in _types_of(module) if key.rpartition(".")[2] == name]
    return _own_class(_core.type_index(keys[0])) if len(keys) == 1 else None


def _entry_of(module):
    function = _core.module_function(module, _ENTRY, False)
    return module.get_function(_only_name_of(module)) if function is None else function


def _only_name_of(module):
    """Returns the name of a module's only function. Raises ``AttributeError`` unless the module has exactly one function."""
    try:
        names = module.list_functions()
    except RuntimeError:
        # The module is implemented by a C++ class of another library.
        names = ()
    if len(names) != 1:
        _core.module_missing(module, _ENTRY)
    return names[0]


def load_module(path: "Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]") -> "Module":
    """Loads a module from a file. The file's extension selects the loader; ``.so`` is a shared library.

    ``path`` is a ``str``, ``bytes`` or ``os.PathLike``; a relative path refers to the current directory. Raises
    ``RuntimeError`` with the reason if the file does not exist or does not fit this process. ``inspect_library`` returns
    details.
    """
    return _core.get_global_func("ffi.ModuleLoadFromFile", False)(os.fsdecode(path))


def bundle(
    path: "_Path",
    files: "Union[_Path, Iterable[_Path]]" = (),
    imports: "Union[Module, Iterable[Module]]" = (),
    *,
    linker: "Optional[str]" = None,
    compiler: "Optional[str]" = None,
    compile_options: "Iterable[str]" = (),
    link_options: "Iterable[str]" = (),
) -> None:
    """Writes one library file that contains ``files``, the modules ``imports``, and everything that these modules import.

    ``files`` are object files, static archives, C or C++ sources, or one linked library, which needs no linker. Modules are
    saved by ``save_to_bytes`` and loaded by the loader of their kind. ``load_module`` loads the file, in any language. The
    same inputs produce the same bytes. An existing file is replaced once the new one is complete.

    ``linker`` and ``compiler`` are commands, optionally with arguments. They default to the environment variables
    ``ANYFN_LINKER``, ``CC`` and ``CXX``, then to ``cc``. ``compile_options`` and ``link_options`` are lists of arguments.

    Raises ``RuntimeError`` with the kind of a module that cannot be saved, or with the output of the compiler or linker, and
    ``ValueError`` for inputs that do not fit together. No file is written then.
    """
    _write_bundle(path, None, files, imports, linker, compiler, compile_options, link_options)


def _is_library_name(path):
    """Returns true if ``load_module`` loads a file of this name as a library, such as ``f.so`` or ``f.so.1.2``."""
    stem, _, version = os.path.basename(path).partition(".so.")
    # As in `load_from_file` of the loader.
    is_versioned = bool(stem) and version[:1].isdigit() and set(version) <= set("0123456789.")
    return is_versioned or path.endswith((".so", ".dll", ".dylib", ".dso"))


def _write_static(path, root, files, linker, compiler, compile_options, link_options, runtime):
    from ._config import get_include, static_runtime

    if runtime != "static":
        raise ValueError(f"cannot export the module to {path}: expected the runtime 'static' or None, got {runtime!r}")
    # The function that compiles the module is in the library of the compiler, which has built it.
    compile_options = [*_list_of("compile_options", compile_options), f"-I{get_include()}"]
    _write_bundle(path, root, files, (), linker, compiler, compile_options, link_options, static_runtime())


def _write_bundle(path, root, files, imports, linker, compiler, compile_options, link_options, static=None):
    from . import _progress

    one_file = isinstance(files, (str, bytes, os.PathLike))
    files = [os.fsdecode(file) for file in ([files] if one_file else files)]
    imports = [imports] if isinstance(imports, Module) else list(imports)
    options = {
        "compile_options": _list_of("compile_options", compile_options),
        "link_options": _list_of("link_options", link_options),
    }
    options.update({name: value for name, value in (("linker", linker), ("compiler", compiler)) if value is not None})
    if static is not None:
        options["static_runtime"] = static
    path = os.fsdecode(path)
    with _progress.waiting(f"writing {os.path.basename(path)}"):
        _releasing("anyfn.bundle")(path, root, files, imports, options)


def _list_of(name, texts):
    """Returns ``texts`` as a list. Raises ``TypeError`` for a single string, which would be split into its characters."""
    if isinstance(texts, (str, bytes)):
        raise TypeError(f"{name}: expected a list, got a {type(texts).__name__}")
    return list(texts)


_METHODS = (
    "get_function",
    "functions",
    "save_to_bytes",
    "write_to_file",
    "write_formats",
    "inspect_source",
    "get_function_doc",
    "get_function_metadata",
)


def make_module(content: "Any") -> "Module":
    """Returns a module of a custom kind. The object ``content`` implements the module.

    ``content.kind`` is the name of the kind, and ``content.get_function(name)`` returns a callable or None. Further
    attributes are optional: ``functions()`` (which returns names), ``save_to_bytes()``, ``write_to_file(path, format)``,
    ``write_formats`` (a list, or a method that returns one), ``inspect_source(format)``, ``get_function_doc(name)``,
    ``get_function_metadata(name)`` and ``property_mask``. The module keeps the object alive.
    """
    args = [content.kind]
    for name in _METHODS:
        method = getattr(content, name, None)
        if name == "write_formats" and isinstance(method, (list, tuple)):
            formats = list(method)
            args += [name, lambda formats=formats: formats]
        elif method is not None:
            args += [name, method]
    mask = getattr(content, "property_mask", None)
    if mask is not None:
        args += ["property_mask", int(mask)]
    return _core.get_global_func("ffi.ModuleCreate", False)(*args)


def cuda_module(
    source: "Union[str, bytes]",
    kernels: "Mapping[str, Iterable[str]]",
    device: "Optional[Union[_device, str]]" = None,
    *,
    arch: "Optional[str]" = None,
    format: "Optional[str]" = None,
) -> "Module":
    """Returns a module whose functions are the kernels of a source in CUDA C, or of code that another compiler has made.

    ``source`` is CUDA C as a string, whose kernels are functions ``extern "C" __global__ void NAME(..)``. With ``format``
    (``"ptx"``, ``"cubin"`` or ``"fatbin"``), it is that code, as bytes or, for PTX, as a string. ``kernels`` maps the name of
    each kernel to the parameters of its function: ``"pointer"`` for each buffer and the data type of each scalar, in the order
    of the source, then the extents of a launch. ``"blockIdx.x"`` (``y``, ``z``) is the number of blocks in a dimension,
    ``"threadIdx.x"`` the number of threads of a block. Extents that are not listed are 1.

    NVRTC compiles the source for a device when one of its kernels is called with tensors of that device for the first time, or
    at once for ``device``. With ``arch``, the module also contains compiled code: machine code for an architecture such as
    ``"sm_90"``, or PTX for ``"compute_75"`` and newer devices, which run without NVRTC. Raises ``ValueError`` for a description
    that is invalid or does not fit the code, and ``RuntimeError`` with the log if the code cannot be compiled or loaded, or with
    the reason if NVRTC or the device is not available.

    >>> source = 'extern "C" __global__ void scale(float *x, float by) { x[blockIdx.x * blockDim.x + threadIdx.x] *= by; }'
    >>> module = cuda_module(source, {"scale": ["pointer", "float32", "blockIdx.x", "threadIdx.x"]})
    >>> module.kind
    'cuda'
    """
    table = {name: _list_of(f"kernels[{name!r}]", params) for name, params in kernels.items()}
    place = None if device is None else _device(device)
    if format is None:
        if not isinstance(source, str):
            raise TypeError(f'expected CUDA C as a str but got {type(source).__name__}; for compiled code pass format="cubin"')
        return _releasing("anyfn.cuda_module")(source, table, place, arch)
    if arch is not None:
        raise ValueError("expected `arch` or `format`: code in another format than CUDA C is compiled already")
    code = source.encode() if isinstance(source, str) else bytes(source)
    return _releasing("anyfn.cuda_binary_module")(code, table, format, place)


def metal_module(
    source: str,
    kernels: "Mapping[str, Iterable[str]]",
    device: "Optional[Union[_device, str]]" = None,
) -> "Module":
    """Returns a module whose functions are the kernels of a source in the Metal Shading Language.

    ``kernels`` maps the name of each kernel to its parameters: ``"pointer"`` for each buffer and the data type of each scalar,
    then the extents of a launch. ``"blockIdx.x"`` (``y``, ``z``) is the number of threadgroups in a dimension, ``"threadIdx.x"``
    the number of threads of a threadgroup. Extents that are not listed are 1. The buffers of a kernel are its arguments
    ``[[buffer(0)]]`` and so on; the scalars follow them as one struct, in 8 bytes each.

    Modules can be created, saved and loaded everywhere. anyfn contains no driver of Metal devices: a library that registers one
    compiles the source when a kernel is called with tensors of a device for the first time, or at once for ``device``. Raises
    ``ValueError`` for a description that is invalid, ``RuntimeError`` with the reason if the device is not available, and the
    errors of the driver.

    >>> source = '''
    ... #include <metal_stdlib>
    ... kernel void one(device float* x [[buffer(0)]], uint3 at [[thread_position_in_grid]]) { x[at.x] = 1; }
    ... '''
    >>> module = metal_module(source, {"one": ["pointer", "blockIdx.x", "threadIdx.x"]})
    >>> module.kind
    'metal'
    """
    table = {name: _list_of(f"kernels[{name!r}]", params) for name, params in kernels.items()}
    return _releasing("anyfn.metal_module")(source, table, None if device is None else _device(device))


def opencl_module(
    source: str,
    kernels: "Mapping[str, Iterable[str]]",
    device: "Optional[Union[_device, str]]" = None,
) -> "Module":
    """Returns a module whose functions are the kernels of a source in OpenCL C.

    ``kernels`` maps the name of each kernel to the parameters of its function: ``"pointer"`` for each buffer and the data
    type of each scalar, in the order of the source, then the extents of a launch. ``"blockIdx.x"`` (``y``, ``z``) is the
    number of work groups in a dimension, ``"threadIdx.x"`` the number of work items of a group. Extents that are not listed
    are 1.

    The source is built for a device when one of its kernels is called with tensors of that device for the first time.
    With ``device``, it is built for this device at once. Raises ``ValueError`` for a description that is invalid or does not
    fit the source, and ``RuntimeError`` with the log of the driver if the source does not compile, or with the reason if the
    device is not available.

    >>> source = "kernel void scale(global float *x, float by) { x[get_global_id(0)] *= by; }"
    >>> module = opencl_module(source, {"scale": ["pointer", "float32", "blockIdx.x", "threadIdx.x"]})
    >>> module.kind
    'opencl'
    """
    table = {name: _list_of(f"kernels[{name!r}]", params) for name, params in kernels.items()}
    return _releasing("anyfn.opencl_module")(source, table, None if device is None else _device(device))


def vulkan_module(
    source: "Union[str, bytes]",
    kernels: "Mapping[str, Iterable[str]]",
    device: "Optional[Union[_device, str]]" = None,
) -> "Module":
    """Returns a module whose functions are the kernels of a source in WGSL, or of a binary in SPIR-V.

    ``source`` is WGSL as a string, which the compiler translates, or SPIR-V as bytes. ``kernels`` maps the name of each kernel
    to the parameters of its function: ``"pointer"`` for each buffer and the data type of each number, then the extents of a
    launch. ``"blockIdx.x"`` (``y``, ``z``) is the number of work groups in a dimension; extents that are not listed are 1. The
    source determines the size of a work group; ``"threadIdx.x"`` may be listed, and must then be passed that size.

    The buffers of a kernel are the bindings 0, 1, .. of group 0. Its numbers are the members of a struct in a variable
    ``var<immediate>``, or ``var<uniform>`` at the binding after the buffers, in the order of ``kernels``.

    The code is built for a device when one of its kernels is called with tensors of that device for the first time. With
    ``device``, it is built for this device at once. Raises ``RuntimeError`` with the line of the source if it is not correct,
    ``ValueError`` if a description does not fit the code or the code exceeds a limit of the device, and ``RuntimeError`` with the
    reason if the device is not available.

    >>> source = '''
    ... @group(0) @binding(0) var<storage, read_write> x: array<f32>;
    ... var<immediate> by: f32;
    ... @compute @workgroup_size(64)
    ... fn scale(@builtin(global_invocation_id) id: vec3<u32>) {
    ...     if (id.x < arrayLength(&x)) { x[id.x] *= by; }
    ... }
    ... '''
    >>> module = vulkan_module(source, {"scale": ["pointer", "float32", "blockIdx.x"]})
    >>> module.kind
    'vulkan'
    """
    if isinstance(source, str):
        from ._compiler_library import load

        load()
    table = {name: _list_of(f"kernels[{name!r}]", params) for name, params in kernels.items()}
    return _releasing("anyfn.vulkan_module")(source, table, None if device is None else _device(device))


def register_module_loader(
    kind: str, loader: "Callable[[bytes], Any]", extensions: "Iterable[str]" = (), override: bool = False
) -> None:
    """Registers the loader of a module kind: ``loader(data)`` returns a Module, or an object for ``make_module``.

    The loader is called when a library that contains a module of this kind is loaded, and for files with one of
    ``extensions``. Raises ``RuntimeError`` if such a loader already exists and ``override`` is false.
    """

    def load(data):
        made = loader(data)
        return made if isinstance(made, Module) else make_module(made)

    def load_file(path, _format):
        with open(path, "rb") as file:
            return load(file.read())

    extensions = _list_of("extensions", extensions)
    functions: "dict[str, Callable[..., Module]]" = {f"ffi.Module.load_from_bytes.{kind}": load}
    functions.update({f"ffi.Module.load_from_file.{extension.lstrip('.')}": load_file for extension in extensions})
    for name, function in functions.items():
        _core.set_global_func(name, _core.convert(function), override)


class Watch:
    """The newest usable build of a library file, for development; returned by ``watch``.

    ``lib.name`` and ``lib["name"]`` are functions that follow the file. Each call queries the file's status, which takes
    about a microsecond, loads the file if it has changed, and calls the function of the newest usable build. Calls in
    progress and objects of older builds keep the code of their build.
    """

    __slots__ = ("_watch", "__weakref__")

    def __init__(self, module: "Module") -> None:
        self._watch = module

    def poll(self) -> bool:
        """Loads a newer usable build of the file and returns true, if there is one. Lookups and calls do so, too."""
        return _releasing("ffi.ModuleWatchPoll")(self._watch)

    def reload(self) -> "Module":
        """Returns the file's current content as a module. Raises an error with the reason if the file cannot be used."""
        return _releasing("ffi.ModuleWatchReload")(self._watch)

    @property
    def module(self) -> "Module":
        """Newest usable build as a module. Functions that are looked up in this module do not change to a newer build."""
        return _releasing("ffi.ModuleWatchNewest")(self._watch)

    @property
    def problem(self) -> "Optional[str]":
        """Reason why the last check rejected the file's current build, or None if it accepted the build."""
        return _core.get_global_func("ffi.ModuleWatchProblem", False)(self._watch)

    @property
    def path(self) -> str:
        """Absolute path of the file. A path that contains symbolic links is resolved again at each check."""
        return _core.get_global_func("ffi.ModuleGetFile", False)(self._watch)

    def get_function(self, name: str) -> "PackedFunc":
        """Returns the function with the given name. Its calls always use the newest usable build of the file.

        Raises ``AttributeError`` if the newest usable build has no such function.
        """
        self.poll()
        return self._watch.get_function(name)

    def __getitem__(self, name: str) -> "PackedFunc":
        if not isinstance(name, str):
            raise TypeError(f"expected the name of a function but got {type(name).__name__}")
        return self.get_function(name)

    def __getattr__(self, name: str) -> "PackedFunc":
        if name.startswith("__"):
            raise AttributeError(f"watch has no attribute {name!r}")
        return self.get_function(name)

    def __dir__(self) -> "list[str]":
        return sorted({*super().__dir__(), *filter(str.isidentifier, self.module.list_functions(True))})

    def __repr__(self) -> str:
        problem = self.problem
        return f"<anyfn.Watch of {self.path}{'' if problem is None else ', not the newest: ' + problem}>"


def watch(
    path: "Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]",
    on_reload: "Optional[Callable[[str, Module], object]]" = None,
    on_problem: "Optional[Callable[[str, str], object]]" = None,
) -> "Watch":
    """Returns a ``Watch``, which always uses the newest usable build of a library file, for development.

    The file is checked whenever a function is looked up or called; no thread is started. A newer build is loaded beside
    the older one, and ``on_reload(path, module)`` is called. A newer file is rejected if it does not load or lacks a
    function that is still referenced. The current build then stays in use, and ``on_problem(path, reason)`` is called once
    for that file; the default issues a ``RuntimeWarning``. A file that changed less than a second ago may still be being
    written, so each check tries it again before a problem is reported. Exceptions of the callbacks propagate to the lookup
    or call that checked the file.

    Each build must be a new file under the same name, as linkers and ``mv`` create it. Overwriting the file in place
    (``cp new.so lib.so``) changes code that is mapped and may be running, which can crash the process. If this is
    detected, it is reported as a problem.

    Raises ``RuntimeError`` if there is no usable build at the start.
    """
    on_problem = _warn_of if on_problem is None else on_problem
    return Watch(_releasing("ffi.ModuleWatch")(os.fsdecode(path), on_reload, on_problem))


def _warn_of(path, reason):
    import warnings

    warnings.warn(f"the newer build of {path} is not used: {reason}", RuntimeWarning, stacklevel=2)


def _releasing(name):
    """Returns the global function ``name``, whose calls release the GIL because they may load code.

    Other threads, and initialisers of the loaded code, may need the GIL meanwhile.
    """
    function = _core.get_global_func(name, False)
    function.releases_gil = True
    return function


def system_lib(prefix: str = "") -> "Module":
    """Returns a module of the functions that are linked statically into this process and whose names begin with ``prefix``."""
    return _core.get_global_func("ffi.SystemLib", False)(prefix)


def inspect_library(path: "Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]") -> "dict[str, Any]":
    """Returns a dict that describes the contents, requirements and target of a library file, without running its code.

    Raises ``RuntimeError`` with the reason if the file is damaged or is not a shared library for this machine.
    """
    return _core.to_python(_core.get_global_func("ffi.ModuleInspectFile", False)(os.fsdecode(path)))


def mapped_libraries() -> "list[dict[str, Any]]":
    """Returns the libraries that were loaded as modules and are still mapped.

    The result is a list of dicts with ``file``, ``leases`` (the number of leases of each kind) and ``pinned`` (the reason why
    the library is never unmapped, or None).
    """
    return _core.to_python(_core.get_global_func("ffi.ModuleMapped", False)())


def start_ledger() -> None:
    """Starts the ledger, which records who creates each native object, and where, for ``live_handles``.

    The environment variable ``ANYFN_LEDGER=1`` starts it with the process. Objects that were created before are not in the
    ledger. It cannot be stopped again. With the ledger, creating an object takes microseconds and more memory.
    """
    _core.start_ledger()


def live_handles(module: "Optional[Module]" = None) -> "list[dict[str, Any]]":
    """Returns the live native objects as a list of dicts, in the order of creation.

    With a module, returns only the objects that keep its library mapped. Each dict has ``type`` (the type's key), ``place``
    (the line of Python code that created the object), ``frames`` (the native calls that led to the creation),
    ``references`` (the number of references to the object), ``lease`` (the kind of lease in ``module.leases()``),
    ``libraries`` (the libraries that the object keeps mapped) and ``code`` (the function that it represents).

    Raises ``RuntimeError`` if the ledger is off; see ``start_ledger``.
    """
    if module is not None:
        _core.module_forget(module)
    return _core.to_python(_core.get_global_func("ffi.LiveHandles", False)(module))


def live_handles_text(module: "Optional[Module]" = None) -> str:
    """Returns the information of ``live_handles`` as a formatted string."""
    if module is not None:
        _core.module_forget(module)
    return _core.get_global_func("ffi.LiveHandlesText", False)(module)


def reap() -> "list[str]":
    """Unmaps the libraries that hold no lease, and returns their paths.

    Loading a library also unmaps those that have held no lease for some time. Code of such a library must not be returning
    on another thread at this moment.
    """
    return list(_core.get_global_func("ffi.ModuleReap", False)())
