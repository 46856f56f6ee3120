//! Tests of types with fields, defined by `#[derive(Object)]`.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use anyfn::abi::{
    kTVMFFIAny, kTVMFFIError, kTVMFFIFieldFlagBitMaskKwOnly, kTVMFFIFieldFlagBitMaskReprOff,
    kTVMFFIFieldFlagBitMaskSEqHashDefPattern, kTVMFFIFunction, kTVMFFIInt, kTVMFFIObject,
    kTVMFFISEqHashKindTreeNode,
};
use anyfn::reflection::TypeInfo;
use anyfn::{Any, Array, Error, Object, ObjectRef, PackedFunc, Ref, String, registry};
use anyfn_core as _;

/// A node.
#[derive(Object, Debug)]
#[object(key = "test.objects.Node", structural = "tree")]
struct Node {
    /// Name of the node.
    name: String,
    #[field(structural = "def")]
    children: Array<Ref<Node>>,
    #[field(default = 1.5, kw_only)]
    weight: f32,
    #[field(default = vec![1, 2], repr = false)]
    sizes: Vec<u16>,
    /// Number of visits to the node.
    #[field(default = 0)]
    seen: AtomicI64,
    #[field(skip, default = Tracked::new())]
    tracked: Tracked,
}

/// A type that counts its live instances.
#[derive(Debug)]
struct Tracked;

static TRACKED: AtomicUsize = AtomicUsize::new(0);

impl Tracked {
    fn new() -> Tracked {
        TRACKED.fetch_add(1, Ordering::Relaxed);
        Tracked
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        TRACKED.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Object, Debug)]
#[object(key = "test.objects.Leaf", parent = Node, final)]
#[repr(C)]
struct Leaf {
    node: Node,
    value: Any,
}

fn node(name: &str) -> Node {
    Node {
        name: name.into(),
        children: Array::new(),
        weight: 1.0,
        sizes: vec![],
        seen: AtomicI64::new(0),
        tracked: Tracked::new(),
    }
}

fn construct<T: Object>(args: &[Any]) -> anyfn::Result<ObjectRef> {
    let init = TypeInfo::from_index(T::type_index()).unwrap().attribute("__ffi_init__").unwrap();
    Ok(init.get::<PackedFunc>()?.call(args)?.into_object().unwrap())
}

fn make(args: &[Any]) -> anyfn::Result<ObjectRef> {
    Ok(registry::get("ffi.MakeObjectFromPackedArgs")?.call(args)?.into_object().unwrap())
}

fn any(value: impl anyfn::IntoAny) -> Any {
    Any::new(value).unwrap()
}

#[test]
fn a_type_tells_of_its_fields() {
    let info = TypeInfo::from_index(Leaf::type_index()).unwrap();
    assert_eq!(info.parent().unwrap().key(), "test.objects.Node");
    let names: Vec<&str> = info.fields().map(|field| field.name()).collect();
    assert_eq!(names, ["name", "children", "weight", "sizes", "seen", "value"]);
    let node = info.parent().unwrap();
    assert_eq!((node.doc(), node.structural_kind()), ("A node.", kTVMFFISEqHashKindTreeNode as i32));
    assert_eq!(info.field("name").unwrap().doc(), "Name of the node.");
    assert_eq!(
        info.field("children").unwrap().metadata(),
        r#"{"type_schema":"{\"type\":\"ffi.Array\",\"args\":[{\"type\":\"test.objects.Node\"}]}"}"#
    );
    assert!(info.field("children").unwrap().has(kTVMFFIFieldFlagBitMaskSEqHashDefPattern));
    assert!(info.field("weight").unwrap().has(kTVMFFIFieldFlagBitMaskKwOnly));
    assert!(info.field("sizes").unwrap().has(kTVMFFIFieldFlagBitMaskReprOff));
    assert_eq!(info.field("weight").unwrap().default().unwrap().unwrap().get::<f64>().unwrap(), 1.5);
    assert_eq!(info.field("sizes").unwrap().default().unwrap().unwrap().get::<Vec<i64>>().unwrap(), [1, 2]);
    assert!(info.field("name").unwrap().default().unwrap().is_none());
    assert!(info.field("seen").unwrap().is_writable() && !info.field("name").unwrap().is_writable());
    assert!(info.attribute("__ffi_type_final__").unwrap().get::<bool>().unwrap());
}

#[derive(Object)]
#[object(key = "test.objects.Typed")]
struct Typed {
    error: Error,
    function: PackedFunc,
    node: Ref<Node>,
    object: ObjectRef,
    count: i32,
    large: u64,
    text: String,
}

#[test]
fn a_field_tells_the_type_index_of_all_its_values() {
    let info = TypeInfo::from_index(<Typed as Object>::type_index()).unwrap();
    let found: Vec<_> = info.fields().map(|field| (field.name(), field.static_type_index())).collect();
    let expected = [
        ("error", kTVMFFIError),
        ("function", kTVMFFIFunction),
        ("node", kTVMFFIObject),
        ("object", kTVMFFIObject),
        ("count", kTVMFFIInt),
        ("large", kTVMFFIAny),
        ("text", kTVMFFIAny),
    ];
    assert_eq!(found, expected);
}

#[test]
fn fields_are_read_and_set_by_name() {
    let child = Ref::new(node("a child with a long name"));
    let parent = Ref::new(Node { children: [child.clone()].into_iter().collect(), ..node("p") }.into_leaf());
    let object = parent.as_object();
    assert_eq!(object.get_field("name").unwrap().get::<String>().unwrap(), "p");
    let children = object.get_field("children").unwrap().get::<Array<Ref<Node>>>().unwrap();
    assert!(children.get(0).unwrap().ptr_eq(&child));
    assert_eq!(object.get_field("weight").unwrap().get::<f64>().unwrap(), 1.0);
    object.set_field("seen", 7).unwrap();
    assert_eq!(parent.seen.load(Ordering::Relaxed), 7);
    assert_eq!(object.set_field("name", "q").unwrap_err().kind(), "AttributeError");
    assert_eq!(object.set_field("seen", "q").unwrap_err().kind(), "TypeError");
    assert_eq!(object.get_field("names").unwrap_err().kind(), "AttributeError");
}

impl Node {
    fn into_leaf(self) -> Leaf {
        Leaf { node: self, value: Any::NONE }
    }
}

#[test]
fn objects_are_made_of_values_for_fields() {
    let made = construct::<Node>(&[any("a name of some length"), any(Vec::<Ref<Node>>::new())]).unwrap();
    let made = Ref::<Node>::try_from_object(made).unwrap();
    assert_eq!((&*made.name, made.weight, &made.sizes[..]), ("a name of some length", 1.5, &[1u16, 2][..]));
    let pairs = [
        any("test.objects.Leaf"),
        any("value"),
        any(5),
        any("name"),
        any("n"),
        any("children"),
        any(vec![made.clone()]),
        any("seen"),
        any(3),
    ];
    let leaf = Ref::<Leaf>::try_from_object(make(&pairs).unwrap()).unwrap();
    assert_eq!(leaf.value.get::<i64>().unwrap(), 5);
    assert_eq!((&*leaf.name, leaf.seen.load(Ordering::Relaxed), leaf.children.len()), ("n", 3, 1));
    assert!(leaf.as_object().is_unique());
    // If a field gets two values, the last one is used, and the first is released.
    let twice = [
        any(Leaf::type_index()),
        any("value"),
        any(made.clone()),
        any("value"),
        any(1),
        any("name"),
        any("n"),
        any("children"),
        any(Vec::<Ref<Node>>::new()),
    ];
    drop(make(&twice).unwrap());
    drop((pairs, leaf));
    drop(twice);
    assert!(made.as_object().is_unique());
}

#[test]
fn what_is_missing_or_wrong_is_told_and_nothing_stays() {
    let held = Ref::new(node("held"));
    let text = |error: anyfn::Error| error.message().to_owned();
    let wrong = [any(held.clone()), any(1)];
    let message = text(construct::<Leaf>(&wrong).unwrap_err());
    assert!(message.contains("field 'name'") && message.contains("str"), "{message}");
    let message = text(construct::<Leaf>(&[any("n")]).unwrap_err());
    assert!(message.contains("missing required argument: 'children'"), "{message}");
    // Some fields are already set when this fails.
    let late = [
        any("test.objects.Leaf"),
        any("name"),
        any("a name of some length"),
        any("children"),
        any(vec![held.clone()]),
    ];
    let message = text(make(&late).unwrap_err());
    assert!(message.contains("'value'"), "{message}");
    let message = text(make(&[any("test.objects.Leaf"), any("nam"), any(1)]).unwrap_err());
    assert!(message.contains("does not have field `nam`; did you mean `name`?"), "{message}");
    drop((wrong, late));
    assert!(held.as_object().is_unique());
    drop(held);
}

#[test]
fn a_derived_object_is_taken_for_its_base() {
    let leaf = Ref::new(Leaf { node: node("x"), value: Any::NONE });
    let name = PackedFunc::from(anyfn::TypedPackedFunc::from_fn(|node: Ref<Node>| node.name.clone()));
    assert_eq!(name.call((&leaf,)).unwrap().get::<String>().unwrap(), "x");
    let by_reference = PackedFunc::from(anyfn::TypedPackedFunc::from_fn(|node: &Node| node.name.clone()));
    assert_eq!(by_reference.call((&leaf,)).unwrap().get::<String>().unwrap(), "x");
    let base = leaf.clone().into_parent();
    assert_eq!(base.name, leaf.name);
    assert!(base.is::<Leaf>());
    assert!(base.cast::<Leaf>().unwrap().ptr_eq(&leaf));
    let plain = Ref::new(node("y"));
    let plain = plain.cast::<Leaf>().unwrap_err();
    let value = PackedFunc::from(anyfn::TypedPackedFunc::from_fn(|leaf: Ref<Leaf>| leaf.value.clone()));
    assert_eq!(value.call((&plain,)).unwrap_err().kind(), "TypeError");
    let all: Array<Ref<Node>> = any(vec![any(leaf.clone()), any(plain)]).get::<Array<Ref<Node>>>().unwrap();
    assert_eq!(all.len(), 2);
}

#[test]
fn a_partial_object_releases_what_it_has() {
    let info = TypeInfo::from_index(Leaf::type_index()).unwrap();
    let before = TRACKED.load(Ordering::Relaxed);
    for _ in 0..3 {
        let mut handle = std::ptr::null_mut();
        let creator = <Leaf as anyfn::__private::Define>::DEFINITION.creator.unwrap();
        // SAFETY: `handle` is writable.
        assert_eq!(unsafe { creator(&mut handle) }, 0);
        // SAFETY: `handle` is an owned reference to an object.
        let object = unsafe { ObjectRef::from_owned_or_null(handle) }.unwrap();
        assert_eq!(object.type_key(), "ffi.Object");
        let value = any("a text of some length");
        let field = info.field("name").unwrap();
        // SAFETY: `object` is a new object that was created for the type of this field.
        assert_eq!(unsafe { field.get_unchecked(&object) }.unwrap_err().kind(), "AttributeError");
        // SAFETY: `object` is a new object that was created for the type of this field.
        unsafe { field.set_unchecked(&object, &value.as_view()) }.unwrap();
        // SAFETY: `object` is a new object that was created for the type of this field.
        assert_eq!(unsafe { field.get_unchecked(&object) }.unwrap(), value);
        assert_eq!(value.as_object().unwrap().use_count(), 2);
        assert!(Ref::<Leaf>::try_from_object(object).is_err());
        assert_eq!(value.as_object().unwrap().use_count(), 1);
    }
    // Other tests in this file may hold a few instances meanwhile.
    assert!(TRACKED.load(Ordering::Relaxed) <= before + 20);
}

#[test]
fn the_only_reference_may_change_the_content() {
    let mut one = Ref::new(node("a"));
    one.get_mut().unwrap().name = "b".into();
    assert_eq!(one.name, "b");
    let other = one.clone();
    assert!(one.get_mut().is_none());
    drop(other);
    let weak = one.as_object().downgrade();
    assert!(one.get_mut().is_none());
    drop(weak);
    assert!(one.get_mut().is_some());
}

/// Types with the same Rust name but different fields, as two builds of a library might define them.
mod builds {
    macro_rules! build {
        ($name:ident, $key:literal, $hidden:ty, $told:ty) => {
            pub(crate) mod $name {
                #[allow(dead_code, reason = "never read")]
                pub(crate) struct Inner(u64);

                #[derive(anyfn::Object)]
                #[object(key = $key)]
                #[allow(dead_code, reason = "never made")]
                pub(crate) struct Type {
                    #[field(skip)]
                    hidden: $hidden,
                    told: $told,
                }
            }
        };
    }
    build!(first, "tests.builds.First", Vec<u32>, i64);
    build!(same, "tests.builds.Same", Vec<u32>, i64);
    build!(other_hidden, "tests.builds.OtherHidden", Vec<u64>, i64);
    build!(other_told, "tests.builds.OtherTold", Vec<u32>, u64);
    build!(of_build, "tests.builds.OfBuild", Inner, i64);
}

#[test]
#[allow(clippy::needless_borrow, reason = "the borrow chooses between the traits")]
fn what_nobody_sees_is_part_of_what_a_type_is() {
    use anyfn::__private::{Define, Digest, FieldType, OfBuild as _, OfType as _};
    use std::hash::Hasher;

    fn digest<T: Define>() -> u64 {
        let mut digest = Digest::default();
        T::digest(&mut digest);
        digest.finish()
    }
    let first = digest::<builds::first::Type>();
    assert_eq!(first, digest::<builds::same::Type>());
    assert_ne!(first, digest::<builds::other_hidden::Type>());
    assert_ne!(first, digest::<builds::other_told::Type>());
    // A struct may differ in the next build although its name is the same. Types of the standard library do not.
    assert_eq!((&FieldType::<builds::of_build::Inner>::NEW).build(7), 7);
    assert_eq!((&FieldType::<Vec<builds::of_build::Inner>>::NEW).build(7), 7);
    assert_eq!((&FieldType::<Box<dyn Fn() + Send + Sync>>::NEW).build(7), 7);
    assert_eq!((&FieldType::<Vec<Option<u32>>>::NEW).build(7), 0);
    assert_eq!((&FieldType::<std::sync::Mutex<[String; 2]>>::NEW).build(7), 0);
    assert_eq!((&FieldType::<anyfn::Ref<builds::of_build::Type>>::NEW).build(7), 0);
}
