//! Descriptions of types, for signatures and error messages.

use core::fmt;

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;

/// Description of a type in signatures: a type name with arguments, such as `ffi.Array` with the argument `int`.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{FromArg, Schema};
///
/// let schema = <Vec<Option<i64>> as FromArg>::schema();
/// assert_eq!(schema.args, [Schema::of("Optional", vec![Schema::plain("int")])]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// Name of the type, such as `int`, `ffi.Array`, `Optional` or `testing.Point`.
    pub origin: Cow<'static, str>,
    /// Arguments of the type, such as the element type of a container.
    pub args: Vec<Schema>,
}

impl Schema {
    /// Creates the description of a type without arguments.
    pub const fn plain(origin: &'static str) -> Schema {
        Schema { origin: Cow::Borrowed(origin), args: Vec::new() }
    }

    /// Creates the description of a type with arguments.
    pub const fn of(origin: &'static str, args: Vec<Schema>) -> Schema {
        Schema { origin: Cow::Borrowed(origin), args }
    }

    /// Writes the type as JSON, in the form that the metadata of functions and fields uses.
    pub fn write_json(&self, out: &mut String) {
        out.push_str("{\"type\":\"");
        out.push_str(&self.origin);
        out.push('"');
        if !self.args.is_empty() {
            out.push_str(",\"args\":[");
            for (i, arg) in self.args.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                arg.write_json(out);
            }
            out.push(']');
        }
        out.push('}');
    }
}

/// Returns the name that messages in all languages use for the type with this key, such as `str`,
/// `Array` or `Function`. For a type without a special name, returns the key.
pub fn word(type_key: &str) -> &str {
    match type_key {
        "ffi.String" | "ffi.SmallStr" | "const char*" => "str",
        "ffi.Bytes" | "ffi.SmallBytes" | "TVMFFIByteArray*" => "bytes",
        "ffi.BigInt" => "int",
        "ffi.OpaquePyObject" => "Python object",
        "ffi.Array" => "Array",
        "ffi.List" => "List",
        "ffi.Map" => "Map",
        "ffi.Dict" => "Dict",
        "ffi.Shape" => "Shape",
        "ffi.Tensor" => "Tensor",
        "ffi.Function" => "Function",
        "ffi.Module" => "Module",
        "ffi.Error" => "Error",
        "ffi.Object" => "Object",
        other => other,
    }
}

/// Formats the description in the short form that error messages use, such as `Array<int>` or `Map<str, int>`.
impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word(&self.origin))?;
        for (i, arg) in self.args.iter().enumerate() {
            write!(f, "{}{arg}", if i == 0 { "<" } else { ", " })?;
        }
        if self.args.is_empty() { Ok(()) } else { f.write_str(">") }
    }
}
