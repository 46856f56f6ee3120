//! Sequences and mappings that all languages share.
//!
//! [`Array`] and [`Map`] are values: changing one makes a copy first if anyone else holds it. [`List`] and [`Dict`]
//! are shared objects: a change is seen by all who hold them, from any thread. Their memory is part of the ABI (code
//! of other languages reads it without a call), so sizes, places and iteration order follow from it bit for bit.
//!
//! - `memory`, `lock`: what lies below. - `seq`, `slice`: elements of [`Array`] and [`List`]. - `table`, `mapping`: pairs of
//!   [`Map`] and [`Dict`]. - `convert`: Rust types from and to containers.

mod array;
mod convert;
mod convert_std;
mod dict;
mod list;
pub(crate) mod lock;
mod map;
mod mapping;
mod memory;
mod seq;
mod slice;
mod table;

use alloc::vec::Vec;

pub use array::{Array, ArrayBuilder, ArrayIter};
pub use dict::{Dict, DictIter};
pub use list::{List, ListIter};
pub use map::{Map, MapIter, MapPlace};
pub(crate) use map::{next_pair, replace_value};
pub use slice::{Places, Slice};

use crate::{FromArg, IntoAny};

/// A Rust type that is read from a value without borrowing from it, and made into one: an element of a List, a
/// field of a tuple. Implemented for every type that fits.
pub trait Value: IntoAny + for<'a> FromArg<Arg<'a> = Self> {}

impl<T: IntoAny + for<'a> FromArg<Arg<'a> = T>> Value for T {}

/// Runs `then` with a view of a Rust value.
#[inline]
fn with_view<A: crate::IntoArg, R>(value: A, then: impl FnOnce(&crate::AnyView<'_>) -> R) -> crate::Result<R> {
    let raw = value.into_arg()?;
    // An owned value is released at the end.
    // SAFETY: `IntoArg` says that the value is owned then.
    let _owned = A::OWNED.then(|| unsafe { crate::Any::from_raw(raw) });
    // SAFETY: the view is valid as long as `value` or `_owned` is.
    let view = unsafe { crate::AnyView::from_raw(raw) };
    Ok(then(&view))
}

/// The pairs of an iterator as values.
fn into_pairs<A: IntoAny, B: IntoAny>(
    pairs: impl IntoIterator<Item = (A, B)>,
) -> crate::Result<Vec<(crate::Any, crate::Any)>> {
    pairs.into_iter().map(|(key, value)| Ok((key.into_any()?, value.into_any()?))).collect()
}
