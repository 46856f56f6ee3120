//! Shapes: objects that contain a sequence of extents.

use core::borrow::Borrow;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::Deref;

use alloc::boxed::Box;
use alloc::vec::Vec;

use anyfn_abi::{TVMFFIShapeCell, kTVMFFIShape};

use crate::object::ObjectBox;
use crate::{Error, ObjectRef};

/// An immutable, shared sequence of extents. It dereferences to `[i64]`.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::Shape;
///
/// let shape = Shape::from([2, 3]);
/// assert_eq!(shape, [2, 3]);
/// assert_eq!(shape.iter().product::<i64>(), 6);
///
/// // Sizes of Rust collections are converted with a check.
/// let sizes: &[usize] = &[2, 3];
/// assert_eq!(Shape::try_from(sizes)?, shape);
/// assert_eq!(Shape::try_from(&[usize::MAX][..]).unwrap_err().kind(), "OverflowError");
/// # Ok::<(), anyfn::Error>(())
/// ```
#[derive(Clone)]
#[repr(transparent)]
pub struct Shape(ObjectRef);

/// Content of a shape object that this crate creates. `cell` points to the elements of `extents`.
#[repr(C)]
struct Content {
    cell: TVMFFIShapeCell,
    extents: Box<[i64]>,
}

impl From<Box<[i64]>> for Shape {
    fn from(extents: Box<[i64]>) -> Shape {
        let cell = TVMFFIShapeCell { data: extents.as_ptr(), size: extents.len() };
        Shape(ObjectBox::allocate(kTVMFFIShape, 0, Content { cell, extents }))
    }
}

impl From<&[i64]> for Shape {
    fn from(extents: &[i64]) -> Shape {
        Shape::from(Box::<[i64]>::from(extents))
    }
}

impl From<Vec<i64>> for Shape {
    fn from(extents: Vec<i64>) -> Shape {
        Shape::from(extents.into_boxed_slice())
    }
}

impl<const N: usize> From<[i64; N]> for Shape {
    fn from(extents: [i64; N]) -> Shape {
        Shape::from(extents.as_slice())
    }
}

impl<const N: usize> From<&[i64; N]> for Shape {
    fn from(extents: &[i64; N]) -> Shape {
        Shape::from(extents.as_slice())
    }
}

impl FromIterator<i64> for Shape {
    fn from_iter<I: IntoIterator<Item = i64>>(extents: I) -> Shape {
        Shape::from(extents.into_iter().collect::<Box<[i64]>>())
    }
}

/// Converts extents of type `usize`. The error is an `OverflowError` if an extent does not fit into `i64`.
impl TryFrom<&[usize]> for Shape {
    type Error = Error;
    fn try_from(extents: &[usize]) -> Result<Shape, Error> {
        let extents = extents.iter().map(|extent| i64::try_from(*extent));
        Ok(Shape::from(extents.collect::<Result<Box<[i64]>, _>>()?))
    }
}

impl<'a> IntoIterator for &'a Shape {
    type Item = &'a i64;
    type IntoIter = core::slice::Iter<'a, i64>;
    fn into_iter(self) -> core::slice::Iter<'a, i64> {
        self.iter()
    }
}

impl Default for Shape {
    /// Returns the shape of a scalar, which has no dimensions.
    fn default() -> Shape {
        Shape::from([])
    }
}

// SAFETY: the pointer in the cell refers to the box, which moves with it. Both are read-only.
unsafe impl Send for Content {}

impl Deref for Shape {
    type Target = [i64];
    fn deref(&self) -> &[i64] {
        // SAFETY: in a shape object the cell directly follows the header.
        let cell: *const TVMFFIShapeCell = unsafe { self.0.header().add(1) }.cast();
        // SAFETY: in a shape object the cell directly follows the header; `self` keeps the object alive.
        let cell = unsafe { &*cell };
        if cell.size == 0 {
            return &[];
        }
        // SAFETY: the object owns `size` extents at `data` and never changes them.
        unsafe { core::slice::from_raw_parts(cell.data, cell.size) }
    }
}

impl Shape {
    /// Converts the shape into an object reference.
    pub fn into_object(self) -> ObjectRef {
        self.0
    }

    /// Returns the shape as a borrowed object reference.
    pub fn as_object(&self) -> &ObjectRef {
        &self.0
    }

    /// Casts an object reference to a [`Shape`].
    ///
    /// # Errors
    /// Returns the object if it is not a shape.
    pub fn try_from_object(object: ObjectRef) -> Result<Shape, ObjectRef> {
        if object.type_index() == kTVMFFIShape { Ok(Shape(object)) } else { Err(object) }
    }
}

impl PartialEq for Shape {
    fn eq(&self, other: &Shape) -> bool {
        **self == **other
    }
}
impl Eq for Shape {}

impl Hash for Shape {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

/// Implements the comparison of a shape's extents with those of a slice, an array or a vector.
macro_rules! equal_extents {
    ($( [$($generics:tt)*] $other:ty; )*) => { $(
        impl<$($generics)*> PartialEq<$other> for Shape {
            fn eq(&self, other: &$other) -> bool {
                **self == other[..]
            }
        }
    )* };
}

equal_extents! {
    [] [i64];
    [] &[i64];
    [const N: usize] [i64; N];
    [const N: usize] &[i64; N];
    [] Vec<i64>;
}

impl AsRef<[i64]> for Shape {
    fn as_ref(&self) -> &[i64] {
        self
    }
}

/// Borrows the extents. Shapes are compared and hashed by their extents.
impl Borrow<[i64]> for Shape {
    fn borrow(&self) -> &[i64] {
        self
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shape{:?}", &**self)
    }
}
