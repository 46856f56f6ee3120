//! Types defined at run time: their definition, the values that their fields accept, and the slots that store these
//! values.
//!
//! `ffi.TypeDefine` defines such a type for any language, for example for a class statement in Python or for a program
//! that reads the descriptions of its nodes from a file. An object of such a type holds one [`Slot`] of 16 bytes for
//! each field.
//!
//! ```
//! # use anyfn_core as _;
//! use anyfn::{Any, PackedFunc, record::{FieldDef, TypeDef}};
//!
//! let point = TypeDef::new("doc.record.Point").field(FieldDef::new("x", "float")).field(FieldDef::new("y", "float"));
//! let index = point.define()?;
//! let init = anyfn::reflection::TypeInfo::from_index(index).and_then(|info| info.attribute("__ffi_init__"));
//! let made = init.expect("every such type has a constructor").get::<PackedFunc>()?.call((1.5, 2))?;
//! let made = made.into_object().expect("an object");
//! assert_eq!(made.get_field("y")?.get::<f64>()?, 2.0);
//! assert!(made.set_field("x", "text").is_err());
//! # Ok::<(), anyfn::Error>(())
//! ```

use core::ffi::c_void;
use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicU32, Ordering};

use alloc::string::{String as StdString, ToString};
use alloc::vec::Vec;

use anyfn_abi::{
    TVMFFIAny, TVMFFIObjectHandle, kTVMFFIAny, kTVMFFIArray, kTVMFFIBigInt, kTVMFFIBool, kTVMFFIBytes,
    kTVMFFIDataType, kTVMFFIDevice, kTVMFFIDict, kTVMFFIFieldFlagBitMaskWritable, kTVMFFIFloat,
    kTVMFFIFunction, kTVMFFIInt, kTVMFFIList, kTVMFFIMap, kTVMFFINone, kTVMFFIOpaquePtr, kTVMFFISmallBytes,
    kTVMFFISmallStr, kTVMFFIStaticObjectBegin, kTVMFFIStr,
};

use crate::containers::lock::give_way;
use crate::json::Json;
use crate::signature::schema_of;
use crate::{Any, Array, Dict, Error, IntoAny, List, Map, ObjectRef, Result, registry, types};

/// Name of the type attribute that marks a type whose fields are stored in [`Slot`]s. Fields of ancestors may
/// be stored differently.
pub const SLOTS_ATTRIBUTE: &str = "__anyfn_slots__";

/// Name of the type attribute that contains the address of a type's [`Maker`]. Each type with the attribute
/// [`SLOTS_ATTRIBUTE`] has this attribute too: frontends create an object with the maker and then write its
/// slots directly.
pub const MAKER_ATTRIBUTE: &str = "__anyfn_maker__";

/// Function that creates objects of one type, and the context pointer that is passed to it. A maker lives for
/// the lifetime of the process.
///
/// Only the runtime can create a maker:
///
/// ```compile_fail,E0451
/// # use anyfn_core as _;
/// unsafe extern "C" fn make(data: *const std::ffi::c_void) -> *mut std::ffi::c_void {
///     data.cast_mut()
/// }
/// let maker = anyfn::record::Maker { make, data: std::ptr::null(), is_foreign: false };
/// ```
///
/// ```compile_fail,E0133
/// # use anyfn_core as _;
/// unsafe extern "C" fn make(data: *const std::ffi::c_void) -> *mut std::ffi::c_void {
///     data.cast_mut()
/// }
/// let made = anyfn::record::Maker::new(make, std::ptr::without_provenance(8), false).make();
/// ```
#[repr(C)]
#[derive(Debug)]
pub struct Maker {
    make: MakeObject,
    data: *const c_void,
    is_foreign: bool,
}

/// Function that creates an object whose fields are all unset. Returns NULL if it has raised an error.
pub type MakeObject = unsafe extern "C" fn(data: *const c_void) -> TVMFFIObjectHandle;

// SAFETY: `data` is passed only to `make`, and the creator of a `Maker` guarantees that any thread may call it.
unsafe impl Send for Maker {}
// SAFETY: a `Maker` never changes, and any thread may call `make`.
unsafe impl Sync for Maker {}

impl Maker {
    /// Creates a maker that calls `make` with the context pointer `data`. `is_foreign` must be true if `make`
    /// runs code of the parent type, such as its creator.
    ///
    /// # Safety
    /// `make` must be callable with `data`, from any thread and as long as the maker lives. It must return NULL after
    /// it has raised an error on the thread, or an object with one reference, which it transfers to the caller.
    #[doc(hidden)]
    pub const unsafe fn new(make: MakeObject, data: *const c_void, is_foreign: bool) -> Maker {
        Maker { make, data, is_foreign }
    }

    /// Returns true if creating an object runs code of the parent type, such as its creator.
    #[inline]
    pub fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    /// Returns the [`Maker`] for objects of the type with this index. Returns `None` for all other types,
    /// because only types that are defined at run time have a maker.
    pub fn of(type_index: i32) -> Option<&'static Maker> {
        let maker = types::attribute(MAKER_ATTRIBUTE, type_index)?;
        if maker.type_index != kTVMFFIOpaquePtr {
            return None;
        }
        // SAFETY: the value of an opaque pointer is in `v_ptr`.
        let maker = unsafe { maker.value.v_ptr }.cast::<Maker>().cast_const();
        // SAFETY: `ffi.TypeDefine` sets this attribute once, to a maker that lives for the lifetime of the process.
        unsafe { maker.as_ref() }
    }

    /// Creates an object whose fields are all unset.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails, and otherwise the error of the parent type.
    #[inline]
    pub fn make(&self) -> Result<ObjectRef> {
        // SAFETY: `make` is called with its own data, which the creator of the maker allows.
        let made = unsafe { (self.make)(self.data) };
        // SAFETY: the result is NULL, or an object whose reference is transferred.
        unsafe { ObjectRef::from_owned_or_null(made) }.ok_or_else(Error::take_raised)
    }
}

// ---- Defining a type

/// Definition of an object type that a program creates at run time.
#[derive(Debug)]
pub struct TypeDef {
    key: crate::String,
    parent: Any,
    fields: Vec<Any>,
    options: Vec<(&'static str, Any)>,
}

impl TypeDef {
    /// Creates the definition of a type with this key and no fields.
    pub fn new(key: &str) -> TypeDef {
        TypeDef { key: key.into(), parent: Any::NONE, fields: Vec::new(), options: Vec::new() }
    }

    /// Sets the parent type, given its type index. The fields of the parent precede those of the new type.
    #[must_use]
    pub fn parent(mut self, type_index: i32) -> TypeDef {
        self.parent = plain(kTVMFFIInt, type_index as u64);
        self
    }

    /// Adds a field.
    #[must_use]
    pub fn field(mut self, field: FieldDef) -> TypeDef {
        self.fields.push(field.told());
        self
    }

    /// Sets the documentation of the type.
    #[must_use]
    pub fn doc(mut self, doc: &str) -> TypeDef {
        self.options.push(("doc", crate::String::from(doc).into()));
        self
    }

    /// Sets how structural equality and hash treat objects of the type. `kind` is one of
    /// `kTVMFFISEqHashKind*`.
    #[must_use]
    pub fn structural(mut self, kind: i32) -> TypeDef {
        self.options.push(("structural", plain(kTVMFFIInt, kind as u64)));
        self
    }

    /// Defines the type and returns its index, which is valid for the lifetime of the process. Defining the same type
    /// again returns the same index.
    ///
    /// # Errors
    /// Returns `TypeError` if the key belongs to another type, the parent cannot be extended, or the type of a field is
    /// unknown.
    pub fn define(self) -> Result<i32> {
        let fields = Array::<Any>::try_from_iter(self.fields)?;
        let options = Map::<Any, Any>::try_from_iter(self.options)?;
        let define = registry::get("ffi.TypeDefine")?;
        define.call((self.key, self.parent, fields, options))?.get::<i32>()
    }
}

/// Definition of a field of a [`TypeDef`]. By default the field can be set at any time.
#[derive(Debug)]
pub struct FieldDef {
    told: Vec<(&'static str, Any)>,
    flags: i64,
}

impl FieldDef {
    /// Creates the definition of a field. `schema` is the type of the field: a plain name, such as `int` or a
    /// type key, or the JSON form that signatures use.
    pub fn new(name: &str, schema: &str) -> FieldDef {
        let told = [("name", crate::String::from(name).into()), ("type", crate::String::from(schema).into())];
        FieldDef { told: told.into(), flags: kTVMFFIFieldFlagBitMaskWritable }
    }

    /// Sets the documentation of the field.
    #[must_use]
    pub fn doc(mut self, doc: &str) -> FieldDef {
        self.told.push(("doc", crate::String::from(doc).into()));
        self
    }

    /// Sets the default value of the field.
    ///
    /// # Errors
    /// Returns the error of the conversion.
    pub fn default_value(mut self, value: impl IntoAny) -> Result<FieldDef> {
        self.told.push(("default", Any::new(value)?));
        Ok(self)
    }

    /// Sets the function that creates the default value of the field.
    #[must_use]
    pub fn default_factory(mut self, factory: crate::PackedFunc) -> FieldDef {
        self.told.push(("default_factory", factory.into_object().into()));
        self
    }

    /// Sets the flags of the field, a combination of `kTVMFFIFieldFlagBit*`. They determine whether the field
    /// can be set, printed, compared and hashed, and how it is passed to the constructor.
    #[must_use]
    pub fn flags(mut self, flags: i64) -> FieldDef {
        self.flags = flags;
        self
    }

    fn told(mut self) -> Any {
        self.told.push(("flags", plain(kTVMFFIInt, self.flags as u64)));
        // The map contains only existing strings and values, so only exhausted memory can cause an error.
        Map::<Any, Any>::try_from_iter(self.told).map_or(Any::NONE, Any::from)
    }
}

// ---- Values that a field accepts

/// Type of the values that a field accepts.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldKind {
    /// Values of any type.
    Any,
    /// Integers of any size. A bool is converted.
    Int,
    /// Floats. An int or bool is converted.
    Float,
    /// Booleans. An int is converted.
    Bool,
    /// Strings of any length.
    Str,
    /// Bytes of any length.
    Bytes,
    /// Values with this type index, which is not the index of an object type. An example is None.
    Exactly(i32),
    /// Objects of the type with this index or of a derived type. An Array is converted to a List,
    /// and a Map to a Dict, if the field requires that type.
    Object(i32),
    /// Values that at least one of these kinds accepts.
    Union(Vec<FieldKind>),
}

impl FieldKind {
    /// Parses a schema: a plain type name, such as `int`, or the JSON form that signatures use. `index_of`
    /// returns the type index of an object type, given its key.
    ///
    /// Element types of containers are ignored, because containers hold values of any type.
    ///
    /// # Errors
    /// Returns `TypeError` if the type is unknown.
    pub fn parse(schema: &str, index_of: &dyn Fn(&str) -> Option<i32>) -> Result<FieldKind> {
        if !schema.starts_with('{') {
            return FieldKind::of(schema, &[], index_of);
        }
        match Json::parse(schema) {
            Some(schema) => FieldKind::of_json(&schema, index_of),
            None => crate::bail!("TypeError", "the type schema of a field is not valid JSON: {schema}"),
        }
    }

    fn of_json(schema: &Json, index_of: &dyn Fn(&str) -> Option<i32>) -> Result<FieldKind> {
        let origin = schema.get("type").and_then(Json::text).unwrap_or("");
        FieldKind::of(origin, schema.get("args").map_or(&[], Json::items), index_of)
    }

    fn of(origin: &str, args: &[Json], index_of: &dyn Fn(&str) -> Option<i32>) -> Result<FieldKind> {
        Ok(match origin {
            "Any" => FieldKind::Any,
            "int" => FieldKind::Int,
            "float" => FieldKind::Float,
            "bool" => FieldKind::Bool,
            "str" | "ffi.String" => FieldKind::Str,
            "bytes" | "ffi.Bytes" => FieldKind::Bytes,
            "None" => FieldKind::Exactly(kTVMFFINone),
            "DataType" => FieldKind::Exactly(kTVMFFIDataType),
            "Device" => FieldKind::Exactly(kTVMFFIDevice),
            "void*" => FieldKind::Exactly(kTVMFFIOpaquePtr),
            "Callable" => FieldKind::Object(kTVMFFIFunction),
            "Optional" | "Union" => {
                let mut kinds: Vec<FieldKind> =
                    args.iter().map(|arg| FieldKind::of_json(arg, index_of)).collect::<Result<_>>()?;
                if origin == "Optional" {
                    kinds.push(FieldKind::Exactly(kTVMFFINone));
                }
                FieldKind::Union(kinds)
            }
            key => match index_of(key) {
                Some(index) if index >= kTVMFFIStaticObjectBegin => FieldKind::Object(index),
                _ => crate::bail!("TypeError", "unknown type `{key}`"),
            },
        })
    }

    /// Returns the static type index that the type table stores for a field of this kind; -1 for
    /// [`FieldKind::Any`] and [`FieldKind::Union`].
    pub fn static_type_index(&self) -> i32 {
        match self {
            FieldKind::Int => kTVMFFIInt,
            FieldKind::Float => kTVMFFIFloat,
            FieldKind::Bool => kTVMFFIBool,
            FieldKind::Str => kTVMFFIStr,
            FieldKind::Bytes => kTVMFFIBytes,
            FieldKind::Exactly(index) | FieldKind::Object(index) => *index,
            FieldKind::Any | FieldKind::Union(_) => kTVMFFIAny,
        }
    }

    /// Returns true if a field of this kind accepts `value` without conversion.
    #[inline]
    fn is(&self, value: &Any) -> bool {
        let index = value.type_index();
        match self {
            FieldKind::Any => true,
            FieldKind::Int => matches!(index, kTVMFFIInt | kTVMFFIBigInt),
            FieldKind::Float => index == kTVMFFIFloat,
            FieldKind::Bool => index == kTVMFFIBool,
            FieldKind::Str => matches!(index, kTVMFFISmallStr | kTVMFFIStr),
            FieldKind::Bytes => matches!(index, kTVMFFISmallBytes | kTVMFFIBytes),
            FieldKind::Exactly(own) => index == *own,
            FieldKind::Object(own) => types::is_instance(index, *own),
            FieldKind::Union(kinds) => kinds.iter().any(|kind| kind.is(value)),
        }
    }

    /// Converts `value`, if necessary, to the form in which a field of this kind stores it.
    ///
    /// # Errors
    /// Returns the value itself if the field does not accept it.
    #[inline]
    pub fn accept(&self, value: Any) -> core::result::Result<Any, Any> {
        if self.is(&value) { Ok(value) } else { self.convert(value) }
    }

    #[cold]
    fn convert(&self, value: Any) -> core::result::Result<Any, Any> {
        let bits = value.as_view().bits();
        match (self, value.type_index()) {
            (FieldKind::Int, kTVMFFIBool) => Ok(plain(kTVMFFIInt, bits)),
            (FieldKind::Float, kTVMFFIInt | kTVMFFIBool) => {
                Ok(plain(kTVMFFIFloat, (bits as i64 as f64).to_bits()))
            }
            (FieldKind::Bool, kTVMFFIInt) => Ok(plain(kTVMFFIBool, u64::from(bits != 0))),
            (FieldKind::Object(own), kTVMFFIArray) if *own == kTVMFFIList => {
                let made = value.get::<Array<Any>>().and_then(|items| List::<Any>::try_from_iter(items.iter()));
                made.map(Any::from).map_err(|_| value)
            }
            (FieldKind::Object(own), kTVMFFIMap) if *own == kTVMFFIDict => {
                let made = value
                    .get::<Map<Any, Any>>()
                    .and_then(|pairs| Dict::<Any, Any>::try_from_iter(pairs.iter()));
                made.map(Any::from).map_err(|_| value)
            }
            (FieldKind::Union(kinds), _) => {
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

/// Formats a schema for messages, such as `int` or `Optional<List>`. Returns `schema` unchanged if it is not a valid
/// schema.
#[must_use]
pub fn schema_text(schema: &str) -> StdString {
    let told = if schema.starts_with('{') { Json::parse(schema) } else { None };
    told.map_or_else(|| schema.into(), |schema| schema_of(&schema).to_string())
}

/// Creates a value of a type that is not an object type, from its type index and its payload.
fn plain(type_index: i32, bits: u64) -> Any {
    // SAFETY: the function is called only with types that own nothing, and with valid bits.
    unsafe { Any::from_raw(TVMFFIAny::from_bits(type_index, bits)) }
}

// ---- Slots

/// Storage for one value, which other threads may read while a thread sets it. The second 32-bit
/// word of the value contains a lock.
#[repr(transparent)]
#[allow(missing_debug_implementations, reason = "what it holds is read through a lock")]
pub struct Slot(TVMFFIAny);

/// Bit of a slot's second 32-bit word that is set while a thread reads or writes the slot. The other bits hold
/// the length of a small string, which is below 8.
const LOCKED: u32 = 1 << 31;

/// Payload of a slot whose field is not set.
const UNSET: u64 = 0x756e_7365_7421;

impl Slot {
    /// Content of the slot of a field that is not set.
    pub const UNSET: Slot = Slot(TVMFFIAny::from_bits(kTVMFFINone, UNSET));

    /// Locks a slot. Returns the word that contains the lock, and the previous value of the word.
    ///
    /// # Safety
    /// `slot` must be a slot of a live object.
    #[inline]
    unsafe fn lock<'a>(slot: *mut Slot) -> (&'a AtomicU32, u32) {
        // SAFETY: the caller guarantees a slot of a live object.
        let word = unsafe { &raw mut (*slot).0.small_str_len };
        // SAFETY: slots that other code can access are used only by this module, which changes the word with atomic
        // operations.
        let word = unsafe { AtomicU32::from_ptr(word) };
        let old = word.load(Ordering::Relaxed) & !LOCKED;
        if word.compare_exchange_weak(old, old | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return (word, old);
        }
        (word, wait(word))
    }

    /// Returns the value in a slot; `None` if the field is not set.
    ///
    /// # Safety
    /// `slot` must be a slot of a live object.
    #[inline]
    pub unsafe fn read(slot: *mut Slot) -> Option<Any> {
        // SAFETY: the caller guarantees a slot of a live object.
        let (word, length) = unsafe { Slot::lock(slot) };
        // SAFETY: no other thread writes the slot while it is locked.
        let type_index = unsafe { (*slot).0.type_index };
        // SAFETY: no other thread writes the slot while it is locked.
        let value = unsafe { (*slot).0.value };
        let value = TVMFFIAny { type_index, small_str_len: length, value };
        // SAFETY: the slot owns the value and keeps it while it is locked; `ManuallyDrop` does not release that
        // reference.
        let value = ManuallyDrop::new(unsafe { Any::from_raw(value) });
        let copy = Any::clone(&value);
        word.store(length, Ordering::Release);
        (type_index != kTVMFFINone || copy.as_view().bits() != UNSET).then_some(copy)
    }

    /// Sets the value in a slot.
    ///
    /// # Safety
    /// `slot` must be a slot of a live object, and its field must accept the value.
    #[inline]
    pub unsafe fn write(slot: *mut Slot, value: Any) {
        // The old value is dropped after the lock is released, because that may run arbitrary code.
        // SAFETY: the caller guarantees the requirements of `swap`.
        drop(unsafe { Slot::swap(slot, value) });
    }

    /// Sets the value in a slot and returns the previous value, which is None if the field was not
    /// set.
    ///
    /// # Safety
    /// The requirements of [`write`](Self::write) apply.
    #[inline]
    pub unsafe fn swap(slot: *mut Slot, value: Any) -> Any {
        let value = Slot::from_value(value).0;
        // SAFETY: the caller guarantees a slot of a live object.
        let (word, length) = unsafe { Slot::lock(slot) };
        // SAFETY: no other thread uses the slot while it is locked.
        let old_index = unsafe { core::mem::replace(&mut (*slot).0.type_index, value.type_index) };
        // SAFETY: no other thread uses the slot while it is locked.
        let old_value = unsafe { core::mem::replace(&mut (*slot).0.value, value.value) };
        word.store(value.small_str_len, Ordering::Release);
        // SAFETY: the slot owned this value.
        unsafe { Any::from_raw(TVMFFIAny { type_index: old_index, small_str_len: length, value: old_value }) }
    }

    /// Creates a slot with this value.
    #[inline]
    pub fn from_value(value: Any) -> Slot {
        // All None values are normalised, because a None with other bits represents a field that is not set.
        let value = if value.type_index() == kTVMFFINone { Any::NONE } else { value };
        Slot(value.into_raw())
    }

    /// Returns the value in the slot. No other code may use the slot at the same time or afterwards.
    pub fn into_value(self) -> Any {
        // SAFETY: the slot owns its value.
        unsafe { Any::from_raw(self.0) }
    }
}

/// Returns the value in a slot that no longer changes, without adding a reference; `None` if the
/// field is not set.
///
/// This also works for 16-byte values in other memory.
///
/// # Safety
/// `place` must be the address of a valid value in a live object, and no thread may change the value.
#[inline]
pub(crate) unsafe fn lend(place: *mut TVMFFIAny) -> Option<TVMFFIAny> {
    // SAFETY: the caller guarantees a valid value.
    let word = unsafe { &raw mut (*place).small_str_len };
    // SAFETY: the caller guarantees a valid value. A reader may lock the slot at the same time, with an atomic
    // operation.
    let length = unsafe { AtomicU32::from_ptr(word) }.load(Ordering::Relaxed) & !LOCKED;
    // SAFETY: the caller guarantees a valid value. A reader may lock the slot at the same time, with an atomic
    // operation.
    let type_index = unsafe { (*place).type_index };
    // SAFETY: the caller guarantees a valid value. A reader may lock the slot at the same time, with an atomic
    // operation.
    let value = TVMFFIAny { type_index, small_str_len: length, value: unsafe { (*place).value } };
    // SAFETY: the caller guarantees a valid value, all of whose bytes are initialised.
    (type_index != kTVMFFINone || unsafe { value.bits() } != UNSET).then_some(value)
}

#[cold]
fn wait(word: &AtomicU32) -> u32 {
    let mut turns = 0u32;
    loop {
        let old = word.load(Ordering::Relaxed) & !LOCKED;
        if word.compare_exchange_weak(old, old | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return old;
        }
        turns += 1;
        if turns.is_multiple_of(64) {
            give_way();
        } else {
            core::hint::spin_loop();
        }
    }
}
