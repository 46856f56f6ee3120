//! Objects whose type is defined at run time: what a field takes, and the slot that holds its value.
//!
//! `ffi.TypeDefine` defines such a type for any language: a class statement of Python, a program that reads the
//! description of its nodes from a file. Their objects hold one [`Slot`] of 16 bytes for each field.
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

/// Attribute of the types whose own fields are slots.
pub const SLOTS_ATTRIBUTE: &str = "__anyfn_slots__";

/// Attribute of such types, too: the address of a [`Maker`], for frontends that set the fields themselves.
pub const MAKER_ATTRIBUTE: &str = "__anyfn_maker__";

/// Makes the objects of one type. Lives as long as the process.
///
/// Only the runtime makes one:
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

/// Makes an object none of whose fields is set, or gives NULL and has raised an error.
pub type MakeObject = unsafe extern "C" fn(data: *const c_void) -> TVMFFIObjectHandle;

// SAFETY: `data` is only given to `make`, and who makes a `Maker` promises that any thread may do that.
unsafe impl Send for Maker {}
// SAFETY: nothing of it changes, and any thread may call `make`.
unsafe impl Sync for Maker {}

impl Maker {
    /// A maker that calls `make` with `data`; `is_foreign` tells whether that runs code of others, that of the parent.
    ///
    /// # Safety
    /// `make` must be callable with `data`, from any thread and as long as the maker lives. It must give NULL, after it
    /// has raised an error on the thread, or an object whose one reference it gives away.
    #[doc(hidden)]
    pub const unsafe fn new(make: MakeObject, data: *const c_void, is_foreign: bool) -> Maker {
        Maker { make, data, is_foreign }
    }

    /// Returns true if making an object runs code of others, that of the parent.
    #[inline]
    pub fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    /// That of a type; `None` if the type is not defined at run time.
    pub fn of(type_index: i32) -> Option<&'static Maker> {
        let maker = types::attribute(MAKER_ATTRIBUTE, type_index)?;
        if maker.type_index != kTVMFFIOpaquePtr {
            return None;
        }
        // SAFETY: an opaque pointer has its address there.
        let maker = unsafe { maker.value.v_ptr }.cast::<Maker>().cast_const();
        // SAFETY: `ffi.TypeDefine` sets the attribute of each type that has it, once, to one that lives for ever.
        unsafe { maker.as_ref() }
    }

    /// Makes an object none of whose fields is set.
    ///
    /// # Errors
    /// `MemoryError`, or that of the parent.
    #[inline]
    pub fn make(&self) -> Result<ObjectRef> {
        // SAFETY: called with its own data, as who made it has promised.
        let made = unsafe { (self.make)(self.data) };
        // SAFETY: NULL, or an object whose reference is given away.
        unsafe { ObjectRef::from_owned_or_null(made) }.ok_or_else(Error::take_raised)
    }
}

// ---- Defining a type

/// A type to be defined.
#[derive(Debug)]
pub struct TypeDef {
    key: crate::String,
    parent: Any,
    fields: Vec<Any>,
    options: Vec<(&'static str, Any)>,
}

impl TypeDef {
    /// A type with this key, without fields as yet.
    pub fn new(key: &str) -> TypeDef {
        TypeDef { key: key.into(), parent: Any::NONE, fields: Vec::new(), options: Vec::new() }
    }

    /// The type that it derives from, whose fields come first.
    #[must_use]
    pub fn parent(mut self, type_index: i32) -> TypeDef {
        self.parent = plain(kTVMFFIInt, type_index as u64);
        self
    }

    /// One more field.
    #[must_use]
    pub fn field(mut self, field: FieldDef) -> TypeDef {
        self.fields.push(field.told());
        self
    }

    /// Documentation of the type.
    #[must_use]
    pub fn doc(mut self, doc: &str) -> TypeDef {
        self.options.push(("doc", crate::String::from(doc).into()));
        self
    }

    /// How structural equality and hash treat its objects: `kTVMFFISEqHashKind*`.
    #[must_use]
    pub fn structural(mut self, kind: i32) -> TypeDef {
        self.options.push(("structural", plain(kTVMFFIInt, kind as u64)));
        self
    }

    /// Defines the type and gives its index, which stays for ever. The same definition may be made again.
    ///
    /// # Errors
    /// `TypeError` if the key is another type's, or the parent cannot be extended, or a field has no known type.
    pub fn define(self) -> Result<i32> {
        let fields = Array::<Any>::try_from_iter(self.fields)?;
        let options = Map::<Any, Any>::try_from_iter(self.options)?;
        let define = registry::get("ffi.TypeDefine")?;
        define.call((self.key, self.parent, fields, options))?.get::<i32>()
    }
}

/// A field of a type that is to be defined: what everybody may set, by default.
#[derive(Debug)]
pub struct FieldDef {
    told: Vec<(&'static str, Any)>,
    flags: i64,
}

impl FieldDef {
    /// A field of this type: a plain name, such as `int` or the key of a type, or the JSON that signatures have.
    pub fn new(name: &str, schema: &str) -> FieldDef {
        let told = [("name", crate::String::from(name).into()), ("type", crate::String::from(schema).into())];
        FieldDef { told: told.into(), flags: kTVMFFIFieldFlagBitMaskWritable }
    }

    /// Documentation.
    #[must_use]
    pub fn doc(mut self, doc: &str) -> FieldDef {
        self.told.push(("doc", crate::String::from(doc).into()));
        self
    }

    /// What the field gets when nothing is given.
    ///
    /// # Errors
    /// That of the conversion.
    pub fn default_value(mut self, value: impl IntoAny) -> Result<FieldDef> {
        self.told.push(("default", Any::new(value)?));
        Ok(self)
    }

    /// The function that makes what the field gets when nothing is given.
    #[must_use]
    pub fn default_factory(mut self, factory: crate::PackedFunc) -> FieldDef {
        self.told.push(("default_factory", factory.into_object().into()));
        self
    }

    /// `kTVMFFIFieldFlagBit*`: whether it may be set, is shown, compared and hashed, and how it is an argument.
    #[must_use]
    pub fn flags(mut self, flags: i64) -> FieldDef {
        self.flags = flags;
        self
    }

    fn told(mut self) -> Any {
        self.told.push(("flags", plain(kTVMFFIInt, self.flags as u64)));
        // Strings and values that are there already: only memory could be short.
        Map::<Any, Any>::try_from_iter(self.told).map_or(Any::NONE, Any::from)
    }
}

// ---- What a field takes

/// What a field takes.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldKind {
    /// Anything.
    Any,
    /// Integers of any size; a bool becomes one.
    Int,
    /// Floats; an int or a bool becomes one.
    Float,
    /// Truth values; an int becomes one.
    Bool,
    /// Text.
    Str,
    /// Bytes.
    Bytes,
    /// Values of one type that are no objects, such as None.
    Exactly(i32),
    /// Objects of a type or of one derived from it.
    Object(i32),
    /// What one of these takes.
    Union(Vec<FieldKind>),
}

impl FieldKind {
    /// What a schema says: the JSON that signatures have, or a plain name. `index_of` finds object types by their keys.
    /// The arguments of containers are not looked at, since these hold anything.
    ///
    /// # Errors
    /// `TypeError` for a type that is not known.
    pub fn parse(schema: &str, index_of: &dyn Fn(&str) -> Option<i32>) -> Result<FieldKind> {
        if !schema.starts_with('{') {
            return FieldKind::of(schema, &[], index_of);
        }
        match Json::parse(schema) {
            Some(schema) => FieldKind::of_json(&schema, index_of),
            None => crate::bail!("TypeError", "the type of a field is no JSON: {schema}"),
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
                _ => crate::bail!("TypeError", "no type `{key}` is known"),
            },
        })
    }

    /// Index of the type that all values of the field have; -1 if it may be any.
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

    /// Whether a value is taken as it is.
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

    /// The value that a field gets.
    ///
    /// # Errors
    /// The value itself, if the field does not take it.
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

/// A schema as messages show it: `int`, `Optional<List>`. What is no schema is shown as it is.
#[must_use]
pub fn schema_text(schema: &str) -> StdString {
    let told = if schema.starts_with('{') { Json::parse(schema) } else { None };
    told.map_or_else(|| schema.into(), |schema| schema_of(&schema).to_string())
}

/// A value of a type that owns nothing.
fn plain(type_index: i32, bits: u64) -> Any {
    // SAFETY: only called with types that own nothing, and with the bits that they have.
    unsafe { Any::from_raw(TVMFFIAny::from_bits(type_index, bits)) }
}

// ---- Slots

/// A place for one value, which any thread may read while another one sets it: a value whose second word holds a lock.
#[repr(transparent)]
#[allow(missing_debug_implementations, reason = "what it holds is read through a lock")]
pub struct Slot(TVMFFIAny);

/// Bit of a slot's second word that says that a thread reads or writes it. Lengths of small strings are below 8.
const LOCKED: u32 = 1 << 31;

/// The bits of a slot whose field has not been set.
const UNSET: u64 = 0x756e_7365_7421;

impl Slot {
    /// A slot that has not been set.
    pub const UNSET: Slot = Slot(TVMFFIAny::from_bits(kTVMFFINone, UNSET));

    /// Locks a slot: gives the word that locks, and what it was.
    ///
    /// # Safety
    /// `slot` must be one of a live object.
    #[inline]
    unsafe fn lock<'a>(slot: *mut Slot) -> (&'a AtomicU32, u32) {
        // SAFETY: the caller has a slot of a live object.
        let word = unsafe { &raw mut (*slot).0.small_str_len };
        // SAFETY: slots that others know are only used by this module, which changes the word by atomic operations.
        let word = unsafe { AtomicU32::from_ptr(word) };
        let old = word.load(Ordering::Relaxed) & !LOCKED;
        if word.compare_exchange_weak(old, old | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return (word, old);
        }
        (word, wait(word))
    }

    /// The value of a field; `None` if it has not been set.
    ///
    /// # Safety
    /// `slot` must be one of a live object.
    #[inline]
    pub unsafe fn read(slot: *mut Slot) -> Option<Any> {
        // SAFETY: as the caller guarantees.
        let (word, length) = unsafe { Slot::lock(slot) };
        // SAFETY: nobody writes it while it is locked.
        let type_index = unsafe { (*slot).0.type_index };
        // SAFETY: nobody writes it while it is locked.
        let value = unsafe { (*slot).0.value };
        let value = TVMFFIAny { type_index, small_str_len: length, value };
        // SAFETY: owned by the slot, which keeps it while it is locked; `ManuallyDrop` leaves that reference alone.
        let value = ManuallyDrop::new(unsafe { Any::from_raw(value) });
        let copy = Any::clone(&value);
        word.store(length, Ordering::Release);
        (type_index != kTVMFFINone || copy.as_view().bits() != UNSET).then_some(copy)
    }

    /// Sets a field.
    ///
    /// # Safety
    /// `slot` must be one of a live object, and its field must take the value.
    #[inline]
    pub unsafe fn write(slot: *mut Slot, value: Any) {
        // After the lock is open again: what goes may run code of anybody.
        // SAFETY: as the caller guarantees.
        drop(unsafe { Slot::swap(slot, value) });
    }

    /// Sets a field and gives what was there; None if it was not set.
    ///
    /// # Safety
    /// As [`write`](Self::write).
    #[inline]
    pub unsafe fn swap(slot: *mut Slot, value: Any) -> Any {
        let value = Slot::from_value(value).0;
        // SAFETY: as the caller guarantees.
        let (word, length) = unsafe { Slot::lock(slot) };
        // SAFETY: nobody else uses it while it is locked.
        let old_index = unsafe { core::mem::replace(&mut (*slot).0.type_index, value.type_index) };
        // SAFETY: nobody else uses it while it is locked.
        let old_value = unsafe { core::mem::replace(&mut (*slot).0.value, value.value) };
        word.store(value.small_str_len, Ordering::Release);
        // SAFETY: the slot owned it.
        unsafe { Any::from_raw(TVMFFIAny { type_index: old_index, small_str_len: length, value: old_value }) }
    }

    /// A slot with this value.
    #[inline]
    pub fn from_value(value: Any) -> Slot {
        // One None only: another one stands for what is not set.
        let value = if value.type_index() == kTVMFFINone { Any::NONE } else { value };
        Slot(value.into_raw())
    }

    /// The value of a slot that nobody else uses any more.
    pub fn into_value(self) -> Any {
        // SAFETY: the slot owns its value.
        unsafe { Any::from_raw(self.0) }
    }
}

/// The value in a slot that does not change any more, without a reference of its own; `None` if it has not been set. Also
/// for values of that size in other memory.
///
/// # Safety
/// `place` must be that of a valid value in a live object, which nobody changes.
#[inline]
pub(crate) unsafe fn lend(place: *mut TVMFFIAny) -> Option<TVMFFIAny> {
    // SAFETY: as the caller guarantees.
    let word = unsafe { &raw mut (*place).small_str_len };
    // SAFETY: as the caller guarantees; a reader may lock the slot meanwhile, by an atomic operation.
    let length = unsafe { AtomicU32::from_ptr(word) }.load(Ordering::Relaxed) & !LOCKED;
    // SAFETY: as the caller guarantees; a reader may lock the slot meanwhile, by an atomic operation.
    let type_index = unsafe { (*place).type_index };
    // SAFETY: as the caller guarantees; a reader may lock the slot meanwhile, by an atomic operation.
    let value = TVMFFIAny { type_index, small_str_len: length, value: unsafe { (*place).value } };
    // SAFETY: as the caller guarantees, a valid value, all of whose bytes are initialised.
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
