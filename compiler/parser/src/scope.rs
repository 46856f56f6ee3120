//! Scopes of the names that source code defines, and the names of TVMScript.

use std::collections::HashMap;

use anyfn::{DType, Ref};
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::{Expr, Range, Var};

use crate::number::Number;

#[derive(Clone)]
pub(crate) enum Named {
    Var(Ref<Var>),
    /// Buffer, with the variable of its parameter. The variable is `None` if the buffer is not a parameter.
    Buffer(Ref<Buffer>, Option<Ref<Var>>),
}

/// Names that are visible at a position in the source.
#[derive(Default)]
pub(crate) struct Scope<'a> {
    names: HashMap<&'a str, Named>,
    /// Previous definition of each name that was redefined in an open scope, or `None` if the name was
    /// undefined. The definition is restored at the end of the scope.
    hidden: Vec<(&'a str, Option<Named>)>,
}

impl<'a> Scope<'a> {
    pub(crate) fn define(&mut self, name: &'a str, named: Named) {
        let before = self.names.insert(name, named);
        self.hidden.push((name, before));
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Named> {
        self.names.get(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> {
        self.names.keys().copied()
    }

    /// Begins a scope. Returns a mark to be passed to [`leave`](Self::leave).
    pub(crate) fn enter(&self) -> usize {
        self.hidden.len()
    }

    /// Ends a scope: removes the definitions that were made after [`enter`](Self::enter) returned `mark`, and
    /// restores the definitions that they shadowed.
    pub(crate) fn leave(&mut self, mark: usize) {
        while self.hidden.len() > mark {
            match self.hidden.pop() {
                Some((name, Some(before))) => drop(self.names.insert(name, before)),
                Some((name, None)) => drop(self.names.remove(name)),
                None => {}
            }
        }
    }
}

/// Constant that the caller of the parser defines.
pub(crate) enum Constant {
    Number(Number),
    Text(String),
}

/// Names and facts that a parser needs for TVMScript.
pub(crate) struct Script<'a> {
    /// Name under which the module of the tensor IR is imported, usually `T`.
    pub(crate) tensor: &'a str,
    /// Name under which the module of the module IR is imported, usually `I`.
    pub(crate) module: &'a str,
    /// Variables of type `int64` that the source declares before its functions, such as `n = TypeVar("n")`.
    pub(crate) sizes: Vec<&'a str>,
    /// Constants that the caller of the parser defines: numbers, and strings that name data types.
    pub(crate) names: HashMap<String, Constant>,
    /// Numbers of Python, by the addresses of the constants that the parser has made for them. The constants are kept, so
    /// that no address is used again.
    pub(crate) numbers: HashMap<usize, (Expr, Number)>,
    /// True if the source writes `T.block`, as early versions of Apache TVM did.
    pub(crate) is_old: bool,
    /// Data types of the variables that the current function declares, such as `n = T.int64()`.
    pub(crate) declared: HashMap<&'a str, DType>,
    /// Parameters of type `T.handle` whose buffers `T.match_buffer` has declared.
    pub(crate) matched: Vec<(Ref<Var>, Ref<Buffer>)>,
    /// Ranges of the loops around the current position, by the addresses of the loop variables.
    pub(crate) loops: HashMap<usize, Ref<Range>>,
}
