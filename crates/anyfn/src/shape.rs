//! Shapes: sequences of extents as objects.

use core::fmt;
use core::ops::Deref;

use alloc::boxed::Box;

use anyfn_abi::{TVMFFIShapeCell, kTVMFFIShape};

use crate::ObjectRef;
use crate::object::ObjectBox;

/// An immutable, shared sequence of extents.
///
/// ```
/// # use anyfn_core as _;
/// let shape = anyfn::Shape::from(&[2, 3][..]);
/// assert_eq!(&shape[..], &[2, 3]);
/// ```
#[derive(Clone)]
#[repr(transparent)]
pub struct Shape(ObjectRef);

/// Content of a shape object that this crate creates. The cell points into the box.
#[repr(C)]
struct Content {
    cell: TVMFFIShapeCell,
    extents: Box<[i64]>,
}

impl From<&[i64]> for Shape {
    fn from(extents: &[i64]) -> Shape {
        let extents: Box<[i64]> = extents.into();
        let cell = TVMFFIShapeCell { data: extents.as_ptr(), size: extents.len() };
        Shape(ObjectBox::allocate(kTVMFFIShape, 0, Content { cell, extents }))
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

    /// Casts a shape object to a shape.
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

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shape{:?}", &**self)
    }
}
