//! Fields of objects that can be set at any time, not only during construction.

use core::cell::UnsafeCell;
use core::fmt;
use core::marker::PhantomData;

use crate::record::Slot;
use crate::{Any, FromArg, IntoAny, Result};

/// A field that can be set at any time and holds a value of type `T`.
///
/// Any number of threads may read and set it concurrently; a reader receives a copy of the value. The lock is
/// held only while 16 bytes are copied and a reference is counted, never while code of a type or of another
/// language runs. For integers and booleans, atomics such as [`AtomicI64`](core::sync::atomic::AtomicI64) are
/// faster.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{Cell, Object, Ref, String};
///
/// #[derive(Object)]
/// #[object(key = "doc.Task")]
/// struct Task {
///     #[field(default = "new")]
///     state: Cell<String>,
///     next: Cell<Option<Ref<Task>>>,
/// }
///
/// let task = Ref::new(Task { state: Cell::new("new".into()), next: Cell::new(None) });
/// task.state.set("done".into())?;
/// task.as_object().set_field("next", task.clone())?;
/// assert_eq!(task.state.get(), "done");
/// assert!(task.next.replace(None)?.unwrap().ptr_eq(&task));
/// # Ok::<(), anyfn::Error>(())
/// ```
///
/// A cycle of objects that refer to each other through such fields is not freed: set one of the fields to break the
/// cycle.
#[repr(transparent)]
pub struct Cell<T> {
    slot: UnsafeCell<Slot>,
    value: PhantomData<fn() -> T>,
}

// SAFETY: the slot holds an `Any`, which any thread may use. It is read and written under its own lock.
unsafe impl<T> Send for Cell<T> {}
// SAFETY: the slot holds an `Any`, which any thread may use. It is read and written under its own lock.
unsafe impl<T> Sync for Cell<T> {}

impl<T: IntoAny + for<'a> FromArg<Arg<'a> = T>> Cell<T> {
    /// Creates a cell with this value.
    ///
    /// # Panics
    /// Panics if memory allocation fails.
    pub fn new(value: T) -> Cell<T> {
        match value.into_any() {
            Ok(value) => Cell::of(value),
            Err(error) => panic!("cannot create a Cell: {error}"),
        }
    }

    /// Returns the value.
    ///
    /// # Panics
    /// Panics if `T` is a user-defined type whose [`FromArg`] does not accept the result of its [`IntoAny`].
    pub fn get(&self) -> T {
        Cell::read(&self.any())
    }

    /// Sets the value and drops the previous one.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    pub fn set(&self, value: T) -> Result<()> {
        self.put(value.into_any()?);
        Ok(())
    }

    /// Sets the value and returns the previous one.
    ///
    /// # Errors
    /// Returns `MemoryError` if memory allocation fails.
    ///
    /// # Panics
    /// Panics in the same cases as [`get`](Self::get).
    pub fn replace(&self, value: T) -> Result<T> {
        Ok(Cell::read(&self.put(value.into_any()?)))
    }

    fn read(value: &Any) -> T {
        match T::from_arg(value.view_ref()) {
            Ok(value) => value,
            Err(mismatch) => panic!("the value in a Cell does not have the type of the Cell: {mismatch}"),
        }
    }
}

impl<T> Cell<T> {
    pub(crate) fn of(value: Any) -> Cell<T> {
        Cell { slot: UnsafeCell::new(Slot::from_value(value)), value: PhantomData }
    }

    pub(crate) fn any(&self) -> Any {
        // SAFETY: the slot is live, and only `Slot` accesses it.
        unsafe { Slot::read(self.slot.get()) }.unwrap_or_default()
    }

    pub(crate) fn put(&self, value: Any) -> Any {
        // SAFETY: the slot is live, and only `Slot` accesses it.
        unsafe { Slot::swap(self.slot.get(), value) }
    }
}

impl<T> Drop for Cell<T> {
    fn drop(&mut self) {
        drop(core::mem::replace(self.slot.get_mut(), Slot::UNSET).into_value());
    }
}

impl<T: Default + IntoAny + for<'a> FromArg<Arg<'a> = T>> Default for Cell<T> {
    fn default() -> Cell<T> {
        Cell::new(T::default())
    }
}

impl<T: IntoAny + for<'a> FromArg<Arg<'a> = T>> From<T> for Cell<T> {
    fn from(value: T) -> Cell<T> {
        Cell::new(value)
    }
}

/// Creates another cell with the same value.
impl<T> Clone for Cell<T> {
    fn clone(&self) -> Cell<T> {
        Cell::of(self.any())
    }
}

impl<T> fmt::Debug for Cell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cell").field(&self.any()).finish()
    }
}
