//! Runs a list of steps and reports the outcome of each.
//!
//! A step's output goes to a log in `.x/log`. It is shown if the step fails, or always with `--verbose`. A step may name its
//! inputs: it is not run again while their content is the same as when it last passed, except with `--all`. A step of
//! several parts, such as the tests of each package, does the same for each part ([`Run::parts`]).
//!
//! Tests report that they were skipped, and why, as lines `test<tab>reason` of the file that `ANYFN_SKIPS` names
//! (`testing/skip`, `bindings/python/tests/conftest.py`). They are listed below the table.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;
use crate::packages::Packages;
use crate::process::Cmd;

/// Time limit of a command of `./x test`. No command takes that long, even on a slow machine that must build everything,
/// unless a test hangs.
const TEST_LIMIT: Duration = Duration::from_secs(20 * 60);
/// Time limit of a command of all other tasks.
const LIMIT: Duration = Duration::from_secs(3 * 3600);

/// Function that returns the reason why a step cannot run here, or `None` if it can.
type Unavailable = Box<dyn Fn() -> Option<String> + Send + Sync>;
type Action = Box<dyn Fn(&Run) -> Result<()> + Send + Sync>;

/// One step of a command.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    unavailable: Unavailable,
    /// Sources that decide whether the step must run again; empty for a step that always runs.
    inputs: Inputs,
    /// True if the step may run at the same time as neighbouring steps that also allow it.
    beside: bool,
    action: Action,
}

/// Sources that decide the result of a step.
#[derive(Clone, Copy, Default)]
struct Inputs {
    /// Names of packages, including everything that they and their tests are built from.
    packages: &'static [&'static str],
    /// Paths of files and folders.
    paths: &'static [&'static str],
}

/// Context in which an action runs its commands.
pub(crate) struct Run {
    /// Name of the step for file names.
    name: String,
    /// True if parts run even if their inputs have not changed.
    all: bool,
    log: PathBuf,
    /// File in which tests report that they were skipped.
    skips: PathBuf,
    verbose: bool,
    limit: Duration,
}

/// Outcome of a step.
enum Outcome {
    Passed(String),
    Skipped(String),
    Failed(String),
}

/// Options of a run.
#[derive(Clone, Copy, Default)]
pub(crate) struct Options {
    /// True to run steps even if their inputs have not changed.
    pub(crate) all: bool,
    /// True to show all output.
    pub(crate) verbose: bool,
    /// True to stop at the first failure.
    pub(crate) fail_fast: bool,
}

impl Step {
    /// Creates a step that always runs and performs `action`.
    pub(crate) fn new(name: &'static str, action: impl Fn(&Run) -> Result<()> + Send + Sync + 'static) -> Self {
        Step {
            name,
            unavailable: Box::new(|| None),
            inputs: Inputs::default(),
            beside: false,
            action: Box::new(action),
        }
    }

    /// Skips the step if `unavailable` returns a reason.
    pub(crate) fn skip_if(mut self, unavailable: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        let before = self.unavailable;
        self.unavailable = Box::new(move || before().or_else(&unavailable));
        self
    }

    /// Skips the step as long as a path does not exist.
    pub(crate) fn needs(self, path: &'static str) -> Self {
        self.skip_if(move || (!crate::paths::root().join(path).exists()).then(|| format!("no {path}")))
    }

    /// Skips the step as long as a folder is not a member of the workspace.
    pub(crate) fn needs_member(self, folder: &'static str) -> Self {
        self.skip_if(move || {
            let manifest = fs::read_to_string(crate::paths::root().join("Cargo.toml")).unwrap_or_default();
            (!manifest.contains(&format!("\"{folder}\""))).then(|| format!("{folder} is not in the workspace"))
        })
    }

    /// Runs the step only when one of these files or folders has changed since it last passed.
    pub(crate) fn inputs(mut self, paths: &'static [&'static str]) -> Self {
        self.inputs.paths = paths;
        self
    }

    /// Runs the step only when one of these packages, or something that it or its tests are built from, has changed since it
    /// last passed. Together with [`inputs`](Self::inputs), a change of either is enough.
    pub(crate) fn packages(mut self, packages: &'static [&'static str]) -> Self {
        self.inputs.packages = packages;
        self
    }

    /// Allows the step to run at the same time as neighbouring steps that also allow it, one per processor. This is for steps
    /// that use one processor for a long time and do not measure time.
    pub(crate) fn beside(mut self) -> Self {
        self.beside = true;
        self
    }
}

impl Run {
    /// Runs a command with its output in the step's log.
    pub(crate) fn cmd(&self, cmd: Cmd) -> Result<()> {
        let cmd = cmd.env("ANYFN_SKIPS", &self.skips);
        let line = format!("$ {}\n", cmd.shown());
        append(&self.log, &line)?;
        if self.verbose {
            print!("{line}");
            cmd.run()
        } else {
            cmd.run_logged(&self.log, self.limit)
        }
    }

    /// Runs `action` with the parts whose inputs have changed since they last passed, if there are any. Each part is the name of
    /// a package; `paths` are inputs of all parts.
    pub(crate) fn parts<'a>(
        &self,
        parts: impl IntoIterator<Item = &'a str>,
        paths: &[&str],
        action: impl FnOnce(&[&str]) -> Result<()>,
    ) -> Result<()> {
        let mut due = Vec::new();
        for part in parts {
            let stamp = stamp_of(&format!("{}-{part}", self.name));
            let hash = hash_of(&[part], paths)?;
            if self.all || !fs::read_to_string(&stamp).is_ok_and(|old| old == hash) {
                due.push((part, stamp, hash));
            }
        }
        if due.is_empty() {
            return self.say("no part has changed since it last passed");
        }
        action(&due.iter().map(|(part, ..)| *part).collect::<Vec<_>>())?;
        due.iter().try_for_each(|(_, stamp, hash)| write_stamp(stamp, hash))
    }

    /// Writes a line to the step's log.
    pub(crate) fn say(&self, text: &str) -> Result<()> {
        if self.verbose {
            println!("{text}");
        }
        append(&self.log, &format!("{text}\n"))
    }
}

/// Runs the steps of a command and prints a table. Returns an error if a step failed.
pub(crate) fn run(command: &str, steps: &[&Step], options: Options) -> Result<()> {
    let mut rows: Vec<(&str, Outcome, Duration)> = Vec::new();
    for group in steps.chunk_by(|one, next| one.beside && next.beside) {
        let first = rows.len();
        rows.extend(run_group(command, group, options, |i, name| {
            println!("[{}/{}] {name}", first + i + 1, steps.len());
        }));
        let failed = rows.iter().any(|(_, outcome, _)| matches!(outcome, Outcome::Failed(_)));
        if failed && options.fail_fast {
            break;
        }
    }
    print_table(command, &rows);
    // For a step that did not run because its inputs have not changed, the skipped tests are those of its last run.
    let ran = rows.iter().filter(|(_, outcome, _)| !matches!(outcome, Outcome::Skipped(_)));
    print_skips(ran.map(|(name, ..)| (*name, skipped_tests(&skips_file(command, name)))).collect());
    let failed = rows.iter().filter(|(_, o, _)| matches!(o, Outcome::Failed(_))).count();
    if failed > 0 { Err(format!("{failed} steps of `{command}` failed").into()) } else { Ok(()) }
}

/// Runs steps at the same time, as many as there are processors, and returns their rows in the order of the steps.
fn run_group<'a>(
    command: &str,
    steps: &[&'a Step],
    options: Options,
    starts: impl Fn(usize, &str) + Sync,
) -> Vec<(&'a str, Outcome, Duration)> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut rows = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(step) = steps.get(i) else { return rows };
            starts(i, step.name);
            let start = Instant::now();
            let outcome = run_step(command, step, options);
            match &outcome {
                Outcome::Skipped(reason) => println!("    {}: skipped: {reason}", step.name),
                Outcome::Failed(reason) => println!("    {}: FAILED: {reason}", step.name),
                Outcome::Passed(_) => {}
            }
            rows.push((i, (step.name, outcome, start.elapsed())));
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from).min(steps.len());
    let mut rows: Vec<_> = thread::scope(|scope| {
        let started: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        started
            .into_iter()
            .flat_map(|thread| match thread.join() {
                Ok(rows) => rows,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    });
    rows.sort_by_key(|(i, _)| *i);
    rows.into_iter().map(|(_, row)| row).collect()
}

fn run_step(command: &str, step: &Step, options: Options) -> Outcome {
    if let Some(reason) = (step.unavailable)() {
        return Outcome::Skipped(reason);
    }
    let file_name = file_name(command, step.name);
    let root = crate::paths::root();
    let stamp = stamp_of(&file_name);
    let Inputs { packages, paths } = step.inputs;
    let always = packages.is_empty() && paths.is_empty();
    let hash = match if always { Ok(None) } else { hash_of(packages, paths).map(Some) } {
        Ok(hash) => hash,
        Err(e) => return Outcome::Failed(e.to_string()),
    };
    if let Some(hash) = &hash
        && !options.all
        && fs::read_to_string(&stamp).is_ok_and(|old| old == *hash)
    {
        return Outcome::Passed("unchanged".to_owned());
    }
    let log = root.join(".x/log").join(format!("{file_name}.log"));
    let limit = if command == "test" { TEST_LIMIT } else { LIMIT };
    let skips = skips_file(command, step.name);
    for file in [&log, &skips] {
        if let Err(e) = fs::remove_file(file)
            && e.kind() != std::io::ErrorKind::NotFound
        {
            return Outcome::Failed(format!("{}: {e}", file.display()));
        }
    }
    let (verbose, all) = (options.verbose, options.all);
    match (step.action)(&Run { name: file_name, all, log: log.clone(), skips, verbose, limit }) {
        Ok(()) => match hash.map_or(Ok(()), |hash| write_stamp(&stamp, &hash)) {
            Ok(()) => Outcome::Passed(String::new()),
            Err(e) => Outcome::Failed(e.to_string()),
        },
        Err(e) => {
            if !options.verbose {
                print_tail(&log);
            }
            Outcome::Failed(e.to_string())
        }
    }
}

/// Returns the name of a step for file names.
fn file_name(command: &str, step: &str) -> String {
    format!("{command}-{}", step.replace(|c: char| !c.is_ascii_alphanumeric(), "-"))
}

/// Returns the file that stores the hash of the inputs with which a step or part last passed.
fn stamp_of(file_name: &str) -> PathBuf {
    crate::paths::root().join(".x/passed").join(file_name)
}

fn write_stamp(stamp: &Path, hash: &str) -> Result<()> {
    let written = stamp.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(stamp, hash));
    written.map_err(|e| format!("{}: {e}", stamp.display()).into())
}

fn skips_file(command: &str, step: &str) -> PathBuf {
    crate::paths::root().join(".x/log").join(format!("{}.skips", file_name(command, step)))
}

/// Returns the number of skipped tests for each reason. A test that several processes report counts once.
fn skipped_tests(file: &Path) -> BTreeMap<String, usize> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let reports: BTreeSet<&str> = text.lines().collect();
    let mut counts = BTreeMap::new();
    for reason in reports.iter().map(|line| line.split_once('\t').map_or(*line, |(_, reason)| reason)) {
        *counts.entry(reason.to_owned()).or_default() += 1;
    }
    counts
}

fn print_skips(skips: Vec<(&str, BTreeMap<String, usize>)>) {
    let skips = skips.into_iter().filter(|(_, counts)| !counts.is_empty());
    for (i, (step, counts)) in skips.enumerate() {
        if i == 0 {
            println!("\nskipped tests of steps that ran (which ones: .x/log/*.skips)");
        }
        println!("  {step}: {} skipped", counts.values().sum::<usize>());
        for (reason, count) in counts {
            println!("    {count:>4}  {reason}");
        }
    }
}

/// Prints the end of a failed step's log.
fn print_tail(log: &Path) {
    const LINES: usize = 200;
    let Ok(text) = fs::read(log) else { return };
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    let first = lines.len().saturating_sub(LINES);
    if first > 0 {
        println!("    ... {first} lines before these are in {}", log.display());
    }
    for line in &lines[first..] {
        println!("    {line}");
    }
}

fn print_table(command: &str, rows: &[(&str, Outcome, Duration)]) {
    let width = rows.iter().map(|(name, ..)| name.len()).max().unwrap_or(0).max(4);
    println!("\n{command}: what became of each step");
    println!("  {:<width$}  {:>8}  result", "step", "seconds");
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, outcome, took) in rows {
        let text = match outcome {
            Outcome::Passed(note) => {
                passed += 1;
                if note.is_empty() { "passed".to_owned() } else { format!("passed ({note})") }
            }
            Outcome::Skipped(reason) => {
                skipped += 1;
                format!("skipped: {reason}")
            }
            Outcome::Failed(reason) => {
                failed += 1;
                format!("FAILED: {}", reason.lines().next().unwrap_or_default())
            }
        };
        println!("  {name:<width$}  {:>8.1}  {text}", took.as_secs_f64());
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
}

fn append(log: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    if let Some(dir) = log.parent() {
        fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    let file = fs::File::options().create(true).append(true).open(log);
    file.and_then(|mut f| f.write_all(text.as_bytes())).map_err(|e| format!("{}: {e}", log.display()).into())
}

/// Returns a hash of everything that decides a result: names and contents of all files of packages and below paths, this
/// program, the versions of the compilers, and the environment variables that change builds.
fn hash_of(packages: &[&str], paths: &[&str]) -> Result<String> {
    const ALWAYS: [&str; 5] = ["Cargo.toml", "Cargo.lock", "xtask/src/steps.rs", "xtask/src/runner.rs", "x"];
    let root = crate::paths::root();
    let mut hasher = DefaultHasher::new();
    let folders = Packages::of_workspace()?.folders(packages.iter().copied())?;
    let all = folders.iter().map(String::as_str).chain(paths.iter().copied()).chain(ALWAYS);
    all.for_each(|path| hash_path(&root, path, &mut hasher));
    for name in ["RUSTFLAGS", "CARGO_TARGET_DIR", "CC", "CXX", "CFLAGS"] {
        hasher.write(std::env::var_os(name).unwrap_or_default().as_encoded_bytes());
        hasher.write_u8(0);
    }
    hasher.write(compilers().as_bytes());
    Ok(format!("{:016x}\n", hasher.finish()))
}

/// Returns the version information of the compilers.
fn compilers() -> &'static str {
    static COMPILERS: OnceLock<String> = OnceLock::new();
    COMPILERS.get_or_init(|| {
        let tools = [Cmd::new("rustc").arg("-V"), Cmd::new("cc").arg("--version")];
        tools.into_iter().map(|tool| tool.output().unwrap_or_default()).collect()
    })
}

/// Adds the names and contents of all files below a path to a hash. The hash of a path is computed once per process.
fn hash_path(root: &Path, path: &str, hasher: &mut DefaultHasher) {
    static KNOWN: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get(path).copied();
    let hash = known.unwrap_or_else(|| {
        let mut own = DefaultHasher::new();
        hash_files(&root.join(path), &mut own);
        own.finish()
    });
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), hash);
    hasher.write(path.as_bytes());
    hasher.write_u64(hash);
}

fn hash_files(path: &Path, hasher: &mut DefaultHasher) {
    const NO_SOURCES: [&str; 6] = ["target", ".git", ".x", "__pycache__", "dist", ".pytest_cache"];
    if path.is_dir() {
        let mut entries: Vec<_> =
            fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.path()).collect();
        entries.sort();
        for entry in entries {
            let name = entry.file_name().unwrap_or_default().to_string_lossy();
            if !NO_SOURCES.contains(&&*name) && !name.ends_with(".so") && !name.ends_with(".pyc") {
                hash_files(&entry, hasher);
            }
        }
    } else if let Ok(content) = fs::read(path) {
        hasher.write(path.as_os_str().as_encoded_bytes());
        hasher.write_usize(content.len());
        hasher.write(&content);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::Barrier;

    use super::*;

    /// Steps that wait for each other end only if they run at the same time. The rows keep the order of the steps.
    #[test]
    fn steps_that_allow_it_run_at_the_same_time() {
        if thread::available_parallelism().map_or(1, usize::from) < 2 {
            anyfn_skip::skip!("one processor");
        }
        let meeting = Arc::new(Barrier::new(2));
        let meet = |name| {
            let meeting = Arc::clone(&meeting);
            let action = move |_: &Run| {
                meeting.wait();
                Ok(())
            };
            Step::new(name, action).beside()
        };
        let (one, two) = (meet("one"), meet("two"));
        let rows = run_group("runner-test", &[&one, &two], Options::default(), |_, _| {});
        assert_eq!(rows.iter().map(|(name, ..)| *name).collect::<Vec<_>>(), ["one", "two"]);
        assert!(rows.iter().all(|(_, outcome, _)| matches!(outcome, Outcome::Passed(_))));
    }

    #[test]
    fn skipped_tests_are_counted_by_reason() {
        let file = std::env::temp_dir().join(format!("x-skips-{}", std::process::id()));
        fs::write(&file, "a\tno cc\nb\tno cc\na\tno cc\nc\ttakes minutes\n").unwrap();
        let counts = skipped_tests(&file);
        fs::remove_file(&file).unwrap();
        assert_eq!(counts.into_iter().collect::<Vec<_>>(), [("no cc".into(), 2), ("takes minutes".into(), 1)]);
        assert!(skipped_tests(&file).is_empty());
    }
}
