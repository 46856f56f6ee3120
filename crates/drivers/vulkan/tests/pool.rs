//! The pool of freed buffers, on a device. One test, because the numbers are those of the process.

use anyfn::abi::kDLVulkan;
use anyfn::{Device, Tensor};
use anyfn_loader as _;
use anyfn_vulkan::{Kernel, module};
use anyfn_wgsl as _;

#[path = "../../testing/pool.rs"]
mod pool;

#[test]
fn freed_buffers_are_used_again() {
    pool::freed_buffers_are_used_again(Device::new(kDLVulkan, 0), || {
        // A driver on the processor ends a loop after 65,535 iterations.
        let source = "@group(0) @binding(0) var<storage, read_write> x: array<i32>;
            var<immediate> times: i32;
            @compute @workgroup_size(100)
            fn fill(@builtin(global_invocation_id) id: vec3<u32>) {
                var sum = 0;
                for (var i = 0; i < times; i++) { sum = sum * 31 + i; }
                x[id.x] = sum | 1;
            }";
        let params = ["pointer", "int32", "blockIdx.x"];
        let made = module(source, vec![Kernel::parse("fill", params).unwrap()], None).unwrap();
        let fill = made.get_function("fill").unwrap();
        move |x: &Tensor, times, groups| drop(fill.call((x, times, groups)).unwrap())
    });
}
