//! Where a value stands: what errors of conversions begin with.

use std::fmt::Write;

use crate::function;
use crate::py::{self, Obj, Own, Raised, Res};

/// Where a value stands, for messages. Elements of containers refer to the place of their container, so that naming a
/// place costs nothing before there is an error.
pub(crate) enum At<'a> {
    /// Argument of a function.
    Argument {
        /// The function.
        function: Obj<'a>,
        /// Index of the argument.
        index: usize,
    },
    /// Result of a Python function that native code called.
    Result {
        /// The function.
        function: Obj<'a>,
    },
    /// A value to be converted.
    Value,
    /// Element of a sequence.
    Item {
        /// The sequence.
        of: &'a At<'a>,
        /// Index of the element.
        index: usize,
    },
    /// Value of a mapping.
    Entry {
        /// The mapping.
        of: &'a At<'a>,
        /// Key of the value.
        key: Obj<'a>,
    },
    /// Key of a mapping.
    Key {
        /// The mapping.
        of: &'a At<'a>,
    },
}

impl At<'_> {
    /// Raises an exception whose message begins with the place.
    #[cold]
    pub(crate) fn raise<T>(&self, class: *mut py::PyObject, message: &str) -> Res<T> {
        py::raise(class, &format!("{}: {message}", self.describe()))
    }

    /// The place in words, such as `argument 'values' (#0)[3]["w"] of testing.f`.
    fn describe(&self) -> String {
        let mut path = String::new();
        let root = self.root(&mut path);
        match root {
            At::Argument { function, index } => {
                let of = function::name_of(*function);
                match function::argument_name(*function, *index) {
                    Some(name) => format!("argument '{name}' (#{index}){path} of {of}"),
                    None => format!("argument #{index}{path} of {of}"),
                }
            }
            At::Result { function } => {
                format!("result{path} of {}", function::name_of(*function))
            }
            _ => format!("value{path}"),
        }
    }

    /// The outermost place; the steps from there are written to `path`.
    fn root(&self, path: &mut String) -> &At<'_> {
        /// Longer paths are cut in the middle.
        const STEPS_MAX: usize = 32;
        let mut steps: Vec<String> = Vec::new();
        let mut at = self;
        loop {
            let (of, step) = match at {
                At::Item { of, index } => (*of, format!("[{index}]")),
                At::Entry { of, key } => (*of, format!("[{}]", shown(*key))),
                At::Key { of } => (*of, String::from(".key")),
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

/// A key as messages show it: short, and text in double quotes as all languages show it.
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
    shorten(&text)
}

fn repr(object: Obj<'_>) -> Res<Own> {
    // SAFETY: the object is valid and the lock is held; a new reference or an exception.
    py::new_ref!(py::raw::PyObject_Repr(object.as_ptr()))
}

/// A name or value as messages show it: long ones are cut.
pub(crate) fn shorten(text: &str) -> String {
    const SHOWN_MAX: usize = 200;
    if text.len() <= SHOWN_MAX {
        return text.into();
    }
    let end = (0..=SHOWN_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    let mut short = String::from(&text[..end]);
    // Writing to a string cannot fail.
    let _ = write!(short, "... ({} bytes)", text.len());
    short
}
