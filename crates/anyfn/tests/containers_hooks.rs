//! Tests of container keys whose type registers hooks for equality and hash. The hooks run without the
//! container's lock, so they may use the container itself.

use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyfn_core as _;

use anyfn::abi::{TVMFFIAny, TVMFFIByteArray, TVMFFITypeRegisterAttr, kTVMFFIOpaquePtr};
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

/// A key whose hooks are C functions that return a bare hash and a bare `bool`, as code does that was compiled with old
/// headers of tvm-ffi.
#[derive(Object)]
#[object(key = "test.bare_key")]
struct BareKey {
    id: i64,
}

/// # Safety
/// `value` must be a key.
unsafe fn id_of(value: *const TVMFFIAny) -> i64 {
    // SAFETY: the caller passes a valid value.
    let value = unsafe { *value };
    // SAFETY: the caller passes a valid value.
    unsafe { AnyView::from_raw(value) }.get::<Ref<BareKey>>().unwrap().id
}

unsafe extern "C" fn bare_hash(value: *const TVMFFIAny) -> i64 {
    // SAFETY: called with a key.
    unsafe { id_of(value) }
}

unsafe extern "C" fn bare_equal(left: *const TVMFFIAny, right: *const TVMFFIAny) -> bool {
    // SAFETY: called with a key.
    let left = unsafe { id_of(left) };
    // SAFETY: called with a key.
    left == unsafe { id_of(right) }
}

#[test]
#[cfg_attr(miri, ignore = "the hooks have other types than those by which they are called")]
fn native_hooks_may_return_bare_results() {
    for (name, hook) in
        [("__any_hash__", bare_hash as *mut c_void), ("__any_equal__", bare_equal as *mut c_void)]
    {
        let name = TVMFFIByteArray::from_slice(name.as_bytes());
        let mut value = TVMFFIAny::NONE;
        value.type_index = kTVMFFIOpaquePtr;
        value.value.v_ptr = hook;
        // SAFETY: all arguments are borrowed for the call, and the hooks are functions of the program.
        assert_eq!(unsafe { TVMFFITypeRegisterAttr(BareKey::type_index(), &name, &raw const value) }, 0);
    }
    let key = |id: i64| Any::new(Ref::new(BareKey { id })).unwrap();
    let mut map: Map = Map::new();
    // The hashes include 1 and 67, with which other results begin: those of hooks that return an int or an error.
    for id in (0..100).rev() {
        map.insert(key(id), Any::new(id).unwrap()).unwrap();
        map.insert(key(id), Any::new(-id).unwrap()).unwrap();
    }
    assert_eq!(map.len(), 100);
    for id in 0..100 {
        assert_eq!(map.get(key(id)).unwrap().unwrap().get::<i64>().unwrap(), -id);
    }
    assert!(map.get(key(100)).unwrap().is_none());
}
