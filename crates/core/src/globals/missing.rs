//! The error message for a global function that does not exist.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use anyfn::__private::{nearest, shorten};

use crate::function_table;

/// Optional features of the library, one on each line, followed by the prefixes of the names of the global functions that
/// it adds. A feature with more specific prefixes comes first. As one string it takes less space than as an array.
const FEATURES: &str = "\
    server rpc.start_server rpc.serve_session rpc.make_key\n\
    tracker rpc.request\n\
    websocket rpc.connect_url rpc.start_proxy\n\
    rpc rpc. runtime.RPC\n\
    suite anyfn.device_suite\n\
    profile anyfn.profile. ffi.Observe\n\
    doctor anyfn.doctor anyfn.compat_ anyfn.abi_version\n\
    bundle anyfn.bundle\n\
    define ffi.TypeDefine ffi.MakeField ffi._PyClass\n\
    ledger ffi.Ledger ffi.LiveHandles\n\
    watch ffi.ModuleWatch\n\
    inspect ffi.ModuleInspectF ffi.ModuleFileS ffi.ModuleLea ffi.ModulePi \
        ffi.ModuleMa ffi.ModuleReap ffi.ModuleLoo\n\
    timing anyfn.time_evaluator anyfn.timing_text\n\
    null anyfn.device_enable_null\n\
    containers ffi.Array ffi.List ffi.Map ffi.Dict ffi.ContainerFind\n\
    construct ffi._R ffi.MakeObject anyfn.RegisterFieldCopy\n\
    named ffi.FunctionCallNamed\n\
    custom ffi.ModuleCreate\n\
    drivers anyfn.open_d anyfn.register_d\n\
    cuda anyfn.cuda_ ffi.Module.load_from_file.cu ffi.Module.load_from_bytes.cu\n\
    opencl anyfn.opencl_ ffi.Module.load_from_file.o ffi.Module.load_from_bytes.o\n\
    vulkan anyfn.vulkan_ ffi.Module.load_from_file.v ffi.Module.load_from_bytes.v\n\
    elements anyfn.tensor_full anyfn.tensor_fill anyfn.tensor_cast anyfn.tensor_d anyfn.tensor_text\n\
    streams runtime.Device_S anyfn.device_c anyfn.device_ent anyfn.device_ev anyfn.device_l anyfn.device_m anyfn.device_r\n\
    views anyfn.tensor_as anyfn.tensor_r anyfn.tensor_slice anyfn.tensor_p\n\
    modules ffi.Module ffi.SystemLib ffi.FunctionName\n\
    runtime runtime. anyfn.tensor_ anyfn.device anyfn.num_ anyfn.set_num \
        anyfn.set_par anyfn.set_wait anyfn.workspace __tvm_set_device\n\
    reflect ffi.Structural ffi.Recursive ffi.GetF ffi.ToJSON ffi.FromJSON \
        ffi.json. ffi.ReprPrint ffi.DeepCopy ffi.Visit anyfn.ReprWithin anyfn.Sh \
        anyfn.Des anyfn.alias_ anyfn.json anyfn.load_json anyfn.save_json \
        anyfn.rewrite anyfn.set_stack_hooks";

/// Returns the error message for the global function `name`, which does not exist. The message
/// contains the name of the nearest function or the feature that the library was built without, if
/// either is known.
pub(super) fn message(name: &str) -> String {
    #[cfg(feature = "drivers")]
    if let Some(reason) = crate::libraries::why_not_provided(name) {
        return format!("Cannot find global function {}: {reason}", shorten(name));
    }
    let names = function_table::names();
    let mut names: Vec<Cow<'_, str>> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
    anyfn::__private::sort(&mut names);
    message_among(&names, name)
}

/// Implements [`message`] for a registry that contains the functions `registered`.
fn message_among(registered: &[impl AsRef<str>], name: &str) -> String {
    let names = || registered.iter().map(AsRef::as_ref);
    let is_absent =
        |begin: &&str| name.starts_with(begin) && !names().any(|registered| registered.starts_with(begin));
    let mut features = FEATURES.lines().filter_map(|line| line.split_once(' '));
    let absent = features.find(|(_, beginnings)| beginnings.split(' ').any(|begin| is_absent(&begin)));
    let near = || if cfg!(feature = "hints") { nearest(name, names()) } else { None };
    let hint = match (absent, near()) {
        (Some((feature, _)), _) => format!("; this runtime was built without the feature `{feature}`"),
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
        let registered = ["anyfn.devices", "ffi.FunctionCallNamed", "runtime.Device"];
        for (name, hint) in [
            ("rpc.connect", "; this runtime was built without the feature `rpc`"),
            ("anyfn.device_suite", "; this runtime was built without the feature `suite`"),
            ("ffi.ModuleWatchPoll", "; this runtime was built without the feature `watch`"),
            ("ffi.ModuleLoadFromFile", "; this runtime was built without the feature `modules`"),
            ("anyfn.cuda_module", "; this runtime was built without the feature `cuda`"),
            ("ffi.Module.load_from_bytes.cuda", "; this runtime was built without the feature `cuda`"),
            ("anyfn.device_name", ""),
            ("no.such.function", ""),
            ("ffi.FunctionCallNamd", "; did you mean ffi.FunctionCallNamed?"),
        ] {
            assert_eq!(message_among(&registered, name), format!("Cannot find global function {name}{hint}"));
        }
    }
}
