use super::*;
use anyfn::abi::*;

fn text(array: &TVMFFIByteArray) -> &str {
    std::str::from_utf8(unsafe { array.as_slice() }).unwrap()
}

fn take() -> Option<ObjectRef> {
    let mut out = ptr::dangling_mut();
    unsafe { TVMFFIErrorMoveFromRaised(&mut out) };
    unsafe { ObjectRef::from_owned_or_null(out) }
}

#[test]
fn the_raised_slot_belongs_to_the_thread() {
    assert!(take().is_none());
    unsafe { TVMFFIErrorSetRaisedFromCStr(c"ValueError".as_ptr(), c"first".as_ptr()) };
    unsafe { TVMFFIErrorSetRaisedFromCStr(c"KeyError".as_ptr(), c"second".as_ptr()) };
    std::thread::spawn(|| {
        assert!(take().is_none());
        // The error stays in the slot and is released with the thread.
        unsafe { TVMFFIErrorSetRaisedFromCStr(c"KeyError".as_ptr(), c"other".as_ptr()) };
    })
    .join()
    .unwrap();
    unsafe { TVMFFIErrorMoveFromRaised(ptr::null_mut()) };
    let error = take().unwrap();
    assert_eq!((text(&error_cell(&error).kind), text(&error_cell(&error).message)), ("KeyError", "second"));
    assert_eq!(error.use_count(), 1);
    assert!(take().is_none());

    unsafe { TVMFFIErrorSetRaised(error.as_handle()) };
    assert_eq!(error.use_count(), 2);
    assert!(take().unwrap().ptr_eq(&error));
    unsafe { TVMFFIErrorSetRaised(error.as_handle()) };
    unsafe { TVMFFIErrorSetRaised(ptr::null_mut()) };
    assert_eq!(error.use_count(), 1);
    let shape = anyfn::Shape::from(&[1i64][..]);
    unsafe { TVMFFIErrorSetRaised(shape.as_object().as_handle()) };
    assert_eq!(raised().1, "TVMFFIErrorSetRaised: expected an error but got `ffi.Shape`");
}

#[test]
fn messages_of_parts() {
    let mut parts = [c"a".as_ptr(), ptr::null(), c"".as_ptr(), c"bc".as_ptr()];
    unsafe { TVMFFIErrorSetRaisedFromCStrParts(c"TypeError".as_ptr(), parts.as_mut_ptr(), 4) };
    assert_eq!(raised(), ("TypeError".into(), "abc".into()));
    unsafe { TVMFFIErrorSetRaisedFromCStrParts(c"TypeError".as_ptr(), ptr::null_mut(), 4) };
    assert_eq!(raised(), ("TypeError".into(), String::new()));
    unsafe { TVMFFIErrorSetRaisedFromCStrParts(ptr::null(), parts.as_mut_ptr(), -1) };
    assert_eq!(raised(), (String::new(), String::new()));
    unsafe { TVMFFIErrorSetRaisedFromCStr(ptr::null(), ptr::null()) };
    assert_eq!(raised(), (String::new(), String::new()));
}

#[test]
fn errors_are_made_of_their_parts() {
    let mut out = ptr::null_mut();
    let trace = "  File \"a\", line 1, in f\n";
    let code =
        unsafe { TVMFFIErrorCreate(&bytes("IndexError"), &bytes("out of range"), &bytes(trace), &mut out) };
    assert_eq!(code, 0);
    let error = owned(out);
    let cell = error_cell(&error);
    assert_eq!(
        (text(&cell.kind), text(&cell.message), text(&cell.backtrace)),
        ("IndexError", "out of range", trace)
    );
    assert!(cell.cause_chain.is_null() && cell.extra_context.is_null());
    let more = bytes("  File \"b\", line 2, in g\n");
    unsafe { cell.update_backtrace.unwrap()(error.as_handle(), &more, kTVMFFIBacktraceUpdateModeAppend) };
    assert_eq!(text(&error_cell(&error).backtrace), format!("{trace}  File \"b\", line 2, in g\n"));
    unsafe {
        cell.update_backtrace.unwrap()(error.as_handle(), &bytes("x"), kTVMFFIBacktraceUpdateModeReplace)
    };
    assert_eq!(text(&error_cell(&error).backtrace), "x");

    let context = anyfn::Shape::from(&[1i64][..]).into_object();
    let code = unsafe {
        TVMFFIErrorCreateWithCauseAndExtraContext(
            &bytes("ValueError"),
            &bytes("m"),
            ptr::null(),
            error.as_handle(),
            context.as_handle(),
            &mut out,
        )
    };
    assert_eq!(code, 0);
    let outer = owned(out);
    assert_eq!(error_cell(&outer).cause_chain, error.as_handle());
    assert_eq!((error.use_count(), context.use_count()), (2, 2));
    drop(outer);
    assert_eq!((error.use_count(), context.use_count()), (1, 1));
}

#[test]
fn bad_parts_are_errors() {
    let mut out = ptr::null_mut();
    let fine = bytes("x");
    let this = "TVMFFIErrorCreate";
    expect_null(unsafe { TVMFFIErrorCreate(ptr::null(), &fine, &fine, &mut out) }, this, "kind");
    expect_null(unsafe { TVMFFIErrorCreate(&fine, ptr::null(), &fine, &mut out) }, this, "message");
    expect_null(unsafe { TVMFFIErrorCreate(&fine, &fine, &fine, ptr::null_mut()) }, this, "out");
    assert_eq!(failed(unsafe { TVMFFIErrorCreate(&fine, &fine, &BROKEN, &mut out) }).0, "ValueError");
    let shape = anyfn::Shape::from(&[1i64][..]);
    let code = unsafe {
        TVMFFIErrorCreateWithCauseAndExtraContext(
            &fine,
            &fine,
            &fine,
            shape.as_object().as_handle(),
            ptr::null_mut(),
            &mut out,
        )
    };
    assert_eq!(failed(code).0, "TypeError");
}

#[test]
fn backtrace_begins_with_the_given_place() {
    let trace = unsafe { TVMFFIBacktrace(c"k.c".as_ptr(), 12, c"work".as_ptr(), 0) };
    assert!(text(unsafe { &*trace }).starts_with("  File \"k.c\", line 12, in work\n"));
    let again = unsafe { TVMFFIBacktrace(ptr::null(), 12, c"work".as_ptr(), 1) };
    assert_eq!(again, trace);
    assert!(!text(unsafe { &*again }).contains("k.c"));
}

#[test]
fn a_panic_is_an_error_with_its_place() {
    anyfn::record_panic_locations();
    let function = anyfn::PackedFunc::new(|_| panic!("oh no"));
    let error = function.call(()).unwrap_err();
    assert_eq!(error.kind(), "InternalError");
    assert!(error.message().starts_with("panic: oh no ("), "{}", error.message());
}
