#!/usr/bin/env python3
"""Builds the extension and the runtime and places both into the package, for use from the source tree.

    python3 bindings/python/build.py [--debug] [--no-testing]
    PYTHONPATH=bindings/python python3 -c 'import anyfn'

Also the build backend of ``pyproject.toml``: ``pip wheel bindings/python`` packs what lies in the package (and builds
it first if it is not there), without the library of sample functions.

Files: ``anyfn/_core.abi3.so``, ``anyfn/lib/libanyfn.so`` and, for tests, ``anyfn/lib/libanyfn_testing.so``. They are
replaced by rename, so a process that has them loaded goes on undisturbed.
"""

import argparse
import base64
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGE = HERE / "anyfn"
TARGETS = {
    "anyfn-python": PACKAGE / "_core.abi3.so",
    "anyfn-lib": PACKAGE / "lib" / "libanyfn.so",
    "anyfn-testing": PACKAGE / "lib" / "libanyfn_testing.so",
}


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


def build(targets, release=True):
    """Builds the libraries and places them into the package."""
    for package, library in cargo_build(targets, release):
        target = targets.get(package)
        if target is not None:
            place(library, target)
            print(f"{target.relative_to(ROOT)} <- {library.name}")


def setting(name):
    """A value of ``pyproject.toml``; older versions of Python have no parser for it."""
    return re.search(rf'^{name} = "(.*)"$', (HERE / "pyproject.toml").read_text(encoding="utf-8"), re.M).group(1)


def wheel_tag():
    """Python 3.9 or later, and the C library that the build used."""
    libc = os.confstr("CS_GNU_LIBC_VERSION").split()[1].replace(".", "_")
    return f"cp39-abi3-manylinux_{libc}_{platform.machine()}"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Packs the package; the hook that ``pip`` calls."""
    targets = {name: path for name, path in TARGETS.items() if name != "anyfn-testing"}
    if not all(path.exists() for path in targets.values()):
        build(targets)
    name, version, tag = setting("name"), setting("version"), wheel_tag()
    info = f"{name}-{version}.dist-info"
    files = {f"anyfn/{path.name}": path.read_bytes() for path in sorted(PACKAGE.glob("*.py"))}
    files["anyfn/py.typed"] = b""
    files.update({f"anyfn/{path.relative_to(PACKAGE)}": path.read_bytes() for path in targets.values()})
    metadata = {
        "Metadata-Version": "2.1",
        "Name": name,
        "Version": version,
        "Summary": setting("description"),
        "License": "Apache-2.0",
        "Requires-Python": setting("requires-python"),
    }
    files[f"{info}/METADATA"] = "".join(f"{key}: {value}\n" for key, value in metadata.items()).encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: anyfn\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    files[f"{info}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    record = "".join(f"{path},sha256={digest(content)},{len(content)}\n" for path, content in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    wheel = Path(wheel_directory) / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            # A fixed date: the same files give the same wheel.
            entry = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if path.endswith(".so") else 0o644) << 16
            archive.writestr(entry, content)
    return wheel.name


def digest(content):
    """Hash of a file as a wheel's record has it."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def main():
    """Builds and places."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--debug", action="store_true", help="without optimisation across crates")
    parser.add_argument("--no-testing", action="store_true", help="without the library of sample functions")
    options = parser.parse_args()
    skip = {"anyfn-testing"} if options.no_testing else set()
    build({name: path for name, path in TARGETS.items() if name not in skip}, not options.debug)


if __name__ == "__main__":
    main()
