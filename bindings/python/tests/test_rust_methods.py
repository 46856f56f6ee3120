"""Tests of methods, constructors and settable fields of types that Rust code defines."""

import gc
import inspect
import pickle
import pydoc
import threading

import anyfn
import anyfn._core as core
import anyfn.testing
import pytest

INIT = core.type_attribute("__ffi_init__", core.type_index("testing.Account"))
Account = anyfn.type_info("testing.Account").cls
Savings = anyfn.type_info("testing.Savings").cls
MAKE = anyfn.get_global_func("ffi.MakeObjectFromPackedArgs")


def test_types_of_a_module():
    module = anyfn.testing._module
    assert {"testing.Account", "testing.Savings"} <= set(module.list_types())
    assert module.Account is Account and "Account" in dir(module)
    assert module.Account.__module__ == "anyfn.types" and pickle.loads(pickle.dumps(module.Account)) is Account
    assert module.Account("Ada").owner == "Ada"
    with pytest.raises(AttributeError, match="has no function `Acount`"):
        module.Acount  # noqa: B018
    assert anyfn.system_lib().list_types() == []


def test_methods_and_static_methods():
    one, other = Account("Ada"), Account("Bob", 5)
    assert (one.owner, one.cents, one.note) == ("Ada", 0, None)
    assert one.deposit(10) == 10 and one.deposit(10, 2) == 30 and one.deposit(cents=1, times=3) == 33
    assert one.transfer(other, cents=3) == one and (one.cents, other.cents) == (30, 8)
    assert Account.names([one, other]) == "Ada, Bob" and one.names([one, other], separator="+") == "Ada+Bob"
    assert Account.deposit(one, 1) == 31
    assert one.tell(lambda cents: cents + 1) == 32


IntPair = anyfn.type_info("testing.IntPair").cls


def test_methods_are_called_without_a_bound_method():
    pair = IntPair(2, 3)
    assert (pair.a, pair.b, pair.sum()) == (2, 3, 5)
    method = vars(IntPair)["sum"]
    assert method(pair) == method.__get__(pair)() == IntPair.sum(pair) == pair.sum.__call__() == 5
    assert inspect.ismethod(pair.sum) and pair.sum.__self__ is pair and pair.sum.__func__ == IntPair.sum
    account = Account("Ada")
    assert vars(Account)["deposit"](account, 2, times=2) == 4
    for wrong in (lambda: method(), lambda: method(pair, 1), lambda: method(account), lambda: pair.sum(x=1)):
        with pytest.raises(TypeError):
            wrong()
    for _ in range(100):
        # Specialised by the interpreter after some calls.
        assert pair.sum() == 5


def test_numbers_in_fields_that_never_change():
    for a in (0, -1, 2**62, -(2**63), 2**63 - 1):
        pair = IntPair(a, 1)
        assert pair.a == a and type(pair.a) is int
        assert anyfn.structural_equal(pair.a, a) and anyfn.replace(pair, b=a).b == a
    for value in (0.0, -1.5, float("inf"), 5e-324):
        assert anyfn.get_global_func("testing.make_point")(value, 1).x == value
    with pytest.raises(AttributeError):
        IntPair(1, 2).a = 3


def test_the_constructor_is_a_function_of_the_type():
    assert Account("Ada", note="x").note == "x" and Account(cents=7, owner="Bob").cents == 7
    with pytest.raises(ValueError, match="an account needs an owner"):
        Account("")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'owner'"):
        Account(cents=3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'cent'; did you mean 'cents'"):
        Account("Ada", cent=3)
    with pytest.raises(TypeError, match=r"(?s)argument #0 when calling: `testing.Account.open\(.*Expected `str` but got `int`"):
        Account(1)
    # Construction from fields does not call the constructor.
    assert MAKE("testing.Account", "owner", "").owner == ""


def test_arguments_by_name_behind_the_sentinel():
    kwargs = anyfn.get_global_func("ffi.GetKwargsObject")()
    made = INIT("Ada", kwargs, "note", "n")
    assert (made.owner, made.cents, made.note) == ("Ada", 0, "n")
    with pytest.raises(TypeError, match="unexpected keyword argument 'noot'"):
        INIT("Ada", kwargs, "noot", "n")
    with pytest.raises(TypeError, match="even number"):
        INIT("Ada", kwargs, "note")
    with pytest.raises(TypeError, match="expected the name of an argument as str, got int"):
        INIT("Ada", kwargs, 1, 2)


def test_signatures_and_documentation():
    assert str(inspect.signature(Account)) == "(owner: str, cents: int = 0, note: Optional[str] = None)"
    assert list(inspect.signature(Account.deposit).parameters) == ["self", "cents", "times"]
    assert list(inspect.signature(Account("Ada").deposit).parameters) == ["cents", "times"]
    assert str(inspect.signature(Account.names)).startswith("(accounts: ")
    assert Account.deposit.__doc__ == "Adds cents and returns the new balance." and Account.__doc__ == "A bank account."
    text = pydoc.plain(pydoc.render_doc(Account))
    for part in ("A bank account.", "Account(owner: str", "Adds cents", "Joins the names", "Arbitrary data of the account."):
        assert part in text, part
    # A constructor whose parameters are the fields.
    assert list(inspect.signature(Savings).parameters) == ["owner", "cents", "note", "others", "rate"]
    told = anyfn.type_info("testing.Account")
    assert {method.name: method.static for method in told.methods} == {
        "open": True, "deposit": False, "transfer": False, "tell": False, "names": True, "run": True
    }
    assert str(told.method("deposit").signature) == (
        "(self: anyfn.types.testing.Account, cents: int, times: int = 1) -> int"
    )
    assert "def deposit(self" in repr(told)


def test_the_class_is_found_and_pickled():
    import anyfn.types

    assert anyfn.types.testing.Account is Account and (Account.__module__, Account.__name__) == ("anyfn.types", "Account")
    assert repr(Savings) == "<class 'anyfn.types.testing.Savings'>" and "Savings" in dir(anyfn.types.testing)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(Account, protocol)) is Account
        again = pickle.loads(pickle.dumps([Account("Ada", 3), Account("Bob")], protocol))
        assert [(type(one), one.owner, one.cents) for one in again] == [(Account, "Ada", 3), (Account, "Bob", 0)]
    with pytest.raises(AttributeError, match="no native type 'testing.Acount' is registered; did you mean 'testing.Account'"):
        anyfn.types.testing.Acount
    with pytest.raises(AttributeError, match="no native type 'no_such_namespace' is registered"):
        anyfn.types.no_such_namespace


def test_types_without_members_have_no_class():
    import anyfn.types

    assert anyfn.types.ffi.Function is anyfn.PackedFunc and anyfn.types.ffi.Object is anyfn.Object
    assert anyfn.types.ffi.Array is anyfn.Array
    define = anyfn.get_global_func("ffi.TypeDefine")
    define("methods.empty", None, [], {})
    define("methods._hidden", None, [{"name": "x", "type": "int"}], {})
    with pytest.raises(AttributeError, match="^type `methods.empty` has no fields or methods of its own, so Python has no"):
        anyfn.types.methods.empty
    assert anyfn.types.methods._hidden.__name__ == "_hidden"
    with pytest.raises(AttributeError, match="has no attribute '__path__'"):
        anyfn.types.methods.__path__


def test_classes_of_the_package_are_found_first(run_python):
    program = "import anyfn.types; session = anyfn.types.rpc.Session; import anyfn.rpc; print(session is anyfn.rpc.Session)"
    assert run_python(program) == "True\n"


def test_errors_name_type_and_method():
    one = Account("Ada")
    with pytest.raises(TypeError, match=r"argument #1 when calling: `testing.Account.deposit\(0: testing.Account, 1: int"):
        one.deposit("x")
    with pytest.raises(OverflowError, match=r"testing.Account.deposit"):
        one.deposit(1, -1)
    with pytest.raises(ValueError, match="cannot deposit"):
        one.deposit(-1)
    with pytest.raises(TypeError, match=r"argument #0 when calling: `testing.Account.deposit"):
        Account.deposit(anyfn.testing.make_point(0, 0), 1)
    with pytest.raises(TypeError, match="`testing.Account.deposit.*Expected 2 to 3 but got 1"):
        one.deposit()
    with pytest.raises(AttributeError):
        one.depozit


def test_methods_of_a_base():
    savings = Savings("Ada", 200, rate=5)
    assert savings.deposit(200) == 400 and savings.interest() == 20.0 and isinstance(savings, Account)
    assert Account.names([savings, Account("Bob")]) == "Ada, Bob"
    assert not hasattr(Account("Bob"), "interest")


def test_cells_are_set_by_everybody():
    one = Account("Ada")
    one.note = "a text of more than seven letters"
    assert one.note.startswith("a text")
    one.note = None
    assert one.note is None and "writable" in anyfn.type_info(one).field("note").flags
    with pytest.raises(TypeError, match="str"):
        one.note = 5
    one.others = [Account("Bob"), one]
    assert [other.owner for other in one.others] == ["Bob", "Ada"]
    with pytest.raises(TypeError, match="testing.Account"):
        one.others = [1]
    one.others = []
    assert str(anyfn.type_info(one).field("note").type) == "Optional[str]"


def test_cells_from_many_threads():
    one = Account("Ada")
    texts = {f"text number {number} of some" for number in range(4)}
    wrong = []

    def work(text):
        for _ in range(3000):
            one.note = text
            if one.note not in texts:
                wrong.append(one.note)

    threads = [threading.Thread(target=work, args=(text,)) for text in texts]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong and one.note in texts


def test_a_class_of_python_has_the_methods():
    @anyfn.object("test_rust_methods.Joint")
    class Joint(Account):
        second: str = anyfn.field(kw_only=True)

        def owners(self):
            return f"{self.owner} and {self.second}"

        def deposit_all(self, amounts: list):
            return [self.deposit(amount) for amount in amounts][-1]

    both = Joint("Ada", 5, second="Bob")
    assert (both.owner, both.cents, both.note, both.second) == ("Ada", 5, None, "Bob")
    assert both.deposit(2) == 7 and both.owners() == "Ada and Bob" and both.deposit_all([1, 2]) == 10
    assert isinstance(both, Account) and Account.names([both, Account("Eve")]) == "Ada, Eve"
    assert Account("Eve", 9).transfer(both, 4).cents == 5 and both.cents == 14
    assert type(anyfn.testing.echo(both)) is Joint
    both.note = "kept by Rust"
    assert anyfn.replace(both, second="Kim").note == "kept by Rust"
    call = anyfn.get_global_func("testing.call_method")
    assert call(both, "owners") == "Ada and Bob" and call(both, "deposit", 1, 2) == 16
    with pytest.raises(AttributeError, match="no method `owner`; did you mean `owners`"):
        call(both, "owner")
    with pytest.raises(TypeError, match="str"):
        Joint(1, second="x")
    alive = anyfn.get_global_func("testing.live_objects")
    del both
    gc.collect()
    before = alive()
    for _ in range(20):
        Joint("a name of more than seven letters", second="Bob").note = "a note of more than seven letters"
    gc.collect()
    assert alive() == before


def test_a_method_of_python_in_place_of_one_of_rust():
    @anyfn.object("test_rust_methods.Closed")
    class Closed(Account):
        def deposit(self, cents: int):
            raise PermissionError("closed")

    closed = Closed("Ada")
    with pytest.raises(PermissionError):
        closed.deposit(1)
    with pytest.raises(PermissionError):
        anyfn.get_global_func("testing.call_method")(closed, "deposit", 1)
    assert Account.deposit(closed, 1) == 1


def test_methods_by_name_from_rust():
    call = anyfn.get_global_func("testing.call_method")
    one = Savings("Ada", 300, rate=1)
    assert call(one, "interest") == 3.0 and call(one, "deposit", 1) == 301 and call(one, "names", [one]) == "Ada"
    with pytest.raises(AttributeError, match="testing.Savings has no method `depozit`; did you mean `deposit`"):
        call(one, "depozit", 1)
    get, set_field = anyfn.get_global_func("testing.get_field"), anyfn.get_global_func("testing.set_field")
    assert get(one, "rate") == 1.0
    set_field(one, "note", "x")
    assert one.note == "x"
    with pytest.raises(AttributeError, match="has no field `ownr`; did you mean `owner`"):
        get(one, "ownr")
    with pytest.raises(AttributeError, match="has no field `nota`; did you mean `note`"):
        set_field(one, "nota", 1)
    with pytest.raises(AttributeError, match="`owner` of testing.Savings is read-only"):
        set_field(one, "owner", "x")
    assert anyfn.get_global_func("testing.fields_text")(one) == (
        "owner: str = Ada, cents: int = 301, note: str = x, others: object = ffi.Array, rate: float = 1"
    )
