"""Tests of named arguments, defaults, and the metadata of functions."""

import copy
import ctypes
import functools
import gc
import inspect
import json
import pickle
import pydoc
import sys
import types
import typing
import weakref

import anyfn
import anyfn.testing
import numpy as np
import pytest


@pytest.fixture
def defaults():
    return anyfn.get_global_func("testing.defaults")


@pytest.fixture
def register():
    names = []

    def register(name, func):
        names.append(name)
        return anyfn.register_func(name, func, override=True)

    yield register
    for name in names:
        anyfn.remove_global_func(name)


# ---- Calls


@pytest.mark.parametrize(
    "args, kwargs, expected",
    [
        ((1,), {}, "1 2 x None [1, 2]"),
        ((1, 5), {}, "1 5 x None [1, 2]"),
        ((), {"a": 1}, "1 2 x None [1, 2]"),
        ((1,), {"b": 3}, "1 3 x None [1, 2]"),
        ((), {"b": 3, "a": 1}, "1 3 x None [1, 2]"),
        ((1,), {"s": "y"}, "1 2 y None [1, 2]"),
        ((1,), {"v": [7]}, "1 2 x None [7]"),
        ((1,), {"v": [], "o": 1.5, "s": "a longer text than seven"}, "1 2 a longer text than seven Some(1.5) []"),
        ((1, 2, "x", None, [3]), {}, "1 2 x None [3]"),
    ],
)
def test_keyword_calls(defaults, args, kwargs, expected):
    assert defaults(*args, **kwargs) == expected
    assert defaults(*args, **kwargs) == expected


def test_names_made_at_run_time(defaults):
    assert defaults(1, **{"".join(["", "s"]): "y", "".join(chr(c) for c in [118]): [1]}) == "1 2 y None [1]"


@pytest.mark.parametrize(
    "args, kwargs, message",
    [
        ((1,), {"bb": 2}, "testing.defaults() got an unexpected keyword argument 'bb'; did you mean 'b'?"),
        ((1, 2), {"bb": 2}, "testing.defaults() got an unexpected keyword argument 'bb'"),
        ((1,), {"something": 2}, "testing.defaults() got an unexpected keyword argument 'something'"),
        ((1,), {"a": 2}, "testing.defaults() got multiple values for argument 'a'"),
        ((), {"b": 2}, "testing.defaults() missing 1 required positional argument: 'a'"),
        ((1, 2, "", None, [], 6), {"b": 1}, "testing.defaults() takes from 1 to 5 positional arguments but 6 were given"),
    ],
)
def test_wrong_keyword_calls(defaults, args, kwargs, message):
    with pytest.raises(TypeError) as caught:
        defaults(*args, **kwargs)
    assert str(caught.value) == message
    assert defaults(1) == "1 2 x None [1, 2]"


def test_all_missing_arguments_are_named():
    with pytest.raises(TypeError, match=r"testing.add3_i64\(\) missing 2 required positional arguments: 'a' and 'c'$"):
        anyfn.testing.add3_i64(b=1)
    saxpy = anyfn.testing.saxpy
    with pytest.raises(TypeError, match="missing 2 required positional arguments: 'a' and 'x'"):
        saxpy(y=np.zeros(1, "float32"))


def test_wrong_number_of_positional_arguments(defaults):
    with pytest.raises(TypeError, match="Expected 1 to 5 but got 0 arguments"):
        defaults()
    with pytest.raises(TypeError, match="Expected 1 to 5 but got 6 arguments"):
        defaults(1, 2, "", None, [], 6)
    with pytest.raises(TypeError, match=r"Expected 2 but got 1 arguments"):
        anyfn.testing.add_i64(1)


def test_wrong_types_name_the_argument(defaults):
    with pytest.raises(TypeError, match="argument #1"):
        defaults(1, b="x")
    with pytest.raises(ValueError, match=r"argument 's' \(#2\) of testing.defaults"):
        defaults(1, s="\ud800")


def test_functions_that_tell_no_names():
    with pytest.raises(TypeError, match=r"testing.nop\(\) takes no keyword arguments: its signature does not contain the names"):
        anyfn.testing.nop(a=1)
    functor = anyfn.get_global_func("ffi.FunctionListGlobalNamesFunctor")()
    with pytest.raises(TypeError, match="takes no keyword arguments"):
        functor(index=1)


def test_functions_without_a_signature(register):
    safe_call = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 2, ctypes.c_int32, ctypes.c_void_p)(lambda *_: 0)
    make = anyfn.get_global_func("ffi.FunctionFromExternC")
    f = make(None, ctypes.cast(safe_call, ctypes.c_void_p), None)
    register("test.unsigned", f)
    f = anyfn.get_global_func("test.unsigned")
    assert f(1, 2) is None
    with pytest.raises(TypeError) as caught:
        f(1, b=2)
    assert str(caught.value) == (
        "test.unsigned() takes no keyword arguments: it was created without a signature, so the names of its arguments "
        "are unknown"
    )
    assert f.signature is None and f.__doc__ is None and f.__annotations__ == {}
    assert repr(f) == "<anyfn.PackedFunc test.unsigned>"
    with pytest.raises(ValueError):
        inspect.signature(f)
    pydoc.render_doc(f)


class Any16(ctypes.Structure):
    _fields_ = [("type_index", ctypes.c_int32), ("len", ctypes.c_uint32), ("text", ctypes.c_char * 8)]


def test_a_signature_that_cannot_be_read():
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.POINTER(Any16))
    small_text = 11

    @kind
    def metadata(_self, _args, _count, result):
        result[0].type_index, result[0].len, result[0].text = small_text, 5, b"{oops"
        return 0

    call = kind(lambda *_: 0)
    runtime = ctypes.CDLL(anyfn._core.LIBRARY)
    for name, function in ((b"__tvm_ffi_odd_signature", call), (b"__tvm_ffi__metadata_odd_signature", metadata)):
        assert runtime.TVMFFIEnvModRegisterSystemLibSymbol(name, ctypes.cast(function, ctypes.c_void_p)) == 0
    odd = anyfn.system_lib("")["odd_signature"]
    # The runtime keeps these symbols for the lifetime of the process.
    test_a_signature_that_cannot_be_read.kept = call, metadata
    assert odd.signature == "{oops"
    assert odd(1) is None
    with pytest.raises(ValueError, match="odd_signature: the function's signature is not valid JSON"):
        odd(a=1)
    assert repr(odd) == "<anyfn.PackedFunc odd_signature>"
    with pytest.raises(ValueError):
        inspect.signature(odd)
    with pytest.raises(ValueError, match="argument #0 of odd_signature"):
        odd("\ud800")


def test_functions_of_a_library():
    scale = anyfn.testing._module["scale"]
    assert scale(3) == 6 and scale(3, offset=1) == 7 and scale(offset=1, x=2, factor=3.0) == 7
    assert scale.releases_gil
    with pytest.raises(TypeError, match="unexpected keyword argument 'ofset'; did you mean 'offset'"):
        scale(1, ofset=2)
    assert str(inspect.signature(scale)) == "(x: float, factor: float = 2.0, offset: float = 0.0) -> float"
    assert scale.__doc__ == "Returns `x * factor + offset`."


def test_calls_by_other_means(defaults):
    assert functools.partial(defaults, s="y")(1) == "1 2 y None [1, 2]"
    assert type(defaults).__call__(defaults, 1, s="y") == "1 2 y None [1, 2]"
    defaults.releases_gil = True
    assert defaults(1, s="y") == "1 2 y None [1, 2]"


# ---- Python functions


def test_python_functions_take_names_as_they_say(register):
    def f(a, b=2, *rest, key=None, **more):
        return repr((a, b, rest, key, more))

    packed = register("test.sig_f", f)
    assert packed(1, b=3) == "(1, 3, (), None, {})"
    assert packed(1, 2, 3, key="k", other=4) == "(1, 2, (3,), 'k', {'other': 4})"
    with pytest.raises(TypeError, match="multiple values for argument 'a'"):
        packed(1, a=2)


def test_python_functions_get_the_same_values_by_name():
    seen = []
    packed = anyfn.convert(lambda x: seen.append(x))
    array = np.arange(3.0)
    for value in (array, [1, 2], {"a": 1}, "text", packed, 1.5):
        packed(value)
        packed(x=value)
    for by_place, by_name in zip(seen[::2], seen[1::2]):
        assert type(by_place) is type(by_name)
    assert seen[0] is array and seen[1] is array


def test_keyword_calls_of_python_functions_release_everything(flat_memory):
    packed = anyfn.convert(lambda x, y=None: x)

    def body(count):
        for _ in range(count):
            packed(x="some text that is long", y=[1, 2])
            anyfn.testing.defaults(1, s="some text that is long", v=[1])

    flat_memory(body, 20000)


def test_errors_of_python_functions_are_the_same_objects():
    error = KeyError("x")

    def f(x):
        raise error

    with pytest.raises(KeyError) as caught:
        anyfn.convert(f)(x=1)
    assert caught.value is error


def test_python_functions_tell_their_signature(register):
    def f(
        a: int,
        b: float = 1.5,
        s: str = "x",
        o: typing.Optional[bytes] = None,
        v: list = [1, 2],  # noqa: B006
        d: typing.Dict[str, int] = {"k": 1},  # noqa: B006
        t: anyfn.Tensor = object(),
        *,
        key=1,
    ) -> bool:
        """What it does."""
        return True

    packed = register("test.sig_told", f)
    told = json.loads(packed.signature)
    types_ = json.loads(told["type_schema"])
    assert types_["named_args"]["return"] == [{"type": "bool"}]
    assert types_["named_args"]["params"] == [
        {"type": "int"},
        {"type": "float"},
        {"type": "ffi.String"},
        {"type": "Optional", "args": [{"type": "ffi.Bytes"}]},
        {"type": "ffi.Array"},
        {"type": "ffi.Map", "args": [{"type": "ffi.String"}, {"type": "int"}]},
        {"type": "ffi.Tensor"},
    ]
    assert told["arg_names"] == list("absovdt")
    assert told["arg_defaults"] == {"b": 1.5, "s": "x", "o": None, "v": [1, 2], "d": {"k": 1}}
    assert told["arg_optional"] == ["t"] and told["keyword_only"] == ["key"]
    assert told["doc"] == "What it does." and told["name"] == "f"
    assert anyfn.get_global_func("ffi.GetGlobalFuncMetadata")("test.sig_told") == packed.signature
    assert inspect.signature(packed) == inspect.signature(f)
    assert packed.__annotations__ == f.__annotations__


def test_the_source_of_python_functions_is_not_in_signatures():
    class Handler:
        def on_call(self, x):
            return x

        def __call__(self, x):
            return x

    def source(callable):
        packed = anyfn.convert(callable)
        assert __file__ not in (packed.signature or "")
        return anyfn.get_global_func("anyfn.python_source")(packed)

    def line(function):
        return f'File "{__file__}", line {function.__code__.co_firstlineno}, in {function.__name__}'

    assert source(line) == line(line)
    assert source(Handler().on_call) == line(Handler.on_call)
    assert source(Handler()) == line(Handler.__call__)
    assert source(functools.partial(line, 1)) == line(line)
    assert source(functools.wraps(line)(lambda *args: None)) == line(line)
    assert source(len) is None and source(anyfn.get_global_func("ffi.FunctionName")) is None


def test_the_result_of_a_coroutine_function():
    async def slow(x: int) -> int:
        return x

    packed = anyfn.convert(slow)
    schema = json.loads(json.loads(packed.signature)["type_schema"])
    assert schema["named_args"]["return"] == [{"type": "Coroutine", "args": [{"type": "int"}]}]
    assert inspect.signature(packed) == inspect.signature(slow)


def test_types_of_objects_in_signatures():
    Account = anyfn.type_info("testing.Account").cls

    class Plain:
        pass

    def f(account: Account, more: typing.List[Account], plain: Plain, any_object: anyfn.Object) -> Account:
        return account

    types_ = json.loads(json.loads(anyfn.convert(f).signature)["type_schema"])["named_args"]
    account = {"type": "testing.Account"}
    assert types_["return"] == [account]
    assert types_["params"] == [
        account, {"type": "ffi.Array", "args": [account]}, {"type": "Any"}, {"type": "ffi.Object"}
    ]  # fmt: skip


def test_postponed_and_strange_annotations():
    scope = {"anyfn": anyfn, "typing": typing}
    source = (
        "from __future__ import annotations\n"
        "def f(a: int, b: typing.List[str], *more: int) -> anyfn.Array: ...\n"
        "def g(a: NotThere, b: 5, c: typing.Callable[[int], int], d: typing.Tuple[int, ...]) -> None: ...\n"
    )
    exec(compile(source, "later", "exec", dont_inherit=True), scope)
    told = json.loads(anyfn.convert(scope["f"]).signature)
    assert json.loads(told["type_schema"])["named_args"] == {
        "return": [{"type": "ffi.Array"}],
        "params": [{"type": "int"}, {"type": "ffi.Array", "args": [{"type": "ffi.String"}]}],
    }
    assert told["variadic"] is True
    told = json.loads(anyfn.convert(scope["g"]).signature)
    assert told["arg_names"] == list("abcd")


def test_callables_that_tell_nothing():
    assert anyfn.convert(dict).signature is None or "arg_names" not in anyfn.convert(dict).signature
    told = json.loads(anyfn.convert(lambda *args: None).signature)
    assert told["type_schema"] == '{"type":"ffi.Function"}' and told["variadic"]

    class Strange:
        __signature__ = 5

        def __call__(self):
            return 1

    assert anyfn.convert(Strange()).signature is None
    assert anyfn.convert(Strange())() == 1


def test_named_calls_of_any_language(register):
    call = anyfn.get_global_func("ffi.FunctionCallNamed")
    assert call(anyfn.testing.defaults, [1], {"s": "y"}) == "1 2 y None [1, 2]"
    assert call(anyfn.testing.add_i64, [1, 2], {}) == 3
    packed = register("test.sig_named", lambda a, b=5, *, key=1: (a, b))
    assert list(call(packed, [], {"a": 3})) == [3, 5]
    assert list(call(packed, [1], {"b": 3})) == [1, 3]
    with pytest.raises(TypeError, match="takes 'key' as a keyword-only argument"):
        call(packed, [1], {"key": 2})
    with pytest.raises(TypeError, match="unexpected keyword argument 'bb'; did you mean 'b'"):
        call(packed, [1], {"bb": 2})
    hole = register("test.sig_hole", lambda a, b=object(), c=1: c)
    assert call(hole, [1], {}) == 1
    with pytest.raises(TypeError, match="requires argument 'b' if a later one is given"):
        call(hole, [1], {"c": 2})


# ---- What functions tell


def test_inspect_signature(defaults):
    signature = inspect.signature(defaults)
    assert list(signature.parameters) == ["a", "b", "s", "o", "v"]
    parameters = signature.parameters
    assert all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters.values())
    assert parameters["a"].annotation is int and parameters["a"].default is inspect.Parameter.empty
    assert parameters["s"].annotation is str and parameters["s"].default == "x"
    assert parameters["o"].annotation == typing.Optional[float] and parameters["o"].default is None
    assert parameters["v"].default == [1, 2]
    assert signature.return_annotation is str
    assert signature.bind(1, s="y").arguments["s"] == "y"
    assert inspect.signature(anyfn.testing.saxpy).parameters["x"].annotation is anyfn.Tensor
    assert str(inspect.signature(anyfn.testing.nop)).startswith("(*args)")
    # The names are unknown, so the parameters are positional only.
    inner = anyfn.get_global_func("ffi.FunctionListGlobalNamesFunctor")()
    assert str(inspect.signature(inner)) == "(arg0: int, /) -> Any"


def test_a_signature_is_computed_once(defaults):
    assert inspect.signature(defaults) is inspect.signature(defaults)
    assert inspect.signature(defaults) == inspect.signature(anyfn.get_global_func(anyfn._core.function_key(defaults)))


def test_a_signature_shows_the_current_classes():
    point_x = anyfn.get_global_func("testing.point_x")
    index = anyfn._core.type_index("testing.Point")
    before = anyfn._core.registered_class(index)
    assert inspect.signature(point_x).parameters["point"].annotation is before

    class Other(anyfn.Object):
        __slots__ = ()

    anyfn._core.register_class(index, Other)
    try:
        assert inspect.signature(point_x).parameters["point"].annotation is Other
    finally:
        anyfn._core.register_class(index, before)
    assert inspect.signature(point_x).parameters["point"].annotation is before


def test_looking_up_a_function():
    get = anyfn.get_global_func
    assert get is anyfn._core.get_global_func and get.__module__ == "anyfn" and get.__name__ == "get_global_func"
    assert str(inspect.signature(get)) == "(name, allow_missing=False)"
    assert get("testing.nop") == get(name="testing.nop", allow_missing=False) == get("testing.nop", True)
    assert get("no.such", True) is get("no.such", allow_missing=1) is get(allow_missing=True, name="no.such") is None
    assert get(**{"".join(["na", "me"]): "testing.nop"}) == get("testing.nop")
    for error, call in [
        (ValueError, lambda: get("no.such")),
        (ValueError, lambda: get("no.such", 0)),
        (ValueError, lambda: get("\ud800")),
        (TypeError, lambda: get()),
        (TypeError, lambda: get(5)),
        (TypeError, lambda: get(b"testing.nop")),
        (TypeError, lambda: get("testing.nop", True, 1)),
        (TypeError, lambda: get("testing.nop", name="testing.nop")),
        (TypeError, lambda: get("testing.nop", missing=True)),
        (TypeError, lambda: get(allow_missing=True)),
    ]:
        with pytest.raises(error):
            call()
    source = inspect.getsource(anyfn._registry)
    assert get.__doc__.split() == [word for word in get.__doc__.split() if word in source]
    assert pickle.loads(pickle.dumps(get)) is get


def test_help(defaults):
    text = pydoc.plain(pydoc.render_doc(defaults))
    # Some versions show one argument per line, and not all write `typing.`.
    shown = "".join(text.replace("typing.", "").split())
    assert "testing.defaults(a:int,b:int=2,s:str='x',o:Optional[float]=None,v:anyfn" in shown
    assert "Returns all its arguments as a string. `b` and the parameters after it are optional." in text
    assert inspect.isroutine(defaults) and not inspect.isclass(defaults)
    assert inspect.getdoc(defaults).startswith("Returns all its arguments")

    def greet(name):
        """Says hello."""

    text = pydoc.plain(pydoc.render_doc(anyfn.convert(greet)))
    assert "greet(name)" in text and "Says hello." in text
    assert "A function of any language" in anyfn.PackedFunc.__doc__


def test_attributes(defaults):
    assert defaults.__module__ == "anyfn"
    assert defaults.__name__ == defaults.__qualname__ == "testing.defaults"
    assert defaults.__text_signature__ == "(a, b=2, s='x', o=None, v=[1, 2])"
    assert defaults.__annotations__["a"] is int and defaults.__annotations__["return"] is str
    assert repr(anyfn.get_global_func("testing.add_i64")) == "<anyfn.PackedFunc testing.add_i64(a: int, b: int) -> int>"
    assert repr(anyfn.get_global_func("testing.array_sum")).endswith("(values: Array[int]) -> int>")
    defaults.own = 5
    assert defaults.own == 5 and vars(defaults) == {"own": 5}
    del defaults.own
    with pytest.raises(AttributeError):
        defaults.own
    for name in ("__doc__", "__qualname__", "__annotations__", "__text_signature__", "__module__"):
        setattr(defaults, name, {} if name == "__annotations__" else "other")
        assert getattr(defaults, name) in ({}, "other")
        delattr(defaults, name)
        assert getattr(defaults, name) not in ({}, "other")


def test_functools():
    add = anyfn.get_global_func("testing.add_i64")

    @functools.wraps(add)
    def wrapper(*args):
        return add(*args)

    assert wrapper.__name__ == "testing.add_i64" and wrapper.__doc__ == add.__doc__
    assert inspect.signature(wrapper) == inspect.signature(add)

    def model(x, y):
        """The model."""

    model.extra = 1
    functools.update_wrapper(add, model)
    assert add.__name__ == "model" and add.__doc__ == "The model." and add.extra == 1
    assert add.__wrapped__ is model and "model" in add.__qualname__
    assert add(1, 2) == 3

    cached = functools.lru_cache(maxsize=None)(anyfn.get_global_func("testing.add_i64"))
    assert cached(1, 2) == cached(1, 2) == 3
    assert cached.cache_info().hits == 1

    general = functools.singledispatch(anyfn.get_global_func("testing.type_key"))
    general.register(int, lambda x: "an int")
    assert general(1) == "an int" and general("x") == "ffi.SmallStr"
    assert sorted([3, 1, 2], key=functools.cmp_to_key(anyfn.convert(lambda a, b: a - b))) == [1, 2, 3]


def test_functions_in_a_class_are_not_bound():
    class Adder:
        add = anyfn.testing.add_i64

    assert Adder.add is anyfn.testing.add_i64
    assert Adder().add(1, 2) == Adder.add(a=1, b=2) == 3


def test_identity():
    a, b = anyfn.get_global_func("testing.echo"), anyfn.get_global_func("testing.echo")
    assert a == b and hash(a) == hash(b) and a is not b and len({a, b}) == 1
    assert a != anyfn.get_global_func("testing.nop")
    assert copy.copy(a) is a and copy.deepcopy({"f": a})["f"] is a


def test_weak_references():
    f = anyfn.get_global_func("testing.echo")
    dead = []
    ref = weakref.ref(f, dead.append)
    assert ref() is f
    del f
    gc.collect()
    assert ref() is None and dead == [ref]


def test_attributes_in_a_cycle_are_collected():
    def model():
        """Refers to the function object that wraps this function."""
        return packed

    packed = functools.update_wrapper(anyfn.get_global_func("testing.echo"), model)
    packed.own = packed
    ref = weakref.ref(packed)
    del packed, model
    gc.collect()
    assert ref() is None


def test_pickle(register):
    register("test.sig_pickled", lambda x: x + 1)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        for name in ("testing.add_i64", "test.sig_pickled"):
            f = anyfn.get_global_func(name)
            assert pickle.loads(pickle.dumps(f, protocol)) == f
    kept = register("test.sig_kept", lambda: 1)
    assert pickle.loads(pickle.dumps(kept))() == 1
    assert pickle.loads(pickle.dumps(anyfn.testing.add_i64))(1, 2) == 3
    with pytest.raises(TypeError, match="cannot pickle the function 'model': only functions that are registered"):

        def model():
            """Not registered."""

        pickle.dumps(anyfn.convert(model))
    register("test.sig_kept", lambda: 2)
    with pytest.raises(TypeError, match="refers to another function"):
        pickle.dumps(kept)


def test_read_only_arrays():
    array = np.arange(4, dtype="float32")
    array.flags.writeable = False
    assert anyfn.testing.tensor_sum(array) == 6.0
    assert anyfn.testing.tensor_sum(x=array) == 6.0
    y = np.zeros(4, "float32")
    anyfn.testing.saxpy(2.0, array, y)
    assert y.tolist() == [0, 2, 4, 6]
    with pytest.raises(ValueError, match=r"argument 'y' \(#2\) of testing.saxpy: the array is read-only"):
        anyfn.testing.saxpy(2.0, y, array)
    with pytest.raises(ValueError, match="read-only"):
        anyfn.testing.tensor_sum([array])


def test_init_api():
    with pytest.raises(ValueError, match="no module 'nope' is imported"):
        anyfn._ffi._init_api("nope")
    module = types.ModuleType("sig_module")
    sys.modules["sig_module"] = module
    try:
        anyfn._ffi._init_api("testing", "sig_module")
    finally:
        del sys.modules["sig_module"]
    assert module.defaults.__name__ == "defaults"
    assert module.defaults(1, s="y") == "1 2 y None [1, 2]"
    assert repr(module.defaults).startswith("<anyfn.PackedFunc testing.defaults(a: int, ")


def test_nothing_heavy_is_imported(run_python):
    out = run_python(
        "import sys; before = set(sys.modules); import anyfn; f = anyfn.convert(len); "
        "print(sorted({'inspect', 'typing', 'json', 'functools'} & (set(sys.modules) - before)))"
    )
    assert out.strip() == "[]"


def test_the_decorator_by_options_alone():
    @anyfn.register_func(override=True)
    def by_options(x):
        return x + 1

    again = anyfn.register_func(override=True)(by_options)
    assert anyfn.get_global_func("by_options") == again == by_options and by_options(1) == 2
    with pytest.raises(RuntimeError, match="by_options"):
        anyfn.register_func()(by_options)
    anyfn.remove_global_func("by_options")
