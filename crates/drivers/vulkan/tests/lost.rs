//! A device that is lost while it is in use. One test, because the device stays lost in the process.

use std::path::Path;
use std::process::Command;

use anyfn::abi::kDLVulkan;
use anyfn::{DType, Device, Error, Result, Tensor};
use anyfn_loader as _;
use anyfn_runtime::device::{Event, Stream, devices, driver_of, synchronize, why_missing};
use anyfn_vulkan::{Kernel, module};
use anyfn_wgsl as _;

const DEVICE: Device = Device::new(kDLVulkan, 0);

/// Compiles the loader whose devices can be lost, and returns its path.
fn loader() -> Result<String, String> {
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("lost-{}.so", std::process::id()));
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lost.c");
    let mut command = Command::new(&compiler);
    command.args(["-shared", "-fPIC", "-o"]).arg(&output).arg(source);
    let status = command.arg("-ldl").status();
    match status.map_err(|error| format!("no C compiler {compiler}: {error}"))?.success() {
        true => Ok(output.to_string_lossy().into_owned()),
        false => Err("cannot compile the loader".into()),
    }
}

#[track_caller]
fn refused<T>(result: Result<T>, text: &str) {
    let error: Error = result.err().expect("expected an error");
    assert!(error.kind() == "RuntimeError" && error.message().contains(text), "{}", error.message());
}

#[test]
fn a_lost_device_is_named_and_not_waited_for() {
    let path = match loader() {
        Ok(path) => path,
        Err(reason) => return anyfn_skip::report(&format!("vulkan: {reason}")),
    };
    // SAFETY: this is the only test of the program, and no other thread reads the environment.
    unsafe { std::env::set_var("ANYFN_VULKAN_LIBRARY", &path) };
    if let Some(reason) = why_missing(DEVICE) {
        return anyfn_skip::report(&format!("vulkan: {reason}"));
    }
    let text = std::ffi::CString::new(path.clone()).unwrap();
    // SAFETY: the library is loaded already, and its path is a C string.
    let library = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW) };
    let symbol = |name: &std::ffi::CStr| {
        // SAFETY: the library is open, and the name is a C string.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        assert!(!found.is_null());
        found
    };
    let set = |name| {
        // SAFETY: the functions that are called have this type in `lost.c`.
        unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn(i32)>(symbol(name)) }
    };
    let count = |name| {
        // SAFETY: the functions that are called have this type in `lost.c`.
        unsafe { std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> i32>(symbol(name)) }
    };
    let (lose, refuse_sets) = (set(c"lose"), set(c"refuse_sets"));
    let (waits, begun_twice) = (count(c"waits"), count(c"begun_twice"));

    let x = Tensor::zeros_on(DType::INT32, &[64], DEVICE).unwrap();
    let stream = Stream::create(DEVICE).unwrap();
    let source = "@group(0) @binding(0) var<storage, read_write> x: array<i32>;
        @compute @workgroup_size(64) fn f(@builtin(local_invocation_index) i: u32) { x[i] = 1; }";
    let kernel = Kernel::parse("f", ["pointer", "blockIdx.x", "threadIdx.x"]).unwrap();
    let made = module(source, vec![kernel], None).unwrap();
    let f = made.get_function("f").unwrap();
    f.call((&x, 1, 64)).unwrap();
    assert_eq!(x.to_device(Device::CPU).unwrap().to_vec::<i32>().unwrap(), [1; 64]);
    drop(Tensor::zeros_on(DType::INT32, &[64], DEVICE).unwrap());

    // An error of a kernel alone leaves the device as it is.
    lose(-3);
    refused(
        f.call((&x, 1, 64)),
        "cannot launch the kernel `f` on vulkan:0: VK_ERROR_INITIALIZATION_FAILED (-3)",
    );
    lose(0);
    f.call((&x, 1, 64)).unwrap();
    synchronize(DEVICE).unwrap();

    // A command buffer whose recording has failed is recorded again from the beginning.
    refuse_sets(-1);
    let error = f.call((&x, 1, 64)).unwrap_err();
    assert_eq!(error.kind(), "MemoryError", "{}", error.message());
    refuse_sets(0);
    f.call((&x, 1, 64)).unwrap();
    synchronize(DEVICE).unwrap();
    assert_eq!(begun_twice(), 0);

    // Work in two streams, about which the driver is not asked, although it has finished.
    let driver = driver_of(DEVICE).unwrap();
    let y = Tensor::zeros_on(DType::INT32, &[1 << 16], DEVICE).unwrap();
    f.call((&y, 1, 64)).unwrap();
    let event = Event::create(DEVICE).unwrap();
    event.record(Some(&stream)).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    lose(-4);
    refused(
        f.call((&x, 1, 64)),
        "cannot launch the kernel `f` on vulkan:0: VK_ERROR_DEVICE_LOST (-4); the device was lost, and can be used again in a new \
         process",
    );
    // The driver is not asked again, whatever it would say.
    lose(0);
    let lost = "device vulkan:0 is not available: it was lost (cannot launch the kernel `f`";
    refused(x.to_device(Device::CPU), lost);
    refused(f.call((&x, 1, 64)), lost);
    refused(synchronize(DEVICE), lost);
    refused(stream.synchronize(), lost);
    refused(Tensor::empty(DType::INT32, &[64], DEVICE), lost);
    assert!(why_missing(DEVICE).unwrap().starts_with("it was lost") && !devices().contains(&DEVICE));
    drop((x, y, event, stream));
    assert!(driver.release_memory(0) > 0);
    assert_eq!(waits(), 0);
    assert!(driver_of(DEVICE).is_err());
    std::fs::remove_file(path).unwrap();
}
