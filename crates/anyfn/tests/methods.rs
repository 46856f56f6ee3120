//! Tests of methods, mutable fields (`Cell`) and field visitors of types with `#[derive(Object)]`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use anyfn::reflection::{Field, FieldVisitor, TypeInfo};
use anyfn::{
    Any, AnyView, Array, Cell, FromArg, IntoAny, Mismatch, Object, ObjectRef, PackedFunc, Ref, Result, Schema,
    String, methods, registry,
};
use anyfn_core as _;

#[derive(Object, Debug, Clone)]
#[object(key = "test.methods.Node")]
struct Node {
    name: String,
    #[field(default = None)]
    next: Cell<Option<Ref<Node>>>,
    #[field(default = 2)]
    size: Cell<u8>,
}

#[methods]
impl Node {
    /// Creates a node.
    #[init]
    fn new(name: String, #[default(1)] size: u8) -> Node {
        Node { name, next: Cell::default(), size: Cell::new(size) }
    }

    /// Returns the name, repeated.
    fn repeated(&self, #[default(2)] times: usize) -> std::string::String {
        self.name.repeat(times)
    }

    fn joined(this: Ref<Self>, other: &Node, r#type: &str) -> std::string::String {
        format!("{}{}{}", this.name, r#type, other.name)
    }

    #[name = "sum"]
    fn add_up(items: Vec<i64>) -> i64 {
        items.iter().sum()
    }
}

#[methods]
impl Node {
    fn again(&self) -> Result<Node> {
        Ok(self.clone())
    }
}

#[derive(Object, Debug, Clone)]
#[object(key = "test.methods.Leaf", parent = Node)]
#[repr(C)]
struct Leaf {
    node: Node,
    value: f64,
    seen: bool,
}

#[methods]
impl Leaf {
    fn repeated(&self) -> &'static str {
        "a leaf"
    }
}

#[derive(Object, Debug)]
#[object(key = "test.methods.Plain")]
struct Plain {
    size: i64,
}

/// Methods of [`Plain`], defined on another type. A crate that does not define `Plain` must define methods in
/// this way.
struct PlainFunctions;

#[methods(of = Plain)]
impl PlainFunctions {
    /// Creates an object whose size is twice `half`.
    #[init]
    #[name = "new"]
    fn of_half(half: i64) -> Plain {
        Plain { size: 2 * half }
    }

    /// Returns a multiple of the size.
    fn times(this: Ref<Plain>, #[default(2)] factor: i64) -> i64 {
        this.size * factor
    }
}

fn node(name: &str) -> Node {
    Node::new(name.into(), 3)
}

fn leaf() -> Ref<Leaf> {
    Ref::new(Leaf { node: node("leaf"), value: 1.5, seen: true })
}

fn message<T: std::fmt::Debug>(result: Result<T>) -> std::string::String {
    let error = result.unwrap_err();
    format!("{}: {}", error.kind(), error.message())
}

#[test]
fn methods_are_called_by_name() {
    let one = Ref::new(node("one")).into_object();
    let call = |name: &str, args: &[Any]| one.call_method(name, args);
    assert_eq!(call("repeated", &[]).unwrap().get::<&str>().unwrap(), "oneone");
    assert_eq!(one.call_method("repeated", (3,)).unwrap().get::<&str>().unwrap(), "oneoneone");
    let other = Ref::new(node("other"));
    assert_eq!(one.call_method("joined", (&other, "+")).unwrap().get::<&str>().unwrap(), "one+other");
    assert_eq!(
        one.call_method("sum", (Any::new(vec![1, 2]).unwrap(),)).unwrap().get::<i64>().unwrap(),
        3,
        "a static method gets no object"
    );
    let again = call("again", &[]).unwrap().get::<Ref<Node>>().unwrap();
    assert!(again.name == "one" && !again.as_object().ptr_eq(&one));
    assert_eq!(
        message(call("repaeted", &[])),
        "AttributeError: an object of type test.methods.Node has no method `repaeted`; did you mean `repeated`?"
    );
    let text = message(one.call_method("repeated", ("x",)));
    assert!(
        text.contains("argument #1 when calling: `test.methods.Node.repeated(0: test.methods.Node, 1: int)"),
        "{text}"
    );
    let many: Vec<Any> = (0..12).map(|n| Any::new(n).unwrap()).collect();
    assert!(message(call("repeated", &many)).contains("Expected 1 to 2 but got 13"));
    // Methods of a derived type come first, and those of its base can be called, too.
    let leaf = leaf().into_object();
    assert_eq!(leaf.call_method("repeated", ()).unwrap().get::<&str>().unwrap(), "a leaf");
    assert!(leaf.call_method("again", ()).unwrap().as_object().unwrap().type_key() == "test.methods.Node");
}

#[test]
fn a_type_tells_of_its_methods() {
    let info = TypeInfo::from_index(Leaf::type_index()).unwrap();
    let mut names: Vec<&str> = info.methods().map(|method| method.name()).collect();
    // The order of several `#[methods]` blocks is not specified.
    names[..5].sort_unstable();
    assert_eq!(names, ["again", "joined", "new", "repeated", "sum", "repeated"]);
    let method = info.parent().unwrap().method("repeated").unwrap();
    assert_eq!((method.doc(), method.is_static()), ("Returns the name, repeated.", false));
    let signature = method.function().unwrap().signature().unwrap();
    assert_eq!(&*signature, method.metadata());
    for part in ["\"name\":\"test.methods.Node.repeated\"", "\"arg_names\":[\"self\",\"times\"]", "\"times\":2"]
    {
        assert!(signature.contains(part), "{part} in {signature}");
    }
    assert!(info.method("sum").unwrap().is_static() && info.method("new").unwrap().is_static());
    let named = &[("type", Any::new("-").unwrap()), ("other", Any::new(leaf()).unwrap())];
    let joined = info.method("joined").unwrap().function().unwrap();
    assert_eq!(joined.call_named((&leaf(),), named).unwrap().get::<&str>().unwrap(), "leaf-leaf");
}

#[test]
fn methods_that_another_crate_adds() {
    let info = TypeInfo::from_index(Plain::type_index()).unwrap();
    let init = info.attribute("__ffi_init__").unwrap().get::<PackedFunc>().unwrap();
    let plain = init.call((3,)).unwrap().get::<Ref<Plain>>().unwrap();
    assert_eq!(plain.size, 6);
    assert_eq!(plain.as_object().call_method("times", ()).unwrap().get::<i64>().unwrap(), 12);
    assert_eq!(plain.as_object().call_method("times", (3,)).unwrap().get::<i64>().unwrap(), 18);
    assert!(message(plain.as_object().call_method("times", ("x",))).contains("test.methods.Plain.times"));
    let names: Vec<&str> = info.methods().map(|method| method.name()).collect();
    assert_eq!(names, ["new", "times"]);
    assert!(info.method("new").unwrap().is_static() && !info.method("times").unwrap().is_static());
    // Fields are still set without the constructor, as when an object is loaded.
    let make = registry::get("ffi.MakeObjectFromPackedArgs").unwrap();
    let other = make.call(("test.methods.Plain", "size", 4)).unwrap().get::<Ref<Plain>>().unwrap();
    assert_eq!(other.size, 4);
}

#[test]
fn a_constructor_of_the_types_own() {
    let init = TypeInfo::from_index(Node::type_index()).unwrap().attribute("__ffi_init__").unwrap();
    let init = init.get::<PackedFunc>().unwrap();
    let made = |value: Any| value.get::<Ref<Node>>().unwrap().size.get();
    assert_eq!(made(init.call(("n",)).unwrap()), 1);
    assert_eq!(made(init.call(("n", 7)).unwrap()), 7);
    let sentinel = registry::get("ffi.GetKwargsObject").unwrap().call(()).unwrap();
    assert_eq!(made(init.call((&sentinel, "size", 9, "name", "n")).unwrap()), 9);
    assert!(message(init.call(("n", &sentinel, "siez", 9))).contains("did you mean 'size'?"));
    assert!(message(init.call(("n", 256))).starts_with("OverflowError: "));
    // A derived type without a constructor has one that is generated from its fields.
    let init = TypeInfo::from_index(Leaf::type_index()).unwrap().attribute("__ffi_init__").unwrap();
    let leaf = init.get::<PackedFunc>().unwrap().call(("n", 2.5, true)).unwrap().get::<Ref<Leaf>>().unwrap();
    assert_eq!((leaf.value, leaf.size.get()), (2.5, 2));
}

#[test]
fn cells_hold_values_of_any_type() {
    let one = Ref::new(node("a name of some length"));
    let object = one.as_object();
    assert!(one.next.get().is_none());
    one.next.set(Some(one.clone())).unwrap();
    assert_eq!(object.use_count(), 2);
    assert!(object.get_field("next").unwrap().as_object().unwrap().ptr_eq(object));
    assert!(one.next.replace(None).unwrap().unwrap().ptr_eq(&one));
    assert!(object.is_unique());
    object.set_field("size", 200).unwrap();
    assert_eq!(one.size.get(), 200);
    assert_eq!(
        message(object.set_field("size", 300)),
        "OverflowError: field 'size' of test.methods.Node: expected `u8 (0 to 255)` but got `int 300`"
    );
    assert!(message(object.set_field("next", 1)).starts_with("TypeError: "));
    assert_eq!(one.size.get(), 200);
    let copy = one.size.clone();
    one.size.set(1).unwrap();
    assert_eq!((copy.get(), one.size.get()), (200, 1));
    assert_eq!(format!("{:?}", Cell::new(5i64)), "Cell(5)");
    assert_eq!(Cell::<Any>::new(Any::NONE).get(), Any::NONE);
    assert_eq!(Cell::new(u64::MAX).get(), u64::MAX);
}

/// A type that counts how often a value is converted to it.
struct Counted(usize);

static READS: AtomicUsize = AtomicUsize::new(0);

impl IntoAny for Counted {
    fn schema() -> Schema {
        <usize as IntoAny>::schema()
    }
    fn into_any(self) -> Result<Any> {
        self.0.into_any()
    }
}

impl FromArg for Counted {
    type Arg<'a> = Counted;
    fn schema() -> Schema {
        <usize as FromArg>::schema()
    }
    fn from_arg(view: &AnyView<'_>) -> Result<Counted, Mismatch> {
        READS.fetch_add(1, Ordering::Relaxed);
        CELL.with(|cell| {
            if let Some(cell) = &*cell.borrow() {
                // This would never return if the conversion ran under the cell's lock.
                drop(cell.as_object().get_field("value"));
            }
        });
        usize::from_arg(view).map(Counted)
    }
}

thread_local! {
    static CELL: std::cell::RefCell<Option<Ref<Holder>>> = const { std::cell::RefCell::new(None) };
}

#[derive(Object)]
#[object(key = "test.methods.Holder")]
struct Holder {
    value: Cell<Counted>,
}

#[test]
fn conversions_run_without_the_lock() {
    let holder = Ref::new(Holder { value: Cell::new(Counted(5)) });
    CELL.with(|cell| *cell.borrow_mut() = Some(holder.clone()));
    assert_eq!(holder.value.get().0, 5);
    holder.as_object().set_field("value", 6).unwrap();
    assert_eq!((holder.value.get().0, READS.load(Ordering::Relaxed)), (6, 3));
    CELL.with(|cell| *cell.borrow_mut() = None);
}

#[test]
fn threads_share_a_cell() {
    let one = Ref::new(node("n"));
    let others: Vec<Ref<Node>> = (0..4).map(|n| Ref::new(node(&format!("number {n} of some")))).collect();
    let others = Arc::new(others);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (one, others) = (&one, &others);
            scope.spawn(move || {
                for turn in 0..2000 {
                    one.next.set(Some(others[(thread + turn) % 4].clone())).unwrap();
                    assert!(one.next.get().unwrap().name.starts_with("number "));
                }
            });
        }
    });
    one.next.set(None).unwrap();
    assert!(others.iter().all(|other| other.as_object().is_unique()));
}

#[test]
fn a_shared_object_is_copied_before_it_is_changed() {
    let mut one = Ref::new(node("a"));
    let address = one.as_object().as_handle();
    one.make_mut().unwrap().name = "b".into();
    assert_eq!(one.as_object().as_handle(), address);
    let other = one.clone();
    one.make_mut().unwrap().name = "c".into();
    assert_eq!((&*one.name, &*other.name), ("c", "b"));
    assert!(other.as_object().is_unique());
    // An object of a derived type stays one.
    let leaf = leaf();
    let mut base = leaf.clone().into_parent();
    base.make_mut().unwrap().name = "d".into();
    let changed = base.cast::<Leaf>().unwrap();
    assert_eq!((&*changed.name, changed.value, &*leaf.name), ("d", 1.5, "leaf"));
}

#[derive(Object, Clone)]
#[object(key = "test.methods.Closed", parent = Node, init = false)]
#[repr(C)]
struct Closed {
    node: Node,
}

#[test]
fn what_cannot_be_copied_is_an_error() {
    let closed = Ref::new(Closed { node: node("x") });
    let mut base = closed.clone().into_parent();
    let text = message(base.make_mut());
    assert!(text.contains("`test.methods.Closed` cannot be copied"), "{text}");
    assert!(base.as_object().ptr_eq(closed.as_object()));
    assert_eq!(closed.clone().make_mut().unwrap().node.name, "x");
}

#[derive(Object)]
#[object(key = "test.methods.Many")]
struct Many {
    number: AtomicI64,
    float: f32,
    flag: bool,
    text: String,
    long: Cell<String>,
    list: Array<i64>,
    object: Option<Ref<Node>>,
    none: Option<Ref<Node>>,
}

#[derive(Default)]
struct Log(Vec<std::string::String>);

impl FieldVisitor for Log {
    fn visit_int(&mut self, field: Field, value: i64) -> Result<()> {
        self.0.push(format!("{} int {value}", field.name()));
        Ok(())
    }
    fn visit_float(&mut self, field: Field, value: f64) -> Result<()> {
        self.0.push(format!("{} float {value}", field.name()));
        Ok(())
    }
    fn visit_bool(&mut self, field: Field, value: bool) -> Result<()> {
        self.0.push(format!("{} bool {value}", field.name()));
        Ok(())
    }
    fn visit_str(&mut self, field: Field, value: &String) -> Result<()> {
        self.0.push(format!("{} str {}", field.name(), &**value));
        Ok(())
    }
    fn visit_object(&mut self, field: Field, value: &ObjectRef) -> Result<()> {
        self.0.push(format!("{} object {} {}", field.name(), value.type_key(), value.use_count()));
        Ok(())
    }
    fn visit_other(&mut self, field: Field, value: &AnyView<'_>) -> Result<()> {
        self.0.push(format!("{} other {}", field.name(), value.type_key()));
        Ok(())
    }
}

#[test]
fn all_fields_are_visited() {
    let many = Ref::new(Many {
        number: AtomicI64::new(-1),
        float: 0.5,
        flag: true,
        text: "a text of some length".into(),
        long: Cell::new("another text of some length".into()),
        list: [1].into_iter().collect(),
        object: Some(leaf().into_parent()),
        none: None,
    })
    .into_object();
    let mut log = Log::default();
    many.visit_fields(&mut log).unwrap();
    let expected = [
        "number int -1",
        "float float 0.5",
        "flag bool true",
        "text str a text of some length",
        "long str another text of some length",
        // The value is borrowed, so the visit takes no reference.
        "list object ffi.Array 1",
        "object object test.methods.Leaf 1",
        "none other None",
    ];
    assert_eq!(log.0, expected);

    let mut seen = Vec::new();
    let result = many.visit_fields(&mut |field: Field, value: &AnyView<'_>| {
        seen.push((field.name(), value.type_key()));
        if field.name() == "text" { Err(anyfn::error!("ValueError", "enough")) } else { Ok(()) }
    });
    assert_eq!(message(result), "ValueError: enough");
    assert_eq!(seen, [("number", "int"), ("float", "float"), ("flag", "bool"), ("text", "ffi.String")]);

    let mut names = Vec::new();
    let log = |field: Field, _: &AnyView<'_>| {
        names.push(field.name());
        Ok(())
    };
    leaf().as_object().visit_fields(&mut { log }).unwrap();
    assert_eq!(names, ["name", "next", "size", "value", "seen"]);
}

#[test]
fn nearest_names_of_fields() {
    let one = leaf().into_object();
    assert_eq!(
        message(one.get_field("valeu")),
        "AttributeError: an object of type test.methods.Leaf has no field `valeu`; did you mean `value`?"
    );
    assert!(message(one.set_field("szie", 1)).ends_with("no field `szie`; did you mean `size`?"));
    assert!(message(one.get_field("other")).ends_with("no field `other`"));
}

#[test]
fn a_function_that_returns_the_type_returns_an_object() {
    let make = anyfn::TypedPackedFunc::from_fn(|name: String| node(&name));
    let made = make.as_packed().call(("n",)).unwrap();
    assert_eq!(made.get::<Ref<Node>>().unwrap().name, "n");
    assert!(make.as_packed().signature().unwrap().contains("test.methods.Node"));
}
