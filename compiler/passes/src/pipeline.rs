//! Pipelines: ordered lists of passes.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyfn::{Error, Object, ObjectRef, PackedFunc, Ref, Result, String, bail, methods};
use anyfn_ir::func::IRModule;
use anyfn_ir::printer;

use crate::{Pass, verify_module};

/// Ordered list of passes with unique names.
///
/// If another pass already has the name of a pass, a number is appended: `simplify`, `simplify_2`.
#[derive(Object)]
#[object(key = "tir.Pipeline", init = false)]
pub struct Pipeline {
    /// Name of the pipeline, used in messages.
    pub name: String,
    #[field(skip)]
    state: Mutex<PipelineState>,
}

#[derive(Default, Clone)]
struct PipelineState {
    steps: Vec<Step>,
    watchers: Vec<Arc<Watcher>>,
    times: Vec<(std::string::String, f64)>,
}

#[derive(Clone)]
struct Step {
    name: std::string::String,
    pass: Ref<Pass>,
}

type Watcher = dyn Fn(&Moment<'_>) -> Result<()> + Send + Sync;

anyfn_ir::text_enum! {
    /// Position at which a pass is inserted, relative to another pass.
    Position {
        /// Position immediately before the other pass.
        Before = "before",
        /// Position immediately after the other pass.
        After = "after",
        /// Position of the other pass, which the inserted pass replaces.
        Instead = "instead",
    }
}

/// State of a running pipeline immediately before or after a pass, as passed to the functions that watch the
/// pipeline.
pub struct Moment<'a> {
    /// True if the pass has been applied.
    pub is_after: bool,
    /// Index of the pass in the pipeline.
    pub place: usize,
    /// Name of the pass in the pipeline.
    pub name: &'a str,
    /// Input of the pass, or its output if `is_after` is true.
    pub module: &'a Ref<IRModule>,
}

impl Pipeline {
    /// Creates a pipeline of passes.
    #[must_use]
    pub fn new(name: &str, passes: impl IntoIterator<Item = Ref<Pass>>) -> Ref<Pipeline> {
        let mut state = PipelineState::default();
        for pass in passes {
            let place = state.steps.len();
            state.insert(place, pass);
        }
        Ref::new(Pipeline { name: name.into(), state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, PipelineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a function that is called before and after each pass. If the function returns an
    /// error, the run of the pipeline ends with this error.
    pub fn watch_with(&self, watcher: impl Fn(&Moment<'_>) -> Result<()> + Send + Sync + 'static) {
        self.state().watchers.push(Arc::new(watcher));
    }

    /// Applies all passes to a module, in order.
    ///
    /// # Errors
    /// Returns the error of a pass or watcher, the error of a signal that interrupts the calling thread, or
    /// `RecursionError` if more than 64 pipelines run inside each other.
    pub fn apply(&self, module: &Ref<IRModule>) -> Result<Ref<IRModule>> {
        let _deeper = Deeper::new(&self.name)?;
        let PipelineState { steps, watchers, .. } = self.state().clone();
        let mut times = Vec::with_capacity(steps.len());
        let mut module = module.clone();
        for (place, step) in steps.iter().enumerate() {
            anyfn::check_signals()?;
            let name = step.name.as_str();
            for watcher in &watchers {
                watcher(&Moment { is_after: false, place, name, module: &module })?;
            }
            let start = Instant::now();
            module = step.pass.apply(&module)?;
            times.push((step.name.clone(), start.elapsed().as_secs_f64()));
            for watcher in &watchers {
                watcher(&Moment { is_after: true, place, name, module: &module })?;
            }
        }
        self.state().times = times;
        Ok(module)
    }

    /// Returns the error of the first pass that fails or whose output fails verification. A note on
    /// the error names the pass. Returns `None` if there is no such pass.
    ///
    /// Applies all passes again, without watchers, to find the cause of a failure.
    #[must_use]
    pub fn find_broken(&self, module: &Ref<IRModule>) -> Option<Error> {
        let mut module = module.clone();
        for Step { name, pass } in self.state().clone().steps {
            let applied = pass.apply(&module).and_then(|new| {
                verify_module(&new).map_err(|error| error.with_note(&format!("in pass `{name}`")))?;
                Ok(new)
            });
            match applied {
                Ok(new) => module = new,
                Err(error) => return Some(error),
            }
        }
        None
    }

    fn find(&self, state: &PipelineState, name: &str) -> Result<usize> {
        match state.steps.iter().position(|step| step.name == name) {
            Some(place) => Ok(place),
            None => {
                let known: Vec<&str> = state.steps.iter().map(|step| step.name.as_str()).collect();
                bail!(
                    "ValueError",
                    "pipeline `{}` has no pass `{name}`; it has {}",
                    self.name,
                    known.join(", ")
                )
            }
        }
    }
}

/// Guard that counts a running pipeline in `DEPTH` until it is dropped. A pipeline may run as a
/// pass of another pipeline, or even of itself.
struct Deeper;

impl Deeper {
    const MOST: usize = 64;

    fn new(name: &str) -> Result<Deeper> {
        let depth = DEPTH.get();
        if depth == Deeper::MOST {
            bail!(
                "RecursionError",
                "pipelines nest deeper than {}: does `{name}` contain itself?",
                Deeper::MOST
            );
        }
        DEPTH.set(depth + 1);
        Ok(Deeper)
    }
}

impl Drop for Deeper {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

thread_local! {
    /// Number of nested pipelines that are running on this thread.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

impl PipelineState {
    fn insert(&mut self, place: usize, pass: Ref<Pass>) {
        let mut name = pass.name.to_string();
        let mut number = 1;
        while self.steps.iter().any(|step| step.name == name) {
            number += 1;
            name = format!("{}_{number}", pass.name);
        }
        self.steps.insert(place, Step { name, pass });
    }
}

#[methods]
impl Pipeline {
    /// Returns the names of the passes in execution order.
    pub fn names(&self) -> Vec<std::string::String> {
        self.state().steps.iter().map(|step| step.name.clone()).collect()
    }

    /// Returns the passes in execution order.
    pub fn passes(&self) -> Vec<Ref<Pass>> {
        self.state().steps.iter().map(|step| step.pass.clone()).collect()
    }

    /// Inserts a pass `before` or `after` the named pass, or `instead` of it. If `name` is None, inserts it
    /// at the beginning (`before`) or at the end (`after`).
    pub fn put(&self, place: Position, name: Option<&str>, pass: Ref<Pass>) -> Result<()> {
        let mut state = self.state();
        let at = match name {
            Some(name) => self.find(&state, name)?,
            None => state.steps.len(),
        };
        match (place, name) {
            (Position::Before, None) => state.insert(0, pass),
            (Position::After, None) | (Position::Before, Some(_)) => state.insert(at, pass),
            (Position::After, Some(_)) => state.insert(at + 1, pass),
            (Position::Instead, Some(_)) => {
                state.steps.remove(at);
                state.insert(at, pass);
            }
            (Position::Instead, None) => bail!("ValueError", "replacing a pass requires the name of that pass"),
        }
        Ok(())
    }

    /// Removes the named pass.
    pub fn remove(&self, name: &str) -> Result<()> {
        let mut state = self.state();
        let at = self.find(&state, name)?;
        state.steps.remove(at);
        Ok(())
    }

    /// Copies the pipeline. The copy has the same passes and watchers and can be modified independently.
    pub fn copy(&self) -> Pipeline {
        let state = PipelineState { times: Vec::new(), ..self.state().clone() };
        Pipeline { name: self.name.clone(), state: Mutex::new(state) }
    }

    /// Returns the pipeline as a pass on modules, for use in other pipelines.
    pub fn as_pass(this: Ref<Self>) -> Ref<Pass> {
        let name = this.name.clone();
        Pass::on_modules(&name, move |module| this.apply(module))
    }

    /// Verifies a function or module and applies all passes to it.
    #[blocking]
    pub fn run(this: Ref<Self>, node: ObjectRef) -> Result<ObjectRef> {
        match Ref::<IRModule>::try_from_object(node) {
            Ok(module) => {
                verify_module(&module)?;
                this.apply(&module).map(Ref::into_object)
            }
            Err(node) => Pipeline::as_pass(this).run(node),
        }
    }

    /// Returns the name of each pass of the last run, with its duration in seconds.
    pub fn times(&self) -> Vec<(std::string::String, f64)> {
        self.state().times.clone()
    }

    /// Calls `callback(is_after, place, name, module)` before and after each pass, where `place` is
    /// the index of the pass and `name` is its name. If the callback raises an error, the run of
    /// the pipeline ends with this error.
    pub fn watch(&self, callback: PackedFunc) {
        self.watch_with(move |moment| {
            let place = moment.place as i64;
            callback.call((moment.is_after, place, moment.name, moment.module.clone())).map(drop)
        });
    }

    /// Calls `callback(title, text)` with the printed module before or after each pass in `names`, or before or after
    /// every pass if `names` is None. An unknown name is an error.
    pub fn show(
        &self,
        is_after: bool,
        names: Option<Vec<std::string::String>>,
        callback: PackedFunc,
    ) -> Result<()> {
        for name in names.iter().flatten() {
            self.find(&self.state(), name)?;
        }
        self.watch_with(move |moment| {
            let is_wanted = names.as_ref().is_none_or(|names| names.iter().any(|name| name == moment.name));
            if moment.is_after != is_after || !is_wanted {
                return Ok(());
            }
            let when = if is_after { "after" } else { "before" };
            let text = printer::text(moment.module.as_object());
            callback.call((&*format!("{when} {}", moment.name), &*text)).map(drop)
        });
        Ok(())
    }

    /// Writes the printed module to files in a folder, which is created if necessary: `00_input.txt`, then
    /// one file after each pass. The name of a file contains the name of its pass, truncated to 100
    /// characters. Characters other than letters, digits, `-` and `_` are replaced by `_`.
    pub fn dump(&self, folder: &str) -> Result<()> {
        let folder = PathBuf::from(folder);
        std::fs::create_dir_all(&folder).map_err(|error| failed(&folder, &error))?;
        self.watch_with(move |moment| {
            let name = match moment.is_after {
                true => format!("{:02}_{}.txt", moment.place + 1, in_file_name(moment.name)),
                false if moment.place == 0 => "00_input.txt".to_owned(),
                false => return Ok(()),
            };
            let path = folder.join(name);
            let text = printer::text(moment.module.as_object()) + "\n";
            std::fs::write(&path, text).map_err(|error| failed(&path, &error))
        });
        Ok(())
    }
}

/// Returns the name of a pass in the form used in file names.
fn in_file_name(name: &str) -> std::string::String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '_' };
    name.chars().take(100).map(plain).collect()
}

#[cold]
fn failed(path: &std::path::Path, error: &std::io::Error) -> Error {
    Error::new("OSError", &format!("{}: {error}", path.display()))
}
