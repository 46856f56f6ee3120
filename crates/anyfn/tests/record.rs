//! Tests of types that Rust code defines at run time.

use std::thread;

use anyfn::abi::kTVMFFIFieldFlagBitMaskKwOnly;
use anyfn::record::{FieldDef, FieldKind, Maker, TypeDef, schema_text};
use anyfn::reflection::TypeInfo;
use anyfn::{Any, Array, List, ObjectRef, PackedFunc, TypedPackedFunc, registry};
use anyfn_core as _;

fn attribute(index: i32, name: &str) -> PackedFunc {
    let info = TypeInfo::from_index(index).expect("the type is there");
    info.attribute(name).expect("such types have it").get::<PackedFunc>().expect("a function")
}

fn object(value: Any) -> ObjectRef {
    value.into_object().expect("an object")
}

fn node() -> i32 {
    let next = r#"{"type":"Optional","args":[{"type":"tests.record.Node"}]}"#;
    let items = TypedPackedFunc::from_fn(List::<Any>::new);
    let node = TypeDef::new("tests.record.Node")
        .doc("A node.")
        .field(FieldDef::new("x", "int"))
        .field(FieldDef::new("next", next).default_value(()).expect("None"))
        .field(FieldDef::new("items", "ffi.List").default_factory(items.into()).doc("What it holds."))
        .field(
            FieldDef::new("frozen", "Any")
                .default_value(1)
                .expect("an int")
                .flags(kTVMFFIFieldFlagBitMaskKwOnly),
        );
    node.define().expect("a type")
}

#[test]
fn fields_defaults_and_inheritance() -> anyfn::Result<()> {
    let index = node();
    assert_eq!(node(), index);
    let init = attribute(index, "__ffi_init__");
    let one = object(init.call((1,))?);
    let two = object(init.call((2, one.clone()))?);
    assert_eq!(two.get_field("x")?.get::<i64>()?, 2);
    assert!(object(two.get_field("next")?).ptr_eq(&one));
    assert!(!object(one.get_field("items")?).ptr_eq(&object(two.get_field("items")?)));
    two.set_field("x", true)?;
    assert_eq!(two.get_field("x")?.get::<i64>()?, 1);
    assert_eq!(two.set_field("x", "text").unwrap_err().kind(), "TypeError");
    assert_eq!(two.set_field("next", Array::<Any>::new()).unwrap_err().kind(), "TypeError");
    assert_eq!(two.set_field("frozen", 2).unwrap_err().kind(), "AttributeError");
    let info = TypeInfo::of(&two);
    assert_eq!((info.doc(), info.field("items").expect("a field").doc()), ("A node.", "What it holds."));
    let child = TypeDef::new("tests.record.Child").parent(index).field(FieldDef::new("y", "float")).define()?;
    let made = object(attribute(child, "__ffi_init__").call((7, 1))?);
    assert!(made.is_instance(index) && made.type_index() == child);
    assert_eq!(made.get_field("y")?.get::<f64>()?, 1.0);
    two.set_field("next", made)?;
    Ok(())
}

#[derive(anyfn::Object)]
#[object(key = "tests.record.Wide")]
#[repr(align(64))]
struct Wide {
    #[field(default = 7)]
    x: i64,
}

#[derive(anyfn::Object)]
#[object(key = "tests.record.Wider", parent = Wide)]
#[repr(C)]
struct Wider {
    base: Wide,
    #[field(default = 8)]
    y: i64,
}

#[test]
fn objects_of_run_time_types_are_aligned_for_their_parent() {
    let of = |value: &i64| std::ptr::from_ref(value).addr() % 64;
    let made = anyfn::Ref::new(Wider { base: Wide { x: 1 }, y: 2 });
    assert_eq!((of(&made.base.x), made.y), (0, 2));
    for parent in ["tests.record.Wide", "tests.record.Wider"] {
        let index = anyfn::type_index_of(parent).expect("it is registered");
        let child =
            TypeDef::new(&format!("{parent}Child")).parent(index).field(FieldDef::new("z", "int")).define();
        let error = child.expect_err("its objects would not be aligned");
        assert_eq!(error.kind(), "TypeError");
        assert!(error.message().contains("require an alignment of more than 16 bytes"), "{error}");
    }
}

#[test]
fn a_copy_and_what_is_not_set() -> anyfn::Result<()> {
    let index = node();
    let made = Maker::of(index).expect("such types have one").make()?;
    assert_eq!(made.get_field("x").unwrap_err().kind(), "AttributeError");
    made.set_field("x", 5)?;
    let copy = object(attribute(index, "__ffi_shallow_copy__").call((made.clone(),))?);
    assert!(!copy.ptr_eq(&made));
    assert_eq!(copy.get_field("x")?.get::<i64>()?, 5);
    assert!(copy.get_field("next").is_err());
    let wrong = attribute(index, "__ffi_shallow_copy__").call((Array::<Any>::new(),));
    assert_eq!(wrong.unwrap_err().kind(), "TypeError");
    Ok(())
}

#[test]
fn fields_are_set_and_read_by_several_threads() -> anyfn::Result<()> {
    let made = object(attribute(node(), "__ffi_init__").call((0,))?);
    made.set_field("items", List::<Any>::new())?;
    thread::scope(|scope| {
        for thread in 0..4 {
            let made = &made;
            scope.spawn(move || {
                for turn in 0..2000 {
                    if thread % 2 == 0 {
                        made.set_field("items", List::<i64>::from_iter([turn])).expect("a List");
                    } else {
                        assert!(made.get_field("items").expect("a value").get::<List<Any>>().is_ok());
                    }
                }
            });
        }
    });
    let items = object(made.get_field("items")?);
    drop(made);
    assert_eq!(items.use_count(), 1);
    Ok(())
}

#[test]
fn weak_references_and_long_chains() -> anyfn::Result<()> {
    let init = attribute(node(), "__ffi_init__");
    let weak = object(init.call((0,))?).downgrade();
    assert!(weak.upgrade().is_none());
    let mut chain = Any::NONE;
    for index in 0..200_000 {
        chain = init.call((index, chain))?;
    }
    drop(chain);
    Ok(())
}

#[test]
fn definitions_that_cannot_be() {
    let refused = |def: TypeDef, text: &str| {
        let error = def.define().unwrap_err();
        assert!(error.message().contains(text), "{error}");
    };
    node();
    refused(TypeDef::new("tests.record.Node").field(FieldDef::new("x", "float")), "is already defined");
    refused(TypeDef::new("tests.record.Bad").field(FieldDef::new("x", "no.such")), "unknown type `no.such`");
    refused(TypeDef::new("tests.record.Bad").parent(71), "built-in type 'ffi.Array'");
    refused(TypeDef::new("tests.record.Bad").structural(99), "unknown structural kind");
    refused(TypeDef::new("ffi.Array"), "is defined by native code");
    let default = FieldDef::new("x", "int").default_value("text").expect("a text");
    refused(TypeDef::new("tests.record.Bad").field(default), "expected int");
    assert_eq!(anyfn::type_index_of("tests.record.Bad"), None);
    assert!(registry::find("ffi.TypeDefine").is_some());
}

#[test]
fn schemas() {
    let find = |key: &str| anyfn::type_index_of(key);
    let text = r#"{"type":"Union","args":[{"type":"int"},{"type":"ffi.List","args":[{"type":"ffi.String"}]}]}"#;
    let kind = FieldKind::parse(text, &find).expect("a type");
    assert_eq!(kind, FieldKind::Union(vec![FieldKind::Int, FieldKind::Object(75)]));
    assert_eq!(schema_text(text), "Union<int, List<str>>");
    assert_eq!(schema_text("int"), "int");
    // An Array becomes a List where a List is expected. If no type accepts a value, the value itself is returned.
    let taken = kind.accept(Any::from(Array::<Any>::new())).expect("taken");
    assert_eq!(taken.type_index(), 75);
    assert!(kind.accept(Any::NONE).is_err());
    assert!(FieldKind::parse("{", &find).is_err());
}
