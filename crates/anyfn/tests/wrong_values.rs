//! Tests of the errors for values of the wrong type: each message names the value.

use std::sync::{Mutex, PoisonError};

use anyfn::{
    Any, Args, Cell, DType, Dict, Error, List, Map, Names, Object, PackedFunc, Ref, Result, String,
    TypedPackedFunc, registry,
};
use anyfn_core as _;

fn any(value: impl anyfn::IntoAny) -> Any {
    Any::new(value).unwrap()
}

fn error<T>(result: Result<T>) -> Error {
    match result {
        Ok(_) => panic!("the value has the right type"),
        Err(error) => error,
    }
}

fn message<T>(result: Result<T>) -> std::string::String {
    error(result).to_string()
}

fn named(function: &'static str, result: Any) -> PackedFunc {
    let names = Names { function, ..Names::default() };
    TypedPackedFunc::named(names, move |_: i64| result.clone()).into()
}

#[test]
fn a_result_names_its_function() {
    let text = named("wrong.text", any("x"));
    let expected = "TypeError: result of `wrong.text`: expected `int` but got `str`";
    assert_eq!(message(text.call_to::<i64>((1,))), expected);
    let typed = text.typed::<fn(i64) -> i64>();
    assert_eq!(message(typed.call(1)), expected);
    assert_eq!(message(typed.into_fn()(1)), expected);
    assert_eq!(
        message(named("wrong.large", any(300)).call_to::<u8>((1,))),
        "OverflowError: result of `wrong.large`: expected `u8 (0 to 255)` but got `int 300`"
    );
    let inside = message(named("wrong.pair", any((1, "x"))).call_to::<Vec<i64>>((1,)));
    assert!(
        inside.starts_with("TypeError: result[1] of `wrong.pair`: expected `Array<int>` but got `Array"),
        "{inside}"
    );
    let unnamed = PackedFunc::new(|_: Args<'_>| Any::new("x"));
    assert_eq!(
        message(unnamed.call_to::<i64>(())),
        "TypeError: result of a function without a name: expected `int` but got `str`"
    );
    assert_eq!(named("wrong.right", any(3)).call_to::<i64>((1,)).unwrap(), 3);
}

/// Held by tests that compare backtraces, since one of them registers the function that finds the source of functions.
static SOURCES: Mutex<()> = Mutex::new(());

#[test]
fn the_error_for_a_result_has_details() {
    let _sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner);
    let error = error(named("wrong.text", any("x")).call_to::<i64>((1,)));
    let detail = Map::<std::string::String, std::string::String>::try_from_object(error.context().unwrap());
    let pairs: Vec<(std::string::String, std::string::String)> = detail.unwrap().iter().collect();
    let text = |(key, value): (&str, &str)| (key.to_string(), value.to_string());
    let expected =
        [("function", "wrong.text"), ("argument", "result"), ("path", ""), ("expected", "int"), ("got", "str")];
    assert_eq!(pairs, expected.map(text));
    assert_eq!(error.backtrace(), "");
}

#[test]
fn the_backtrace_is_the_line_that_defines_the_function() {
    let _sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner);
    // Python registers this function.
    let source = |_: PackedFunc| "File \"app.py\", line 5, in g";
    registry::register("anyfn.python_source").set_body_typed(source).unwrap();
    let function = PackedFunc::described(|_| Any::new("x"), || r#"{"name": "g"}"#.to_string());
    let error = error(function.call_to::<i64>(()));
    assert_eq!(error.message(), "result of `g`: expected `int` but got `str`");
    assert_eq!(error.backtrace(), "  File \"app.py\", line 5, in g\n");
    registry::remove("anyfn.python_source").unwrap();
}

#[test]
fn an_argument_is_named_by_its_index() {
    let _sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner);
    let function = PackedFunc::new(|args: Args<'_>| Any::new(args.get::<i64>(0)?));
    let error = error(function.call(("x",)));
    assert_eq!(error.message(), "mismatched type on argument #0: expected `int` but got `str`");
    assert_eq!(error.backtrace(), "", "a line of this crate would say nothing");
    assert_eq!(any("x").get::<i64>().unwrap_err().backtrace(), "");
}

#[test]
fn an_invalid_value_is_explained() {
    let names = Names { function: "wrong.cast", args: &["dtype"], ..Names::default() };
    let cast: PackedFunc = TypedPackedFunc::named(names, |dtype: DType| dtype).into();
    let error = error(cast.call(("flaot32",)));
    assert_eq!(error.kind(), "ValueError");
    assert_eq!(
        error.message(),
        "Invalid value on argument #0 when calling: `wrong.cast(0: DataType) -> DataType`: unknown dtype `flaot32`; \
         did you mean `float32`?"
    );
    assert_eq!(
        message(any("flaot32").get::<DType>()),
        "ValueError: unknown dtype `flaot32`; did you mean `float32`?"
    );
    let all: PackedFunc = TypedPackedFunc::from_fn(|dtypes: Vec<DType>| dtypes.len()).into();
    let inside = message(all.call((("int8", "flaot32"),)));
    assert!(
        inside.contains("Expected `Array<DataType>` but got `Array whose element 1 is unknown dtype"),
        "{inside}"
    );
}

#[derive(Object)]
#[object(key = "test.wrong.Account")]
struct Account {
    owner: String,
    cents: Cell<i64>,
}

#[derive(Object)]
#[object(key = "test.wrong.Savings", parent = Account)]
#[repr(C)]
struct Savings {
    account: Account,
    rate: f64,
}

#[test]
fn a_field_is_named() {
    let account = || Account { owner: "Ada".into(), cents: Cell::new(1) };
    let one = Ref::new(account()).into_object();
    let expected = "TypeError: field 'cents' of test.wrong.Account: expected `int` but got `str`";
    assert_eq!(message(one.set_field("cents", "x")), expected);
    let savings = Ref::new(Savings { account: account(), rate: 0.5 }).into_object();
    let expected = "TypeError: field 'cents' of test.wrong.Savings: expected `int` but got `str`";
    assert_eq!(message(savings.set_field("cents", "x")), expected);
    let make = registry::get("ffi.MakeObjectFromPackedArgs").unwrap();
    let made = make.call(("test.wrong.Savings", "owner", "Ada", "cents", 1, "rate", "high"));
    let expected = "field 'rate' of test.wrong.Savings: expected `float` but got `str`";
    assert!(error(made).message().ends_with(expected));
}

#[test]
fn an_element_is_named() {
    let list: List<i64> = List::from(vec![1, 2]);
    let other = List::<Any>::try_from_object(list.as_object().clone()).unwrap();
    other.set(1, any("x")).unwrap();
    let expected = |subject: &str| format!("TypeError: {subject}: expected `int` but got `str`");
    assert_eq!(message(list.get(1)), expected("element 1 of the List"));
    assert_eq!(message(list.iter().nth(1).unwrap()), expected("an element of the List"));
    assert_eq!(message(list.last()), expected("the last element of the List"));
    assert_eq!(message(list.pop()), expected("the last element of the List"));
    let dict: Dict<std::string::String, i64> = Dict::from([("a".to_string(), 1)]);
    let other = Dict::<Any, Any>::try_from_object(dict.as_object().clone()).unwrap();
    other.insert(any("a"), any("x")).unwrap();
    assert_eq!(message(dict.get("a")), expected("a value of the Dict"));
    assert_eq!(message(dict.values()), expected("a value of the Dict"));
    other.insert(any(1), any(1)).unwrap();
    assert_eq!(message(dict.keys()), "TypeError: a key of the Dict: expected `str` but got `int`");
}
