//! `anyfn rpc tracker`, `anyfn rpc top`, and the options of `anyfn rpc server` that concern a tracker.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use anyfn::{Ref, Result, error, registry};
use anyfn_host::rpc::Session;
use anyfn_host::rpc::server::{self, ServerConfig};
use anyfn_tracker::agent::{self, Agent, LeaseKeys, Registration, Sessions};
use anyfn_tracker::message::{Labels, check_word};
use anyfn_tracker::state::Config;
use anyfn_tracker::{Options, Service};
use lexopt::{Arg, Parser, ValueExt};
use serde_json::{Map, Value, json};

use crate::output::write_text as write;
use crate::usage::{number, value};

/// Parses the arguments of `anyfn rpc tracker`.
pub(crate) fn parse_tracker(mut args: Parser) -> Result<Options, lexopt::Error> {
    let mut options = Options {
        host: "127.0.0.1".into(),
        port: 9192,
        key_file: None,
        keys: None,
        journal: "tracker.journal".into(),
        config: Config::default(),
    };
    let mut given = HashSet::new();
    while let Some(arg) = args.next()? {
        let name = match arg {
            Arg::Long(name) => name.to_owned(),
            _ => return Err(arg.unexpected()),
        };
        let mut value = || value(&mut args, &name);
        match name.as_str() {
            "host" => options.host = value()?,
            "port" => options.port = number(&name, &value()?, u16::MAX.into())? as u16,
            "key-file" => options.key_file = Some(value()?.into()),
            "keys" => options.keys = Some(value()?.into()),
            "journal" => options.journal = value()?.into(),
            _ => return Err(Arg::Long(&name).unexpected()),
        }
        if !given.insert(name.clone()) {
            return Err(format!("expected `--{name}` at most once, got it twice").into());
        }
    }
    Ok(options)
}

/// Runs a tracker until a signal ends the process. The journal needs no orderly end.
pub(crate) fn tracker(options: Options) -> Result<()> {
    let service = Service::start(options)?;
    if let Some(address) = service.address() {
        write(&format!("listening at {address}\n"))?;
    }
    service.run()
}

/// Options of `anyfn rpc top`.
pub(crate) struct Top {
    address: String,
    key_file: Option<String>,
    json: bool,
}

/// Parses the arguments of `anyfn rpc top`.
pub(crate) fn parse_top(mut args: Parser) -> Result<Top, lexopt::Error> {
    let (mut address, mut key_file, mut json) = (None, None, false);
    while let Some(arg) = args.next()? {
        match arg {
            Arg::Long("key-file") => key_file = Some(value(&mut args, "key-file")?),
            Arg::Long("json") => json = true,
            Arg::Value(value) if address.is_none() => address = Some(value.string()?),
            other => return Err(other.unexpected()),
        }
    }
    match address {
        Some(address) => Ok(Top { address, key_file, json }),
        None => Err("`rpc top` needs the address of a tracker".into()),
    }
}

/// Prints the state of a tracker once as JSON, or as a table that is updated every second.
pub(crate) fn top(options: &Top) -> Result<()> {
    let (host, port) = agent::split(&options.address)?;
    let none: Option<&str> = None;
    let session = registry::get("rpc.connect")?.call((host, port, none, 10.0, options.key_file.as_deref()))?;
    let summary = session.get::<Ref<Session>>()?.get_function("tracker.summary")?;
    loop {
        let text = summary.call(())?.get::<String>()?;
        if options.json {
            return write(&format!("{text}\n"));
        }
        let summary: Value = serde_json::from_str(&text)
            .map_err(|why| error!("ValueError", "invalid answer of the tracker: {why}"))?;
        let is_live = std::io::stdout().is_terminal();
        // Clears the terminal, and begins at its first line.
        write(&format!("{}{}", if is_live { "\x1b[H\x1b[2J" } else { "" }, table(&summary)))?;
        if !is_live {
            return Ok(());
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Returns a summary as lines of text.
fn table(summary: &Value) -> String {
    let shown = |value: &Value| match value {
        // Names come from other machines.
        Value::String(text) => text.chars().filter(|c| !c.is_control()).collect(),
        Value::Null => "-".to_owned(),
        Value::Object(labels) => {
            let labels: Vec<String> =
                labels.iter().map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or(""))).collect();
            labels.join(" ").replace(char::is_control, "")
        }
        other => other.to_string(),
    };
    let mut text = String::new();
    for (title, list, columns) in [
        ("devices", &summary["devices"], &["name", "kind", "state", "user", "address", "labels"][..]),
        ("queue", &summary["queue"], &["user", "kind", "count", "priority", "labels"]),
    ] {
        let rows = list.as_array().map_or(&[][..], Vec::as_slice);
        let head = columns.iter().map(|column| (*column).to_owned()).collect::<Vec<_>>();
        let cells =
            rows.iter().map(|row| columns.iter().map(|column| shown(&row[*column])).collect::<Vec<_>>());
        let lines: Vec<Vec<String>> = std::iter::once(head).chain(cells).collect();
        let omitted = summary["omitted"][title].as_u64().unwrap_or(0);
        let _ = writeln!(text, "{title}: {}", rows.len() as u64 + omitted);
        let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns.len()).map(width).collect();
        for line in &lines {
            let padded: Vec<String> = line
                .iter()
                .enumerate()
                .map(|(at, cell)| format!("{cell:<width$}", width = widths[at]))
                .collect();
            let _ = writeln!(text, "  {}", padded.join("  ").trim_end());
        }
        if omitted > 0 {
            let _ = writeln!(text, "  and {omitted} more");
        }
    }
    let _ = writeln!(text, "since the start: {}", shown(&summary["counts"]).replace('"', ""));
    text
}

/// Membership of a server in the pool of a tracker.
#[derive(Default)]
pub(crate) struct Membership {
    pub(crate) tracker: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) address: Option<String>,
    labels: Labels,
}

impl Membership {
    /// Adds a label in the form `NAME=VALUE`.
    pub(crate) fn add_label(&mut self, label: &str) -> Result<(), String> {
        let (name, value) =
            label.split_once('=').ok_or_else(|| format!("`--label` needs NAME=VALUE, got `{label}`"))?;
        check_word("`--label`", name)?;
        check_word("`--label`", value)?;
        match self.labels.insert(name.into(), value.into()) {
            None => Ok(()),
            Some(_) => Err(format!("expected `--label {name}=VALUE` at most once, got it twice")),
        }
    }

    /// Checks that the options fit together; `given` are the names of all options. Returns `None` for a server without a tracker.
    pub(crate) fn checked(self, given: &HashSet<String>) -> Result<Option<Membership>, String> {
        let is_other = |name: &&str| given.contains(*name);
        let Some(tracker) = &self.tracker else {
            let other = ["kind", "name", "advertise"].iter().find(|name| is_other(name));
            let other = other.copied().or((!self.labels.is_empty()).then_some("label"));
            return other
                .map_or(Ok(None), |name| Err(format!("`--{name}` is an option for servers with `--tracker`")));
        };
        agent::split(tracker).map_err(|error| format!("`--tracker`: {}", error.message()))?;
        if let Some(name) = ["keys", "exclusive", "max-sessions"].iter().find(|name| is_other(name)) {
            return Err(format!(
                "with `--tracker`, each lease is one session with a key of its own: omit `--{name}`"
            ));
        }
        match &self.kind {
            None => return Err("`--tracker` needs the kind of the device: `--kind NAME`".into()),
            Some(kind) => check_word("`--kind`", kind)?,
        }
        self.name.as_ref().map_or(Ok(()), |name| check_word("`--name`", name))?;
        Ok(Some(self))
    }

    /// Serves the leases of the tracker until a signal arrives.
    pub(crate) fn serve(self, worker: Vec<String>, options: &mut Value) -> Result<()> {
        let empty = Map::new();
        let mut grant = options["grant"].as_object().unwrap_or(&empty).clone();
        let lease =
            |name: &str, grant: &mut Map<String, Value>, none: Value| grant.remove(name).unwrap_or(none);
        let functions = lease("functions", &mut grant, json!([]));
        let upload = lease("upload", &mut grant, json!(false));
        let keys = LeaseKeys::create(json!({ "functions": functions, "upload": upload }))?;
        options["grant"] = Value::Object(grant);
        options["keys"] = json!(keys.path());
        options["sessions"] = json!(1);
        let key_file =
            options.as_object_mut().and_then(|options| options.remove("key_file")?.as_str().map(String::from));
        let proxy = options["proxy"].as_str().map(String::from);
        let mut config = ServerConfig::from_json(worker, options)?;
        config.protected.extend(key_file.as_ref().map(PathBuf::from));
        let ended = std::sync::Arc::<std::sync::Mutex<Vec<_>>>::default();
        config.ended = Some(ended.clone());
        let tracker = self.tracker.unwrap_or_default();
        // It lives as long as the server.
        let mut running = None;
        server::run_until_signal(config, |server| {
            let address =
                self.address.or(proxy).unwrap_or_else(|| agent::reachable(server.address(), &tracker));
            let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            let name = self.name.unwrap_or_else(|| format!("{}:{}", machine.trim(), server.port()));
            let registration = Registration {
                tracker,
                key_file,
                name,
                kind: self.kind.unwrap_or_default(),
                labels: self.labels,
                address,
            };
            let sessions = Sessions { current: Box::new(server.watch()), ended };
            running = Some(Agent::start(registration, keys, sessions)?);
            // A program that has started this server in a pipe waits for the line.
            write(&format!("listening at {}\n", server.address()))
        })?;
        drop(running);
        Ok(())
    }
}
