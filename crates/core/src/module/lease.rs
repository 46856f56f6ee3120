//! Counts what is in use of each library, and unmaps the libraries of which nothing is.
//!
//! A library stays mapped while anything of it is alive. This is counted where an address of the library enters the
//! core:
//! - Functions, tensors and opaque objects hold a [`Lease`] from their creation until their deleter has returned.
//! - Modules hold the library itself.
//! - Objects that a Rust plugin creates without the core are counted by the plugin until their deleter has returned to
//!   code outside of it (`anyfn::count_end`).
//! - A library whose getters and setters serve the objects of an older one of the same type is held by that one
//!   ([`take_over`]).
//!
//! Where objects can escape unseen, or the system would not unmap the library, it is *pinned* for a stated reason.
//!
//! A library is closed by [`reap`], never inside a release, because its own code may be running then.

use core::ffi::c_void;
use core::num::NonZero;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

use std::format;
use std::string::{String as StdString, ToString};
use std::sync::Arc;
use std::vec::Vec;

use anyfn::{Any, IntoAny, Map, ObjectRef, Result, String, making};

use super::elf::{self, Facts};
use super::library::Mapped;
use super::{dl, ledger, load};
use crate::sys::Mutex;
use crate::{method, type_table};

/// Entries of all libraries, and the state of loading.
struct State {
    mapped: Vec<Arc<Mapped>>,
    /// Former entries of libraries that were loaded again while they were unloaded. They stay for the lifetime of the
    /// process, because the static data of the library may still refer to their content.
    former: Vec<Arc<Mapped>>,
    /// Libraries that are about to be closed and whose addresses the type table still contains.
    closing: Vec<Arc<Mapped>>,
    /// Number of libraries that are being opened, one within the constructors of another.
    opening: usize,
    /// Addresses of no known library from which something alive was created while a library was being opened:
    /// constructors run before their library is known. Each address has the number of its lease.
    unknown: Vec<(NonZero<u32>, usize)>,
    /// Last number given to a lease of unknown addresses.
    numbers: u32,
}

// No function of the dynamic loader may be called while this is locked: a thread that holds the loader's lock may wait
// for this one, as constructors do that create functions.
static STATE: Mutex<State> = Mutex::new(State {
    mapped: Vec::new(),
    former: Vec::new(),
    closing: Vec::new(),
    opening: 0,
    unknown: Vec::new(),
    numbers: 0,
});
/// True if a library is mapped or being opened; read before the lock is taken.
static IN_USE: AtomicBool = AtomicBool::new(false);
/// Held while libraries are opened for the first time or closed, so that both exclude each other for a path.
static OPENING: Mutex<()> = Mutex::new(());

impl State {
    fn changed(&self) {
        IN_USE.store(!self.mapped.is_empty() || self.opening > 0, Ordering::Relaxed);
    }

    /// Returns a number for a lease of unknown addresses. Once all numbers are used, leases share the last one and keep
    /// their addresses.
    fn number(&mut self) -> NonZero<u32> {
        self.numbers = self.numbers.saturating_add(1);
        NonZero::new(self.numbers).unwrap_or(NonZero::<u32>::MAX)
    }
}

/// Kind of the object that holds a lease.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A function created from an address.
    Function,
    /// A tensor whose deleter is an address.
    Tensor,
    /// An object of another language, with its deleter.
    Opaque,
}

const KINDS: [(&str, Kind); 3] =
    [("functions", Kind::Function), ("tensors", Kind::Tensor), ("opaque objects", Kind::Opaque)];

/// Number of leases of each kind.
#[derive(Default)]
pub(super) struct Counts([AtomicUsize; KINDS.len()]);

/// Keeps the libraries mapped to which some addresses belong.
pub(crate) struct Lease {
    /// Libraries that the lease holds: mostly one, or two if one library creates an object from the code of another.
    mapped: [Option<Arc<Mapped>>; 2],
    /// Number in `State::unknown`, if one of the addresses belonged to no known library.
    unknown: Option<NonZero<u32>>,
    kind: Kind,
}

impl Lease {
    /// Creates a lease for the addresses of one object. An address that it does not have is NULL; the code that runs
    /// last comes first. Costs one atomic load as long as no library is loaded.
    #[inline]
    pub(crate) fn of(kind: Kind, addresses: &[*const c_void]) -> Lease {
        if !IN_USE.load(Ordering::Relaxed) {
            return Lease { mapped: [None, None], unknown: None, kind };
        }
        Self::look_up(kind, addresses)
    }

    #[inline(never)]
    fn look_up(kind: Kind, addresses: &[*const c_void]) -> Lease {
        let mut lease = Lease { mapped: [None, None], unknown: None, kind };
        let mut guard = STATE.lock();
        let state = &mut *guard;
        for address in addresses.iter().map(|address| address.addr()).filter(|address| *address != 0) {
            let Some(owner) = state.mapped.iter().find(|mapped| mapped.holds(address)) else {
                if state.opening > 0 {
                    let number = *lease.unknown.get_or_insert_with(|| state.number());
                    state.unknown.push((number, address));
                }
                continue;
            };
            let [first, second] = &mut lease.mapped;
            let free = match first {
                None => first,
                Some(known) if Arc::ptr_eq(known, owner) => continue,
                Some(_) if second.is_none() => second,
                Some(_) => continue,
            };
            owner.counts.0[kind as usize].fetch_add(1, Ordering::Relaxed);
            *free = Some(owner.clone());
        }
        lease
    }

    /// Creates the object that holds the lease, and records in the ledger that it represents `code`.
    #[inline]
    pub(crate) fn explain(self, code: *const c_void, make: impl FnOnce(Lease) -> ObjectRef) -> ObjectRef {
        if self.mapped[0].is_none() || !ledger::is_on() {
            return make(self);
        }
        let (mapped, kind) = (self.mapped.clone(), KINDS[self.kind as usize].0);
        let object = make(self);
        ledger::explain(object.as_handle(), kind, mapped.iter().flatten(), code, None);
        object
    }

    /// Returns true if the lease must end with its object: it holds a library, or may belong to one that is being
    /// opened.
    pub(crate) fn is_held(&self) -> bool {
        self.mapped[0].is_some() || self.unknown.is_some()
    }
}

impl Drop for Lease {
    #[inline]
    fn drop(&mut self) {
        for mapped in self.mapped.iter().flatten() {
            mapped.counts.0[self.kind as usize].fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(number) = self.unknown {
            forget(number);
        }
    }
}

/// Removes the addresses of a lease whose object is destroyed: their library may be unmapped, and another one mapped
/// there.
#[cold]
fn forget(number: NonZero<u32>) {
    if number != NonZero::<u32>::MAX {
        STATE.lock().unknown.retain(|(of, _)| *of != number);
    }
}

/// Returns true if an address belongs to a Rust plugin, which counts its objects and so may be unmapped.
pub(crate) fn is_code_of_plugin(address: usize) -> bool {
    let state = STATE.lock();
    state.mapped.iter().any(|mapped| mapped.live_objects.is_some() && mapped.holds(address))
}

/// Lets the code of one Rust plugin, at `new`, replace that of another one, at `old`, for a field of a type that both
/// define. Returns `None` if either address does not belong to a plugin, and `Some(false)` if the old code must stay.
///
/// From then on the code of the new library reads objects of the old one, but these objects keep only their own library
/// mapped. So the old library keeps the new one mapped as long as it is mapped itself.
pub(crate) fn take_over(old: usize, new: usize) -> Option<bool> {
    let state = STATE.lock();
    let plugin = |among: &'_ [Arc<Mapped>], address| {
        among.iter().find(|mapped| mapped.live_objects.is_some() && mapped.holds(address)).cloned()
    };
    let new = plugin(&state.mapped, new)?;
    if plugin(&state.closing, old).is_some() {
        // The old library has no objects left.
        return Some(true);
    }
    let old = plugin(&state.mapped, old)?;
    if Arc::ptr_eq(&old, &new) {
        return Some(true);
    }
    if new.keeps(&old) {
        // The code of either library can read the objects of both. If each library kept the other one, both would stay
        // forever.
        return Some(false);
    }
    if !old.keeps(&new) {
        old.successors.lock().push(new);
    }
    Some(true)
}

/// Returns the alignment that the code at an address requires, if the peer's compiler has generated it.
pub(super) fn compiled(address: usize) -> Option<usize> {
    STATE.lock().mapped.iter().find(|mapped| mapped.holds(address))?.compiled
}

/// Returns all libraries that are mapped.
pub(super) fn all() -> Vec<Arc<Mapped>> {
    STATE.lock().mapped.clone()
}

/// Runs `body`, which opens or closes libraries, while no other thread does so.
pub(super) fn while_opening<T>(body: impl FnOnce() -> T) -> T {
    // A constructor of the library may load another one on this thread.
    std::thread_local! {
        static INSIDE: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
    }
    if INSIDE.get() {
        return body();
    }
    let _turn = OPENING.lock();
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            INSIDE.set(false);
        }
    }
    INSIDE.set(true);
    let _reset = Reset;
    body()
}

/// A library that is being opened.
pub(super) struct Opening {
    /// Start addresses of the files that were mapped before.
    before: Vec<usize>,
}

impl Opening {
    /// Records which files are mapped, before anything of the library runs.
    pub(super) fn begin() -> Opening {
        let before = dl::starts();
        let mut state = STATE.lock();
        state.opening += 1;
        state.changed();
        Opening { before }
    }

    /// Returns the files that were mapped since then, except known libraries: the library, those that it needs, and
    /// perhaps others.
    pub(super) fn came(&self) -> Vec<dl::Object> {
        let objects = dl::objects_without(&self.before);
        let state = STATE.lock();
        let is_known = |object: &dl::Object| state.mapped.iter().any(|mapped| mapped.holds(object.range.start));
        objects.into_iter().filter(|object| !is_known(object)).collect()
    }

    /// Returns true if something is alive that was created from addresses in these ranges before they were known.
    pub(super) fn has_made_of<'a>(&self, ranges: impl Iterator<Item = &'a Range<usize>>) -> bool {
        let state = STATE.lock();
        ranges.into_iter().any(|range| state.unknown.iter().any(|(_, address)| range.contains(address)))
    }

    /// Closes a library that cannot be used, unless something of it is in use already.
    pub(super) fn abandon(&self, handles: &[dl::Library]) {
        if !self.has_made_of(self.came().iter().map(|object| &object.range)) {
            close_all(handles);
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut state = STATE.lock();
        state.opening -= 1;
        if state.opening == 0 {
            state.unknown = Vec::new();
        }
        state.changed();
    }
}

pub(super) fn close_all(handles: &[dl::Library]) {
    for handle in handles.iter().rev() {
        // SAFETY: nothing of the library is in use, and each handle is closed once.
        unsafe { handle.close() };
    }
}

/// Returns the only entry of a library: the existing one, or else `new`.
pub(super) fn entry(new: Mapped) -> Arc<Mapped> {
    let mut state = STATE.lock();
    let known = state.mapped.iter().find(|known| known.library == new.library).cloned();
    if let Some(known) = known {
        drop(state);
        // The library was opened a second time, by another path.
        close_all(&new.handles);
        return known;
    }
    let new = Arc::new(new);
    state.mapped.push(new.clone());
    state.changed();
    new
}

/// Returns true if a library is C++ code that uses the runtime.
pub(super) fn is_cpp(facts: &Facts) -> bool {
    let libraries = ["libstdc++.so", "libc++.so"];
    let needs_cpp = facts.needed.iter().any(|name| libraries.iter().any(|cpp| name.starts_with(cpp)));
    // A library that contains the C++ library exports some of its names. Rust has names of this form, too.
    let has_cpp = facts.built_for.is_none()
        && facts.undefined.iter().chain(&facts.defined).any(|symbol| symbol.name.starts_with("_Z"));
    (needs_cpp || has_cpp) && facts.undefined.iter().any(|symbol| load::is_runtime_symbol(&symbol.name))
}

/// Returns the reason why a library is never unmapped, if there is one.
pub(super) fn pinned(facts: &Facts) -> Option<StdString> {
    let uses = |name: &str| facts.undefined.iter().any(|symbol| symbol.name == name);
    let is_rust = facts.built_for.is_some();
    if is_cpp(facts) {
        return Some("it is C++ code, which makes objects that nobody counts".into());
    }
    if let Some(unique) = facts.defined.iter().find(|symbol| symbol.is_unique) {
        return Some(format!(
            "it has symbols that are one for the whole process, such as {}: the system never unmaps it (compile it \
             with -fno-gnu-unique)",
            unique.name
        ));
    }
    if facts.is_kept {
        return Some("it was linked with -z nodelete".into());
    }
    // Functions whose arguments are kept for the lifetime of the process.
    const KEPT: [(&str, &str); 7] = [
        ("TVMFFITypeRegisterField", "fields of types"),
        ("TVMFFITypeRegisterMethod", "methods of types"),
        ("TVMFFITypeRegisterMetadata", "types"),
        ("TVMFFIEnvRegisterCAPI", "functions of the environment"),
        ("TVMFFIEnvModRegisterContextSymbol", "context symbols"),
        ("TVMFFIEnvModRegisterSystemLibSymbol", "symbols of a system library"),
        ("TVMFFIEnvSetDLPackManagedTensorAllocator", "an allocator"),
    ];
    // What a Rust plugin registers for its types is revoked when it is unmapped.
    let kept = if is_rust { &KEPT[3..] } else { &KEPT[..] };
    if let Some((_, what)) = kept.iter().find(|(name, _)| uses(name)) {
        return Some(format!("it registers {what}, which stay for ever"));
    }
    let defines = |name: &str| facts.defined.iter().any(|symbol| symbol.name == name);
    if is_rust && !(defines("__anyfn_live_objects") && defines("__anyfn_use_count_end")) {
        return Some(
            "it does not count its objects: it was built with another version of the `anyfn` crate".into(),
        );
    }
    // A Rust plugin counts its objects, and registers plain numbers for its types.
    if !is_rust && (uses("TVMFFITypeGetOrAllocIndex") || uses("TVMFFITypeRegisterAttr")) {
        return Some("it has object types of its own, whose objects nobody counts".into());
    }
    None
}

/// Returns the libraries that came with a library because it needs them, and the reason why they pin it, if they do.
///
/// Of the files that came at the same time, some may have been opened by other threads.
pub(super) fn needed(
    facts: &Facts,
    came: impl Iterator<Item = dl::Object>,
) -> (Vec<dl::Object>, Option<StdString>) {
    let mut names = facts.needed.clone();
    let (mut needed, mut pinned_by) = (Vec::new(), None);
    let mut left: Vec<(dl::Object, Facts)> = came
        // The generated libraries are not files.
        .filter(|object| !object.path.as_bytes().starts_with(b"/proc/"))
        .filter_map(|object| {
            let (_, file, _) = load::find(object.path.to_str().ok()?).ok()?;
            Some((object, elf::read_file(file, false).ok()?))
        })
        .collect();
    loop {
        let is_named = |(object, facts): &(dl::Object, Facts)| {
            let path = object.path.to_str().unwrap_or_default();
            let file = path.rsplit('/').next().unwrap_or_default();
            names.iter().any(|name| name == path || name == file || Some(name) == facts.soname.as_ref())
        };
        let Some(at) = left.iter().position(is_named) else { return (needed, pinned_by) };
        let (object, facts) = left.swap_remove(at);
        // A library without the runtime's functions creates no objects.
        if facts.undefined.iter().any(|symbol| load::is_runtime_symbol(&symbol.name)) {
            let reason = match facts.built_for {
                Some(_) => Some("nobody asks it for its objects".into()),
                None => pinned(&facts),
            };
            let path = object.path.to_string_lossy();
            pinned_by = pinned_by.or_else(|| reason.map(|reason| format!("it needs {path}: {reason}")));
        }
        names.extend(facts.needed);
        needed.push(object);
    }
}

impl Mapped {
    /// Returns true if an address belongs to the library or to one that came with it.
    pub(super) fn holds(&self, address: usize) -> bool {
        self.range.contains(&address) || self.needed.iter().any(|object| object.range.contains(&address))
    }

    /// Returns the number of live objects that the library reports: those that a Rust plugin has created.
    fn live(&self) -> i64 {
        self.live_objects.map_or(0, |count| count())
    }

    /// Returns true if it keeps another library mapped, directly or through others. The caller holds the lock of all
    /// libraries.
    fn keeps(&self, other: &Arc<Mapped>) -> bool {
        self.successors.lock().iter().any(|next| Arc::ptr_eq(next, other) || next.keeps(other))
    }

    /// Returns what is in use of the library: numbers by what they count, without those that are zero.
    pub(super) fn leases(&self) -> Result<Map<String, Any>> {
        let mut leases = Map::new();
        let mut set = |what: &str, number: i64| match number {
            0 => Ok(()),
            number => leases.insert(String::from(what), number.into_any()?),
        };
        for (what, kind) in KINDS {
            set(what, self.counts.0[kind as usize].load(Ordering::Relaxed) as i64)?;
        }
        set("objects", self.live())?;
        set("modules", self.modules.load(Ordering::Relaxed) as i64)?;
        let is_this = |next: &Arc<Mapped>| core::ptr::eq(Arc::as_ptr(next), self);
        let older = |other: &&Arc<Mapped>| other.successors.lock().iter().any(is_this);
        let older = STATE.lock().mapped.iter().filter(older).count();
        set("libraries", older as i64)?;
        Ok(leases)
    }

    /// Returns true if nothing of the library is in use except this one reference.
    fn is_idle(self: &Arc<Self>) -> bool {
        if Arc::strong_count(self) > 1 || self.pinned.lock().is_some() {
            return false;
        }
        // Makes the writes visible that other threads made before they released their references.
        fence(Ordering::Acquire);
        self.live() == 0
    }
}

/// Unmaps the libraries of which nothing is in use; returns their paths.
///
/// With `later`, unmaps only those of which nothing was in use at the last call either.
pub(super) fn reap(later: bool) -> Vec<StdString> {
    let mut paths = Vec::new();
    loop {
        let gone = while_opening(|| {
            let idle = take_idle(later);
            for library in idle.iter().filter(|library| library.live_objects.is_some()) {
                type_table::revoke(&|address| library.holds(address));
            }
            STATE.lock().closing.clear();
            // The latest library is closed first, because it may need an earlier one. All are closed before any is
            // looked up.
            idle.iter().rev().for_each(|library| close_all(&library.handles));
            idle.into_iter().filter_map(unless_kept).collect::<Vec<_>>()
        });
        if gone.is_empty() {
            return paths;
        }
        paths.extend(gone.iter().map(|library| library.path.display().to_string()));
        // Under no lock: the functions that the libraries had looked up are released now, which may run any code and
        // leave further libraries unused.
        drop(gone);
        if later {
            return paths;
        }
    }
}

/// Removes the libraries of which nothing is in use, so that no lookup finds them any more.
fn take_idle(later: bool) -> Vec<Arc<Mapped>> {
    let mut state = STATE.lock();
    let is_due = |library: &mut Arc<Mapped>| {
        let is_idle = library.is_idle();
        let was_idle = library.idle.swap(is_idle, Ordering::Relaxed);
        is_idle && (was_idle || !later) && (library.live_objects.is_none() || revoke_calls(library))
    };
    let idle: Vec<Arc<Mapped>> = state.mapped.extract_if(.., is_due).collect();
    state.closing.clone_from(&idle);
    state.changed();
    idle
}

/// Revokes the functions through which calls enter the library's code, unless such a call is in progress.
fn revoke_calls(library: &Mapped) -> bool {
    let holds = |address| library.holds(address);
    let is_idle = || making::is_idle() && library.live() == 0;
    method::revoke(&holds, &|| type_table::revoke_creators(&holds, &is_idle))
}

/// Returns a library that was closed, if it is really unmapped.
fn unless_kept(library: Arc<Mapped>) -> Option<Arc<Mapped>> {
    let found = dl::Library::find(&library.name);
    if found != Some(library.library) {
        if let Some(newer) = found {
            // Another build of the library has this name by now.
            // SAFETY: `find` has just opened it, and it is not used.
            unsafe { newer.close() };
        }
        // A library that it needs and that is still mapped is also needed by libraries that have no entry for it. It
        // stays for the lifetime of the process, because looking it up has opened it again.
        for object in &library.needed {
            let _ = dl::Library::find(&object.path);
        }
        return Some(library);
    }
    let mut state = STATE.lock();
    if state.mapped.iter().any(|other| other.library == library.library) {
        // The destructor of another library has loaded it again in the meantime, so it has a new entry.
        state.former.push(library);
        drop(state);
        close_all(found.as_slice());
        return None;
    }
    // The system keeps the library for reasons of its own. `find` has opened it again, which replaces the closed
    // handles.
    *library.pinned.lock() = Some(
        "the system keeps it mapped (another library needs it, or a thread has thread-local data of it)".into(),
    );
    state.mapped.push(library);
    state.changed();
    None
}
