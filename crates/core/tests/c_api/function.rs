use super::*;
use anyfn::abi::*;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns its first argument plus the number that `handle` contains in place of an address.
unsafe extern "C" fn add(
    handle: *mut c_void,
    args: *const TVMFFIAny,
    num_args: i32,
    result: *mut TVMFFIAny,
) -> c_int {
    if num_args != 1 {
        TVMFFIErrorSetRaisedFromCStr(c"TypeError".as_ptr(), c"add needs one argument".as_ptr());
        return -1;
    }
    *result = TVMFFIAny::from_bits(kTVMFFIInt, (*args).value.v_uint64 + handle.addr() as u64);
    0
}

fn call(function: TVMFFIObjectHandle, args: &mut [TVMFFIAny]) -> (c_int, TVMFFIAny) {
    let mut result = TVMFFIAny::NONE;
    let code = unsafe { TVMFFIFunctionCall(function, args.as_mut_ptr(), args.len() as i32, &mut result) };
    (code, result)
}

fn int(value: u64) -> TVMFFIAny {
    TVMFFIAny::from_bits(kTVMFFIInt, value)
}

fn create(handle: usize) -> ObjectRef {
    unsafe extern "C" fn nothing(_: *mut c_void) {}
    let mut out = ptr::null_mut();
    let handle = ptr::without_provenance_mut(handle);
    assert_eq!(unsafe { TVMFFIFunctionCreate(handle, Some(add), Some(nothing), &mut out) }, 0);
    owned(out)
}

#[test]
fn functions_get_their_own_data() {
    static RELEASED: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn release(handle: *mut c_void) {
        RELEASED.fetch_add(handle.addr(), Ordering::Relaxed);
    }
    let mut out = ptr::null_mut();
    assert_eq!(
        unsafe { TVMFFIFunctionCreate(ptr::without_provenance_mut(5), Some(add), Some(release), &mut out) },
        0
    );
    let cell = unsafe { &*out.cast::<TVMFFIObject>().add(1).cast::<TVMFFIFunctionCell>() };
    assert!(cell.cpp_call.is_null());
    let (code, result) = call(out, &mut [int(2)]);
    assert_eq!((code, result.type_index, unsafe { result.bits() }), (0, kTVMFFIInt, 7));
    let (code, _) = call(out, &mut []);
    expect(code, "TypeError", "add needs one argument");
    unsafe { TVMFFIObjectDecRef(out) };
    assert_eq!(RELEASED.load(Ordering::Relaxed), 5);

    // Without data and deleter the function gets its own handle.
    assert_eq!(unsafe { TVMFFIFunctionCreate(ptr::null_mut(), Some(add), None, &mut out) }, 0);
    let (_, result) = call(out, &mut [int(0)]);
    assert_eq!(unsafe { result.bits() }, out.addr() as u64);
    unsafe { TVMFFIObjectDecRef(out) };
}

#[test]
fn bad_functions_are_errors() {
    let mut out = ptr::null_mut();
    expect_null(
        unsafe { TVMFFIFunctionCreate(ptr::null_mut(), None, None, &mut out) },
        "TVMFFIFunctionCreate",
        "safe_call",
    );
    let code = unsafe { TVMFFIFunctionCreate(ptr::null_mut(), Some(add), None, ptr::null_mut()) };
    expect_null(code, "TVMFFIFunctionCreate", "out");
    expect_null(call(ptr::null_mut(), &mut []).0, "TVMFFIFunctionCall", "func");
    let shape = anyfn::Shape::from(&[1i64][..]);
    let (code, _) = call(shape.as_object().as_handle(), &mut []);
    expect(code, "TypeError", "TVMFFIFunctionCall: expected a function but got an object of type 69");
}

fn get(name: &str) -> Option<ObjectRef> {
    let mut out = ptr::dangling_mut();
    assert_eq!(unsafe { TVMFFIFunctionGetGlobal(&bytes(name), &mut out) }, 0);
    unsafe { ObjectRef::from_owned_or_null(out) }
}

#[test]
fn globals_are_set_found_and_replaced() {
    const NAME: &str = "test.c_api.globals";
    let (first, second) = (create(1), create(2));
    assert!(get(NAME).is_none());
    assert_eq!(unsafe { TVMFFIFunctionSetGlobal(&bytes(NAME), first.as_handle(), 0) }, 0);
    assert!(get(NAME).unwrap().ptr_eq(&first));
    let code = unsafe { TVMFFIFunctionSetGlobal(&bytes(NAME), second.as_handle(), 0) };
    expect(code, "RuntimeError", "Global Function `test.c_api.globals` is already registered");
    assert!(get(NAME).unwrap().ptr_eq(&first));
    assert_eq!(unsafe { TVMFFIFunctionSetGlobal(&bytes(NAME), second.as_handle(), 1) }, 0);
    assert!(get(NAME).unwrap().ptr_eq(&second));
    assert_eq!(first.use_count(), 1);
    assert!(anyfn::registry::remove(NAME).unwrap());
    assert!(!anyfn::registry::remove(NAME).unwrap());
    assert!(get(NAME).is_none());
    assert_eq!(second.use_count(), 1);
}

#[test]
fn names_may_hold_any_text() {
    let function = create(1);
    let unnamed = unsafe { TVMFFIFunctionSetGlobal(&bytes(""), function.as_handle(), 0) };
    expect(unnamed, "ValueError", "cannot register a global function: its name is empty");
    for name in ["test.c_api.nul\0inside", "test.c_api.ünï"] {
        assert_eq!(unsafe { TVMFFIFunctionSetGlobal(&bytes(name), function.as_handle(), 0) }, 0);
        assert!(get(name).is_some());
        assert!(anyfn::registry::remove(name).unwrap());
    }
}

#[test]
fn metadata_and_doc_are_kept_with_the_function() {
    const NAME: &str = "test.c_api.described";
    let function = create(1);
    let info = |method| TVMFFIMethodInfo {
        name: bytes(NAME),
        doc: bytes("Adds."),
        metadata: bytes("{\"a\":1}"),
        flags: 0,
        method,
    };
    let view = *anyfn::AnyView::from(&function).as_raw();
    assert_eq!(unsafe { TVMFFIFunctionSetGlobalFromMethodInfo(&info(view), 0) }, 0);
    let code = unsafe { TVMFFIFunctionSetGlobalFromMethodInfo(&info(view), 0) };
    expect(code, "RuntimeError", "Global Function `test.c_api.described` is already registered");
    let metadata = anyfn::registry::get("ffi.GetGlobalFuncMetadata").unwrap();
    assert_eq!(metadata.call((NAME,)).unwrap().get::<&str>().unwrap(), "{\"a\":1}");
    let error = metadata.call(("test.c_api.none",)).unwrap_err();
    assert_eq!(error.message(), "Global Function is not found: test.c_api.none");

    let code = unsafe { TVMFFIFunctionSetGlobalFromMethodInfo(&info(int(3)), 1) };
    expect(
        code,
        "TypeError",
        "TVMFFIFunctionSetGlobalFromMethodInfo: argument `method_info.method` is not a function",
    );
    let code = unsafe { TVMFFIFunctionSetGlobalFromMethodInfo(ptr::null(), 1) };
    expect_null(code, "TVMFFIFunctionSetGlobalFromMethodInfo", "method_info");
    assert!(anyfn::registry::remove(NAME).unwrap());
}

#[test]
fn bad_names_and_handles_are_errors() {
    let function = create(1);
    let mut out = ptr::null_mut();
    expect_null(unsafe { TVMFFIFunctionGetGlobal(ptr::null(), &mut out) }, "TVMFFIFunctionGetGlobal", "name");
    let name = bytes("test.c_api.bad");
    expect_null(unsafe { TVMFFIFunctionGetGlobal(&name, ptr::null_mut()) }, "TVMFFIFunctionGetGlobal", "out");
    let code = unsafe { TVMFFIFunctionGetGlobal(&BROKEN, &mut out) };
    expect(
        code,
        "ValueError",
        "TVMFFIFunctionGetGlobal: argument `name` has a size of 3 bytes, but its data pointer is NULL",
    );
    let huge = TVMFFIByteArray { size: usize::MAX, ..name };
    assert_eq!(failed(unsafe { TVMFFIFunctionGetGlobal(&huge, &mut out) }).0, "ValueError");
    let code = unsafe { TVMFFIFunctionSetGlobal(ptr::null(), function.as_handle(), 0) };
    expect_null(code, "TVMFFIFunctionSetGlobal", "name");
    expect_null(unsafe { TVMFFIFunctionSetGlobal(&name, ptr::null_mut(), 0) }, "TVMFFIFunctionSetGlobal", "f");
    let shape = anyfn::Shape::from(&[1i64][..]);
    let code = unsafe { TVMFFIFunctionSetGlobal(&name, shape.as_object().as_handle(), 0) };
    expect(
        code,
        "TypeError",
        "cannot register Global Function `test.c_api.bad`: expected a function but got ffi.Shape",
    );
}

#[test]
fn texts_of_the_runtimes_own_functions() {
    let error = |name: &str, args: &[Any]| {
        // SAFETY: each call passes the arguments that the function requires.
        let error = unsafe { anyfn::registry::get_unsafe(name) }.unwrap().call(args).unwrap_err();
        format!("{}: {}", error.kind(), error.message())
    };
    let int = || Any::new(3).unwrap();
    assert_eq!(
        error("ffi.String", &[int()]),
        "TypeError: Mismatched type on argument #0 when calling: `ffi.String(0: str) -> str`. Expected `str` but got \
         `int`"
    );
    assert_eq!(
        error("ffi.String", &[]),
        "TypeError: Mismatched number of arguments when calling: `ffi.String(0: str) -> str`. Expected 1 but got 0 \
         arguments"
    );
    assert_eq!(
        error("ffi.FunctionRemoveGlobal", &[int(), int()]),
        "TypeError: Mismatched number of arguments when calling: `ffi.FunctionRemoveGlobal(0: str) -> bool`. Expected 1 \
         but got 2 arguments"
    );
    assert_eq!(
        error("ffi.Shape", &[int(), Any::new("x").unwrap()]),
        "ValueError: Expect shape to take list of int arguments"
    );
}

#[test]
fn the_runtimes_own_functions_work() {
    // SAFETY: each call passes the arguments that the function requires.
    let call =
        |name: &str, args: &[Any]| unsafe { anyfn::registry::get_unsafe(name) }.unwrap().call(args).unwrap();
    assert_eq!(
        call("ffi.String", &[Any::new("long enough text").unwrap()]).get::<&str>().unwrap(),
        "long enough text"
    );
    assert_eq!(call("ffi.Bytes", &[Any::new(&b"abc"[..]).unwrap()]).get::<&[u8]>().unwrap(), b"abc");
    let shape = call("ffi.Shape", &[Any::new(2).unwrap(), Any::new(3).unwrap()]);
    assert_eq!(&*anyfn::Shape::try_from_object(shape.into_object().unwrap()).unwrap(), &[2, 3]);
    assert!(call("ffi.Shape", &[]).as_object().is_some());
    let missing = call("ffi.GetInvalidObject", &[]);
    assert!(missing.as_object().unwrap().ptr_eq(call("ffi.GetInvalidObject", &[]).as_object().unwrap()));
    assert!(!missing.as_object().unwrap().ptr_eq(call("ffi.GetKwargsObject", &[]).as_object().unwrap()));
    assert_eq!(missing.type_key(), "ffi.Object");
    let keys = call("ffi.GetRegisteredTypeKeys", &[]).get::<Vec<String>>().unwrap();
    assert!(keys.iter().any(|key| key == "ffi.Module"));
    assert!(anyfn::registry::list().unwrap().iter().any(|name| name == "ffi.String"));

    // SAFETY: the pointers are passed only to the function that expects them.
    let pointer = |p: *mut c_void| Any::new(unsafe { anyfn::OpaquePtr::from_ptr(p) }).unwrap();
    let made = call(
        "ffi.FunctionFromExternC",
        &[pointer(ptr::without_provenance_mut(3)), pointer(add as *mut c_void), Any::NONE],
    );
    assert_eq!(made.get::<anyfn::PackedFunc>().unwrap().call((4,)).unwrap().get::<i64>().unwrap(), 7);
}

#[anyfn::register("test.c_api.collected")]
fn collected(x: i64) -> i64 {
    x * 3
}

#[test]
fn what_register_has_collected_is_there() {
    assert_eq!(
        anyfn::registry::get("test.c_api.collected").unwrap().call((5,)).unwrap().get::<i64>().unwrap(),
        15
    );
}

#[test]
fn threads_set_get_override_and_remove_at_once() {
    const ROUNDS: usize = if cfg!(debug_assertions) { 4_000 } else { 40_000 };
    const NAME: &str = "test.c_api.contended";
    let functions: Vec<ObjectRef> = (0..4).map(create).collect();
    std::thread::scope(|scope| {
        for function in &functions {
            scope.spawn(move || {
                for i in 0..ROUNDS {
                    match i % 4 {
                        0 => {
                            let code =
                                unsafe { TVMFFIFunctionSetGlobal(&bytes(NAME), function.as_handle(), 0) };
                            if code != 0 {
                                assert_eq!(raised().0, "RuntimeError");
                            }
                        }
                        1 => {
                            assert_eq!(
                                unsafe { TVMFFIFunctionSetGlobal(&bytes(NAME), function.as_handle(), 1) },
                                0
                            );
                        }
                        2 => {
                            anyfn::registry::remove(NAME).unwrap();
                        }
                        _ => {
                            if let Some(found) = get(NAME) {
                                let (code, result) = call(found.as_handle(), &mut [int(10)]);
                                assert!(code == 0 && (10..14).contains(&unsafe { result.bits() }));
                            }
                        }
                    }
                }
            });
        }
    });
    anyfn::registry::remove(NAME).unwrap();
    assert!(functions.iter().all(|function| function.use_count() == 1));
}
