"""The command ``anyfn config`` and :func:`get_include`, which report the options for a C compiler that uses the runtime."""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Namespace

_PACKAGE = os.path.dirname(os.path.realpath(__file__))


def get_include() -> str:
    """Returns the folder that contains the C headers, for the option ``-I`` of a C or C++ compiler.

    A plugin includes ``<anyfn/anyfn.h>`` and is compiled with this option only: the process that loads the plugin provides
    the functions of the runtime. In an installation, the folder contains the headers of C++, too.

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


def static_runtime() -> str:
    """Returns the folder of the runtime that ``export(.., runtime="static")`` links, and of the sources of its start-up code."""
    return os.path.join(_PACKAGE, "lib", "static")


def _compiler_options() -> "list[str]":
    # In the source tree, the headers of C++ have a folder of their own.
    sources = os.path.join(os.path.dirname(os.path.dirname(_PACKAGE)), "cpp", "include")
    folders = [get_include()]
    if not os.path.isfile(os.path.join(folders[0], "anyfn", "anyfn.hpp")) and os.path.isdir(sources):
        folders.append(sources)
    return [f"-I{folder}" for folder in folders]


def _linker_options() -> "list[str]":
    folder = _library_folder()
    return [f"-L{folder}", f"-Wl,-rpath,{folder}", "-lanyfn"]


def run(options: "Namespace") -> int:
    """Runs the command and returns its exit code."""
    if not (options.includedir or options.libdir or options.cflags or options.ldflags):
        options.parser.error("expected one of --cflags, --ldflags, --includedir and --libdir")
    lines = []
    if options.includedir:
        lines.append(get_include())
    if options.libdir:
        lines.append(_library_folder())
    flags = (_compiler_options() if options.cflags else []) + (_linker_options() if options.ldflags else [])
    if flags:
        import shlex

        lines.append(shlex.join(flags))
    print("\n".join(lines))
    return 0
