//! Scopes of names.

use std::collections::HashMap;

use anyfn::Ref;
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::Var;

#[derive(Clone)]
pub(crate) enum Named {
    Var(Ref<Var>),
    /// Buffer, with the parameter by which it is passed, if any.
    Buffer(Ref<Buffer>, Option<Ref<Var>>),
}

/// Names that are visible at a position in the source.
#[derive(Default)]
pub(crate) struct Scope<'a> {
    names: HashMap<&'a str, Named>,
    /// Definition that each new definition shadows, which is restored at the end of its scope.
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

    /// Begins a scope. Returns a mark for [`leave`](Self::leave).
    pub(crate) fn enter(&self) -> usize {
        self.hidden.len()
    }

    /// Ends a scope: removes the definitions since a mark.
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
