//! What has been done to a function, so that it can be done again.

use anyfn::{Array, Object, Ref, Result, String, bail, methods};
use anyfn_ir::expr::Var;
use anyfn_ir::func::PrimFunc;
use anyfn_ir::stmt::ForKind;

use crate::{blocks, loops, tree};

/// One step.
#[derive(Object, Clone)]
#[object(key = "tir.ScheduleStep", structural = "tree")]
pub struct Step {
    /// What was done.
    pub name: String,
    /// Numbers of the loops it was done to: loops are numbered as steps have given them.
    pub loops: Array<i64>,
    /// The block it was done to.
    pub block: Option<String>,
    /// Factors.
    pub numbers: Array<Option<i64>>,
    /// How many loops it gave.
    pub results: i64,
}

/// Steps, in the order in which they were done.
#[derive(Object)]
#[object(key = "tir.Trace", structural = "tree")]
pub struct Trace {
    /// The steps.
    pub steps: Array<Ref<Step>>,
}

impl Step {
    pub(crate) fn new(name: &str, loops: Vec<i64>, block: Option<&str>, numbers: &[Option<i64>]) -> Step {
        Step {
            name: name.into(),
            loops: loops.into_iter().collect(),
            block: block.map(String::from),
            numbers: numbers.iter().copied().collect(),
            results: 0,
        }
    }
}

#[methods]
impl Trace {
    /// The steps as a program.
    fn text(&self) -> std::string::String {
        let mut known = 0;
        let mut lines = Vec::new();
        for step in self.steps.iter() {
            let mut args: Vec<std::string::String> =
                step.block.iter().map(|name| format!("{:?}", &**name)).collect();
            args.extend(step.loops.iter().map(|number| format!("l{number}")));
            if !step.numbers.is_empty() {
                let number = |n: Option<i64>| n.map_or_else(|| "None".to_owned(), |n| n.to_string());
                args.push(format!("[{}]", step.numbers.iter().map(number).collect::<Vec<_>>().join(", ")));
            }
            let results: Vec<_> = (known..known + step.results).map(|number| format!("l{number}")).collect();
            let equals = if results.is_empty() { "" } else { " = " };
            lines.push(format!("{}{equals}sch.{}({})", results.join(", "), step.name, args.join(", ")));
            known += step.results;
        }
        lines.join("\n")
    }
}

/// Does a step; gives the function and the loops that are new or were asked for.
pub(crate) fn apply(
    func: &Ref<PrimFunc>,
    name: &str,
    loops: &[Ref<Var>],
    block: Option<&str>,
    numbers: &[Option<i64>],
) -> Result<(Ref<PrimFunc>, Vec<Ref<Var>>)> {
    let kinds =
        [("parallel", ForKind::Parallel), ("vectorize", ForKind::Vectorized), ("unroll", ForKind::Unrolled)];
    let block =
        || block.ok_or_else(|| anyfn::Error::new("ValueError", &format!("step `{name}` needs a block")));
    let one = || match loops {
        [only] => Ok(only),
        _ => bail!("ValueError", "step `{name}` needs one loop but got {}", loops.len()),
    };
    match name {
        "get_loops" => {
            let place = tree::find_block(func, block()?)?;
            Ok((func.clone(), place.loops.iter().map(|node| node.loop_var.clone()).collect()))
        }
        "split" => loops::split(func, one()?, numbers),
        "fuse" => loops::fuse(func, loops).map(|(func, fused)| (func, vec![fused])),
        "reorder" => Ok((loops::reorder(func, loops)?, Vec::new())),
        "decompose_reduction" => Ok((blocks::decompose_reduction(func, block()?, one()?)?.0, Vec::new())),
        "compute_inline" => Ok((blocks::compute_inline(func, block()?)?, Vec::new())),
        _ => match kinds.iter().find(|(known, _)| *known == name) {
            Some((_, kind)) => Ok((loops::annotate(func, one()?, *kind)?, Vec::new())),
            None => bail!("ValueError", "there is no step `{name}`"),
        },
    }
}
