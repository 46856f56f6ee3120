//! Tensors: allocated by device drivers, viewed in other shapes, copied, and read element by element.
//!
//! In reading order: [`empty`] and similar functions (`make`), [`view`], [`copy`] with `elements`, then `element` (the encodings of all
//! element types), `cast` with `convert`, and `text`. Other languages and the methods of `anyfn::Tensor` call registered functions
//! (`globals`, `view_globals`, `element_globals`).

#[cfg(feature = "elements")]
mod cast;
#[cfg(feature = "elements")]
mod convert;
mod copy;
#[cfg(feature = "elements")]
mod element;
#[cfg(feature = "elements")]
mod element_globals;
mod elements;
mod globals;
mod layout;
mod make;
#[cfg(feature = "elements")]
mod text;
mod view;
#[cfg(feature = "views")]
mod view_globals;

pub use copy::{copy, copy_from_bytes, copy_to_bytes, to_bytes};
pub use make::{empty, empty_anywhere, empty_for_caller, zeros};
pub use view::{Window, permute, reshape, slice, view};
