//! Registered functions of the profiler for other languages.

use std::fs::File;
use std::io::{BufWriter, Write};

use anyfn::{Any, Array, Map, Ref, Result, String as Text, bail, register};

use super::{Options, Order, Profile};

/// Starts to record the calls of all languages and threads. At most `limit` calls are kept individually, for
/// the timeline; further calls are counted only in the table. With `shapes`, the types and shapes of
/// arguments are kept as well.
#[register("anyfn.profile.start")]
fn start(#[default(1000000)] limit: usize, #[default(false)] shapes: bool) -> Result<()> {
    super::start(Options { limit, shapes })
}

/// Ends the recording and returns the profile.
#[register("anyfn.profile.stop")]
fn stop() -> Result<Ref<Profile>> {
    super::stop().map(Ref::new)
}

/// Returns true while a recording is running.
#[register("anyfn.profile.is_on")]
fn is_on() -> bool {
    super::is_on()
}

/// Formats the recorded functions as a table of at most `limit` rows, sorted by "self", "total", "mean", "max", "calls"
/// or "name".
#[register("anyfn.profile.table")]
fn table(profile: Ref<Profile>, #[default(50)] limit: usize, #[default("self")] sort: &str) -> Result<String> {
    Ok(profile.table(limit, order(sort)?))
}

/// Returns the statistics of the recorded functions as a list of maps, sorted by `sort` as in `anyfn.profile.table`.
/// Times are in seconds.
#[register("anyfn.profile.functions")]
fn functions(profile: Ref<Profile>, #[default("self")] sort: &str) -> Result<Array<Any>> {
    let mut list = Array::<Any>::new();
    for function in profile.functions(order(sort)?) {
        let fields = [
            ("name", Any::new(&*function.name)?),
            ("calls", Any::new(function.calls)?),
            ("errors", Any::new(function.errors)?),
            ("total", Any::new(function.total)?),
            ("mean", Any::new(function.mean())?),
            ("min", Any::new(function.min)?),
            ("max", Any::new(function.max)?),
            ("self", Any::new(function.self_time)?),
            ("share", Any::new(function.share)?),
        ];
        let fields = fields.into_iter().map(|(name, value)| (Text::from(name), value));
        list.push(Any::new(Map::<Text, Any>::try_from_iter(fields)?)?)?;
    }
    Ok(list)
}

/// Returns the timeline as JSON in the trace event format, which `chrome://tracing` and Perfetto's viewer show.
#[register("anyfn.profile.trace")]
fn trace(profile: Ref<Profile>) -> Result<String> {
    let mut text = Vec::new();
    if let Err(error) = profile.write_trace(&mut text) {
        bail!("RuntimeError", "anyfn.profile.trace: {error}");
    }
    match String::from_utf8(text) {
        Ok(text) => Ok(text),
        Err(error) => bail!("InternalError", "anyfn.profile.trace: {error}"),
    }
}

/// Writes the timeline to the file `path` as JSON in the trace event format, which `chrome://tracing` and Perfetto's
/// viewer show.
#[register("anyfn.profile.save", blocking)]
fn save(profile: Ref<Profile>, path: &str) -> Result<()> {
    let write = || {
        let mut file = BufWriter::new(File::create(path)?);
        profile.write_trace(&mut file)?;
        file.flush()
    };
    match write() {
        Ok(()) => Ok(()),
        Err(error) => bail!("OSError", "cannot write {path}: {error}"),
    }
}

fn order(name: &str) -> Result<Order> {
    Ok(match name {
        "self" => Order::SelfTime,
        "total" => Order::Total,
        "mean" => Order::Mean,
        "max" => Order::Max,
        "calls" => Order::Calls,
        "name" => Order::Name,
        other => bail!(
            "ValueError",
            "expected `sort` to be \"self\", \"total\", \"mean\", \"max\", \"calls\" or \"name\" but got {other:?}"
        ),
    })
}
