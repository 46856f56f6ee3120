//! User-provided strings in generated code: string literals, messages, and names of functions.
//!
//! A user's string reaches a source file only as one of these types, or as a name that
//! [`Names`](crate::family::Names) assigns. Strings of users are never written into a comment, a directive or
//! a pragma.

use std::fmt;

use anyfn::{DType, Result, bail};

/// String literal that has exactly the value of a given string, under every standard of C and C++ and every
/// compiler option.
///
/// Letters, digits and punctuation without a special meaning are unchanged. All other characters become octal
/// escapes of three digits, which a following digit cannot extend: quotes, backslashes, control characters,
/// non-ASCII bytes, and `?`, since `-std=c11` replaces trigraphs such as `??/`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Literal(String);

impl Literal {
    /// Returns the literal of a string that may contain NUL. The code that reads the string must know its
    /// length.
    pub(crate) fn of(text: &str) -> Literal {
        let mut out = String::with_capacity(text.len() + 2);
        out.push('"');
        for byte in text.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => out.push(byte.into()),
                _ if b" !#%&'()*+,-./:;<=>@[]^_`{|}~".contains(&byte) => out.push(byte.into()),
                _ => {
                    out.push('\\');
                    for shift in [6, 3, 0] {
                        out.push(char::from(b'0' + (byte >> shift & 7)));
                    }
                }
            }
        }
        out.push('"');
        Literal(out)
    }

    /// Returns the literal of a C string, which must not contain NUL. `what` describes the string in
    /// messages.
    ///
    /// # Errors
    /// Returns `ValueError` for a string that contains NUL.
    pub(crate) fn c_str(what: &str, text: &str) -> Result<Literal> {
        if text.contains('\0') {
            bail!("ValueError", "{what} contains a NUL character: {text:?}");
        }
        Ok(Literal::of(text))
    }

    /// Returns the literal of a message. Each NUL is replaced by the two characters `\0`.
    pub(crate) fn message(text: &str) -> Literal {
        Literal::of(&text.replace('\0', "\\0"))
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Message of an error that generated code raises. Each dialect generates the code that raises the
/// error.
#[derive(Default, Debug)]
pub(crate) struct Message {
    parts: Vec<Part>,
}

/// Part of a [`Message`].
#[derive(Debug)]
pub(crate) enum Part {
    /// User-provided string that is shown unchanged. It may contain any character.
    Text(String),
    /// Integer that is shown in decimal.
    Integer {
        /// Source of the expression whose value a message shows as an integer.
        code: String,
        /// Data type of the integer that a message shows.
        dtype: DType,
    },
}

impl Message {
    /// Returns a message that consists of a fixed string.
    pub(crate) fn text(text: &str) -> Message {
        let mut message = Message::default();
        message.push_text(text);
        message
    }

    /// Appends a string to the message. The string is shown unchanged.
    pub(crate) fn push_text(&mut self, text: &str) {
        self.parts.push(Part::Text(text.to_owned()));
    }

    /// Appends an integer of data type `dtype` to the message. `code` is an expression for the integer in the
    /// dialect.
    pub(crate) fn push_integer(&mut self, code: String, dtype: DType) {
        self.parts.push(Part::Integer { code, dtype });
    }

    /// Returns the first string of the message.
    pub(crate) fn first_text(&self) -> &str {
        let texts = self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Integer { .. } => None,
        });
        texts.into_iter().next().unwrap_or_default()
    }

    /// Returns the parts of the message in order.
    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts
    }
}

/// Name that appears unchanged in generated code because other code refers to it, such as the symbol of a
/// function in a library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Symbol(String);

impl Symbol {
    /// Returns `name` as a symbol if it consists of letters, digits and underscores and does not begin with a
    /// digit. Otherwise, returns `None`.
    pub(crate) fn of(name: &str) -> Option<Symbol> {
        let is_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let is_name = is_word && !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit());
        is_name.then(|| Symbol(name.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the value of a string literal according to the C standard.
    fn value(literal: &str) -> Vec<u8> {
        let inner =
            literal.strip_prefix('"').and_then(|text| text.strip_suffix('"')).expect("quotes").as_bytes();
        let (mut out, mut at) = (Vec::new(), 0);
        while at < inner.len() {
            assert!(inner[at].is_ascii() && !inner[at].is_ascii_control() && !b"\"?".contains(&inner[at]));
            if inner[at] == b'\\' {
                let digits = &inner[at + 1..at + 4];
                assert!(digits.iter().all(|digit| (b'0'..b'8').contains(digit)));
                out.push(digits.iter().fold(0u32, |n, digit| n * 8 + u32::from(digit - b'0')) as u8);
                at += 4;
            } else {
                out.push(inner[at]);
                at += 1;
            }
        }
        out
    }

    #[test]
    fn literals_have_the_value_of_their_text() {
        let all: String =
            (0..256u32).chain([0x7ff, 0x800, 0xffff, 0x10000, 0x10ffff]).filter_map(char::from_u32).collect();
        assert_eq!(value(&Literal::of(&all).0), all.as_bytes());
        for first in 0..128u8 {
            for second in 0..128u8 {
                for text in [&[first, second][..], &[b'?', first, second], &[first, b'7', second]] {
                    let text = std::str::from_utf8(text).expect("ASCII");
                    assert_eq!(value(&Literal::of(text).0), text.as_bytes(), "{text:?}");
                }
            }
        }
    }

    #[test]
    fn nul_ends_a_c_string_and_is_visible_in_a_message() {
        assert!(Literal::c_str("the text", "a\0b").is_err());
        assert_eq!(Literal::message("a\0b").to_string(), r#""a\1340b""#);
    }

    #[test]
    fn symbols_are_words() {
        assert_eq!(Symbol::of("f_1").map(|symbol| symbol.to_string()).as_deref(), Some("f_1"));
        for other in ["", "1f", "a b", "a-b", "ä", "f\0", "f\n", "f;", "f)"] {
            assert_eq!(Symbol::of(other), None, "{other:?}");
        }
    }
}
