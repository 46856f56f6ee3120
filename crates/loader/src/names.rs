//! Names of the symbols in compiled libraries, according to the ABI's convention for libraries.

use core::ffi::CStr;

/// Symbol of the constant that contains the import tree of a library.
pub(crate) const IMPORT_TREE: &CStr = c"__tvm_ffi__library_bin";
/// Symbol of the variable through which the code of a library finds its own module (the library context).
pub(crate) const CONTEXT: &CStr = c"__tvm_ffi__library_ctx";

/// Symbol of the import tree of a library that follows the convention of TVM 0.8.
pub(crate) const CLASSIC_IMPORT_TREE: &CStr = c"__tvm_dev_mblob";
/// Symbol of the library context of a library that follows the convention of TVM 0.8.
pub(crate) const CLASSIC_CONTEXT: &CStr = c"__tvm_module_ctx";

/// True if the conventions of TVM 0.8 are known, too.
const CLASSIC: bool = cfg!(feature = "classic");

/// Prefixes of the names of context symbols.
pub(crate) const SLOTS: &[&str] = if CLASSIC {
    &["__TVMFFI", "__TVMBackend", "__TVMFuncCall", "__TVMAPISetLastError"]
} else {
    &["__TVMFFI", "__TVMBackend"]
};
/// Prefix of the symbol of an exported function.
pub(crate) const FUNCTION: &str = "__tvm_ffi_";
/// Prefix of the symbol of a getter that returns the metadata of an exported function.
pub(crate) const METADATA: &str = "__tvm_ffi__metadata_";
/// Prefix of the symbol of a getter that returns the documentation of an exported function.
pub(crate) const DOC: &str = "__tvm_ffi__doc_";
/// Prefix that the name of an exported function must not have. With [`FUNCTION`] in front, such a name would
/// be the symbol of data, such as [`IMPORT_TREE`].
pub(crate) const DATA: &str = "_library_";

/// Returns true if `symbol` is the name of a variable into which the loader writes an address.
pub(crate) fn is_slot(symbol: &str) -> bool {
    CONTEXT.to_str() == Ok(symbol)
        || CLASSIC && CLASSIC_CONTEXT.to_str() == Ok(symbol)
        || SLOTS.iter().any(|begin| symbol.starts_with(begin))
}

/// Returns the names of the exported functions that `symbols` contains, sorted and without `prefix`. Functions without
/// the prefix are left out.
pub(crate) fn function_names<'a>(symbols: impl Iterator<Item = &'a str>, prefix: &str) -> Vec<String> {
    let begin = format!("{FUNCTION}{prefix}");
    let mut names: Vec<&str> = symbols.filter_map(|symbol| symbol.strip_prefix(&begin)).collect();
    anyfn::__private::sort(&mut names);
    names.dedup();
    let has = |name: &str| names.binary_search(&name).is_ok();
    // The getters of a function's metadata and documentation contain its name, too.
    let getters = [METADATA, DOC].map(|getter| &getter[FUNCTION.len()..]);
    let is_getter = |name: &str| getters.iter().any(|getter| name.strip_prefix(getter).is_some_and(has));
    let is_function = |name: &&&str| !name.is_empty() && !name.starts_with(DATA) && !is_getter(name);
    names.iter().filter(is_function).map(|name| String::from(*name)).collect()
}
