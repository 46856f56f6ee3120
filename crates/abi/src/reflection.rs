//! What a type tells about itself.

use core::ffi::{c_int, c_void};

use crate::{TVMFFIAny, TVMFFIByteArray, TVMFFIObjectHandle};

macro_rules! flags {
    ($all:ident { $( $(#[$doc:meta])* $name:ident = $value:expr; )* }) => {
        $( $(#[$doc])* pub const $name: i64 = $value; )*
        /// Names and values of the flags, for generators.
        pub const $all: &[(&str, i64)] = &[$( (stringify!($name), $value) ),*];
    };
}

flags! { FIELD_FLAGS {
    /// The field can be set.
    kTVMFFIFieldFlagBitMaskWritable = 1;
    /// The field has a default.
    kTVMFFIFieldFlagBitMaskHasDefault = 1 << 1;
    /// The method takes no object.
    kTVMFFIFieldFlagBitMaskIsStaticMethod = 1 << 2;
    /// Structural equality and hash pass over the field.
    kTVMFFIFieldFlagBitMaskSEqHashIgnore = 1 << 3;
    /// The field defines variables, as a pattern.
    kTVMFFIFieldFlagBitMaskSEqHashDefPattern = 1 << 4;
    /// The default is a function that makes a value.
    kTVMFFIFieldFlagBitMaskDefaultFromFactory = 1 << 5;
    /// Not shown when printed.
    kTVMFFIFieldFlagBitMaskReprOff = 1 << 6;
    /// Not compared.
    kTVMFFIFieldFlagBitMaskCompareOff = 1 << 7;
    /// Not hashed.
    kTVMFFIFieldFlagBitMaskHashOff = 1 << 8;
    /// Not an argument of the constructor.
    kTVMFFIFieldFlagBitMaskInitOff = 1 << 9;
    /// Keyword-only argument of the constructor.
    kTVMFFIFieldFlagBitMaskKwOnly = 1 << 10;
    /// `setter` is a Function object.
    kTVMFFIFieldFlagBitSetterIsFunctionObj = 1 << 11;
    /// The field defines variables, one each.
    kTVMFFIFieldFlagBitMaskSEqHashDefSimple = 1 << 12;
}}

flags! { SEQ_HASH_KINDS {
    /// No structural equality or hash.
    kTVMFFISEqHashKindUnsupported = 0;
    /// Compared by content.
    kTVMFFISEqHashKindTreeNode = 1;
    /// A variable, mapped to its counterpart.
    kTVMFFISEqHashKindFreeVar = 2;
    /// Compared by content and by sharing.
    kTVMFFISEqHashKindDAGNode = 3;
    /// Compared by content, immutable.
    kTVMFFISEqHashKindConstTreeNode = 4;
    /// Compared by address.
    kTVMFFISEqHashKindUniqueInstance = 5;
}}

/// Reads the field at an address into an owned value.
pub type TVMFFIFieldGetter = unsafe extern "C" fn(field: *mut c_void, result: *mut TVMFFIAny) -> c_int;
/// Sets the field at an address from a view.
pub type TVMFFIFieldSetter = unsafe extern "C" fn(field: *mut c_void, value: *const TVMFFIAny) -> c_int;
/// Makes an object with default content.
pub type TVMFFIObjectCreator = unsafe extern "C" fn(result: *mut TVMFFIObjectHandle) -> c_int;

/// A field of an object type.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TVMFFIFieldInfo {
    /// Name.
    pub name: TVMFFIByteArray,
    /// Documentation.
    pub doc: TVMFFIByteArray,
    /// JSON; `type_schema` describes the type.
    pub metadata: TVMFFIByteArray,
    /// `kTVMFFIFieldFlagBit*`.
    pub flags: i64,
    /// Size of the field in bytes.
    pub size: i64,
    /// Alignment of the field in bytes.
    pub alignment: i64,
    /// Offset from the object header in bytes.
    pub offset: i64,
    /// Reads the field.
    pub getter: Option<TVMFFIFieldGetter>,
    /// A `TVMFFIFieldSetter`, or a Function handle when flag bit 11 is set.
    pub setter: *mut c_void,
    /// Default value, or the function that makes it when flag bit 5 is set.
    pub default_value_or_factory: TVMFFIAny,
    /// Type index when it is known statically, else `kTVMFFIAny`.
    pub field_static_type_index: i32,
}

/// A method of an object type, or a global function with its description.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TVMFFIMethodInfo {
    /// Name.
    pub name: TVMFFIByteArray,
    /// Documentation.
    pub doc: TVMFFIByteArray,
    /// JSON; `type_schema` describes the type.
    pub metadata: TVMFFIByteArray,
    /// `kTVMFFIFieldFlagBit*`.
    pub flags: i64,
    /// View of the Function.
    pub method: TVMFFIAny,
}

/// What a type registers once about itself.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TVMFFITypeMetadata {
    /// Documentation.
    pub doc: TVMFFIByteArray,
    /// Makes an object with default content; NULL when that is not possible.
    pub creator: Option<TVMFFIObjectCreator>,
    /// Size of an object in bytes.
    pub total_size: i32,
    /// How structural equality and hash treat the type.
    pub structural_eq_hash_kind: i32,
}

/// One attribute of all types: the entry of type `t` is `data[t - begin_index]`, None or out of range when absent.
#[repr(C)]
pub struct TVMFFITypeAttrColumn {
    /// Entries.
    pub data: *const TVMFFIAny,
    /// Number of entries.
    pub size: i32,
    /// Type index of the first entry.
    pub begin_index: i32,
}

/// A type. Lives at a stable address as long as the process.
#[repr(C)]
pub struct TVMFFITypeInfo {
    /// Index of the type.
    pub type_index: i32,
    /// Number of ancestors.
    pub type_depth: i32,
    /// Unique name.
    pub type_key: TVMFFIByteArray,
    /// Ancestors, the root first.
    pub type_ancestors: *const *const TVMFFITypeInfo,
    /// Hash of the name.
    pub type_key_hash: u64,
    /// Number of fields of this type itself.
    pub num_fields: i32,
    /// Number of methods of this type itself.
    pub num_methods: i32,
    /// Fields of this type itself.
    pub fields: *const TVMFFIFieldInfo,
    /// Methods of this type itself.
    pub methods: *const TVMFFIMethodInfo,
    /// NULL until registered.
    pub metadata: *const TVMFFITypeMetadata,
}
