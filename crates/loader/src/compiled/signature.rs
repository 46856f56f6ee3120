//! Signatures of functions that the compiler of Apache TVM has generated.
//!
//! A generated function first checks the number of its arguments. The message about a wrong number contains the whole
//! signature: `main(A: Tensor([1024, n], float32), k: int32)`. So the signature is found by one call with an impossible
//! number of arguments.

use anyfn::Error;
use anyfn::abi::{TVMFFIAny, TVMFFISafeCallType};

/// String that precedes the signature in the error messages of generated functions. No other library contains
/// it.
pub(crate) const MARK: &str = " when calling:\n  `";

/// Returns the signature in the message of an argument check, or `None` if the message contains no signature.
pub(super) fn in_message(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once(MARK)?;
    let (signature, _) = rest.split_once('`')?;
    Some(signature)
}

/// Returns the signature of a function, found by calling the function with a wrong number of arguments. Returns `None`
/// if the function does not report it.
///
/// # Safety
/// `function` must belong to a library that the compiler of Apache TVM has generated.
pub(super) unsafe fn ask(function: TVMFFISafeCallType) -> Option<Box<str>> {
    // Never read, except by code that does not count its arguments.
    let none = [TVMFFIAny::NONE; 16];
    let mut result = TVMFFIAny::NONE;
    // SAFETY: the call follows the convention; a wrong number of arguments is an error that precedes everything else.
    let code = unsafe { function(core::ptr::null_mut(), none.as_ptr(), -1, &raw mut result) };
    if code == 0 {
        // SAFETY: on success the result is an owned value.
        drop(unsafe { anyfn::Any::from_raw(result) });
        return None;
    }
    Some(in_message(Error::take_raised().message())?.into())
}

/// A parameter in the signature of a generated function.
#[derive(Debug, PartialEq)]
pub(super) struct Parameter<'a> {
    pub(super) name: &'a str,
    /// Extents of the shape as the signature contains them: numbers, names or formulas. `None` if the parameter is not
    /// a tensor.
    pub(super) tensor: Option<Vec<&'a str>>,
}

/// Splits a string at the commas that are not inside brackets. Empty parts are removed.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0_i32, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[begin..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

/// Parses the parameters in a signature and returns them in the same order.
pub(super) fn parameters(signature: &str) -> Vec<Parameter<'_>> {
    let Some((_, rest)) = signature.split_once('(') else { return Vec::new() };
    let list = rest.strip_suffix(')').unwrap_or(rest);
    let parameter = |part| {
        let (name, kind) = str::split_once(part, ':').unwrap_or((part, ""));
        let tensor = kind.trim().strip_prefix("Tensor([").and_then(|rest| {
            let mut depth = 1;
            let end = rest.find(|letter| {
                depth += i32::from(letter == '[') - i32::from(letter == ']');
                depth == 0
            })?;
            Some(parts(&rest[..end]))
        });
        Parameter { name: name.trim(), tensor }
    };
    parts(list).into_iter().map(parameter).collect()
}

/// Returns the name of the function in a signature.
pub(super) fn function_name(signature: &str) -> String {
    signature.split('(').next().unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_read() {
        let text = "main(A: Tensor([64, n * (m + 1)], float32), k: int32, s: Tensor([], float16), h: handle)";
        let tensor = |extents: &[&'static str]| Some(extents.to_vec());
        assert_eq!(
            parameters(text),
            [
                Parameter { name: "A", tensor: tensor(&["64", "n * (m + 1)"]) },
                Parameter { name: "k", tensor: None },
                Parameter { name: "s", tensor: tensor(&[]) },
                Parameter { name: "h", tensor: None },
            ]
        );
        assert_eq!(parameters("f()"), []);
        assert_eq!(function_name(text), "main");
    }

    #[test]
    fn damaged_signatures_give_what_can_be_read() {
        let shown = |text| -> Vec<String> {
            let parts = parameters(text).into_iter();
            parts.map(|part| format!("{} {:?}", part.name, part.tensor)).collect()
        };
        for text in ["", "f", "f(", "(,,,)"] {
            assert_eq!(shown(text), [""; 0], "{text}");
        }
        assert_eq!(shown("f(A: Tensor(["), ["A None"]);
        assert_eq!(shown("f)))(]]"), ["]] None"]);
        assert_eq!(shown("f(A:Tensor([[[1))"), ["A None"]);
        assert_eq!(shown("f(A: Tensor([1, 2], B"), ["A Some([\"1\", \"2\"])"]);
    }

    #[test]
    fn the_signature_is_found_in_messages() {
        let message = "Expected 1 arguments when calling:\n  `main(A: Tensor([n], float32))`";
        assert_eq!(in_message(message), Some("main(A: Tensor([n], float32))"));
        assert_eq!(in_message("Expected 1 arguments"), None);
    }
}
