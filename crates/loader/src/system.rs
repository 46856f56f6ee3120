//! Modules of libraries that are linked into the process.

use anyfn::__private::SortedMap;
use anyfn::{Module, Result};
use anyfn_core::loader::Mutex;

use crate::library::{Code, LibraryModule};
use crate::load;
use crate::names::{CLASSIC_IMPORT_TREE, IMPORT_TREE};
use crate::{classic, import_tree};

static MODULES: Mutex<SortedMap<String, Module>> = Mutex::new(SortedMap::new());

/// Returns the module of the linked libraries whose symbols have the prefix `prefix`. All calls with the same prefix
/// return the same module, which is never released.
pub(crate) fn system_lib(prefix: &str) -> Result<Module> {
    if let Some(known) = MODULES.lock().get(prefix) {
        return Ok(known.clone());
    }
    let code = Code::System(prefix.to_owned());
    let tree = match code.data(IMPORT_TREE) {
        None if !classic::ENABLED => None,
        None => code.data(CLASSIC_IMPORT_TREE).map(|blob| (blob, classic::parse as load::Parse)),
        Some(blob) => Some((blob, import_tree::parse as load::Parse)),
    };
    // SAFETY: code that registers symbols promises that they follow the convention; their code does not run before
    // this.
    let library = unsafe { LibraryModule::create(code) }?;
    // SAFETY: code that registers symbols promises that they follow the convention; their code does not run before
    // this.
    let module = unsafe { load::with_imports(&library, tree, None) }?;
    // If two threads get here at the same time, the module of the first one stays.
    Ok(MODULES.lock().get_or_insert(prefix.to_owned(), module).clone())
}
