//! Tests that dropping a container destroys every object in it, at any nesting depth.

use std::sync::Mutex;

use anyfn_core as _;

use anyfn::{Any, Array, Dict, List, Map, live_objects};

const DEPTH: usize = 1_000_000;

/// Lock that serialises the tests, because they check the number of live objects in the process.
static TURN: Mutex<()> = Mutex::new(());

fn check(make: impl FnOnce() -> Any) {
    let _turn = TURN.lock().unwrap_or_else(|error| error.into_inner());
    let before = live_objects();
    let value = make();
    assert!(live_objects() > before);
    // The stack is small, because the release must not depend on its size.
    std::thread::Builder::new().stack_size(256 << 10).spawn(move || drop(value)).unwrap().join().unwrap();
    assert_eq!(live_objects(), before);
}

fn nested(wrap: impl Fn(Any) -> Any) -> Any {
    (0..DEPTH).fold(Any::NONE, |inner, _| wrap(inner))
}

#[test]
fn deep_arrays() {
    check(|| nested(|inner| Array::<Any>::from(vec![inner]).into()));
}

#[test]
fn deep_lists() {
    check(|| nested(|inner| List::<Any>::from(vec![inner]).into()));
}

#[test]
fn deep_maps() {
    check(|| nested(|inner| Map::<Any, Any>::from_iter([(Any::NONE, inner)]).into()));
}

#[test]
fn deep_keys_of_dense_dicts() {
    check(|| {
        (0..DEPTH / 10).fold(Any::NONE, |inner, _| {
            let dict: Dict<Any, Any> = (0..4).map(|i| (Any::new(i).unwrap(), Any::NONE)).collect();
            dict.insert(inner, Any::NONE).unwrap();
            dict.into()
        })
    });
}

#[test]
fn all_kinds_of_changes_release_what_they_replace() {
    let text = |i: usize| Any::new(format!("a text that needs an object of its own: {i}")).unwrap();
    check(|| {
        let (list, dict) = (List::<Any>::new(), Dict::<Any, Any>::new());
        let (mut array, mut map) = (Array::<Any>::new(), Map::<Any, Any>::new());
        for i in 0..500 {
            list.push(text(i)).unwrap();
            array.push(text(i)).unwrap();
            dict.insert(text(i), text(i)).unwrap();
            map.insert(text(i), text(i)).unwrap();
            if i % 3 == 0 {
                list.set(i / 2, text(i)).unwrap();
                array.set(array.len() / 2, text(i)).unwrap();
                dict.insert(text(i / 2), text(i)).unwrap();
                map.insert(text(i / 2), text(i)).unwrap();
            }
            if i % 7 == 0 {
                dict.remove(text(i / 3)).unwrap();
                map.remove(text(i / 3)).unwrap();
                array.remove(0).unwrap();
                let shared = (array.clone(), map.clone());
                array.pop().unwrap();
                map.insert(text(i), Any::NONE).unwrap();
                drop(shared);
            }
        }
        list.replace_range(10..20, vec![text(1), text(2)]).unwrap();
        array.truncate(100).unwrap();
        let copy: Dict<Any, Any> = dict.iter().map(|pair| pair.unwrap()).collect();
        dict.clear().unwrap();
        Array::<Any>::from(vec![list.into(), array.into(), Any::from(map), copy.into(), dict.into()]).into()
    });
}
