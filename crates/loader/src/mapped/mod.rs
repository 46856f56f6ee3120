//! Libraries that are mapped into the process: the properties and the uses of each.
//!
//! Reading order: [`Mapped`], [`lease`] (the mapped libraries, and when each is unmapped), [`ledger`] (the
//! creator of each live object), [`constructing`] (registrations of C++ code while its library is opened).

#[cfg_attr(not(feature = "cpp"), path = "constructing_disabled.rs")]
pub(crate) mod constructing;
pub(crate) mod lease;
#[cfg(feature = "ledger")]
pub(crate) mod ledger;
#[cfg(not(feature = "ledger"))]
#[path = "no_ledger.rs"]
pub(crate) mod ledger;
pub(crate) mod types;

use core::ffi::{CStr, c_void};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use std::ffi::CString;
use std::path::PathBuf;
use std::string::String as StdString;
use std::sync::Arc;

use anyfn::__private::SortedMap;
use anyfn::{PackedFunc, WeakRef};
use anyfn_core::loader::{LeaseKind, Library, Mutex};

use crate::dl;
use crate::file::Identity;

/// Kinds of objects that hold leases on libraries, each with its name in the result of `ffi.ModuleLeases`.
pub(crate) const KINDS: [(&str, LeaseKind); 3] =
    [("functions", LeaseKind::Function), ("tensors", LeaseKind::Tensor), ("opaque objects", LeaseKind::Opaque)];

/// Number of leases of each kind that keep a library mapped.
#[derive(Default)]
pub(crate) struct Counts(pub(crate) [AtomicUsize; KINDS.len()]);

/// Functions that the code of a library has looked up, keyed by name.
///
/// The code keeps their handles in its static data, so the functions must live as long as that data.
pub(crate) struct Lookups(pub(crate) Mutex<SortedMap<StdString, PackedFunc>>);

impl Default for Lookups {
    fn default() -> Self {
        Lookups(Mutex::new(SortedMap::new()))
    }
}

/// Global function that a library has registered under a name.
pub(crate) struct Registered {
    pub(crate) name: StdString,
    pub(crate) function: PackedFunc,
    /// Function of an older build that this registration has replaced. It is kept until all functions of the
    /// library are registered; if one cannot be registered, this function is registered again.
    pub(crate) replaced: Option<PackedFunc>,
}

/// Address of a variable in a library.
#[derive(Clone, Copy)]
pub(crate) struct Address(pub(crate) NonNull<c_void>);

// SAFETY: the address is only passed on; its user guards what lies there.
unsafe impl Send for Address {}
// SAFETY: the address is only passed on; its user guards what lies there.
unsafe impl Sync for Address {}

/// Entry of a library file in the table of mapped libraries. Each mapped file has exactly one entry, which
/// lives until the file is unmapped.
pub(crate) struct Mapped {
    pub(crate) library: dl::Library,
    /// Handles of the dynamic loader that keep the library open. The first handle belongs to the library
    /// itself.
    pub(crate) handles: Vec<dl::Library>,
    /// Path that was passed to the dynamic loader when the library was opened. It may be another spelling of `path`.
    pub(crate) name: CString,
    /// Address range in which the library is mapped.
    pub(crate) range: core::ops::Range<usize>,
    /// Libraries that were mapped because this library needs them. An object that refers to their
    /// code holds a lease on this library.
    pub(crate) needed: Vec<dl::Object>,
    /// If the library is a Rust plugin, its function that returns the number of live objects that the plugin has
    /// created. `None` for other libraries.
    pub(crate) live_objects: Option<extern "C" fn() -> i64>,
    /// Variable through which the code of the library finds its own module, if the library has such a
    /// variable.
    pub(crate) context_slot: Option<Address>,
    /// Reason why the library is never unmapped; `None` if it can be unmapped.
    pub(crate) pinned: Mutex<Option<StdString>>,
    pub(crate) counts: Counts,
    /// Newer libraries whose getters and setters operate on objects of this library. They stay mapped as long
    /// as this one.
    pub(crate) successors: Mutex<Vec<Arc<Mapped>>>,
    /// Number of live modules that use this library as their code.
    pub(crate) modules: AtomicUsize,
    /// True if the most recent check found that the library could be unmapped.
    pub(crate) idle: AtomicBool,
    /// Path of the library file.
    pub(crate) path: PathBuf,
    /// Identity of the file when the library was loaded. If the file has another identity later, its content
    /// has changed.
    pub(crate) identity: Identity,
    /// Alignment in bytes that the library's code requires of tensor data. `None` if the compiler
    /// of Apache TVM has not generated the code.
    pub(crate) compiled: Option<usize>,
    /// True if the library follows the library convention of TVM 0.8.
    pub(crate) classic: bool,
    /// Size of the import tree in bytes, according to the symbol table of the file. `None` if the library has no import
    /// tree.
    pub(crate) import_tree_size: Option<u64>,
    /// Names of the functions that the library exports.
    pub(crate) functions: Vec<StdString>,
    /// Type indices of the types that the library has registered.
    pub(crate) types: Mutex<Vec<i32>>,
    /// Symbols that the library defines, sorted. Mangled C++ names are left out.
    pub(crate) symbols: Vec<StdString>,
    /// Lock that is held while the module of the library is looked up or created.
    pub(crate) loading: Mutex<()>,
    /// Functions that the code of the library has looked up. They outlive the modules of the library, because the code
    /// keeps them in its static data.
    pub(crate) lookups: Arc<Lookups>,
    pub(crate) owner: Mutex<Owner>,
    /// Lock that is held while global functions of the library are registered or removed.
    pub(crate) registering: Mutex<()>,
}

/// Current module of a library, with its context and its registered functions.
#[derive(Default)]
pub(crate) struct Owner {
    /// Value that was written into the context variable of the library; 0 if the library has no current
    /// module.
    pub(crate) context: usize,
    /// Module whose code is the library.
    pub(crate) module: Option<WeakRef>,
    /// Module that is returned when the library is loaded: `module`, or a module from the import
    /// tree that imports `module`.
    pub(crate) root: Option<WeakRef>,
    /// Global functions that the library has registered, with the context of the module to which they belong.
    pub(crate) registered: (usize, Vec<Registered>),
}

impl Mapped {
    /// Returns true if `address` belongs to this library or to one in `needed`.
    pub(crate) fn holds(&self, address: usize) -> bool {
        self.range.contains(&address) || self.needed.iter().any(|object| object.range.contains(&address))
    }

    /// Returns the number of live objects that the library has created, as a Rust plugin reports it; 0 for
    /// other libraries.
    pub(crate) fn live(&self) -> i64 {
        self.live_objects.map_or(0, |count| count())
    }

    /// Returns the address of a symbol that the library itself, and not a library that it needs,
    /// defines.
    pub(crate) fn own_symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        own_symbol(self.library, &self.symbols, name)
    }
}

impl Library for Mapped {
    fn release(&self, kind: LeaseKind) {
        self.counts.0[kind as usize].fetch_sub(1, Ordering::Relaxed);
    }

    fn path(&self) -> StdString {
        self.path.display().to_string()
    }
}

/// Returns the address of a symbol that the library itself defines. `symbols` are the names that the library
/// defines. They are searched first, because the dynamic loader takes longest for undefined names, and most
/// lookups are for undefined names.
pub(crate) fn own_symbol(library: dl::Library, symbols: &[StdString], name: &CStr) -> Option<NonNull<c_void>> {
    let text = name.to_str().ok()?;
    let may_be_there =
        text.starts_with("_Z") || symbols.binary_search_by(|known| known.as_str().cmp(text)).is_ok();
    if may_be_there { library.own_symbol(name) } else { None }
}
