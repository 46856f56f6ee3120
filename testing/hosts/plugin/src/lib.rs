//! The Rust version of the plugin that every host program loads. `plugin.c` and `plugin.cc` are the versions
//! in C and C++.

use anyfn::{
    Any, Array, Map, Object, PackedFunc, Ref, Result, String, Tensor, TypedPackedFunc, bail, register,
};

/// An object of a type that the plugin defines.
#[derive(Object)]
#[object(key = "hosts.rust.Cell")]
struct Cell {
    value: i64,
}

anyfn::export! {
    /// Returns a + b.
    fn add(a: i64, b: i64) -> i64 {
        a.wrapping_add(b)
    }

    /// Raises `ValueError` with a message.
    fn fail(message: &str) -> Result<()> {
        bail!("ValueError", "{message}")
    }

    /// Returns f(x).
    fn apply(f: PackedFunc, x: Any) -> Result<Any> {
        f.call((x,))
    }

    /// Returns the error that f(x) raises, as `kind: message`.
    fn caught(f: PackedFunc, x: Any) -> std::string::String {
        match f.call((x,)) {
            Ok(_) => "nothing".to_owned(),
            Err(error) => format!("{}: {}", error.kind(), error.message()),
        }
    }

    /// Returns the elements in reverse order.
    fn reverse(items: Array<i64>) -> Result<Array<i64>> {
        let items: Vec<i64> = items.iter().collect();
        Array::try_from_iter(items.into_iter().rev())
    }

    /// Returns the number of occurrences of each word.
    fn tally(words: Array<String>) -> Result<Map<String, i64>> {
        let mut counts = Map::new();
        for word in words.iter() {
            let count = counts.get(&word)?.unwrap_or(0);
            counts.insert(word, count + 1)?;
        }
        Ok(counts)
    }

    /// Returns a function that adds n.
    fn adder(n: i64) -> TypedPackedFunc<fn(i64) -> i64> {
        TypedPackedFunc::from_fn(move |x: i64| x.wrapping_add(n))
    }

    /// Returns a float32 tensor with the elements 1.5 and 2.5.
    fn tensor() -> Result<Tensor> {
        Tensor::from_slice(&[2], &[1.5f32, 2.5])
    }

    /// Returns a cell that holds n.
    fn cell(n: i64) -> Ref<Cell> {
        Ref::new(Cell { value: n })
    }

    /// Returns the value in a cell.
    fn cell_value(cell: Ref<Cell>) -> i64 {
        cell.value
    }
}

/// Returns 42. The plugin registers this function as a global function.
#[register("hosts.answer")]
fn answer() -> i64 {
    42
}
