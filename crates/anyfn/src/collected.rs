//! Lists to which every crate of a program or library can add entries: functions with
//! `#[register]`, types, methods. No crate needs to know all entries of a list.
//!
//! On most platforms the linker assembles the entries of a list in one section (`linkme`), and no code runs for that.
//! The linker for WebAssembly assembles no sections with pointers, but a table of constructors. There each entry
//! has a constructor that adds it to a chain, and the first use of a list runs the constructors.
//!
//! The names of the items in the expansions must not be those of users, because the value of an entry refers to items of theirs.

/// Declares a list. Its method `iter` returns the entries in an unspecified order.
#[cfg(not(target_family = "wasm"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __collected {
    ($(#[$attribute:meta])* $visibility:vis static $list:ident: [$entry:ty];) => {
        $(#[$attribute])*
        #[$crate::__private::linkme::distributed_slice]
        #[linkme(crate = $crate::__private::linkme)]
        $visibility static $list: [$entry];
    };
}

/// Adds an entry to a list.
#[cfg(not(target_family = "wasm"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __entry {
    ($list:path: $type:ty = $value:expr) => {
        const _: () = {
            #[$crate::__private::linkme::distributed_slice($list)]
            #[linkme(crate = $crate::__private::linkme)]
            static __ANYFN_ENTRY: $type = $value;
        };
    };
}

/// Declares a list. Its method `iter` returns the entries in an unspecified order.
#[cfg(target_family = "wasm")]
#[doc(hidden)]
#[macro_export]
macro_rules! __collected {
    ($(#[$attribute:meta])* $visibility:vis static $list:ident: [$entry:ty];) => {
        $(#[$attribute])*
        $visibility static $list: $crate::__private::Chain<$entry> = $crate::__private::Chain::new();
    };
}

/// Adds an entry to a list.
#[cfg(target_family = "wasm")]
#[doc(hidden)]
#[macro_export]
macro_rules! __entry {
    ($list:path: $type:ty = $value:expr) => {
        const _: () = {
            // A constant of its own, in which references to temporary values may stay.
            const __ANYFN_VALUE: $type = $value;
            static __ANYFN_LINK: $crate::__private::Link<$type> = $crate::__private::Link::new(__ANYFN_VALUE);
            extern "C" fn __anyfn_add() {
                $list.add(&__ANYFN_LINK);
            }
            #[used]
            // SAFETY: the section holds addresses of functions without arguments, which run before the lists are read.
            #[unsafe(link_section = ".init_array")]
            static __ANYFN_ADD: extern "C" fn() = __anyfn_add;
        };
    };
}

/// Implementation of the lists as linked lists, to which constructors add the entries.
#[cfg(target_family = "wasm")]
mod chain {
    use core::ptr;
    use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

    /// A list to which constructors add the entries.
    pub struct Chain<T: 'static>(AtomicPtr<Link<T>>);

    /// An entry of a list.
    pub struct Link<T: 'static> {
        entry: T,
        is_added: AtomicBool,
        next: AtomicPtr<Link<T>>,
    }

    impl<T> Link<T> {
        /// Creates an entry that is not in a list yet.
        pub const fn new(entry: T) -> Self {
            Link { entry, is_added: AtomicBool::new(false), next: AtomicPtr::new(ptr::null_mut()) }
        }
    }

    impl<T: Sync> Chain<T> {
        /// Creates an empty list.
        #[expect(clippy::new_without_default, reason = "only `collected!` declares lists")]
        pub const fn new() -> Self {
            Chain(AtomicPtr::new(ptr::null_mut()))
        }

        /// Adds an entry to the list. Does nothing if the entry is already in the list, because the
        /// host may also have run the constructors.
        pub fn add(&self, link: &'static Link<T>) {
            if link.is_added.swap(true, Ordering::Relaxed) {
                return;
            }
            let mut first = self.0.load(Ordering::Relaxed);
            loop {
                link.next.store(first, Ordering::Relaxed);
                let added = ptr::from_ref(link).cast_mut();
                match self.0.compare_exchange_weak(first, added, Ordering::AcqRel, Ordering::Relaxed) {
                    Ok(_) => return,
                    Err(now) => first = now,
                }
            }
        }

        /// Returns the entries.
        pub fn iter(&'static self) -> impl Iterator<Item = &'static T> {
            run_constructors();
            let link = |address: *mut Link<T>| {
                // SAFETY: the address is NULL or that of a static, which `add` has received as a shared reference.
                unsafe { address.as_ref() }
            };
            let first = link(self.0.load(Ordering::Acquire));
            core::iter::successors(first, move |last| link(last.next.load(Ordering::Relaxed)))
                .map(|link| &link.entry)
        }
    }

    /// Runs all constructors of the module once. Does nothing in a module with a C library, whose
    /// start-up code has run them.
    fn run_constructors() {
        #[cfg(target_os = "unknown")]
        run_once();
    }

    #[cfg(target_os = "unknown")]
    fn run_once() {
        unsafe extern "C" {
            /// Runs all constructors of the module. The linker generates this function. Without a
            /// reference to the function, such as this declaration, the linker would also insert a
            /// call at the beginning of each exported function.
            fn __wasm_call_ctors();
        }
        static HAVE_RUN: AtomicBool = AtomicBool::new(false);
        if !HAVE_RUN.swap(true, Ordering::AcqRel) {
            // SAFETY: those of this crate allow that they run twice. Others exist only if the module contains C++, and then
            // the host must not run them itself.
            unsafe { __wasm_call_ctors() };
        }
    }
}
#[cfg(target_family = "wasm")]
pub use chain::{Chain, Link};
