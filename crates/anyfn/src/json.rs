//! A JSON reader for signatures.

use alloc::string::String;
use alloc::vec::Vec;

use crate::decimal::parse_decimal;
use crate::{Any, Array, Map, Result};

/// A JSON value. A number is an int if it fits into 64 bits and has neither a fraction nor an exponent, and
/// otherwise a float.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
    Array(Vec<Json>),
    /// Key-value pairs of an object, in the order of the source.
    Object(Vec<(String, Json)>),
}

/// Maximum nesting depth of arrays and objects.
const DEPTH_MAX: usize = 64;

/// Returns the string under the key `key` in the JSON object `text`, or `None` if the object has no such string, or if
/// its JSON has an escape sequence. The rest of the object is only scanned, which takes far less code than parsing it.
pub(crate) fn member<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let bytes = text.as_bytes();
    let (mut at, mut depth, mut is_value) = (0, 0usize, false);
    // Set while the next string is the value of the key.
    let mut is_wanted = false;
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => {
                let begin = at;
                while !matches!(bytes.get(at)?, b'"') {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                let string = text.get(begin..at)?;
                at += 1;
                if is_wanted {
                    return (!string.contains('\\')).then_some(string);
                }
                is_wanted = depth == 1 && !is_value && string == key;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b':' => {
                is_value = depth == 1 || is_value;
                continue;
            }
            b',' if depth == 1 => is_value = false,
            b' ' | b'\t' | b'\n' | b'\r' => continue,
            _ => {}
        }
        is_wanted = false;
    }
    None
}

impl Json {
    /// Parses JSON; returns `None` if `text` is not valid JSON or is nested too deeply.
    pub(crate) fn parse(text: &str) -> Option<Json> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(DEPTH_MAX)?;
        reader.space();
        (reader.at == text.len()).then_some(value)
    }

    /// Returns the value of the key `key` if the JSON value is an object that contains the key, and otherwise
    /// `None`.
    pub(crate) fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Json::Object(pairs) => pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Returns the elements if the JSON value is an array, and otherwise an empty slice.
    pub(crate) fn items(&self) -> &[Json] {
        match self {
            Json::Array(items) => items,
            _ => &[],
        }
    }

    /// Returns the content if the JSON value is a string, and otherwise `None`.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Json::Str(text) => Some(text),
            _ => None,
        }
    }

    /// Converts the JSON value into an [`Any`]: an array becomes an Array, an object becomes a Map.
    pub(crate) fn to_any(&self) -> Result<Any> {
        match self {
            Json::Null => Ok(Any::NONE),
            Json::Bool(value) => Any::new(*value),
            Json::Int(value) => Any::new(*value),
            Json::Float(value) => Any::new(*value),
            Json::Str(text) => Any::new(text.as_str()),
            Json::Array(items) => Any::new(Array::<Any>::try_from_iter(
                items.iter().map(Json::to_any).collect::<Result<Vec<Any>>>()?,
            )?),
            Json::Object(pairs) => {
                let pairs = pairs.iter().map(|(key, value)| Ok((Any::new(key.as_str())?, value.to_any()?)));
                Any::new(Map::<Any, Any>::try_from_iter(pairs.collect::<Result<Vec<(Any, Any)>>>()?)?)
            }
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    /// Skips white space and then `token`. Returns `None` if the white space is not followed by
    /// `token`.
    fn take(&mut self, token: &str) -> Option<()> {
        self.space();
        self.rest().starts_with(token).then(|| self.at += token.len())
    }

    fn value(&mut self, depth: usize) -> Option<Json> {
        self.space();
        match self.rest().bytes().next()? {
            b'"' => self.string().map(Json::Str),
            b'[' => self.array(depth.checked_sub(1)?),
            b'{' => self.object(depth.checked_sub(1)?),
            b'n' => self.take("null").map(|()| Json::Null),
            b't' => self.take("true").map(|()| Json::Bool(true)),
            b'f' => self.take("false").map(|()| Json::Bool(false)),
            _ => self.number(),
        }
    }

    fn number(&mut self) -> Option<Json> {
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
        let len = self.rest().find(|c| !is_part(c)).unwrap_or(self.rest().len());
        let text = &self.rest()[..len];
        // Rust parses some numbers that are not valid JSON.
        let starts_well = text.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit());
        let value = match text.parse::<i64>() {
            _ if !starts_well => return None,
            Ok(value) => Json::Int(value),
            Err(_) => Json::Float(parse_decimal(text)?),
        };
        self.at += len;
        Some(value)
    }

    fn string(&mut self) -> Option<String> {
        self.take("\"")?;
        let mut out = String::new();
        loop {
            let len = self.rest().find(['"', '\\'])?;
            out.push_str(&self.rest()[..len]);
            self.at += len + 1;
            if self.text.as_bytes()[self.at - 1] == b'"' {
                return Some(out);
            }
            out.push(self.escaped()?);
        }
    }

    /// Parses the rest of an escape sequence, whose backslash has been read, and returns the escaped
    /// character.
    fn escaped(&mut self) -> Option<char> {
        let letter = self.rest().chars().next()?;
        self.at += letter.len_utf8();
        Some(match letter {
            '"' | '\\' | '/' => letter,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let first = self.hex()?;
                if !(0xd800..0xdc00).contains(&first) {
                    return Some(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
                }
                // This is the first half of a surrogate pair, which does not represent a character on its own.
                let before = self.at;
                let second = self.rest().starts_with("\\u").then(|| self.at += 2).and_then(|()| self.hex());
                match second {
                    Some(second) if (0xdc00..0xe000).contains(&second) => {
                        char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00))?
                    }
                    _ => {
                        self.at = before;
                        char::REPLACEMENT_CHARACTER
                    }
                }
            }
            _ => return None,
        })
    }

    fn hex(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
    }

    fn array(&mut self, depth: usize) -> Option<Json> {
        self.take("[")?;
        let mut items = Vec::new();
        if self.take("]").is_some() {
            return Some(Json::Array(items));
        }
        loop {
            items.push(self.value(depth)?);
            if self.take("]").is_some() {
                return Some(Json::Array(items));
            }
            self.take(",")?;
        }
    }

    fn object(&mut self, depth: usize) -> Option<Json> {
        self.take("{")?;
        let mut pairs = Vec::new();
        if self.take("}").is_some() {
            return Some(Json::Object(pairs));
        }
        loop {
            self.space();
            let key = self.string()?;
            self.take(":")?;
            pairs.push((key, self.value(depth)?));
            if self.take("}").is_some() {
                return Some(Json::Object(pairs));
            }
            self.take(",")?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_string_of_a_key() {
        let signature = r#"{"type_schema":"{\"name\":\"no\"}", "arg_names":["name","a"],
            "arg_defaults":{"name":"no"},"name" : "f.g","doc":"x"}"#;
        assert_eq!(member(signature, "name"), Some("f.g"));
        assert_eq!(member(signature, "doc"), Some("x"));
        for text in [
            "",
            "{",
            "}",
            r#"{"name"#,
            r#"{"name":"#,
            r#"{"name":"x"#,
            r#"{"name":"x\"#,
            r#"{"name":"\u0041"}"#,
            r#"{"name":1,"a":"name"}"#,
            r#"{"a":"name","b":"c"}"#,
            r#"{"name":["x"]}"#,
            r#"["name","x"]"#,
            r#"[{"name":"x"}]"#,
        ] {
            assert_eq!(member(text, "name"), None, "{text}");
        }
    }
    use crate::text::quote;

    #[test]
    fn reads_every_kind_of_value() {
        let text =
            r#" {"a": [null, true, false, -7, 2.5, 1e3, 12345678901234567890], "b": {"c": "x"}, "d": []} "#;
        let json = Json::parse(text).unwrap();
        let numbers =
            [Json::Int(-7), Json::Float(2.5), Json::Float(1000.0), Json::Float(12345678901234567890.0)];
        let words = [Json::Null, Json::Bool(true), Json::Bool(false)];
        assert_eq!(json.get("a").unwrap().items(), [&words[..], &numbers[..]].concat());
        assert_eq!(json.get("b").and_then(|b| b.get("c")).and_then(Json::text), Some("x"));
        assert!(json.get("d").unwrap().items().is_empty());
        assert_eq!(json.get("e"), None);
    }

    #[test]
    fn reads_escapes() {
        let json = Json::parse(r#""\"\\\/\b\f\n\r\t\u00e9\ud83e\udd80\ud83ex é""#).unwrap();
        assert_eq!(json.text(), Some("\"\\/\u{8}\u{c}\n\r\té🦀\u{fffd}x é"));
        for text in ["plain", "q\"b\\n\nc\u{1}", "🦀"] {
            let mut quoted = String::new();
            quote(text, &mut quoted);
            assert_eq!(Json::parse(&quoted), Some(Json::Str(text.into())));
        }
    }

    #[test]
    fn refuses_what_is_not_json() {
        let deep = "[".repeat(65) + &"]".repeat(65);
        for text in [
            "",
            "nul",
            "[1,]",
            "[1 2]",
            "{\"a\"}",
            "{a: 1}",
            "\"x",
            "\"\\x\"",
            "\"\\u12\"",
            "1 2",
            "+1",
            ".5",
            "inf",
            "1e999",
            "-",
            &deep,
        ] {
            assert_eq!(Json::parse(text), None, "{text}");
        }
        assert!(Json::parse(&("[".repeat(60) + &"]".repeat(60))).is_some());
    }
}
