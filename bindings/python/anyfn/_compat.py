"""The command ``anyfn compat``, which replaces ``libtvm_ffi.so`` of a Python environment by this runtime."""

import os
import sys

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

_PACKAGE = os.path.dirname(os.path.realpath(__file__))


def _installed() -> str:
    """Returns the path of ``libtvm_ffi.so`` of this installation: in the package, or in ``dist`` of the source tree."""
    packed = os.path.join(_PACKAGE, "compat", "libtvm_ffi.so")
    root = os.environ.get("ANYFN_ROOT") or os.path.dirname(os.path.dirname(os.path.dirname(_PACKAGE)))
    for file in (packed, os.path.join(root, "dist", "compat", "libtvm_ffi.so")):
        if os.path.isfile(file):
            return file
    raise FileNotFoundError(
        f"this installation of anyfn has no libtvm_ffi.so: {packed} does not exist; pass the file with --library; `./x dist` in "
        "the source tree writes it to dist/compat, if there is a C++ compiler"
    )


def run(options: "Namespace") -> int:
    """Runs the command and returns its exit code."""
    if options.what is None:
        options.parser.error("expected `check`, `install` or `restore`, got nothing")
    if options.what == "restore":
        print(_core.get_global_func("anyfn.compat_restore", False)(options.environment), end="")
        return 0
    library = options.library if options.library is not None else _installed()
    if options.what == "check":
        return _check(options, library)
    print(_core.get_global_func("anyfn.compat_install", False)(options.environment, library, options.force), end="")
    return 0


def _check(options: "Namespace", library: str) -> int:
    code = 0
    for index, path in enumerate(options.paths):
        try:
            found, text = _core.to_python(_core.get_global_func("anyfn.compat_check", False)(path, library))
        except RuntimeError as error:
            print(f"anyfn compat: {error}", file=sys.stderr)
            code = 1
            continue
        if not found["works"]:
            code = 1
        if options.json:
            import json

            print(json.dumps(found, indent=2))
        else:
            print(("\n" if index else "") + text, end="")
    return code
