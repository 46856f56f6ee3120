//! Fields that never change are lent: read without a reference of their own.

use anyfn::reflection::TypeInfo;
use anyfn::{Any, Array, Object, ObjectRef, Ref, String};
use anyfn_core as _;

#[derive(Object, Debug)]
#[object(key = "test.lend.Node", structural = "tree")]
struct Node {
    text: String,
    any: Any,
    items: Array<i64>,
    next: Option<Ref<Node>>,
    number: i64,
    seen: std::sync::atomic::AtomicI64,
}

fn node(text: &str, next: Option<Ref<Node>>) -> ObjectRef {
    let any = Any::new("a text on the heap").unwrap();
    let items = [1, 2, 3].into_iter().collect();
    Ref::new(Node { text: text.into(), any, items, next, number: 7, seen: 0.into() }).into_object()
}

#[test]
fn what_is_lent_is_what_is_read() {
    let last = node("short", None);
    let first = node("a text of some length", Some(Ref::try_from_object(last.clone()).unwrap()));
    for object in [&first, &last] {
        let mut lent = Vec::new();
        for field in TypeInfo::of(object).fields() {
            // SAFETY: a field of the object's type.
            let read = unsafe { field.get_unchecked(object) }.unwrap();
            let counted = |value: &Any| value.as_object().map(ObjectRef::use_count);
            let before = counted(&read);
            // SAFETY: a field of the object's type, and the object lives on.
            if let Some(value) = unsafe { field.lend_unchecked(object) } {
                assert_eq!(*value, read);
                assert_eq!(counted(&value), before);
                lent.push(field.name());
            }
        }
        assert_eq!(lent, ["text", "any", "items", "next"]);
    }
}

#[test]
fn slots_are_lent_when_they_are_constant() {
    use anyfn::record::{FieldDef, TypeDef};
    let constant = FieldDef::new("text", "ffi.String").flags(0);
    let index = TypeDef::new("test.lend.Slots")
        .field(constant)
        .field(FieldDef::new("changes", "ffi.String"))
        .define()
        .unwrap();
    let info = TypeInfo::from_index(index).unwrap();
    let init = info.attribute("__ffi_init__").unwrap().get::<anyfn::PackedFunc>().unwrap();
    let object = init.call(("a text of some length", "x")).unwrap().into_object().unwrap();
    let lend = |name: &str| {
        // SAFETY: a field of the object's type, and the object lives on.
        unsafe { info.field(name).unwrap().lend_unchecked(&object) }
    };
    assert_eq!(lend("text").unwrap().get::<&str>().unwrap(), "a text of some length");
    assert!(lend("changes").is_none());
    // Nothing is lent of an object that is still being made.
    let empty = info.attribute("__ffi_new__").unwrap().get::<anyfn::PackedFunc>().unwrap();
    let empty = empty.call(()).unwrap().into_object().unwrap();
    // SAFETY: a field of the object's type, and the object lives on.
    assert!(unsafe { info.field("text").unwrap().lend_unchecked(&empty) }.is_none());
}
