//! Signatures of native functions in the form that Python needs: for named arguments, and for `inspect` and `help`.
//!
//! The signature of each `PackedFunc` is read once, on first use, and stored in it. For a native function that was
//! made from a Python function, the Python code of the package provides the signature (`_signature.describe`), also
//! only on request.

use std::cell::RefCell;

use anyfn::{Any, Fallback, Param, Schema, Signature, Source};

use crate::params::Known;
use crate::py::{self, Global, Obj, Own, Raised, Res};
use crate::{classes, lift, packed};

/// Returns the name of a function's parameter at `index`, or `None` if the signature does not
/// contain this name.
#[cold]
pub(crate) fn argument_name(callable: Obj<'_>, index: usize) -> Option<String> {
    if !callable.is_instance_of(packed::CLASS.ptr()) {
        return None;
    }
    match known(callable) {
        Ok(known) => known.name(index).map(String::from),
        Err(Raised) => {
            py::clear_error();
            None
        }
    }
}

/// Returns true if the signature of a function declares that the function only reads the tensor
/// argument at `index`.
#[cold]
pub(crate) fn argument_is_read_only(callable: Obj<'_>, index: usize) -> bool {
    declares(callable, |known| known.is_read_only(index))
}

/// Returns true if the signature of a function declares the argument at `index` as a tensor to
/// which the function may write.
#[cold]
pub(crate) fn argument_is_written(callable: Obj<'_>, index: usize) -> bool {
    declares(callable, |known| known.is_written(index))
}

/// Returns true if a packed function has a valid signature for which `what` returns true.
fn declares(callable: Obj<'_>, what: impl FnOnce(&Known) -> bool) -> bool {
    if !callable.is_instance_of(packed::CLASS.ptr()) {
        return false;
    }
    known(callable).map(what).unwrap_or_else(|Raised| {
        py::clear_error();
        false
    })
}

/// Returns the parsed signature of a packed function. The signature is parsed on first use and then stored in
/// the instance.
#[inline]
pub(crate) fn known<'a>(callable: Obj<'a>) -> Res<&'a Known> {
    // SAFETY: the instance owns the signature, which is never replaced once it is set.
    match unsafe { packed::layout(callable).known.as_ref() } {
        Some(known) => Ok(known),
        None => read_known(callable),
    }
}

#[cold]
fn read_known<'a>(callable: Obj<'a>) -> Res<&'a Known> {
    let known = Box::new(Known::read(callable)?);
    let place = callable.as_ptr().cast::<packed::Layout>();
    // Reading may have run other code that has set the signature in the meantime.
    if packed::layout(callable).known.is_null() {
        // SAFETY: this is a field of the instance, the GIL is held, and no reference to the instance is in use.
        unsafe { (*place).known = Box::into_raw(known) };
    }
    // SAFETY: the instance owns the signature, which is not NULL at this point and is never replaced.
    Ok(unsafe { &*packed::layout(callable).known })
}

impl Known {
    /// Parses the signature of a packed function.
    fn read(callable: Obj<'_>) -> Res<Known> {
        let text = packed::handle_as_packed(callable).and_then(|function| function.signature());
        let signature = match text {
            None => None,
            Some(text) => match Signature::parse(&text) {
                Ok(signature) => Some(signature),
                Err(error) => {
                    let message = format!("{}: {}", packed::name_of(callable), error.message());
                    return py::raise(py::exceptions::value_error(), &message);
                }
            },
        };
        let takes_names = signature.as_ref().is_some_and(|signature| signature.takes_names);
        let mut known = Known {
            signature,
            names: Vec::new(),
            defaults: Vec::new(),
            required: 0,
            takes_names,
            shown: RefCell::default(),
        };
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
                Fallback::Value(value) => Some(lift::lift_owned(value.clone())?),
                Fallback::Required => {
                    known.required = index + 1;
                    None
                }
                Fallback::Unknown => None,
            });
        }
        Ok(known)
    }

    /// Returns the sentinel that separates the positional arguments of a call from the names and
    /// values of its named arguments. Returns `None` if the function does not accept named
    /// arguments in this form.
    #[cold]
    pub(crate) fn sentinel(&self) -> Res<Option<Own>> {
        if !self.takes_names {
            return Ok(None);
        }
        let sentinel = anyfn::registry::get("ffi.GetKwargsObject").and_then(|get| get.call(()));
        match sentinel {
            Ok(sentinel) => lift::lift_owned(sentinel).map(Some),
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
        let function = packed::name_of(callable);
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
                _ => py::raise(py::exceptions::system_error(), "a default value of the signature is missing"),
            },
        };
        sources.iter().enumerate().map(object).collect()
    }

    /// Returns the `inspect.Signature` that [`Known::show`] has stored, unless the class of a native type has changed
    /// since.
    pub(crate) fn shown(&self) -> Option<Own> {
        let shown = self.shown.borrow();
        let (then, shown) = shown.as_ref()?;
        (*then == classes::registrations()).then(|| shown.obj().to_own())
    }

    /// Stores the `inspect.Signature` of the function.
    pub(crate) fn show(&self, shown: Obj<'_>) {
        let old = self.shown.replace(Some((classes::registrations(), shown.to_own())));
        drop(old);
    }

    /// Describes the signature for the Python code of the package as
    /// `(params, variadic, result, doc, named)`, or returns None if the function has no signature.
    /// `params` is None or a list of `(name, type, kind, default, by name)`. `kind` is 0 for a
    /// required parameter, 1 for a parameter with a default, and 2 for a parameter whose default is
    /// unknown. `by name` is true if the argument must be passed by name.
    pub(crate) fn describe(&self) -> Res<Own> {
        let Some(signature) = &self.signature else { return Ok(py::none()) };
        let param = |param: &Param| {
            let (kind, value) = match &param.default {
                Fallback::Required => (0, &Any::NONE),
                Fallback::Value(value) => (1, value),
                Fallback::Unknown => (2, &Any::NONE),
            };
            let value = lift::lift_owned(value.clone())?;
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

/// Describes the type of a parameter or result as `(origin, (arguments, ..))`. `origin` is the name
/// of the type, and `arguments` are its type arguments, which are described in the same way.
fn schema(schema_: &Schema) -> Res<Own> {
    let args = schema_.args.iter().map(schema).collect::<Res<Vec<Own>>>()?;
    py::tuple(vec![py::string(schema_.origin.as_bytes())?, py::tuple(args)?])
}

/// Python function `_signature._attribute`, which computes an attribute of a `PackedFunc`, such as
/// `__annotations__`, on access.
pub(crate) static ATTRIBUTE: Global = Global::new();
