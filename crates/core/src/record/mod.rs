//! Objects of types that are defined at run time: their memory.
//!
//! Before the header lies the address of the type's [`Layout`]. Behind it lie the bytes of the parent, if that is a
//! type of compiled code, then one [`Slot`] for each field, the parent's first.
//!
//! An object whose type derives from compiled code's is made of one of the parent's: the bytes move over, and the
//! *shell*, what is left of that object, stays behind. At the end they move back, and the shell releases them in its
//! own way. So compiled code finds its fields where it expects them and needs no part in this.

mod define;

use core::ffi::{c_int, c_void};
use core::ptr;

use alloc::vec::Vec;

use anyfn::__private::type_word;
use anyfn::abi::{
    TVMFFIAny, TVMFFIObject, kTVMFFIObject, kTVMFFIObjectDeleterFlagBitMaskStrong as STRONG,
    kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK, kTVMFFIOpaquePtr,
};
use anyfn::record::{FieldKind, Slot};
use anyfn::reflection::TypeInfo;
use anyfn::shared::SharedType;
use anyfn::{Any, AnyView, Args, Array, Error, FromArg, Map, ObjectRef, OpaquePtr, PackedFunc, Result, bail};

pub(crate) use define::register;

use crate::globals::new_object;
use crate::{attributes, type_table};

/// What the objects of a type have. Lives as long as the process, like the type.
struct Layout {
    type_index: i32,
    /// Index of the parent type.
    parent: i32,
    /// Key of the type.
    key: &'static str,
    /// Index of the nearest ancestor that is a type of compiled code with content, and the size of its objects.
    native: Option<(i32, usize)>,
    /// The fields that are slots, the parent's first.
    fields: Vec<Field>,
    /// Number of fields that the parent has.
    inherited: usize,
    /// `kTVMFFISEqHashKind*`.
    structural: i32,
}

/// A field that is a slot.
#[derive(Clone, PartialEq)]
struct Field {
    name: alloc::string::String,
    kind: FieldKind,
    /// The type as messages show it.
    shown: alloc::string::String,
    /// `kTVMFFIFieldFlagBit*`, but those of the default.
    flags: i64,
}

const HEADER: usize = size_of::<TVMFFIObject>();
/// Alignment of an object that has bytes of compiled code.
const NATIVE_ALIGN: usize = 16;

impl Layout {
    /// Offset of a slot from the header.
    fn offset(&self, index: usize) -> usize {
        let start = self.native.map_or(HEADER, |(_, size)| size.next_multiple_of(align_of::<Slot>()));
        start + index * size_of::<Slot>()
    }

    /// Size of an object from its header on.
    fn size(&self) -> usize {
        self.offset(self.fields.len())
    }

    /// Bytes before the header: the layout's address, before it the shell if there is one.
    fn prefix(&self) -> usize {
        if self.native.is_some() { NATIVE_ALIGN } else { size_of::<&Layout>() }
    }

    fn memory(&self) -> core::alloc::Layout {
        let align = if self.native.is_some() { NATIVE_ALIGN } else { align_of::<TVMFFIObject>() };
        // Never fails: the sizes are those of a few fields, checked when the type was defined.
        core::alloc::Layout::from_size_align(self.prefix() + self.size(), align)
            .unwrap_or(core::alloc::Layout::new::<TVMFFIObject>())
    }
}

/// Where the address of the layout lies.
fn layout_place(object: *mut TVMFFIObject) -> *mut &'static Layout {
    object.wrapping_byte_sub(size_of::<&Layout>()).cast()
}

/// Where the handle of the shell lies, if there is one.
fn shell_place(object: *mut TVMFFIObject) -> *mut *mut c_void {
    object.wrapping_byte_sub(NATIVE_ALIGN).cast()
}

/// Makes an object none of whose fields is set; `shell` is an object of the parent if that is one of compiled code.
fn make(layout: &'static Layout, shell: Option<ObjectRef>) -> Result<ObjectRef> {
    // SAFETY: the size is not zero.
    let memory = unsafe { alloc::alloc::alloc(layout.memory()) };
    if memory.is_null() {
        return Err(Error::new("MemoryError", "out of memory"));
    }
    let object: *mut TVMFFIObject = memory.wrapping_add(layout.prefix()).cast();
    let header = TVMFFIObject {
        combined_ref_count: anyfn::__private::UNIQUE,
        type_index: layout.type_index,
        flags: 0,
        deleter: Some(delete),
    };
    // SAFETY: new memory with room for it.
    unsafe { layout_place(object).write(layout) };
    // SAFETY: new memory with room for it.
    unsafe { object.write(header) };
    if let (Some((_, size)), Some(shell)) = (layout.native, shell) {
        let shell = shell.into_handle();
        // SAFETY: the caller's object is a new one of that type, so it has so many bytes, and nobody else uses them.
        unsafe { move_content(shell.cast(), object, size) };
        // SAFETY: such an object has this place.
        unsafe { shell_place(object).write(shell) };
    }
    for index in 0..layout.fields.len() {
        // SAFETY: the memory has a slot for each field.
        let slot = unsafe { slot(object, layout, index) };
        // SAFETY: the memory has a slot for each field.
        unsafe { slot.write(Slot::UNSET) };
    }
    // SAFETY: made above, and counted here alone.
    unsafe { anyfn::__private::object_created(object, layout.type_index) };
    // SAFETY: a valid object with one reference, which the result takes.
    let object = unsafe { ObjectRef::from_owned_or_null(object.cast()) };
    object.ok_or_else(|| Error::new("MemoryError", "out of memory"))
}

/// Moves the bytes behind the header of one object to another one.
///
/// # Safety
/// Both must have `size` bytes, and nobody else may use those.
unsafe fn move_content(from: *mut TVMFFIObject, to: *mut TVMFFIObject, size: usize) {
    // SAFETY: the content begins behind the header.
    let from: *const u8 = unsafe { from.add(1) }.cast();
    // SAFETY: the content begins behind the header.
    let to: *mut u8 = unsafe { to.add(1) }.cast();
    // SAFETY: as the caller guarantees; two objects do not overlap.
    unsafe { ptr::copy_nonoverlapping(from, to, size - HEADER) };
}

/// A new object, with what its parent makes.
fn new(layout: &'static Layout) -> Result<ObjectRef> {
    let shell = match layout.native {
        Some((native, _)) => Some(check_shell(layout, blank(native)?)?),
        None => None,
    };
    make(layout, shell)
}

/// The same for frontends that set the fields themselves: NULL if an error is raised.
///
/// # Safety
/// `layout` must be a layout that lives for ever.
unsafe extern "C" fn make_for_frontend(layout: *const c_void) -> *mut c_void {
    // SAFETY: as the caller guarantees.
    let layout: &'static Layout = unsafe { &*layout.cast() };
    if layout.native.is_none()
        && let Ok(object) = make(layout, None)
    {
        return object.into_handle();
    }
    let mut made = ptr::null_mut();
    anyfn::__private::trampoline(|| {
        made = new(layout)?.into_handle();
        Ok(())
    });
    made
}

/// A new object of a type of compiled code. One that is of its type only when all its fields are set gets defaults or, where
/// there are none, whatever its fields take: the caller sets them anew.
fn blank(native: i32) -> Result<ObjectRef> {
    let Some(info) = TypeInfo::from_index(native) else {
        bail!("InternalError", "Cannot find type info for type_index={native}");
    };
    let object = new_object(info)?;
    if object.type_index() != kTVMFFIObject {
        return Ok(object);
    }
    let mut blanks = alloc::vec![Any::NONE, Any::new(0)?, Any::new("")?, Any::new(Array::<Any>::new())?];
    blanks.push(Any::new(Map::<Any, Any>::new())?);
    for field in info.fields() {
        let default = field.default().ok().flatten();
        for value in default.iter().chain(&blanks) {
            // SAFETY: a field of the object's type, and nobody else knows the object.
            if unsafe { field.set_unchecked(&object, &value.as_view()) }.is_ok() {
                break;
            }
        }
    }
    Ok(object)
}

/// Only a new object of the very type may give its content.
fn check_shell(layout: &Layout, shell: ObjectRef) -> Result<ObjectRef> {
    let right = layout.native.is_some_and(|(native, _)| native == shell.type_index());
    if !right || !shell.is_unique() {
        bail!("TypeError", "an object of type `{}` cannot be made: its parent gave no new object", layout.key);
    }
    Ok(shell)
}

/// # Safety
/// The object must have this layout and so many fields.
unsafe fn slot(object: *mut TVMFFIObject, layout: &Layout, index: usize) -> *mut Slot {
    // SAFETY: the slots lie behind the header.
    unsafe { object.byte_add(layout.offset(index)) }.cast()
}

/// Releases the fields, the memory, or both. Any thread may be the one.
unsafe extern "C" fn delete(object: *mut c_void, flags: c_int) {
    let header: *mut TVMFFIObject = object.cast();
    // SAFETY: the memory is still there.
    let layout = unsafe { *layout_place(header) };
    if flags & STRONG != 0 {
        let drop_fields = || {
            for index in 0..layout.fields.len() {
                // SAFETY: the object has this field.
                let slot = unsafe { slot(header, layout, index) };
                // SAFETY: no strong reference is left, so nobody else uses the slot.
                drop(unsafe { slot.read() }.into_value());
            }
            if let Some((_, size)) = layout.native {
                // SAFETY: such an object has this place.
                let shell = unsafe { *shell_place(header) };
                // SAFETY: the bytes came from there.
                unsafe { move_content(header, shell.cast(), size) };
                // SAFETY: the object owned the shell, which has its content again.
                drop(unsafe { ObjectRef::from_owned_or_null(shell) });
            }
        };
        // SAFETY: this is the deleter, called with these flags.
        if !unsafe { anyfn::__private::release_content(object, flags, drop_fields) } {
            return;
        }
    }
    if flags & WEAK != 0 {
        // SAFETY: counted when it was made; the deleter frees its memory once.
        unsafe { anyfn::__private::object_freed(header, layout.type_index) };
        let memory: *mut u8 = header.wrapping_byte_sub(layout.prefix()).cast();
        // SAFETY: allocated by `make` with this very layout.
        unsafe { alloc::alloc::dealloc(memory, layout.memory()) };
    }
}

// ---- What the table of types gets

/// Reads a field, for the table of types.
///
/// # Safety
/// Called with the slot of a live object and a writable result that holds nothing.
unsafe extern "C" fn get_field(place: *mut c_void, result: *mut TVMFFIAny) -> c_int {
    // SAFETY: as the caller guarantees.
    match unsafe { Slot::read(place.cast()) } {
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
fn set_field(layout: &Layout, index: usize, args: &Args<'_>) -> Result<Any> {
    let [place, value] = args.as_slice() else {
        bail!("TypeError", "the setter of a field takes its place and a value");
    };
    if place.type_index() != kTVMFFIOpaquePtr {
        bail!("TypeError", "the setter of a field takes its place and a value");
    }
    let place = place.get::<OpaquePtr>()?.as_ptr();
    let field = &layout.fields[index];
    match field.kind.accept(Any::from_arg(value)?) {
        // SAFETY: the table of types asks callers for the place of the field in a live object.
        Ok(value) => unsafe { Slot::write(place.cast(), value) },
        Err(value) => {
            let (name, key, got) = (&field.name, layout.key, type_word(value.as_view().type_key()));
            bail!("TypeError", "field '{name}' of {key}: expected {} but got {got}", field.shown);
        }
    }
    Ok(Any::NONE)
}

/// Another object with the same values.
fn copy(layout: &'static Layout, args: &Args<'_>) -> Result<Any> {
    let old = args.get::<ObjectRef>(0)?;
    if old.type_index() != layout.type_index {
        bail!("TypeError", "expected an object of type `{}` but got `{}`", layout.key, old.type_key());
    }
    let shell = match layout.native {
        Some((native, _)) => Some(check_shell(layout, copy_native(native, &old)?)?),
        None => None,
    };
    let made = make(layout, shell)?;
    for index in 0..layout.fields.len() {
        // SAFETY: the object has this layout.
        let from = unsafe { slot(old.as_handle().cast(), layout, index) };
        // SAFETY: the object is alive.
        if let Some(value) = unsafe { Slot::read(from) } {
            // SAFETY: the object has this layout.
            let to = unsafe { slot(made.as_handle().cast(), layout, index) };
            // SAFETY: the object is alive, and the field takes what the same field has.
            unsafe { Slot::write(to, value) };
        }
    }
    Any::new(made)
}

/// A copy of the part of an object that its native ancestor knows.
fn copy_native(native: i32, old: &ObjectRef) -> Result<ObjectRef> {
    let key = anyfn::type_key(native);
    let Some(copy) = attribute(native, b"__ffi_shallow_copy__") else {
        bail!("TypeError", "an object of type `{}` cannot be copied: `{key}` has no copy", old.type_key());
    };
    match copy.get::<PackedFunc>()?.call((old.clone(),))?.into_object() {
        Some(made) => Ok(made),
        None => bail!("TypeError", "the copy of `{key}` gave no object"),
    }
}

/// What a type has registered under the name of an attribute.
fn attribute(type_index: i32, name: &[u8]) -> Option<AnyView<'static>> {
    // SAFETY: an entry that is set holds its value for ever.
    attributes::get(type_index, name).map(|value| unsafe { AnyView::from_raw(*value) })
}

/// All types from the root to this one.
fn lineage(type_index: i32) -> Result<impl Iterator<Item = &'static SharedType>> {
    type_table::info_or_error(type_index).map(type_table::lineage)
}
