//! JSON values as ABI values: None, bool, int, float, string, Array or List, Map or Dict with string keys.

use alloc::format;
use alloc::vec::Vec;

use anyfn::abi::{
    kTVMFFIArray, kTVMFFIBool, kTVMFFIDict, kTVMFFIFloat, kTVMFFIInt, kTVMFFIList, kTVMFFIMap, kTVMFFINone,
    kTVMFFISmallStr, kTVMFFIStr,
};
use anyfn::{Any, Array, Dict, Error, List, Map, Result};
use hashbrown::HashSet;
use rustc_hash::FxBuildHasher;

use super::tape::{At, Tape, Token, TokenKind, pack};
use super::text;

/// Elements of an Array or List, or the keys and values of a Map or Dict, alternating.
pub(super) enum Items {
    Array(Array),
    /// Snapshot of the content of a List, Map or Dict.
    Copy(Vec<Any>),
}

impl Items {
    pub(super) fn as_slice(&self) -> &[Any] {
        match self {
            Items::Array(array) => array.as_slice(),
            Items::Copy(items) => items,
        }
    }

    /// Returns the elements of an Array or List, or the keys and values of a Map or Dict, alternating; `None` for other
    /// values.
    pub(super) fn of(value: &Any) -> Result<Option<Items>> {
        let flat = |pairs: Vec<(Any, Any)>| pairs.into_iter().flat_map(<[Any; 2]>::from).collect();
        Ok(Some(match value.type_index() {
            kTVMFFIArray => Items::Array(value.get::<Array>()?),
            kTVMFFIList => Items::Copy(value.get::<List>()?.try_snapshot()?),
            kTVMFFIDict => Items::Copy(flat(value.get::<Dict>()?.try_snapshot()?)),
            kTVMFFIMap => {
                let map = value.get::<Map>()?;
                let mut items = Vec::with_capacity(2 * map.len());
                map.iter_any().for_each(|(key, value)| items.extend([key.clone(), value.clone()]));
                Items::Copy(items)
            }
            _ => return Ok(None),
        }))
    }
}

/// Container on the stack of a traversal, with the current position in it.
struct Open {
    items: Items,
    at: usize,
    is_map: bool,
    /// Address of a List or Dict, which can contain itself; 0 for other containers.
    address: usize,
}

/// Visitor of a JSON value. Its methods are called at the beginning and end of containers, and for each
/// element, key and value.
trait Visitor {
    fn leaf(&mut self, value: &Any) -> Result<()>;
    /// Prepares the output for the next element, key or value of a container. Called before each of
    /// them.
    fn before(&mut self, index: usize, is_map: bool, depth: usize);
    fn open(&mut self, is_map: bool);
    fn close(&mut self, is_map: bool, count: usize, depth: usize);
    /// Returns an error if the output exceeds a size limit. Called at intervals, not for each
    /// value.
    fn check(&self) -> Result<()>;
}

/// Traverses a JSON value without recursion and calls methods of `visitor` for each container,
/// element, key and value.
///
/// # Errors
/// Returns `ValueError` for keys that are not strings, for a List or Dict that contains itself, and if a limit of the
/// visitor is exceeded; the error of a signal or a cancellation.
fn walk(root: &Any, visitor: &mut impl Visitor) -> Result<()> {
    /// Number of containers and elements between two checks for signals; a power of two.
    const LOOK: u32 = 1 << 14;
    let mut steps = 0_u32;
    let mut open: Vec<Open> = Vec::new();
    let mut active: HashSet<usize, FxBuildHasher> = HashSet::default();
    let mut value = root.clone();
    loop {
        steps = steps.wrapping_add(1);
        if steps.is_multiple_of(LOOK) {
            visitor.check()?;
            anyfn::check_signals()?;
        }
        match Items::of(&value)? {
            None => visitor.leaf(&value)?,
            Some(items) => {
                let index = value.type_index();
                let can_cycle = matches!(index, kTVMFFIList | kTVMFFIDict);
                let address = value.as_object().map_or(0, |object| object.as_handle().addr());
                if can_cycle && !active.insert(address) {
                    let what = if index == kTVMFFIList { "List" } else { "Dict" };
                    anyfn::bail!("ValueError", "Cycle detected: {what} contains itself");
                }
                let is_map = matches!(index, kTVMFFIMap | kTVMFFIDict);
                visitor.open(is_map);
                open.push(Open { items, at: 0, is_map, address: if can_cycle { address } else { 0 } });
            }
        }
        loop {
            let depth = open.len();
            let Some(top) = open.last_mut() else { return Ok(()) };
            let items = top.items.as_slice();
            if let Some(next) = items.get(top.at) {
                visitor.before(top.at, top.is_map, depth);
                let is_key = top.is_map && top.at % 2 == 0;
                top.at += 1;
                if is_key {
                    if !matches!(next.type_index(), kTVMFFISmallStr | kTVMFFIStr) {
                        let key = next.type_key();
                        anyfn::bail!("ValueError", "Expect key to be string, got `{key}`");
                    }
                    visitor.leaf(next)?;
                    continue;
                }
                value = next.clone();
                break;
            }
            visitor.close(top.is_map, items.len() >> u32::from(top.is_map), depth);
            active.remove(&top.address);
            open.pop();
        }
    }
}

/// Maximum length of the JSON output in bytes. The length is checked at intervals, not after each value.
const TEXT_MAX: usize = 1 << 30;

/// Maximum number of JSON tokens of a value. The number is checked at intervals, not after each token.
const TOKENS_MAX: usize = 1 << 27;

fn too_large() -> Error {
    Error::new("ValueError", "a JSON value of 4 GiB or more, or of more than 2^27 values, cannot be read")
}

/// Visitor that writes a value as a JSON string.
struct Writer<'a> {
    out: &'a mut Vec<u8>,
    indent: i64,
}

impl Writer<'_> {
    fn line(&mut self, depth: usize) {
        if self.indent != 0 {
            self.out.push(b'\n');
            let spaces = usize::try_from(self.indent).unwrap_or(0).saturating_mul(depth);
            self.out.resize(self.out.len() + spaces, b' ');
        }
    }
}

impl Visitor for Writer<'_> {
    fn leaf(&mut self, value: &Any) -> Result<()> {
        match value.type_index() {
            kTVMFFINone => self.out.extend_from_slice(b"null"),
            kTVMFFIBool => self.out.extend_from_slice(if value.get::<bool>()? { b"true" } else { b"false" }),
            kTVMFFIInt => text::write_int(self.out, value.get::<i64>()?),
            kTVMFFIFloat => text::write_float(self.out, value.get::<f64>()?),
            kTVMFFISmallStr | kTVMFFIStr => {
                text::write_str(self.out, value.get::<&str>()?.as_bytes());
                self.check()?;
            }
            _ => anyfn::bail!("ValueError", "Unsupported type: `{}`", value.type_key()),
        }
        Ok(())
    }

    fn before(&mut self, index: usize, is_map: bool, depth: usize) {
        if is_map && index % 2 == 1 {
            self.out.extend_from_slice(if self.indent != 0 { b": " } else { b":" });
            return;
        }
        if index != 0 {
            self.out.push(b',');
        }
        self.line(depth);
    }

    fn open(&mut self, is_map: bool) {
        self.out.push(if is_map { b'{' } else { b'[' });
    }

    fn close(&mut self, is_map: bool, _count: usize, depth: usize) {
        self.line(depth - 1);
        self.out.push(if is_map { b'}' } else { b']' });
    }

    fn check(&self) -> Result<()> {
        if self.out.len() <= TEXT_MAX {
            return Ok(());
        }
        anyfn::bail!(
            "ValueError",
            "cannot write a value as JSON: the text takes more than {TEXT_MAX} bytes; JSON repeats what occurs several times, \
             ffi.ToJSONGraph does not"
        )
    }
}

/// Writes a value as JSON: on one line if `indent` is 0, otherwise on several lines, indented by
/// `indent` spaces for each level of nesting.
///
/// # Errors
/// Returns `ValueError` for values that JSON cannot represent, keys that are not strings, a List or Dict that contains
/// itself, an indent of more than 64, and output of more than 1 GiB.
pub(super) fn write(out: &mut Vec<u8>, value: &Any, indent: i64) -> Result<()> {
    /// Maximum indent of a nesting level, in spaces. The bound is needed because the output grows
    /// with the product of the indent and the nesting depth.
    const WIDEST: i64 = 64;
    if indent > WIDEST {
        anyfn::bail!("ValueError", "an indent of {indent} is too wide: {WIDEST} at most");
    }
    walk(value, &mut Writer { out, indent })
}

/// Visitor that converts a JSON value into a flat list of tokens (a tape).
struct Taper {
    tape: Tape<'static>,
    open: Vec<At>,
}

impl Visitor for Taper {
    fn leaf(&mut self, value: &Any) -> Result<()> {
        let (kind, data) = match value.type_index() {
            kTVMFFINone => (TokenKind::Null, 0),
            kTVMFFIBool => (if value.get::<bool>()? { TokenKind::True } else { TokenKind::False }, 0),
            kTVMFFIInt => (TokenKind::Int, value.get::<i64>()? as u64),
            kTVMFFIFloat => (TokenKind::Float, value.get::<f64>()?.to_bits()),
            kTVMFFISmallStr | kTVMFFIStr => {
                let (begin, text) = (self.tape.texts.len(), value.get::<&str>()?);
                self.tape.texts.extend_from_slice(text.as_bytes());
                (TokenKind::Decoded, pack(begin, text.len()))
            }
            _ => {
                self.tape.others.push(value.clone());
                (TokenKind::Other, self.tape.others.len() as u64 - 1)
            }
        };
        self.tape.tokens.push(Token { data, at: 0, kind });
        if self.tape.texts.len() >= u32::MAX as usize {
            return Err(too_large());
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        if self.tape.tokens.len() > TOKENS_MAX { Err(too_large()) } else { Ok(()) }
    }

    fn before(&mut self, _index: usize, _is_map: bool, _depth: usize) {}

    fn open(&mut self, is_map: bool) {
        self.open.push(self.tape.tokens.len());
        let kind = if is_map { TokenKind::Object } else { TokenKind::Array };
        self.tape.tokens.push(Token { data: 0, at: 0, kind });
    }

    fn close(&mut self, _is_map: bool, count: usize, _depth: usize) {
        let next = self.tape.tokens.len();
        if let Some(open) = self.open.pop() {
            self.tape.tokens[open].data = pack(count, next);
        }
    }
}

/// Converts a JSON value into a flat list of tokens (a tape).
///
/// # Errors
/// Returns `ValueError` for keys that are not strings, for a List or Dict that contains itself, and for a value that
/// exceeds the limits of a tape.
pub(super) fn to_tape(value: &Any) -> Result<Tape<'static>> {
    let mut taper = Taper { tape: Tape::default(), open: Vec::new() };
    walk(value, &mut taper)?;
    Ok(taper.tape)
}

/// Formats a value for error messages. Numbers, None and strings are shown, but long strings are shortened. For
/// other values, the type key is shown.
pub(super) fn shown(value: &Any) -> alloc::string::String {
    match value.type_index() {
        kTVMFFISmallStr | kTVMFFIStr => {
            let text = value.get::<&str>().unwrap_or("");
            format!("{:?}", anyfn::__private::shorten(text))
        }
        kTVMFFIInt | kTVMFFIBool | kTVMFFIFloat | kTVMFFINone => format!("{value:?}"),
        _ => format!("<{}>", value.type_key()),
    }
}
