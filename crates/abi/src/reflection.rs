//! Type info: fields, methods, metadata and attributes of types.

use core::ffi::{c_int, c_void};

use crate::{TVMFFIAny, TVMFFIByteArray, TVMFFIObjectHandle};

macro_rules! flags {
    ($all:ident { $( $(#[$doc:meta])* $name:ident = $value:expr; )* }) => {
        $( $(#[$doc])* pub const $name: i64 = $value; )*
        /// Names and values of one group of flags, for code generators.
        pub const $all: &[(&str, i64)] = &[$( (stringify!($name), $value) ),*];
    };
}

flags! { FIELD_FLAGS {
    /// Flag of a field that can be set.
    kTVMFFIFieldFlagBitMaskWritable = 1;
    /// Flag of a field that has a default value.
    kTVMFFIFieldFlagBitMaskHasDefault = 1 << 1;
    /// Flag of a static method, which takes no object.
    kTVMFFIFieldFlagBitMaskIsStaticMethod = 1 << 2;
    /// Flag of a field that structural equality and hash ignore.
    kTVMFFIFieldFlagBitMaskSEqHashIgnore = 1 << 3;
    /// Flag of a field that is a definition region: it defines the variables in its value, at any depth.
    kTVMFFIFieldFlagBitMaskSEqHashDefPattern = 1 << 4;
    /// Flag of a field whose default is the result of a function that is called for each object.
    kTVMFFIFieldFlagBitMaskDefaultFromFactory = 1 << 5;
    /// Flag of a field that is omitted from the printed representation.
    kTVMFFIFieldFlagBitMaskReprOff = 1 << 6;
    /// Flag of a field that comparison ignores.
    kTVMFFIFieldFlagBitMaskCompareOff = 1 << 7;
    /// Flag of a field that the hash ignores.
    kTVMFFIFieldFlagBitMaskHashOff = 1 << 8;
    /// Flag of a field that is not an argument of the constructor.
    kTVMFFIFieldFlagBitMaskInitOff = 1 << 9;
    /// Flag of a field that is a keyword-only argument of the constructor.
    kTVMFFIFieldFlagBitMaskKwOnly = 1 << 10;
    /// Flag of a field whose `setter` is a Function object.
    kTVMFFIFieldFlagBitSetterIsFunctionObj = 1 << 11;
    /// Flag of a field that is a definition region: it defines the variables in its value. Variables in the
    /// fields of these variables are uses, not definitions.
    kTVMFFIFieldFlagBitMaskSEqHashDefSimple = 1 << 12;
}}

flags! { SEQ_HASH_KINDS {
    /// Kind of types without structural equality and hash.
    kTVMFFISEqHashKindUnsupported = 0;
    /// Kind of types that are compared by content.
    kTVMFFISEqHashKindTreeNode = 1;
    /// Kind of free variables. Equality pairs each of them with one variable of the other graph.
    kTVMFFISEqHashKindFreeVar = 2;
    /// Kind of types that are compared by content and by sharing: a node shared in one graph must be shared in
    /// the other graph, too.
    kTVMFFISEqHashKindDAGNode = 3;
    /// Kind of immutable types that are compared by content. An object equals itself without a comparison of
    /// the content.
    kTVMFFISEqHashKindConstTreeNode = 4;
    /// Kind of types that are compared by address.
    kTVMFFISEqHashKindUniqueInstance = 5;
}}

/// Function that reads the field at the address `field` into an owned value.
pub type TVMFFIFieldGetter = unsafe extern "C" fn(field: *mut c_void, result: *mut TVMFFIAny) -> c_int;
/// Function that sets the field at the address `field` from a view.
pub type TVMFFIFieldSetter = unsafe extern "C" fn(field: *mut c_void, value: *const TVMFFIAny) -> c_int;
/// Function that creates an object with default content.
pub type TVMFFIObjectCreator = unsafe extern "C" fn(result: *mut TVMFFIObjectHandle) -> c_int;

/// A field of an object type.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TVMFFIFieldInfo {
    /// Name of the field.
    pub name: TVMFFIByteArray,
    /// Documentation of the field.
    pub doc: TVMFFIByteArray,
    /// Metadata as JSON, whose key `type_schema` describes the type of the field.
    pub metadata: TVMFFIByteArray,
    /// Flags of the field, a combination of `kTVMFFIFieldFlagBit*`.
    pub flags: i64,
    /// Size of the field in bytes.
    pub size: i64,
    /// Alignment of the field in bytes.
    pub alignment: i64,
    /// Offset of the field from the object header in bytes.
    pub offset: i64,
    /// Function that reads the field.
    pub getter: Option<TVMFFIFieldGetter>,
    /// Function that sets the field: a `TVMFFIFieldSetter`, or a Function handle if flag bit 11 is set.
    pub setter: *mut c_void,
    /// Default value, or the function that creates it if flag bit 5 is set.
    pub default_value_or_factory: TVMFFIAny,
    /// Type index of the field if it is known statically, else `kTVMFFIAny`.
    pub field_static_type_index: i32,
}

/// A method of an object type, or a global function with its description.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TVMFFIMethodInfo {
    /// Name of the method.
    pub name: TVMFFIByteArray,
    /// Documentation of the method.
    pub doc: TVMFFIByteArray,
    /// Metadata as JSON, whose key `type_schema` describes the signature of the method.
    pub metadata: TVMFFIByteArray,
    /// Flags of the method, a combination of `kTVMFFIFieldFlagBit*`.
    pub flags: i64,
    /// View of the function object that implements the method.
    pub method: TVMFFIAny,
}

/// Metadata of a type, which the type registers once.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TVMFFITypeMetadata {
    /// Documentation of the type.
    pub doc: TVMFFIByteArray,
    /// Function that creates an object with default content; NULL if the type has no such function.
    pub creator: Option<TVMFFIObjectCreator>,
    /// Size of an object of the type in bytes.
    pub total_size: i32,
    /// Treatment of the type by structural equality and hash, one of `kTVMFFISEqHashKind*`.
    pub structural_eq_hash_kind: i32,
}

/// Values of one attribute for all types. The entry of type `t` is `data[t - begin_index]`; it is `None` or out of range
/// if the type does not have the attribute.
#[repr(C)]
pub struct TVMFFITypeAttrColumn {
    /// Entries of the column, one for each type index from `begin_index` on.
    pub data: *const TVMFFIAny,
    /// Number of entries in `data`.
    pub size: i32,
    /// Type index to which the first entry in `data` belongs.
    pub begin_index: i32,
}

/// Type info of a type, at an address that is valid for the lifetime of the process.
#[repr(C)]
pub struct TVMFFITypeInfo {
    /// Type index of the type.
    pub type_index: i32,
    /// Number of ancestors of the type.
    pub type_depth: i32,
    /// Type key, the unique name of the type.
    pub type_key: TVMFFIByteArray,
    /// Type infos of all ancestors, the root first.
    pub type_ancestors: *const *const TVMFFITypeInfo,
    /// Hash of the type key.
    pub type_key_hash: u64,
    /// Number of fields of this type, without those of its ancestors.
    pub num_fields: i32,
    /// Number of methods of this type, without those of its ancestors.
    pub num_methods: i32,
    /// Fields of this type, without those of its ancestors.
    pub fields: *const TVMFFIFieldInfo,
    /// Methods of this type, without those of its ancestors.
    pub methods: *const TVMFFIMethodInfo,
    /// Metadata of the type; NULL until registered.
    pub metadata: *const TVMFFITypeMetadata,
}
