//! Search for the access paths from the root of a graph to an error, given the objects that the error's
//! context records.

use alloc::rc::Rc;
use alloc::vec::Vec;

use anyfn::{Any, Array, ObjectRef, Ref, Result, bail};

use super::children::Children;
use super::plan::{Plan, Plans, Purpose};
use super::seen::{Memo, Seen};
use super::{fail, unchanged};
use crate::structural::{Path, extend, root_path};
use crate::value::same_bits;

/// Object whose children are being searched.
struct Frame {
    node: Any,
    plan: Rc<Plan>,
    children: Children,
    path: Ref<Path>,
    /// Number of objects recorded in the error's context that the path to this object passes
    /// through, not counting this object. `matched` counts this object as well if it is recorded.
    before: usize,
    matched: usize,
    /// Number of paths that had been found before the search entered this object.
    found: usize,
}

/// Returns the access paths from `root` that pass, in order, through the objects that the error context
/// `context` records. Other objects may be between them. If `allow_prefix_match` is true, also returns paths
/// that pass only through the first one or several of the recorded objects.
#[anyfn::register("ffi.VisitErrorContext.FindAccessPaths")]
fn find_access_paths(root: ObjectRef, context: ObjectRef, allow_prefix_match: bool) -> Result<Array> {
    let Some(objects) = fail::way_of(&context) else {
        bail!("TypeError", "expected `ffi.VisitErrorContext` but got `{}`", context.type_key())
    };
    let mut way: Vec<Any> = Vec::new();
    for object in objects.into_iter().filter(|object| object.as_object().is_some()) {
        if !way.last().is_some_and(|last| same_bits(last, &object)) {
            way.push(object);
        }
    }
    way.reverse();
    let mut search = Search {
        way,
        prefixes: allow_prefix_match,
        plans: Vec::new(),
        frames: Vec::new(),
        inside: Seen::default(),
        without: Memo::default(),
        found: Vec::new(),
    };
    search.run(Any::from(root))?;
    Array::try_from_iter(search.found)
}

struct Search {
    /// Objects that the error's context records, outermost first.
    way: Vec<Any>,
    prefixes: bool,
    plans: Vec<Rc<Plan>>,
    frames: Vec<Frame>,
    /// Ancestors of the current object on the current path, to detect cycles.
    inside: Seen,
    /// Objects below which the search found no path, each with the number of recorded objects that
    /// the path had passed before the object.
    without: Memo,
    found: Vec<Ref<Path>>,
}

impl Search {
    fn run(&mut self, root: Any) -> Result<()> {
        self.enter(root, root_path(), 0)?;
        while let Some(frame) = self.frames.last_mut() {
            let Some(node) = frame.node.as_object() else { break };
            if let Some((child, _)) = frame.children.next(&frame.plan, node)? {
                if child.get().as_object().is_none() {
                    continue;
                }
                let step = frame.children.access_step(&frame.plan, node);
                let (path, matched) = (extend(&frame.path, step), frame.matched);
                self.enter(child.into_owned(), path, matched)?;
                continue;
            }
            let Some(frame) = self.frames.pop() else { break };
            self.inside.remove(&frame.node);
            if self.found.len() > frame.found {
                continue;
            }
            let partly = frame.matched > 0 && frame.matched < self.way.len();
            if self.prefixes && partly && !self.frames.is_empty() {
                self.found.push(frame.path);
            } else {
                self.without.set(frame.node, frame.before, (0, unchanged()));
            }
        }
        Ok(())
    }

    fn enter(&mut self, node: Any, path: Ref<Path>, before: usize) -> Result<()> {
        let Some(object) = node.as_object() else { return Ok(()) };
        if self.without.get(&node, before).is_some() {
            return Ok(());
        }
        let mut matched = before;
        if self.way.get(before).is_some_and(|next| same_bits(next, &node)) {
            matched += 1;
            if matched == self.way.len() {
                self.found.push(path);
                return Ok(());
            }
        }
        let plan = self.plan(object.type_index())?;
        if !self.inside.insert(&node) {
            return Ok(());
        }
        let children = Children::of(&plan.shape, object, false)?;
        let found = self.found.len();
        self.frames.push(Frame { node, plan, children, path, before, matched, found });
        Ok(())
    }

    fn plan(&mut self, type_index: i32) -> Result<Rc<Plan>> {
        if let Some(known) = self.plans.iter().find(|plan| plan.type_index == type_index) {
            return Ok(Rc::clone(known));
        }
        let plan = Rc::new(Plans::new(Purpose::Visit).without_hook(type_index)?);
        self.plans.push(Rc::clone(&plan));
        Ok(plan)
    }
}
