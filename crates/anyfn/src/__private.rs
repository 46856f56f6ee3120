//! What the macros of this crate expand to. Not part of the public interface: it may change at any time.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

pub use alloc::format;
pub use alloc::string::String as StdString;
pub use linkme;

pub use crate::convert::Mismatch;
pub use crate::hash::small_str_hash;
pub use crate::json::quote;
pub use crate::schema::word as type_word;
pub use crate::typed::{Blocking, Names};
use core::ffi::c_int;

use anyfn_abi::{ABI_VERSION, TVMFFIAny, TVMFFIByteArray, TVMFFIMethodInfo};

use crate::{Any, AnyView, Error, PackableFn, PackedFunc, panics};

/// One function that `#[register]` has collected.
pub struct Entry {
    /// Global name.
    pub name: &'static str,
    /// Replaces a function of the same name.
    pub overrides: bool,
    /// Documentation.
    pub doc: &'static str,
    /// Makes the function.
    pub make: fn() -> PackedFunc,
}

/// All functions with `#[register]` in this program or library.
#[cfg(not(test))]
#[linkme::distributed_slice]
pub static REGISTRATIONS: [Entry];
/// The unit tests of this crate hold it twice, and one file cannot have two collections of one name.
#[cfg(test)]
pub static REGISTRATIONS: [Entry; 0] = [];

/// One pointer variable of compiled libraries that the loader fills.
pub struct ContextSymbol {
    name: &'static core::ffi::CStr,
    address: fn() -> *mut core::ffi::c_void,
}

impl ContextSymbol {
    /// The variable `name`, which gets `address`.
    ///
    /// ```compile_fail,E0133
    /// use anyfn::__private::ContextSymbol;
    /// static LAUNCH: ContextSymbol =
    ///     ContextSymbol::new(c"__TVMBackendParallelLaunch", || std::ptr::without_provenance_mut(1));
    /// ```
    ///
    /// # Safety
    /// The address must be that of what compiled code takes the variable for, for as long as the process lives.
    #[must_use]
    pub const unsafe fn new(
        name: &'static core::ffi::CStr,
        address: fn() -> *mut core::ffi::c_void,
    ) -> ContextSymbol {
        ContextSymbol { name, address }
    }

    /// Name of the variable.
    #[must_use]
    pub fn name(&self) -> &'static core::ffi::CStr {
        self.name
    }

    /// The address that the variable gets.
    #[must_use]
    pub fn address(&self) -> *mut core::ffi::c_void {
        (self.address)()
    }
}

/// Context symbols of this program or library beside those of core; only what is linked with core counts.
#[cfg(not(test))]
#[linkme::distributed_slice]
pub static CONTEXT_SYMBOLS: [ContextSymbol];
/// As for [`REGISTRATIONS`].
#[cfg(test)]
pub static CONTEXT_SYMBOLS: [ContextSymbol; 0] = [];

/// One type with `#[derive(Object)]`.
pub struct TypeEntry {
    /// Makes sure that the table of types knows all of it; gives why it cannot.
    pub define: fn(again: bool) -> Result<(), alloc::string::String>,
}

/// All types with `#[derive(Object)]` in this program or library.
#[cfg(not(test))]
#[linkme::distributed_slice]
pub static TYPES: [TypeEntry];
/// As for [`REGISTRATIONS`].
#[cfg(test)]
pub static TYPES: [TypeEntry; 0] = [];

/// All blocks with `#[methods]` in this program or library.
#[cfg(not(test))]
#[linkme::distributed_slice]
pub static METHODS: [TypeMethods];
/// As for [`REGISTRATIONS`].
#[cfg(test)]
pub static METHODS: [TypeMethods; 0] = [];

/// Makes sure that the table of types knows all types of this program or library; see [`TypeIndex::define`].
///
/// # Errors
/// The first type that is another one's. It is an error where it is used, too; the others are defined.
pub fn define_types(again: bool) -> Result<(), alloc::string::String> {
    let mut result = Ok(());
    for entry in TYPES.iter() {
        // The schema of a field may be a user's code.
        panics::swallow(|| {
            let defined = (entry.define)(again);
            if result.is_ok() {
                result = defined;
            }
        });
    }
    result
}

pub use crate::define::method::{MethodCode, MethodDef, TypeMethods, join, joined, signature_text};
pub use crate::define::{
    ALIGN_ATTRIBUTE, CONTENT_AT_RUN_TIME, CONTENT_ATTRIBUTE, CONTENT_HIDDEN, CONTENT_OF_FIELDS, Define,
    Definition, Digest, FieldDef, FieldDefault, FieldType, FieldValue, Fixed, OfBuild, OfType, TypeIndex,
    claim_key, content_offset, create, default_value, factory, get, set,
};
pub use crate::signature::unsigned;

/// Keeps a name for ever, for error texts of a function that is registered under it. The same text is kept once.
#[must_use]
#[cfg(feature = "std")]
pub fn intern(name: &str) -> &'static str {
    use alloc::collections::BTreeSet;
    use std::sync::{Mutex, PoisonError};
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    match names.get(name) {
        Some(known) => known,
        None => {
            let kept: &'static str = alloc::boxed::Box::leak(name.into());
            names.insert(kept);
            kept
        }
    }
}

/// Keeps a name for ever, for error texts of a function that is registered under it.
#[must_use]
#[cfg(not(feature = "std"))]
pub fn intern(name: &str) -> &'static str {
    alloc::boxed::Box::leak(name.into())
}

/// What is known of a wrong value: the context of its error.
#[derive(Clone, Copy, Debug, Default)]
pub struct Detail<'a> {
    /// Name of the function that was called.
    pub function: &'a str,
    /// Name of its argument, or the index.
    pub argument: &'a str,
    /// Where inside the argument, such as `[3]["w"]`.
    pub path: &'a str,
    /// What was expected.
    pub expected: &'a str,
    /// What was there.
    pub got: &'a str,
}

/// Adds what is known of a wrong value to its error.
pub fn with_detail(error: Error, detail: &Detail<'_>) -> Error {
    let pairs = [
        ("function", detail.function),
        ("argument", detail.argument),
        ("path", detail.path),
        ("expected", detail.expected),
        ("got", detail.got),
    ];
    // Without memory for the detail the error itself still goes out.
    match crate::Map::<Any, Any>::try_from_iter(pairs) {
        Ok(context) => error.with_context(context.into_object()),
        Err(_) => error,
    }
}

/// The candidate nearest to `name`, if one is near enough to be meant: about a third of what follows the namespace that
/// both have may differ.
///
/// For error texts: the work is bounded, so that long names and many candidates do not make an error slow.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// Longer names are not compared.
    const LONGEST: usize = 128;
    /// Bytes compared in all.
    const WORK: usize = 1 << 22;
    if name.len() > LONGEST {
        return None;
    }
    let mut limit = (name.len() / 3).max(1);
    let (mut best, mut work) = (None, 0);
    for candidate in candidates {
        if candidate.len() > LONGEST || candidate.len().abs_diff(name.len()) > limit {
            continue;
        }
        let namespace = common_namespace(name, candidate);
        let (name, rest) = (&name[namespace..], &candidate[namespace..]);
        work += name.len() * rest.len();
        if work > WORK {
            break;
        }
        if let Some(distance) = distance(name, rest, limit.min((name.len() / 3).max(1))) {
            best = Some(candidate);
            match distance.checked_sub(1) {
                Some(less) => limit = less,
                None => break,
            }
        }
    }
    best
}

/// Length of the namespace of two names, up to the last dot of what they begin with.
fn common_namespace(a: &str, b: &str) -> usize {
    let same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    a.as_bytes()[..same].iter().rposition(|byte| *byte == b'.').map_or(0, |dot| dot + 1)
}

/// Number of edits between two names, two letters in the wrong order being one; `None` if there are more than `limit`.
fn distance(a: &str, b: &str, limit: usize) -> Option<usize> {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut above: Vec<usize> = vec![0; b.len() + 1];
    let mut row: Vec<usize> = (0..=b.len()).collect();
    let mut next = vec![0; b.len() + 1];
    for i in 0..a.len() {
        next[0] = i + 1;
        for j in 0..b.len() {
            let mut least = (row[j] + usize::from(a[i] != b[j])).min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(above[j - 1] + 1);
            }
            next[j + 1] = least;
        }
        if next.iter().all(|edits| *edits > limit) {
            return None;
        }
        (above, row, next) = (row, next, above);
    }
    Some(row[b.len()]).filter(|edits| *edits <= limit)
}

/// A name as messages show it: a very long one is cut.
pub fn shorten(name: &str) -> Cow<'_, str> {
    const SHOWN_MAX: usize = 200;
    if name.len() <= SHOWN_MAX {
        return Cow::Borrowed(name);
    }
    let end = (0..=SHOWN_MAX).rev().find(|at| name.is_char_boundary(*at)).unwrap_or_default();
    Cow::Owned(format!("{}... ({} bytes)", &name[..end], name.len()))
}

/// Calls an exported function.
///
/// # Safety
/// `args` must be `num_args` valid views for the call, `result` writable and holding nothing.
pub unsafe fn call_exported<S, F: PackableFn<S>>(
    names: &Names,
    function: F,
    args: *const TVMFFIAny,
    num_args: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    panics::trampoline(|| {
        // SAFETY: the caller guarantees the views.
        let args = unsafe { AnyView::slice_from_raw(args, num_args) };
        let value = function.call_packed(names, args)?;
        // SAFETY: the caller guarantees the result.
        unsafe { result.write(value.into_raw()) };
        Ok(())
    })
}

/// Gives the signature of an exported function as JSON.
///
/// # Safety
/// `result` must be writable and hold nothing.
pub unsafe fn exported_metadata<S, F: PackableFn<S>>(
    names: &Names,
    _function: F,
    result: *mut TVMFFIAny,
) -> c_int {
    // SAFETY: the caller guarantees the result.
    unsafe { write_text(result, &crate::typed::signature_json::<F, S>(names)) }
}

/// Gives the documentation of an exported function.
///
/// # Safety
/// `result` must be writable and hold nothing.
pub unsafe fn exported_doc(names: &Names, result: *mut TVMFFIAny) -> c_int {
    // SAFETY: the caller guarantees the result.
    unsafe { write_text(result, names.doc) }
}

/// # Safety
/// `result` must be writable and hold nothing.
unsafe fn write_text(result: *mut TVMFFIAny, text: &str) -> c_int {
    panics::trampoline(|| {
        // SAFETY: the caller guarantees the result.
        unsafe { result.write(Any::from(crate::String::from(text)).into_raw()) };
        Ok(())
    })
}

/// What [`registrations`] has made and the loader has not given back.
struct Table {
    infos: Vec<TVMFFIMethodInfo>,
    /// What the entries borrow from.
    _functions: Vec<(PackedFunc, Option<crate::String>)>,
}

static TABLE: core::sync::atomic::AtomicPtr<Table> = core::sync::atomic::AtomicPtr::new(core::ptr::null_mut());

/// What a library tells its loader of `#[register]`: one entry per function. Its types are registered, so that others
/// know them before there is an object of one.
///
/// The entries stay until the function is called again; with NULL it only takes them back, so that no object of the
/// library stays behind. A type that is another one's is a count of -1, and an error is raised.
///
/// # Safety
/// `count` must be NULL or writable; of several callers at once none may use entries.
pub unsafe fn registrations(count: *mut i32) -> *const TVMFFIMethodInfo {
    use core::sync::atomic::Ordering;
    let taken_back = |old: *mut Table| {
        if !old.is_null() {
            // SAFETY: made below by `Box`, and taken out of its place by one caller.
            drop(unsafe { Box::from_raw(old) });
        }
    };
    // SAFETY: the caller guarantees it.
    let Some(count) = (unsafe { count.as_mut() }) else {
        taken_back(TABLE.swap(core::ptr::null_mut(), Ordering::AcqRel));
        return core::ptr::null();
    };
    panics::remember_places();
    if let Err(text) = define_types(true) {
        Error::new("TypeError", &text).raise();
        *count = -1;
        return core::ptr::null();
    }
    let made = |entry: &Entry| {
        let function = (entry.make)();
        let signature = function.signature();
        (function, signature)
    };
    let functions: Vec<(PackedFunc, Option<crate::String>)> = REGISTRATIONS.iter().map(made).collect();
    let info = |(entry, (function, signature)): (&Entry, &(PackedFunc, Option<crate::String>))| {
        let signature = signature.as_ref().map(|text| TVMFFIByteArray::from_slice(text.as_bytes()));
        TVMFFIMethodInfo {
            name: TVMFFIByteArray::from_slice(entry.name.as_bytes()),
            doc: TVMFFIByteArray::from_slice(entry.doc.as_bytes()),
            metadata: signature.unwrap_or(TVMFFIByteArray::EMPTY),
            flags: i64::from(entry.overrides),
            method: *AnyView::from(function.as_object()).as_raw(),
        }
    };
    let infos: Vec<TVMFFIMethodInfo> = REGISTRATIONS.iter().zip(&functions).map(info).collect();
    *count = infos.len() as i32;
    let table = Box::into_raw(Box::new(Table { infos, _functions: functions }));
    taken_back(TABLE.swap(table, Ordering::AcqRel));
    // SAFETY: made just now; the caller says that nobody takes it back meanwhile.
    unsafe { (*table).infos.as_ptr() }
}

/// The schema of a field, from its metadata; empty if that tells none.
#[must_use]
pub fn field_schema(metadata: &str) -> alloc::string::String {
    let metadata = crate::json::Json::parse(metadata);
    metadata.and_then(|json| json.get("type_schema")?.text().map(Into::into)).unwrap_or_default()
}

/// An ELF note: what a library was built for.
#[repr(C, align(4))]
pub struct Note {
    name_size: u32,
    desc_size: u32,
    kind: u32,
    name: [u8; 8],
    abi: [u32; 3],
    minimum_core: [u32; 3],
}

/// The note that `export!` puts into a library: owner `anyfn`, type 1, the ABI version and the oldest core that works.
pub const NOTE: Note = Note {
    name_size: 6,
    desc_size: 24,
    kind: 1,
    name: *b"anyfn\0\0\0",
    abi: [ABI_VERSION.major, ABI_VERSION.minor, ABI_VERSION.patch],
    minimum_core: [0, 1, 0],
};

/// Runs the body of a function that C code calls: an error or a panic is raised on this thread and gives -1.
///
/// This is the one trampoline of all functions that Rust code shows to C.
#[inline]
pub fn trampoline(body: impl FnOnce() -> crate::Result<()>) -> c_int {
    panics::trampoline(body)
}

// What the implementation of the ABI needs of this crate, beyond its public interface.

/// Flag of a field whose place holds a value that does not change once it is set.
pub const LENDS_VALUE: i64 = crate::reflection::LENDS_VALUE;
/// A flag of fields: the setter stores what it is given and runs no code of others.
pub const STORES_ONLY: i64 = crate::reflection::STORES_ONLY;

/// Count of a new object: one strong reference.
pub const UNIQUE: u64 = crate::refcount::UNIQUE;

/// Runs `body`; a panic becomes an error.
///
/// # Errors
/// What `body` gives, or its panic.
pub fn catch<T>(body: impl FnOnce() -> crate::Result<T>) -> crate::Result<T> {
    panics::catch(body)
}

/// Makes later panics of this library remember where they happened.
pub fn remember_places() {
    panics::remember_places();
}

/// Makes an object of a type with this content behind its header.
///
/// ```compile_fail,E0133
/// let function = anyfn::__private::new_object(anyfn::abi::kTVMFFIFunction, ());
/// ```
///
/// # Safety
/// Objects of the type must have a content like this one, which any thread may use as its type promises.
pub unsafe fn new_object<T: Send + 'static>(type_index: i32, content: T) -> crate::ObjectRef {
    // SAFETY: the caller guarantees the content; no flag promises more.
    unsafe { new_object_with_flags(type_index, 0, content) }
}

/// Makes an object of a type with these `OBJECT_FLAG_*` and this content behind its header.
///
/// # Safety
/// As [`new_object`]; and the flags must hold.
pub unsafe fn new_object_with_flags<T: Send + 'static>(
    type_index: i32,
    flags: u32,
    content: T,
) -> crate::ObjectRef {
    crate::object::ObjectBox::allocate(type_index, flags, content)
}

/// What a type has registered under the name of an attribute.
#[must_use]
pub fn type_attribute(name: &str, type_index: i32) -> Option<Any> {
    // SAFETY: an entry that is set holds its value for ever.
    crate::types::attribute(name, type_index)
        .map(|value| unsafe { crate::AnyView::from_raw(*value) }.to_owned())
}

/// Counts an object that is not made by [`new_object`], once it is at its address.
///
/// ```compile_fail,E0133
/// anyfn::__private::object_created(&7, 64);
/// ```
///
/// # Safety
/// It must be such an object, of that type, and be counted once: a library is unmapped when it has no objects.
pub unsafe fn object_created<T>(object: *const T, type_index: i32) {
    crate::live::created(object, type_index);
}

/// Counts the end of an object that is not made by [`new_object`], before its memory is given back.
///
/// ```compile_fail,E0133
/// anyfn::__private::object_freed(&7, 64);
/// ```
///
/// # Safety
/// It must be an object that [`object_created`] has counted, whose end has not been counted.
pub unsafe fn object_freed<T>(object: *const T, type_index: i32) {
    crate::live::ending(object, type_index).count();
}

/// Releases the content of an object that is not made by [`new_object`], for its deleter: runs `release`, or puts the
/// deleter off if releases are nested too deep. `false` if it was put off; then the deleter returns at once.
///
/// # Safety
/// Called by the deleter of `object` with the flags that it got, one of which is that the content goes.
pub unsafe fn release_content(object: *mut core::ffi::c_void, flags: c_int, release: impl FnOnce()) -> bool {
    if !crate::nesting::enter() {
        // SAFETY: the deleter hands the object over and does not touch it again.
        unsafe { crate::nesting::defer(object.cast(), flags) };
        return false;
    }
    panics::swallow(release);
    crate::nesting::leave();
    true
}

/// A string value with a copy of `bytes`; `None` when memory is short.
pub fn try_string(bytes: &[u8]) -> Option<Any> {
    crate::string::try_make(bytes, anyfn_abi::kTVMFFISmallStr, anyfn_abi::kTVMFFIStr)
}

/// A bytes value with a copy of `bytes`; `None` when memory is short.
pub fn try_bytes(bytes: &[u8]) -> Option<Any> {
    crate::string::try_make(bytes, anyfn_abi::kTVMFFISmallBytes, anyfn_abi::kTVMFFIBytes)
}

/// A String object with a copy of `bytes`, however short; `None` when memory is short.
pub fn try_heap_string(bytes: &[u8]) -> Option<crate::ObjectRef> {
    crate::bytes_object::BytesObject::try_allocate(bytes, anyfn_abi::kTVMFFIStr)
}

/// Mixes a value into a hash, as the ABI says.
#[inline]
#[must_use]
pub const fn hash_combine(hash: u64, value: u64) -> u64 {
    crate::hash::combine(hash, value)
}

/// Hash of the content of a string or bytes, as the ABI says.
#[inline]
#[must_use]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    crate::hash::hash_bytes(bytes)
}

/// Hash of a value as a map key, as the ABI says.
#[inline]
#[must_use]
pub fn any_hash(view: &AnyView<'_>) -> u64 {
    crate::hash::any_hash(view)
}

/// The content of a string or of bytes; nothing for other types.
#[inline]
#[must_use]
pub fn bytes_of(value: &Any) -> &[u8] {
    use anyfn_abi::{kTVMFFIBytes, kTVMFFISmallBytes, kTVMFFISmallStr, kTVMFFIStr};
    match value.type_index() {
        kTVMFFISmallStr | kTVMFFIStr | kTVMFFISmallBytes | kTVMFFIBytes => {
            crate::string::bytes_of(value.view_ref())
        }
        _ => &[],
    }
}

/// The pair of a Map or Dict at a place, which moves on to the next one; `None` at the end.
///
/// # Safety
/// `object` must be a Map or Dict, which does not change as long as the result lives.
pub unsafe fn next_pair<'a>(
    object: &'a crate::ObjectRef,
    place: &mut crate::MapPlace,
) -> Option<(&'a Any, &'a Any)> {
    // SAFETY: the caller guarantees the same.
    unsafe { crate::containers::next_pair(object, place) }
}

/// Puts another value into the pair that [`next_pair`] gives for a place; gives the old one.
///
/// # Safety
/// `object` must be a Map or Dict, and nothing else may use its content meanwhile.
pub unsafe fn replace_value(object: &crate::ObjectRef, place: crate::MapPlace, value: Any) -> Option<Any> {
    // SAFETY: the caller guarantees the same.
    unsafe { crate::containers::replace_value(object, place, value) }
}

/// A number that no other running thread has; 0 where nothing is known of threads.
#[must_use]
pub fn thread_token() -> usize {
    #[cfg(feature = "std")]
    {
        std::thread_local! {
            static TOKEN: u8 = const { 0 };
        }
        TOKEN.with(|token| core::ptr::from_ref(token).addr())
    }
    #[cfg(not(feature = "std"))]
    0
}
