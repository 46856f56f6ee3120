//! Table of the sizes and field offsets of all structs of the ABI, on 64-bit and on 32-bit targets.
//!
//! The table is checked when this crate is compiled for such a target. `xtask codegen` writes the same checks in C
//! from it.

use core::mem::{offset_of, size_of};

use crate::classic::{TVMByteArray, TVMValue};
use crate::*;

/// Size of a struct and offsets of its fields, in bytes.
pub struct Layout {
    /// Name of the struct.
    pub name: &'static str,
    /// Size of the struct.
    pub size: Bytes,
    /// Name and offset of each field.
    pub fields: &'static [(&'static str, Bytes)],
}

/// Number of bytes, which may depend on the size of pointers and of `size_t`.
#[derive(Clone, Copy)]
pub struct Bytes {
    /// Number of bytes on 64-bit targets.
    pub on_64_bits: usize,
    /// Number of bytes on 32-bit targets. Integers of 64 bits are aligned to 8 bytes there, as on Arm, RISC-V and
    /// WebAssembly.
    pub on_32_bits: usize,
}

impl Bytes {
    /// Returns the number for the target for which this crate is compiled.
    const fn here(self) -> usize {
        if cfg!(target_pointer_width = "64") { self.on_64_bits } else { self.on_32_bits }
    }
}

/// Creates [`Bytes`] from one number for all targets, or from two numbers: the first for 64-bit and
/// the second for 32-bit targets.
macro_rules! bytes {
    ($all:literal) => {
        Bytes { on_64_bits: $all, on_32_bits: $all }
    };
    ($on_64_bits:literal | $on_32_bits:literal) => {
        Bytes { on_64_bits: $on_64_bits, on_32_bits: $on_32_bits }
    };
}

macro_rules! layouts {
    ($( $name:ident = $size:literal $(| $size32:literal)?
        { $( $field:ident @ $offset:literal $(| $offset32:literal)? ),* $(,)? } )*) => {
        /// Layout of each struct of the ABI.
        pub const LAYOUTS: &[Layout] = &[$( Layout {
            name: stringify!($name),
            size: bytes!($size $(| $size32)?),
            fields: &[$( (stringify!($field), bytes!($offset $(| $offset32)?)) ),*],
        } ),*];

        const _: () = {
            $(
                assert!(size_of::<$name>() == bytes!($size $(| $size32)?).here(), concat!("size of ", stringify!($name)));
                $( assert!(offset_of!($name, $field) == bytes!($offset $(| $offset32)?).here(),
                    concat!("offset of ", stringify!($name), ".", stringify!($field))); )*
            )*
        };
    };
}

layouts! {
    TVMFFIVersion = 12 { major @ 0, minor @ 4, patch @ 8 }
    TVMFFIAny = 16 { type_index @ 0, small_str_len @ 4, value @ 8 }
    TVMFFIObject = 24 { combined_ref_count @ 0, type_index @ 8, flags @ 12, deleter @ 16 }
    TVMFFIByteArray = 16 | 8 { data @ 0, size @ 8 | 4 }
    TVMFFIShapeCell = 16 | 8 { data @ 0, size @ 8 | 4 }
    TVMFFISeqCell = 32 { data @ 0, size @ 8, capacity @ 16, data_deleter @ 24 }
    TVMFFIMapCell = 32 { data @ 0, size @ 8, slots @ 16, data_deleter @ 24 }
    TVMFFIDenseMapTail = 24 { fib_shift @ 0, padding @ 4, iter_head @ 8, iter_tail @ 16 }
    TVMFFIMapItem = 48 { key @ 0, value @ 16, prev @ 32, next @ 40 }
    TVMFFIMapBlock = 784 { meta @ 0, items @ 16 }
    TVMFFIErrorCell = 72 | 36 {
        kind @ 0, message @ 16 | 8, backtrace @ 32 | 16, update_backtrace @ 48 | 24, cause_chain @ 56 | 28,
        extra_context @ 64 | 32,
    }
    TVMFFIFunctionCell = 16 | 8 { safe_call @ 0, cpp_call @ 8 | 4 }
    AnyfnFunctionExt = 24 { size @ 0, flags @ 8, signature @ 16 }
    TVMFFIOpaqueObjectCell = 8 | 4 { handle @ 0 }
    TVMFFIBigIntCell = 8 | 4 { word_count @ 0 }
    TVMFFIObjectAllocHeader = 8 | 4 { delete_space @ 0 }
    TVMFFICustomAllocator = 16 | 8 { allocate @ 0, context @ 8 | 4 }
    TVMFFIFieldInfo = 120 | 88 {
        name @ 0, doc @ 16 | 8, metadata @ 32 | 16, flags @ 48 | 24, size @ 56 | 32, alignment @ 64 | 40,
        offset @ 72 | 48, getter @ 80 | 56, setter @ 88 | 60, default_value_or_factory @ 96 | 64,
        field_static_type_index @ 112 | 80,
    }
    TVMFFIMethodInfo = 72 | 48 { name @ 0, doc @ 16 | 8, metadata @ 32 | 16, flags @ 48 | 24, method @ 56 | 32 }
    TVMFFITypeMetadata = 32 | 20 {
        doc @ 0, creator @ 16 | 8, total_size @ 24 | 12, structural_eq_hash_kind @ 28 | 16,
    }
    TVMFFITypeAttrColumn = 16 | 12 { data @ 0, size @ 8 | 4, begin_index @ 12 | 8 }
    TVMFFITypeInfo = 72 | 56 {
        type_index @ 0, type_depth @ 4, type_key @ 8, type_ancestors @ 24 | 16, type_key_hash @ 32 | 24,
        num_fields @ 40 | 32, num_methods @ 44 | 36, fields @ 48 | 40, methods @ 56 | 44, metadata @ 64 | 48,
    }
    DLPackVersion = 8 { major @ 0, minor @ 4 }
    DLDevice = 8 { device_type @ 0, device_id @ 4 }
    DLDataType = 4 { code @ 0, bits @ 1, lanes @ 2 }
    DLTensor = 48 | 40 {
        data @ 0, device @ 8 | 4, ndim @ 16 | 12, dtype @ 20 | 16, shape @ 24 | 20, strides @ 32 | 24,
        byte_offset @ 40 | 32,
    }
    DLManagedTensor = 64 | 48 { dl_tensor @ 0, manager_ctx @ 48 | 40, deleter @ 56 | 44 }
    DLManagedTensorVersioned = 80 | 64 {
        version @ 0, manager_ctx @ 8, deleter @ 16 | 12, flags @ 24 | 16, dl_tensor @ 32 | 24,
    }
    AnyfnMemoryLocation = 24 | 16 { device @ 0, data @ 8, offset @ 16 | 12 }
    AnyfnTransfer = 64 | 40 { from @ 0, to @ 24 | 16, bytes @ 48 | 32, stream @ 56 | 36 }
    AnyfnMemoryStatistics = 40 { used @ 0, kept @ 8, limit @ 16, allocated @ 24, reused @ 32 }
    AnyfnDeviceWork = 48 | 40 { device @ 0, stream @ 8, name @ 16, start_ns @ 32 | 24, time_ns @ 40 | 32 }
    AnyfnDeviceDriver = 208 | 112 {
        size @ 0, version @ 8 | 4, device_type @ 12 | 8, memory_kind @ 16 | 12, flags @ 20 | 16,
        context @ 24 | 20, probe @ 32 | 24, attribute @ 40 | 28, allocate @ 48 | 32,
        allocate_zeroed @ 56 | 36, allocate_scope @ 64 | 40, free @ 72 | 44, copy @ 80 | 48,
        create_stream @ 88 | 52, destroy_stream @ 96 | 56, synchronize_stream @ 104 | 60,
        create_event @ 112 | 64, destroy_event @ 120 | 68, record_event @ 128 | 72, wait_event @ 136 | 76,
        synchronize_event @ 144 | 80, elapsed_ns @ 152 | 84, synchronize @ 160 | 88, owns @ 168 | 92,
        release_memory @ 176 | 96, memory_statistics @ 184 | 100, record_work @ 192 | 104,
        take_work @ 200 | 108,
    }
    TVMParallelGroupEnv = 16 | 8 { sync_handle @ 0, num_task @ 8 | 4 }
    TVMValue = 8 { v_int64 @ 0, v_float64 @ 0, v_handle @ 0, v_str @ 0, v_type @ 0, v_device @ 0 }
    TVMByteArray = 16 | 8 { data @ 0, size @ 8 | 4 }
}
