//! Values in the test cases of the conformance corpus, in a form that is independent of the frontends.

use serde_json::Value as Json;

/// A value in a test case, before a frontend converts it to a value of its language.
#[derive(Clone, Debug)]
pub enum Value {
    /// None, written as `null`.
    None,
    /// A bool, written as `true` or `false`.
    Bool(bool),
    /// An int, written as `{"int": n}`.
    Int(i64),
    /// An integer of any size, written as `{"bigint": "digits"}`. It is stored as 64-bit words in two's complement,
    /// least significant word first.
    BigInt(Vec<u64>),
    /// A float, written as `{"float": "text"}`.
    Float(f64),
    /// A string, written as `{"str": ".."}`.
    Str(String),
    /// A bytes value, written as `{"bytes": "hex"}`.
    Bytes(Vec<u8>),
    /// A data type, written as `{"dtype": ".."}`.
    DType(String),
    /// A device, written as `{"device": [kind, index]}`.
    Device(i32, i32),
    /// An opaque pointer, written as `{"opaque": address}`.
    Opaque(u64),
    /// A global function, written as `{"global": "name"}`.
    Global(String),
    /// A callback of the frontend, written as `{"callback": "echo"}`.
    Callback(String),
    /// Value to which the test case has bound a name, written as `{"let": "name"}`.
    Let(String),
    /// Result of a call of a global function, written as `{"call": ["function", ..]}`. The call must not
    /// fail.
    Call(String, Vec<Value>),
    /// Value of an object's field, written as `{"field": [object, "name"]}`. The frontend reads the field
    /// with the syntax of its language.
    Field(Box<Value>, String),
    /// Assignment to an object's field, written as `{"set": [object, "name", value]}`. The frontend sets the
    /// field with the syntax of its language. The value of the assignment is None.
    Set(Box<Value>, String, Box<Value>),
    /// An attribute that a type has registered, written as `{"attribute": ["type", "name"]}`.
    Attribute(String, String),
    /// An Array, written as `{"array": [..]}`.
    Array(Vec<Value>),
    /// A Map, written as `{"map": [[k, v], ..]}`.
    Map(Vec<(Value, Value)>),
    /// A shape, written as `{"shape": [..]}`.
    Shape(Vec<i64>),
    /// A tensor, written as `{"tensor": {..}}`.
    Tensor {
        /// Name of the tensor's element type.
        dtype: String,
        /// Extents of the tensor's dimensions.
        shape: Vec<i64>,
        /// Elements of the tensor in row-major order, each as a float.
        data: Vec<f64>,
    },
}

/// Parses a value whose JSON body is the list `parts`: a call, a field, an assignment or an
/// attribute. Returns None if `tag` is not the tag of such a value or the list is malformed.
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
    /// Parses a value from its JSON form in a test case.
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

    /// Returns the type code and the number of bits of the element type `dtype`, and the elements
    /// `data`, converted to that type, as bytes in native byte order.
    ///
    /// # Errors
    /// Returns a message with the name of the element type if the corpus does not use it.
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

/// Converts a decimal number to 64-bit words in two's complement, least significant word first. Returns None if `text`
/// is malformed.
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
