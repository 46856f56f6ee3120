//! Conversion of Rust values into the arguments of calls.

use alloc::string::String as StdString;
use core::marker::PhantomData;

use anyfn_abi::TVMFFIAny;

use crate::{
    Any, AnyView, Bytes, DType, Device, IntoAny, Object, ObjectRef, OpaquePtr, Ref, Result, String,
    TypedPackedFunc,
};

/// A Rust value that can be passed as an argument.
///
/// Every common type that implements [`IntoAny`] can be passed by value. Objects and [`Any`] can also be passed by
/// reference, which does not change a reference count.
///
/// # Safety
/// `into_arg` must return an owned value if `OWNED` is true, and otherwise a view of data that outlives the borrow in
/// `self`.
pub unsafe trait IntoArg {
    /// True if the result of `into_arg` is an owned value.
    const OWNED: bool;

    /// Converts the value into an argument.
    ///
    /// # Errors
    /// Returns the error of the conversion, such as `MemoryError` if memory allocation fails.
    fn into_arg(self) -> Result<TVMFFIAny>;
}

macro_rules! by_value {
    ($owned:literal: $( $({$($generics:tt)*})? $ty:ty ),* $(,)?) => { $(
        // SAFETY: the result is an owned value, or a value that owns nothing and is therefore its own view.
        unsafe impl$(<$($generics)*>)? IntoArg for $ty {
            const OWNED: bool = $owned;
            #[inline]
            fn into_arg(self) -> Result<TVMFFIAny> {
                Ok(self.into_any()?.into_raw())
            }
        }
    )* };
}

by_value!(false: i8, i16, i32, i64, isize, u8, u16, u32, f32, f64, bool, (), OpaquePtr, DType, Device);
// The widest integer types may become objects.
by_value!(true: i128, u64, u128, usize, &str, &[u8], StdString, String, Bytes, Any, ObjectRef, {T: Object} Ref<T>, {S} TypedPackedFunc<S>,
    {T: IntoAny} Option<T>);

/// Implements [`IntoArg`] for an object type. Passing by value moves the reference. Passing by reference does not
/// change the reference count.
macro_rules! object_arg {
    ($name:ident) => {
        // SAFETY: the reference is moved into the value.
        unsafe impl $crate::args::IntoArg for $name {
            const OWNED: bool = true;
            #[inline]
            fn into_arg(self) -> $crate::Result<anyfn_abi::TVMFFIAny> {
                Ok($crate::Any::from(self.into_object()).into_raw())
            }
        }
        // SAFETY: the result is a view of an object that the borrow keeps alive.
        unsafe impl $crate::args::IntoArg for &$name {
            const OWNED: bool = false;
            #[inline]
            fn into_arg(self) -> $crate::Result<anyfn_abi::TVMFFIAny> {
                Ok(*$crate::AnyView::from(self.as_object()).as_raw())
            }
        }
    };
}
pub(crate) use object_arg;

macro_rules! by_view {
    ($( [$($generics:tt)*] $ty:ty => |$self:ident| $view:expr ),* $(,)?) => { $(
        // SAFETY: the result is a view of data that the borrow keeps alive.
        unsafe impl<$($generics)*> IntoArg for $ty {
            const OWNED: bool = false;
            #[inline]
            fn into_arg(self) -> Result<TVMFFIAny> {
                let $self = self;
                Ok(*$view.as_raw())
            }
        }
    )* };
}

by_view!(
    ['a] AnyView<'a> => |this| this,
    ['a] &'a Any => |this| this.as_view(),
    ['a] &'a ObjectRef => |this| AnyView::from(this),
    ['a, T: Object] &'a Ref<T> => |this| AnyView::from(this.as_object()),
    ['a] &'a String => |this| this.as_any().as_view(),
    ['a] &'a Bytes => |this| this.as_any().as_view(),
    ['a, S] &'a TypedPackedFunc<S> => |this| AnyView::from(this.as_packed().as_object()),
);

/// Arguments of a call: a tuple of up to 12 values, or a slice.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{Any, PackedFunc};
///
/// let count = PackedFunc::new(|args| Any::new(args.len() as i64));
/// assert_eq!(count.call(())?.get::<i64>()?, 0);
/// assert_eq!(count.call((1, "two", 3.0))?.get::<i64>()?, 3);
/// assert_eq!(count.call(&[Any::new(1)?, Any::new("two")?][..])?.get::<i64>()?, 2);
/// # Ok::<(), anyfn::Error>(())
/// ```
pub trait IntoArgs {
    /// Calls `then` with views of the arguments and releases the arguments afterwards.
    ///
    /// # Errors
    /// Returns the error of an argument's conversion or of `then`.
    fn with_views<R>(self, then: impl FnOnce(&[AnyView<'_>]) -> Result<R>) -> Result<R>;
}

impl IntoArgs for &[AnyView<'_>] {
    fn with_views<R>(self, then: impl FnOnce(&[AnyView<'_>]) -> Result<R>) -> Result<R> {
        then(self)
    }
}

impl IntoArgs for &[Any] {
    fn with_views<R>(self, then: impl FnOnce(&[AnyView<'_>]) -> Result<R>) -> Result<R> {
        // SAFETY: both types are transparent over the same struct, and the views borrow from the slice.
        then(unsafe { &*(core::ptr::from_ref(self) as *const [AnyView<'_>]) })
    }
}

impl<T: IntoArgs + Copy> IntoArgs for &T {
    fn with_views<R>(self, then: impl FnOnce(&[AnyView<'_>]) -> Result<R>) -> Result<R> {
        (*self).with_views(then)
    }
}

/// Converted argument of a call. An owned value is released on drop.
///
/// Each argument has its own type instead of a flag, so no code is generated for arguments that own nothing.
struct Lowered<A: IntoArg> {
    value: TVMFFIAny,
    arg: PhantomData<A>,
}

impl<A: IntoArg> Lowered<A> {
    #[inline(always)]
    fn new(arg: A) -> Result<Self> {
        Ok(Lowered { value: arg.into_arg()?, arg: PhantomData })
    }

    #[inline(always)]
    fn view(&self) -> AnyView<'_> {
        // SAFETY: the value is valid until `self` is dropped.
        unsafe { AnyView::from_raw(self.value) }
    }
}

impl<A: IntoArg> Drop for Lowered<A> {
    #[inline(always)]
    fn drop(&mut self) {
        if A::OWNED {
            // SAFETY: `IntoArg` guarantees that this value is owned, and it is released only here.
            drop(unsafe { Any::from_raw(self.value) });
        }
    }
}

macro_rules! tuples {
    ($( ($($name:ident),*) )*) => { $(
        impl<$($name: IntoArg),*> IntoArgs for ($($name,)*) {
            #[inline]
            #[allow(non_snake_case, reason = "one macro for all sizes")]
            fn with_views<R>(self, then: impl FnOnce(&[AnyView<'_>]) -> Result<R>) -> Result<R> {
                let ($($name,)*) = self;
                $( let $name = Lowered::new($name)?; )*
                then(&[$( $name.view() ),*])
            }
        }
    )* };
}

tuples! {
    ()
    (A)
    (A, B)
    (A, B, C)
    (A, B, C, D)
    (A, B, C, D, E)
    (A, B, C, D, E, F)
    (A, B, C, D, E, F, G)
    (A, B, C, D, E, F, G, H)
    (A, B, C, D, E, F, G, H, I)
    (A, B, C, D, E, F, G, H, I, J)
    (A, B, C, D, E, F, G, H, I, J, K)
    (A, B, C, D, E, F, G, H, I, J, K, L)
}
