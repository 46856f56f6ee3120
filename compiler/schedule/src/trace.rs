//! Traces of schedules: recorded steps that can be replayed.

use anyfn::{Any, Array, Object, Ref, Result, String, bail, methods};
use anyfn_ir::printer;

use crate::index_map::IndexMap;
use crate::loops;

/// Maximum length, in bytes, of the text of each IR node in a printed trace.
const LONGEST: usize = 1 << 16;

/// Origin of a step that was replayed.
const REPLAY: &str = "replay";

/// Maximum total number of loops that the steps of a printed trace may return.
const MOST_LOOPS: i64 = 1 << 20;

/// Recorded step of a schedule.
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
    /// Integer arguments: the factors of a `split` step, or the multiples of a `pad_axes` step.
    pub numbers: Array<Option<i64>>,
    /// Number of loops that the step returns.
    pub results: i64,
    /// Other arguments: buffers by name or index, strings, index maps, values.
    #[field(default)]
    pub args: Array<Any>,
    /// Location of the call that applied the step, such as `tune.py:14`. `None` if it is unknown, such as
    /// for calls of languages other than Python.
    #[field(default, structural = "ignore", compare = false, hash = false)]
    pub source: Option<String>,
    /// Source line at that location.
    #[field(default, structural = "ignore", compare = false, hash = false)]
    pub code: Option<String>,
    /// Origin of a step that the program has not applied by a call of the step's method: `default_schedule`,
    /// `replay`, or `replay of default_schedule`.
    #[field(default, structural = "ignore", compare = false, hash = false)]
    pub origin: Option<String>,
}

/// Steps of a schedule in the order in which they were applied.
#[derive(Object)]
#[object(key = "tir.Trace", structural = "tree")]
pub struct Trace {
    /// Recorded steps, in the order in which they were applied.
    pub steps: Array<Ref<Step>>,
}

impl Step {
    /// Creates an empty record of the step `name`. The arguments are added to the record
    /// afterwards.
    pub(crate) fn new(name: &str) -> Step {
        Step {
            name: name.into(),
            loops: Array::new(),
            block: None,
            numbers: Array::new(),
            results: 0,
            args: Array::new(),
            source: None,
            code: None,
            origin: None,
        }
    }

    /// Returns the step with the origin of a step that is replayed. Its source remains the original one.
    pub(crate) fn replayed(&self) -> Step {
        let origin = match self.origin.as_deref() {
            None => REPLAY.to_owned(),
            Some(origin) if origin.starts_with(REPLAY) => origin.to_owned(),
            Some(origin) => format!("{REPLAY} of {origin}"),
        };
        Step { origin: Some(origin.into()), ..self.clone() }
    }

    /// Returns origin, source and code as one line, such as `tune.py:14: schedule.parallel(outer)`, or `None` if none of
    /// them is known.
    fn origin_text(&self) -> Option<std::string::String> {
        let source = self.source.as_deref();
        let mut text = match (self.origin.as_deref(), source) {
            (Some(origin), Some(source)) => format!("{origin}, {source}"),
            (origin, source) => origin.or(source)?.to_owned(),
        };
        if let (Some(_), Some(code)) = (source, self.code.as_deref()) {
            text = format!("{text}: {code}");
        }
        // A loaded trace may contain any characters.
        Some(text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect())
    }
}

#[methods]
impl Trace {
    /// Returns the steps as source code, one line for each step, such as `l1, l2 = sch.split(l0, [None, 4])`. If
    /// `sources` is true, a comment after each step contains its origin, source and code, as far as they are known.
    fn text(&self, #[default(false)] sources: bool) -> Result<std::string::String> {
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
                bail!(
                    "ValueError",
                    "invalid trace: step `{}` cannot have returned {} loops",
                    step.name,
                    step.results
                )
            };
            let results: Vec<_> = (known..end).map(|number| format!("l{number}")).collect();
            let equals = if results.is_empty() { "" } else { " = " };
            let mut line = format!("{}{equals}sch.{}({})", results.join(", "), step.name, args.join(", "));
            if let Some(origin) = step.origin_text().filter(|_| sources) {
                line = format!("{line}  # {origin}");
            }
            bytes += line.len();
            if bytes > printer::MOST_BYTES {
                bail!("ValueError", "cannot print the trace: it has more than {} bytes", printer::MOST_BYTES);
            }
            lines.push(line);
            known = end;
        }
        Ok(lines.join("\n"))
    }
}

/// Returns an argument of a step in the form used in a printed trace.
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
