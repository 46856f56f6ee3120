//! Values of the corpus.

use serde_json::Value as Json;

/// A value of the corpus, before a frontend converts it to a value of its language.
#[derive(Clone, Debug)]
pub enum Value {
    /// `null`
    None,
    /// `true`, `false`
    Bool(bool),
    /// `{"int": n}`
    Int(i64),
    /// `{"bigint": "digits"}`: 64-bit words in two's complement, least significant first.
    BigInt(Vec<u64>),
    /// `{"float": "text"}`
    Float(f64),
    /// `{"str": ".."}`
    Str(String),
    /// `{"bytes": "hex"}`
    Bytes(Vec<u8>),
    /// `{"dtype": ".."}`
    DType(String),
    /// `{"device": [kind, number]}`
    Device(i32, i32),
    /// `{"opaque": address}`
    Opaque(u64),
    /// `{"global": "name"}`
    Global(String),
    /// `{"callback": "echo"}`
    Callback(String),
    /// `{"let": "name"}`: the value that the case binds to the name.
    Let(String),
    /// `{"call": ["function", ..]}`: the result of a call of a global function, which must not fail.
    Call(String, Vec<Value>),
    /// `{"field": [object, "name"]}`: the value of a field, read in the frontend's own way.
    Field(Box<Value>, String),
    /// `{"set": [object, "name", value]}`: sets a field in the frontend's own way; the value is None.
    Set(Box<Value>, String, Box<Value>),
    /// `{"attribute": ["type", "name"]}`: an attribute that a type has registered.
    Attribute(String, String),
    /// `{"array": [..]}`
    Array(Vec<Value>),
    /// `{"map": [[k, v], ..]}`
    Map(Vec<(Value, Value)>),
    /// `{"shape": [..]}`
    Shape(Vec<i64>),
    /// `{"tensor": {..}}`
    Tensor {
        /// Name of the element type.
        dtype: String,
        /// Extents of the dimensions.
        shape: Vec<i64>,
        /// Elements in row-major order, as numbers.
        data: Vec<f64>,
    },
}

/// Parses a value whose body is a list: a call, field, set or attribute. Returns None if the list is malformed.
fn parts(tag: &str, parts: &[Json]) -> Option<Result<Value, String>> {
    let text = |at: usize| Some(parts.get(at)?.as_str()?.to_string());
    let made = || -> Result<Option<Value>, String> {
        let value = |at: usize| parts.get(at).map(Value::parse).transpose();
        Ok(match (tag, parts.len()) {
            ("call", 1..) => {
                let args = parts[1..].iter().map(Value::parse).collect::<Result<_, _>>()?;
                text(0).map(|name| Value::Call(name, args))
            }
            ("field", 2) => value(0)?.zip(text(1)).map(|(object, name)| Value::Field(object.into(), name)),
            ("set", 3) => value(0)?
                .zip(text(1))
                .zip(value(2)?)
                .map(|((object, name), value)| Value::Set(object.into(), name, value.into())),
            ("attribute", 2) => text(0).zip(text(1)).map(|(key, name)| Value::Attribute(key, name)),
            _ => None,
        })
    };
    made().transpose()
}

impl Value {
    /// Parses a value of a case.
    ///
    /// # Errors
    /// Returns a message that shows the malformed value.
    pub fn parse(json: &Json) -> Result<Value, String> {
        let bad = || format!("malformed value {json}");
        let tagged = match json {
            Json::Null => return Ok(Value::None),
            Json::Bool(b) => return Ok(Value::Bool(*b)),
            Json::Object(object) if object.len() == 1 => object.iter().next().ok_or_else(bad)?,
            _ => return Err(bad()),
        };
        let (tag, body) = (tagged.0.as_str(), tagged.1);
        let text = || body.as_str().map(str::to_string).ok_or_else(bad);
        let list = |json: &Json| json.as_array().cloned().ok_or_else(bad);
        let ints =
            |json: &Json| list(json)?.iter().map(|n| n.as_i64().ok_or_else(bad)).collect::<Result<Vec<_>, _>>();
        Ok(match tag {
            "int" => Value::Int(body.as_i64().ok_or_else(bad)?),
            "bigint" => Value::BigInt(words(&text()?).ok_or_else(bad)?),
            "float" => Value::Float(text()?.parse().map_err(|_| bad())?),
            "str" => Value::Str(text()?),
            "bytes" => Value::Bytes(hex(&text()?).ok_or_else(bad)?),
            "dtype" => Value::DType(text()?),
            "device" => match ints(body)?[..] {
                [kind, number] => Value::Device(kind as i32, number as i32),
                _ => return Err(bad()),
            },
            "opaque" => Value::Opaque(body.as_u64().ok_or_else(bad)?),
            "global" => Value::Global(text()?),
            "callback" => Value::Callback(text()?),
            "let" => Value::Let(text()?),
            "call" | "field" | "set" | "attribute" => parts(tag, &list(body)?).ok_or_else(bad)??,
            "array" => Value::Array(list(body)?.iter().map(Value::parse).collect::<Result<_, _>>()?),
            "map" => {
                let pair = |pair: &Json| match list(pair)?.as_slice() {
                    [key, value] => Ok((Value::parse(key)?, Value::parse(value)?)),
                    _ => Err(bad()),
                };
                Value::Map(list(body)?.iter().map(pair).collect::<Result<_, _>>()?)
            }
            "shape" => Value::Shape(ints(body)?),
            "tensor" => Value::Tensor {
                dtype: body["dtype"].as_str().ok_or_else(bad)?.to_string(),
                shape: ints(&body["shape"])?,
                data: list(&body["data"])?
                    .iter()
                    .map(|n| n.as_f64().ok_or_else(bad))
                    .collect::<Result<_, _>>()?,
            },
            _ => return Err(bad()),
        })
    }

    /// Returns code and bits of an element type, and the bytes of the elements `data`.
    ///
    /// # Errors
    /// Returns a message with the name of an element type that the corpus does not use.
    pub fn elements(dtype: &str, data: &[f64]) -> Result<(u8, u8, Vec<u8>), String> {
        macro_rules! pack {
            ($ty:ty, $code:literal) => {
                Ok((
                    $code,
                    8 * size_of::<$ty>() as u8,
                    data.iter().flat_map(|x| (*x as $ty).to_ne_bytes()).collect(),
                ))
            };
        }
        match dtype {
            "float32" => pack!(f32, 2),
            "float64" => pack!(f64, 2),
            "int8" => pack!(i8, 0),
            "int32" => pack!(i32, 0),
            "int64" => pack!(i64, 0),
            "uint8" => pack!(u8, 1),
            other => Err(format!("no tensors of {other} in the corpus")),
        }
    }
}

/// Returns the words of a decimal number in two's complement, least significant first, or None if it is malformed.
fn words(text: &str) -> Option<Vec<u64>> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let mut words = vec![0u64];
    for digit in digits.chars() {
        let mut carry = u128::from(digit.to_digit(10)?);
        for word in &mut words {
            carry += u128::from(*word) * 10;
            *word = carry as u64;
            carry >>= 64;
        }
        words.extend((carry > 0).then_some(carry as u64));
    }
    words.push(0);
    if text.starts_with('-') {
        let mut carry = true;
        for word in &mut words {
            (*word, carry) = (!*word).overflowing_add(carry.into());
        }
    }
    Some(words)
}

fn hex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_is_malformed() {
        for text in [
            "1",
            "[1]",
            "{}",
            r#"{"int": "1"}"#,
            r#"{"bytes": "0g"}"#,
            r#"{"what": 1}"#,
            r#"{"bigint": "1a"}"#,
            r#"{"int":1,"str":""}"#,
        ] {
            let json = serde_json::from_str(text).unwrap();
            assert!(Value::parse(&json).is_err(), "{text}");
        }
    }
}
