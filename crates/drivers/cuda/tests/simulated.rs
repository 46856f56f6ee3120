//! The driver of CUDA devices and its modules, on a simulated CUDA driver: nothing here runs on a GPU.

mod common;
#[path = "../../testing/driver.rs"]
mod driver;

use core::ffi::{c_char, c_int, c_void};
use std::time::{Duration, Instant};

use anyfn::abi::kDLCUDA;
use anyfn::{
    Any, Array, DType, Device, Error, Map, Module, OpaquePtr, PackedFunc, Result, String as Text, Tensor,
    registry,
};
use anyfn_cuda::{Kernel, module};
use anyfn_loader as _;
use anyfn_runtime::device::{Attribute, Event, Stream, Value, devices, driver_of, synchronize};
use common::{function, is_ready};

const DEVICE: Device = Device::new(kDLCUDA, 0);
const OTHER: Device = Device::new(kDLCUDA, 1);

const SOURCE: &str = r#"
extern "C" __global__ void add(const float *x, const float *y, float *z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] + y[i];
}
extern "C" __global__ void index(int *x, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    x[j * width + i] = 1000 * blockIdx.y + 100 * blockIdx.x + 10 * threadIdx.y + threadIdx.x;
}
extern "C" __global__ void scalars(double *x, signed char a, unsigned char b, short c, unsigned short d, int e, unsigned int f,
                                   long long g, unsigned long long h, float i, double j) {
    x[0] = a; x[1] = b; x[2] = c; x[3] = d; x[4] = e; x[5] = f; x[6] = g; x[7] = h; x[8] = i; x[9] = j;
}
extern "C" __global__ void __launch_bounds__(8) shared_sum(const int *x, int *sums) {
    __shared__ int part[8];
    int at = threadIdx.x;
    part[at] = x[blockIdx.x * 8 + at];
    __syncthreads();
    if (at == 0) {
        int sum = 0;
        for (int i = 0; i < 8; ++i) sum += part[i];
        sums[blockIdx.x] = sum;
    }
}
"#;

const KERNELS: &[(&str, &[&str])] = &[
    ("add", &["pointer", "pointer", "pointer", "int32", "blockIdx.x", "threadIdx.x"]),
    ("index", &["pointer", "int32", "blockIdx.x", "blockIdx.y", "threadIdx.x", "threadIdx.y"]),
    (
        "scalars",
        &[
            "pointer", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32",
            "float64",
        ],
    ),
    ("shared_sum", &["pointer", "pointer", "blockIdx.x", "threadIdx.x"]),
];

fn kernels() -> Vec<Kernel> {
    KERNELS.iter().map(|(name, params)| Kernel::parse(name, params.iter().copied()).unwrap()).collect()
}

fn kernel(source: &str, name: &str, params: &[&str]) -> Result<Module> {
    module(source, vec![Kernel::parse(name, params.iter().copied())?], None)
}

fn get(name: &str) -> PackedFunc {
    module(SOURCE, kernels(), None).unwrap().get_function(name).unwrap()
}

fn floats(values: &[f32]) -> Tensor {
    Tensor::from_slice(&[values.len() as i64], values).unwrap().to_device(DEVICE).unwrap()
}

fn ints(count: i64) -> Tensor {
    Tensor::zeros_on(DType::INT32, &[count], DEVICE).unwrap()
}

fn host<T: anyfn::Element>(tensor: &Tensor) -> Vec<T> {
    tensor.to_device(Device::CPU).unwrap().to_vec::<T>().unwrap()
}

#[track_caller]
fn refused<T>(result: Result<T>, kind: &str, text: &str) {
    let error: Error = result.err().expect("expected an error");
    assert!(error.kind() == kind && error.message().contains(text), "{}: {}", error.kind(), error.message());
}

#[test]
fn every_device_passes_the_suite() {
    if !is_ready() {
        return;
    }
    let unsupported = [("scopes", "global memory is the only kind of memory that this driver allocates")];
    driver::every_device_passes_the_suite(DEVICE, &unsupported, 18);
    let found: Vec<Device> = devices().into_iter().filter(|device| device.0.device_type == kDLCUDA).collect();
    assert_eq!(found, [DEVICE, OTHER]);
    let of = |attribute| driver_of(DEVICE).unwrap().attribute(0, attribute);
    assert_eq!(of(Attribute::ComputeVersion), Some(Value::Text("8.0".into())));
    assert_eq!(of(Attribute::MaxThreadsPerBlock), Some(Value::Int(1024)));
    assert_eq!(of(Attribute::ApiVersion), Some(Value::Int(12090)));
    assert_eq!(of(Attribute::Name), Some(Value::Text("simulated CUDA device 0, not a GPU".into())));
}

#[test]
fn overlapping_ranges_are_copied() {
    if !is_ready() {
        return;
    }
    driver::overlapping_ranges_are_copied(DEVICE);
}

#[test]
fn kernels_are_launched() {
    if !is_ready() {
        return;
    }
    let (x, y, z) = (floats(&[1.0, 2.0, 3.0]), floats(&[10.0, 20.0, 30.0]), floats(&[0.0; 3]));
    get("add").call((&x, &y, &z, 3, 2, 64)).unwrap();
    assert_eq!(host::<f32>(&z), [11.0, 22.0, 33.0]);
    // Extents of 0 have no threads.
    get("add").call((&x, &y, &x, 3, 0, 64)).unwrap();
    assert_eq!(host::<f32>(&x), [1.0, 2.0, 3.0]);
    // A view begins anywhere, and an address within memory is accepted.
    get("add").call((&x.slice(0, 1..3).unwrap(), &y, &z, 2, 1, 32)).unwrap();
    // SAFETY: the address is that of memory which outlives the call.
    let pointer = unsafe { OpaquePtr::from_ptr(z.view().data().wrapping_byte_add(8)) };
    get("add").call((&x, &y, pointer, 1, 1, 32)).unwrap();
    assert_eq!(host::<f32>(&z), [12.0, 23.0, 11.0]);

    let grid = ints(24);
    get("index").call((&grid, 6, 2, 2, 3, 2)).unwrap();
    let expected: Vec<i32> = (0..24)
        .map(|i| (i % 6, i / 6))
        .map(|(x, y)| 1000 * (y / 2) + 100 * (x / 3) + 10 * (y % 2) + x % 3)
        .collect();
    assert_eq!(host::<i32>(&grid), expected);

    let all = Tensor::zeros_on(DType::FLOAT64, &[10], DEVICE).unwrap();
    let scalars =
        (&all, -5, 250, -300, 65_000, -70_000, 4_000_000_000_i64, -(1_i64 << 40), 1_i64 << 50, 0.5, 0.25);
    get("scalars").call(scalars).unwrap();
    let expected = [-5.0, 250.0, -300.0, 65e3, -7e4, 4e9, -(2.0_f64.powi(40)), 2.0_f64.powi(50), 0.5, 0.25];
    assert_eq!(host::<f64>(&all), expected);

    let (x, sums) = (Tensor::from_slice(&[16], &(0..16).collect::<Vec<i32>>()).unwrap(), ints(2));
    get("shared_sum").call((&x.to_device(DEVICE).unwrap(), &sums, 2, 8)).unwrap();
    assert_eq!(host::<i32>(&sums), [28, 92]);
}

#[test]
fn wrong_calls_are_refused() {
    if !is_ready() {
        return;
    }
    let (x, y) = (floats(&[1.0; 4]), floats(&[2.0; 4]));
    let add = get("add");
    let here = Tensor::from_slice(&[4], &[1.0_f32; 4]).unwrap();
    let there = here.to_device(OTHER).unwrap();
    refused(
        add.call((&x, &y, &here, 4, 1, 4)),
        "ValueError",
        "argument 2 of kernel `add`: expected a tensor on cuda but got one on cpu:0",
    );
    refused(add.call((&x, &y, &there, 4, 1, 4)), "ValueError", "on one device but got cuda:0 and cuda:1");
    refused(add.call((&x, &y)), "TypeError", "expected 6 arguments for add(");
    refused(add.call((&x, &y, &y, "n", 1, 4)), "TypeError", "argument 3 of kernel `add`: expected int32");
    refused(add.call((&x, &y, &y, 1_i64 << 31, 1, 4)), "OverflowError", "does not fit into int32");
    refused(
        add.call((&x, &y, &y, 4, 1, 1025)),
        "ValueError",
        "a work group of 1025 x 1 x 1 is too large for cuda:0, which accepts 1024",
    );
    refused(add.call((&x, &y, &y, 4, -1, 4)), "ValueError", "expected an extent of at least 0 for blockIdx.x");
    refused(
        add.call((&x, &y, &y, 4, 1_i64 << 31, 1)),
        "ValueError",
        "2147483648 blocks in dimension x are too many for cuda:0",
    );
    // The bounds of a kernel count as well as those of the device.
    let sums = ints(4);
    refused(get("shared_sum").call((&sums, &sums, 1, 16)), "ValueError", "which accepts 8 work items");
    // SAFETY: nothing reads the address.
    let wrong = unsafe { OpaquePtr::from_ptr(core::ptr::without_provenance_mut(4096)) };
    refused(
        add.call((wrong, &y, &y, 4, 1, 4)),
        "ValueError",
        "is not a buffer that this runtime has allocated",
    );
    let missing = Device::new(kDLCUDA, 9);
    refused(here.to_device(missing), "RuntimeError", "device cuda:9 is not available: ");
    refused(
        here.to_device(missing),
        "RuntimeError",
        "found only cuda:0 (simulated CUDA device 0, not a GPU, sm_80, driver of CUDA 12.9), cuda:1",
    );
    refused(Tensor::empty(DType::UINT8, &[1 << 40], DEVICE), "MemoryError", "its largest buffer has");
    // Everything still works.
    add.call((&x, &y, &x, 4, 1, 4)).unwrap();
    assert_eq!(host::<f32>(&x), [3.0; 4]);
}

#[test]
fn wrong_code_is_refused() {
    if !is_ready() {
        return;
    }
    let x = ints(4);
    let wrong =
        kernel("extern \"C\" __global__ void f(int *x) {\n  x[0] = unknown;\n}\n", "f", &["pointer"]).unwrap();
    let f = wrong.get_function("f").unwrap();
    refused(f.call((&x,)), "RuntimeError", "cannot compile a program of CUDA C for sm_80 with ");
    refused(f.call((&x,)), "RuntimeError", "kernel.cu(2): error:");
    refused(f.call((&x,)), "RuntimeError", "\nline 2: x[0] = unknown;");
    let source = "extern \"C\" __global__ void f(int *x, int y) { x[0] = y; }";
    let call = |name: &str, params: &[&str]| kernel(source, name, params)?.get_function(name)?.call((&x, 1));
    refused(
        call("g", &["pointer", "int32"]),
        "ValueError",
        "the code has no kernel `g`; a kernel in CUDA C is a function",
    );
    refused(
        call("f", &["pointer", "int64"]),
        "ValueError",
        "parameter 1 of its code has 4 bytes, but its description f(pointer, int64) says int64, which has 8",
    );
    refused(
        call("f", &["pointer", "blockIdx.x"]),
        "ValueError",
        "its code has 2 parameters, but its description f(pointer, blockIdx.x) has 1",
    );
    let large = "extern \"C\" __global__ void f(int *x) { __shared__ int s[12289]; s[x[0]] = 1; __syncthreads(); x[1] = s[x[2]]; }";
    let large = kernel(large, "f", &["pointer"]).unwrap().get_function("f").unwrap();
    refused(large.call((&x,)), "RuntimeError", "uses too much shared data (49156 bytes, 0xc000 max)");
    refused(
        module(SOURCE, kernels(), Some(Device::CPU)),
        "ValueError",
        "expected a device of kind `cuda` but got cpu:0",
    );
    refused(module("", vec![], None), "ValueError", "needs at least one kernel");
    refused(module("a\0b", kernels(), None), "ValueError", "NUL");
    let unused = kernel("extern \"C\" __global__ void f(int *x) { return 1; }", "f", &["pointer"]);
    assert!(unused.is_ok(), "nothing is compiled before it is used");
    let at_once = module("?", vec![Kernel::parse("f", ["pointer"]).unwrap()], Some(DEVICE));
    refused(at_once, "RuntimeError", "kernel.cu(1): error:");
}

fn table(params: &[&str]) -> Map<Text, Array<Text>> {
    let params: Array<Text> = params.iter().map(|param| Text::from(*param)).collect();
    Map::try_from_iter([(Text::from("f"), params)]).unwrap()
}

#[test]
fn modules_carry_compiled_code() {
    if !is_ready() {
        return;
    }
    let create = registry::get("anyfn.cuda_module").unwrap();
    let load = registry::get("ffi.Module.load_from_bytes.cuda").unwrap();
    let source = "extern \"C\" __global__ void f(int *x) { x[threadIdx.x] = 7; }";
    let params = ["pointer", "threadIdx.x"];
    for (arch, form) in
        [("sm_80", "sm_80"), ("compute_75", "compute_75"), ("", "compute_75"), ("sm_90", "sm_90")]
    {
        let made: Module =
            create.call((source, table(&params), Any::NONE, arch)).unwrap().get::<Module>().unwrap();
        assert_eq!(&*made.inspect_source("architectures").unwrap(), form);
        assert_eq!(&*made.inspect_source("").unwrap(), source);
        let bytes = made.save_to_bytes().unwrap();
        let loaded: Module = load.call((bytes,)).unwrap().get::<Module>().unwrap();
        let x = ints(3);
        loaded.get_function("f").unwrap().call((&x, 3)).unwrap();
        assert_eq!(host::<i32>(&x), [7; 3], "{arch}");
    }
    refused(
        create.call((source, table(&params), Any::NONE, "sm_37")),
        "RuntimeError",
        "cannot compile a program of CUDA C for sm_37",
    );
    // Code in other formats.
    let binary = registry::get("anyfn.cuda_binary_module").unwrap();
    let made = |code: &[u8], format: &str| {
        binary.call((anyfn::Bytes::from(code), table(&params), format))?.get::<Module>()
    };
    let x = ints(3);
    let of = |module: Module| module.get_function("f").unwrap();
    let ptx = format!("// simulated PTX\n{source}");
    of(made(ptx.as_bytes(), "ptx").unwrap()).call((&x, 3)).unwrap();
    assert_eq!(host::<i32>(&x), [7; 3]);
    let foreign = made(b".version 8.0", "ptx").unwrap();
    refused(of(foreign).call((&x, 3)), "RuntimeError", "CUDA_ERROR_INVALID_PTX (218)");
    refused(made(b"text", "cubin"), "ValueError", "the code is not a cubin: it does not begin as");
    refused(made(b"\x7fELF\x02\x01", "cubin"), "ValueError", "the code is not a cubin: it is incomplete");
    refused(made(b"text", "fatbin"), "ValueError", "the code is not a fatbin: it does not begin as");
    refused(
        made(b"text", "cl"),
        "ValueError",
        "expected code in the format `cuda`, `ptx`, `cubin` or `fatbin` but got `cl`",
    );
}

#[test]
fn copies_and_kernels_in_streams_are_ordered() {
    if !is_ready() {
        return;
    }
    // SAFETY: the type of the function in `simulated.cc`.
    let stream: extern "C" fn(c_int) -> *mut c_void = unsafe { function("simulated_stream") };
    // SAFETY: the type of the function in `simulated.cc`.
    let delay: extern "C" fn(c_int, *mut c_void, c_int) = unsafe { function("simulated_delay") };
    let source = "extern \"C\" __global__ void f(int *x, int y) { x[threadIdx.x] += y; }";
    let f = kernel(source, "f", &["pointer", "int32", "threadIdx.x"]).unwrap().get_function("f").unwrap();
    f.call((&ints(4), 0, 4)).unwrap();
    let enter = registry::get("anyfn.device_enter_stream").unwrap();
    // SAFETY: the stream that is restored below is the default one.
    let leave = unsafe { registry::get_unsafe("anyfn.device_leave_stream") }.unwrap();
    let own = Stream::create(DEVICE).unwrap();
    // A stream of another library, one of this runtime, that of the thread, and the default one.
    for handle in
        [stream(0), own.as_raw(), core::ptr::without_provenance_mut(2), core::ptr::without_provenance_mut(1)]
    {
        for round in 0..3 {
            let x = ints(1000);
            let address = x.view().data();
            let before = enter.call((DEVICE, handle.expose_provenance() as i64)).unwrap();
            delay(0, handle, 60);
            f.call((&x, 5, 4)).unwrap();
            leave.call((before,)).unwrap();
            // The memory has a new user at once, and the kernel has not begun.
            drop(x);
            let y = ints(1000);
            let is_reused = y.view().data() == address;
            let is_default = handle.addr() == 1;
            assert!(is_default || !is_reused, "{handle:p} {round}");
            synchronize(DEVICE).unwrap();
            assert_eq!(host::<i32>(&y)[..5], [0; 5], "{handle:p} {round}");
        }
    }
    // A copy to another device waits for the work there.
    let (x, y) = (ints(4), Tensor::zeros_on(DType::INT32, &[4], OTHER).unwrap());
    f.call((&y, 0, 4)).unwrap();
    delay(1, core::ptr::null_mut(), 60);
    f.call((&y, 5, 4)).unwrap();
    x.copy_to(&y).unwrap();
    synchronize(OTHER).unwrap();
    assert_eq!(host::<i32>(&y), [0; 4]);
    // Later work waits for an event.
    let (x, event) = (ints(4), Event::create(DEVICE).unwrap());
    delay(0, own.as_raw(), 60);
    let before = enter.call((DEVICE, own.as_raw().expose_provenance() as i64)).unwrap();
    f.call((&x, 3, 4)).unwrap();
    leave.call((before,)).unwrap();
    event.record(Some(&own)).unwrap();
    let second = Stream::create(DEVICE).unwrap();
    second.wait(&event).unwrap();
    let begin = Instant::now();
    second.synchronize().unwrap();
    assert!(begin.elapsed() > Duration::from_millis(20));
    assert_eq!(host::<i32>(&x), [3; 4]);
}

#[test]
fn threads_launch_at_the_same_time_and_nothing_is_left() {
    if !is_ready() {
        return;
    }
    let source = "extern \"C\" __global__ void f(int *x, int y) { x[threadIdx.x] += y; }";
    let f = kernel(source, "f", &["pointer", "int32", "threadIdx.x"]).unwrap().get_function("f").unwrap();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let f = f.clone();
            scope.spawn(move || {
                for device in [DEVICE, OTHER] {
                    let x = Tensor::zeros_on(DType::INT32, &[16], device).unwrap();
                    for _ in 0..50 {
                        f.call((&x, number, 16)).unwrap();
                    }
                    assert_eq!(host::<i32>(&x), [50 * number; 16]);
                }
            });
        }
    });
    // SAFETY: the type of the function in `simulated.cc`.
    let calls: extern "C" fn(*const c_char) -> c_int = unsafe { function("simulated_calls") };
    let loaded = || calls(c"cuModuleLoadDataEx".as_ptr());
    let before = loaded();
    for _ in 0..1000 {
        let made = kernel(source, "f", &["pointer", "int32", "threadIdx.x"]).unwrap();
        made.get_function("f").unwrap().call((&ints(16), 1, 16)).unwrap();
    }
    // Other tests load a few modules meanwhile.
    assert!(loaded() - before < 20, "a program is loaded once for each device");
}
