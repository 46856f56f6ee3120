//! Sorting without a copy of the algorithm for each type.

use core::cmp::Ordering;

use alloc::vec::Vec;

/// Sorts `items` stably by `compare`.
///
/// The sorts of the standard library take less time, but each type and comparison adds 5 KB of code to a library built for
/// speed. Use this function where few items are sorted, or rarely.
pub fn sort_by<T>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let mut order = order(items.len(), &mut |one, other| compare(&items[one], &items[other]));
    // Moves along each cycle of the permutation: the item that belongs at `at` is at `order[at]`.
    for start in 0..order.len() {
        let mut at = start;
        loop {
            let from = core::mem::replace(&mut order[at], at);
            if from == start {
                break;
            }
            items.swap(at, from);
            at = from;
        }
    }
}

/// Sorts `items` in ascending order.
pub fn sort<T: Ord>(items: &mut [T]) {
    sort_by(items, T::cmp);
}

/// Returns the indices from 0 to `count` in the order that `compare` defines.
#[inline(never)]
fn order(count: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_unstable_by(|one, other| compare(*one, *other).then(one.cmp(other)));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_stably() {
        let mut random = anyfn_random::Random::from_env();
        for round in 0..200 {
            let item = |at| (random.number() % (1 + round / 2), at);
            let mut items: Vec<(u64, usize)> = (0..round as usize).map(item).collect();
            let mut expected = items.clone();
            expected.sort_by_key(|item| item.0);
            sort_by(&mut items, |one, other| one.0.cmp(&other.0));
            assert_eq!(items, expected);
        }
        let mut words = ["b", "c", "a", "b"];
        sort(&mut words);
        assert_eq!(words, ["a", "b", "b", "c"]);
    }
}
