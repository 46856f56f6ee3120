//! Tests of the steps `bind` and `set_scope`: their results, their errors, and the restrictions that they
//! impose on later steps.

use anyfn_core as _;
use anyfn_reflect as _;

use anyfn::{Any, Array, DType, Ref, Result};
use anyfn_ir::expr::Expr;
use anyfn_ir::func::PrimFunc;
use anyfn_ir::{ops, printer};
use anyfn_schedule::Schedule;
use anyfn_te::{Tensor, compute, create_prim_func, element, placeholder, reduce_axis, sum};

fn shape(extents: &[i32]) -> Array<Expr> {
    extents.iter().map(|extent| ops::i32(*extent)).collect()
}

fn at(tensor: &Ref<Tensor>, indices: impl IntoIterator<Item = Expr>) -> Result<Expr> {
    element(tensor, indices.into_iter().collect())
}

/// Returns a function that computes `C = A @ B` and `D = C + 1`.
fn sample() -> Result<Ref<PrimFunc>> {
    let a = placeholder(shape(&[16, 16]), DType::FLOAT32, "A")?;
    let b = placeholder(shape(&[16, 16]), DType::FLOAT32, "B")?;
    let k = reduce_axis(ops::i32(0), ops::i32(16), "k")?;
    let c = compute(shape(&[16, 16]), "C", |i| {
        let kv: Expr = k.var.clone().into_parent();
        let product = ops::mul(at(&a, [i.get(0)?, kv.clone()])?, at(&b, [kv, i.get(1)?])?)?;
        sum(product, [k.clone()].into_iter().collect())
    })?;
    let d = compute(shape(&[16, 16]), "D", |i| ops::add(at(&c, i.iter())?, ops::i32(1)))?;
    create_prim_func(&[a, b, d].map(Ref::into_object), "f")
}

fn new() -> Result<Ref<Schedule>> {
    anyfn::registry::get("ffi.MakeObjectFromPackedArgs")?;
    Ok(Ref::new(Schedule::new(sample()?)?))
}

fn text(schedule: &Schedule) -> Result<String> {
    Ok(printer::text(schedule.func()?.as_object()))
}

/// Checks that a step is refused with the given message, and that the schedule stays unchanged.
fn refused(schedule: &Schedule, step: impl FnOnce(&Schedule) -> Result<()>, expected: &str) -> Result<()> {
    let before = text(schedule)?;
    let error = step(schedule).expect_err(expected);
    assert_eq!((error.kind(), error.message()), ("ValueError", expected));
    assert_eq!(text(schedule)?, before);
    Ok(())
}

#[test]
fn rows_are_computed_by_blocks_of_threads() -> Result<()> {
    let schedule = new()?;
    let loops = schedule.get_loops("D")?;
    schedule.bind(loops[0].clone(), "blockIdx.x")?;
    schedule.compute_at("C", loops[0].clone())?;
    schedule.set_scope("C", Any::new("C")?, "shared")?;
    schedule.bind(loops[1].clone(), "threadIdx.x")?;
    // The block has a loop for its other axis, and one for its reduction axis.
    let own = schedule.get_loops("C")?;
    schedule.bind(own[1].clone(), "threadIdx.x")?;
    let shown = text(&schedule)?;
    for line in [
        "for i0 in bind(\"blockIdx.x\", 16):",
        "for i1 in bind(\"threadIdx.x\", 16):",
        "C = alloc((16, 16), \"float32\", scope=\"shared\")",
    ] {
        assert!(shown.contains(line), "{line} in {shown}");
    }
    assert_eq!(shown.matches("bind(\"threadIdx.x\", 16)").count(), 2, "{shown}");
    anyfn_passes::verify(&schedule.func()?)?;
    let trace = schedule.trace();
    let written = trace.as_object().call_method("text", ())?.get::<String>()?;
    assert!(written.contains("sch.bind(l0, \"blockIdx.x\")"), "{written}");
    assert!(written.contains("sch.set_scope(\"C\", \"C\", \"shared\")"), "{written}");
    assert_eq!(text(&Schedule::replay(sample()?, trace)?)?, shown);
    Ok(())
}

#[test]
fn all_axes_can_be_bound() -> Result<()> {
    for axis in ["blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z"] {
        let schedule = new()?;
        schedule.bind(schedule.get_loops("D")?[0].clone(), axis)?;
        assert!(text(&schedule)?.contains(&format!("bind({axis:?}, 16)")));
        anyfn_passes::verify(&schedule.func()?)?;
    }
    Ok(())
}

#[test]
fn what_cannot_be_bound_is_refused() -> Result<()> {
    let schedule = new()?;
    let loops = schedule.get_loops("C")?;
    let (i, j, k) = (&loops[0], &loops[1], &loops[2]);
    refused(
        &schedule,
        |s| s.bind(i.clone(), "threadIdx.w"),
        "unknown thread axis `threadIdx.w`; known axes are blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, \
         threadIdx.z",
    )?;
    refused(
        &schedule,
        |s| s.bind(k.clone(), "threadIdx.x"),
        "loop `k` cannot be bound to threadIdx.x: its iterations update the same elements, since axis `v_k` of \
         block `C` is not spatial",
    )?;
    schedule.bind(i.clone(), "threadIdx.x")?;
    refused(&schedule, |s| s.bind(i.clone(), "threadIdx.y"), "loop `i0` is bound to threadIdx.x already")?;
    refused(&schedule, |s| s.parallel(i.clone()), "loop `i0` is bound to threadIdx.x already")?;
    refused(
        &schedule,
        |s| s.split(i.clone(), vec![None, Some(4)]).map(drop),
        "loop `i0` is bound to threadIdx.x already",
    )?;
    refused(
        &schedule,
        |s| s.bind(j.clone(), "threadIdx.x"),
        "loop `i1`, which is bound to threadIdx.x, cannot be inside of loop `i0`, which is bound to threadIdx.x",
    )?;
    refused(
        &schedule,
        |s| s.bind(j.clone(), "blockIdx.x"),
        "loop `i1`, which is bound to blockIdx.x, cannot be inside of loop `i0`, which is bound to threadIdx.x",
    )?;
    let schedule = new()?;
    let loops = schedule.get_loops("D")?;
    schedule.vectorize(loops[1].clone())?;
    refused(&schedule, |s| s.bind(loops[1].clone(), "threadIdx.x"), "loop `i1` is vectorized already")?;
    schedule.parallel(loops[0].clone())?;
    refused(&schedule, |s| s.bind(loops[0].clone(), "blockIdx.x"), "loop `i0` is parallel already")
}

#[test]
fn other_steps_keep_the_order_of_bound_loops() -> Result<()> {
    let schedule = new()?;
    let loops = schedule.get_loops("D")?;
    let (i, j) = (&loops[0], &loops[1]);
    schedule.bind(j.clone(), "threadIdx.x")?;
    refused(
        &schedule,
        |s| s.parallel(i.clone()),
        "loop `i1`, which is bound to threadIdx.x, cannot be inside of loop `i0`, which is parallel",
    )?;
    schedule.bind(i.clone(), "blockIdx.x")?;
    refused(
        &schedule,
        |s| s.reorder(vec![j.clone(), i.clone()]),
        "loop `i0`, which is bound to blockIdx.x, cannot be inside of loop `i1`, which is bound to threadIdx.x",
    )
}

#[test]
fn threads_compute_no_shared_memory_for_themselves() -> Result<()> {
    const MESSAGE: &str = "block `C` computes elements of `C` for block `D` in each iteration of loop `i0`, but the threads \
                           of a block share that buffer";
    // In any order of the steps, the last one is refused.
    let schedule = new()?;
    let i = schedule.get_loops("D")?[0].clone();
    schedule.compute_at("C", i.clone())?;
    schedule.bind(i.clone(), "threadIdx.x")?;
    refused(&schedule, |s| s.set_scope("C", Any::new(0)?, "shared"), MESSAGE)?;
    let schedule = new()?;
    let i = schedule.get_loops("D")?[0].clone();
    schedule.set_scope("C", Any::new(0)?, "shared")?;
    schedule.bind(i.clone(), "threadIdx.x")?;
    refused(&schedule, |s| s.compute_at("C", i.clone()), MESSAGE)?;
    let schedule = new()?;
    let i = schedule.get_loops("D")?[0].clone();
    schedule.set_scope("C", Any::new(0)?, "shared")?;
    schedule.compute_at("C", i.clone())?;
    refused(&schedule, |s| s.bind(i.clone(), "threadIdx.x"), MESSAGE)?;
    refused(&schedule, |s| s.parallel(i.clone()), MESSAGE)?;
    // Each block of threads has its own memory.
    schedule.bind(i, "blockIdx.x")
}

#[test]
fn a_scope_can_be_set_and_reset() -> Result<()> {
    let schedule = new()?;
    let before = text(&schedule)?;
    schedule.set_scope("C", Any::new(0)?, "shared")?;
    assert_eq!(text(&schedule)?, before.replace("C = alloc((16, 16), \"float32\")", SHARED));
    schedule.set_scope("C", Any::new("C")?, "global")?;
    assert_eq!(text(&schedule)?, before);
    anyfn_passes::verify(&schedule.func()?)
}

const SHARED: &str = "C = alloc((16, 16), \"float32\", scope=\"shared\")";

#[test]
fn scopes_that_cannot_be_set_are_refused() -> Result<()> {
    let schedule = new()?;
    for scope in ["local", "shelf", ""] {
        refused(
            &schedule,
            |s| s.set_scope("C", Any::new(0)?, scope),
            &format!("expected the memory scope global or shared, got `{scope}`"),
        )?;
    }
    refused(
        &schedule,
        |s| s.set_scope("D", Any::new(0)?, "shared"),
        "the memory scope of `D` cannot be changed: the caller of the function owns the buffer; create a copy of \
         it with cache_read or cache_write",
    )?;
    for number in [1, -1] {
        refused(
            &schedule,
            |s| s.set_scope("C", Any::new(number)?, "shared"),
            &format!("block `C` writes no buffer number {number}; writes: C"),
        )?;
    }
    refused(
        &schedule,
        |s| s.set_scope("C", Any::new("A")?, "shared"),
        "block `C` writes no buffer `A`; writes: C",
    )?;
    refused(&schedule, |s| s.set_scope("E", Any::new(0)?, "shared"), "unknown block `E`; known blocks are C, D")
}
