//! The native half of the Java package of anyfn.
//!
//! The library is a client of the packaged runtime: the class `org.anyfn.Native` loads it, and it opens `libanyfn.so` and calls it
//! through the function table ([`anyfn_attach`]). It contains what Java cannot do itself. Values are converted in Java: Java writes
//! arguments into a buffer of its thread, a [`stack`], whose places are native values or private tags, and reads results from there.
//! A call from Java therefore makes one transition and no call back into the VM.
//!
//! Each module uses only those above it:
//!
//! 1. [`sys`] (the functions of JNI that are used), [`thread`] (the VM, attached threads)
//! 2. [`entry`] (functions that Java calls), [`stack`] (the buffers), [`java_function`] (native objects that refer to Java objects)
//! 3. [`place`] (conversion between values and places of a buffer)
//! 4. [`calls`], [`objects`], [`errors`], [`tensor`], [`callback`], [`cancel`], [`start`]
//!
//! Invariants: nothing unwinds into the VM, and no exception is pending while native code runs. No JNI reference to a class of the
//! package is kept, so that its class loader can be unloaded; a native object that refers to a Java object keeps the loader alive.
//! The library itself is never unmapped.
#![allow(non_snake_case, reason = "JNI finds native methods by their names")]

mod callback;
mod calls;
mod cancel;
mod entry;
mod errors;
mod java_function;
mod objects;
mod place;
mod stack;
mod start;
mod sys;
mod tensor;
mod thread;
