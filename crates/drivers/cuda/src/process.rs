//! Forks of the process, which the CUDA driver does not survive.

use anyfn_kernels::fork::Forks;

/// Forks since the CUDA driver was initialised.
pub(crate) static FORKS: Forks = Forks::new();

/// Returns true if this process was forked after the CUDA driver was initialised.
#[inline]
pub(crate) fn is_forked() -> bool {
    FORKS.is_forked()
}
