//! Objects and strong and weak references to them.

use core::any::Any as StdAny;
use core::ffi::{c_int, c_void};
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use anyfn_abi::{
    TVMFFIObject, TVMFFIObjectHandle, kTVMFFIObject, kTVMFFIObjectDeleterFlagBitMaskStrong as STRONG,
    kTVMFFIObjectDeleterFlagBitMaskWeak as WEAK,
};

use crate::atomic64::AtomicU64;
use crate::live::Ended;
use crate::{AnyView, PackedFunc, live, nesting, refcount, types};

/// A strong reference to an object of any type.
///
/// Cloning adds a reference and dropping releases it. Both are atomic and may happen on any thread.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{Any, Array, ObjectRef};
///
/// let array: ObjectRef = Array::<Any>::try_from_iter([1, 2])?.into_object();
/// assert_eq!(array.type_key(), "ffi.Array");
/// let other = array.clone();
/// assert!(other.ptr_eq(&array));
/// assert_eq!(array.use_count(), 2);
/// # Ok::<(), anyfn::Error>(())
/// ```
#[repr(transparent)]
pub struct ObjectRef(NonNull<TVMFFIObject>);

// SAFETY: the ABI makes counts atomic and lets any thread release an object. Mutable content is guarded by its own
// operations (List and Dict by a lock in their header, Rust types by `Object: Send + Sync`).
unsafe impl Send for ObjectRef {}
// SAFETY: the ABI makes counts atomic and lets any thread release an object. A shared `ObjectRef` gives only read
// access and new references.
unsafe impl Sync for ObjectRef {}

impl ObjectRef {
    /// Takes ownership of a reference from a handle; returns `None` for NULL.
    ///
    /// # Safety
    /// A non-NULL `handle` must be a valid object handle, and the caller must transfer one of its references.
    #[inline]
    pub unsafe fn from_owned_or_null(handle: TVMFFIObjectHandle) -> Option<Self> {
        NonNull::new(handle.cast()).map(ObjectRef)
    }

    /// Creates a new reference from a borrowed handle; returns `None` for NULL.
    ///
    /// # Safety
    /// A non-NULL `handle` must be a valid object handle.
    #[inline]
    pub unsafe fn from_borrowed_or_null(handle: TVMFFIObjectHandle) -> Option<Self> {
        // SAFETY: the handle is valid, and `ManuallyDrop` keeps the caller's reference untouched.
        let borrowed = ManuallyDrop::new(unsafe { Self::from_owned_or_null(handle) }?);
        Some(ObjectRef::clone(&borrowed))
    }

    /// Returns the handle of the object. The handle is borrowed: it is valid as long as `self`.
    #[inline]
    pub fn as_handle(&self) -> TVMFFIObjectHandle {
        self.0.as_ptr().cast()
    }

    /// Converts the reference into an owned handle, which the caller must release.
    #[inline]
    pub fn into_handle(self) -> TVMFFIObjectHandle {
        ManuallyDrop::new(self).as_handle()
    }

    /// Returns the type index of the object.
    #[inline]
    pub fn type_index(&self) -> i32 {
        // SAFETY: `self` holds a reference, so the header is readable; the type never changes.
        unsafe { (*self.0.as_ptr()).type_index }
    }

    /// Returns the type key of the object, such as `ffi.Array`.
    pub fn type_key(&self) -> &'static str {
        types::type_key(self.type_index())
    }

    /// Returns true if the object is of the type with this index or of a derived type.
    pub fn is_instance(&self, type_index: i32) -> bool {
        types::is_instance(self.type_index(), type_index)
    }

    /// Returns the current number of strong references.
    pub fn use_count(&self) -> usize {
        (self.counter().load(Ordering::Relaxed) & 0xFFFF_FFFF) as usize
    }

    /// Returns true if this is the only reference, strong or weak, so that the object may be changed in place.
    #[inline]
    pub fn is_unique(&self) -> bool {
        self.counter().load(Ordering::Acquire) == refcount::UNIQUE
    }

    /// Returns true if both references refer to the same object.
    #[inline]
    pub fn ptr_eq(&self, other: &ObjectRef) -> bool {
        self.0 == other.0
    }

    /// Creates a weak reference, which does not keep the content alive.
    pub fn downgrade(&self) -> WeakRef {
        refcount::inc_weak(self.counter());
        WeakRef(self.0)
    }

    #[inline]
    pub(crate) fn header(&self) -> *mut TVMFFIObject {
        self.0.as_ptr()
    }

    #[inline]
    fn counter(&self) -> &AtomicU64 {
        // SAFETY: `self` holds a reference, so the header is live as long as the borrow.
        unsafe { counter_of(self.0) }
    }
}

/// Returns the 64-bit counter in an object header, which combines the strong and the weak reference count.
///
/// # Safety
/// The header must be live for `'a`.
#[inline]
unsafe fn counter_of<'a>(header: NonNull<TVMFFIObject>) -> &'a AtomicU64 {
    // SAFETY: the header is live.
    let count = unsafe { &raw mut (*header.as_ptr()).combined_ref_count };
    // SAFETY: the ABI allows only atomic operations on the count.
    unsafe { AtomicU64::from_ptr(count) }
}

/// Releases a strong reference to an object. Does nothing for NULL.
///
/// This is a call and no inline code, because values are dropped in very many places, and most of those values are no
/// objects.
///
/// # Safety
/// The caller must own a strong reference to a non-NULL `object` and transfers it.
#[inline(never)]
pub(crate) unsafe fn release(object: *mut TVMFFIObject) {
    let Some(header) = NonNull::new(object) else { return };
    // SAFETY: the counter is live until `delete` frees it, after which `dec_strong` does not access it.
    let counter = unsafe { counter_of(header) };
    // SAFETY: `delete` is called exactly when the protocol requires it.
    refcount::dec_strong(counter, |flags| unsafe { delete(header, flags) });
}

/// Calls the deleter of an object. `flags` specify whether the deleter destroys the content, frees the
/// memory, or both.
///
/// # Safety
/// The reference counting protocol must have determined that the content or memory that `flags` names is no longer in
/// use.
#[inline]
unsafe fn delete(header: NonNull<TVMFFIObject>, flags: c_int) {
    // SAFETY: the memory has not been freed yet, because only this call frees it.
    let deleter = unsafe { (*header.as_ptr()).deleter };
    if let Some(deleter) = deleter {
        // SAFETY: the protocol calls the object's own deleter once for each flag.
        unsafe { deleter(header.as_ptr().cast(), flags) }
    }
}

impl Clone for ObjectRef {
    #[inline]
    fn clone(&self) -> Self {
        refcount::inc_strong(self.counter());
        ObjectRef(self.0)
    }
}

impl Drop for ObjectRef {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `self` holds a reference, which is not used afterwards.
        unsafe { release(self.0.as_ptr()) };
    }
}

impl fmt::Debug for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({:p})", self.type_key(), self.0)
    }
}

/// A weak reference to an object. It keeps the memory of the object alive, but not the content.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{Any, Array, WeakRef};
///
/// let array = Array::<Any>::try_from_iter([1, 2])?.into_object();
/// let weak: WeakRef = array.downgrade();
/// assert!(weak.upgrade().is_some_and(|same| same.ptr_eq(&array)));
/// drop(array);
/// assert!(weak.upgrade().is_none());
/// # Ok::<(), anyfn::Error>(())
/// ```
pub struct WeakRef(NonNull<TVMFFIObject>);

// SAFETY: the argument for `ObjectRef` applies; a weak reference only counts.
unsafe impl Send for WeakRef {}
// SAFETY: the argument for `ObjectRef` applies; a weak reference only counts.
unsafe impl Sync for WeakRef {}

impl WeakRef {
    /// Returns a strong reference; `None` if the content has been destroyed.
    pub fn upgrade(&self) -> Option<ObjectRef> {
        // SAFETY: the weak reference keeps the memory of the header alive.
        let counter = unsafe { counter_of(self.0) };
        // The reference is created lazily: dropping one that was not obtained would change the count.
        refcount::try_promote(counter).then(|| ObjectRef(self.0))
    }
}

impl Clone for WeakRef {
    fn clone(&self) -> Self {
        // SAFETY: the weak reference keeps the memory of the header alive.
        refcount::inc_weak(unsafe { counter_of(self.0) });
        WeakRef(self.0)
    }
}

impl Drop for WeakRef {
    fn drop(&mut self) {
        let header = self.0;
        // SAFETY: the weak reference keeps the memory of the header alive until `delete` frees it.
        let counter = unsafe { counter_of(header) };
        // SAFETY: `delete` is called exactly when the protocol requires it.
        refcount::dec_weak(counter, |flags| unsafe { delete(header, flags) });
    }
}

/// A Rust type whose values can be the content of an object; implemented by `#[derive(Object)]`.
///
/// Any thread may hold, read and release objects, hence `Send + Sync`.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{Object, Ref, type_key};
///
/// #[derive(Object)]
/// #[object(key = "doc.Object.Point")]
/// struct Point {
///     x: f64,
/// }
///
/// assert_eq!(type_key(Point::type_index()), Point::TYPE_KEY);
/// assert!(Ref::new(Point { x: 0.0 }).as_object().is_instance(Point::type_index()));
/// ```
///
/// # Safety
/// `type_index` must always return the same index, which must be registered for `TYPE_KEY` with `parent_index` as
/// parent. No other Rust type may use that key in this process. If the parent is a Rust type, a value of this type must
/// begin with a value of the parent type.
pub unsafe trait Object: Send + Sync + Sized + 'static {
    /// Unique key of the type.
    const TYPE_KEY: &'static str;

    /// Returns the index of the type, and registers the type at the first use.
    fn type_index() -> i32;

    /// Returns the index of the parent type.
    fn parent_index() -> i32 {
        kTVMFFIObject
    }
}

/// A type that derives from another Rust type; implemented by `#[object(parent = ..)]`.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{Object, Ref};
///
/// #[derive(Object)]
/// #[object(key = "doc.Derived.Shape")]
/// struct Shape {
///     name: String,
/// }
///
/// #[derive(Object)]
/// #[object(key = "doc.Derived.Circle", parent = Shape)]
/// #[repr(C)]
/// struct Circle {
///     shape: Shape,
///     radius: f64,
/// }
///
/// let circle = Ref::new(Circle { shape: Shape { name: "unit".into() }, radius: 1.0 });
/// let shape: Ref<Shape> = circle.into_parent();
/// assert_eq!(shape.name, "unit");
/// assert!(shape.is::<Circle>());
/// ```
///
/// # Safety
/// `Parent` must be the type of `parent_index`, and a value of this type must begin with a value of `Parent`.
pub unsafe trait Derived: Object {
    /// The parent type.
    type Parent: Object;
}

/// Memory layout of an object that Rust code allocates: the header, then the content.
#[repr(C)]
pub(crate) struct ObjectBox<T> {
    pub(crate) header: TVMFFIObject,
    pub(crate) content: T,
}

impl<T> ObjectBox<T> {
    /// Returns the content of an object. No reference to the header is created, because other threads change its
    /// reference counts.
    ///
    /// # Safety
    /// `object` must be an `ObjectBox<T>` and stay alive for `'a`, and no code may change its content during that time.
    #[inline(always)]
    pub(crate) unsafe fn content_of<'a>(object: *mut c_void) -> &'a T {
        // SAFETY: the caller guarantees the object; the reference covers its content alone.
        unsafe { &(*object.cast::<ObjectBox<T>>()).content }
    }
}

impl<T: 'static> ObjectBox<T> {
    /// Allocates an object with one reference, which the caller owns.
    #[inline]
    pub(crate) fn allocate(type_index: i32, flags: u32, content: T) -> ObjectRef {
        let boxed = alloc::boxed::Box::new(ObjectBox {
            header: TVMFFIObject {
                combined_ref_count: refcount::UNIQUE,
                type_index,
                flags,
                deleter: Some(Self::delete),
            },
            content,
        });
        let raw: *mut ObjectBox<T> = alloc::boxed::Box::into_raw(boxed);
        live::created(raw, type_index);
        // SAFETY: `Box` never returns NULL, and the header is the first field of the `repr(C)` struct.
        ObjectRef(unsafe { NonNull::new_unchecked(raw.cast()) })
    }

    live::deleter!(fn delete(object: *mut c_void, flags: c_int) by Self::release);

    /// Releases the content of an object, its memory, or both, as `flags` specify.
    unsafe extern "C" fn release(object: *mut c_void, flags: c_int) -> Ended {
        let this: *mut ObjectBox<T> = object.cast();
        if flags & STRONG != 0 && core::mem::needs_drop::<T>() {
            if !nesting::enter() {
                // SAFETY: this crate created the object, and it is unused. Its content, and its memory if flagged, are
                // handed over.
                unsafe { nesting::defer(object.cast(), flags) };
                return Ended::NONE;
            }
            // SAFETY: the memory is live.
            let content = unsafe { &raw mut (*this).content };
            // SAFETY: no strong reference is left, so the content is dropped only here.
            crate::panics::swallow(|| unsafe { content.drop_in_place() });
            nesting::leave();
        }
        if flags & WEAK == 0 {
            return Ended::NONE;
        }
        // SAFETY: the memory has not been freed yet.
        let ended = live::ending(this, unsafe { (*this).header.type_index });
        // SAFETY: the memory was allocated by `Box` with this layout. The content has been dropped, so only the memory
        // is freed.
        drop(unsafe { alloc::boxed::Box::from_raw(this.cast::<ManuallyDrop<ObjectBox<T>>>()) });
        ended
    }
}

/// A strong reference to an object whose content is the Rust type `T`.
///
/// ```
/// # use anyfn_core as _;
/// use anyfn::{Object, Ref};
///
/// #[derive(Object)]
/// #[object(key = "doc.Ref.Point")]
/// struct Point {
///     x: f64,
/// }
///
/// let point = Ref::new(Point { x: 1.5 });
/// // Dereferences to its content.
/// assert_eq!(point.x, 1.5);
/// let object = point.clone().into_object();
/// assert!(Ref::<Point>::try_from_object(object).is_ok_and(|same| same.ptr_eq(&point)));
/// ```
#[repr(transparent)]
pub struct Ref<T: Object> {
    object: ObjectRef,
    content: PhantomData<T>,
}

impl<T: Object> Ref<T> {
    /// Creates an object from `content`.
    pub fn new(content: T) -> Self {
        Ref { object: ObjectBox::allocate(T::type_index(), 0, content), content: PhantomData }
    }

    /// Converts the reference into an untyped object reference.
    pub fn into_object(self) -> ObjectRef {
        self.object
    }

    /// Returns the reference as a borrowed, untyped object reference.
    pub fn as_object(&self) -> &ObjectRef {
        &self.object
    }

    /// Casts an object reference to the Rust type `T`. The object must be of that type or of a derived type.
    ///
    /// # Errors
    /// Returns the reference if the object is of another type.
    pub fn try_from_object(object: ObjectRef) -> Result<Self, ObjectRef> {
        if is_content::<T>(object.type_index()) {
            Ok(Ref { object, content: PhantomData })
        } else {
            Err(object)
        }
    }

    /// Casts the reference to the type `U`, an ancestor or a derived type of `T`. Returns the reference
    /// unchanged as the error if the object is not of type `U`.
    ///
    /// # Errors
    /// Returns the reference if the object is of another type.
    pub fn cast<U: Object>(self) -> Result<Ref<U>, Self> {
        Ref::try_from_object(self.object).map_err(|object| Ref { object, content: PhantomData })
    }

    /// Casts a borrowed reference to the type `U`, an ancestor or a derived type of `T`; returns `None` if the object
    /// is not of type `U`.
    #[inline]
    pub fn cast_ref<U: Object>(&self) -> Option<&Ref<U>> {
        // SAFETY: both types are transparent over the object, whose type has just been checked.
        self.is::<U>().then(|| unsafe { &*core::ptr::from_ref(self).cast::<Ref<U>>() })
    }

    /// Returns true if the object is of type `U` or of a derived type.
    #[inline]
    pub fn is<U: Object>(&self) -> bool {
        is_content::<U>(self.object.type_index())
    }

    /// Returns true if both references refer to the same object.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.object.ptr_eq(&other.object)
    }

    /// Returns a mutable reference to the content if this is the only reference to the object, and `None` otherwise.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        if !self.object.is_unique() {
            return None;
        }
        // SAFETY: the object is of this type, and no other reference to it exists, not even a weak one.
        Some(unsafe { &mut (*self.object.header().cast::<ObjectBox<T>>()).content })
    }
}

impl<T: Object + Clone> Ref<T> {
    /// Returns a mutable reference to the content. If the object has other references, this reference is first
    /// replaced by a reference to a copy of the object.
    ///
    /// ```
    /// # use anyfn_core as _;
    /// use anyfn::{Object, Ref};
    ///
    /// #[derive(Object, Clone)]
    /// #[object(key = "doc.Range")]
    /// struct Range {
    ///     start: i64,
    ///     stop: i64,
    /// }
    ///
    /// let one = Ref::new(Range { start: 0, stop: 5 });
    /// let mut other = one.clone();
    /// other.make_mut()?.stop = 7;
    /// assert_eq!((one.stop, other.start, other.stop), (5, 0, 7));
    /// # Ok::<(), anyfn::Error>(())
    /// ```
    ///
    /// # Errors
    /// An object of a derived type is copied with the attribute `__ffi_shallow_copy__` of its type. Returns `TypeError`
    /// if the type has no such attribute, and otherwise the error of the copy function.
    pub fn make_mut(&mut self) -> crate::Result<&mut T> {
        if !self.object.is_unique() {
            *self = self.copied()?;
        }
        // SAFETY: the object is of this type, and no other reference to it exists.
        Ok(unsafe { &mut (*self.object.header().cast::<ObjectBox<T>>()).content })
    }

    /// Creates a copy of the object. An object of a derived type is copied by the hook `__ffi_shallow_copy__`
    /// of that type.
    #[cold]
    fn copied(&self) -> crate::Result<Self> {
        let index = self.object.type_index();
        if index == T::type_index() {
            return Ok(Ref::new(T::clone(self)));
        }
        let key = self.object.type_key();
        // SAFETY: an entry that is set holds its value for the lifetime of the process.
        let copy =
            types::attribute("__ffi_shallow_copy__", index).map(|copy| unsafe { AnyView::from_raw(*copy) });
        let Some(copy) = copy else {
            crate::bail!(
                "TypeError",
                "an object of type `{key}` cannot be copied: it has no __ffi_shallow_copy__"
            );
        };
        let made = copy.get::<PackedFunc>()?.call((&self.object,))?.into_object();
        match made.filter(|made| made.type_index() == index && made.is_unique()).map(Ref::try_from_object) {
            Some(Ok(made)) => Ok(made),
            _ => {
                crate::bail!("TypeError", "__ffi_shallow_copy__ of `{key}` returned no new object of that type")
            }
        }
    }
}

impl<T: Derived> Ref<T> {
    /// Converts the reference into a reference of the parent type.
    pub fn into_parent(self) -> Ref<T::Parent> {
        Ref { object: self.object, content: PhantomData }
    }
}

/// Returns true if the content of an object with this type index is a `T` or begins with a `T`.
#[inline]
fn is_content<T: Object>(type_index: i32) -> bool {
    let own = T::type_index();
    type_index == own || types::is_instance(type_index, own)
}

impl<T: Object> Ref<T> {
    /// Returns the content of an object as a `T`; `None` if the object is neither of the type `T`
    /// nor of a derived type.
    #[inline]
    pub(crate) fn content_of(object: &ObjectRef) -> Option<&T> {
        if !is_content::<T>(object.type_index()) {
            return None;
        }
        // SAFETY: the type index guarantees that the object begins with this content, and the borrow keeps it alive.
        Some(unsafe { &(*object.header().cast::<ObjectBox<T>>()).content })
    }
}

impl<T: Object> Deref for Ref<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: a `Ref<T>` is created only for an object of this type, and `self` keeps it alive.
        unsafe { &(*self.object.header().cast::<ObjectBox<T>>()).content }
    }
}

impl<T: Object> Clone for Ref<T> {
    fn clone(&self) -> Self {
        Ref { object: self.object.clone(), content: PhantomData }
    }
}

impl<T: Object + fmt::Debug> fmt::Debug for Ref<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

const _: () = {
    // References may cross threads only because the trait requires these bounds.
    const fn check<T: Object + StdAny + Send + Sync>() {}
    let _ = check::<Never>;
    enum Never {}
    // SAFETY: the type is never registered and has no values; it only checks the bounds above.
    unsafe impl Object for Never {
        const TYPE_KEY: &'static str = "";
        fn type_index() -> i32 {
            kTVMFFIObject
        }
    }
};

/// Adds a weak reference to an object.
///
/// # Safety
/// The object's memory must be live.
#[cfg(feature = "std")]
pub(crate) unsafe fn inc_weak_raw(object: *mut TVMFFIObject) {
    // SAFETY: the caller guarantees a live object, so it is not NULL.
    let header = unsafe { NonNull::new_unchecked(object) };
    // SAFETY: the header is live.
    refcount::inc_weak(unsafe { counter_of(header) });
}

/// Releases a weak reference to an object.
///
/// # Safety
/// The caller must own a weak reference and transfers it.
#[cfg(feature = "std")]
pub(crate) unsafe fn dec_weak_raw(object: *mut TVMFFIObject) {
    // SAFETY: the caller guarantees a live object, so it is not NULL.
    drop(WeakRef(unsafe { NonNull::new_unchecked(object) }));
}
