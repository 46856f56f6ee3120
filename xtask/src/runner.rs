//! Runs a list of steps and reports the outcome of each.
//!
//! A step's output goes to a log in `.x/log`. It is shown if the step fails, or always with `--verbose`. A step may name its
//! inputs: it is not run again while their content is the same as when it last passed, except with `--all`. A step of
//! several parts, such as the tests of each package, does the same for each part ([`Step::in_parts`]).
//!
//! `--quick` runs the steps that are marked [`quick`](Step::quick), and checks less of those parts that
//! merely depend on changed inputs of other parts ([`Due::dependents`]). A whole run does not repeat checks
//! that have passed in a quick run.
//!
//! Tests report that they were skipped, and why, as lines `test<tab>reason` of the file that `ANYFN_SKIPS` names
//! (`testing/skip`, `bindings/python/tests/conftest.py`). They are listed below the table.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::inputs::{Inputs, Sources};
use crate::process::Cmd;
use crate::result::Result;

/// Time limit of each command that `./x test` runs. No command takes that long, even on a slow machine that
/// must build everything, unless a test hangs.
const TEST_LIMIT: Duration = Duration::from_secs(20 * 60);
/// Time limit of each command that tasks other than `./x test` run.
const LIMIT: Duration = Duration::from_secs(3 * 3600);

/// End of the reason for which a step was not run.
const NOT_RUN: &str = "whose results it uses";

/// Function that returns the reason why a step cannot run on this machine, or `None` if it can run.
type Unavailable = Box<dyn Fn() -> Option<String> + Send + Sync>;
type Action = Box<dyn Fn(&Run, &Due) -> Result<()> + Send + Sync>;
type Parts = Box<dyn Fn() -> Result<Vec<Part>> + Send + Sync>;

/// One step of a command of `./x`.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    unavailable: Unavailable,
    when: When,
    /// True if `./x test --quick` also runs the step.
    quick: bool,
    /// True if the step may run at the same time as the step before or after it, if that step also allows
    /// this.
    beside: bool,
    /// Names of the steps whose results the step uses.
    uses: &'static [&'static str],
    action: Action,
}

/// Condition under which a step runs.
enum When {
    Always,
    /// Runs if one of these inputs has changed since the step last passed.
    Changed(Inputs),
    /// Runs the parts whose inputs have changed since they last passed. The function in this variant returns
    /// all parts of the step.
    PartsChanged(Parts),
}

/// Part of a step, such as one package or one test file. It is not run again while its inputs are unchanged.
pub(crate) struct Part {
    pub(crate) name: String,
    /// All inputs that determine the result of the part.
    pub(crate) inputs: Inputs,
    /// The part's own inputs, without those of its dependencies; `None` if they are not listed
    /// separately.
    own: Option<Inputs>,
}

/// The parts of a step that have to run, because their inputs have changed since they last passed.
#[derive(Default)]
pub(crate) struct Due {
    /// Names of the parts to run in full.
    pub(crate) parts: Vec<String>,
    /// Names of the parts that have not changed themselves, but whose dependencies have. The step's action
    /// may omit some checks of these parts. Used only in a quick run; otherwise these parts are in `parts`.
    pub(crate) dependents: Vec<String>,
    /// Number of parts of the step, including those that need not run.
    count: usize,
    /// Paths and contents of the stamp files, which are written once the parts have passed.
    stamps: Vec<(PathBuf, String)>,
}

/// Context in which a step's action runs its commands.
pub(crate) struct Run {
    log: PathBuf,
    /// File to which each skipped test appends a line.
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

/// Options with which `./x` runs steps.
#[derive(Clone, Copy, Default)]
pub(crate) struct Options {
    /// True to run steps even if their inputs have not changed.
    pub(crate) all: bool,
    /// True to show the output of all steps, not only of the steps that fail.
    pub(crate) verbose: bool,
    /// True to stop at the first failure.
    pub(crate) fail_fast: bool,
    /// True to omit some checks of parts that have not changed themselves, but whose dependencies have.
    pub(crate) quick: bool,
}

impl Step {
    /// Creates a step that always runs and performs `action`.
    pub(crate) fn new(name: &'static str, action: impl Fn(&Run) -> Result<()> + Send + Sync + 'static) -> Self {
        Step {
            name,
            unavailable: Box::new(|| None),
            when: When::Always,
            quick: false,
            beside: false,
            uses: &[],
            action: Box::new(move |run: &Run, _: &Due| action(run)),
        }
    }

    /// Creates a step of several parts. The step performs `action` with the parts whose inputs have
    /// changed since they last passed, if there are any.
    pub(crate) fn in_parts(
        name: &'static str,
        parts: impl Fn() -> Result<Vec<Part>> + Send + Sync + 'static,
        action: impl Fn(&Run, &Due) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Step {
            name,
            unavailable: Box::new(|| None),
            when: When::PartsChanged(Box::new(parts)),
            quick: false,
            beside: false,
            uses: &[],
            action: Box::new(action),
        }
    }

    /// Skips the step if `unavailable` returns a reason.
    pub(crate) fn skip_if(mut self, unavailable: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        let before = self.unavailable;
        self.unavailable = Box::new(move || before().or_else(&unavailable));
        self
    }

    /// Skips the step if a path does not exist.
    pub(crate) fn needs(self, path: &'static str) -> Self {
        self.skip_if(move || (!crate::paths::root().join(path).exists()).then(|| format!("no {path}")))
    }

    /// Skips the step if a folder is not a member of the workspace.
    pub(crate) fn needs_member(self, folder: &'static str) -> Self {
        self.skip_if(move || {
            let manifest = fs::read_to_string(crate::paths::root().join("Cargo.toml")).unwrap_or_default();
            (!manifest.contains(&format!("\"{folder}\""))).then(|| format!("{folder} is not in the workspace"))
        })
    }

    /// Runs the step only when one of the files or folders `paths` has changed since the step last passed.
    pub(crate) fn inputs(self, paths: &'static [&'static str]) -> Self {
        self.with_inputs(|inputs| inputs.paths(paths))
    }

    /// Runs the step only when one of `packages`, or a workspace package from which these packages
    /// or their tests are built, has changed since the step last passed. If
    /// [`inputs`](Self::inputs) is called, too, a change of a path or a package is enough.
    pub(crate) fn packages(self, packages: &'static [&'static str]) -> Self {
        self.with_inputs(|inputs| inputs.packages(packages))
    }

    fn with_inputs(mut self, add: impl FnOnce(Inputs) -> Inputs) -> Self {
        let inputs = match self.when {
            When::Changed(inputs) => inputs,
            When::Always | When::PartsChanged(_) => Inputs::default(),
        };
        self.when = When::Changed(add(inputs));
        self
    }

    /// Marks the step as quick, so that `./x test --quick` runs it.
    pub(crate) fn quick(mut self) -> Self {
        self.quick = true;
        self
    }

    /// Returns true if `./x test --quick` runs the step.
    pub(crate) fn is_quick(&self) -> bool {
        self.quick
    }

    /// Declares the earlier steps whose results the step uses. If `--only` selects the step, the
    /// earlier steps run, too, so that the step never tests a build of older sources or of another
    /// command.
    pub(crate) fn uses(mut self, steps: &'static [&'static str]) -> Self {
        self.uses = steps;
        self
    }

    /// Returns the names of the steps whose results the step uses.
    pub(crate) fn used_steps(&self) -> &'static [&'static str] {
        self.uses
    }

    /// Returns the parts of the step. A step that is not divided into parts has a single part without a name.
    /// A step that always runs, whatever its inputs, has no parts.
    ///
    /// # Errors
    /// Returns an error if the sources that define the parts cannot be read.
    pub(crate) fn parts(&self) -> Result<Vec<Part>> {
        match &self.when {
            When::Always => Ok(Vec::new()),
            When::Changed(inputs) => Ok(vec![Part::new("", inputs.clone())]),
            When::PartsChanged(parts) => parts(),
        }
    }

    /// Allows the step to run at the same time as a step before or after it that also allows this. At most
    /// one step per processor runs at a time.
    pub(crate) fn beside(mut self) -> Self {
        self.beside = true;
        self
    }
}

impl Part {
    /// Creates a part with all inputs that determine its result.
    pub(crate) fn new(name: &str, inputs: Inputs) -> Self {
        Part { name: name.to_owned(), inputs, own: None }
    }

    /// Sets the part's own inputs, without those of its dependencies. If only dependencies have
    /// changed, a quick run may omit some checks of the part ([`Due::dependents`]).
    pub(crate) fn own(mut self, inputs: Inputs) -> Self {
        self.own = Some(inputs);
        self
    }
}

/// Change of a part's inputs since it last passed.
#[derive(Debug, PartialEq, Eq)]
enum Freshness {
    Unchanged,
    Changed,
    /// The part itself has not changed, but inputs of its dependencies have.
    DependsOnChanged,
}

/// Hashes of the inputs of a part.
struct Hashes {
    all: String,
    own: Option<String>,
}

impl Hashes {
    fn of(part: &Part) -> Result<Hashes> {
        let sources = Sources::of_project();
        let own = part.own.as_ref().map(|own| sources.hash(own)).transpose()?;
        Ok(Hashes { all: sources.hash(&part.inputs)?, own })
    }

    /// Returns the content of the stamp file that is written if the part passes with these inputs.
    fn stamp(&self) -> String {
        format!("{}\n{}\n", self.all, self.own.as_deref().unwrap_or_default())
    }

    /// Compares these hashes with those in `stamp`, the content of the stamp file from the last pass.
    fn state(&self, stamp: &str) -> Freshness {
        let mut lines = stamp.lines();
        if lines.next() == Some(&*self.all) {
            Freshness::Unchanged
        } else if self.own.is_some() && lines.next() == self.own.as_deref() {
            Freshness::DependsOnChanged
        } else {
            Freshness::Changed
        }
    }
}

impl Due {
    /// Determines the parts of a step that have to run.
    fn of(step: &Step, file_name: &str, options: Options) -> Result<Due> {
        let mut due = Due::default();
        for part in step.parts()? {
            due.count += 1;
            let name =
                if part.name.is_empty() { file_name.to_owned() } else { format!("{file_name}-{}", part.name) };
            let (stamp, quick_stamp) = (stamp_of(&name), stamp_of(&format!("{name}.quick")));
            let hashes = Hashes::of(&part)?;
            let state = if options.all { Freshness::Changed } else { hashes.state(&read_stamp(&stamp)) };
            match state {
                Freshness::Unchanged => {}
                Freshness::DependsOnChanged if options.quick => {
                    if hashes.state(&read_stamp(&quick_stamp)) != Freshness::Unchanged {
                        due.dependents.push(part.name);
                        due.stamps.push((quick_stamp, hashes.stamp()));
                    }
                }
                Freshness::DependsOnChanged | Freshness::Changed => {
                    due.parts.push(part.name);
                    due.stamps.push((stamp, hashes.stamp()));
                }
            }
        }
        Ok(due)
    }

    fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.dependents.is_empty()
    }

    /// Returns a note for the outcome table on how many parts ran, or an empty string if all parts ran.
    fn note(&self) -> String {
        match (self.parts.len(), self.dependents.len()) {
            (parts, 0) if parts == self.count => String::new(),
            (parts, 0) => format!("{parts} of {} parts", self.count),
            (parts, dependents) => {
                format!("{parts} of {} parts, {dependents} dependent parts partly", self.count)
            }
        }
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

    /// Writes a line to the step's log.
    pub(crate) fn say(&self, text: &str) -> Result<()> {
        if self.verbose {
            println!("{text}");
        }
        append(&self.log, &format!("{text}\n"))
    }
}

/// Runs the steps of a command, and prints a table of their outcomes and the names of the steps that a quick
/// run leaves out. Returns an error if a step failed.
pub(crate) fn run(command: &str, steps: &[&Step], left_out: &[&Step], options: Options) -> Result<()> {
    let mut rows: Vec<(&'static str, Outcome, Duration)> = Vec::new();
    for group in steps.chunk_by(|one, next| one.beside && next.beside) {
        let first = rows.len();
        let is_failed = |(name, outcome, _): &(&'static str, Outcome, Duration)| {
            matches!(outcome, Outcome::Failed(_)).then_some(*name)
        };
        let failed: Vec<&str> = rows.iter().filter_map(is_failed).collect();
        rows.extend(run_group(command, group, &failed, options, |i, name| {
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
    if !left_out.is_empty() {
        let names: Vec<_> = left_out.iter().map(|step| step.name).collect();
        println!("\nleft out by --quick: {}", names.join(", "));
        println!("`./x {command}` runs all steps completely");
    }
    let failed = rows.iter().filter(|(_, o, _)| matches!(o, Outcome::Failed(_))).count();
    if !options.verbose {
        print_failures(command, &rows);
    }
    if failed > 0 { Err(format!("{failed} steps of `{command}` failed").into()) } else { Ok(()) }
}

/// Runs steps at the same time, one per processor, and returns their rows of the outcome table in
/// the order of the steps. A step that uses the results of a step in `failed` fails without being
/// run.
fn run_group(
    command: &str,
    steps: &[&Step],
    failed: &[&str],
    options: Options,
    starts: impl Fn(usize, &str) + Sync,
) -> Vec<(&'static str, Outcome, Duration)> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut rows = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(step) = steps.get(i) else { return rows };
            starts(i, step.name);
            let start = Instant::now();
            let outcome = match step.uses.iter().find(|used| failed.contains(used)) {
                Some(used) => Outcome::Failed(format!("`{used}` failed, {NOT_RUN}")),
                None if steps.len() == 1 && !options.verbose && std::io::stdout().is_terminal() => {
                    run_with_progress(command, step, options)
                }
                None => run_step(command, step, options),
            };
            match &outcome {
                Outcome::Skipped(reason) => println!("    {}: skipped: {reason}", step.name),
                Outcome::Failed(reason) => println!("    {}: FAILED: {}", step.name, shortened(reason)),
                Outcome::Passed(_) => {}
            }
            rows.push((i, (step.name, outcome, start.elapsed())));
        }
    };
    // Most such steps of `./x soak` run for a given time, however busy the processors are.
    let more = usize::from(command == "soak");
    let workers = (thread::available_parallelism().map_or(1, usize::from) + more).min(steps.len());
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

/// Runs a step, and meanwhile shows its running time and the last line of its log.
fn run_with_progress(command: &str, step: &Step, options: Options) -> Outcome {
    let log = log_file(&file_name(command, step.name));
    thread::scope(|scope| {
        let (running, done) = mpsc::channel();
        scope.spawn(move || show_progress(&log, &done));
        let outcome = run_step(command, step, options);
        drop(running);
        outcome
    })
}

/// Shows the running time and the last line of the log in one line of the terminal, which is
/// rewritten every second until the sender of `done` is dropped. Shows nothing while the log does
/// not exist, because a step without a log writes to the terminal itself.
fn show_progress(log: &Path, done: &Receiver<()>) {
    let start = Instant::now();
    let mut out = std::io::stdout();
    while done.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
        let Ok(text) = fs::read(log) else { continue };
        let text = String::from_utf8_lossy(&text);
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        let last: String = last.trim().chars().filter(|c| !c.is_control()).take(80).collect();
        let seconds = start.elapsed().as_secs();
        let _ = write!(out, "\r\x1b[K    {}:{:02}  {last}", seconds / 60, seconds % 60);
        let _ = out.flush();
    }
    if log.exists() {
        let _ = write!(out, "\r\x1b[K");
        let _ = out.flush();
    }
}

fn run_step(command: &str, step: &Step, options: Options) -> Outcome {
    if let Some(reason) = (step.unavailable)() {
        return Outcome::Skipped(reason);
    }
    let file_name = file_name(command, step.name);
    let due = match Due::of(step, &file_name, options) {
        Ok(due) => due,
        Err(e) => return Outcome::Failed(e.to_string()),
    };
    match step.when {
        When::Always => {}
        _ if due.count == 0 => return Outcome::Failed("the step has no parts".to_owned()),
        _ if due.is_empty() => return Outcome::Passed("unchanged".to_owned()),
        _ => {}
    }
    let log = log_file(&file_name);
    let limit = if command == "test" { TEST_LIMIT } else { LIMIT };
    let skips = skips_file(command, step.name);
    for file in [&log, &skips] {
        if let Err(e) = fs::remove_file(file)
            && e.kind() != std::io::ErrorKind::NotFound
        {
            return Outcome::Failed(format!("{}: {e}", file.display()));
        }
    }
    match (step.action)(&Run { log: log.clone(), skips, verbose: options.verbose, limit }, &due) {
        Ok(()) => match due.stamps.iter().try_for_each(|(stamp, content)| write_stamp(stamp, content)) {
            Ok(()) => Outcome::Passed(due.note()),
            Err(e) => Outcome::Failed(e.to_string()),
        },
        Err(e) => {
            if !options.verbose {
                print_tail(&log, 200);
            }
            Outcome::Failed(e.to_string())
        }
    }
}

/// Returns the name of a step in a form that file names can contain.
fn file_name(command: &str, step: &str) -> String {
    format!("{command}-{}", step.replace(|c: char| !c.is_ascii_alphanumeric(), "-"))
}

/// Returns the path of a step's log.
fn log_file(file_name: &str) -> PathBuf {
    crate::paths::root().join(".x/log").join(format!("{file_name}.log"))
}

/// Returns the path of the stamp, the file that stores the hashes of the inputs with which a step or part
/// last passed.
fn stamp_of(file_name: &str) -> PathBuf {
    crate::paths::root().join(".x/passed").join(file_name)
}

/// Returns the content of a stamp, which is empty if the step or part has not passed.
fn read_stamp(stamp: &Path) -> String {
    fs::read_to_string(stamp).unwrap_or_default()
}

fn write_stamp(stamp: &Path, content: &str) -> Result<()> {
    let written = stamp.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(stamp, content));
    written.map_err(|e| format!("{}: {e}", stamp.display()).into())
}

fn skips_file(command: &str, step: &str) -> PathBuf {
    crate::paths::root().join(".x/log").join(format!("{}.skips", file_name(command, step)))
}

/// Returns the number of skipped tests for each reason. A test that several processes report is counted once.
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

/// Prints the last lines of the log of each failed step. They have been printed before, but the output of later steps follows them.
fn print_failures(command: &str, rows: &[(&str, Outcome, Duration)]) {
    for (name, outcome, _) in rows {
        let log = log_file(&file_name(command, name));
        if matches!(outcome, Outcome::Failed(reason) if !reason.ends_with(NOT_RUN)) && log.exists() {
            println!("\n{name}: the end of its output");
            print_tail(&log, 30);
        }
    }
}

/// Returns the first line of a reason. The middle of a long line, which contains a command, is left out.
fn shortened(reason: &str) -> String {
    const START: usize = 100;
    const END: usize = 40;
    let line: Vec<char> = reason.lines().next().unwrap_or_default().chars().collect();
    if line.len() <= START + END {
        return line.into_iter().collect();
    }
    let (start, end) = (&line[..START], &line[line.len() - END..]);
    format!("{} .. {}", start.iter().collect::<String>(), end.iter().collect::<String>())
}

/// Prints the last lines of a failed step's log.
fn print_tail(log: &Path, count: usize) {
    let Ok(text) = fs::read(log) else { return };
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    let first = lines.len().saturating_sub(count);
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
                format!("FAILED: {}", shortened(reason))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::Barrier;

    use super::*;

    /// Checks that two steps run at the same time if both allow it: each step waits for the other. Also
    /// checks that the rows of the outcome table keep the order of the steps.
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
        let rows = run_group("runner-test", &[&one, &two], &[], Options::default(), |_, _| {});
        assert_eq!(rows.iter().map(|(name, ..)| *name).collect::<Vec<_>>(), ["one", "two"]);
        assert!(rows.iter().all(|(_, outcome, _)| matches!(outcome, Outcome::Passed(_))));
    }

    #[test]
    fn a_step_that_uses_a_failed_one_does_not_run() {
        let tests = Step::new("tests", |_| panic!("the libraries are old")).uses(&["library"]);
        let rows = run_group("runner-test", &[&tests], &["library"], Options::default(), |_, _| {});
        assert!(matches!(&rows[0].1, Outcome::Failed(reason) if reason.contains("`library` failed")));
    }

    #[test]
    fn a_part_runs_if_its_inputs_have_changed() {
        let hashes = |all: &str, own: Option<&str>| Hashes { all: all.to_owned(), own: own.map(str::to_owned) };
        let passed = hashes("1", Some("a")).stamp();
        assert_eq!(hashes("1", Some("a")).state(&passed), Freshness::Unchanged);
        assert_eq!(hashes("2", Some("b")).state(&passed), Freshness::Changed);
        assert_eq!(hashes("2", Some("a")).state(&passed), Freshness::DependsOnChanged);
        assert_eq!(hashes("2", Some("a")).state(""), Freshness::Changed);
        let passed = hashes("1", None).stamp();
        assert_eq!(hashes("1", None).state(&passed), Freshness::Unchanged);
        assert_eq!(hashes("2", None).state(&passed), Freshness::Changed);
    }

    /// Checks that a quick run omits some checks of a part whose dependencies have changed, and that a full
    /// run omits none.
    #[test]
    fn a_quick_run_checks_less_of_parts_that_depend_on_changes() {
        let name = format!("runner-test-{}", std::process::id());
        let part = Part::new("part", Inputs::default().paths(["docs"])).own(Inputs::default());
        let hashes = Hashes::of(&part).unwrap();
        let parts = || Ok(vec![Part::new("part", Inputs::default().paths(["docs"])).own(Inputs::default())]);
        let step = Step::in_parts("runner test", parts, |_, _| Ok(()));
        let due = |options| Due::of(&step, &name, options).unwrap();
        let (whole, quick) = (Options::default(), Options { quick: true, ..Options::default() });
        assert_eq!((due(whole).parts.len(), due(quick).parts.len()), (1, 1), "it has never passed");
        let before = Hashes { all: "of other docs".to_owned(), own: hashes.own.clone() };
        write_stamp(&stamp_of(&format!("{name}-part")), &before.stamp()).unwrap();
        assert_eq!(due(whole).parts, ["part"]);
        let first = due(quick);
        assert!(first.parts.is_empty() && first.dependents == ["part"]);
        first.stamps.iter().for_each(|(stamp, content)| write_stamp(stamp, content).unwrap());
        assert!(due(quick).is_empty());
        assert_eq!(due(Options { all: true, ..quick }).parts, ["part"]);
        let last = due(whole);
        assert_eq!(last.parts, ["part"]);
        last.stamps.iter().for_each(|(stamp, content)| write_stamp(stamp, content).unwrap());
        assert!(due(whole).is_empty() && due(quick).is_empty());
        for suffix in ["", ".quick"] {
            fs::remove_file(stamp_of(&format!("{name}-part{suffix}"))).unwrap();
        }
    }

    #[test]
    fn the_middle_of_a_long_reason_is_left_out() {
        assert_eq!(shortened("short\nmore"), "short");
        let long = shortened(&format!("`pytest {}`: exit status: 1", "file ".repeat(1000)));
        assert!(
            long.starts_with("`pytest file") && long.ends_with("`: exit status: 1") && long.len() < 150,
            "{long}"
        );
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
