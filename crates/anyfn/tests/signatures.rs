//! Tests of signatures, defaults and calls with named arguments.

use anyfn::{Any, Fallback, Literal, Names, PackedFunc, Signature, Source, TypedPackedFunc};
use anyfn_core as _;

fn named(defaults: &'static [Literal]) -> PackedFunc {
    let names = Names {
        function: "test.f",
        args: &["a", "b", "s"],
        doc: "What \"it\" does.\nMore.",
        defaults,
        read_only: &[],
    };
    TypedPackedFunc::named(names, |a: i64, b: f64, s: &str| format!("{a} {b} {s}")).into()
}

fn text(result: anyfn::Result<Any>) -> String {
    result.and_then(|value| value.get::<String>()).unwrap_or_else(|error| error.to_string())
}

#[test]
fn trailing_arguments_may_be_left_out() {
    let f = named(&[Literal::Float(0.5), Literal::Str("longer than seven")]);
    assert_eq!(text(f.call((1,))), "1 0.5 longer than seven");
    assert_eq!(text(f.call((1, 2))), "1 2 longer than seven");
    assert_eq!(text(f.call((1, 2, "x"))), "1 2 x");
    for (got, count) in [(f.call(()), 0), (f.call((1, 2, "x", 4)), 4)] {
        let expected = format!("Expected 1 to 3 but got {count} arguments");
        assert!(got.unwrap_err().message().contains(&expected));
    }
    // If a default has another type than its argument, the call is an error that names the argument.
    let wrong = named(&[Literal::None]).call((1, 2)).unwrap_err();
    assert!(wrong.message().contains("argument #2"), "{wrong}");
}

/// Checks errors, panics and moved objects in a call whose omitted arguments are replaced by their defaults.
#[test]
fn a_call_with_added_defaults_is_like_any_other() {
    let names = Names { args: &["x", "fail"], defaults: &[Literal::Int(1)], ..Names::default() };
    let f: PackedFunc = TypedPackedFunc::named(names, |x: Any, fail: i64| match fail {
        0 => Ok(x),
        1 => Err(anyfn::Error::new("KeyError", "nothing here")),
        _ => panic!("no such case"),
    })
    .into();
    let error = f.call((7,)).unwrap_err();
    assert_eq!((error.kind(), error.message()), ("KeyError", "nothing here"));
    let names = Names { defaults: &[Literal::Int(2)], ..names };
    let g: PackedFunc =
        TypedPackedFunc::named(names, |_: Any, _: i64| -> Any { panic!("no such case") }).into();
    let error = g.call((7,)).unwrap_err();
    assert!(error.kind() == "InternalError" && error.message().contains("no such case"), "{error}");
    let names = Names { defaults: &[Literal::Int(0)], ..names };
    let h: PackedFunc = TypedPackedFunc::named(names, |x: Any, _: i64| x).into();
    let list = anyfn::Array::<i64>::from_iter([1, 2]);
    let same = h.call((&list,)).unwrap();
    assert_eq!(same.get::<Vec<i64>>().unwrap(), [1, 2]);
    // Only `list` and `same` still own the array.
    drop(same);
    assert_eq!(list.as_object().use_count(), 1);
}

#[test]
fn named_arguments_find_their_place() {
    let f = named(&[Literal::Float(0.5), Literal::Str("x")]);
    let (one, y) = (Any::new(1).unwrap(), Any::new("y").unwrap());
    assert_eq!(text(f.call_named((1,), &[("s", y.clone())])), "1 0.5 y");
    assert_eq!(text(f.call_named((), &[("s", y.clone()), ("a", one.clone())])), "1 0.5 y");
    let wrong = |args: &[(&str, Any)]| f.call_named((), args).unwrap_err().message().to_owned();
    assert_eq!(wrong(&[("s", y.clone())]), "test.f() missing 1 required positional argument: 'a'");
    assert_eq!(
        wrong(&[("a", one.clone()), ("a", one.clone())]),
        "test.f() got multiple values for argument 'a'"
    );
    assert_eq!(wrong(&[("t", y)]), "test.f() got an unexpected keyword argument 't'");
    let plain = PackedFunc::new(|args| Any::new(args.len()));
    assert_eq!(plain.call_named((1,), &[]).unwrap().get::<i64>().unwrap(), 1);
    let refused = plain.call_named((1,), &[("a", one)]).unwrap_err();
    assert!(refused.message().contains("created without a signature"), "{refused}");
}

#[test]
fn signatures_are_read_as_they_are_written() {
    const LIST: &[Literal] = &[Literal::Int(-1), Literal::Bool(true), Literal::None];
    const PAIRS: &[(&str, Literal)] = &[("k\"", Literal::Float(2.0)), ("l", Literal::Array(&[]))];
    let names = Names {
        function: "test.g",
        args: &["x", "list", "map"],
        defaults: &[Literal::Array(LIST), Literal::Map(PAIRS)],
        read_only: &["x"],
        ..Names::default()
    };
    let g: PackedFunc =
        TypedPackedFunc::named(names, |_: anyfn::TensorView<'_>, _: Any, _: Option<i64>| 1).into();
    let json = g.signature().unwrap();
    assert!(json.contains(r#""arg_defaults":{"list":[-1,true,null],"map":{"k\"":2.0,"l":[]}}"#), "{json}");
    let signature = Signature::parse(&json).unwrap();
    let params = signature.params.as_ref().unwrap();
    assert_eq!(
        params.iter().map(|p| p.ty.to_string()).collect::<Vec<_>>(),
        ["DLTensor*", "Any", "Optional<int>"]
    );
    assert!(params[0].read_only && !params[1].read_only);
    let Fallback::Value(list) = &params[1].default else { panic!("{:?}", params[1].default) };
    assert_eq!(list.get::<Vec<Option<i64>>>().unwrap(), [Some(-1), Some(1), None]);
    assert!(matches!(params[0].default, Fallback::Required) && signature.named && !signature.variadic);
}

#[test]
fn signatures_of_others_are_read() {
    let read = |text: &str| Signature::parse(text).unwrap();
    // The types of the result and the arguments are in one list, without names.
    let other = read(
        r#"{"type_schema": "{\"type\":\"ffi.Function\",\"args\":[{\"type\":\"int\"},{\"type\":\"float\"}]}"}"#,
    );
    assert_eq!((other.result.to_string(), other.params.as_ref().unwrap().len()), ("int".into(), 1));
    assert!(!other.named && other.params.unwrap()[0].name == "arg0");
    // The signature is unknown.
    for text in
        ["{}", r#"{"type_schema": "{\"type\":\"ffi.Function\"}"}"#, r#"{"type_schema": 5, "more": [{}]}"#]
    {
        assert!(read(text).params.is_none() && read(text).variadic);
    }
    // Names without types, a default that only the function knows, and further arguments.
    let names = read(
        r#"{"arg_names": ["a", "b", "c"], "arg_optional": ["b"], "arg_defaults": {"c": 1}, "variadic": true}"#,
    );
    let arrange =
        |positional, named: &[&str]| names.arrange("f", positional, named).map_err(|e| e.message().to_owned());
    assert_eq!(arrange(1, &[]), Ok(vec![Source::Positional(0)]));
    assert_eq!(arrange(1, &["b"]), Ok(vec![Source::Positional(0), Source::Named(0)]));
    assert_eq!(arrange(5, &[]).unwrap().len(), 5);
    assert_eq!(arrange(5, &["c"]), Err("f() got multiple values for argument 'c'".into()));
    assert_eq!(
        arrange(1, &["c"]),
        Err("f() requires argument 'b' if a later one is given: only the function knows its default".into())
    );
    // If the numbers of names and types differ, the names are ignored.
    let odd = read(r#"{"type_schema": "{\"args\":[{\"type\":\"int\"}]}", "arg_names": ["a"]}"#);
    assert!(!odd.named && odd.arrange("f", 0, &["a"]).is_err());
    assert_eq!(Signature::parse("no JSON").unwrap_err().kind(), "ValueError");
}
