//! Conversion of values to readable strings (`ffi.ReprPrint`).
//!
//! Everything is written into one string, from left to right. The text of an object that is encountered again is copied
//! from its first occurrence, as long as the string is short: a graph of 60 levels in which each node is used twice has
//! 2^60 occurrences.

mod text;

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Write;

use anyfn::abi::{
    TVMFFIAny, TVMFFIObjectHandle, kTVMFFIArray, kTVMFFIDict, kTVMFFIFieldFlagBitMaskReprOff as REPR_OFF,
    kTVMFFIList, kTVMFFIMap, kTVMFFIObject,
};
use anyfn::{Any, Args, ObjectRef, PackedFunc, Result};

use crate::column::{Column, Hook, expected};
use crate::guard;
use crate::plan::{self, Plan, PlanCache, Plans};
use crate::table::Table;
use crate::value::{self, Node, is_watched};

static REPR: Column = Column::new("__ffi_repr__");
static PLANS: PlanCache = PlanCache::new(REPR_OFF);

/// Default maximum length of the output, in bytes. The rest is shown as `...`.
const LENGTH_MAX: usize = 1 << 28;

/// Length of the output in bytes beyond which an object that was already printed is shown as `...`. This
/// limit does not apply if the caller sets a length limit.
const REPEATED_MAX: usize = 1 << 20;

/// Number of printing steps between two checks for signals; a power of two.
const LOOK: u32 = 1 << 14;

/// Limits on the length and the nesting depth of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum length of the output in bytes; the rest is shown as `...`.
    pub length: usize,
    /// Maximum nesting depth; deeper values are shown as `...`.
    pub depth: usize,
}

impl Default for Limits {
    /// Returns the default limits: a length of 256 MiB and no limit on the depth.
    fn default() -> Limits {
        Limits { length: LENGTH_MAX, depth: usize::MAX }
    }
}

/// Formats a value as a string, such as `my.Pair(a=1, b="x")`. If a value contains itself, the
/// inner occurrence is shown as `...`. Once the string is longer than 1 MiB, repeated occurrences
/// of an object are also shown as `...`.
///
/// # Errors
/// Returns the error of a hook `__ffi_repr__` or of a getter; `RecursionError` if hooks are nested too deeply; the
/// error of a signal or a cancellation.
pub fn repr(value: &Any) -> Result<String> {
    repr_within(value, Limits::default())
}

/// Formats a value as [`repr`] does, within the given limits.
///
/// # Errors
/// Returns the errors of [`repr`].
pub fn repr_within(value: &Any, limits: Limits) -> Result<String> {
    let mut printer = Printer { limits, ..Printer::default() };
    printer.run(value.clone(), 2)?;
    Ok(core::mem::take(&mut printer.pieces[0]))
}

/// Formats a value as a string, such as `my.Pair(a=1, b="x")`.
#[anyfn::register("ffi.ReprPrint")]
fn repr_global(value: Any) -> Result<String> {
    repr(&value)
}

/// Formats a value as a string of at most about `length` bytes, with at most `depth` levels of nesting. A
/// limit of 0 selects the default: 256 MiB for the length, none for the depth.
#[anyfn::register("anyfn.ReprWithin")]
fn within_global(value: Any, length: i64, depth: i64) -> Result<String> {
    let or = |limit: i64, none: usize| usize::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(none);
    repr_within(&value, Limits { length: or(length, LENGTH_MAX), depth: or(depth, usize::MAX) })
}

/// Progress of printing an object.
#[derive(Clone, Copy, Default)]
enum Progress {
    #[default]
    Nothing,
    /// The object is being printed.
    Open,
    /// The object has been printed. Contains the location of its text: the index of the output
    /// string in `Printer::pieces`, and the offsets of the beginning and end of the text.
    Done(u32, usize, usize),
}

/// Value whose children are being printed.
struct Frame {
    content: Content,
    next: usize,
    /// Offset in the current output string at which the value's text begins.
    start: usize,
    /// Key of the value's text in `Printer::known`: the address of the object, or 0 if the text is not
    /// recorded.
    key: usize,
    address: usize,
}

enum Content {
    Node(Node),
    /// Object and the plan of its type.
    Object(ObjectRef, &'static Plan),
}

struct Printer {
    limits: Limits,
    /// Number of printing steps so far. Signals are checked once every [`LOOK`] steps.
    steps: u32,
    with_addresses: bool,
    stack: Vec<Frame>,
    plans: Plans,
    known: Table<usize, Progress>,
    /// Objects whose addresses are keys of `known`, held so that the addresses are not reused.
    kept: Vec<ObjectRef>,
    /// Output strings in progress. The first is for the whole value. The others are for values that hooks
    /// print through their callbacks.
    pieces: Vec<String>,
    current: usize,
    /// Addresses of two sentinel objects, which represent a missing value and the beginning of keyword
    /// arguments. They are looked up at their first use.
    sentinels: [Option<usize>; 2],
}

impl Default for Printer {
    fn default() -> Printer {
        Printer {
            limits: Limits::default(),
            steps: 0,
            with_addresses: with_addresses(),
            stack: Vec::new(),
            plans: Plans::new(&PLANS),
            known: Table::default(),
            kept: Vec::new(),
            pieces: vec![String::new()],
            current: 0,
            sentinels: [None; 2],
        }
    }
}

// SAFETY: besides values, which are `Send`, it holds references to types, which are never freed and are changed by
// atomic stores only.
unsafe impl Send for Printer {}

/// Returns true if the environment variable `TVM_FFI_REPR_WITH_ADDR` is 1. The output then includes the
/// addresses of objects.
fn with_addresses() -> bool {
    #[cfg(feature = "std")]
    return std::env::var_os("TVM_FFI_REPR_WITH_ADDR").is_some_and(|value| value == "1");
    #[cfg(not(feature = "std"))]
    return false;
}

impl Printer {
    #[inline]
    fn text(&mut self) -> &mut String {
        &mut self.pieces[self.current]
    }

    fn is_full(&self) -> bool {
        self.pieces[self.current].len() >= self.limits.length
    }

    /// Prints a value and all its children. A hook may call this function while enclosing values are being
    /// printed.
    fn run(&mut self, value: Any, own: usize) -> Result<()> {
        let base = self.stack.len();
        self.value(value, own)?;
        while self.stack.len() > base {
            self.advance()?;
        }
        Ok(())
    }

    /// Prints a value without children, or begins to print a value with children.
    fn value(&mut self, value: Any, own: usize) -> Result<()> {
        if self.is_full() {
            self.text().push_str("...");
            return Ok(());
        }
        let text = &mut self.pieces[self.current];
        if text::plain(text, &value)? {
            return Ok(());
        }
        let Some(object) = value.into_object() else { return Ok(()) };
        self.object(object, own)
    }

    fn object(&mut self, object: ObjectRef, own: usize) -> Result<()> {
        let address = value::address_of(&object);
        let start = self.text().len();
        let mut key = 0;
        // A value without other references is not encountered again.
        if object.use_count() > own || is_watched(self.stack.len()) {
            match self.known.get(address).unwrap_or_default() {
                Progress::Done(piece, from, to) => {
                    self.copy(piece as usize, from, to);
                    return Ok(());
                }
                Progress::Open => {
                    self.cut(address);
                    return Ok(());
                }
                Progress::Nothing => key = address,
            }
        }
        if self.stack.len() >= self.limits.depth {
            self.cut(address);
            return Ok(());
        }
        let index = object.type_index();
        if index == kTVMFFIObject && self.sentinel(address)? {
            return Ok(());
        }
        if text::leaf(self.text(), &object)? {
            if self.with_addresses && index == anyfn::abi::kTVMFFITensor {
                self.address(address);
            }
            return Ok(());
        }
        if key != 0 {
            self.known.set(key, Progress::Open);
            self.kept.push(object.clone());
        }
        if REPR.has(index) {
            return self.ask(object, key, start);
        }
        let frame = |content| Frame { content, next: 0, start, key, address };
        if matches!(index, kTVMFFIArray | kTVMFFIList | kTVMFFIMap | kTVMFFIDict) {
            let node = value::open(object)?;
            self.text().push(match node {
                Node::Array(_) => '(',
                Node::List(_) => '[',
                _ => '{',
            });
            self.stack.push(frame(Content::Node(node)));
            return Ok(());
        }
        let plan = self.plans.of(&object)?;
        let (info, is_enum, is_empty) = (plan.info, plan.is_enum, plan.fields.is_empty());
        self.text().push_str(info.key());
        if is_enum && let Ok(name) = object.get_field("_str_index").and_then(|name| name.get::<String>()) {
            let _ = write!(self.text(), ".{name}");
        }
        if self.with_addresses {
            self.address(address);
        }
        if is_empty || is_enum {
            self.done(key, start);
            return Ok(());
        }
        self.text().push('(');
        self.stack.push(frame(Content::Object(object, plan)));
        Ok(())
    }

    fn address(&mut self, address: usize) {
        let _ = write!(self.text(), "@{address:#x}");
    }

    /// Prints `...` in place of an object whose content is not shown.
    fn cut(&mut self, address: usize) {
        self.text().push_str("...");
        if self.with_addresses {
            self.address(address);
        }
    }

    fn done(&mut self, key: usize, start: usize) {
        if key != 0 {
            let end = self.text().len();
            self.known.set(key, Progress::Done(self.current as u32, start, end));
        }
    }

    /// Appends a copy of text that was already printed: the bytes from `from` to `to` of the output string
    /// `piece`. Appends `...` instead if the output would become too long.
    fn copy(&mut self, piece: usize, from: usize, to: usize) {
        let most = if self.limits.length == LENGTH_MAX { REPEATED_MAX } else { self.limits.length };
        if self.text().len() + (to - from) > most {
            // Text that contains copies of other text grows fast.
            self.text().push_str("...");
        } else if piece == self.current {
            self.pieces[piece].extend_from_within(from..to);
        } else {
            let text = self.pieces[piece][from..to].to_string();
            self.text().push_str(&text);
        }
    }

    /// If the object at `address` is one of the two sentinel objects, prints its special name and
    /// returns true. Otherwise returns false.
    #[cold]
    fn sentinel(&mut self, address: usize) -> Result<bool> {
        let names = [("ffi.GetInvalidObject", "<MISSING>"), ("ffi.GetKwargsObject", "<KWARGS>")];
        for (slot, (function, shown)) in self.sentinels.iter_mut().zip(names) {
            let known = match slot {
                Some(known) => *known,
                None => *slot.insert(value::address(&anyfn::registry::get(function)?.call(())?)),
            };
            if known == address {
                self.text().push_str(shown);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Prints the next child of the topmost value on the stack, or completes that value.
    fn advance(&mut self) -> Result<()> {
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(LOOK) {
            anyfn::check_signals()?;
        }
        let full = self.is_full();
        let Some(frame) = self.stack.last_mut() else { return Ok(()) };
        let text = &mut self.pieces[self.current];
        let at = frame.next;
        frame.next += 1;
        let mut next = match &frame.content {
            Content::Node(Node::Array(items)) => items.as_slice().get(at).cloned().map(|item| (item, 2)),
            Content::Node(Node::List(items)) => items.get(at).cloned().map(|item| (item, 3)),
            Content::Node(Node::Pairs(pairs)) => {
                let pair = pairs.get(at / 2);
                pair.map(|(key, value)| if at % 2 == 0 { key } else { value }).cloned().map(|item| (item, 3))
            }
            Content::Node(Node::Object(_)) => None,
            Content::Object(object, plan) => loop {
                let fields = &plan.fields;
                let at = frame.next - 1;
                let Some(field) = fields.get(at) else { break None };
                let name = field.name();
                if fields[..at].iter().any(|other| other.name() == name) {
                    // A field of the parent has this name, and is the one that is shown.
                    frame.next += 1;
                    continue;
                }
                text.push_str(if at == 0 { "" } else { ", " });
                text.push_str(name);
                text.push('=');
                break Some((plan::read(*field, object)?, 2));
            },
        };
        if !matches!(frame.content, Content::Object(..)) && next.is_some() {
            let is_value = matches!(frame.content, Content::Node(Node::Pairs(_))) && at % 2 == 1;
            text.push_str(match (at, is_value) {
                (0, _) => "",
                (_, true) => ": ",
                (_, false) => ", ",
            });
            if full && !is_value {
                // The rest of the container.
                text.push_str("...");
                next = None;
            }
        }
        match next {
            Some((value, own)) => self.value(value, own),
            None => {
                self.close();
                Ok(())
            }
        }
    }

    /// Completes the text of the topmost value on the stack.
    fn close(&mut self) {
        let Some(frame) = self.stack.pop() else { return };
        let end = match &frame.content {
            Content::Node(Node::Array(items)) if items.len() == 1 => ",)",
            Content::Node(Node::List(_)) => "]",
            Content::Node(Node::Pairs(_)) => "}",
            _ => ")",
        };
        self.text().push_str(end);
        if self.with_addresses && matches!(frame.content, Content::Node(_)) {
            self.address(frame.address);
        }
        self.done(frame.key, frame.start);
    }

    /// Prints an object by calling the hook of its type.
    #[cold]
    fn ask(&mut self, object: ObjectRef, key: usize, start: usize) -> Result<()> {
        let Some(hook) = REPR.get(object.type_index())? else { return Ok(()) };
        // A hook that prints the same object through its callback must not recurse without end.
        let (key, address) = (key, value::address_of(&object));
        if key == 0 {
            self.known.set(address, Progress::Open);
            self.kept.push(object.clone());
        }
        let result = guard::lend(self, Printer::callback, |callback| call(&hook, &object, callback))?;
        self.text().push_str(&result.get::<String>()?);
        self.done(address, start);
        Ok(())
    }

    /// Callback that a `__ffi_repr__` hook receives, with the signature `(value) -> str`.
    fn callback(&mut self, args: Args<'_>) -> Result<Any> {
        let value = args.get::<Any>(0)?;
        let outer = self.current;
        self.current = self.pieces.len();
        self.pieces.push(String::new());
        // The depth is the number of open values, all of which remain open.
        let printed = self.run(value, 1);
        let made = Any::new(&self.pieces[self.current][..]);
        self.current = outer;
        printed?;
        made
    }
}

/// Calls a `__ffi_repr__` or `__ffi_hash__` hook with an object and a callback that formats or
/// hashes the object's children.
pub(crate) fn call(hook: &Hook, object: &ObjectRef, callback: &PackedFunc) -> Result<Any> {
    type Native = unsafe extern "C" fn(TVMFFIObjectHandle, *const TVMFFIObjectHandle) -> TVMFFIAny;
    match hook {
        Hook::Function(function) => function.call((object, callback)),
        Hook::Native(code) => {
            // SAFETY: by the definition of the column, an address in it is such a function.
            let code = unsafe { core::mem::transmute::<*mut core::ffi::c_void, Native>(*code) };
            let callback = callback.as_object().as_handle();
            // SAFETY: called with a valid object and the address of a handle.
            let raw = unsafe { code(object.as_handle(), &callback) };
            // SAFETY: a hook returns an owned value.
            expected(unsafe { Any::from_raw(raw) })
        }
    }
}
