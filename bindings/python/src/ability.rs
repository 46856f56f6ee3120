//! Conversion of Python objects whose class alone does not determine the native value. Such an
//! object is converted through a protocol that it supports, such as DLPack, the buffer protocol or
//! `__index__`. For some objects, such as members of an enumeration, the result is another Python
//! object, which the caller converts instead.

use anyfn::Any;
use anyfn::abi::{kTVMFFIBool, kTVMFFIDataType, kTVMFFIDevice, kTVMFFIFloat, kTVMFFIOpaquePtr};
use pyo3_ffi as ffi;

use crate::at::At;
use crate::buffer::{self, Content};
use crate::py::{self, Global, Obj, Own, Raised, Res, names};
use crate::scalars::{int, plain};
use crate::{cancel, dlpack, error, ndarray, python_function, words};

/// The class `enum.Enum`; set once the process has imported the module `enum`.
static ENUM: Global = Global::new();

/// Result of a conversion: a native value, or another Python object to convert.
pub(crate) enum Ability {
    /// The native value of the object.
    Native(Any),
    /// Python object to convert instead of the original object.
    Python(Own),
    /// Python object to convert instead of the original object. Converting this object increases
    /// the nesting depth, because the conversion may yield yet another object to convert.
    Nested(Own),
}

/// Converts an object by the first applicable conversion, such as DLPack, the buffer protocol or `__index__`.
/// An object that supports no conversion is passed as an opaque reference to the Python object.
pub(crate) fn of(arg: Obj<'_>, at: &At<'_>) -> Res<Ability> {
    if dlpack::is_known_exporter(arg.type_ptr())
        && let Some(tensor) = dlpack::tensor(arg, at)?
    {
        return Ok(Ability::Native(tensor.into()));
    }
    if let Some(scalar) = ndarray::scalar(arg, at)? {
        return match scalar {
            ndarray::Scalar::Bool(value) => Ok(Ability::Native(plain(kTVMFFIBool, value.into()))),
            ndarray::Scalar::Float(value) => Ok(Ability::Native(plain(kTVMFFIFloat, value.to_bits()))),
            ndarray::Scalar::Int(value) => int(value.obj()).map(Ability::Native),
        };
    }
    if is_enum_member(arg) {
        return arg.attr(names::VALUE.get()).map(Ability::Nested);
    }
    if ndarray::is_dtype(arg) {
        return word(words::DTYPE.get(), arg, kTVMFFIDataType).map(Ability::Native);
    }
    if let Some(tensor) = dlpack::tensor(arg, at)? {
        return Ok(Ability::Native(tensor.into()));
    }
    if let Some(address) = words::address_of(arg)? {
        return Ok(Ability::Native(plain(kTVMFFIOpaquePtr, address)));
    }
    match buffer::content(arg)? {
        Some(Content::Bytes(bytes)) => return Ok(Ability::Native(bytes)),
        Some(Content::Elements(export)) => {
            return buffer::tensor(arg, export, at).map(|tensor| Ability::Native(tensor.into()));
        }
        None => {}
    }
    let class = arg.class();
    if class.attr_opt(names::INDEX.get())?.is_some() {
        // SAFETY: the object is valid and the GIL is held; the result is a new reference, or NULL with an exception set.
        let value = py::unsafe_new_ref!(py::raw::PyNumber_Index(arg.as_ptr()))?;
        return int(value.obj()).map(Ability::Native);
    }
    if class.attr_opt(names::FSPATH.get())?.is_some() {
        return path(arg).map(Ability::Python);
    }
    if class.is((&raw mut ffi::PyRange_Type).cast()) {
        return list_of(arg).map(Ability::Python);
    }
    if arg.is_callable() {
        return python_function::function_object(arg).map(Ability::Native);
    }
    if let (At::Result { .. }, Some(result)) = (at, cancel::finish(arg)?) {
        return Ok(Ability::Python(result));
    }
    let value = match foreign_class(arg)? {
        Some((b"torch", b"dtype")) => word(words::DTYPE.get(), arg, kTVMFFIDataType)?,
        Some((b"torch", b"device")) => {
            let text = arg.str()?;
            word(words::DEVICE.get(), text.obj(), kTVMFFIDevice)?
        }
        _ => error::make_opaque(arg)?.into(),
    };
    Ok(Ability::Native(value))
}

/// Returns true if an object is a member of a Python enumeration. Such a member is passed as its `value`.
fn is_enum_member(object: Obj<'_>) -> bool {
    if ENUM.try_get().is_none() {
        let Some(module) = py::imported(c"enum") else { return false };
        let found = py::intern(c"Enum").and_then(|name| module.obj().attr(name.obj()));
        match found {
            Ok(class) => ENUM.set(class),
            // The module is being imported at this moment.
            Err(Raised) => {
                py::clear_error();
                return false;
            }
        }
    }
    object.is_instance_of(ENUM.ptr())
}

/// Makes a native data type or device by calling the Python class `class` (`dtype` or `device`)
/// with `spec`.
fn word(class: Obj<'_>, spec: Obj<'_>, type_index: i32) -> Res<Any> {
    let made = class.call(&[spec])?;
    if !made.obj().is_instance_of(words::CLASS.ptr()) {
        return py::raise(
            py::exceptions::type_error(),
            "the class of data types or devices did not create an instance of Word",
        );
    }
    Ok(plain(type_index, words::bits(made.obj())))
}

/// Converts a path object to a string with `os.fsdecode`, which also accepts paths of bytes.
fn path(object: Obj<'_>) -> Res<Own> {
    let os = py::import(c"os")?;
    let decode = py::intern(c"fsdecode")?;
    os.obj().attr(decode.obj())?.obj().call(&[object])
}

fn list_of(object: Obj<'_>) -> Res<Own> {
    // SAFETY: the object is valid and the GIL is held; the result is a new reference, or NULL with an exception set.
    py::unsafe_new_ref!(py::raw::PySequence_List(object.as_ptr()))
}

/// Returns the module and name of an object's class if the class is `torch.dtype` or `torch.device`, and `None`
/// otherwise. Never imports `torch`.
fn foreign_class(object: Obj<'_>) -> Res<Option<(&'static [u8], &'static [u8])>> {
    if py::imported(c"torch").is_none() {
        return Ok(None);
    }
    let module_name = py::intern(c"__module__")?;
    let Some(module) = object.class().attr_opt(module_name.obj())? else { return Ok(None) };
    let is_torch =
        module.obj().type_ptr() == &raw mut ffi::PyUnicode_Type && module.obj().str_bytes()? == b"torch";
    Ok(match object.class_name().as_str() {
        "dtype" if is_torch => Some((b"torch", b"dtype")),
        "device" if is_torch => Some((b"torch", b"device")),
        _ => None,
    })
}
