"""Tests of ``anyfn.build``: the cache, failures of the compiler, exports, and calls of the built modules."""

import os
import shutil
import stat
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import anyfn
from anyfn import te, tir

ROOT = Path(os.environ.get("ANYFN_ROOT", Path(__file__).resolve().parents[3]))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("ANYFN_CACHE_DIR", str(folder))
    monkeypatch.delenv("ANYFN_CACHE", raising=False)
    return folder


@pytest.fixture
def counting_cc(tmp_path):
    """Returns a target whose compiler counts its invocations, and a function that returns the count."""
    script, count = tmp_path / "cc", tmp_path / "count"
    script.write_text(f'#!/bin/sh\necho x >> "{count}"\nexec cc "$@"\n')
    script.chmod(0o755)
    # Creating the target calls the compiler once, to query its macros.
    target = anyfn.Target(cc=str(script))
    return target, lambda: len(count.read_text().split()) if count.exists() else 0


def plus(number, name="plus"):
    x = te.placeholder((4,), name="X")
    return te.create_prim_func([x, te.compute((4,), lambda i: x[i] + number, name="Y")], name=name)


def entries(cache):
    """Returns the paths of the libraries in a cache folder."""
    return [path for path in cache.iterdir() if path.name != "sources"]


def check(f, number):
    out = np.zeros(4, "float32")
    f(np.arange(4, dtype="float32"), out)
    assert out.tolist() == [i + number for i in range(4)]


class TestCache:
    def test_the_compiler_runs_once(self, cache, counting_cc):
        target, count = counting_cc
        before = count()
        for _ in range(3):
            check(anyfn.build(plus(1.0), target), 1)
        assert count() == before + 1
        # Other names change the messages, so the code differs.
        anyfn.build(plus(1.0, "other"), target)
        check(anyfn.build(plus(2.0), target), 2)
        assert count() == before + 3
        check(anyfn.build(plus(1.0), target, cache=False), 1)
        assert count() == before + 4
        check(anyfn.build(plus(1.0), anyfn.Target(cc=target.cc, options=["-O1"])), 1)
        assert count() > before + 4
        assert stat.S_IMODE(cache.stat().st_mode) == 0o700
        assert len(entries(cache)) == 4 and all((entry / "module.so").exists() for entry in entries(cache))

    def test_a_compiler_that_has_changed_is_another_one(self, cache, counting_cc):
        target, count = counting_cc
        anyfn.build(plus(1.0), target)
        before = count()
        Path(target.cc).write_text(Path(target.cc).read_text() + "# changed\n")
        anyfn.build(plus(1.0), target)
        assert count() == before + 1

    @pytest.mark.parametrize("damage", ["cut", "garbage", "source", "about", "gone", "empty"])
    def test_damaged_entries_are_built_again(self, cache, damage):
        check(anyfn.build(plus(3.0)), 3)
        (entry,) = entries(cache)
        library, source, about = entry / "module.so", entry / "module.c", entry / "about"
        # Written as new files, because the library that this process has mapped must not change.
        if damage in ("cut", "garbage"):
            content = library.read_bytes()
            library.unlink()
            library.write_bytes(content[: len(content) // 2] if damage == "cut" else os.urandom(len(content)))
        elif damage == "source":
            source.write_text(source.read_text().replace("3.0f", "4.0f"))
        elif damage == "about":
            about.write_text(about.read_text() + "x")
        elif damage == "gone":
            library.unlink()
        else:
            shutil.rmtree(entry)
            entry.mkdir()
        check(anyfn.build(plus(3.0)), 3)
        assert [path.name for path in entries(cache)] == [entry.name]
        assert sorted(path.name for path in entry.iterdir()) == ["about", "module.c", "module.so"]

    def test_a_hash_alone_is_no_hit(self, cache):
        anyfn.build(plus(5.0))
        (five,) = entries(cache)
        anyfn.build(plus(6.0))
        (six,) = set(entries(cache)) - {five}
        shutil.rmtree(five)
        shutil.copytree(six, five)
        check(anyfn.build(plus(5.0)), 5)

    @pytest.mark.parametrize("damage", ["none", "source", "module", "sum", "cut", "empty", "text", "folder"])
    def test_sources_of_modules_are_kept_for_other_processes(self, cache, damage):
        program = (
            "import sys; sys.path.insert(0, sys.argv[1]); import test_build as t; "
            "t.check(t.anyfn.build(t.plus(3.0)), 3); t.check(t.anyfn.build(t.plus(4.0)), 4)"
        )
        run = [sys.executable, "-c", program, str(Path(__file__).parent)]
        subprocess.run(run, check=True)
        kept = sorted((cache / "sources").iterdir())
        assert len(kept) == 2 and len(entries(cache)) == 2
        texts = [path.read_text() for path in kept]
        for path, text in zip(kept, texts):
            if damage == "source":
                path.write_text(text.replace("3.0f", "4.0f"))
            elif damage == "module":
                # Source of the other module.
                path.write_text(texts[0])
            elif damage == "sum":
                path.write_text("0" * 16 + text[16:])
            elif damage == "cut":
                path.write_text(text[: len(text) // 2])
            elif damage == "empty":
                path.write_text("")
            elif damage == "text":
                path.write_bytes(b"\xff" * 100)
            elif damage == "folder":
                path.unlink()
                path.mkdir()
        subprocess.run(run, check=True)
        assert len(entries(cache)) == 2
        # Damaged entries are built again. A folder in the place of an entry is left, and nothing is cached.
        if damage != "folder":
            assert sorted(path.read_text() for path in (cache / "sources").iterdir()) == sorted(texts)

    def test_off(self, cache, monkeypatch):
        monkeypatch.setenv("ANYFN_CACHE", "off")
        check(anyfn.build(plus(1.0)), 1)
        assert not cache.exists()

    @pytest.mark.parametrize("mode", [0o755, 0o777, 0o770])
    def test_a_folder_that_others_reach_is_not_used(self, cache, capfd, mode):
        cache.mkdir()
        cache.chmod(mode)
        for _ in range(2):
            check(anyfn.build(plus(1.0)), 1)
        assert not list(cache.iterdir())
        error = capfd.readouterr().err
        assert error.count("warning: compiled code is not cached in") == 1
        assert f"other users have access to it (mode {mode:o}); run `chmod 700` on it" in error

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
    def test_a_folder_of_somebody_else_is_not_used(self, cache, capfd):
        cache.mkdir(mode=0o700)
        os.chown(cache, 12345, 12345)
        check(anyfn.build(plus(1.0)), 1)
        assert not list(cache.iterdir()) and "it belongs to user 12345" in capfd.readouterr().err

    def test_a_link_is_not_followed(self, cache, tmp_path, capfd):
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        cache.symlink_to(tmp_path / "elsewhere")
        check(anyfn.build(plus(1.0)), 1)
        assert not list((tmp_path / "elsewhere").iterdir()) and "it is not a folder" in capfd.readouterr().err

    def test_a_folder_that_cannot_be_written_is_no_error(self, cache, tmp_path, monkeypatch, capfd):
        # A folder into which not even root can write.
        monkeypatch.setenv("ANYFN_CACHE_DIR", "/proc/self/fd")
        for _ in range(2):
            module = anyfn.build(plus(3.0))
            check(module, 3)
        assert capfd.readouterr().err.count("warning: compiled code is not cached in /proc/self/fd: ") == 1
        module.export(tmp_path / "f.so")
        check(anyfn.load_module(tmp_path / "f.so"), 3)

    @pytest.mark.parametrize("damage", ["file", "link", "nowhere", "about"])
    def test_what_stands_in_the_place_of_an_entry_is_replaced(self, cache, tmp_path, damage):
        anyfn.build(plus(1.0))
        (entry,) = entries(cache)
        if damage == "about":
            (entry / "about").unlink()
            (entry / "about").mkdir()
        else:
            moved = entry.rename(tmp_path / "moved")
            (moved / "module.c").write_text("other")
            if damage == "file":
                entry.write_text("x")
            else:
                entry.symlink_to(moved if damage == "link" else tmp_path / "no-such")
        check(anyfn.build(plus(1.0)), 1)
        assert entries(cache) == [entry] and (entry / "about").is_file() and not entry.is_symlink()
        if damage == "link":
            assert (moved / "module.c").read_text() == "other"

    def test_a_relative_folder_is_found_from_elsewhere(self, cache, tmp_path, monkeypatch):
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        monkeypatch.setenv("ANYFN_CACHE_DIR", "relative")
        module = anyfn.build(plus(1.0))
        monkeypatch.chdir(tmp_path)
        module.export(tmp_path / "f.so")
        check(anyfn.load_module(tmp_path / "f.so"), 1)

    @pytest.mark.parametrize("name", [b"a b", b"a'b\"c", b"\xff\xfe"])
    def test_names_of_folders(self, cache, tmp_path, monkeypatch, name):
        folder = tmp_path / os.fsdecode(name)
        folder.mkdir(mode=0o700)
        total = tir.parse("def total(X: Buffer((2,), float32)):\n    for i in range(63):\n        X[0] = X[0] + X[1]\n")
        # Because of this macro, GCC emits the path of the source for the assembler.
        assert "ANYFN_IN_ORDER;" in anyfn.source(total)
        monkeypatch.setenv("TMPDIR", str(folder) if b"\xff" not in name else str(tmp_path))
        for options in ({}, {"cache": False}):
            monkeypatch.setenv("ANYFN_CACHE_DIR", str(folder))
            module, out = anyfn.build(total, **options), np.ones(2, "float32")
            module(out)
            assert out[0] == 64
        module.export(tmp_path / "f.o")

    def test_a_limit_beyond_all_bounds_is_none(self, cache, monkeypatch):
        monkeypatch.setenv("ANYFN_CACHE_MB", str(1 << 44))
        for number in range(3):
            check(anyfn.build(plus(float(number))), number)
        assert len(entries(cache)) == 3

    def test_the_oldest_go_when_there_are_too_many(self, cache, monkeypatch):
        old = anyfn.build(plus(1.0))
        (entry,) = entries(cache)
        size = sum(file.stat().st_size for file in entry.iterdir())
        # The limit has room for one megabyte of entries, which is less than two of these.
        monkeypatch.setenv("ANYFN_CACHE_MB", "1")
        filler = entry / "module.c"
        filler.write_bytes(b"x" * (2 << 20))
        os.utime(entry / "about", (1, 1))
        check(anyfn.build(plus(2.0)), 2)
        (left,) = entries(cache)
        assert left != entry and size < 1 << 20
        # Loaded libraries stay usable.
        check(old, 1)

    def test_many_threads_and_processes_at_once(self, cache):
        program = textwrap.dedent(
            """
            import sys
            sys.path.insert(0, sys.argv[1])
            import test_build as t
            for number in range(4):
                t.check(t.anyfn.build(t.plus(float(number))), number)
            """
        )
        run = [sys.executable, "-c", program, str(Path(__file__).parent)]
        processes = [subprocess.Popen(run) for _ in range(3)]

        def build(number):
            check(anyfn.build(plus(float(number % 4))), number % 4)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(build, range(8)))
        assert [process.wait(120) for process in processes] == [0, 0, 0]
        assert len(entries(cache)) == 4

    def test_nothing_is_left_without_a_cache(self, tmp_path):
        program = (
            "import sys; sys.path.insert(0, sys.argv[1]); import test_build as t, os; "
            "os.umask(0); m = t.anyfn.build(t.plus(1.0), cache=False); t.check(m, 1); m.export(sys.argv[2]); "
            "(made,) = os.scandir(os.environ['TMPDIR']); assert made.name.startswith('anyfn-')\n"
            "assert made.stat().st_mode & 0o777 == 0o700\n"
            "if os.fork() == 0: sys.exit()\n"
            "os.wait(); m.export(sys.argv[2])"
        )
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        exported = tmp_path / "f.so"
        environment = {**os.environ, "TMPDIR": str(scratch)}
        subprocess.run(
            [sys.executable, "-c", program, str(Path(__file__).parent), str(exported)], env=environment, check=True
        )
        assert not list(scratch.iterdir())
        check(anyfn.load_module(exported), 1)


class TestCompilers:
    def test_no_compiler(self, cache, monkeypatch):
        monkeypatch.setenv("CC", "no-such-cc")
        with pytest.raises(RuntimeError, match="cannot start the C compiler `no-such-cc`: .*apt-get install gcc.*CC"):
            anyfn.build(plus(1.0))
        assert "plus" in anyfn.source(plus(1.0), target=anyfn.Target(cc="cc"))

    def test_a_compiler_that_fails(self, cache, tmp_path):
        script = tmp_path / "cc"
        script.write_text('#!/bin/sh\ncase "$*" in *-dM*) exec cc "$@";; esac\necho "no memory left" >&2\nexit 3\n')
        script.chmod(0o755)
        with pytest.raises(RuntimeError) as caught:
            anyfn.build(plus(1.0), anyfn.Target(cc=str(script)))
        text = str(caught.value) + "".join(getattr(caught.value, "__notes__", []))
        assert "the C compiler failed (exit status: 3) on `plus`:\nno memory left\nthe command was: " in text
        assert not entries(cache)
        kept = text.split("the source is kept in ")[1].strip()
        assert "__tvm_ffi_plus" in Path(kept).read_text()
        os.unlink(kept)

    def test_a_compiler_that_writes_nothing(self, cache, tmp_path, monkeypatch):
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        script = tmp_path / "cc"
        script.write_text('#!/bin/sh\ncase "$*" in *-dM*) exec cc "$@";; esac\n')
        script.chmod(0o755)
        for options in ({}, {"cache": False}):
            with pytest.raises(RuntimeError, match="the C compiler reported success .* but wrote no output file for `plus`"):
                anyfn.build(plus(1.0), {"cc": str(script), "mcpu": "native"}, **options)
        assert not entries(cache)

    def test_what_a_compiler_prints_is_cut(self, cache, tmp_path, monkeypatch):
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        script = tmp_path / "cc"
        script.write_text("#!/bin/sh\nhead -c 1000000 /dev/zero | tr '\\000' x >&2\nexit 1\n")
        script.chmod(0o755)
        with pytest.raises(RuntimeError, match="x{16384}\n.. .983616 more bytes omitted.\n") as caught:
            anyfn.build(plus(1.0), {"cc": str(script), "mcpu": "native"})
        assert len(str(caught.value)) < 20000

    def test_a_compiler_without_options_of_gcc(self, cache, tmp_path):
        """Checks that a build succeeds with a compiler that rejects options which only GCC accepts.

        The script stands in for Clang.
        """
        script = tmp_path / "cc"
        script.write_text('#!/bin/sh\ncase "$*" in *-loop-*) echo "unknown argument" >&2; exit 1;; esac\nexec cc "$@"\n')
        script.chmod(0o755)
        check(anyfn.build(plus(1.0), {"cc": str(script), "mcpu": "native"}), 1)

    def test_a_name_with_blanks(self, cache, tmp_path):
        script = tmp_path / "my tools" / "my cc"
        script.parent.mkdir()
        script.write_text('#!/bin/sh\nexec cc "$@"\n')
        script.chmod(0o755)
        for cc in (str(script), f"'{script}' -O1", f'"{script}" "-DQUOTED=a b"'):
            check(anyfn.build(plus(1.0), anyfn.Target(cc=cc, mcpu="native"), cache=False), 1)

    def test_a_file_that_cannot_be_run_hides_no_compiler(self, cache, tmp_path, monkeypatch):
        first = tmp_path / "bin"
        first.mkdir()
        (first / "cc").write_text("no program")
        monkeypatch.setenv("PATH", f"{first}:{os.environ['PATH']}")
        check(anyfn.build(plus(1.0), cache=False), 1)

    def test_progress(self, cache, tmp_path):
        # The compiler waits until progress has been reported.
        script, flag = waits_for_flag(tmp_path)
        told = []
        target = {"cc": str(script), "mcpu": "native"}
        check(anyfn.build([plus(1.0)], target, progress=lambda *told_now: (told.append(told_now), flag.touch())), 1)
        # Progress is reported once, or more often on a busy machine.
        assert told and all(text == f"compiling `plus` with `{script}`" and 1 <= s < 100 for text, s in told)
        flag.unlink()

        def stop(text, seconds):
            raise KeyError("enough")

        with pytest.raises(KeyError, match="enough"):
            anyfn.build([plus(2.0)], target, progress=stop)
        check(anyfn.build([plus(2.0)]), 2)

    def test_an_interrupt_ends_the_compiler_and_what_it_started(self, cache, tmp_path):
        script, started = tmp_path / "slow", tmp_path / "started"
        script.write_text(f'#!/bin/sh\nsleep 300 &\necho "$$ $!" > "{started}.part"\nmv "{started}.part" "{started}"\nwait\n')
        script.chmod(0o755)

        def stop(text, seconds):
            if started.exists():
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            anyfn.build(plus(1.0), {"cc": str(script), "mcpu": "native"}, progress=stop)
        deadline = time.monotonic() + 60
        for pid in map(int, started.read_text().split()):
            while is_alive(pid):
                assert time.monotonic() < deadline, "a process of the compiler is left"
                time.sleep(0.02)
        assert not entries(cache)

    def test_other_threads_run_meanwhile(self, cache, tmp_path):
        import threading

        script, flag = waits_for_flag(tmp_path)
        with ThreadPoolExecutor(1) as pool:
            job = pool.submit(anyfn.build, plus(1.0), {"cc": str(script), "mcpu": "native"})
            timer = threading.Timer(0.2, flag.touch)
            timer.start()
            check(job.result(120), 1)


def waits_for_flag(folder):
    """Returns the path of a compiler script that waits up to a minute for a flag file, and the path of the flag file."""
    script, flag = folder / "slow", folder / "flag"
    wait = f'n=0; while [ ! -e "{flag}" ] && [ $n -lt 1200 ]; do sleep 0.05; n=$((n+1)); done'
    script.write_text(f'#!/bin/sh\n{wait}\nexec cc "$@"\n')
    script.chmod(0o755)
    return script, flag


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class TestModules:
    def test_a_module_is_called_as_its_only_function(self):
        f = anyfn.build(plus(1.0))
        for _ in range(3):
            check(f, 1)
        with pytest.raises(TypeError, match="plus: expected 2 arguments but got 1"):
            f(np.zeros(4, "float32"))
        check(f.plus, 1)
        check(f["plus"], 1)
        assert f.entry_func.__name__ == "plus"

    def test_or_as_main(self):
        f = anyfn.build([plus(1.0), plus(2.0, "main")])
        check(f, 2)
        with pytest.raises(AttributeError, match="main"):
            anyfn.build([plus(1.0), plus(2.0, "other")])(1)

    def test_tensors_are_built_as_a_function(self):
        x = te.placeholder((4,), name="X")
        y = te.compute((4,), lambda i: x[i] * 2 + 1, name="Y")
        out = np.zeros(4, "float32")
        anyfn.build([x, y])(np.ones(4, "float32"), out)
        assert out.tolist() == [3] * 4

    def test_a_single_function_can_be_named(self):
        func = plus(1.0)
        for inputs in (func, [func], tir.Schedule(func), {"other": func}, tir.IRModule({"other": func})):
            module = anyfn.build(inputs, name="dbl")
            assert module.list_functions() == ["dbl"]
            check(module.dbl, 1)
        with pytest.raises(TypeError, match=r"^dbl: argument 0 `X`"):
            module.dbl(1, 2)
        assert list(anyfn.lower(func, name="dbl").functions) == ["dbl"]
        assert "__tvm_ffi_dbl" in anyfn.source(func, name="dbl") and "__tvm_ffi_plus" in anyfn.source(func)
        marked = tir.IRModule({"other": func}, {"mark": 1})
        assert anyfn.lower(marked, name="dbl").attrs["mark"] == 1
        for several in ([func, plus(2.0, "g")], {"f": func, "g": func}, tir.IRModule({"f": func, "g": func})):
            with pytest.raises(ValueError, match="cannot give one name to 2 functions: omit `name`, .* dict of functions"):
                anyfn.build(several, name="dbl")
        for nothing in ([], {}, tir.IRModule({})):
            for use in (anyfn.build, anyfn.lower, anyfn.source):
                with pytest.raises(ValueError, match="cannot use `name`: there is no function to name"):
                    use(nothing, name="dbl")

    def test_missing_functions(self):
        one, many = anyfn.build(plus(1.0)), anyfn.build([plus(1.0, f"f{n}") for n in range(10, 22)])
        for ask in (lambda: one.nope, lambda: one["nope"], lambda: one.get_function("nope")):
            with pytest.raises(AttributeError, match="has no function `nope`; its only function is `plus`$"):
                ask()
        with pytest.raises(AttributeError, match=r"has no function `pluss`; did you mean `plus`\?$"):
            one.pluss
        first = ", ".join(f"`f{n}`" for n in range(10, 20))
        with pytest.raises(AttributeError, match=f"has no function `absent`; its functions are {first}, ... and 2 more$"):
            many.absent
        with pytest.raises(AttributeError, match=f"; did you mean `f1.`\\? Its functions are {first}, ... and 2 more$"):
            many.f1

    def test_modules_of_other_kinds_are_asked_each_time(self):
        class Counter:
            kind, count = "counter", 0

            def get_function(self, name):
                self.count += 1
                count = self.count
                return lambda: count

        module = anyfn.make_module(Counter())
        assert module() < module()


class TestExport:
    def test_source_object_and_library(self, cache, tmp_path):
        f = anyfn.build(plus(1.0))
        for name in ("f.so", "f.o", "f.c"):
            f.export(tmp_path / name)
        assert (tmp_path / "f.c").read_text() == anyfn.source(plus(1.0))
        assert f.inspect_source() == f.inspect_source("c") == anyfn.source(plus(1.0)) and f.inspect_source("ll") == ""
        shutil.rmtree(cache)
        check(anyfn.load_module(tmp_path / "f.so"), 1)
        assert anyfn.load_module(tmp_path / "f.so").inspect_source() == ""
        anyfn.bundle(tmp_path / "g.so", [tmp_path / "f.o"], link_options=["-lm"])
        check(anyfn.load_module(tmp_path / "g.so"), 1)
        with pytest.raises(ValueError, match="cannot export the module as source or object file: `build` did not create it"):
            anyfn.load_module(tmp_path / "g.so").export(tmp_path / "h.c")

    def test_the_extension_selects_the_format(self, tmp_path):
        f = anyfn.build(plus(1.0))
        for name in ("dbl.txt", "dbl", "dbl.tar", "dbl.so.txt", "so"):
            expected = f"cannot export the module to {tmp_path / name}: expected a file name that ends in `.so` (a library), "
            for export in (f.export, f.export_library):
                with pytest.raises(ValueError) as caught:
                    export(tmp_path / name)
                assert str(caught.value) == expected + "`.o` (an object file) or `.c` (C source)"
            assert not (tmp_path / name).exists()
        with pytest.raises(ValueError, match=r"ends in `\.so` \(a library\)$"):
            f.export(tmp_path / "f.c", tmp_path / "f.o")
        for name in ("f.so.1.2", "f.so.3"):
            f.export(tmp_path / name)
            check(anyfn.load_module(tmp_path / name), 1)

    def test_the_peer_loads_it(self, tmp_path):
        peer = ROOT / ".x" / "venv-peer" / "bin" / "python"
        if not peer.exists():
            pytest.skip("the peer is not installed")
        anyfn.build(plus(1.0)).export(tmp_path / "f.so")
        program = (
            "import sys, numpy as np, tvm_ffi; m = tvm_ffi.load_module(sys.argv[1]); "
            "x = tvm_ffi.from_dlpack(np.arange(4, dtype='float32')); out = np.zeros(4, 'float32'); "
            "m.plus(x, tvm_ffi.from_dlpack(out)); assert out.tolist() == [1, 2, 3, 4]\n"
            "try:\n    m.plus(x, 3)\nexcept TypeError as error:\n    print(error)"
        )
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [peer, "-c", program, tmp_path / "f.so"], capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0 and "plus: argument 1 `Y`: expected a tensor but got int" in done.stdout, done.stderr


class TestSignatures:
    def test_names_types_and_documentation(self):
        n = tir.var("n")
        x, y = te.placeholder((n, 4), name="X"), te.placeholder((n, 4), "float64", name="a b")
        z = te.compute((n, 4), lambda i, j: x[i, j] + y[i, j].astype("float32"), name="X")
        module = anyfn.build(te.create_prim_func([x, y, z], name="f"))
        f = module.f
        assert str(f.__signature__).startswith("(X: ") and list(f.__signature__.parameters) == ["X", "a_b", "X_1"]
        assert f.__doc__ == "X: float32[n, 4]\na_b: float64[n, 4]\nX_1: float32[n, 4], written"
        told = module.get_function_metadata("f")
        assert told["arg_const"] == ["X", "a_b"] and told["name"] == "f"
        assert module.list_functions() == ["f"]
        one, two, out = np.ones((2, 4), "float32"), np.full((2, 4), 2.0), np.zeros((2, 4), "float32")
        f(one, a_b=two, X_1=out)
        assert (out == 3).all()
        with pytest.raises(TypeError, match="Y"):
            f(one, Y=two)

    def test_what_is_only_read_may_be_read_only(self):
        f = anyfn.build(plus(1.0))
        given, out = np.arange(4, dtype="float32"), np.zeros(4, "float32")
        given.flags.writeable = False
        f(given, out)
        assert out.tolist() == [1, 2, 3, 4]
        out.flags.writeable = False
        with pytest.raises(Exception, match="read-only"):
            f(given, out)
        with pytest.raises(Exception, match="read-only"):
            f.plus(given, out)


def test_what_was_lowered_before_is_not_lowered_again_unless_anything_differs(cache):
    def named(name):
        x = te.placeholder((4,), name=name)
        return te.create_prim_func([x, te.compute((4,), lambda i: x[i] + 1, name="Y")], name="f")

    # The functions differ only in a name that messages contain, which structural equality ignores.
    assert anyfn.structural_equal(named("X"), named("Z"))
    for name in ("X", "Z", "X"):
        with pytest.raises(TypeError, match=f"f: argument 0 `{name}`: expected a tensor"):
            anyfn.build(named(name))(1, 2)
    assert len(entries(cache)) == 2
    # A custom pass is applied in each build.
    applied = []

    def count(func, module):
        applied.append(1)
        return func

    for _ in range(2):
        anyfn.build(named("X"), passes=[count])
    assert len(applied) == 2


def test_the_demonstration(tmp_path):
    """Runs the Python program of ``./x demo``, but not the demonstration's programs in C and Rust."""
    program = ROOT / "examples" / "demo" / "dense.py"
    environment = {**os.environ, "PYTHONPATH": str(Path(anyfn.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0 and "WRONG" not in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("\n== ") == 7 and (tmp_path / "dense.so").exists()
