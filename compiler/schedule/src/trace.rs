//! Traces: recorded steps that can be replayed.

use anyfn::{Any, Array, Object, Ref, Result, String, bail, methods};
use anyfn_ir::expr::{PrimExpr, Var};
use anyfn_ir::func::PrimFunc;
use anyfn_ir::printer;
use anyfn_ir::stmt::ForKind;

use crate::index_map::IndexMap;
use crate::{
    annotate, blocks, cache, compute_at, layout, loops, pad_axes, reverse, reverse_inline, rfactor, tree,
};

/// Maximum length in bytes of one node when a trace is printed.
const LONGEST: usize = 1 << 16;

/// Maximum number of loops that all steps of a trace return together.
const MOST_LOOPS: i64 = 1 << 20;

/// A recorded step of a schedule.
#[derive(Object, Clone)]
#[object(key = "tir.ScheduleStep", structural = "tree")]
pub struct Step {
    /// Name of the step.
    pub name: String,
    /// Numbers of the loops that the step transforms. Loops are numbered from 0 in the order in which steps return
    /// them.
    pub loops: Array<i64>,
    /// Name of the block that the step transforms.
    pub block: Option<String>,
    /// Factors of `split`, or multiples of `pad_axes`.
    pub numbers: Array<Option<i64>>,
    /// Number of loops that the step returns.
    pub results: i64,
    /// Other arguments: buffers by name or index, strings, index maps, values.
    #[field(default)]
    pub args: Array<Any>,
}

/// The steps of a schedule, in the order in which they were applied.
#[derive(Object)]
#[object(key = "tir.Trace", structural = "tree")]
pub struct Trace {
    /// The recorded steps.
    pub steps: Array<Ref<Step>>,
}

impl Step {
    pub(crate) fn new(
        name: &str,
        loops: Vec<i64>,
        block: Option<&str>,
        numbers: &[Option<i64>],
        args: &[Any],
    ) -> Step {
        Step {
            name: name.into(),
            loops: loops.into_iter().collect(),
            block: block.map(String::from),
            numbers: numbers.iter().copied().collect(),
            results: 0,
            args: args.iter().cloned().collect(),
        }
    }
}

#[methods]
impl Trace {
    /// Returns the steps as source code, one line for each step, such as `l1, l2 = sch.split(l0, [None, 4])`.
    fn text(&self) -> Result<std::string::String> {
        let mut known = 0i64;
        let mut lines = Vec::new();
        let mut bytes = 0;
        for step in self.steps.iter() {
            let mut args: Vec<std::string::String> =
                step.block.iter().map(|name| format!("{:?}", &**name)).collect();
            args.extend(step.loops.iter().map(|number| format!("l{number}")));
            if !step.numbers.is_empty() {
                args.push(loops::factors_text(step.numbers.iter()));
            }
            args.extend(step.args.as_slice().iter().map(text_of));
            // A loaded trace may contain any numbers.
            let end = known.checked_add(step.results).filter(|end| (known..=MOST_LOOPS).contains(end));
            let Some(end) = end else {
                bail!("ValueError", "step `{}` cannot have given {} loops", step.name, step.results)
            };
            let results: Vec<_> = (known..end).map(|number| format!("l{number}")).collect();
            let equals = if results.is_empty() { "" } else { " = " };
            let line = format!("{}{equals}sch.{}({})", results.join(", "), step.name, args.join(", "));
            bytes += line.len();
            if bytes > printer::MOST_BYTES {
                bail!("ValueError", "the text of the trace has more than {} bytes", printer::MOST_BYTES);
            }
            lines.push(line);
            known = end;
        }
        Ok(lines.join("\n"))
    }
}

/// Returns an argument of a step as it is written in a printed trace.
fn text_of(value: &Any) -> std::string::String {
    if let Ok(text) = value.get::<&str>() {
        return format!("{text:?}");
    }
    if let Ok(map) = value.get::<Ref<IndexMap>>() {
        return map.text();
    }
    match (value.as_object(), value.type_key()) {
        (Some(object), _) => printer::text_within(object, LONGEST),
        (None, "bool") => if value.get::<bool>().unwrap_or(false) { "True" } else { "False" }.to_owned(),
        (None, "int") => value.get::<i64>().unwrap_or(0).to_string(),
        (None, "float") => format!("{:?}", value.get::<f64>().unwrap_or(0.0)),
        _ => "None".to_owned(),
    }
}

/// Applies the step `name`. Returns the new function and the loops that the step created. The step `get_loops` returns
/// the loops around a block.
pub(crate) fn apply(
    func: &Ref<PrimFunc>,
    name: &str,
    loops: &[Ref<Var>],
    block: Option<&str>,
    numbers: &[Option<i64>],
    args: &[Any],
) -> Result<(Ref<PrimFunc>, Vec<Ref<Var>>)> {
    let kinds =
        [("parallel", ForKind::Parallel), ("vectorize", ForKind::Vectorized), ("unroll", ForKind::Unrolled)];
    let name_of =
        || block.ok_or_else(|| anyfn::Error::new("ValueError", &format!("step `{name}` needs a block")));
    let arg = |place: usize| {
        args.get(place).ok_or_else(|| {
            anyfn::Error::new("ValueError", &format!("step `{name}` needs {} arguments", place + 1))
        })
    };
    let text = |place: usize| arg(place)?.get::<&str>();
    let one = || match loops {
        [only] => Ok(only),
        _ => bail!("ValueError", "step `{name}` needs one loop but got {}", loops.len()),
    };
    match name {
        "get_loops" => {
            let place = tree::find_block(func, name_of()?)?;
            Ok((func.clone(), place.loops.iter().map(|node| node.loop_var.clone()).collect()))
        }
        "split" => loops::split(func, one()?, numbers),
        "fuse" => loops::fuse(func, loops).map(|(func, fused)| (func, vec![fused])),
        "reorder" => Ok((loops::reorder(func, loops)?, Vec::new())),
        "decompose_reduction" => Ok((blocks::decompose_reduction(func, name_of()?, one()?)?.0, Vec::new())),
        "cache_read" => Ok((cache::cache_read(func, name_of()?, arg(0)?, text(1)?)?.0, Vec::new())),
        "cache_write" => Ok((cache::cache_write(func, name_of()?, arg(0)?, text(1)?)?.0, Vec::new())),
        "transform_layout" => {
            let map = arg(1)?.get::<Ref<IndexMap>>()?;
            let pad = args.get(2).map(|pad| pad.get::<Ref<PrimExpr>>()).transpose()?;
            Ok((layout::transform_layout(func, name_of()?, arg(0)?, &map, pad.as_ref())?, Vec::new()))
        }
        "annotate" => {
            let value = arg(1)?;
            let new = match block {
                Some(name) => annotate::block(func, name, text(0)?, value)?,
                None => annotate::one_loop(func, one()?, text(0)?, value)?,
            };
            Ok((new, Vec::new()))
        }
        "rfactor" => Ok((rfactor::rfactor(func, name_of()?, one()?)?, Vec::new())),
        "compute_at" => Ok((compute_at::compute_at(func, name_of()?, one()?)?, Vec::new())),
        "reverse_compute_at" => Ok((reverse::reverse_compute_at(func, name_of()?, one()?)?, Vec::new())),
        "pad_axes" => Ok((pad_axes::pad_axes(func, name_of()?, numbers)?, Vec::new())),
        "compute_inline" => Ok((blocks::compute_inline(func, name_of()?)?, Vec::new())),
        "reverse_compute_inline" => Ok((reverse_inline::reverse_compute_inline(func, name_of()?)?, Vec::new())),
        _ => match kinds.iter().find(|(known, _)| *known == name) {
            Some((_, kind)) => Ok((loops::annotate(func, one()?, *kind)?, Vec::new())),
            None => bail!("ValueError", "there is no step `{name}`"),
        },
    }
}
