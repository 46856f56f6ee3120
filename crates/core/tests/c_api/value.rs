use super::*;
use anyfn::Device;
use anyfn::abi::*;

#[test]
fn strings_and_bytes() {
    for text in ["", "a", "seven 7", "eight 88", "much longer than eight bytes", "nul\0in", "nul\0inside of it"]
    {
        let mut out = TVMFFIAny::NONE;
        assert_eq!(unsafe { TVMFFIStringFromByteArray(&bytes(text), &mut out) }, 0);
        let small = text.len() <= 7;
        assert_eq!(out.type_index, if small { kTVMFFISmallStr } else { kTVMFFIStr });
        assert_eq!(value(out).get::<&str>().unwrap(), text);
        assert_eq!(unsafe { TVMFFIBytesFromByteArray(&bytes(text), &mut out) }, 0);
        assert_eq!(out.type_index, if small { kTVMFFISmallBytes } else { kTVMFFIBytes });
        assert_eq!(value(out).get::<&[u8]>().unwrap(), text.as_bytes());
    }
    let mut out = TVMFFIAny::NONE;
    let empty = TVMFFIByteArray { data: ptr::null(), size: 0 };
    assert_eq!(unsafe { TVMFFIStringFromByteArray(&empty, &mut out) }, 0);
    assert_eq!(out.type_index, kTVMFFISmallStr);
    expect_null(
        unsafe { TVMFFIStringFromByteArray(ptr::null(), &mut out) },
        "TVMFFIStringFromByteArray",
        "input",
    );
    let code = unsafe { TVMFFIBytesFromByteArray(&bytes("x"), ptr::null_mut()) };
    expect_null(code, "TVMFFIBytesFromByteArray", "out");
    let code = unsafe { TVMFFIBytesFromByteArray(&BROKEN, &mut out) };
    expect(
        code,
        "ValueError",
        "TVMFFIBytesFromByteArray: argument `input` has a size of 3 bytes, but its data pointer is NULL",
    );
    let huge = TVMFFIByteArray { data: b"x".as_ptr().cast(), size: usize::MAX };
    assert_eq!(failed(unsafe { TVMFFIStringFromByteArray(&huge, &mut out) }).0, "ValueError");
}

#[test]
fn long_strings_are_ended_by_nul() {
    let mut out = TVMFFIAny::NONE;
    assert_eq!(unsafe { TVMFFIStringFromByteArray(&bytes("long enough"), &mut out) }, 0);
    let text = value(out);
    let array = unsafe { &*content::<TVMFFIByteArray>(text.as_object().unwrap()) };
    assert_eq!(unsafe { *array.data.add(array.size) }, 0);
    assert_eq!(array.data.addr() - text.as_object().unwrap().as_handle().addr(), 40);
}

fn from_words(words: &[i64]) -> Any {
    let data = TVMFFIByteArray { data: words.as_ptr().cast(), size: size_of_val(words) };
    let mut out = TVMFFIAny::NONE;
    assert_eq!(unsafe { TVMFFIBigIntFromByteArray(&data, &mut out) }, 0);
    value(out)
}

fn words_of(value: &Any) -> Vec<i64> {
    let array = unsafe { TVMFFIBigIntGetContentByteArray(value.as_raw()) };
    let bytes = unsafe { array.as_slice() };
    bytes.chunks_exact(8).map(|word| i64::from_ne_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn integers_of_any_size_are_canonical() {
    let check = |words: &[i64], canonical: &[i64]| {
        let made = from_words(words);
        // Read through a value that does not move, because the words of an int are in the value itself.
        let kept = made.as_view();
        let array = unsafe { TVMFFIBigIntGetContentByteArray(kept.as_raw()) };
        assert_eq!(array.size, canonical.len() * 8, "{words:?}");
        if canonical.len() == 1 {
            assert_eq!(made.get::<i64>().unwrap(), canonical[0]);
        } else {
            assert_eq!(made.type_index(), kTVMFFIBigInt);
            assert_eq!(words_of(&made), canonical);
        }
    };
    check(&[], &[0]);
    check(&[5], &[5]);
    check(&[-5], &[-5]);
    check(&[5, 0, 0], &[5]);
    check(&[-5, -1, -1], &[-5]);
    check(&[-5, 0], &[-5, 0]);
    check(&[5, -1], &[5, -1]);
    check(&[0, 1, 0], &[0, 1]);
    check(&[i64::MIN, -1], &[i64::MIN]);
    check(&[i64::MIN, 0], &[i64::MIN, 0]);
    let mut out = TVMFFIAny::NONE;
    for text in ["abc", "12345678abc"] {
        let code = unsafe { TVMFFIBigIntFromByteArray(&bytes(text), &mut out) };
        expect(code, "ValueError", "BigInt content must contain whole 64-bit words");
    }
    assert_eq!(unsafe { TVMFFIBigIntGetContentByteArray(ptr::null()) }.size, 0);
    assert_eq!(words_of(&Any::new("text that is no integer").unwrap()), []);
}

fn own(view: TVMFFIAny) -> Any {
    let mut out = TVMFFIAny::NONE;
    assert_eq!(unsafe { TVMFFIAnyViewToOwnedAny(&view, &mut out) }, 0);
    value(out)
}

#[test]
fn views_become_owned() {
    let raw = |type_index, value| TVMFFIAny { type_index, small_str_len: 0, value };
    for text in [c"short", c"long enough to be an object"] {
        let owned = own(raw(kTVMFFIRawStr, TVMFFIAnyValue { v_c_str: text.as_ptr() }));
        assert_eq!(owned.get::<&str>().unwrap(), text.to_str().unwrap());
    }
    for text in ["short", "long enough to be an object"] {
        let mut array = bytes(text);
        let owned = own(raw(kTVMFFIByteArrayPtr, TVMFFIAnyValue { v_ptr: (&raw mut array).cast() }));
        assert_eq!(owned.get::<&[u8]>().unwrap(), text.as_bytes());
    }
    let object = anyfn::Shape::from(&[1i64][..]).into_object();
    let owned = own(*anyfn::AnyView::from(&object).as_raw());
    assert_eq!(object.use_count(), 2);
    drop(owned);

    let mut slot = object.clone().into_handle();
    let owned = own(raw(kTVMFFIObjectRValueRef, TVMFFIAnyValue { v_ptr: (&raw mut slot).cast() }));
    assert!(slot.is_null());
    assert_eq!(object.use_count(), 2);
    assert_eq!(owned.type_index(), kTVMFFIShape);
    let empty = own(raw(kTVMFFIObjectRValueRef, TVMFFIAnyValue { v_ptr: (&raw mut slot).cast() }));
    assert!(empty.is_none());

    assert_eq!(own(TVMFFIAny::from_bits(kTVMFFIInt, 7)).get::<i64>().unwrap(), 7);
    assert_eq!(own(*Any::new(Device::CPU).unwrap().as_raw()).get::<Device>().unwrap(), Device::CPU);

    let mut out = TVMFFIAny::NONE;
    expect_null(
        unsafe { TVMFFIAnyViewToOwnedAny(ptr::null(), &mut out) },
        "TVMFFIAnyViewToOwnedAny",
        "any_view",
    );
    let none = TVMFFIAny::NONE;
    expect_null(unsafe { TVMFFIAnyViewToOwnedAny(&none, ptr::null_mut()) }, "TVMFFIAnyViewToOwnedAny", "out");
    for index in [kTVMFFIRawStr, kTVMFFIByteArrayPtr, kTVMFFIObjectRValueRef, kTVMFFIShape] {
        let code = unsafe { TVMFFIAnyViewToOwnedAny(&TVMFFIAny::from_bits(index, 0), &mut out) };
        assert_eq!(failed(code).0, "ValueError", "{index}");
    }
}

#[test]
fn data_types() {
    let mut dtype = DLDataType { code: 9, bits: 9, lanes: 9 };
    assert_eq!(unsafe { TVMFFIDataTypeFromString(&bytes("float32x4"), &mut dtype) }, 0);
    assert_eq!((dtype.code, dtype.bits, dtype.lanes), (kDLFloat, 32, 4));
    let mut out = TVMFFIAny::NONE;
    assert_eq!(unsafe { TVMFFIDataTypeToString(&dtype, &mut out) }, 0);
    assert_eq!(value(out).get::<&str>().unwrap(), "float32x4");
    let code = unsafe { TVMFFIDataTypeFromString(&bytes("what"), &mut dtype) };
    expect(
        code,
        "ValueError",
        "unknown dtype `what`; expected a name such as `float32`, `int8`, `bool` or `float32x4`",
    );
    expect_null(
        unsafe { TVMFFIDataTypeFromString(ptr::null(), &mut dtype) },
        "TVMFFIDataTypeFromString",
        "str",
    );
    let code = unsafe { TVMFFIDataTypeFromString(&bytes("int8"), ptr::null_mut()) };
    expect_null(code, "TVMFFIDataTypeFromString", "out");
    expect_null(unsafe { TVMFFIDataTypeToString(ptr::null(), &mut out) }, "TVMFFIDataTypeToString", "dtype");
    expect_null(unsafe { TVMFFIDataTypeToString(&dtype, ptr::null_mut()) }, "TVMFFIDataTypeToString", "out");
    let not_utf8 = TVMFFIByteArray::from_slice(&[0xff, 0xfe]);
    assert_eq!(failed(unsafe { TVMFFIDataTypeFromString(&not_utf8, &mut dtype) }).0, "ValueError");
}

#[test]
fn custom_data_types_have_the_names_that_the_process_gives() {
    anyfn::registry::register("dtype.get_custom_type_name")
        .set_body_typed(|code: i64| format!("t{code}"))
        .unwrap();
    anyfn::registry::register("dtype.get_custom_type_code")
        .set_body_typed(|name: &str| name.trim_start_matches('t').parse::<i64>().unwrap())
        .unwrap();
    for text in ["custom[t131]", "custom[t131]8", "custom[t200]16x2"] {
        let dtype: anyfn::DType = text.parse().unwrap();
        let mut out = TVMFFIAny::NONE;
        assert_eq!(unsafe { TVMFFIDataTypeToString(&dtype.0, &mut out) }, 0);
        assert_eq!(value(out).get::<&str>().unwrap(), text);
    }
    // A code that does not fit a byte is an error, not another type.
    assert_eq!("custom[t300]".parse::<anyfn::DType>().unwrap_err().kind(), "OverflowError");
    // A panic of the registered function is an error as well.
    assert_eq!("custom[tx]".parse::<anyfn::DType>().unwrap_err().kind(), "InternalError");
}
