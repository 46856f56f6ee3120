//! Digest of everything that determines how the memory of a Rust type is interpreted.
//!
//! Two libraries may have a type of the same name. Its objects can pass between them only if both interpret the bytes
//! in the same way, and all that the libraries can compare is a number. A reflected field is described by its schema.
//! Other fields are identified by the [`TypeId`] of their type; but a struct that is recompiled keeps its `TypeId`
//! while its own fields change. Therefore, the build number is part of the digest, too, unless a type is [`Fixed`].

use core::any::TypeId;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;
use core::sync::atomic::{
    AtomicBool, AtomicI8, AtomicI16, AtomicI32, AtomicIsize, AtomicU8, AtomicU16, AtomicU32, AtomicUsize,
};

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::atomic64::{AtomicI64, AtomicU64};
use crate::{Array, Cell, Dict, List, Map, Ref};

/// FNV-1a hasher that computes one number from everything that identifies a Rust type. The number
/// is the same in all libraries that contain the same build of the crate that defines the type.
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

impl Digest {
    /// Adds the offset, type and size of a field, and `build`, which is the build number that [`FieldType`]
    /// selects for the field.
    pub fn field<F: 'static>(&mut self, offset: usize, _field: &FieldType<F>, build: u64) {
        (TypeId::of::<F>(), offset, size_of::<F>(), build).hash(self);
    }

    /// Adds the build number of the crate that defines a type, a number that usually differs
    /// between runs of the compiler. This is for types that are not structs, such as enums: their
    /// fields are not added one by one.
    pub fn build(&mut self, build: u64) {
        build.hash(self);
    }
}

/// A type whose layout is determined by its [`TypeId`], regardless of the crate that uses it. The
/// `TypeId` differs between versions of the compiler (with its standard library) and of this crate.
///
/// # Safety
/// The layout of the type, and of everything that it points to, must follow from its [`TypeId`].
pub unsafe trait Fixed {}

/// Selects the build number that a field of type `F` adds to the digest. `(&FieldType::<F>::NEW).build(number)` is 0 if
/// `F` is [`Fixed`], and `number` otherwise: method lookup finds [`OfType`] before [`OfBuild`].
pub struct FieldType<F>(PhantomData<F>);

impl<F> FieldType<F> {
    /// The only value of this type.
    pub const NEW: FieldType<F> = FieldType(PhantomData);
}

/// Trait that selects the build number 0 for a field whose type is [`Fixed`]; see [`FieldType`].
pub trait OfType {
    /// Returns 0, because the layout of a [`Fixed`] type does not depend on the build.
    fn build(&self, _build: u64) -> u64 {
        0
    }
}

impl<F: Fixed> OfType for FieldType<F> {}

/// Trait that selects the given build number for a field whose type is not [`Fixed`]; see [`FieldType`].
pub trait OfBuild {
    /// Returns `build`, because the layout of the field's type may change with each build of its
    /// crate.
    fn build(&self, build: u64) -> u64 {
        build
    }
}

impl<F> OfBuild for &FieldType<F> {}

macro_rules! fixed {
    ($($ty:ty),* $(,)?) => {
        $(
            // SAFETY: this is a type of the language, the standard library or this crate, and it points to nothing
            // else.
            unsafe impl Fixed for $ty {}
        )*
    };
}

fixed! {
    (), bool, char, u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, f32, f64,
    &'static str, alloc::string::String,
    AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
    AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicIsize,
    crate::Any, crate::ObjectRef, crate::WeakRef, crate::String, crate::Bytes, crate::Shape, crate::PackedFunc,
    crate::Tensor, crate::Module, crate::Error, crate::DType, crate::Device,
}

macro_rules! fixed_of {
    ($($($path:ident)::*),* $(,)?) => {
        $(
            // SAFETY: this is a type of the standard library whose memory consists of, or points to, values of a
            // fixed type.
            unsafe impl<T: Fixed> Fixed for $($path)::*<T> {}
        )*
    };
}

fixed_of! { Option, Box, Vec, Arc, core::cell::UnsafeCell }

#[cfg(feature = "std")]
fixed_of! { std::sync::Mutex, std::sync::RwLock, std::sync::OnceLock }

macro_rules! fixed_with {
    ($($name:ident<$($arg:ident $(: $bound:ident)?),*>),* $(,)?) => {
        $(
            // SAFETY: the type has no memory, or is the handle of an object or value that specifies its own type.
            unsafe impl<$($arg $(: crate::$bound)?),*> Fixed for $name<$($arg),*> {}
        )*
    };
}

fixed_with! {
    PhantomData<T>, Ref<T: Object>, Cell<T>, Array<T>, List<T>, Map<K, V>, Dict<K, V>,
}

// SAFETY: an array consists of `N` values of a fixed type.
unsafe impl<T: Fixed, const N: usize> Fixed for [T; N] {}
