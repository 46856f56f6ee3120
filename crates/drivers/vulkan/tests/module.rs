//! Modules of kind `vulkan`: launches, errors, saving, threads, and that nothing is leaked.

use std::time::{Duration, Instant};

use anyfn::abi::kDLVulkan;
use anyfn::{
    Any, Array, Bytes, DType, Device, Error, Map, Module, PackedFunc, Result, String as Text, Tensor, registry,
};
use anyfn_loader as _;
use anyfn_runtime::device::{Attribute, Stream, Value, driver_of, synchronize, why_missing};
use anyfn_runtime::suite::{Lists, run};
use anyfn_vulkan::{Kernel, module, spirv_module};
use anyfn_wgsl as _;

const DEVICE: Device = Device::new(kDLVulkan, 0);

/// Returns true if there is a device. Otherwise the test is skipped, with the reason.
fn has_device() -> bool {
    match why_missing(DEVICE) {
        None => true,
        Some(reason) => {
            anyfn_skip::report(&format!("vulkan: {reason}"));
            false
        }
    }
}

const SOURCE: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> z: array<f32>;
@group(0) @binding(0) var<storage, read_write> ints: array<i32>;
@group(0) @binding(1) var<storage, read_write> sums: array<i32>;
@group(0) @binding(0) var<storage, read_write> bytes: array<u32>;
@group(0) @binding(0) var<storage, read_write> doubles: array<f64>;
var<immediate> count: i32;

@compute @workgroup_size(64)
fn add(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = i32(id.x);
    if (i < count) { z[i] = x[i] + y[i]; }
}

@compute @workgroup_size(3, 2)
fn index(@builtin(global_invocation_id) id: vec3<u32>, @builtin(workgroup_id) group: vec3<u32>,
         @builtin(local_invocation_id) at: vec3<u32>) {
    ints[i32(id.y) * count + i32(id.x)] = i32(1000 * group.y + 100 * group.x + 10 * at.y + at.x);
}

struct Numbers { a: i32, b: u32, c: f32, d: i64, e: u64, f: f64 }
var<immediate> numbers: Numbers;

@compute @workgroup_size(1)
fn scalars() {
    doubles[0] = f64(numbers.a); doubles[1] = f64(numbers.b); doubles[2] = f64(numbers.c);
    doubles[3] = f64(numbers.d); doubles[4] = f64(numbers.e); doubles[5] = numbers.f;
}

struct Uniform { first: i32, second: f32, third: u32 }
@group(0) @binding(1) var<uniform> block: Uniform;

@compute @workgroup_size(1)
fn uniforms() {
    ints[0] = block.first; ints[1] = i32(block.second); ints[2] = i32(block.third);
}

var<workgroup> part: array<i32, 8>;

@compute @workgroup_size(8)
fn local_sum(@builtin(local_invocation_index) at: u32, @builtin(workgroup_id) group: vec3<u32>,
             @builtin(global_invocation_id) id: vec3<u32>) {
    part[at] = ints[id.x];
    workgroupBarrier();
    if (at == 0) {
        var sum = 0;
        for (var i = 0; i < 8; i++) { sum += part[i]; }
        sums[group.x] = sum;
    }
}

@compute @workgroup_size(1)
fn length() { ints[0] = i32(arrayLength(&ints)); }

@compute @workgroup_size(1)
fn packed() { bytes[0] = bytes[0] + 0x01010101u; }
";

const KERNELS: &[(&str, &[&str])] = &[
    ("add", &["pointer", "pointer", "pointer", "int32", "blockIdx.x", "threadIdx.x"]),
    ("index", &["pointer", "int32", "blockIdx.x", "blockIdx.y"]),
    ("scalars", &["pointer", "int32", "uint32", "float32", "int64", "uint64", "float64"]),
    ("uniforms", &["pointer", "int32", "float32", "uint32"]),
    ("local_sum", &["pointer", "pointer", "blockIdx.x", "threadIdx.x"]),
    ("length", &["pointer"]),
    ("packed", &["pointer"]),
];

fn kernels() -> Vec<Kernel> {
    KERNELS.iter().map(|(name, params)| Kernel::parse(name, params.iter().copied()).unwrap()).collect()
}

fn get(name: &str) -> PackedFunc {
    let own = kernels().into_iter().filter(|kernel| kernel.name == name).collect();
    module(SOURCE, own, None).unwrap().get_function(name).unwrap()
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
    get("index").call((&grid, 6, 2, 2)).unwrap();
    let expected: Vec<i32> = (0..24)
        .map(|i| (i % 6, i / 6))
        .map(|(x, y)| 1000 * (y / 2) + 100 * (x / 3) + 10 * (y % 2) + x % 3)
        .collect();
    assert_eq!(host::<i32>(&grid), expected);

    let (x, sums) = (Tensor::from_slice(&[16], &(0..16).collect::<Vec<i32>>()).unwrap(), ints(2));
    get("local_sum").call((&x.to_device(DEVICE).unwrap(), &sums, 2, 8)).unwrap();
    assert_eq!(host::<i32>(&sums), [28, 92]);
}

#[test]
fn numbers_are_passed() {
    if !has_device() {
        return;
    }
    let all = Tensor::zeros_on(DType::FLOAT64, &[6], DEVICE).unwrap();
    let numbers = (&all, -70_000, 4_000_000_000_i64, 0.5, -(1_i64 << 40), 1_i64 << 50, 0.25);
    get("scalars").call(numbers).unwrap();
    assert_eq!(host::<f64>(&all), [-7e4, 4e9, 0.5, -(2.0_f64.powi(40)), 2.0_f64.powi(50), 0.25]);
    let some = ints(3);
    get("uniforms").call((&some, -3, 7.5, 9)).unwrap();
    assert_eq!(host::<i32>(&some), [-3, 7, 9]);
}

#[test]
fn arrays_have_the_length_of_the_tensor() {
    if !has_device() {
        return;
    }
    let (length, x) = (get("length"), ints(100));
    for count in [1, 7, 64] {
        length.call((&x.slice(0, 0..count).unwrap(),)).unwrap();
        assert_eq!(host::<i32>(&x)[0] as isize, count as isize);
    }
    let bytes = Tensor::from_slice(&[4], &[1_u8, 2, 3, 4]).unwrap().to_device(DEVICE).unwrap();
    get("packed").call((&bytes,)).unwrap();
    assert_eq!(host::<u8>(&bytes), [2, 3, 4, 5]);
}

const SIZES: &str = "
@group(0) @binding(0) var<storage, read_write> fixed: array<f32, 4096>;
@group(0) @binding(0) var<storage, read_write> vectors: array<vec4<f32>>;
@group(0) @binding(0) var<storage, read_write> triples: array<vec3<f32>>;
@group(0) @binding(0) var<storage, read_write> longs: array<i64>;
struct Header { size: u32, matrix: mat3x3<f32>, values: array<f32> }
@group(0) @binding(0) var<storage, read_write> header: Header;
@group(0) @binding(0) var<storage, read_write> ints: array<i32>;
@group(0) @binding(1) var<storage, read_write> more: array<i32>;
@group(0) @binding(2) var<storage, read_write> out: array<i32>;

@compute @workgroup_size(1) fn a_fixed() { fixed[2000] = 5.0; }
@compute @workgroup_size(1) fn of_vectors() { vectors[2000] = vec4<f32>(5.0); }
@compute @workgroup_size(1) fn of_triples() { triples[2000] = vec3<f32>(5.0); }
@compute @workgroup_size(1) fn of_longs() { longs[2000] = 5; }
@compute @workgroup_size(1) fn a_struct() { header.values[2000] = f32(header.size) + header.matrix[2][2]; }
@compute @workgroup_size(1) fn empty() {
    out[0] = i32(arrayLength(&ints)); out[1] = ints[0]; ints[0] = 77; ints[5] = 78; out[2] = more[0];
}
";

/// Indices are checked against the declared type, so a tensor must have all of it.
#[test]
fn tensors_that_are_smaller_than_the_declared_type_are_refused() {
    if !has_device() {
        return;
    }
    let get = |name: &str| {
        let kernel = Kernel::parse(name, ["pointer"]).unwrap();
        module(SIZES, vec![kernel], None).unwrap().get_function(name).unwrap()
    };
    for (name, least, dtype) in [
        ("a_fixed", 4 * 4096, DType::FLOAT32),
        ("of_vectors", 16, DType::FLOAT32),
        ("of_triples", 16, DType::FLOAT32),
        ("of_longs", 8, DType::INT64),
        // The size, three columns of 16 bytes from byte 16 on, and one value.
        ("a_struct", 68, DType::FLOAT32),
    ] {
        let (f, bytes) = (get(name), i64::from(dtype.0.bits) / 8);
        let count = least / bytes;
        f.call((&Tensor::zeros_on(dtype, &[count], DEVICE).unwrap(),)).unwrap();
        let small = Tensor::zeros_on(dtype, &[count - 1], DEVICE).unwrap();
        let expected = match name {
            // One less is an empty tensor, which is bound to zeros.
            "of_longs" => None,
            _ => Some(format!(
                "the tensor has {} bytes, and the code of the kernel declares at least {least}",
                least - bytes
            )),
        };
        match expected {
            Some(text) => refused(f.call((&small,)), "ValueError", &text),
            None => assert!(f.call((&small,)).is_ok()),
        }
    }
    let none = Tensor::zeros_on(DType::FLOAT32, &[0], DEVICE).unwrap();
    let other = Tensor::zeros_on(DType::INT64, &[3], DEVICE).unwrap();
    refused(get("of_longs").call((&none,)), "TypeError", "expected a tensor of int64");
    get("of_longs").call((&other,)).unwrap();
    get("of_vectors").call((&none,)).unwrap();
    get("a_struct").call((&none,)).unwrap();
    refused(get("a_fixed").call((&none,)), "ValueError", "the tensor has 0 bytes");
    // The address of the data is checked as well.
    let data = floats(&[0.0; 2]);
    // SAFETY: the address is that of the descriptor of a live tensor.
    let address = unsafe { anyfn::OpaquePtr::from_ptr(data.view().as_dl().data) };
    refused(get("of_vectors").call((address,)), "ValueError", "the tensor has 8 bytes");
}

#[test]
fn empty_tensors_are_zeros_of_their_own() {
    if !has_device() {
        return;
    }
    let kernel = Kernel::parse("empty", ["pointer"; 3]).unwrap();
    let empty = module(SIZES, vec![kernel], None).unwrap().get_function("empty").unwrap();
    let (x, y, out) = (ints(0), ints(0), ints(3));
    for _ in 0..3 {
        empty.call((&x, &y, &out)).unwrap();
        assert_eq!(host::<i32>(&out), [1, 0, 0]);
        synchronize(DEVICE).unwrap();
    }
}

#[test]
fn tensors_beyond_their_buffer_are_refused() {
    if !has_device() {
        return;
    }
    let x = ints(128);
    let mut raw = *x.view().as_dl();
    let mut shape = [129_i64];
    (raw.shape, raw.strides) = (shape.as_mut_ptr(), core::ptr::null_mut());
    // SAFETY: the fields are valid except for the length, which the driver checks.
    let longer = unsafe { anyfn::TensorView::from_dl(&raw) };
    refused(
        get("length").call((longer,)),
        "ValueError",
        "516 bytes at offset 0 exceed the buffer of 512 bytes",
    );
    let mut one = [1_i64];
    (raw.shape, raw.byte_offset) = (one.as_mut_ptr(), 512);
    // SAFETY: the fields are valid except for the offset, which the driver checks.
    let behind = unsafe { anyfn::TensorView::from_dl(&raw) };
    refused(
        get("length").call((behind,)),
        "ValueError",
        "4 bytes at offset 512 exceed the buffer of 512 bytes",
    );
}

#[test]
fn views_are_passed_where_the_device_can_begin() {
    if !has_device() {
        return;
    }
    let x = floats(&(0..256).map(|i| i as f32).collect::<Vec<_>>());
    let (tail, z) = (x.slice(0, 128..).unwrap(), floats(&[0.0; 4]));
    get("add").call((&tail, &tail, &z, 4, 1, 64)).unwrap();
    assert_eq!(host::<f32>(&z), [256.0, 258.0, 260.0, 262.0]);
    let odd = x.slice(0, 1..5).unwrap();
    refused(
        get("add").call((&odd, &odd, &z, 4, 1, 64)),
        "ValueError",
        "the tensor begins at byte 4 of its buffer",
    );
    let strided = x.slice_with_step(0, 0..8, 2).unwrap();
    refused(get("add").call((&strided, &z, &z, 4, 1, 64)), "ValueError", "expected a contiguous tensor");
}

#[test]
fn launches_follow_the_current_stream() {
    if !has_device() {
        return;
    }
    let stream = Stream::create(DEVICE).unwrap();
    let mut before = core::ptr::null_mut();
    // SAFETY: the stream is alive until it is replaced below.
    unsafe { anyfn::abi::TVMFFIEnvSetStream(kDLVulkan, 0, stream.as_raw(), &raw mut before) };
    let x = ints(64);
    synchronize(DEVICE).unwrap();
    get("length").call((&x,)).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(host::<i32>(&x)[0], 64);
    // SAFETY: the default stream is always alive.
    unsafe { anyfn::abi::TVMFFIEnvSetStream(kDLVulkan, 0, before, &raw mut before) };
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
        add.call((&x, &on_host, &z, 2, 1, 64)),
        "ValueError",
        "argument 1 of kernel `add`: expected a tensor on vulkan but got one on cpu:0",
    );
    refused(
        add.call((&x, &x, &z, 2.5, 1, 64)),
        "TypeError",
        "argument 3 of kernel `add`: expected int32 but got float",
    );
    refused(
        add.call((&x, &x, &ints(2), 2, 1, 64)),
        "TypeError",
        "argument 2 of kernel `add`: expected a tensor of float32 but got int32",
    );
    refused(
        add.call((&x, &x, &z, 2, 1, 1 << 20)),
        "ValueError",
        "a work group of 1048576 x 1 x 1 is too large",
    );
    refused(
        add.call((&x, &x, &z, 2, 1, 32)),
        "ValueError",
        "requires work groups of [64, 1, 1] but got [32, 1, 1]",
    );
    refused(add.call((&x, &x, &z, 2, -1, 64)), "ValueError", "at least 0 for blockIdx.x");
    refused(
        add.call((&x, &x, &z, 2, 1_i64 << 40, 64)),
        "ValueError",
        "work groups along x are too many for vulkan:0",
    );
    refused(add.call(((), (), (), 2, 1, 64)), "ValueError", "at least one tensor is needed");
    // SAFETY: kernels of this kind check addresses before they use them.
    let address = unsafe { anyfn::OpaquePtr::from_ptr(core::ptr::without_provenance_mut(4096)) };
    refused(
        add.call((&x, address, &z, 2, 1, 64)),
        "ValueError",
        "0x1000 is not a buffer that this runtime has allocated",
    );
    // Host code of compiled functions passes the address of the data.
    let data = |tensor: &Tensor| {
        // SAFETY: the address is that of the descriptor of a live tensor.
        unsafe { anyfn::OpaquePtr::from_ptr(tensor.view().as_dl().data) }
    };
    add.call((data(&x), data(&x), data(&z), 2, 1, 64)).unwrap();
    assert_eq!(host::<f32>(&z), [2.0, 4.0]);
}

#[test]
fn code_that_does_not_fit_is_an_error_without_a_device() {
    let make = |source: &str, name: &str, params: &[&str]| {
        module(source, vec![Kernel::parse(name, params.iter().copied())?], None).map(|_| Any::NONE)
    };
    let wrong = "@group(0) @binding(0) var<storage, read_write> x: array<i32>;\n@compute @workgroup_size(1)\nfn f() {\n  x[0] = missing;\n}\n";
    refused(make(wrong, "f", &["pointer"]), "RuntimeError", "cannot translate the kernel `f` from WGSL");
    refused(make(wrong, "f", &["pointer"]), "RuntimeError", "x[0] = missing;");
    refused(make(SOURCE, "sub", &["pointer"]), "ValueError", "the source has no kernel `sub`, only: add");
    refused(
        make(SOURCE, "add", &["pointer"]),
        "ValueError",
        "its code uses a buffer at binding 1, but its description add(pointer) has 1 buffers",
    );
    refused(
        make(SOURCE, "add", &["pointer", "pointer", "pointer"]),
        "ValueError",
        "its code reads 1 numbers from their struct, but its description add(pointer, pointer, pointer) has 0",
    );
    refused(
        make(SOURCE, "add", &["pointer", "pointer", "pointer", "float32"]),
        "ValueError",
        "number 0 of its struct is int32, but float32 in its description",
    );
    refused(
        make(SOURCE, "uniforms", &["pointer", "pointer", "int32", "float32", "uint32"]),
        "ValueError",
        "numbers are in group 0 at binding 2, after the buffers",
    );
    let both = "@group(0) @binding(0) var<storage, read_write> x: array<i32>;
        var<immediate> a: i32; struct B { b: i32 } @group(0) @binding(1) var<uniform> b: B;
        @compute @workgroup_size(1) fn f() { x[0] = a + b.b; }";
    refused(make(both, "f", &["pointer", "int32"]), "ValueError", "its code has two blocks of numbers");
    let other = "@group(1) @binding(0) var<storage, read_write> x: array<i32>;\n@compute @workgroup_size(1) fn f() { x[0] = 1; }";
    refused(make(other, "f", &["pointer"]), "ValueError", "its code uses a buffer of group 1");
    let image = "@group(0) @binding(0) var x: texture_storage_2d<r32float, write>;
        @compute @workgroup_size(1) fn f() { textureStore(x, vec2<i32>(0, 0), vec4<f32>(1.0)); }";
    refused(make(image, "f", &["pointer"]), "ValueError", "an image or a sampler");
    let spirv = |code: &[u8]| {
        spirv_module(code, vec![Kernel::parse("f", ["pointer"]).unwrap()], None).map(|_| Any::NONE)
    };
    refused(spirv(b"text"), "ValueError", "expected SPIR-V, which begins with 0x07230203, but got 0x74786574");
    refused(spirv(b"12345"), "ValueError", "words of 4 bytes, but got 5 bytes");
    let result = module(SOURCE, vec![kernels().remove(0)], Some(Device::CPU)).map(|_| Any::NONE);
    refused(result, "ValueError", "expected a device of kind `vulkan` but got cpu:0");
}

#[test]
fn damaged_code_is_an_error_and_never_reaches_the_driver() {
    let translate = registry::get("anyfn.wgsl_to_spirv").unwrap();
    let code = translate.call((SOURCE, "add")).unwrap().get::<Bytes>().unwrap();
    let kernel = || vec![kernels().remove(0)];
    assert!(spirv_module(&code, kernel(), None).is_ok());
    for end in (0..code.len()).step_by(4) {
        drop(spirv_module(&code[..end], kernel(), None));
    }
    for at in 0..code.len() {
        let mut damaged = code.to_vec();
        damaged[at] ^= 0xFF;
        // Not everything is an error, but nothing may panic.
        drop(spirv_module(&damaged, kernel(), None));
    }
}

/// Returns SPIR-V of these instructions, each a number with its operands.
fn spirv(version: u32, instructions: &[(u32, &[u32])]) -> Vec<u8> {
    let mut words = vec![0x0723_0203, version, 0, 1000, 0];
    for (op, operands) in instructions {
        words.push((operands.len() as u32 + 1) << 16 | op);
        words.extend(*operands);
    }
    words.iter().flat_map(|word: &u32| word.to_le_bytes()).collect()
}

/// Returns SPIR-V with a kernel `f`, whose function 100 consists of `body`. Type 1 is `u32`.
fn kernel_of(version: u32, declarations: &[(u32, &[u32])], body: &[(u32, &[u32])]) -> Vec<u8> {
    let head: [(u32, &[u32]); 3] = [(17, &[1]), (15, &[5, 100, 0x66]), (21, &[1, 32, 0])];
    let begin: [(u32, &[u32]); 1] = [(54, &[200, 100, 0, 201])];
    let end: [(u32, &[u32]); 1] = [(56, &[])];
    spirv(version, &[&head, declarations, &begin, body, &end].concat())
}

const V13: u32 = 0x0001_0300;

#[test]
fn hostile_code_is_refused_at_once() {
    let start = Instant::now();
    let make = |code: Vec<u8>, params: &[&str]| {
        spirv_module(&code, vec![Kernel::parse("f", params.iter().copied()).unwrap()], None).map(|_| Any::NONE)
    };
    // A struct of workgroup memory that contains itself.
    let itself: &[(u32, &[u32])] = &[(30, &[2, 2, 2, 2, 2]), (32, &[3, 4, 2]), (59, &[3, 4, 4])];
    let load: &[(u32, &[u32])] = &[(61, &[1, 50, 4])];
    refused(
        make(kernel_of(V13, itself, load), &["pointer"]),
        "ValueError",
        "the size of its workgroup memory is not a constant",
    );
    // The same for numbers, and structs of structs without members.
    let itself: &[(u32, &[u32])] = &[(30, &[2, 2, 2, 2, 2]), (32, &[3, 9, 2]), (59, &[3, 4, 9])];
    refused(make(kernel_of(V13, itself, load), &["pointer", "int32"]), "ValueError", "too many members");
    let levels: Vec<Vec<u32>> =
        (2..10).map(|id| if id == 2 { vec![2] } else { [vec![id], vec![id - 1; 16]].concat() }).collect();
    let mut nested: Vec<(u32, &[u32])> = levels.iter().map(|level| (30, &**level)).collect();
    nested.extend([(32, &[20, 9, 9][..]), (59, &[20, 4, 9])]);
    refused(make(kernel_of(V13, &nested, load), &["pointer", "int32"]), "ValueError", "too many members");
    // A type of 2^64 bytes and more.
    let large: &[(u32, &[u32])] = &[
        (43, &[1, 6, 0xFFFF_FFFF]),
        (28, &[7, 1, 6]),
        (28, &[8, 7, 6]),
        (28, &[9, 8, 6]),
        (32, &[3, 4, 9]),
        (59, &[3, 4, 4]),
    ];
    refused(
        make(kernel_of(V13, large, load), &["pointer"]),
        "ValueError",
        "workgroup memory is not a constant",
    );
    // A number at the end of the addresses.
    let far: &[(u32, &[u32])] =
        &[(72, &[2, 0, 35, 0xFFFF_FFFE]), (30, &[2, 1]), (32, &[3, 9, 2]), (59, &[3, 4, 9])];
    refused(make(kernel_of(V13, far, load), &["pointer", "uint32"]), "ValueError", "the offset 4294967294");
    // A type that is declared twice.
    let twice: &[(u32, &[u32])] = &[(30, &[2, 1]), (30, &[2, 1, 1])];
    refused(make(kernel_of(V13, twice, load), &["pointer"]), "ValueError", "declares the type 2 twice");
    // The size of work groups, and of workgroup memory, that a specialisation computes.
    let group: &[(u32, &[u32])] = &[(52, &[1, 6, 128, 6, 6]), (331, &[100, 38, 6, 6, 6])];
    refused(make(kernel_of(V13, group, &[]), &["pointer"]), "ValueError", "work groups is not a constant");
    let memory: &[(u32, &[u32])] =
        &[(52, &[1, 6, 128, 6, 6]), (28, &[7, 1, 6]), (32, &[3, 4, 7]), (59, &[3, 4, 4])];
    refused(
        make(kernel_of(V13, memory, load), &["pointer"]),
        "ValueError",
        "workgroup memory is not a constant",
    );
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
fn buffers_are_found_behind_pointers() {
    let make = |code: Vec<u8>| {
        spirv_module(&code, vec![Kernel::parse("f", ["pointer"]).unwrap()], None).map(|_| Any::NONE)
    };
    let buffers: &[(u32, &[u32])] = &[
        (71, &[4, 33, 0]),
        (71, &[5, 33, 1]),
        (71, &[6, 6, 4]),
        (72, &[7, 0, 35, 0]),
        (29, &[6, 1]),
        (30, &[7, 6]),
        (32, &[8, 12, 7]),
        (59, &[8, 4, 12]),
        (59, &[8, 5, 12]),
    ];
    let second = "its code uses a buffer at binding 1, but its description f(pointer) has 1";
    let bodies: [(u32, &[u32]); 4] =
        [(169, &[8, 60, 70, 4, 5]), (245, &[8, 60, 4, 71, 5, 72]), (64, &[5, 4, 73]), (254, &[5])];
    for body in bodies {
        refused(make(kernel_of(V13, buffers, &[body])), "ValueError", second);
    }
    make(kernel_of(V13, buffers, &[(61, &[1, 60, 4])])).unwrap();
    // From SPIR-V 1.4 on, the kernel lists what it uses.
    let head: [(u32, &[u32]); 3] = [(17, &[1]), (15, &[5, 100, 0x66, 4, 5]), (21, &[1, 32, 0])];
    refused(make(spirv(0x0001_0400, &[&head, buffers].concat())), "ValueError", second);
    refused(
        make(spirv(0x0001_0600, &head)),
        "ValueError",
        "expected SPIR-V of version 1.5 or earlier but got 1.6",
    );
}

#[test]
fn limits_of_the_device_are_checked() {
    if !has_device() {
        return;
    }
    let make = |source: &str| {
        module(source, vec![Kernel::parse("f", ["pointer"]).unwrap()], Some(DEVICE)).map(|_| Any::NONE)
    };
    let head = "@group(0) @binding(0) var<storage, read_write> x: array<i32>;\n";
    let large = format!("{head}@compute @workgroup_size(8192) fn f() {{ x[0] = 1; }}");
    refused(make(&large), "ValueError", "kernel `f`: a work group of 8192 x 1 x 1 is too large for vulkan:0");
    let shared = format!(
        "{head}var<workgroup> y: array<i32, 100000>;
        @compute @workgroup_size(64) fn f(@builtin(local_invocation_index) i: u32) {{
            y[i] = 1; workgroupBarrier(); x[0] = y[63 - i]; }}"
    );
    refused(make(&shared), "ValueError", "it needs 400000 bytes of workgroup memory, and the device has");
    let Some(Value::Int(most)) = driver_of(DEVICE).unwrap().attribute(0, Attribute::MaxSharedMemoryPerBlock)
    else {
        panic!("no workgroup memory")
    };
    // With the space between vectors, and of matrices and structs.
    for (element, bytes) in [("vec3<f32>", 16), ("mat4x4<f32>", 64), ("S", 32)] {
        let count = most / bytes + 1;
        let shared = format!(
            "{head}struct S {{ a: f32, b: vec3<f32>, c: u32 }}
            var<workgroup> y: array<{element}, {count}>;
            @compute @workgroup_size(64) fn f(@builtin(local_invocation_index) i: u32) {{
                let z = y[i]; workgroupBarrier(); y[63 - i] = z; x[0] = 1; }}"
        );
        let needed = count * bytes;
        refused(
            make(&shared),
            "ValueError",
            &format!("it needs {needed} bytes of workgroup memory, and the device has"),
        );
    }
    // The bytes of the numbers.
    let numbers = |count: usize, class: &str| {
        let members: String = (0..count).map(|i| format!("m{i}: i32, ")).collect();
        let source = format!(
            "{head}struct N {{ {members} }} {class} n: N;
            @compute @workgroup_size(1) fn f() {{ x[0] = n.m0; }}"
        );
        let params = [vec!["pointer"], vec!["int32"; count]].concat();
        module(&source, vec![Kernel::parse("f", params)?], Some(DEVICE)).map(|_| Any::NONE)
    };
    numbers(256, "@group(0) @binding(1) var<uniform>").unwrap();
    let result = numbers(257, "@group(0) @binding(1) var<uniform>");
    refused(result, "ValueError", "have 1028 bytes, and 1024 bytes can be passed in a uniform block");
    numbers(32, "var<immediate>").unwrap();
    refused(numbers(257, "var<immediate>"), "ValueError", "its numbers have 1028 bytes, and ");
    // A capability that is not enabled: geometry shaders.
    let translate = registry::get("anyfn.wgsl_to_spirv").unwrap();
    let code = translate.call((SOURCE, "length")).unwrap().get::<Bytes>().unwrap();
    let geometry = [2 << 16 | 17_u32, 2].map(u32::to_le_bytes).concat();
    let code = [&code[..20], &geometry, &code[20..]].concat();
    let kernel = Kernel::parse("length", ["pointer"]).unwrap();
    let result = spirv_module(&code, vec![kernel], Some(DEVICE)).map(|_| Any::NONE);
    refused(
        result,
        "ValueError",
        "its code needs the capability 2 of SPIR-V, which this version does not enable",
    );
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
    let made = module(SOURCE, kernels(), None).unwrap();
    let bytes = made.save_to_bytes().unwrap();
    let load = registry::get("ffi.Module.load_from_bytes.vulkan").unwrap();
    let loaded = load.call((bytes.clone(),)).unwrap().get::<Module>().unwrap();
    assert_eq!(loaded.save_to_bytes().unwrap(), bytes);
    assert_eq!(names(&loaded), ["add", "index", "length", "local_sum", "packed", "scalars", "uniforms"]);
    assert_eq!(&*loaded.inspect_source("").unwrap(), SOURCE);
    refused(
        load.call((Bytes::from(&b"damaged"[..]),)),
        "ValueError",
        "damaged or in another format, at byte 0",
    );
    for end in (0..bytes.len()).step_by(7) {
        assert!(load.call((Bytes::from(&bytes[..end]),)).is_err(), "{end}");
    }
    // The code of one of two kernels.
    let mut part =
        module(SOURCE, kernels().drain(..2).collect(), None).unwrap().save_to_bytes().unwrap().to_vec();
    let last = |bytes: &[u8], name: &str| {
        let text = [&(name.len() as u64).to_le_bytes(), name.as_bytes()].concat();
        bytes.windows(text.len()).rposition(|window| window == text).unwrap()
    };
    part.truncate(last(&part, "index"));
    let count = last(&part, "add") - 8;
    part[count..count + 8].copy_from_slice(&1_u64.to_le_bytes());
    refused(load.call((Bytes::from(&*part),)), "ValueError", "damaged or in another format");
    if !has_device() {
        return;
    }
    let (x, z) = (floats(&[1.0, 2.0]), floats(&[0.0; 2]));
    loaded.get_function("add").unwrap().call((&x, &x, &z, 2, 1, 64)).unwrap();
    assert_eq!(host::<f32>(&z), [2.0, 4.0]);
}

#[test]
fn the_registered_function_makes_modules() {
    let params = ["pointer", "int32", "blockIdx.x"].map(Text::from);
    let one = (Text::from("index"), Array::<Text>::try_from_iter(params).unwrap());
    let table: Map<Text, Array<Text>> = Map::try_from_iter([one]).unwrap();
    let make = registry::get("anyfn.vulkan_module").unwrap();
    let made = make.call((SOURCE, &table)).unwrap().get::<Module>().unwrap();
    assert_eq!(names(&made), ["index"]);
    let code = registry::get("anyfn.wgsl_to_spirv").unwrap().call((SOURCE, "index")).unwrap();
    let made = make.call((code, &table)).unwrap().get::<Module>().unwrap();
    assert_eq!(names(&made), ["index"]);
    refused(make.call((1, &table)), "TypeError", "expected WGSL as a string or SPIR-V as bytes but got int");
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
    let load = registry::get("ffi.Module.load_from_bytes.vulkan").unwrap();
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

/// Runs this program again, with only the test `name` and variables of the environment.
fn child(name: &str, variables: &[(&str, &str)]) -> std::process::Output {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--include-ignored", "--nocapture"]).envs(variables.iter().copied());
    command.output().unwrap()
}

/// Runs a test in a process of its own, and checks that it passes there.
#[track_caller]
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
fn a_missing_library_is_named() {
    assert_passes("without_a_library", &[("ANYFN_VULKAN_LIBRARY", "libno_such_vulkan.so")]);
    if has_device() {
        let none = [("VK_DRIVER_FILES", "/no/such/driver.json"), ("VK_ICD_FILENAMES", "/no/such/driver.json")];
        assert_passes("without_a_driver", &none);
    }
}

#[test]
#[ignore = "runs in a process of its own"]
fn without_a_library() {
    let reason = why_missing(DEVICE).unwrap();
    assert!(
        reason.starts_with(
            "the Vulkan loader cannot be opened, which ANYFN_VULKAN_LIBRARY names: libno_such_vulkan.so"
        ),
        "{reason}"
    );
    // The module is there, and its first use is the error.
    let x = Tensor::from_slice(&[1], &[1.0_f32]).unwrap();
    refused(
        get("add").call((&x, &x, &x, 1, 1, 64)),
        "RuntimeError",
        "device vulkan:0 is not available: the Vulkan loader",
    );
    refused(
        x.to_device(DEVICE).map(|_| Any::NONE),
        "RuntimeError",
        "device vulkan:0 is not available: the Vulkan loader",
    );
}

#[test]
#[ignore = "runs in a process of its own"]
fn without_a_driver() {
    let reason = why_missing(DEVICE).unwrap();
    assert!(
        reason.contains("is installed but found no") && reason.contains("/no/such/driver.json"),
        "{reason}"
    );
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
        "forked_children_are_refused",
    ];
    for name in names {
        assert_passes(name, &[]);
    }
    // Copies as on a device whose memory the host cannot access.
    for name in ["the_suite", "kernels_are_launched", "arrays_have_the_length_of_the_tensor"] {
        assert_passes(name, &[("ANYFN_VULKAN_STAGING", "1")]);
    }
}

#[test]
#[ignore = "runs in a process of its own"]
fn the_suite() {
    let lists = Lists {
        unsupported: &[("scopes", "buffers only"), ("compute_units", "not known")],
        ..Lists::default()
    };
    let report = run(DEVICE, &lists);
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
#[ignore = "runs in a process of its own"]
fn forked_children_are_refused() {
    let x = ints(8);
    // SAFETY: the child calls the runtime, which refuses, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let made = Tensor::empty(DType::INT32, &[8], DEVICE);
        let refused = made.err().is_some_and(|error| error.message().contains("was forked"));
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

/// Runs tests with the validation layer, which checks all calls of Vulkan, and returns what it says.
fn validated(names: &[&str]) -> String {
    let folder = std::env::temp_dir().join(format!("anyfn-vulkan-{}-{}", std::process::id(), names.len()));
    std::fs::create_dir_all(&folder).unwrap();
    let log = folder.join("log.txt");
    let settings = format!(
        "khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG\nkhronos_validation.report_flags = error,warn\n\
         khronos_validation.enables = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT\n\
         khronos_validation.log_filename = {}\n",
        log.display()
    );
    std::fs::write(folder.join("vk_layer_settings.txt"), settings).unwrap();
    let variables = [
        ("VK_INSTANCE_LAYERS", "VK_LAYER_KHRONOS_validation"),
        ("VK_LAYER_SETTINGS_PATH", folder.to_str().unwrap()),
    ];
    let mut said = String::new();
    for name in names {
        assert_passes(name, &variables);
        said += &std::fs::read_to_string(&log).unwrap_or_default();
    }
    std::fs::remove_dir_all(&folder).unwrap();
    said
}

#[test]
fn the_validation_layer_finds_no_mistake() {
    let layer = "/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json";
    if !std::path::Path::new(layer).exists() || !has_device() {
        return anyfn_skip::report("no validation layer of Vulkan (`apt-get install vulkan-validationlayers`)");
    }
    let said = validated(&[
        "the_suite",
        "kernels_are_launched",
        "numbers_are_passed",
        "arrays_have_the_length_of_the_tensor",
        "tensors_that_are_smaller_than_the_declared_type_are_refused",
        "empty_tensors_are_zeros_of_their_own",
        "tensors_beyond_their_buffer_are_refused",
        "views_are_passed_where_the_device_can_begin",
        "launches_follow_the_current_stream",
        "wrong_arguments_are_errors",
        "limits_of_the_device_are_checked",
        "modules_are_saved_and_loaded_without_a_device",
        "memory_that_the_device_does_not_have_is_an_error",
        "eight_threads_use_one_device",
    ]);
    assert_eq!(said, "");
    // The layer does report mistakes.
    let said = validated(&["a_mistake"]);
    assert!(said.contains("VUID-VkBufferCreateInfo-size"), "{said}");
}

/// Creates a buffer of no bytes, which Vulkan does not permit.
#[test]
#[ignore = "runs in a process of its own"]
fn a_mistake() {
    // SAFETY: opens the loader, which was opened before.
    let library = unsafe { libc::dlopen(c"libvulkan.so.1".as_ptr(), libc::RTLD_NOW) };
    // SAFETY: the library is open, and the name is a C string.
    let address = unsafe { libc::dlsym(library, c"vkGetInstanceProcAddr".as_ptr()) };
    // SAFETY: the function has this type.
    let get_instance_proc_addr =
        unsafe { core::mem::transmute::<*mut libc::c_void, ash::vk::PFN_vkGetInstanceProcAddr>(address) };
    // SAFETY: the function is that of a loader.
    let entry = unsafe { ash::Entry::from_static_fn(ash::StaticFn { get_instance_proc_addr }) };
    // SAFETY: nothing is requested.
    let instance = unsafe { entry.create_instance(&ash::vk::InstanceCreateInfo::default(), None) }.unwrap();
    // SAFETY: the instance is alive.
    let physical = unsafe { instance.enumerate_physical_devices() }.unwrap()[0];
    let queues = [ash::vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
    let info = ash::vk::DeviceCreateInfo::default().queue_create_infos(&queues);
    // SAFETY: every device has a queue of the first family.
    let device = unsafe { instance.create_device(physical, &info, None) }.unwrap();
    let usage = ash::vk::BufferUsageFlags::STORAGE_BUFFER;
    // SAFETY: the mistake of this test, which the layer reports and the driver survives.
    let _ = unsafe { device.create_buffer(&ash::vk::BufferCreateInfo::default().usage(usage), None) };
}

/// `doctor.spv` is `doctor.wgsl`, translated. `UPDATE_EXPECT=1` writes it.
#[test]
fn the_kernel_of_the_doctor_is_translated() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let source = std::fs::read_to_string(folder.join("doctor.wgsl")).unwrap();
    let translate = registry::get("anyfn.wgsl_to_spirv").unwrap();
    let code = translate.call((&*source, "anyfn_doctor")).unwrap().get::<Bytes>().unwrap();
    if std::env::var("UPDATE_EXPECT").is_ok_and(|value| value == "1") {
        std::fs::write(folder.join("doctor.spv"), &*code).unwrap();
    }
    assert!(std::fs::read(folder.join("doctor.spv")).unwrap() == *code, "run with UPDATE_EXPECT=1");
}
