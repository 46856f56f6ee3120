//! Tests of the memory layout of containers, which code in other languages reads directly, without
//! calling a function.

use anyfn_core as _;

use anyfn::abi::{
    TVMFFIDenseMapTail, TVMFFIMapBlock, TVMFFIMapCell, TVMFFIObject, TVMFFISeqCell, kTVMFFIArray, kTVMFFIDict,
    kTVMFFIList, kTVMFFIMap,
};
use anyfn::{Any, Array, Dict, List, Map, ObjectRef};

const SMALL: u64 = 1 << 63;
const NONE: u64 = u64::MAX;

fn seq(object: &ObjectRef) -> &TVMFFISeqCell {
    // SAFETY: Arrays and Lists have the cell right behind the header.
    let cell = unsafe { object.as_handle().cast::<TVMFFIObject>().add(1) };
    // SAFETY: Arrays and Lists have the cell right behind the header.
    unsafe { &*cell.cast() }
}

fn map(object: &ObjectRef) -> &TVMFFIMapCell {
    // SAFETY: Maps and Dicts have the cell right behind the header.
    let cell = unsafe { object.as_handle().cast::<TVMFFIObject>().add(1) };
    // SAFETY: Maps and Dicts have the cell right behind the header.
    unsafe { &*cell.cast() }
}

fn tail(object: &ObjectRef) -> &TVMFFIDenseMapTail {
    assert_eq!(map(object).slots & SMALL, 0);
    // SAFETY: a dense object has the tail behind the cell.
    let tail = unsafe { core::ptr::from_ref(map(object)).add(1) };
    // SAFETY: a dense object has the tail behind the cell.
    unsafe { &*tail.cast() }
}

fn offset(object: &ObjectRef, data: *mut core::ffi::c_void) -> usize {
    data.addr() - object.as_handle().addr()
}

#[test]
fn array_elements_lie_in_the_object() {
    let mut array: Array<i64> = Array::new();
    assert_eq!(array.as_object().type_index(), kTVMFFIArray);
    let cell = seq(array.as_object());
    assert_eq!((cell.size, cell.capacity, offset(array.as_object(), cell.data)), (0, 4, 56));
    assert!(cell.data_deleter.is_none());
    for i in 0..5 {
        array.push(i).unwrap();
    }
    let cell = seq(array.as_object());
    assert_eq!((cell.size, cell.capacity, offset(array.as_object(), cell.data)), (5, 8, 56));
    let exact: Array<i64> = Array::from(vec![1, 2, 3]);
    assert_eq!(seq(exact.as_object()).capacity, 3);
}

#[test]
fn list_elements_lie_in_a_buffer() {
    let list: List<i64> = List::new();
    assert_eq!(list.as_object().type_index(), kTVMFFIList);
    let cell = seq(list.as_object());
    assert_eq!((cell.size, cell.capacity, cell.data.is_null()), (0, 0, true));
    assert!(cell.data_deleter.is_some(), "code that grows an empty List calls the deleter with NULL");
    let mut capacities = vec![];
    for i in 0..9 {
        list.push(i).unwrap();
        capacities.push(seq(list.as_object()).capacity);
    }
    assert_eq!(capacities, [1, 2, 4, 4, 8, 8, 8, 8, 16]);
    assert!(seq(list.as_object()).data_deleter.is_some());
}

#[test]
fn a_buffer_of_other_code_is_freed_by_its_own_deleter() {
    use core::sync::atomic::{AtomicUsize, Ordering};
    static FREED: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn deleter(data: *mut core::ffi::c_void) {
        FREED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: `data` comes from `Box::into_raw` below.
        drop(unsafe { Box::from_raw(data.cast::<[anyfn::abi::TVMFFIAny; 2]>()) });
    }
    let list: List<i64> = List::new();
    let cell = core::ptr::from_ref(seq(list.as_object())).cast_mut();
    let buffer = Box::into_raw(Box::new([anyfn::abi::TVMFFIAny::from_bits(1, 7); 2]));
    // SAFETY: no other code uses the list, and other code may replace its buffer in this way.
    unsafe {
        cell.write(TVMFFISeqCell { data: buffer.cast(), size: 2, capacity: 2, data_deleter: Some(deleter) })
    };
    list.push(8).unwrap();
    assert_eq!(FREED.load(Ordering::Relaxed), 1);
    assert_eq!(list.to_vec().unwrap(), [7, 7, 8]);
}

#[test]
fn small_maps_lie_in_the_object() {
    for (object, index) in [
        (Map::<Any, Any>::new().into_object(), kTVMFFIMap),
        (Dict::<Any, Any>::new().into_object(), kTVMFFIDict),
    ] {
        assert_eq!(object.type_index(), index);
        let cell = map(&object);
        assert_eq!((cell.size, cell.slots, offset(&object, cell.data)), (0, SMALL | 2, 56));
        assert!(cell.data_deleter.is_none());
    }
    let three: Map<i64, i64> = (0..3).map(|i| (i, i)).collect();
    assert_eq!(map(three.as_object()).slots, SMALL | 3);
}

#[test]
fn a_dict_becomes_dense_in_place() {
    let dict: Dict<i64, i64> = Dict::new();
    let mut slots = vec![];
    for i in 0..20 {
        dict.insert(i, 10 * i).unwrap();
        slots.push(map(dict.as_object()).slots);
    }
    assert_eq!(slots[..5], [SMALL | 2, SMALL | 2, SMALL | 4, SMALL | 4, 8]);
    assert_eq!(slots[19], 32);
    let (cell, tail) = (map(dict.as_object()), tail(dict.as_object()));
    assert_eq!((cell.size, tail.fib_shift, tail.padding), (20, 64 - 5, 0));
    assert!(cell.data_deleter.is_some());
    // Walk the pairs in order and check the slot of each.
    let (mut at, mut previous, mut seen) = (tail.iter_head, NONE, vec![]);
    while at != NONE {
        // SAFETY: the table has two blocks of sixteen slots.
        let block = unsafe { cell.data.cast::<TVMFFIMapBlock>().add(at as usize / 16) };
        // SAFETY: the block is in the table, which does not change meanwhile, and a linked slot holds a pair.
        let block = unsafe { &*block };
        let (meta, item) = (block.meta[at as usize % 16], &block.items[at as usize % 16]);
        assert_eq!(item.prev, previous);
        // SAFETY: a linked slot holds a key and a value, all of whose bytes are initialised.
        let bits = |value: &anyfn::abi::TVMFFIAny| unsafe { value.bits() };
        let hash = 1u64 ^ (bits(&item.key).wrapping_add(0x9e37_79b9).wrapping_add(1 << 6).wrapping_add(0));
        let home = hash.wrapping_mul(11_400_714_819_323_198_485) >> tail.fib_shift;
        if meta & 0x80 == 0 {
            assert_eq!(home, at, "a chain's head is at home");
        }
        seen.push((bits(&item.key), bits(&item.value)));
        (previous, at) = (at, item.next);
    }
    assert_eq!(previous, tail.iter_tail);
    assert_eq!(seen, (0..20).map(|i| (i, 10 * i)).collect::<Vec<_>>());
}

#[test]
fn pairs_at_once_use_no_more_memory_than_one_by_one() {
    let dict: Dict<i64, i64> = (0..4).map(|i| (i, i)).collect();
    let cell = map(dict.as_object());
    assert_eq!((cell.size, cell.slots, offset(dict.as_object(), cell.data)), (4, SMALL | 4, 56));
    for count in [5, 7, 8, 15, 16, 100, 1000, 1013, 1014, 5000] {
        let at_once: Dict<i64, i64> = (0..count).map(|i| (i, i)).collect();
        let one_by_one: Dict<i64, i64> = Dict::new();
        (0..count).for_each(|i| drop(one_by_one.insert(i, i).unwrap()));
        let slots = [&at_once, &one_by_one].map(|dict| map(dict.as_object()).slots);
        // Memory is allocated in blocks of sixteen slots.
        assert_eq!(slots[0], slots[1].max(16), "{count} pairs");
        assert_eq!(tail(at_once.as_object()).fib_shift, 64 - slots[0].trailing_zeros());
        let pairs = |dict: &Dict<i64, i64>| dict.iter().collect::<Result<Vec<_>, _>>().unwrap();
        assert_eq!(pairs(&at_once), pairs(&one_by_one));
    }
}

#[test]
fn clearing_keeps_a_usable_table() {
    let dict: Dict<i64, i64> = (0..100).map(|i| (i, i)).collect();
    dict.clear().unwrap();
    assert_eq!((map(dict.as_object()).size, map(dict.as_object()).slots), (0, 8));
    assert_eq!((tail(dict.as_object()).iter_head, tail(dict.as_object()).iter_tail), (NONE, NONE));
    dict.insert(1, 2).unwrap();
    assert_eq!(dict.get(1).unwrap(), Some(2));
}
