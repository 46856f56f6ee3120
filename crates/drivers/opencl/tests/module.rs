//! Modules of kind `opencl`: launches, errors, saving, threads, and that nothing is leaked.

use std::time::{Duration, Instant};

use anyfn::abi::kDLOpenCL;
use anyfn::{
    Any, Array, DType, Device, Error, Map, Module, PackedFunc, Result, String as Text, Tensor, registry,
};
use anyfn_loader as _;
use anyfn_opencl::{Kernel, module};
use anyfn_runtime::device::{Attribute, Stream, Value, driver_of, synchronize, why_missing};
use anyfn_runtime::suite::{Lists, run};

const DEVICE: Device = Device::new(kDLOpenCL, 0);

/// Returns true if there is a device. Otherwise the test is skipped, with the reason.
fn has_device() -> bool {
    match why_missing(DEVICE) {
        None => true,
        Some(reason) => {
            anyfn_skip::report(&format!("opencl: {reason}"));
            false
        }
    }
}

const SOURCE: &str = "
kernel void add(global const float *x, global const float *y, global float *z, int n) {
    int i = get_global_id(0);
    if (i < n) z[i] = x[i] + y[i];
}
kernel void index(global int *x, int width) {
    x[get_global_id(1) * width + get_global_id(0)] = 1000 * get_group_id(1) + 100 * get_group_id(0)
        + 10 * get_local_id(1) + get_local_id(0);
}
kernel void scalars(global double *x, char a, uchar b, short c, ushort d, int e, uint f, long g, ulong h, float i, double j) {
    x[0] = a; x[1] = b; x[2] = c; x[3] = d; x[4] = e; x[5] = f; x[6] = g; x[7] = h; x[8] = i; x[9] = j;
}
__attribute__((reqd_work_group_size(4, 1, 1)))
kernel void fours(global int *x) { x[get_global_id(0)] = get_local_size(0); }
kernel void local_sum(global const int *x, global int *sums) {
    local int part[8];
    int at = get_local_id(0);
    part[at] = x[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (at == 0) {
        int sum = 0;
        for (int i = 0; i < 8; ++i) sum += part[i];
        sums[get_group_id(0)] = sum;
    }
}
";

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
    ("fours", &["pointer", "blockIdx.x", "threadIdx.x"]),
    ("local_sum", &["pointer", "pointer", "blockIdx.x", "threadIdx.x"]),
];

fn kernels() -> Vec<Kernel> {
    KERNELS.iter().map(|(name, params)| Kernel::parse(name, params.iter().copied()).unwrap()).collect()
}

fn get(name: &str) -> PackedFunc {
    module(SOURCE, kernels(), None).unwrap().get_function(name).unwrap()
}

fn names(module: &Module) -> Vec<String> {
    module.function_names().unwrap().iter().map(|name| name.to_string()).collect()
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
fn refused(result: Result<Any>, kind: &str, text: &str) {
    let error: Error = result.expect_err("expected an error");
    assert!(error.kind() == kind && error.message().contains(text), "{}: {}", error.kind(), error.message());
}

#[test]
fn kernels_are_launched() {
    if !has_device() {
        return;
    }
    let (x, y, z) = (floats(&[1.0, 2.0, 3.0]), floats(&[10.0, 20.0, 30.0]), floats(&[0.0; 3]));
    get("add").call((&x, &y, &z, 3, 2, 64)).unwrap();
    assert_eq!(host::<f32>(&z), [11.0, 22.0, 33.0]);
    // Extents of 0 have no work items.
    get("add").call((&x, &y, &x, 3, 0, 64)).unwrap();
    assert_eq!(host::<f32>(&x), [1.0, 2.0, 3.0]);

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
    get("local_sum").call((&x.to_device(DEVICE).unwrap(), &sums, 2, 8)).unwrap();
    assert_eq!(host::<i32>(&sums), [28, 92]);
}

#[test]
fn views_are_passed_where_the_device_can_begin() {
    if !has_device() {
        return;
    }
    let x = floats(&(0..256).map(|i| i as f32).collect::<Vec<_>>());
    let (tail, z) = (x.slice(0, 128..).unwrap(), floats(&[0.0; 4]));
    get("add").call((&tail, &tail, &z, 4, 1, 4)).unwrap();
    assert_eq!(host::<f32>(&z), [256.0, 258.0, 260.0, 262.0]);
    let odd = x.slice(0, 1..5).unwrap();
    refused(
        get("add").call((&odd, &odd, &z, 4, 1, 4)),
        "ValueError",
        "the tensor begins at byte 4 of its buffer",
    );
    let strided = x.slice_with_step(0, 0..8, 2).unwrap();
    refused(get("add").call((&strided, &z, &z, 4, 1, 4)), "ValueError", "expected a contiguous tensor");
}

#[test]
fn launches_follow_the_current_stream() {
    if !has_device() {
        return;
    }
    let stream = Stream::create(DEVICE).unwrap();
    let mut before = core::ptr::null_mut();
    // SAFETY: the stream is alive until it is replaced below.
    unsafe { anyfn::abi::TVMFFIEnvSetStream(kDLOpenCL, 0, stream.as_raw(), &raw mut before) };
    let x = ints(64);
    synchronize(DEVICE).unwrap();
    get("fours").call((&x, 16, 4)).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(host::<i32>(&x), [4; 64]);
    // SAFETY: the default stream is always alive.
    unsafe { anyfn::abi::TVMFFIEnvSetStream(kDLOpenCL, 0, before, &raw mut before) };
}

#[test]
fn wrong_arguments_are_errors() {
    if !has_device() {
        return;
    }
    let (add, x, z) = (get("add"), floats(&[1.0, 2.0]), floats(&[0.0; 2]));
    refused(
        add.call((&x, &x, &z)),
        "TypeError",
        "expected 6 arguments for add(pointer, pointer, pointer, int32, blockIdx.x",
    );
    let on_host = Tensor::from_slice(&[2], &[1.0_f32, 2.0]).unwrap();
    refused(
        add.call((&x, &on_host, &z, 2, 1, 2)),
        "ValueError",
        "argument 1 of kernel `add`: expected a tensor on opencl but got one on cpu:0",
    );
    refused(
        add.call((&x, "text", &z, 2, 1, 2)),
        "TypeError",
        "argument 1 of kernel `add`: expected a tensor but got",
    );
    refused(
        add.call((&x, &x, &z, 2.5, 1, 2)),
        "TypeError",
        "argument 3 of kernel `add`: expected int32 but got float",
    );
    refused(add.call((&x, &x, &z, 1_i64 << 31, 1, 2)), "OverflowError", "2147483648 does not fit into int32");
    refused(
        add.call((&x, &x, &ints(2), 2, 1, 2)),
        "TypeError",
        "argument 2 of kernel `add`: expected a tensor of float32 but got int32",
    );
    refused(
        add.call((&x, &x, &z, 2, 1, 1 << 20)),
        "ValueError",
        "a work group of 1048576 x 1 x 1 is too large",
    );
    refused(add.call((&x, &x, &z, 2, -1, 2)), "ValueError", "at least 0 for blockIdx.x");
    refused(add.call((&x, &x, &z, 2, i64::MAX, 64)), "ValueError", "overflows");
    refused(add.call(((), (), (), 2, 1, 2)), "ValueError", "at least one tensor is needed");
    refused(
        get("fours").call((&ints(8), 1, 8)),
        "ValueError",
        "requires work groups of [4, 1, 1] but got [8, 1, 1]",
    );
    // SAFETY: kernels of this kind check addresses before they use them.
    let address = unsafe { anyfn::OpaquePtr::from_ptr(core::ptr::without_provenance_mut(4096)) };
    refused(
        add.call((&x, address, &z, 2, 1, 2)),
        "ValueError",
        "0x1000 is not a buffer that this runtime has allocated",
    );
    // Host code of compiled functions passes the address of the data.
    let data = |tensor: &Tensor| {
        // SAFETY: the address is that of the descriptor of a live tensor.
        unsafe { anyfn::OpaquePtr::from_ptr(tensor.view().as_dl().data) }
    };
    add.call((data(&x), data(&x), data(&z), 2, 1, 2)).unwrap();
    assert_eq!(host::<f32>(&z), [2.0, 4.0]);
}

#[test]
fn programs_that_do_not_fit_are_errors() {
    if !has_device() {
        return;
    }
    let make = |source: &str, name: &str, params: &[&str]| {
        let made = module(source, vec![Kernel::parse(name, params.iter().copied())?], Some(DEVICE));
        made.map(|_| Any::NONE)
    };
    let wrong = "kernel void f(global int *x) {\n    x[0] = missing;\n}\n";
    refused(make(wrong, "f", &["pointer"]), "RuntimeError", "line 2: x[0] = missing;");
    refused(
        make(wrong, "f", &["pointer"]),
        "RuntimeError",
        "cannot build a program of OpenCL C for opencl:0 (",
    );
    refused(make(SOURCE, "sub", &["pointer"]), "ValueError", "the source has no kernel `sub`, only: add");
    refused(
        make(SOURCE, "add", &["pointer"]),
        "ValueError",
        "its source has 4 parameters, but its description add(pointer) has 1",
    );
    let described = ["pointer", "pointer", "int32", "int32"];
    refused(make(SOURCE, "add", &described), "ValueError", "parameter 2 of its source is not a scalar");
    let described = ["pointer", "pointer", "pointer", "float32"];
    refused(
        make(SOURCE, "add", &described),
        "ValueError",
        "parameter 3 of its source is int32, but float32 in its description",
    );
    let locals = "kernel void f(global int *x, local int *y) { y[0] = 1; x[0] = y[0]; }";
    refused(
        make(locals, "f", &["pointer", "pointer"]),
        "ValueError",
        "parameter 1 of its source is in local memory",
    );
    let large = "kernel void f(global int *x) { local int y[1 << 24]; y[get_local_id(0)] = 1; barrier(CLK_LOCAL_MEM_FENCE); x[0] = y[1]; }";
    refused(make(large, "f", &["pointer"]), "ValueError", "bytes of local memory, and the device has");
    let result = module(SOURCE, kernels(), Some(Device::CPU)).map(|_| Any::NONE);
    refused(result, "ValueError", "expected a device of kind `opencl` but got cpu:0");
    assert!(module(SOURCE, kernels(), None).unwrap().get_function("nothing").is_err());
}

#[test]
#[ignore = "runs in a process of its own"]
fn memory_that_the_device_does_not_have_is_an_error() {
    let driver = driver_of(DEVICE).unwrap();
    let Some(Value::Int(total)) = driver.attribute(0, Attribute::TotalMemory) else { panic!("no memory") };
    let result = Tensor::empty(DType::UINT8, &[total + 1], DEVICE).map(|_| Any::NONE);
    refused(result, "MemoryError", "cannot allocate");
    // Many buffers, too: each of a tenth of the memory, which is not used.
    let mut all = Vec::new();
    let error = loop {
        match Tensor::empty(DType::UINT8, &[total / 10], DEVICE) {
            Ok(tensor) => all.push(tensor),
            Err(error) => break error,
        }
        assert!(all.len() <= 10, "more than the memory of the device was allocated");
    };
    assert_eq!(error.kind(), "MemoryError", "{}", error.message());
}

#[test]
fn modules_are_saved_and_loaded_without_a_device() {
    let bytes = module(SOURCE, kernels(), None).unwrap().save_to_bytes().unwrap();
    let load = registry::get("ffi.Module.load_from_bytes.opencl").unwrap();
    let loaded = load.call((bytes.clone(),)).unwrap().get::<Module>().unwrap();
    assert_eq!(loaded.save_to_bytes().unwrap(), bytes);
    assert_eq!(names(&loaded), ["add", "fours", "index", "local_sum", "scalars"]);
    refused(
        load.call((anyfn::Bytes::from(&b"damaged"[..]),)),
        "ValueError",
        "damaged or in another format, at byte 0",
    );
    if !has_device() {
        return;
    }
    let (x, z) = (floats(&[1.0, 2.0]), floats(&[0.0; 2]));
    loaded.get_function("add").unwrap().call((&x, &x, &z, 2, 1, 2)).unwrap();
    assert_eq!(host::<f32>(&z), [2.0, 4.0]);
}

#[test]
fn the_registered_function_makes_modules() {
    let params = ["pointer", "int32", "blockIdx.x"].map(Text::from);
    let one = (Text::from("index"), Array::<Text>::try_from_iter(params).unwrap());
    let table: Map<Text, Array<Text>> = Map::try_from_iter([one]).unwrap();
    let make = registry::get("anyfn.opencl_module").unwrap();
    let made = make.call((SOURCE, &table)).unwrap().get::<Module>().unwrap();
    assert_eq!(names(&made), ["index"]);
    let none: Map<Text, Array<Text>> = Map::new();
    refused(make.call((SOURCE, &none)), "ValueError", "needs at least one kernel");
}

/// Returns the resident memory of this process in KiB.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
#[ignore = "runs in a process of its own"]
fn nothing_is_left_after_a_thousand_modules() {
    let bytes = module(SOURCE, kernels(), None).unwrap().save_to_bytes().unwrap();
    let load = registry::get("ffi.Module.load_from_bytes.opencl").unwrap();
    let cycle = || {
        let loaded = load.call((bytes.clone(),)).unwrap().get::<Module>().unwrap();
        let (x, z) = (floats(&[1.0; 1000]), floats(&[0.0; 1000]));
        loaded.get_function("add").unwrap().call((&x, &x, &z, 1000, 16, 64)).unwrap();
        refused(
            loaded.get_function("add").unwrap().call((&x, &x, &z, 1000, 1, 1 << 20)),
            "ValueError",
            "too large",
        );
        let stream = Stream::create(DEVICE).unwrap();
        stream.synchronize().unwrap();
        assert_eq!(host::<f32>(&z)[999], 2.0);
    };
    (0..200).for_each(|_| cycle());
    let before = resident();
    (0..1000).for_each(|_| cycle());
    let grown = resident().saturating_sub(before);
    assert!(grown < 4096, "{grown} KiB after 1000 modules");
}

#[test]
fn eight_threads_use_one_device() {
    if !has_device() {
        return;
    }
    let add = get("add");
    let until = Instant::now() + Duration::from_secs(3);
    let work = |seed: f32| {
        let mut launches = 0;
        while Instant::now() < until {
            let (x, y, z) = (floats(&[seed; 100]), floats(&[launches as f32; 100]), floats(&[0.0; 100]));
            for _ in 0..5 {
                add.call((&x, &y, &z, 100, 2, 64)).unwrap();
            }
            assert_eq!(host::<f32>(&z), [seed + launches as f32; 100]);
            launches += 1;
        }
        launches
    };
    let launches: Vec<i32> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|seed| scope.spawn(move || work(seed as f32 * 0.5))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(launches.iter().all(|launches| *launches > 10), "{launches:?}");
}

/// Runs this program again, with only the test `name` and a variable that makes it run.
fn child(name: &str, variables: &[(&str, &str)]) -> std::process::Output {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--include-ignored", "--nocapture"]).envs(variables.iter().copied());
    command.output().unwrap()
}

#[test]
fn a_missing_library_is_named() {
    let ran = |output: std::process::Output| {
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    ran(child("without_a_library", &[("ANYFN_OPENCL_LIBRARY", "libno_such_opencl.so")]));
    let folder = std::env::temp_dir().join(format!("anyfn-opencl-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    if has_device() {
        ran(child("without_a_driver", &[("OCL_ICD_VENDORS", folder.to_str().unwrap())]));
    }
    std::fs::remove_dir(&folder).unwrap();
}

#[test]
#[ignore = "runs in a process of its own"]
fn without_a_library() {
    let reason = why_missing(DEVICE).unwrap();
    assert!(
        reason.starts_with(
            "the OpenCL loader cannot be opened, which ANYFN_OPENCL_LIBRARY names: libno_such_opencl.so"
        ),
        "{reason}"
    );
    // The module is there, and its first use is the error.
    let x = Tensor::from_slice(&[1], &[1.0_f32]).unwrap();
    refused(
        get("add").call((&x, &x, &x, 1, 1, 1)),
        "RuntimeError",
        "device opencl:0 is not available: the OpenCL loader",
    );
    refused(
        x.to_device(DEVICE).map(|_| Any::NONE),
        "RuntimeError",
        "device opencl:0 is not available: the OpenCL loader",
    );
}

#[test]
#[ignore = "runs in a process of its own"]
fn without_a_driver() {
    let reason = why_missing(DEVICE).unwrap();
    assert!(reason.contains("is installed but found no driver of OpenCL; "), "{reason}");
}

/// Runs an ignored test in a process of its own, and checks that it passes there.
fn assert_passes(name: &str, variables: &[(&str, &str)]) {
    let output = child(name, variables);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn several_devices_are_used_at_once() {
    if !has_device() {
        return;
    }
    // PoCL makes several devices of a processor. Its device `basic` hangs now and then if several threads use it.
    assert_passes("two_devices", &[("POCL_DEVICES", "pthread pthread")]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn two_devices() {
    let second = Device::new(kDLOpenCL, 1);
    if let Some(reason) = why_missing(second) {
        return anyfn_skip::report(&format!("opencl:1: {reason}"));
    }
    for device in [DEVICE, second] {
        let lists = Lists { unsupported: &[("scopes", "buffers only")], ..Lists::default() };
        let report = run(device, &lists);
        assert!(report.problems.is_empty(), "{device}: {:?}", report.problems);
    }
    let (x, z) = (floats(&[1.0, 2.0]).to_device(second).unwrap(), floats(&[0.0; 2]).to_device(second).unwrap());
    let add = get("add");
    let on_first = floats(&[5.0, 6.0]);
    add.call((&on_first, &on_first, &on_first, 2, 1, 2)).unwrap();
    add.call((&x, &x, &z, 2, 1, 2)).unwrap();
    assert_eq!((host::<f32>(&z), host::<f32>(&on_first)), (vec![2.0, 4.0], vec![10.0, 12.0]));
    refused(
        add.call((&x, &on_first, &z, 2, 1, 2)),
        "ValueError",
        "on one device but got opencl:1 and opencl:0",
    );
}

/// Runs tests on the simulator Oclgrind, which checks all arguments of OpenCL, and accesses of kernels to memory. Tests with
/// several threads are left out, because its queues are not made for them.
#[test]
fn a_simulator_finds_no_mistake() {
    let library = "/usr/lib/oclgrind/liboclgrind-rt-icd.so";
    if !std::path::Path::new(library).exists() || !has_device() {
        return anyfn_skip::report("no Oclgrind (`apt-get install oclgrind`)");
    }
    let folder = std::env::temp_dir().join(format!("anyfn-oclgrind-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("oclgrind.icd"), library).unwrap();
    let checks =
        ["OCLGRIND_CHECK_API", "OCLGRIND_DATA_RACES", "OCLGRIND_UNINITIALIZED"].map(|name| (name, "1"));
    let variables = [&[("OCL_ICD_VENDORS", folder.to_str().unwrap())], &checks[..]].concat();
    for name in [
        "kernels_are_launched",
        "views_are_passed_where_the_device_can_begin",
        "launches_follow_the_current_stream",
        "wrong_arguments_are_errors",
        "memory_that_the_device_does_not_have_is_an_error",
    ] {
        let output = child(name, &variables);
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(text.contains("1 passed") && !text.contains("Oclgrind"), "{name}: {text}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Tests of what other tests of the same process would disturb, or be disturbed by.
#[test]
fn tests_in_processes_of_their_own() {
    if !has_device() {
        return;
    }
    let names = [
        "memory_that_the_device_does_not_have_is_an_error",
        "nothing_is_left_after_a_thousand_modules",
        "handlers_of_signals_stay_and_forked_children_are_refused",
    ];
    for name in names {
        assert_passes(name, &[]);
    }
}

#[test]
#[ignore = "runs in a process of its own"]
fn handlers_of_signals_stay_and_forked_children_are_refused() {
    let handlers = || -> Vec<usize> {
        (1..=31)
            .map(|signal| {
                let mut action = core::mem::MaybeUninit::<libc::sigaction>::zeroed();
                // SAFETY: reads the handler of a signal.
                unsafe { libc::sigaction(signal, core::ptr::null(), action.as_mut_ptr()) };
                // SAFETY: all bytes were zero or have been written.
                unsafe { action.assume_init() }.sa_sigaction
            })
            .collect()
    };
    let before = handlers();
    let x = ints(8);
    assert_eq!(handlers(), before, "listing the devices has changed handlers of signals");
    // SAFETY: the child calls the runtime, which refuses, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = ints_of_child().err().is_some_and(|error| error.message().contains("was forked"));
        drop(x);
        // SAFETY: ends the child without running destructors.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child, and writes its status.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the forked child did not end as expected");
    assert_eq!(host::<i32>(&x), [0; 8]);
}

fn ints_of_child() -> Result<Tensor> {
    Tensor::empty(DType::INT32, &[8], DEVICE)
}
