//! Tests that Lists and Dicts lose no elements when several threads change them.

use anyfn_core as _;

use anyfn::{Any, Dict, List};

const THREADS: i64 = 4;
const EACH: i64 = 20_000;

#[test]
fn list_pushes_and_pops_of_four_threads() {
    let list: List<i64> = List::new();
    let popped: Vec<i64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let list = list.clone();
                scope.spawn(move || {
                    let mut popped = vec![];
                    for i in 0..EACH {
                        list.push(thread * EACH + i).unwrap();
                        if i % 3 == 0 {
                            popped.extend(list.pop().unwrap());
                        }
                        if i % 1000 == 0 {
                            assert!(list.iter().all(|item| item.is_ok()));
                        }
                    }
                    popped
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let mut all = list.to_vec().unwrap();
    all.extend(popped);
    all.sort_unstable();
    assert!(all.into_iter().eq(0..THREADS * EACH));
}

#[test]
fn dict_changes_of_four_threads() {
    let dict: Dict<i64, String> = Dict::new();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let dict = dict.clone();
            scope.spawn(move || {
                for i in 0..EACH {
                    let key = thread * EACH + i;
                    dict.insert(key, format!("the value of key {key}")).unwrap();
                    if i % 2 == 1 {
                        assert!(dict.remove(key - 1).unwrap().is_some());
                    }
                }
            });
        }
    });
    assert_eq!(dict.len() as i64, THREADS * EACH / 2);
    let mut keys = dict.keys().unwrap();
    keys.sort_unstable();
    assert!(keys.into_iter().eq((0..THREADS * EACH).filter(|key| key % 2 == 1)));
    assert_eq!(dict.at(7).unwrap(), "the value of key 7");
}

#[test]
fn values_are_released_after_the_lock() {
    // The List holds the last reference to an object whose release uses the same List.
    struct Looker(List<Any>);
    impl Drop for Looker {
        fn drop(&mut self) {
            self.0.len();
        }
    }
    let list: List<Any> = List::new();
    let looker = Looker(list.clone());
    let function = anyfn::PackedFunc::new(move |_| Any::new(looker.0.len()));
    list.push(function.into()).unwrap();
    list.set(0, Any::NONE).unwrap();
    let looker = Looker(list.clone());
    list.push(anyfn::PackedFunc::new(move |_| Any::new(looker.0.len())).into()).unwrap();
    list.clear();
    assert!(list.is_empty());
    assert_eq!(list.as_object().use_count(), 1);
}
