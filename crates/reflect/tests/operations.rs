//! Compares the operations with naive recursive implementations on random values. Also tests deep values, and
//! hooks that are packed functions or native functions.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicI64, Ordering as Atomic};

use anyfn::abi::{
    TVMFFIAny, TVMFFIByteArray, TVMFFITypeGetOrAllocIndex, TVMFFITypeRegisterAttr, kTVMFFIBool, kTVMFFIInt,
    kTVMFFIObject, kTVMFFIOpaquePtr,
};
use anyfn::{Any, AnyView, Array, Dict, List, Map, PackedFunc, Ref};
use anyfn_core as _;
use anyfn_reflect::{
    Options, deep_copy, describe_path, first_mismatch, recursive_compare, recursive_equal, recursive_hash,
    repr, shallow_copy, structural_equal, structural_hash, structural_key,
};
use proptest::prelude::*;

/// Simple representation of a value, on which the naive implementations operate.
#[derive(Clone, Debug)]
enum Tree {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Array(Vec<Tree>),
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
    Dict(Vec<(String, Tree)>),
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        Just(Tree::None),
        any::<bool>().prop_map(Tree::Bool),
        (-3i64..4).prop_map(Tree::Int),
        prop_oneof![Just(0.0), Just(-0.0), Just(f64::NAN), Just(1.5)].prop_map(Tree::Float),
        "[a-c]{0,2}|[a-b]{8,9}".prop_map(Tree::Text),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let items = || prop::collection::vec(inner.clone(), 0..4);
        let pairs = || {
            prop::collection::btree_map("[a-d]|[a-b]{8}", inner.clone(), 0..4)
                .prop_map(|pairs| pairs.into_iter().collect::<Vec<_>>())
        };
        prop_oneof![
            items().prop_map(Tree::Array),
            items().prop_map(Tree::List),
            pairs().prop_map(Tree::Map),
            pairs().prop_map(Tree::Dict),
        ]
    })
}

/// Returns a copy of a tree in which the pairs of mappings are in reverse order.
fn reversed(tree: &Tree) -> Tree {
    let items = |items: &[Tree]| items.iter().map(reversed).collect();
    let pairs = |pairs: &[(String, Tree)]| {
        pairs.iter().rev().map(|(key, value)| (key.clone(), reversed(value))).collect()
    };
    match tree {
        Tree::Array(of) => Tree::Array(items(of)),
        Tree::List(of) => Tree::List(items(of)),
        Tree::Map(of) => Tree::Map(pairs(of)),
        Tree::Dict(of) => Tree::Dict(pairs(of)),
        other => other.clone(),
    }
}

fn value(tree: &Tree) -> Any {
    let items = |items: &[Tree]| items.iter().map(value).collect::<Vec<Any>>();
    let pairs = |pairs: &[(String, Tree)]| -> Vec<(Any, Any)> {
        pairs.iter().map(|(key, of)| (Any::new(&key[..]).unwrap(), value(of))).collect()
    };
    match tree {
        Tree::None => Any::NONE,
        Tree::Bool(of) => Any::new(*of).unwrap(),
        Tree::Int(of) => Any::new(*of).unwrap(),
        Tree::Float(of) => Any::new(*of).unwrap(),
        Tree::Text(of) => Any::new(&of[..]).unwrap(),
        Tree::Array(of) => Array::<Any>::try_from_iter(items(of)).unwrap().into(),
        Tree::List(of) => List::<Any>::try_from_iter(items(of)).unwrap().into(),
        Tree::Map(of) => Map::<Any, Any>::from_vec(pairs(of)).unwrap().into(),
        Tree::Dict(of) => Dict::<Any, Any>::from_vec(pairs(of)).unwrap().into(),
    }
}

/// Returns true if two trees are equal. Floats are compared by their bits if `by_bits` is true, so that 0.0 differs
/// from -0.0, and by value otherwise.
fn naive_equal(left: &Tree, right: &Tree, by_bits: bool) -> bool {
    let all = |left: &[Tree], right: &[Tree]| {
        left.len() == right.len() && left.iter().zip(right).all(|(l, r)| naive_equal(l, r, by_bits))
    };
    let pairs = |left: &[(String, Tree)], right: &[(String, Tree)]| {
        let found = |(key, l): &(String, Tree)| {
            right.iter().any(|(other, r)| key == other && naive_equal(l, r, by_bits))
        };
        left.len() == right.len() && left.iter().all(found)
    };
    match (left, right) {
        (Tree::None, Tree::None) => true,
        (Tree::Bool(l), Tree::Bool(r)) => l == r,
        (Tree::Int(l), Tree::Int(r)) => l == r,
        (Tree::Float(l), Tree::Float(r)) => {
            l.is_nan() && r.is_nan() || if by_bits { l.to_bits() == r.to_bits() } else { l == r }
        }
        (Tree::Text(l), Tree::Text(r)) => l == r,
        (Tree::Array(l), Tree::Array(r)) | (Tree::List(l), Tree::List(r)) => all(l, r),
        (Tree::Map(l), Tree::Map(r)) | (Tree::Dict(l), Tree::Dict(r)) => pairs(l, r),
        _ => false,
    }
}

/// Returns the order of two trees, or `None` if they cannot be ordered.
fn naive_order(left: &Tree, right: &Tree) -> Option<Ordering> {
    let is_none = |tree: &Tree| matches!(tree, Tree::None);
    match (left, right) {
        _ if is_none(left) || is_none(right) => Some((!is_none(left)).cmp(&!is_none(right))),
        (Tree::Bool(l), Tree::Bool(r)) => Some(l.cmp(r)),
        (Tree::Int(l), Tree::Int(r)) => Some(l.cmp(r)),
        (Tree::Float(l), Tree::Float(r)) => l.partial_cmp(r),
        (Tree::Text(l), Tree::Text(r)) => Some(l.as_bytes().cmp(r.as_bytes())),
        (Tree::Array(l), Tree::Array(r)) | (Tree::List(l), Tree::List(r)) => {
            for (l, r) in l.iter().zip(r) {
                match naive_order(l, r) {
                    Some(Ordering::Equal) => {}
                    other => return other,
                }
            }
            Some(l.len().cmp(&r.len()))
        }
        (Tree::Map(l), Tree::Map(r)) | (Tree::Dict(l), Tree::Dict(r)) => {
            for (key, l) in l {
                let (_, r) = r.iter().find(|(other, _)| key == other)?;
                naive_order(l, r).filter(|order| order.is_eq())?;
            }
            (l.len() == r.len()).then_some(Ordering::Equal)
        }
        _ => None,
    }
}

fn check(left: &Tree, right: &Tree) {
    let (l, r) = (value(left), value(right));
    let options = Options::default();
    let equal = naive_equal(left, right, true);
    assert_eq!(structural_equal(&l, &r, options).unwrap(), equal);
    assert_eq!(first_mismatch(&l, &r, options).unwrap().is_none(), equal);
    if equal {
        assert_eq!(structural_hash(&l, options).unwrap(), structural_hash(&r, options).unwrap());
    }
    let equal = naive_equal(left, right, false);
    assert_eq!(recursive_equal(&l, &r).unwrap(), equal);
    if equal {
        assert_eq!(recursive_hash(&l).unwrap(), recursive_hash(&r).unwrap());
    }
    assert_eq!(recursive_compare(&l, &r).ok(), naive_order(left, right), "{left:?} {right:?}");
    let copy = deep_copy(&l).unwrap();
    assert!(structural_equal(&l, &copy, options).unwrap());
    assert_eq!(repr(&copy).unwrap(), repr(&l).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn operations_are_as_naive_ones(left in tree(), right in tree()) {
        check(&left, &right);
        check(&left, &left);
        check(&left, &reversed(&left));
    }

    #[test]
    fn a_change_in_one_place_is_found(items in prop::collection::vec(tree(), 1..5), at in any::<prop::sample::Index>(), other in tree()) {
        let mut changed = items.clone();
        changed[at.index(items.len())] = other;
        check(&Tree::List(items), &Tree::List(changed));
    }
}

#[test]
fn paths_are_told() {
    let left = value(&Tree::Array(vec![Tree::Map(vec![("a".into(), Tree::List(vec![Tree::Int(1)]))])]));
    let right = value(&Tree::Array(vec![Tree::Map(vec![("a".into(), Tree::List(vec![Tree::Int(2)]))])]));
    let (path, _) = first_mismatch(&left, &right, Options::default()).unwrap().unwrap();
    assert_eq!(describe_path(&path, "module").unwrap(), "module[0][\"a\"][0]");
    assert_eq!(repr(&path.into()).unwrap(), "<root>[0][\"a\"][0]");
    assert_eq!(describe_path(left.as_object().unwrap(), "").unwrap_err().kind(), "TypeError");
}

#[test]
fn keys_are_found_by_form() {
    let key = |tree: &Tree| structural_key(value(tree)).unwrap();
    let (one, other) = (Tree::List(vec![Tree::Int(1)]), Tree::List(vec![Tree::Int(2)]));
    let map = Map::<Any, Any>::try_from_iter([(key(&one), 1), (key(&other), 2), (key(&one), 3)]).unwrap();
    assert_eq!(map.len(), 2);
    assert_eq!(map.get_any(key(&one)).unwrap().unwrap().get::<i64>().unwrap(), 3);
}

/// Type whose hooks are registered as addresses of native functions, as compiled code registers them.
#[derive(anyfn::Object)]
#[object(key = "test.Number")]
struct Number(AtomicI64);

fn number(value: i64) -> Any {
    Any::new(Ref::new(Number(AtomicI64::new(value)))).unwrap()
}

fn of(object: *mut core::ffi::c_void) -> i64 {
    // SAFETY: the hooks below are called with objects of this type, which they borrow.
    let object = unsafe { anyfn::ObjectRef::from_borrowed_or_null(object) }.unwrap();
    Ref::<Number>::try_from_object(object).unwrap().0.load(Atomic::Relaxed)
}

type Handle = *mut core::ffi::c_void;

unsafe extern "C" fn print(object: Handle, callback: *const Handle) -> TVMFFIAny {
    // SAFETY: the function is called with the address of a handle.
    let callback = unsafe { *callback };
    // SAFETY: the handle refers to a function that is alive during the call.
    let callback = unsafe { anyfn::ObjectRef::from_borrowed_or_null(callback) }.unwrap();
    let shown = PackedFunc::try_from_object(callback).unwrap().call((of(object),)).unwrap();
    let text = format!("number {}", shown.get::<String>().unwrap());
    Any::new(text).unwrap().into_raw()
}

unsafe extern "C" fn equal(left: Handle, right: Handle, _: *const Handle) -> TVMFFIAny {
    if of(left) < 0 {
        let error = anyfn::Error::new("ValueError", "negative");
        return Any::from(error.into_object()).into_raw();
    }
    TVMFFIAny::from_bits(kTVMFFIBool, u64::from(of(left) % 10 == of(right) % 10))
}

unsafe extern "C" fn compare(left: Handle, right: Handle, _: *const Handle) -> TVMFFIAny {
    TVMFFIAny::from_bits(kTVMFFIInt, of(left).cmp(&of(right)) as i64 as u64)
}

unsafe extern "C" fn hash(object: Handle, _: *const Handle) -> TVMFFIAny {
    TVMFFIAny::from_bits(kTVMFFIInt, (of(object) % 10) as u64)
}

unsafe extern "C" fn copy(object: Handle) -> TVMFFIAny {
    number(of(object)).into_raw()
}

fn register(name: &str, code: *const ()) {
    use anyfn::Object;
    let name = TVMFFIByteArray::from_slice(name.as_bytes());
    let mut value = TVMFFIAny::NONE;
    value.type_index = kTVMFFIOpaquePtr;
    value.value.v_ptr = code.cast_mut().cast();
    // SAFETY: all arguments are borrowed for the call.
    assert_eq!(unsafe { TVMFFITypeRegisterAttr(Number::type_index(), &name, &value) }, 0);
}

#[test]
fn native_functions_of_types_are_called() {
    register("__ffi_repr__", print as *const ());
    register("__ffi_eq__", equal as *const ());
    register("__ffi_compare__", compare as *const ());
    register("__ffi_hash__", hash as *const ());
    register("__ffi_shallow_copy__", copy as *const ());
    let list = |value: i64| Any::from(List::<Any>::try_from_iter([number(value)]).unwrap());
    assert_eq!(repr(&list(7)).unwrap(), "[number 7]");
    assert!(recursive_equal(&list(7), &list(17)).unwrap());
    assert!(!recursive_equal(&list(7), &list(18)).unwrap());
    assert_eq!(recursive_compare(&list(7), &list(17)).unwrap(), Ordering::Less);
    assert_eq!(recursive_hash(&list(7)).unwrap(), recursive_hash(&list(17)).unwrap());
    let error = recursive_equal(&list(-1), &list(1)).unwrap_err();
    assert_eq!((error.kind(), error.message()), ("ValueError", "negative"));
    assert_eq!(repr(&deep_copy(&list(5)).unwrap()).unwrap(), "[number 5]");
    assert_eq!(repr(&shallow_copy(&number(6)).unwrap()).unwrap(), "number 6");
}

#[test]
fn objects_that_tell_nothing_are_themselves_only() {
    let key = TVMFFIByteArray::from_slice(b"test.Silent");
    // SAFETY: the key is borrowed for the call.
    let index = unsafe { TVMFFITypeGetOrAllocIndex(&key, -1, 1, 0, 1, kTVMFFIObject) };
    // SAFETY: the type registers no fields, so no code reads the content of its objects.
    let make = || Any::from(unsafe { anyfn::__private::new_object(index, ()) });
    let (one, other) = (make(), make());
    assert!(recursive_equal(&one, &one).unwrap() && !recursive_equal(&one, &other).unwrap());
    assert_eq!(
        recursive_compare(&one, &other).unwrap_err().message(),
        "Cannot order values of type test.Silent"
    );
    assert_eq!(repr(&one).unwrap(), "test.Silent");
    assert!(
        structural_equal(&one, &other, Options::default())
            .unwrap_err()
            .message()
            .contains("is not set for type")
    );
    assert!(deep_copy(&one).unwrap_err().message().contains("not copy-constructible"));
}

/// Nesting depth of the values that [`many_levels`] builds. A million levels, as in the Python tests, would
/// take too long in a debug build.
const LEVELS: usize = 250_000;

#[test]
fn many_levels() {
    let build = |leaf: i64| {
        let mut made = Any::new(leaf).unwrap();
        for level in 0..LEVELS {
            made = match level % 3 {
                0 => List::<Any>::try_from_iter([made]).unwrap().into(),
                1 => Array::<Any>::try_from_iter([made]).unwrap().into(),
                _ => Dict::<Any, Any>::from_vec(vec![(Any::new("k").unwrap(), made)]).unwrap().into(),
            };
        }
        made
    };
    let (one, same, other) = (build(0), build(0), build(1));
    let options = Options::default();
    assert!(
        structural_equal(&one, &same, options).unwrap() && !structural_equal(&one, &other, options).unwrap()
    );
    assert_eq!(structural_hash(&one, options).unwrap(), structural_hash(&same, options).unwrap());
    assert!(recursive_equal(&one, &same).unwrap() && !recursive_equal(&one, &other).unwrap());
    assert_eq!(recursive_hash(&one).unwrap(), recursive_hash(&same).unwrap());
    assert!(repr(&one).unwrap().len() > LEVELS);
    let copy = deep_copy(&one).unwrap();
    assert!(structural_equal(&one, &copy, options).unwrap());
    let view = AnyView::from(&copy);
    assert_eq!(view.type_key(), one.type_key());
}

#[test]
fn cycles_end() {
    let ring = |length: usize, last: i64| {
        let lists: Vec<List<Any>> = (0..length).map(|_| List::new()).collect();
        for (at, list) in lists.iter().enumerate() {
            let next = lists[(at + 1) % length].clone();
            list.push(Any::new(if at + 1 == length { last } else { 0 }).unwrap()).unwrap();
            list.push(next.into()).unwrap();
        }
        lists
    };
    let (two, three, odd) = (ring(2, 0), ring(3, 0), ring(5, 1));
    let any = |lists: &[List<Any>]| Any::from(lists[0].clone());
    let options = Options::default();
    assert!(structural_equal(&any(&two), &any(&three), options).unwrap());
    assert!(recursive_equal(&any(&two), &any(&three)).unwrap());
    assert!(!structural_equal(&any(&two), &any(&odd), options).unwrap());
    assert_eq!(structural_hash(&any(&two), options).unwrap_err().kind(), "ValueError");
    assert_eq!(recursive_compare(&any(&two), &any(&three)).unwrap_err().kind(), "ValueError");
    assert_eq!(repr(&any(&two)).unwrap(), "[0, [0, ...]]");
    let copy = deep_copy(&any(&odd)).unwrap();
    assert!(structural_equal(&copy, &any(&odd), options).unwrap());
    for lists in [two, three, odd] {
        lists.iter().for_each(List::clear);
    }
    copy.get::<List>().unwrap().clear();
}
