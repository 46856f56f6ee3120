//! The program of `main.c` in Rust: calls a compiled kernel, prints the error of a bad call, and serves sessions over the serial line.
// For other platforms the crate is empty.
#![cfg(target_os = "none")]
#![no_std]

extern crate alloc;

use alloc::format;
use core::ffi::c_int;

use anyfn::{Module, Result, Tensor, bail, register};
use anyfn_board::platform::{anyfn_board_cycles, log};

const M: usize = 8;
const K: usize = 32;
const N: usize = 16;

/// A function of this program, which the host calls by its name.
#[register("blink")]
fn blink(times: i64) -> Result<i64> {
    if times < 1 {
        bail!("ValueError", "blink: expected a positive number, got {times}");
    }
    Ok(times * 2)
}

fn run() -> Result<()> {
    anyfn_board::linked!(dense)?;
    let x = Tensor::from_slice(&[M as i64, K as i64], &[1.0_f32; M * K])?;
    let w = Tensor::from_slice(&[K as i64, N as i64], &[2.0_f32; K * N])?;
    let bias = Tensor::from_slice(&[N as i64], &[0.0_f32; N])?;
    let out = Tensor::from_slice(&[M as i64, N as i64], &[0.0_f32; M * N])?;
    let dense = Module::system_lib("")?.get_function("dense")?;
    let start = anyfn_board_cycles();
    dense.call((&x, &w, &bias, &out))?;
    let first = out.read::<f32>()?[0];
    log(&format!("{} cycles, first element {}\n", anyfn_board_cycles() - start, first as i32));
    dense.call((&x, &w, &bias))?; // one argument is missing
    Ok(())
}

/// Called by the start-up code of the board.
#[unsafe(no_mangle)]
extern "C" fn main() -> c_int {
    if let Err(error) = run() {
        log(&format!("{}: {}\n", error.kind(), error.message()));
    }
    anyfn_board::serve::serve(&["ffi.SystemLib", "anyfn.board.*", "blink"])
}
