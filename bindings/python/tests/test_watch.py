"""Tests of watching a library file. The newest usable build is always in use, whatever happens to the file."""

import gc
import os
import threading
import time
import warnings

import anyfn
import pytest

VERSION = """
#include <anyfn/anyfn.h>
ANYFN_EXPORT(version) { (void)args; (void)num_args; return anyfn_return_int(result, %d); }
%s
"""
OTHER = "ANYFN_EXPORT(other) { (void)args; (void)num_args; return anyfn_return_int(result, 7); }"


def settle(path):
    """Sets the modification time of a file to the past, so that the file appears to be completely written."""
    past = time.time_ns() - 10**10
    os.utime(path, ns=(past, past))


@pytest.fixture
def build(tmp_path, compile_source):
    """Returns a function that builds a version as a new file and moves it to the old path, as linkers and ``mv`` do."""

    def make(version, other=True, path=tmp_path / "lib.so"):
        new = compile_source(VERSION % (version, OTHER if other else ""), tmp_path / "new.so")
        os.replace(new, path)
        return path

    return make


def replace(path, content):
    """Replaces a file by a new one whose modification time is in the past, so that the new file seems complete."""
    new = path.with_suffix(".part")
    new.write_bytes(content)
    settle(new)
    os.replace(new, path)


@pytest.fixture
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_functions_follow_the_file(build, no_warning):
    path = build(0)
    loaded = []
    lib = anyfn.watch(path, on_reload=lambda path, module: loaded.append((path, module["version"]())))
    version, old = lib.version, lib.module["version"]
    assert [version(), lib.version(), lib["version"](), old()] == [0, 0, 0, 0]
    assert lib.poll() is False and loaded == []
    for number in range(1, 5):
        build(number)
        assert not lib.module.is_current() or loaded
        assert version() == number and lib.version() == number and lib.module["version"]() == number
        assert loaded[-1] == (str(path), number) and len(loaded) == number
        assert old() == 0, "what was taken from a module stays"
    assert lib.poll() is False
    build(5)
    assert lib.poll() is True and lib.poll() is False
    assert version() == 5
    assert lib.problem is None and lib.path == str(path)
    assert {"version", "other", "poll"} <= set(dir(lib))
    del lib, version, old, loaded
    gc.collect()
    assert os.path.realpath(path) in anyfn.reap()
    assert all(entry["file"] != os.path.realpath(path) for entry in anyfn.mapped_libraries())


def test_the_older_builds_are_unmapped_once_unused(build):
    path = build(0)
    lib = anyfn.watch(path)
    version = lib.version
    for number in range(1, 6):
        build(number)
        assert version() == number
    anyfn.reap()
    entries = [entry for entry in anyfn.mapped_libraries() if entry["file"] == os.path.realpath(path)]
    assert len(entries) == 1


def test_the_same_build_again(build, no_warning):
    path = build(3)
    content = path.read_bytes()
    lib = anyfn.watch(path)
    assert lib.version() == 3 and lib.module.is_current() and lib.module.is_current(path)
    replace(path, content)
    module = lib.module
    assert lib.version() == 3 and lib.problem is None and module.is_current()
    # Another name of the same file has the same code.
    link = path.with_name("link.so")
    os.link(path, link)
    assert module.is_current(link) and not module.is_current("absent.so")


def test_a_symbolic_link_that_is_switched(build, tmp_path, no_warning):
    one, two = build(1, path=tmp_path / "one.so"), build(2, path=tmp_path / "two.so")
    link = tmp_path / "current.so"
    link.symlink_to(one)
    lib = anyfn.watch(link)
    version, module = lib.version, lib.module
    assert version() == 1 and module.is_current() and module.is_current(link)
    for target, number in [(two, 2), (one, 1), (two, 2)]:
        new = tmp_path / "new_link.so"
        new.symlink_to(target)
        os.replace(new, link)
        assert version() == number
    assert module.is_current() and not module.is_current(link)
    # Loading without a watch also detects the switch.
    assert anyfn.load_module(link)["version"]() == 2


BROKEN = {
    "the file is truncated": lambda whole: whole[: len(whole) // 2],
    "the file is empty": lambda whole: b"",
    "a text file": lambda whole: b"not compiled\n",
    "it is a library for ARM": lambda whole: whole[:18] + b"\x28\0" + whole[20:],
}


def test_a_broken_build_changes_nothing_and_is_told_of_once(build):
    path = build(1)
    whole = path.read_bytes()
    lib = anyfn.watch(path)
    version = lib.version
    for reason, damage in BROKEN.items():
        replace(path, damage(whole))
        with pytest.warns(RuntimeWarning, match=reason) as record:
            assert version() == 1
        assert record[0].filename == __file__, "the warning shows the call"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert version() == 1 and lib.version() == 1 and lib.poll() is False
        assert reason in lib.problem and reason in repr(lib)
        with pytest.raises(RuntimeError, match=reason):
            lib.reload()
    build(2)
    assert version() == 2 and lib.problem is None
    assert lib.reload()["version"]() == 2


def test_undefined_symbols_and_missing_functions_keep_the_older_build(build, tmp_path, compile_source):
    path = build(1)
    problems = []
    lib = anyfn.watch(path, on_problem=lambda path, reason: problems.append(reason))
    version, other = lib.version, lib.other
    undefined = "int nobody_has_that(void);\nANYFN_EXPORT(other) { (void)args; (void)num_args; return anyfn_return_int(result, nobody_has_that()); }"
    new = compile_source(VERSION % (2, undefined), tmp_path / "new.so")
    settle(new)
    os.replace(new, path)
    assert (version(), other()) == (1, 7)
    assert len(problems) == 1 and "no library in the process defines nobody_has_that" in problems[0]
    # A function that is still referenced is missing.
    settle(build(3, other=False))
    assert (version(), other()) == (1, 7)
    assert len(problems) == 2 and "has no function `other`, which is in use" in problems[1]
    # The function is no longer referenced.
    del other
    assert lib.reload()["version"]() == 3 and version() == 3
    with pytest.raises(AttributeError, match="has no function `other`"):
        lib.other
    build(4)
    assert (lib.other(), version()) == (7, 4)
    assert len(problems) == 2


def test_a_file_that_is_being_written_is_tried_again(build, tmp_path, no_warning):
    path = build(1)
    lib = anyfn.watch(path)
    whole = build(2, path=tmp_path / "whole.so").read_bytes()
    path.unlink()
    assert lib.version() == 1, "for a moment there is no file"
    with open(path, "wb", buffering=0) as file:
        for start in range(0, len(whole), 4096):
            assert lib.version() == 1
            assert "the file is empty" in lib.problem if start == 0 else "the file is truncated" in lib.problem
            file.write(whole[start : start + 4096])
    assert lib.version() == 2 and lib.problem is None


def test_a_file_that_is_written_over_in_place_is_told_of(build):
    path = build(1)
    lib = anyfn.watch(path)
    # Only the modification time changes, because writing to the file would change running code.
    settle(path)
    with pytest.warns(RuntimeWarning, match="has been modified in place since it was loaded, which may have changed the running code"):
        assert lib.version() == 1
    with pytest.raises(RuntimeError, match="rename it to this name"):
        anyfn.load_module(path)
    build(2)
    assert lib.version() == 2


def test_what_callbacks_raise_is_raised_at_the_look(build):
    path = build(1)

    def on_reload(path, module):
        raise KeyError("of the callback")

    lib = anyfn.watch(path, on_reload=on_reload)
    version = lib.version
    build(2)
    with pytest.raises(KeyError, match="of the callback"):
        version()
    assert version() == 2
    replace(path, b"")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="the file is empty"):
            version()
        assert version() == 2


def test_there_must_be_a_build_to_begin_with(build, tmp_path):
    with pytest.raises(RuntimeError, match="there is no such file"):
        anyfn.watch(tmp_path / "absent.so")
    module = anyfn.load_module(build(1))
    with pytest.raises(TypeError, match="expected a module that ffi.ModuleWatch returned, but got one of kind `library`"):
        anyfn.get_global_func("ffi.ModuleWatchPoll")(module)


def test_functions_are_handed_on_as_any_other(build):
    path = build(1)
    lib = anyfn.watch(path)
    kept = anyfn.convert([lib.version])
    assert lib.version.releases_gil and lib.version.__name__ == "version"
    build(2)
    assert kept[0]() == 2
    del lib
    build(3)
    assert kept[0]() == 3, "a function keeps the watch"


def wait(done, lib):
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end, lib.problem


def test_threads_that_call_while_builds_come(build):
    """Checks that each thread calls the builds in order, that no call fails, and that all threads reach the last one."""
    path = build(0)
    lib = anyfn.watch(path)
    stop, wrong = threading.Event(), []

    def work():
        version, last = lib.version, 0
        while not stop.is_set():
            now = version()
            if now < last:
                wrong.append((last, now))
            last = now
        if version() != 12:
            wrong.append(("at the end", version()))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(1, 13):
            build(number)
            if number % 4 == 0:
                wait(lambda: lib.version() == number, lib)
                anyfn.reap()
        # Another thread may be loading the build; calls then use the previous build.
        wait(lambda: lib.version() == 12, lib)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert wrong == []
