//! Imported modules of a kind that has no loader yet. Such a module is loaded at its first use.
//!
//! So a library can be loaded wherever its own code runs. A function that needs, say, a missing device fails only when
//! it is looked up, and the error names the kind. A loader that was registered later is found at the next use. The
//! bytes are kept, so that the module can be saved again unchanged.

use core::ffi::CStr;

use std::ffi::CString;
use std::string::String as StdString;

use anyfn::{Array, Bytes, Error, Module, PackedFunc, Result, String, registry};
use anyfn_core::loader::Mutex;

use crate::object::{self, AnyModule, Implementation};

struct Deferred {
    kind: CString,
    bytes: Bytes,
    /// The loaded module; `None` until the loader of its kind has created it.
    loaded: Mutex<Option<Module>>,
}

/// Returns the name of the global function that creates modules of a kind from bytes.
pub(super) fn loader_of(kind: &str) -> StdString {
    format!("ffi.Module.load_from_bytes.{kind}")
}

/// Creates a module that is loaded from `bytes` at its first use.
pub(crate) fn create(kind: &str, bytes: &[u8]) -> Result<AnyModule> {
    let Ok(kind) = CString::new(kind) else {
        anyfn::bail!(
            "RuntimeError",
            "the kind of a module contains a NUL character: \"{}\"",
            kind.as_bytes().escape_ascii()
        );
    };
    let this = Deferred { kind, bytes: Bytes::from(bytes), loaded: Mutex::new(None) };
    AnyModule::new(Box::new(this), std::sync::Arc::default())
}

impl Deferred {
    /// Returns the loaded module. The first call creates it from the bytes with the loader of its kind.
    /// Returns `None` if the kind has no loader yet. `owner` must be the module object of `self`.
    fn loaded(&self, owner: &AnyModule) -> Result<Option<AnyModule>> {
        let known = self.loaded.lock().clone();
        if let Some(known) = known {
            return AnyModule::try_from(&known).map(Some);
        }
        let Some(loader) = registry::find(&loader_of(self.kind_text())) else { return Ok(None) };
        // Not under the lock, because a loader may run any code.
        let module = loader.call((self.bytes.clone(),))?.get::<Module>()?;
        let own = AnyModule::try_from(&module)?;
        own.import_all(&owner.imports())?;
        // If two threads get here at the same time, the module of the first one stays.
        let first = self.loaded.lock().get_or_insert(module).clone();
        AnyModule::try_from(&first).map(Some)
    }

    fn kind_text(&self) -> &str {
        self.kind.to_str().unwrap_or_default()
    }
}

impl Implementation for Deferred {
    fn kind(&self) -> &CStr {
        &self.kind
    }

    fn property_mask(&self) -> i32 {
        object::SAVED | object::RUNS
    }

    fn function(&self, module: &AnyModule, name: &str) -> Result<Option<PackedFunc>> {
        self.loaded(module)?.map_or(Ok(None), |loaded| loaded.function(name, false))
    }

    fn missing(&self, module: &AnyModule) -> Result<Option<Error>> {
        let kind = self.kind_text();
        let loader = loader_of(kind);
        #[cfg(feature = "drivers")]
        if let Some(reason) = crate::drivers::why_not_provided(&loader) {
            return Ok(Some(anyfn::error!(
                "RuntimeError",
                "it may be in the module of kind `{kind}` that the library carries: {reason}"
            )));
        }
        Ok(self.loaded(module)?.is_none().then(|| {
            anyfn::error!(
                "RuntimeError",
                "it may be in the module of kind `{kind}` that the library carries, whose loader {loader} is not \
                 registered; use a runtime with support for `{kind}`, or register the loader first"
            )
        }))
    }

    fn function_names(&self) -> Result<Vec<StdString>> {
        match &*self.loaded.lock() {
            Some(loaded) => AnyModule::try_from(loaded)?.function_names(false),
            None => Ok(Vec::new()),
        }
    }

    fn save_to_bytes(&self) -> Result<Option<Bytes>> {
        Ok(Some(self.bytes.clone()))
    }

    fn inspect_source(&self, format: &str) -> Result<String> {
        let loaded = self.loaded.lock().clone();
        loaded
            .map_or_else(|| Ok(String::from("")), |loaded| AnyModule::try_from(&loaded)?.inspect_source(format))
    }

    fn write_formats(&self) -> Result<Array<String>> {
        Ok(Array::new())
    }
}
