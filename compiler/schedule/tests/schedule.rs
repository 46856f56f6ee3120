//! Tests of schedule steps: their results, and the errors for invalid uses.

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
fn sample(n: i32) -> Result<Ref<PrimFunc>> {
    let a = placeholder(shape(&[n, n]), DType::FLOAT32, "A")?;
    let b = placeholder(shape(&[n, n]), DType::FLOAT32, "B")?;
    let k = reduce_axis(ops::i32(0), ops::i32(n), "k")?;
    let c = compute(shape(&[n, n]), "C", |i| {
        let kv: Expr = k.var.clone().into_parent();
        let product = ops::mul(at(&a, [i.get(0)?, kv.clone()])?, at(&b, [kv, i.get(1)?])?)?;
        sum(product, [k.clone()].into_iter().collect())
    })?;
    let d = compute(shape(&[n, n]), "D", |i| ops::add(at(&c, i.iter())?, ops::i32(1)))?;
    create_prim_func(&[a, b, d].map(Ref::into_object), "f")
}

fn func(schedule: &Schedule) -> Ref<PrimFunc> {
    schedule.func().unwrap()
}

fn body(schedule: &Schedule) -> String {
    let text = printer::text(func(schedule).as_object());
    text.lines()
        .filter(|line| !line.contains("attr(\"scheduled\""))
        .skip(5)
        .map(|line| line.strip_prefix("        ").unwrap_or(line))
        .collect::<Vec<_>>()
        .join("\n")
}

fn new(func: Ref<PrimFunc>) -> Result<Ref<Schedule>> {
    anyfn::registry::get("ffi.MakeObjectFromPackedArgs")?;
    Ok(Ref::new(Schedule::new(func)?))
}

#[test]
fn tiled_and_decomposed() -> Result<()> {
    let schedule = new(sample(64)?)?;
    let loops = schedule.get_loops("C")?;
    let i = schedule.split(loops[0].clone(), vec![None, Some(8)])?;
    let j = schedule.split(loops[1].clone(), vec![None, Some(16)])?;
    schedule.reorder([&i[0], &j[0], &loops[2], &i[1], &j[1]].map(Clone::clone).to_vec())?;
    schedule.decompose_reduction("C", loops[2].clone())?;
    schedule.parallel(i[0].clone())?;
    schedule.unroll(i[1].clone())?;
    schedule.vectorize(j[1].clone())?;
    assert_eq!(
        body(&schedule),
        r#"for i0_0 in parallel(8):
    for i1_0 in range(4):
        for i0_1_init, i1_1_init in grid(8, 16):
            with block("C_init"):
                v_i0_init = axis.spatial(64, i0_0 * 8 + i0_1_init)
                v_i1_init = axis.spatial(64, i1_0 * 16 + i1_1_init)
                reads()
                writes(C[v_i0_init, v_i1_init])
                C[v_i0_init, v_i1_init] = 0.0
        for k in range(64):
            for i0_1 in unrolled(8):
                for i1_1 in vectorized(16):
                    with block("C"):
                        v_i0 = axis.spatial(64, i0_0 * 8 + i0_1)
                        v_i1 = axis.spatial(64, i1_0 * 16 + i1_1)
                        v_k = axis.reduce(64, k)
                        reads(A[v_i0, v_k], B[v_k, v_i1])
                        writes(C[v_i0, v_i1])
                        C[v_i0, v_i1] = C[v_i0, v_i1] + A[v_i0, v_k] * B[v_k, v_i1]
for i0, i1 in grid(64, 64):
    with block("D"):
        v_i0_1 = axis.spatial(64, i0)
        v_i1_1 = axis.spatial(64, i1)
        reads(C[v_i0_1, v_i1_1])
        writes(D[v_i0_1, v_i1_1])
        D[v_i0_1, v_i1_1] = C[v_i0_1, v_i1_1] + 1.0"#
    );
    let again = Schedule::replay(sample(64)?, schedule.trace())?;
    assert_eq!(body(&again), body(&schedule));
    Ok(())
}

/// Returns the origin, source and code of each step of a schedule.
fn origins(schedule: &Schedule) -> Vec<[Option<String>; 3]> {
    let steps = schedule.trace().steps.clone();
    let text = |text: &Option<anyfn::String>| text.as_ref().map(ToString::to_string);
    steps.iter().map(|step| [text(&step.origin), text(&step.source), text(&step.code)]).collect()
}

#[test]
fn the_trace_names_the_source_of_each_step() -> Result<()> {
    let schedule = new(sample(64)?)?;
    let none = schedule.set_source("a.py:1", None, None).unwrap_err();
    assert_eq!(none.message(), "the schedule has no steps; apply a step before you set its source");
    let loops = schedule.get_loops("C")?;
    schedule.parallel(loops[0].clone())?;
    schedule.set_source("a.py:2", Some("sch.parallel(i)"), None)?;
    schedule.set_origin(2, "default_schedule");
    schedule.unroll(schedule.get_loops("D")?[1].clone())?;
    schedule.set_origin(2, "default_schedule");
    schedule.set_source("a\n.py:3", None, Some(3))?;
    assert!(schedule.set_source("a.py:3", None, Some(-1)).unwrap_err().message().ends_with("got -1"));
    schedule.set_source("a.py:4", None, Some(i64::MAX))?;
    let [parallel, a2, a3] = ["sch.parallel(i)", "a.py:2", "a\n.py:3"].map(|text| Some(text.to_owned()));
    let origin = Some("default_schedule".to_owned());
    assert_eq!(
        origins(&schedule),
        [
            [None, None, None],
            [None, a2.clone(), parallel.clone()],
            [origin.clone(), None, None],
            [origin, a3.clone(), None]
        ]
    );
    let text = |schedule: &Schedule, sources: bool| {
        schedule.trace().as_object().call_method("text", (sources,))?.get::<String>()
    };
    let lines = text(&schedule, true)?;
    let lines: Vec<_> =
        lines.lines().map(|line| line.split_once("  # ").map_or("", |(_, origin)| origin)).collect();
    assert_eq!(lines, ["", "a.py:2: sch.parallel(i)", "default_schedule", "default_schedule, a .py:3"]);
    assert_eq!(text(&schedule.copy(), true)?, text(&schedule, true)?);

    // A trace is equal wherever its steps were applied, and remains executable.
    let again = Schedule::replay(sample(64)?, schedule.trace())?;
    assert_eq!(text(&again, false)?, text(&schedule, false)?);
    assert!(anyfn_reflect::recursive_equal(&Any::new(again.trace())?, &Any::new(schedule.trace())?)?);
    let twice = Schedule::replay(sample(64)?, again.trace())?;
    let [replay, of_default] = ["replay", "replay of default_schedule"].map(|text| Some(text.to_owned()));
    for replayed in [again, twice] {
        assert_eq!(
            origins(&replayed),
            [
                [replay.clone(), None, None],
                [replay.clone(), a2.clone(), parallel.clone()],
                [of_default.clone(), None, None],
                [of_default.clone(), a3.clone(), None]
            ]
        );
    }
    Ok(())
}

#[test]
fn what_would_change_the_result_is_refused() -> Result<()> {
    let error = |result: Result<()>| result.unwrap_err().message().to_owned();
    let schedule = new(sample(10)?)?;
    let loops = schedule.get_loops("C")?;
    let (i, j, k) = (&loops[0], &loops[1], &loops[2]);
    let before = printer::text(func(&schedule).as_object());
    assert_eq!(
        error(schedule.parallel(k.clone())),
        "loop `k` cannot be parallel: its iterations update the same elements, since axis `v_k` of block `C` is \
         not spatial"
    );
    assert_eq!(error(schedule.vectorize(i.clone())), "loop `i0` cannot be vectorized: it contains other loops");
    assert_eq!(
        error(schedule.split(i.clone(), vec![Some(2), Some(3)]).map(drop)),
        "split of loop `i0` by [2, 3] makes 6 iterations, but the loop has 10: pass None for one factor"
    );
    assert_eq!(
        error(schedule.fuse(vec![i.clone(), k.clone()]).map(drop)),
        "loops `i0` and `k` cannot be fused: the body of the first contains more than the second"
    );
    assert_eq!(error(schedule.compute_inline("C")), "block `C` cannot be inlined: it is a reduction");
    assert_eq!(
        error(schedule.compute_inline("D")),
        "block `D` cannot be inlined: it computes a result of the function"
    );
    assert_eq!(
        error(schedule.reverse_compute_inline("D")),
        "block `D` cannot be inlined into the block that computes its input: block `C`, which writes `C`: it is a reduction"
    );
    assert_eq!(error(schedule.get_loops("E").map(drop)), "unknown block `E`; known blocks are root, C, D");
    schedule.reorder(vec![k.clone(), i.clone()])?;
    assert_eq!(
        error(schedule.decompose_reduction("C", i.clone()).map(drop)),
        "block `C` cannot be decomposed at loop `i0`: outer loop `k` belongs to reduction axis `v_k`"
    );
    schedule.reorder(vec![i.clone(), k.clone()])?;
    // Steps that failed have changed nothing.
    assert_eq!(printer::text(func(&schedule).as_object()), before);
    assert!(j.name.starts_with("i1"));
    Ok(())
}

#[test]
fn a_split_that_does_not_fit_gets_a_condition() -> Result<()> {
    let schedule = new(sample(10)?)?;
    let loops = schedule.get_loops("D")?;
    let fused = schedule.fuse(loops)?;
    let parts = schedule.split(fused.clone(), vec![None, Some(16)])?;
    schedule.parallel(parts[0].clone())?;
    let text = body(&schedule);
    assert!(text.contains("for i0_i1_fused_0 in parallel(7):"), "{text}");
    assert!(text.contains("where(i0_i1_fused_0 * 16 + i0_i1_fused_1 < 100)"), "{text}");
    assert_eq!(
        schedule.get_loops("D")?.iter().map(|l| l.name.to_string()).collect::<Vec<_>>(),
        ["i0_i1_fused_0", "i0_i1_fused_1"]
    );
    assert_eq!(
        schedule.unroll(fused).unwrap_err().message(),
        "loop `i0_i1_fused` no longer exists: it was split, fused or removed"
    );
    Ok(())
}

#[test]
fn a_fused_loop_has_a_type_that_counts_its_iterations() -> Result<()> {
    let [int8, int16] = [8, 16].map(|bits| DType::new(anyfn::abi::kDLInt, bits, 1));
    let rows = [
        (int8, [2, 3], "range(int8(6)) as int8"),
        (int8, [16, 16], "range(256)"),
        (int16, [100, 300], "range(int16(30000)) as int16"),
        (int16, [200, 300], "range(60000)"),
        (int16, [30_000, 30_000], "range(900000000)"),
        (DType::INT32, [30_000, 30_000], "range(900000000)"),
        (DType::INT32, [60_000, 60_000], "range(int64(3600000000)) as int64"),
        (DType::INT64, [2, 3], "range(int64(6)) as int64"),
    ];
    for (dtype, extents, expected) in rows {
        let shape: Array<Expr> = extents.into_iter().map(|n| ops::int(n, dtype)).collect::<Result<_>>()?;
        let a = placeholder(shape.clone(), DType::FLOAT32, "A")?;
        let b = compute(shape, "B", |i| at(&a, i.iter()))?;
        let schedule = new(create_prim_func(&[a, b].map(Ref::into_object), "f")?)?;
        schedule.fuse(schedule.get_loops("B")?)?;
        let text = printer::text(func(&schedule).as_object());
        assert!(text.contains(&format!("for i0_i1_fused in {expected}:")), "{dtype} {extents:?}: {text}");
        anyfn_passes::verify(&schedule.func()?)?;
    }
    Ok(())
}

#[test]
fn a_reduction_of_something_is_fused_with_any_number_of_rows() -> Result<()> {
    for rows in [ops::i32(6), ops::var("n", DType::INT32).into_parent()] {
        let a = placeholder([rows.clone(), ops::i32(8)].into_iter().collect(), DType::FLOAT32, "A")?;
        let k = reduce_axis(ops::i32(0), ops::i32(8), "k")?;
        let b = compute([rows].into_iter().collect(), "B", |i| {
            sum(at(&a, [i.get(0)?, k.var.clone().into_parent()])?, [k.clone()].into_iter().collect())
        })?;
        let schedule = new(create_prim_func(&[a, b].map(Ref::into_object), "f")?)?;
        let loops = schedule.get_loops("B")?;
        let parts = schedule.split(loops[1].clone(), vec![None, Some(4)])?;
        schedule.fuse(vec![loops[0].clone(), parts[0].clone()])?;
        schedule.fuse(schedule.get_loops("B")?)?;
    }
    Ok(())
}

#[test]
fn a_reduction_of_perhaps_nothing_sets_its_results() -> Result<()> {
    let m: Expr = ops::var("m", DType::INT32).into_parent();
    let a = placeholder([ops::i32(6), m.clone()].into_iter().collect(), DType::FLOAT32, "A")?;
    let k = reduce_axis(ops::i32(0), m, "k")?;
    let b = compute(shape(&[6]), "B", |i| {
        sum(at(&a, [i.get(0)?, k.var.clone().into_parent()])?, [k.clone()].into_iter().collect())
    })?;
    let schedule = new(create_prim_func(&[a, b].map(Ref::into_object), "f")?)?;
    let loops = schedule.get_loops("B")?;
    assert_eq!(
        schedule.fuse(loops.clone()).map(drop).unwrap_err().message(),
        "loops `i0` and `k` cannot be fused: the second belongs to a reduction that may have no iterations, and the results of \
         block `B` would then not be initialised; decompose the reduction before"
    );
    // The outer loop always has 4 iterations, but the predicate would exclude all of them.
    let parts = new(schedule.func()?)?;
    let parts_of_k = parts.split(parts.get_loops("B")?[1].clone(), vec![Some(4), None, Some(2)])?;
    let error =
        parts.fuse(vec![parts.get_loops("B")?[0].clone(), parts_of_k[0].clone()]).map(drop).unwrap_err();
    assert!(error.message().starts_with("loops `i0` and `k_0` cannot be fused: "), "{error}");
    let i = schedule.split(loops[0].clone(), vec![None, Some(4)])?;
    let k = schedule.split(loops[1].clone(), vec![None, Some(8)])?;
    schedule.reorder(vec![i[0].clone(), k[0].clone(), k[1].clone(), i[1].clone()])?;
    schedule.decompose_reduction("B", k[0].clone())?;
    // The initialisation before the reduction has only the conditions that do not involve `k`.
    let text = body(&schedule);
    let (before, after) = text.split_once("for k_0").unwrap();
    assert!(before.contains("where(i0_0 * 4 + i0_1_init < 6)"), "{text}");
    assert!(!before.contains('m') && after.contains("k_0 * 8 + k_1 < m"), "{text}");
    schedule.fuse(vec![k[0].clone(), k[1].clone()]).map(drop)
}

#[test]
fn a_block_goes_into_the_one_that_sets_what_it_reads() -> Result<()> {
    let a = placeholder(shape(&[4, 6]), DType::FLOAT32, "A")?;
    let b = compute(shape(&[4, 6]), "B", |i| ops::mul(at(&a, i.iter())?, ops::i32(2)))?;
    let c = compute(shape(&[6, 4]), "C", |i| {
        let element = at(&b, [i.get(1)?, i.get(0)?])?;
        ops::add(ops::mul(element.clone(), element)?, i.get(0)?)
    })?;
    let schedule = new(create_prim_func(&[a, c].map(Ref::into_object), "f")?)?;
    schedule.reverse_compute_inline("C")?;
    let text = body(&schedule);
    assert!(
        text.contains("C[v_i1, v_i0] = A[v_i0, v_i1] * 2.0 * (A[v_i0, v_i1] * 2.0) + float32(v_i1)"),
        "{text}"
    );
    assert!(!text.contains("alloc(") && !text.contains("block(\"C\")"), "{text}");
    Ok(())
}

#[test]
fn partial_results_keep_the_kinds_of_loops_and_what_is_noted() -> Result<()> {
    let schedule = new(sample(16)?)?;
    let loops = schedule.get_loops("C")?;
    let parts = schedule.split(loops[2].clone(), vec![None, Some(4)])?;
    schedule.parallel(loops[0].clone())?;
    schedule.unroll(parts[1].clone())?;
    schedule.annotate(Any::new(loops[0].clone())?, "of_i", Any::new(1)?)?;
    schedule.annotate(Any::new("C")?, "of_c", Any::new(2)?)?;
    schedule.annotate(Any::new("root")?, "of_root", Any::new(3)?)?;
    schedule.rfactor("C", parts[1].clone())?;
    let text = printer::text(func(&schedule).as_object());
    for line in [
        "with block(\"root\", of_root=3):",
        "for i0_rf in parallel(16):",
        "for k_1_rf in unrolled(4):",
        "with block(\"C_rf\"):",
        "for i0 in parallel(16, of_i=1):",
        "for k_1 in unrolled(4):",
        "with block(\"C\", of_c=2):",
    ] {
        assert!(text.lines().any(|other| other.trim_start() == line), "{line} in {text}");
    }
    Ok(())
}

#[test]
fn only_blocks_of_steps_are_added() -> Result<()> {
    let schedule = new(sample(16)?)?;
    let added = schedule.cache_write("C", Any::new(0)?, "local")?;
    let blocks = ["root", "C", "D", &*added, "E"];
    assert_eq!(blocks.map(|name| schedule.is_added(name)), [false, false, false, true, false]);
    Ok(())
}
