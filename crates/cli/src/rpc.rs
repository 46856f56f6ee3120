//! `anyfn rpc`: runs a server and its session processes, and generates keys.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyfn::{Module, Result, error, registry};
use anyfn_host::rpc::keys::{create_key_file, generate_key};
use anyfn_host::rpc::server::{self, ServerConfig};
use anyfn_host::rpc::websocket::proxy::{self, Proxy, ProxyConfig};
use lexopt::{Arg, Parser, ValueExt};
use serde_json::{Map, Value, json};

use crate::output::write_text as write;
use crate::pool::{self, Membership};
use crate::python;
use crate::usage::{argument, number, reason, value, wrong};

/// Runs `anyfn rpc`. `args` are the command-line arguments after the command's name.
pub(crate) fn run(mut args: Parser) -> Result<ExitCode, lexopt::Error> {
    let done = match (argument(&mut args)?.as_deref(), args) {
        (Some("server"), args) => match parse(args) {
            Ok((worker, options, member)) => serve(worker, options, member),
            Err(error) => return Ok(wrong("rpc server", &error)),
        },
        (Some("key"), args) => match parse_key(args) {
            Ok((name, file)) => key(&name, file.as_deref()),
            Err(error) => return Ok(wrong("rpc key", &error)),
        },
        (Some("proxy"), args) => match parse_proxy(args) {
            Ok(options) => proxy(&options),
            Err(error) => return Ok(wrong("rpc proxy", &error)),
        },
        (Some("tracker"), args) => match pool::parse_tracker(args) {
            Ok(options) => pool::tracker(options),
            Err(error) => return Ok(wrong("rpc tracker", &error)),
        },
        (Some("top"), args) => match pool::parse_top(args) {
            Ok(options) => pool::top(&options),
            Err(error) => return Ok(wrong("rpc top", &error)),
        },
        (Some("session"), args) => session(args),
        _ => {
            return Err(
                "`rpc` is followed by `server`, `proxy`, `tracker`, `top`, `key NAME` or `session`".into()
            );
        }
    };
    Ok(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => crate::output::report(&error),
    })
}

/// Parses the arguments of `anyfn rpc key`. Returns the name of the key, and the file to create, if any.
fn parse_key(mut args: Parser) -> Result<(String, Option<PathBuf>), lexopt::Error> {
    let (mut name, mut file) = (None, None);
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Short('o') | Arg::Long("output") => {
                if file.replace(PathBuf::from(args.value()?)).is_some() {
                    return Err("expected `-o` at most once, got it twice".into());
                }
            }
            Arg::Value(value) if name.is_none() => name = Some(value.string()?),
            other => return Err(other.unexpected()),
        }
    }
    match name {
        Some(name) => Ok((name, file)),
        None => Err("`rpc key` needs a name".into()),
    }
}

/// Prints a new key, or creates a file that contains it.
fn key(name: &str, file: Option<&Path>) -> Result<()> {
    let key = generate_key(name)?;
    match file {
        Some(file) => create_key_file(file, &key),
        None => write(&format!("{}\n", key.to_text())),
    }
}

/// Runs a session process, which loads the operator's libraries and then serves one session. The
/// server starts such a process for each client. `rpc.spawn` starts one with the option
/// `--spawned`, which excludes `--load`.
fn session(mut args: Parser) -> Result<()> {
    // The standard error of a session process is the operator's log, so the help is not printed.
    let wrong = |error: lexopt::Error| error!("ValueError", "{}", reason("rpc session", &error));
    let (mut is_spawned, mut libraries) = (false, Vec::new());
    while let Some(arg) = args.next().map_err(wrong)? {
        match arg {
            Arg::Long("spawned") => is_spawned = true,
            Arg::Long("load") => {
                let library = args.value().and_then(ValueExt::string).map_err(wrong)?;
                libraries.push(Module::load(&library)?);
            }
            _ => return Err(wrong(arg.unexpected())),
        }
    }
    match (is_spawned, libraries.is_empty()) {
        (false, _) => server::session_main(),
        (true, true) => registry::get("rpc.serve_spawned")?.call(()).map(drop),
        (true, false) => Err(error!("ValueError", "expected `--spawned` or `--load`, got both")),
    }
}

/// Parses the arguments of `anyfn rpc proxy`. Returns the options of the proxy.
fn parse_proxy(mut args: Parser) -> Result<Value, lexopt::Error> {
    let mut options = Map::new();
    options.insert("port".into(), json!(9191));
    let mut origins = Vec::new();
    let mut given = HashSet::new();
    while let Some(arg) = args.next()? {
        let name = match arg {
            Arg::Long(name) => name.to_owned(),
            _ => return Err(arg.unexpected()),
        };
        let mut value = || value(&mut args, &name);
        let entry = match name.as_str() {
            "host" => ("host", json!(value()?)),
            "port" => ("port", json!(number(&name, &value()?, u16::MAX.into())?)),
            "max-waiting" => ("waiting", json!(number(&name, &value()?, 10_000)?)),
            "max-waiting-per-address" => ("waiting_of_address", json!(number(&name, &value()?, 10_000)?)),
            "max-sessions" => ("sessions", json!(number(&name, &value()?, 10_000)?)),
            "allow-origin" => {
                origins.push(value()?);
                continue;
            }
            _ => return Err(Arg::Long(&name).unexpected()),
        };
        if !given.insert(name.clone()) {
            return Err(format!("expected `--{name}` at most once, got it twice").into());
        }
        options.insert(entry.0.into(), entry.1);
    }
    options.insert("allow_origins".into(), json!(origins));
    Ok(Value::Object(options))
}

/// Runs a proxy until a signal ends the process.
fn proxy(options: &Value) -> Result<()> {
    let proxy = Proxy::start(ProxyConfig::from_json(options)?, proxy::log_to_stderr())?;
    write(&format!("listening at {}\n", proxy.address()))?;
    loop {
        std::thread::park();
    }
}

fn serve(worker: Vec<String>, mut options: Value, member: Option<Membership>) -> Result<()> {
    if let Some(member) = member {
        return member.serve(worker, &mut options);
    }
    let config = ServerConfig::from_json(worker, &options)?;
    server::run_until_signal(config, |server| {
        // A program that has started this server in a pipe waits for the line.
        write(&format!("listening at {}\n", server.address()))
    })
}

/// Options that may be given more than once.
const REPEATED: &[&str] =
    &["allow", "allow-origin", "device", "import", "label", "limit", "load", "worker", "writable"];

/// Parses the arguments of `anyfn rpc server`. Returns the command line of session processes, the options
/// of the server, and its membership in the pool of a tracker.
fn parse(mut args: Parser) -> Result<(Vec<String>, Value, Option<Membership>), lexopt::Error> {
    let mut member = Membership::default();
    let (mut options, mut grant) = (Map::new(), Map::new());
    options.insert("port".into(), json!(9190));
    options.insert("log".into(), json!("-"));
    let (mut allowed, mut devices) = (Vec::new(), Vec::new());
    let (mut program, mut libraries, mut imports) = (Vec::new(), Vec::new(), Vec::new());
    let (mut runner, mut writable, mut origins) = (Vec::new(), Vec::new(), Vec::new());
    let mut given = HashSet::new();
    while let Some(arg) = args.next()? {
        let name = match arg {
            Arg::Long(name) => name.to_owned(),
            _ => return Err(arg.unexpected()),
        };
        let mut value = || value(&mut args, &name);
        match name.as_str() {
            "upload" => drop(grant.insert("upload".into(), json!(true))),
            "tracker" => member.tracker = Some(value()?),
            "kind" => member.kind = Some(value()?),
            "name" => member.name = Some(value()?),
            "advertise" => member.address = Some(value()?),
            "label" => member.add_label(&value()?)?,
            "exclusive" => drop(options.insert("sessions".into(), json!(1))),
            "allow-origin" => origins.push(value()?),
            "proxy" => drop(options.insert("proxy".into(), json!(value()?))),
            "show-output" => drop(options.insert("show_output".into(), json!(true))),
            "host" => drop(options.insert("host".into(), json!(value()?))),
            "port" => drop(options.insert("port".into(), json!(number(&name, &value()?, u16::MAX.into())?))),
            "keys" => drop(options.insert("keys".into(), json!(value()?))),
            "key-file" => drop(options.insert("key_file".into(), json!(value()?))),
            "allow" => allowed.push(value()?),
            "device" => devices.push(value()?),
            "max-sessions" => {
                drop(options.insert("sessions".into(), json!(number(&name, &value()?, 100_000)?)));
            }
            "queue" => drop(options.insert("queue".into(), json!(number(&name, &value()?, 100_000)?))),
            "log" => drop(options.insert("log".into(), json!(value()?))),
            "isolation" => drop(options.insert("isolation".into(), json!(value()?))),
            "writable" => writable.push(absolute(&value()?)?),
            "folder" => drop(options.insert("folder".into(), json!(value()?))),
            "load" => libraries.push(absolute(&value()?)?),
            "import" => imports.push(module(&value()?)?),
            "worker" => program.push(value()?),
            "runner" => runner = found(&value()?)?,
            "limit" => {
                let value = value()?;
                let limit =
                    value.split_once('=').and_then(|(name, number)| Some((name, number.parse::<u64>().ok()?)));
                let (name, number) =
                    limit.ok_or_else(|| format!("`--limit` needs NAME=NUMBER, got `{value}`"))?;
                if grant.insert(name.into(), json!(number)).is_some() {
                    return Err(format!("expected `--limit {name}=NUMBER` at most once, got it twice").into());
                }
            }
            _ => return Err(Arg::Long(&name).unexpected()),
        }
        if !REPEATED.contains(&name.as_str()) && !given.insert(name.clone()) {
            return Err(format!("expected `--{name}` at most once, got it twice").into());
        }
    }
    if given.contains("exclusive") && given.contains("max-sessions") {
        return Err("expected `--exclusive` or `--max-sessions`, got both".into());
    }
    let member = member.checked(&given)?;
    if options.contains_key("keys") && (!allowed.is_empty() || grant.contains_key("upload")) {
        return Err(
            "with `--keys`, the file specifies what each key grants: omit `--allow` and `--upload`".into()
        );
    }
    if !allowed.is_empty() {
        grant.insert("functions".into(), json!(allowed));
    }
    if !devices.is_empty() {
        grant.insert("devices".into(), json!(devices));
    }
    if !origins.is_empty() {
        options.insert("allow_origins".into(), json!(origins));
    }
    if !writable.is_empty() {
        options.insert("writable".into(), json!(writable));
    }
    options.insert("grant".into(), Value::Object(grant));
    let mut worker = runner;
    if !imports.is_empty() {
        if !program.is_empty() {
            return Err("expected `--import` or `--worker`, got both".into());
        }
        worker.extend(python::session_command(&imports, &libraries)?);
        return Ok((worker, Value::Object(options), member));
    }
    match program.as_slice() {
        [_, ..] => worker.extend(program),
        // The running executable, even if another file gets its name meanwhile.
        [] if worker.is_empty() => worker.push("/proc/self/exe".into()),
        // The runner would interpret that path as its own executable.
        [] => {
            let me = std::env::current_exe()
                .map_err(|why| format!("cannot find the path of this program: {why}"))?;
            worker.push(absolute(&me.to_string_lossy())?);
        }
    }
    worker.extend(["rpc", "session"].map(String::from));
    for library in libraries {
        worker.extend(["--load".into(), library]);
    }
    Ok((worker, Value::Object(options), member))
}

/// Checks the name of a Python module, such as `my_package.kernels`.
fn module(name: &str) -> Result<String, String> {
    let is_name = |part: &str| {
        !part.starts_with(|c: char| c.is_ascii_digit())
            && !part.is_empty()
            && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    match name.split('.').all(is_name) {
        true => Ok(name.to_owned()),
        false => Err(format!("`--import`: expected the name of a Python module, got `{name}`")),
    }
}

/// Splits a command line into arguments and replaces the program name with its absolute path.
fn found(command: &str) -> Result<Vec<String>, String> {
    let words = anyfn_command::words(command).map_err(|incomplete| format!("`--runner`: {incomplete}"))?;
    let (program, args) = words.split_first().ok_or("`--runner` needs a command")?;
    let file =
        python::find(program).ok_or_else(|| format!("`--runner`: cannot find the program `{program}`"))?;
    let file = file.into_os_string().into_string().map_err(|_| format!("`{program}` is not in UTF-8"))?;
    Ok(std::iter::once(file).chain(args.iter().cloned()).collect())
}

/// Returns the absolute path of a file. A relative path would not work in a session process, which has a
/// separate working folder.
fn absolute(path: &str) -> Result<String, String> {
    let whole = std::fs::canonicalize(path).map_err(|why| format!("`{path}`: {why}"))?;
    whole.into_os_string().into_string().map_err(|_| format!("`{path}` is not in UTF-8"))
}
