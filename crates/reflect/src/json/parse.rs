//! JSON parser, which converts a string into a flat list of tokens (a tape).

use alloc::format;
use alloc::vec::Vec;

use anyfn::{Error, Result};

use super::tape::{Tape, Token, TokenKind, pack, position};

/// Parses a JSON string into a flat list of tokens. The numbers NaN, Infinity and -Infinity are
/// accepted, because the writer produces them as well.
///
/// # Errors
/// Returns `ValueError` with line and column if the input is not JSON.
pub(super) fn parse(text: &[u8]) -> Result<Tape<'_>> {
    if u32::try_from(text.len()).is_err() {
        return Err(Error::new("ValueError", "a JSON text of 4 GiB or more cannot be read"));
    }
    if let Err(error) = core::str::from_utf8(text) {
        return Err(fail(text, "Invalid UTF-8", error.valid_up_to()));
    }
    let tape = Tape { text, tokens: Vec::new(), ..Tape::default() };
    let mut parser = Parser { text, at: 0, open: Vec::new(), tape };
    parser.run().map_err(|(what, at)| fail(text, what, at))?;
    Ok(parser.tape)
}

#[cold]
fn fail(text: &[u8], what: &str, at: usize) -> Error {
    Error::new("ValueError", &format!("{what}: {}", position(text, at)))
}

/// Syntax error: its message, and its offset in the input.
type Fault = (&'static str, usize);

const EXPECTING_VALUE: &str = "Expecting value";
const EXPECTING_COMMA: &str = "Expecting ',' delimiter";
const EXPECTING_COLON: &str = "Expecting ':' delimiter";
const EXPECTING_NAME: &str = "Expecting property name enclosed in double quotes";
const BAD_SURROGATES: &str = "Invalid surrogate pair of \\uXXXX escapes";

struct Parser<'t> {
    text: &'t [u8],
    at: usize,
    /// Arrays and objects that are still open, each as the index of its token and the number of elements
    /// parsed so far.
    open: Vec<(u32, u32)>,
    tape: Tape<'t>,
}

impl Parser<'_> {
    #[inline]
    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    #[inline]
    fn space(&mut self) -> u8 {
        loop {
            let byte = self.peek();
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return byte;
            }
            self.at += 1;
        }
    }

    #[inline]
    fn push(&mut self, kind: TokenKind, at: usize, data: u64) {
        self.tape.tokens.push(Token { data, at: at as u32, kind });
    }

    fn run(&mut self) -> Result<(), Fault> {
        loop {
            // A value.
            let byte = self.space();
            match byte {
                b'"' => self.string()?,
                b'[' | b'{' => {
                    let is_object = byte == b'{';
                    let kind = if is_object { TokenKind::Object } else { TokenKind::Array };
                    let token = self.tape.tokens.len() as u32;
                    self.push(kind, self.at, 0);
                    self.at += 1;
                    let next = self.space();
                    if next == if is_object { b'}' } else { b']' } {
                        self.at += 1;
                        self.tape.tokens[token as usize].data = pack(0, token as usize + 1);
                    } else {
                        self.open.push((token, 0));
                        if is_object {
                            self.key()?;
                        }
                        continue;
                    }
                }
                b't' => self.word("true", TokenKind::True)?,
                b'f' => self.word("false", TokenKind::False)?,
                b'n' => self.word("null", TokenKind::Null)?,
                _ => self.number()?,
            }
            // The characters behind a value.
            loop {
                let byte = self.space();
                let next = self.tape.tokens.len();
                let Some((token, count)) = self.open.last_mut() else {
                    return if self.at == self.text.len() { Ok(()) } else { Err(("Extra data", self.at)) };
                };
                *count += 1;
                let opened = &mut self.tape.tokens[*token as usize];
                let is_object = opened.kind == TokenKind::Object;
                if byte == b',' {
                    self.at += 1;
                    if is_object {
                        self.key()?;
                    }
                    break;
                }
                if byte != if is_object { b'}' } else { b']' } {
                    return Err((EXPECTING_COMMA, self.at));
                }
                self.at += 1;
                opened.data = pack(*count as usize, next);
                self.open.pop();
            }
        }
    }

    /// Parses the key of a key-value pair and the colon after it.
    fn key(&mut self) -> Result<(), Fault> {
        if self.space() != b'"' {
            return Err((EXPECTING_NAME, self.at));
        }
        self.string()?;
        if self.space() != b':' {
            return Err((EXPECTING_COLON, self.at));
        }
        self.at += 1;
        Ok(())
    }

    fn word(&mut self, word: &str, kind: TokenKind) -> Result<(), Fault> {
        let at = self.at;
        if !self.text[at..].starts_with(word.as_bytes()) {
            return Err((EXPECTING_VALUE, at));
        }
        self.at += word.len();
        match kind {
            TokenKind::Float => self.push(kind, at, float_of_word(word).to_bits()),
            _ => self.push(kind, at, 0),
        }
        Ok(())
    }

    fn digits(&mut self) -> usize {
        let from = self.at;
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        self.at - from
    }

    fn number(&mut self) -> Result<(), Fault> {
        let from = self.at;
        let fault = (EXPECTING_VALUE, from);
        let negative = self.peek() == b'-';
        self.at += usize::from(negative);
        match self.peek() {
            b'I' => {
                self.at = from;
                return self.word(if negative { "-Infinity" } else { "Infinity" }, TokenKind::Float);
            }
            b'N' if !negative => return self.word("NaN", TokenKind::Float),
            _ => {}
        }
        let starts_with_zero = self.peek() == b'0';
        let whole = self.digits();
        if whole == 0 || (starts_with_zero && whole > 1) {
            return Err(fault);
        }
        let mut is_int = true;
        if self.peek() == b'.' {
            is_int = false;
            self.at += 1;
            if self.digits() == 0 {
                return Err(fault);
            }
        }
        if matches!(self.peek(), b'e' | b'E') {
            is_int = false;
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), b'+' | b'-'));
            if self.digits() == 0 {
                return Err(fault);
            }
        }
        let digits = &self.text[from..self.at];
        if is_int && whole <= 18 {
            let magnitude = digits[usize::from(negative)..]
                .iter()
                .fold(0, |value: i64, digit| value * 10 + i64::from(digit - b'0'));
            self.push(TokenKind::Int, from, if negative { -magnitude } else { magnitude } as u64);
            return Ok(());
        }
        // Only the ASCII characters of a number, so this is UTF-8.
        let text = core::str::from_utf8(digits).unwrap_or("");
        if is_int && let Ok(value) = text.parse::<i64>() {
            self.push(TokenKind::Int, from, value as u64);
            return Ok(());
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => self.push(TokenKind::Float, from, value.to_bits()),
            _ => return Err(("Number out of range", from)),
        }
        Ok(())
    }

    fn string(&mut self) -> Result<(), Fault> {
        let from = self.at;
        self.at += 1;
        self.plain();
        loop {
            match self.text.get(self.at) {
                Some(b'"') => {
                    self.push(TokenKind::Str, from, (self.at - from - 1) as u64);
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => return self.escaped(from),
                Some(byte) if *byte < b' ' => return Err(("Invalid control character at", self.at)),
                Some(_) => self.at += 1,
                None => return Err(("Unterminated string starting at", from)),
            }
        }
    }

    /// Skips the unescaped characters of a string, eight bytes at a time. Stops at a quote, backslash or
    /// control character, or when fewer than eight bytes are left.
    #[inline]
    fn plain(&mut self) {
        const ONES: u64 = u64::MAX / 255;
        let (words, _) = self.text[self.at..].as_chunks::<8>();
        for word in words {
            let word = u64::from_le_bytes(*word);
            // The lowest top bit that is set belongs to the first such byte.
            let is_zero = |bytes: u64| bytes.wrapping_sub(ONES) & !bytes;
            let controls = word.wrapping_sub(ONES * 0x20) & !word;
            let found = is_zero(word ^ (ONES * 0x22)) | is_zero(word ^ (ONES * 0x5c)) | controls;
            let found = found & (ONES * 0x80);
            if found != 0 {
                self.at += found.trailing_zeros() as usize / 8;
                return;
            }
            self.at += 8;
        }
    }

    /// Parses the rest of a string, beginning at its first escape. `from` is the offset of the opening quote.
    fn escaped(&mut self, from: usize) -> Result<(), Fault> {
        let begin = self.tape.texts.len();
        let mut copied = from + 1;
        loop {
            let end = self.at;
            match self.text.get(end) {
                None => return Err(("Unterminated string starting at", from)),
                Some(b'"') => {
                    self.tape.texts.extend_from_slice(&self.text[copied..end]);
                    self.at += 1;
                    self.push(TokenKind::Decoded, from, pack(begin, self.tape.texts.len() - begin));
                    return Ok(());
                }
                Some(b'\\') => {
                    self.tape.texts.extend_from_slice(&self.text[copied..end]);
                    self.at += 1;
                    let character = self.escape()?;
                    let mut buffer = [0; 4];
                    self.tape.texts.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
                    copied = self.at;
                }
                Some(byte) if *byte < b' ' => return Err(("Invalid control character at", end)),
                Some(_) => self.at += 1,
            }
        }
    }

    /// Parses an escape sequence. The backslash has already been consumed.
    fn escape(&mut self) -> Result<char, Fault> {
        let at = self.at;
        self.at += 1;
        Ok(match self.text.get(at).copied().unwrap_or(0) {
            letter @ (b'"' | b'\\' | b'/') => letter as char,
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.hex(at)?;
                if !(0xd800..0xe000).contains(&first) {
                    return char::from_u32(first).ok_or((BAD_SURROGATES, at));
                }
                if first >= 0xdc00 || !self.text[self.at..].starts_with(b"\\u") {
                    return Err((BAD_SURROGATES, at));
                }
                self.at += 2;
                let begin = self.at;
                let second = self.hex(begin)?;
                if !(0xdc00..0xe000).contains(&second) {
                    return Err((BAD_SURROGATES, begin));
                }
                let code = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return char::from_u32(code).ok_or((BAD_SURROGATES, at));
            }
            _ => return Err(("Invalid \\escape", at)),
        })
    }

    /// Parses the four hexadecimal digits of a `\u` escape. `at` is the offset that an error
    /// reports.
    fn hex(&mut self, at: usize) -> Result<u32, Fault> {
        let fault = ("Invalid \\uXXXX escape", at);
        let digits = self.text.get(self.at..self.at + 4).ok_or(fault)?;
        self.at += 4;
        digits.iter().try_fold(0, |value, digit| Ok(value * 16 + (*digit as char).to_digit(16).ok_or(fault)?))
    }
}

fn float_of_word(word: &str) -> f64 {
    match word {
        "Infinity" => f64::INFINITY,
        "-Infinity" => f64::NEG_INFINITY,
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};
    use std::println;

    fn message(text: &str) -> String {
        parse(text.as_bytes()).err().map_or("read".to_string(), |error| error.message().to_string())
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        for (text, expected) in [
            ("", "Expecting value: line 1 column 1 (char 0)"),
            ("  ", "Expecting value: line 1 column 3 (char 2)"),
            ("nul", "Expecting value: line 1 column 1 (char 0)"),
            ("[1,]", "Expecting value: line 1 column 4 (char 3)"),
            ("[1 2]", "Expecting ',' delimiter: line 1 column 4 (char 3)"),
            ("{\"a\"}", "Expecting ':' delimiter: line 1 column 5 (char 4)"),
            ("{a:1}", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
            ("{\"a\":1,}", "Expecting property name enclosed in double quotes: line 1 column 8 (char 7)"),
            ("\"x", "Unterminated string starting at: line 1 column 1 (char 0)"),
            ("[1,\n\"abc]", "Unterminated string starting at: line 2 column 1 (char 4)"),
            ("\"\\x\"", "Invalid \\escape: line 1 column 3 (char 2)"),
            ("\"\\u12\"", "Invalid \\uXXXX escape: line 1 column 3 (char 2)"),
            ("\"\\ud800\"", "Invalid surrogate pair of \\uXXXX escapes: line 1 column 3 (char 2)"),
            ("\"\\udc00\\ud800\"", "Invalid surrogate pair of \\uXXXX escapes: line 1 column 3 (char 2)"),
            ("\"a\tb\"", "Invalid control character at: line 1 column 3 (char 2)"),
            ("1 2", "Extra data: line 1 column 3 (char 2)"),
            ("[1][", "Extra data: line 1 column 4 (char 3)"),
            ("\"\\", "Invalid \\escape: line 1 column 3 (char 2)"),
            ("[\n1,\n x]", "Expecting value: line 3 column 2 (char 6)"),
            ("[1,", "Expecting value: line 1 column 4 (char 3)"),
            ("[1", "Expecting ',' delimiter: line 1 column 3 (char 2)"),
            ("-", "Expecting value: line 1 column 1 (char 0)"),
            ("-NaN", "Expecting value: line 1 column 1 (char 0)"),
            ("1e999", "Number out of range: line 1 column 1 (char 0)"),
            ("\0", "Expecting value: line 1 column 1 (char 0)"),
            ("1\0", "Extra data: line 1 column 2 (char 1)"),
        ] {
            assert_eq!(message(text), expected, "{text}");
        }
        for text in
            ["+1", ".5", "1.", "01", "1e", "inf", "[1.]", "--1", "0x1", "1_0", "'a'", "// x\n1", "{,}", "[,1]"]
        {
            assert_ne!(message(text), "read", "{text}");
        }
        let error = parse(b"[\"\xff\"]").err().unwrap();
        assert_eq!(error.message(), "Invalid UTF-8: line 1 column 3 (char 2)");
    }

    #[test]
    fn reads_every_kind_of_value() {
        let text = r#" {"a":[null,true,false,-7,2.5,1e3,5e-324,12345678901234567890,-9223372036854775808,
            9223372036854775807,NaN,-Infinity,Infinity,-0,-0.0],"b":{"c":"x"},"d":[],"e":{},"f":"\"\\\/\b\f\n\r\t\u00e9\ud83e\udd80"} "#;
        let tape = parse(text.as_bytes()).unwrap();
        let value = tape.to_any(0).unwrap();
        println!("{value:?}");
        let a = tape.get(0, "a").unwrap();
        let kinds: Vec<TokenKind> = tape.items(a).map(|at| tape.kind(at)).collect();
        let (int, float) = (TokenKind::Int, TokenKind::Float);
        let numbers = [int, float, float, float, float, int, int, float, float, float, int, float];
        assert_eq!(kinds[..3], [TokenKind::Null, TokenKind::True, TokenKind::False]);
        assert_eq!(kinds[3..], numbers);
        assert_eq!(tape.int(tape.items(a).nth(9).unwrap()), Some(i64::MAX));
        assert_eq!(tape.str(tape.get(0, "f").unwrap()), Some("\"\\/\u{8}\u{c}\n\r\té🦀"));
        assert_eq!(tape.path(tape.get(tape.get(0, "b").unwrap(), "c").unwrap()), "b.c");
        assert_eq!(tape.path(tape.items(a).nth(4).unwrap()), "a[4]");
    }

    #[test]
    fn any_depth_is_read() {
        let depth = 1_000_000;
        let text = "[".repeat(depth) + &"]".repeat(depth);
        let tape = parse(text.as_bytes()).unwrap();
        assert_eq!(tape.tokens.len(), depth);
        drop(tape.to_any(0).unwrap());
        let error = parse(&text.as_bytes()[..depth + 10]).err().unwrap();
        assert!(
            error.message().starts_with("Expecting ',' delimiter: line 1 column 1000011"),
            "{}",
            error.message()
        );
    }
}
