"""Tests of servers that Python starts, in this process and with the command ``anyfn rpc``."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import anyfn
from anyfn import rpc, te

TESTS = Path(__file__).resolve().parent


@pytest.fixture
def server():
    with rpc.serve(functions=["remote.*"], imports=["remote_functions"], upload=True) as made:
        yield made


def test_functions_of_modules_are_served(server):
    with rpc.connect(server.host, server.port) as session:
        assert session["remote.scale"](3, factor=5) == 15
        assert session["remote.apply"](lambda x: x + 1, 4) == 5
        [seen] = server.sessions()
        assert seen["state"] == "active" and seen["pid"] != os.getpid() and seen["key"] == ""
    assert repr(server) == f"<rpc.Server at {server.host}:{server.port}>"


def test_a_session_is_active_when_its_client_has_connected(server):
    for number in range(1, 31):
        with rpc.connect(server.host, server.port):
            states = {seen["number"]: seen["state"] for seen in server.sessions()}
            assert states.get(number) == "active"


def test_what_is_not_granted_is_refused(server):
    with rpc.connect(server.host, server.port) as session:
        with pytest.raises(PermissionError, match=r"ffi\.ModuleLoadFromFile"):
            session["ffi.ModuleLoadFromFile"]
    with rpc.serve(imports=["remote_functions"]) as closed, rpc.connect(closed.host, closed.port) as session:
        with pytest.raises(PermissionError, match=r"`--allow remote\.echo`.*`rpc\.serve\(functions=\[\"remote\.echo\"\]\)`"):
            session["remote.echo"]
        with pytest.raises(PermissionError, match=r"`--upload`.*`rpc\.serve\(upload=True\)`"):
            session.upload(b"bytes")
        with pytest.raises(PermissionError, match=r"`--upload`"):
            session.register_func("rpctest.any", print)
        with pytest.raises(PermissionError, match=r"`--device cuda:1`.*`rpc\.serve\(devices=\[\"cuda:1\"\]\)`"):
            session.synchronize(anyfn.device("cuda:1"))


def test_several_sessions_each_in_its_process(server):
    sessions = [rpc.connect(server.host, server.port) for _ in range(3)]
    assert [session["remote.echo"](number) for number, session in enumerate(sessions)] == [0, 1, 2]
    assert len({seen["pid"] for seen in server.sessions()}) == 3
    for session in sessions:
        session.close()


def test_a_compiled_function_goes_to_a_server(server):
    x = te.placeholder((4,), name="x")
    with rpc.connect(server.host, server.port) as session:
        module = session.load([x, te.compute((4,), lambda i: x[i] * 3, name="y")])
        a, b = session.tensor(np.arange(4), dtype="float32"), session.empty((4,))
        module["main"](a, b)
        np.testing.assert_array_equal(b.numpy(), [0, 3, 6, 9])


def test_a_crash_ends_one_session(server):
    with rpc.connect(server.host, server.port) as other, rpc.connect(server.host, server.port) as session:
        with pytest.raises(ConnectionError, match="the log of the server states the reason"):
            session["remote.crash"]()
        assert other["remote.echo"]("still here") == "still here"


def test_functions_of_libraries_are_served():
    library = os.environ.get("ANYFN_TESTING_LIB") or Path(anyfn.__file__).parent / "lib/libanyfn_testing.so"
    with rpc.serve(functions=["testing.add_i64"], load=[library], devices=["cpu"], queue=3, show_output=True) as server:
        with rpc.connect(server.host, server.port) as session:
            assert session["testing.add_i64"](1, 2) == 3
            assert list(session.info()["devices"]) == [anyfn.device("cpu")]


def test_keys():
    key, stranger = rpc.make_key("alice"), rpc.make_key("mallory")
    with rpc.serve(key=key, functions=["remote.echo"], imports=["remote_functions"], limits={"handles": 100}) as server:
        with rpc.connect(server.host, server.port, key=key) as session:
            assert session["remote.echo"]("secret") == "secret"
            assert server.sessions()[0]["key"] == "alice"
        for wrong in (None, stranger, "alice" + stranger[len("mallory") :]):
            with pytest.raises((ConnectionError, PermissionError), match="pass `key_file=` or" if wrong is None else None):
                rpc.connect(server.host, server.port, key=wrong)


def key_file(path, key, mode=0o600):
    """Creates a file that contains a key and has the given permissions."""
    path.write_text(key)
    path.chmod(mode)
    return path


def test_keys_in_files(tmp_path):
    key = rpc.make_key("alice")
    good, wide = key_file(tmp_path / "good", key + "\n"), key_file(tmp_path / "wide open", key, 0o644)
    with rpc.serve(key_file=good, functions=["ffi.Shape"]) as server:
        for options in ({"key_file": good}, {"key_file": str(good)}, {"key": good.read_text()}, {"key": f" {key}\r\n"}):
            with rpc.connect(server.host, server.port, **options) as session:
                assert tuple(session["ffi.Shape"](1)) == (1,)
        # Both ends report the same mistakes.
        for use in (lambda **options: rpc.connect(server.host, server.port, **options), rpc.serve):
            with pytest.raises(FileNotFoundError, match="cannot read `.*/missing`: No such file"):
                use(key_file=tmp_path / "missing")
            with pytest.raises(OSError, match="expected a regular file"):
                use(key_file=tmp_path)
            with pytest.raises(PermissionError) as caught:
                use(key_file=wide)
            assert f"`chmod 600 '{wide}'`" in str(caught.value) and "`anyfn rpc key -o FILE NAME`" in str(caught.value)
            with pytest.raises(ValueError, match="expected `key` or `key_file`, got both"):
                use(key=key, key_file=good)
            with pytest.raises(ValueError, match="NAME:SECRET"):
                use(key_file=key_file(tmp_path / "wrong", "nonsense"))
    with rpc.serve(key=f"{key}\n") as server, rpc.connect(server.host, server.port, key=key) as session:
        assert server.sessions()[0]["key"] == "alice"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_key_in_the_file_of_another_user_is_refused(tmp_path):
    path = key_file(tmp_path / "key", rpc.make_key("alice"))
    os.chown(path, 12345, -1)
    with pytest.raises(PermissionError, match=r"belongs to another user \(uid 12345\)"):
        rpc.serve(key_file=path)


def test_the_command_creates_a_file_with_a_key(tmp_path):
    path = tmp_path / "alice.key"
    process = command("key", "alice", "-o", str(path))
    assert process.communicate(timeout=60) == ("", "") and process.returncode == 0
    assert path.stat().st_mode & 0o777 == 0o600
    key = path.read_text()
    assert re.fullmatch(r"alice:[A-Za-z0-9_-]{43}\n", key)
    process = command("key", "alice", "-o", str(path))
    assert f"cannot create `{path}`: the file exists" in process.communicate(timeout=60)[1] and process.returncode == 1
    assert path.read_text() == key
    with rpc.serve(key_file=path) as server, rpc.connect(server.host, server.port, key_file=path):
        pass


def test_a_server_that_is_stopped_is_gone(server):
    session = rpc.connect(server.host, server.port)
    server.stop()
    server.stop()
    with pytest.raises(ConnectionError):
        session["remote.echo"]
    with pytest.raises(ConnectionError):
        rpc.connect(server.host, server.port, timeout=2)


@pytest.mark.parametrize(
    "options, error",
    [
        ({"host": "no such host"}, "no such host"),
        ({"host": "0.0.0.0"}, "key"),
        ({"limits": {"nonsense": 1}}, "unknown grant `nonsense`: expected one of the limits .*, handles"),
        ({"nonsense": 1}, "unknown option `nonsense`; the options are keys, "),
        ({"uplod": True}, "unknown option `uplod`; did you mean `upload`"),
        ({"show_ouput": True}, "unknown option `show_ouput`; did you mean `show_output`"),
        ({"key": "nonsense"}, "key"),
        ({"port": 70_000}, "port"),
        ({"command": ["/no/such/program"]}, "/no/such/program"),
        ({"command": []}, "worker"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_wrong_options_are_named(options, error):
    with pytest.raises((ValueError, OSError), match=error):
        rpc.serve(**options)


NUMBERS = {  # What a limit may be: from, to.
    "handles": (1, 2**32 - 1),
    "calls": (1, 2**32 - 1),
    "message_bytes": (4096, 2**64 - 1),
    "memory_bytes": (0, 2**64 - 1),
    "store_bytes": (0, 2**64 - 1),
    "call_seconds": (0, 2**30),
    "idle_seconds": (0, 2**30),
    "sessions": (1, 2**32 - 1),
    "cpu_seconds": (1, 2**30),
    "seconds": (0, 2**30),
    "file_bytes": (0, 2**64 - 1),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_limits_without_meaning_are_refused(name):
    least, most = NUMBERS[name]
    for wrong in (least - 1, -1, -(2**63), most + 1, 2**64, 1.5, True, "1", None, []):
        with pytest.raises(ValueError, match=rf"`{name}`: expected a number from {least} to {most}, got `") as caught:
            rpc.serve(limits={name: wrong})
        assert len(str(caught.value)) < 300
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"`{name}`: expected a number, got `{wrong}`"):
            rpc.serve(limits={name: wrong})


@pytest.mark.parametrize(
    "options, error",
    [
        ({"functions": [""]}, 'expected a name, or a prefix followed by `.`, got ""'),
        ({"functions": ["a b"]}, "`functions`"),
        ({"functions": ["*a"]}, "`functions`"),
        ({"functions": ["demo.*", "demo\n"]}, "`functions`"),
        ({"functions": [1]}, "`functions`: expected a list of strings"),
        ({"devices": [""]}, "`devices`: expected a device"),
        ({"devices": ["cuda:x"]}, "`devices`: expected a device"),
        ({"devices": ["gpuu"]}, "`devices`: unknown device `gpuu`"),
        ({"devices": ["cuda:-1"]}, "`devices`: expected a device"),
        ({"limits": {"upload": 1}}, "`upload`: expected true or false"),
        ({"limits": {"process_bytes": 1}}, "`process_bytes`: expected a number from"),
        ({"limits": {"files": 1}}, "`files`: expected a number from"),
        ({"port": -1}, "`port`: expected a number from 0 to 65535"),
        ({"sessions": 0}, "sessions"),
        ({"sessions": -1}, "sessions"),
        ({"queue": -1}, "queue"),
        ({"half_open": 0}, "half_open"),
        ({"handshake_seconds": 0}, "handshake_seconds"),
        ({"handshake_seconds": -1}, "handshake_seconds"),
        ({"hung_seconds": 0}, "hung_seconds"),
        ({"host": ""}, "host"),
        ({"folder": ""}, "folder"),
        ({"isolation": "perhaps"}, "isolation"),
        ({"writable": [""]}, "writable"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_options_without_meaning_are_refused(options, error):
    with pytest.raises((ValueError, OSError), match=error):
        rpc.serve(**options).stop()


def test_connecting_with_options_without_meaning(server):
    for options, error in [
        ({"timeout": 0}, "`timeout`: expected a positive number of seconds"),
        ({"timeout": -1}, "`timeout`: expected a positive number of seconds"),
        ({"timeout": float("nan")}, "`timeout`: expected a positive number of seconds"),
        ({"timeout": float("inf")}, "`timeout`: expected a positive number of seconds"),
        ({"key": ""}, "NAME:SECRET"),
        ({"key": "alice:"}, "NAME:SECRET|secret"),
    ]:
        with pytest.raises(ValueError, match=error):
            rpc.connect(server.host, server.port, **options)
    for host, port in [("", server.port), (server.host, 0), (server.host, -1), (server.host, 2**16), (server.host, 2**64)]:
        with pytest.raises((ValueError, OverflowError, TypeError), match="host|port|int"):
            rpc.connect(host, port)


def test_a_module_that_cannot_be_imported_is_an_error_of_the_server():
    for key in (None, rpc.make_key("alice")):
        with pytest.raises(RuntimeError, match="cannot serve: ModuleNotFoundError: No module named 'no_such_module'"):
            rpc.serve(imports=["no_such_module"], key=key)


def test_a_module_that_cannot_be_imported_any_more_is_an_error_of_the_client(tmp_path, monkeypatch):
    module = tmp_path / "imported_once.py"
    monkeypatch.syspath_prepend(tmp_path)
    for key in (None, rpc.make_key("alice")):
        module.write_text("")
        with rpc.serve(imports=["imported_once"], key=key) as server:
            module.write_text("raise RuntimeError('not again')")
            with pytest.raises(ConnectionError, match="before it answered: if it is an anyfn server, its log states"):
                rpc.connect(server.host, server.port, key=key)


def command(*words, **options):
    """Starts the command ``anyfn rpc`` with the given arguments and returns the process."""
    path = os.pathsep.join([str(TESTS), *sys.path])
    line = [sys.executable, "-m", "anyfn", "rpc", *words]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}, **options)  # fmt: skip


def test_the_command(tmp_path, compile_source):
    key = command("key", "bob").communicate()[0].strip()
    assert re.fullmatch(r"bob:[A-Za-z0-9_-]{43}", key)
    secret = tmp_path / "key"
    secret.write_text(key)
    secret.chmod(0o600)
    log = tmp_path / "log"
    words = ["server", "--port", "0", "--key-file", secret, "--import", "remote_functions", "--allow", "remote.*", "--log", log]
    process = command(*map(str, words), "--exclusive", "--limit", "handles=1000", "--runner", "env MARK=1", "--isolation", "auto")
    with process:
        host, _, port = process.stdout.readline().partition("listening at ")[2].strip().rpartition(":")
        with rpc.connect(host, int(port), key=key) as session:
            assert session["remote.scale"](4) == 8
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert events[0] == "listen" and events[-1] == "stop" and {"hello", "proved", "begin", "end"} <= set(events)


def test_the_command_with_a_file_of_keys(tmp_path):
    one, two = (rpc.make_key(name) for name in ("one", "two"))
    grants = {"one": {"functions": ["remote.echo"]}, "two": {"functions": ["remote.*"], "devices": ["cpu"], "upload": True}}
    for key in (one, two):
        name, _, secret = key.partition(":")
        grants[name]["secret"] = secret
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": grants}))
    keys.chmod(0o600)
    words = ["server", "--port", "0", "--keys", keys, "--import", "remote_functions", "--folder", tmp_path, "--max-sessions", 4]
    with command(*map(str, [*words, "--queue", 2, "--show-output"])) as process:
        host, _, port = process.stdout.readline().partition("listening at ")[2].strip().rpartition(":")
        with rpc.connect(host, int(port), key=one) as session, pytest.raises(PermissionError, match=r"remote\.scale"):
            assert session["remote.echo"](1) == 1
            session["remote.scale"]
        with rpc.connect(host, int(port), key=two) as session:
            assert session["remote.scale"](4) == 8
            assert session.upload(b"a file") in session.files()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        process.stderr.read()


@pytest.mark.parametrize(
    "words, error",
    [
        (["server", "--limit", "handles"], "NAME=NUMBER"),
        (["server", "--limit", "handles=0"], "`handles`: expected a number from 1"),
        (["server", "--limit", "handles=-1"], "NAME=NUMBER"),
        (["server", "--limit", "message_bytes=1"], "`message_bytes`: expected a number from 4096"),
        (["server", "--allow", ""], "`functions`: expected a name"),
        (["server", "--allow", "a b"], "`functions`"),
        (["server", "--limit", "nonsense=1"], "unknown grant `nonsense`"),
        (["server", "--device", "cuda:x"], "`devices`"),
        (["server", "--isolation", "perhaps"], "--isolation"),
        (["server", "--runner", "no-such-program -x"], "--runner: cannot find the program"),
        (["server", "--runner", " "], "--runner"),
        (["server", "--writable", "/no/such/folder", "--upload"], "/no/such/folder"),
        (["server", "--queue", "-1"], "`queue`"),
        (["server", "--port", "65536"], "`port`"),
        (["server", "--keys", "/no/such/file"], "/no/such/file"),
        (["server", "--keys", "x", "--upload"], "--keys"),
        (["server", "--host", "0.0.0.0"], "key"),
        (["server", "--nonsense"], "--nonsense"),
        (["key", "a b"], "a b"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_the_command_says_what_is_wrong(words, error):
    process = command(*words)
    _, told = process.communicate(timeout=60)
    assert process.returncode in (1, 2) and error in told and "Traceback" not in told


def test_the_server_of_a_process_ends_with_it(run_python):
    program = f"""
import os, sys, threading
sys.path.insert(0, {str(TESTS)!r})
from anyfn import rpc
server = rpc.serve(functions=["remote.*"], imports=["remote_functions"])
session = rpc.connect(server.host, server.port)
print(server.port, server.sessions()[0]["pid"], flush=True)
os._exit(0)
"""
    port, pid = map(int, run_python(program).split())
    deadline = time.monotonic() + 60
    while alive(pid):
        assert time.monotonic() < deadline, "the session process outlives its server"
        time.sleep(0.02)
    with pytest.raises(ConnectionError):
        rpc.connect("127.0.0.1", port, timeout=2)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
