//! Registered functions for the JavaScript package: types and their fields, errors, signatures, tensors.

use anyfn::abi::{
    TVMFFIByteArray, TVMFFIMethodInfo, TVMFFITypeRegisterMethod, kDLCPU, kTVMFFIFieldFlagBitMaskIsStaticMethod,
};
use anyfn::reflection::{Field, TypeInfo};
use anyfn::{
    Any, Array, DType, Device, Error, Fallback, ObjectRef, PackedFunc, Result, Shape, Signature, Source,
    Tensor, TensorView, bail, register, registry,
};
use anyfn_host::runtime::device::DEFAULT_STREAM;
use anyfn_host::runtime::tensor;

/// Makes an array of values of different types.
macro_rules! row {
    ($($value:expr),* $(,)?) => { Array::<Any>::try_from_iter([$(Any::new($value)?),*]) };
}

/// Registers a global function.
#[register("anyfn.web.set_global")]
fn set_global(name: &str, function: PackedFunc, is_override: bool) -> Result<()> {
    let registration = registry::register(name);
    let registration = if is_override { registration.overriding() } else { registration };
    registration.set(&function)
}

/// Returns a global function, or fails.
#[register("anyfn.web.require_global")]
fn require_global(name: &str) -> Result<PackedFunc> {
    registry::get(name)
}

/// Removes a global function. Returns true if it existed.
#[register("anyfn.web.remove_global")]
fn remove_global(name: &str) -> Result<bool> {
    registry::remove(name)
}

/// Returns the names of all global functions.
#[register("anyfn.web.list_globals")]
fn list_globals() -> Result<Array<anyfn::String>> {
    Array::try_from_iter(registry::list()?.into_iter().map(anyfn::String::from))
}

/// Returns the index of a type, or -1.
#[register("anyfn.web.type_index")]
fn type_index(key: &str) -> i64 {
    TypeInfo::from_key(key).map_or(-1, |info| i64::from(info.index()))
}

/// Returns the key of a type.
#[register("anyfn.web.type_key")]
fn type_key(index: i32) -> &'static str {
    anyfn::type_key(index)
}

/// Returns true if a type is or derives from another one.
#[register("anyfn.web.is_instance")]
fn is_instance(index: i32, parent: i32) -> bool {
    anyfn::is_instance(index, parent)
}

/// Returns key, parent, documentation, fields and methods of a type, or None.
#[register("anyfn.web.type_info")]
fn type_info(index: i32) -> Result<Option<Array<Any>>> {
    let Some(info) = TypeInfo::from_index(index) else { return Ok(None) };
    let mut fields = Array::<Any>::new();
    for field in info.own_fields() {
        let told = row![field.name(), field.doc(), field.is_writable(), field.schema().to_string()]?;
        fields.push(Any::new(told)?)?;
    }
    let mut methods = Array::<Any>::new();
    for method in info.own_methods() {
        let told = row![method.name(), method.doc(), method.is_static(), method.function().ok()]?;
        methods.push(Any::new(told)?)?;
    }
    let parent = info.parent().map_or(-1, TypeInfo::index);
    row![info.key(), parent, info.doc(), fields, methods].map(Some)
}

/// Returns the field at a position of a type, of which the object must be an instance.
fn field_of(object: &ObjectRef, index: i32, position: usize) -> Result<Field> {
    let field = TypeInfo::from_index(index).and_then(|info| info.own_fields().nth(position));
    match field {
        Some(field) if anyfn::is_instance(object.type_index(), index) => Ok(field),
        _ => bail!("TypeError", "an object of type {} has no such field", object.type_key()),
    }
}

/// Reads a field.
#[register("anyfn.web.get_field")]
fn get_field(object: ObjectRef, index: i32, position: usize) -> Result<Any> {
    let field = field_of(&object, index, position)?;
    // SAFETY: the object is an instance of the field's type.
    unsafe { field.get_unchecked(&object) }
}

/// Sets a field.
#[register("anyfn.web.set_field")]
fn set_field(object: ObjectRef, index: i32, position: usize, value: Any) -> Result<()> {
    let field = field_of(&object, index, position)?;
    if !field.is_writable() {
        bail!("TypeError", "the field '{}' of {} is read-only", field.name(), object.type_key());
    }
    // SAFETY: the object is an instance of the field's type.
    unsafe { field.set_unchecked(&object, &value.as_view()) }
}

/// Registers a method of a type.
#[register("anyfn.web.add_method")]
fn add_method(index: i32, name: &str, function: PackedFunc, doc: &str, is_static: bool) -> Result<()> {
    let function = Any::from(function.into_object());
    let info = TVMFFIMethodInfo {
        name: TVMFFIByteArray::from_slice(name.as_bytes()),
        doc: TVMFFIByteArray::from_slice(doc.as_bytes()),
        metadata: TVMFFIByteArray::EMPTY,
        flags: if is_static { kTVMFFIFieldFlagBitMaskIsStaticMethod } else { 0 },
        method: *function.as_raw(),
    };
    // SAFETY: everything is borrowed for the call; the type keeps a reference to the function.
    if unsafe { TVMFFITypeRegisterMethod(index, &info) } != 0 {
        return Err(Error::take_raised());
    }
    Ok(())
}

/// Returns an array with the value of an attribute of a type; an empty array if the type has no such attribute.
#[register("anyfn.web.type_attribute")]
fn type_attribute(index: i32, name: &str) -> Result<Array<Any>> {
    let value = TypeInfo::from_index(index).and_then(|info| info.attribute(name));
    Array::try_from_iter(value)
}

fn error_of(object: ObjectRef) -> Result<Error> {
    match Error::try_from_object(object) {
        Ok(error) => Ok(error),
        Err(_) => bail!("TypeError", "expected a native error"),
    }
}

/// Returns kind (0), message (1) or backtrace (2) of an error.
#[register("anyfn.web.error_text")]
fn error_text(object: ObjectRef, which: i64) -> Result<anyfn::String> {
    let error = error_of(object)?;
    Ok(match which {
        0 => error.kind().into(),
        1 => error.message().into(),
        _ => error.backtrace().into(),
    })
}

/// Returns the cause of an error, or None.
#[register("anyfn.web.error_cause")]
fn error_cause(object: ObjectRef) -> Result<Option<ObjectRef>> {
    Ok(error_of(object)?.cause().map(Error::into_object))
}

/// Makes an error whose context keeps the thrown value.
#[register("anyfn.web.make_error")]
fn make_error(
    kind: &str,
    message: &str,
    backtrace: &str,
    cause: Option<ObjectRef>,
    context: Option<ObjectRef>,
) -> Result<ObjectRef> {
    match Error::try_from_texts(kind.as_bytes(), message.as_bytes(), backtrace.as_bytes(), cause, context) {
        Some(error) => Ok(error.into_object()),
        None => bail!("MemoryError", "out of memory"),
    }
}

/// Returns the signature of a function as JSON, or None.
#[register("anyfn.web.signature")]
fn signature(function: PackedFunc) -> Option<anyfn::String> {
    function.signature().map(|text| anyfn::String::from(&*text))
}

/// Returns where the positional arguments of a call with named arguments come from: `[0, index]` in the positional ones, `[1, index]`
/// in the named ones, `[2, value]`. Returns None if the function takes names itself or has no signature.
#[register("anyfn.web.arrange")]
fn arrange(function: PackedFunc, positional: usize, names: Array<anyfn::String>) -> Result<Option<Array<Any>>> {
    let Some(told) = function.signature() else { return Ok(None) };
    let signature = Signature::parse(&told)?;
    if signature.takes_names {
        return Ok(None);
    }
    let names = names.to_vec()?;
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let name = if signature.name.is_empty() { "function" } else { &signature.name };
    let sources = signature.arrange(name, positional, &names)?;
    let params = signature.params.as_deref().unwrap_or_default();
    let mut all = Array::<Any>::new();
    for (index, source) in sources.into_iter().enumerate() {
        let told = match source {
            Source::Positional(from) => row![0, from]?,
            Source::Named(from) => row![1, from]?,
            Source::Default => match &params[index].default {
                Fallback::Value(value) => row![2, value.clone()]?,
                Fallback::Required | Fallback::Unknown => row![2, Any::NONE]?,
            },
        };
        all.push(Any::new(told)?)?;
    }
    Ok(Some(all))
}

/// Returns shape, data type, device, strides, byte offset, whether the tensor is contiguous, whether it is read-only, the address of its
/// first byte, and the number of bytes that its elements occupy without gaps. The strides of a compact tensor are None.
#[register("anyfn.web.tensor_info")]
fn tensor_info(tensor: Tensor) -> Result<Array<Any>> {
    let view = tensor.view();
    let dl = view.as_dl();
    let strides = match view.strides() {
        Some(strides) => Some(Array::<i64>::try_from_iter(strides.iter().copied())?),
        None => None,
    };
    let bits = u64::from(dl.dtype.bits) * u64::from(dl.dtype.lanes);
    let size = (view.num_elements().unwrap_or(0) as u64 * bits).div_ceil(8);
    let address = if dl.device.device_type == kDLCPU { view.data() as usize } else { 0 };
    row![
        Array::<i64>::try_from_iter(view.shape().iter().copied())?,
        view.dtype(),
        view.device(),
        strides,
        dl.byte_offset as i64,
        view.is_contiguous(),
        view.is_read_only(),
        address,
        size as i64,
    ]
}

/// Returns the extents of a shape.
#[register("anyfn.web.shape")]
fn shape(shape: Shape) -> Result<Array<i64>> {
    Array::try_from_iter(shape.iter().copied())
}

/// Returns the data type with a name.
#[register("anyfn.web.parse_dtype")]
fn parse_dtype(text: &str) -> Result<DType> {
    DType::try_from(text)
}

/// Returns the name of a data type.
#[register("anyfn.web.dtype_text")]
fn dtype_text(dtype: DType) -> anyfn::String {
    dtype.to_string().into()
}

/// Makes a tensor with a copy of the content of a typed array. Without a data type, the tensor has that of the array.
#[register("anyfn.web.tensor_make")]
fn tensor_make(content: Any, shape: Array<i64>, dtype: Option<DType>) -> Result<Tensor> {
    let shape = shape.to_vec()?;
    let Some(dtype) = dtype else { return content.get::<Tensor>()?.reshape(&shape) };
    let tensor = Tensor::zeros(dtype, &shape)?;
    let view = content.as_view();
    match view.get::<Tensor>() {
        Ok(content) => tensor.set_bytes(&content.to_bytes()?)?,
        Err(_) => tensor.set_bytes(view.get::<&[u8]>()?)?,
    }
    Ok(tensor)
}

/// Returns a tensor with a copy of the content of a borrowed one, on the same device.
#[register("anyfn.web.copy_of_view")]
fn copy_of_view(#[read_only] borrowed: TensorView<'_>) -> Result<Tensor> {
    if borrowed.device() != Device::CPU {
        let copy = tensor::empty(borrowed.shape(), borrowed.dtype(), borrowed.device(), None)?;
        // SAFETY: the tensor is borrowed for the call, and the copy is new.
        unsafe { tensor::copy(&borrowed, &copy.view(), DEFAULT_STREAM) }?;
        return Ok(copy);
    }
    let copy = Tensor::zeros(borrowed.dtype(), borrowed.shape())?;
    copy.set_bytes(&borrowed.to_bytes()?)?;
    Ok(copy)
}

/// Copies what a callback has written to a copy of a borrowed tensor back to the borrowed one, which must be writable.
#[register("anyfn.web.write_back")]
fn write_back(borrowed: TensorView<'_>, #[read_only] copy: TensorView<'_>) -> Result<()> {
    if borrowed.device() != Device::CPU {
        // SAFETY: both are borrowed for the call.
        return unsafe { tensor::copy(&copy, &borrowed, DEFAULT_STREAM) };
    }
    let bytes = copy.to_bytes()?;
    if borrowed.to_bytes()? != *bytes {
        borrowed.write_bytes()?.copy_from_slice(&bytes);
    }
    Ok(())
}
