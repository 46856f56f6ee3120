//! Items for the code that this crate's macros generate, and for the implementation of the ABI. They are not
//! part of the public interface and may change at any time.

use alloc::boxed::Box;
use alloc::vec::Vec;

pub use alloc::format;
pub use alloc::string::String as StdString;
#[cfg(not(target_family = "wasm"))]
pub use linkme;

#[cfg(target_family = "wasm")]
pub use crate::collected::{Chain, Link};
pub use crate::convert::Mismatch;
pub use crate::decimal::parse_decimal;
pub use crate::error::{Detail, with_detail};
pub use crate::hash::small_str_hash;
pub use crate::registered::{FunctionDef, REGISTRATIONS, RegisteredFunction};
pub use crate::schema::word as type_word;
pub use crate::sort::{sort, sort_by};
pub use crate::sorted_map::SortedMap;
pub use crate::text::{intern, nearest, quote, shorten};
pub use crate::typed::{Blocking, FunctionTypes, Names, SafeCall};
pub use crate::{__collected as collected, __entry as entry};
pub use crate::{__function_def as function_def, __functions as functions};
use core::ffi::c_int;

use anyfn_abi::{ABI_VERSION, TVMFFIAny, TVMFFIByteArray, TVMFFIMethodInfo};

use crate::function::write_text;
use crate::{Any, AnyView, Error, PackableFn, PackedFunc, panics};

/// Returns the documentation `text` of a function, type or field; an empty string if the feature `docs` of this crate is
/// off.
#[must_use]
pub const fn doc(text: &'static str) -> &'static str {
    if cfg!(feature = "docs") { text } else { "" }
}

/// A context symbol: a pointer variable of compiled libraries, into which the loader writes the address of a
/// runtime function.
pub struct ContextSymbol {
    name: &'static core::ffi::CStr,
    address: fn() -> *mut core::ffi::c_void,
}

impl ContextSymbol {
    /// Creates a context symbol. The loader writes the result of `address` into the variable
    /// `name`.
    ///
    /// ```compile_fail,E0133
    /// use anyfn::__private::ContextSymbol;
    /// static LAUNCH: ContextSymbol =
    ///     ContextSymbol::new(c"__TVMBackendParallelLaunch", || std::ptr::without_provenance_mut(1));
    /// ```
    ///
    /// # Safety
    /// The address must be of the kind that compiled code expects in the variable, and stay valid for the lifetime of
    /// the process.
    #[must_use]
    pub const unsafe fn new(
        name: &'static core::ffi::CStr,
        address: fn() -> *mut core::ffi::c_void,
    ) -> ContextSymbol {
        ContextSymbol { name, address }
    }

    /// Returns the name of the variable into which the loader writes the address.
    #[must_use]
    pub fn name(&self) -> &'static core::ffi::CStr {
        self.name
    }

    /// Returns the address that the loader writes into the variable.
    #[must_use]
    pub fn address(&self) -> *mut core::ffi::c_void {
        (self.address)()
    }
}

#[cfg(not(test))]
crate::__collected! {
    /// Context symbols that crates define in addition to those of the loader. The loader uses a context symbol
    /// only if the loader itself is linked into the executable or library that defines the symbol.
    pub static CONTEXT_SYMBOLS: [ContextSymbol];
}
/// Empty slice that, in unit tests, replaces the slice that the linker assembles; see [`REGISTRATIONS`].
#[cfg(test)]
pub static CONTEXT_SYMBOLS: [ContextSymbol; 0] = [];

/// Calls a function with the signature of TVM 0.8, whose address is the first argument, like a `safe_call`.
pub type PackedCCall = unsafe fn(
    function: *mut core::ffi::c_void,
    args: *const TVMFFIAny,
    num_args: i32,
    result: *mut TVMFFIAny,
) -> c_int;

#[cfg(not(test))]
crate::__collected! {
    /// The function by which the loader calls functions of libraries that follow the library convention of TVM 0.8. The
    /// list is empty in programs without the classic API.
    pub static PACKED_C_CALLS: [PackedCCall];
}
/// Empty slice that, in unit tests, replaces the slice that the linker assembles; see [`REGISTRATIONS`].
#[cfg(test)]
pub static PACKED_C_CALLS: [PackedCCall; 0] = [];

/// Prefix of the names under which the classic API registers the symbols of a system library. Unlike those of the current
/// convention, their own names have no prefix.
pub const CLASSIC_SYMBOL: &str = "__tvm_classic_";

/// Entry of `TYPES` or `RUNTIME_TYPES`, which registers one type.
pub struct TypeEntry {
    /// Function that registers the type, its fields and its methods in the type table. Returns an error
    /// message if this fails. For `again`, see [`TypeIndex::define`].
    pub define: fn(again: bool) -> Result<(), alloc::string::String>,
}

#[cfg(not(test))]
crate::__collected! {
    /// Registrations of all types with `#[derive(Object)]` in this executable or library.
    pub static TYPES: [TypeEntry];
}
/// Empty slice that, in unit tests, replaces the slice that the linker assembles; see [`REGISTRATIONS`].
#[cfg(test)]
pub static TYPES: [TypeEntry; 0] = [];

#[cfg(not(test))]
crate::__collected! {
    /// Registrations of the runtime's own types that do not use `#[derive(Object)]`. They run
    /// before those of `TYPES`, so that no other type takes their keys.
    pub static RUNTIME_TYPES: [TypeEntry];
}
/// Empty slice that, in unit tests, replaces the slice that the linker assembles; see [`REGISTRATIONS`].
#[cfg(test)]
pub static RUNTIME_TYPES: [TypeEntry; 0] = [];

/// Registers all types of this executable or library in the type table. For `again`, see
/// [`TypeIndex::define`].
///
/// # Errors
/// Returns the first error, such as a type whose key belongs to another type. The other types are still registered.
/// Using the type that failed is an error, too.
pub fn define_types(again: bool) -> Result<(), alloc::string::String> {
    let mut result = Ok(());
    for entry in RUNTIME_TYPES.iter().chain(TYPES.iter()) {
        // The schema of a field may run user code.
        panics::swallow(|| {
            let defined = (entry.define)(again);
            if result.is_ok() {
                result = defined;
            }
        });
    }
    result
}

pub use crate::define::method::{METHODS, MethodDef, TypeMethods, join, joined};
pub use crate::define::{
    ALIGN_ATTRIBUTE, CONTENT_AT_RUN_TIME, CONTENT_ATTRIBUTE, CONTENT_HIDDEN, CONTENT_OF_FIELDS, Define,
    Definition, Digest, FieldDef, FieldDefault, FieldType, FieldValue, Fixed, OfBuild, OfType, TypeIndex,
    claim_key, content_offset, create, default_value, factory, get, set,
};
pub use crate::signature::unsigned;

/// Calls an exported function with packed arguments and writes its result to `result`. Returns 0 on success,
/// and -1 if an error was raised.
///
/// # Safety
/// `args` must point to `num_args` valid views for the call. `result` must be writable and hold nothing. `safe_call` must be
/// the C function that makes this call, with its first argument.
#[inline]
pub unsafe fn call_exported<S, F: PackableFn<S>>(
    names: &Names,
    function: F,
    safe_call: SafeCall<'_>,
    args: *const TVMFFIAny,
    num_args: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    panics::trampoline(|| {
        // SAFETY: the caller guarantees the views.
        let args = unsafe { AnyView::slice_from_raw(args, num_args) };
        let value = function.call_packed(names, args, safe_call)?;
        // SAFETY: the caller guarantees the result.
        unsafe { result.write(value.into_raw()) };
        Ok(())
    })
}

/// Writes the signature of an exported function as JSON to `result`.
///
/// # Safety
/// `result` must be writable and hold nothing.
pub unsafe fn exported_metadata<S, F: PackableFn<S>>(
    names: &Names,
    _function: F,
    result: *mut TVMFFIAny,
) -> c_int {
    // SAFETY: the caller guarantees the result.
    unsafe { crate::typed::write_signature(names, F::TYPES, F::UNSAFE, result) }
}

/// Writes the documentation of an exported function to `result`.
///
/// # Safety
/// `result` must be writable and hold nothing.
pub unsafe fn exported_doc(names: &Names, result: *mut TVMFFIAny) -> c_int {
    // SAFETY: the caller guarantees the result.
    unsafe { write_text(result, || names.doc.into()) }
}

/// Entries that [`registrations`] returned, and the memory to which the entries refer. The next call of
/// [`registrations`] frees both.
struct Table {
    infos: Vec<TVMFFIMethodInfo>,
    /// Functions and signatures to which the entries in `infos` point.
    _functions: Vec<(PackedFunc, crate::String)>,
}

static TABLE: core::sync::atomic::AtomicPtr<Table> = core::sync::atomic::AtomicPtr::new(core::ptr::null_mut());

/// Returns one entry for each function with `#[register]` in this library, and registers the types
/// of the library, so that they are known before the first object exists. The loader calls this
/// function when it loads the library.
///
/// The entries stay valid until the function is called again. A call with NULL only frees them, so that no object of
/// the library remains. If a type cannot be registered, because its key belongs to another type, `*count` is set to -1
/// and an error is raised.
///
/// # Safety
/// `count` must be NULL or writable. If several threads call this at the same time, none of them may use the entries.
pub unsafe fn registrations(count: *mut i32) -> *const TVMFFIMethodInfo {
    use core::sync::atomic::Ordering;
    let taken_back = |old: *mut Table| {
        if !old.is_null() {
            // SAFETY: the table was created below by `Box`, and only one caller took it out of its slot.
            drop(unsafe { Box::from_raw(old) });
        }
    };
    // SAFETY: the caller guarantees that `count` is NULL or writable.
    let Some(count) = (unsafe { count.as_mut() }) else {
        taken_back(TABLE.swap(core::ptr::null_mut(), Ordering::AcqRel));
        return core::ptr::null();
    };
    // A library has its own copy of the standard library, so the hook sees only its panics.
    panics::record_panic_locations();
    if let Err(text) = define_types(true) {
        Error::new("TypeError", &text).raise();
        *count = -1;
        return core::ptr::null();
    }
    let made = |entry: &'static RegisteredFunction| {
        (entry.function.to_function(), crate::String::from(entry.function.signature()))
    };
    let functions: Vec<(PackedFunc, crate::String)> = REGISTRATIONS.iter().map(made).collect();
    let info = |(entry, (function, signature)): (&RegisteredFunction, &(PackedFunc, crate::String))| {
        let names = entry.function.names();
        TVMFFIMethodInfo {
            name: TVMFFIByteArray::from_slice(names.function.as_bytes()),
            doc: TVMFFIByteArray::from_slice(names.doc.as_bytes()),
            metadata: TVMFFIByteArray::from_slice(signature.as_bytes()),
            flags: i64::from(entry.overrides),
            method: *AnyView::from(function.as_object()).as_raw(),
        }
    };
    let infos: Vec<TVMFFIMethodInfo> = REGISTRATIONS.iter().zip(&functions).map(info).collect();
    *count = infos.len() as i32;
    let table = Box::into_raw(Box::new(Table { infos, _functions: functions }));
    taken_back(TABLE.swap(table, Ordering::AcqRel));
    // SAFETY: the table was just created, and the caller guarantees that no other thread frees it at the same time.
    unsafe { (*table).infos.as_ptr() }
}

/// Returns the value of the key `type_schema` in the JSON metadata of a field; an empty string if
/// the key is absent.
#[must_use]
pub fn field_schema(metadata: &str) -> alloc::string::String {
    let metadata = crate::json::Json::parse(metadata);
    metadata.and_then(|json| json.get("type_schema")?.text().map(Into::into)).unwrap_or_default()
}

/// Returns the name of the function that the JSON `signature` describes, or `None` if it states no name.
#[must_use]
pub fn name_in_signature(signature: &str) -> Option<alloc::string::String> {
    crate::json::member(signature, "name").filter(|name| !name.is_empty()).map(Into::into)
}

/// An ELF note that states the ABI version for which a library was built.
#[repr(C, align(4))]
pub struct Note {
    name_size: u32,
    desc_size: u32,
    kind: u32,
    name: [u8; 8],
    abi: [u32; 3],
    minimum_core: [u32; 3],
}

/// ELF note that `export!` adds to a library. Its owner is `anyfn` and its type is 1. It contains
/// the ABI version and the oldest version of the runtime with which the library works.
pub const NOTE: Note = Note {
    name_size: 6,
    desc_size: 24,
    kind: 1,
    name: *b"anyfn\0\0\0",
    abi: [ABI_VERSION.major, ABI_VERSION.minor, ABI_VERSION.patch],
    minimum_core: [0, 1, 0],
};

/// Runs `body`, the body of a function that C code calls. Returns 0 on success. If `body` fails or panics,
/// raises an error on this thread and returns -1.
///
/// This is the trampoline of all functions that Rust code provides to C.
#[inline]
pub fn trampoline(body: impl FnOnce() -> crate::Result<()>) -> c_int {
    panics::trampoline(body)
}

// Items of this crate that the implementation of the ABI needs in addition to the public interface.

/// Flag of a field that stores a 16-byte value and does not change once set.
pub const LENDS_VALUE: i64 = crate::representation::LENDS_VALUE;
/// Flag of a field whose setter is a function object. The setter stores the value in the field and keeps no other reference to it.
pub const STORES_ONLY: i64 = crate::representation::STORES_ONLY;

/// Combined reference count of a new object: one strong reference and no weak references.
pub const UNIQUE: u64 = crate::refcount::UNIQUE;

/// Runs `body` and converts a panic into an error.
///
/// # Errors
/// Returns the error of `body`, or its panic as an error.
pub fn catch<T>(body: impl FnOnce() -> crate::Result<T>) -> crate::Result<T> {
    panics::catch(body)
}

/// Creates an object of the type `type_index` with the content `content`.
///
/// ```compile_fail,E0133
/// let function = anyfn::__private::new_object(anyfn::abi::kTVMFFIFunction, ());
/// ```
///
/// # Safety
/// `T` must be the type of the content of all objects of this type. The content must support every use from any thread
/// that the object type allows.
pub unsafe fn new_object<T: Send + 'static>(type_index: i32, content: T) -> crate::ObjectRef {
    // SAFETY: the caller guarantees the content, and no flag is set.
    unsafe { new_object_with_flags(type_index, 0, content) }
}

/// Creates an object like [`new_object`], with the given `OBJECT_FLAG_*` bits.
///
/// # Safety
/// The requirements of [`new_object`] apply, and the flags must be correct for the object.
pub unsafe fn new_object_with_flags<T: Send + 'static>(
    type_index: i32,
    flags: u32,
    content: T,
) -> crate::ObjectRef {
    crate::object::ObjectBox::allocate(type_index, flags, content)
}

/// Adds an object to the count of this library's live objects. Call this for objects that [`new_object`] did
/// not create. The object must be at its final address.
///
/// ```compile_fail,E0133
/// anyfn::__private::object_created(&7, 64);
/// ```
///
/// # Safety
/// `object` must point to an object of the type `type_index` that [`new_object`] did not create. It must be counted
/// only once: a library is unmapped when it has no live objects.
pub unsafe fn object_created<T>(object: *const T, type_index: i32) {
    crate::live::created(object, type_index);
}

/// Removes an object from the count of this library's live objects. Call this for objects that [`new_object`]
/// did not create, before the memory of the object is freed.
///
/// ```compile_fail,E0133
/// anyfn::__private::object_freed(&7, 64);
/// ```
///
/// # Safety
/// `object` must have been counted by [`object_created`], and must not have been counted as freed yet.
pub unsafe fn object_freed<T>(object: *const T, type_index: i32) {
    crate::live::ending(object, type_index).count();
}

/// Destroys the content of an object by calling `release`; returns false if the destruction is
/// deferred instead. Only the deleters of objects that [`new_object`] did not create may call this.
///
/// Calls `release`, or defers the deleter if releases are nested too deeply. Returns false if the deleter was deferred;
/// the deleter must then return immediately.
///
/// # Safety
/// Only the deleter of `object` may call this, with the flags that it received, which must include the flag for the
/// content.
pub unsafe fn release_content(object: *mut core::ffi::c_void, flags: c_int, release: impl FnOnce()) -> bool {
    if !crate::nesting::enter() {
        // SAFETY: the deleter hands over the object and does not access it again.
        unsafe { crate::nesting::defer(object.cast(), flags) };
        return false;
    }
    panics::swallow(release);
    crate::nesting::leave();
    true
}

/// Returns a string value with a copy of `bytes`; `None` if memory allocation fails.
pub fn try_string(bytes: &[u8]) -> Option<Any> {
    crate::string::try_make(bytes, anyfn_abi::kTVMFFISmallStr, anyfn_abi::kTVMFFIStr)
}

/// Returns a bytes value with a copy of `bytes`; `None` if memory allocation fails.
pub fn try_bytes(bytes: &[u8]) -> Option<Any> {
    crate::string::try_make(bytes, anyfn_abi::kTVMFFISmallBytes, anyfn_abi::kTVMFFIBytes)
}

/// Returns a String object with a copy of `bytes`, even if they would fit into a small string; `None` if memory
/// allocation fails.
pub fn try_heap_string(bytes: &[u8]) -> Option<crate::ObjectRef> {
    crate::bytes_object::BytesObject::try_allocate(bytes, anyfn_abi::kTVMFFIStr)
}

/// Combines a hash with a value into a new hash, by the formula that the ABI defines.
#[inline]
#[must_use]
pub const fn hash_combine(hash: u64, value: u64) -> u64 {
    crate::hash::combine(hash, value)
}

/// Returns the hash that the ABI defines for the content of a string or bytes value.
#[inline]
#[must_use]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    crate::hash::hash_bytes(bytes)
}

/// Returns the hash that the ABI defines for a value as a Map key.
#[inline]
#[must_use]
pub fn any_hash(view: &AnyView<'_>) -> u64 {
    crate::hash::any_hash(view)
}

/// Returns the content of a string or bytes value; empty for other types.
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

/// Returns the pair at the position `place` of a Map or Dict and advances `place` to the next pair; `None` at
/// the end.
///
/// # Safety
/// `object` must be a Map or Dict that does not change while the result is alive.
pub unsafe fn next_pair<'a>(
    object: &'a crate::ObjectRef,
    place: &mut crate::MapCursor,
) -> Option<(&'a Any, &'a Any)> {
    // SAFETY: the caller guarantees the same requirements.
    unsafe { crate::containers::next_pair(object, place) }
}

/// Replaces the value of the pair that [`next_pair`] returns for `place`. Returns the old value;
/// `None` at the end.
///
/// # Safety
/// `object` must be a Map or Dict, and no other code may use its content during the call.
pub unsafe fn replace_value(object: &crate::ObjectRef, place: crate::MapCursor, value: Any) -> Option<Any> {
    // SAFETY: the caller guarantees the same requirements.
    unsafe { crate::containers::replace_value(object, place, value) }
}

/// Returns a number that identifies the calling thread among the running threads; 0 if the build has no support for
/// threads.
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
