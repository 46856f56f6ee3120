//! Walking and rewriting graphs of objects with callbacks.
//!
//! [`walk`] calls a function for each value of a graph, [`map`] puts what a function returns in the place of each value.
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
//! - `links`: callbacks. `plan`: what is known of a type. `children`: the children of a value. - `walk`, `map`: the two
//!   engines. `tool`: the visitor and mutator objects that callbacks get. `stack`: which stack they work on. - `rebuild`: copies. `fail`,
//!   `paths`: where an error happened. `globals`: the registered functions.

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

/// When callbacks come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Before the children.
    Pre,
    /// After the children.
    Post,
    /// In the place of the children, which a callback visits itself.
    Own,
}

/// Whether variables are being defined where a value is.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Region {
    /// They are used.
    None = 0,
    /// All variables in the value are defined, also those deep inside.
    Pattern = 1,
    /// The value itself is a variable that is defined; what it holds are uses.
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

    /// The region inside of this one that a field opens. A pattern goes all the way down.
    #[inline]
    fn with(self, opens: Option<Region>) -> Region {
        match (self, opens) {
            (Region::Pattern, _) | (_, None) => self,
            (_, Some(opens)) => opens,
        }
    }
}

/// A view of an owned value as that value.
fn as_any<'a>(view: &'a AnyView<'_>) -> &'a Any {
    // SAFETY: both are transparent over the same struct, and walks make views of owned values only.
    unsafe { &*core::ptr::from_ref(view).cast::<Any>() }
}

/// How a walk goes on.
pub enum Flow {
    /// To the children of the value, then further.
    Advance,
    /// Past the children of the value.
    Skip,
    /// No further: the walk ends with this value.
    Stop(Any),
}

/// What a callback of a walk may return: nothing, a [`Flow`], or a `Result` of either.
pub trait IntoFlow {
    /// As the walk takes it.
    ///
    /// # Errors
    /// That of the callback.
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

/// A `ffi.VisitInterrupt` with a value.
fn interrupt(value: Any) -> ObjectRef {
    // SAFETY: an interrupt holds a value right behind its header.
    unsafe { anyfn::__private::new_object(kTVMFFIVisitInterrupt, value) }
}

/// The value of a `ffi.VisitInterrupt`.
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

/// Calls a function for each value of a graph, children first; gives the value that it has stopped with.
///
/// # Errors
/// That of the function, with the path to the value in its context; `ValueError` if an object contains itself.
pub fn walk<R: IntoFlow>(root: &Any, f: impl FnMut(&Any) -> R) -> Result<Option<Any>> {
    let mut walk = Walk::new();
    walk.on_any(f);
    walk.run(root)
}

/// Puts what a function returns in the place of each value of a graph, children first; `None` keeps the value.
///
/// What does not change stays the same object; if nobody else knows the graph it is changed in place. An object that is
/// reached twice is mapped once.
///
/// # Errors
/// That of the function, with the path to the value in its context; `ValueError` if an object contains itself;
/// `TypeError` if a field does not take a value, or an object cannot be copied.
pub fn map(root: Any, f: impl FnMut(&Any) -> Result<Option<Any>>) -> Result<Any> {
    let mut rewrite = Rewrite::new();
    rewrite.on_any(f);
    rewrite.run(root)
}

/// A walk with several callbacks: of those that take a value, the one that was added first gets it.
#[derive(Default)]
pub struct Walk<'a> {
    links: Links<'a>,
    pre: bool,
    once: bool,
}

impl<'a> Walk<'a> {
    /// A walk without callbacks, which come after the children of a value.
    #[must_use]
    pub fn new() -> Walk<'a> {
        Walk::default()
    }

    /// Callbacks come before the children of their value, which they can pass over ([`Flow::Skip`]).
    pub fn pre_order(&mut self) -> &mut Self {
        self.pre = true;
        self
    }

    /// An object that is reached again is passed over.
    pub fn once(&mut self) -> &mut Self {
        self.once = true;
        self
    }

    /// Adds a callback for objects of a Rust type.
    pub fn on<T: Object, R: IntoFlow>(&mut self, mut f: impl FnMut(&Ref<T>) -> R + 'a) -> &mut Self {
        self.on_type(T::type_index(), move |value| match value.get::<Ref<T>>() {
            Ok(object) => f(&object).into_flow(),
            // An object of a derived type, whose content is another one.
            Err(_) => Ok(Flow::Advance),
        })
    }

    /// Adds a callback for values of the type with this index and of those derived from it.
    pub fn on_type<R: IntoFlow>(&mut self, type_index: i32, mut f: impl FnMut(&Any) -> R + 'a) -> &mut Self {
        self.links.add_native(type_index, Box::new(move |value, _| f(value).into_flow().map(flow_value)));
        self
    }

    /// Adds a callback for all values.
    pub fn on_any<R: IntoFlow>(&mut self, f: impl FnMut(&Any) -> R + 'a) -> &mut Self {
        self.on_type(kTVMFFIAny, f)
    }

    /// Walks a graph; gives the value that a callback has stopped it with.
    ///
    /// # Errors
    /// As [`walk`].
    pub fn run(&mut self, root: &Any) -> Result<Option<Any>> {
        let order = if self.pre { Order::Pre } else { Order::Post };
        let walk = walk::Walk::new(core::mem::take(&mut self.links), order, self.once);
        let stop = walk.run(&root.as_view());
        self.links = walk.into_links();
        Ok(stop?.map(|interrupt| interrupt_value(&interrupt)))
    }
}

/// A map with several callbacks: of those that take a value, the one that was added first gets it.
#[derive(Default)]
pub struct Rewrite<'a> {
    links: Links<'a>,
    pre: bool,
    unshared: bool,
}

impl<'a> Rewrite<'a> {
    /// A map without callbacks, which come after the children of a value.
    #[must_use]
    pub fn new() -> Rewrite<'a> {
        Rewrite::default()
    }

    /// Callbacks come before the children of their value; what they return is mapped on.
    pub fn pre_order(&mut self) -> &mut Self {
        self.pre = true;
        self
    }

    /// An object that is reached again is mapped again, as if the graph were a tree.
    pub fn each_time(&mut self) -> &mut Self {
        self.unshared = true;
        self
    }

    /// Adds a callback for objects of a Rust type; `None` keeps the object.
    pub fn on<T: Object>(&mut self, mut f: impl FnMut(&Ref<T>) -> Result<Option<ObjectRef>> + 'a) -> &mut Self {
        self.on_type(T::type_index(), move |value| match value.get::<Ref<T>>() {
            Ok(object) => Ok(f(&object)?.map(Any::from)),
            // An object of a derived type, whose content is another one.
            Err(_) => Ok(None),
        })
    }

    /// Adds a callback for values of the type with this index and of those derived from it; `None` keeps the value.
    pub fn on_type(
        &mut self,
        type_index: i32,
        mut f: impl FnMut(&Any) -> Result<Option<Any>> + 'a,
    ) -> &mut Self {
        self.links.add_native(type_index, Box::new(move |value, _| Ok(f(value)?.unwrap_or_else(unchanged))));
        self
    }

    /// Adds a callback for all values; `None` keeps the value.
    pub fn on_any(&mut self, f: impl FnMut(&Any) -> Result<Option<Any>> + 'a) -> &mut Self {
        self.on_type(kTVMFFIAny, f)
    }

    /// Maps a graph; if nobody else knows it, in place.
    ///
    /// # Errors
    /// As [`map`].
    pub fn run(&mut self, root: Any) -> Result<Any> {
        let order = if self.pre { Order::Pre } else { Order::Post };
        let mapping = map::Mapping::new(core::mem::take(&mut self.links), order, !self.unshared);
        let result = mapping.run(root);
        self.links = mapping.into_links();
        result
    }
}

/// The access path to where an error happened in a walk or map, such as `<root>.body[2]`.
#[must_use]
pub fn error_path(error: &Error) -> Option<alloc::string::String> {
    fail::path_of(error)
}
