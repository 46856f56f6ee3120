//! What the memory of a Rust type consists of, folded into one number.
//!
//! Two libraries may have a type of the same name. Its objects pass between them only if both mean the same bytes, and all that
//! they can compare is a number. The schema of a field that every language sees says what the field is. For others there is the
//! [`TypeId`] of the field's type; but a struct that is compiled again keeps its `TypeId` while its own fields change. So unless
//! a type is [`Fixed`], the number of the build is part of the digest, too.

use core::any::TypeId;
use core::hash::{Hash, Hasher};
use core::marker::PhantomData;
use core::sync::atomic::{
    AtomicBool, AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicIsize, AtomicU8, AtomicU16, AtomicU32,
    AtomicU64, AtomicUsize,
};

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::{Array, Cell, Dict, List, Map, Ref};

/// Folds what identifies a Rust type into one number, the same in every library of a build (FNV-1a).
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
    /// Adds a field, and the number of the build unless that is 0.
    pub fn field<F: 'static>(&mut self, offset: usize, _field: &FieldType<F>, build: u64) {
        (TypeId::of::<F>(), offset, size_of::<F>(), build).hash(self);
    }

    /// Adds the number of the build, for a type whose content is not known field by field.
    pub fn build(&mut self, build: u64) {
        build.hash(self);
    }
}

/// A type whose layout follows from its [`TypeId`], whatever crate it is used in: the `TypeId` tells the version of the compiler
/// with its standard library and the version of this crate.
///
/// # Safety
/// That must be so, also for what the type points to.
pub unsafe trait Fixed {}

/// The type of a field. `(&FieldType::<F>::NEW).build(number)` is 0 if `F` is [`Fixed`], and else the number of the build:
/// method look-up finds [`OfType`] first.
pub struct FieldType<F>(PhantomData<F>);

impl<F> FieldType<F> {
    /// The only one.
    pub const NEW: FieldType<F> = FieldType(PhantomData);
}

/// For types that are [`Fixed`].
pub trait OfType {
    /// 0.
    fn build(&self, _build: u64) -> u64 {
        0
    }
}

impl<F: Fixed> OfType for FieldType<F> {}

/// For all types.
pub trait OfBuild {
    /// The number of the build.
    fn build(&self, build: u64) -> u64 {
        build
    }
}

impl<F> OfBuild for &FieldType<F> {}

macro_rules! fixed {
    ($($ty:ty),* $(,)?) => {
        $(
            // SAFETY: a type of the language, the standard library or this crate; it points to nothing else.
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
            // SAFETY: a type of the standard library whose memory consists of, or points to, values of a fixed type.
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
            // SAFETY: no memory, or a handle of an object or value that tells its own type.
            unsafe impl<$($arg $(: crate::$bound)?),*> Fixed for $name<$($arg),*> {}
        )*
    };
}

fixed_with! {
    PhantomData<T>, Ref<T: Object>, Cell<T>, Array<T>, List<T>, Map<K, V>, Dict<K, V>,
}

// SAFETY: as many values of a fixed type.
unsafe impl<T: Fixed, const N: usize> Fixed for [T; N] {}
