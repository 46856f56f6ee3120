//! Tests of state that several threads read while other threads change it: backtraces of errors and type
//! info. The tests are written for a thread sanitizer, which reports data races. Without a sanitizer, they
//! only check the results.

use std::ffi::c_void;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyfn::abi::{
    TVMFFIAny, TVMFFIByteArray, TVMFFIErrorCell, TVMFFIFieldInfo, TVMFFIObject, TVMFFIObjectHandle,
    TVMFFITypeGetOrAllocIndex, TVMFFITypeMetadata, TVMFFITypeRegisterAttr, TVMFFITypeRegisterField,
    TVMFFITypeRegisterMetadata, kTVMFFIError, kTVMFFIInt, kTVMFFIObject,
};
use anyfn::reflection::TypeInfo;
use anyfn::{Error, ObjectRef};
use anyfn_core as _;

const THREADS: usize = 4;
const ROUNDS: usize = 200;

#[test]
fn a_trace_is_read_and_changed_by_several_threads() {
    let error = Error::new("ValueError", "shared");
    let (kind, message) = (error.kind(), error.message());
    let start = Barrier::new(2 * THREADS);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                start.wait();
                (0..ROUNDS).for_each(|_| error.append_backtrace("  File \"a\", line 1, in f\n"));
            });
            scope.spawn(|| {
                start.wait();
                for _ in 0..ROUNDS {
                    assert!(error.backtrace().ends_with('\n'));
                    let other = error.as_object().downgrade();
                    assert!(other.upgrade().is_some());
                }
            });
        }
    });
    // References that were taken before are still valid.
    assert_eq!((kind, message), ("ValueError", "shared"));
    assert_eq!(error.backtrace().matches("line 1, in f").count(), THREADS * ROUNDS);
}

/// An error object of another implementation. The function that updates its backtrace takes no lock, and
/// fails the test if two threads run it at the same time.
#[repr(C)]
struct Foreign {
    header: TVMFFIObject,
    cell: TVMFFIErrorCell,
    busy: AtomicBool,
    length: usize,
    trace: [u8; 4096],
}

static FREED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn delete(object: *mut c_void, flags: i32) {
    if flags & 2 != 0 {
        // SAFETY: the object was created by `Box` below, and is not used any more.
        drop(unsafe { Box::from_raw(object.cast::<Foreign>()) });
        FREED.fetch_add(1, Ordering::Relaxed);
    }
}

unsafe extern "C" fn update(object: TVMFFIObjectHandle, text: *const TVMFFIByteArray, _mode: i32) {
    let this: *mut Foreign = object.cast();
    // SAFETY: the function is called only with such errors.
    let busy = unsafe { &(*this).busy };
    assert!(!busy.swap(true, Ordering::Relaxed), "two threads update the trace of a foreign error");
    // SAFETY: `text` points to a valid byte array.
    let text = unsafe { text.read() };
    // SAFETY: its bytes are valid for the call.
    let text = unsafe { text.as_slice() };
    // SAFETY: one thread at a time calls this, and no thread reads the trace meanwhile.
    let length = unsafe { (*this).length };
    for (at, byte) in text.iter().enumerate() {
        // SAFETY: the index is within the trace, and one thread at a time calls this.
        unsafe { (*this).trace[length + at] = *byte };
    }
    // SAFETY: one thread at a time calls this.
    unsafe { (*this).length = length + text.len() };
    // SAFETY: one thread at a time calls this.
    unsafe { (*this).cell.backtrace.size = length + text.len() };
    busy.store(false, Ordering::Relaxed);
}

#[test]
fn errors_of_other_makers_are_updated_by_one_thread_at_a_time() {
    let made = Box::into_raw(Box::new(Foreign {
        header: TVMFFIObject {
            combined_ref_count: (1 << 32) | 1,
            type_index: kTVMFFIError,
            flags: 0,
            deleter: Some(delete),
        },
        cell: TVMFFIErrorCell {
            kind: TVMFFIByteArray::from_slice(b"ValueError"),
            message: TVMFFIByteArray::from_slice(b"foreign"),
            backtrace: TVMFFIByteArray::EMPTY,
            update_backtrace: Some(update),
            cause_chain: std::ptr::null_mut(),
            extra_context: std::ptr::null_mut(),
        },
        busy: AtomicBool::new(false),
        length: 0,
        trace: [0; 4096],
    }));
    // SAFETY: the object was made above.
    let trace = unsafe { &raw const (*made).trace };
    // SAFETY: the object was made above; its trace is its own array.
    unsafe { (*made).cell.backtrace.data = trace.cast() };
    // SAFETY: a valid object with one reference.
    let object = unsafe { ObjectRef::from_owned_or_null(made.cast()) }.unwrap();
    let error = Error::try_from_object(object).unwrap();
    let start = Barrier::new(2 * THREADS);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                start.wait();
                (0..ROUNDS).for_each(|_| error.append_backtrace("abcd"));
            });
            scope.spawn(|| {
                start.wait();
                (0..ROUNDS).for_each(|_| assert_eq!(error.backtrace().len() % 4, 0));
            });
        }
    });
    assert_eq!(error.backtrace(), "abcd".repeat(THREADS * ROUNDS));
    drop(error);
    assert_eq!(FREED.load(Ordering::Relaxed), 1);
}

unsafe extern "C" fn get(_: *mut c_void, out: *mut TVMFFIAny) -> i32 {
    // SAFETY: the caller passes a writable result.
    unsafe { out.write(TVMFFIAny::NONE) };
    0
}

#[test]
fn types_are_read_while_they_are_registered() {
    const TYPES: usize = 40;
    let keys: Vec<String> = (0..TYPES).map(|n| format!("test.shared_state.T{n}")).collect();
    let indices: Vec<i32> = keys
        .iter()
        .map(|key| {
            let key = TVMFFIByteArray::from_slice(key.as_bytes());
            // SAFETY: the key is borrowed for the call.
            unsafe { TVMFFITypeGetOrAllocIndex(&key, -1, 1, 0, 1, kTVMFFIObject) }
        })
        .collect();
    let (start, done) = (Barrier::new(THREADS + 1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                start.wait();
                while !done.load(Ordering::Relaxed) {
                    for index in &indices {
                        let info = TypeInfo::from_index(*index).unwrap();
                        if info.has_metadata() {
                            assert_eq!((info.doc(), info.structural_kind()), ("A type.", 1));
                        }
                        for (at, field) in info.own_fields().enumerate() {
                            assert_eq!(field.name(), format!("f{at}"));
                            assert!(field.getter().is_some() && !field.is_settable());
                        }
                        if let Some(value) = info.attribute("test.shared_state.attribute") {
                            assert_eq!(value.get::<i32>().unwrap(), *index);
                        }
                    }
                }
            });
        }
        start.wait();
        for index in &indices {
            for at in 0..9 {
                let name = format!("f{at}");
                let info = TVMFFIFieldInfo {
                    name: TVMFFIByteArray::from_slice(name.as_bytes()),
                    doc: TVMFFIByteArray::EMPTY,
                    metadata: TVMFFIByteArray::EMPTY,
                    flags: 0,
                    size: 8,
                    alignment: 8,
                    offset: 24,
                    getter: Some(get),
                    setter: std::ptr::null_mut(),
                    default_value_or_factory: TVMFFIAny::NONE,
                    field_static_type_index: kTVMFFIInt,
                };
                // SAFETY: all arguments are borrowed for the call, and the getter lives as long as the process.
                assert_eq!(unsafe { TVMFFITypeRegisterField(*index, &info) }, 0);
            }
            let metadata = TVMFFITypeMetadata {
                doc: TVMFFIByteArray::from_slice(b"A type."),
                creator: None,
                total_size: 32,
                structural_eq_hash_kind: 1,
            };
            // SAFETY: borrowed for the call.
            assert_eq!(unsafe { TVMFFITypeRegisterMetadata(*index, &metadata) }, 0);
            let name = TVMFFIByteArray::from_slice(b"test.shared_state.attribute");
            let value = TVMFFIAny::from_bits(kTVMFFIInt, *index as u64);
            // SAFETY: both are borrowed for the call.
            assert_eq!(unsafe { TVMFFITypeRegisterAttr(*index, &name, &value) }, 0);
        }
        done.store(true, Ordering::Relaxed);
    });
}
