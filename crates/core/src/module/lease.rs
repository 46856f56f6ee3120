//! What of a library is still in use, and unmapping those of which nothing is.
//!
//! A library stays mapped while anything of it is alive. What is alive is counted where an address of the library
//! enters the core: functions, tensors and opaque objects hold a [`Lease`] from their making until their deleter has
//! returned; modules hold the library itself; objects that a Rust plugin makes by itself are counted by the plugin.
//! Where objects can escape unseen, or the system would not unmap the library, it is *pinned* and says why.
//!
//! A library is closed by [`reap`], never inside a release: its own code may be what runs then.

use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering};

use std::format;
use std::string::{String as StdString, ToString};
use std::sync::Arc;
use std::vec::Vec;

use anyfn::{Any, IntoAny, Map, Result, String};

use super::elf::Facts;
use super::library::Mapped;
use super::{dl, load};
use crate::sys::Mutex;

/// Libraries that are mapped.
static MAPPED: Mutex<Vec<Arc<Mapped>>> = Mutex::new(Vec::new());
/// How many there are; looked at before the lock is taken.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// Held while libraries are opened for a first time or closed, so that a path means one of both.
static OPENING: Mutex<()> = Mutex::new(());

/// What holds a lease.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A function made of an address.
    Function,
    /// A tensor whose deleter is an address.
    Tensor,
    /// An object of another language with its deleter.
    Opaque,
}

const KINDS: [(&str, Kind); 3] =
    [("functions", Kind::Function), ("tensors", Kind::Tensor), ("opaque objects", Kind::Opaque)];

/// How many leases of each kind are held.
#[derive(Default)]
pub(super) struct Counts([AtomicUsize; KINDS.len()]);

/// Keeps the library mapped that an address belongs to.
pub(crate) struct Lease {
    mapped: Option<Arc<Mapped>>,
    kind: Kind,
}

impl Lease {
    /// For the addresses of one maker. Costs an atomic load as long as no library is loaded.
    #[inline]
    pub(crate) fn of(kind: Kind, addresses: [*const c_void; 2]) -> Lease {
        if COUNT.load(Ordering::Relaxed) == 0 {
            return Lease { mapped: None, kind };
        }
        Self::look_up(kind, addresses)
    }

    #[inline(never)]
    fn look_up(kind: Kind, addresses: [*const c_void; 2]) -> Lease {
        let mapped = MAPPED.lock();
        // Both are of one library but for those that forward; the one that runs last counts then.
        let find = |address: *const c_void| mapped.iter().find(|mapped| mapped.range.contains(&address.addr()));
        let found = find(addresses[1]).or_else(|| find(addresses[0])).cloned();
        if let Some(found) = &found {
            found.counts.0[kind as usize].fetch_add(1, Ordering::Relaxed);
        }
        Lease { mapped: found, kind }
    }

    /// Whether it holds a library.
    pub(crate) fn is_held(&self) -> bool {
        self.mapped.is_some()
    }
}

impl Drop for Lease {
    #[inline]
    fn drop(&mut self) {
        if let Some(mapped) = &self.mapped {
            mapped.counts.0[self.kind as usize].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// All libraries that are mapped.
pub(super) fn all() -> Vec<Arc<Mapped>> {
    MAPPED.lock().clone()
}

/// Excludes closing libraries while one is being opened.
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

/// The one entry of a library; `new` makes it.
pub(super) fn entry(library: dl::Library, new: impl FnOnce() -> Mapped) -> Arc<Mapped> {
    let mut mapped = MAPPED.lock();
    if let Some(known) = mapped.iter().find(|known| known.library == library) {
        return known.clone();
    }
    let new = Arc::new(new());
    mapped.push(new.clone());
    COUNT.store(mapped.len(), Ordering::Relaxed);
    new
}

/// Why a library is never unmapped.
pub(super) fn pinned(facts: &Facts) -> Option<StdString> {
    let uses = |name: &str| facts.undefined.iter().any(|symbol| symbol.name == name);
    let is_rust = facts.built_for.is_some();
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
    let cpp = ["libstdc++.so", "libc++.so"];
    let needs_cpp = facts.needed.iter().any(|name| cpp.iter().any(|cpp| name.starts_with(cpp)));
    if needs_cpp && facts.undefined.iter().any(|symbol| load::is_runtime_symbol(&symbol.name)) {
        return Some("it is C++ code, which makes objects that nobody counts".into());
    }
    // What these take is kept for ever.
    const KEPT: [(&str, &str); 7] = [
        ("TVMFFITypeRegisterField", "fields of types"),
        ("TVMFFITypeRegisterMethod", "methods of types"),
        ("TVMFFITypeRegisterMetadata", "types"),
        ("TVMFFIEnvRegisterCAPI", "functions of the environment"),
        ("TVMFFIEnvModRegisterContextSymbol", "context symbols"),
        ("TVMFFIEnvModRegisterSystemLibSymbol", "symbols of a system library"),
        ("TVMFFIEnvSetDLPackManagedTensorAllocator", "an allocator"),
    ];
    if let Some((_, what)) = KEPT.iter().find(|(name, _)| uses(name)) {
        return Some(format!("it registers {what}, which stay for ever"));
    }
    // A Rust plugin counts its objects, and registers plain numbers for its types.
    if !is_rust && (uses("TVMFFITypeGetOrAllocIndex") || uses("TVMFFITypeRegisterAttr")) {
        return Some("it has object types of its own, whose objects nobody counts".into());
    }
    None
}

impl Mapped {
    /// Number of objects that the library says are alive: those that a Rust plugin has made.
    fn live(&self) -> i64 {
        match self.library.own_symbol(c"__anyfn_live_objects") {
            None => 0,
            Some(count) => {
                type Count = extern "C" fn() -> i64;
                // SAFETY: the symbol of this name is this function; the library is mapped.
                let count = unsafe { core::mem::transmute::<core::ptr::NonNull<c_void>, Count>(count) };
                count()
            }
        }
    }

    /// What is in use of the library: numbers by what they count, those that are zero left out.
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
        Ok(leases)
    }

    /// Whether nothing of the library is in use; `holders` are the references to this entry that mean nothing.
    fn is_idle(self: &Arc<Self>, holders: usize) -> bool {
        self.pinned.lock().is_none() && Arc::strong_count(self) == holders && self.live() == 0
    }
}

/// Unmaps the libraries of which nothing is in use; gives their paths.
///
/// Objects of such a library must not be on their way out on another thread. With `later`, only those are unmapped
/// that nothing was in use of at the last call either.
pub(super) fn reap(later: bool) -> Vec<StdString> {
    while_opening(|| {
        let mut paths = Vec::new();
        loop {
            let (mut idle, mut rest) = (Vec::new(), Vec::new());
            let mut mapped = MAPPED.lock();
            for library in mapped.drain(..) {
                let was_idle = library.idle.swap(library.is_idle(1), Ordering::Relaxed);
                let is_idle = library.idle.load(Ordering::Relaxed);
                if is_idle && (was_idle || !later) { &mut idle } else { &mut rest }.push(library);
            }
            *mapped = rest;
            COUNT.store(mapped.len(), Ordering::Relaxed);
            drop(mapped);
            if idle.is_empty() {
                return paths;
            }
            // Not under the lock: destructors of the library run now, and what it had looked up is released, which
            // may leave further libraries without users.
            paths.extend(idle.into_iter().filter_map(close));
            if later {
                return paths;
            }
        }
    })
}

/// Closes a library; gives its path if it is unmapped then.
fn close(library: Arc<Mapped>) -> Option<StdString> {
    let path = library.path.display().to_string();
    for handle in library.handles.iter().rev() {
        // SAFETY: nothing of the library is in use any more, and each handle is closed once.
        unsafe { handle.close() };
    }
    match dl::Library::find(&library.name) {
        None => return Some(path),
        Some(found) if found == library.library => {}
        Some(newer) => {
            // By now another build of it lies under this name.
            // SAFETY: opened just now, by `find`, and not used.
            unsafe { newer.close() };
            return Some(path);
        }
    }
    // The system has its reasons; `find` has opened it again, which stands for the handles.
    *library.pinned.lock() = Some(
        "the system keeps it mapped (another library needs it, or a thread has thread-local data of it)".into(),
    );
    let mut mapped = MAPPED.lock();
    mapped.push(library);
    COUNT.store(mapped.len(), Ordering::Relaxed);
    None
}
