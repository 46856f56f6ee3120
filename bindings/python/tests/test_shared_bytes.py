"""Tests of long strings and byte strings, whose memory Python objects and native objects share."""

import gc
import sys
import threading
import time

import anyfn
import anyfn.testing
import pytest
from conftest import compile_library

# The length in bytes from which on memory is shared.
SHARED_MIN = 4096
LONG = ["x" * SHARED_MIN, "ä" * SHARED_MIN, "🦀" * SHARED_MIN, b"x" * SHARED_MIN, bytes(range(256)) * 64]

LIBRARY = r"""
#include <anyfn/anyfn.h>
#include <pthread.h>
static TVMFFIAny kept;
static void* release(void* arg) {
  (void)arg;
  anyfn_release(&kept);
  kept = anyfn_none();
  return NULL;
}
ANYFN_EXPORT(keep) {
  if (anyfn_check_num_args(num_args, 1)) return -1;
  anyfn_release(&kept);
  kept = anyfn_none();
  if (TVMFFIAnyViewToOwnedAny(args, &kept)) return -1;
  return anyfn_return_none(result);
}
ANYFN_EXPORT(get) {
  (void)args;
  (void)num_args;
  return TVMFFIAnyViewToOwnedAny(&kept, result);
}
/* The byte at an index, read through the pointer in the object, or the byte after the end. */
ANYFN_EXPORT(byte_at) {
  int64_t index;
  const TVMFFIByteArray* content = (const TVMFFIByteArray*)((const char*)kept.v_obj + sizeof(TVMFFIObject));
  if (anyfn_arg_int(args, num_args, 0, &index)) return -1;
  if (index > (int64_t)content->size) return anyfn_raise("IndexError", "beyond the end");
  return anyfn_return_int(result, (unsigned char)content->data[index]);
}
ANYFN_EXPORT(release_on_a_thread) {
  pthread_t thread;
  (void)args;
  (void)num_args;
  if (pthread_create(&thread, NULL, release, NULL)) return anyfn_raise("RuntimeError", "no thread");
  pthread_join(thread, NULL);
  return anyfn_return_none(result);
}
ANYFN_EXPORT(release_here) {
  (void)args;
  (void)num_args;
  release(NULL);
  return anyfn_return_none(result);
}
"""


@pytest.fixture(scope="module")
def library_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keeper")
    (folder / "keeper.c").write_text(LIBRARY, encoding="utf-8")
    return str(compile_library(folder / "keeper.c", folder / "keeper.so"))


@pytest.fixture(scope="module")
def keeper(library_file):
    return anyfn.load_module(library_file)


def wait_until(count, references):
    """Waits until `references()` returns `count`: references of other threads are released at the next opportunity."""
    end = time.monotonic() + 10
    while references() != count and time.monotonic() < end:
        time.sleep(0)
    assert references() == count


@pytest.mark.parametrize("value", LONG, ids=lambda value: f"{value!r:.4}")
def test_a_long_value_returns_as_the_same_object(value):
    before = sys.getrefcount(value)
    assert anyfn.testing.echo(value) is value
    assert anyfn.testing.apply(lambda x: x, value) is value
    assert anyfn.convert([value, value])[1] is value
    assert anyfn.convert({value: value})[value] is value
    gc.collect()
    assert sys.getrefcount(value) == before


def test_short_values_and_other_classes_are_copied():
    class Text(str):
        __slots__ = ()

    class Data(bytes):
        pass

    for value in ["y" * (SHARED_MIN - 1), b"y" * (SHARED_MIN - 1)]:
        assert anyfn.testing.echo(value) == value
        assert anyfn.testing.echo(value) is not value
    for value in [Text("y" * SHARED_MIN), Data(b"y" * SHARED_MIN), bytearray(b"y" * SHARED_MIN)]:
        back = anyfn.testing.echo(value)
        assert type(back) in (str, bytes) and back == value


def test_a_shared_string_is_equal_to_its_copy():
    text, copy = "key" * SHARED_MIN, "".join(["key"] * SHARED_MIN)
    assert text is not copy
    table = anyfn.convert({text: 1})
    assert table[copy] == 1
    assert anyfn.structural_equal(anyfn.convert([text]), anyfn.convert([copy]))
    assert anyfn.structural_hash(anyfn.convert([text])) == anyfn.structural_hash(anyfn.convert([copy]))
    data = text.encode()
    assert anyfn.testing.echo(data) == copy.encode()


@pytest.mark.parametrize("value", LONG, ids=lambda value: f"{value!r:.4}")
def test_native_code_keeps_the_object(keeper, value):
    # A new object, to which nothing else refers.
    value = (value[:1] * 0).join([value, value])
    content = value.encode() if isinstance(value, str) else value
    before, address = sys.getrefcount(value), id(value)
    keeper.keep(value)
    assert sys.getrefcount(value) == before + 1
    del value
    for index in (0, 1, len(content) - 1):
        assert keeper.byte_at(index) == content[index]
    assert keeper.byte_at(len(content)) == 0
    back = keeper.get()
    assert id(back) == address
    keeper.release_here()
    wait_until(before, lambda: sys.getrefcount(back))
    assert (back.encode() if isinstance(back, str) else back) == content


@pytest.mark.parametrize("release", ["release_here", "release_on_a_thread"])
def test_released_without_the_gil(keeper, release):
    assert keeper[release].releases_gil
    values = [str(index) * SHARED_MIN for index in range(100)]
    before = sys.getrefcount(values[0])
    for index in range(100):
        keeper.keep(values[index])
        keeper[release]()
    for index in range(100):
        wait_until(before, lambda index=index: sys.getrefcount(values[index]))


def test_released_by_threads_of_python(keeper):
    values = [str(index) * SHARED_MIN for index in range(4)]
    counts = [sys.getrefcount(values[index]) for index in range(4)]

    def work(value):
        for _ in range(200):
            assert anyfn.testing.echo(value) is value
            keeper.release_here()
            anyfn.convert([value] * 3)

    threads = [threading.Thread(target=work, args=(value,)) for value in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    del threads
    gc.collect()
    for index, count in enumerate(counts):
        wait_until(count, lambda index=index: sys.getrefcount(values[index]))


def test_a_kept_object_at_the_end_of_the_interpreter(library_file, run_python):
    program = f"""
import anyfn
module = anyfn.load_module({library_file!r})
module.keep("kept" * {SHARED_MIN})
kept = anyfn.convert(["y" * {SHARED_MIN}])
anyfn.register_func("shared_bytes.kept", lambda kept=kept: kept)
print(module.byte_at(0))
"""
    assert run_python(program) == f"{ord('k')}\n"


def test_lone_surrogates():
    with pytest.raises(ValueError, match="lone surrogates"):
        anyfn.testing.echo("\ud800" * SHARED_MIN)
