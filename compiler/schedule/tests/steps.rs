//! Tests of all steps in the table of schedule steps: each step is recorded and replayed, and wrong arguments
//! cause errors that name the step and the parameter.

use anyfn_core as _;
use anyfn_reflect as _;

use anyfn::reflection::TypeInfo;
use anyfn::{Any, Array, DType, Map, Ref, Result};
use anyfn_ir::expr::{Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::operand::Operand;
use anyfn_ir::{ops, printer};
use anyfn_schedule::{IndexMap, Kind, STEPS, Schedule, Step, StepInfo, Trace};
use anyfn_te::{Tensor, compute, create_prim_func, element, placeholder, reduce_axis, sum};

fn shape() -> Array<Expr> {
    [ops::i32(16), ops::i32(16)].into_iter().collect()
}

fn at(tensor: &Ref<Tensor>, indices: impl IntoIterator<Item = Expr>) -> Result<Expr> {
    element(tensor, indices.into_iter().collect())
}

/// Returns a function that computes `P = A * 2`, `Q = P + 1`, `C = Q @ B` and `D = C + 1`.
fn sample() -> Result<Ref<PrimFunc>> {
    let a = placeholder(shape(), DType::FLOAT32, "A")?;
    let b = placeholder(shape(), DType::FLOAT32, "B")?;
    let p = compute(shape(), "P", |i| ops::mul(at(&a, i.iter())?, ops::i32(2)))?;
    let q = compute(shape(), "Q", |i| ops::add(at(&p, i.iter())?, ops::i32(1)))?;
    let k = reduce_axis(ops::i32(0), ops::i32(16), "k")?;
    let c = compute(shape(), "C", |i| {
        let kv: Expr = k.var.clone().into_parent();
        let product = ops::mul(at(&q, [i.get(0)?, kv.clone()])?, at(&b, [kv, i.get(1)?])?)?;
        sum(product, [k.clone()].into_iter().collect())
    })?;
    let d = compute(shape(), "D", |i| ops::add(at(&c, i.iter())?, ops::i32(1)))?;
    create_prim_func(&[a, b, d].map(Ref::into_object), "f")
}

fn schedule() -> Result<Ref<Schedule>> {
    anyfn::registry::get("ffi.MakeObjectFromPackedArgs")?;
    Ok(Ref::new(Schedule::new(sample()?)?))
}

fn text(schedule: &Schedule) -> Result<String> {
    Ok(printer::text(schedule.func()?.as_object()))
}

/// Applies the step `name` to a schedule of [`sample`] with suitable arguments.
fn apply(schedule: &Schedule, name: &str) -> Result<()> {
    let one =
        |block: &str, number: usize| -> Result<Ref<Var>> { Ok(schedule.get_loops(block)?[number].clone()) };
    match name {
        "get_loops" => schedule.get_loops("C").map(drop),
        "split" => schedule.split(one("P", 0)?, vec![None, Some(4)]).map(drop),
        "fuse" => schedule.fuse(schedule.get_loops("P")?).map(drop),
        "reorder" => schedule.reorder(vec![one("P", 1)?, one("P", 0)?]),
        "parallel" => schedule.parallel(one("P", 0)?),
        "vectorize" => schedule.vectorize(one("P", 1)?),
        "unroll" => schedule.unroll(one("P", 1)?),
        "bind" => schedule.bind(one("P", 0)?, "threadIdx.x"),
        "decompose_reduction" => schedule.decompose_reduction("C", one("C", 2)?).map(drop),
        "cache_read" => schedule.cache_read("C", Any::new("B")?, "global").map(drop),
        "cache_write" => schedule.cache_write("C", Any::new(0)?, "local").map(drop),
        "set_scope" => schedule.set_scope("P", Any::new(0)?, "shared"),
        "transform_layout" => {
            let map =
                IndexMap::from_fn(&[DType::INT32; 2], |i| Ok([i.get(1)?, i.get(0)?].into_iter().collect()))?;
            let pad = Some(Operand(ops::i32(0)));
            schedule.transform_layout("P", Any::new("P")?, Any::new(Ref::new(map))?, pad)
        }
        "annotate" => schedule.annotate(Any::new("C")?, "note", Any::new(1)?),
        "rfactor" => schedule.rfactor("C", one("C", 2)?).map(drop),
        "compute_at" => schedule.compute_at("Q", one("C", 0)?),
        "reverse_compute_at" => schedule.reverse_compute_at("D", one("C", 1)?),
        "pad_axes" => schedule.pad_axes("P", vec![Some(32)]),
        "compute_inline" => schedule.compute_inline("P"),
        "reverse_compute_inline" => schedule.reverse_compute_inline("Q"),
        _ => panic!("step `{name}` is not tested: add a case that applies it"),
    }
}

#[test]
fn each_step_is_recorded_and_replayed() -> Result<()> {
    for info in STEPS {
        let schedule = schedule()?;
        apply(&schedule, info.name)?;
        let trace = schedule.trace();
        assert_eq!(&*trace.steps.last()?.name, info.name);
        let shown = trace.as_object().call_method("text", ())?.get::<String>()?;
        assert!(shown.contains(&format!("sch.{}(", info.name)), "{shown}");
        let again = Schedule::replay(sample()?, trace)?;
        assert_eq!(text(&again)?, text(&schedule)?, "{}", info.name);
    }
    Ok(())
}

#[test]
fn the_registered_method_of_each_step_has_its_parameters() -> Result<()> {
    let schedule = schedule()?;
    let known = TypeInfo::of(schedule.as_object());
    for info in STEPS {
        let method = known.method(info.name).expect("a registered method");
        let names = ["self"].into_iter().chain(info.parameters.iter().map(|parameter| parameter.name));
        let names: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
        let expected = format!("\"arg_names\":[{}]", names.join(","));
        assert!(method.metadata().contains(&expected), "{expected} in {}", method.metadata());
        assert!(!method.doc().is_empty(), "{}", info.name);
    }
    Ok(())
}

#[test]
fn a_wrong_argument_of_a_call_is_named() -> Result<()> {
    let schedule = schedule()?;
    let one = schedule.get_loops("C")?[0].clone();
    for info in STEPS {
        for (number, wrong) in info.parameters.iter().enumerate() {
            // Arguments of these kinds may be values of any type, which the step itself checks.
            if matches!(wrong.kind, Kind::Buffer | Kind::IndexMap | Kind::Target | Kind::Value) {
                continue;
            }
            let mut args = Vec::new();
            for (place, parameter) in info.parameters.iter().enumerate() {
                args.push(match parameter.kind {
                    _ if place == number => Any::new(Map::<Any, Any>::new())?,
                    Kind::Block | Kind::Target | Kind::Text => Any::new("C")?,
                    Kind::Loop => Any::new(one.clone())?,
                    Kind::Loops | Kind::Numbers => Any::new(Array::<Any>::new())?,
                    Kind::Buffer | Kind::IndexMap | Kind::Pad | Kind::Value => Any::NONE,
                });
            }
            let error = schedule.as_object().call_method(info.name, &args[..]).unwrap_err();
            assert!(error.message().contains(&format!("tir.Schedule.{}(", info.name)), "{error}");
            let detail = error.context().and_then(|detail| Map::<Any, Any>::try_from_object(detail).ok());
            let detail = detail.expect("details of the error");
            let argument = detail.get_any("argument")?.expect("the name of the argument").get::<String>()?;
            assert_eq!(argument, wrong.name, "{error}");
        }
    }
    Ok(())
}

/// Applies the step `info` to a schedule of [`sample`]. Returns the steps recorded before it, and the
/// recorded step itself.
fn recorded(info: &StepInfo) -> Result<(Vec<Ref<Step>>, Ref<Step>)> {
    let schedule = schedule()?;
    apply(&schedule, info.name)?;
    let mut before: Vec<Ref<Step>> = schedule.trace().steps.iter().collect();
    let last = before.pop().expect("the step itself");
    Ok((before, last))
}

/// Replays the steps `before` and a damaged step, which must be refused. Returns the error message.
fn refused(before: &[Ref<Step>], damaged: Step) -> Result<String> {
    let steps = before.iter().cloned().chain([Ref::new(damaged)]).collect();
    let replayed = Schedule::replay(sample()?, Ref::new(Trace { steps }));
    Ok(replayed.map(drop).unwrap_err().message().to_owned())
}

#[test]
fn a_wrong_argument_of_a_replayed_step_is_named() -> Result<()> {
    for info in STEPS {
        let (before, last) = recorded(info)?;
        let mut place = 0;
        for parameter in info.parameters {
            let mut damaged = Step::clone(&last);
            match parameter.kind {
                Kind::Block => damaged.block = None,
                Kind::Loop => damaged.loops = Array::new(),
                Kind::Loops => damaged.loops = [1_i64 << 20].into_iter().collect(),
                Kind::Target => (damaged.block, damaged.loops) = (None, Array::new()),
                // All integers fit; the step itself checks them.
                Kind::Numbers => continue,
                Kind::Buffer | Kind::Value => damaged.args.truncate(place)?,
                Kind::Text | Kind::IndexMap | Kind::Pad => {
                    damaged.args.set(place, Any::new(Map::<Any, Any>::new())?)?;
                }
            }
            let message = refused(&before, damaged)?;
            for name in [info.name, parameter.name] {
                assert!(message.contains(&format!("`{name}`")), "{name} in {message}");
            }
            place +=
                usize::from(!matches!(parameter.kind, Kind::Block | Kind::Loop | Kind::Loops | Kind::Target));
        }
    }
    Ok(())
}

#[test]
fn a_surplus_argument_of_a_replayed_step_is_refused() -> Result<()> {
    let mut counts = [0; 4];
    for info in STEPS {
        let (before, last) = recorded(info)?;
        let takes = |kinds: &[Kind]| info.parameters.iter().any(|parameter| kinds.contains(&parameter.kind));
        let check = |what: &str, damaged: Step| -> Result<()> {
            let message = refused(&before, damaged)?;
            let expected = format!("step `{}` got {what}, which it does not take", info.name);
            assert_eq!(message, expected);
            Ok(())
        };
        if !takes(&[Kind::Block, Kind::Target]) {
            let mut damaged = Step::clone(&last);
            damaged.block = Some("C".into());
            check("a block", damaged)?;
            counts[0] += 1;
        }
        // The target of the sample is a block, so that a loop is surplus.
        if !takes(&[Kind::Loop, Kind::Loops]) {
            let mut damaged = Step::clone(&last);
            damaged.loops = [0_i64].into_iter().collect();
            check("loops", damaged)?;
            counts[1] += 1;
        }
        if !takes(&[Kind::Numbers]) {
            let mut damaged = Step::clone(&last);
            damaged.numbers = [Some(1_i64)].into_iter().collect();
            check("numbers", damaged)?;
            counts[2] += 1;
        }
        let mut damaged = Step::clone(&last);
        damaged.args.push(Any::new(1)?)?;
        check("more arguments", damaged)?;
        counts[3] += 1;
    }
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    Ok(())
}
