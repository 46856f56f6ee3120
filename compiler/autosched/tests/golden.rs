//! Tests that compare the default schedules of typical functions with the files in `tests/golden`, and tests
//! of properties that every default schedule must have.
//!
//! `UPDATE_EXPECT=1 cargo test -p anyfn-autosched` writes the files.

use anyfn_core as _;
use anyfn_reflect as _;

use anyfn::{Any, Array, DType, Ref, Result};
use anyfn_autosched::{default_schedule, finish, inlined, scheduled, unscheduled};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::printer;
use anyfn_ir::target::Target;
use anyfn_schedule::Schedule;
use anyfn_te::notation::{At, axis, call, compute, max, max_over, placeholder, prim_func, sum};
use expect_test::expect_file;

/// Returns a target with 32-byte vectors and `num_cores` cores. Besides these two values, schedules depend on
/// the processor's architecture only.
fn target(num_cores: i64) -> Target {
    Target {
        kind: "c".into(),
        arch: "x86_64".into(),
        mcpu: "".into(),
        features: Array::new(),
        vector_bytes: 32,
        num_cores,
        cc: "cc".into(),
        options: Array::new(),
        max_threads: 0,
        local_memory: 0,
        device_arch: "".into(),
    }
}

/// Returns a function that computes `max(A * 2 + 1, 0)` in three stages.
fn elementwise(n: i32) -> Result<Ref<PrimFunc>> {
    let a = placeholder([n], DType::FLOAT32, "A")?;
    let b = compute([n], "B", |[i]| a.at((&i,)) * 2)?;
    let c = compute([n], "C", |[i]| b.at((&i,)) + 1)?;
    let d = compute([n], "D", |[i]| max(c.at((&i,)), 0))?;
    prim_func("elementwise", &[&a, &d])
}

/// Returns a function that transposes a matrix of `n` rows and columns.
fn transpose(n: i32) -> Result<Ref<PrimFunc>> {
    let a = placeholder([n, n], DType::FLOAT32, "A")?;
    let b = compute([n, n], "B", |[i, j]| a.at((&j, &i)))?;
    prim_func("transpose", &[&a, &b])
}

/// Returns a function that computes the sum of each column of a matrix.
fn columns(n: i32) -> Result<Ref<PrimFunc>> {
    let a = placeholder([n, 64], DType::FLOAT32, "A")?;
    let k = axis("k", 0, n)?;
    let b = compute([64], "B", |[j]| sum(a.at((&k, &j)), &[&k]))?;
    prim_func("columns", &[&a, &b])
}

/// Returns a function that sums all elements of a vector.
fn total(n: i32) -> Result<Ref<PrimFunc>> {
    let a = placeholder([n], DType::FLOAT32, "A")?;
    let k = axis("k", 0, n)?;
    let b = compute([1], "B", |[_]| sum(a.at((&k,)), &[&k]))?;
    prim_func("total", &[&a, &b])
}

/// Returns a function that computes the softmax of each row of a matrix.
fn softmax(n: i32, m: i32) -> Result<Ref<PrimFunc>> {
    let a = placeholder([n, m], DType::FLOAT32, "A")?;
    let (k, l) = (axis("k", 0, m)?, axis("l", 0, m)?);
    let top = compute([n], "top", |[i]| max_over(a.at((&i, &k)), &[&k]))?;
    let e = compute([n, m], "e", |[i, j]| call("exp", a.at((&i, &j)) - top.at((&i,))))?;
    let s = compute([n], "s", |[i]| sum(e.at((&i, &l)), &[&l]))?;
    let b = compute([n, m], "B", |[i, j]| e.at((&i, &j)) / s.at((&i,)))?;
    prim_func("softmax", &[&a, &b])
}

/// Returns a function that computes `max(A @ B + bias, 0)` for square matrices.
fn dense(n: i32) -> Result<Ref<PrimFunc>> {
    let a = placeholder([n, n], DType::FLOAT32, "A")?;
    let b = placeholder([n, n], DType::FLOAT32, "B")?;
    let bias = placeholder([n], DType::FLOAT32, "bias")?;
    let k = axis("k", 0, n)?;
    let c = compute([n, n], "C", |[i, j]| sum(a.at((&i, &k)) * b.at((&k, &j)), &[&k]))?;
    let d = compute([n, n], "D", |[i, j]| max(c.at((&i, &j)) + bias.at((&j,)), 0))?;
    prim_func("dense", &[&a, &b, &bias, &d])
}

/// Returns a function that convolves an image of several channels.
fn convolution() -> Result<Ref<PrimFunc>> {
    let image = placeholder([16, 34, 34], DType::FLOAT32, "image")?;
    let weight = placeholder([32, 16, 3, 3], DType::FLOAT32, "weight")?;
    let (c, y, x) = (axis("c", 0, 16)?, axis("y", 0, 3)?, axis("x", 0, 3)?);
    let out = compute([32, 32, 32], "out", |[o, i, j]| {
        let pixel = image.at((&c, i + &y, j + &x));
        sum(pixel * weight.at((&o, &c, &y, &x)), &[&c, &y, &x])
    })?;
    prim_func("convolution", &[&image, &weight, &out])
}

/// Returns all sample functions with their names. The functions have enough work to benefit from
/// threads.
fn samples() -> Result<Vec<(&'static str, Ref<PrimFunc>)>> {
    Ok(vec![
        ("elementwise", elementwise(1 << 20)?),
        ("transpose", transpose(1024)?),
        ("columns", columns(4096)?),
        ("total", total(1 << 20)?),
        ("softmax", softmax(512, 1000)?),
        ("dense", dense(256)?),
        ("convolution", convolution()?),
    ])
}

fn text(func: &Ref<PrimFunc>) -> String {
    printer::text(func.as_object()) + "\n"
}

/// Returns the printed form of a function after its default schedule is applied.
fn scheduled_text(func: &Ref<PrimFunc>, num_cores: i64) -> Result<String> {
    Ok(text(&default_schedule(func, &target(num_cores))?.func()?))
}

/// Checks that the function `ffi.MakeObjectFromPackedArgs` is registered, because schedules call
/// it.
fn start() -> Result<()> {
    anyfn::registry::get("ffi.MakeObjectFromPackedArgs").map(drop)
}

#[test]
fn typical_functions() -> Result<()> {
    start()?;
    for (name, func) in samples()? {
        expect_file![format!("golden/{name}.ir")].assert_eq(&scheduled_text(&func, 4)?);
    }
    Ok(())
}

#[test]
fn a_schedule_is_a_trace_that_can_be_replayed() -> Result<()> {
    start()?;
    for (name, func) in samples()? {
        let schedule = default_schedule(&func, &target(4))?;
        assert!(!schedule.trace().steps.is_empty(), "{name} has a default schedule");
        assert!(schedule.trace().steps.iter().all(|step| step.origin.as_deref() == Some("default_schedule")));
        let again = Schedule::replay(func, schedule.trace())?;
        assert_eq!(text(&again.func()?), text(&schedule.func()?), "{name}");
    }
    Ok(())
}

#[test]
fn one_core_gets_no_parallel_loop() -> Result<()> {
    start()?;
    for (name, func) in samples()? {
        assert!(scheduled_text(&func, 4)?.contains("parallel("), "{name} is large enough for several cores");
        assert!(!scheduled_text(&func, 1)?.contains("parallel("), "{name}");
    }
    Ok(())
}

#[test]
fn little_work_is_not_distributed_over_threads() -> Result<()> {
    start()?;
    for (name, func) in
        [("elementwise", elementwise(1000)?), ("softmax", softmax(4, 100)?), ("dense", dense(16)?)]
    {
        assert!(!scheduled_text(&func, 4)?.contains("parallel("), "{name}");
    }
    Ok(())
}

#[test]
fn the_two_parts_are_the_whole() -> Result<()> {
    start()?;
    for (name, func) in samples()? {
        let parts = scheduled(&inlined(&func), &target(4));
        assert_eq!(text(&parts), scheduled_text(&func, 4)?, "{name}");
    }
    Ok(())
}

#[test]
fn a_scheduled_function_is_not_scheduled_again() -> Result<()> {
    start()?;
    for (name, func) in samples()? {
        let once = scheduled(&func, &target(4));
        assert!(scheduled(&once, &target(4)).ptr_eq(&once), "{name}");
        assert!(inlined(&once).ptr_eq(&once), "{name}");
    }
    Ok(())
}

#[test]
fn a_schedule_without_steps_is_finished_by_the_default_schedule() -> Result<()> {
    start()?;
    for (name, func) in samples()? {
        let schedule = Schedule::new(func.clone())?;
        finish(&schedule, &target(4))?;
        assert_eq!(text(&schedule.func()?), scheduled_text(&func, 4)?, "{name}");
    }
    Ok(())
}

#[test]
fn blocks_that_are_scheduled_by_hand_are_left_as_they_are() -> Result<()> {
    start()?;
    let schedule = Schedule::new(dense(256)?)?;
    let loops = schedule.get_loops("C")?;
    let order = vec![loops[0].clone(), loops[2].clone(), loops[1].clone()];
    schedule.reorder(order.clone())?;
    let count = schedule.trace().steps.len();
    finish(&schedule, &target(4))?;
    assert!(schedule.trace().steps.len() > count, "the steps of the default schedule are recorded");
    for (number, step) in schedule.trace().steps.iter().enumerate() {
        let expected = (number >= count).then_some("default_schedule");
        assert_eq!(step.origin.as_deref(), expected, "step {number}");
    }
    let loops = schedule.get_loops("C")?;
    assert!(loops.len() == 3 && loops.iter().zip(&order).all(|(now, before)| now.ptr_eq(before)));
    assert!(text(&schedule.func()?).contains("parallel("), "the other block is scheduled");
    // If all blocks are scheduled by hand, nothing is left.
    let schedule = Schedule::new(dense(256)?)?;
    for block in ["C", "D"] {
        schedule.parallel(schedule.get_loops(block)?[0].clone())?;
    }
    let before = text(&schedule.func()?);
    finish(&schedule, &target(4))?;
    assert_eq!(text(&schedule.func()?), before);
    Ok(())
}

#[test]
fn blocks_that_a_step_has_added_are_not_inlined() -> Result<()> {
    start()?;
    let schedule = Schedule::new(elementwise(1 << 20)?)?;
    let added = schedule.cache_write("C", Any::new("C")?, "local")?;
    schedule.parallel(schedule.get_loops("C")?[0].clone())?;
    finish(&schedule, &target(4))?;
    assert!(!schedule.get_loops(&added)?.is_empty());
    // It is scheduled like other blocks.
    assert!(unscheduled(&schedule.func()?, &target(4))?.is_empty());
    Ok(())
}

#[test]
fn a_schedule_takes_no_copy_over_after_further_steps() -> Result<()> {
    start()?;
    let schedule = Schedule::new(dense(256)?)?;
    let copy = schedule.copy();
    schedule.parallel(schedule.get_loops("C")?[0].clone())?;
    let before = text(&schedule.func()?);
    assert_eq!(schedule.assign(&copy, 0).unwrap_err().kind(), "RuntimeError");
    assert_eq!(text(&schedule.func()?), before);
    Ok(())
}

#[test]
fn what_a_schedule_by_hand_leaves_is_listed() -> Result<()> {
    start()?;
    let schedule = Schedule::new(dense(256)?)?;
    assert_eq!(unscheduled(&schedule.func()?, &target(4))?, ["C", "D"]);
    schedule.parallel(schedule.get_loops("C")?[0].clone())?;
    assert_eq!(unscheduled(&schedule.func()?, &target(4))?, ["D"]);
    finish(&schedule, &target(4))?;
    assert!(unscheduled(&schedule.func()?, &target(4))?.is_empty());
    let small = Schedule::new(dense(8)?)?;
    assert!(unscheduled(&small.func()?, &target(4))?.is_empty(), "its work is not worth a note");
    Ok(())
}
