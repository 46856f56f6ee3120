"""``anyfn.doctor()``: checks which features work on this machine, and reports why the other features do not."""

from __future__ import annotations

import sys

from . import _core

_KEYS = ("id", "status", "done", "why", "to_do")


class Diagnosis:
    """Result of ``anyfn.doctor()``: ``checks`` is a list of dicts; ``ok`` is true if there is no problem."""

    __slots__ = ("checks",)

    def __init__(self, checks: list[dict[str, str]]) -> None:
        self.checks = checks

    @property
    def ok(self) -> bool:
        """True if no check found a problem."""
        return all(check["status"] != "problem" for check in self.checks)

    def json(self) -> str:
        """Returns the diagnosis as JSON."""
        import json

        abi = _core.get_global_func("anyfn.abi_version", False)()
        return json.dumps({"anyfn": _core.VERSION, "abi": abi, "ok": self.ok, "checks": self.checks}, indent=2)

    def __str__(self) -> str:
        return _core.get_global_func("anyfn.doctor_text", False)(self.checks)

    def __repr__(self) -> str:
        bad = [check["id"] for check in self.checks if check["status"] == "problem"]
        what = "no problem" if not bad else "problems: " + ", ".join(bad)
        return f"<anyfn.Diagnosis of {len(self.checks)} checks, {what}>"


def doctor() -> Diagnosis:
    """Runs the checks of this frontend, then the global function ``anyfn.doctor`` with all registered checks."""
    checks = []
    for check in (_python, _numpy, _peers):
        try:
            checks.append(dict(zip(_KEYS, check())))
        except Exception as error:
            why = f"it raised {type(error).__name__}: {error}"
            checks.append(
                dict(zip(_KEYS, (f"python.{check.__name__}", "problem", "ran the check", why, "report this as a bug")))
            )
    return Diagnosis(checks + _core.to_python(_core.get_global_func("anyfn.doctor", False)()))


def _python():
    done = "passed a Python function to native code, called it there, and let it raise"
    where = f"CPython {sys.version.split()[0]} at {sys.executable}; extension {_core.__file__}; runtime {_core.LIBRARY}"

    def raises():
        raise LookupError("on purpose")

    try:
        given = _core.convert(lambda x: x + 1)
        came = given(41)
    except Exception as error:
        return "python", "problem", done, f"{type(error).__name__}: {error}; {where}", "reinstall anyfn"
    if came != 42:
        return "python", "problem", done, f"41 + 1 gave {came!r}; {where}", "reinstall anyfn"
    try:
        _core.convert(raises)()
    except LookupError:
        return "python", "ok", done, where, ""
    return "python", "problem", done, f"an exception was not passed back; {where}", "reinstall anyfn"


def _numpy():
    done = "passed an array to native code and took it back, without a copy"
    try:
        import numpy as np
    except ImportError as error:
        return "python.numpy", "off", "imported NumPy", str(error), "pip install numpy, if arrays are needed"
    array = np.arange(6, dtype="float32").reshape(2, 3)
    back = np.from_dlpack(_core.convert(array))
    if back.shape != (2, 3) or not np.shares_memory(array, back):
        why = "the array was copied" if back.shape == (2, 3) else f"the array has the shape {back.shape} instead of (2, 3)"
        return "python.numpy", "problem", done, f"NumPy {np.__version__}: {why}", "use another version of NumPy"
    return "python.numpy", "ok", done, f"NumPy {np.__version__}", ""


def _peers():
    """Lists the installed array libraries, and the installed runtimes with the same ABI, without importing them."""
    import importlib.metadata

    done = "looked for packages with a runtime of the same ABI, and for array libraries; none was imported"
    found = []
    for package in ("apache-tvm-ffi", "apache-tvm", "torch", "jax", "cupy", "tensorflow"):
        try:
            found.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            pass
    loaded = [name for name in ("tvm_ffi", "tvm", "torch", "jax", "cupy", "tensorflow") if name in sys.modules]
    why = ", ".join(found) if found else "none found"
    if loaded:
        why += f"; imported in this process: {', '.join(loaded)}"
    return "python.peers", "ok", done, why, ""
