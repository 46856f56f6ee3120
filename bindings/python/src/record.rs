//! Native objects of types that are defined in Python: their memory, and what a field takes.
//!
//! Behind the header lies the address of the type's [`Layout`], then one slot of 16 bytes for each field, the parent's
//! first. A slot is an owned value with a lock in it, so that any thread may read a field while another one sets it.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, Ordering};

use anyfn::abi::{
    TVMFFIAny, TVMFFIObject, kTVMFFIArray, kTVMFFIBigInt, kTVMFFIBool, kTVMFFIBytes, kTVMFFIDict, kTVMFFIFloat,
    kTVMFFIInt, kTVMFFIList, kTVMFFIMap, kTVMFFINone, kTVMFFIObjectDeleterFlagBitMaskStrong as STRONG,
    kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK, kTVMFFISmallBytes, kTVMFFISmallStr, kTVMFFIStaticObjectBegin,
    kTVMFFIStr,
};
use anyfn::{Any, AnyView, Args, Array, Dict, Error, FromArg, List, Map, ObjectRef};

use crate::lower::plain;

/// What the objects of a type have. Lives as long as the process, like the type.
pub(crate) struct Layout {
    pub(crate) type_index: i32,
    /// Index of the parent type.
    pub(crate) parent: i32,
    /// Name of the class that has defined the type, for messages.
    pub(crate) class: String,
    /// The fields, the parent's first.
    pub(crate) fields: Vec<Field>,
    /// Number of fields that the parent has.
    pub(crate) inherited: usize,
}

/// A field of a type.
#[derive(Clone, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// The kind as messages show it.
    pub(crate) shown: String,
    /// Whether it may be set later.
    pub(crate) writable: bool,
}

/// What a field takes.
#[derive(Clone, PartialEq)]
pub(crate) enum Kind {
    Any,
    Int,
    Float,
    Bool,
    Str,
    Bytes,
    /// Values of one type that are no objects, such as None.
    Exactly(i32),
    /// Objects of a type or of one derived from it.
    Object(i32),
    Union(Vec<Kind>),
}

impl Kind {
    /// Whether a value is taken as it is.
    fn is(&self, value: &Any) -> bool {
        let index = value.type_index();
        match self {
            Kind::Any => true,
            Kind::Int => matches!(index, kTVMFFIInt | kTVMFFIBigInt),
            Kind::Float => index == kTVMFFIFloat,
            Kind::Bool => index == kTVMFFIBool,
            Kind::Str => matches!(index, kTVMFFISmallStr | kTVMFFIStr),
            Kind::Bytes => matches!(index, kTVMFFISmallBytes | kTVMFFIBytes),
            Kind::Exactly(own) => index == *own,
            Kind::Object(own) => anyfn::is_instance(index, *own),
            Kind::Union(kinds) => kinds.iter().any(|kind| kind.is(value)),
        }
    }

    /// The value that a field gets; the value itself comes back if the field does not take it.
    pub(crate) fn accept(&self, value: Any) -> Result<Any, Any> {
        if self.is(&value) { Ok(value) } else { self.convert(value) }
    }

    #[cold]
    fn convert(&self, value: Any) -> Result<Any, Any> {
        let bits = value.as_view().as_raw().bits();
        match (self, value.type_index()) {
            (Kind::Int, kTVMFFIBool) => Ok(plain(kTVMFFIInt, bits)),
            (Kind::Float, kTVMFFIInt | kTVMFFIBool) => Ok(plain(kTVMFFIFloat, (bits as i64 as f64).to_bits())),
            (Kind::Bool, kTVMFFIInt) => Ok(plain(kTVMFFIBool, u64::from(bits != 0))),
            (Kind::Object(own), kTVMFFIArray) if *own == kTVMFFIList => {
                let made = value.get::<Array<Any>>().and_then(|items| List::<Any>::try_from_iter(items.iter()));
                made.map(Any::from).map_err(|_| value)
            }
            (Kind::Object(own), kTVMFFIMap) if *own == kTVMFFIDict => {
                let made = value
                    .get::<Map<Any, Any>>()
                    .and_then(|pairs| Dict::<Any, Any>::try_from_iter(pairs.iter()));
                made.map(Any::from).map_err(|_| value)
            }
            (Kind::Union(kinds), _) => {
                let mut value = value;
                for kind in kinds {
                    match kind.convert(value) {
                        Ok(taken) => return Ok(taken),
                        Err(same) => value = same,
                    }
                }
                Err(value)
            }
            _ => Err(value),
        }
    }
}

impl Field {
    /// What is said of a value that the field does not take.
    #[cold]
    pub(crate) fn mismatch(&self, value: &Any) -> String {
        format!("expected {} but got {}", self.shown, value.as_view().type_key())
    }
}

/// What every such object begins with.
#[repr(C)]
struct Head {
    header: TVMFFIObject,
    layout: &'static Layout,
}

/// An object's memory: its head and the slots.
fn memory(layout: &Layout) -> std::alloc::Layout {
    // Never fails: there are fewer fields than a class statement has lines.
    std::alloc::Layout::from_size_align(size(layout), align_of::<Head>())
        .unwrap_or(std::alloc::Layout::new::<Head>())
}

/// Size of an object.
pub(crate) fn size(layout: &Layout) -> usize {
    offset(layout.fields.len())
}

/// Where the slot of a field lies.
pub(crate) fn offset(index: usize) -> usize {
    size_of::<Head>() + index * size_of::<TVMFFIAny>()
}

/// The bits of a slot whose field has not been set.
const UNSET: u64 = 0x756e_7365_7421;

/// An object none of whose fields is set; `None` when memory is short.
pub(crate) fn make(layout: &'static Layout) -> Option<ObjectRef> {
    // SAFETY: the size is not zero.
    let object: *mut Head = unsafe { std::alloc::alloc(memory(layout)) }.cast();
    if object.is_null() {
        return None;
    }
    let header = TVMFFIObject {
        combined_ref_count: 0x1_0000_0001,
        type_index: layout.type_index,
        flags: 0,
        deleter: Some(delete),
    };
    // SAFETY: new memory of this size.
    unsafe { object.write(Head { header, layout }) };
    for index in 0..layout.fields.len() {
        // SAFETY: the memory has a slot for each field.
        let slot = unsafe { slot(object.cast(), index) };
        // SAFETY: as above.
        unsafe { slot.write(TVMFFIAny::from_bits(kTVMFFINone, UNSET)) };
    }
    anyfn::__private::object_created(layout.type_index);
    // SAFETY: a valid object with one reference, which the result takes.
    unsafe { ObjectRef::from_owned_or_null(object.cast()) }
}

/// The layout of an object, if its type is defined in Python.
#[inline]
pub(crate) fn layout_of(object: *mut TVMFFIObject) -> Option<&'static Layout> {
    // SAFETY: the caller has a valid object.
    let deleter = unsafe { (*object).deleter }?;
    if !std::ptr::fn_addr_eq(deleter, delete as unsafe extern "C" fn(*mut c_void, c_int)) {
        return None;
    }
    // SAFETY: only `make` gives objects this deleter.
    Some(unsafe { (*object.cast::<Head>()).layout })
}

/// # Safety
/// The object must be one of `make` that has so many fields.
#[inline]
pub(crate) unsafe fn slot(object: *mut TVMFFIObject, index: usize) -> *mut TVMFFIAny {
    // SAFETY: the slots lie behind the head.
    unsafe { object.byte_add(offset(index)) }.cast()
}

/// Releases the fields, the memory, or both. Any thread may be the one.
unsafe extern "C" fn delete(object: *mut c_void, flags: c_int) {
    let head: *mut Head = object.cast();
    // SAFETY: the memory is still there.
    let layout = unsafe { (*head).layout };
    if flags & STRONG != 0 {
        let drop_fields = || {
            for index in 0..layout.fields.len() {
                // SAFETY: the object has this field.
                let slot = unsafe { slot(head.cast(), index) };
                // SAFETY: no strong reference is left, so nobody else uses the slot.
                let value = unsafe { slot.read() };
                // SAFETY: the slot owned it.
                drop(unsafe { Any::from_raw(value) });
            }
        };
        // SAFETY: this is the deleter, called with these flags.
        if !unsafe { anyfn::__private::release_content(object, flags, drop_fields) } {
            return;
        }
    }
    if flags & WEAK != 0 {
        anyfn::__private::object_freed(layout.type_index);
        // SAFETY: allocated by `make` with this very layout.
        unsafe { std::alloc::dealloc(object.cast(), memory(layout)) };
    }
}

// ---- Slots

/// Bit of a slot's second word that says that a thread reads or writes it. Lengths of small strings are below 8.
const LOCKED: u32 = 1 << 31;

/// Locks a slot: gives the word that locks, and what it was.
#[inline]
fn lock<'a>(slot: *mut TVMFFIAny) -> (&'a AtomicU32, u32) {
    // SAFETY: the caller has a slot of a live object.
    let word = unsafe { &raw mut (*slot).small_str_len };
    // SAFETY: slots that others know are only used by this module, which changes the word by atomic operations.
    let word = unsafe { AtomicU32::from_ptr(word) };
    let mut turns = 0u32;
    loop {
        let old = word.load(Ordering::Relaxed) & !LOCKED;
        if word.compare_exchange_weak(old, old | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return (word, old);
        }
        turns += 1;
        if turns.is_multiple_of(64) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

/// The value of a field; `None` if it has not been set.
///
/// # Safety
/// `slot` must be one of a live object.
#[inline]
pub(crate) unsafe fn read(slot: *mut TVMFFIAny) -> Option<Any> {
    let (word, length) = lock(slot);
    // SAFETY: nobody writes it while it is locked.
    let type_index = unsafe { (*slot).type_index };
    // SAFETY: as above.
    let value = unsafe { (*slot).value };
    let value = TVMFFIAny { type_index, small_str_len: length, value };
    // SAFETY: owned by the slot, which keeps it while it is locked; `ManuallyDrop` leaves that reference alone.
    let value = ManuallyDrop::new(unsafe { Any::from_raw(value) });
    let copy = Any::clone(&value);
    word.store(length, Ordering::Release);
    (type_index != kTVMFFINone || copy.as_view().as_raw().bits() != UNSET).then_some(copy)
}

/// Sets a field.
///
/// # Safety
/// `slot` must be one of a live object, and its field must take the value.
#[inline]
pub(crate) unsafe fn write(slot: *mut TVMFFIAny, value: Any) {
    let value = if value.type_index() == kTVMFFINone { Any::NONE } else { value };
    let value = value.into_raw();
    let (word, length) = lock(slot);
    // SAFETY: nobody else uses it while it is locked.
    let old_index = unsafe { std::mem::replace(&mut (*slot).type_index, value.type_index) };
    // SAFETY: as above.
    let old_value = unsafe { std::mem::replace(&mut (*slot).value, value.value) };
    word.store(value.small_str_len, Ordering::Release);
    let old = TVMFFIAny { type_index: old_index, small_str_len: length, value: old_value };
    if old_index >= kTVMFFIStaticObjectBegin {
        // After the lock is open again: what goes may run code of anybody.
        // SAFETY: the slot owned it.
        drop(unsafe { Any::from_raw(old) });
    }
}

/// Reads a field, for the table of types.
///
/// # Safety
/// Called with the slot of a live object and a writable result that holds nothing.
pub(crate) unsafe extern "C" fn get_field(slot: *mut c_void, result: *mut TVMFFIAny) -> c_int {
    // SAFETY: as the caller guarantees.
    match unsafe { read(slot.cast()) } {
        Some(value) => {
            // SAFETY: as the caller guarantees.
            unsafe { result.write(value.into_raw()) };
            0
        }
        None => {
            Error::new("AttributeError", "the field has not been set").raise();
            -1
        }
    }
}

/// Sets a field of `layout`, for the table of types: the arguments are the address of the slot and the value.
pub(crate) fn set_field(layout: &Layout, index: usize, args: &Args<'_>) -> anyfn::Result<Any> {
    let slot = args.get::<*mut c_void>(0)?;
    let value = args.as_slice().get(1).copied().unwrap_or(AnyView::NONE);
    let value = Any::from_arg(&value)?;
    let field = &layout.fields[index];
    match field.kind.accept(value) {
        // SAFETY: the table of types asks callers for the place of the field in a live object.
        Ok(value) => unsafe { write(slot.cast(), value) },
        Err(value) => {
            let message = format!("field '{}' of {}: {}", field.name, layout.class, field.mismatch(&value));
            return Err(Error::new("TypeError", &message));
        }
    }
    Ok(Any::NONE)
}
