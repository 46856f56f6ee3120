//! The pool of freed memory, on a simulated device. One test, because the numbers are those of the process.

mod common;
#[path = "../../testing/pool.rs"]
mod pool;

use core::ffi::c_int;

use anyfn::abi::kDLCUDA;
use anyfn::{Device, Tensor};
use anyfn_cuda::{Kernel, module};
use anyfn_loader as _;

#[test]
fn freed_memory_is_used_again() {
    if !common::is_ready() {
        return;
    }
    pool::freed_buffers_are_used_again(Device::new(kDLCUDA, 0), || {
        let source = "extern \"C\" __global__ void fill(int *x, int times) {
            unsigned int sum = 0;
            for (int i = 0; i < times; ++i) sum = sum * 31 + i;
            x[blockIdx.x * blockDim.x + threadIdx.x] = sum | 1;
        }";
        let params = ["pointer", "int32", "blockIdx.x", "threadIdx.x"];
        let made = module(source, vec![Kernel::parse("fill", params).unwrap()], None).unwrap();
        let fill = made.get_function("fill").unwrap();
        move |x: &Tensor, times, groups| drop(fill.call((x, times, groups, 100)).unwrap())
    });
    // SAFETY: the type of the function in `simulated.cc`.
    let objects: extern "C" fn() -> c_int = unsafe { common::function("simulated_objects") };
    assert_eq!(objects(), 1, "of memory, streams, events and modules, only the module is left");
}
