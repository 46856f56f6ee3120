//! Tests that random operations on containers and on plain vectors have the same results.

use anyfn_core as _;

use anyfn::{Any, Array, Dict, List, Map};
use anyfn_random::Random;
use proptest::prelude::*;

/// Key of one of several types. The values include short and long strings, both float zeros, and NaN.
#[derive(Clone, Debug, PartialEq)]
enum Key {
    Int(i64),
    Bool(bool),
    Float(u64),
    Text(String),
    Bytes(Vec<u8>),
}

impl Key {
    fn any(&self) -> Any {
        match self {
            Key::Int(x) => Any::new(*x),
            Key::Bool(x) => Any::new(*x),
            Key::Float(bits) => Any::new(f64::from_bits(*bits)),
            Key::Text(text) => Any::new(text.as_str()),
            Key::Bytes(bytes) => Any::new(&bytes[..]),
        }
        .unwrap()
    }
}

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![
        6 => (0i64..40).prop_map(Key::Int),
        // These keys are in one chain of a table of up to 64 slots, because their hashes differ only in high bits.
        3 => (0i64..40).prop_map(|x| Key::Int(x.wrapping_mul(colliding()))),
        1 => any::<bool>().prop_map(Key::Bool),
        1 => prop_oneof![Just(0.0f64), Just(-0.0), Just(1.0), Just(f64::NAN)].prop_map(|x| Key::Float(x.to_bits())),
        4 => "[ab]{0,12}".prop_map(Key::Text),
        1 => proptest::collection::vec(0u8..3, 0..10).prop_map(Key::Bytes),
    ]
}

/// Returns the modular inverse of the hash table's multiplier. Products of the inverse and small numbers
/// collide in the table.
fn colliding() -> i64 {
    let multiplier = 11_400_714_819_323_198_485u64;
    let mut inverse = 1u64;
    for _ in 0..6 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(multiplier.wrapping_mul(inverse)));
    }
    assert_eq!(inverse.wrapping_mul(multiplier), 1);
    inverse as i64
}

#[derive(Clone, Debug)]
enum Op {
    Set(Key, i64),
    Remove(Key),
    RemoveOldest,
    RemoveNewest,
    Get(Key),
    Share,
    Clear,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        30 => (key(), any::<i64>()).prop_map(|(k, v)| Op::Set(k, v)),
        15 => key().prop_map(Op::Remove),
        3 => Just(Op::RemoveOldest),
        3 => Just(Op::RemoveNewest),
        10 => key().prop_map(Op::Get),
        1 => Just(Op::Share),
        1 => Just(Op::Clear),
    ]
}

type Model = Vec<(Key, i64)>;

fn set(model: &mut Model, key: &Key, value: i64) {
    match model.iter_mut().find(|(k, _)| k == key) {
        Some(pair) => pair.1 = value,
        None => model.push((key.clone(), value)),
    }
}

fn remove(model: &mut Model, key: &Key) -> Option<i64> {
    let at = model.iter().position(|(k, _)| k == key)?;
    Some(model.remove(at).1)
}

fn check_map(model: &Model, map: &Map<Any, i64>) {
    assert_eq!(map.len(), model.len());
    for (pair, (key, value)) in map.iter().zip(model) {
        assert_eq!(pair, (key.any(), *value));
        assert_eq!(map.get(key.any()).unwrap(), Some(*value));
    }
}

fn check_dict(model: &Model, dict: &Dict<Any, i64>) {
    assert_eq!(dict.len(), model.len());
    for (pair, (key, value)) in dict.iter().zip(model) {
        assert_eq!(pair.unwrap(), (key.any(), *value));
        assert_eq!(dict.get(key.any()).unwrap(), Some(*value));
    }
}

fn target(model: &Model, op: &Op) -> Option<Key> {
    match op {
        Op::Remove(key) => Some(key.clone()),
        Op::RemoveOldest => model.first().map(|(key, _)| key.clone()),
        Op::RemoveNewest => model.last().map(|(key, _)| key.clone()),
        _ => None,
    }
}

proptest! {
    // The environment variable PROPTEST_CASES sets the number of cases: `./x soak` runs many.

    #[test]
    fn map_is_as_a_vector_of_pairs(ops in proptest::collection::vec(op(), 1..400)) {
        let mut model = Model::new();
        let mut map: Map<Any, i64> = Map::new();
        let mut shared = vec![];
        for op in &ops {
            match op {
                Op::Set(key, value) => {
                    set(&mut model, key, *value);
                    map.insert(key.any(), *value).unwrap();
                }
                Op::Get(key) => {
                    let expected = model.iter().find(|(k, _)| k == key).map(|(_, value)| *value);
                    prop_assert_eq!(map.get(key.any()).unwrap(), expected);
                }
                Op::Share => shared.push((model.clone(), map.clone())),
                Op::Clear => {
                    model.clear();
                    map.clear().unwrap();
                }
                _ => if let Some(key) = target(&model, op) {
                    let removed = remove(&mut model, &key).is_some();
                    prop_assert_eq!(map.remove(key.any()).unwrap(), removed);
                }
            }
            prop_assert_eq!(map.len(), model.len());
        }
        check_map(&model, &map);
        for (model, map) in &shared {
            check_map(model, map);
        }
    }

    #[test]
    fn dict_is_as_a_vector_of_pairs(ops in proptest::collection::vec(op(), 1..400)) {
        let mut model = Model::new();
        let dict: Dict<Any, i64> = Dict::new();
        for op in &ops {
            match op {
                Op::Set(key, value) => {
                    let old = model.iter().find(|(k, _)| k == key).map(|(_, value)| *value);
                    set(&mut model, key, *value);
                    let got = dict.insert(key.any(), *value).unwrap();
                    prop_assert_eq!(got.map(|old| old.get::<i64>().unwrap()), old);
                }
                Op::Get(key) => {
                    let expected = model.iter().find(|(k, _)| k == key).map(|(_, value)| *value);
                    prop_assert_eq!(dict.get(key.any()).unwrap(), expected);
                }
                Op::Share => check_dict(&model, &dict),
                Op::Clear => {
                    model.clear();
                    dict.clear().unwrap();
                }
                _ => if let Some(key) = target(&model, op) {
                    let removed = dict.remove(key.any()).unwrap().map(|value| value.get::<i64>().unwrap());
                    prop_assert_eq!(removed, remove(&mut model, &key));
                }
            }
        }
        check_dict(&model, &dict);
    }

    #[test]
    fn pairs_at_once_are_as_one_by_one(pairs in proptest::collection::vec((key(), any::<i64>()), 0..60)) {
        let mut model = Model::new();
        for (key, value) in &pairs {
            set(&mut model, key, *value);
        }
        let values = || pairs.iter().map(|(key, value)| (key.any(), *value));
        check_map(&model, &Map::try_from_iter(values()).unwrap());
        check_dict(&model, &Dict::try_from_iter(values()).unwrap());
    }

    #[test]
    fn sequences_are_as_vectors(ops in proptest::collection::vec((0u8..10, 0usize..12, any::<i64>()), 1..300)) {
        let (mut model, mut array, list) = (Vec::<i64>::new(), Array::<i64>::new(), List::<i64>::new());
        let mut shared = vec![];
        for (op, at, value) in ops {
            match op {
                0..=3 => {
                    model.push(value);
                    array.push(value).unwrap();
                    list.push(value).unwrap();
                }
                4 => {
                    let expected = model.pop();
                    prop_assert_eq!(array.pop().unwrap(), expected);
                    prop_assert_eq!(list.pop().unwrap(), expected);
                }
                5 if at <= model.len() => {
                    model.insert(at, value);
                    array.insert(at, value).unwrap();
                    list.insert(at, value).unwrap();
                }
                6 if at < model.len() => {
                    let expected = model.remove(at);
                    prop_assert_eq!(array.remove(at).unwrap(), expected);
                    prop_assert_eq!(list.remove(at).unwrap(), expected);
                }
                7 if at < model.len() => {
                    model[at] = value;
                    array.set(at, value).unwrap();
                    list.set(at, value).unwrap();
                }
                8 => {
                    model.reverse();
                    array.reverse().unwrap();
                    list.reverse();
                    shared.push((model.clone(), array.clone()));
                }
                9 if at <= model.len() => {
                    let new = [value, value.wrapping_add(1), value.wrapping_add(2)];
                    let end = (at + 2).min(model.len());
                    model.splice(at..end, new);
                    let values = new.iter().map(|x| Any::new(*x).unwrap()).collect();
                    list.replace_range(at..end, values).unwrap();
                    array = model.iter().copied().collect();
                }
                _ => {
                    let expected = format!("Index {} out of bounds {}", model.len() + at, model.len());
                    prop_assert_eq!(list.get(model.len() + at).unwrap_err().message().to_string(), expected.clone());
                    prop_assert_eq!(array.get(model.len() + at).unwrap_err().message().to_string(), expected);
                }
            }
            prop_assert_eq!(array.len(), model.len());
        }
        prop_assert_eq!(list.to_vec().unwrap(), model.clone());
        prop_assert_eq!(array.to_vec().unwrap(), model.clone());
        prop_assert!(array.iter().eq(model.iter().copied()));
        prop_assert!(array.iter().rev().eq(model.iter().rev().copied()));
        for (model, array) in shared {
            prop_assert_eq!(array.to_vec().unwrap(), model);
        }
    }
}

/// Fills a table to its limit and empties it many times, in pseudo-random order.
#[test]
fn long_runs_of_adding_and_removing() {
    let dict: Dict<i64, i64> = Dict::new();
    let mut model: Vec<(i64, i64)> = vec![];
    let mut random = Random::new(1);
    for round in 0..60_000i64 {
        let growing = (round / 3_000) % 2 == 0;
        if model.is_empty() || random.below(16) < if growing { 12 } else { 4 } {
            let key = random.below(5_000) as i64;
            let key = key.wrapping_mul(if random.chance(50) { 1 } else { colliding() });
            match model.iter_mut().find(|(k, _)| *k == key) {
                Some(pair) => pair.1 = round,
                None => model.push((key, round)),
            }
            dict.insert(key, round).unwrap();
        } else {
            let (key, value) = model.remove(random.below(model.len()));
            let removed = dict.remove(key).unwrap().unwrap();
            assert_eq!(removed.get::<i64>().unwrap(), value);
        }
    }
    let pairs: Vec<(i64, i64)> = dict.iter().map(|pair| pair.unwrap()).collect();
    assert_eq!(pairs, model);
}
