//! Checks for signals and cancellation in long-running functions.

use anyfn_abi::TVMFFIEnvCheckSignals;

use crate::{Error, Result};

/// Checks whether the current call was cancelled, and lets the language that runs the program
/// handle pending signals, such as Ctrl-C in Python. A long-running function should call this
/// regularly.
///
/// # Errors
/// Returns an error if the function should stop; the function should return that error:
/// - `CancelledError` or `TimeoutError`: the call was cancelled, or its deadline has passed (Python's `call_async`).
/// - `EnvErrorAlreadySet`: the host language holds its own error, such as `KeyboardInterrupt` for Ctrl-C.
///
/// ```
/// # use anyfn_core as _;
/// fn sum(values: &[f64]) -> anyfn::Result<f64> {
///     let mut sum = 0.0;
///     for chunk in values.chunks(100_000) {
///         anyfn::check_signals()?;
///         sum += chunk.iter().sum::<f64>();
///     }
///     Ok(sum)
/// }
/// assert_eq!(sum(&[1.0, 2.0])?, 3.0);
/// # Ok::<(), anyfn::Error>(())
/// ```
pub fn check_signals() -> Result<()> {
    // SAFETY: the function may be called at any time, from any thread.
    match unsafe { TVMFFIEnvCheckSignals() } {
        0 => Ok(()),
        _ => Err(stop()),
    }
}

#[cold]
fn stop() -> Error {
    // The host language raises some errors in this runtime and keeps others to itself.
    Error::take_raised_if_any()
        .unwrap_or_else(|| Error::new("EnvErrorAlreadySet", "the host language has a pending error"))
}
