//! Memory of objects whose types are defined at run time.
//!
//! The address of the type's [`Layout`] lies before the header. The header is followed by the content of the native
//! ancestor, if the type has one (a type of compiled code from which it derives), and then by one [`Slot`] for each
//! other field, those of the parent first.
//!
//! An object whose type has a native ancestor is created from an object of that ancestor. The content of the native
//! object is moved into the new object. What remains of the native object, the *shell*, is kept. When the new object is
//! destroyed, the content is moved back, and the deleter of the shell releases it. So compiled code finds its fields at
//! the offsets that it expects and need not cooperate. If its content cannot be copied byte by byte, because it refers to
//! itself as strings of C++ do, the native type states the function that moves it: the attribute [`MOVE_ATTRIBUTE`].

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

pub(crate) use define::FUNCTIONS;

use crate::construct::new_object;
use crate::{attributes, type_table};

/// Layout of the objects of a type. It is never freed, because types live for the lifetime of the process.
struct Layout {
    type_index: i32,
    /// Type index of the parent type.
    parent: i32,
    /// Key of the type whose objects have this layout.
    key: &'static str,
    /// Type index of the nearest ancestor type that compiled code has defined, and the size of its objects.
    /// `None` if the only such ancestor is `ffi.Object`, which has no content.
    native: Option<(i32, usize)>,
    /// Moves the content of that ancestor. `None` if its bytes can be copied.
    mover: Option<Mover>,
    /// Fields of the type that are stored in slots. Those of the parent type come first.
    fields: Vec<Field>,
    /// Number of elements at the start of `fields` that are inherited from the parent type.
    inherited: usize,
    /// Kind of structural comparison of the objects, one of the constants `kTVMFFISEqHashKind*`.
    structural: i32,
}

/// A field that is stored in a slot.
#[derive(Clone, PartialEq)]
struct Field {
    name: alloc::string::String,
    kind: FieldKind,
    /// Type of the field, as error messages show it.
    shown: alloc::string::String,
    /// Field flags (`kTVMFFIFieldFlagBit*`), except those that describe the default.
    flags: i64,
}

/// Attribute of a native type: the address of its [`Mover`].
const MOVE_ATTRIBUTE: &[u8] = b"__anyfn_move__";

/// Function that moves the content of the object `from` to the object `to`, which has no content yet. Both headers stay as
/// they are.
type Mover = unsafe extern "C" fn(from: *mut c_void, to: *mut c_void);

const HEADER: usize = size_of::<TVMFFIObject>();
/// Alignment of a header in bytes. It leaves enough room before the header for the address of the
/// layout.
const HEADER_ALIGN: usize = align_of::<TVMFFIObject>();
const _: () = assert!(HEADER_ALIGN >= size_of::<&Layout>());
/// Alignment in bytes of an object that contains the content of a native ancestor.
const NATIVE_ALIGN: usize = 16;

impl Layout {
    /// Returns the offset of the slot that stores field `index`, in bytes from the header of the object.
    fn offset(&self, index: usize) -> usize {
        let start = self.native.map_or(HEADER, |(_, size)| size.next_multiple_of(align_of::<Slot>()));
        start + index * size_of::<Slot>()
    }

    /// Returns the size in bytes of an object with this layout, counted from the beginning of its header.
    fn size(&self) -> usize {
        self.offset(self.fields.len())
    }

    /// Returns the number of bytes before the header of an object. These bytes hold the address of the
    /// layout. If the type has a native ancestor, they also hold the handle of the shell: what remains of
    /// that ancestor's object after its content was moved.
    fn prefix(&self) -> usize {
        if self.native.is_some() { NATIVE_ALIGN } else { HEADER_ALIGN }
    }

    fn memory(&self) -> core::alloc::Layout {
        let align = if self.native.is_some() { NATIVE_ALIGN } else { HEADER_ALIGN };
        // Cannot fail: the sizes are those of a few fields, checked when the type was defined.
        core::alloc::Layout::from_size_align(self.prefix() + self.size(), align)
            .unwrap_or(core::alloc::Layout::new::<TVMFFIObject>())
    }
}

/// Returns the location before the header of `object` that holds the address of its layout.
fn layout_place(object: *mut TVMFFIObject) -> *mut &'static Layout {
    object.wrapping_byte_sub(size_of::<&Layout>()).cast()
}

/// Returns the location before the header of `object` that holds the handle of its shell (see the module
/// documentation). The type of `object` must have a native ancestor.
fn shell_place(object: *mut TVMFFIObject) -> *mut *mut c_void {
    object.wrapping_byte_sub(NATIVE_ALIGN).cast()
}

/// Creates an object whose fields are all unset. If the type has a native ancestor, `shell` must be a new object of
/// that ancestor.
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
    // SAFETY: the memory is new and has room for it.
    unsafe { layout_place(object).write(layout) };
    // SAFETY: the memory is new and has room for it.
    unsafe { object.write(header) };
    if let (Some((_, size)), Some(shell)) = (layout.native, shell) {
        let shell = shell.into_handle();
        // SAFETY: the shell is a new object of that type, so it has this many bytes, and nothing else uses them.
        unsafe { move_content(layout, shell.cast(), object, size) };
        // SAFETY: an object with a native ancestor has this location.
        unsafe { shell_place(object).write(shell) };
    }
    for index in 0..layout.fields.len() {
        // SAFETY: the memory has a slot for each field.
        let slot = unsafe { slot(object, layout, index) };
        // SAFETY: the memory has a slot for each field.
        unsafe { slot.write(Slot::UNSET) };
    }
    // SAFETY: the object was created above and is counted only here.
    unsafe { anyfn::__private::object_created(object, layout.type_index) };
    // SAFETY: a valid object with one reference, which the result takes.
    let object = unsafe { ObjectRef::from_owned_or_null(object.cast()) };
    object.ok_or_else(|| Error::new("MemoryError", "out of memory"))
}

/// Moves the content of the object `from` to the object `to`. The content is the memory after the header.
///
/// # Safety
/// Both objects must have a size of `size` bytes, including the header, and nothing else may use their content, which must
/// be that of the native ancestor of `layout`.
unsafe fn move_content(layout: &Layout, from: *mut TVMFFIObject, to: *mut TVMFFIObject, size: usize) {
    if let Some(mover) = layout.mover {
        // SAFETY: the caller guarantees the objects, whose content is that of the native type that states the function.
        return unsafe { mover(from.cast(), to.cast()) };
    }
    // SAFETY: the content begins after the header.
    let from: *const u8 = unsafe { from.add(1) }.cast();
    // SAFETY: the content begins after the header.
    let to: *mut u8 = unsafe { to.add(1) }.cast();
    // SAFETY: the caller guarantees the bytes; two objects do not overlap.
    unsafe { ptr::copy_nonoverlapping(from, to, size - HEADER) };
}

/// Creates an object whose fields are all unset. If the type has a native ancestor, also creates the object
/// of that ancestor.
fn new(layout: &'static Layout) -> Result<ObjectRef> {
    let shell = match layout.native {
        Some((native, _)) => Some(check_shell(layout, blank(native)?)?),
        None => None,
    };
    make(layout, shell)
}

/// Creates an object for a frontend, which sets its fields. Returns NULL if an error was raised.
///
/// # Safety
/// `layout` must be the address of a [`Layout`] that is never freed.
unsafe extern "C" fn make_for_frontend(layout: *const c_void) -> *mut c_void {
    // SAFETY: the caller guarantees the layout.
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

/// Creates an object of the native type with the index `native`. Objects of some types are not
/// initialised until all their fields are set. This function sets each field of such an object to
/// its default or to a simple value that the field accepts. The caller sets the fields again.
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
            // SAFETY: the field belongs to the object's type, and nothing else refers to the object.
            if unsafe { field.set_unchecked(&object, &value.as_view()) }.is_ok() {
                break;
            }
        }
    }
    Ok(object)
}

/// Checks that `shell` is a new object whose type is exactly the native ancestor of `layout`. The content of
/// any other object must not be moved.
fn check_shell(layout: &Layout, shell: ObjectRef) -> Result<ObjectRef> {
    let right = layout.native.is_some_and(|(native, _)| native == shell.type_index());
    if !right || !shell.is_unique() {
        bail!(
            "TypeError",
            "cannot create an object of type `{}`: the creator of its parent returned no new object",
            layout.key
        );
    }
    Ok(shell)
}

/// Returns the address of the slot that stores the field with the index `index`.
///
/// # Safety
/// The object must have the layout `layout`, which must have more than `index` fields.
unsafe fn slot(object: *mut TVMFFIObject, layout: &Layout, index: usize) -> *mut Slot {
    // SAFETY: the slots lie after the header.
    unsafe { object.byte_add(layout.offset(index)) }.cast()
}

/// Releases the fields of an object, frees its memory, or both, as `flags` specify. This is the deleter of the objects
/// of this module; it may run on any thread.
unsafe extern "C" fn delete(object: *mut c_void, flags: c_int) {
    let header: *mut TVMFFIObject = object.cast();
    // SAFETY: the memory has not been freed yet.
    let layout = unsafe { *layout_place(header) };
    if flags & STRONG != 0 {
        let drop_fields = || {
            for index in 0..layout.fields.len() {
                // SAFETY: the object has this field.
                let slot = unsafe { slot(header, layout, index) };
                // SAFETY: no strong reference is left, so nothing else uses the slot.
                drop(unsafe { slot.read() }.into_value());
            }
            if let Some((_, size)) = layout.native {
                // SAFETY: an object with a native ancestor has this location.
                let shell = unsafe { *shell_place(header) };
                // SAFETY: the bytes came from the shell.
                unsafe { move_content(layout, header, shell.cast(), size) };
                // SAFETY: the object owned the shell, whose content has been moved back.
                drop(unsafe { ObjectRef::from_owned_or_null(shell) });
            }
        };
        // SAFETY: this is the deleter, called with these flags.
        if !unsafe { anyfn::__private::release_content(object, flags, drop_fields) } {
            return;
        }
    }
    if flags & WEAK != 0 {
        // SAFETY: the object was counted when it was created; the deleter frees its memory once.
        unsafe { anyfn::__private::object_freed(header, layout.type_index) };
        let memory: *mut u8 = header.wrapping_byte_sub(layout.prefix()).cast();
        // SAFETY: `make` allocated the memory with this layout.
        unsafe { alloc::alloc::dealloc(memory, layout.memory()) };
    }
}

// ---- Functions for the type table

/// Reads the slot at `place`, or raises an error if it is unset. This is the getter of all fields that are stored in
/// slots.
///
/// # Safety
/// `place` must point to a slot of a live object. `result` must be writable and hold nothing.
unsafe extern "C" fn get_field(place: *mut c_void, result: *mut TVMFFIAny) -> c_int {
    // SAFETY: the caller guarantees the slot.
    match unsafe { Slot::read(place.cast()) } {
        Some(value) => {
            // SAFETY: the caller guarantees the result.
            unsafe { result.write(value.into_raw()) };
            0
        }
        None => {
            Error::new("AttributeError", "the field has not been set").raise();
            -1
        }
    }
}

/// Sets the field with index `index` in `layout`. This is the setter in the type table. Arguments: address of the slot,
/// value.
fn set_field(layout: &Layout, index: usize, args: &Args<'_>) -> Result<Any> {
    let [place, value] = args.as_slice() else {
        bail!("TypeError", "a field setter takes two arguments: the address of the field and a value");
    };
    if place.type_index() != kTVMFFIOpaquePtr {
        bail!("TypeError", "a field setter takes two arguments: the address of the field and a value");
    }
    let place = place.get::<OpaquePtr>()?.as_ptr();
    let field = &layout.fields[index];
    match field.kind.accept(Any::from_arg(value)?) {
        // SAFETY: the type table requires callers to pass the address of the field in a live object.
        Ok(value) => unsafe { Slot::write(place.cast(), value) },
        Err(value) => {
            let (name, key, got) = (&field.name, layout.key, type_word(value.as_view().type_key()));
            bail!("TypeError", "field '{name}' of {key}: expected {} but got {got}", field.shown);
        }
    }
    Ok(Any::NONE)
}

/// Creates a copy of an object. Arguments: the object, whose type must have the layout `layout`.
fn copy(layout: &'static Layout, args: &Args<'_>) -> Result<Any> {
    let old = args.get::<ObjectRef>(0)?;
    if old.type_index() != layout.type_index {
        let (key, got) = (layout.key, old.type_key());
        bail!("TypeError", "__ffi_shallow_copy__ of `{key}`: expected an object of this type but got `{got}`");
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
            // SAFETY: the object is alive, and the value comes from the same field.
            unsafe { Slot::write(to, value) };
        }
    }
    Any::new(made)
}

/// Copies the object `old` into a new object of the native ancestor of its type. `native` is the type index of that
/// ancestor.
fn copy_native(native: i32, old: &ObjectRef) -> Result<ObjectRef> {
    let key = anyfn::type_key(native);
    let Some(copy) = attribute(native, b"__ffi_shallow_copy__") else {
        bail!(
            "TypeError",
            "an object of type `{}` cannot be copied: `{key}` has no __ffi_shallow_copy__",
            old.type_key()
        );
    };
    match copy.get::<PackedFunc>()?.call((old.clone(),))?.into_object() {
        Some(made) => Ok(made),
        None => bail!("TypeError", "__ffi_shallow_copy__ of `{key}` returned no object"),
    }
}

/// Returns the attribute `name` of a type, or `None` if it is not set.
fn attribute(type_index: i32, name: &[u8]) -> Option<AnyView<'static>> {
    // SAFETY: an entry that is set keeps its value for the lifetime of the process.
    attributes::get(type_index, name).map(|value| unsafe { AnyView::from_raw(*value) })
}

/// Iterates over the ancestors of a type, beginning with the root, and then the type itself.
fn lineage(type_index: i32) -> Result<impl Iterator<Item = &'static SharedType>> {
    type_table::info_or_error(type_index).map(type_table::lineage)
}
