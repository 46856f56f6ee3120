//! Position of the value that a conversion handles, such as an argument or an element of a list, for error messages.

use anyfn::__private::{Detail, shorten, with_detail};
use anyfn::Error;

use crate::memo::Memo;
use crate::py::{self, Obj, Own, Raised, Res};
use crate::{error, packed, signature, trace};

/// Position of the value that a conversion handles: an argument, a result, a field, or an element
/// inside one of these. Error messages begin with the position. The position of an element refers
/// to the position of its container; its description is formatted only when an error occurs.
pub(crate) enum At<'a> {
    /// Argument of a function.
    Argument {
        /// Function that is called.
        function: Obj<'a>,
        /// Index of the argument.
        index: usize,
    },
    /// Result of a Python function that native code called.
    Result {
        /// Function that returned the value to native code.
        function: Obj<'a>,
    },
    /// Value that is neither an argument, a result nor a field, such as one that is added to a container.
    Value,
    /// Array that `anyfn.const` lends to functions that only read it.
    Const,
    /// Field of an object whose type is defined in Python.
    Field {
        /// Name of the object's Python class.
        class: &'a str,
        /// Name of the field.
        name: &'a str,
    },
    /// Element of a sequence.
    Item {
        /// Position of the sequence that contains the element.
        of: &'a At<'a>,
        /// Python containers that the conversion has already handled, with their native values.
        memo: &'a Memo,
        /// Index of the element in the sequence.
        index: usize,
    },
    /// Value of a mapping.
    Entry {
        /// Position of the mapping that contains the value.
        of: &'a At<'a>,
        /// Python containers that the conversion has already handled, with their native values.
        memo: &'a Memo,
        /// Key under which the mapping contains the value.
        key: Obj<'a>,
    },
    /// Key of a mapping.
    Key {
        /// Position of the mapping that contains the key.
        of: &'a At<'a>,
        /// Python containers that the conversion has already handled, with their native values.
        memo: &'a Memo,
    },
}

impl At<'_> {
    /// Returns the record of the containers that the conversion has already handled, or `None` if this position is
    /// not inside a container.
    #[inline(always)]
    pub(crate) fn memo(&self) -> Option<&Memo> {
        match self {
            At::Item { memo, .. } | At::Entry { memo, .. } | At::Key { memo, .. } => Some(memo),
            _ => None,
        }
    }

    /// Returns true if the value is an argument whose parameter the function declares as read-only,
    /// or an array that `anyfn.const` lends. Native code then only reads a tensor at this position.
    #[cold]
    pub(crate) fn is_only_read(&self) -> bool {
        match self {
            At::Argument { function, index } => signature::argument_is_read_only(*function, *index),
            At::Const => true,
            _ => false,
        }
    }

    /// Returns true if the value is an argument of a function whose signature states that the
    /// function may write to a tensor that is passed there. If the signature does not say so, a
    /// caller who knows that the function only reads the tensor may pass one that `anyfn.const`
    /// lends.
    #[cold]
    pub(crate) fn is_written(&self) -> bool {
        match self {
            At::Argument { function, index } => signature::argument_is_written(*function, *index),
            _ => false,
        }
    }

    /// Raises an exception of the class `class` whose message begins with this position.
    #[cold]
    pub(crate) fn raise<T>(&self, class: *mut py::PyObject, message: &str) -> Res<T> {
        let mut path = String::new();
        let root = self.root(&mut path);
        let (place, argument, function) = match root {
            At::Argument { function, index } => {
                let (of, name) = (packed::name_of(*function), signature::argument_name(*function, *index));
                let place = match &name {
                    Some(name) => format!("argument '{name}' (#{index}){path} of {of}"),
                    None => format!("argument #{index}{path} of {of}"),
                };
                (place, name.unwrap_or_else(|| index.to_string()), of)
            }
            At::Result { function } => {
                let of = packed::name_of(*function);
                (format!("result{path} of {of}"), String::from("result"), of)
            }
            At::Field { class, name } => {
                (format!("field '{name}'{path} of {class}"), String::from(*name), String::from(*class))
            }
            _ => (format!("value{path}"), String::new(), String::new()),
        };
        let parts = message.strip_prefix("expected ").and_then(|rest| rest.split_once(" but got "));
        let (expected, got) = parts.unwrap_or_default();
        // SAFETY: this is the built-in class that the caller passes.
        let kind: Obj<'_> = unsafe { Obj::from_ptr(class) };
        let kind = kind.attr(py::names::NAME.get()).and_then(|name| name.obj().to_text())?;
        let text = format!("{place}: {message}");
        match Error::try_from_texts(kind.as_bytes(), text.as_bytes(), b"", None, None) {
            Some(error) => {
                let (function, argument, path) = (&function, &argument, &path);
                let detail = Detail { function, argument, path, expected, got };
                let raised = error::raise(with_detail(error, &detail));
                if let At::Result { function } = root {
                    add_definition(*function);
                }
                Err(raised)
            }
            None => py::raise(py::exceptions::memory_error(), "out of memory"),
        }
    }

    /// Returns the outermost position, such as an argument. Appends to `path` the steps that lead from there to
    /// the value, such as `[2]["key"]`.
    fn root(&self, path: &mut String) -> &At<'_> {
        /// Maximum number of steps in `path`. In a longer path, `...` replaces the outermost steps.
        const STEPS_MAX: usize = 32;
        let mut steps: Vec<String> = Vec::new();
        let mut at = self;
        loop {
            let (of, step) = match at {
                At::Item { of, index, .. } => (*of, format!("[{index}]")),
                At::Entry { of, key, .. } => (*of, format!("[{}]", shown(*key))),
                At::Key { of, .. } => (*of, String::from(".key")),
                root => {
                    for step in steps.iter().rev() {
                        path.push_str(step);
                    }
                    return root;
                }
            };
            at = of;
            if steps.len() < STEPS_MAX {
                steps.push(step);
            } else if let Some(last) = steps.last_mut() {
                *last = "...".into();
            }
        }
    }
}

/// Adds a frame to the traceback of the current exception. The frame shows the line that defines
/// `function`, a Python function that has already returned and therefore has no frame in the
/// traceback.
#[cold]
fn add_definition(function: Obj<'_>) {
    let Some(attribute) = signature::ATTRIBUTE.try_get() else { return };
    // Python code must not run while an exception is set.
    let Some(raised) = py::take_error() else { return };
    match py::intern(c"__source__").and_then(|name| attribute.call(&[function, name.obj()])) {
        Ok(line) => {
            py::restore_error(raised);
            if !line.obj().is_none() {
                trace::add(line.obj());
            }
        }
        Err(Raised) if py::error_is(py::exceptions::exception()) => {
            py::clear_error();
            py::restore_error(raised);
        }
        // Such as `KeyboardInterrupt`, which must not be lost.
        Err(Raised) => {}
    }
}

/// Formats a mapping key for an error message. Long keys are shortened. Strings are enclosed in double
/// quotes, as in the messages of the other frontends.
fn shown(key: Obj<'_>) -> String {
    let text = match key.str_bytes() {
        Ok(bytes) => Ok(format!("{:?}", String::from_utf8_lossy(bytes))),
        Err(Raised) => {
            py::clear_error();
            repr(key).and_then(|text: Own| text.obj().to_text())
        }
    };
    let text = text.unwrap_or_else(|Raised| {
        py::clear_error();
        format!("a {}", key.class_name())
    });
    shorten(&text).into_owned()
}

fn repr(object: Obj<'_>) -> Res<Own> {
    // SAFETY: the object is valid and the GIL is held; the result is a new reference, or NULL with an exception set.
    py::unsafe_new_ref!(py::raw::PyObject_Repr(object.as_ptr()))
}
