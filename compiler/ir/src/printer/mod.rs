//! Prints nodes as a program.
//!
//! The text looks like Python. A variable has the name that people gave it, with a number where two would have the same.
//! Functions and modules can be read back: the crate `anyfn-parser`. So what the text leaves out is what a reader adds.
//!
//! A text has a limit in bytes, since a node that is used in several places is printed in each: see [`size`](crate::size).

mod expr;
mod func;
mod stmt;
mod value;

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use anyfn::{Array, Object, ObjectRef, Ref};

use crate::buffer::{Buffer, BufferRegion};
use crate::expr::{Expr, Var};
use crate::stmt::Stmt;

/// Words that are no names in a program.
pub const KEYWORDS: &[&str] = &[
    "and", "as", "assert", "def", "elif", "else", "for", "if", "in", "not", "or", "pass", "with", "True",
    "False", "None",
];

/// Names of functions that are not calls, but nodes and statements of their own.
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

/// Whether a text is a word: a letter or `_`, and then letters, digits and `_`.
#[must_use]
pub fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| is_word_char(c) && !c.is_ascii_digit()) && text.chars().all(is_word_char)
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether a word looks like the name of a data type, so that `word(x)` is a conversion: `float32`, `int8x4`, `bool`.
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

/// Longest text of a node in bytes; the rest is left out, and the text ends in ` ...`.
pub const MOST_BYTES: usize = 16 << 20;

/// Longest text in an error message.
const BRIEF: usize = 200;

/// Returns the text of an expression, statement, function or module, of at most [`MOST_BYTES`]; of anything else its type.
#[must_use]
pub fn text(node: &ObjectRef) -> String {
    text_within(node, MOST_BYTES)
}

/// Returns the begin of the text of a node, for a message.
#[must_use]
pub fn brief(node: &ObjectRef) -> String {
    text_within(node, BRIEF)
}

/// Returns the text of a node of at most `most` bytes, or its begin and ` ...`.
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

/// Strength of what stands inside of brackets.
const LOOSE: u8 = 0;

#[derive(Default)]
struct Printer {
    out: String,
    /// Bytes after which nothing more is printed.
    most: usize,
    depth: usize,
    /// Names that have been given, by the address of a variable or buffer.
    names: HashMap<usize, String>,
    taken: HashSet<String>,
    /// Which buffer an address belongs to: the name of the first one.
    data: HashMap<usize, String>,
    /// Buffers that share the memory of another one and are defined by no statement, by their address.
    aliases: HashMap<usize, Vec<Ref<Buffer>>>,
    /// Whether variables are defined where they are used: in the shapes of parameters.
    defining: bool,
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

    /// Whether the text is too long already; each node asks before it prints itself.
    fn is_full(&self) -> bool {
        self.out.len() > self.most
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

    /// Items with commas between them.
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

    /// The name of a variable or buffer: its own, or with a number if that is taken.
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
