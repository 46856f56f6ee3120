//! Signatures of generated functions: the names and types of the arguments, and the tensors that a
//! function only reads.

use std::fmt::Write as _;

use anyfn::abi::{kDLBfloat, kDLBool, kDLFloat};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::printer;

use crate::family::{Interface, Literal, Param, Symbol};

/// Generates the function that returns the signature, as JSON in the format that all frontends read.
pub(super) fn getter(symbol: &Symbol, func: &PrimFunc, interface: &Interface, out: &mut String) {
    let text = Literal::of(&signature(symbol, func, interface));
    let _ = writeln!(
        out,
        "\nANYFN_EXPORT int32_t __tvm_ffi__metadata_{symbol}(void* self, const anyfn_value* args, int32_t num_args, \
         anyfn_value* result) {{\n  static const char text[] = {text};\n  (void)self, (void)args, (void)num_args;\n  return \
         anyfn_give_text(text, sizeof text - 1, result);\n}}"
    );
}

fn signature(symbol: &Symbol, func: &PrimFunc, interface: &Interface) -> String {
    let mut names: Vec<String> = Vec::new();
    let (mut types, mut doc, mut only_read) = (Vec::new(), String::new(), Vec::new());
    if let Ok(Some(own)) = func.attrs.get_any("doc")
        && let Ok(own) = own.get::<&str>()
    {
        let _ = write!(doc, "{}\n\n", own.trim_end());
    }
    for param in &interface.params {
        let (own, kind, about) = match param {
            Param::Tensor(buffer) => {
                let extents: Vec<String> =
                    buffer.shape.iter().map(|extent| printer::text(extent.as_object())).collect();
                let written = if interface.writes(buffer) { ", written" } else { "" };
                let about = format!("{}[{}]{written}", buffer.dtype, extents.join(", "));
                (&*buffer.name, "DLTensor*", about)
            }
            Param::Number(var) => {
                let kind = match var.dtype.0.code {
                    kDLFloat | kDLBfloat => "float",
                    kDLBool => "bool",
                    _ => "int",
                };
                (&*var.name, kind, var.dtype.to_string())
            }
        };
        let name = unique(own, &names);
        if let Param::Tensor(buffer) = param
            && !interface.writes(buffer)
        {
            only_read.push(name.clone());
        }
        let _ = writeln!(doc, "{name}: {about}");
        types.push(format!("{{\"type\":\"{kind}\"}}"));
        names.push(name);
    }
    let schema = format!(
        "{{\"type\":\"ffi.Function\",\"named_args\":{{\"return\":[{{\"type\":\"None\"}}],\"params\":[{}]}}}}",
        types.join(",")
    );
    format!(
        "{{\"type_schema\":{},\"name\":{},\"arg_names\":{},\"arg_const\":{},\"doc\":{}}}",
        json(&schema),
        json(symbol.as_str()),
        list(&names),
        list(&only_read),
        json(doc.trim_end())
    )
}

/// Returns a name for a parameter, similar to `own`, that frontends accept and that is not in `taken`.
fn unique(own: &str, taken: &[String]) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut own: String = own.chars().map(|c| if is_word(c) { c } else { '_' }).collect();
    if own.is_empty() || own.starts_with(|c: char| c.is_numeric()) {
        own.insert(0, '_');
    }
    let mut name = own.clone();
    let mut number = 0;
    while taken.contains(&name) {
        number += 1;
        name = format!("{own}_{number}");
    }
    name
}

fn list(names: &[String]) -> String {
    format!("[{}]", names.iter().map(|name| json(name)).collect::<Vec<_>>().join(","))
}

/// Returns the JSON literal of a string.
fn json(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
