//! Table of the sizes and field offsets of all structs of the ABI.
//!
//! The table is checked when this crate is compiled for a 64-bit target. `xtask codegen` writes the same checks in C
//! from it.

use core::mem::{offset_of, size_of};

use crate::*;

/// Size of a struct and offsets of its fields, in bytes.
pub struct Layout {
    /// Name of the struct.
    pub name: &'static str,
    /// Size of the struct in bytes.
    pub size: usize,
    /// Name and offset in bytes of each field.
    pub fields: &'static [(&'static str, usize)],
}

macro_rules! layouts {
    ($( $name:ident = $size:literal { $( $field:ident @ $offset:literal ),* $(,)? } )*) => {
        /// Layout of each struct on 64-bit targets.
        pub const LAYOUTS: &[Layout] = &[$( Layout {
            name: stringify!($name),
            size: $size,
            fields: &[$( (stringify!($field), $offset) ),*],
        } ),*];

        #[cfg(target_pointer_width = "64")]
        const _: () = {
            $(
                assert!(size_of::<$name>() == $size, concat!("size of ", stringify!($name)));
                $( assert!(offset_of!($name, $field) == $offset,
                    concat!("offset of ", stringify!($name), ".", stringify!($field))); )*
            )*
        };
    };
}

layouts! {
    TVMFFIVersion = 12 { major @ 0, minor @ 4, patch @ 8 }
    TVMFFIAny = 16 { type_index @ 0, small_str_len @ 4, value @ 8 }
    TVMFFIObject = 24 { combined_ref_count @ 0, type_index @ 8, flags @ 12, deleter @ 16 }
    TVMFFIByteArray = 16 { data @ 0, size @ 8 }
    TVMFFIShapeCell = 16 { data @ 0, size @ 8 }
    TVMFFISeqCell = 32 { data @ 0, size @ 8, capacity @ 16, data_deleter @ 24 }
    TVMFFIMapCell = 32 { data @ 0, size @ 8, slots @ 16, data_deleter @ 24 }
    TVMFFIDenseMapTail = 24 { fib_shift @ 0, padding @ 4, iter_head @ 8, iter_tail @ 16 }
    TVMFFIMapItem = 48 { key @ 0, value @ 16, prev @ 32, next @ 40 }
    TVMFFIMapBlock = 784 { meta @ 0, items @ 16 }
    TVMFFIErrorCell = 72 { kind @ 0, message @ 16, backtrace @ 32, update_backtrace @ 48, cause_chain @ 56,
        extra_context @ 64 }
    TVMFFIFunctionCell = 16 { safe_call @ 0, cpp_call @ 8 }
    AnyfnFunctionExt = 24 { size @ 0, flags @ 8, signature @ 16 }
    TVMFFIOpaqueObjectCell = 8 { handle @ 0 }
    TVMFFIBigIntCell = 8 { word_count @ 0 }
    TVMFFIObjectAllocHeader = 8 { delete_space @ 0 }
    TVMFFICustomAllocator = 16 { allocate @ 0, context @ 8 }
    TVMFFIFieldInfo = 120 { name @ 0, doc @ 16, metadata @ 32, flags @ 48, size @ 56, alignment @ 64, offset @ 72,
        getter @ 80, setter @ 88, default_value_or_factory @ 96, field_static_type_index @ 112 }
    TVMFFIMethodInfo = 72 { name @ 0, doc @ 16, metadata @ 32, flags @ 48, method @ 56 }
    TVMFFITypeMetadata = 32 { doc @ 0, creator @ 16, total_size @ 24, structural_eq_hash_kind @ 28 }
    TVMFFITypeAttrColumn = 16 { data @ 0, size @ 8, begin_index @ 12 }
    TVMFFITypeInfo = 72 { type_index @ 0, type_depth @ 4, type_key @ 8, type_ancestors @ 24, type_key_hash @ 32,
        num_fields @ 40, num_methods @ 44, fields @ 48, methods @ 56, metadata @ 64 }
    DLPackVersion = 8 { major @ 0, minor @ 4 }
    DLDevice = 8 { device_type @ 0, device_id @ 4 }
    DLDataType = 4 { code @ 0, bits @ 1, lanes @ 2 }
    DLTensor = 48 { data @ 0, device @ 8, ndim @ 16, dtype @ 20, shape @ 24, strides @ 32, byte_offset @ 40 }
    DLManagedTensor = 64 { dl_tensor @ 0, manager_ctx @ 48, deleter @ 56 }
    DLManagedTensorVersioned = 80 { version @ 0, manager_ctx @ 8, deleter @ 16, flags @ 24, dl_tensor @ 32 }
    TVMParallelGroupEnv = 16 { sync_handle @ 0, num_task @ 8 }
}
