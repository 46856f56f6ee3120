//! Results of a profiler recording: statistics of functions, and the timeline of calls.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::ops::Range;

use anyfn::__private::sort_by;
use anyfn::Object;

use super::names::Texts;
use super::recorded::{Event, Thread};
use crate::units::Seconds;

/// Statistics of the calls to all functions that have the same name. Times are in seconds.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Function {
    /// Name of the function.
    pub name: String,
    /// Number of finished calls.
    pub calls: u64,
    /// Number of finished calls that raised errors.
    pub errors: u64,
    /// Total time of all calls in seconds. The time of recursive calls is not counted twice.
    pub total: f64,
    /// Time of the shortest call in seconds.
    pub min: f64,
    /// Time of the longest call in seconds.
    pub max: f64,
    /// Self time in seconds: total time of all calls without the calls that they made.
    pub self_time: f64,
    /// Self time as a fraction of the self time of all functions, from 0 to 1.
    pub share: f64,
}

impl Function {
    /// Returns the mean time of a call in seconds: the total time divided by the number of calls.
    pub fn mean(&self) -> f64 {
        self.total / self.calls.max(1) as f64
    }
}

/// Sort key of a table of functions. Numbers are sorted in descending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Self time of a function: the time of its calls without the calls that they make.
    #[default]
    SelfTime,
    /// Total time of a function: the time of its calls, including the calls that they make.
    Total,
    /// Mean time of a function's calls.
    Mean,
    /// Time of a function's longest call.
    Max,
    /// Number of calls to a function.
    Calls,
    /// Name of the function, in ascending order.
    Name,
}

/// Profile of the calls between [`start`](super::start) and [`stop`](super::stop).
#[derive(Object)]
#[object(key = "anyfn.Profile", init = false)]
pub struct Profile {
    /// Duration of the recording in seconds.
    pub duration: f64,
    /// Number of finished calls.
    pub calls: i64,
    /// Number of calls that are missing from the timeline. Calls that finish after the timeline has
    /// reached its maximum number of calls (`Options::limit`) are still counted in the table of
    /// functions. Calls on threads beyond the maximum number of recorded threads are missing from
    /// the table, too.
    pub dropped: i64,
    #[field(skip)]
    functions: Vec<Function>,
    /// Recorded threads, each with its calls in the order in which the calls began.
    #[field(skip)]
    pub(super) threads: Vec<Thread>,
    /// Work of the devices, one log for each stream.
    #[field(skip)]
    pub(super) devices: Vec<Thread>,
    #[field(skip)]
    pub(super) texts: Texts,
    /// Start of the recording in nanoseconds, on the same clock as the starts of the events.
    #[field(skip)]
    pub(super) began: u64,
}

const NANO: f64 = 1e-9;

impl Profile {
    pub(super) fn new(
        mut threads: Vec<Thread>,
        devices: Vec<Thread>,
        texts: Texts,
        time: Range<u64>,
        dropped: u64,
    ) -> Profile {
        let mut by_name: BTreeMap<u32, Function> = BTreeMap::new();
        let mut own: u64 = 0;
        for sum in threads.iter_mut().flat_map(|thread| std::mem::take(&mut thread.sums)) {
            let function = by_name.entry(sum.name).or_insert_with(|| Function {
                name: texts.get(sum.name).to_owned(),
                min: f64::INFINITY,
                ..Function::default()
            });
            function.calls += sum.calls;
            function.errors += sum.errors;
            function.total += sum.total as f64 * NANO;
            function.self_time += sum.own as f64 * NANO;
            function.min = function.min.min(sum.min as f64 * NANO);
            function.max = function.max.max(sum.max as f64 * NANO);
            own += sum.own;
        }
        let mut functions: Vec<Function> = by_name.into_values().collect();
        for function in &mut functions {
            function.share = if own > 0 { function.self_time / (own as f64 * NANO) } else { 0.0 };
        }
        for thread in &mut threads {
            // Of two calls that begin at the same time, the longer one contains the other.
            let key = |event: &Event| (event.start, std::cmp::Reverse(event.nanos));
            sort_by(&mut thread.events, |one, other| key(one).cmp(&key(other)));
        }
        let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        Profile {
            duration: time.end.saturating_sub(time.start) as f64 * NANO,
            calls: count(functions.iter().map(|function| function.calls).sum()),
            dropped: count(dropped),
            threads,
            devices,
            functions,
            texts,
            began: time.start,
        }
    }

    /// Returns the statistics of the recorded functions, sorted by `order`.
    pub fn functions(&self, order: Order) -> Vec<&Function> {
        let key = |function: &Function| match order {
            Order::SelfTime => function.self_time,
            Order::Total => function.total,
            Order::Mean => function.mean(),
            Order::Max => function.max,
            Order::Calls => function.calls as f64,
            Order::Name => 0.0,
        };
        let mut functions: Vec<&Function> = self.functions.iter().collect();
        sort_by(&mut functions, |a, b| key(b).total_cmp(&key(a)).then_with(|| a.name.cmp(&b.name)));
        functions
    }

    /// Formats the first `limit` functions in the order `order` as a table.
    pub fn table(&self, limit: usize, order: Order) -> String {
        let functions = self.functions(order);
        let shown = &functions[..limit.min(functions.len())];
        let mut text = format!(
            "{} in {}: {}, on {}\n",
            plural(self.calls as u64, "call"),
            Seconds(self.duration),
            plural(functions.len() as u64, "function"),
            plural(self.threads.len() as u64, "thread"),
        );
        if self.dropped > 0 {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{} missing from the timeline, because it was full or because too many threads made calls",
                plural(self.dropped as u64, "call")
            );
        }
        const WIDEST: usize = 60;
        let width = shown.iter().map(|function| function.name.chars().count()).max().unwrap_or(0);
        let width = width.clamp(8, WIDEST);
        let _ = writeln!(
            text,
            "{:<width$} {:>9} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6}",
            "function", "calls", "errors", "total", "mean", "min", "max", "self", "share"
        );
        for function in shown {
            let mut name: String = function.name.chars().take(WIDEST).collect();
            if name.len() < function.name.len() {
                name = function.name.chars().take(WIDEST - 3).chain("...".chars()).collect();
            }
            let Function { calls, errors, total, min, max, self_time, share, .. } = function;
            let time = |seconds: &f64| Seconds(*seconds);
            let _ = writeln!(
                text,
                "{name:<width$} {calls:>9} {errors:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>5.1}%",
                time(total),
                Seconds(function.mean()),
                time(min),
                time(max),
                time(self_time),
                100.0 * share
            );
        }
        if shown.len() < functions.len() {
            let _ = writeln!(text, "and {}", plural((functions.len() - shown.len()) as u64, "more function"));
        }
        text.truncate(text.trim_end().len());
        text
    }
}

/// Writes the table of the 50 functions with the greatest self time.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table(50, Order::default()))
    }
}

fn plural(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
