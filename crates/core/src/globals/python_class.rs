//! Types whose fields are stored directly as numbers, values or references. The Python frontend of the stable
//! ABI defines such types.
//!
//! That frontend lays out the fields itself. It requests a getter and a setter for each field and passes a type index
//! that describes the field: a number, a value of any type, or a reference to an object. Other frontends use
//! `ffi.TypeDefine`.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

use anyfn::__private::{
    CONTENT_ATTRIBUTE, CONTENT_OF_FIELDS, FunctionDef, functions, object_created, object_freed,
    release_content, trampoline,
};
use anyfn::abi::{
    TVMFFIAny, TVMFFIFieldGetter, TVMFFIObject, TVMFFIObjectHandle, kTVMFFIAny, kTVMFFIBool, kTVMFFIDataType,
    kTVMFFIDevice, kTVMFFIDynObjectBegin, kTVMFFIFloat, kTVMFFIInt, kTVMFFINone,
    kTVMFFIObjectDeleterFlagBitMaskStrong as STRONG, kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK,
    kTVMFFIOpaquePtr, kTVMFFIStaticObjectBegin,
};
use anyfn::atomic64::AtomicU64;
use anyfn::record::{MAKER_ATTRIBUTE, SLOTS_ATTRIBUTE, Slot};
use anyfn::reflection::{Field, TypeInfo};
use anyfn::{Any, AnyView, Args, Error, ObjectRef, OpaquePtr, PackedFunc, Result, Unsafe, bail};

use crate::construct::register_init;
use crate::sys::Mutex;
use crate::{attributes, type_table};

/// The global functions that this file implements.
pub(super) static FUNCTIONS: &[FunctionDef] = &functions! {
    "ffi.MakeFieldGetter" ["field_type_index"] => make_getter,
    "ffi.MakeFieldSetter" ["field_type_index", "type_converter", "f_convert"] => Unsafe(make_setter),
    "ffi._PyClassRegisterTypeAttrColumns" ["type_index", "total_size"] => Unsafe(register_class),
};

/// Form in which a field is stored in memory.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Storage {
    /// Field of any type, stored as a 16-byte value.
    Any,
    /// Field that is stored as a reference to an object, or NULL.
    Object,
    /// Field that is stored as the bytes of a value that owns nothing, such as a number. The members are the
    /// type index of the value and the number of bytes.
    Plain(i32, usize),
}

impl Storage {
    /// Returns the storage form of a field, given the type index of its values; `None` for an unsupported
    /// type index.
    fn of(type_index: i32) -> Option<Storage> {
        Some(match type_index {
            kTVMFFIAny | kTVMFFINone => Storage::Any,
            kTVMFFIInt | kTVMFFIFloat | kTVMFFIOpaquePtr | kTVMFFIDevice => Storage::Plain(type_index, 8),
            kTVMFFIBool => Storage::Plain(type_index, 1),
            kTVMFFIDataType => Storage::Plain(type_index, 4),
            index if index >= kTVMFFIStaticObjectBegin => Storage::Object,
            _ => return None,
        })
    }

    /// Returns the storage form of a registered field of `size` bytes.
    fn of_field(field: Field, size: usize) -> Storage {
        match (Storage::of(field.static_type_index()), size) {
            (Some(Storage::Any | Storage::Object), 16) => Storage::Any,
            (Some(Storage::Any | Storage::Object), 8) => Storage::Object,
            _ => Storage::Plain(field.static_type_index(), size),
        }
    }
}

/// Locks for fields that are references. A thread holds a field's lock while it reads or exchanges the reference, so
/// that another thread does not release the object in between. The address of the field selects the lock.
static LOCKS: [Mutex<()>; 32] = [const { Mutex::new(()) }; 32];

fn lock_of(place: *mut c_void) -> &'static Mutex<()> {
    &LOCKS[(place.addr() >> 3) % LOCKS.len()]
}

/// Reads the bytes of a field while other threads may write them. If an atomic type of this size exists and the field
/// is aligned for it, all bytes are read in one operation; otherwise they are read one by one.
///
/// # Safety
/// The field must consist of `bytes.len()` bytes, and only this function and [`store`] may access it.
unsafe fn load(place: *mut u8, bytes: &mut [u8]) {
    let aligned = place.addr().is_multiple_of(bytes.len().max(1));
    macro_rules! at_once {
        ($atomic:ty) => {{
            // SAFETY: the atomic type is as large as the field, and aligned; a field of this size is always accessed
            // this way.
            let field = unsafe { <$atomic>::from_ptr(place.cast()) };
            bytes.copy_from_slice(&field.load(Ordering::Relaxed).to_ne_bytes());
        }};
    }
    match bytes.len() {
        2 if aligned => at_once!(AtomicU16),
        4 if aligned => at_once!(AtomicU32),
        8 if aligned => at_once!(AtomicU64),
        _ => {
            for (at, byte) in bytes.iter_mut().enumerate() {
                // SAFETY: this is a byte of the field; a field of this size or address is always accessed this way.
                *byte = unsafe { AtomicU8::from_ptr(place.wrapping_add(at)) }.load(Ordering::Relaxed);
            }
        }
    }
}

/// Writes the bytes of a field while other threads may read them: in one operation or one by one, as [`load`] does.
///
/// # Safety
/// The requirements of [`load`] apply.
unsafe fn store(place: *mut u8, bytes: &[u8]) {
    let aligned = place.addr().is_multiple_of(bytes.len().max(1));
    macro_rules! at_once {
        ($atomic:ty, $plain:ty) => {{
            let mut value = [0; size_of::<$plain>()];
            value.copy_from_slice(bytes);
            // SAFETY: the atomic type is as large as the field, and aligned; a field of this size is always accessed
            // this way.
            let field = unsafe { <$atomic>::from_ptr(place.cast()) };
            field.store(<$plain>::from_ne_bytes(value), Ordering::Relaxed);
        }};
    }
    match bytes.len() {
        2 if aligned => at_once!(AtomicU16, u16),
        4 if aligned => at_once!(AtomicU32, u32),
        8 if aligned => at_once!(AtomicU64, u64),
        _ => {
            for (at, byte) in bytes.iter().enumerate() {
                // SAFETY: this is a byte of the field; a field of this size or address is always accessed this way.
                unsafe { AtomicU8::from_ptr(place.wrapping_add(at)) }.store(*byte, Ordering::Relaxed);
            }
        }
    }
}

/// Returns the value of the field at `place`.
///
/// # Safety
/// `place` must be a field of a live object that is stored in the form `storage`.
unsafe fn read(storage: Storage, place: *mut c_void) -> Any {
    match storage {
        // SAFETY: the field is a value that only this file reads and writes.
        Storage::Any => unsafe { Slot::read(place.cast()) }.unwrap_or_default(),
        Storage::Object => {
            let _lock = lock_of(place).lock();
            // SAFETY: the field is a reference or NULL.
            let handle = unsafe { place.cast::<TVMFFIObjectHandle>().read() };
            // SAFETY: the handle is a reference or NULL; the field keeps it while the lock is held.
            unsafe { ObjectRef::from_borrowed_or_null(handle) }.map_or(Any::NONE, Any::from)
        }
        Storage::Plain(type_index, size) => {
            let mut bits = [0; 8];
            // SAFETY: the field has this many bytes.
            unsafe { load(place.cast(), &mut bits[..size.min(8)]) };
            let value = TVMFFIAny::from_bits(type_index, u64::from_ne_bytes(bits));
            // SAFETY: the value has a type that owns nothing.
            unsafe { Any::from_raw(value) }
        }
    }
}

/// Sets the field at `place` to `value`.
///
/// # Errors
/// Returns `TypeError` if `value` cannot be stored in the form `storage`.
///
/// # Safety
/// The requirements of [`read`] apply.
unsafe fn write(storage: Storage, place: *mut c_void, value: Any) -> Result<()> {
    match storage {
        // SAFETY: the field is a value that only this file reads and writes.
        Storage::Any => unsafe { Slot::write(place.cast(), value) },
        Storage::Object if value.is_none() || value.as_object().is_some() => {
            let new = value.into_object().map_or(ptr::null_mut(), ObjectRef::into_handle);
            let lock = lock_of(place).lock();
            // SAFETY: the field owns a reference or NULL.
            let old = unsafe { place.cast::<TVMFFIObjectHandle>().replace(new) };
            drop(lock);
            // SAFETY: the field owned the reference or NULL. It is released without the lock, because that may run any
            // code.
            drop(unsafe { ObjectRef::from_owned_or_null(old) });
        }
        Storage::Plain(type_index, size) if fits(type_index, &value) => {
            let bits = value.as_view().bits().to_ne_bytes();
            // SAFETY: the field has this many bytes.
            unsafe { store(place.cast(), &bits[..size.min(8)]) };
        }
        Storage::Object => bail!("TypeError", "a field: expected an object but got `{}`", value.type_key()),
        Storage::Plain(type_index, _) => {
            let (expected, got) = (anyfn::type_key(type_index), value.type_key());
            bail!("TypeError", "a field: expected `{expected}` but got `{got}`")
        }
    }
    Ok(())
}

/// Returns true if the bits of `value` are valid in a field whose values have the type index `type_index`.
fn fits(type_index: i32, value: &Any) -> bool {
    value.type_index() == type_index
        || (type_index == kTVMFFIInt && value.type_index() == kTVMFFIBool)
        || (type_index == kTVMFFIOpaquePtr && value.is_none())
}

/// Defines the C function `$name` that reads fields stored in the form `$storage`.
macro_rules! getter {
    ($name:ident, $storage:expr) => {
        unsafe extern "C" fn $name(place: *mut c_void, result: *mut TVMFFIAny) -> c_int {
            trampoline(|| {
                // SAFETY: the ABI passes the field of a live object.
                let value = unsafe { read($storage, place) };
                // SAFETY: the ABI passes a writable result that holds nothing.
                unsafe { result.write(value.into_raw()) };
                Ok(())
            })
        }
    };
}

getter!(get_any, Storage::Any);
getter!(get_object, Storage::Object);
getter!(get_int, Storage::Plain(kTVMFFIInt, 8));
getter!(get_float, Storage::Plain(kTVMFFIFloat, 8));
getter!(get_bool, Storage::Plain(kTVMFFIBool, 1));
getter!(get_pointer, Storage::Plain(kTVMFFIOpaquePtr, 8));
getter!(get_data_type, Storage::Plain(kTVMFFIDataType, 4));
getter!(get_device, Storage::Plain(kTVMFFIDevice, 8));

fn storage_or_error(type_index: i32, what: &str) -> Result<Storage> {
    Storage::of(type_index)
        .ok_or_else(|| anyfn::error!("ValueError", "Unsupported field type index for {what}: {type_index}"))
}

/// Returns the address of a `TVMFFIFieldGetter` for fields whose values have the type index `type_index`.
fn make_getter(type_index: i32) -> Result<i64> {
    Ok(getter_of(storage_or_error(type_index, "getter")?) as usize as i64)
}

fn getter_of(storage: Storage) -> TVMFFIFieldGetter {
    match storage {
        Storage::Any => get_any,
        Storage::Object => get_object,
        Storage::Plain(kTVMFFIInt, _) => get_int,
        Storage::Plain(kTVMFFIFloat, _) => get_float,
        Storage::Plain(kTVMFFIBool, _) => get_bool,
        Storage::Plain(kTVMFFIDataType, _) => get_data_type,
        Storage::Plain(kTVMFFIDevice, _) => get_device,
        Storage::Plain(..) => get_pointer,
    }
}

/// Function of the frontend that converts a value to the type of a field. `converter` is its context pointer.
type Convert =
    unsafe extern "C" fn(converter: *mut c_void, value: *const TVMFFIAny, result: *mut TVMFFIAny) -> c_int;

/// Creates a setter for fields whose values have the type index `type_index`. The setter is a function of the field's
/// address and a value. It converts the value by calling the function at the address `convert` with the context pointer
/// `converter`.
fn make_setter(type_index: i32, converter: i64, convert: i64) -> Result<PackedFunc> {
    let storage = storage_or_error(type_index, "setter")?;
    let convert = ptr::with_exposed_provenance_mut::<c_void>(convert as usize);
    // SAFETY: the pointer is NULL, which is `None`, or a function of this type as the caller promises.
    let convert = unsafe { core::mem::transmute::<*mut c_void, Option<Convert>>(convert) };
    let Some(convert) = convert else {
        bail!("ValueError", "ffi.MakeFieldSetter: argument `f_convert` is NULL");
    };
    Ok(PackedFunc::new(move |args| set(storage, converter, convert, &args)))
}

fn set(storage: Storage, converter: i64, convert: Convert, args: &Args<'_>) -> Result<Any> {
    let place = args.get::<OpaquePtr>(0)?.as_ptr();
    let (Some(value), false) = (args.as_slice().get(1), place.is_null()) else {
        bail!("TypeError", "a field setter takes two arguments: the address of the field and a value");
    };
    let mut result = TVMFFIAny::NONE;
    let converter = ptr::with_exposed_provenance_mut::<c_void>(converter as usize);
    // SAFETY: the caller of `make_setter` passed this function with its data; the view is valid and the result is
    // writable.
    if unsafe { convert(converter, value.as_raw(), &mut result) } != 0 {
        return Err(Error::take_raised());
    }
    // SAFETY: on success the result is an owned value.
    let value = unsafe { Any::from_raw(result) };
    // SAFETY: the ABI passes the field of a live object.
    unsafe { write(storage, place, value) }?;
    Ok(Any::NONE)
}

// ---- Objects

/// Number of bytes before the header of an object. They store the size of the object.
const FRONT: usize = 16;
const HEADER: usize = size_of::<TVMFFIObject>();

fn memory(size: usize) -> core::alloc::Layout {
    // Cannot fail: the size was checked when the type was registered.
    core::alloc::Layout::from_size_align(FRONT + size, FRONT)
        .unwrap_or(core::alloc::Layout::new::<TVMFFIObject>())
}

/// Returns true if zeroed memory is a valid object of the type. This requires all of the following:
/// - The type is not built in.
/// - No native code has registered metadata of the type, such as the size of its objects.
/// - Objects of the type and of its ancestors contain nothing but reflected fields.
/// - The type's own fields have getters from [`make_getter`].
fn is_plain_class(info: TypeInfo) -> bool {
    let is_native = |info: TypeInfo| {
        let told = |name| info.attribute(name).is_some();
        let content = info.attribute(CONTENT_ATTRIBUTE).map(|content| content.as_view().bits());
        told(SLOTS_ATTRIBUTE) || told(MAKER_ATTRIBUTE) || content.is_some_and(|of| of != CONTENT_OF_FIELDS)
    };
    let is_made_here = |field: Field| {
        let Some(storage) = Storage::of(field.static_type_index()) else { return false };
        let size = match storage {
            Storage::Any => 16,
            Storage::Object => 8,
            Storage::Plain(_, size) => size as i64,
        };
        let getter = field.getter().is_some_and(|getter| ptr::fn_addr_eq(getter, getter_of(storage)));
        getter && field.size() == size && field.offset() % size.min(8) == 0
    };
    info.index() >= kTVMFFIDynObjectBegin
        && type_table::metadata(info.index()).is_none()
        && !info.lineage().any(is_native)
        && info.own_fields().all(is_made_here)
}

/// Registers the constructor of a type, and the functions that create and copy its objects. The fields of the type must
/// already be registered. `total_size` is the size of an object in bytes.
fn register_class(type_index: i32, total_size: i64) -> Result<()> {
    let Some(info) = TypeInfo::from_index(type_index) else {
        bail!("InternalError", "Cannot find type info for type_index={type_index}");
    };
    let Some(size) = usize::try_from(total_size).ok().filter(|size| (HEADER..1 << 24).contains(size)) else {
        bail!("ValueError", "invalid size of objects of type `{}`: {total_size} bytes", info.key());
    };
    if !is_plain_class(info) {
        bail!(
            "TypeError",
            "expected a type whose field getters were created by `ffi.MakeFieldGetter`, got `{}`",
            info.key()
        );
    }
    for field in info.fields() {
        let end = field.offset().checked_add(field.size());
        if field.offset() < HEADER as i64 || field.size() < 0 || end.is_none_or(|end| end > total_size) {
            bail!("ValueError", "field `{}` of `{}` lies outside of its object", field.name(), info.key());
        }
        let plain = matches!(Storage::of_field(field, field.size() as usize), Storage::Plain(..));
        if !plain && field.offset() % align_of::<u64>() as i64 != 0 {
            bail!("ValueError", "field `{}` of `{}` is not aligned to 8 bytes", field.name(), info.key());
        }
    }
    register_init(type_index)?;
    let new = PackedFunc::new(move |_| Any::new(make(type_index, size)?));
    let copy = PackedFunc::new(move |args| copy(type_index, size, &args.get::<ObjectRef>(0)?));
    for (name, function) in [(&b"__ffi_new__"[..], new), (b"__ffi_shallow_copy__", copy)] {
        let view = AnyView::from(function.as_object());
        // SAFETY: the value is valid, and the column takes a reference to it.
        unsafe { attributes::set(type_index, name, view.as_raw()) }?;
    }
    Ok(())
}

/// Creates an object of `size` bytes whose fields are all zero bytes: numbers are 0, references are NULL, and
/// fields that can hold a value of any type are None.
fn make(type_index: i32, size: usize) -> Result<ObjectRef> {
    // SAFETY: the size is not zero.
    let start = unsafe { alloc::alloc::alloc_zeroed(memory(size)) };
    if start.is_null() {
        bail!("MemoryError", "out of memory");
    }
    // SAFETY: the memory is new, and its first word lies before the object.
    unsafe { start.cast::<usize>().write(size) };
    // SAFETY: the offset lies within the memory.
    let object: *mut TVMFFIObject = unsafe { start.add(FRONT) }.cast();
    let header = TVMFFIObject {
        combined_ref_count: anyfn::__private::UNIQUE,
        type_index,
        flags: 0,
        deleter: Some(delete),
    };
    // SAFETY: the memory is new and has room for it.
    unsafe { object.write(header) };
    // SAFETY: the object was created above and is counted only here.
    unsafe { object_created(object, type_index) };
    // SAFETY: a valid object with one reference, which the result takes.
    let object = unsafe { ObjectRef::from_owned_or_null(object.cast()) };
    object.ok_or_else(|| Error::new("MemoryError", "out of memory"))
}

/// Iterates over the fields of an object. Each item is the form in which the field is stored and its address.
fn places(info: TypeInfo, object: *mut c_void) -> impl Iterator<Item = (Storage, *mut c_void)> {
    info.fields().map(move |field| {
        let place = object.wrapping_byte_add(field.offset() as usize);
        (Storage::of_field(field, field.size() as usize), place)
    })
}

fn copy(type_index: i32, size: usize, from: &ObjectRef) -> Result<Any> {
    let info = TypeInfo::of(from);
    if info.index() != type_index {
        let (key, got) = (anyfn::type_key(type_index), info.key());
        bail!("TypeError", "__ffi_shallow_copy__ of `{key}`: expected an object of this type but got `{got}`");
    }
    let made = make(info.index(), size)?;
    for ((storage, from), (_, to)) in places(info, from.as_handle()).zip(places(info, made.as_handle())) {
        if let Storage::Plain(_, size) = storage {
            let mut bytes = alloc::vec![0; size];
            // SAFETY: the object has the field, whose bytes own nothing.
            unsafe { load(from.cast(), &mut bytes) };
            // SAFETY: the new object has the same fields.
            unsafe { store(to.cast(), &bytes) };
            continue;
        }
        // SAFETY: the field belongs to a live object.
        let value = unsafe { read(storage, from) };
        // SAFETY: the field belongs to a live object.
        unsafe { write(storage, to, value) }?;
    }
    Any::new(made)
}

/// Releases the fields of an object, frees its memory, or both, as `flags` specify. This is the deleter of the objects
/// that [`make`] creates.
unsafe extern "C" fn delete(object: *mut c_void, flags: c_int) {
    let header: *mut TVMFFIObject = object.cast();
    // SAFETY: the memory has not been freed yet.
    let type_index = unsafe { (*header).type_index };
    if flags & STRONG != 0 {
        let drop_fields = || {
            for (storage, place) in
                TypeInfo::from_index(type_index).into_iter().flat_map(|info| places(info, object))
            {
                if !matches!(storage, Storage::Plain(..)) {
                    // SAFETY: no strong reference is left, so nothing else uses the field; None is valid for both
                    // storages.
                    drop(unsafe { write(storage, place, Any::NONE) });
                }
            }
        };
        // SAFETY: this is the deleter, called with these flags.
        if !unsafe { release_content(object, flags, drop_fields) } {
            return;
        }
    }
    if flags & WEAK != 0 {
        // SAFETY: the object was counted when it was created; the deleter frees its memory once.
        unsafe { object_freed(header, type_index) };
        let start: *mut u8 = object.wrapping_byte_sub(FRONT).cast();
        // SAFETY: the size lies before the object.
        let size = unsafe { start.cast::<usize>().read() };
        // SAFETY: `make` allocated the memory with this layout.
        unsafe { alloc::alloc::dealloc(start, memory(size)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_fields_have_any_size_and_place() {
        for size in 0..=12 {
            for place in 0..=8 {
                let mut memory = [0xEEEE_EEEE_EEEE_EEEE_u64; 4];
                let field = memory.as_mut_ptr().cast::<u8>().wrapping_add(place);
                let bytes: alloc::vec::Vec<u8> = (1..=size).collect();
                // SAFETY: the memory has this many bytes from there on.
                unsafe { store(field, &bytes) };
                let mut read = alloc::vec![0; bytes.len()];
                // SAFETY: the memory has this many bytes from there on.
                unsafe { load(field, &mut read) };
                assert_eq!(read, bytes);
                let all: alloc::vec::Vec<u8> = memory.iter().flat_map(|word| word.to_ne_bytes()).collect();
                let others =
                    all.iter().enumerate().filter(|(at, _)| !(place..place + bytes.len()).contains(at));
                assert!(others.into_iter().all(|(_, byte)| *byte == 0xEE), "{size} bytes at {place}");
            }
        }
    }
}
