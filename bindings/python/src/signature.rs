//! Signatures of native functions in the form that Python needs: for named arguments, and for `inspect` and `help`.
//!
//! The signature of each `PackedFunc` is read once, on first use, and stored in it. For a native function that was
//! made from a Python function, the Python code of the package provides the signature (`_signature.describe`), also
//! only on request.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyfn::abi::{AnyfnFunctionExt, TVMFFIAny};
use anyfn::{Any, Fallback, Param, Schema, Signature, Source};

use crate::py::{self, Global, Obj, Own, Raised, Res};
use crate::{callback, function, gil, lift};

/// Maximum number of parameters that the fast path of [`Known::arrange`] handles.
pub(crate) const INLINE: usize = 8;

/// Parsed signature of a function, with names and default values as Python objects.
pub(crate) struct Known {
    /// The signature; `None` if the function has none.
    signature: Option<Signature>,
    /// Interned name of each parameter. Empty if the names are unknown.
    names: Vec<Own>,
    /// Default of each parameter; `None` for a parameter without a known default.
    defaults: Vec<Option<Own>>,
    /// One more than the index of the last required parameter.
    required: usize,
    /// True if the function processes named arguments itself.
    takes_names: bool,
}

impl Known {
    /// Reads the signature of a function.
    pub(crate) fn read(callable: Obj<'_>) -> Res<Known> {
        let text = function::handle_as_packed(callable).and_then(|function| function.signature());
        let signature = match text {
            None => None,
            Some(text) => match Signature::parse(&text) {
                Ok(signature) => Some(signature),
                Err(error) => {
                    let message = format!("{}: {}", function::name_of(callable), error.message());
                    return py::raise(py::exceptions::value_error(), &message);
                }
            },
        };
        let takes_names = signature.as_ref().is_some_and(|signature| signature.takes_names);
        let mut known = Known { signature, names: Vec::new(), defaults: Vec::new(), required: 0, takes_names };
        let params = known.signature.as_ref().filter(|signature| signature.named);
        for (index, param) in
            params.and_then(|signature| signature.params.as_ref()).into_iter().flatten().enumerate()
        {
            let mut name = py::string(param.name.as_bytes())?.into_ptr();
            // SAFETY: this is a new string, whose reference is exchanged for one to the interned string.
            unsafe { pyo3_ffi::PyUnicode_InternInPlace(&mut name) };
            // SAFETY: the pointer is never NULL.
            known.names.extend(unsafe { Own::from_nullable(name) });
            known.defaults.push(match &param.default {
                Fallback::Value(value) => Some(lift::lift_owned(value.clone().into_raw())?),
                Fallback::Required => {
                    known.required = index + 1;
                    None
                }
                Fallback::Unknown => None,
            });
        }
        Ok(known)
    }

    fn params(&self) -> &[Param] {
        self.signature.as_ref().and_then(|signature| signature.params.as_deref()).unwrap_or_default()
    }

    /// Returns the name of the parameter at `index`, if it is known.
    pub(crate) fn name(&self, index: usize) -> Option<&str> {
        let params = self.signature.as_ref().filter(|signature| signature.named)?.params.as_ref()?;
        params.get(index).map(|param| param.name.as_str())
    }

    /// Returns true if the function only reads the tensor that it receives for the parameter at `index`.
    pub(crate) fn is_read_only(&self, index: usize) -> bool {
        self.params().get(index).is_some_and(|param| param.read_only)
    }

    /// Arranges the positional and named arguments of a call in the order of the parameters. Fills `out` and returns
    /// the number of arguments. Returns `None` if the arguments do not match the parameters, or if there are too many
    /// for `out`; [`Known::arrange_any`] then handles the call or reports the error.
    #[inline]
    pub(crate) fn arrange<'a>(
        &'a self,
        args: &[Obj<'a>],
        names: Obj<'_>,
        out: &mut [Option<Obj<'a>>; INLINE],
    ) -> Option<usize> {
        let count = self.names.len();
        let positional = args.len() - names.tuple_len();
        if count > INLINE || positional > count || self.takes_names {
            return None;
        }
        for (slot, arg) in out.iter_mut().zip(&args[..positional]) {
            *slot = Some(*arg);
        }
        let mut end = positional;
        for (index, arg) in args[positional..].iter().enumerate() {
            let name = py::tuple_get(names, index)?;
            let place = match self.names.iter().position(|known| name.is(known.as_ptr())) {
                Some(place) => place,
                // The name is not interned: it was made at run time.
                None => self.names.iter().position(|known| py::same_text(known.obj(), name))?,
            };
            if out[place].replace(*arg).is_some() {
                return None;
            }
            end = end.max(place + 1);
        }
        if end < self.required {
            return None;
        }
        for (index, slot) in out[..end].iter_mut().enumerate() {
            if slot.is_none() {
                *slot = Some(self.defaults[index].as_ref()?.obj());
            }
        }
        Some(end)
    }

    /// Returns the sentinel argument after which the function expects the names and values of named arguments.
    /// Returns `None` if the function does not process named arguments itself.
    #[cold]
    pub(crate) fn sentinel(&self) -> Res<Option<Own>> {
        if !self.takes_names {
            return Ok(None);
        }
        let sentinel = anyfn::registry::get("ffi.GetKwargsObject").and_then(|get| get.call(()));
        match sentinel {
            Ok(sentinel) => lift::lift_owned(sentinel.into_raw()).map(Some),
            Err(error) => py::raise(py::exceptions::runtime_error(), error.message()),
        }
    }

    /// Arranges any number of arguments like [`Known::arrange`], but raises an exception if the arguments do not
    /// match the parameters.
    #[cold]
    pub(crate) fn arrange_any<'a>(
        &'a self,
        callable: Obj<'_>,
        args: &[Obj<'a>],
        names: Obj<'_>,
    ) -> Res<Vec<Obj<'a>>> {
        let function = function::name_of(callable);
        let Some(signature) = &self.signature else {
            return py::raise(py::exceptions::type_error(), &anyfn::__private::unsigned(&function));
        };
        let texts = (0..names.tuple_len())
            .filter_map(|index| py::tuple_get(names, index))
            .map(Obj::to_text)
            .collect::<Res<Vec<String>>>()?;
        let positional = args.len() - texts.len();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let sources = match signature.arrange(&function, positional, &texts) {
            Ok(sources) => sources,
            // The error is raised like one of Python itself, since the location of the check in native code is of no use.
            Err(error) => return py::raise(py::exceptions::type_error(), error.message()),
        };
        let object = |(index, source): (usize, &Source)| match *source {
            Source::Positional(from) => Ok(args[from]),
            Source::Named(from) => Ok(args[positional + from]),
            Source::Default => match self.defaults.get(index) {
                Some(Some(value)) => Ok(value.obj()),
                _ => py::raise(py::exceptions::system_error(), "a default has gone"),
            },
        };
        sources.iter().enumerate().map(object).collect()
    }

    /// Describes the signature for the Python code of the package as `(params, variadic, result, doc, named)`, or
    /// None. `params` is `None` or a list of `(name, type, kind, default, by name)`, where the kind is 0 (required),
    /// 1 (with a default) or 2 (with an unknown default).
    pub(crate) fn describe(&self) -> Res<Own> {
        let Some(signature) = &self.signature else { return Ok(py::none()) };
        let param = |param: &Param| {
            let (kind, value) = match &param.default {
                Fallback::Required => (0, &Any::NONE),
                Fallback::Value(value) => (1, value),
                Fallback::Unknown => (2, &Any::NONE),
            };
            let value = lift::lift_owned(value.clone().into_raw())?;
            let name = py::string(param.name.as_bytes())?;
            py::tuple(vec![name, schema(&param.ty)?, py::int(kind)?, value, py::boolean(param.by_name)])
        };
        let params = match &signature.params {
            None => py::none(),
            Some(params) => py::list(params.iter().map(param).collect::<Res<Vec<Own>>>()?)?,
        };
        py::tuple(vec![
            params,
            py::boolean(signature.variadic),
            schema(&signature.result)?,
            py::string(signature.doc.as_bytes())?,
            py::boolean(signature.named),
        ])
    }
}

/// Describes the type of a parameter or result as `(origin, (arguments, ..))`: its name and its type arguments, which
/// are described in the same way.
fn schema(schema_: &Schema) -> Res<Own> {
    let args = schema_.args.iter().map(schema).collect::<Res<Vec<Own>>>()?;
    py::tuple(vec![py::string(schema_.origin.as_bytes())?, py::tuple(args)?])
}

/// The function `_signature.describe` of the Python code.
pub(crate) static DESCRIBE: Global = Global::new();

/// The function `_signature._attribute` of the Python code.
pub(crate) static ATTRIBUTE: Global = Global::new();

/// Function extension of all native functions that call Python functions. The runtime queries their signatures through it.
pub(crate) static PYTHON: AnyfnFunctionExt =
    AnyfnFunctionExt { size: size_of::<AnyfnFunctionExt>(), flags: 0, signature: Some(describe_python) };

/// Writes the signature of a Python function to `result` as JSON. Leaves `result` at None if the function has no
/// signature or the interpreter has ended.
unsafe extern "C" fn describe_python(handle: *mut c_void, result: *mut TVMFFIAny) -> c_int {
    let Some(_held) = gil::enter() else { return 0 };
    let described = catch_unwind(AssertUnwindSafe(|| {
        let (Some(callable), Some(describe)) = (callback::python_callable(handle.cast()), DESCRIBE.try_get())
        else {
            return Ok(None);
        };
        let text = describe.call(&[callable])?;
        if text.obj().is_none() {
            return Ok(None);
        }
        text.obj().to_text().map(|text| Some(anyfn::String::from(text)))
    }));
    match described {
        Ok(Ok(Some(text))) => {
            // SAFETY: the caller passes a writable result that holds no value.
            unsafe { result.write(Any::from(text).into_raw()) };
        }
        Ok(Ok(None)) | Err(_) => {}
        // A callable that cannot be described has no signature.
        Ok(Err(Raised)) => py::clear_error(),
    }
    0
}
