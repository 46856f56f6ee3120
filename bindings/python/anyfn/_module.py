"""Modules: compiled code as an object."""

import os

from . import _core

_ENTRY = "main"


class Module(_core.BuiltinObject):
    """Compiled code: functions by name, possibly of other modules that it imports.

    ``module["name"]`` and ``module.name`` are the function of that name; ``AttributeError`` with the nearest name if
    there is none. Other Python threads run while it does. Calling the module calls its entry function, ``main``.

    Functions keep the module's code; what its library registers globally goes with the module.
    """

    __slots__ = ()

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

    def leases(self):
        """What of the module's library is in use and keeps it mapped: a dict of numbers, zeros left out."""
        return _core.to_python(_core.get_global_func("ffi.ModuleLeases", False)(self))

    @property
    def pinned(self):
        """Why the module's library is never unmapped, or None."""
        return _core.get_global_func("ffi.ModulePinned", False)(self)

    @property
    def entry_func(self):
        """The main function."""
        return self.get_function(_ENTRY)

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
        # Also asked when the property `entry_func` has found nothing: then the missing function is the entry.
        return self.get_function(_ENTRY if name == "entry_func" else name)

    def __dir__(self):
        try:
            functions = self.list_functions()
        except RuntimeError:
            # A module of a C++ class of another library.
            functions = []
        return sorted({*super().__dir__(), *filter(str.isidentifier, functions)})

    def __call__(self, *args, **kwargs):
        return self.get_function(_ENTRY)(*args, **kwargs)

    def __repr__(self):
        return f"<anyfn.Module of kind {self.kind}>"


def load_module(path):
    """Loads compiled code from a file; the kind follows from the extension, ``.so`` is a shared library.

    ``path`` is a ``str``, ``bytes`` or ``os.PathLike``; a relative one begins at the current folder. ``RuntimeError`` with
    the reason if there is no such file or it does not fit this process: ``inspect_library`` tells more.
    """
    return _core.get_global_func("ffi.ModuleLoadFromFile", False)(os.fsdecode(path))


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


def reap():
    """Unmaps the libraries of which nothing is in use any more; gives their paths.

    Loading a library does this, too, for those that have been idle for longer. Nothing of such a library may be on its
    way out on another thread at this moment.
    """
    return list(_core.get_global_func("ffi.ModuleReap", False)())
