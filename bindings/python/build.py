#!/usr/bin/env python3
"""Builds the extension and the runtime and places both into the package, for use from the source tree.

    python3 bindings/python/build.py [--debug] [--no-testing]
    PYTHONPATH=bindings/python python3 -c 'import anyfn'

Files: ``anyfn/_core.abi3.so``, ``anyfn/lib/libanyfn.so`` and, for tests, ``anyfn/lib/libanyfn_testing.so``. They are
replaced by rename, so a process that has them loaded goes on undisturbed.
"""

import argparse
import json
import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGE = HERE / "anyfn"


def cargo_build(packages, release):
    """Builds packages one by one (each cdylib with its own features) and yields their shared libraries."""
    # The stable ABI needs no look at an interpreter, and a changing PATH should not rebuild anything.
    environment = {**os.environ, "PYO3_NO_PYTHON": "1"}
    for package in packages:
        command = ["cargo", "build", "-p", package, "--message-format=json-render-diagnostics"]
        if release:
            command.append("--release")
        output = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        for line in output.stdout.splitlines():
            message = json.loads(line)
            if message.get("reason") == "compiler-artifact" and "cdylib" in message["target"]["crate_types"]:
                for name in message["filenames"]:
                    if name.endswith(".so"):
                        yield package, Path(name)


def place(source, target):
    """Copies a file over another one in one step."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(target.name + ".new")
    shutil.copyfile(source, temporary)
    temporary.chmod(0o755)
    temporary.replace(target)


def main():
    """Builds and places."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--debug", action="store_true", help="without optimisation across crates")
    parser.add_argument("--no-testing", action="store_true", help="without the library of sample functions")
    options = parser.parse_args()
    targets = {
        "anyfn-python": PACKAGE / "_core.abi3.so",
        "anyfn-lib": PACKAGE / "lib" / "libanyfn.so",
        "anyfn-testing": PACKAGE / "lib" / "libanyfn_testing.so",
    }
    if options.no_testing:
        del targets["anyfn-testing"]
    for package, library in cargo_build(targets, not options.debug):
        target = targets.get(package)
        if target is not None:
            place(library, target)
            print(f"{target.relative_to(ROOT)} <- {library.name}")


if __name__ == "__main__":
    main()
