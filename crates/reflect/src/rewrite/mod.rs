//! Walking and rewriting graphs of objects with callbacks.
//!
//! [`walk`] calls a function for each value of a graph. [`map`] replaces each value by the result of a function.
//! [`Walk`] and [`Rewrite`] take several callbacks, each for the objects of a type:
//!
//! ```
//! # use anyfn_core as _;
//! use anyfn::{Any, Array};
//! use anyfn_reflect::{Flow, Rewrite, walk};
//!
//! let graph = Any::new(Array::<Any>::try_from_iter([Any::new(1)?, Any::new(2)?])?)?;
//! let mut sum = 0;
//! walk(&graph, |value| {
//!     sum += value.get::<i64>().unwrap_or_default();
//! })?;
//! assert_eq!(sum, 3);
//!
//! let mut rewrite = Rewrite::new();
//! rewrite.on_type(anyfn::abi::kTVMFFIInt, |value| Ok(Some(Any::new(value.get::<i64>()? + 1)?)));
//! let new = rewrite.run(graph)?;
//! assert_eq!(new.get::<Array<i64>>()?.to_vec()?, [2, 3]);
//! # Ok::<(), anyfn::Error>(())
//! ```
//!
//! Modules in reading order: `links` (callbacks), `plan` (information about a type), `children` (the children of a
//! value), `walk` and `map` (the two engines), `tool` (the visitor and mutator objects that callbacks receive), `stack`
//! (identification of the current stack), `rebuild` (copies), `fail` and `paths` (the location of an error), `globals`
//! (the registered functions).

mod children;
mod fail;
mod globals;
mod links;
mod map;
mod paths;
mod plan;
mod rebuild;
mod seen;
mod stack;
mod tool;
mod walk;

use alloc::boxed::Box;

use anyfn::abi::{TVMFFIObject, kTVMFFIAny, kTVMFFIInt, kTVMFFIUnchanged, kTVMFFIVisitInterrupt};
use anyfn::{Any, AnyView, Error, Object, ObjectRef, Ref, Result};

use links::Links;

/// Time at which a callback for a value runs, relative to the children of the value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// The callback runs before the children are visited.
    Pre,
    /// The callback runs after the children have been visited.
    Post,
    /// The callback replaces the default visit and visits the children itself.
    Own,
}

/// Kind of a definition region, which determines whether variables in it are definitions or uses.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Region {
    /// Variables in the region are uses.
    None = 0,
    /// All variables in the region are definitions, at any depth.
    Pattern = 1,
    /// The value in the region is a variable, and this occurrence defines it. Variables in the fields of that
    /// variable are uses.
    Simple = 2,
}

impl Region {
    fn from_raw(raw: i32) -> Region {
        match raw {
            1 => Region::Pattern,
            2 => Region::Simple,
            _ => Region::None,
        }
    }

    /// Returns the definition region of a child of a value in this region. `opens` is the region that begins
    /// at the child's field, if any. In a pattern, which extends to all nested values, `opens` is ignored.
    #[inline]
    fn with(self, opens: Option<Region>) -> Region {
        match (self, opens) {
            (Region::Pattern, _) | (_, None) => self,
            (_, Some(opens)) => opens,
        }
    }
}

/// Converts a view to a reference to a value. The view must be a view of an owned value.
fn as_any<'a>(view: &'a AnyView<'_>) -> &'a Any {
    // SAFETY: both are transparent over the same struct, and walks create views of owned values only.
    unsafe { &*core::ptr::from_ref(view).cast::<Any>() }
}

/// Decision of a callback about how the walk continues.
pub enum Flow {
    /// The walk continues with the children of the value.
    Advance,
    /// The walk skips the children of the value and continues.
    Skip,
    /// The walk ends and returns the contained value.
    Stop(Any),
}

/// Return type of a callback of a walk: `()`, a [`Flow`], or a `Result` of either.
pub trait IntoFlow {
    /// Converts the return value of a callback to a [`Flow`].
    ///
    /// # Errors
    /// Returns the error of the callback.
    fn into_flow(self) -> Result<Flow>;
}

impl IntoFlow for () {
    fn into_flow(self) -> Result<Flow> {
        Ok(Flow::Advance)
    }
}

impl IntoFlow for Flow {
    fn into_flow(self) -> Result<Flow> {
        Ok(self)
    }
}

impl<T: IntoFlow> IntoFlow for Result<T> {
    fn into_flow(self) -> Result<Flow> {
        self?.into_flow()
    }
}

fn flow_value(flow: Flow) -> Any {
    let int = |value: u64| {
        // SAFETY: an int holds no reference.
        unsafe { Any::from_raw(anyfn::abi::TVMFFIAny::from_bits(kTVMFFIInt, value)) }
    };
    match flow {
        Flow::Advance => int(0),
        Flow::Skip => int(1),
        Flow::Stop(value) => Any::from(interrupt(value)),
    }
}

/// Creates an `ffi.VisitInterrupt`, which ends a walk with the result `value`.
fn interrupt(value: Any) -> ObjectRef {
    // SAFETY: the content of an interrupt is a value.
    unsafe { anyfn::__private::new_object(kTVMFFIVisitInterrupt, value) }
}

/// Returns the value that an `ffi.VisitInterrupt` contains.
fn interrupt_value(interrupt: &Any) -> Any {
    match interrupt.as_object() {
        Some(object) if object.type_index() == kTVMFFIVisitInterrupt => {
            let content = object.as_handle().wrapping_byte_add(size_of::<TVMFFIObject>());
            // SAFETY: objects of this type have their value behind the header.
            unsafe { &*content.cast::<Any>() }.clone()
        }
        _ => Any::NONE,
    }
}

fn unchanged() -> Any {
    // SAFETY: a value that holds no reference.
    unsafe { Any::from_raw(anyfn::abi::TVMFFIAny::from_bits(kTVMFFIUnchanged, 0)) }
}

/// Calls `f` for each value of a graph except None, children before their parents. Returns the value of
/// [`Flow::Stop`] if `f` ended the walk with it, otherwise `None`.
///
/// # Errors
/// Returns the error of `f`, with the path to the value in its context; `ValueError` if an object contains itself.
pub fn walk<R: IntoFlow>(root: &Any, f: impl FnMut(&Any) -> R) -> Result<Option<Any>> {
    let mut walk = Walk::new();
    walk.on_any(f);
    walk.run(root)
}

/// Replaces each value of a graph by the result of `f`, children before their parents. If `f` returns `None`,
/// the value is kept.
///
/// Unchanged values remain the same objects. If no other reference to the graph exists, it is changed in place. An
/// object that is reached several times is mapped once.
///
/// # Errors
/// Returns the error of `f`, with the path to the value in its context; `ValueError` if an object contains itself;
/// `TypeError` if a field does not accept a value, or an object cannot be copied.
pub fn map(root: Any, f: impl FnMut(&Any) -> Result<Option<Any>>) -> Result<Any> {
    let mut rewrite = Rewrite::new();
    rewrite.on_any(f);
    rewrite.run(root)
}

/// Walk over a graph with several callbacks. If several callbacks accept the type of a value, only the one
/// added first is called.
#[derive(Default)]
pub struct Walk<'a> {
    links: Links<'a>,
    pre: bool,
    once: bool,
}

impl<'a> Walk<'a> {
    /// Creates a walk without callbacks. A callback runs after the children of its value, unless
    /// [`Walk::pre_order`] is called.
    #[must_use]
    pub fn new() -> Walk<'a> {
        Walk::default()
    }

    /// Makes each callback run before the children of its value are visited. A callback can skip the children
    /// with [`Flow::Skip`].
    pub fn pre_order(&mut self) -> &mut Self {
        self.pre = true;
        self
    }

    /// Makes the walk skip objects that it has already visited.
    pub fn once(&mut self) -> &mut Self {
        self.once = true;
        self
    }

    /// Adds a callback for objects of the Rust type `T`.
    pub fn on<T: Object, R: IntoFlow>(&mut self, mut f: impl FnMut(&Ref<T>) -> R + 'a) -> &mut Self {
        self.on_type(T::type_index(), move |value| match value.get::<Ref<T>>() {
            Ok(object) => f(&object).into_flow(),
            // An object of a derived type, which has other content.
            Err(_) => Ok(Flow::Advance),
        })
    }

    /// Adds a callback for values of the type with the index `type_index` and of its derived types.
    pub fn on_type<R: IntoFlow>(&mut self, type_index: i32, mut f: impl FnMut(&Any) -> R + 'a) -> &mut Self {
        self.links.add_native(type_index, Box::new(move |value, _| f(value).into_flow().map(flow_value)));
        self
    }

    /// Adds a callback for values of all types.
    pub fn on_any<R: IntoFlow>(&mut self, f: impl FnMut(&Any) -> R + 'a) -> &mut Self {
        self.on_type(kTVMFFIAny, f)
    }

    /// Walks the graph of `root`. Returns the value of [`Flow::Stop`] if a callback ended the walk with it,
    /// otherwise `None`.
    ///
    /// # Errors
    /// Returns the errors of [`walk`].
    pub fn run(&mut self, root: &Any) -> Result<Option<Any>> {
        let order = if self.pre { Order::Pre } else { Order::Post };
        let walk = walk::Walk::new(core::mem::take(&mut self.links), order, self.once);
        let stop = walk.run(&root.as_view());
        self.links = walk.into_links();
        Ok(stop?.map(|interrupt| interrupt_value(&interrupt)))
    }
}

/// Map over a graph with several callbacks. If several callbacks accept the type of a value, only the one
/// added first is called.
#[derive(Default)]
pub struct Rewrite<'a> {
    links: Links<'a>,
    pre: bool,
    unshared: bool,
}

impl<'a> Rewrite<'a> {
    /// Creates a map without callbacks. A callback runs after the children of its value, unless
    /// [`Rewrite::pre_order`] is called.
    #[must_use]
    pub fn new() -> Rewrite<'a> {
        Rewrite::default()
    }

    /// Makes each callback run before the children of its value are mapped. The map then continues with the
    /// children of the callback's result.
    pub fn pre_order(&mut self) -> &mut Self {
        self.pre = true;
        self
    }

    /// Makes the map process a shared object again each time that it is reached, as if the graph were a tree.
    pub fn each_time(&mut self) -> &mut Self {
        self.unshared = true;
        self
    }

    /// Adds a callback for objects of the Rust type `T`. If the callback returns `None`, the object is kept.
    pub fn on<T: Object>(&mut self, mut f: impl FnMut(&Ref<T>) -> Result<Option<ObjectRef>> + 'a) -> &mut Self {
        self.on_type(T::type_index(), move |value| match value.get::<Ref<T>>() {
            Ok(object) => Ok(f(&object)?.map(Any::from)),
            // An object of a derived type, which has other content.
            Err(_) => Ok(None),
        })
    }

    /// Adds a callback for values of the type with the index `type_index` and of its derived types. If the
    /// callback returns `None`, the value is kept.
    pub fn on_type(
        &mut self,
        type_index: i32,
        mut f: impl FnMut(&Any) -> Result<Option<Any>> + 'a,
    ) -> &mut Self {
        self.links.add_native(type_index, Box::new(move |value, _| Ok(f(value)?.unwrap_or_else(unchanged))));
        self
    }

    /// Adds a callback for values of all types. If the callback returns `None`, the value is kept.
    pub fn on_any(&mut self, f: impl FnMut(&Any) -> Result<Option<Any>> + 'a) -> &mut Self {
        self.on_type(kTVMFFIAny, f)
    }

    /// Maps the graph of `root`. Objects to which no other code refers are changed in place.
    ///
    /// # Errors
    /// Returns the errors of [`map`].
    pub fn run(&mut self, root: Any) -> Result<Any> {
        let order = if self.pre { Order::Pre } else { Order::Post };
        let mapping = map::Mapping::new(core::mem::take(&mut self.links), order, !self.unshared);
        let result = mapping.run(root);
        self.links = mapping.into_links();
        result
    }
}

/// Returns the access path to the location of an error in a walk or map, such as `<root>.body[2]`.
#[must_use]
pub fn error_path(error: &Error) -> Option<alloc::string::String> {
    fail::path_of(error)
}
