//! Tests that reading a read-only field borrows its value and adds no reference.

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
            // SAFETY: the field belongs to the object's type.
            let read = unsafe { field.get_unchecked(object) }.unwrap();
            let counted = |value: &Any| value.as_object().map(ObjectRef::use_count);
            let before = counted(&read);
            // SAFETY: the field belongs to the object's type, and the object outlives the borrow.
            if let Some(value) = unsafe { field.lend_unchecked(object) } {
                assert_eq!(*value, read);
                assert_eq!(counted(&value), before);
                lent.push(field.name());
            }
        }
        assert_eq!(lent, ["text", "any", "items", "next", "number"]);
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
        // SAFETY: the field belongs to the object's type, and the object outlives the borrow.
        unsafe { info.field(name).unwrap().lend_unchecked(&object) }
    };
    assert_eq!(lend("text").unwrap().get::<&str>().unwrap(), "a text of some length");
    assert!(lend("changes").is_none());
    // The fields of an object under construction are not borrowed.
    let empty = info.attribute("__ffi_new__").unwrap().get::<anyfn::PackedFunc>().unwrap();
    let empty = empty.call(()).unwrap().into_object().unwrap();
    // SAFETY: the field belongs to the object's type, and the object outlives the borrow.
    assert!(unsafe { info.field("text").unwrap().lend_unchecked(&empty) }.is_none());
}

/// Field type that stores the address of an object but owns no reference to it. Reflection describes such a
/// field as an object.
struct Address(u64);

static KEPT: std::sync::Mutex<Option<ObjectRef>> = std::sync::Mutex::new(None);

impl anyfn::FieldValue for Address {
    fn schema() -> anyfn::Schema {
        <ObjectRef as anyfn::FromArg>::schema()
    }
    fn static_type_index() -> i32 {
        anyfn::abi::kTVMFFIObject
    }
    fn read(&self) -> anyfn::Result<Any> {
        Any::new(KEPT.lock().unwrap().clone())
    }
    fn make(_: &anyfn::AnyView<'_>) -> Result<Self, anyfn::Mismatch> {
        Ok(Address(0))
    }
    fn copied(&self) -> Self {
        Address(self.0)
    }
}

#[derive(Object)]
#[object(key = "test.lend.Holder")]
struct Holder {
    address: Address,
    pair: Pair,
    cell: anyfn::Cell<ObjectRef>,
}

/// Field type with the layout of a 16-byte value. Its two words own no reference.
struct Pair([u64; 2]);

impl anyfn::FieldValue for Pair {
    fn schema() -> anyfn::Schema {
        <ObjectRef as anyfn::FromArg>::schema()
    }
    fn static_type_index() -> i32 {
        anyfn::abi::kTVMFFIAny
    }
    fn read(&self) -> anyfn::Result<Any> {
        Any::new(KEPT.lock().unwrap().clone())
    }
    fn make(_: &anyfn::AnyView<'_>) -> Result<Self, anyfn::Mismatch> {
        Ok(Pair([0; 2]))
    }
    fn copied(&self) -> Self {
        Pair(self.0)
    }
}

#[test]
fn a_field_of_a_type_of_ones_own_holds_no_reference() {
    let child = node("child", None);
    *KEPT.lock().unwrap() = Some(child.clone());
    let address = child.as_handle().addr() as u64;
    let pair = Pair([u64::from(child.type_index() as u32), address]);
    let holder = Holder { address: Address(address), pair, cell: anyfn::Cell::new(child.clone()) };
    let holder = Ref::new(holder).into_object();
    let info = TypeInfo::of(&holder);
    for (name, holds) in [("address", false), ("pair", false), ("cell", true)] {
        let field = info.field(name).unwrap();
        assert_eq!(
            holder.get_field(name).unwrap().as_object().map(ObjectRef::as_handle),
            Some(child.as_handle())
        );
        // SAFETY: the field belongs to the object's type, and no code sets it.
        assert_eq!(unsafe { field.holds(&holder, &child) }, holds, "{name}");
        // SAFETY: the field belongs to the object's type, and the object outlives the borrow.
        assert!(unsafe { field.lend_unchecked(&holder) }.is_none(), "{name}");
    }
}
