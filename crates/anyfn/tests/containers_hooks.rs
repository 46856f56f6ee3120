//! Tests of container keys whose type registers hooks for equality and hash. The hooks run without the
//! container's lock, so they may use the container itself.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyfn_core as _;

use anyfn::abi::{TVMFFIByteArray, TVMFFITypeRegisterAttr};
use anyfn::{Any, AnyView, Dict, Map, Object, PackedFunc, Ref};

/// A key whose hooks treat keys with the same `id` as equal.
#[derive(Object)]
#[object(key = "test.hooked_key")]
struct HookedKey {
    id: i64,
    text: i64,
}

static CALLS: AtomicUsize = AtomicUsize::new(0);
/// Dict that the hooks read, possibly during an operation on the same Dict.
static WATCHED: Mutex<Option<Dict>> = Mutex::new(None);
/// Lock that serialises the tests, because they share the Dict in [`WATCHED`] and the counter [`CALLS`].
static TURN: Mutex<()> = Mutex::new(());

fn watch() {
    CALLS.fetch_add(1, Ordering::Relaxed);
    let dict = WATCHED.lock().unwrap().clone();
    if let Some(dict) = dict {
        dict.len();
        dict.get("not there").unwrap();
    }
}

fn register() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let attribute = |name: &str, hook: PackedFunc| {
            let name = TVMFFIByteArray::from_slice(name.as_bytes());
            let view = AnyView::from(hook.as_object());
            // SAFETY: all arguments are borrowed for the call.
            let code = unsafe { TVMFFITypeRegisterAttr(HookedKey::type_index(), &name, view.as_raw()) };
            assert_eq!(code, 0);
        };
        attribute(
            "__any_hash__",
            PackedFunc::new(|args| {
                watch();
                // There are only two hashes, so that lookups compare keys.
                Any::new(args.get::<Ref<HookedKey>>(0)?.id % 2)
            }),
        );
        attribute(
            "__any_equal__",
            PackedFunc::new(|args| {
                watch();
                let (left, right) = (args.get::<Ref<HookedKey>>(0)?, args.get::<Ref<HookedKey>>(1)?);
                Any::new(left.id == right.id)
            }),
        );
    });
}

fn key(id: i64, text: i64) -> Any {
    Any::new(Ref::new(HookedKey { id, text })).unwrap()
}

fn check(pairs: impl Iterator<Item = (Any, Any)>, expected: &[(i64, i64)]) {
    let pairs: Vec<(i64, i64)> = pairs
        .map(|(key, value)| {
            let key = key.get::<Ref<HookedKey>>().unwrap();
            assert_eq!(key.text, 0, "the first of equal keys stays");
            (key.id, value.get::<i64>().unwrap())
        })
        .collect();
    assert_eq!(pairs, expected);
}

#[test]
fn hooks_may_use_the_dict() {
    let _turn = TURN.lock().unwrap_or_else(|error| error.into_inner());
    register();
    let dict: Dict = Dict::new();
    *WATCHED.lock().unwrap() = Some(dict.clone());
    let before = CALLS.load(Ordering::Relaxed);
    for id in 0..40 {
        dict.insert(key(id, 0), Any::new(id).unwrap()).unwrap();
        let old = dict.insert(key(id, 1), Any::new(-id).unwrap()).unwrap();
        assert_eq!(old.unwrap().get::<i64>().unwrap(), id);
    }
    assert!(CALLS.load(Ordering::Relaxed) > before);
    for id in (0..40).step_by(2) {
        assert!(dict.contains_key(key(id, 2)).unwrap());
        assert!(dict.remove(key(id, 3)).unwrap().is_some());
        assert!(!dict.contains_key(key(id, 4)).unwrap());
    }
    let expected: Vec<(i64, i64)> = (0..40).filter(|id| id % 2 == 1).map(|id| (id, -id)).collect();
    check(dict.iter().map(|pair| pair.unwrap()), &expected);
    *WATCHED.lock().unwrap() = None;
}

#[test]
fn hooked_keys_of_several_threads() {
    let _turn = TURN.lock().unwrap_or_else(|error| error.into_inner());
    register();
    let dict: Dict = Dict::new();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let dict = dict.clone();
            scope.spawn(move || {
                for id in 0..60 {
                    dict.insert(key(thread * 60 + id, 0), Any::NONE).unwrap();
                    if id % 3 == 2 {
                        assert!(dict.remove(key(thread * 60 + id - 1, 1)).unwrap().is_some());
                    }
                }
            });
        }
    });
    assert_eq!(dict.len(), 160);
}

#[test]
fn maps_use_hooks_too() {
    let _turn = TURN.lock().unwrap_or_else(|error| error.into_inner());
    register();
    let mut map: Map = Map::new();
    for id in 0..20 {
        map.insert(key(id, 0), Any::new(id).unwrap()).unwrap();
        map.insert(key(id / 2, 1), Any::new(100 + id).unwrap()).unwrap();
    }
    let expected: Vec<(i64, i64)> = (0..20).map(|id| (id, if id < 10 { 101 + 2 * id } else { id })).collect();
    check(map.iter(), &expected);
}
