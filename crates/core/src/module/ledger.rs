//! The ledger: records who created each live object, and where. It helps to find out what keeps a library mapped, or
//! memory from being freed.
//!
//! It is off until it is started by `ANYFN_LEDGER=1` or `ffi.LedgerStart`, and stays on from then. Each library that
//! contains the crate `anyfn` has its own pointer, which is NULL until then (`anyfn::use_ledger`). Loaded libraries
//! receive it through a function that `export!` generates; frontends request it with `ffi.LedgerStart`. Objects created
//! before, and those that C++ headers create, are not recorded.

use core::cell::Cell;
use core::ffi::c_void;
use core::fmt::Write;
use core::ptr::NonNull;

use std::borrow::ToOwned;
use std::collections::BTreeMap;
use std::format;
use std::string::{String as StdString, ToString};
use std::sync::Arc;
use std::vec::Vec;

use anyfn::abi::{TVMFFIObject, kTVMFFIStaticObjectBegin};
use anyfn::{Any, Array, Ledger, Map, ObjectRef, Result, String};

use super::library::Mapped;
use super::{dl, lease, load};
use crate::env;
use crate::sys::Mutex;

/// Record of an object.
#[derive(Clone)]
struct Entry {
    /// Number of the object, in the order of creation.
    number: u64,
    type_index: i32,
    /// Address in the library whose copy of `anyfn` has created the object.
    maker: usize,
    /// Source location from which a frontend called native code.
    place: Option<StdString>,
    /// Native calls that led to the creation, the innermost first.
    frames: Vec<usize>,
    /// Libraries that the object keeps mapped.
    held: Option<Held>,
}

/// Libraries that an object keeps mapped, and why.
#[derive(Clone)]
struct Held {
    /// Kind of the lease, as `ffi.ModuleLeases` names it.
    kind: &'static str,
    /// Libraries, as addresses of their entries, with their paths.
    libraries: Vec<(usize, StdString)>,
    /// Address of the code that the object represents; 0 for none.
    code: usize,
    /// Name of a function, if it has one.
    name: Option<StdString>,
}

struct Entries {
    made: u64,
    by_address: BTreeMap<usize, Entry>,
}

static ENTRIES: Mutex<Entries> = Mutex::new(Entries { made: 0, by_address: BTreeMap::new() });

// SAFETY: both functions accept any address on any thread, dereference none, and let no panic unwind.
static HOOKS: Ledger = unsafe { Ledger::new(created, freed) };

std::thread_local! {
    /// True while this thread writes to the ledger: the objects that this creates are not recorded.
    static WRITING: Cell<bool> = const { Cell::new(false) };
}

const FRAMES_MAX: usize = 32;
/// Number of frames that a description shows.
const FRAMES_SHOWN: usize = 6;

/// Returns true if the ledger is on.
pub(super) fn is_on() -> bool {
    anyfn::has_ledger()
}

/// Starts the ledger if the environment requests it.
pub(super) fn start_if_asked() {
    if crate::sys::env_flag("ANYFN_LEDGER") {
        start();
    }
}

/// Starts the ledger; returns the hooks that other copies of `anyfn` have to use.
pub(super) fn start() -> &'static Ledger {
    if !is_on() {
        // The first call may load the code that finds the calls; this must not happen while anything is locked.
        drop(native_calls());
        anyfn::use_ledger(&HOOKS);
        lease::all().iter().for_each(|mapped| tell(mapped));
    }
    &HOOKS
}

/// Makes a library record its objects, too.
pub(super) fn tell(mapped: &Mapped) {
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
    let (place, frames) = (env::place(), native_calls());
    let entry = Entry { number: 0, type_index, maker: library.addr(), place, frames, held: None };
    let replaced = {
        let mut entries = ENTRIES.lock();
        entries.made += 1;
        let number = entries.made;
        entries.by_address.insert(object.expose_provenance(), Entry { number, ..entry })
    };
    drop(replaced);
    WRITING.set(false);
}

unsafe extern "C" fn freed(object: *const c_void) {
    let gone = ENTRIES.lock().by_address.remove(&object.addr());
    drop(gone);
}

/// Records an object that is not created by the crate `anyfn`.
pub(super) fn add(object: *const c_void, type_index: i32) {
    if is_on() {
        // SAFETY: the arguments are plain data.
        unsafe { created(object, type_index, (&raw const HOOKS).cast()) };
    }
}

/// Removes the record of an object that [`add`] has recorded.
pub(super) fn remove(object: *const c_void) {
    if is_on() {
        // SAFETY: the argument is plain data.
        unsafe { freed(object) };
    }
}

/// Records which libraries an object keeps mapped.
#[cold]
pub(super) fn explain<'a>(
    object: *const c_void,
    kind: &'static str,
    libraries: impl Iterator<Item = &'a Arc<Mapped>>,
    code: *const c_void,
    name: Option<&str>,
) {
    let libraries =
        libraries.map(|mapped| (Arc::as_ptr(mapped).addr(), mapped.path.display().to_string())).collect();
    let held = Held { kind, libraries, code: code.addr(), name: name.map(ToOwned::to_owned) };
    if let Some(entry) = ENTRIES.lock().by_address.get_mut(&object.addr()) {
        entry.held = Some(held);
    }
}

/// Returns the addresses of the native calls that led here.
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

/// An entry at the moment of a report.
struct Live {
    entry: Entry,
    /// Number of references to the object; `None` for memory that is not an object.
    references: Option<u32>,
}

/// Returns the live objects in the order of creation; with a library, only those that keep it mapped.
fn live(of: Option<&Arc<Mapped>>) -> Result<Vec<Live>> {
    if !is_on() {
        anyfn::bail!(
            "RuntimeError",
            "nobody has written down who makes objects; set ANYFN_LEDGER=1, or call ffi.LedgerStart (in Python: \
             anyfn.start_ledger()) before the objects are made"
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
            let libraries = Vec::from([(Arc::as_ptr(maker).addr(), maker.path.display().to_string())]);
            entry.held = Some(Held { kind: "objects", libraries, code: 0, name: None });
        }
    }
    if let Some(of) = of {
        let this = Arc::as_ptr(of).addr();
        let holds = |held: &Held| held.libraries.iter().any(|(library, _)| *library == this);
        live.retain(|live| live.entry.held.as_ref().is_some_and(holds));
    }
    live.sort_unstable_by_key(|live| live.entry.number);
    Ok(live)
}

/// Returns the native calls of a record as strings, without those within the runtime.
fn shown_frames(entry: &Entry) -> Vec<StdString> {
    let runtime = load::runtime();
    let is_program = |origin: &dl::Origin| std::env::current_exe().is_ok_and(|program| program == origin.path);
    let skipped = runtime.filter(|runtime| !is_program(runtime)).map(|runtime| runtime.base);
    let outside = |frame: &&usize| {
        let address = core::ptr::without_provenance(**frame);
        skipped.is_none() || dl::origin(address).is_none_or(|origin| Some(origin.base) != skipped)
    };
    entry.frames.iter().filter(outside).take(FRAMES_SHOWN).map(|frame| described(*frame)).collect()
}

/// Returns an address as `symbol+offset (file)`.
fn described(address: usize) -> StdString {
    let address = core::ptr::without_provenance::<c_void>(address);
    let Some(origin) = dl::origin(address) else { return format!("{address:p}") };
    let file = origin.path.file_name().map_or_else(StdString::new, |name| name.to_string_lossy().into_owned());
    match dl::nearest_symbol(address) {
        Some((name, offset)) => format!("{name}+{offset:#x} ({file})"),
        None => format!("{file}+{:#x}", address.addr() - origin.base),
    }
}

/// Returns the live objects as a list of maps.
pub(super) fn list(of: Option<&Arc<Mapped>>) -> Result<Array<Any>> {
    let live = live(of)?;
    let mut list = Array::<Any>::new();
    for Live { entry, references } in live {
        let mut fields = Map::<String, Any>::new();
        let mut set = |name: &str, value: Any| fields.insert(name.into(), value).map(drop);
        set("number", Any::new(entry.number as i64)?)?;
        set("type", Any::new(anyfn::type_key(entry.type_index))?)?;
        set("references", Any::new(references.map(i64::from))?)?;
        set("place", Any::new(entry.place.as_deref().map(String::from))?)?;
        let frames = shown_frames(&entry).into_iter().map(String::from);
        set("frames", Any::new(Array::<String>::try_from_iter(frames)?)?)?;
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

fn code_of(held: &Held) -> Option<StdString> {
    held.name.clone().or_else(|| (held.code != 0).then(|| described(held.code)))
}

/// Returns the live objects as a string.
pub(super) fn text(of: Option<&Arc<Mapped>>) -> Result<StdString> {
    let live = live(of)?;
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
            let _ = writeln!(text, "  made at {place}");
        }
        for frame in shown_frames(entry) {
            let _ = writeln!(text, "    {frame}");
        }
    }
    Ok(text)
}

/// Records which library an object keeps mapped by holding a module.
pub(super) fn explain_module(object: &ObjectRef, mapped: Option<&Arc<Mapped>>, name: Option<&str>) {
    if is_on() && mapped.is_some() {
        explain(object.as_handle(), "modules", mapped.into_iter(), core::ptr::null(), name);
    }
}
