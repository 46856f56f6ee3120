//! Tests of passes that are Rust closures, and of pipelines that contain such passes.

use anyfn_core as _;
use anyfn_reflect as _;

use std::sync::{Arc, Mutex};

use anyfn::{Any, Array, DType, Map, Ref, Result, bail};
use anyfn_ir::expr::Expr;
use anyfn_ir::func::{ENTRY, IRModule, PrimFunc};
use anyfn_ir::stmt::{For, ForKind};
use anyfn_ir::visit::Mutator;
use anyfn_ir::{StmtKind, make, ops, printer};
use anyfn_passes::{Pass, Pipeline, Position, default_pipeline, make_packed_api, native};

/// Returns the function `for i in kind(4): A[i] = 1.0`.
fn func(kind: ForKind) -> Result<Ref<PrimFunc>> {
    let buffer = make::buffer("A", [ops::i32(4)].into_iter().collect(), DType::FLOAT32);
    let i = ops::var("i", DType::INT32);
    let indices: Array<Expr> = [i.clone().into_parent()].into_iter().collect();
    let store = make::store(&buffer, ops::float(1.0, DType::FLOAT32)?, indices)?;
    let body = make::for_of_kind(i, ops::i32(0), ops::i32(4), kind, store);
    let param = ops::var("A_handle", ops::HANDLE);
    Ok(Ref::new(PrimFunc {
        params: [param.clone()].into_iter().collect(),
        buffer_map: Map::try_from_iter([(param, buffer)])?,
        body,
        attrs: Map::try_from_iter([("global_symbol", "f")])?,
    }))
}

fn module(kind: ForKind) -> Result<Ref<IRModule>> {
    Ok(Ref::new(IRModule { functions: Map::try_from_iter([("f", func(kind)?)])?, attrs: Map::new() }))
}

/// Pass that changes the kind of all loops to `unrolled`.
fn unroll_all(func: &Ref<PrimFunc>, _: &Ref<IRModule>) -> Result<Ref<PrimFunc>> {
    struct Unroll;
    impl Mutator for Unroll {
        fn stmt(&mut self, stmt: &anyfn_ir::stmt::Stmt) -> Result<anyfn_ir::stmt::Stmt> {
            let StmtKind::For(node) = StmtKind::of(stmt) else { return self.below_stmt(stmt) };
            let node: &Ref<For> = node;
            let (var, min, extent) = (node.loop_var.clone(), node.min.clone(), node.extent.clone());
            Ok(make::for_of_kind(var, min, extent, ForKind::Unrolled, self.stmt(&node.body)?))
        }
    }
    let body = Unroll.stmt(&func.body)?;
    let (params, buffer_map, attrs) = (func.params.clone(), func.buffer_map.clone(), func.attrs.clone());
    Ok(Ref::new(PrimFunc { params, buffer_map, body, attrs }))
}

#[test]
fn a_closure_is_a_pass_in_the_default_pipeline() -> Result<()> {
    let pipeline = default_pipeline();
    pipeline.put(Position::Before, Some("unroll"), Pass::on_funcs("unroll_all", unroll_all))?;
    let module = pipeline.apply(&module(ForKind::Serial)?)?;
    assert_eq!(printer::text(module.as_object()).matches(" = 1.0").count(), 4);
    Ok(())
}

#[test]
fn an_error_tells_pass_and_function() -> Result<()> {
    let pass = Pass::on_funcs("broken", |_, _| bail!("KeyError", "no"));
    let error = pass.apply(&module(ForKind::Serial)?).map(drop).unwrap_err();
    assert_eq!((error.kind(), error.message()), ("KeyError", "no"));
    let context = error.context().map(Map::<anyfn::Any, anyfn::Any>::try_from_object);
    let Some(Ok(context)) = context else { panic!("the error has no notes") };
    let notes = context.get_any("notes")?.map(anyfn::Any::get::<Vec<String>>);
    assert_eq!(notes.unwrap()?, ["in pass `broken` on function `f`"]);
    Ok(())
}

#[test]
fn names_are_unique_and_known_in_messages() -> Result<()> {
    let same = || Pass::on_modules("same", |module| Ok(module.clone()));
    let pipeline = Pipeline::new("mine", [same(), same()]);
    pipeline.put(Position::After, None, same())?;
    assert_eq!(pipeline.names(), ["same", "same_2", "same_3"]);
    pipeline.put(Position::Instead, Some("same_2"), Pass::on_modules("other", |module| Ok(module.clone())))?;
    pipeline.remove("same")?;
    assert_eq!(pipeline.names(), ["other", "same_3"]);
    let error = pipeline.remove("same").unwrap_err();
    assert_eq!(error.message(), "pipeline `mine` has no pass `same`; it has other, same_3");
    Ok(())
}

#[test]
fn a_watcher_sees_the_program_between_passes() -> Result<()> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let pipeline = default_pipeline();
    let watched = seen.clone();
    pipeline.watch_with(move |moment| {
        let text = printer::text(moment.module.as_object());
        watched.lock().unwrap().push((moment.is_after, moment.name.to_owned(), text.contains("unroll")));
        Ok(())
    });
    pipeline.apply(&module(ForKind::Unrolled)?)?;
    let seen = seen.lock().unwrap();
    let of =
        |name: &str, is_after| seen.iter().find(|(after, n, _)| (*after, &**n) == (is_after, name)).unwrap().2;
    assert!(of("unroll", false) && !of("unroll", true));
    assert_eq!(seen.len(), 2 * pipeline.names().len());
    assert_eq!(pipeline.times().len(), pipeline.names().len());
    Ok(())
}

#[test]
fn every_pass_of_the_compiler_is_registered_alone() -> Result<()> {
    for (name, _) in native::PASSES {
        let pass = native::find(name).expect("the pass is in the table");
        assert_eq!(&*pass.name, *name);
        let alone = anyfn::registry::get(&format!("tir.transform.{name}"))?;
        let lowered = alone.call((func(ForKind::Serial)?,))?;
        lowered.get::<Ref<PrimFunc>>()?;
    }
    Ok(())
}

#[test]
fn the_default_pipeline_consists_of_built_in_passes() {
    assert!(native::find("simplyfy").is_none());
    for pass in default_pipeline().passes() {
        assert!(native::find(&pass.name).is_some(), "{}", pass.name);
    }
}

#[test]
fn entries_are_requested_once() -> Result<()> {
    let plain = func(ForKind::Serial)?;
    assert!(!plain.has_packed_entry()?);
    let entry = make_packed_api(&plain)?;
    assert!(entry.has_packed_entry()? && make_packed_api(&entry)?.ptr_eq(&entry));
    assert!(entry.body.ptr_eq(&plain.body));
    let other = PrimFunc::with_attr(plain, ENTRY.into(), Any::new(1i64)?)?;
    assert!(make_packed_api(&other)?.ptr_eq(&other));
    let error = other.has_packed_entry().expect_err("the value is no string");
    assert_eq!(error.message(), "the attribute `entry` must be \"packed\" but is a `int`");
    Ok(())
}
