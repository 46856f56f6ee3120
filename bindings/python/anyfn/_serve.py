"""The command ``anyfn rpc``, which creates keys and serves functions that Python modules register."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import sys
from typing import Any

from . import get_global_func, load_module, rpc

SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}


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
    if options.worker and options.imports:
        raise ValueError("expected `--import` or `--worker`, got both")
    if options.runner is None and not options.worker:
        return None
    runner = []
    if options.runner is not None:
        runner = shlex.split(options.runner)
        program = shutil.which(runner[0]) if runner else None
        if program is None:
            raise ValueError(f"--runner: cannot find the program of the command {options.runner!r}")
        runner[0] = os.path.abspath(program)
    libraries = [os.path.abspath(library) for library in options.load]
    if options.worker:
        return [*runner, *options.worker, "rpc", "session", *(word for library in libraries for word in ("--load", library))]
    return [*runner, *rpc._this_python(options.imports, "rpc.serve_session", libraries)]


def session(words: list[str]) -> int:
    """Serves one session, as the program that ``--worker`` names. ``words`` are ``--load LIB`` for each library to load."""
    parser = argparse.ArgumentParser(prog="anyfn rpc session", allow_abbrev=False)
    parser.add_argument("--load", action="append", default=[])
    kept = [load_module(library) for library in parser.parse_args(words).load]
    get_global_func("rpc.serve_session")()
    del kept
    return 0


def _run_proxy(options: argparse.Namespace) -> int:
    """Runs a proxy until a signal arrives."""
    named = {"waiting": options.max_waiting, "waiting_of_address": options.max_waiting_per_address, "sessions": options.max_sessions}
    given = {name: value for name, value in named.items() if value is not None}
    given.update(host=options.host, port=options.port, allow_origins=options.allow_origin)
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    proxy = get_global_func("rpc.start_proxy")(json.dumps(given))
    print(f"listening at {proxy.host}:{proxy.port}", flush=True)
    signal.sigwait(SIGNALS)
    proxy.stop()
    return 0


def _run_program(words: list[str]) -> int:
    """Replaces this process by the program ``anyfn`` without Python, which contains the tracker and what servers need of it."""
    program = os.environ.get("ANYFN_PROGRAM")
    if not program:
        raise RuntimeError(
            "the tracker is part of the program `anyfn` without Python, `bin/anyfn` of the distribution: run that program, or set "
            "the environment variable ANYFN_PROGRAM to its path"
        )
    os.environ.setdefault("ANYFN_PYTHON", sys.executable)
    os.execv(program, [program, *words])


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit code. Raises an exception if an option is wrong or the command fails."""
    pool = ("tracker", "kind", "label", "name", "advertise") if options.what == "server" else ()
    if options.what in ("tracker", "top") or any(getattr(options, name) for name in pool):
        return _run_program(sys.argv[1:])
    if options.what == "key":
        key = rpc.make_key(options.name)
        if options.output is None:
            print(key)
        else:
            create_key_file(options.output, key)
        return 0
    if options.what == "proxy":
        return _run_proxy(options)
    if options.keys and (options.allow or options.upload):
        raise ValueError("with --keys, the file declares the grants of each key: omit --allow and --upload")
    limits = {}
    for limit in options.limit:
        name, equals, number = limit.partition("=")
        if not equals or not number.isdigit():
            raise ValueError(f"--limit: expected NAME=NUMBER, got {limit!r}")
        limits[name] = int(number)
    named = ("port", "key_file", "keys", "queue", "folder", "log", "isolation", "proxy")
    given: dict[str, Any] = {name: getattr(options, name) for name in named if getattr(options, name) is not None}
    sessions = 1 if options.exclusive else options.max_sessions
    if sessions is not None:
        given["sessions"] = sessions
    if options.allow_origin:
        given["allow_origins"] = options.allow_origin
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
