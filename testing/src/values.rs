//! Functions with typed signatures, at least one for each kind of value.

use std::collections::HashMap;

use anyfn::{Any, Array, Bytes, DType, Device, Map, Result, Shape, String, register};

/// Returns a + b as a 64-bit integer; overflow wraps around.
#[register("testing.add_i64")]
fn add_i64(a: i64, b: i64) -> i64 {
    a.wrapping_add(b)
}

/// Returns a + b + c as a 64-bit integer; overflow wraps around.
#[register("testing.add3_i64")]
fn add3_i64(a: i64, b: i64, c: i64) -> i64 {
    a.wrapping_add(b).wrapping_add(c)
}

/// Returns a + b as a float.
#[register("testing.add_f64")]
fn add_f64(a: f64, b: f64) -> f64 {
    a + b
}

/// Returns the concatenation of a and b.
#[register("testing.concat")]
fn concat(a: &str, b: &str) -> String {
    let mut text = std::string::String::from(a);
    text.push_str(b);
    String::from(text)
}

/// Returns the number of characters (not bytes) of a string.
#[register("testing.str_len")]
fn str_len(text: &str) -> usize {
    text.chars().count()
}

/// Returns the number of bytes of a bytes value.
#[register("testing.bytes_len")]
fn bytes_len(data: &[u8]) -> usize {
    data.len()
}

/// Returns the bytes in reverse order.
#[register("testing.bytes_reverse")]
fn bytes_reverse(data: &[u8]) -> Bytes {
    let reversed: Vec<u8> = data.iter().rev().copied().collect();
    Bytes::from(&*reversed)
}

/// Returns the negation of x.
#[register("testing.not")]
fn not(x: bool) -> bool {
    !x
}

/// Returns its argument, an int from 0 to 255.
#[register("testing.echo_u8")]
fn echo_u8(x: u8) -> u8 {
    x
}

/// Returns its argument, a signed 32-bit int.
#[register("testing.echo_i32")]
fn echo_i32(x: i32) -> i32 {
    x
}

/// Returns its argument, an unsigned 64-bit int.
#[register("testing.echo_u64")]
fn echo_u64(x: u64) -> u64 {
    x
}

/// Returns its argument, a signed 128-bit int.
#[register("testing.echo_i128")]
fn echo_i128(x: i128) -> i128 {
    x
}

/// Returns x + 1, or None if x is None.
#[register("testing.add_one_if_any")]
fn add_one_if_any(x: Option<i64>) -> Option<i64> {
    x.map(|x| x.wrapping_add(1))
}

/// Returns the sum of integers.
#[register("testing.array_sum")]
fn array_sum(values: Vec<i64>) -> i64 {
    values.iter().fold(0, |sum, value| sum.wrapping_add(*value))
}

/// Returns an Array of the integers from 0 to n - 1.
#[register("testing.array_range")]
fn array_range(n: u32) -> Result<Array<i64>> {
    Array::try_from_iter(0..i64::from(n))
}

/// Returns the integers in reverse order.
#[register("testing.array_reverse")]
fn array_reverse(values: Vec<i64>) -> Vec<i64> {
    values.into_iter().rev().collect()
}

/// Returns the value of a key of a Map, or None if the key is absent.
#[register("testing.map_get")]
fn map_get(map: Map<Any, Any>, key: Any) -> Result<Option<Any>> {
    Ok(map.get_any(&key)?.cloned())
}

/// Returns the sum of the values of a map from strings to integers.
#[register("testing.map_sum")]
fn map_sum(map: HashMap<std::string::String, i64>) -> i64 {
    map.values().fold(0, |sum, value| sum.wrapping_add(*value))
}

/// Returns its argument, a data type.
#[register("testing.echo_dtype")]
fn echo_dtype(dtype: DType) -> DType {
    dtype
}

/// Returns its argument, a device.
#[register("testing.echo_device")]
fn echo_device(device: Device) -> Device {
    device
}

/// Returns its argument, an opaque pointer; None represents NULL.
#[register("testing.echo_handle")]
fn echo_handle(handle: anyfn::OpaquePtr) -> anyfn::OpaquePtr {
    handle
}

/// Returns a new shape with the same extents.
#[register("testing.echo_shape")]
fn echo_shape(shape: Shape) -> Shape {
    Shape::from(&shape[..])
}

/// Returns the product of the extents of a shape.
#[register("testing.shape_size")]
fn shape_size(shape: Shape) -> Result<i64> {
    let product = shape.iter().try_fold(1i64, |product, extent| product.checked_mul(*extent));
    product
        .ok_or_else(|| anyfn::error!("OverflowError", "the product of {:?} does not fit 64 bits", &shape[..]))
}

/// Returns all its arguments as a string. `b` and the parameters after it are optional.
#[register("testing.defaults")]
fn defaults(
    a: i64,
    #[default(2)] b: i64,
    #[default("x")] s: &str,
    #[default(None)] o: Option<f64>,
    #[default([1, 2])] v: Vec<i64>,
) -> std::string::String {
    format!("{a} {b} {s} {o:?} {v:?}")
}
