//! Names of functions and threads in a profile.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::mem;

use anyfn::abi::TVMFFIAny;
use anyfn::observe::Call;
use anyfn::{Any, ObjectRef, PackedFunc, String as Text, WeakRef, registry};

/// Table of interned strings, each of which is identified by its index. Index 0 is the empty string.
pub(super) struct Texts {
    texts: Vec<Box<str>>,
    numbers: BTreeMap<Box<str>, u32>,
}

/// Maximum number of distinct strings in the table of interned strings. Any further string is replaced by
/// [`OTHERS`].
const TEXTS_MAX: usize = 1 << 16;
/// Replacement for all strings beyond the first [`TEXTS_MAX`] of a profile.
const OTHERS: &str = "<others>";

impl Default for Texts {
    fn default() -> Texts {
        let mut texts = Texts { texts: Vec::new(), numbers: BTreeMap::new() };
        texts.number("");
        texts.number(OTHERS);
        texts
    }
}

impl Texts {
    /// Returns the index of a string in the table. Adds the string if it is new.
    pub(super) fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        if self.texts.len() >= TEXTS_MAX {
            return self.numbers.get(OTHERS).copied().unwrap_or(0);
        }
        let number = self.texts.len() as u32;
        self.texts.push(text.into());
        self.numbers.insert(text.into(), number);
        number
    }

    pub(super) fn get(&self, number: u32) -> &str {
        self.texts.get(number as usize).map_or(OTHERS, |text| text)
    }
}

/// Names of the functions that one thread has called, keyed by address. The table holds a weak reference to
/// each function. The reference prevents another function from reusing the address, but does not keep the
/// function alive.
#[derive(Default)]
pub(super) struct KnownNames(BTreeMap<usize, (u32, Option<WeakRef>)>);

/// Maximum number of functions whose names a thread caches, since a program may create an unlimited number of
/// functions.
const KNOWN_MAX: usize = 4096;

impl KnownNames {
    pub(super) fn get(&self, function: *mut c_void) -> Option<u32> {
        self.0.get(&function.addr()).map(|(name, _)| *name)
    }

    /// Adds a function, which must be alive, with the index of its name. If the table is full, it is emptied first and
    /// its old content is returned. The caller must drop the result without holding a lock.
    pub(super) fn insert(&mut self, function: *mut c_void, name: u32) -> KnownNames {
        let old = if self.0.len() >= KNOWN_MAX { mem::take(self) } else { KnownNames::default() };
        // SAFETY: the function is live, because it is about to be called.
        let object = unsafe { ObjectRef::from_borrowed_or_null(function) };
        self.0.insert(function.addr(), (name, object.map(|object| object.downgrade())));
        old
    }
}

/// Returns the name of the called function: the name that the runtime knows, else the name that the
/// caller reports, else `<unnamed>`.
pub(super) fn find(call: &Call) -> String {
    // SAFETY: the function is live, because it is about to be called.
    let object = unsafe { ObjectRef::from_borrowed_or_null(call.function) };
    let function = object.and_then(|object| PackedFunc::try_from_object(object).ok());
    let known = function.and_then(|function| {
        let name = registry::find("ffi.FunctionName")?.call((function,)).ok()?;
        name.get::<Text>().ok().map(|name| name.to_string())
    });
    let named = known.or_else(|| {
        let mut out = TVMFFIAny::NONE;
        // SAFETY: `call.name` is passed together with `call.data`, its argument, and `out` is a writable None.
        unsafe { call.name?(call.data, &mut out) };
        // SAFETY: `call.name` wrote an owned value.
        let name = unsafe { Any::from_raw(out) };
        name.get::<Text>().ok().map(|name| name.to_string()).filter(|name| !name.is_empty())
    });
    named.map_or_else(|| "<unnamed>".to_owned(), |name| anyfn::__private::shorten(&name).into_owned())
}

/// Returns the ID and the name that the operating system reports for this thread; 0 and an empty
/// string if they are not known.
pub(super) fn this_thread() -> (u64, String) {
    let link = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    let number = link.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
    let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
    (number.unwrap_or(0), name.trim_end().to_owned())
}
