//! Tensors: allocated by device drivers, viewed in other shapes, copied, and read element by element.
//!
//! In reading order: [`empty`] and similar functions (`make`), [`view`], [`copy`], `cast` and `text`. The loops over elements are in
//! the crate `anyfn-elements`. Other languages and the methods of `anyfn::Tensor` call registered functions
//! (`globals`, `view_globals`, `element_globals`).

#[cfg(feature = "elements")]
mod cast;
mod copy;
#[cfg(feature = "elements")]
mod element_globals;
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
