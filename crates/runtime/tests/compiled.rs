//! Tests that Rust code can call libraries that Apache TVM has compiled (see `testing/compiled/build.py`).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyfn::abi::DLTensor;
use anyfn::{DType, Module, PackedFunc, Tensor, TensorView, TypedPackedFunc, registry};
use anyfn_loader as _;
use anyfn_random::Random;
use anyfn_runtime as _;

/// Returns the folder with the libraries, which are built if they do not exist. If the compiler is missing,
/// reports this and returns `None`.
fn folder() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = root.join(".x/venv-tvm/bin/python");
    if !python.exists() {
        anyfn_skip::report("no apache-tvm; `./x setup --peer`");
        return None;
    }
    // The folder is beside that of the test program, where `./x test` builds the libraries.
    let folder = std::env::current_exe().unwrap().parent().unwrap().join("../compiled");
    let built = Command::new(python).arg(root.join("testing/compiled/build.py")).arg(&folder).status().unwrap();
    assert!(built.success());
    Some(folder)
}

fn load(folder: &Path, name: &str) -> Module {
    Module::load(folder.join(format!("{name}.so")).to_str().unwrap()).unwrap()
}

fn main_of(folder: &Path, name: &str) -> PackedFunc {
    load(folder, name).get_function("main").unwrap()
}

/// Returns random numbers that are small enough for exact sums.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..count).map(|_| f32::from(random.byte()) - 128.0).collect()
}

fn floats(shape: &[i64], data: &[f32]) -> Tensor {
    Tensor::from_slice(shape, data).unwrap()
}

fn zeros(dtype: &str, shape: &[i64]) -> Tensor {
    Tensor::zeros(dtype.parse::<DType>().unwrap(), shape).unwrap()
}

fn content(tensor: &Tensor) -> Vec<f32> {
    let bytes = tensor.view().to_bytes().unwrap();
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn zip(a: &[f32], b: &[f32], op: impl Fn(f32, f32) -> f32) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| op(*a, *b)).collect()
}

#[test]
fn elementwise_parallel_and_dynamic() {
    let Some(folder) = folder() else { return };
    type Case = (&'static str, usize, fn(f32, f32) -> f32);
    let cases: [Case; 6] = [
        ("add", 1024, |a, b| a + b),
        ("wide", 1024, |a, b| a + b),
        ("c_add", 1024, |a, b| a + b),
        ("parallel", 1 << 16, |a, b| a * b + a),
        ("dynamic", 1000, |a, b| a - b),
        ("dynamic", 0, |a, b| a - b),
    ];
    for (name, count, op) in cases {
        let (a, b) = (numbers(count, 1), numbers(count, 2));
        let shape = [count as i64];
        let c = zeros("float32", &shape);
        for threads in [1, 2, 4] {
            anyfn_runtime::threads::set_num_threads(threads);
            main_of(&folder, name).call((&floats(&shape, &a), &floats(&shape, &b), &c)).unwrap();
            assert_eq!(content(&c), zip(&a, &b, op), "{name}");
        }
    }
}

#[test]
fn workspaces() {
    let Some(folder) = folder() else { return };
    let a = numbers(512 * 512, 3);
    for name in ["workspace", "c_workspace"] {
        let c = zeros("float32", &[512, 512]);
        main_of(&folder, name).call((&floats(&[512, 512], &a), &c)).unwrap();
        let expected: Vec<f32> = a.iter().rev().map(|x| 2.0 * x + 1.0).collect();
        assert_eq!(content(&c), expected, "{name}");
    }
}

#[test]
fn matmul_reduction_and_softmax() {
    let Some(folder) = folder() else { return };
    let (a, b) = (numbers(64 * 96, 4), numbers(96 * 32, 5));
    let c = zeros("float32", &[64, 32]);
    main_of(&folder, "matmul").call((&floats(&[64, 96], &a), &floats(&[96, 32], &b), &c)).unwrap();
    let product = |i: usize, j: usize| (0..96).map(|k| a[i * 96 + k] * b[k * 32 + j]).sum::<f32>();
    let expected: Vec<f32> = (0..64 * 32).map(|at| product(at / 32, at % 32)).collect();
    assert_eq!(content(&c), expected);

    let rows: Vec<i32> = (0..35).map(|i| i * i - 300).collect();
    let sums = zeros("int64", &[5]);
    main_of(&folder, "rowsum").call((&Tensor::from_slice(&[5, 7], &rows).unwrap(), &sums)).unwrap();
    let expected: Vec<u8> =
        rows.chunks(7).flat_map(|row| row.iter().map(|x| i64::from(*x)).sum::<i64>().to_le_bytes()).collect();
    assert_eq!(sums.view().to_bytes().unwrap(), expected);

    let a: Vec<f32> = numbers(33 * 65, 6).iter().map(|x| x / 30.0).collect();
    let c = zeros("float32", &[33, 65]);
    main_of(&folder, "softmax").call((&floats(&[33, 65], &a), &c)).unwrap();
    for (row, got) in a.chunks(65).zip(content(&c).chunks(65)) {
        let top = row.iter().copied().fold(f32::MIN, f32::max);
        let total: f32 = row.iter().map(|x| (x - top).exp()).sum();
        for (x, got) in row.iter().zip(got) {
            assert!(((x - top).exp() / total - got).abs() < 1e-6);
        }
    }
}

#[test]
fn small_types_numbers_and_several_functions() {
    let Some(folder) = folder() else { return };
    let bytes: Vec<i8> = (0..35).map(|i| (i * 7 - 120) as i8).collect();
    let a = Tensor::from_slice(&[5, 7], &bytes).unwrap();
    let c = zeros("int32", &[5, 7]);
    main_of(&folder, "bytes_product").call((&a, &a, &c)).unwrap();
    let expected: Vec<u8> = bytes.iter().flat_map(|x| (i32::from(*x) * i32::from(*x)).to_le_bytes()).collect();
    assert_eq!(c.view().to_bytes().unwrap(), expected);

    // 1.5 in 16 bits, and its square.
    let a =
        Tensor::from_bytes("float16".parse().unwrap(), &[100], &0x3E00_u16.to_le_bytes().repeat(100)).unwrap();
    let c = zeros("float16", &[100]);
    main_of(&folder, "half").call((&a, &a, &c)).unwrap();
    assert_eq!(c.view().to_bytes().unwrap(), 0x4080_u16.to_le_bytes().repeat(100));

    let a = numbers(10, 8);
    let c = zeros("float32", &[10]);
    main_of(&folder, "scaled").call((2.5, &floats(&[10], &a), &c)).unwrap();
    assert_eq!(content(&c), a.iter().map(|x| 2.5 * x).collect::<Vec<_>>());

    let several = load(&folder, "several");
    let (a, b, c) = (numbers(8, 9), numbers(8, 10), zeros("float32", &[8]));
    several.get_function("plus").unwrap().call((&floats(&[8], &a), &floats(&[8], &b), &c)).unwrap();
    assert_eq!(content(&c), zip(&a, &b, |a, b| a + b));

    let _registers = load(&folder, "system");
    let (a, b, c) = (numbers(1024, 11), numbers(1024, 12), zeros("float32", &[1024]));
    let plus = Module::system_lib("compiled_test_").unwrap().get_function("plus").unwrap();
    plus.call((&floats(&[1024], &a), &floats(&[1024], &b), &c)).unwrap();
    assert_eq!(content(&c), zip(&a, &b, |a, b| a + b));
}

#[test]
fn compiled_code_calls_a_function_by_name_and_looks_it_up_once() {
    let Some(folder) = folder() else { return };
    let double = TypedPackedFunc::from_fn(|source: TensorView<'_>, target: TensorView<'_>| {
        let count = source.num_elements().unwrap();
        // SAFETY: the compiled code passes a tensor of `count` elements.
        let from = unsafe { core::slice::from_raw_parts(source.data().cast::<f32>(), count) };
        // SAFETY: the compiled code passes another tensor of `count` elements, which no other code uses during the call.
        let to = unsafe { core::slice::from_raw_parts_mut(target.data().cast::<f32>(), count) };
        to.iter_mut().zip(from).for_each(|(to, from)| *to = 2.0 * from);
    });
    registry::register("compiled_test.double").set(&double.into()).unwrap();
    let lookups = || registry::get("ffi.ModuleLookups").unwrap().call(()).unwrap().get::<i64>().unwrap();
    let f = main_of(&folder, "call_packed");
    let a = numbers(16, 13);
    let before = lookups();
    for _ in 0..100 {
        let c = zeros("float32", &[16]);
        f.call((&floats(&[16], &a), &c)).unwrap();
        assert_eq!(content(&c), a.iter().map(|x| 2.0 * x).collect::<Vec<_>>());
    }
    assert_eq!(lookups() - before, 1);
}

#[test]
fn unaligned_views_and_wrong_arguments() {
    let Some(folder) = folder() else { return };
    let f = main_of(&folder, "wide");
    let (a, b, c) = (numbers(1100, 14), numbers(1100, 15), zeros("float32", &[1100]));
    let tensors = [floats(&[1100], &a), floats(&[1100], &b), c];
    for offset in [0_usize, 1, 4, 15, 16, 33] {
        let mut extent = 1024_i64;
        let views: Vec<DLTensor> = tensors
            .iter()
            .map(|tensor| {
                let whole = *tensor.view().as_dl();
                DLTensor { data: whole.data.wrapping_byte_add(4 * offset), shape: &raw mut extent, ..whole }
            })
            .collect();
        // SAFETY: the views describe parts of tensors that are alive.
        let [x, y, z] = [0, 1, 2].map(|i| unsafe { TensorView::from_dl(&views[i]) });
        f.call((x, y, z)).unwrap();
        let part = offset..offset + 1024;
        assert_eq!(content(&tensors[2])[part.clone()], zip(&a[part.clone()], &b[part], |a, b| a + b));
    }
    let short = zeros("float32", &[1000]);
    let right = zeros("float32", &[1024]);
    let wrong = |error: anyfn::Error, end: &str| assert!(error.message().ends_with(end), "{}", error.message());
    wrong(f.call((&right, &right, &short)).unwrap_err(), "expected 1024, got 1000");
    wrong(f.call((&right, &right, 5)).unwrap_err(), "expected Tensor, got int");
    wrong(f.call((&right, &zeros("int32", &[1024]), &right)).unwrap_err(), "expected float32, got int32");
    wrong(
        f.call((&right, &zeros("float32", &[32, 32]), &right)).unwrap_err(),
        "expected 1, got 2 (shape (32, 32))",
    );
}
