//! The pool of freed buffers, on a device with little memory. One test, because the numbers are those of the process.

use anyfn::abi::kDLOpenCL;
use anyfn::{Device, Tensor};
use anyfn_loader as _;
use anyfn_opencl::{Kernel, module};

#[path = "../../testing/pool.rs"]
mod pool;

#[test]
fn freed_buffers_are_used_again() {
    // PoCL then has a device of 1 GiB, whose buffers have at most 256 MiB.
    // SAFETY: this is the only test of the program, and no other thread reads the environment.
    unsafe { std::env::set_var("POCL_MEMORY_LIMIT", "1") };
    pool::freed_buffers_are_used_again(Device::new(kDLOpenCL, 0), || {
        let source = "kernel void fill(global int *x, int times) {
            int sum = 0;
            for (int i = 0; i < times; ++i) sum = sum * 31 + i;
            x[get_global_id(0)] = sum | 1;
        }";
        let params = ["pointer", "int32", "blockIdx.x", "threadIdx.x"];
        let made = module(source, vec![Kernel::parse("fill", params).unwrap()], None).unwrap();
        let fill = made.get_function("fill").unwrap();
        move |x: &Tensor, times, groups| drop(fill.call((x, times, groups, 100)).unwrap())
    });
}
