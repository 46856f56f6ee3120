//! Generates a C++ program that runs the conformance corpus (the test cases of this crate) with the classes of the C++
//! frontend. The program includes `cpp/support.hpp`.

use std::fmt::Write;

use crate::emit_c::quote;
use crate::{Corpus, Outcome, Value};

/// Returns the source of a C++ program that runs all test cases of `corpus`.
///
/// # Errors
/// Returns a message if a tensor has an element type that the corpus does not use.
pub fn program(corpus: &Corpus) -> Result<String, String> {
    let mut out =
        String::from("// Made from the conformance corpus; not to be edited.\n#include \"support.hpp\"\n\n");
    let mut count = 0;
    // A function for each case, because compilers need much time for long functions.
    let mut begin = |out: &mut String| {
        count += 1;
        let _ = writeln!(out, "static void case_{}() {{", count - 1);
    };
    for case in &corpus.values {
        begin(&mut out);
        let name = quote(case.name.as_bytes());
        let _ = writeln!(out, "  const Any value = {};", expression(&case.value)?);
        let _ = writeln!(out, "  pass_out({name}, value);\n  pass_in({name}, value);\n}}");
    }
    for case in &corpus.calls {
        begin(&mut out);
        let (function, args) = case.without_names();
        let (name, function) = (quote(case.name.as_bytes()), quote(function.as_bytes()));
        for (name, value) in &case.bindings {
            let _ = writeln!(out, "  const Any let_{name} = {};", expression(value)?);
        }
        let args = list(&args)?;
        match &case.outcome {
            Outcome::Value(value) => {
                let _ = writeln!(out, "  check_call({name}, {function}, {args}, {});", expression(value)?);
            }
            Outcome::Error { kind, message } => {
                let (kind, message) = (text(kind.as_bytes()), text(message.as_bytes()));
                let _ = writeln!(out, "  check_error({name}, {function}, {args}, {kind}, {message});");
            }
        }
        out.push_str("}\n");
    }
    out.push_str("\nint main() {\n  begin();\n");
    for i in 0..count {
        let _ = writeln!(out, "  run(case_{i});");
    }
    out.push_str("  return end();\n}\n");
    Ok(out)
}

/// Returns the source of a C++ library that runs the cases of `corpus` that pass values; see [`crate::emit_c::plugin`].
///
/// # Errors
/// Returns a message if a tensor has an element type that the corpus does not use.
pub fn plugin(corpus: &Corpus) -> Result<String, String> {
    let mut out =
        String::from("// Made from the conformance corpus; not to be edited.\n#include \"support.hpp\"\n\n");
    let mut calls = String::new();
    for (i, case) in corpus.values.iter().enumerate() {
        let name = quote(case.name.as_bytes());
        let _ = writeln!(out, "static void case_{i}() {{\n  const Any value = {};", expression(&case.value)?);
        let _ = writeln!(out, "  pass_out({name}, value);\n  pass_in({name}, value);\n}}");
        let _ = writeln!(calls, "  if (is_selected({name})) run(case_{i});");
    }
    out.push_str("\nstatic Array<int64_t> run_cases(std::string own_prefix, Array<String> own_names) {\n");
    out.push_str("  begin_plugin(own_prefix, own_names);\n");
    out.push_str(&calls);
    out.push_str("  run(check_errors);\n  return {passed, failed};\n}\n\n");
    out.push_str("ANYFN_EXPORT_FUNC(run, run_cases);\n");
    Ok(out)
}

/// Returns a C++ expression for a value of a test case, of type `Any` or of a type that converts to it.
fn expression(value: &Value) -> Result<String, String> {
    Ok(match value {
        Value::None => "Any()".into(),
        Value::Bool(b) => format!("Any({b})"),
        Value::Int(i64::MIN) => "Any(INT64_MIN)".into(),
        Value::Int(n) => format!("Any(INT64_C({n}))"),
        Value::BigInt(words) => {
            let words: Vec<String> = words.iter().map(|word| format!("UINT64_C({word})")).collect();
            format!("make_bigint({{{}}})", words.join(", "))
        }
        Value::Float(x) => format!("make_float(UINT64_C({:#x}))", x.to_bits()),
        Value::Str(content) => format!("Any(String({}))", text(content.as_bytes())),
        Value::Bytes(bytes) => format!("Any(Bytes({}))", text(bytes)),
        Value::DType(name) => format!("Any(parse_dtype({}))", quote(name.as_bytes())),
        Value::Device(kind, number) => format!("make_device({kind}, {number})"),
        Value::Opaque(address) => format!("make_pointer({address})"),
        Value::Global(name) => format!("Any(get_global_func({}))", quote(name.as_bytes())),
        Value::Callback(name) => format!("make_callback({})", quote(name.as_bytes())),
        Value::Let(name) => format!("let_{name}"),
        Value::Call(function, args) => format!("call({}, {})", quote(function.as_bytes()), list(args)?),
        Value::Field(object, name) => {
            format!("{}.cast<ObjectRef>().field({})", expression(object)?, quote(name.as_bytes()))
        }
        Value::Set(object, name, value) => {
            format!("set_field({}, {}, {})", expression(object)?, quote(name.as_bytes()), expression(value)?)
        }
        Value::Attribute(key, name) => {
            format!("make_attribute({}, {})", quote(key.as_bytes()), quote(name.as_bytes()))
        }
        Value::Array(items) => format!("Any(Array<Any>{})", list(items)?),
        Value::Map(pairs) => {
            let pairs = pairs
                .iter()
                .map(|(key, value)| Ok(format!("{{{}, {}}}", expression(key)?, expression(value)?)))
                .collect::<Result<Vec<_>, String>>()?;
            format!("Any(Map<Any, Any>{{{}}})", pairs.join(", "))
        }
        Value::Shape(extents) => format!("Any(Shape{})", numbers(extents)),
        Value::Tensor { dtype, shape, data } => {
            let (code, bits, bytes) = Value::elements(dtype, data)?;
            format!("make_tensor(DType{{{code}, {bits}, 1}}, Shape{}, {})", numbers(shape), text(&bytes))
        }
    })
}

/// Returns a list of values in braces.
fn list(items: &[Value]) -> Result<String, String> {
    let items = items.iter().map(expression).collect::<Result<Vec<_>, _>>()?;
    Ok(format!("{{{}}}", items.join(", ")))
}

/// Returns a list of integers in braces.
fn numbers(numbers: &[i64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(|n| format!("INT64_C({n})")).collect();
    format!("{{{}}}", numbers.join(", "))
}

/// Returns an expression for text that may contain NUL characters.
fn text(bytes: &[u8]) -> String {
    format!("std::string_view({}, {})", quote(bytes), bytes.len())
}
