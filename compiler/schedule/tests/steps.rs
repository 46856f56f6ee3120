//! Tests of all steps of the table: each is recorded and replayed, and wrong arguments cause errors that name
//! them.

use anyfn_core as _;
use anyfn_reflect as _;

use anyfn::reflection::TypeInfo;
use anyfn::{Any, Array, DType, Map, Ref, Result};
use anyfn_ir::expr::{Expr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::operand::Operand;
use anyfn_ir::{ops, printer};
use anyfn_schedule::{IndexMap, STEPS, Schedule, Step, Trace};
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
        "decompose_reduction" => schedule.decompose_reduction("C", one("C", 2)?).map(drop),
        "cache_read" => schedule.cache_read("C", Any::new("B")?, "global").map(drop),
        "cache_write" => schedule.cache_write("C", Any::new(0)?, "local").map(drop),
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
            if matches!(wrong.kind, "Buffer" | "IndexMap" | "Target" | "Value") {
                continue;
            }
            let mut args = Vec::new();
            for (place, parameter) in info.parameters.iter().enumerate() {
                args.push(match parameter.kind {
                    _ if place == number => Any::new(Map::<Any, Any>::new())?,
                    "Block" | "Target" | "Text" => Any::new("C")?,
                    "Loop" => Any::new(one.clone())?,
                    "Loops" | "Numbers" => Any::new(Array::<Any>::new())?,
                    _ => Any::NONE,
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

#[test]
fn a_wrong_argument_of_a_replayed_step_is_named() -> Result<()> {
    for info in STEPS {
        let schedule = schedule()?;
        apply(&schedule, info.name)?;
        let mut before: Vec<Ref<Step>> = schedule.trace().steps.iter().collect();
        let last = before.pop().expect("the step itself");
        let refused = |damaged: Step| -> Result<String> {
            let steps = before.iter().cloned().chain([Ref::new(damaged)]).collect();
            let replayed = Schedule::replay(sample()?, Ref::new(Trace { steps }));
            Ok(replayed.map(drop).unwrap_err().message().to_owned())
        };
        let mut place = 0;
        for parameter in info.parameters {
            let mut damaged = Step::clone(&last);
            match parameter.kind {
                "Block" => damaged.block = None,
                "Loop" => damaged.loops = Array::new(),
                "Loops" => damaged.loops = [1_i64 << 20].into_iter().collect(),
                "Target" => (damaged.block, damaged.loops) = (None, Array::new()),
                // All integers fit; the step itself checks them.
                "Numbers" => continue,
                "Buffer" | "Value" => damaged.args.truncate(place)?,
                _ => damaged.args.set(place, Any::new(Map::<Any, Any>::new())?)?,
            }
            let message = refused(damaged)?;
            for name in [info.name, parameter.name] {
                assert!(message.contains(&format!("`{name}`")), "{name} in {message}");
            }
            place += usize::from(!matches!(parameter.kind, "Block" | "Loop" | "Loops" | "Target"));
        }
        let mut damaged = Step::clone(&last);
        damaged.args.push(Any::new(1)?)?;
        let message = refused(damaged)?;
        assert!(message.contains(&format!("step `{}` has more arguments", info.name)), "{message}");
    }
    Ok(())
}
