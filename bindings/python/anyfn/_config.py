"""The command ``anyfn config`` and :func:`get_include`, which report the options for a C compiler that uses the runtime."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

_PACKAGE = os.path.dirname(os.path.realpath(__file__))


def get_include() -> str:
    """Returns the folder that contains the C headers, for the option ``-I`` of a C or C++ compiler.

    A plugin includes ``<anyfn/anyfn.h>`` and is compiled with this option only: the process that loads the plugin provides
    the functions of the runtime.

    Returns:
        The absolute path of a folder of this installation.

    Raises:
        FileNotFoundError: The headers are missing, because files of the installation were removed.

    >>> import anyfn, os
    >>> os.path.exists(os.path.join(anyfn.get_include(), "anyfn", "anyfn.h"))
    True
    """
    # A wheel contains the headers. In the source tree, they are part of the C frontend.
    packed = os.path.join(_PACKAGE, "include")
    for folder in (packed, os.path.join(os.path.dirname(os.path.dirname(_PACKAGE)), "c", "include")):
        if os.path.isfile(os.path.join(folder, "anyfn", "anyfn.h")):
            return folder
    raise FileNotFoundError(f"this installation of anyfn has no C headers: {packed} does not exist")


def _library_folder() -> str:
    return os.path.join(_PACKAGE, "lib")


def _compiler_options() -> "list[str]":
    return [f"-I{get_include()}"]


def _linker_options() -> "list[str]":
    folder = _library_folder()
    return [f"-L{folder}", f"-Wl,-rpath,{folder}", "-lanyfn"]


def add_parser(commands: "Any") -> None:
    """Adds the command ``config`` to the subcommands of a parser."""
    parser = commands.add_parser(
        "config",
        help="print options for a C compiler that uses the installed runtime",
        description="Prints options for a C or C++ compiler that uses the installed runtime. A plugin needs --cflags only; "
        "a program that starts the runtime itself also needs --ldflags.",
        epilog="example: cc -O2 -shared -fPIC $(anyfn config --cflags) axpy.c -o axpy.so",
    )
    parser.add_argument("--cflags", action="store_true", help="options for compiling: the folder of the headers")
    parser.add_argument("--ldflags", action="store_true", help="options for linking a program with the runtime")
    parser.add_argument("--includedir", action="store_true", help="folder of the headers")
    parser.add_argument("--libdir", action="store_true", help="folder of libanyfn.so")


def run(options: "Namespace") -> int:
    """Runs the command and returns its exit code. Raises ``ValueError`` if no option selects what to print."""
    lines = []
    if options.includedir:
        lines.append(get_include())
    if options.libdir:
        lines.append(_library_folder())
    flags = (_compiler_options() if options.cflags else []) + (_linker_options() if options.ldflags else [])
    if flags:
        import shlex

        lines.append(shlex.join(flags))
    if not lines:
        raise ValueError("expected one of --cflags, --ldflags, --includedir and --libdir")
    print("\n".join(lines))
    return 0
