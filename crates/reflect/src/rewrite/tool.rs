//! Visitors and mutators (`ffi.StructuralVisitor`, `ffi.StructuralMutator`): objects with which a callback or
//! hook processes further values.
//!
//! Code of other languages reads their first two words: a table of functions and the kind of the region. The remaining
//! content is private: it refers to the walk to which the object belongs, while a callback of the walk runs.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use anyfn::abi::{TVMFFIAny, TVMFFIObject, kTVMFFIObject};
use anyfn::{Any, AnyView, Error, ObjectRef, PackedFunc, Result, bail};

use super::Region;
use super::stack::Stack;
use crate::column::{Hook, expected};

/// Signature of a function in the table of a visitor or mutator, and of a native hook of a type.
pub(crate) type Native = unsafe extern "C" fn(*mut TVMFFIObject, TVMFFIAny) -> TVMFFIAny;
type NativeSet = unsafe extern "C" fn(*mut TVMFFIObject, TVMFFIAny, TVMFFIAny) -> TVMFFIAny;

/// Function table of a visitor or mutator. A visitor's table consists of the first function only; a mutator's
/// table has all four.
#[repr(C)]
pub(crate) struct Table {
    /// Function that visits or mutates a value.
    pub(crate) go: Native,
    /// Function that mutates a value in place. No other code may refer to the value.
    pub(crate) go_in_place: Native,
    pub(crate) remap_get: Native,
    pub(crate) remap_set: NativeSet,
}

/// Size of the content that every visitor and mutator has.
pub(crate) const HEAD_SIZE: usize = size_of::<Head>();

/// Beginning of the content of every visitor and mutator. The ABI defines its layout.
#[repr(C)]
struct Head {
    table: *const Table,
    region: AtomicI32,
}

/// Content of a visitor or mutator that this crate created.
#[repr(C)]
struct Content {
    head: Head,
    /// Walk or map that this visitor or mutator belongs to while a callback or hook runs; otherwise
    /// NULL.
    walk: AtomicPtr<c_void>,
    /// Thread on which the walk or map runs.
    thread: AtomicUsize,
    /// Identity of the call stack on which the walk or map runs. A frontend can switch between several call
    /// stacks on one thread.
    part: AtomicPtr<c_void>,
}

// SAFETY: the table is a static; all else is atomic, and the walk is only used on its own stack.
unsafe impl Send for Content {}

/// Kind of a tool object: visitor or mutator.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolKind {
    Visitor,
    Mutator,
}

static VISITOR_TYPE: AtomicI32 = AtomicI32::new(-1);
static MUTATOR_TYPE: AtomicI32 = AtomicI32::new(-1);

/// Returns the type index of visitors or of mutators. The first call registers the type.
///
/// # Panics
/// Panics if another type is registered under the key.
pub(crate) fn type_index(kind: ToolKind) -> i32 {
    let (place, key) = match kind {
        ToolKind::Visitor => (&VISITOR_TYPE, "ffi.StructuralVisitor"),
        ToolKind::Mutator => (&MUTATOR_TYPE, "ffi.StructuralMutator"),
    };
    let known = place.load(Ordering::Acquire);
    if known >= 0 {
        return known;
    }
    match anyfn::__private::claim_key(key, 1, kTVMFFIObject, anyfn::__private::CONTENT_HIDDEN) {
        Ok(index) => {
            place.store(index, Ordering::Release);
            index
        }
        Err(error) => panic!("{error}"),
    }
}

/// Creates a visitor or mutator with the given function table.
pub(crate) fn make(kind: ToolKind, table: &'static Table) -> ObjectRef {
    let head = Head { table, region: AtomicI32::new(Region::None as i32) };
    let (walk, part) = (AtomicPtr::new(ptr::null_mut()), AtomicPtr::new(ptr::null_mut()));
    let content = Content { head, walk, thread: AtomicUsize::new(0), part };
    // SAFETY: visitors and mutators begin with the address of a table of functions, which is static, and the region.
    unsafe { anyfn::__private::new_object(type_index(kind), content) }
}

/// Visitor or mutator, which this crate or another library created.
#[derive(Clone, Copy)]
pub(crate) struct Tool<'a>(&'a ObjectRef);

impl<'a> Tool<'a> {
    /// Returns an object as a tool, after checking that it is a visitor or a mutator, as `kind` specifies.
    ///
    /// # Errors
    /// Returns `TypeError` if it is not.
    pub(crate) fn of(object: &'a ObjectRef, kind: ToolKind) -> Result<Tool<'a>> {
        let index = type_index(kind);
        if object.is_instance(index) {
            return Ok(Tool(object));
        }
        bail!("TypeError", "expected `{}` but got `{}`", anyfn::type_key(index), object.type_key())
    }

    fn head(self) -> &'a Head {
        let content = self.0.as_handle().wrapping_byte_add(size_of::<TVMFFIObject>());
        // SAFETY: all visitors and mutators begin with this content.
        unsafe { &*content.cast::<Head>() }
    }

    /// Returns the definition region of the value that is being processed.
    pub(crate) fn region(self) -> Region {
        Region::from_raw(self.head().region.load(Ordering::Relaxed))
    }

    pub(crate) fn set_region(self, region: Region) {
        self.head().region.store(region as i32, Ordering::Relaxed);
    }

    /// Returns the content of this visitor or mutator if this crate created it with the function table
    /// `table`; otherwise `None`.
    fn content(self, table: &'static Table) -> Option<&'a Content> {
        let content = self.0.as_handle().wrapping_byte_add(size_of::<TVMFFIObject>());
        // SAFETY: only `make` uses the tables of this crate, with this content.
        ptr::eq(self.head().table, table).then(|| unsafe { &*content.cast::<Content>() })
    }

    /// Returns the walk or map that this visitor or mutator currently belongs to; `None` if another
    /// library created the visitor or mutator.
    ///
    /// # Errors
    /// Returns `RuntimeError` if no callback of the walk runs, or it runs on another stack.
    pub(crate) fn walk(self, table: &'static Table) -> Result<Option<*const c_void>> {
        let Some(content) = self.content(table) else { return Ok(None) };
        if !content.walk.load(Ordering::Acquire).is_null() {
            let here = Stack::current();
            // Once the stack is known to be the same, no other code can end the loan meanwhile.
            if content.thread.load(Ordering::Relaxed) == here.thread
                && content.part.load(Ordering::Relaxed) == here.part
            {
                return Ok(Some(content.walk.load(Ordering::Acquire)));
            }
        }
        bail!(
            "RuntimeError",
            "a {} can only be used during the callback that it was passed to, on the same thread (and \
             greenlet)",
            self.0.type_key()
        );
    }

    /// Binds this visitor or mutator to a walk or map while `body` runs. If another library created the
    /// visitor or mutator, runs `body` without binding it.
    pub(crate) fn lend<R>(
        self,
        table: &'static Table,
        walk: *const c_void,
        region: Region,
        body: impl FnOnce() -> R,
    ) -> R {
        let Some(content) = self.content(table) else { return body() };
        /// Guard that restores the previous walk and definition region of a visitor or mutator when it is
        /// dropped, even after a panic.
        struct RestoreGuard<'a> {
            content: &'a Content,
            walk: *mut c_void,
            region: i32,
            /// Identity of this call stack. While this value lives, no other call stack gets the same identity.
            _stack: Stack,
        }
        impl Drop for RestoreGuard<'_> {
            fn drop(&mut self) {
                self.content.walk.store(self.walk, Ordering::Release);
                self.content.head.region.store(self.region, Ordering::Relaxed);
            }
        }
        // Loans of a visitor are nested on one stack: that of its walk.
        let stack = Stack::current();
        content.thread.store(stack.thread, Ordering::Relaxed);
        content.part.store(stack.part, Ordering::Relaxed);
        let walk = content.walk.swap(walk.cast_mut(), Ordering::AcqRel);
        let region = content.head.region.swap(region as i32, Ordering::Relaxed);
        let _loan = RestoreGuard { content, walk, region, _stack: stack };
        body()
    }

    /// Visits or mutates a value by calling the corresponding function in the table of this visitor
    /// or mutator.
    pub(crate) fn go(self, value: &AnyView<'_>, in_place: bool) -> Result<Any> {
        let table = self.head().table;
        let go = if in_place {
            // SAFETY: an object's table lives as long as the object; this function is requested of mutators
            // only, and they have all four.
            unsafe { (*table).go_in_place }
        } else {
            // SAFETY: an object's table lives as long as the object.
            unsafe { (*table).go }
        };
        // SAFETY: the function belongs to the object.
        unsafe { self.call(go, value) }
    }

    /// Calls a type's hook with this visitor or mutator and a value.
    pub(crate) fn call_hook(self, hook: &Hook, value: &AnyView<'_>) -> Result<Any> {
        match hook {
            Hook::Function(function) => expected(function.call_views(&[AnyView::from(self.0), *value])?),
            Hook::Native(address) => {
                // SAFETY: the type declares that it is a function of this kind.
                let native = unsafe { core::mem::transmute::<*mut c_void, Native>(*address) };
                // SAFETY: the type declares that it is a function of this kind.
                unsafe { self.call(native, value) }
            }
        }
    }

    /// Returns the replacement that this mutator has recorded for a variable, or None if none is
    /// recorded.
    pub(crate) fn remap_get(self, variable: &AnyView<'_>) -> Result<Any> {
        // SAFETY: an object's table lives as long as the object.
        let get = unsafe { (*self.head().table).remap_get };
        // SAFETY: the function belongs to the object.
        unsafe { self.call(get, variable) }
    }

    /// Calls a native function with this visitor or mutator as the first argument.
    ///
    /// # Safety
    /// `native` must be a function for this visitor or mutator.
    unsafe fn call(self, native: Native, value: &AnyView<'_>) -> Result<Any> {
        // SAFETY: the caller guarantees the function; the view is valid for the call.
        let raw = unsafe { native(self.0.as_handle().cast(), *value.as_raw()) };
        // SAFETY: the function returns an owned value.
        expected(unsafe { Any::from_raw(raw) })
    }

    /// Records a replacement for a variable in this mutator.
    pub(crate) fn remap_set(self, variable: &AnyView<'_>, value: &AnyView<'_>) -> Result<()> {
        // SAFETY: an object's table lives as long as the object.
        let set = unsafe { (*self.head().table).remap_set };
        // SAFETY: the function belongs to the object, and the views are valid for the call.
        let raw = unsafe { set(self.0.as_handle().cast(), *variable.as_raw(), *value.as_raw()) };
        // SAFETY: the function returns an owned value.
        expected(unsafe { Any::from_raw(raw) }).map(drop)
    }
}

/// Converts a result to the return value of a native function: an error becomes an error object.
pub(crate) fn to_native(result: Result<Any>) -> TVMFFIAny {
    match result {
        Ok(value) => value.into_raw(),
        Err(error) => Any::from(error.into_object()).into_raw(),
    }
}

/// Runs `body`, the body of a native function, and converts its result to the return value. An error or a
/// panic becomes an error object.
pub(crate) fn native(body: impl FnOnce() -> Result<Any>) -> TVMFFIAny {
    to_native(anyfn::__private::catch(body))
}

/// Converts a borrowed object handle to an owned reference to the object.
///
/// # Safety
/// The handle must belong to an object that is valid for the call.
pub(crate) unsafe fn borrowed(handle: *mut TVMFFIObject) -> Result<ObjectRef> {
    // SAFETY: the caller guarantees the handle.
    unsafe { ObjectRef::from_borrowed_or_null(handle.cast()) }
        .ok_or_else(|| Error::new("TypeError", "expected a visitor or mutator but got NULL"))
}

/// Calls `body` while `tool`, a visitor or mutator, is in the definition region `region`. If `tool` is already in a
/// pattern region, `region` has no effect.
pub(crate) fn with_region(tool: Tool<'_>, region: Region, body: &PackedFunc) -> Result<Any> {
    let before = tool.region();
    if before == Region::Pattern {
        return body.call(());
    }
    tool.set_region(region);
    let result = body.call(());
    tool.set_region(before);
    result
}
