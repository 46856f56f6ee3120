//! Type indices, which identify the type of a value. The numbers below are part of the ABI and
//! never change.

macro_rules! indices {
    ($( $(#[$doc:meta])* $name:ident = $value:literal $( $key:literal )?; )*) => {
        $( $(#[$doc])* pub const $name: i32 = $value; )*
        /// Names and values of all type index constants, for code generators.
        pub const TYPE_INDICES: &[(&str, i32)] = &[$( (stringify!($name), $value) ),*];
        /// Index and type key of each type that exists in every process.
        pub const STATIC_TYPE_KEYS: &[(i32, &str)] = &[$( $( ($value, $key), )? )*];
    };
}

indices! {
    /// Any type; used only in field metadata.
    kTVMFFIAny = -1;
    /// None, the absence of a value.
    kTVMFFINone = 0 "None";
    /// 64-bit signed integer.
    kTVMFFIInt = 1 "int";
    /// Boolean; 0 or 1 in `v_int64`.
    kTVMFFIBool = 2 "bool";
    /// 64-bit floating-point number.
    kTVMFFIFloat = 3 "float";
    /// Pointer to data of unknown type.
    kTVMFFIOpaquePtr = 4 "void*";
    /// Data type, a `DLDataType`.
    kTVMFFIDataType = 5 "DataType";
    /// Device, a `DLDevice`.
    kTVMFFIDevice = 6 "Device";
    /// Borrowed `DLTensor*`.
    kTVMFFIDLTensorPtr = 7 "DLTensor*";
    /// Borrowed, NUL-terminated string; used only in views.
    kTVMFFIRawStr = 8 "const char*";
    /// Borrowed `TVMFFIByteArray*` that holds bytes; used only in views.
    kTVMFFIByteArrayPtr = 9 "TVMFFIByteArray*";
    /// Address of a variable that holds an object. The callee may move the object out. Used only in views.
    kTVMFFIObjectRValueRef = 10 "ObjectRValueRef";
    /// String of at most 7 bytes, stored in the value.
    kTVMFFISmallStr = 11 "ffi.SmallStr";
    /// Bytes, at most 7, stored in the value.
    kTVMFFISmallBytes = 12 "ffi.SmallBytes";
    /// Result by which a structural mutator reports that the original value is unchanged.
    kTVMFFIUnchanged = 13 "ffi.Unchanged";
    /// First type index of the object types.
    kTVMFFIStaticObjectBegin = 64;
    /// Root of all object types.
    kTVMFFIObject = 64 "ffi.Object";
    /// String object.
    kTVMFFIStr = 65 "ffi.String";
    /// Bytes object.
    kTVMFFIBytes = 66 "ffi.Bytes";
    /// Error object.
    kTVMFFIError = 67 "ffi.Error";
    /// Function object.
    kTVMFFIFunction = 68 "ffi.Function";
    /// Shape object, a sequence of 64-bit integers.
    kTVMFFIShape = 69 "ffi.Shape";
    /// Tensor object.
    kTVMFFITensor = 70 "ffi.Tensor";
    /// Immutable sequence with copy-on-write.
    kTVMFFIArray = 71 "ffi.Array";
    /// Immutable mapping with copy-on-write.
    kTVMFFIMap = 72 "ffi.Map";
    /// Module object, such as compiled code.
    kTVMFFIModule = 73 "ffi.Module";
    /// Python object that native code holds.
    kTVMFFIOpaquePyObject = 74 "ffi.OpaquePyObject";
    /// Mutable sequence.
    kTVMFFIList = 75 "ffi.List";
    /// Mutable mapping.
    kTVMFFIDict = 76 "ffi.Dict";
    /// Object that a structural visit returns to stop early.
    kTVMFFIVisitInterrupt = 77 "ffi.VisitInterrupt";
    /// Integer of arbitrary size.
    kTVMFFIBigInt = 78 "ffi.BigInt";
    /// Upper bound of the type indices of static object types, exclusive.
    kTVMFFIStaticObjectEnd = 79;
    /// First index that is allocated at run time.
    kTVMFFIDynObjectBegin = 128;
}
