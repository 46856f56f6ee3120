//! The state of an environment: the table of slots, the functions of the package that native code calls, and the typed arrays that
//! calls in progress have lent to native code.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::Arc;

use anyfn::ObjectRef;
use anyfn::abi::{DLTensor, TVMFFIObject, kTVMFFIDLTensorPtr, kTVMFFIFunction, kTVMFFITensor};
use anyfn::{AnyView, TensorView};

use crate::callee::{Callee, OwnedCallee};
use crate::env::{Env, Ref, Res, Value};
use crate::shared::Shared;
use crate::slots::{self, Slots};
use crate::sys;

/// Values of the package that native code uses.
#[derive(Default)]
pub(crate) struct Hooks {
    /// Symbol of the property that contains the slot of an object, or the negative tag of a value.
    pub(crate) tag: Cell<Option<Ref>>,
    /// Symbol of the property that contains the content of a tagged value.
    pub(crate) content: Cell<Option<Ref>>,
    /// `(slot, typeIndex, direct) -> object`: makes the JavaScript object of a native object. `direct` is the function, if native code has
    /// made it.
    pub(crate) wrap: Cell<Option<Ref>>,
    /// `(typeIndex, content) -> value`: makes a data type, device or opaque pointer from its eight bytes as a bigint.
    pub(crate) word: Cell<Option<Ref>>,
    /// `(buffer) -> Bytes`.
    pub(crate) bytes: Cell<Option<Ref>>,
    /// `(array) -> boolean`: returns true if a `Uint8Array` represents bytes, not a tensor.
    pub(crate) is_bytes: Cell<Option<Ref>>,
    /// `(value) -> object`: converts a value of any other class to a native object, or throws.
    pub(crate) convert: Cell<Option<Ref>>,
    /// `(error) -> [kind, message, backtrace, cause]`: describes a JavaScript exception.
    pub(crate) describe: Cell<Option<Ref>>,
    /// `(promise, number) -> undefined`: calls `settle` when a promise is settled.
    pub(crate) watch: Cell<Option<Ref>>,
}

/// A typed array that a call in progress has lent to native code.
#[derive(Clone, Copy)]
pub(crate) struct Lent {
    pub(crate) tensor: *const DLTensor,
    pub(crate) array: Value,
    /// True if native code has received the address of the memory. False if the callee is a JavaScript function.
    pub(crate) is_held: bool,
}

thread_local! {
    /// States of the environments of this thread: one for each time that JavaScript has loaded the addon.
    static HERE: RefCell<Vec<*const State>> = const { RefCell::new(Vec::new()) };
}

/// Adds the state of an environment of this thread. [`leave_thread`] must be called before the state is freed.
pub(crate) fn enter_thread(state: *const State) {
    let _ = HERE.try_with(|here| here.borrow_mut().push(state));
}

/// Removes the state of an environment that ends.
pub(crate) fn leave_thread(state: *const State) {
    let _ = HERE.try_with(|here| here.borrow_mut().retain(|other| *other != state));
}

/// Returns the typed arrays that calls in progress on this thread have lent, whichever environment made the calls.
pub(crate) fn lent_here() -> Vec<Lent> {
    let mut all = Vec::new();
    let _ = HERE.try_with(|here| {
        for state in &*here.borrow() {
            // SAFETY: a state stays valid until `leave_thread` removes it.
            all.extend_from_slice(&unsafe { &**state }.lent.borrow());
        }
    });
    all
}

/// State of an environment. It is used only on the environment's thread.
pub(crate) struct State {
    pub(crate) shared: Arc<Shared>,
    pub(crate) hooks: Hooks,
    pub(crate) slots: RefCell<Slots>,
    pub(crate) lent: RefCell<Vec<Lent>>,
    /// Number of calls on other threads whose promises are not settled.
    pub(crate) pending: Cell<u32>,
    pub(crate) waker: Cell<crate::env::Waker>,
}

/// Returns false if an environment of this thread is being terminated, for example because the process exits. The thread that ends it
/// waits for this one.
pub(crate) fn is_running() -> bool {
    let states = HERE.try_with(|here| here.borrow().clone()).unwrap_or_default();
    states.into_iter().all(|state| {
        // SAFETY: a state stays valid until `leave_thread` removes it, which happens on this thread.
        let state = unsafe { &*state };
        let Some((env, _)) = state.shared.here() else { return true };
        // SAFETY: this is the thread of the environment, which has not ended; the scope is opened below.
        let env = unsafe { Env::from_raw(env) };
        let refused = env.scoped(|| {
            let function = state.hooks.wrap.get().and_then(|function| env.get(function));
            // An environment that is being terminated refuses this without an exception.
            function
                .is_some_and(|function| env.named(function, c"name").is_err() && !env.is_exception_pending())
        });
        refused.is_ok_and(|refused| !refused)
    })
}

/// An environment with its state.
#[derive(Clone, Copy)]
pub(crate) struct Js<'a> {
    pub(crate) env: Env,
    pub(crate) state: &'a State,
}

impl<'a> Js<'a> {
    /// Calls a function of the package.
    pub(crate) fn call_hook(self, hook: &Cell<Option<Ref>>, args: &[Value]) -> Res<Value> {
        let function = self.hook(hook)?;
        self.env.call(function, args)
    }

    /// Returns a value of the package.
    #[inline]
    pub(crate) fn hook(self, hook: &Cell<Option<Ref>>) -> Res<Value> {
        match hook.get().and_then(|reference| self.env.get(reference)) {
            Some(value) => Ok(value),
            None => self.env.error("the package anyfn is not initialised"),
        }
    }

    /// Returns the tag of a value, or `None` if it has none.
    #[inline]
    pub(crate) fn tag_of(self, value: Value) -> Res<Option<f64>> {
        let key = self.hook(&self.state.hooks.tag)?;
        let tag = self.env.property(value, key)?;
        Ok(self.env.to_double(tag).ok())
    }

    /// Returns the content of a tagged value.
    pub(crate) fn content_of(self, value: Value) -> Res<Value> {
        let key = self.hook(&self.state.hooks.content)?;
        self.env.property(value, key)
    }

    /// Returns a new reference to the object of a slot.
    pub(crate) fn object_of_slot(self, slot: f64) -> Res<ObjectRef> {
        let object = self.state.slots.borrow().get(slot).map(|(_, object)| object.clone());
        match object {
            Some(object) => Ok(object),
            None => self.env.error("this object was disposed of, or belongs to another thread"),
        }
    }

    /// Returns a new reference to the object of the slot whose number is the value.
    pub(crate) fn object_at(self, slot: Value) -> Res<ObjectRef> {
        let slot = self.env.number(slot)?;
        self.object_of_slot(slot)
    }

    /// Returns the JavaScript object of a native object, and makes it if necessary.
    pub(crate) fn wrap(self, object: ObjectRef) -> Res<Value> {
        self.wrap_as(object, None)
    }

    /// Returns the JavaScript object of a native object. If it does not exist yet and the object is a function, it becomes a function of
    /// its own, which calls `direct`.
    pub(crate) fn wrap_as(self, object: ObjectRef, direct: Option<sys::Callback>) -> Res<Value> {
        let handle: *mut TVMFFIObject = object.as_handle().cast();
        let known = self.state.slots.borrow().wrapper_of(self.env, handle);
        if let Some(known) = known {
            return Ok(known);
        }
        self.sweep_if_due();
        let type_index = object.type_index();
        let bytes = if type_index == kTVMFFITensor { tensor_bytes(&object) } else { 0 };
        if bytes != 0 {
            self.env.adjust_memory(bytes);
        }
        let direct = direct.filter(|_| type_index == kTVMFFIFunction);
        let callee = direct.map(|_| OwnedCallee::new(ptr::from_ref(self.state).cast(), &object));
        let data = callee.as_ref().map_or(ptr::null_mut(), OwnedCallee::as_ptr);
        let (index, number) = self.state.slots.borrow_mut().add(object, bytes, callee);
        let made = self.make_wrapper(number, type_index, direct.map(|function| (function, data)));
        match made {
            Ok((wrapper, weak)) => {
                self.state.slots.borrow_mut().set_wrapper(index, weak);
                Ok(wrapper)
            }
            Err(thrown) => {
                self.release(index);
                Err(thrown)
            }
        }
    }

    fn make_wrapper(
        self,
        number: f64,
        type_index: i32,
        direct: Option<(sys::Callback, *mut Callee)>,
    ) -> Res<(Value, Ref)> {
        let mut args = [self.env.double(number)?, self.env.int32(type_index)?, Value::NONE];
        let mut count = 2;
        if let Some((function, data)) = direct {
            args[2] = self.env.function("", function, data.cast())?;
            count = 3;
        }
        let wrapper = self.call_hook(&self.state.hooks.wrap, &args[..count])?;
        Ok((wrapper, self.env.weak(wrapper)?))
    }

    /// Releases a slot.
    pub(crate) fn release(self, index: usize) {
        let released = self.state.slots.borrow_mut().release(self.env, index);
        slots::drop_released(self.env, released);
    }

    fn sweep_if_due(self) {
        if self.state.slots.borrow().is_sweep_due() {
            self.sweep(usize::MAX);
        }
    }

    /// Releases native objects whose JavaScript objects are gone, among at most `limit` objects.
    pub(crate) fn sweep(self, limit: usize) {
        let released = self.state.slots.borrow_mut().sweep(self.env, limit);
        slots::drop_released(self.env, released);
    }

    /// Returns the typed array that a call in progress has lent to native code as `tensor`.
    pub(crate) fn lent(self, tensor: *const DLTensor) -> Option<Value> {
        let lent = self.state.lent.borrow();
        lent.iter().rev().find(|lent| lent.tensor == tensor).map(|lent| lent.array)
    }
}

/// Returns the number of bytes of a tensor in the memory of this machine.
fn tensor_bytes(object: &ObjectRef) -> i64 {
    let view = AnyView::from(object);
    let Ok(tensor) = view.get::<TensorView<'_>>() else { return 0 };
    i64::try_from(byte_size(&tensor)).unwrap_or(0)
}

/// Returns the number of bytes that the elements of a tensor occupy without gaps. Elements of less than a byte share bytes.
pub(crate) fn byte_size(tensor: &TensorView<'_>) -> usize {
    let dtype = tensor.as_dl().dtype;
    let bits = u128::from(dtype.bits) * u128::from(dtype.lanes);
    let bits = tensor.num_elements().unwrap_or(0) as u128 * bits;
    usize::try_from(bits.div_ceil(8)).unwrap_or(0)
}

/// Type index of a borrowed tensor.
pub(crate) const BORROWED_TENSOR: i32 = kTVMFFIDLTensorPtr;
