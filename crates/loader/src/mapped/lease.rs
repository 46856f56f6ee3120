//! Counts of the uses of each library. A library that is not in use can be unmapped.
//!
//! A library stays mapped while anything that refers to its code or data is alive. This is counted where an address in
//! the library is passed to the runtime:
//! - Functions, tensors and opaque objects hold a [`Lease`] from their creation until their deleter has returned.
//! - Modules hold the library itself.
//! - Objects that a Rust plugin creates without the runtime are counted by the plugin. The count ends only after their
//!   deleter has returned to code outside of the plugin (`anyfn::count_end`).
//! - If the getters and setters of a newer library serve the objects of an older one, because both define the same
//!   type, the older library keeps the newer one mapped ([`take_over`]).
//!
//! If objects of a library can escape this counting, or if the system would not unmap the library, it is *pinned* for a
//! stated reason.
//!
//! A library is closed only by [`reap`]. It is never closed while an object is released, because its own code may be
//! running then.

use core::ffi::c_void;
use core::num::NonZero;
use core::ops::Range;
use core::sync::atomic::{Ordering, fence};

use std::path::Path;
use std::string::String as StdString;
use std::sync::Arc;

use anyfn::{Any, IntoAny, Map, Result, String, making};
use anyfn_core::loader::{self, HAS_LIBRARIES, Lease, LeaseKind, Libraries, Library, Mutex};

use super::{KINDS, Mapped};
use crate::dl;
use crate::dl::runtime::is_runtime_symbol;
use crate::elf::{self, Facts};
use crate::file::{self, Identity};

/// True if libraries can be unmapped. Without the feature `unload`, all are pinned, and nothing is counted.
const UNLOADS: bool = cfg!(feature = "unload");

/// Table of mapped libraries, and the state of opening and closing libraries.
struct MappedLibraries {
    mapped: Vec<Arc<Mapped>>,
    /// Former entries of libraries that were loaded again while they were being closed. Each of these
    /// libraries also has a new entry. The former entries are never dropped, because the static data of the
    /// library may still refer to their content.
    former: Vec<Arc<Mapped>>,
    /// Libraries that [`reap`] is about to close. The type table still contains addresses of their code.
    closing: Vec<Arc<Mapped>>,
    /// Number of libraries that are being opened. It exceeds 1 while a constructor of a library opens another one.
    opening: usize,
    /// Addresses to which a live object refers and which belonged to no known library when the object was
    /// created. A constructor may create such an object, because it runs before its library is known. Each
    /// address is stored with the number of the object's lease.
    unknown: Vec<(NonZero<u32>, usize)>,
    /// Number most recently assigned to a lease for addresses in libraries that are not known yet.
    numbers: u32,
}

// No function of the dynamic loader may be called while this is locked: a thread that holds the loader's lock may wait
// for this one, as constructors do that create functions.
static STATE: Mutex<MappedLibraries> = Mutex::new(MappedLibraries {
    mapped: Vec::new(),
    former: Vec::new(),
    closing: Vec::new(),
    opening: 0,
    unknown: Vec::new(),
    numbers: 0,
});
/// Lock that is held while a library is opened for the first time or closed. It prevents one thread from opening a
/// library while another thread closes it.
static OPENING: Mutex<()> = Mutex::new(());

impl MappedLibraries {
    fn changed(&self) {
        HAS_LIBRARIES.store(!self.mapped.is_empty() || self.opening > 0, Ordering::Relaxed);
    }

    /// Returns a new number for a lease that refers to addresses in libraries that are not known yet. Once
    /// all numbers are used, further leases share the last one, and their addresses are no longer removed.
    fn number(&mut self) -> NonZero<u32> {
        self.numbers = self.numbers.saturating_add(1);
        NonZero::new(self.numbers).unwrap_or(NonZero::<u32>::MAX)
    }
}

/// Creates a lease for an object that refers to `addresses`. The lease keeps the libraries that
/// contain these addresses mapped. See `anyfn_core::loader::Loader::lease`.
pub(crate) fn of(kind: LeaseKind, addresses: &[*const c_void]) -> Lease {
    let mut libraries: Libraries = [None, None];
    let mut unknown = None;
    if !UNLOADS {
        return Lease::new(kind, libraries, unknown);
    }
    let mut guard = STATE.lock();
    let state = &mut *guard;
    for address in addresses.iter().map(|address| address.addr()).filter(|address| *address != 0) {
        let Some(owner) = state.mapped.iter().find(|mapped| mapped.holds(address)) else {
            if state.opening > 0 {
                let number = *unknown.get_or_insert_with(|| state.number());
                state.unknown.push((number, address));
            }
            continue;
        };
        let is_owner = |known: &Arc<dyn Library>| core::ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(owner));
        let [first, second] = &mut libraries;
        let free = match first {
            None => first,
            Some(known) if is_owner(known) => continue,
            Some(_) if second.is_none() => second,
            Some(_) => continue,
        };
        owner.counts.0[kind as usize].fetch_add(1, Ordering::Relaxed);
        let library: Arc<dyn Library> = owner.clone();
        *free = Some(library);
    }
    Lease::new(kind, libraries, unknown)
}

/// Removes the addresses in unknown libraries that were recorded for the lease `number`, whose object is being
/// destroyed. If the addresses remained, a library that is later loaded at one of them would stay mapped.
pub(crate) fn forget(number: NonZero<u32>) {
    if UNLOADS && number != NonZero::<u32>::MAX {
        STATE.lock().unknown.retain(|(of, _)| *of != number);
    }
}

/// Returns true if `address` belongs to a Rust plugin. A Rust plugin counts its live objects, so the loader
/// can determine when to unmap it.
pub(crate) fn is_code_of_plugin(address: usize) -> bool {
    let state = STATE.lock();
    state.mapped.iter().any(|mapped| mapped.live_objects.is_some() && mapped.holds(address))
}

/// Decides which code reads and writes a field of a type that two Rust plugins define. Returns `Some(true)`
/// if the code at `new` replaces the code at `old`, and `Some(false)` if the old code must stay. Returns
/// `None` if either address does not belong to a Rust plugin.
///
/// After a replacement, the code of the new plugin also reads objects of the old one. These objects keep only the old
/// plugin mapped, so the old plugin keeps the new one mapped as long as it is mapped itself.
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

/// Returns the alignment in bytes that the code at `address` requires of tensor data, or `None` if
/// the compiler of Apache TVM has not generated the code.
pub(crate) fn compiled(address: usize) -> Option<usize> {
    STATE.lock().mapped.iter().find(|mapped| mapped.holds(address))?.compiled
}

/// Returns the entry of the library whose file has the given identity, if it is mapped.
pub(crate) fn of_file(identity: &Identity) -> Option<Arc<Mapped>> {
    STATE.lock().mapped.iter().find(|mapped| mapped.identity == *identity).cloned()
}

/// Returns the entries of the libraries that were loaded from the file at `path`, which must be an absolute path without
/// symbolic links.
pub(crate) fn of_path(path: &Path) -> Vec<Arc<Mapped>> {
    // Such a path has one spelling, so its bytes are compared, and not its components.
    let is_there = |mapped: &&Arc<Mapped>| mapped.path.as_os_str() == path.as_os_str();
    STATE.lock().mapped.iter().filter(is_there).cloned().collect()
}

/// Returns true if `test` returns true for a mapped library. `test` must not use the table of mapped libraries.
pub(crate) fn any(test: impl Fn(&Mapped) -> bool) -> bool {
    STATE.lock().mapped.iter().any(|mapped| test(mapped))
}

/// Returns the entries of all mapped libraries.
pub(crate) fn all() -> Vec<Arc<Mapped>> {
    STATE.lock().mapped.clone()
}

/// Runs `body`, which opens or closes libraries. Other threads that call this function wait
/// meanwhile; nested calls on this thread do not wait.
pub(crate) fn while_opening<T>(body: impl FnOnce() -> T) -> T {
    // A constructor of the library may load another one on this thread.
    thread_local! {
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

/// Record of a library that is being opened. It is dropped once the library has an entry or cannot be used.
pub(crate) struct Opening {
    /// Files that were mapped before the library was opened.
    before: dl::Snapshot,
}

impl Opening {
    /// Records which files are mapped. Must be called before the library is opened.
    pub(crate) fn begin() -> Opening {
        let before = dl::Snapshot::take();
        let mut state = STATE.lock();
        state.opening += 1;
        state.changed();
        Opening { before }
    }

    /// Returns the files that were mapped since [`Opening::begin`] and do not belong to known libraries: the library
    /// itself, those that it needs, and perhaps files that other threads have opened.
    pub(crate) fn came(&self) -> Vec<dl::Object> {
        let objects = self.before.newer();
        let state = STATE.lock();
        let is_known = |object: &dl::Object| state.mapped.iter().any(|mapped| mapped.holds(object.range.start));
        objects.into_iter().filter(|object| !is_known(object)).collect()
    }

    /// Returns true if a live object that was created while libraries were being opened refers to an address in one
    /// of `ranges`.
    pub(crate) fn has_made_of<'a>(&self, ranges: impl Iterator<Item = &'a Range<usize>>) -> bool {
        if !UNLOADS {
            return false;
        }
        let state = STATE.lock();
        ranges.into_iter().any(|range| state.unknown.iter().any(|(_, address)| range.contains(address)))
    }

    /// Closes a library that was opened and cannot be used. The library stays open if objects that
    /// were created while it was opened are still alive, or if such objects are not counted.
    pub(crate) fn abandon(&self, handles: &[dl::Library]) {
        if UNLOADS && !self.has_made_of(self.came().iter().map(|object| &object.range)) {
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

pub(crate) fn close_all(handles: &[dl::Library]) {
    for handle in handles.iter().rev() {
        // SAFETY: nothing of the library is in use, and each handle is closed once.
        unsafe { handle.close() };
    }
}

/// Adds the entry `new` of a library to the table of mapped libraries and returns it. If the library has an
/// entry already, returns the existing entry and closes the handles in `new`.
pub(crate) fn entry(new: Mapped) -> Arc<Mapped> {
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
pub(crate) fn is_cpp(facts: &Facts) -> bool {
    let libraries = ["libstdc++.so", "libc++.so"];
    let needs_cpp = facts.needed.iter().any(|name| libraries.iter().any(|cpp| name.starts_with(cpp)));
    // A library that contains the C++ library exports some of its names. Rust has names of this form, too.
    let has_cpp = facts.built_for.is_none()
        && facts.undefined.iter().chain(&facts.defined).any(|symbol| symbol.name.starts_with("_Z"));
    (needs_cpp || has_cpp) && facts.undefined.iter().any(|symbol| is_runtime_symbol(&symbol.name))
}

/// Returns the reason why a library must never be unmapped, or `None` if it can be unmapped.
pub(crate) fn pinned(facts: &Facts) -> Option<StdString> {
    if !UNLOADS {
        return Some("this runtime was built without the feature `unload`".into());
    }
    let uses = |name: &str| facts.undefined.iter().any(|symbol| symbol.name == name);
    let is_rust = facts.built_for.is_some();
    if is_cpp(facts) {
        return Some("it is C++ code, whose objects are not counted".into());
    }
    if let Some(unique) = facts.defined.iter().find(|symbol| symbol.is_unique) {
        return Some(format!(
            "it has symbols that are unique in the whole process, such as {}, so that the system never unmaps \
             it (compile it with -fno-gnu-unique)",
            unique.name
        ));
    }
    if facts.is_kept {
        return Some("it was linked with -z nodelete".into());
    }
    // Functions whose arguments are kept for the lifetime of the process.
    const KEPT: [(&str, &str); 9] = [
        ("TVMFFITypeRegisterField", "fields of types"),
        ("TVMFFITypeRegisterMethod", "methods of types"),
        ("TVMFFITypeRegisterMetadata", "types"),
        ("TVMFFIEnvRegisterCAPI", "environment functions"),
        ("TVMFFIEnvModRegisterContextSymbol", "context symbols"),
        ("TVMFFIEnvModRegisterSystemLibSymbol", "symbols of a system library"),
        ("TVMBackendRegisterSystemLibSymbol", "symbols of a system library"),
        ("TVMBackendRegisterEnvCAPI", "environment functions"),
        ("TVMFFIEnvSetDLPackManagedTensorAllocator", "an allocator"),
    ];
    // What a Rust plugin registers for its types is revoked when it is unmapped.
    let kept = if is_rust { &KEPT[3..] } else { &KEPT[..] };
    if let Some((_, what)) = kept.iter().find(|(name, _)| uses(name)) {
        return Some(format!("it registers {what} permanently"));
    }
    let defines = |name: &str| facts.defined.iter().any(|symbol| symbol.name == name);
    if is_rust && !(defines("__anyfn_live_objects") && defines("__anyfn_use_count_end")) {
        return Some(
            "its objects are not counted: it was built with another version of the `anyfn` crate".into(),
        );
    }
    // A Rust plugin counts its objects, and registers plain numbers for its types.
    if !is_rust && (uses("TVMFFITypeGetOrAllocIndex") || uses("TVMFFITypeRegisterAttr")) {
        return Some("it has its own object types, whose objects are not counted".into());
    }
    None
}

/// Returns the files in `came` that were mapped because the library described by `facts` needs
/// them, directly or indirectly. Other threads may have opened the remaining files. If one of the
/// returned files must never be unmapped, the library must not be unmapped either, and the reason
/// is returned as well.
pub(crate) fn needed(
    facts: &Facts,
    came: impl Iterator<Item = dl::Object>,
) -> (Vec<dl::Object>, Option<StdString>) {
    let mut names = facts.needed.clone();
    let (mut needed, mut pinned_by) = (Vec::new(), None);
    let mut left: Vec<(dl::Object, Facts)> = came
        // The generated libraries are not files.
        .filter(|object| !object.path.as_bytes().starts_with(b"/proc/"))
        .filter_map(|object| {
            let (_, file, metadata) = file::find(object.path.to_str().ok()?).ok()?;
            Some((object, elf::read_file(file, metadata.len(), false).ok()?))
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
        if facts.undefined.iter().any(|symbol| is_runtime_symbol(&symbol.name)) {
            let reason = match facts.built_for {
                Some(_) => Some("the objects of a needed plugin are not counted".into()),
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
    /// Returns true if `other` is one of this library's successors, which it keeps mapped, or a successor of
    /// one of them. The caller must hold the lock of the table of libraries.
    fn keeps(&self, other: &Arc<Mapped>) -> bool {
        self.successors.lock().iter().any(|next| Arc::ptr_eq(next, other) || next.keeps(other))
    }

    /// Returns the uses of this library as a map from a kind of user, such as `tensors`, to the
    /// number of users of that kind. Kinds without users are left out.
    pub(crate) fn leases(&self) -> Result<Map<String, Any>> {
        let mut leases = Map::new();
        if !cfg!(feature = "inspect") {
            return Ok(leases);
        }
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

    /// Returns true if the library is neither pinned nor in use. A reference to the entry other
    /// than `self` is a use.
    fn is_idle(self: &Arc<Self>) -> bool {
        if Arc::strong_count(self) > 1 || self.pinned.lock().is_some() {
            return false;
        }
        // Makes the writes visible that other threads made before they released their references.
        fence(Ordering::Acquire);
        self.live() == 0
    }
}

/// Unmaps the libraries that are not in use, and returns their paths.
///
/// If `later` is true, a library is unmapped only if it was not in use at the previous check either.
pub(crate) fn reap(later: bool) -> Vec<StdString> {
    let mut paths = Vec::new();
    if !UNLOADS {
        return paths;
    }
    loop {
        let gone = while_opening(|| {
            let idle = take_idle(later);
            for library in idle.iter().filter(|library| library.live_objects.is_some()) {
                loader::revoke_types(&|address| library.holds(address));
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

/// Removes from the table of mapped libraries the entries of all libraries that can be unmapped, and returns these
/// entries. If `later` is true, libraries that were in use at the previous check are left out.
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

/// Revokes the functions and object creators of a library, so that no further call enters its code. Returns
/// false and revokes nothing if a call of one of them is in progress or an object of the library is alive.
fn revoke_calls(library: &Mapped) -> bool {
    let holds = |address| library.holds(address);
    let is_idle = || making::is_idle() && library.live() == 0;
    loader::revoke_functions(&holds, &|| loader::revoke_creators(&holds, &is_idle))
}

/// Returns the entry of a closed library if the dynamic loader has unmapped the library. Otherwise
/// returns `None` and puts the entry back into the table of mapped libraries, or into `former` if
/// the table already contains a new entry of the library.
fn unless_kept(library: Arc<Mapped>) -> Option<Arc<Mapped>> {
    let found = dl::Library::find(&library.name);
    if found != Some(library.library) {
        if let Some(newer) = found {
            // Another build of the library has this name now.
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
