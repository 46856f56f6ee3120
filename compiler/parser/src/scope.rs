//! Scopes of the names that source defines.

use std::collections::HashMap;

use anyfn::Ref;
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::Var;

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
