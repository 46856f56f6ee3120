//! Tests of `ffi.MakeFieldGetter` and related functions. With these functions, the Python frontend
//! of tvm-ffi, the peer, defines types whose fields are stored directly as numbers, values or
//! references.

use core::ffi::{c_int, c_void};

use anyfn::abi::{
    TVMFFIAny, TVMFFIAnyViewToOwnedAny, TVMFFIByteArray, TVMFFIFieldGetter, TVMFFIFieldInfo,
    TVMFFITypeGetOrAllocIndex, TVMFFITypeRegisterField, kTVMFFIBool, kTVMFFIDataType, kTVMFFIDevice,
    kTVMFFIFieldFlagBitMaskWritable, kTVMFFIFieldFlagBitSetterIsFunctionObj, kTVMFFIFloat, kTVMFFIInt,
    kTVMFFIObject, kTVMFFIOpaquePtr,
};
use anyfn::{Any, Array, DType, Device, Error, ObjectRef, PackedFunc, Result, String, registry};
use anyfn_core as _;

fn call(name: &str, args: impl anyfn::IntoArgs) -> Result<Any> {
    // SAFETY: the tests pass functions of the expected types, and change only types that they have defined.
    unsafe { registry::get_unsafe(name) }?.call(args)
}

/// Returns each value unchanged, except the string "refused", for which it raises an error.
unsafe extern "C" fn convert(_: *mut c_void, value: *const TVMFFIAny, result: *mut TVMFFIAny) -> c_int {
    // SAFETY: the caller passes a valid view.
    let raw = unsafe { *value };
    // SAFETY: the caller passes a valid view.
    let view = unsafe { anyfn::AnyView::from_raw(raw) };
    if view.get::<&str>().is_ok_and(|text| text == "refused") {
        Error::new("ValueError", "refused by the converter").raise();
        return -1;
    }
    // SAFETY: the caller passes a valid view, and a writable result.
    unsafe { TVMFFIAnyViewToOwnedAny(value, result) }
}

fn define(key: &str, parent: i32, fields: &[(&str, i32, i64, i64)], total: i64) -> i32 {
    let bytes = TVMFFIByteArray::from_slice(key.as_bytes());
    // SAFETY: the key is borrowed for the call.
    let index = unsafe { TVMFFITypeGetOrAllocIndex(&bytes, -1, -1, 0, 1, parent) };
    assert!(index > 0);
    for (name, kind, offset, size) in fields {
        let getter = call("ffi.MakeFieldGetter", (*kind,)).unwrap().get::<i64>().unwrap();
        let getter = core::ptr::with_exposed_provenance_mut::<c_void>(getter as usize);
        let setter = call("ffi.MakeFieldSetter", (*kind, 0, convert as *const () as usize as i64)).unwrap();
        let setter = setter.get::<PackedFunc>().unwrap();
        let info = TVMFFIFieldInfo {
            name: TVMFFIByteArray::from_slice(name.as_bytes()),
            doc: TVMFFIByteArray::EMPTY,
            metadata: TVMFFIByteArray::EMPTY,
            flags: kTVMFFIFieldFlagBitMaskWritable | kTVMFFIFieldFlagBitSetterIsFunctionObj,
            size: *size,
            alignment: *size.min(&8),
            offset: *offset,
            // SAFETY: `getter` is the address of a function of this type.
            getter: unsafe { core::mem::transmute::<*mut c_void, Option<TVMFFIFieldGetter>>(getter) },
            setter: setter.as_object().as_handle(),
            default_value_or_factory: TVMFFIAny::NONE,
            field_static_type_index: *kind,
        };
        // SAFETY: all arguments are borrowed for the call.
        assert_eq!(unsafe { TVMFFITypeRegisterField(index, &info) }, 0);
    }
    call("ffi._PyClassRegisterTypeAttrColumns", (index, total)).unwrap();
    index
}

const FIELDS: [(&str, i32, i64, i64); 8] = [
    ("int", kTVMFFIInt, 24, 8),
    ("float", kTVMFFIFloat, 32, 8),
    ("flag", kTVMFFIBool, 40, 1),
    ("dtype", kTVMFFIDataType, 44, 4),
    ("device", kTVMFFIDevice, 48, 8),
    ("pointer", kTVMFFIOpaquePtr, 56, 8),
    ("any", -1, 64, 16),
    ("object", kTVMFFIObject, 80, 8),
];

fn any(value: impl anyfn::IntoAny) -> Any {
    Any::new(value).unwrap()
}

fn values(long: &String, held: &ObjectRef) -> [Any; 8] {
    let dtype = any("float32".parse::<DType>().unwrap());
    let device = any(Device::new(1, 2));
    // SAFETY: no code dereferences the pointer.
    let pointer = any(unsafe { anyfn::OpaquePtr::from_ptr(core::ptr::without_provenance_mut(0x1234)) });
    [any(-5), any(2.5), any(true), dtype, device, pointer, any(long.clone()), any(held.clone())]
}

#[test]
fn objects_of_plain_memory() {
    let index = define("test.python_class.All", kTVMFFIObject, &FIELDS, 88);
    let child = define("test.python_class.Child", index, &[("more", -1, 88, 16)], 104);
    let long = String::from("a text of more than seven letters");
    let held = any(vec![1, 2]).into_object().unwrap();
    let values = values(&long, &held);
    let pairs = FIELDS.iter().zip(&values).flat_map(|((name, ..), value)| [any(*name), value.clone()]);
    let args: Vec<Any> = [any(child), any("more"), any(held.clone())].into_iter().chain(pairs).collect();
    let make = registry::get("ffi.MakeObjectFromPackedArgs").unwrap();
    let made = make.call(&args[..]).unwrap().into_object().unwrap();
    drop(args);
    assert_eq!(made.type_key(), "test.python_class.Child");
    for ((name, ..), value) in FIELDS.iter().zip(&values) {
        assert_eq!(made.get_field(name).unwrap(), *value, "{name}");
    }
    assert_eq!(made.get_field("more").unwrap().get::<Array<i64>>().unwrap().len(), 2);
    // Held by the variable, by `values`, and by two fields.
    assert_eq!(held.use_count(), 4);
    let copy = anyfn::reflection::TypeInfo::of(&made).attribute("__ffi_shallow_copy__").unwrap();
    let copy = copy.get::<PackedFunc>().unwrap().call((&made,));
    let copy = copy.unwrap().into_object().unwrap();
    assert_eq!(held.use_count(), 6);
    made.set_field("object", Any::NONE).unwrap();
    made.set_field("int", 7).unwrap();
    made.set_field("any", 7).unwrap();
    assert!(made.get_field("object").unwrap().is_none());
    assert_eq!(copy.get_field("int").unwrap(), any(-5));
    assert_eq!(copy.get_field("any").unwrap(), any(long.clone()));
    assert_eq!(held.use_count(), 5);
    let fails = |result: Result<()>, kind: &str, part: &str| {
        let error = result.unwrap_err();
        assert!(error.kind() == kind && error.message().contains(part), "{error}");
    };
    fails(made.set_field("int", "x"), "TypeError", "expected `int` but got");
    fails(made.set_field("object", 1), "TypeError", "expected an object but got `int`");
    fails(made.set_field("any", "refused"), "ValueError", "refused by the converter");
    assert_eq!(made.get_field("any").unwrap(), any(7));
    drop((made, copy));
    drop(values);
    assert!(held.is_unique());
    // A positional argument of the constructor that is derived from the fields.
    let init = anyfn::reflection::TypeInfo::from_index(index).unwrap().attribute("__ffi_init__").unwrap();
    let error = init.get::<PackedFunc>().unwrap().call((1,)).unwrap_err();
    assert!(error.message().contains("missing required argument: 'float'"), "{error}");
}

#[test]
fn chains_are_released_without_recursion() {
    let index = define("test.python_class.Link", kTVMFFIObject, &[("next", kTVMFFIObject, 24, 8)], 32);
    let make = registry::get("ffi.MakeObjectFromPackedArgs").unwrap();
    let mut chain = Any::NONE;
    for _ in 0..200_000 {
        chain = make.call((index, "next", &chain)).unwrap();
    }
    let watched = chain.as_object().unwrap().downgrade();
    drop(chain);
    assert!(watched.upgrade().is_none());
}

#[test]
fn what_is_refused() {
    for (name, args) in
        [("ffi.MakeFieldGetter", vec![any(7)]), ("ffi.MakeFieldSetter", vec![any(7), any(0), any(1)])]
    {
        let what = if name.ends_with("Getter") { "getter" } else { "setter" };
        let error = call(name, &args[..]).unwrap_err();
        assert_eq!(error.message(), format!("Unsupported field type index for {what}: 7"));
        assert_eq!(error.kind(), "ValueError");
    }
    assert_eq!(call("ffi.MakeFieldSetter", (1, 0, 0)).unwrap_err().kind(), "ValueError");
    assert!(
        call("ffi._PyClassRegisterTypeAttrColumns", (999_999, 40)).unwrap_err().message().contains("999999")
    );
    let key = TVMFFIByteArray::from_slice(b"test.python_class.Empty");
    // SAFETY: the key is borrowed for the call.
    let index = unsafe { TVMFFITypeGetOrAllocIndex(&key, -1, -1, 0, 1, kTVMFFIObject) };
    for size in [-1, 0, 23, i64::MAX] {
        assert_eq!(
            call("ffi._PyClassRegisterTypeAttrColumns", (index, size)).unwrap_err().kind(),
            "ValueError"
        );
    }
    assert!(call("ffi._PyClassRegisterTypeAttrColumns", (index, 24)).is_ok());
    let again = call("ffi._PyClassRegisterTypeAttrColumns", (index, 24)).unwrap_err();
    assert!(again.message().contains("`__ffi_init__` is already registered"), "{again}");
}

#[test]
fn native_types_are_refused() {
    #[derive(anyfn::Object)]
    #[object(key = "test.python_class.Native")]
    struct Native {
        text: std::string::String,
    }
    let native = anyfn::Ref::new(Native { text: "x".into() }).into_object().type_index();
    let key = TVMFFIByteArray::from_slice(b"test.python_class.OfNative");
    // SAFETY: the key is borrowed for the call.
    let derived = unsafe { TVMFFITypeGetOrAllocIndex(&key, -1, -1, 0, 1, native) };
    for index in [anyfn::abi::kTVMFFIFunction, anyfn::abi::kTVMFFITensor, native, derived] {
        let error = call("ffi._PyClassRegisterTypeAttrColumns", (index, 64)).unwrap_err();
        assert!(error.kind() == "TypeError" && error.message().contains(anyfn::type_key(index)), "{error}");
        assert!(anyfn::reflection::TypeInfo::from_index(index).unwrap().attribute("__ffi_new__").is_none());
    }
}
