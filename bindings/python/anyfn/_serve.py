"""The command ``anyfn rpc``, which creates keys and serves functions that Python modules register."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
from typing import Any

from . import rpc

SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def add_parser(commands: Any) -> None:
    """Adds the command ``rpc`` to the subcommands of a parser."""
    parser = commands.add_parser("rpc", help="serve functions to other processes and machines, and create keys")
    kinds = parser.add_subparsers(title="commands", metavar="WHAT", dest="what", required=True)
    key = kinds.add_parser(
        "key",
        help="print a new key, or write it to a file",
        description="Prints a new key in the form NAME:SECRET, or writes it to a file.",
    )
    key.add_argument("name", metavar="NAME", help="name of the key, such as that of the client")
    key.add_argument("-o", "--output", metavar="FILE", help="create FILE with the key, which only its owner may read")
    server = kinds.add_parser(
        "server",
        help="serve until SIGINT, SIGTERM or SIGHUP",
        description="Serves global functions. Each client has its own process and may only use what is granted. "
        "See docs/rpc-server.md.",
        epilog="example: anyfn rpc server --host 0.0.0.0 --key-file alice.key --import kernels --allow 'kernels.*'",
    )
    several: dict[str, Any] = {"action": "append", "default": []}
    loopback = "address to listen at (default: 127.0.0.1); other addresses than loopback require a key"
    server.add_argument("--host", default="127.0.0.1", help=loopback)
    server.add_argument("--port", type=int, default=9190, help="port to listen at; 9190 by default, 0 for any free port")
    keys = server.add_mutually_exclusive_group()
    keys.add_argument("--key-file", metavar="FILE", help="file with a single key, as created by `anyfn rpc key -o`")
    keys.add_argument("--keys", metavar="FILE", help="JSON file of keys, each with its grants")
    server.add_argument("--import", metavar="MODULE", dest="imports", **several, help="module that registers functions")
    server.add_argument("--load", metavar="LIB", **several, help="library that registers functions")
    server.add_argument("--allow", metavar="NAME", **several, help="grant a function, or all with a prefix: demo.*")
    server.add_argument("--upload", action="store_true", help="grant the upload of libraries, and so of any code")
    server.add_argument("--device", metavar="DEV", **several, help="grant the use of a device, such as cuda:0")
    server.add_argument("--limit", metavar="NAME=N", **several, help="limit of each session, such as process_bytes")
    server.add_argument("--exclusive", action="store_true", help="serve one session at a time")
    server.add_argument("--max-sessions", type=int, metavar="N", help="maximum number of concurrent sessions")
    server.add_argument("--queue", type=int, metavar="N", help="maximum number of waiting clients")
    server.add_argument("--folder", metavar="DIR", help="folder in which the session folders are created")
    server.add_argument("--isolation", choices=("auto", "required", "off"), help="isolation of sessions by the kernel")
    server.add_argument("--writable", metavar="DIR", **several, help="folder that isolated sessions may write to")
    server.add_argument("--runner", metavar="COMMAND", help="program that starts the sessions, such as 'taskset -c 2'")
    server.add_argument("--log", metavar="FILE", default="-", help="file for the log; the error output by default")
    server.add_argument("--show-output", action="store_true", help="show the error output of session processes")


def create_key_file(path: str, key: str) -> None:
    """Creates a file that contains only a key and that other users cannot access. Raises ``FileExistsError`` if ``path`` exists."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        hint = "specify another file, or delete this one if its key is no longer used"
        raise FileExistsError(f"cannot create `{path}`: the file exists; {hint}") from None
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(f"{key}\n")
    except OSError:
        os.unlink(path)
        raise


def session_command(options: argparse.Namespace) -> list[str] | None:
    """Returns the command that starts a session process, or None for the default command of ``rpc.serve``."""
    if options.runner is None:
        return None
    words = shlex.split(options.runner)
    program = shutil.which(words[0]) if words else None
    if program is None:
        raise ValueError(f"--runner: cannot find the program of the command {options.runner!r}")
    libraries = [os.path.abspath(library) for library in options.load]
    return [os.path.abspath(program), *words[1:], *rpc._this_python(options.imports, "rpc.serve_session", libraries)]


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit code. Raises an exception if an option is wrong or the command fails."""
    if options.what == "key":
        key = rpc.make_key(options.name)
        if options.output is None:
            print(key)
        else:
            create_key_file(options.output, key)
        return 0
    if options.keys and (options.allow or options.upload):
        raise ValueError("with --keys, the file declares the grants of each key: omit --allow and --upload")
    limits = {}
    for limit in options.limit:
        name, equals, number = limit.partition("=")
        if not equals or not number.isdigit():
            raise ValueError(f"--limit: expected NAME=NUMBER, got {limit!r}")
        limits[name] = int(number)
    named = ("port", "key_file", "keys", "queue", "folder", "log", "isolation")
    given: dict[str, Any] = {name: getattr(options, name) for name in named if getattr(options, name) is not None}
    sessions = 1 if options.exclusive else options.max_sessions
    if sessions is not None:
        given["sessions"] = sessions
    if options.writable:
        for folder in options.writable:
            if not os.path.isdir(folder):
                raise ValueError(f"--writable: expected a folder, got {folder!r}")
        given["writable"] = [os.path.abspath(folder) for folder in options.writable]
    # `sigwait` below waits for the signals. The server's threads inherit this mask, so they do not receive them.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    server = rpc.serve(
        options.host,
        functions=options.allow,
        upload=options.upload,
        devices=options.device,
        limits=limits,
        imports=options.imports,
        load=options.load,
        command=session_command(options),
        show_output=options.show_output,
        **given,
    )
    with server:
        print(f"listening at {server.host}:{server.port}", flush=True)
        signal.sigwait(SIGNALS)
    return 0
