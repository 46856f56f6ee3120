//! Tests the operations of this crate on a very deep graph and on a cyclic graph, and checks that
//! all objects are released afterwards. The graphs consist of Rust objects, containers, and objects
//! of a type that is defined at run time, as in Python.

use anyfn::{Any, Array, Dict, List, Map, Object, ObjectRef, Ref, live_objects, registry};
use anyfn_core as _;
use anyfn_reflect::{
    Options, deep_copy, from_json, map, recursive_equal, recursive_hash, repr, structural_equal,
    structural_hash, to_json, walk,
};

/// Graph node whose type is defined in Rust.
#[derive(Object)]
#[object(key = "depth.Rust", structural = "tree")]
struct Node {
    content: ObjectRef,
    level: i64,
}

/// Defines at run time the type of the graph nodes that are not Rust objects.
fn define() {
    let text = |text: &str| Any::new(text).unwrap();
    let field = vec![(text("name"), text("content")), (text("type"), text("Any"))];
    let field = Map::<Any, Any>::from_vec(field).unwrap();
    let fields = Array::<Any>::try_from_iter([Any::from(field)]).unwrap();
    let options = Map::<Any, Any>::from_vec(vec![(text("structural"), Any::new(1).unwrap())]).unwrap();
    registry::get("ffi.TypeDefine").unwrap().call(("depth.Defined", (), fields, options)).unwrap();
}

fn defined(content: impl Into<Any>) -> ObjectRef {
    let make = registry::get("ffi.MakeObjectFromPackedArgs").unwrap();
    let made = make.call(("depth.Defined", "content", content.into())).unwrap();
    made.into_object().unwrap()
}

/// Returns a graph of `depth` levels. The levels alternate between Rust nodes, containers, and nodes of the
/// type defined at run time.
fn build(depth: usize, leaf: i64) -> Any {
    let mut made = defined(Any::new(leaf).unwrap());
    for level in 0..depth / 3 {
        let node = Any::from(Ref::new(Node { content: made, level: level as i64 }).into_object());
        let held: Any = match level % 4 {
            0 => List::<Any>::try_from_iter([node]).unwrap().into(),
            1 => Array::<Any>::try_from_iter([node]).unwrap().into(),
            2 => Map::<Any, Any>::from_vec(vec![(Any::new("k").unwrap(), node)]).unwrap().into(),
            _ => Dict::<Any, Any>::from_vec(vec![(Any::new(1).unwrap(), node)]).unwrap().into(),
        };
        made = defined(held);
    }
    Any::from(made)
}

fn check(depth: usize) {
    let options = Options::default();
    let (graph, twin, other) = (build(depth, 7), build(depth, 7), build(depth, 8));
    assert!(repr(&graph).unwrap().len() > depth * 5);
    assert!(structural_equal(&graph, &twin, options).unwrap());
    assert!(!structural_equal(&graph, &other, options).unwrap());
    assert!(recursive_equal(&graph, &twin).unwrap() && !recursive_equal(&graph, &other).unwrap());
    let hash = structural_hash(&graph, options).unwrap();
    assert_eq!(hash, structural_hash(&twin, options).unwrap());
    assert_ne!(hash, structural_hash(&other, options).unwrap());
    assert_eq!(recursive_hash(&graph).unwrap(), recursive_hash(&twin).unwrap());
    drop(twin);
    let copy = deep_copy(&graph).unwrap();
    assert!(structural_equal(&graph, &copy, options).unwrap());
    drop(copy);
    let saved = to_json(&graph, &Default::default()).unwrap();
    let loaded = from_json(&saved, &Default::default()).unwrap();
    assert!(structural_equal(&graph, &loaded, options).unwrap());
    let mut count = 0usize;
    walk(&loaded, |value| count += usize::from(value.get::<Ref<Node>>().is_ok())).unwrap();
    assert_eq!(count, depth / 3);
    let new = map(loaded, |value| match value.get::<i64>() {
        Ok(7) => Any::new(8).map(Some),
        _ => Ok(None),
    })
    .unwrap();
    // The field `level` of one of the Rust nodes may be 7, too.
    assert!(!structural_equal(&new, &graph, options).unwrap());
}

#[test]
fn deep_and_cyclic_graphs_are_released() {
    define();
    let depth = if std::env::var_os("ANYFN_SOAK").is_some() { 1_000_000 } else { 100_000 };
    check(30);
    cycle(3);
    let before = live_objects();
    check(depth);
    assert_eq!(live_objects(), before);
    cycle(depth / 10);
    assert_eq!(live_objects(), before);
}

/// Tests the operations on a cycle that consists of a List and of nodes that alternate between the
/// Rust type and the type defined at run time. `length` is the number of nodes of the Rust type.
fn cycle(length: usize) {
    let options = Options::default();
    let ring = || {
        let end = List::<Any>::new();
        let mut made = defined(end.clone());
        for level in 0..length {
            made = defined(Any::from(Ref::new(Node { content: made, level: level as i64 }).into_object()));
        }
        end.push(Any::from(made.clone())).unwrap();
        (Any::from(made), end)
    };
    let ((one, end), (other, other_end)) = (ring(), ring());
    assert!(repr(&one).unwrap().contains("..."));
    assert!(structural_equal(&one, &other, options).unwrap() && recursive_equal(&one, &other).unwrap());
    recursive_hash(&one).unwrap();
    assert_eq!(structural_hash(&one, options).unwrap_err().kind(), "ValueError");
    let copy = deep_copy(&one).unwrap();
    let saved = to_json(&one, &Default::default()).unwrap();
    let loaded = from_json(&saved, &Default::default()).unwrap();
    for made in [copy, loaded] {
        assert!(structural_equal(&one, &made, options).unwrap());
        let mut at = made.into_object().unwrap();
        let list = loop {
            let content = at.get_field("content").unwrap();
            match content.get::<List>() {
                Ok(list) => break list,
                Err(_) => at = content.into_object().unwrap(),
            }
        };
        list.clear();
    }
    end.clear();
    other_end.clear();
}
