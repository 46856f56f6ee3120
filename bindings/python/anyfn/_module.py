"""Modules: compiled code as an object."""

import os

from . import _core

_ENTRY = "main"


def _methods_of(native):
    """Puts what a class defines onto a native class, whose instances are called without a detour."""

    def move(cls):
        for name, value in vars(cls).items():
            if name not in ("__dict__", "__weakref__"):
                setattr(native, name, value)
        return native

    return move


@_methods_of(_core.Module)
class Module:
    """Compiled code: functions by name, possibly of other modules that it imports.

    ``module["name"]`` and ``module.name`` are the function of that name; ``AttributeError`` with the nearest name if
    there is none. Other Python threads run while it does. Calling the module calls its entry function: ``main``, or the
    only one that there is.

    Functions keep the module's code; what its library registers globally goes with the module.
    """

    def get_function(self, name, query_imports=False):
        """The function of a name; ``AttributeError`` if there is none."""
        function = _core.module_function(self, name, query_imports)
        if function is None:
            _core.module_missing(self, name)
        return function

    def implements_function(self, name, query_imports=False):
        """Whether there is a function of that name."""
        return _core.get_global_func("ffi.ModuleImplementsFunction", False)(self, name, query_imports)

    def list_functions(self, query_imports=False):
        """Names of the functions, sorted; empty if the module does not know them."""
        return list(_core.get_global_func("ffi.ModuleListFunctions", False)(self, query_imports))

    def get_function_doc(self, name, query_imports=False):
        """Documentation of a function, or None."""
        return _core.get_global_func("ffi.ModuleGetFunctionDoc", False)(self, name, query_imports)

    def get_function_metadata(self, name, query_imports=False):
        """What a function tells of itself, as a dict, or None."""
        text = _core.get_global_func("ffi.ModuleGetFunctionMetadata", False)(self, name, query_imports)
        if text is None:
            return None
        import json

        return json.loads(text)

    @property
    def imports(self):
        """The modules that this one imports, as a list: a copy. ``import_module`` and ``clear_imports`` change them."""
        return list(_core.get_global_func("ffi.ModuleGetImports", False)(self))

    def import_module(self, module):
        """Imports a module: its functions are found by look-ups with ``query_imports``, and by this module's code.

        ``RuntimeError`` if the other one imports this one already, directly or not.
        """
        _core.get_global_func("ffi.ModuleImportModule", False)(self, module)

    def clear_imports(self):
        """Imports nothing any more. What this module's code has looked up already stays."""
        _core.get_global_func("ffi.ModuleClearImports", False)(self)

    def get_property_mask(self):
        """What the module is for, as bits: 1 it can be saved, 2 its functions can be called, 4 it is code to be linked."""
        return _core.get_global_func("ffi.ModuleGetPropertyMask", False)(self)

    def is_binary_serializable(self):
        """Whether the module says that it can be saved as bytes."""
        return bool(self.get_property_mask() & 1)

    def is_runnable(self):
        """Whether functions of the module can be called."""
        return bool(self.get_property_mask() & 2)

    def is_compilation_exportable(self):
        """Whether the module is code that becomes part of a library when it is exported."""
        return bool(self.get_property_mask() & 4)

    def save_to_bytes(self):
        """The bytes of which the loader of its kind makes the module again, without its imports.

        ``RuntimeError`` that names the kind if it cannot be saved.
        """
        return _core.get_global_func("ffi.ModuleSaveToBytes", False)(self)

    def get_write_formats(self):
        """Formats of files that the module writes by its own means, as extensions."""
        return list(_core.get_global_func("ffi.ModuleGetWriteFormats", False)(self))

    def write_to_file(self, file_name, fmt=""):
        """Writes the module to a file, without its imports; without ``fmt`` the extension is the format.

        A module without a way of its own writes what ``save_to_bytes`` gives. ``RuntimeError`` if that is not there either.
        """
        _releasing("ffi.ModuleWriteToFile")(self, os.fsdecode(file_name), fmt)

    def inspect_source(self, fmt=""):
        """The module's source text, if it has some; else an empty one. That of what ``anyfn.build`` made is C."""
        text = _core.get_global_func("ffi.ModuleInspectSource", False)(self, fmt)
        if text or fmt not in ("", "c") or self.kind != "library":
            return text
        # There is none unless the compiler is loaded.
        compiled = _core.get_global_func("compiler.source_of_built", True)
        return "" if compiled is None else compiled(self) or ""

    def export(self, path, objects=(), **options):
        """Writes the module with all that it imports, of any kind, as one library file that ``load_module`` reads.

        A library among the modules is the library of the bundle; otherwise ``objects`` are linked to one that imports this
        module. See ``bundle`` for ``objects``, ``options`` and errors.

        What ``anyfn.build`` made is also written as C source (``f.c``) or object file (``f.o``); for another kind of
        processor, as library without what it imports.
        """
        if not objects and (self.kind == "foreign" or os.fsdecode(path).endswith((".c", ".o"))):
            from . import _compiler

            return _compiler.functions("compiler").export(self, os.fsdecode(path))
        _write_bundle(path, self, objects, (), **options)

    def leases(self, detail=False):
        """What of the module's library is in use and keeps it mapped: a dict of numbers, zeros left out.

        With ``detail`` a dict of lists instead: what ``live_handles`` tells of each handle, by what it holds.
        """
        if not detail:
            return _core.to_python(_core.get_global_func("ffi.ModuleLeases", False)(self))
        leases = {}
        for handle in live_handles(self):
            leases.setdefault(handle["lease"], []).append(handle)
        return leases

    def time_evaluator(self, name, device=None, **options):
        """Makes a function that measures the one of a name; the options are those of ``anyfn.time_evaluator``."""
        return self.get_function(name).time_evaluator(device, **options)

    def is_current(self, path=None):
        """Whether loading the module's file now, or the one at ``path``, would give this very code."""
        return _core.get_global_func("ffi.ModuleIsCurrent", False)(self, None if path is None else os.fsdecode(path))

    @property
    def pinned(self):
        """Why the module's library is never unmapped, or None."""
        return _core.get_global_func("ffi.ModulePinned", False)(self)

    @property
    def entry_func(self):
        """The function that calling the module calls: ``main``, or the only one that there is."""
        return _entry_of(self)

    @property
    def kind(self):
        """Kind of the module, such as ``library``."""
        return _core.get_global_func("ffi.ModuleGetKind", False)(self)

    def __getitem__(self, name):
        if not isinstance(name, str):
            raise TypeError(f"expected the name of a function but got {type(name).__name__}")
        return self.get_function(name)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(f"module has no attribute {name!r}")
        # Also asked when the property `entry_func` has found nothing.
        return _entry_of(self) if name == "entry_func" else self.get_function(name)

    def __dir__(self):
        try:
            functions = self.list_functions()
        except RuntimeError:
            # A module of a C++ class of another library.
            functions = []
        return sorted({*object.__dir__(self), *filter(str.isidentifier, functions)})

    def __repr__(self):
        return f"<anyfn.Module of kind {self.kind}>"


def _entry_of(module):
    function = _core.module_function(module, _ENTRY, False)
    if function is None:
        try:
            names = module.list_functions()
        except RuntimeError:
            # A module of a C++ class of another library.
            names = ()
        if len(names) != 1:
            _core.module_missing(module, _ENTRY)
        function = module.get_function(names[0])
    return function


def load_module(path):
    """Loads compiled code from a file; the kind follows from the extension, ``.so`` is a shared library.

    ``path`` is a ``str``, ``bytes`` or ``os.PathLike``; a relative one begins at the current folder. ``RuntimeError`` with
    the reason if there is no such file or it does not fit this process: ``inspect_library`` tells more.
    """
    return _core.get_global_func("ffi.ModuleLoadFromFile", False)(os.fsdecode(path))


def bundle(path, files=(), imports=(), **options):
    """Writes a library of ``files`` that carries the modules ``imports``, and what those import, in one file.

    ``files`` are object files, static archives, C or C++ sources, or one library that is linked already: that needs no
    linker. Modules are saved by ``save_to_bytes`` and loaded by the loader of their kind; the file is loaded by
    ``load_module``, in any language. The same parts give the same bytes, and a file that is there already is replaced when
    the new one is whole.

    Options: ``linker`` and ``compiler`` are commands with their first arguments, by default ``cc`` or what the environment
    variables ``ANYFN_LINKER``, ``CC`` and ``CXX`` name; ``compile_options`` and ``link_options`` are lists of arguments.

    ``RuntimeError`` that names the kind of a module that cannot be saved, or has what the compiler or linker prints;
    ``ValueError`` for parts that do not fit together. Nothing is left of a file then.
    """
    _write_bundle(path, None, files, imports, **options)


def _write_bundle(path, root, files, imports, *, linker=None, compiler=None, compile_options=(), link_options=()):
    one_file = isinstance(files, (str, bytes, os.PathLike))
    files = [os.fsdecode(file) for file in ([files] if one_file else files)]
    imports = [imports] if isinstance(imports, Module) else list(imports)
    options = {"compile_options": list(compile_options), "link_options": list(link_options)}
    options.update({name: value for name, value in (("linker", linker), ("compiler", compiler)) if value is not None})
    _releasing("anyfn.bundle")(os.fsdecode(path), root, files, imports, options)


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


def make_module(content):
    """A module of a kind of your own: what it does is what the object ``content`` does.

    ``content.kind`` is the name of the kind, and ``content.get_function(name)`` gives a callable or None. What else is
    there is used, too: ``functions()`` (names), ``save_to_bytes()``, ``write_to_file(path, format)``, ``write_formats`` (a
    list, or a method that gives one), ``inspect_source(format)``, ``get_function_doc(name)``,
    ``get_function_metadata(name)``, ``property_mask``. The module keeps the object.
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


def register_module_loader(kind, loader, extensions=(), override=False):
    """Registers what makes modules of a kind: ``loader(data)`` gives a Module, or an object for ``make_module``.

    It is called when a library is loaded that carries a module of this kind, and for files with one of ``extensions``.
    ``RuntimeError`` if there is such a loader already and ``override`` is false.
    """

    def load(data):
        made = loader(data)
        return made if isinstance(made, Module) else make_module(made)

    def load_file(path, _format):
        with open(path, "rb") as file:
            return load(file.read())

    functions = {f"ffi.Module.load_from_bytes.{kind}": load}
    functions.update({f"ffi.Module.load_from_file.{extension.lstrip('.')}": load_file for extension in extensions})
    for name, function in functions.items():
        _core.set_global_func(name, _core.convert(function), override)


class Watch:
    """The newest good build of a library file, for development: what ``watch`` gives.

    ``lib.name`` and ``lib["name"]`` are functions that follow the file: each call asks the system whether the file has
    changed (about a microsecond), loads it if so, and calls the function of the newest good build. Calls that have begun,
    and what older builds have made, keep the code that they began with.
    """

    __slots__ = ("_watch", "__weakref__")

    def __init__(self, module):
        self._watch = module

    def poll(self):
        """Looks whether there is a newer good build and takes it; whether it has. Look-ups and calls do this, too."""
        return _releasing("ffi.ModuleWatchPoll")(self._watch)

    def reload(self):
        """The module of the file as it is now; raises the reason if it cannot be taken."""
        return _releasing("ffi.ModuleWatchReload")(self._watch)

    @property
    def module(self):
        """The newest good build as a module. What is looked up in it stays that of this build."""
        return _releasing("ffi.ModuleWatchNewest")(self._watch)

    @property
    def problem(self):
        """Why the file as it was looked at last is not what is used, or None."""
        return _core.get_global_func("ffi.ModuleWatchProblem", False)(self._watch)

    @property
    def path(self):
        """The absolute path of the file; symbolic links are followed at each look."""
        return _core.get_global_func("ffi.ModuleGetFile", False)(self._watch)

    def get_function(self, name):
        """The function of a name, which follows the file; ``AttributeError`` if the newest good build has none."""
        self.poll()
        return self._watch.get_function(name)

    def __getitem__(self, name):
        if not isinstance(name, str):
            raise TypeError(f"expected the name of a function but got {type(name).__name__}")
        return self.get_function(name)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(f"watch has no attribute {name!r}")
        return self.get_function(name)

    def __dir__(self):
        return sorted({*super().__dir__(), *filter(str.isidentifier, self.module.list_functions(True))})

    def __repr__(self):
        problem = self.problem
        return f"<anyfn.Watch of {self.path}{'' if problem is None else ', not the newest: ' + problem}>"


def watch(path, on_reload=None, on_problem=None):
    """The newest good build of a library file, whichever that is: for development.

    The file is looked at whenever a function is looked up or called; no thread is started. A newer build is loaded beside
    the older one, and ``on_reload(path, module)`` is called. A newer file that does not load, or lacks a function which
    is held, is not taken: what is there goes on, and ``on_problem(path, reason)`` is called once for that file, by
    default a ``RuntimeWarning``. A file that changed less than a second ago may still be written, so it is tried again
    at each look before anybody is told. What the callbacks raise is raised where the look was.

    Builds must come as new files under the old name, as linkers and ``mv`` make them. One that is written over in place
    (``cp new.so lib.so``) changes code that is mapped and may run, and can end the process; what can be seen of it is a
    problem that says so.

    ``RuntimeError`` if there is no good build to begin with.
    """
    on_problem = _warn_of if on_problem is None else on_problem
    return Watch(_releasing("ffi.ModuleWatch")(os.fsdecode(path), on_reload, on_problem))


def _warn_of(path, reason):
    import warnings

    warnings.warn(f"the newer build of {path} is not used: {reason}", RuntimeWarning, stacklevel=2)


def _releasing(name):
    """A global function that may load code: others use the interpreter meanwhile, as the code's start may."""
    function = _core.get_global_func(name, False)
    function.releases_gil = True
    return function


def system_lib(prefix=""):
    """The module of the functions that are statically linked into this process, with a common prefix."""
    return _core.get_global_func("ffi.SystemLib", False)(prefix)


def inspect_library(path):
    """What a library file holds, needs and was built for, as a dict; none of its code runs.

    ``RuntimeError`` with the reason if it is no shared library for this machine, or damaged.
    """
    return _core.to_python(_core.get_global_func("ffi.ModuleInspectFile", False)(os.fsdecode(path)))


def mapped_libraries():
    """Libraries that were loaded as modules and are still mapped: a list of dicts with ``file``, ``leases`` (what of it
    is in use) and ``pinned`` (why it stays in any case, or None)."""
    return _core.to_python(_core.get_global_func("ffi.ModuleMapped", False)())


def start_ledger():
    """Has it written down from now on who makes each native object, and where: for ``live_handles``.

    The environment variable ``ANYFN_LEDGER=1`` does so from the start. Objects from before are not in the ledger. It
    cannot be stopped again. Making an object then takes microseconds, and more memory.
    """
    _core.start_ledger()


def live_handles(module=None):
    """Native objects that are alive, in the order in which they were made: a list of dicts. With a module only those that
    keep its library mapped. ``RuntimeError`` if there is no ledger, see ``start_ledger``.

    ``type`` is the type's key, ``place`` the line of Python code from which the object was made, ``frames`` the native
    calls that led there, ``references`` the number of references to it; ``lease`` is what it counts as in
    ``module.leases()``, ``libraries`` which ones it keeps mapped, and ``code`` the function that it stands for.
    """
    return _core.to_python(_core.get_global_func("ffi.LiveHandles", False)(module))


def live_handles_text(module=None):
    """What ``live_handles`` tells, as text."""
    return _core.get_global_func("ffi.LiveHandlesText", False)(module)


def reap():
    """Unmaps the libraries of which nothing is in use any more; gives their paths.

    Loading a library does this, too, for those that have been idle for longer. Nothing of such a library may be on its
    way out on another thread at this moment.
    """
    return list(_core.get_global_func("ffi.ModuleReap", False)())
