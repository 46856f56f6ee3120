"""Tests of loading damaged libraries. Each raises a specific error, none of its code runs, and the process survives."""

import json
import os
import struct
import tempfile
from pathlib import Path

import anyfn
import pytest

SOURCE = r"""
#include <anyfn/anyfn.h>
#include <stdio.h>
#include <stdlib.h>
static __thread int calls;
__attribute__((constructor)) static void start(void) {
  const char* name = getenv("ANYFN_TEST_MARK");
  FILE* mark = name ? fopen(name, "a") : NULL;
  if (mark) fclose(mark);
}
static const char* const names[] = {"a", "b"};
ANYFN_EXPORT(f) { (void)args; (void)num_args; return anyfn_return_int(result, calls++ + names[0][0]); }
"""

# ABI note of a plugin that was built for a later version.
FUTURE = r"""
static const struct { int n, d, t; char o[8]; int w[6]; } note
  __attribute__((section(".note.anyfn"), used, aligned(4))) = {6, 24, 1, "anyfn", {0, 99, 0, 0, 1, 0}};
"""
UNDEFINED = 'int nobody_has_that(void);\nANYFN_EXPORT(g) { (void)args; (void)num_args; return anyfn_return_int(result, nobody_has_that()); }'
UNKNOWN = 'int TVMFFINoSuchThing(void);\nANYFN_EXPORT(g) { (void)args; (void)num_args; return anyfn_return_int(result, TVMFFINoSuchThing()); }'

LOAD, DYNAMIC, TLS = 1, 2, 7
HUGE = 0x7000_0000_0000


class Elf:
    """Offsets of the headers, sections and dynamic entries in an ELF file."""

    def __init__(self, content):
        self.content = content
        start, sections = struct.unpack_from("<QQ", content, 32)
        size, count, section_size, section_count = struct.unpack_from("<HHHH", content, 54)
        self.headers = [start + size * i for i in range(count)]
        places = [sections + section_size * i for i in range(section_count)]
        # Offset and size of each section that has bytes in the file.
        self.sections = sorted(
            struct.unpack_from("<QQ", content, at + 24) for at in places if self.word(at + 4, "<I") not in (0, 8)
        )
        self.dynamic = {}
        (at,) = [self.word(header + 8) for header in self.headers if self.word(header, "<I") == DYNAMIC]
        while self.word(at):
            self.dynamic.setdefault(self.word(at), at + 8)
            at += 16

    def word(self, at, form="<Q"):
        return struct.unpack_from(form, self.content, at)[0]

    def header(self, kind, n=0):
        return [header for header in self.headers if self.word(header, "<I") == kind][n]

    def patched(self, at, value, form="<Q"):
        content = bytearray(self.content)
        struct.pack_into(form, content, at, value)
        return bytes(content)


# For each kind of damage: the change of the content, and a pattern of the reason.
DAMAGES = {
    "magic": (lambda e: e.patched(0, b"FLE\x7f", "4s"), "a file of another format"),
    "script": (lambda e: b"#!/bin/sh\nexit 1\n", "a text file"),
    "empty": (lambda e: b"", "the file is empty"),
    "one byte": (lambda e: b"\x7f", "a file of another format"),
    "zeros": (lambda e: bytes(100_000), "a file of another format"),
    "archive": (lambda e: b"!<arch>\n" + e.content, "it is not an ELF shared library but"),
    "class": (lambda e: e.patched(4, 1, "B"), "32-bit"),
    "byte order": (lambda e: e.patched(5, 2, "B"), "big-endian"),
    "version": (lambda e: e.patched(6, 9, "B"), "of the unknown version 9"),
    "ARM": (lambda e: e.patched(18, 40, "<H"), "it is a library for ARM"),
    "RISC-V": (lambda e: e.patched(18, 243, "<H"), "it is a library for "),
    "unknown machine": (lambda e: e.patched(18, 0xFFFF, "<H"), "machine number 65535"),
    "object file": (lambda e: e.patched(16, 1, "<H"), "link it with -shared"),
    "program": (lambda e: e.patched(16, 2, "<H"), "it is a program"),
    "core dump": (lambda e: e.patched(16, 4, "<H"), "a core dump"),
    "no headers": (lambda e: e.patched(56, 0, "<H"), "no PT_LOAD"),
    "headers outside": (lambda e: e.patched(32, HUGE), "its program headers end at byte"),
    "headers overflow": (lambda e: e.patched(32, 2**64 - 8), "the size of its program headers overflows"),
    "section headers outside": (lambda e: e.patched(40, HUGE), "its section headers end at byte"),
    "huge segment": (lambda e: e.patched(e.header(LOAD) + 32, HUGE), "segments end at byte"),
    "huge memory": (lambda e: e.patched(e.header(LOAD, 3) + 40, 1 << 50), "requires more memory than the address space has"),
    "overflowing memory": (lambda e: e.patched(e.header(LOAD, 3) + 40, 2**64 - 1), "has a size that overflows"),
    "overlapping segments": (lambda e: e.patched(e.header(LOAD, 1) + 16, 0), "overlaps the previous one in memory"),
    "alignment": (lambda e: e.patched(e.header(LOAD) + 48, 0x1001), "violates its own alignment"),
    "no dynamic section": (lambda e: e.patched(e.header(DYNAMIC), 0, "<I"), "it has no dynamic section"),
    "two dynamic sections": (lambda e: e.patched(e.header(TLS), DYNAMIC, "<I"), "a second dynamic section"),
    "dynamic section outside": (lambda e: e.patched(e.header(DYNAMIC) + 16, HUGE), "its dynamic section is outside of"),
    "endless dynamic section": (lambda e: e.patched(e.header(DYNAMIC) + 32, 16), "its dynamic section has no end"),
    "names outside": (lambda e: e.patched(e.dynamic[5], HUGE), "its names lie outside"),
    "huge names": (lambda e: e.patched(e.dynamic[10], 2**64 - 1), "its names lie outside"),
    "symbols outside": (lambda e: e.patched(e.dynamic[6], HUGE), "its symbols lie outside"),
    "size of symbols": (lambda e: e.patched(e.dynamic[11], 16), "expected 24 as the size of a symbol, got 16"),
    "index outside": (lambda e: e.patched(e.dynamic[0x6FFFFEF5], HUGE), "its symbol hash tables lie outside"),
    "relocations outside": (lambda e: e.patched(e.dynamic[7], HUGE), "its relocations lie outside"),
    "huge relocations": (lambda e: e.patched(e.dynamic[8], 24 << 40), "its relocations lie outside"),
    "half a relocation": (lambda e: e.patched(e.dynamic[8], 25), "its last relocation is incomplete"),
    "start function": (lambda e: e.patched(e.dynamic[12], 0x10), "its initialization function is not in its code"),
    "start functions": (lambda e: e.patched(e.dynamic[25], HUGE), "lists of initialization and termination functions"),
    "needed library": (lambda e: e.patched(e.dynamic[1], HUGE), "the name of a needed library is not in the dynamic string table"),
}

# The files are loaded in a separate process, so that a crash counts as one failure.
PROGRAM = """
import json, anyfn
said = []
for path in json.load(open({listed!r})):
    try:
        said.append([path, "loaded", repr(anyfn.load_module(path))])
    except Exception as error:
        said.append([path, type(error).__name__, str(error)])
print(json.dumps(said))
"""


@pytest.fixture
def load_all(whole, tmp_path, run_python):
    """Returns a function that loads files in one fresh process and returns the class and message of each error.

    It checks that no code of the files runs.
    """

    def load(paths):
        mark, listed = tmp_path / "mark", tmp_path / "paths.json"
        mark.unlink(missing_ok=True)
        listed.write_text(json.dumps([str(path) for path in paths]))
        said = json.loads(run_python(PROGRAM.format(listed=str(listed)), env={"ANYFN_TEST_MARK": str(mark)}))
        return {path: (kind, message) for path, kind, message in said}, mark.exists()

    def run(paths):
        said, has_run = load(paths)
        assert not has_run, "code of a damaged library has run"
        # An undamaged file is loaded and leaves the mark.
        undamaged, has_run = load([whole])
        assert undamaged[str(whole)][0] == "loaded" and has_run
        return said

    return run


@pytest.fixture
def whole(tmp_path, compile_source):
    return compile_source(SOURCE, tmp_path / "whole.so")


def test_each_damage_is_an_error_of_its_own(whole, tmp_path, load_all, compile_source):
    elf = Elf(whole.read_bytes())
    expected = {}
    for name, (damage, reason) in DAMAGES.items():
        path = tmp_path / f"{name.replace(' ', '_')}.so"
        path.write_bytes(damage(elf))
        assert path.read_bytes() != elf.content, name
        expected[str(path)] = reason
    for name, more, reason in [
        ("future", FUTURE, "it was built for version 0.99.0 of the ABI"),
        ("undefined", UNDEFINED, "no library in the process defines nobody_has_that"),
        ("unknown", UNKNOWN, "it needs TVMFFINoSuchThing from the runtime"),
    ]:
        path = compile_source(SOURCE + more, tmp_path / f"{name}.so")
        expected[str(path)] = reason
    (tmp_path / "directory.so").mkdir()
    os.mkfifo(tmp_path / "pipe.so")
    (tmp_path / "loop.so").symlink_to(tmp_path / "loop.so")
    (tmp_path / "dangling.so").symlink_to(tmp_path / "absent.so")
    expected[str(tmp_path / "directory.so")] = "it is a directory"
    expected[str(tmp_path / "pipe.so")] = "it is not a regular file"
    expected["/dev/null.so"] = "there is no such file"
    expected[str(tmp_path / "loop.so")] = "symbolic link"
    expected[str(tmp_path / "dangling.so")] = "there is no such file"
    expected[str(tmp_path / "absent.so")] = "there is no such file"
    said = load_all(expected)
    wrong = [
        (path, reason, said[path])
        for path, reason in expected.items()
        if said[path][0] != "RuntimeError" or reason not in said[path][1] or path.rsplit("/", 1)[1] not in said[path][1]
    ]
    assert not wrong, "\n".join(map(str, wrong))
    assert len(expected) >= 40


def test_a_library_that_is_cut_off_at_any_section(whole, tmp_path, load_all):
    elf = Elf(whole.read_bytes())
    assert len(elf.sections) > 20
    ends = {place for offset, size in elf.sections for place in (offset, offset + size // 2, offset + size - 1)}
    ends |= {at + step for at in elf.headers for step in (0, 28)} | {16, 32, 63, 64, len(elf.content) - 1}
    paths = {}
    for end in sorted(ends):
        path = tmp_path / f"cut_{end}.so"
        path.write_bytes(elf.content[:end])
        paths[str(path)] = end
    said = load_all(paths)
    wrong = [(end, said[path]) for path, end in paths.items() if "the file is truncated" not in said[path][1]]
    assert not wrong, "\n".join(map(str, wrong))
    assert len(paths) > 60


def test_an_unreadable_library(whole, run_python):
    """Checks a file without read permission. A test that runs as root first drops its privileges."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        path = Path(folder, "secret.so")
        path.write_bytes(whole.read_bytes())
        os.chmod(path, 0o000)
        program = f"""
import os, anyfn
if os.geteuid() == 0: os.seteuid(65534)
try: anyfn.load_module({str(path)!r})
except RuntimeError as error: print(error)
"""
        said = run_python(program)
        assert str(path) in said and "the file cannot be read: Permission denied" in said, said


def test_inspecting_gives_the_same_reasons(whole, tmp_path):
    elf = Elf(whole.read_bytes())
    path = tmp_path / "damaged.so"
    for damage, reason in DAMAGES.values():
        path.write_bytes(damage(elf))
        with pytest.raises(RuntimeError) as caught:
            anyfn.inspect_library(path)
        assert reason in str(caught.value)
