//! The error message for a global function that does not exist.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use anyfn::__private::{nearest, shorten};

use crate::function_table;

/// Beginnings of the names of functions that a feature of the library adds, and the feature.
const FEATURES: [(&str, &str); 18] = [
    ("rpc.", "rpc"),
    ("ffi.Module", "modules"),
    ("anyfn.tensor_", "runtime"),
    ("anyfn.device_suite", "suite"),
    ("anyfn.device", "runtime"),
    ("anyfn.num_", "runtime"),
    ("anyfn.time_evaluator", "runtime"),
    ("runtime.", "runtime"),
    ("anyfn.profile.", "profile"),
    ("anyfn.doctor", "doctor"),
    ("anyfn.bundle", "bundle"),
    ("ffi.Structural", "reflect"),
    ("ffi.Recursive", "reflect"),
    ("ffi.ToJSON", "reflect"),
    ("ffi.FromJSON", "reflect"),
    ("ffi.json.", "reflect"),
    ("ffi.ReprPrint", "reflect"),
    ("ffi.DeepCopy", "reflect"),
];

/// Returns the error message for the global function `name`, which does not exist. It contains the name of the nearest
/// function or the feature that the library was built without.
pub(super) fn message(name: &str) -> String {
    let names = function_table::names();
    let mut names: Vec<Cow<'_, str>> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
    names.sort_unstable();
    let absent = FEATURES.iter().find(|(begin, _)| {
        name.starts_with(begin) && !names.iter().any(|registered| registered.starts_with(begin))
    });
    let hint = match (absent, nearest(name, names.iter().map(|name| &**name))) {
        (Some((_, feature)), _) => format!("; this runtime was built without the feature `{feature}`"),
        (None, Some(near)) => format!("; did you mean {near}?"),
        (None, None) => String::new(),
    };
    format!("Cannot find global function {}{hint}", shorten(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_feature_or_the_nearest_function() {
        // The unit tests of this crate are linked without the other parts of the library.
        for (name, hint) in [
            ("rpc.connect", "; this runtime was built without the feature `rpc`"),
            ("anyfn.device_suite", "; this runtime was built without the feature `suite`"),
            ("anyfn.devices", "; this runtime was built without the feature `runtime`"),
            ("no.such.function", ""),
        ] {
            assert_eq!(message(name), format!("Cannot find global function {name}{hint}"));
        }
        assert!(message("ffi.FunctionCallNamd").ends_with("; did you mean ffi.FunctionCallNamed?"));
    }
}
