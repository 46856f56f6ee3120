//! Hooks of types that do not give a new object, as they should.

use std::sync::Mutex;

use anyfn::abi::{TVMFFIByteArray, TVMFFITypeRegisterAttr};
use anyfn::reflection::TypeInfo;
use anyfn::{Any, AnyView, Args, Array, List, Object, ObjectRef, PackedFunc, Ref};
use anyfn_core as _;
use anyfn_reflect::{Rewrite, deep_copy, shallow_copy};

/// Gives a type one of its functions.
fn hook<T: Object>(name: &str, function: impl Fn(Args<'_>) -> anyfn::Result<Any> + Send + Sync + 'static) {
    let function = PackedFunc::new(function);
    let view = AnyView::from(function.as_object());
    let name = TVMFFIByteArray::from_slice(name.as_bytes());
    // SAFETY: all is borrowed for the call, which takes a reference of its own.
    assert_eq!(unsafe { TVMFFITypeRegisterAttr(T::type_index(), &name, view.as_raw()) }, 0);
}

#[derive(Object)]
#[object(key = "test.hooks.Itself")]
struct Itself {
    items: List<Any>,
    number: i64,
    /// Without such a field the type would have a copy of its own.
    #[field(skip)]
    _untold: (),
}

#[test]
fn a_copy_that_others_hold_is_not_changed() {
    let items: List<Any> = List::try_from_iter([1, 2]).unwrap();
    let original = Ref::new(Itself { items: items.clone(), number: 3, _untold: () });
    hook::<Itself>("__ffi_shallow_copy__", |args| Any::new(args.get::<ObjectRef>(0)?));
    let value = Any::from(original.as_object().clone());
    // No field is set.
    assert!(shallow_copy(&value).unwrap().as_object().unwrap().ptr_eq(original.as_object()));
    let refused = |value: &Any| {
        let error = deep_copy(value).unwrap_err();
        assert_eq!(error.kind(), "TypeError");
        let text = "that others hold: its field `items` cannot be set";
        assert!(error.message().contains(text), "{}", error.message());
    };
    refused(&value);
    assert!(original.items.as_object().ptr_eq(items.as_object()));
    // Also where the field would be set at the end, since the copy lies on a cycle.
    items.push(Any::from(Array::<Any>::try_from_iter([value.clone()]).unwrap())).unwrap();
    refused(&value);
    refused(&Any::from(items.clone()));
    assert!(original.items.as_object().ptr_eq(items.as_object()));
    items.clear();
    assert_eq!(original.number, 3);
}

#[derive(Object)]
#[object(key = "test.hooks.Other", structural = "tree")]
struct Other {
    items: Array<Any>,
    #[field(skip)]
    _untold: (),
}

#[test]
fn rewriting_changes_new_copies_only() {
    static EXISTING: Mutex<Option<ObjectRef>> = Mutex::new(None);
    let array = |number: i64| {
        Array::<Any>::try_from_iter([Any::from(Ref::new(Small { number }).into_object())]).unwrap()
    };
    let existing = Ref::new(Other { items: array(7), _untold: () });
    *EXISTING.lock().unwrap() = Some(existing.as_object().clone());
    hook::<Other>("__ffi_shallow_copy__", |_| Any::new(EXISTING.lock().unwrap().clone()));
    let node = Ref::new(Other { items: array(1), _untold: () });
    let mut rewrite = Rewrite::new();
    rewrite.on(|small: &Ref<Small>| Ok(Some(Ref::new(Small { number: small.number + 1 }).into_object())));
    let error = rewrite.run(Any::from(node.as_object().clone())).unwrap_err();
    assert!(error.message().contains("must return a distinct object"), "{}", error.message());
    assert_eq!(existing.items.get(0).unwrap().get::<Ref<Small>>().unwrap().number, 7);
}

#[derive(Object)]
#[object(key = "test.hooks.Made", init = false)]
struct Made {
    items: List<Any>,
}

#[derive(Object)]
#[object(key = "test.hooks.Small")]
struct Small {
    number: i64,
}

#[test]
fn an_object_that_others_hold_is_not_made() {
    static GIVEN: Mutex<Option<ObjectRef>> = Mutex::new(None);
    hook::<Made>("__ffi_new__", |_| Any::new(GIVEN.lock().unwrap().clone()));
    let made = || {
        TypeInfo::from_index(Made::type_index()).unwrap().make().map_err(|error| error.message().to_string())
    };
    let give = |object: Option<ObjectRef>| *GIVEN.lock().unwrap() = object;
    give(Some(Ref::new(Made { items: List::new() }).into_object()));
    assert_eq!(
        made().unwrap_err(),
        "the function that makes objects of `test.hooks.Made` gave one that others hold"
    );
    // An object of another type that is still being made has no type yet; it has room for that type's fields alone.
    let partial = TypeInfo::from_index(Small::type_index()).unwrap().make().unwrap();
    assert_eq!(partial.type_key(), "ffi.Object");
    give(Some(partial));
    assert_eq!(made().unwrap_err(), "the function that makes objects of `test.hooks.Made` gave none");
    give(Some(Ref::new(Small { number: 1 }).into_object()));
    assert_eq!(made().unwrap_err(), "the function that makes objects of `test.hooks.Made` gave none");
    give(None);
}
