//! The functions of JNI that this library uses.
//!
//! An environment is the address of a table of functions, whose order the specification of JNI fixes. Only the functions that are used
//! are declared, with their indices; `test/jni_indices.py` compares the indices with `jni.h`.

use std::ffi::{c_char, c_void};

/// A reference to a Java object, or NULL.
pub(crate) type Obj = *mut c_void;
/// Identifies a method of a class.
pub(crate) type MethodId = *mut c_void;

/// Version of JNI that the library needs: that of Java 10, which Java 17 implements.
pub(crate) const VERSION: i32 = 0x000a_0000;
/// Status of a function that succeeded.
pub(crate) const OK: i32 = 0;

/// The environment of a thread: the address of the address of the table.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Env(*const *const *const c_void);

/// The VM of the process.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Vm(*const *const *const c_void);

/// An argument of a method.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union Arg {
    pub(crate) int: i32,
    pub(crate) long: i64,
    pub(crate) object: Obj,
}

/// Arguments of the functions that attach a thread.
#[repr(C)]
pub(crate) struct AttachArgs {
    pub(crate) version: i32,
    pub(crate) name: *const c_char,
    pub(crate) group: Obj,
}

macro_rules! functions {
    ($type:ident: $($(#[$doc:meta])* $index:literal $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)*) => {
        impl $type {
            $(
                $(#[$doc])*
                ///
                /// # Safety
                /// The arguments must be valid for the function of JNI.
                pub(crate) unsafe fn $name(self, $($arg: $ty),*) $(-> $ret)? {
                    // SAFETY: the VM passes the address of its table, which it never changes.
                    let table = unsafe { *self.0 };
                    // SAFETY: the table contains the function at this index.
                    let function = unsafe { table.add($index) };
                    // SAFETY: the index is within the table, whose entries are initialised.
                    let function = unsafe { *function };
                    type Function = unsafe extern "system" fn($type, $($ty),*) $(-> $ret)?;
                    // SAFETY: the function at this index has this type.
                    let function = unsafe { std::mem::transmute::<*const c_void, Function>(function) };
                    // SAFETY: guaranteed by the caller.
                    unsafe { function(self, $($arg),*) }
                }
            )*
        }
    };
}

functions! { Env:
    /// `ExceptionOccurred`: returns a local reference to the pending exception, or NULL.
    15 exception_occurred() -> Obj;
    /// `ExceptionClear`: clears the pending exception.
    17 exception_clear();
    /// `NewGlobalRef`.
    21 new_global_ref(object: Obj) -> Obj;
    /// `DeleteGlobalRef`.
    22 delete_global_ref(object: Obj);
    /// `DeleteLocalRef`.
    23 delete_local_ref(object: Obj);
    /// `NewLocalRef`.
    25 new_local_ref(object: Obj) -> Obj;
    /// `GetMethodID`.
    33 get_method_id(class: Obj, name: *const c_char, signature: *const c_char) -> MethodId;
    /// `CallIntMethodA`.
    51 call_int_method(object: Obj, method: MethodId, args: *const Arg) -> i32;
    /// `CallLongMethodA`.
    54 call_long_method(object: Obj, method: MethodId, args: *const Arg) -> i64;
    /// `GetStaticMethodID`.
    113 get_static_method_id(class: Obj, name: *const c_char, signature: *const c_char) -> MethodId;
    /// `CallStaticVoidMethodA`.
    143 call_static_void_method(class: Obj, method: MethodId, args: *const Arg);
    /// `GetArrayLength`.
    171 get_array_length(array: Obj) -> i32;
    /// `NewByteArray`.
    176 new_byte_array(length: i32) -> Obj;
    /// `NewLongArray`.
    180 new_long_array(length: i32) -> Obj;
    /// `GetByteArrayRegion`.
    200 get_byte_array_region(array: Obj, start: i32, length: i32, to: *mut u8);
    /// `GetLongArrayRegion`.
    204 get_long_array_region(array: Obj, start: i32, length: i32, to: *mut i64);
    /// `SetByteArrayRegion`.
    208 set_byte_array_region(array: Obj, start: i32, length: i32, from: *const u8);
    /// `SetLongArrayRegion`.
    212 set_long_array_region(array: Obj, start: i32, length: i32, from: *const i64);
    /// `ExceptionCheck`: returns true if an exception is pending.
    228 exception_check() -> u8;
    /// `NewDirectByteBuffer`.
    229 new_direct_byte_buffer(address: *mut c_void, size: i64) -> Obj;
    /// `GetDirectBufferAddress`.
    230 get_direct_buffer_address(buffer: Obj) -> *mut c_void;
}

functions! { Vm:
    /// `DetachCurrentThread`.
    5 detach_current_thread() -> i32;
    /// `GetEnv`.
    6 get_env(env: *mut *mut c_void, version: i32) -> i32;
    /// `AttachCurrentThreadAsDaemon`.
    7 attach_current_thread_as_daemon(env: *mut *mut c_void, args: *const AttachArgs) -> i32;
}

impl Vm {
    /// Makes the VM of an address.
    ///
    /// # Safety
    /// The address must be that of a VM that stays in the process.
    pub(crate) unsafe fn from_ptr(vm: *mut c_void) -> Vm {
        Vm(vm.cast())
    }

    /// Returns the address of the VM.
    pub(crate) fn as_ptr(self) -> *mut c_void {
        self.0.cast_mut().cast()
    }
}

impl Env {
    /// Makes the environment of an address.
    ///
    /// # Safety
    /// The address must be that of the environment of this thread.
    pub(crate) unsafe fn from_ptr(env: *mut c_void) -> Env {
        Env(env.cast())
    }

    /// Takes the pending exception, if any, as a local reference.
    pub(crate) fn take_exception(self) -> Option<Obj> {
        // SAFETY: may be called at any time.
        if unsafe { self.exception_check() } == 0 {
            return None;
        }
        // SAFETY: may be called while an exception is pending.
        let exception = unsafe { self.exception_occurred() };
        // SAFETY: may be called while an exception is pending.
        unsafe { self.exception_clear() };
        Some(exception)
    }
}
