//! A device that is lost while it is in use, simulated. One test, because the device stays lost in the process.

mod common;

use core::ffi::{c_char, c_int};

use anyfn::abi::kDLCUDA;
use anyfn::{DType, Device, Error, Result, Tensor};
use anyfn_cuda::{Kernel, module};
use anyfn_loader as _;
use anyfn_runtime::device::{Stream, devices, driver_of, synchronize, why_missing};
use common::{function, is_ready};

const DEVICE: Device = Device::new(kDLCUDA, 0);
const OTHER: Device = Device::new(kDLCUDA, 1);

#[track_caller]
fn refused<T>(result: Result<T>, kind: &str, text: &str) {
    let error: Error = result.err().expect("expected an error");
    assert!(error.kind() == kind && error.message().contains(text), "{}: {}", error.kind(), error.message());
}

#[test]
fn a_lost_device_is_named_and_not_used_again() {
    if !is_ready() {
        return;
    }
    // SAFETY: the type of the function in `simulated.cc`.
    let fail: extern "C" fn(*const c_char, c_int) = unsafe { function("simulated_fail") };
    // SAFETY: the type of the function in `simulated.cc`.
    let objects: extern "C" fn() -> c_int = unsafe { function("simulated_objects") };
    let x = Tensor::zeros_on(DType::INT32, &[64], DEVICE).unwrap();
    let stream = Stream::create(DEVICE).unwrap();
    let source =
        "extern \"C\" __global__ void f(int *x, int is_wrong) { if (is_wrong) __trap(); x[threadIdx.x] = 1; }";
    let kernel = Kernel::parse("f", ["pointer", "int32", "threadIdx.x"]).unwrap();
    let made = module(source, vec![kernel], None).unwrap();
    let f = made.get_function("f").unwrap();
    f.call((&x, 0, 64)).unwrap();
    assert_eq!(x.to_device(Device::CPU).unwrap().to_vec::<i32>().unwrap(), [1; 64]);
    drop(Tensor::zeros_on(DType::INT32, &[64], DEVICE).unwrap());

    // These errors leave the device as it is.
    fail(c"cuLaunchKernel".as_ptr(), 701);
    refused(
        f.call((&x, 0, 64)),
        "RuntimeError",
        "cannot launch the kernel `f` on cuda:0: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)",
    );
    fail(c"cuLaunchKernel".as_ptr(), 0);
    fail(c"cuMemAlloc_v2".as_ptr(), 2);
    refused(Tensor::empty(DType::INT32, &[1 << 20], DEVICE), "MemoryError", "CUDA_ERROR_OUT_OF_MEMORY (2)");
    fail(c"cuMemAlloc_v2".as_ptr(), 0);
    f.call((&x, 0, 64)).unwrap();
    synchronize(DEVICE).unwrap();

    // A kernel that fails is noticed by what waits for it.
    f.call((&x, 1, 64)).unwrap();
    refused(
        x.to_device(Device::CPU),
        "RuntimeError",
        "CUDA_ERROR_LAUNCH_FAILED (719): error of the simulated driver; the device was lost, and can be used again in a new process",
    );
    let lost = "device cuda:0 is not available: it was lost (cannot ";
    refused(x.to_device(Device::CPU), "RuntimeError", lost);
    refused(f.call((&x, 0, 64)), "RuntimeError", lost);
    refused(synchronize(DEVICE), "RuntimeError", lost);
    refused(stream.synchronize(), "RuntimeError", lost);
    refused(Tensor::empty(DType::INT32, &[64], DEVICE), "RuntimeError", lost);
    assert!(why_missing(DEVICE).unwrap().starts_with("it was lost") && !devices().contains(&DEVICE));
    assert!(driver_of(DEVICE).is_err());

    // An error of the first use is not kept.
    fail(c"cuDevicePrimaryCtxRetain".as_ptr(), 2);
    refused(
        Tensor::zeros_on(DType::INT32, &[64], OTHER),
        "RuntimeError",
        "cannot use cuda:1: cuDevicePrimaryCtxRetain returned CUDA_ERROR_OUT_OF_MEMORY (2)",
    );
    fail(c"cuDevicePrimaryCtxRetain".as_ptr(), 0);

    // The other device works, and the memory of the lost one is returned.
    let y = Tensor::zeros_on(DType::INT32, &[64], OTHER).unwrap();
    f.call((&y, 0, 64)).unwrap();
    assert_eq!(y.to_device(Device::CPU).unwrap().to_vec::<i32>().unwrap(), [1; 64]);
    let before = objects();
    drop(x);
    assert_eq!(objects(), before - 1);
}
