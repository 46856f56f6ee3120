//! Implementation of the project's tasks, which the script `x` runs.
//!
//! Reading order: [`steps`] lists the steps of each command, [`runner`] runs such a list, [`inputs`] decides which steps have
//! to run again, and [`codegen`] and [`tidy`] are the two tasks that are implemented here; the others start programs.

mod board;
mod c_tests;
mod codegen;
mod compat;
mod cpp_tests;
mod debian;
mod dist;
mod examples;
mod inputs;
mod java;
mod javascript;
mod lock;
mod materials;
mod micro;
mod packages;
mod paths;
mod planted;
mod portable;
mod process;
mod python;
mod python_tests;
mod result;
mod runner;
mod small;
mod soak;
mod source;
mod static_runtime;
mod steps;
mod system_rust;
mod targets;
mod tidy;

use std::process::ExitCode;

use process::cargo_cmd;
use result::Result;
use runner::{Options, Step};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    let root = paths::root();
    let (command, rest) = args.split_first().ok_or("which command? see `./x help`")?;
    match command.as_str() {
        "codegen" => {
            let check = flags(rest, &["--check"])?.contains(&"--check");
            codegen::run(&root, check)?;
            match steps::no_nightly() {
                Some(reason) => println!("skipped: the public items of `anyfn`: {reason}"),
                None => cargo_cmd("run -q -p anyfn-public-api --").args(check.then_some("--check")).run()?,
            }
            Ok(())
        }
        "tidy" => {
            flags(rest, &[])?;
            tidy::run(&root, &|line| {
                println!("{line}");
                Ok(())
            })
        }
        "fmt" => {
            let check = flags(rest, &["--check"])?.contains(&"--check");
            cargo_cmd("fmt --all").args(check.then_some("--check")).run()
        }
        "build" => run_steps(command, &steps::build(), rest),
        "test" => run_steps(command, &steps::test(), rest),
        "demo" => run_steps(command, &steps::demo(rest.iter().any(|arg| arg == "--all")), rest),
        "bench" => {
            let (sizes, rest): (Vec<&String>, Vec<&String>) = rest.iter().partition(|arg| *arg == "--sizes");
            let rest: Vec<String> = rest.into_iter().cloned().collect();
            run_steps(command, &if sizes.is_empty() { steps::bench() } else { steps::sizes() }, &rest)
        }
        "small" => {
            let (features, rest): (Vec<&String>, Vec<&String>) =
                rest.iter().partition(|arg| !arg.starts_with("--"));
            let [features] = features[..] else {
                return Err(
                    "`./x small FEATURES` takes the features, separated by commas; see docs/sizes.md".into()
                );
            };
            run_steps(command, &steps::small(features), &rest.into_iter().cloned().collect::<Vec<String>>())
        }
        "docs" => run_steps(command, &steps::docs(), rest),
        "dist" => run_steps(command, &steps::dist(rest.iter().any(|arg| arg == "--all")), rest),
        "soak" => run_steps(command, &soak::steps(), rest),
        other => Err(format!("no command `{other}`; see `./x help`").into()),
    }
}

fn run_steps(command: &str, steps: &[Step], args: &[String]) -> Result<()> {
    let (only, args): (Vec<&String>, Vec<&String>) = args.iter().partition(|arg| arg.starts_with("--only="));
    let mut known = vec!["--all", "--verbose", "--fail-fast", "--only=TEXT"];
    if command == "test" {
        known.push("--quick");
    }
    let given = flags(&args, &known)?;
    let quick = given.contains(&"--quick");
    let only: Vec<&str> = only.iter().filter_map(|arg| arg.strip_prefix("--only=")).collect();
    let (steps, left_out) = select(steps, &only, quick);
    if steps.is_empty() {
        let quick = if quick { "quick " } else { "" };
        return Err(format!("no {quick}step of `{command}` has {} in its name", only.join(" or ")).into());
    }
    let options = Options {
        all: given.contains(&"--all"),
        verbose: given.contains(&"--verbose"),
        // Later steps of these commands depend on the earlier ones.
        fail_fast: given.contains(&"--fail-fast") || command != "test" && command != "soak",
        quick,
    };
    let _lock = lock::take(&paths::root().join(".x"), command)?;
    runner::run(command, &steps, &left_out, options)
}

/// Returns the steps to run, and the selected steps that a quick run leaves out. `only` contains
/// parts of step names; if it is empty, all steps are selected. The steps to run include those
/// whose results a selected step uses.
fn select<'a>(steps: &'a [Step], only: &[&str], quick: bool) -> (Vec<&'a Step>, Vec<&'a Step>) {
    let is_named = |step: &&Step| only.is_empty() || only.iter().any(|text| step.name.contains(text));
    let (selected, left_out): (Vec<&Step>, Vec<&Step>) =
        steps.iter().filter(is_named).partition(|step| !quick || step.is_quick());
    let uses: Vec<&str> = selected.iter().flat_map(|step| step.used_steps()).copied().collect();
    let runs = |step: &&Step| uses.contains(&step.name) || selected.iter().any(|one| one.name == step.name);
    (steps.iter().filter(runs).collect(), left_out)
}

/// Returns the command-line arguments, or an error if one of them is not a known flag.
fn flags<'a, T: AsRef<str>>(args: &'a [T], known: &[&str]) -> Result<Vec<&'a str>> {
    for arg in args.iter().map(AsRef::as_ref) {
        if !known.contains(&arg) {
            let known = if known.is_empty() { "none".to_owned() } else { known.join(" ") };
            return Err(format!("no option `{arg}` here; options: {known}").into());
        }
    }
    Ok(args.iter().map(AsRef::as_ref).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selected_steps_run_after_the_builds_that_they_use() {
        let steps = steps::test();
        let names = |steps: Vec<&Step>| steps.iter().map(|step| step.name).collect::<Vec<_>>();
        let (run, left_out) = select(&steps, &["conformance, python"], false);
        assert_eq!(names(run), ["library", "static runtime", "python package", "conformance, python"]);
        assert!(left_out.is_empty());
        let (run, _) = select(&steps, &["tidy", "format"], false);
        assert_eq!(names(run), ["format", "tidy"]);
        assert_eq!(select(&steps, &[], false).0.len(), steps.len());
        // A quick run of a slow step has nothing to do, not even the builds.
        let (run, left_out) = select(&steps, &["valgrind"], true);
        assert!(run.is_empty());
        assert_eq!(names(left_out), ["c tests under valgrind"]);
    }

    #[test]
    fn the_wheel_that_the_readme_installs_is_built_alone() {
        let (steps, all) = (steps::dist(false), steps::dist(true));
        let names = |steps: &[&Step]| steps.iter().map(|step| step.name).collect::<Vec<_>>();
        assert_eq!(names(&select(&steps, &["python wheel"], false).0), ["python wheel"]);
        assert_eq!(
            names(&select(&all, &["python wheel"], false).0),
            ["python wheel", "python wheel for aarch64"]
        );
    }
}
