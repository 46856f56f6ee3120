//! Functions that change Lists and Dicts from native threads.

use std::thread;

use anyfn::{Any, Array, Dict, Error, List, Result, register};

/// Runs `body(i)` for i from 0 to `threads` - 1, each on its own thread, and returns the results in that order.
fn on_threads<T: Send>(threads: u16, body: impl Fn(i64) -> Result<T> + Sync) -> Result<Vec<T>> {
    let body = &body;
    thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|me| scope.spawn(move || body(me.into()))).collect();
        started
            .into_iter()
            .map(|thread| {
                thread.join().unwrap_or_else(|_| Err(Error::new("InternalError", "a thread panicked")))
            })
            .collect()
    })
}

/// Appends the ints from 0 to `threads * count` - 1 to a List, on several threads. Each thread appends `count` of them.
#[register("testing.list_append_on_threads", blocking)]
fn list_append_on_threads(list: List, threads: u16, count: i64) -> Result<()> {
    on_threads(threads, |me| (me * count..(me + 1) * count).try_for_each(|value| list.push(Any::new(value)?)))
        .map(drop)
}

/// Removes all elements of a List, on several threads, and returns them.
#[register("testing.list_pop_on_threads", blocking)]
fn list_pop_on_threads(list: List, threads: u16) -> Result<Array> {
    let parts = on_threads(threads, |_| {
        let mut popped = Vec::new();
        while let Some(value) = list.pop()? {
            popped.push(value);
        }
        Ok(popped)
    })?;
    Ok(parts.into_iter().flatten().collect())
}

/// Removes and releases all elements of a List, on several threads.
#[register("testing.list_drop_on_threads", blocking)]
fn list_drop_on_threads(list: List, threads: u16) -> Result<()> {
    on_threads(threads, |_| {
        while let Some(value) = list.pop()? {
            drop(value);
        }
        Ok(())
    })
    .map(drop)
}

/// Sets the value of each key `i` of a Dict to `2 * i`, for the ints from 0 to `threads * count` - 1, on several
/// threads. Each thread sets `count` keys.
#[register("testing.dict_set_on_threads", blocking)]
fn dict_set_on_threads(dict: Dict, threads: u16, count: i64) -> Result<()> {
    on_threads(threads, |me| {
        (me * count..(me + 1) * count)
            .try_for_each(|key| dict.insert(Any::new(key)?, Any::new(2 * key)?).map(drop))
    })
    .map(drop)
}
