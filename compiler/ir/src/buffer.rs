//! Buffers: memory with a shape and a data type.

use anyfn::{Array, DType, Object, Ref, String};

use crate::expr::{Expr, Range, Var};

/// Typed memory with a shape. Loads and stores name a buffer and an index in each dimension.
///
/// Two buffers with the same variable `data` share memory.
#[derive(Object)]
#[object(key = "tir.Buffer", structural = "tree", final)]
pub struct Buffer {
    /// Variable that holds the address of the buffer's memory.
    #[field(structural = "def")]
    pub data: Ref<Var>,
    /// Data type of the elements.
    pub dtype: DType,
    /// Extent of each dimension.
    #[field(structural = "def")]
    pub shape: Array<Expr>,
    /// Distance between neighbouring elements in each dimension, as a number of elements. Empty if the buffer
    /// is compact.
    #[field(structural = "def")]
    pub strides: Array<Expr>,
    /// Name hint of the buffer, used for printing.
    #[field(structural = "ignore")]
    pub name: String,
    /// Memory scope: `global` for memory of the device, `shared` for memory that the threads of a block share, `local` for
    /// memory that only one task or thread accesses, `device` in host code for memory that only kernels access.
    pub scope: String,
    /// Minimum alignment of the buffer's first element, in bytes.
    pub alignment: i32,
}

/// Memory scopes that a buffer can have.
pub const SCOPES: &[&str] = &["global", "shared", "local", "device"];

/// Region of a buffer: a range in each dimension.
#[derive(Object)]
#[object(key = "tir.BufferRegion", structural = "tree", final)]
pub struct BufferRegion {
    /// Buffer that contains the region.
    pub buffer: Ref<Buffer>,
    /// Range of the region in each dimension.
    pub region: Array<Ref<Range>>,
}
