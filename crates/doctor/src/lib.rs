//! Diagnosis of the installation (`anyfn doctor`): tries each component, such as the compiler or a device,
//! and reports the results.
//!
//! A check is a registered function `anyfn.doctor.<name>` without arguments. It returns a map or a list of maps with
//! these keys: `id`; `status`, which is `ok`, `off` (absent, which is not a defect) or `problem` (should work but does
//! not); `done` (what was tried); `why` (what was found); `to_do` (what to do about it). Drivers and other languages
//! register further checks. The checks of this crate are in `process` (the runtime itself, the loader), `compiler`,
//! `machine` (threads, memory, disk) and `devices`. `compat` is another tool, which replaces the library of a package by ours.

// Links the runtime into the tests.
#[cfg(test)]
extern crate anyfn_core as _;

pub mod compat;
mod compiler;
mod devices;
mod machine;
mod process;

use std::collections::BTreeSet;
use std::fmt::Write;

use anyfn::{Any, Array, IntoAny, Map, Result, Schema, String as Text, register, registry};

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The component works.
    Ok,
    /// The component is absent, which is not a defect.
    Off,
    /// The component should work but does not.
    Problem,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Off => "off",
            Status::Problem => "problem",
        }
    }
}

/// Result of one check.
#[derive(Clone, Debug)]
pub struct Check {
    /// Name of the checked component, in parts separated by dots: `device.cuda`.
    pub id: String,
    /// Outcome of the check.
    pub status: Status,
    /// Description of the action that the check performed.
    pub done: String,
    /// Description of the result, or the reason for a problem.
    pub why: String,
    /// Suggested remedy, or an empty string if nothing needs to be done.
    pub to_do: String,
}

impl Check {
    fn new(id: &str, status: Status, done: impl Into<String>, why: impl Into<String>) -> Check {
        Check { id: id.into(), status, done: done.into(), why: why.into(), to_do: String::new() }
    }

    fn hint(mut self, to_do: impl Into<String>) -> Check {
        self.to_do = to_do.into();
        self
    }
}

impl IntoAny for Check {
    fn schema() -> Schema {
        <Map<Text, Any> as IntoAny>::schema()
    }
    fn into_any(self) -> Result<Any> {
        let fields = [
            ("id", self.id.into_any()?),
            ("status", self.status.name().into_any()?),
            ("done", self.done.into_any()?),
            ("why", self.why.into_any()?),
            ("to_do", self.to_do.into_any()?),
        ];
        let fields = fields.into_iter().map(|(name, value)| (Text::from(name), value));
        Map::<Text, Any>::try_from_iter(fields)?.into_any()
    }
}

const PREFIX: &str = "anyfn.doctor.";

/// Names of the checks that this crate registers, in the order in which the report lists their results. The
/// results of all other checks follow, sorted by name.
const OWN: [&str; 7] = ["runtime", "loader", "compiler", "threads", "memory", "storage", "devices"];

/// Runs all registered checks and returns their results, each as a map. A check that raises an error is reported as a
/// problem.
///
/// # Errors
/// Returns `MemoryError` if memory is exhausted.
#[register("anyfn.doctor", blocking)]
pub fn doctor() -> Result<Array<Any>> {
    // Drivers register checks of their own, when their library is opened.
    drop(anyfn_runtime::device::devices());
    let mut names: Vec<String> = registry::list()?;
    names.retain(|name| name.starts_with(PREFIX));
    anyfn::__private::sort(&mut names);
    let is_own = |name: &String| OWN.contains(&&name[PREFIX.len()..]);
    let (own, others): (Vec<String>, Vec<String>) = names.into_iter().partition(is_own);
    let own = OWN.iter().map(|name| (true, format!("{PREFIX}{name}"))).filter(|(_, name)| own.contains(name));
    let others = others.into_iter().map(|name| (false, name));
    let mut checks: Vec<(bool, Any)> = Vec::new();
    for (is_own, name) in own.chain(others) {
        let found = match registry::get(&name).and_then(|check| check.call(())).and_then(listed) {
            Ok(found) => found,
            Err(error) => {
                let why = format!("it raised {}: {}", error.kind(), error.message());
                let check = Check::new(&name[PREFIX.len()..], Status::Problem, format!("called {name}"), why);
                vec![check.hint("repair or remove the check").into_any()?]
            }
        };
        checks.extend(found.into_iter().map(|check| (is_own, check)));
    }
    // The check of a driver takes precedence over the check of this crate with the same id.
    let others: BTreeSet<String> =
        checks.iter().filter(|(own, _)| !own).filter_map(|(_, check)| id(check)).collect();
    checks.retain(|(is_own, check)| !is_own || id(check).is_none_or(|id| !others.contains(&id)));
    Array::try_from_iter(checks.into_iter().map(|(_, check)| check))
}

/// Returns the results of a check as a list. `found` is the value that the check returned: one result or a
/// list of results. Each result must be a map that has all required keys.
fn listed(found: Any) -> Result<Vec<Any>> {
    let list = match found.get::<Array<Any>>() {
        Ok(list) => list.iter().collect(),
        Err(_) => vec![found],
    };
    for check in &list {
        let map = check.get::<Map<Text, Any>>()?;
        for key in ["id", "status", "done", "why", "to_do"] {
            let value = map.get(Text::from(key))?;
            let text = value.as_ref().and_then(|value| value.get::<&str>().ok());
            let fits = match (key, text) {
                ("status", Some(text)) => matches!(text, "ok" | "off" | "problem"),
                (_, text) => text.is_some(),
            };
            if !fits {
                anyfn::bail!(
                    "ValueError",
                    "expected a map with the strings id, status (ok, off or problem), done, why and to_do but \
                     `{key}` is missing or invalid"
                );
            }
        }
    }
    Ok(list)
}

fn field(check: &Any, key: &str) -> Option<String> {
    let value = check.get::<Map<Text, Any>>().ok()?.get(Text::from(key)).ok()??;
    value.get::<&str>().ok().map(ToOwned::to_owned)
}

fn id(check: &Any) -> Option<String> {
    field(check, "id")
}

/// Formats the results of checks as text: a few lines for each result, and the number of results of each status.
///
/// # Errors
/// Never returns an error: an element that is not a result is shown with empty fields.
#[register("anyfn.doctor_text")]
pub fn doctor_text(checks: Array<Any>) -> Result<String> {
    let mut text = String::new();
    let mut counts = [("ok", 0), ("off", 0), ("problem", 0)];
    for check in checks.iter() {
        let of = |key: &str| field(&check, key).unwrap_or_default();
        let status = of("status");
        for (name, count) in &mut counts {
            *count += usize::from(*name == status);
        }
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{status:<8} {:<18} {}", of("id"), of("why"));
        let _ = writeln!(text, "{:27} tried: {}", "", of("done"));
        if !of("to_do").is_empty() {
            let _ = writeln!(text, "{:27} to do: {}", "", of("to_do"));
        }
    }
    let [(_, ok), (_, off), (_, problems)] = counts;
    let plural = if problems == 1 { "" } else { "s" };
    let _ = write!(text, "{} checks: {ok} ok, {off} off, {problems} problem{plural}", checks.len());
    Ok(text)
}

/// Formats a number of bytes with a suitable unit, such as `1.5 KiB`.
fn bytes(number: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = number as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{number} {}", UNITS[0]) } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_a_unit_that_fits() {
        assert_eq!(bytes(17), "17 bytes");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 30), "3.0 GiB");
    }
}
