//! Modules of user-defined kinds. Each operation of such a module is a function that the user provides, in any
//! language.

use core::ffi::CStr;

use std::ffi::CString;
use std::string::String as StdString;

use anyfn::{Any, Args, Array, Bytes, Error, FromArg, IntoArgs, Module, PackedFunc, Result, String};

use crate::object::{self, AnyModule, Implementation};

/// Operation of a user-defined module, implemented by a function that the user provides. Only `get_function`
/// is required; any other operation without a function has an empty result.
#[derive(Clone, Copy)]
enum Method {
    GetFunction,
    Functions,
    SaveToBytes,
    WriteToFile,
    WriteFormats,
    InspectSource,
    FunctionDoc,
    FunctionMetadata,
}

const NAMES: [&str; 8] = [
    "get_function",
    "functions",
    "save_to_bytes",
    "write_to_file",
    "write_formats",
    "inspect_source",
    "get_function_doc",
    "get_function_metadata",
];

/// Name of the argument of `ffi.ModuleCreate` that specifies the property bits of the module, as an integer.
const PROPERTIES: &str = "property_mask";

struct Custom {
    kind: CString,
    property_mask: i32,
    methods: [Option<PackedFunc>; NAMES.len()],
}

/// Creates a module of a user-defined kind. This is the global function `ffi.ModuleCreate`.
/// Arguments: the kind, then alternating operation names and functions.
pub(crate) fn create(args: Args<'_>) -> Result<Module> {
    let kind = args.get::<&str>(0)?;
    let fail = |reason: &str| anyfn::error!("ValueError", "cannot create a module of kind `{kind}`: {reason}");
    if kind.is_empty() || matches!(kind, "_lib" | "library") {
        return Err(fail("this kind is reserved for shared libraries"));
    }
    let mut this = Custom {
        kind: CString::new(kind).map_err(|_| fail("the kind contains a NUL character"))?,
        property_mask: 0,
        methods: [const { None }; NAMES.len()],
    };
    let mut mask = None;
    for at in (1..args.len()).step_by(2) {
        let name = args.get::<&str>(at)?;
        if at + 1 == args.len() {
            return Err(fail(&format!("`{name}` has no value")));
        }
        match NAMES.iter().position(|known| *known == name) {
            Some(method) => this.methods[method] = args.get::<Option<PackedFunc>>(at + 1)?,
            None if name == PROPERTIES => mask = Some(args.get::<i32>(at + 1)?),
            None => {
                let known = NAMES.join(", ");
                return Err(fail(&format!(
                    "unknown operation `{name}`; expected one of {known}, {PROPERTIES}"
                )));
            }
        }
    }
    if this.method(Method::GetFunction).is_none() {
        return Err(fail("it requires `get_function`"));
    }
    let can_be_saved = this.method(Method::SaveToBytes).is_some();
    this.property_mask = mask.unwrap_or(if can_be_saved { object::SAVED | object::RUNS } else { object::RUNS });
    if this.property_mask & object::SAVED != 0 && !can_be_saved {
        return Err(fail(
            "its properties declare that it can be saved as bytes, but it has no `save_to_bytes`",
        ));
    }
    Ok(AnyModule::new(Box::new(this), std::sync::Arc::default())?.into_module())
}

impl Custom {
    fn method(&self, method: Method) -> Option<&PackedFunc> {
        self.methods[method as usize].as_ref()
    }

    /// Calls the function that implements an operation and returns its result, or `None` if the user has provided no
    /// such function.
    fn call<T>(&self, method: Method, args: impl IntoArgs) -> Result<Option<T>>
    where
        T: for<'a> FromArg<Arg<'a> = T>,
    {
        let Some(function) = self.method(method) else { return Ok(None) };
        let value = function.call(args)?;
        let kind = || self.kind.to_string_lossy();
        let wrong = |error: Error| {
            let name = NAMES[method as usize];
            anyfn::error!(error.kind(), "`{name}` of the module of kind `{}`: {}", kind(), error.message())
        };
        value.get::<T>().map(Some).map_err(wrong)
    }
}

impl Implementation for Custom {
    fn kind(&self) -> &CStr {
        &self.kind
    }

    fn property_mask(&self) -> i32 {
        self.property_mask
    }

    fn function(&self, _module: &AnyModule, name: &str) -> Result<Option<PackedFunc>> {
        Ok(self.call::<Option<PackedFunc>>(Method::GetFunction, (name,))?.flatten())
    }

    fn function_names(&self) -> Result<Vec<StdString>> {
        let names = self.call::<Array<String>>(Method::Functions, ())?;
        let mut names: Vec<StdString> =
            names.iter().flat_map(|names| names.iter()).map(|name| (*name).into()).collect();
        anyfn::__private::sort(&mut names);
        names.dedup();
        Ok(names)
    }

    fn function_doc(&self, name: &str) -> Result<Option<String>> {
        Ok(self.call::<Option<String>>(Method::FunctionDoc, (name,))?.flatten())
    }

    fn function_metadata(&self, name: &str) -> Result<Option<String>> {
        Ok(self.call::<Option<String>>(Method::FunctionMetadata, (name,))?.flatten())
    }

    fn save_to_bytes(&self) -> Result<Option<Bytes>> {
        self.call::<Bytes>(Method::SaveToBytes, ())
    }

    fn write_to_file(&self, path: &str, format: &str) -> Result<bool> {
        // `False` requests that the bytes be written instead.
        let is_declined = |answer: &Any| answer.get::<bool>().is_ok_and(|written| !written);
        Ok(self.call::<Any>(Method::WriteToFile, (path, format))?.is_some_and(|answer| !is_declined(&answer)))
    }

    fn write_formats(&self) -> Result<Array<String>> {
        Ok(self.call::<Array<String>>(Method::WriteFormats, ())?.unwrap_or_default())
    }

    fn inspect_source(&self, format: &str) -> Result<String> {
        Ok(self.call::<String>(Method::InspectSource, (format,))?.unwrap_or_else(|| String::from("")))
    }
}
