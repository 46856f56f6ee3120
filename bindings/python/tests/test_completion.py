"""Tests of the scripts that ``anyfn completion`` prints, in the shells that are installed."""

import os
import pty
import select
import shutil
import subprocess
import time

import pytest
from anyfn.__main__ import main


def needs(shell):
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"no {shell}")


@pytest.fixture
def script(tmp_path, capsys, monkeypatch):
    """Returns a function that writes the script for a shell to a file. The current folder contains files to complete."""
    for name in ("alpha.so", "alpha.txt", "beta.npy"):
        (tmp_path / name).touch()
    (tmp_path / "alphabet").mkdir()
    monkeypatch.chdir(tmp_path)

    def write(shell):
        assert main(["completion", shell]) == 0
        path = tmp_path / f"script.{shell}"
        path.write_text(capsys.readouterr().out, encoding="utf-8")
        return str(path)

    return write


CASES = [
    ("anyfn insp", ["inspect"]),
    ("anyfn rpc ", ["key", "proxy", "server", "top", "tracker"]),
    ("anyfn rpc server --isol", ["--isolation"]),
    ("anyfn rpc server --isolation r", ["required"]),
    ("anyfn rpc server --isolation ", ["auto", "off", "required"]),
    ("anyfn stubs reg", ["registry"]),
    ("anyfn new --c --python", ["--python-package"]),
    ("anyfn new --c alph", ["alphabet"]),
    ("anyfn completion z", ["zsh"]),
    ("anyfn help comple", ["completion"]),
    ("anyfn rpc key -o beta", ["beta.npy"]),
    ("anyfn call alpha.so f beta", ["beta.npy"]),
    ("anyfn inspect -- --js", []),
]

# As bash divides a command line into words.
BASH_CASES = [
    *CASES,
    ("anyfn inspect alp", ["alpha.so", "alphabet"]),
    ("anyfn stubs module --load alp", ["alpha.so", "alphabet"]),
    ("anyfn stubs module -o x.pyi alp", ["alpha.so", "alphabet"]),
    ("anyfn rpc server --isolation = r", ["required"]),
    ("anyfn rpc server --isolation =", ["auto", "off", "required"]),
    ("anyfn call alpha.so ", []),
    ("anyfn call alpha.so f --js", []),
    ("anyfn rpc key name ", []),
    ("anyfn nope ", []),
]


@needs("bash")
@pytest.mark.parametrize("line, expected", BASH_CASES)
def test_bash(script, line, expected):
    program = """
source "$1"
read -r _ _ function _ <<< "$(complete -p anyfn)"
IFS=' ' read -ra COMP_WORDS <<< "$2"
[[ $2 == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
"$function"
printf '%s\\n' "${COMPREPLY[@]}"
"""
    done = subprocess.run(["bash", "-c", program, "-", script("bash"), line], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == expected and not done.stderr


@needs("fish")
@pytest.mark.parametrize("line, expected", CASES)
def test_fish(script, line, expected):
    program = f"source {script('fish')}; complete -C '{line}'"
    done = subprocess.run(["fish", "--no-config", "-c", program], capture_output=True, text=True, check=True)
    found = sorted(shown.split("\t")[0].rstrip("/") for shown in done.stdout.splitlines())
    assert found == expected and not done.stderr


class Zsh:
    """An interactive zsh on a terminal of its own, in which the key ^X prints the command line."""

    def __init__(self, script, folder):
        self.process, self.terminal = pty.fork()
        if self.process == 0:
            environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "TERM": "dumb", "LC_ALL": "C.UTF-8"}
            os.execvpe("zsh", ["zsh", "-f", "-i"], environment)
        setup = f"PS1=; unsetopt beep list_beep; autoload -U compinit; compinit -u -D; source {script}; "
        setup += "show() { print -r -- \"<$BUFFER\\>\" }; zle -N show; bindkey '^X' show; print -r -- rea''dy\n"
        os.write(self.terminal, setup.encode())
        self.read_until(b"ready")

    def read_until(self, end):
        text, last = b"", time.monotonic() + 30
        while end not in text:
            assert select.select([self.terminal], [], [], max(0, last - time.monotonic()))[0], text
            text += os.read(self.terminal, 4096)
        return text

    def completed(self, line):
        os.write(self.terminal, b"\x15" + line.encode() + b"\t\x18")
        text = self.read_until(b">")
        return text.rpartition(b"<")[2].partition(b"\\")[0].decode()

    def close(self):
        os.close(self.terminal)
        os.waitpid(self.process, 0)


@needs("zsh")
def test_zsh(script, tmp_path):
    zsh = Zsh(script("zsh"), tmp_path)
    try:
        for line, expected in CASES:
            head, blank, word = line.rpartition(" ")
            found = zsh.completed(line).rstrip("/= ")
            # Several completions leave the line as it is.
            assert found == (f"{head}{blank}{expected[0]}" if len(expected) == 1 else line.rstrip()), line
        assert zsh.completed("anyfn inspect alpha.s").rstrip() == "anyfn inspect alpha.so"
        assert zsh.completed("anyfn rpc server --isolation=r").rstrip() == "anyfn rpc server --isolation=required"
        assert zsh.completed("anyfn stubs module alpha.so --outp").rstrip("= ") == "anyfn stubs module alpha.so --output"
    finally:
        zsh.close()
