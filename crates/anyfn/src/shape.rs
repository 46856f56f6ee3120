//! Shapes.

use core::fmt;
use core::ops::Deref;

use alloc::boxed::Box;

use anyfn_abi::{TVMFFIShapeCell, kTVMFFIShape};

use crate::ObjectRef;
use crate::object::ObjectBox;

/// A list of extents, immutable and shared.
///
/// ```
/// # use anyfn_core as _;
/// let shape = anyfn::Shape::from(&[2, 3][..]);
/// assert_eq!(&shape[..], &[2, 3]);
/// ```
#[derive(Clone)]
#[repr(transparent)]
pub struct Shape(ObjectRef);

/// What a shape object of this crate holds; the cell points into the box.
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

// SAFETY: the pointer in the cell is to the box, which moves with it; both are read-only.
unsafe impl Send for Content {}

impl Deref for Shape {
    type Target = [i64];
    fn deref(&self) -> &[i64] {
        // SAFETY: a shape object has the cell right behind the header.
        let cell: *const TVMFFIShapeCell = unsafe { self.0.header().add(1) }.cast();
        // SAFETY: a shape object has the cell right behind the header; `self` keeps it alive.
        let cell = unsafe { &*cell };
        if cell.size == 0 {
            return &[];
        }
        // SAFETY: the object owns `size` extents at `data` and never changes them.
        unsafe { core::slice::from_raw_parts(cell.data, cell.size) }
    }
}

impl Shape {
    /// The shape as an object.
    pub fn into_object(self) -> ObjectRef {
        self.0
    }

    /// The shape as an object, borrowed.
    pub fn as_object(&self) -> &ObjectRef {
        &self.0
    }

    /// A shape object as a shape.
    ///
    /// # Errors
    /// The object itself, if it is none.
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
