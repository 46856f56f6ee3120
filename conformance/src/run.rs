//! Runs the test cases of the conformance corpus through the Rust API.

use std::collections::BTreeMap;

use anyfn::abi::{TVMFFIAny, TVMFFIBigIntFromByteArray, TVMFFIByteArray};
use anyfn::reflection::TypeInfo;
use anyfn::{
    Any, Array, DType, Device, Error, Map, ObjectRef, OpaquePtr, PackedFunc, Shape, Tensor, error, registry,
};

use crate::{CallCase, Outcome, Value, ValueCase};

type Result<T, E = Error> = std::result::Result<T, E>;

/// Values that a test case has bound to names so far.
type Scope = BTreeMap<String, Any>;

/// Converts a corpus value that refers to no bound name to a Rust value.
fn make(value: &Value) -> Result<Any> {
    make_in(value, &Scope::new())
}

/// Converts a corpus value, which may refer to the names in `scope`, to a Rust value.
fn make_in(value: &Value, scope: &Scope) -> Result<Any> {
    let make = |value: &Value| make_in(value, scope);
    let object = |value: &Value| make(value)?.get::<ObjectRef>();
    Ok(match value {
        Value::Let(name) => {
            scope.get(name).cloned().ok_or_else(|| error!("ValueError", "nothing is bound to {name:?}"))?
        }
        Value::Call(function, args) => {
            let args = args.iter().map(make).collect::<Result<Vec<Any>>>()?;
            global(function)?.call(&args[..])?
        }
        Value::Field(from, name) => object(from)?.get_field(name)?,
        Value::Set(to, name, value) => {
            object(to)?.set_field(name, make(value)?)?;
            Any::NONE
        }
        Value::Attribute(key, name) => TypeInfo::from_key(key)
            .and_then(|of| of.attribute(name))
            .ok_or_else(|| error!("ValueError", "{key} has no attribute {name:?}"))?,
        Value::None => Any::NONE,
        Value::Bool(b) => Any::new(*b)?,
        Value::Int(n) => Any::new(*n)?,
        Value::BigInt(words) => bigint(words)?,
        Value::Float(x) => Any::new(*x)?,
        Value::Str(text) => Any::new(text.as_str())?,
        Value::Bytes(bytes) => Any::new(&bytes[..])?,
        Value::DType(name) => Any::new(name.parse::<DType>()?)?,
        Value::Device(kind, number) => Any::new(Device::new(*kind, *number))?,
        Value::Opaque(address) => {
            let address = std::ptr::without_provenance_mut(*address as usize);
            // SAFETY: no case passes an opaque address to a function that dereferences it.
            Any::new(unsafe { OpaquePtr::from_ptr(address) })?
        }
        Value::Global(name) => Any::new(global(name)?)?,
        Value::Callback(name) => Any::new(callback(name))?,
        Value::Array(items) => Any::new(items.iter().map(make).collect::<Result<Array>>()?)?,
        Value::Map(pairs) => {
            Any::new(pairs.iter().map(|(k, v)| Ok((make(k)?, make(v)?))).collect::<Result<Map>>()?)?
        }
        Value::Shape(extents) => Any::new(Shape::from(&extents[..]))?,
        Value::Tensor { dtype, shape, data } => Any::new(tensor(dtype, shape, data)?)?,
    })
}

/// Returns a global function, even one that is registered as unsafe because it trusts addresses that its
/// caller passes.
fn global(name: &str) -> Result<PackedFunc> {
    // SAFETY: the cases pass addresses only to functions that return them unchanged.
    unsafe { registry::get_unsafe(name) }
}

fn bigint(words: &[u64]) -> Result<Any> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let bytes = TVMFFIByteArray::from_slice(&bytes);
    let mut out = TVMFFIAny::NONE;
    // SAFETY: the bytes are borrowed for the call, `out` is writable.
    match unsafe { TVMFFIBigIntFromByteArray(&bytes, &mut out) } {
        // SAFETY: on success the result is an owned value.
        0 => Ok(unsafe { Any::from_raw(out) }),
        _ => Err(Error::take_raised()),
    }
}

fn callback(name: &str) -> PackedFunc {
    match name {
        "echo" => PackedFunc::new(|args| args.get::<Any>(0)),
        "count" => PackedFunc::new(|args| Any::new(args.len())),
        "fail" => PackedFunc::new(|_| Err(Error::new("ValueError", "callback failed"))),
        other => unreachable!("unknown callback {other}"),
    }
}

fn tensor(dtype: &str, shape: &[i64], data: &[f64]) -> Result<Tensor> {
    let (code, bits, bytes) = Value::elements(dtype, data).map_err(|e| Error::new("ValueError", &e))?;
    Tensor::from_bytes(DType::new(code, bits, 1), shape, &bytes)
}

/// Returns true if two values are equal. Containers are compared element by element, in order. A
/// List can equal an Array, and a Dict a Map.
fn same(a: &Any, b: &Any) -> bool {
    if let (Ok(x), Ok(y)) = (a.get::<Array>(), b.get::<Array>()) {
        return x.len() == y.len() && x.iter().zip(y.iter()).all(|(x, y)| same(&x, &y));
    }
    if let (Ok(x), Ok(y)) = (a.get::<Map>(), b.get::<Map>()) {
        let pairs = x.iter().zip(y.iter());
        return x.len() == y.len() && pairs.into_iter().all(|((k, v), (l, w))| same(&k, &l) && same(&v, &w));
    }
    if let (Ok(x), Ok(y)) = (a.get::<Shape>(), b.get::<Shape>()) {
        return x == y;
    }
    if let (Ok(x), Ok(y)) = (a.get::<Tensor>(), b.get::<Tensor>()) {
        let (x, y) = (x.view(), y.view());
        return x.dtype() == y.dtype()
            && x.shape() == y.shape()
            && matches!((x.to_bytes(), y.to_bytes()), (Ok(x), Ok(y)) if x == y);
    }
    a == b
}

/// Passes the value of a test case to native code and back, and checks that it is unchanged.
///
/// # Errors
/// Returns a description of the failure.
pub fn value(case: &ValueCase) -> Result<(), String> {
    value_through("testing", case)
}

/// Like [`value`], with the functions `echo` and `apply` whose names begin with a prefix.
///
/// # Errors
/// Returns a description of the failure.
pub fn value_through(prefix: &str, case: &ValueCase) -> Result<(), String> {
    let run = || {
        let value = make(&case.value)?;
        let out = global(&format!("{prefix}.echo"))?.call((&value,))?;
        let back = global(&format!("{prefix}.apply"))?.call((callback("echo"), &value))?;
        Ok((same(&out, &value) && same(&back, &value)).then_some(()).ok_or((out, back)))
    };
    let outcome = run().map_err(|error: Error| format!("{}: {error}", case.name))?;
    outcome.map_err(|(out, back)| format!("{}: got {out:?} and {back:?}", case.name))
}

/// Lets the function `raise_error` under a prefix raise an error, and lets an error of a callback pass through its function
/// `apply`.
///
/// # Errors
/// Returns a description of the failure.
pub fn errors_through(prefix: &str) -> Result<(), String> {
    let raised = global(&format!("{prefix}.raise_error")).and_then(|f| f.call(("ValueError", "told so")));
    let through = global(&format!("{prefix}.apply")).and_then(|f| f.call((callback("fail"),)));
    for (got, message) in [(raised, "told so"), (through, "callback failed")] {
        match got {
            Err(error) if error.kind() == "ValueError" && error.message() == message => (),
            other => return Err(format!("expected ValueError: {message}, got {other:?}")),
        }
    }
    Ok(())
}

/// Calls the function of a test case and checks the outcome. Then checks that the runtime still
/// works.
///
/// # Errors
/// Returns a description of the failure.
pub fn call(case: &CallCase) -> Result<(), String> {
    let prepare = || {
        let mut scope = Scope::new();
        for (name, value) in &case.bindings {
            let value = make_in(value, &scope)?;
            scope.insert(name.clone(), value);
        }
        let args = case.args.iter().map(|value| make_in(value, &scope)).collect::<Result<Vec<Any>>>()?;
        let named = case.named.iter().map(|(name, value)| Ok((name.as_str(), make_in(value, &scope)?)));
        Ok((args, named.collect::<Result<Vec<(&str, Any)>>>()?))
    };
    let (args, named) = prepare().map_err(|error: Error| format!("{}: {error}", case.name))?;
    let got = global(&case.function).and_then(|function| function.call_named(&args[..], &named));
    let is_right = match (&case.outcome, &got) {
        (Outcome::Value(expected), Ok(got)) => {
            same(&make(expected).map_err(|error| format!("{}: {error}", case.name))?, got)
        }
        (Outcome::Error { kind, message }, Err(got)) => got.kind() == kind && got.message() == message,
        _ => false,
    };
    if !is_right {
        return Err(format!("{}: expected {:?}, got {got:?}", case.name, case.outcome));
    }
    let echoed = registry::get("testing.echo").and_then(|echo| echo.call((1,))?.get::<i64>());
    match echoed {
        Ok(1) => Ok(()),
        other => Err(format!("{}: afterwards, testing.echo(1) gave {other:?}", case.name)),
    }
}
