//! Creation of entries ([`Mapped`]) of the table of mapped libraries. Each library has one entry.

use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicUsize};

use std::ffi::CString;
use std::path::Path;
use std::string::String as StdString;
use std::sync::Arc;

use anyfn_core::loader::Mutex;

use super::observe;
use crate::classic;
use crate::dl;
use crate::elf::Facts;
use crate::file::Identity;
use crate::mapped::{self, Address, Counts, Mapped, Owner, lease, ledger};
use crate::names::{CLASSIC_CONTEXT, CONTEXT, function_names};

/// Creates an entry for a library that was just opened, and adds it to the table of mapped libraries. If the
/// table already has an entry for the library, returns that entry. `handles` keep the library open; the first
/// handle belongs to the library itself.
pub(crate) fn create(
    handles: Vec<dl::Library>,
    name: CString,
    path: &Path,
    identity: Identity,
    facts: &Facts,
    opening: &lease::Opening,
) -> Arc<Mapped> {
    let library = handles[0];
    let difference = library.difference();
    let at = |address: u64| difference.unwrap_or(0).wrapping_add(address as usize);
    let range = at(facts.span.start)..at(facts.span.end);
    let mut pinned = match difference {
        Some(_) => lease::pinned(facts),
        None => Some("its address in memory is unknown".into()),
    };
    let mut needed = Vec::new();
    if cfg!(feature = "unload") && pinned.is_none() {
        let others = |object: &dl::Object| !range.contains(&object.range.start);
        (needed, pinned) = lease::needed(facts, opening.came().into_iter().filter(others));
    }
    if opening.has_made_of(needed.iter().map(|object| &object.range).chain([&range])) {
        let made = "its constructors have created functions, tensors or objects, which were not counted";
        pinned = pinned.or(Some(made.into()));
    }
    let mut symbols: Vec<StdString> =
        facts.defined.iter().filter(|s| !s.name.starts_with("_Z")).map(|s| s.name.clone()).collect();
    anyfn::__private::sort(&mut symbols);
    let own_symbol = |name| mapped::own_symbol(library, &symbols, name);
    let live_objects = own_symbol(c"__anyfn_live_objects").map(|count| {
        // SAFETY: the symbol of this name is this function.
        unsafe { core::mem::transmute::<NonNull<c_void>, extern "C" fn() -> i64>(count) }
    });
    if let Some(symbol) = own_symbol(c"__anyfn_use_count_end") {
        type UseCountEnd = unsafe extern "C" fn(anyfn::CountEnd);
        // SAFETY: the symbol of this name is this function.
        let use_count_end = unsafe { core::mem::transmute::<NonNull<c_void>, UseCountEnd>(symbol) };
        // SAFETY: the argument is a function of the runtime, which is never unmapped.
        unsafe { use_count_end(anyfn::count_end) };
    }
    let entry = lease::entry(Mapped {
        library,
        handles,
        name,
        range,
        needed,
        live_objects,
        context_slot: own_symbol(CONTEXT)
            .or_else(|| classic::ENABLED.then(|| own_symbol(CLASSIC_CONTEXT))?)
            .map(Address),
        pinned: Mutex::new(pinned),
        counts: Counts::default(),
        successors: Mutex::new(Vec::new()),
        modules: AtomicUsize::new(0),
        idle: AtomicBool::new(false),
        path: path.to_path_buf(),
        identity,
        compiled: facts.compiled,
        classic: facts.classic,
        import_tree_size: facts.import_tree_size(),
        functions: match classic::ENABLED && facts.classic {
            true => classic::functions(facts.code()),
            false => function_names(facts.functions(), ""),
        },
        types: Mutex::new(Vec::new()),
        symbols,
        loading: Mutex::new(()),
        lookups: Arc::default(),
        owner: Mutex::new(Owner::default()),
        registering: Mutex::new(()),
    });
    ledger::tell(&entry);
    observe::tell(&entry);
    entry
}
