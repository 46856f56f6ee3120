//! Registration of the global functions of a Rust plugin. The functions stay registered as long as
//! the plugin's module is alive.
//!
//! A newer build of the plugin may register the same names although the module of the older build is still in use. Its
//! functions then replace the older ones.

use core::ffi::c_void;

use std::sync::{Arc, Weak};

use anyfn::abi::{
    TVMFFIByteArray, TVMFFIFunctionSetGlobalFromMethodInfo, TVMFFIMethodInfo, kTVMFFIDynObjectBegin,
};
use anyfn::{AnyView, Error, PackedFunc, Result, registry};

use crate::mapped::types::Recorded;
use crate::mapped::{Address, Mapped, Registered, lease, types};
use crate::object::AnyModule;

/// Registers the functions and types that `#[register]` and `#[derive(Object)]` have collected in a library.
///
/// # Errors
/// Returns `RuntimeError` if a name is used by a function of other code, and `TypeError` if a type belongs to other
/// code. After an error, no function of the library is registered.
pub(crate) fn add(mapped: &Mapped) -> Result<Vec<Registered>> {
    let Some(symbol) = mapped.own_symbol(c"__anyfn_registrations") else { return Ok(Vec::new()) };
    type Collected = unsafe extern "C" fn(count: *mut i32) -> *const TVMFFIMethodInfo;
    // SAFETY: the symbol of this name is this function; the library's note was checked.
    let collected = unsafe { core::mem::transmute::<core::ptr::NonNull<core::ffi::c_void>, Collected>(symbol) };
    let mut count = 0;
    // SAFETY: `count` is writable; the library is loaded and its constructors have run.
    let (infos, types) = types::recorded(|| unsafe { collected(&raw mut count) });
    mapped.add_types(types);
    // The library releases its entries in any case, so that none of its objects remains.
    struct TakeBack(Collected);
    impl Drop for TakeBack {
        fn drop(&mut self) {
            // SAFETY: NULL is allowed; the entries are not used any more.
            unsafe { (self.0)(core::ptr::null_mut()) };
        }
    }
    let _take_back = TakeBack(collected);
    if count < 0 {
        let error = Error::take_raised();
        anyfn::bail!(
            error.kind(),
            "the library {} cannot be used: {}; restart the process, or give the type another key",
            mapped.path.display(),
            error.message()
        );
    }
    let infos: &[TVMFFIMethodInfo] = match usize::try_from(count) {
        // SAFETY: the function returns an array of `count` entries that lives until it is called again.
        Ok(count) if count > 0 && !infos.is_null() => unsafe { core::slice::from_raw_parts(infos, count) },
        _ => &[],
    };
    // All names are checked before any of them is registered.
    let free = infos.iter().map(|info| replaceable(mapped, info)).collect::<Result<Vec<Free>>>()?;
    let mut done = Vec::new();
    for (info, free) in infos.iter().zip(free) {
        match register(info, free) {
            Ok(registered) => done.push(registered),
            Err(error) => {
                give_back(done);
                return Err(error);
            }
        }
    }
    // The functions of the older build must not be kept.
    done.iter_mut().for_each(|registered| registered.replaced = None);
    Ok(done)
}

/// Permission for a library to register a global function under a name. It results from the check
/// in [`replaceable`].
struct Free {
    name: String,
    overrides: bool,
    /// Function that an older build of the library has registered under this name.
    older: Option<PackedFunc>,
}

/// Checks that a library may register a global function. Returns an error if other code has registered a
/// function under the same name.
fn replaceable(mapped: &Mapped, info: &TVMFFIMethodInfo) -> Result<Free> {
    // SAFETY: the name lives as long as the library.
    let name = unsafe { info.name.as_slice() };
    let name = core::str::from_utf8(name).unwrap_or_default().to_owned();
    // SAFETY: the function is inspected and kept, but never called.
    let there = unsafe { registry::find_unsafe(&name) }.filter(|_| info.flags == 0);
    let Some(there) = there else { return Ok(Free { name, overrides: info.flags != 0, older: None }) };
    match maker_of(&name, &there) {
        Some(maker) if is_newer_build(mapped, &maker) => Ok(Free { name, overrides: true, older: Some(there) }),
        maker => anyfn::bail!(
            "RuntimeError",
            "Global Function `{name}` is already registered by {}; the library {} registers it too",
            maker.map_or("the program".to_string(), |maker| format!("the library {}", maker.path.display())),
            mapped.path.display()
        ),
    }
}

fn register(info: &TVMFFIMethodInfo, free: Free) -> Result<Registered> {
    let Free { name, overrides, older } = free;
    // SAFETY: the entry refers to a function that the library keeps.
    let function = unsafe { AnyView::from_raw(info.method) }.get::<PackedFunc>()?;
    let info = TVMFFIMethodInfo { name: TVMFFIByteArray::from_slice(name.as_bytes()), flags: 0, ..*info };
    // SAFETY: strings and function live for the call.
    match unsafe { TVMFFIFunctionSetGlobalFromMethodInfo(&info, overrides.into()) } {
        0 => Ok(Registered { name, function, replaced: older }),
        _ => Err(Error::take_raised()),
    }
}

/// Returns the library that has registered `function` under `name`, or `None` if no library has registered
/// it.
fn maker_of(name: &str, function: &PackedFunc) -> Option<Arc<Mapped>> {
    let is_it = |r: &Registered| r.name == name && r.function.as_object().ptr_eq(function.as_object());
    lease::all().into_iter().find(|mapped| mapped.owner.lock().registered.1.iter().any(is_it))
}

/// Undoes registrations after an error, and registers replaced functions of an older build again.
fn give_back(registered: Vec<Registered>) {
    for Registered { name, function, replaced } in remove(registered) {
        if let Some(replaced) = replaced {
            // If other code has registered the name in the meantime, it keeps the name.
            let _ = registry::register(&name).set(&replaced);
        }
        drop(function);
    }
}

/// Removes the global functions that a library has registered, and returns them. The caller must
/// release them after it has released its locks, because releasing a function may run arbitrary
/// code. If another function has since been registered under a name, that registration stays.
pub(crate) fn remove(registered: Vec<Registered>) -> Vec<Registered> {
    for Registered { name, function, .. } in &registered {
        // SAFETY: the function is compared, never called.
        let current = unsafe { registry::find_unsafe(name) };
        if current.is_some_and(|current| current.as_object().ptr_eq(function.as_object())) {
            // A runtime without the global function that removes functions has none that could have been registered.
            let _ = registry::remove(name);
        }
    }
    registered
}

thread_local! {
    /// Library that is being replaced by a newer build, while that build is loaded on this thread. The newer build may
    /// register global functions under the same names.
    static OLDER: core::cell::RefCell<Option<Weak<Mapped>>> = const { core::cell::RefCell::new(None) };
}

/// Runs `load`, which loads a newer build of the module `older`. The global functions of the newer build may replace
/// those of the older one.
pub(crate) fn taking_over<T>(older: &AnyModule, load: impl FnOnce() -> T) -> T {
    struct Reset(Option<Weak<Mapped>>);
    impl Drop for Reset {
        fn drop(&mut self) {
            let before = self.0.take();
            drop(OLDER.with_borrow_mut(|older| core::mem::replace(older, before)));
        }
    }
    let older = older.mapped().map(Arc::downgrade);
    let _reset = Reset(OLDER.with_borrow_mut(|place| core::mem::replace(place, older)));
    load()
}

/// Returns true if `newer` may replace the global functions of `older`. This is the case if both
/// were loaded from the same path, or if `older` is the build that the reload in progress on this
/// thread replaces.
pub(crate) fn is_newer_build(newer: &Mapped, older: &Arc<Mapped>) -> bool {
    newer.path == older.path
        || OLDER.with_borrow(|known| {
            known.as_ref().is_some_and(|known| core::ptr::eq(known.as_ptr(), Arc::as_ptr(older)))
        })
}

impl Mapped {
    /// Adds types to those that the library has registered.
    pub(crate) fn add_types(&self, types: Vec<Recorded>) {
        if types.is_empty() {
            return;
        }
        let others: Vec<Arc<Mapped>> =
            lease::all().into_iter().filter(|other| other.path != self.path).collect();
        // Built-in types have lower indices.
        let is_foreign = |index: i32| {
            index < kTVMFFIDynObjectBegin || others.iter().any(|other| other.types.lock().contains(&index))
        };
        let types = types.into_iter().filter(|(index, is_own)| *is_own || !is_foreign(*index));
        let types: Vec<i32> = types.map(|(index, _)| index).collect();
        let mut known = self.types.lock();
        let new: Vec<i32> = types.into_iter().filter(|index| !known.contains(index)).collect();
        known.extend(new);
    }

    /// Removes the global functions of a module that is being released. `context` identifies the
    /// module: it is the address that the library's context variable contains while this module is
    /// the library's current module. If it is the current module, the variable is set to null, and
    /// the library no longer has a current module.
    pub(crate) fn disown(&self, context: *const c_void) {
        let registering = self.registering.lock();
        let mut owner = self.owner.lock();
        if owner.context == context.addr() {
            if let Some(Address(slot)) = self.context_slot {
                // SAFETY: this is a pointer variable of the library, written only under the lock of its owner.
                unsafe { slot.cast::<*const c_void>().write(core::ptr::null()) };
            }
            owner.context = 0;
            owner.module = None;
            owner.root = None;
        }
        let is_theirs = owner.registered.0 == context.addr();
        let theirs = if is_theirs { core::mem::take(&mut owner.registered).1 } else { Vec::new() };
        drop(owner);
        let removed = remove(theirs);
        drop(registering);
        // Released after the locks, because releasing may run any code.
        drop(removed);
    }

    /// Registers the global functions of the library for the module with the context `context`, unless they are
    /// registered for that module already.
    pub(crate) fn register(&self, context: *const c_void) -> Result<()> {
        let (result, removed) = {
            let _registering = self.registering.lock();
            let mut owner = self.owner.lock();
            if owner.registered.0 == context.addr() {
                return Ok(());
            }
            // These belong to a module that is being released on another thread, which will find nothing left to do.
            let left_over = core::mem::take(&mut owner.registered).1;
            drop(owner);
            let removed = remove(left_over);
            let result = add(self).map(|added| self.owner.lock().registered = (context.addr(), added));
            (result, removed)
        };
        drop(removed);
        result
    }
}
