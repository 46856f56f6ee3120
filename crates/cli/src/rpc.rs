//! `anyfn rpc`: runs a server and its session processes, and generates keys.

use std::collections::HashSet;
use std::process::ExitCode;

use anyfn::{Module, Result, error, registry};
use anyfn_host::rpc::keys::Key;
use anyfn_host::rpc::server::{self, ServerConfig};
use serde_json::{Map, Value, json};

use crate::usage::wrong;

/// Runs `anyfn rpc`. `words` are the command-line arguments after the command's name.
pub(crate) fn run(words: &[&str]) -> ExitCode {
    let done = match words {
        ["server", options @ ..] => match parse(options) {
            Ok((worker, options)) => serve(worker, options),
            Err(reason) => return wrong(&reason),
        },
        ["key", name] => key(name),
        ["session", options @ ..] => match options {
            ["--spawned"] => registry::get("rpc.serve_spawned").and_then(|serve| serve.call(()).map(drop)),
            _ => session(options),
        },
        _ => return wrong("`rpc` is followed by `server`, `key NAME` or `session`"),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => crate::output::report(&error),
    }
}

fn key(name: &str) -> Result<()> {
    write(&format!("{}\n", Key::generate(name)?.to_text()))
}

/// Runs a session process, which the server starts for each client: loads the operator's libraries, then
/// serves the session.
fn session(options: &[&str]) -> Result<()> {
    let mut libraries = Vec::new();
    for pair in options.chunks(2) {
        match pair {
            ["--load", library] => libraries.push(Module::load(library)?),
            other => return Err(error!("ValueError", "a session has no option `{}`", other.join(" "))),
        }
    }
    server::session_main()
}

fn serve(worker: Vec<String>, options: Value) -> Result<()> {
    let config = ServerConfig::from_json(worker, &options)?;
    server::run_until_signal(config, |server| {
        // A program that has started this server in a pipe waits for the line.
        write(&format!("listening at {}\n", server.address()))
    })
}

fn write(text: &str) -> Result<()> {
    crate::output::write(text).map_err(|why| error!("OSError", "{why}"))
}

/// Options that may be given more than once.
const REPEATED: &[&str] = &["--allow", "--device", "--limit", "--load", "--worker", "--writable"];

/// Returns the command line of session processes, and the options of the server.
fn parse(words: &[&str]) -> Result<(Vec<String>, Value), String> {
    let (mut options, mut grant) = (Map::new(), Map::new());
    options.insert("port".into(), json!(9190));
    options.insert("log".into(), json!("-"));
    let (mut allowed, mut devices) = (Vec::new(), Vec::new());
    let (mut program, mut libraries) = (Vec::new(), Vec::new());
    let (mut runner, mut writable) = (Vec::new(), Vec::new());
    let mut given = HashSet::new();
    let mut words = words.iter().copied();
    while let Some(word) = words.next() {
        if !REPEATED.contains(&word) && !given.insert(word) {
            return Err(format!("expected `{word}` at most once, got it twice"));
        }
        match word {
            "--upload" => drop(grant.insert("upload".into(), json!(true))),
            "--exclusive" => drop(options.insert("sessions".into(), json!(1))),
            "--show-output" => drop(options.insert("show_output".into(), json!(true))),
            _ => {
                let value = words.next().ok_or_else(|| format!("`{word}` is unknown, or lacks its value"))?;
                if value.is_empty() {
                    return Err(format!("expected a value behind `{word}`, got an empty one"));
                }
                let number = |most: u64| match value.parse::<u64>() {
                    Ok(number) if number <= most => Ok(number),
                    _ => Err(format!("`{word}`: expected a number from 0 to {most}, got `{value}`")),
                };
                match word {
                    "--host" => drop(options.insert("host".into(), json!(value))),
                    "--port" => drop(options.insert("port".into(), json!(number(u16::MAX.into())?))),
                    "--keys" => drop(options.insert("keys".into(), json!(value))),
                    "--key-file" => drop(options.insert("key_file".into(), json!(value))),
                    "--allow" => allowed.push(value),
                    "--device" => devices.push(value),
                    "--max-sessions" => drop(options.insert("sessions".into(), json!(number(100_000)?))),
                    "--queue" => drop(options.insert("queue".into(), json!(number(100_000)?))),
                    "--log" => drop(options.insert("log".into(), json!(value))),
                    "--isolation" => drop(options.insert("isolation".into(), json!(value))),
                    "--writable" => writable.push(absolute(value)?),
                    "--folder" => drop(options.insert("folder".into(), json!(value))),
                    "--load" => libraries.push(absolute(value)?),
                    "--worker" => program.push(value.to_owned()),
                    "--runner" => runner = found(value)?,
                    "--limit" => {
                        let limit = value
                            .split_once('=')
                            .and_then(|(name, number)| Some((name, number.parse::<u64>().ok()?)));
                        let (name, number) =
                            limit.ok_or_else(|| format!("`--limit` needs NAME=NUMBER, got `{value}`"))?;
                        if grant.insert(name.into(), json!(number)).is_some() {
                            return Err(format!("expected `--limit {name}=NUMBER` at most once, got it twice"));
                        }
                    }
                    other => return Err(format!("`rpc server` has no option `{other}`")),
                }
            }
        }
    }
    if given.contains("--exclusive") && given.contains("--max-sessions") {
        return Err("expected `--exclusive` or `--max-sessions`, got both".into());
    }
    if options.contains_key("keys") && (!allowed.is_empty() || grant.contains_key("upload")) {
        return Err(
            "with `--keys`, the file says what each key grants: leave out `--allow` and `--upload`".into()
        );
    }
    if !allowed.is_empty() {
        grant.insert("functions".into(), json!(allowed));
    }
    if !devices.is_empty() {
        grant.insert("devices".into(), json!(devices));
    }
    if !writable.is_empty() {
        options.insert("writable".into(), json!(writable));
    }
    options.insert("grant".into(), Value::Object(grant));
    let mut worker = runner;
    match program.as_slice() {
        [_, ..] => worker.extend(program),
        // The running executable, even if another file gets its name meanwhile.
        [] if worker.is_empty() => worker.push("/proc/self/exe".into()),
        // The runner would interpret that path as its own executable.
        [] => {
            let me = std::env::current_exe().map_err(|why| format!("where this program is: {why}"))?;
            worker.push(absolute(&me.to_string_lossy())?);
        }
    }
    worker.extend(["rpc", "session"].map(String::from));
    for library in libraries {
        worker.extend(["--load".into(), library]);
    }
    Ok((worker, Value::Object(options)))
}

/// Splits a command line into its words and replaces the program with its absolute path. Links are not
/// followed, since many programs may be links to the same file.
fn found(command: &str) -> Result<Vec<String>, String> {
    let mut words = command.split_whitespace();
    let program = words.next().ok_or("`--runner` needs a command")?;
    let folders = if program.contains('/') { ".".into() } else { std::env::var_os("PATH").unwrap_or_default() };
    let file = std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|file| file.is_file());
    let file = file.ok_or_else(|| format!("`--runner`: there is no program `{program}`"))?;
    let file = std::path::absolute(&file).map_err(|why| format!("`{program}`: {why}"))?;
    let file = file.into_os_string().into_string().map_err(|_| format!("`{program}` is not in UTF-8"))?;
    Ok(std::iter::once(file).chain(words.map(String::from)).collect())
}

/// Returns the absolute path of a file, which is needed because each session process has its own folder.
fn absolute(path: &str) -> Result<String, String> {
    let whole = std::fs::canonicalize(path).map_err(|why| format!("`{path}`: {why}"))?;
    whole.into_os_string().into_string().map_err(|_| format!("`{path}` is not in UTF-8"))
}
