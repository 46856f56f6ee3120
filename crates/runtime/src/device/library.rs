//! The library of drivers that comes with the runtime, and that the loader opens when one of its devices is first asked for.

use std::sync::atomic::{AtomicU64, Ordering};

use anyfn::{Any, registry};

/// Function of the loader that opens the library if it contains the driver of a device type. It returns None if the library is open or has
/// no such driver, and the reason as a string if the library cannot be opened. It raises an error if this thread is opening the library.
const OPEN: &str = "anyfn.open_device_drivers";

/// Device types for which the answer is final, as bits.
static ASKED: AtomicU64 = AtomicU64::new(0);

/// Opens the library if it may contain the driver of a device type. If the library contains the driver, the driver is registered when
/// this function returns.
pub(super) fn open_for(device_type: i32) {
    let bit = 1_u64.checked_shl(device_type.unsigned_abs()).unwrap_or(0);
    if ASKED.load(Ordering::Acquire) & bit == 0 && ask(device_type).is_some() {
        ASKED.fetch_or(bit, Ordering::Release);
    }
}

/// Returns the reason why the library that contains the driver of a device type cannot be opened; `None` if it is open, or contains no such
/// driver.
pub fn library_error(device_type: i32) -> Option<String> {
    ask(device_type)?.get::<String>().ok()
}

/// Returns the answer of the loader; `None` if it is not final. Without a loader there is no library.
fn ask(device_type: i32) -> Option<Any> {
    match registry::find(OPEN) {
        Some(open) => open.call((device_type,)).ok(),
        None => Some(Any::NONE),
    }
}
