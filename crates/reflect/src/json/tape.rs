//! Tape: a JSON value as a flat list of tokens, which is read without recursion.
//!
//! JSON is parsed completely first. A token takes 16 bytes and represents at least two bytes of input, so the
//! memory that an input can occupy is bounded by its length. Each token records its position in the input, so
//! that errors which are found later report it, as syntax errors do.

use alloc::format;
use alloc::string::String as StdString;
use alloc::vec::Vec;

use anyfn::{Any, ArrayBuilder, Error, Map, Result};

/// Kind of a JSON token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum TokenKind {
    Null,
    False,
    True,
    /// Integer; `data` contains its value.
    Int,
    /// Floating-point number; `data` contains its bits.
    Float,
    /// String without escapes; `data` contains its length. Its bytes are in the input, after the opening
    /// quote.
    Str,
    /// String that contained escapes; `data` contains its offset and length in the decoded strings.
    Decoded,
    /// Array; `data` contains the number of elements, and the index of the token after the last element.
    Array,
    /// Object; `data` contains the number of key-value pairs, and the index of the token after the last pair.
    /// The token of each key is followed by the tokens of its value.
    Object,
    /// Value that JSON cannot represent; `data` contains its index in `Tape::others`.
    Other,
}

/// JSON token, which takes 16 bytes.
#[derive(Clone, Copy)]
pub(super) struct Token {
    pub(super) data: u64,
    /// Offset of the token in the input, in bytes.
    pub(super) at: u32,
    pub(super) kind: TokenKind,
}

/// Index of a token in [`Tape::tokens`].
pub(super) type At = usize;

/// Packs two 32-bit numbers into one.
pub(super) const fn pack(high: usize, low: usize) -> u64 {
    (high as u64) << 32 | low as u64 & 0xffff_ffff
}

/// JSON value as a flat list of tokens.
#[derive(Default)]
pub(super) struct Tape<'t> {
    /// JSON string from which the tokens were parsed; empty if they were converted from a value.
    pub(super) text: &'t [u8],
    pub(super) tokens: Vec<Token>,
    pub(super) texts: Vec<u8>,
    pub(super) others: Vec<Any>,
}

impl Tape<'_> {
    pub(super) fn kind(&self, at: At) -> TokenKind {
        self.tokens[at].kind
    }

    /// Returns the index of the token after the value at `at`, which may consist of several tokens.
    pub(super) fn next(&self, at: At) -> At {
        match self.tokens[at].kind {
            TokenKind::Array | TokenKind::Object => (self.tokens[at].data & 0xffff_ffff) as At,
            _ => at + 1,
        }
    }

    /// Returns the number of elements of the array at `at`, or of key-value pairs of the object at `at`.
    pub(super) fn len(&self, at: At) -> usize {
        (self.tokens[at].data >> 32) as usize
    }

    /// Returns the bytes of the string at `at`, or an empty slice for other values.
    pub(super) fn bytes(&self, at: At) -> &[u8] {
        let Token { kind, data, at } = self.tokens[at];
        match kind {
            TokenKind::Str => &self.text[at as usize + 1..][..data as usize],
            TokenKind::Decoded => &self.texts[(data >> 32) as usize..][..(data & 0xffff_ffff) as usize],
            _ => &[],
        }
    }

    /// Returns the string at `at`; `None` for other values.
    pub(super) fn str(&self, at: At) -> Option<&str> {
        let is_text = matches!(self.kind(at), TokenKind::Str | TokenKind::Decoded);
        is_text.then(|| core::str::from_utf8(self.bytes(at)).ok())?
    }

    /// Returns the value of the integer at `at`, or 0 or 1 for a boolean; `None` for other values.
    pub(super) fn int(&self, at: At) -> Option<i64> {
        match self.kind(at) {
            TokenKind::Int => Some(self.tokens[at].data as i64),
            TokenKind::False => Some(0),
            TokenKind::True => Some(1),
            _ => None,
        }
    }

    /// Returns an iterator over the elements of the array at `at`. The iterator is empty for other
    /// values.
    pub(super) fn items(&self, at: At) -> Items<'_> {
        let is_array = self.kind(at) == TokenKind::Array;
        Items { tape: self, next: at + 1, left: if is_array { self.len(at) } else { 0 } }
    }

    /// Returns an iterator over the keys and values of the object at `at`. The iterator is empty
    /// for other values.
    pub(super) fn pairs(&self, at: At) -> Pairs<'_> {
        let is_object = self.kind(at) == TokenKind::Object;
        Pairs(Items { tape: self, next: at + 1, left: if is_object { 2 * self.len(at) } else { 0 } })
    }

    /// Returns the index of the value of `key` in the object at `at`; `None` if the key is missing.
    /// If the key occurs several times, returns the last occurrence.
    pub(super) fn get(&self, at: At, key: &str) -> Option<At> {
        self.pairs(at).filter(|(name, _)| self.bytes(*name) == key.as_bytes()).last().map(|(_, value)| value)
    }

    /// Returns the type key of the value at `at`, for error messages.
    pub(super) fn type_key(&self, at: At) -> &'static str {
        match self.kind(at) {
            TokenKind::Null => "None",
            TokenKind::False | TokenKind::True => "bool",
            TokenKind::Int => "int",
            TokenKind::Float => "float",
            TokenKind::Str | TokenKind::Decoded if self.bytes(at).len() < 8 => "ffi.SmallStr",
            TokenKind::Str | TokenKind::Decoded => "ffi.String",
            TokenKind::Array => "ffi.Array",
            TokenKind::Object => "ffi.Map",
            TokenKind::Other => self.others[self.tokens[at].data as usize].type_key(),
        }
    }

    /// Converts the token at `at` to an [`Any`]. The token must not be an array or object.
    fn leaf(&self, at: At) -> Result<Any> {
        let Token { kind, data, .. } = self.tokens[at];
        match kind {
            TokenKind::False => Any::new(false),
            TokenKind::True => Any::new(true),
            TokenKind::Int => Any::new(data as i64),
            TokenKind::Float => Any::new(f64::from_bits(data)),
            TokenKind::Str | TokenKind::Decoded => string(self.bytes(at)),
            TokenKind::Other => Ok(self.others[data as usize].clone()),
            TokenKind::Null | TokenKind::Array | TokenKind::Object => Ok(Any::NONE),
        }
    }

    /// Converts the JSON value at `at` to an [`Any`]: arrays become Arrays, objects become Maps.
    pub(super) fn to_any(&self, at: At) -> Result<Any> {
        struct Open {
            is_object: bool,
            left: usize,
            base: usize,
        }
        let (mut open, mut values): (Vec<Open>, Vec<Any>) = (Vec::new(), Vec::new());
        let mut recent = Recent::default();
        let mut next = at;
        loop {
            let kind = self.kind(next);
            let (is_object, is_array) = (kind == TokenKind::Object, kind == TokenKind::Array);
            if is_object || is_array {
                let left = self.len(next) << u32::from(is_object);
                open.push(Open { is_object, left, base: values.len() });
            } else if matches!(kind, TokenKind::Str | TokenKind::Decoded) {
                values.push(recent.string(self.bytes(next))?);
            } else {
                values.push(self.leaf(next)?);
            }
            next += 1;
            // Close the containers that are complete.
            loop {
                match open.last_mut() {
                    None => return Ok(values.pop().unwrap_or_default()),
                    Some(top) if values.len() - top.base < top.left => break,
                    Some(_) => {}
                }
                let Some(Open { is_object, base, .. }) = open.pop() else { return Ok(Any::NONE) };
                let mut items = values.drain(base..);
                let value = if is_object {
                    let mut pairs = Vec::with_capacity(items.len() / 2);
                    while let (Some(key), Some(value)) = (items.next(), items.next()) {
                        pairs.push((key, value));
                    }
                    Any::new(Map::<Any, Any>::from_vec(pairs)?)?
                } else {
                    let mut array = ArrayBuilder::with_capacity(items.len())?;
                    items.by_ref().try_for_each(|item| array.push(item))?;
                    Any::new(array.finish())?
                };
                drop(items);
                values.push(value);
            }
        }
    }

    /// Creates an error whose message contains the location of the value at `at`.
    #[cold]
    pub(super) fn error(&self, kind: &str, message: &str, at: At) -> Error {
        Error::new(kind, &format!("{message}{}", self.place(at)))
    }

    /// Describes the location of the value at `at`: its path, and its line and column if it was parsed from a
    /// string.
    #[cold]
    pub(super) fn place(&self, at: At) -> StdString {
        let path = self.path(at);
        let path = if path.is_empty() { StdString::new() } else { format!(", at {path}") };
        match self.text {
            [] => path,
            text => format!("{path}: {}", position(text, self.tokens[at].at as usize)),
        }
    }

    /// Returns the path of keys and indices from the root to the value at `target`, such as
    /// `nodes[3].data.a`.
    pub(super) fn path(&self, target: At) -> StdString {
        /// Maximum number of steps of a path that are shown in an error message.
        const STEPS: usize = 24;
        let (mut path, mut at, mut steps) = (StdString::new(), 0, 0);
        while at != target {
            steps += 1;
            let is_object = self.kind(at) == TokenKind::Object;
            let (mut child, mut index, mut key) = (at + 1, 0, None);
            loop {
                if is_object {
                    key = Some(child);
                    child += 1;
                }
                if target < self.next(child) || self.next(child) >= self.next(at) {
                    break;
                }
                child = self.next(child);
                index += 1;
            }
            if steps == STEPS {
                path.push_str("..");
            } else if steps < STEPS {
                match key.and_then(|key| self.str(key)) {
                    Some(key) => push_key(&mut path, key),
                    None => path.push_str(&format!("[{index}]")),
                }
            }
            if key == Some(target) {
                break;
            }
            at = child;
        }
        path
    }
}

/// Appends an object key to a path, as `.name` or `["other key"]`.
pub(super) fn push_key(path: &mut StdString, key: &str) {
    let is_name = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_name || key.is_empty() || key.as_bytes()[0].is_ascii_digit() {
        let key = anyfn::__private::shorten(key);
        return path.push_str(&format!("[{key:?}]"));
    }
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(&anyfn::__private::shorten(key));
}

/// Describes a byte offset in the input as line and column.
pub(super) fn position(text: &[u8], at: usize) -> StdString {
    let before = &text[..at.min(text.len())];
    let line = memchr::memchr_iter(b'\n', before).count() + 1;
    let column = before.len() - memchr::memrchr(b'\n', before).map_or(0, |newline| newline + 1) + 1;
    format!("line {line} column {column} (char {at})")
}

/// Creates a string value from UTF-8 bytes.
pub(super) fn string(bytes: &[u8]) -> Result<Any> {
    anyfn::__private::try_string(bytes)
        .ok_or_else(|| Error::new("MemoryError", "cannot allocate memory for a string"))
}

/// Cache of recently created strings. Field names and type keys recur, and immutable strings can be shared.
#[derive(Default)]
struct Recent([Any; Recent::SIZE]);

impl Recent {
    const SIZE: usize = 16;
    /// Maximum length in bytes of a string in the cache. Longer strings rarely repeat.
    const LONGEST: usize = 32;

    #[inline]
    fn string(&mut self, bytes: &[u8]) -> Result<Any> {
        // Strings that are stored in the value itself cost nothing.
        if bytes.len() < 8 || bytes.len() > Self::LONGEST {
            return string(bytes);
        }
        let place =
            bytes.len() + 5 * usize::from(bytes[bytes.len() - 1]) + 3 * usize::from(bytes[bytes.len() / 2]);
        let known = &mut self.0[place % Self::SIZE];
        if anyfn::__private::bytes_of(known) != bytes {
            *known = string(bytes)?;
        }
        Ok(known.clone())
    }
}

/// Iterator over consecutive values in a list of tokens.
pub(super) struct Items<'a> {
    tape: &'a Tape<'a>,
    next: At,
    left: usize,
}

impl Iterator for Items<'_> {
    type Item = At;
    fn next(&mut self) -> Option<At> {
        self.left = self.left.checked_sub(1)?;
        let at = self.next;
        self.next = self.tape.next(at);
        Some(at)
    }
}

/// Iterator over the keys and values of a JSON object.
pub(super) struct Pairs<'a>(Items<'a>);

impl Iterator for Pairs<'_> {
    type Item = (At, At);
    fn next(&mut self) -> Option<(At, At)> {
        Some((self.0.next()?, self.0.next()?))
    }
}
