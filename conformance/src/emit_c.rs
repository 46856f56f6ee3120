//! Generates a C program that runs the conformance corpus (the test cases of this crate). The program
//! includes `c/support.h`.

use std::fmt::Write;

use crate::{Corpus, Outcome, Value};

/// Returns the source of a C program that runs all test cases of `corpus`. `begin` is the name of
/// the function in `c/support.h` that loads the library under test.
///
/// # Errors
/// Returns a message if a tensor has an element type that the corpus does not use.
pub fn program(corpus: &Corpus, begin: &str) -> Result<String, String> {
    let mut out =
        String::from("/* Made from the conformance corpus; not to be edited. */\n#include \"support.h\"\n\n");
    let _ = writeln!(out, "int main(void) {{\n  {begin}();");
    for case in &corpus.values {
        let _ = writeln!(out, "  {{\n    TVMFFIAny value = {};", expression(&case.value)?);
        let _ = writeln!(out, "    conformance_out({}, value);", quote(case.name.as_bytes()));
        let _ = writeln!(out, "    conformance_in({}, value);", quote(case.name.as_bytes()));
        out.push_str("    conformance_release(&value);\n  }\n");
    }
    for case in &corpus.calls {
        let (function, args) = case.without_names();
        let args = args.iter().map(expression).collect::<Result<Vec<_>, _>>()?;
        let count = args.len();
        let (name, function) = (quote(case.name.as_bytes()), quote(function.as_bytes()));
        out.push_str("  {\n");
        for (name, value) in &case.bindings {
            let _ = writeln!(out, "    TVMFFIAny let_{name} = {};", expression(value)?);
        }
        let _ = writeln!(
            out,
            "    TVMFFIAny args[{}] = {{{}}};",
            count.max(1),
            if count == 0 { "make_none()".into() } else { args.join(", ") }
        );
        match &case.outcome {
            Outcome::Value(value) => {
                let _ = writeln!(out, "    TVMFFIAny expected = {};", expression(value)?);
                let _ = writeln!(out, "    conformance_call({name}, {function}, args, {count}, expected);");
                out.push_str("    conformance_release(&expected);\n");
            }
            Outcome::Error { kind, message } => {
                let (kind, message) = (quote(kind.as_bytes()), quote(message.as_bytes()));
                let _ = writeln!(
                    out,
                    "    conformance_fail({name}, {function}, args, {count}, {kind}, {message});"
                );
            }
        }
        let _ = writeln!(out, "    for (int i = 0; i < {count}; ++i) conformance_release(&args[i]);");
        for (name, _) in case.bindings.iter().rev() {
            let _ = writeln!(out, "    conformance_release(&let_{name});");
        }
        out.push_str("  }\n");
    }
    out.push_str("  return conformance_end();\n}\n");
    Ok(out)
}

/// Returns the source of a C library that runs the cases of `corpus` that pass values, for the matrix of frontends. Its function
/// `run` takes the prefix of the names of the functions under test and the names of the cases.
///
/// # Errors
/// Returns a message if a tensor has an element type that the corpus does not use.
pub fn plugin(corpus: &Corpus) -> Result<String, String> {
    let mut out =
        String::from("/* Made from the conformance corpus; not to be edited. */\n#include \"support.h\"\n\n");
    out.push_str("ANYFN_EXPORT(run) {\n  if (conformance_plugin(args, num_args)) return -1;\n");
    for case in &corpus.values {
        let name = quote(case.name.as_bytes());
        let _ = writeln!(out, "  if (conformance_selected({name})) {{");
        let _ = writeln!(out, "    TVMFFIAny value = {};", expression(&case.value)?);
        let _ = writeln!(out, "    conformance_out({name}, value);\n    conformance_in({name}, value);");
        out.push_str("    conformance_release(&value);\n  }\n");
    }
    out.push_str("  conformance_errors();\n  return conformance_counts(result);\n}\n");
    Ok(out)
}

/// Returns a C expression that converts a value of a test case to an owned `TVMFFIAny`.
fn expression(value: &Value) -> Result<String, String> {
    Ok(match value {
        Value::None => "make_none()".into(),
        Value::Bool(b) => format!("make_bool({})", i32::from(*b)),
        Value::Int(i64::MIN) => "make_int(INT64_MIN)".into(),
        Value::Int(n) => format!("make_int(INT64_C({n}))"),
        Value::BigInt(words) => {
            let list: Vec<String> = words.iter().map(|word| format!("(int64_t)UINT64_C({word})")).collect();
            format!("make_bigint({}, (const int64_t[]){{{}}})", words.len(), list.join(", "))
        }
        Value::Float(x) => format!("make_float_bits(UINT64_C({:#x}))", x.to_bits()),
        Value::Str(text) => format!("make_str({}, {})", quote(text.as_bytes()), text.len()),
        Value::Bytes(bytes) => format!("make_bytes({}, {})", quote(bytes), bytes.len()),
        Value::DType(name) => format!("make_dtype({})", quote(name.as_bytes())),
        Value::Device(kind, number) => format!("make_device({kind}, {number})"),
        Value::Opaque(address) => format!("make_opaque(UINT64_C({address}))"),
        Value::Global(name) => format!("make_global({})", quote(name.as_bytes())),
        Value::Callback(name) => format!("make_callback({})", quote(name.as_bytes())),
        Value::Let(name) => format!("make_copy(let_{name})"),
        Value::Call(function, args) => {
            let args = args.iter().map(expression).collect::<Result<Vec<_>, _>>()?;
            let list = if args.is_empty() { "make_none()".into() } else { args.join(", ") };
            let function = quote(function.as_bytes());
            format!("make_through({function}, {}, (TVMFFIAny[]){{{list}}})", args.len())
        }
        Value::Field(object, name) => {
            format!("make_field({}, {})", expression(object)?, quote(name.as_bytes()))
        }
        Value::Set(object, name, value) => {
            let (object, value) = (expression(object)?, expression(value)?);
            format!("make_set({object}, {}, {value})", quote(name.as_bytes()))
        }
        Value::Attribute(key, name) => {
            format!("make_attribute({}, {})", quote(key.as_bytes()), quote(name.as_bytes()))
        }
        Value::Array(items) => many("make_array", items)?,
        Value::Map(pairs) => {
            many("make_map", &pairs.iter().flat_map(|(k, v)| [k.clone(), v.clone()]).collect::<Vec<_>>())?
        }
        Value::Shape(extents) => {
            many("make_shape", &extents.iter().map(|n| Value::Int(*n)).collect::<Vec<_>>())?
        }
        Value::Tensor { dtype, shape, data } => {
            let (code, bits, bytes) = Value::elements(dtype, data)?;
            let shape: Vec<String> = shape.iter().map(|n| format!("INT64_C({n})")).collect();
            let extents = if shape.is_empty() { "0".into() } else { shape.join(", ") };
            format!(
                "make_tensor({code}, {bits}, {}, (const int64_t[]){{{extents}}}, {}, {})",
                shape.len(),
                quote(&bytes),
                bytes.len()
            )
        }
    })
}

fn many(function: &str, items: &[Value]) -> Result<String, String> {
    let items = items.iter().map(expression).collect::<Result<Vec<_>, _>>()?;
    let list = if items.is_empty() { "make_none()".into() } else { items.join(", ") };
    Ok(format!("{function}({}, (TVMFFIAny[]){{{list}}})", items.len()))
}

/// Returns a C string literal with the given bytes. Bytes other than printable ASCII characters become octal escapes.
pub(crate) fn quote(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for (i, byte) in bytes.iter().enumerate() {
        if i > 0 && i % 512 == 0 {
            out.push_str("\" \"");
        }
        match byte {
            b'"' | b'\\' | b'?' => {
                let _ = write!(out, "\\{}", *byte as char);
            }
            b' '..=b'~' => out.push(*byte as char),
            other => {
                let _ = write!(out, "\\{other:03o}");
            }
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_every_byte() {
        assert_eq!(quote(b"a\"\\\n\xff?"), r#""a\"\\\012\377\?""#);
    }
}
