//! Tests of kernels in the form that a good schedule produces: code with tiles, vectors and local memory.

use anyfn_host as _;

use anyfn::{Array, DType, Map, Ref, Result, Tensor};
use anyfn_compiler::ir::buffer::Buffer;
use anyfn_compiler::ir::expr::{Expr, Var};
use anyfn_compiler::ir::func::{IRModule, PrimFunc};
use anyfn_compiler::ir::stmt::{ForKind, Stmt};
use anyfn_compiler::ir::target::Target;
use anyfn_compiler::ir::{make, ops};
use anyfn_compiler::target::{self, TargetOptions};
use anyfn_compiler::{build, source};

fn shape(extents: &[i32]) -> Array<Expr> {
    extents.iter().map(|extent| ops::i32(*extent)).collect()
}

fn local(name: &str, extents: &[i32], dtype: DType) -> Ref<Buffer> {
    let plain = make::buffer(name, shape(extents), dtype);
    Ref::new(Buffer {
        data: plain.data.clone(),
        dtype,
        shape: plain.shape.clone(),
        strides: Array::new(),
        name: name.into(),
        scope: "local".into(),
        alignment: 64,
    })
}

fn read(var: &Ref<Var>) -> Expr {
    var.clone().into_parent()
}

fn repeat(var: &Ref<Var>, extent: i32, kind: ForKind, body: Stmt) -> Stmt {
    make::for_of_kind(var.clone(), ops::i32(0), ops::i32(extent), kind, body)
}

/// Returns the index `outer * factor + inner`.
fn affine(outer: &Ref<Var>, factor: i32, inner: &Ref<Var>) -> Result<Expr> {
    ops::add(ops::mul(read(outer), ops::i32(factor))?, read(inner))
}

/// Returns a function that computes `C = A B` in tiles of `rows` times `columns` elements. Both
/// numbers must divide the extents of `C`. The function packs both operands first.
fn tiled_matmul(n: i32, m: i32, k: i32, rows: i32, columns: i32, dtype: DType) -> Result<Ref<PrimFunc>> {
    use ForKind::{Parallel, Serial, Unrolled, Vectorized};
    let a = make::buffer("A", shape(&[n, k]), dtype);
    let b = make::buffer("B", shape(&[k, m]), dtype);
    let c = make::buffer("C", shape(&[n, m]), dtype);
    let packed_a = make::buffer("Ap", shape(&[n / rows, k, rows]), dtype);
    let packed_b = make::buffer("Bp", shape(&[m / columns, k, columns]), dtype);
    let acc = local("acc", &[rows, columns], dtype);
    let [jo, io, kk, ii, ji] = ["jo", "io", "k", "ii", "ji"].map(|name| ops::var(name, DType::INT32));

    let pack_b = make::store(
        &packed_b,
        ops::load(&b, [read(&kk), affine(&jo, columns, &ji)?].into_iter().collect())?,
        [read(&jo), read(&kk), read(&ji)].into_iter().collect(),
    )?;
    let pack_b =
        repeat(&jo, m / columns, Parallel, repeat(&kk, k, Serial, repeat(&ji, columns, Vectorized, pack_b)));
    let pack_a = make::store(
        &packed_a,
        ops::load(&a, [affine(&io, rows, &ii)?, read(&kk)].into_iter().collect())?,
        [read(&io), read(&kk), read(&ii)].into_iter().collect(),
    )?;
    let pack_a = repeat(&io, n / rows, Parallel, repeat(&kk, k, Serial, repeat(&ii, rows, Unrolled, pack_a)));

    let here: Array<Expr> = [read(&ii), read(&ji)].into_iter().collect();
    let tile = |stmt: Stmt| repeat(&ii, rows, Unrolled, repeat(&ji, columns, Vectorized, stmt));
    let init = make::store(&acc, ops::number(0, dtype)?, here.clone())?;
    let product = ops::mul(
        ops::load(&packed_a, [read(&io), read(&kk), read(&ii)].into_iter().collect())?,
        ops::load(&packed_b, [read(&jo), read(&kk), read(&ji)].into_iter().collect())?,
    )?;
    let step = make::store(&acc, ops::add(ops::load(&acc, here.clone())?, product)?, here.clone())?;
    let place: Array<Expr> = [affine(&io, rows, &ii)?, affine(&jo, columns, &ji)?].into_iter().collect();
    let write = make::store(&c, ops::load(&acc, here)?, place)?;
    let body = make::seq([tile(init), repeat(&kk, k, Serial, tile(step)), tile(write)]);
    let body = make::allocate(acc, body);
    let body = repeat(&jo, m / columns, Parallel, repeat(&io, n / rows, Serial, body));
    let body = make::allocate(packed_a, make::allocate(packed_b, make::seq([pack_b, pack_a, body])));

    let buffers = [a, b, c];
    let params: Vec<Ref<Var>> = buffers.iter().map(|buffer| ops::var(&buffer.name, ops::HANDLE)).collect();
    Ok(Ref::new(PrimFunc {
        params: params.iter().cloned().collect(),
        buffer_map: Map::try_from_iter(params.into_iter().zip(buffers))?,
        body,
        attrs: Map::try_from_iter([("global_symbol", "matmul")])?,
    }))
}

fn module(func: Ref<PrimFunc>, vector_bytes: i64) -> Result<Ref<IRModule>> {
    let options = TargetOptions { vector_bytes: Some(vector_bytes), ..TargetOptions::default() };
    let module = Ref::new(IRModule { functions: Map::try_from_iter([("matmul", func)])?, attrs: Map::new() });
    Target::put(&Ref::new(target::make("c", options)?), &module)
}

fn numbers(count: i32, seed: i32) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed) % 17 - 8) as f32).collect()
}

fn multiply(vector_bytes: i64, n: i32, m: i32, k: i32, rows: i32, columns: i32) -> Result<()> {
    let module = module(tiled_matmul(n, m, k, rows, columns, DType::FLOAT32)?, vector_bytes)?;
    let f = build(&module, None)?.get_function("matmul")?;
    let (a, b) = (numbers(n * k, 1), numbers(k * m, 5));
    let extent = |extents: [i32; 2]| extents.map(i64::from);
    let (ta, tb) = (Tensor::from_slice(&extent([n, k]), &a)?, Tensor::from_slice(&extent([k, m]), &b)?);
    let tc = Tensor::zeros(DType::FLOAT32, &extent([n, m]))?;
    f.call((ta.view(), tb.view(), tc.view()))?;
    let (n, m, k) = (n as usize, m as usize, k as usize);
    // SAFETY: the tensor was created above with this number of elements.
    let c = unsafe { std::slice::from_raw_parts(tc.view().data().cast::<f32>(), n * m) };
    for i in 0..n {
        for j in 0..m {
            let expected: f32 = (0..k).map(|l| a[i * k + l] * b[l * m + j]).sum();
            assert_eq!(c[i * m + j], expected, "at {i}, {j} with vectors of {vector_bytes} bytes");
        }
    }
    Ok(())
}

#[test]
fn tiles_are_right_with_vectors_of_any_length() -> Result<()> {
    for vector_bytes in [0, 16, 32, 64] {
        multiply(vector_bytes, 24, 64, 19, 8, 32)?;
        // Neither the number of lanes nor the number of rows is a power of two.
        multiply(vector_bytes, 15, 36, 7, 5, 12)?;
        multiply(vector_bytes, 6, 21, 5, 3, 7)?;
    }
    Ok(())
}

#[test]
fn sums_of_a_tile_are_variables_as_long_as_the_vectors() -> Result<()> {
    let code = |vector_bytes| -> Result<String> {
        source(&module(tiled_matmul(16, 64, 8, 8, 32, DType::FLOAT32)?, vector_bytes)?, None)
    };
    for (vector_bytes, first, last) in [
        (64, "anyfn_f32x16 acc_0,", "acc_15;"),
        (32, "anyfn_f32x8 acc_0,", "acc_31;"),
        (16, "anyfn_f32x4 acc_0,", "acc_63;"),
    ] {
        let text = code(vector_bytes)?;
        assert!(text.contains(first) && text.contains(last), "{text}");
        assert!(!text.contains("acc["), "{text}");
    }
    let text = code(0)?;
    assert!(text.contains("_Alignas(64) float acc[256];") && !text.contains("vector_size"), "{text}");
    Ok(())
}
