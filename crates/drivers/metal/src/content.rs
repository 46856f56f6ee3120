//! Content of modules of kind `metal`, on which their functions work.

use std::sync::{Arc, RwLock};

use anyfn::{Device, PackedFunc};
use anyfn_kernels::Kernel;

/// Kind of the modules.
pub(crate) const KIND: &str = "metal";

/// Content of a module of kind `metal`: kernels, each with a source that is complete by itself.
pub(crate) struct Content {
    pub(crate) kernels: Vec<(Kernel, Arc<str>)>,
    /// Compiled kernels: the index of each, the device, and the function of the driver that launches it.
    pub(crate) compiled: RwLock<Vec<(usize, Device, PackedFunc)>>,
}
