//! Tests of pipelines in which a pass of the compiler is replaced or omitted.

use anyfn_host as _;

use anyfn::{DType, Module, Ref, Result, Tensor};
use anyfn_compiler::ir::func::PrimFunc;
use anyfn_compiler::ir::stmt::{ForKind, Stmt};
use anyfn_compiler::ir::visit::Mutator;
use anyfn_compiler::ir::{StmtKind, make, ops};
use anyfn_compiler::parser::parse_func;
use anyfn_compiler::passes::{Pass, Pipeline, Position, lower_parallel};
use anyfn_compiler::{build, default_pipeline, source};

const SCALE: &str = r#"
def scale(A: Buffer((n, 8), "float32"), B: Buffer((n, 8), "float32"), factor: int32):
    for i in parallel(n):
        for j in range(8):
            B[i, j] = A[i, j] * float32(factor)
"#;

/// Returns the default pipeline with another pass in place of `lower_parallel`.
fn lowered_by(
    name: &str,
    pass: impl Fn(&Ref<PrimFunc>) -> Result<Ref<PrimFunc>> + Send + Sync + 'static,
) -> Result<Ref<Pipeline>> {
    let pipeline = default_pipeline()?;
    pipeline.put(Position::Instead, Some("lower_parallel"), Pass::on_funcs(name, move |func, _| pass(func)))?;
    Ok(pipeline)
}

/// Calls the function `scale` of a module and checks its results.
fn check(module: &Module) -> Result<()> {
    let n = 33;
    let numbers: Vec<f32> = (0..n * 8).map(|number| number as f32).collect();
    let a = Tensor::from_slice(&[n, 8], &numbers)?;
    let b = Tensor::zeros(DType::FLOAT32, &[n, 8])?;
    module.get_function("scale")?.call((a.view(), b.view(), 3))?;
    let expected: Vec<f32> = numbers.iter().map(|number| number * 3.0).collect();
    assert_eq!(b.to_vec::<f32>()?, expected);
    Ok(())
}

/// Mutator that changes parallel loops to serial loops.
struct Serial;

impl Mutator for Serial {
    fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        let stmt = self.below_stmt(stmt)?;
        match StmtKind::of(&stmt) {
            StmtKind::For(node) if node.kind == ForKind::Parallel => {
                Ok(make::for_like(node, ForKind::Serial, node.body.clone(), node.annotations.clone()))
            }
            _ => Ok(stmt),
        }
    }
}

/// Mutator that sets the number of tasks of each launch to two.
struct TwoTasks;

impl Mutator for TwoTasks {
    fn stmt(&mut self, stmt: &Stmt) -> Result<Stmt> {
        let stmt = self.below_stmt(stmt)?;
        match StmtKind::of(&stmt) {
            StmtKind::Launch(node) => Ok(make::launch(ops::i32(2), node.body.clone())),
            _ => Ok(stmt),
        }
    }
}

#[test]
fn parallel_lowering_is_a_pass_that_a_pipeline_replaces() -> Result<()> {
    let func = parse_func(SCALE)?;
    let launched = "if (anyfn_parallel(scale_task0, &shared) != 0) return -1;";
    assert!(source(&func, None)?.contains(launched));
    check(&build(&func, None)?)?;

    let serial = lowered_by("serial", |func| Ok(PrimFunc::with_body(func.clone(), Serial.stmt(&func.body)?)))?;
    let text = source(&func, Some(&serial))?;
    assert!(!text.contains("scale_task0"), "{text}");
    check(&build(&func, Some(&serial))?)?;
    assert!(serial.times().iter().any(|(name, _)| name == "serial"));

    let two = lowered_by("two_tasks", |func| {
        let func = lower_parallel(func)?;
        Ok(PrimFunc::with_body(func.clone(), TwoTasks.stmt(&func.body)?))
    })?;
    let text = source(&func, Some(&two))?;
    assert!(text.contains("if (anyfn_parallel_in(2, scale_task0, &shared) != 0) return -1;"), "{text}");
    check(&build(&func, Some(&two))?)
}

#[test]
fn code_needs_lowered_loops() -> Result<()> {
    let pipeline = default_pipeline()?;
    pipeline.remove("lower_parallel")?;
    let error = source(&parse_func(SCALE)?, Some(&pipeline)).expect_err("the loop is not lowered");
    assert!(error.message().contains("run the pass `lower_parallel`"), "{}", error.message());
    Ok(())
}
