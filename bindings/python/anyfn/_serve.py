"""The command ``anyfn rpc``, which creates keys and serves functions that Python modules register."""

from __future__ import annotations

import argparse
import signal
from typing import Any

from . import rpc

SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


def add_parser(commands: Any) -> None:
    """Adds the command ``rpc`` to the subcommands of a parser."""
    parser = commands.add_parser("rpc", help="serve functions to other processes and machines, and make keys")
    kinds = parser.add_subparsers(title="what", metavar="WHAT", dest="what", required=True)
    key = kinds.add_parser("key", help="print a new key", description="Prints a new key: NAME:SECRET.")
    key.add_argument("name", metavar="NAME")
    server = kinds.add_parser(
        "server",
        help="serve until SIGINT, SIGTERM or SIGHUP",
        description="Serves global functions, each client in a process of its own. Nothing is allowed that is not granted. "
        "docs/rpc-server.md says more.",
        epilog="example: anyfn rpc server --host 0.0.0.0 --key-file alice.key --import kernels --allow 'kernels.*'",
    )
    several: dict[str, Any] = {"action": "append", "default": []}
    server.add_argument("--host", default="127.0.0.1", help="where to listen; others than this machine need a key")
    server.add_argument("--port", type=int, default=9190, help="9190 by default; 0 for any that is free")
    keys = server.add_mutually_exclusive_group()
    keys.add_argument("--key-file", metavar="FILE", help="one key, as `anyfn rpc key` prints it")
    keys.add_argument("--keys", metavar="FILE", help="keys in JSON, each with what it grants")
    server.add_argument("--import", metavar="MODULE", dest="imports", **several, help="modules that register functions")
    server.add_argument("--load", metavar="LIB", **several, help="libraries that register functions")
    server.add_argument("--allow", metavar="NAME", **several, help="a function that is granted, or a beginning with *")
    server.add_argument("--upload", action="store_true", help="grant that libraries are uploaded: any code")
    server.add_argument("--device", metavar="DEV", **several, help="a device that is granted, such as cuda:0")
    server.add_argument("--limit", metavar="NAME=N", **several, help="a limit of each session, such as process_bytes")
    server.add_argument("--exclusive", action="store_true", help="one session at a time")
    server.add_argument("--max-sessions", type=int, metavar="N", help="so many sessions at a time")
    server.add_argument("--queue", type=int, metavar="N", help="so many clients may wait for their turn")
    server.add_argument("--folder", metavar="DIR", help="where the folders of sessions are made")
    server.add_argument("--log", metavar="FILE", default="-", help="the error output by default")
    server.add_argument("--show-output", action="store_true", help="show what sessions write to their error output")


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit code. Raises an exception for wrong options and failures."""
    if options.what == "key":
        print(rpc.make_key(options.name))
        return 0
    if options.keys and (options.allow or options.upload):
        raise ValueError("with --keys, the file says what each key grants: leave out --allow and --upload")
    limits = {}
    for limit in options.limit:
        name, equals, number = limit.partition("=")
        if not equals or not number.isdigit():
            raise ValueError(f"--limit needs NAME=NUMBER, got {limit!r}")
        limits[name] = int(number)
    named = ("port", "key_file", "keys", "queue", "folder", "log")
    given: dict[str, Any] = {name: getattr(options, name) for name in named if getattr(options, name) is not None}
    sessions = 1 if options.exclusive else options.max_sessions
    if sessions is not None:
        given["sessions"] = sessions
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
        show_output=options.show_output,
        **given,
    )
    with server:
        print(f"listening at {server.host}:{server.port}", flush=True)
        signal.sigwait(SIGNALS)
    return 0
