#!/usr/bin/env python3
"""Builds the extension module and the runtime into the package, for use from the source tree.

    python3 bindings/python/build.py [--debug] [--no-testing]
    PYTHONPATH=bindings/python python3 -c 'import anyfn'

The following command packs the present files of the package into a wheel, without the library of sample functions, and
builds nothing:

    python3 bindings/python/build.py --wheel FOLDER

With ``--libraries``, it packs the libraries in another folder, such as those for another architecture. With ``--compat``, it also
packs the file ``libtvm_ffi.so`` with which ``anyfn compat`` replaces that of apache-tvm-ffi; ``./x dist`` links that file.

The files are ``anyfn/_core.abi3.so``, ``anyfn/lib/libanyfn.so``, ``anyfn/lib/libanyfn_devices.so``,
``anyfn/lib/libanyfn_compiler.so``, the folder ``anyfn/lib/static`` with the runtime for static linking, and, for tests, ``anyfn/lib/libanyfn_testing.so``. They are replaced by rename, so processes that have loaded them are not affected.

This file is also the build backend of ``pyproject.toml``. ``pip install bindings/python`` builds the libraries with cargo
in release mode and installs the wheel. ``pip install -e bindings/python`` builds them into the package and installs a
link to it. Both need only cargo. The source archive that ``./x dist`` makes contains the whole workspace, and pip builds it
with this file, too.
"""

import argparse
import ast
import base64
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGE = HERE / "anyfn"
TARGETS = {
    "anyfn-python": PACKAGE / "_core.abi3.so",
    "anyfn-lib": PACKAGE / "lib" / "libanyfn.so",
    "anyfn-devices": PACKAGE / "lib" / "libanyfn_devices.so",
    "anyfn-compiler-lib": PACKAGE / "lib" / "libanyfn_compiler.so",
    "anyfn-testing": PACKAGE / "lib" / "libanyfn_testing.so",
}
# The targets that a wheel contains.
PACKED = {name: path for name, path in TARGETS.items() if name != "anyfn-testing"}
# The file with which `anyfn compat` replaces that of apache-tvm-ffi, in wheels that `./x dist` packs.
COMPAT = PACKAGE / "compat" / "libtvm_ffi.so"
# Architectures by their numbers in ELF files, with their names in the tags of wheels.
MACHINES = {0x3E: "x86_64", 0xB7: "aarch64"}
# The runtime that `export(.., runtime="static")` links, and the sources of the start-up code of programs.
STATIC = PACKAGE / "lib" / "static" / "libanyfn_static.a"
STATIC_SOURCES = [
    ROOT / "crates/static/support/start.c",
    ROOT / "crates/static/support/unwind.c",
    ROOT / "crates/board/support/format.c",
]
# Folders of the package that exist only in a wheel: copies of folders of the source tree.
COPIED = [
    ("include", ROOT / "bindings/c/include"),
    ("include", ROOT / "bindings/cpp/include"),
    ("lib/cmake/anyfn", ROOT / "bindings/cpp/cmake"),
    ("lib/pkgconfig", ROOT / "bindings/cpp/pkgconfig"),
    ("templates", ROOT / "crates/cli/templates"),
]

# --- Building --------------------------------------------------------------------------------------------------------


def cargo_build(packages, release):
    """Builds Cargo packages one by one, without unifying their features. Yields each package with its shared library."""
    if shutil.which("cargo") is None:
        raise SystemExit("anyfn: building needs cargo, of Rust 1.95 or later (https://rustup.rs), and there is none")
    # The stable ABI needs no information about an interpreter, and a changed PATH should not cause a rebuild.
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


def place(source, target, mode=0o755):
    """Replaces a file by a copy of another file, atomically."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(target.name + ".new")
    shutil.copyfile(source, temporary)
    temporary.chmod(mode)
    temporary.replace(target)


def build_static():
    """Builds the archive ``libanyfn_static.a``, as `xtask/src/static_runtime.rs` does, and returns its path."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target") / "static"
    # Thread-local variables without the standard library of Rust are unstable.
    flags = ["--cfg=anyfn_static", "-Zunstable-options", "-Zlocation-detail=none"]
    # Cargo ignores RUSTFLAGS where CARGO_ENCODED_RUSTFLAGS is set; without the first flag, the archive is empty.
    environment = {**os.environ, "RUSTC_BOOTSTRAP": "1", "CARGO_ENCODED_RUSTFLAGS": "\x1f".join(flags), "CARGO_TARGET_DIR": str(target)}
    command = ["cargo", "rustc", "--profile", "small", "-p", "anyfn-static", "--crate-type", "staticlib"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    archive = target / "small" / STATIC.name
    if shutil.which("strip"):
        stripped = target / STATIC.name
        subprocess.run(["strip", "--strip-debug", "-D", "-o", stripped, archive], check=True)
        return stripped
    return archive


def build(targets, release=True):
    """Builds the libraries and copies them into the package."""
    for source in [build_static(), *STATIC_SOURCES]:
        place(source, STATIC.with_name(source.name), 0o644)
    for package, library in cargo_build(targets, release):
        target = targets.get(package)
        if target is not None:
            place(library, target)
            print(f"{target.relative_to(ROOT)} <- {library.name}")


# --- Metadata of the wheel -------------------------------------------------------------------------------------------


def settings():
    """Returns the settings in ``pyproject.toml`` as a dict with keys ``table.key``. Python 3.10 has no parser for TOML.

    The file contains only strings and lists of strings, whose syntax is also that of Python.
    """
    found, table, pending = {}, "", ""
    for line in (HERE / "pyproject.toml").read_text(encoding="utf-8").splitlines():
        pending += line.split("#")[0] if not pending else line
        if re.fullmatch(r"\s*", pending):
            pending = ""
        elif pending.startswith("["):
            table, pending = pending.strip("[] "), ""
        elif pending.count("[") == pending.count("]"):
            key, value = pending.split("=", 1)
            found[f"{table}.{key.strip()}"] = ast.literal_eval(value.strip())
            pending = ""
    return found


def metadata():
    """Returns the content of the file ``METADATA``, which consists of the project's metadata and the README."""
    project = settings()
    lines = [
        ("Metadata-Version", "2.1"),
        ("Name", project["project.name"]),
        ("Version", project["project.version"]),
        ("Summary", project["project.description"]),
        ("License", project["project.license"]),
        ("License-File", "LICENSE"),
        ("Keywords", ",".join(project["project.keywords"])),
        ("Requires-Python", project["project.requires-python"]),
        ("Description-Content-Type", "text/markdown"),
    ]
    lines += [("Classifier", classifier) for classifier in project["project.classifiers"]]
    for key, requirements in project.items():
        if key.startswith("project.optional-dependencies."):
            extra = key.rpartition(".")[2]
            lines.append(("Provides-Extra", extra))
            lines += [("Requires-Dist", f'{requirement}; extra == "{extra}"') for requirement in requirements]
    head = "".join(f"{key}: {value}\n" for key, value in lines)
    return f"{head}\n{(ROOT / 'README.md').read_text(encoding='utf-8')}"


def dist_info(tag):
    """Returns the files of the wheel's folder ``.dist-info`` except ``RECORD``, as a dict from path to content."""
    project = settings()
    name, scripts = project["project.name"], ""
    for key, target in project.items():
        if key.startswith("project.scripts."):
            scripts += f"{key.rpartition('.')[2]} = {target}\n"
    folder = f"{name}-{project['project.version']}.dist-info"
    return {
        f"{folder}/METADATA": metadata().encode(),
        f"{folder}/WHEEL": f"Wheel-Version: 1.0\nGenerator: anyfn\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
        f"{folder}/entry_points.txt": f"[console_scripts]\n{scripts}".encode(),
        f"{folder}/licenses/LICENSE": (ROOT / "LICENSE").read_bytes(),
    }


def needed_versions(library):
    """Returns the symbol versions that a 64-bit ELF file needs from other libraries: ``[("libc.so.6", "GLIBC_2.34")]``."""
    data = Path(library).read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{library} is no ELF file of 64 bits")
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    # Type, offset, linked section and number of entries of each section.
    sections = []
    for i in range(count):
        header = struct.unpack_from("<IIQQQQIIQQ", data, table + i * size)
        sections.append((header[1], header[4], header[6], header[7]))
    needed = []
    for kind, offset, linked, entries in sections:
        if kind != 0x6FFFFFFE:  # SHT_GNU_verneed
            continue
        strings = sections[linked][1]

        def text(at, start=strings):
            return data[start + at : data.index(0, start + at)].decode()

        for _ in range(entries):
            _, versions, file, first, following = struct.unpack_from("<HHIII", data, offset)
            entry = offset + first
            for _ in range(versions):
                _, flags, _, name, after = struct.unpack_from("<IHHII", data, entry)
                if not flags & 2:  # VER_FLG_WEAK: not required
                    needed.append((text(file), text(name)))
                entry += after
            offset += following
    return needed


def machine_of(library):
    """Returns the name of the architecture of an ELF file, as in the tags of wheels."""
    data = Path(library).read_bytes()[:20]
    number = int.from_bytes(data[18:20], "little") if data[:6] == b"\x7fELF\x02\x01" else None
    if number not in MACHINES:
        raise ValueError(f"{library} is no ELF file for {' or '.join(MACHINES.values())}")
    return MACHINES[number]


def wheel_tag(libraries):
    """Returns the wheel tag for Python 3.9 and later and for the oldest glibc version with which all of ``libraries`` work."""
    libraries = list(libraries)
    machines = {machine_of(library) for library in libraries}
    if len(machines) != 1:
        raise ValueError(f"libraries for {' and '.join(sorted(machines))} cannot be in one wheel")
    versions = [
        tuple(int(part) for part in version[len("GLIBC_") :].split("."))
        for library in libraries
        for _, version in needed_versions(library)
        if version.startswith("GLIBC_2")
    ]
    # Packed relocations need glibc 2.36.
    versions += [(2, 36) for library in libraries if ("libc.so.6", "GLIBC_ABI_DT_RELR") in needed_versions(library)]
    # The oldest version that a manylinux tag of this form can name.
    newest = max([(2, 17), *(version[:2] for version in versions)])
    return f"cp39-abi3-manylinux_{newest[0]}_{newest[1]}_{machines.pop()}"


# --- Packing ---------------------------------------------------------------------------------------------------------


def digest(content):
    """Returns the hash of a file in the format of a wheel's ``RECORD``."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def write_wheel(folder, tag, files):
    """Writes a wheel of the given files and returns its name. The same files produce the same wheel."""
    project = settings()
    stem = f"{project['project.name']}-{project['project.version']}"
    files = {**files, **dist_info(tag)}
    record = "".join(f"{path},sha256={digest(content)},{len(content)}\n" for path, content in files.items())
    files[f"{stem}.dist-info/RECORD"] = f"{record}{stem}.dist-info/RECORD,,\n".encode()
    wheel = Path(folder) / f"{stem}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = (0o100755 if path.endswith(".so") else 0o100644) << 16
            archive.writestr(entry, content)
    return wheel.name


def pack(folder, libraries, static):
    """Packs a wheel of the package with ``libraries``, a dict from path to built file, and with the archive ``static``. Returns the
    wheel's name.
    """
    sources = [path for pattern in ("*.py", "*.pyi", "py.typed") for path in PACKAGE.rglob(pattern)]
    files = {path.relative_to(HERE).as_posix(): path.read_bytes() for path in sorted(sources)}
    for name, source in COPIED:
        for path in sorted(source.rglob("*")):
            if path.is_file():
                files[f"{PACKAGE.name}/{name}/{path.relative_to(source).as_posix()}"] = path.read_bytes()
    for target, library in libraries.items():
        files[target.relative_to(HERE).as_posix()] = library.read_bytes()
    for target, source in [(STATIC, static), *((STATIC.with_name(source.name), source) for source in STATIC_SOURCES)]:
        files[target.relative_to(HERE).as_posix()] = source.read_bytes()
    return write_wheel(folder, wheel_tag(libraries.values()), files)


def pack_built(folder, built, compat=None):
    """Packs a wheel with the libraries in a folder that Cargo has filled, and returns its name. ``compat`` is the path of
    ``libtvm_ffi.so``, if the wheel contains it.
    """
    libraries = {path: built / f"lib{package.replace('-', '_')}.so" for package, path in PACKED.items()}
    libraries[TARGETS["anyfn-lib"]] = built / "libanyfn.so"
    if compat is not None:
        libraries[COMPAT] = compat
    return pack(folder, libraries, built / STATIC.name)


def pack_placed(folder):
    """Packs a wheel with the libraries that are already built, and returns its name."""
    missing = [path.name for path in (*PACKED.values(), STATIC) if not path.exists()]
    if missing:
        raise SystemExit(f"anyfn: {' and '.join(missing)} not built yet: run {HERE.name}/build.py first")
    return pack(folder, {path: path for path in PACKED.values()}, STATIC)


# --- The hooks that pip calls ----------------------------------------------------------------------------------------


class UnsupportedOperation(Exception):
    """Error for an unsupported hook, under the name that pip expects."""


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds the libraries in release mode and packs a wheel."""
    libraries = {PACKED[package]: library for package, library in cargo_build(PACKED, True) if package in PACKED}
    return pack(wheel_directory, libraries, build_static())


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """Builds the libraries into the package and packs a wheel that contains only a link to the package."""
    build(PACKED)
    return write_wheel(wheel_directory, wheel_tag(PACKED.values()), {"anyfn.pth": f"{HERE}\n".encode()})


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Writes the metadata of the wheel. This does not need the built libraries."""
    for name, content in dist_info("cp39-abi3-linux").items():
        path = Path(metadata_directory) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return f"{settings()['project.name']}-{settings()['project.version']}.dist-info"


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_sdist(sdist_directory, config_settings=None):
    """Raises ``UnsupportedOperation``: a build needs the whole workspace, of which this folder is a part."""
    raise UnsupportedOperation("`./x dist` makes the source archive of anyfn, as dist/anyfn-*.tar.gz")


def main():
    """Builds the libraries into the package, or packs a wheel."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--debug", action="store_true", help="build with cargo's dev profile, not its release profile")
    parser.add_argument("--no-testing", action="store_true", help="do not build the library of sample functions")
    parser.add_argument("--wheel", metavar="FOLDER", type=Path, help="only pack the present files of the package")
    parser.add_argument("--libraries", metavar="FOLDER", type=Path, help="with --wheel: pack the libraries in this folder")
    parser.add_argument("--compat", metavar="FILE", type=Path, help="with --libraries: also pack this libtvm_ffi.so")
    options = parser.parse_args()
    if options.libraries is not None and options.wheel is None:
        parser.error("--libraries needs --wheel")
    if options.compat is not None and options.libraries is None:
        parser.error("--compat needs --libraries")
    if options.wheel is not None:
        options.wheel.mkdir(parents=True, exist_ok=True)
        if options.libraries is not None:
            print(options.wheel / pack_built(options.wheel, options.libraries, options.compat))
        else:
            print(options.wheel / pack_placed(options.wheel))
        return
    build(PACKED if options.no_testing else TARGETS, not options.debug)


if __name__ == "__main__":
    main()
