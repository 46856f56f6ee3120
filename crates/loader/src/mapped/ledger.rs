//! The ledger: an optional record of all live objects, which states who created each of them and where. It
//! helps to find the objects that keep a library mapped or are never released.
//!
//! Recording is off until it is started by `ANYFN_LEDGER=1` or `ffi.LedgerStart`; then it stays on. Each library that
//! contains the crate `anyfn` has its own pointer to the functions that record objects (`anyfn::use_ledger`). The
//! pointer is NULL until recording starts. Loaded libraries receive it through a function that `export!` generates, and
//! frontends call `ffi.LedgerStart` for it. Objects that were created earlier, or by C++ headers, are not recorded.

use core::cell::Cell;
use core::ffi::c_void;
use core::fmt::Write;
use core::ptr::NonNull;

use std::collections::BTreeMap;
use std::string::String as StdString;
use std::sync::Arc;

use anyfn::abi::{TVMFFIObject, kTVMFFIStaticObjectBegin};
use anyfn::{Any, Array, Ledger, Map, ObjectRef, Result, String};
use anyfn_core::loader::{self, Mutex};

use super::{Mapped, lease};
use crate::dl;

/// Record of a live object.
#[derive(Clone)]
struct ObjectRecord {
    /// Sequence number of the object in the order of creation, beginning with 1.
    number: u64,
    type_index: i32,
    /// Address in the library that has created the object. Each library that contains the crate `anyfn`
    /// passes one of its own addresses.
    maker: usize,
    /// Source location in a frontend's language from which native code was called; `None` if no frontend
    /// reports it.
    place: Option<StdString>,
    /// Addresses of the native calls that led to the creation of the object, the innermost call
    /// first.
    frames: Vec<usize>,
    /// Libraries that the object keeps mapped, if they were recorded.
    held: Option<HeldLibraries>,
}

/// Libraries that an object keeps mapped, and the reason.
#[derive(Clone)]
struct HeldLibraries {
    /// Kind of object that keeps the libraries mapped, such as `tensors`, as in the result of
    /// `ffi.ModuleLeases`.
    kind: &'static str,
    /// Libraries that the object keeps mapped, each as the address of its entry (a `Mapped`) and its path.
    libraries: Vec<(usize, StdString)>,
    /// Address of the code to which the object refers; 0 if it refers to no code.
    code: usize,
    /// Name of the object if it is a function of a library.
    name: Option<StdString>,
}

struct Entries {
    made: u64,
    by_address: BTreeMap<usize, ObjectRecord>,
}

static ENTRIES: Mutex<Entries> = Mutex::new(Entries { made: 0, by_address: BTreeMap::new() });

// SAFETY: both functions accept any address on any thread, dereference none, and let no panic unwind.
static HOOKS: Ledger = unsafe { Ledger::new(created, freed) };

thread_local! {
    /// True while this thread writes a record. Objects that the thread creates meanwhile are not recorded.
    static WRITING: Cell<bool> = const { Cell::new(false) };
}

const FRAMES_MAX: usize = 32;
/// Maximum number of native calls that the description of an object contains.
const FRAMES_SHOWN: usize = 6;

/// Returns true if live objects are being recorded.
pub(crate) fn is_on() -> bool {
    anyfn::has_ledger()
}

/// Starts recording live objects if the environment variable `ANYFN_LEDGER` is set to `1`.
pub(crate) fn start_if_asked() {
    if loader::env_flag("ANYFN_LEDGER") {
        start();
    }
}

/// Starts recording live objects, unless they are being recorded already. Returns the functions with which
/// other copies of the crate `anyfn` must record their objects.
pub(crate) fn start() -> &'static Ledger {
    if !is_on() {
        // The first call may load the code that walks the stack; this must not happen while anything is
        // locked.
        drop(native_calls());
        anyfn::use_ledger(&HOOKS);
        lease::all().iter().for_each(|mapped| tell(mapped));
    }
    &HOOKS
}

/// Makes a library record the objects that it creates, if the ledger is recording.
pub(crate) fn tell(mapped: &Mapped) {
    if !is_on() {
        return;
    }
    if let Some(use_ledger) = mapped.library.own_symbol(c"__anyfn_use_ledger") {
        type UseLedger = extern "C" fn(&'static Ledger);
        // SAFETY: the symbol of this name is this function.
        let use_ledger = unsafe { core::mem::transmute::<NonNull<c_void>, UseLedger>(use_ledger) };
        use_ledger(&HOOKS);
    }
}

unsafe extern "C" fn created(object: *const c_void, type_index: i32, library: *const c_void) {
    if WRITING.try_with(|writing| writing.replace(true)).unwrap_or(true) {
        return;
    }
    let (place, frames) = (loader::place(), native_calls());
    let entry = ObjectRecord { number: 0, type_index, maker: library.addr(), place, frames, held: None };
    let replaced = {
        let mut entries = ENTRIES.lock();
        entries.made += 1;
        let number = entries.made;
        entries.by_address.insert(object.expose_provenance(), ObjectRecord { number, ..entry })
    };
    drop(replaced);
    WRITING.set(false);
}

unsafe extern "C" fn freed(object: *const c_void) {
    let gone = ENTRIES.lock().by_address.remove(&object.addr());
    drop(gone);
}

/// Records an object that was created by other means than the functions of the crate `anyfn`.
pub(crate) fn add(object: *const c_void, type_index: i32) {
    if is_on() {
        // SAFETY: the arguments are plain data.
        unsafe { created(object, type_index, (&raw const HOOKS).cast()) };
    }
}

/// Removes the record of an object that [`add`] has recorded.
pub(crate) fn remove(object: *const c_void) {
    if is_on() {
        // SAFETY: the argument is plain data.
        unsafe { freed(object) };
    }
}

/// Returns the pair that identifies a library in the ledger: the address of its `Mapped` and its path.
fn named(mapped: &Arc<Mapped>) -> (usize, StdString) {
    (Arc::as_ptr(mapped).addr(), mapped.path.display().to_string())
}

/// Adds information to the record of an object. `libraries` are the libraries that the object keeps
/// mapped, each as the address of its entry and its path. `kind` is the kind of the object, such as
/// `tensors`. `code` is the address of the code to which the object refers, or NULL. `name` is the
/// name of the object if the object is a function.
#[cold]
pub(crate) fn explain(
    object: *const c_void,
    kind: &'static str,
    libraries: Vec<(usize, StdString)>,
    code: *const c_void,
    name: Option<&str>,
) {
    let held = HeldLibraries { kind, libraries, code: code.addr(), name: name.map(ToOwned::to_owned) };
    if let Some(entry) = ENTRIES.lock().by_address.get_mut(&object.addr()) {
        entry.held = Some(held);
    }
}

/// Returns an address in each native function that is active on this thread, the innermost function
/// first. Returns an empty list if the platform does not support this.
fn native_calls() -> Vec<usize> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let mut frames = [core::ptr::null_mut(); FRAMES_MAX];
        // SAFETY: the array is writable and has `FRAMES_MAX` elements.
        let count = unsafe { libc::backtrace(frames.as_mut_ptr(), FRAMES_MAX as i32) };
        let count = usize::try_from(count).unwrap_or(0).min(FRAMES_MAX);
        // A return address may be the first address after a function.
        frames[..count].iter().map(|frame| frame.addr().wrapping_sub(1)).collect()
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    Vec::new()
}

/// Record of a live object, with data that is read from the object for a report.
struct Live {
    entry: ObjectRecord,
    /// Number of strong references to the object; `None` if the record is for memory that is not an object.
    references: Option<u32>,
}

/// Returns the records of all live objects, in the order of their creation. If a library is given, returns
/// only the records of objects that keep it mapped.
fn live(of: Option<&Arc<Mapped>>) -> Result<Vec<Live>> {
    if !is_on() {
        anyfn::bail!(
            "RuntimeError",
            "the ledger is not running, so the creators of objects are unknown; set ANYFN_LEDGER=1, or call \
             ffi.LedgerStart (in Python: anyfn.start_ledger()) before the objects are created"
        );
    }
    let mut live: Vec<Live> = {
        let entries = ENTRIES.lock();
        let live = entries.by_address.iter().map(|(address, entry)| {
            let is_object = entry.type_index >= kTVMFFIStaticObjectBegin;
            let references = is_object.then(|| {
                let header = core::ptr::with_exposed_provenance::<TVMFFIObject>(*address);
                // SAFETY: the record of an object is removed before its memory is freed, and the removal waits for the
                // lock.
                let count = unsafe { &raw const (*header).combined_ref_count };
                // SAFETY: the record of an object is removed before its memory is freed, and the removal waits for the
                // lock; counts change by atomic operations only.
                let count = unsafe { core::sync::atomic::AtomicU64::from_ptr(count.cast_mut()) };
                count.load(core::sync::atomic::Ordering::Relaxed) as u32
            });
            Live { entry: entry.clone(), references }
        });
        live.collect()
    };
    let mapped = lease::all();
    for Live { entry, .. } in &mut live {
        if entry.held.is_none()
            && let Some(maker) = mapped.iter().find(|mapped| mapped.holds(entry.maker))
        {
            let libraries = Vec::from([named(maker)]);
            entry.held = Some(HeldLibraries { kind: "objects", libraries, code: 0, name: None });
        }
    }
    if let Some(of) = of {
        let this = Arc::as_ptr(of).addr();
        let holds = |held: &HeldLibraries| held.libraries.iter().any(|(library, _)| *library == this);
        live.retain(|live| live.entry.held.as_ref().is_some_and(holds));
    }
    anyfn::__private::sort_by(&mut live, |one, other| one.entry.number.cmp(&other.entry.number));
    Ok(live)
}

/// Descriptions of the native calls in records. Each address is looked up only once, because many
/// records contain the same addresses.
struct Frames {
    /// Base address of the runtime's library, whose frames are left out of the descriptions. `None`
    /// if the runtime is part of the program; no frames are left out then.
    skipped: Option<usize>,
    /// Description of each address seen so far; `None` if the call is left out.
    seen: BTreeMap<usize, Option<StdString>>,
}

impl Frames {
    fn new() -> Frames {
        let is_program =
            |origin: &dl::Origin| std::env::current_exe().is_ok_and(|program| program == origin.path);
        let skipped = dl::runtime::runtime().filter(|runtime| !is_program(runtime)).map(|runtime| runtime.base);
        Frames { skipped, seen: BTreeMap::new() }
    }

    /// Returns descriptions of the innermost native calls in a record, without those within the
    /// runtime. The number of descriptions is at most [`FRAMES_SHOWN`].
    fn shown(&mut self, entry: &ObjectRecord) -> Vec<StdString> {
        entry.frames.iter().filter_map(|address| self.description(*address)).take(FRAMES_SHOWN).collect()
    }

    /// Returns the description of an address, or `None` if the address is within the runtime.
    fn description(&mut self, address: usize) -> Option<StdString> {
        let describe = || {
            let origin = dl::origin(core::ptr::without_provenance(address));
            let is_skipped = self.skipped.is_some() && origin.map(|origin| origin.base) == self.skipped;
            (!is_skipped).then(|| described(address))
        };
        self.seen.entry(address).or_insert_with(describe).clone()
    }
}

/// Formats an address as `symbol+offset (file)`.
fn described(address: usize) -> StdString {
    let address = core::ptr::without_provenance::<c_void>(address);
    let Some(origin) = dl::origin(address) else { return format!("{address:p}") };
    let file = origin.path.file_name().map_or_else(StdString::new, |name| name.to_string_lossy().into_owned());
    match dl::nearest_symbol(address) {
        Some((name, offset)) => format!("{name}+{offset:#x} ({file})"),
        None => format!("{file}+{:#x}", address.addr() - origin.base),
    }
}

/// Returns a list with one map for each live object. If `of` is a library, the list contains only objects
/// that keep it mapped.
pub(crate) fn list(of: Option<&Arc<Mapped>>) -> Result<Array<Any>> {
    let live = live(of)?;
    let mut frames = Frames::new();
    let mut list = Array::<Any>::new();
    for Live { entry, references } in live {
        let mut fields = Map::<String, Any>::new();
        let mut set = |name: &str, value: Any| fields.insert(name.into(), value).map(drop);
        set("number", Any::new(entry.number as i64)?)?;
        set("type", Any::new(anyfn::type_key(entry.type_index))?)?;
        set("references", Any::new(references.map(i64::from))?)?;
        set("place", Any::new(entry.place.as_deref().map(String::from))?)?;
        let shown = frames.shown(&entry).into_iter().map(String::from);
        set("frames", Any::new(Array::<String>::try_from_iter(shown)?)?)?;
        let held = entry.held.as_ref();
        set("lease", Any::new(held.map(|held| String::from(held.kind)))?)?;
        let libraries =
            held.into_iter().flat_map(|held| &held.libraries).map(|(_, path)| String::from(&**path));
        set("libraries", Any::new(Array::<String>::try_from_iter(libraries)?)?)?;
        set("code", Any::new(held.and_then(code_of).map(String::from))?)?;
        list.push(Any::new(fields)?)?;
    }
    Ok(list)
}

fn code_of(held: &HeldLibraries) -> Option<StdString> {
    held.name.clone().or_else(|| (held.code != 0).then(|| described(held.code)))
}

/// Formats the live objects as text, with one paragraph for each. If `of` is a library, the text contains
/// only objects that keep it mapped.
pub(crate) fn text(of: Option<&Arc<Mapped>>) -> Result<StdString> {
    let live = live(of)?;
    let mut frames = Frames::new();
    let mut text = match of {
        Some(of) => format!("{} live handles of {}\n", live.len(), of.path.display()),
        None => format!("{} live handles\n", live.len()),
    };
    for Live { entry, references } in &live {
        // Writing to a string cannot fail.
        let _ = write!(text, "#{} {}", entry.number, anyfn::type_key(entry.type_index));
        if let Some(code) = entry.held.as_ref().and_then(code_of) {
            let _ = write!(text, " {code}");
        }
        if let Some(references) = references {
            let _ = write!(text, ", references: {references}");
        }
        if let Some(held) = &entry.held {
            let paths: Vec<&str> = held.libraries.iter().map(|(_, path)| &**path).collect();
            let _ = write!(text, ", {} of {}", held.kind, paths.join(" and "));
        }
        text.push('\n');
        if let Some(place) = &entry.place {
            let _ = writeln!(text, "  created at {place}");
        }
        for frame in frames.shown(entry) {
            let _ = writeln!(text, "    {frame}");
        }
    }
    Ok(text)
}

/// Records that an object keeps a library mapped, because the object refers to a module of that
/// library. `name` is the name of the object if the object is a function.
pub(crate) fn explain_module(object: &ObjectRef, mapped: Option<&Arc<Mapped>>, name: Option<&str>) {
    if let Some(mapped) = mapped.filter(|_| is_on()) {
        explain(object.as_handle(), "modules", Vec::from([named(mapped)]), core::ptr::null(), name);
    }
}
