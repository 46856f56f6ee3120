//! Tests of slices and of indices that count from the end, as in Python.

use anyfn::{Any, Array, ArrayBuilder, Dict, List, Map, MapCursor, Slice};
use anyfn_core as _;

fn list(n: i64) -> List {
    (0..n).map(any).collect()
}

fn ints(values: &[Any]) -> Vec<i64> {
    values.iter().map(|value| value.get::<i64>().unwrap()).collect()
}

fn any(value: i64) -> Any {
    Any::new(value).unwrap()
}

/// Returns the indices of a slice by its definition: start, start + step, ... before stop.
fn by_definition(start: i64, stop: i64, step: i64, len: i64) -> Vec<usize> {
    let from_end = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
    let (low, high) = if step < 0 { (-1, len - 1) } else { (0, len) };
    let (mut at, stop) = (from_end(start).clamp(low, high), from_end(stop).clamp(low, high));
    let mut indices = Vec::new();
    while if step < 0 { at > stop } else { at < stop } {
        indices.push(at as usize);
        at = at.saturating_add(step);
    }
    indices
}

#[test]
fn slices_name_the_places_that_the_definition_names() {
    let bounds = [i64::MIN, -9, -4, -1, 0, 1, 3, 5, 8, i64::MAX];
    for len in 0..6 {
        for start in bounds {
            for stop in bounds {
                for step in [i64::MIN, -3, -1, 1, 2, i64::MAX] {
                    let indices = Slice::new(start, stop, step).unwrap().indices(len as usize);
                    assert_eq!(indices.len(), indices.count());
                    let indices: Vec<usize> = indices.collect();
                    assert_eq!(
                        indices,
                        by_definition(start, stop, step, len),
                        "{start}:{stop}:{step} of {len}"
                    );
                }
            }
        }
    }
    assert_eq!(Slice::new(0, 1, 0).unwrap_err().kind(), "ValueError");
}

#[test]
fn slices_of_lists() {
    let slice = |start, stop, step| Slice::new(start, stop, step).unwrap();
    let values = list(6);
    assert_eq!(ints(&values.slice(slice(-2, i64::MAX, 1)).unwrap()), [4, 5]);
    assert_eq!(ints(&values.slice(slice(i64::MAX, i64::MIN, -2)).unwrap()), [5, 3, 1]);
    values.set_slice(slice(1, 3, 1), vec![any(9)]).unwrap();
    assert_eq!(ints(&values.snapshot()), [0, 9, 3, 4, 5]);
    values.set_slice(slice(0, 5, 2), vec![any(7), any(8), any(6)]).unwrap();
    assert_eq!(ints(&values.snapshot()), [7, 9, 8, 4, 6]);
    let error = values.set_slice(slice(0, 5, 2), vec![any(1)]).unwrap_err();
    assert_eq!(error.message(), "attempt to assign sequence of size 1 to extended slice of size 3");
    values.remove_slice(slice(i64::MAX, i64::MIN, -3)).unwrap();
    assert_eq!(ints(&values.snapshot()), [7, 8, 4]);
    values.remove_slice(slice(5, 9, 1)).unwrap();
    assert_eq!(values.len(), 3);
    let array: Array<i64> = (0..6).collect();
    assert_eq!(array.slice(slice(0, 6, 4)).unwrap().to_vec().unwrap(), [0, 4]);
}

#[test]
fn places_of_lists_count_from_the_end() {
    let values = list(3);
    assert_eq!(values.at(-1).unwrap().get::<i64>().unwrap(), 2);
    assert!(values.at(3).is_none() && values.at(-4).is_none() && values.at(i64::MIN).is_none());
    assert!(values.set_at(-3, any(9)) && !values.set_at(3, any(1)));
    values.insert_at(-1, any(8)).unwrap();
    values.insert_at(i64::MAX, any(7)).unwrap();
    values.insert_at(i64::MIN, any(6)).unwrap();
    assert_eq!(ints(&values.snapshot()), [6, 9, 1, 8, 2, 7]);
    assert_eq!(values.remove_at(-2).unwrap().get::<i64>().unwrap(), 2);
    assert!(values.remove_at(9).is_none());
    // An element that has moved is found, and one that was removed is not.
    let moved = any(8);
    assert!(values.remove_same(0, &moved) && !values.remove_same(0, &moved));
    assert_eq!(ints(&values.snapshot()), [6, 9, 1, 7]);
}

#[test]
fn a_list_is_replaced_only_as_long_as_it_is_what_was_seen() {
    let values = list(3);
    let seen = values.try_snapshot().unwrap();
    assert!(values.replace_all(&seen, vec![any(5)]).unwrap());
    assert!(!values.replace_all(&seen, vec![any(6)]).unwrap());
    assert_eq!(ints(&values.snapshot()), [5]);
}

#[test]
fn arrays_are_built_beyond_the_room_that_was_asked_for() {
    let mut builder = ArrayBuilder::with_capacity(1).unwrap();
    for value in 0..100 {
        if value % 3 == 0 { builder.push_int(value) } else { builder.push(any(value)) }.unwrap();
    }
    assert_eq!(ints(builder.finish().as_slice()), (0..100).collect::<Vec<_>>());
}

#[test]
fn runs_of_ints_are_appended_while_there_is_room() {
    let mut builder = ArrayBuilder::with_capacity(10).unwrap();
    let mut next = 0..;
    assert_eq!(builder.push_ints(4, || next.next()), 4);
    assert_eq!(builder.push_ints(4, || None), 0);
    assert_eq!(builder.push_ints(0, || next.next()), 0);
    builder.push(any(4)).unwrap();
    next.next();
    assert_eq!(builder.push_ints(3, || next.next().filter(|value| *value < 7)), 2);
    // Only the reserved memory is filled, and what does not fit is not asked for.
    let (mut next, room) = (7.., builder.push_ints(usize::MAX, || Some(0)));
    assert!((3..100).contains(&room));
    assert_eq!(builder.push_ints(5, || next.next()), 0);
    assert_eq!(next.next(), Some(7));
    let array = builder.finish();
    assert_eq!(ints(array.as_slice()), (0..7).chain(vec![0; room]).collect::<Vec<_>>());
}

#[test]
fn maps_are_walked_by_places() {
    for len in [0, 1, 3, 4, 5, 100] {
        let map: Map<i64, i64> = (0..len).map(|key| (key, key * 2)).collect();
        let (mut place, mut seen) = (MapCursor::default(), Vec::new());
        while let Some((key, value)) = map.next_pair(&mut place) {
            seen.push((key.get::<i64>().unwrap(), value.get::<i64>().unwrap()));
        }
        assert_eq!(seen, (0..len).map(|key| (key, key * 2)).collect::<Vec<_>>());
        assert!(map.next_pair(&mut place).is_none());
        // A position of another Map is safe, whatever the result.
        let other: Map<i64, i64> = (0..7).map(|key| (key, key)).collect();
        let mut stale = place;
        let _ = other.next_pair(&mut stale);
    }
}

#[test]
fn dicts_give_the_newest_pair_and_set_what_is_missing() {
    let dict: Dict = Dict::new();
    for key in 0..40 {
        assert_eq!(dict.get_or_set(any(key), any(key)).unwrap().get::<i64>().unwrap(), key);
        assert_eq!(dict.get_or_set(any(key), any(-1)).unwrap().get::<i64>().unwrap(), key);
    }
    dict.remove(10).unwrap();
    for key in (0..40).rev().filter(|key| *key != 10) {
        let (popped, value) = dict.pop_last().unwrap();
        assert_eq!((popped.get::<i64>().unwrap(), value.get::<i64>().unwrap()), (key, key));
    }
    assert!(dict.pop_last().is_none() && dict.is_empty());
    assert!(dict.try_snapshot().unwrap().is_empty());
}
