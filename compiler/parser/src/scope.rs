//! What names stand for, and where.

use std::collections::HashMap;

use anyfn::Ref;
use anyfn_ir::buffer::Buffer;
use anyfn_ir::expr::Var;

#[derive(Clone)]
pub(crate) enum Named {
    Var(Ref<Var>),
    /// A buffer; with the parameter that it is passed by, if it is passed.
    Buffer(Ref<Buffer>, Option<Ref<Var>>),
}

/// Names that are known at a place.
#[derive(Default)]
pub(crate) struct Scope<'a> {
    names: HashMap<&'a str, Named>,
    /// What each definition hid, to be brought back at the end of what it covers.
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

    /// A mark, for [`leave`](Self::leave).
    pub(crate) fn enter(&self) -> usize {
        self.hidden.len()
    }

    /// Forgets what was defined since a mark.
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
