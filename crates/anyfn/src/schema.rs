//! Descriptions of types, for signatures and error texts.

use core::fmt;

use alloc::string::String;
use alloc::vec::Vec;

/// A type as signatures describe it: an origin with arguments, such as `ffi.Array` of `int`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// Name of the type, such as `int`, `ffi.Array`, `Optional` or `testing.Point`.
    pub origin: &'static str,
    /// What it is made of.
    pub args: Vec<Schema>,
}

impl Schema {
    /// A type without arguments.
    pub const fn plain(origin: &'static str) -> Schema {
        Schema { origin, args: Vec::new() }
    }

    /// A type with arguments.
    pub const fn of(origin: &'static str, args: Vec<Schema>) -> Schema {
        Schema { origin, args }
    }

    /// Writes the type as JSON, in the form that metadata of functions and fields has.
    pub fn write_json(&self, out: &mut String) {
        out.push_str("{\"type\":\"");
        out.push_str(self.origin);
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

/// The short form that error texts use: `Array<int>`, `Map<str, int>`.
impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.origin {
            "ffi.String" => "str",
            "ffi.Bytes" => "bytes",
            "ffi.Array" if !self.args.is_empty() => "Array",
            "ffi.List" if !self.args.is_empty() => "List",
            "ffi.Map" if !self.args.is_empty() => "Map",
            "ffi.Dict" if !self.args.is_empty() => "Dict",
            other => other,
        })?;
        for (i, arg) in self.args.iter().enumerate() {
            write!(f, "{}{arg}", if i == 0 { "<" } else { ", " })?;
        }
        if self.args.is_empty() { Ok(()) } else { f.write_str(">") }
    }
}
