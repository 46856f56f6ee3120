"""Tests of types of a Rust plugin that is unmapped and loaded again, possibly from another file at another address."""

import os
import shutil
import subprocess
import sys

import pytest

PROGRAM = """
import gc, os, sys
import anyfn

reap = anyfn.get_global_func("ffi.ModuleReap")
first, second = sys.argv[1:]


def is_mapped(path):
    with open("/proc/self/maps") as maps:
        return any(line.rstrip().endswith(path) for line in maps)


def gone(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except RuntimeError as error:
        assert "was unloaded; load it again" in str(error), error
    else:
        raise AssertionError("it works")


module = anyfn.load_module(first)
Account = anyfn.type_info("testing.Account").cls
Savings = anyfn.type_info("testing.Savings").cls


@anyfn.object("unload.Joint")
class Joint(Account):
    second: str = anyfn.field(kw_only=True)


def use():
    one = Account("a name of more than seven letters", cents=5)
    one.note = "a note of more than seven letters"
    assert (one.deposit(2, times=2), one.cents, one.note[:6]) == (9, 9, "a note")
    savings = Savings("Ada", 200, rate=5)
    assert savings.interest() == 10.0 and savings.deposit(1) == 201 and len(savings.others) == 0
    both = Joint("Ada", second="Bob")
    both.note = "of both, and long enough"
    assert both.deposit(3) == 3 and both.note.startswith("of both") and len(both.others) == 0
    assert Account.names([one, both]) == "a name of more than seven letters, Ada"
    assert anyfn.load_json(anyfn.save_json(savings)).rate == 5.0
    assert repr(savings).startswith("testing.Savings(owner=")
    return one, both


method = Account("Ada").deposit
kept = use()
del module
assert reap() == [] and is_mapped(first)
assert kept[0].deposit(1) == 10 and kept[1].note.startswith("of both") and method(1) == 1
del kept, method
gc.collect()
assert list(reap()) == [first] and not is_mapped(first)
gone(Account, "Ada")
gone(Savings, "Ada", rate=1)
gone(Account.names, [])
gone(Joint, "Ada", second="x")
for path in (second, first, second):
    module = anyfn.load_module(path)
    use()
    del module
    gc.collect()
    assert list(reap()) == [path] and not is_mapped(path)
    gone(Account, "Ada")
# A newer build beside the older one: its methods are used, and the older one may go first.
old = anyfn.load_module(first)
kept = use()
os.replace(second, first)
new = anyfn.load_module(first)
assert new != old
use()
del kept, old
gc.collect()
reap()
use()
print("done")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc what is mapped")
def test_a_plugin_is_unmapped_and_comes_back(tmp_path):
    library = os.environ["ANYFN_TESTING_LIB"]
    copies = [str(tmp_path / name) for name in ("first.so", "second.so")]
    for copy in copies:
        shutil.copy(library, copy)
    done = subprocess.run([sys.executable, "-c", PROGRAM, *copies], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout == "done\n", f"{done.returncode}\n{done.stdout}\n{done.stderr}"
