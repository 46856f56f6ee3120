//! `anyfn doctor`: checks each part of the installation, and reports why a part does not work.

use std::process::ExitCode;

use anyfn::{Any, Array, Result, registry};
use lexopt::{Arg, Parser};
use serde_json::{Value, json};

use crate::{inspect, output};

/// Runs `anyfn doctor`. `args` are the command-line arguments after the command's name.
pub(crate) fn run(mut args: Parser) -> Result<ExitCode, lexopt::Error> {
    let mut as_json = false;
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Long("json") => as_json = true,
            _ => return Err(arg.unexpected()),
        }
    }
    let (text, fine) = match report(as_json) {
        Ok(found) => found,
        Err(error) => return Ok(output::report(&error.message())),
    };
    Ok(match output::write(&text) {
        Err(error) => output::report(&error),
        Ok(()) if fine => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
    })
}

/// Returns the report, as JSON or as text, and true if no check found a problem.
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
