//! Measures the Rust API and prints one line `name=nanoseconds` per row. `peer_native.cc` measures
//! the same rows with the peer's C++ API.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

use anyfn::{Any, Array, Dict, Error, List, Map, PackedFunc, Result, String, TypedPackedFunc, registry};
use anyfn_host as _;

/// Prints the minimum time per iteration of `body` over several rounds of at least 10 ms each.
fn row(name: &str, mut body: impl FnMut(u64)) {
    let mut count = 16u64;
    loop {
        let start = Instant::now();
        body(count);
        if start.elapsed().as_millis() >= 10 || count > 1 << 28 {
            break;
        }
        count *= 2;
    }
    let mut best = f64::INFINITY;
    for _ in 0..7 {
        let start = Instant::now();
        body(count);
        best = best.min(start.elapsed().as_nanos() as f64 / count as f64);
    }
    println!("{name}={best:.2}");
}

/// Returns the value of a result that is never an error in these rows, as `?` does in a program; the C++ API throws.
#[inline(always)]
fn value<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

fn calls() -> Result<()> {
    // Objects are hidden from the compiler once, before the loop, so that the loop contains no work for that.
    let nop = black_box(PackedFunc::new(|_| Ok(Any::NONE)));
    row("call_nop_0", |n| {
        for _ in 0..n {
            black_box(nop.call(()).is_ok());
        }
    });
    row("call_nop_3_ints", |n| {
        for i in 0..n {
            black_box(nop.call((i as i64, 2, 3)).is_ok());
        }
    });
    let add = black_box(TypedPackedFunc::from_fn(|a: i64, b: i64, c: i64| a + b + c));
    row("call_typed_add3", |n| {
        for i in 0..n {
            black_box(value(add.call(i as i64, 2, 3)));
        }
    });
    let fail = PackedFunc::new(|_| Err(Error::new("ValueError", "told so")));
    row("raise_and_catch", |n| {
        for _ in 0..n {
            black_box(fail.call(()).is_err());
        }
    });
    registry::register("bench.nop").set(&nop)?;
    row("registry_get", |n| {
        for _ in 0..n {
            black_box(registry::find(black_box("bench.nop")).is_some());
        }
    });
    Ok(())
}

fn strings() {
    row("string_small", |n| {
        for _ in 0..n {
            black_box(String::from(black_box("short")));
        }
    });
    row("string_heap", |n| {
        for _ in 0..n {
            black_box(String::from(black_box("a string that does not fit the value")));
        }
    });
}

fn sequences() -> Result<()> {
    row("array_push_1000_per_item", |n| {
        for _ in 0..n.div_ceil(1000) {
            let mut array: Array<i64> = Array::new();
            for i in 0..1000i64 {
                let _ = array.push(i);
            }
            black_box(array);
        }
    });
    let ints: Array<i64> = black_box((0..1000).collect());
    row("array_iterate_per_item", |n| {
        for _ in 0..n.div_ceil(1000) {
            let mut sum = 0;
            for x in ints.iter() {
                sum += x;
            }
            black_box(sum);
        }
    });
    row("array_get", |n| {
        for i in 0..n {
            black_box(value(ints.get(i as usize % 1000)));
        }
    });
    row("list_append_1000_per_item", |n| {
        for _ in 0..n.div_ceil(1000) {
            let list: List<i64> = List::new();
            for i in 0..1000i64 {
                let _ = list.push(i);
            }
            black_box(list);
        }
    });
    row("list_extend_1000_per_item", |n| {
        for _ in 0..n.div_ceil(1000) {
            let list: List<i64> = List::new();
            let _ = list.extend(black_box(0)..1000i64);
            black_box(list);
        }
    });
    Ok(())
}

fn maps() -> Result<()> {
    row("map_insert_int_1000_per_item", |n| {
        for _ in 0..n.div_ceil(1000) {
            let mut map: Map<i64, i64> = Map::new();
            for i in 0..1000i64 {
                let _ = map.insert(i, i);
            }
            black_box(map);
        }
    });
    row("dict_insert_int_1000_per_item", |n| {
        for _ in 0..n.div_ceil(1000) {
            let dict: Dict<i64, i64> = Dict::new();
            for i in 0..1000i64 {
                let _ = dict.insert(i, i);
            }
            black_box(dict);
        }
    });
    let small: Map<i64, i64> = black_box((0..4).map(|i| (i, i)).collect());
    row("map_small_get_int", |n| {
        for i in 0..n {
            black_box(value(small.get(i as i64 % 4)));
        }
    });
    let ints: Map<i64, i64> = black_box((0..1000).map(|i| (i, i)).collect());
    row("map_get_int", |n| {
        for i in 0..n {
            black_box(value(ints.get(i as i64 % 1000)));
        }
    });
    let key = |i: i64| String::from(format!("a key on the heap {i}").as_str());
    let keys: Vec<String> = (0..1000).map(key).collect();
    let heap: Map<String, i64> = black_box((0..1000).map(|i| (key(i), i)).collect());
    row("map_get_str_heap", |n| {
        for i in 0..n {
            black_box(value(heap.get(&keys[i as usize % 1000])));
        }
    });
    let key = |i: i64| String::from(format!("k{i}").as_str());
    let keys: Vec<String> = (0..1000).map(key).collect();
    let small: Map<String, i64> = black_box((0..1000).map(|i| (key(i), i)).collect());
    row("map_get_str_small", |n| {
        for i in 0..n {
            black_box(value(small.get(&keys[i as usize % 1000])));
        }
    });
    Ok(())
}

/// Prints the minimum elapsed time per iteration of each of several threads, of which thread `i` runs
/// `bodies[i]`.
fn together(name: &str, bodies: &mut [impl FnMut(u64) + Send]) {
    let mut once = |count: u64| {
        let ready = Barrier::new(bodies.len());
        std::thread::scope(|scope| {
            let run = |body| {
                let ready = &ready;
                scope.spawn(move || timed(ready, body, count))
            };
            let threads: Vec<_> = bodies.iter_mut().map(run).collect();
            let times: Vec<_> = threads.into_iter().filter_map(|thread| thread.join().ok()).collect();
            let (start, end) =
                (times.iter().map(|times| times.0).min(), times.iter().map(|times| times.1).max());
            match (start, end) {
                (Some(start), Some(end)) => (end - start).as_nanos() as f64,
                _ => f64::INFINITY,
            }
        })
    };
    let mut count = 16;
    while once(count) < 1e7 && count <= 1 << 28 {
        count *= 2;
    }
    let best = (0..12).map(|_| once(count)).fold(f64::INFINITY, f64::min);
    println!("{name}={:.2}", best / count as f64);
}

/// Runs `body` when all threads are ready, and returns its start and its end.
fn timed(ready: &Barrier, body: &mut impl FnMut(u64), count: u64) -> (Instant, Instant) {
    ready.wait();
    let start = Instant::now();
    body(count);
    (start, Instant::now())
}

/// Two threads that share a function, a name in the registry or a container, and threads that share nothing.
fn threads() -> Result<()> {
    // Hidden from the compiler once, as above.
    let nop = black_box(PackedFunc::new(|_| Ok(Any::NONE)));
    let call = |f: &PackedFunc, n: u64| {
        for i in 0..n {
            black_box(f.call((i as i64, 2, 3)).is_ok());
        }
    };
    let call_one = |n| call(&nop, n);
    together("two_threads_one_function", &mut [call_one, call_one]);
    let look_up = |n: u64| {
        for _ in 0..n {
            black_box(registry::find(black_box("bench.nop")).is_some());
        }
    };
    together("two_threads_registry_get", &mut [look_up, look_up]);
    let array: Array<i64> = black_box((0..1000).collect());
    let get = |n: u64| {
        for i in 0..n {
            black_box(value(array.get(i as usize % 1000)));
        }
    };
    together("two_threads_one_array", &mut [get, get]);
    let objects: Array<PackedFunc> = black_box((0..1000).map(|_| nop.clone()).collect());
    let get = |n: u64| {
        for i in 0..n {
            black_box(value(objects.get(i as usize % 1000)));
        }
    };
    together("two_threads_one_array_of_objects", &mut [get, get]);
    let map: Map<i64, i64> = black_box((0..1000).map(|i| (i, i)).collect());
    let get = |n: u64| {
        for i in 0..n {
            black_box(value(map.get(i as i64 % 1000)));
        }
    };
    together("two_threads_one_map", &mut [get, get]);
    let list: List<i64> = black_box((0..1000).collect());
    let get = |n: u64| {
        for i in 0..n {
            black_box(value(list.get(i as usize % 1000)));
        }
    };
    together("two_threads_one_list_get", &mut [get, get]);
    let own = || black_box(PackedFunc::new(|_| Ok(Any::NONE)));
    let call_own = |f: PackedFunc| move |n| call(&f, n);
    together("one_thread_own_function", &mut [call_own(own())]);
    together("two_threads_own_function", &mut [call_own(own()), call_own(own())]);
    let append = |n: u64| {
        for _ in 0..n.div_ceil(1000) {
            let list: List<i64> = List::new();
            for i in 0..1000i64 {
                let _ = list.push(i);
            }
            black_box(list);
        }
    };
    together("one_thread_own_list", &mut [append]);
    together("two_threads_own_list", &mut [append, append]);
    let make = |n: u64| {
        for _ in 0..n {
            black_box(String::from(black_box("a string that does not fit the value")));
        }
    };
    together("one_thread_own_objects", &mut [make]);
    together("two_threads_own_objects", &mut [make, make]);
    Ok(())
}

fn main() -> Result<()> {
    calls()?;
    strings();
    sequences()?;
    maps()?;
    threads()
}
