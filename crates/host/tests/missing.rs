//! Tests the error for a global function whose feature is absent from the runtime: the error must
//! name the feature.

use anyfn::registry;
use anyfn_host as _;

/// Prefixes of the names of functions that every build of the library contains.
const CORE: [&str; 18] = [
    "anyfn.DefaultFactory",
    "anyfn.Register",
    "anyfn.live_objects",
    "anyfn.missing_function",
    "anyfn.runtime",
    "ffi.Array",
    "ffi.Bytes",
    "ffi.Container",
    "ffi.Dict",
    "ffi.Function",
    "ffi.Get",
    "ffi.List",
    "ffi.Make",
    "ffi.Map",
    "ffi.Shape",
    "ffi.String",
    "ffi.TypeDefine",
    "ffi._",
];

#[test]
fn the_error_names_the_feature_of_each_function() {
    let names = registry::list().unwrap();
    assert!(names.len() > 100, "{names:?}");
    let kept = ["anyfn.missing_function", "ffi.FunctionRemoveGlobal"];
    for name in names.iter().filter(|name| !kept.contains(&name.as_str())) {
        assert!(registry::remove(name).unwrap(), "{name}");
    }
    let mut unknown = Vec::new();
    for name in names.iter().filter(|name| !kept.contains(&name.as_str())) {
        let error = registry::get(name).unwrap_err();
        let has_feature = error.message().contains("built without the feature");
        if !has_feature && !CORE.iter().any(|begin| name.starts_with(begin)) {
            unknown.push(name);
        }
    }
    assert!(unknown.is_empty(), "not in the table of crates/core/src/globals/missing.rs: {unknown:?}");
    let error = registry::get("runtime.RPCTimeEvaluator").unwrap_err();
    assert!(error.message().ends_with("without the feature `rpc`"), "{error}");
}
