//! Constants that signatures can represent.

use core::fmt::Write;

use alloc::string::String as StdString;
use alloc::vec::Vec;

use crate::decimal::write_float;
use crate::text::quote;
use crate::{Any, Array, Map, Result};

/// A constant that a signature can represent, used as the default of an argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Literal {
    /// The value None.
    None,
    /// A boolean value.
    Bool(bool),
    /// A signed 64-bit int.
    Int(i64),
    /// A float, which must be finite.
    Float(f64),
    /// A string value.
    Str(&'static str),
    /// An Array of constants.
    Array(&'static [Literal]),
    /// A Map with strings as keys.
    Map(&'static [(&'static str, Literal)]),
}

impl Literal {
    /// Converts the constant into a value.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub fn to_any(&self) -> Result<Any> {
        match *self {
            Literal::None => Ok(Any::NONE),
            Literal::Bool(value) => Any::new(value),
            Literal::Int(value) => Any::new(value),
            Literal::Float(value) => Any::new(value),
            Literal::Str(text) => Any::new(text),
            Literal::Array(items) => {
                let items = items.iter().map(Literal::to_any).collect::<Result<Vec<Any>>>()?;
                Any::new(Array::<Any>::try_from_iter(items)?)
            }
            Literal::Map(pairs) => {
                let pairs = pairs.iter().map(|(key, value)| Ok((Any::new(*key)?, value.to_any()?)));
                Any::new(Map::<Any, Any>::try_from_iter(pairs.collect::<Result<Vec<(Any, Any)>>>()?)?)
            }
        }
    }

    /// Writes the constant as JSON.
    pub fn write_json(&self, out: &mut StdString) {
        // Writing to a string cannot fail.
        match *self {
            Literal::None => out.push_str("null"),
            Literal::Bool(value) => out.push_str(if value { "true" } else { "false" }),
            Literal::Int(value) => drop(write!(out, "{value}")),
            Literal::Float(value) => write_float(value, out),
            Literal::Str(text) => quote(text, out),
            Literal::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    out.push(if i == 0 { '[' } else { ',' });
                    item.write_json(out);
                }
                out.push_str(if items.is_empty() { "[]" } else { "]" });
            }
            Literal::Map(pairs) => {
                for (i, (key, value)) in pairs.iter().enumerate() {
                    out.push(if i == 0 { '{' } else { ',' });
                    quote(key, out);
                    out.push(':');
                    value.write_json(out);
                }
                out.push_str(if pairs.is_empty() { "{}" } else { "}" });
            }
        }
    }
}
