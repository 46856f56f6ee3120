"""Host program in Python, which loads a plugin, calls all of its functions, and drops the module before the plugin's values.

Usage: ``host.py PLUGIN [never|before|after|peer]``. The second argument determines if ``tvm_ffi`` is imported, too,
before or after the plugin is loaded. With ``peer``, ``tvm_ffi`` itself loads the plugin. Prints one line for each
action, the same lines as `host.c` and `program/src/host.rs`.
"""

import ctypes
import gc
import os
import sys

import numpy

PLUGIN = os.path.realpath(sys.argv[1])
OTHER = sys.argv[2] if len(sys.argv) > 2 else "never"

if OTHER == "before":
    import tvm_ffi  # noqa: F401
if OTHER == "peer":
    import tvm_ffi
    import tvm_ffi.libinfo

    runtime = tvm_ffi
else:
    import anyfn as runtime


def show(name, value):
    print(name, value, flush=True)


def error_of(call, *args):
    """Makes a call and returns the error that it raises as ``kind: message``, or ``nothing`` if it succeeds."""
    try:
        call(*args)
    except Exception as error:
        kind, text = type(error).__name__, error.args[0] if error.args else ""
        return f"{kind}: {text}"
    return "nothing"


def fail(_):
    raise IndexError("of the host")


def leases():
    """Returns the leases on the plugin's library as a string: each kind with its count.

    Returns ``none`` if there are no leases, and ``unknown`` if the library is not mapped.
    """
    for library in runtime.mapped_libraries():
        if library["file"] == PLUGIN:
            return " ".join(f"{what} {number}" for what, number in library["leases"].items()) or "none"
    return "unknown"


def is_mapped():
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return any(line.rstrip().endswith(PLUGIN) for line in maps)


def use(module):
    """Calls all functions of the plugin and prints the results. Returns the values to use after the module is dropped."""
    kept = {}

    def function(name):
        return module.get_function(name) if module.implements_function(name) else None

    show("call", module.add(2, 3))
    show("error", error_of(module.fail, "told so, at some length"))
    show("mistake", error_of(module.add, "x", 1).partition(":")[0])
    f = function("fail_foreign")
    if f:
        show("foreign", error_of(f, "told so, at some length"))
    show("callback", module.apply(lambda x: x + 1, 20))
    show("through", error_of(module.apply, fail, 1))
    if f := function("caught"):
        show("caught", f(fail, 1))
    show("array", " ".join(str(x) for x in module.reverse([1, 2, 3])))
    if f := function("tally"):
        show("map", " ".join(f"{word}={count}" for word, count in sorted(f(["b", "a", "b"]).items())))
    if f := function("cell"):
        kept["cell"] = f(7)
        show("object", module.cell_value(kept["cell"]))
        show("field", getattr(kept["cell"], "value", "none"))
        show("not its", error_of(module.cell_value, f).partition(":")[0])
    if f := function("adder"):
        kept["adder"] = f(5)
    if f := function("tensor"):
        kept["tensor"] = f()
    if f := function("install"):
        f()
    if f := runtime.get_global_func("hosts.answer", allow_missing=True):
        show("registered", f())
        kept["answer"] = f
    try:
        module.fail("kept, and long enough")
    except ValueError as error:
        kept["error"] = error.with_traceback(None)
    return kept


def use_kept(kept):
    """Uses the values in ``kept`` after the plugin's module is dropped, and prints the results."""
    if "adder" in kept:
        show("function", kept["adder"](1))
    if "tensor" in kept:
        show("tensor", " ".join(str(x) for x in numpy.from_dlpack(kept["tensor"]).tolist()))
    if "cell" in kept:
        show("field", getattr(kept["cell"], "value", "none"))
    show("error", kept["error"].args[0])
    if "answer" in kept:
        is_there = runtime.get_global_func("hosts.answer", allow_missing=True) is not None
        show("registered", f"{kept['answer']()} {'there' if is_there else 'gone'}")


def fill_slots():
    """Registers the functions that compiled code calls through context symbols; ``tvm_ffi`` registers none."""
    library = ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi())
    for name in ("FunctionCall", "EnvModLookupFromImports", "ErrorSetRaisedFromCStr"):
        address = ctypes.cast(getattr(library, "TVMFFI" + name), ctypes.c_void_p)
        assert library.TVMFFIEnvModRegisterContextSymbol(f"__TVMFFI{name}".encode(), address) == 0


def main():
    global tvm_ffi
    if OTHER == "peer":
        fill_slots()
    try:
        module = runtime.load_module(PLUGIN)
    except RuntimeError as error:
        return show("refused", error)
    if OTHER == "after":
        import tvm_ffi  # noqa: F401
    kept = use(module)
    if OTHER == "peer":
        # The peer closes the library together with the module, so the module must be dropped last.
        use_kept(kept)
        kept.clear()
        return
    show("pinned", module.pinned)
    del module
    gc.collect()
    use_kept(kept)
    show("leases", leases())
    kept.pop("answer", None)
    runtime.remove_global_func("hosts.answer")
    kept.clear()
    gc.collect()
    show("leases", leases())
    runtime.reap()
    show("mapped", "yes" if is_mapped() else "no")


main()
