//! Measures what a launch takes beyond the calls of OpenCL that it makes:
//! `cargo test --profile demo -p anyfn-opencl --lib overhead -- --ignored --nocapture`.

use core::ptr;
use std::ffi::CString;
use std::time::Instant;

use anyfn::abi::kDLOpenCL;
use anyfn::{DType, Device, Tensor};
use anyfn_kernels::Kernel;

use crate::api;
use crate::memory::Buffer;
use crate::module::module;
use crate::system::available;

const SOURCE: &str = "kernel void f(global int *x, global int *y, int n) {
    int i = get_global_id(0);
    if (i < n) y[i] = x[i];
}";
/// Launches in a round, after which the device is waited for.
const LAUNCHES: usize = 1000;
const ROUNDS: usize = 30;

/// Runs `launch` in rounds and returns the shortest time of a launch in nanoseconds.
fn measured(launch: &mut dyn FnMut(), finish: &dyn Fn()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        (0..LAUNCHES).for_each(|_| launch());
        finish();
        best = best.min(start.elapsed().as_nanos() as f64 / LAUNCHES as f64);
    }
    best
}

#[test]
#[ignore = "a measurement"]
fn overhead_of_a_launch() {
    let (system, device) = available(0).unwrap();
    let place = Device::new(kDLOpenCL, 0);
    let x = Tensor::zeros_on(DType::INT32, &[64], place).unwrap();
    let y = Tensor::zeros_on(DType::INT32, &[64], place).unwrap();
    let finish = || system.finish(device).unwrap();

    let params = ["pointer", "pointer", "int32", "blockIdx.x", "threadIdx.x"];
    let made = module(SOURCE, vec![Kernel::parse("f", params).unwrap()], None).unwrap();
    let f = made.get_function("f").unwrap();
    let mut ours = || drop(f.call((&x, &y, 64, 1, 64)).unwrap());
    ours();

    let api = &system.api;
    let opened = device.opened(api).unwrap();
    let (start, length, mut code) = (SOURCE.as_ptr().cast(), SOURCE.len(), 0);
    // SAFETY: one string with its length.
    let program = unsafe {
        (api.clCreateProgramWithSource)(opened.context, 1, &raw const start, &raw const length, &mut code)
    };
    // SAFETY: the program is new, and the device belongs to its context.
    unsafe { (api.clBuildProgram)(program, 1, &raw const device.id, c"".as_ptr(), ptr::null(), ptr::null()) };
    let name = CString::new("f").unwrap();
    // SAFETY: the program was built, and the name is a C string.
    let kernel = unsafe { (api.clCreateKernel)(program, name.as_ptr(), &mut code) };
    assert_eq!(code, api::SUCCESS);
    let buffers = [&x, &y].map(|tensor| Buffer::at(tensor.view().as_dl().data, system).unwrap());
    let n = 64_i32;
    let mut raw = || {
        for (at, buffer) in (0..).zip(&buffers) {
            // SAFETY: the argument is a buffer that is alive.
            unsafe { (api.clSetKernelArg)(kernel, at, size_of::<api::Raw>(), (&raw const buffer.mem).cast()) };
        }
        // SAFETY: the argument is an int.
        unsafe { (api.clSetKernelArg)(kernel, 2, 4, (&raw const n).cast()) };
        let sizes = [64_usize];
        // SAFETY: all arguments are set, and there is one dimension.
        let code = unsafe {
            (api.clEnqueueNDRangeKernel)(
                opened.queue,
                kernel,
                1,
                ptr::null(),
                sizes.as_ptr(),
                sizes.as_ptr(),
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        };
        assert_eq!(code, api::SUCCESS);
    };
    raw();
    // Alternately, so that both see the same load of the machine.
    let mut best = [f64::INFINITY; 2];
    for _ in 0..5 {
        best[0] = best[0].min(measured(&mut raw, &finish));
        best[1] = best[1].min(measured(&mut ours, &finish));
    }
    let [raw, ours] = best;
    println!(
        "launch: {raw:.0} ns by OpenCL alone, {ours:.0} ns by a function of a module, {:.2} x",
        ours / raw
    );
}
