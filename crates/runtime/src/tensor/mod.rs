//! Tensors: allocated by device drivers, viewed in other shapes, copied, and read element by element.
//!
//! In reading order: [`empty`] and similar functions (`make`), [`view`], [`copy`] with `elements`, then `element` (the encodings of all
//! element types), `cast` with `convert`, and `text`. Other languages and the methods of `anyfn::Tensor` call registered functions
//! (`globals`).

mod cast;
mod convert;
mod copy;
mod element;
mod elements;
mod globals;
mod layout;
mod make;
mod text;
mod view;

pub use copy::{copy, copy_from_bytes, copy_to_bytes, to_bytes};
pub use make::{empty, empty_anywhere, empty_for_caller, zeros};
pub use view::{Window, permute, reshape, slice, view};
