//! Messages of argument checks, extended by a description of the argument that was received.

use anyfn::abi::{TVMFFIAny, kTVMFFIDLTensorPtr};
use anyfn::{AnyView, DType, Device, Error, TensorView};

use super::{signature, tensor};

/// Adds a description of the received argument to `error`, if an argument check of the function with the
/// signature `own` has raised it. Other errors are returned unchanged.
pub(super) fn with_received(error: Error, own: &str, args: &[TVMFFIAny]) -> Error {
    let message = error.message();
    // An error of a function that this one has called is about other arguments.
    if signature::in_message(message) != Some(own) {
        return error;
    }
    let head = message.split(signature::MARK).next().unwrap_or_default();
    let expected = message.rsplit_once("expected ").map_or("", |(_, expected)| expected);
    let (argument, got) = match head.split_once(" on argument #") {
        Some((item, index)) => match index.trim().parse::<usize>().ok().and_then(|index| args.get(index)) {
            Some(arg) => (index.trim(), received(item, arg)),
            None => return error,
        },
        None if head.starts_with("Expected ") => ("", args.len().to_string()),
        None => return error,
    };
    let expected = if expected.is_empty() { head.trim_start_matches("Expected ") } else { expected };
    mismatch(&error, own, argument, expected, &got)
}

fn mismatch(error: &Error, own: &str, argument: &str, expected: &str, got: &str) -> Error {
    let message = format!("{}, got {got}", error.message());
    let trace = error.backtrace();
    let new = Error::try_from_texts(error.kind().as_bytes(), message.as_bytes(), trace.as_bytes(), None, None);
    let Some(new) = new else { return error.clone() };
    let function = signature::function_name(own);
    let detail = anyfn::__private::Detail { function: &function, argument, path: "", expected, got };
    anyfn::__private::with_detail(new, &detail)
}

/// Returns the error for an argument that fails a check added by the loader. The message has the form of the
/// messages of the function's own checks. `item` names the failed check, such as `Invalid A.shape[1]`;
/// `index` is the index of the argument.
pub(super) fn refuse(kind: &str, item: &str, index: usize, own: &str, expected: &str, got: &str) -> Error {
    let message = format!("{item} on argument #{index}{}{own}`,\n  expected {expected}", signature::MARK);
    mismatch(&Error::untraced(kind, &message), own, &format!("{index}"), expected, got)
}

/// Returns a description of the property of `arg` that a check has rejected. `item` names the property, as in
/// `Mismatched A.shape[1]`.
fn received(item: &str, arg: &TVMFFIAny) -> String {
    // SAFETY: the value is an argument of a call and valid for it.
    let Some(dl) = (unsafe { tensor(arg) }) else { return kind(arg) };
    // SAFETY: the tensor is an argument of a call and valid for it.
    let view = unsafe { TensorView::from_dl(dl) };
    let property = item.rsplit_once('.').map_or("", |(_, property)| property);
    match property {
        "dtype" => DType(dl.dtype).to_string(),
        "ndim" => format!("{} (shape {})", dl.ndim, tuple(view.shape())),
        "strides" => {
            let strides = tuple(view.strides().unwrap_or_default());
            format!("strides {strides} with shape {}", tuple(view.shape()))
        }
        "device_type" => Device(dl.device).to_string(),
        "device_id" => dl.device.device_id.to_string(),
        "byte_offset" => dl.byte_offset.to_string(),
        _ => match extent(property) {
            Some((name, index)) => {
                let list = if name == "shape" { Some(view.shape()) } else { view.strides() };
                list.and_then(|list| list.get(index)).map_or_else(|| whole(&view), |n| n.to_string())
            }
            None => whole(&view),
        },
    }
}

/// Splits the name of an element of the shape or strides, such as `shape[1]`, into `shape` and 1. Returns
/// `None` for any other property.
fn extent(property: &str) -> Option<(&str, usize)> {
    let (name, index) = property.strip_suffix(']')?.split_once('[')?;
    matches!(name, "shape" | "strides").then_some(())?;
    Some((name, index.parse().ok()?))
}

fn whole(view: &TensorView<'_>) -> String {
    let dl = view.as_dl();
    let null = if dl.data.is_null() { " without data" } else { "" };
    format!("a tensor of {}{} on {}{null}", view.dtype(), tuple(view.shape()), view.device())
}

pub(super) fn tuple(numbers: &[i64]) -> String {
    match numbers {
        [one] => format!("({one},)"),
        many => format!("({})", many.iter().map(i64::to_string).collect::<std::vec::Vec<_>>().join(", ")),
    }
}

/// Returns the name of an argument's type, as error messages show it.
pub(super) fn kind(arg: &TVMFFIAny) -> String {
    if arg.type_index == kTVMFFIDLTensorPtr {
        return "no tensor (NULL)".to_owned();
    }
    // SAFETY: the value is an argument of a call and valid for it; only its type is read.
    let key = unsafe { AnyView::from_raw(*arg) }.type_key();
    match key {
        "ffi.SmallStr" | "ffi.String" | "const char*" => "str".to_owned(),
        "ffi.SmallBytes" | "ffi.Bytes" | "TVMFFIByteArray*" => "bytes".to_owned(),
        "void*" => "an opaque pointer".to_owned(),
        key => key.to_owned(),
    }
}
