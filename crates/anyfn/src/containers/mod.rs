//! Sequences and mappings that all languages share.
//!
//! [`Array`] and [`Map`] have value semantics: changing one copies it first if other references to it exist. [`List`]
//! and [`Dict`] are shared objects: every holder sees a change, on any thread. The memory layout of all four is part
//! of the ABI, because code in other languages reads it without a call. Sizes, offsets and iteration order are
//! therefore exactly those of the ABI.
//!
//! - `memory`, `lock`: the allocator and the lock of containers.
//! - `seq`, `slice`, `list_slice`: elements of [`Array`] and [`List`].
//! - `table`, `mapping`: pairs of [`Map`] and [`Dict`].
//! - `check`, `convert`, `convert_std`: conversions between Rust types and containers.

mod array;
mod check;
mod convert;
mod convert_std;
mod dict;
mod list;
mod list_slice;
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
pub use map::{Map, MapCursor, MapIter};
pub(crate) use map::{next_pair, replace_value};
pub use slice::{Slice, SliceIndices};

use crate::{FromArg, IntoAny};

/// A Rust type that converts to and from values without borrowing from them, such as the element type of a
/// List. Implemented for every type that meets the bounds.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{List, Value};
///
/// fn last<T: Value>(list: &List<T>) -> Option<T> {
///     list.iter().last()?.ok()
/// }
///
/// let list = List::try_from_iter([1_i64, 2, 3])?;
/// assert_eq!(last(&list), Some(3));
/// # Ok::<(), anyfn::Error>(())
/// ```
pub trait Value: IntoAny + for<'a> FromArg<Arg<'a> = Self> {}

impl<T: IntoAny + for<'a> FromArg<Arg<'a> = T>> Value for T {}

/// Calls `then` with a view of a Rust value.
#[inline]
fn with_view<A: crate::IntoArg, R>(value: A, then: impl FnOnce(&crate::AnyView<'_>) -> R) -> crate::Result<R> {
    let raw = value.into_arg()?;
    // An owned value is released when the function returns.
    // SAFETY: if `OWNED` is true, `IntoArg` guarantees that the value is owned.
    let _owned = A::OWNED.then(|| unsafe { crate::Any::from_raw(raw) });
    // SAFETY: the view is valid while `_owned`, or what `value` borrows, is alive.
    let view = unsafe { crate::AnyView::from_raw(raw) };
    Ok(then(&view))
}

/// Converts the pairs of an iterator to values.
fn into_pairs<A: IntoAny, B: IntoAny>(
    pairs: impl IntoIterator<Item = (A, B)>,
) -> crate::Result<Vec<(crate::Any, crate::Any)>> {
    pairs.into_iter().map(|(key, value)| Ok((key.into_any()?, value.into_any()?))).collect()
}
