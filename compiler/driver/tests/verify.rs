//! Tests of invalid functions: each defect causes an error that contains the user's names, and no code is
//! generated.

use anyfn_host as _;

use anyfn::{Array, DType, Map, Ref, Result};
use anyfn_compiler::ir::buffer::Buffer;
use anyfn_compiler::ir::expr::{BinaryOp, Expr, Var};
use anyfn_compiler::ir::func::{IRModule, PrimFunc};
use anyfn_compiler::ir::stmt::{ForKind, Stmt};
use anyfn_compiler::ir::visit::Mutator;
use anyfn_compiler::ir::{ExprKind, StmtKind, make, ops, printer};
use anyfn_compiler::passes::{vectorize, verify};
use anyfn_compiler::te::{self, compute, element, placeholder, reduce_axis};
use anyfn_compiler::{schedule::Schedule, source};
use anyfn_parser::parse_func;
use anyfn_random::Random;

fn shape(extents: &[i32]) -> Array<Expr> {
    extents.iter().map(|extent| ops::i32(*extent)).collect()
}

fn at(tensor: &Ref<te::Tensor>, indices: impl IntoIterator<Item = Expr>) -> Result<Expr> {
    element(tensor, indices.into_iter().collect())
}

fn module(func: &Ref<PrimFunc>) -> Result<Ref<IRModule>> {
    Ok(Ref::new(IRModule { functions: Map::try_from_iter([("f", func.clone())])?, attrs: Map::new() }))
}

/// Returns a function that computes `B[i] = A[place(i)]` for all `i` below an extent.
fn shifted(extent: Expr, place: impl Fn(Expr) -> Result<Expr>) -> Result<Ref<PrimFunc>> {
    let extents: Array<Expr> = [extent].into_iter().collect();
    let a = placeholder(extents.clone(), DType::FLOAT32, "A")?;
    let b = compute(extents, "B", |i| at(&a, [place(i.get(0)?)?]))?;
    te::create_prim_func(&[a, b].map(Ref::into_object), "f")
}

#[track_caller]
fn refused(func: &Ref<PrimFunc>, kind: &str, expected: &str) {
    let error = verify(func).expect_err("this is wrong");
    assert_eq!(error.kind(), kind, "{}", error.message());
    assert!(error.message().contains(expected), "{}", error.message());
    assert!(source(&module(func).unwrap(), None).is_err(), "no code of what is wrong");
}

fn var(name: &str) -> Expr {
    ops::var(name, DType::INT32).into_parent()
}

/// Tests that an access in a loop without iterations is not reported as out of bounds. The bound
/// `min(4, ..)` makes the loop empty. For the last iterations of the outer loops, simplification
/// removes that bound.
#[test]
fn a_loop_that_never_runs_accesses_nothing() -> Result<()> {
    let func = parse_func(
        "def f(s0: Buffer((n0, 4), \"uint64\")):
    for i0, i1 in grid(3, (n0 + 11) // 12):
        for i2 in range(max(min(4, (n0 + 2) // 3 - i1 * 4), 0)):
            for v in range(max(min(4, n0 * 4 - (i0 * ((n0 + 2) // 3) * 4 + i1 * 16 + i2 * 4)), 0) // 16):
                for l in vectorized(16):
                    s0[i0 * ((n0 + 2) // 3) + i1 * 4 + i2, v * 16 + l] = uint64(3)
",
    )?;
    verify(&vectorize(&func)?)
}

#[test]
fn accesses_outside_of_a_buffer() -> Result<()> {
    let plus = |value: i32| move |i: Expr| ops::add(i, ops::i32(value));
    let n = var("n");
    refused(
        &shifted(n.clone(), plus(1_000_000_000))?,
        "IndexError",
        "dimension 0 of `A` has extent n, but index `v_i0 + 1000000000` is n + 999999999 where v_i0 is n - 1 (in block `B`)",
    );
    refused(&shifted(n.clone(), plus(1))?, "IndexError", "index `v_i0 + 1` is n where v_i0 is n - 1");
    refused(&shifted(n.clone(), plus(-1))?, "IndexError", "index `v_i0 + -1` is -1 where v_i0 is 0");
    refused(&shifted(ops::i32(8), |i| ops::mul(i, ops::i32(2)))?, "IndexError", "is 14 where v_i0 is 7");
    refused(&shifted(ops::i32(8), |_| Ok(ops::i32(8)))?, "IndexError", "index `8` is 8");
    // An access is valid if a condition excludes the wrong indices, and an error otherwise.
    let guarded = |limit: i32| {
        shifted(ops::i32(8), move |i| {
            let inside = ops::less(ops::i32(limit), i.clone())?;
            ops::select(inside, ops::sub(i, ops::i32(1))?, ops::i32(0))
        })
    };
    verify(&guarded(0)?)?;
    let padded = |limit: i32| -> Result<Ref<PrimFunc>> {
        let a = placeholder(shape(&[8]), DType::FLOAT32, "A")?;
        let b = compute(shape(&[8]), "B", |i| {
            let i = i.get(0)?;
            let inside = ops::less(ops::i32(limit), i.clone())?;
            ops::select(inside, at(&a, [ops::sub(i, ops::i32(1))?])?, ops::number(0, DType::FLOAT32)?)
        })?;
        te::create_prim_func(&[a, b].map(Ref::into_object), "f")
    };
    verify(&padded(0)?)?;
    refused(&padded(-1)?, "IndexError", "index `v_i0 - 1` is -1 where v_i0 is 0");
    // An access that is not proven to be out of bounds is not an error.
    verify(&shifted(n.clone(), |i| ops::floor_mod(ops::mul(i.clone(), i)?, ops::i32(7)))?)?;
    verify(&shifted(n.clone(), |i| ops::sub(ops::sub(n.clone(), ops::i32(1))?, i))?)?;
    Ok(())
}

/// Tests that nested `select` expressions pass verification, although each of them occurs in the
/// condition and in both values of the next one.
#[test]
fn choices_within_choices() -> Result<()> {
    let func = shifted(ops::i32(8), |i| {
        let mut value = i.clone();
        for limit in 0..6 {
            let next = ops::add(value.clone(), ops::i32(limit % 2))?;
            value = ops::select(ops::less(ops::i32(limit), value.clone())?, value, next)?;
        }
        ops::min(value, ops::i32(7))
    })?;
    verify(&func)
}

fn matmul(n: i32) -> Result<Ref<PrimFunc>> {
    let a = placeholder(shape(&[n, n]), DType::FLOAT32, "A")?;
    let b = placeholder(shape(&[n, n]), DType::FLOAT32, "B")?;
    let k = reduce_axis(ops::i32(0), ops::i32(n), "k")?;
    let c = compute(shape(&[n, n]), "C", |i| {
        let kv: Expr = k.var.clone().into_parent();
        let product = ops::mul(at(&a, [i.get(0)?, kv.clone()])?, at(&b, [kv, i.get(1)?])?)?;
        te::sum(product, [k.clone()].into_iter().collect())
    })?;
    let d = compute(shape(&[n, n]), "D", |i| ops::max(at(&c, i.iter())?, ops::number(0, DType::FLOAT32)?))?;
    te::create_prim_func(&[a, b, d].map(Ref::into_object), "f")
}

/// Mutator that changes one expression. Among the expressions for which `change` returns a
/// replacement, `left` is the index of the changed one.
struct Damage<F> {
    left: usize,
    change: F,
}

impl<F: Fn(&Expr) -> Option<Expr>> Mutator for Damage<F> {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        if let Some(new) = (self.change)(expr) {
            if self.left == 0 {
                self.left = usize::MAX;
                return Ok(new);
            }
            self.left -= 1;
        }
        self.below_expr(expr)
    }
}

fn with_body(func: &Ref<PrimFunc>, body: Stmt) -> Ref<PrimFunc> {
    let (params, buffer_map, attrs) = (func.params.clone(), func.buffer_map.clone(), func.attrs.clone());
    Ref::new(PrimFunc { params, buffer_map, body, attrs })
}

/// Returns a buffer like `buffer` over the memory `data`.
fn view_of(buffer: &Buffer, data: &Ref<Var>) -> Ref<Buffer> {
    let (dtype, alignment) = (buffer.dtype, buffer.alignment);
    let (shape, strides) = (buffer.shape.clone(), buffer.strides.clone());
    let (name, scope) = (buffer.name.clone(), buffer.scope.clone());
    Ref::new(Buffer { data: data.clone(), dtype, shape, strides, name, scope, alignment })
}

fn damaged(func: &Ref<PrimFunc>, at: usize, change: impl Fn(&Expr) -> Option<Expr>) -> Ref<PrimFunc> {
    with_body(func, Damage { left: at, change }.stmt(&func.body).unwrap())
}

#[test]
fn wrong_types_and_names() -> Result<()> {
    let func = matmul(8)?;
    verify(&func)?;
    let is_load = |expr: &Expr| matches!(ExprKind::of(expr), ExprKind::BufferLoad(_));
    let double = |expr: &Expr| is_load(expr).then(|| ops::float(1.0, DType::FLOAT64).unwrap());
    refused(
        &damaged(&func, 1, double),
        "TypeError",
        "the operands of `*` have different data types: float64 and float32",
    );
    let unknown = |expr: &Expr| matches!(ExprKind::of(expr), ExprKind::Var(_)).then(|| var("lost"));
    refused(&damaged(&func, 20, unknown), "NameError", "variable `lost` is not defined where it is used");
    // A buffer that is not defined is an error.
    let other = make::buffer("T", shape(&[8]), DType::FLOAT32);
    let load = ops::load(&other, shape(&[0]))?;
    let foreign = move |expr: &Expr| is_load(expr).then(|| load.clone());
    refused(&damaged(&func, 3, foreign), "NameError", "buffer `T` is not defined where it is used");
    // Memory has one type of elements, by whichever buffer it is accessed.
    let (_, a) = func.buffer_map.iter().next().expect("three buffers");
    let view = |dtype| {
        let buffer = make::buffer("view", shape(&[8]), dtype);
        let body = make::store(&view_of(&buffer, &a.data), ops::number(1, dtype)?, shape(&[0]))?;
        Ok::<_, anyfn::Error>(with_body(&func, body))
    };
    verify(&view(DType::FLOAT32)?)?;
    refused(
        &view(DType::INT64)?,
        "TypeError",
        "buffer `view` of int64 uses memory that holds elements of float32",
    );
    // Loops.
    let store =
        |index: Expr| make::store(&other, ops::number(1, DType::FLOAT32)?, [index].into_iter().collect());
    let of = |body: Stmt| with_body(&func, make::allocate(other.clone(), body));
    let i = ops::var("i", DType::INT32);
    let value: Expr = i.clone().into_parent();
    let inner = make::for_loop(i.clone(), ops::i32(0), ops::i32(8), store(value.clone())?);
    verify(&of(inner.clone()))?;
    let twice = make::for_loop(i.clone(), ops::i32(0), ops::i32(8), inner.clone());
    refused(&of(twice), "ValueError", "the variable of loop `i` is defined again inside of its own scope");
    let float = make::for_loop(ops::var("x", DType::FLOAT32), ops::i32(0), ops::i32(8), inner.clone());
    refused(&of(float), "TypeError", "the variable of loop `x` is float32, not an integer");
    let wide = make::for_loop(i.clone(), ops::i32(0), ops::int(8, DType::INT64)?, store(value.clone())?);
    refused(
        &of(wide),
        "TypeError",
        "the variable of loop `i` is int32, but its minimum is int32 and its extent is int64",
    );
    let parallel = make::for_of_kind(i.clone(), ops::i32(0), ops::i32(8), ForKind::Parallel, store(value)?);
    let outer = ops::var("j", DType::INT32);
    let mixed = make::for_of_kind(outer, ops::i32(0), ops::i32(4), ForKind::Vectorized, parallel);
    refused(&of(mixed), "ValueError", "parallel loop `i` is inside of a vectorized one");
    let outside = make::seq([inner, store(i.into_parent())?]);
    refused(&of(outside), "NameError", "variable `i` is not defined where it is used");
    refused(&of(store(ops::i32(9))?), "IndexError", "index `9` is 9");
    Ok(())
}

/// Tests that calls of mathematical functions are checked: the number and data types of the
/// arguments, and the data type of the result.
#[test]
fn arguments_of_mathematical_functions() -> Result<()> {
    let func = matmul(8)?;
    let float = |dtype| ops::float(2.0, dtype).unwrap().into_object();
    let (single, double) = (float(DType::FLOAT32), float(DType::FLOAT64));
    let (whole, string) = (ops::i32(2).into_object(), ops::string("text").into_object());
    let buffer = make::buffer("T", shape(&[8]), DType::FLOAT32).into_object();
    let wanted = "expected a floating-point number as argument";
    for (op, args, text) in [
        ("exp", vec![whole.clone()], format!("{wanted} 0 of `exp`, got int32 (`astype` converts it): exp(2")),
        ("sigmoid", vec![string], format!("{wanted} 0 of `sigmoid`, got handle")),
        ("sqrt", vec![buffer], format!("{wanted} 0 of `sqrt`, got `tir.Buffer`")),
        ("pow", vec![single.clone(), whole], format!("{wanted} 1 of `pow`, got int32")),
        (
            "hypot",
            vec![single.clone(), double.clone()],
            "the arguments of `hypot` have different data types: float32 and float64".to_owned(),
        ),
        ("exp", vec![double], "expected an expression of data type float64, got float32: exp(".to_owned()),
        ("rsqrt", vec![], "`rsqrt` takes 1 argument, got 0".to_owned()),
        ("fmod", vec![single.clone()], "`fmod` takes 2 arguments, got 1".to_owned()),
    ] {
        let call = ops::call(DType::FLOAT32, op, args);
        let is_load = |expr: &Expr| matches!(ExprKind::of(expr), ExprKind::BufferLoad(_));
        refused(&damaged(&func, 1, |expr| is_load(expr).then(|| call.clone())), "TypeError", &text);
    }
    for (op, args) in [("exp", vec![single.clone()]), ("copysign", vec![single.clone(), single])] {
        let call = ops::call(DType::FLOAT32, op, args);
        let is_load = |expr: &Expr| matches!(ExprKind::of(expr), ExprKind::BufferLoad(_));
        verify(&damaged(&func, 1, |expr| is_load(expr).then(|| call.clone())))?;
    }
    Ok(())
}

/// Mutator that replaces random expressions and statements.
struct Wreck {
    random: Random,
    /// Average number of visited nodes per replaced node.
    rate: usize,
    vars: Vec<Ref<Var>>,
}

impl Wreck {
    fn thing(&mut self, like: &Expr) -> Expr {
        let dtypes = [DType::INT32, DType::INT64, DType::FLOAT32, DType::FLOAT64, DType::BOOL, DType::UINT8];
        let dtype = dtypes[self.random.below(6)];
        let known = self.vars.get(self.random.below(8)).cloned();
        match self.random.below(9) {
            0 => ops::number(self.random.below(2) as i64, dtype).unwrap_or_else(|_| ops::bool(true)),
            1 => ops::int(i64::from(i32::MAX), DType::INT64).unwrap(),
            2 => known.map_or_else(|| ops::var("lost", dtype).into_parent(), Ref::into_parent),
            3 => ops::string("text"),
            4 => ops::ramp(ops::i32(0), ops::i32(1), 2 + self.random.below(6) as u16).unwrap(),
            5 => ops::call(dtype, ["exp", "nothing", "call_packed"][self.random.below(3)], []),
            6 => ops::cast(like.clone(), dtype).unwrap_or_else(|_| like.clone()),
            7 => ops::binary(BinaryOp::FloorDiv, ops::i32(1), ops::i32(i32::MIN)).unwrap(),
            _ => ops::splat(ops::number(1, dtype).unwrap_or_else(|_| ops::bool(true)), 4).unwrap(),
        }
    }
}

impl Mutator for Wreck {
    fn expr(&mut self, expr: &Expr) -> Result<Expr> {
        if let ExprKind::Var(var) = ExprKind::of(expr) {
            self.vars.push(var.clone());
        }
        if self.random.below(self.rate) == 0 {
            return Ok(self.thing(expr));
        }
        self.below_expr(expr)
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        let stmt = self.below_stmt(stmt)?;
        if self.random.below(self.rate) != 0 {
            return Ok(stmt);
        }
        Ok(match StmtKind::of(&stmt) {
            StmtKind::Allocate(node) => node.body.clone(),
            StmtKind::BlockRealize(node) if self.random.below(2) == 0 => node.block.body.clone(),
            StmtKind::BlockRealize(node) => node.block.clone().into_parent(),
            StmtKind::For(node) => node.body.clone(),
            _ => make::seq([stmt.clone(), stmt]),
        })
    }
}

/// Tests that a damaged function is either compiled or causes an error, and never ends the process.
#[test]
fn damaged_functions_are_errors() -> Result<()> {
    let cases = anyfn_random::setting("ANYFN_VERIFY_CASES", 400);
    let (mut wrong, mut right) = (0, 0);
    for seed in 0..cases {
        let mut random = Random::new(seed);
        let mut func = matmul(8)?;
        if random.below(2) == 0 {
            let schedule = Schedule::new(func)?;
            let loops = schedule.get_loops("C")?;
            let parts = schedule.split(loops[0].clone(), vec![None, Some(3)])?;
            schedule.parallel(parts[0].clone())?;
            func = schedule.func()?;
        }
        let rate = [12, 40, 120][random.below(3)];
        let mut wreck = Wreck { random, rate, vars: Vec::new() };
        // Some nodes cannot even be constructed.
        let Ok(body) = wreck.stmt(&func.body) else { continue };
        let func = with_body(&func, body);
        let text = printer::text(func.as_object());
        match verify(&func) {
            Err(error) => {
                wrong += 1;
                assert!(!error.message().is_empty() && error.kind() != "InternalError", "{text}");
            }
            Ok(()) => {
                right += 1;
                // Calls of unknown functions are found by the code generator.
                if let Err(error) = source(&module(&func)?, None) {
                    let message = error.message();
                    let is_fine =
                        ["cannot generate C code", "call_packed", "takes", "must be", "`f`", "cannot"];
                    assert!(is_fine.iter().any(|part| message.contains(part)), "{message}\n{text}");
                }
            }
        }
    }
    assert!(wrong * 2 > cases / 4 && right > 0, "{wrong} wrong, {right} right");
    Ok(())
}

#[test]
fn a_launch_of_a_loop_that_is_not_parallel_is_refused() -> Result<()> {
    for kind in ["range(17)", "bind(\"blockIdx.x\", 17)"] {
        let text = format!(
            "def f(A: Buffer((17,), \"float32\")):\n    with launch(A):\n        for i in {kind}:\n            A[i] = 1.0"
        );
        refused(&parse_func(&text)?, "ValueError", "the loop `i` of a launch is");
        let error = anyfn_compiler::lower(&module(&parse_func(&text)?)?, None)
            .map(drop)
            .expect_err("the loop is not parallel");
        assert!(error.message().contains("the loop `i` of a launch is"), "{}", error.message());
    }
    Ok(())
}

/// Tests that a reduction axis is rejected if its first value changes between iterations of the loops around
/// the block. Such a reduction would be initialised several times, and schedule steps that are otherwise valid
/// would change the number of initialisations.
#[test]
fn the_first_value_of_a_reduction_is_fixed() -> Result<()> {
    let text = |min: &str| {
        format!(
            "def f(A: Buffer((32,), float32), s: Buffer((), float32)):\n    for k, j in grid(32, 2):\n        \
             with block(\"sum\"):\n            vk = axis.reduce(({min}, 32), k)\n            \
             vj = axis.reduce(2, j)\n            with init():\n                s[()] = 0.0\n            \
             s[()] = s[()] + 1.0\n"
        )
    };
    verify(&parse_func(&text("0"))?)?;
    refused(
        &parse_func(&text("k"))?,
        "ValueError",
        "reduction axis `vk` of block `sum` begins at k, which changes",
    );
    let through_variable =
        text("x").replace("        with block", "        x: int32 = k * 2\n        with block");
    refused(&parse_func(&through_variable)?, "ValueError", "begins at x, which changes");
    let read = text("int32(A[0])");
    refused(&parse_func(&read)?, "ValueError", "begins at int32(A[0]), which changes");
    // A value that no loop changes.
    let constant = text("x").replace("    for k, j", "    x: int32 = 0\n    for k, j");
    verify(&parse_func(&constant)?)?;
    Ok(())
}
