//! Modules that follow a file: such a module always uses the newest build of the file that could be loaded.
//! They are meant for development.
//!
//! No thread checks the file in the background. The file is checked when a function of the module is looked up, and
//! when a function that was looked up is called; a check is one system call. A build is *good* if it can be loaded and
//! has all functions that are in use. A build that is not good changes nothing, except that [`Watch::problem`] reports
//! the reason.

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use std::path::{Path, PathBuf};
use std::string::String as StdString;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use anyfn::__private::{FunctionDef, functions};
use anyfn::abi::{
    AnyfnFunctionExt, OBJECT_FLAG_FUNCTION_EXT, TVMFFIAny, TVMFFIFunctionCell, TVMFFIObject, kTVMFFIFunction,
};
use anyfn::{Any, AnyView, Args, Error, Map, Module, PackedFunc, Result, String};
use anyfn_core::loader::{self, Mutex};

use crate::file::{Identity, identity_of};
use crate::library::registrations;
use crate::load;
use crate::object::{AnyModule, Implementation};

/// Minimum age of a file that is considered complete. A younger file that cannot be loaded may be incomplete,
/// so it is tried again at the next check, without a warning.
const SETTLED: Duration = Duration::from_secs(1);

pub(crate) static FUNCTIONS: &[FunctionDef] = &functions! {
    "ffi.ModuleWatch" [] => watch_file,
    "ffi.ModuleWatchPoll" [] => |m: Module| of(&m)?.poll(),
    "ffi.ModuleWatchReload" [] => |m: Module| of(&m)?.reload(),
    "ffi.ModuleWatchProblem" [] => |m: Module| Ok::<_, anyfn::Error>(of(&m)?.problem().map(String::from)),
    "ffi.ModuleWatchNewest" [] => |m: Module| of(&m)?.newest(),
};

/// Creates a module that follows a file, that is, always uses the newest build of the file that
/// could be loaded.
fn watch_file(args: Args<'_>) -> Result<Module> {
    let callback = |index| if args.len() > index { args.get::<Option<PackedFunc>>(index) } else { Ok(None) };
    Watch::open(args.get::<&str>(0)?, callback(1)?, callback(2)?)
}

/// A file that a module follows, with the newest build of the file that could be loaded.
pub(crate) struct Watch {
    path: StdString,
    /// Callback that is called with the path and the new module after a newer build was loaded.
    on_reload: Option<PackedFunc>,
    /// Callback that is called with the path and a reason if a newer build cannot be used.
    on_problem: Option<PackedFunc>,
    state: Mutex<WatchState>,
    /// True while a thread loads a build. Other threads do not wait for it and continue with the current build.
    looking: AtomicBool,
    /// Functions that were looked up in the module and may still be in use.
    taken: Mutex<Vec<Weak<Follower>>>,
}

struct WatchState {
    module: AnyModule,
    /// Number of the current build. It is 0 for the first one and increases with each newer build.
    build: usize,
    /// Identity of the file's content that was checked most recently.
    seen: Identity,
    /// True if the content that was checked most recently need not be checked again.
    is_settled: bool,
    /// Reason why the present content of the file is not used; `None` if the current build was loaded from
    /// it.
    problem: Option<StdString>,
}

/// Result of loading the present content of the file that a module follows.
enum Outcome {
    Same,
    Reloaded(AnyModule),
    Refused(Error),
}

impl Watch {
    /// Loads the file at `path` and returns a module that follows it.
    pub(crate) fn open(
        path: &str,
        on_reload: Option<PackedFunc>,
        on_problem: Option<PackedFunc>,
    ) -> Result<Module> {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path));
        let path = absolute.to_str().unwrap_or(path).to_owned();
        // Read before the file is loaded: what is written meanwhile is another content.
        let seen = identity_of(Path::new(&path));
        let module = load_from(&path)?;
        let state =
            WatchState { module, build: 0, seen: seen.unwrap_or_default(), is_settled: true, problem: None };
        let watch = Watch {
            path,
            on_reload,
            on_problem,
            state: Mutex::new(state),
            looking: AtomicBool::new(false),
            taken: Mutex::new(Vec::new()),
        };
        AnyModule::new(Box::new(WatchModule(Arc::new(watch))), Arc::default()).map(AnyModule::into_module)
    }

    /// Returns the module of the current build, and the number of the build.
    fn current(&self) -> (AnyModule, usize) {
        let state = self.state.lock();
        (state.module.clone(), state.build)
    }

    /// Returns the reason why the present content of the file is not used, or `None` if it is used.
    pub(crate) fn problem(&self) -> Option<StdString> {
        self.state.lock().problem.clone()
    }

    /// Checks whether the content of the file has changed. If it is a newer build that can be used,
    /// makes it the current build and returns true.
    ///
    /// # Errors
    /// Returns the error of a callback. A build that is not good is reported to `on_problem` and is not an error.
    pub(crate) fn poll(&self) -> Result<bool> {
        // While a file is replaced, it may be absent for a moment.
        let Some(now) = identity_of(Path::new(&self.path)) else { return Ok(false) };
        {
            let state = self.state.lock();
            if state.seen == now && state.is_settled {
                return Ok(false);
            }
        }
        match self.look(now) {
            Outcome::Same => Ok(false),
            Outcome::Reloaded(module) => {
                if let Some(on_reload) = &self.on_reload {
                    on_reload.call((&self.path[..], module.into_module()))?;
                }
                Ok(true)
            }
            Outcome::Refused(error) => {
                if !self.state.lock().is_settled {
                    return Ok(false);
                }
                match &self.on_problem {
                    Some(on_problem) => {
                        on_problem.call((&self.path[..], error.message()))?;
                    }
                    None => loader::warn(&format!(
                        "the newer build of {} was rejected: {}",
                        self.path,
                        error.message()
                    )),
                }
                Ok(false)
            }
        }
    }

    /// Checks the file like [`Watch::poll`] and returns the module of the current build. Returns an error if
    /// the content of the file cannot be used, even if this was already reported.
    pub(crate) fn reload(&self) -> Result<Module> {
        let now = identity_of(Path::new(&self.path));
        match self.look(now.unwrap_or_default()) {
            Outcome::Same => {}
            Outcome::Reloaded(module) => {
                if let Some(on_reload) = &self.on_reload {
                    on_reload.call((&self.path[..], module.into_module()))?;
                }
            }
            Outcome::Refused(error) => return Err(error),
        }
        Ok(self.current().0.into_module())
    }

    /// Checks the file like [`Watch::poll`] and returns the module of the current build.
    pub(crate) fn newest(&self) -> Result<Module> {
        self.poll()?;
        Ok(self.current().0.into_module())
    }

    /// Loads the present content of the file, whose identity is `now`. Makes it the current build if it can
    /// be used. Calls no callback.
    #[cold]
    fn look(&self, now: Identity) -> Outcome {
        if self.looking.swap(true, Ordering::Acquire) {
            return Outcome::Same;
        }
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Release);
            }
        }
        let _done = Done(&self.looking);
        let (before, _) = self.current();
        let loaded = registrations::taking_over(&before, || load_from(&self.path)).and_then(|module| {
            self.check_taken(&module)?;
            Ok(module)
        });
        let mut state = self.state.lock();
        state.seen = now;
        match loaded {
            Ok(module) => {
                state.is_settled = true;
                state.problem = None;
                if module.as_object().ptr_eq(before.as_object()) {
                    return Outcome::Same;
                }
                state.build += 1;
                let old = core::mem::replace(&mut state.module, module.clone());
                drop(state);
                // Under no lock, because releasing may run any code.
                drop((old, before));
                Outcome::Reloaded(module)
            }
            Err(error) => {
                state.is_settled = has_settled(now);
                state.problem = Some(error.message().to_owned());
                Outcome::Refused(error)
            }
        }
    }

    /// Returns an error if the newer build `module` lacks a function that was looked up and is still in use.
    fn check_taken(&self, module: &AnyModule) -> Result<()> {
        let taken: Vec<Arc<Follower>> = self.taken.lock().iter().filter_map(Weak::upgrade).collect();
        for follower in &taken {
            if !module.implements(&follower.name, true)? {
                anyfn::bail!(
                    "AttributeError",
                    "the newer build of {} has no function `{}`, which is in use; the previous build remains \
                     in use",
                    self.path,
                    follower.name
                );
            }
        }
        Ok(())
    }
}

/// Loads the module in the file at `path`. Returns an error if the module was not created by this
/// runtime.
fn load_from(path: &str) -> Result<AnyModule> {
    AnyModule::try_from(&load::load_from_file(path)?.get::<Module>()?)
}

/// Returns true if the modification time of a file is old enough for the file to be considered complete.
fn has_settled(identity: Identity) -> bool {
    let (seconds, nanoseconds) = identity.3;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let changed = Duration::new(seconds.try_into().unwrap_or(0), nanoseconds.try_into().unwrap_or(0));
    // A time in the future counts by its distance from now.
    now.abs_diff(changed) >= SETTLED
}

/// A function that was looked up in a module that follows a file. It is looked up again in each newer build.
struct Follower {
    watch: Arc<Watch>,
    name: StdString,
    /// Number of the build in which the function was looked up most recently, and the function in that build.
    cached: Mutex<(usize, PackedFunc)>,
}

impl Follower {
    /// Checks the file for a newer build and returns the function in the current build.
    fn function(&self) -> Result<PackedFunc> {
        self.watch.poll()?;
        let build = self.watch.state.lock().build;
        {
            let cached = self.cached.lock();
            if cached.0 == build {
                return Ok(cached.1.clone());
            }
        }
        let (module, build) = self.watch.current();
        let Some(function) = module.function(&self.name, true)? else {
            return Err(module.into_module().missing(&self.name));
        };
        let old = core::mem::replace(&mut *self.cached.lock(), (build, function.clone()));
        drop(old);
        Ok(function)
    }
}

/// Content of the function object for a [`Follower`]. The ABI fixes all fields before `follower`.
#[repr(C)]
struct Content {
    cell: TVMFFIFunctionCell,
    ext: &'static AnyfnFunctionExt,
    follower: Arc<Follower>,
}

// SAFETY: the cell holds addresses of functions only; any thread may use the rest.
unsafe impl Send for Content {}

/// Function extension of the function objects of [`Follower`]s. It marks them as functions that may run for a
/// long time, because they call compiled code.
static EXT: AnyfnFunctionExt =
    AnyfnFunctionExt { size: size_of::<AnyfnFunctionExt>(), flags: 1, signature: Some(signature) };

/// Returns the [`Follower`] in the content of a function object.
///
/// # Safety
/// `handle` must be a function object that [`follow`] has created, alive for `'a`.
unsafe fn follower_of<'a>(handle: *mut c_void) -> &'a Follower {
    // SAFETY: the content follows the header.
    let content = unsafe { handle.cast::<TVMFFIObject>().add(1) }.cast::<Content>();
    // SAFETY: the caller keeps the object alive.
    unsafe { &(*content).follower }
}

unsafe extern "C" fn call(
    handle: *mut c_void,
    args: *const TVMFFIAny,
    count: c_int,
    result: *mut TVMFFIAny,
) -> c_int {
    anyfn::__private::trampoline(|| {
        // SAFETY: the handle is the function object itself, which the caller keeps alive.
        let function = unsafe { follower_of(handle) }.function()?;
        // SAFETY: the caller passes `count` valid views for the duration of the call.
        let args = unsafe { AnyView::slice_from_raw(args, count) };
        let value = function.call_views(args)?;
        // SAFETY: the caller passes a writable result that holds nothing.
        unsafe { result.write(value.into_raw()) };
        Ok(())
    })
}

unsafe extern "C" fn signature(handle: *mut c_void, result: *mut TVMFFIAny) -> c_int {
    anyfn::__private::trampoline(|| {
        // SAFETY: the handle is the function object itself, which the caller keeps alive.
        let function = unsafe { follower_of(handle) }.function()?;
        if let Some(text) = function.signature() {
            // SAFETY: the caller passes a writable result that holds nothing.
            unsafe { result.write(Any::new(text)?.into_raw()) };
        }
        Ok(())
    })
}

/// Creates a function object for the function `name`. Each call of the object runs that function in the build
/// that is then current. `function` is the function in the build with the number `build`.
fn follow(watch: &Arc<Watch>, name: &str, build: usize, function: PackedFunc) -> Result<PackedFunc> {
    let follower = Arc::new(Follower {
        watch: watch.clone(),
        name: name.to_owned(),
        cached: Mutex::new((build, function)),
    });
    {
        let mut taken = watch.taken.lock();
        taken.retain(|weak| weak.strong_count() > 0);
        taken.push(Arc::downgrade(&follower));
    }
    let cell = TVMFFIFunctionCell { safe_call: call, cpp_call: core::ptr::null_mut() };
    let content = Content { cell, ext: &EXT, follower };
    let flags = OBJECT_FLAG_FUNCTION_EXT;
    // SAFETY: the content begins with the cell of a function and the address of its extension, which is static.
    let object = unsafe { anyfn::__private::new_object_with_flags(kTVMFFIFunction, flags, content) };
    PackedFunc::try_from_object(object)
        .map_err(|_| Error::new("InternalError", "cannot create a function: the new object is not a function"))
}

/// Implementation of a module that follows a file. The module also has the functions of the modules that the current
/// build imports.
struct WatchModule(Arc<Watch>);

impl Implementation for WatchModule {
    fn kind(&self) -> &CStr {
        c"watch"
    }

    fn property_mask(&self) -> i32 {
        2
    }

    fn function(&self, _module: &AnyModule, name: &str) -> Result<Option<PackedFunc>> {
        self.0.poll()?;
        let (module, build) = self.0.current();
        let Some(function) = module.function(name, true)? else { return Ok(None) };
        follow(&self.0, name, build, function).map(Some)
    }

    fn implements(&self, _module: &AnyModule, name: &str) -> Result<bool> {
        self.0.poll()?;
        self.0.current().0.implements(name, true)
    }

    fn function_names(&self) -> Result<Vec<StdString>> {
        self.0.current().0.function_names(true)
    }

    fn file(&self) -> Option<StdString> {
        Some(self.0.path.clone())
    }

    fn function_doc(&self, name: &str) -> Result<Option<String>> {
        self.0.current().0.function_doc(name, true)
    }

    fn function_metadata(&self, name: &str) -> Result<Option<String>> {
        self.0.current().0.function_metadata(name, true)
    }

    fn leases(&self) -> Result<Map<String, Any>> {
        self.0.current().0.leases()
    }

    fn pinned(&self) -> Option<StdString> {
        self.0.current().0.pinned()
    }

    fn is_current(&self, path: Option<&Path>) -> bool {
        match path {
            Some(path) => self.0.current().0.is_current(Some(path)),
            None => self.0.current().0.is_current(Some(Path::new(&self.0.path))),
        }
    }
}

/// Returns the file that a module follows, with its state, or `None` if the module follows no file.
fn followed(module: &AnyModule) -> Option<&Arc<Watch>> {
    module.implementation_as::<WatchModule>().map(|WatchModule(watch)| watch)
}

/// Returns the file that a module follows, with its state. Returns an error if the module follows
/// no file.
///
/// # Errors
/// Returns `TypeError` if the module does not follow a file.
fn of(module: &Module) -> Result<Arc<Watch>> {
    let own = AnyModule::try_from(module)?;
    match followed(&own) {
        Some(watch) => Ok(watch.clone()),
        None => anyfn::bail!(
            "TypeError",
            "expected a module that ffi.ModuleWatch returned, but got one of kind `{}`",
            own.kind().to_string_lossy()
        ),
    }
}

/// Returns the module of the current build, for a module that follows a file. Other modules are returned unchanged.
pub(crate) fn newest(module: &AnyModule) -> Result<Module> {
    followed(module).map_or_else(|| Ok(module.clone().into_module()), |watch| watch.newest())
}
