//! The conformance corpus: test cases in JSON files, which this crate loads for the Rust runner and for the
//! generator of the C runner.
//!
//! `README.md` describes the files.

use serde_json::Value as Json;

pub mod emit_c;
pub mod emit_cpp;
pub mod run;
pub mod value;

pub use value::Value;

/// A value that must not change when it is passed to native code and back. It is passed once
/// through a native function and once through a callback that the frontend implements.
#[derive(Debug)]
pub struct ValueCase {
    /// Name of the test case.
    pub name: String,
    /// Value that is passed to native code and back.
    pub value: Value,
}

/// A call of a global function and its expected outcome.
#[derive(Debug)]
pub struct CallCase {
    /// Name of the test case.
    pub name: String,
    /// Optional part of the runtime that the test case needs, if any.
    pub needs: Option<Need>,
    /// Values that the test case computes in this order before the call, each with a name. The arguments of
    /// the call may refer to the names.
    pub bindings: Vec<(String, Value)>,
    /// Name of the global function that the test case calls.
    pub function: String,
    /// Positional arguments of the call.
    pub args: Vec<Value>,
    /// Named arguments of the call.
    pub named: Vec<(String, Value)>,
    /// Expected outcome of the call.
    pub outcome: Outcome,
}

impl CallCase {
    /// Returns the function and the arguments of an equivalent call without named arguments, for languages
    /// that lack them. A call with named arguments becomes a call of the global function
    /// `ffi.FunctionCallNamed`.
    #[must_use]
    pub fn without_names(&self) -> (&str, Vec<Value>) {
        if self.named.is_empty() {
            return (&self.function, self.args.clone());
        }
        let named = self.named.iter().map(|(name, value)| (Value::Str(name.clone()), value.clone())).collect();
        let function = Value::Global(self.function.clone());
        ("ffi.FunctionCallNamed", vec![function, Value::Array(self.args.clone()), Value::Map(named)])
    }
}

/// Part of the runtime that is absent on some targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Threads, which a WebAssembly module cannot start.
    Threads,
    /// Support for modules, which is part of the library loader.
    Modules,
}

/// Expected outcome of a call.
#[derive(Debug)]
pub enum Outcome {
    /// Result of the call.
    Value(Value),
    /// Error that the call raises.
    Error {
        /// Kind of the expected error, such as `TypeError`.
        kind: String,
        /// Complete message of the expected error.
        message: String,
    },
}

/// Test cases that were loaded from JSON files of this crate.
#[derive(Debug)]
pub struct Corpus {
    /// Test cases from `values.json`; empty in the corpus that [`Corpus::load_peer`] returns.
    pub values: Vec<ValueCase>,
    /// Test cases from `calls.json`, `errors.json`, `named.json`, `operations.json`, `objects.json`
    /// and `tensors.json`, or from `peer.json`. Cases that define types come before the cases that
    /// use those types.
    pub calls: Vec<CallCase>,
}

impl Corpus {
    /// Returns the test cases in `peer.json`, which call functions of the testing library in the
    /// PyPI package apache-tvm-ffi.
    ///
    /// # Errors
    /// Returns a message if a case is malformed.
    pub fn load_peer() -> Result<Corpus, String> {
        Ok(Corpus { values: Vec::new(), calls: read_calls("peer.json")? })
    }
}

/// Name and content of each file of test cases. The files are embedded in the program, because it
/// may run on a target without a file system.
const FILES: &[(&str, &str)] = &[
    ("values.json", include_str!("../cases/values.json")),
    ("calls.json", include_str!("../cases/calls.json")),
    ("errors.json", include_str!("../cases/errors.json")),
    ("named.json", include_str!("../cases/named.json")),
    ("operations.json", include_str!("../cases/operations.json")),
    ("objects.json", include_str!("../cases/objects.json")),
    ("tensors.json", include_str!("../cases/tensors.json")),
    ("peer.json", include_str!("../cases/peer.json")),
];

/// Returns all test cases of the conformance corpus, except those for the peer.
///
/// # Errors
/// Returns a message if a case is malformed.
pub fn load() -> Result<Corpus, String> {
    let mut corpus = load_core()?;
    corpus.calls.extend(read_calls("tensors.json")?);
    Ok(corpus)
}

/// Returns the test cases that need no devices, for a runtime that is built without support for
/// devices.
///
/// # Errors
/// Returns a message if a case is malformed.
pub fn load_core() -> Result<Corpus, String> {
    let values = read("values.json")?
        .iter()
        .map(|case| Ok(ValueCase { name: name_of(case)?, value: Value::parse(&case["value"])? }))
        .collect::<Result<_, String>>()?;
    let mut calls = read_calls("calls.json")?;
    calls.extend(read_calls("errors.json")?);
    calls.extend(read_calls("named.json")?);
    calls.extend(read_calls("operations.json")?);
    calls.extend(read_calls("objects.json")?);
    Ok(Corpus { values, calls })
}

fn read(file: &str) -> Result<Vec<Json>, String> {
    let (_, text) = FILES.iter().find(|(name, _)| *name == file).ok_or(format!("no file {file}"))?;
    serde_json::from_str(text).map_err(|e| format!("{file}: {e}"))
}

fn read_calls(file: &str) -> Result<Vec<CallCase>, String> {
    let parse = |case: &Json| call_case(name_of(case)?, case).map_err(|e| format!("{file}: {e}"));
    read(file)?.iter().map(parse).collect()
}

fn name_of(case: &Json) -> Result<String, String> {
    case["name"].as_str().map(str::to_string).ok_or(format!("a case without a name: {case}"))
}

fn call_case(name: String, case: &Json) -> Result<CallCase, String> {
    let text =
        |json: &Json, key: &str| json[key].as_str().map(str::to_string).ok_or(format!("{name}: no `{key}`"));
    let args = case["args"].as_array().ok_or(format!("{name}: no `args`"))?;
    let outcome = match case.get("error") {
        Some(error) => Outcome::Error { kind: text(error, "kind")?, message: text(error, "message")? },
        None => Outcome::Value(Value::parse(case.get("result").ok_or(format!("{name}: no result"))?)?),
    };
    let binding = |pair: &Json| match pair.as_array().map(Vec::as_slice) {
        Some([Json::String(name), value]) => Ok((name.clone(), Value::parse(value)?)),
        _ => Err(format!("{name}: malformed binding {pair}")),
    };
    let bindings = case["let"].as_array().into_iter().flatten().map(binding).collect::<Result<_, _>>()?;
    let args = args.iter().map(Value::parse).collect::<Result<_, _>>()?;
    let named = case["kwargs"].as_object().into_iter().flatten();
    let named =
        named.map(|(key, value)| Ok((key.clone(), Value::parse(value)?))).collect::<Result<_, String>>()?;
    let needs = match case.get("needs").map(Json::as_str) {
        None => None,
        Some(Some("threads")) => Some(Need::Threads),
        Some(Some("modules")) => Some(Need::Modules),
        Some(other) => return Err(format!("{name}: unknown need {other:?}")),
    };
    Ok(CallCase { function: text(case, "call")?, needs, bindings, args, named, outcome, name })
}
