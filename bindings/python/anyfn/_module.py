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
