//! Converts panics into errors, so that nothing unwinds across the C boundary.

use crate::Error;

#[cfg(feature = "std")]
mod imp {
    use std::cell::RefCell;
    use std::format;
    use std::panic::{self, AssertUnwindSafe};
    use std::string::{String, ToString};
    use std::sync::{Once, OnceLock};

    use crate::Error;

    struct Place {
        file: String,
        line: u32,
    }

    type Hook = std::boxed::Box<dyn Fn(&panic::PanicHookInfo<'_>) + Sync + Send>;

    static PREVIOUS: OnceLock<Hook> = OnceLock::new();

    std::thread_local! {
        static PLACE: RefCell<Option<Place>> = const { RefCell::new(None) };
    }

    /// Installs a hook that records the source location of later panics of this library. The previous hook still runs.
    pub(crate) fn remember_places() {
        static ONCE: Once = Once::new();
        // The hook cannot be changed while this thread panics; a later call installs it.
        if ONCE.is_completed() || std::thread::panicking() {
            return;
        }
        ONCE.call_once(|| {
            // The previous hook is stored outside the new hook, whose box is therefore empty: when the library is
            // unmapped, nothing frees it.
            PREVIOUS.get_or_init(panic::take_hook);
            panic::set_hook(std::boxed::Box::new(|info| {
                let place = info.location().map(|at| Place { file: at.file().to_string(), line: at.line() });
                // A thread that is ending has no slot any more; the location is then unknown.
                let _ = PLACE.try_with(|slot| slot.replace(place));
                if let Some(previous) = PREVIOUS.get() {
                    previous(info);
                }
            }));
        });
    }

    /// Runs `body` and converts a panic into an error with its message and source location.
    #[inline]
    pub(crate) fn catch<T>(body: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        match panic::catch_unwind(AssertUnwindSafe(body)) {
            Ok(result) => result,
            Err(payload) => Err(to_error(payload)),
        }
    }

    #[cold]
    fn to_error(payload: std::boxed::Box<dyn std::any::Any + Send>) -> Error {
        let message = match payload.downcast_ref::<&'static str>() {
            Some(text) => (*text).to_string(),
            None => match payload.downcast_ref::<String>() {
                Some(text) => text.clone(),
                None => "a panic without a message".to_string(),
            },
        };
        // Dropping the payload may panic again, which must not propagate either.
        swallow(move || drop(payload));
        match PLACE.try_with(|slot| slot.take()).ok().flatten() {
            Some(place) => Error::with_place(
                "InternalError",
                &format!("panic: {message} ({}:{})", place.file, place.line),
                &place.file,
                place.line,
            ),
            None => Error::with_place("InternalError", &format!("panic: {message}"), "<unknown>", 0),
        }
    }

    /// Runs `body` and ignores a panic. It is for releases, which have no caller to report to; the hook has printed the
    /// panic.
    #[inline]
    pub(crate) fn swallow(body: impl FnOnce()) {
        if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(body)) {
            core::mem::forget(payload);
        }
    }
}

#[cfg(not(feature = "std"))]
mod imp {
    //! Without `std` a panic aborts the process.
    use crate::Error;

    pub(crate) fn remember_places() {}

    #[inline]
    pub(crate) fn catch<T>(body: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        body()
    }

    #[inline]
    pub(crate) fn swallow(body: impl FnOnce()) {
        body();
    }
}

pub(crate) use imp::{catch, remember_places, swallow};

/// Runs the body of a function that C code calls. An error or a panic is raised on this thread, and the result is then
/// -1.
///
/// This is the trampoline of all functions that Rust code provides to C.
#[inline]
pub(crate) fn trampoline(body: impl FnOnce() -> Result<(), Error>) -> core::ffi::c_int {
    match catch(body) {
        Ok(()) => 0,
        Err(error) => {
            error.raise();
            -1
        }
    }
}
