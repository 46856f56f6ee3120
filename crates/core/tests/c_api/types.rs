use super::*;
use anyfn::abi::*;
use std::ffi::c_void;

fn register(key: &str, depth: i32, slots: i32, overflow: bool, parent: i32) -> i32 {
    unsafe { TVMFFITypeGetOrAllocIndex(&bytes(key), -1, depth, slots, overflow.into(), parent) }
}

fn info(index: i32) -> &'static TVMFFITypeInfo {
    unsafe { TVMFFIGetTypeInfo(index).as_ref() }.expect("a type")
}

fn key(info: &TVMFFITypeInfo) -> &str {
    std::str::from_utf8(unsafe { info.type_key.as_slice() }).unwrap()
}

#[test]
fn static_types_are_there() {
    for &(index, name) in STATIC_TYPE_KEYS {
        let info = info(index);
        assert_eq!((info.type_index, key(info)), (index, name));
        assert_eq!(info.type_depth, i32::from(index > kTVMFFIObject));
        let mut found = -9;
        assert_eq!(unsafe { TVMFFITypeKeyToIndex(&bytes(name), &mut found) }, 0);
        assert_eq!(found, index);
    }
    let array = info(kTVMFFIArray);
    assert_eq!(unsafe { *array.type_ancestors }, ptr::from_ref(info(kTVMFFIObject)));
    assert_eq!(info(kTVMFFIObject).type_key_hash, 0x33a2_11b2_74fa_0106);
    assert_eq!(array.type_key_hash, 0x8113_00c1_0428_4401);
}

#[test]
fn unknown_types_are_errors() {
    for index in [-1, -2, 14, 63, 79, 127, 1_000_000, i32::MAX, i32::MIN] {
        assert!(unsafe { TVMFFIGetTypeInfo(index) }.is_null());
        assert_eq!(raised(), ("InternalError".into(), format!("Cannot find type info for type_index={index}")));
    }
    let mut out = 0;
    let code = unsafe { TVMFFITypeKeyToIndex(&bytes("test.no.such"), &mut out) };
    expect(code, "InternalError", "Cannot find type `test.no.such`");
    expect_null(unsafe { TVMFFITypeKeyToIndex(ptr::null(), &mut out) }, "TVMFFITypeKeyToIndex", "type_key");
    let code = unsafe { TVMFFITypeKeyToIndex(&bytes("int"), ptr::null_mut()) };
    expect_null(code, "TVMFFITypeKeyToIndex", "out_tindex");
    assert_eq!(register("test.no.such", 0, 0, true, -2), -2);
    assert_eq!(register("int", 0, 0, true, -2), kTVMFFIInt);
    assert_eq!(unsafe { TVMFFITypeGetOrAllocIndex(ptr::null(), -1, 1, 0, 1, 64) }, -1);
    assert_eq!(raised().0, "ValueError");
}

#[test]
fn children_are_put_into_their_parents_slots() {
    let parent = register("test.slots.Parent", 1, 3, true, kTVMFFIObject);
    assert!(parent >= kTVMFFIDynObjectBegin);
    assert_eq!(register("test.slots.Parent", 7, 9, false, 70), parent);
    // A child with one slot for a grandchild takes two slots.
    let child = register("test.slots.Child", 2, 1, true, parent);
    assert_eq!(child, parent + 1);
    let second = register("test.slots.Second", 2, 0, true, parent);
    assert_eq!(second, parent + 3);
    let grandchild = register("test.slots.Grandchild", 3, 0, true, child);
    assert_eq!(grandchild, child + 1);
    // The parent's slots are used up, so the next child goes to the end of the table.
    let overflow = register("test.slots.Overflow", 2, 0, true, parent);
    assert!(overflow > parent + 3);
    let info = info(grandchild);
    assert_eq!(info.type_depth, 3);
    let ancestors = unsafe { std::slice::from_raw_parts(info.type_ancestors, 3) };
    let indices: Vec<i32> = ancestors.iter().map(|ancestor| unsafe { (**ancestor).type_index }).collect();
    assert_eq!(indices, [kTVMFFIObject, parent, child]);
    assert!(anyfn::is_instance(grandchild, parent) && !anyfn::is_instance(second, child));
}

#[test]
fn a_type_without_overflow_fills_up() {
    let parent = register("test.full.Parent", 1, 1, false, kTVMFFIObject);
    let only = register("test.full.Only", 2, 0, true, parent);
    assert_eq!(only, parent + 1);
    assert_eq!(register("test.full.More", 2, 0, true, parent), -1);
    assert_eq!(
        raised(),
        ("InternalError".into(), "Reach maximum number of sub-classes for test.full.Parent".into())
    );
    // A failed registration leaves nothing behind.
    assert_eq!(register("test.full.More", 2, 0, true, -2), -2);
    // A child of a type that cannot overflow cannot overflow either, although it is registered as if it could.
    assert_eq!(register("test.full.Deeper", 3, 0, true, only), -1);
    assert_eq!(raised().0, "InternalError");
    assert_eq!(
        register("test.full.More", 1, 0, true, kTVMFFIObject),
        info(register("test.full.More", 0, 0, true, -2)).type_index
    );
}

#[test]
fn what_cannot_be_a_type_is_refused() {
    let refuse = |key: &str, fixed: i32, depth: i32, slots: i32, parent: i32| {
        assert_eq!(unsafe { TVMFFITypeGetOrAllocIndex(&bytes(key), fixed, depth, slots, 1, parent) }, -1);
        raised()
    };
    let message = "Conflicting static index 65 between ffi.String and test.bad.Taken";
    assert_eq!(refuse("test.bad.Taken", 65, 1, 0, 64), ("InternalError".into(), message.into()));
    assert_eq!(refuse("test.bad.TooLarge", 128, 1, 0, 64).0, "ValueError");
    assert_eq!(refuse("test.bad.NoParent", -1, 0, 0, -1).0, "InternalError");
    assert_eq!(refuse("test.bad.UnknownParent", -1, 1, 0, 99_999).0, "InternalError");
    assert_eq!(refuse("test.bad.Depth", -1, 2, 0, 64).0, "InternalError");
    assert_eq!(refuse("test.bad.Slots", -1, 1, -2, 64).0, "ValueError");
    assert_eq!(refuse("test.bad.Slots", -1, 1, i32::MAX, 64).0, "ValueError");
    assert_eq!(refuse("test.bad.Order", 60, 1, 0, 64).0, "InternalError");
    // A static slot that is free can be taken.
    assert_eq!(unsafe { TVMFFITypeGetOrAllocIndex(&bytes("test.Static"), 100, 1, 0, 1, 64) }, 100);
}

unsafe extern "C" fn getter(_field: *mut c_void, _result: *mut TVMFFIAny) -> c_int {
    0
}

fn field(name: &str) -> TVMFFIFieldInfo {
    TVMFFIFieldInfo {
        name: bytes(name),
        doc: bytes("What it is."),
        metadata: TVMFFIByteArray::EMPTY,
        flags: 0,
        size: 8,
        alignment: 8,
        offset: 24,
        getter: Some(getter),
        setter: ptr::null_mut(),
        default_value_or_factory: TVMFFIAny::NONE,
        field_static_type_index: kTVMFFIInt,
    }
}

fn names(info: &TVMFFITypeInfo) -> Vec<String> {
    let fields = unsafe { std::slice::from_raw_parts(info.fields, info.num_fields as usize) };
    fields.iter().map(|field| String::from_utf8(unsafe { field.name.as_slice() }.to_vec()).unwrap()).collect()
}

#[test]
fn fields_are_copied_in_order() {
    let index = register("test.fields.Type", 1, 0, true, kTVMFFIObject);
    assert_eq!(info(index).num_fields, 0);
    let expected: Vec<String> = (0..50).map(|i| format!("field_{i}")).collect();
    for name in &expected {
        let name = name.clone();
        assert_eq!(unsafe { TVMFFITypeRegisterField(index, &field(&name)) }, 0);
    }
    assert_eq!(names(info(index)), expected);
    let first = unsafe { &*info(index).fields };
    assert_eq!((unsafe { first.doc.as_slice() }, first.metadata.data), (&b"What it is."[..], ptr::null()));
    let code = unsafe { TVMFFITypeRegisterField(index, &field("field_7")) };
    expect(code, "InternalError", "Duplicate field name \"field_7\" in type \"test.fields.Type\"");
    assert_eq!(info(index).num_fields, 50);

    // A field of the same name in a derived type is allowed (with a warning).
    let child = register("test.fields.Child", 2, 0, true, index);
    assert_eq!(unsafe { TVMFFITypeRegisterField(child, &field("field_7")) }, 0);
    let this = "TVMFFITypeRegisterField";
    expect_null(unsafe { TVMFFITypeRegisterField(index, ptr::null()) }, this, "info");
    let code = unsafe { TVMFFITypeRegisterField(99_999, &field("x")) };
    expect(code, "InternalError", "Cannot find type info for type_index=99999");
    let broken = TVMFFIFieldInfo { name: BROKEN, ..field("x") };
    assert_eq!(failed(unsafe { TVMFFITypeRegisterField(index, &broken) }).0, "ValueError");
}

#[test]
fn defaults_and_function_setters_are_kept_alive() {
    let index = register("test.fields.Kept", 1, 0, true, kTVMFFIObject);
    let setter = anyfn::PackedFunc::new(|_| Ok(Any::NONE));
    let default = anyfn::Shape::from(&[1i64][..]).into_object();
    let with_both = TVMFFIFieldInfo {
        flags: kTVMFFIFieldFlagBitSetterIsFunctionObj | kTVMFFIFieldFlagBitMaskHasDefault,
        setter: setter.as_object().as_handle(),
        default_value_or_factory: *anyfn::AnyView::from(&default).as_raw(),
        ..field("x")
    };
    assert_eq!(unsafe { TVMFFITypeRegisterField(index, &with_both) }, 0);
    assert_eq!((setter.as_object().use_count(), default.use_count()), (2, 2));
    assert_eq!(failed(unsafe { TVMFFITypeRegisterField(index, &with_both) }).0, "InternalError");
    assert_eq!((setter.as_object().use_count(), default.use_count()), (2, 2));
}

#[test]
fn methods_and_metadata() {
    let index = register("test.methods.Type", 1, 0, true, kTVMFFIObject);
    let function = anyfn::PackedFunc::new(|_| Ok(Any::NONE));
    let method = |value: TVMFFIAny| TVMFFIMethodInfo {
        name: bytes("run"),
        doc: TVMFFIByteArray::EMPTY,
        metadata: bytes("{}"),
        flags: kTVMFFIFieldFlagBitMaskIsStaticMethod,
        method: value,
    };
    let view = *anyfn::AnyView::from(function.as_object()).as_raw();
    assert_eq!(unsafe { TVMFFITypeRegisterMethod(index, &method(view)) }, 0);
    assert_eq!(unsafe { TVMFFITypeRegisterMethod(index, &method(view)) }, 0);
    assert_eq!((info(index).num_methods, function.as_object().use_count()), (2, 3));
    let code = unsafe { TVMFFITypeRegisterMethod(index, &method(TVMFFIAny::NONE)) };
    assert_eq!(failed(code).0, "TypeError");
    expect_null(unsafe { TVMFFITypeRegisterMethod(index, ptr::null()) }, "TVMFFITypeRegisterMethod", "info");
    assert_eq!(failed(unsafe { TVMFFITypeRegisterMethod(-5, &method(view)) }).0, "InternalError");

    assert!(info(index).metadata.is_null());
    let metadata =
        TVMFFITypeMetadata { doc: bytes("A type."), creator: None, total_size: 32, structural_eq_hash_kind: 1 };
    assert_eq!(unsafe { TVMFFITypeRegisterMetadata(index, &metadata) }, 0);
    let kept = unsafe { &*info(index).metadata };
    assert_eq!(
        (kept.total_size, kept.structural_eq_hash_kind, unsafe { kept.doc.as_slice() }),
        (32, 1, &b"A type."[..])
    );
    let (kind, message) = failed(unsafe { TVMFFITypeRegisterMetadata(index, &metadata) });
    assert_eq!(kind, "RuntimeError");
    assert!(message.starts_with("Overriding test.methods.Type, possible causes:"), "{message}");
    expect_null(
        unsafe { TVMFFITypeRegisterMetadata(index, ptr::null()) },
        "TVMFFITypeRegisterMetadata",
        "metadata",
    );
    assert_eq!(failed(unsafe { TVMFFITypeRegisterMetadata(99_999, &metadata) }).0, "InternalError");
}

fn column(name: &str) -> Option<&'static TVMFFITypeAttrColumn> {
    unsafe { TVMFFIGetTypeAttrColumn(&bytes(name)).as_ref() }
}

#[test]
fn attributes_are_set_once_at_a_stable_address() {
    assert!(column("test.attr.none").is_none());
    assert!(
        column("__ffi_repr__").is_some() && column("__any_hash__").is_some() && column("__s_equal__").is_some()
    );
    let name = bytes("test.attr");
    let int = |value: u64| TVMFFIAny::from_bits(kTVMFFIInt, value);
    assert_eq!(unsafe { TVMFFITypeRegisterAttr(0, &name, ptr::null()) }, 0);
    let shown = column("test.attr").unwrap();
    assert_eq!((shown.size, shown.begin_index), (0, 0));
    let parent = register("test.attr.Parent", 1, 1000, true, kTVMFFIObject);
    let first = register("test.attr.First", 2, 700, true, parent);
    let second = register("test.attr.Second", 2, 0, true, parent);
    for (index, number) in [(first, 1), (kTVMFFIObject, 2), (second, 3)] {
        assert_eq!(unsafe { TVMFFITypeRegisterAttr(index, &name, &int(number)) }, 0);
    }
    assert_eq!(column("test.attr").map(ptr::from_ref), Some(ptr::from_ref(shown)));
    let size = unsafe { (&raw const shown.size).read_volatile() };
    assert_eq!(size, second + 1);
    let at = |index: i32| unsafe { &*(&raw const shown.data).read_volatile().add(index as usize) };
    let bits = |index: i32| unsafe { at(index).bits() };
    assert_eq!((bits(first), bits(kTVMFFIObject), bits(second)), (1, 2, 3));
    assert_eq!(at(parent).type_index, kTVMFFINone);
    let (kind, message) = failed(unsafe { TVMFFITypeRegisterAttr(first, &name, &int(9)) });
    assert_eq!(kind, "RuntimeError");
    assert!(
        message.starts_with(&format!("TypeAttr `test.attr` is already registered for type index {first}."))
    );
    assert_eq!(bits(first), 1);

    expect_null(
        unsafe { TVMFFITypeRegisterAttr(first, ptr::null(), &int(1)) },
        "TVMFFITypeRegisterAttr",
        "attr_name",
    );
    expect_null(
        unsafe { TVMFFITypeRegisterAttr(first, &name, ptr::null()) },
        "TVMFFITypeRegisterAttr",
        "attr_value",
    );
    for index in [-1, 99_999] {
        assert_eq!(failed(unsafe { TVMFFITypeRegisterAttr(index, &name, &int(1)) }).0, "InternalError");
    }
    assert!(unsafe { TVMFFIGetTypeAttrColumn(ptr::null()) }.is_null());
    assert_eq!(raised().0, "ValueError");
}

#[test]
fn attribute_values_are_owned() {
    let index = register("test.attr.Owner", 1, 0, true, kTVMFFIObject);
    let raw = TVMFFIAny {
        type_index: kTVMFFIRawStr,
        small_str_len: 0,
        value: TVMFFIAnyValue { v_c_str: c"a text that is copied".as_ptr() },
    };
    assert_eq!(unsafe { TVMFFITypeRegisterAttr(index, &bytes("test.attr.owned"), &raw) }, 0);
    let shown = column("test.attr.owned").unwrap();
    assert_eq!(unsafe { (*shown.data.add(index as usize)).type_index }, kTVMFFIStr);
}

#[test]
fn threads_register_and_read_at_once() {
    let parent = register("test.threads.Parent", 1, 0, true, kTVMFFIObject);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(move || {
                for i in 0..300 {
                    let name = format!("test.threads.T{i}");
                    let index = register(&name, 2, 0, true, parent);
                    assert!(index > parent);
                    assert_eq!(key(info(index)), name);
                    let value = TVMFFIAny::from_bits(kTVMFFIInt, i);
                    if unsafe { TVMFFITypeRegisterAttr(index, &bytes("test.threads.attr"), &value) } != 0 {
                        assert_eq!(raised().0, "RuntimeError");
                    }
                    if unsafe { TVMFFITypeRegisterField(index, &field("x")) } != 0 {
                        assert_eq!(raised().0, "InternalError");
                    }
                    assert_eq!(names(info(index)), ["x"]);
                }
            });
        }
    });
    let mut indices: Vec<i32> =
        (0..300).map(|i| register(&format!("test.threads.T{i}"), 0, 0, true, -2)).collect();
    indices.sort_unstable();
    indices.dedup();
    assert_eq!(indices.len(), 300);
}
