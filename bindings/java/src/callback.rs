//! Calls from native code to Java.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use anyfn::abi::{DLTensor, TVMFFIAny, kTVMFFIDLTensorPtr};
use anyfn::{Any, Error, Tensor, TensorView};

use crate::entry::{native, owned_handle, panic_text};
use crate::java_function::{self, JavaFunction};
use crate::place::{self, Room};
use crate::stack::{self, Stack};
use crate::sys::{Arg, Env, MethodId, Obj};
use crate::{errors, tensor, thread};

/// The method `int invoke(int position, int count)` of `org.anyfn.Callback`.
static INVOKE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// The method `int invokeLarge(ByteBuffer frame, int count)` of `org.anyfn.Callback`.
static INVOKE_LARGE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// The method `long stack()` of `org.anyfn.Callback`.
static STACK: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Sets the methods of `org.anyfn.Callback`, and the function that calls them.
pub(crate) fn set_methods(invoke: MethodId, invoke_large: MethodId, stack: MethodId) {
    INVOKE.store(invoke, Ordering::Release);
    INVOKE_LARGE.store(invoke_large, Ordering::Release);
    STACK.store(stack, Ordering::Release);
    java_function::init(safe_call);
}

native! {
    /// `makeFunction(callback)`: makes a native function that calls Java.
    fn Java_org_anyfn_Native_makeFunction(env, class, callback: Obj) -> i64 {
        match java_function::make(env, callback, true) {
            Some(function) => Ok(owned_handle(function)),
            None => Err(java_function::out_of_memory(env)),
        }
    }
}

/// Calls the Java function behind a native function. This is the `safe_call` of every [`JavaFunction`].
///
/// # Safety
/// Must be called by native code according to the rules of the ABI; any thread may call it.
unsafe extern "C" fn safe_call(
    handle: *mut c_void,
    args: *const TVMFFIAny,
    num_args: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    let called = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the caller keeps the function alive.
        let function = unsafe { java_function::from_handle(handle.cast()) };
        let function = function.filter(|function| function.is_function);
        let Some(function) = function else {
            return Err(Error::new("TypeError", "a Java object that is not a function was called"));
        };
        let Some(env) = thread::env() else {
            return Err(Error::new(
                "RuntimeError",
                "cannot call a Java function: the Java VM or this thread is ending",
            ));
        };
        let count = usize::try_from(num_args).unwrap_or_default();
        let args = if count == 0 || args.is_null() {
            &[]
        } else {
            // SAFETY: the caller passes this number of valid views.
            unsafe { std::slice::from_raw_parts(args, count) }
        };
        invoke(env, function, args)
    }));
    let called = called.unwrap_or_else(|payload| Err(Error::new("InternalError", panic_text(&*payload))));
    match called {
        Ok(value) => {
            // SAFETY: the ABI passes a writable result that holds no value.
            unsafe { result.write(value.into_raw()) };
            0
        }
        Err(error) => {
            error.raise();
            -1
        }
    }
}

/// Returns the buffer of this thread, which Java makes if necessary.
fn stack_of(env: Env, function: &JavaFunction) -> Result<*mut Stack, Error> {
    let current = stack::current();
    if !current.is_null() {
        return Ok(current);
    }
    // SAFETY: the object is an instance of the class of the method.
    let address = unsafe { env.call_long_method(function.target, STACK.load(Ordering::Acquire), ptr::null()) };
    if let Some(exception) = env.take_exception() {
        return Err(errors::of_escaped(env, exception));
    }
    Ok(stack::at(address))
}

fn invoke(env: Env, function: &JavaFunction, args: &[TVMFFIAny]) -> Result<Any, Error> {
    let stack = stack_of(env, function)?;
    if thread::is_attached_here() {
        // The Java thread, which has the buffer, is this thread until it ends.
        stack::keep(stack);
    }
    // Calls of this thread that have no buffer of their own, such as typed views, call back with it.
    stack::with(stack, || invoke_on(env, stack, function, args))
}

fn invoke_on(env: Env, stack: *mut Stack, function: &JavaFunction, args: &[TVMFFIAny]) -> Result<Any, Error> {
    let places = args.len() + 1;
    let size = places * size_of::<TVMFFIAny>();
    // SAFETY: the buffer belongs to this thread, and stays alive while native code runs for it.
    let (top, capacity) = unsafe { header(stack) };
    let mut copies = Vec::new();
    if size > capacity - top {
        let mut frame = vec![TVMFFIAny::NONE; places];
        let mut no_room = Room { next: ptr::null_mut(), size: 0 };
        fill(&mut frame[1..], args, &mut no_room, &mut copies)?;
        // SAFETY: the frame outlives the call.
        let buffer = unsafe { env.new_direct_byte_buffer(frame.as_mut_ptr().cast(), size as i64) };
        if buffer.is_null() {
            release(&frame[1..]);
            let exception = env.take_exception();
            return Err(exception.map_or_else(
                || Error::new("MemoryError", "the Java VM has no memory for a buffer"),
                |exception| errors::of_escaped(env, exception),
            ));
        }
        let given = [Arg { object: buffer }, Arg { int: args.len() as i32 }];
        // SAFETY: the object is an instance of the class of the method, which takes a buffer and an int.
        let code = unsafe {
            env.call_int_method(function.target, INVOKE_LARGE.load(Ordering::Acquire), given.as_ptr())
        };
        let escaped = env.take_exception();
        // SAFETY: the reference was made above.
        unsafe { env.delete_local_ref(buffer) };
        return finish(env, code, escaped, &frame[0], &copies);
    }
    let base: *mut u8 = stack.cast();
    // SAFETY: the top is within the buffer.
    let frame: *mut TVMFFIAny = unsafe { base.add(top) }.cast();
    // SAFETY: the buffer has room for the places, whose memory no other frame uses.
    let slots = unsafe { std::slice::from_raw_parts_mut(frame, places) };
    slots[0] = TVMFFIAny::NONE;
    // SAFETY: the room begins behind the places, within the buffer.
    let mut room = Room { next: unsafe { base.add(top + size) }, size: capacity - top - size };
    fill(&mut slots[1..], args, &mut room, &mut copies)?;
    // SAFETY: the buffer belongs to this thread.
    unsafe { (*stack).top = (capacity - room.size) as i32 };
    let given = [Arg { int: top as i32 }, Arg { int: args.len() as i32 }];
    // SAFETY: the object is an instance of the class of the method, which takes two ints.
    let code = unsafe { env.call_int_method(function.target, INVOKE.load(Ordering::Acquire), given.as_ptr()) };
    let escaped = env.take_exception();
    // SAFETY: the buffer belongs to this thread.
    unsafe { (*stack).top = top as i32 };
    // SAFETY: Java has written the place of the result.
    let slot = unsafe { frame.read() };
    finish(env, code, escaped, &slot, &copies)
}

/// Returns the offset of the first free byte of a buffer, and its capacity.
///
/// # Safety
/// The address must be that of the buffer of this thread.
unsafe fn header(stack: *const Stack) -> (usize, usize) {
    // SAFETY: guaranteed by the caller.
    let stack = unsafe { &*stack };
    (stack.top as usize, stack.capacity as usize)
}

/// Borrowed tensors of a call, with the copies of them that Java receives.
type Copies = Vec<(*const DLTensor, Tensor)>;

/// Converts the arguments of a call. A borrowed tensor, which is valid only during the call, becomes a tensor that Java may keep: a copy,
/// which is written back after the call.
fn fill(
    places: &mut [TVMFFIAny],
    args: &[TVMFFIAny],
    room: &mut Room,
    copies: &mut Copies,
) -> Result<(), Error> {
    for index in 0..args.len() {
        let arg = &args[index];
        let encoded = if arg.type_index == kTVMFFIDLTensorPtr {
            copy_borrowed(arg, copies).and_then(|copy| {
                copy.map_or(Ok(TVMFFIAny::NONE), |copy| place::encode(Any::from(copy).as_raw(), room))
            })
        } else {
            place::encode(arg, room)
        };
        match encoded {
            Ok(place) => places[index] = place,
            Err(error) => {
                release(&places[..index]);
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Drops the references of places that [`fill`] has filled, and that Java does not receive.
fn release(places: &[TVMFFIAny]) {
    for place in places {
        // SAFETY: the places were filled, and nothing else takes their references.
        drop(unsafe { place::decode(place) });
    }
}

fn copy_borrowed(arg: &TVMFFIAny, copies: &mut Copies) -> Result<Option<Tensor>, Error> {
    // SAFETY: a borrowed tensor has its value in `v_ptr`.
    let view: *const DLTensor = unsafe { arg.value.v_ptr }.cast();
    // SAFETY: the caller of the function passes a valid tensor, or NULL.
    let Some(dl) = (unsafe { view.as_ref() }) else { return Ok(None) };
    // SAFETY: the tensor stays valid until the call has ended.
    let borrowed = unsafe { TensorView::from_dl(dl) };
    let copy = tensor::copy_of(&borrowed)?;
    if !borrowed.is_read_only() {
        copies.push((view, copy.clone()));
    }
    Ok(Some(copy))
}

/// Copies what Java has written back to the borrowed tensors of a call that has not ended.
fn write_back(copies: &Copies) -> Result<(), Error> {
    for (view, copy) in copies {
        // SAFETY: the call has not ended, so the tensor is valid.
        let dl = unsafe { &**view };
        // SAFETY: the tensor stays valid until the call has ended.
        let borrowed = unsafe { TensorView::from_dl(dl) };
        let bytes = copy.to_bytes()?;
        if borrowed.to_bytes()? != *bytes {
            borrowed.write_bytes()?.copy_from_slice(&bytes);
        }
    }
    Ok(())
}

/// Returns the result of a call: Java has returned a status code and written the result, or the error, to a place.
fn finish(env: Env, code: i32, escaped: Option<Obj>, place: &TVMFFIAny, copies: &Copies) -> Result<Any, Error> {
    if let Some(exception) = escaped {
        return Err(errors::of_escaped(env, exception));
    }
    // SAFETY: Java has written the place.
    let value = unsafe { place::decode(place) }?;
    if code != 0 {
        let error = value.into_object().and_then(|object| Error::try_from_object(object).ok());
        return Err(
            error.unwrap_or_else(|| Error::new("MemoryError", "a Java function failed without an error"))
        );
    }
    write_back(copies)?;
    Ok(value)
}

native! {
    /// `live()`: returns the number of native objects that refer to Java objects, and so keep the class loader alive.
    fn Java_org_anyfn_Native_live(env, class) -> i64 {
        Ok(java_function::live())
    }
}

native! {
    /// `target(function)`: returns the instance of `org.anyfn.Callback` to which a function refers, or null.
    fn Java_org_anyfn_Native_target(env, class, function: i64) -> Obj {
        let handle = std::ptr::with_exposed_provenance_mut(function as usize);
        // SAFETY: Java passes a live object.
        let function = unsafe { java_function::from_handle(handle) };
        let Some(function) = function.filter(|function| function.is_function) else { return Ok(ptr::null_mut()) };
        // SAFETY: the reference is valid as long as the function.
        Ok(unsafe { env.new_local_ref(function.target) })
    }
}
