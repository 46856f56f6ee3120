//! Base types of enumerations: `ffi.Enum`, `ffi.IntEnum` and `ffi.StrEnum`, and the type `ffi.EnumState`,
//! which lists the values of an enumeration.
//!
//! C++ code defines enumerations through the headers of the ABI: it creates an object for each value and
//! lists the objects in an `ffi.EnumState`, which is the attribute `__ffi_enum__` of the type. The common
//! base types are registered here, with the memory layout that the ABI defines. Saving and printing recognise
//! enumerations by these types.

use core::mem::offset_of;

use anyfn::__private::{CONTENT_OF_FIELDS, TYPES, TypeEntry, entry};
use anyfn::abi::{
    kTVMFFIFieldFlagBitMaskInitOff, kTVMFFIFieldFlagBitMaskSEqHashIgnore, kTVMFFIInt, kTVMFFIObject,
    kTVMFFISEqHashKindUniqueInstance, kTVMFFIStr,
};
use anyfn::{Any, Dict, List, ObjectRef, Result, String};

use crate::define::{self, Type};

/// Content of an `ffi.EnumState` object, which lists the values of one enumeration.
#[derive(anyfn::Object)]
#[object(key = "ffi.EnumState", final)]
#[repr(C)]
struct EnumState {
    /// All values of the enumeration, in the order of their definition.
    #[field(default)]
    entries: List<ObjectRef>,
    /// Dict from numbers and names to values of the enumeration. Each value has an entry under its
    /// number and another under its name.
    #[field(default)]
    indexes: Dict<Any, ObjectRef>,
    /// Additional attributes of the values, which C++ code sets. Maps the name of each attribute to a Dict
    /// from enumeration values to the values of that attribute.
    #[field(default)]
    attrs: Dict<Any, Any>,
}

/// Content of an enumeration value, an object of a type derived from `ffi.Enum`.
#[repr(C)]
struct EnumEntry {
    number: i64,
    name: String,
}

/// Flag of the field `_int_index`, which structural comparison ignores.
const IGNORED: i64 = kTVMFFIFieldFlagBitMaskSEqHashIgnore;
/// Flags of the field `value`, which is an alias of another field. Structural comparison ignores it, and
/// constructors have no parameter for it.
const ALIAS: i64 = IGNORED | kTVMFFIFieldFlagBitMaskInitOff;

/// Registers the type `key`, whose objects have the content [`EnumEntry`].
fn make(key: &str, depth: i32, parent: i32) -> Result<Type> {
    anyfn::__private::claim_key(key, depth, parent, CONTENT_OF_FIELDS).map(Type)
}

fn register() -> Result<()> {
    let number = (offset_of!(EnumEntry, number), 8);
    let name = (offset_of!(EnumEntry, name), 16);
    let (size, kind) = (size_of::<EnumEntry>(), kTVMFFISEqHashKindUniqueInstance);
    let base = make("ffi.Enum", 1, kTVMFFIObject)?;
    // SAFETY: the struct has the field at this offset.
    unsafe { base.field_with_flags(("_int_index", "The number."), number, define::I64, kTVMFFIInt, IGNORED) }?;
    // SAFETY: the struct has the field at this offset, a string as a value.
    unsafe { base.field(("_str_index", "The name."), name, define::TEXT, kTVMFFIStr) }?;
    base.metadata("A member of an enumeration, with a number and a name.", size, kind)?;
    let by_number = make("ffi.IntEnum", 2, base.0)?;
    // SAFETY: the struct has the field at this offset.
    unsafe { by_number.field_with_flags(("value", "The number."), number, define::I64, kTVMFFIInt, ALIAS) }?;
    by_number.metadata("A member of an enumeration of numbers.", size, kind)?;
    let by_name = make("ffi.StrEnum", 2, base.0)?;
    // SAFETY: the struct has the field at this offset, a string as a value.
    unsafe { by_name.field_with_flags(("value", "The name."), name, define::TEXT, kTVMFFIStr, ALIAS) }?;
    by_name.metadata("A member of an enumeration of strings.", size, kind)
}

fn define(again: bool) -> core::result::Result<(), anyfn::__private::StdString> {
    if again {
        return Ok(());
    }
    let types = register();
    debug_assert!(types.is_ok(), "{types:?}");
    types.map_err(|error| error.message().into())
}

entry!(TYPES: TypeEntry = TypeEntry { define });
