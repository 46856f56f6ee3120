"""Compiles the C sample of the README and runs its Python samples, which load what was compiled.

As a program, it does so in the folder of this file with an installed package, and ends with ``anyfn doctor``. It needs NumPy and
the C compiler ``$CC``. ``./x dist --all`` runs it on an old system and in an emulator.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(os.environ.get("ANYFN_ROOT") or Path(__file__).resolve().parents[3]) / "README.md"
PRINTED = "hello world\ngood morning world\nAdd(left=Add(left=1, right=2), right=3)\nTrue\n[2. 2. 2. 2.]\n32.0\n32.0\n"


def sample(language):
    return "\n".join(re.findall(f"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL))


def run(compiler, flags):
    """Runs the samples in the current folder, and returns what they print."""
    Path("axpy.c").write_text(sample("c"), encoding="utf-8")
    subprocess.run([*compiler, "-O2", "-shared", "-fPIC", *flags, "axpy.c", "-o", "axpy.so"], check=True)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(sample("python"), "README.md", "exec"), {"__name__": "readme"})
    return printed.getvalue()


def main():
    os.chdir(Path(__file__).parent)
    anyfn = [sys.executable, "-m", "anyfn"]
    flags = subprocess.run([*anyfn, "config", "--cflags"], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    printed = run(os.environ.get("CC", "cc").split(), flags)
    print(printed, end="", flush=True)
    if printed != PRINTED:
        raise SystemExit(f"the samples of the README should print:\n{PRINTED}")
    subprocess.run([*anyfn, "doctor"], check=True)


if __name__ == "__main__":
    main()
