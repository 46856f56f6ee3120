//! `anyfn doctor`: checks each part of the installation, and reports why a part does not work.

use std::process::ExitCode;

use anyfn::{Any, Array, Result, registry};
use serde_json::{Value, json};

use crate::usage::wrong;
use crate::{inspect, output};

/// Runs `anyfn doctor`. `words` are the command-line arguments after the command's name.
pub(crate) fn run(words: &[&str]) -> ExitCode {
    let as_json = match words {
        [] => false,
        ["--json"] => true,
        [other, ..] => return wrong(&format!("`doctor` has no option `{other}`")),
    };
    let (text, fine) = match report(as_json) {
        Ok(found) => found,
        Err(error) => return output::report(&error.message()),
    };
    match output::write(&text) {
        Err(error) => output::report(&error),
        Ok(()) if fine => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
    }
}

/// Returns the report, and true if no check found a problem.
fn report(as_json: bool) -> Result<(String, bool)> {
    let checks = registry::get("anyfn.doctor")?.call(())?.get::<Array<Any>>()?;
    let found: Vec<Value> = checks.iter().map(|check| inspect::json(&check)).collect::<Result<_>>()?;
    let fine = found.iter().all(|check| check["status"] != "problem");
    if as_json {
        let abi = anyfn::abi::ABI_VERSION;
        let whole = json!({
            "anyfn": env!("CARGO_PKG_VERSION"),
            "abi": format!("{}.{}.{}", abi.major, abi.minor, abi.patch),
            "ok": fine,
            "checks": found,
        });
        return Ok((format!("{whole:#}\n"), fine));
    }
    let text = registry::get("anyfn.doctor_text")?.call((checks,))?;
    Ok((format!("{}\n", text.get::<&str>()?), fine))
}
