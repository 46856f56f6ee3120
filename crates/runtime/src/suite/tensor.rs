//! Tests of tensors, which must pass on every device. The device suite runs them as one test.

use anyfn::{DType, Device, Result, Tensor};

use super::{ensure, refused};
use crate::device::{DEFAULT_STREAM, devices};
use crate::tensor::{Window, copy, copy_from_bytes, empty, reshape, slice, to_bytes, view, zeros};

pub(crate) fn on_device(device: Device) -> Result<()> {
    let int32 = DType::INT32;
    let tensor = empty(&[4, 6], int32, device, None)?;
    ensure!(tensor.view().device() == device, "the tensor is on {}", tensor.view().device());
    let numbers: Vec<u8> = (0..24i32).flat_map(i32::to_le_bytes).collect();
    set(&tensor, &numbers)?;
    ensure!(get(&tensor)? == numbers, "elements came back changed");

    // Views of all kinds, read and written.
    let column = slice(&tensor, 1, Some(1), None, 2)?;
    ensure!(get(&column)? == picked(|i| i % 6 % 2 == 1), "a view shows other elements");
    let back = slice(&slice(&tensor, 0, None, None, -1)?, 1, None, None, -1)?;
    let mut reversed: Vec<i32> = (0..24).collect();
    reversed.reverse();
    ensure!(get(&back)? == bytes(&reversed), "a reversed view shows other elements");
    let copied = empty(&[4, 3], int32, device, None)?;
    between(&column, &copied)?;
    ensure!(get(&copied)? == picked(|i| i % 6 % 2 == 1), "a strided copy has other elements");
    set(&column, &[0; 48])?;
    let zeroed: Vec<i32> = (0..24).map(|i| if i % 6 % 2 == 1 { 0 } else { i }).collect();
    ensure!(get(&tensor)? == bytes(&zeroed), "writing through a view has changed other elements");
    between(&copied, &column)?;
    ensure!(get(&tensor)? == numbers, "a copy into a view has written other elements");

    // A view of a view. Views outside the memory are refused.
    let middle = view(&tensor, &Window { shape: &[3], strides: Some(&[6]), dtype: int32, bit_offset: 8 * 32 })?;
    ensure!(get(&middle)? == bytes(&[8, 14, 20]), "a view with an offset shows other elements");
    let last = view(&middle, &Window { shape: &[1], strides: None, dtype: int32, bit_offset: 12 * 32 })?;
    ensure!(get(&last)? == bytes(&[20]), "a view of a view shows other elements");
    for (shape, offset) in [(25, 0), (24, 32), (1, 24 * 32), (1, -32)] {
        let outside = Window { shape: &[shape], strides: None, dtype: int32, bit_offset: offset };
        refused(view(&tensor, &outside), "ValueError")?;
    }
    ensure!(get(&reshape(&tensor, &[2, -1])?)? == numbers, "a reshaped tensor has other elements");

    // Packed elements.
    let packed = empty(&[5], "int4".parse()?, device, None)?;
    set(&packed, &[0x21, 0x43, 0x05])?;
    ensure!(get(&packed)? == [0x21, 0x43, 0x05], "packed elements came back changed");
    let odd = slice(&packed, 0, Some(0), None, 2)?;
    ensure!(get(&odd)? == [0x31, 0x05], "a view of every other packed element shows {:x?}", get(&odd)?);
    set(&odd, &[0xFE, 0x0D])?;
    ensure!(
        get(&packed)? == [0x2E, 0x4F, 0x0D],
        "writing packed elements has changed their neighbours: {:x?}",
        get(&packed)?
    );

    // Zeros, an empty tensor, and a tensor without dimensions.
    ensure!(
        get(&zeros(&[1000], DType::FLOAT64, device)?)? == [0; 8000],
        "elements of a tensor of zeros are not 0"
    );
    let none = empty(&[3, 0, 2], int32, device, None)?;
    between(&none, &empty(&[3, 0, 2], int32, device, None)?)?;
    ensure!(get(&none)?.is_empty(), "an empty tensor has elements");
    let one = empty(&[], int32, device, None)?;
    set(&one, &[1, 2, 3, 4])?;
    ensure!(get(&one)? == [1, 2, 3, 4], "a tensor of no dimensions has changed");

    // To every other device and back.
    for other in devices() {
        let there = empty(&[4, 3], int32, other, None)?;
        between(&column, &there)?;
        set(&column, &[0; 48])?;
        between(&there, &column)?;
        ensure!(get(&tensor)? == numbers, "{device} -> {other} -> {device} has changed elements");
    }
    refused(between(&tensor, &copied), "ValueError")?;
    refused(between(&one, &empty(&[], DType::FLOAT32, device, None)?), "TypeError").map(drop)
}

fn set(tensor: &Tensor, bytes: &[u8]) -> Result<()> {
    // SAFETY: the tensor belongs to this test, and only this thread uses it.
    unsafe { copy_from_bytes(bytes.as_ptr(), bytes.len(), &tensor.view()) }
}

fn get(tensor: &Tensor) -> Result<Vec<u8>> {
    // SAFETY: the tensor belongs to this test, and only this thread uses it.
    unsafe { to_bytes(&tensor.view()) }
}

fn between(from: &Tensor, to: &Tensor) -> Result<()> {
    // SAFETY: the tensors belong to this test, and only this thread uses them.
    unsafe { copy(&from.view(), &to.view(), DEFAULT_STREAM) }
}

fn bytes(numbers: &[i32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Returns the `i32` numbers from 0 to 23 that satisfy `condition`, as little-endian bytes.
fn picked(condition: impl Fn(i32) -> bool) -> Vec<u8> {
    bytes(&(0..24).filter(|i| condition(*i)).collect::<Vec<_>>())
}
