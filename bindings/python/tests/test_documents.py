"""Runs the Python snippets of TVM's documents on PackedFunc. Only the imports of the snippets are changed."""

import sys
import types

import anyfn as tvm
import anyfn.testing
import pytest


@pytest.fixture(autouse=True)
def registered_natively():
    """Registers in Python the functions that TVM's documents register in C++."""

    def callhello(f):
        f("hello world")

    tvm.register_func("myadd", lambda a, b: a + b, override=True)
    tvm.register_func("callhello", callhello, override=True)
    yield
    for name in ("myadd", "callhello"):
        tvm.remove_global_func(name)


def test_myadd(capsys):
    myadd = tvm.get_global_func("myadd")
    # prints 3
    print(myadd(1, 2))
    assert capsys.readouterr().out == "3\n"


def test_callhello(capsys):
    def callback(msg):
        print(msg)

    # convert to PackedFunc
    f = tvm.convert(callback)
    callhello = tvm.get_global_func("callhello")
    # prints hello world
    callhello(f)
    assert capsys.readouterr().out == "hello world\n"


def test_register_func_as_decorator_with_a_name():
    @tvm._ffi.register_func("relay.backend.lower_call")
    def lower_call(x):
        return x + 1

    assert isinstance(lower_call, tvm.PackedFunc)
    assert tvm.get_global_func("relay.backend.lower_call")(1) == 2
    assert "relay.backend.lower_call" in tvm._ffi.list_global_func_names()
    tvm._ffi.remove_global_func("relay.backend.lower_call")
    assert tvm.get_global_func("relay.backend.lower_call", allow_missing=True) is None


def test_register_func_as_decorator_without_a_name():
    @tvm.register_func
    def document_plain(x):
        return x * 2

    assert tvm.get_global_func("document_plain")(4) == 8
    tvm.remove_global_func("document_plain")


def test_register_func_by_name_and_function():
    assert tvm.register_func("document.f", lambda: 1)() == 1
    with pytest.raises(RuntimeError, match="document.f"):
        tvm.register_func("document.f", lambda: 2)
    assert tvm.get_global_func("document.f")() == 1
    tvm.register_func("document.f", lambda: 3, override=True)
    assert tvm.get_global_func("document.f")() == 3
    tvm.remove_global_func("document.f")


def test_register_func_wants_a_name():
    with pytest.raises(ValueError, match="expect string function name"):
        tvm.register_func(1, lambda: 1)


def test_missing_function():
    with pytest.raises(ValueError, match="Cannot find global function no.such.function"):
        tvm.get_global_func("no.such.function")
    assert tvm.get_global_func("no.such.function", True) is None


def test_init_api():
    """Runs the file ``relay/_ffi_api.py``, which TVM's documents show."""
    module = types.ModuleType("document_ffi_api")
    sys.modules[module.__name__] = module
    tvm.register_func("relay.ir.Var", lambda name: "var " + name, override=True)
    tvm.register_func("relay.ir.sub.Call", lambda: 0, override=True)
    tvm.register_func("relay.irrelevant", lambda: 0, override=True)
    source = '"""FFI APIs for Relay program IR."""\nimport anyfn as tvm\ntvm._ffi._init_api("relay.ir", __name__)\n'
    exec(compile(source, "_ffi_api.py", "exec"), module.__dict__)
    assert module.Var("x") == "var x"
    assert module.Var.__name__ == "Var"
    assert module.Var.__doc__ == "TVM PackedFunc Var. "
    assert [name for name in vars(module) if not name.startswith("__")] == ["tvm", "Var"]
    for name in ("relay.ir.Var", "relay.ir.sub.Call", "relay.irrelevant"):
        tvm.remove_global_func(name)
    del sys.modules[module.__name__]
