//! Printing of nodes as source code.
//!
//! The syntax resembles Python. A variable is printed with its name hint, and with a number if the name is already taken.
//! The crate `anyfn-parser` parses printed functions and modules. The printer therefore omits only what the parser adds.
//!
//! The output is limited in bytes, since a node that is used in several places is printed at each: see
//! [`size`](crate::size).

mod expr;
mod func;
mod stmt;
mod tvmscript;
mod value;

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use anyfn::{Array, Object, ObjectRef, Ref};

pub use tvmscript::tvmscript;

use crate::buffer::{Buffer, BufferRegion};
use crate::expr::{Expr, Var};
use crate::stmt::Stmt;

/// Keywords of the printed language. They cannot be used as names.
pub const KEYWORDS: &[&str] = &[
    "and", "as", "assert", "def", "elif", "else", "for", "if", "in", "not", "or", "pass", "with", "True",
    "False", "None",
];

/// Names with a special meaning in printed source, such as `alloc`. A call of a function with one of these
/// names is therefore printed as `call("alloc", ...)`.
pub const FORMS: &[&str] = &[
    "alloc",
    "attr",
    "bare_block",
    "block",
    "broadcast",
    "call",
    "cast",
    "dtype",
    "grid",
    "init",
    "key",
    "launch",
    "let",
    "max",
    "min",
    "module",
    "node",
    "object",
    "ramp",
    "reads",
    "reduce",
    "region",
    "scope",
    "select",
    "seq",
    "sum",
    "text",
    "truncmod",
    "where",
    "writes",
];

/// Returns true if a string is an identifier: a letter or `_`, followed by letters, digits and `_`.
#[must_use]
pub fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| is_word_char(c) && !c.is_ascii_digit()) && text.chars().all(is_word_char)
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns true if an identifier has the form of a data type, such as `float32`, `int8x4` or
/// `bool`. In printed source, `word(x)` is then a conversion to that type instead of a call.
#[must_use]
pub fn is_dtype_name(word: &str) -> bool {
    let names = ["bool", "handle", "uint", "int", "bfloat", "float", "complex"];
    let rest = names.iter().find_map(|name| word.strip_prefix(name));
    rest.is_some_and(|rest| {
        (rest.is_empty() && (word == "bool" || word == "handle"))
            || rest.starts_with(|c: char| c.is_ascii_digit())
            || rest.strip_prefix('x').is_some_and(|lanes| lanes.starts_with(|c: char| c.is_ascii_digit()))
    })
}

/// Maximum length of the printed form of a node, in bytes. Longer output is truncated and ends in ` ...`.
pub const MOST_BYTES: usize = 16 << 20;

/// Maximum length of a printed node in an error message, in bytes.
const BRIEF: usize = 200;

/// Returns the printed form of an expression, statement, function, module, buffer or region,
/// truncated to [`MOST_BYTES`]. For any other object, returns the type key in angle brackets.
#[must_use]
pub fn text(node: &ObjectRef) -> String {
    text_within(node, MOST_BYTES)
}

/// Returns the printed form of a node, truncated to 200 bytes for use in an error message.
#[must_use]
pub fn brief(node: &ObjectRef) -> String {
    text_within(node, BRIEF)
}

/// Returns the printed form of a node, truncated to `most` bytes and followed by ` ...` if it is longer.
#[must_use]
pub fn text_within(node: &ObjectRef, most: usize) -> String {
    let mut printer = Printer { most, ..Printer::default() };
    printer.object(node);
    let mut text = printer.out;
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push_str(" ...");
    }
    text
}

/// Precedence with which an expression inside brackets is printed: such an expression needs no
/// parentheses of its own.
const LOOSE: u8 = 0;

#[derive(Default)]
struct Printer {
    out: String,
    /// Length of the output, in bytes, after which printing stops.
    most: usize,
    depth: usize,
    /// Names assigned to variables and buffers, by the address of the node.
    names: HashMap<usize, String>,
    taken: HashSet<String>,
    /// Names of buffers, by the address of the variable in the buffer's field `data`. If several buffers have
    /// the same variable, the map contains the name of the first.
    data: HashMap<usize, String>,
    /// Buffers that share the memory of another buffer and are not defined by a statement, grouped by the
    /// address of their variable `data`.
    aliases: HashMap<usize, Vec<Ref<Buffer>>>,
    /// True while the shapes of parameters are printed. In these shapes, the first use of a variable defines
    /// it.
    defining: bool,
    /// True while TVMScript is printed.
    is_script: bool,
    /// Variables that the shape being printed names first, and TVMScript therefore writes as strings.
    unnamed: HashSet<usize>,
    /// First construct without an equivalent in TVMScript.
    unsupported: Option<String>,
}

fn address<T: Object>(object: &Ref<T>) -> usize {
    object.as_object().as_handle().addr()
}

impl Printer {
    fn object(&mut self, object: &ObjectRef) {
        let object = object.clone();
        let rest = Expr::try_from_object(object).map(|node| self.expr(&node, LOOSE));
        let rest = rest.or_else(|object| Stmt::try_from_object(object).map(|node| self.stmt(&node)));
        let rest = rest.or_else(|object| Ref::try_from_object(object).map(|node| self.func(None, &node)));
        let rest = rest.or_else(|object| Ref::try_from_object(object).map(|node| self.module(&node)));
        let rest = rest.or_else(|object| {
            Ref::<Buffer>::try_from_object(object).map(|node| {
                let name = self.buffer_name(&node);
                self.put(&name);
            })
        });
        let rest =
            rest.or_else(|object| Ref::<BufferRegion>::try_from_object(object).map(|node| self.region(&node)));
        if let Err(object) = rest {
            let _ = write!(self.out, "<{}>", object.type_key());
        }
    }

    /// Returns true if nothing more is printed, because the output exceeds its limit or TVMScript lacks a construct. The printer checks this before it prints a node.
    fn is_full(&self) -> bool {
        self.out.len() > self.most || self.unsupported.is_some()
    }

    fn put(&mut self, text: &str) {
        if !self.is_full() {
            self.out.push_str(text);
        }
    }

    fn line(&mut self) {
        if self.is_full() {
            return;
        }
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        for _ in 0..self.depth {
            self.out.push_str("    ");
        }
    }

    fn indented(&mut self, body: impl FnOnce(&mut Self)) {
        self.depth += 1;
        body(self);
        self.depth -= 1;
    }

    /// Prints items separated by commas.
    fn list<T>(&mut self, items: impl IntoIterator<Item = T>, mut print: impl FnMut(&mut Self, T)) {
        for (place, item) in items.into_iter().enumerate() {
            if place > 0 {
                self.put(", ");
            }
            print(self, item);
        }
    }

    fn exprs(&mut self, exprs: &Array<Expr>) {
        self.list(exprs.iter(), |p, expr| p.expr(&expr, LOOSE));
    }

    /// Returns the name of a variable or buffer: its name hint `own`, with a numeric suffix if that name is already
    /// taken.
    fn name(&mut self, object: &ObjectRef, own: &str) -> String {
        let key = object.as_handle().addr();
        if let Some(name) = self.names.get(&key) {
            return name.clone();
        }
        let own: String = own.chars().map(|c| if is_word_char(c) { c } else { '_' }).collect();
        let own = if own.starts_with(|c: char| c.is_ascii_digit()) || own.is_empty() {
            format!("v{own}")
        } else {
            own
        };
        let mut name = own.clone();
        let mut number = 0;
        while KEYWORDS.contains(&name.as_str()) || !self.taken.insert(name.clone()) {
            number += 1;
            name = format!("{own}_{number}");
        }
        self.names.insert(key, name.clone());
        name
    }

    fn var_name(&mut self, var: &Ref<Var>) -> String {
        if let Some(buffer) = self.data.get(&address(var)) {
            return format!("{buffer}.data");
        }
        self.name(var.as_object(), &var.name)
    }

    fn buffer_name(&mut self, buffer: &Ref<Buffer>) -> String {
        self.name(buffer.as_object(), &buffer.name)
    }
}
