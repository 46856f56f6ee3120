//! Buffers: memory with a shape and a data type.

use anyfn::{Array, DType, Object, Ref, String};

use crate::expr::{Expr, Range, Var};

/// Memory with a shape and a data type. Loads and stores name it and a place in it.
///
/// Two buffers with the same `data` share memory.
#[derive(Object)]
#[object(key = "tir.Buffer", structural = "tree", final)]
pub struct Buffer {
    /// Address of the memory.
    #[field(structural = "def")]
    pub data: Ref<Var>,
    /// Data type of the elements.
    pub dtype: DType,
    /// Extent of each dimension.
    #[field(structural = "def")]
    pub shape: Array<Expr>,
    /// Distance between neighbours in each dimension, in elements; empty if they lie row by row without gaps.
    #[field(structural = "def")]
    pub strides: Array<Expr>,
    /// Name for people.
    #[field(structural = "ignore")]
    pub name: String,
    /// Kind of memory: `global` for that of the device, `local` for what only one task sees.
    pub scope: String,
    /// Bytes to which the first element is aligned, at least.
    pub alignment: i32,
}

/// The kinds of memory that a buffer can lie in.
pub const SCOPES: &[&str] = &["global", "local"];

/// A part of a buffer: a range in each dimension.
#[derive(Object)]
#[object(key = "tir.BufferRegion", structural = "tree", final)]
pub struct BufferRegion {
    /// The buffer.
    pub buffer: Ref<Buffer>,
    /// The part.
    pub region: Array<Ref<Range>>,
}
