//! Maps: rewriting of graphs with callbacks. Unchanged values remain the same objects.
//!
//! An object or container is only copied when one of its children changes. If neither it nor any object on the path
//! from the root to it is shared, it is changed in place instead.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell, RefCell};
use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, Ordering};

use anyfn::abi::{TVMFFIAny, TVMFFIObject, kTVMFFIBigInt, kTVMFFIBytes, kTVMFFIStr, kTVMFFIUnchanged};
use anyfn::{Any, AnyView, Error, ObjectRef, Result, bail};

use super::children::{self, Children, Value};
use super::fail::{self, Described};
use super::links::Links;
use super::plan::{Plan, Plans, Purpose, Shape};
use super::rebuild;
use super::seen::{Memo, Seen};
use super::tool::{self, Tool, ToolKind};
use super::{Order, Region, unchanged};
use crate::column::expected;
use crate::guard::Nested;
use crate::value::same_bits;

/// Object taken out of an r-value reference. Dropping this value moves the object back.
struct Moved<'a> {
    root: Any,
    place: &'a AtomicPtr<c_void>,
}

impl<'a> Moved<'a> {
    fn out_of(reference: &'a AnyView<'_>) -> Result<Moved<'a>> {
        let root = Any::from(reference.get::<ObjectRef>()?);
        // SAFETY: `v_ptr` of an r-value reference is the address of a handle.
        let place = unsafe { reference.as_raw().value.v_ptr }.cast();
        // SAFETY: the caller keeps the handle for the call; other code may read it meanwhile.
        let place = unsafe { AtomicPtr::from_ptr(place) };
        Ok(Moved { root, place })
    }
}

impl Drop for Moved<'_> {
    fn drop(&mut self) {
        if let Some(root) = core::mem::take(&mut self.root).into_object() {
            let other = self.place.swap(root.into_handle(), Ordering::AcqRel);
            // SAFETY: the previous owned content of the reference, or NULL.
            drop(unsafe { ObjectRef::from_owned_or_null(other) });
        }
    }
}

/// Value whose children are being mapped.
struct Frame {
    node: Value,
    plan: Rc<Plan>,
    children: Children,
    /// New children, each with the index of the child that it replaces. The list stays empty for a value that
    /// is changed in place.
    changes: Vec<(usize, Any)>,
    in_place: bool,
    inner: Region,
    rest: Rest,
}

impl Frame {
    /// Returns true if nothing remains to be done for the value after its children: the value is
    /// unchanged, no callback accepts it, and dropping its frame releases nothing.
    #[inline]
    fn is_done(&self) -> bool {
        self.changes.is_empty()
            && (!self.rest.call || self.plan.link.is_none())
            && !(self.rest.replaced || self.rest.noted || self.plan.free_var || self.plan.dag_node)
            && self.rest.memo.is_none()
            && matches!(self.node, Value::Lent(_))
            && self.children.owns_nothing()
    }
}

/// Work that remains for a value once its children have been mapped.
struct Rest {
    /// Definition region that the value is in.
    region: Region,
    /// True if the callback has not been called for the value yet.
    call: bool,
    /// True if the value is the result of a callback and therefore replaces a value of the graph.
    replaced: bool,
    /// True if `Mapping::seen` contains the value. This set contains the values whose children are being
    /// mapped, to detect cycles.
    noted: bool,
    /// Object of the graph under which the result is cached. `None` if the result is not cached.
    memo: Option<Any>,
    /// Value of `Mapping::generation` at the time at which processing of the value began. The result is
    /// cached only if no variable has been replaced since.
    generation: u64,
}

/// Value whose children are being mapped by recursion. The levels of a recursion form a list from the innermost level to
/// the outermost one, which takes the place of frames on the explicit stack.
struct Level<'l> {
    outer: Option<&'l Level<'l>>,
    node: &'l Any,
    plan: &'l Rc<Plan>,
    /// Number of children that have been begun.
    at: Cell<usize>,
    in_place: bool,
    region: Region,
}

impl Level<'_> {
    /// Returns the iteration over the children of the value in its current state.
    fn children(&self) -> Children {
        match &self.plan.shape {
            Shape::Fields(_) => Children::Fields(self.at.get() as u32),
            _ => Children::Elements(self.at.get()),
        }
    }
}

/// Maximum number of levels of one recursion. Values below them are mapped with the explicit stack, so graphs of any depth
/// can be mapped.
const LEVELS_MAX: usize = 32;

/// State of a map, which rewrites a graph.
pub(crate) struct Mapping<'a> {
    links: Links<'a>,
    order: Order,
    /// True if an object that is reached several times is mapped only once. All its occurrences then have the
    /// same result.
    share: bool,
    plans: Plans,
    frames: RefCell<Vec<Frame>>,
    seen: RefCell<Seen>,
    /// Cached results of shared objects, by object and definition region.
    results: RefCell<Memo>,
    /// Replacements of variables, by variable.
    remap: RefCell<Memo>,
    /// Number of entries that have been added to `remap`.
    generation: Cell<u64>,
    mutator: OnceCell<ObjectRef>,
    described: Described,
    /// Number of levels that recursion may still use. Zero while a callback or hook has a mutator, since a mutation through
    /// it takes the path from the root from the explicit stack.
    levels: Cell<usize>,
}

/// Result of mapping a value: the new value, or `None` if it is unchanged.
type Outcome = Option<Any>;

enum Entered {
    Children,
    Done(Outcome),
}

/// Converts the result of a callback for the value `of`. Returns `None` if the callback left the value
/// unchanged: the result is the value itself, the marker for an unchanged value, or an equal string, bytes
/// value or BigInt.
#[inline]
fn outcome_of(result: Any, of: &Any) -> Outcome {
    let index = result.type_index();
    if index == kTVMFFIUnchanged || same_bits(&result, of) {
        return None;
    }
    // Strings that passed through another language are other objects, but are not changed.
    let is_text = matches!(index, kTVMFFIStr | kTVMFFIBytes | kTVMFFIBigInt);
    if is_text && index == of.type_index() && result == *of { None } else { Some(result) }
}

impl<'a> Mapping<'a> {
    pub(crate) fn new(links: Links<'a>, order: Order, share: bool) -> Mapping<'a> {
        Mapping {
            links,
            order,
            share,
            plans: Plans::new(Purpose::Mutate),
            frames: RefCell::new(Vec::new()),
            seen: RefCell::new(Seen::default()),
            results: RefCell::new(Memo::default()),
            remap: RefCell::new(Memo::default()),
            generation: Cell::new(0),
            mutator: OnceCell::new(),
            described: Described::default(),
            levels: Cell::new(if order == Order::Own { 0 } else { LEVELS_MAX }),
        }
    }

    /// Consumes the map and returns its callbacks.
    pub(crate) fn into_links(self) -> Links<'a> {
        self.links
    }

    /// Maps the graph of `root`. A root to which no other reference exists is changed in place.
    pub(crate) fn run(&self, root: Any) -> Result<Any> {
        let in_place = root.as_object().is_some_and(ObjectRef::is_unique);
        // SAFETY: `root` stays in place until the end.
        let value = unsafe { Value::lent(&root) };
        let outcome = self.part(value, Region::None, in_place, false)?;
        Ok(outcome.unwrap_or(root))
    }

    /// Maps the graph whose root is in the r-value reference `reference`, as [`Mapping::run`] does.
    /// The root is taken out of the reference and moved back at the end.
    pub(crate) fn run_moved(&self, reference: &AnyView<'_>) -> Result<Any> {
        let moved = Moved::out_of(reference)?;
        let in_place = moved.root.as_object().is_some_and(ObjectRef::is_unique);
        // SAFETY: the root stays in place until the end.
        let outcome = self.part(unsafe { Value::lent(&moved.root) }, Region::None, in_place, false)?;
        Ok(outcome.unwrap_or_else(|| moved.root.clone()))
    }

    /// Maps `root` and all values that are reached from it. If `bypass` is true, the callback for `root`
    /// itself is not called.
    fn part(&self, root: Value, region: Region, in_place: bool, bypass: bool) -> Result<Outcome> {
        let base = self.frames.borrow().len();
        if self.levels.get() > 0 && !bypass {
            return self.visit(root, region, in_place, true, base, None);
        }
        self.part_of(root, region, in_place, bypass, base)
    }

    /// Maps a value and all values that are reached from it with the explicit stack. `base` is the index of the frame at
    /// which the objects begin that an error names.
    fn part_of(
        &self,
        root: Value,
        region: Region,
        in_place: bool,
        bypass: bool,
        base: usize,
    ) -> Result<Outcome> {
        let bottom = self.frames.borrow().len();
        let result = match self.enter(root, region, in_place, bypass, base) {
            Ok(Entered::Children) => self.work_off(bottom, base),
            Ok(Entered::Done(outcome)) => Ok(outcome),
            Err(error) => Err(error),
        };
        if result.is_err() {
            self.unwind(bottom);
        }
        result
    }

    /// Maps a value and all values that are reached from it by recursion, which takes half the time of the explicit stack.
    fn visit(
        &self,
        child: Value,
        region: Region,
        in_place: bool,
        at_root: bool,
        base: usize,
        outer: Option<&Level<'_>>,
    ) -> Result<Outcome> {
        let value = child.get();
        let index = value.type_index();
        if self.plans.is_idle(index) {
            return Ok(None);
        }
        let plan = match self.plans.get(index, &self.links) {
            Ok(plan) => plan,
            Err(error) => return Err(self.failed_at(outer, error, value, base)),
        };
        let is_plain = matches!(plan.shape, Shape::Leaf | Shape::Array | Shape::Fields(_))
            && !(plan.free_var || plan.dag_node)
            && (self.order == Order::Post || plan.link.is_none());
        if !is_plain || self.levels.get() == 0 {
            return self.with_frames(child, region, in_place, base, outer);
        }
        let shared = !in_place && child.is_shared();
        let generation = self.generation.get();
        if shared
            && self.share
            && let Some((then, kept)) = self.results.borrow().get(value, region as usize)
            && then == generation
        {
            return Ok(outcome_of(kept, value));
        }
        let mut outcome = None;
        if let (Some(node), false) = (value.as_object(), matches!(plan.shape, Shape::Leaf)) {
            let noted = shared || (at_root && !in_place);
            if noted && !self.seen.borrow_mut().insert(value) {
                return Err(self.failed_at(outer, fail::cycle(value.type_key()), value, base));
            }
            let level = Level { outer, node: value, plan: &plan, at: Cell::new(0), in_place, region };
            self.levels.set(self.levels.get() - 1);
            let result = self.visit_children(node, &level, base);
            self.levels.set(self.levels.get() + 1);
            if noted {
                self.seen.borrow_mut().remove(value);
            }
            let changes = result?;
            if !changes.is_empty() {
                match rebuild::with_changes(node, &plan, level.children(), changes) {
                    Ok(copy) => outcome = Some(copy),
                    Err(error) => return Err(self.failed_at(outer, error, value, base)),
                }
            }
        }
        if self.order == Order::Post {
            match self.call_for(&plan, value, outcome.as_ref(), region) {
                Ok(Some(new)) => outcome = Some(new),
                Ok(None) => {}
                Err(error) => {
                    let target = outcome.as_ref().unwrap_or(value);
                    return Err(self.failed_at(outer, error, target, base));
                }
            }
        }
        if shared && self.share && generation == self.generation.get() {
            let kept = (generation, outcome.clone().unwrap_or_else(unchanged));
            let old = self.results.borrow_mut().set(value.clone(), region as usize, kept);
            drop(old);
        }
        Ok(outcome)
    }

    /// Calls the callback that accepts `copy`, or `value` if it has no copy. `plan` is the plan of `value`. Returns the
    /// result if it differs from the argument.
    #[inline]
    fn call_for(&self, plan: &Plan, value: &Any, copy: Option<&Any>, region: Region) -> Result<Outcome> {
        let link = match copy {
            Some(copy) => self.plans.get(copy.type_index(), &self.links)?.link,
            None => plan.link,
        };
        let Some(link) = link else { return Ok(None) };
        let target = copy.unwrap_or(value);
        let result = self.links.call(link, &target.as_view(), region, None)?;
        Ok(outcome_of(expected(result)?, target))
    }

    /// Maps the children of `node`, the value of `level`. Returns the new children with their indices; none if the value is
    /// changed in place.
    fn visit_children(&self, node: &ObjectRef, level: &Level<'_>, base: usize) -> Result<Vec<(usize, Any)>> {
        let mut changes = Vec::new();
        loop {
            let at = level.at.get();
            let (child, field, region) = if let Shape::Fields(members) = &level.plan.shape {
                let Some(member) = members.get(at) else { return Ok(changes) };
                // SAFETY: the plan is that of exactly the object's type, and the level keeps the object. Only values that
                // do not change are borrowed, and the field is set after the last use of its value.
                let child = match unsafe { member.field.lend_unchecked(node) } {
                    Some(value) => Value::Lent(value),
                    // SAFETY: the plan is that of exactly the object's type.
                    None => match unsafe { member.field.get_unchecked(node) } {
                        Ok(value) => Value::Owned(value),
                        Err(error) => return Err(self.failed_at(level.outer, error, level.node, base)),
                    },
                };
                (child, Some(member.field), level.region.with(member.opens))
            } else {
                let Some(value) = children::elements(node).get(at) else { return Ok(changes) };
                // SAFETY: the level keeps the Array, whose element is replaced after its last use.
                (unsafe { Value::lent(value) }, None, level.region)
            };
            level.at.set(at + 1);
            let (child, only) = if level.in_place {
                // SAFETY: the node is not shared, and its child stays in place until it is mapped.
                unsafe { rebuild::only_here(child, field, node) }
            } else {
                (child, false)
            };
            let Some(new) = self.visit(child, region, only, false, base, Some(level))? else { continue };
            if !level.in_place {
                changes.push((at, new));
                continue;
            }
            let old = match field {
                // SAFETY: the object is not shared, and the field belongs to its type.
                Some(field) => unsafe { rebuild::set_field(field, node, &new) }.map(|()| None),
                // SAFETY: the container is not shared.
                None => Ok(unsafe { level.children().replace(node, new) }),
            };
            match old {
                Ok(old) => drop(old),
                Err(error) => return Err(self.failed_at(Some(level), error, level.node, base)),
            }
        }
    }

    /// Maps a value and all values that are reached from it with the explicit stack, to which the levels of the recursion
    /// are added meanwhile.
    #[inline(never)]
    fn with_frames(
        &self,
        child: Value,
        region: Region,
        in_place: bool,
        base: usize,
        outer: Option<&Level<'_>>,
    ) -> Result<Outcome> {
        let bottom = self.frames.borrow().len();
        self.add_frames(outer);
        // The explicit stack continues with recursion for the values that it reaches, which therefore counts as a level.
        let levels = self.levels.get();
        self.levels.set(levels.saturating_sub(1));
        let result = self.part_of(child, region, in_place, false, base);
        self.levels.set(levels);
        self.frames.borrow_mut().truncate(bottom);
        result
    }

    /// Adds a frame to the explicit stack for each level of a recursion. The frames only show the path from the root.
    fn add_frames(&self, level: Option<&Level<'_>>) {
        let mut levels = Vec::new();
        let mut next = level;
        while let Some(level) = next {
            levels.push(level);
            next = level.outer;
        }
        let mut frames = self.frames.borrow_mut();
        for level in levels.into_iter().rev() {
            let region = level.region;
            frames.push(Frame {
                // SAFETY: the level keeps the value, and the caller removes the frame before the level ends.
                node: unsafe { Value::lent(level.node) },
                plan: Rc::clone(level.plan),
                children: level.children(),
                changes: Vec::new(),
                in_place: false,
                inner: region,
                rest: Rest { region, call: false, replaced: false, noted: false, memo: None, generation: 0 },
            });
        }
    }

    /// Adds to an error the location at which the error occurred, as [`Mapping::failed`] does, during a recursion whose
    /// innermost level is `level`.
    #[cold]
    #[inline(never)]
    fn failed_at(&self, level: Option<&Level<'_>>, error: Error, value: &Any, base: usize) -> Error {
        let bottom = self.frames.borrow().len();
        self.add_frames(level);
        let error = self.failed(error, value, base);
        self.frames.borrow_mut().truncate(bottom);
        error
    }

    #[cold]
    fn unwind(&self, base: usize) {
        loop {
            let mut frames = self.frames.borrow_mut();
            if frames.len() <= base {
                return;
            }
            let frame = frames.pop();
            drop(frames);
            if let Some(frame) = frame.filter(|frame| frame.rest.noted) {
                self.seen.borrow_mut().remove(frame.node.get());
            }
        }
    }

    /// Processes the frames on the explicit stack from index `bottom` on.
    fn work_off(&self, bottom: usize, base: usize) -> Result<Outcome> {
        loop {
            let mut frames = self.frames.borrow_mut();
            let Some(frame) = frames.last_mut() else { return Ok(None) };
            let Some(node) = frame.node.get().as_object() else { return Ok(None) };
            match frame.children.next(&frame.plan, node) {
                Ok(Some((child, opens))) => {
                    let region = frame.inner.with(opens);
                    let (child, in_place) = if frame.in_place {
                        // SAFETY: the node is not shared, and its child stays in place until it is mapped.
                        unsafe { rebuild::only_here(child, frame.children.field(&frame.plan), node) }
                    } else {
                        (child, false)
                    };
                    drop(frames);
                    let entered = if self.levels.get() > 0 {
                        Entered::Done(self.visit(child, region, in_place, false, base, None)?)
                    } else {
                        self.enter(child, region, in_place, false, base)?
                    };
                    if let Entered::Done(Some(new)) = entered {
                        self.put(new, base)?;
                    }
                }
                Ok(None) => {
                    if frame.is_done() {
                        // Dropped in place, since it releases nothing and so runs no foreign code.
                        let len = frames.len() - 1;
                        frames.truncate(len);
                        if len == bottom {
                            return Ok(None);
                        }
                        continue;
                    }
                    let last = frames.len() == bottom + 1;
                    let frame = frames.pop();
                    drop(frames);
                    let Some(frame) = frame else { return Ok(None) };
                    let outcome = self.finish(frame, base)?;
                    if last {
                        return Ok(outcome);
                    }
                    if let Some(new) = outcome {
                        self.put(new, base)?;
                    }
                }
                Err(error) => {
                    let node = frame.node.get().clone();
                    frames.pop();
                    drop(frames);
                    return Err(self.failed(error, &node, base));
                }
            }
        }
    }

    /// Replaces the most recently mapped child with `new`. If its parent, the topmost value on the
    /// stack, is changed in place, the replacement takes effect at once. Otherwise it is recorded
    /// for the copy of the parent.
    fn put(&self, new: Any, base: usize) -> Result<()> {
        let mut frames = self.frames.borrow_mut();
        let Some(frame) = frames.last_mut() else { return Ok(()) };
        if !frame.in_place {
            let at = frame.children.position();
            frame.changes.push((at, new));
            return Ok(());
        }
        let Some(node) = frame.node.get().as_object() else { return Ok(()) };
        // The old child is released when nothing is borrowed, because this may run arbitrary code.
        let old = match frame.children.field(&frame.plan) {
            // SAFETY: the object is not shared, and the field belongs to its type.
            Some(field) => unsafe { rebuild::set_field(field, node, &new) }.map(|()| None),
            // SAFETY: the container is not shared.
            None => Ok(unsafe { frame.children.replace(node, new) }),
        };
        let failed = match old {
            Ok(old) => {
                drop(frames);
                drop(old);
                return Ok(());
            }
            Err(error) => (error, frame.node.get().clone()),
        };
        drop(frames);
        Err(self.failed(failed.0, &failed.1, base))
    }

    /// Completes a value after its children: copies the value if children have changed, and calls its
    /// callback.
    fn finish(&self, frame: Frame, base: usize) -> Result<Outcome> {
        let Frame { node, plan, children, changes, rest, .. } = frame;
        if rest.noted {
            self.seen.borrow_mut().remove(node.get());
        }
        let mut outcome = None;
        if let (false, Some(object)) = (changes.is_empty(), node.get().as_object()) {
            match rebuild::with_changes(object, &plan, children, changes) {
                Ok(copy) => outcome = Some(copy),
                Err(error) => return Err(self.failed(error, node.get(), base)),
            }
        }
        if plan.free_var || plan.dag_node {
            self.remember(node.get(), &plan, &outcome, rest.region);
        }
        self.settle(node, outcome, rest, base)
    }

    /// Records the result for a variable or a DAG node, so that later occurrences have the same result.
    fn remember(&self, node: &Any, plan: &Plan, outcome: &Outcome, region: Region) {
        // Uses of a variable that was defined once and did not change need no record, since its absence means no
        // change.
        if plan.dag_node || region == Region::Pattern || outcome.is_some() {
            self.record(node, outcome.clone().unwrap_or_else(unchanged), plan.free_var);
        }
    }

    fn record(&self, node: &Any, value: Any, counts: bool) {
        if counts {
            self.generation.set(self.generation.get() + 1);
        }
        let old = self.remap.borrow_mut().set(node.clone(), 0, (0, value));
        drop(old);
    }

    fn recorded(&self, node: &Any) -> Option<Any> {
        self.remap.borrow().get(node, 0).map(|(_, value)| value)
    }

    /// Completes the mapping of a value whose children are complete: calls the callback if it has
    /// not been called yet, and caches the result.
    fn settle(&self, node: Value, outcome: Outcome, rest: Rest, base: usize) -> Result<Outcome> {
        let mut outcome = outcome;
        if rest.call {
            let target = outcome.as_ref().unwrap_or(node.get());
            let plan = self.plans.get(target.type_index(), &self.links);
            let called = plan.and_then(|plan| match plan.link {
                Some(link) => {
                    let result = self.links.call(link, &target.as_view(), rest.region, None)?;
                    Ok(outcome_of(expected(result)?, target))
                }
                None => Ok(None),
            });
            match called {
                Ok(Some(new)) => outcome = Some(new),
                Ok(None) => {}
                Err(error) => {
                    let target = target.clone();
                    return Err(self.failed(error, &target, base));
                }
            }
        }
        if rest.replaced && outcome.is_none() {
            outcome = Some(node.into_owned());
        }
        if let Some(object) = rest.memo
            && rest.generation == self.generation.get()
        {
            let kept = (rest.generation, outcome.clone().unwrap_or_else(unchanged));
            let old = self.results.borrow_mut().set(object, rest.region as usize, kept);
            drop(old);
        }
        Ok(outcome)
    }

    fn enter(
        &self,
        child: Value,
        region: Region,
        in_place: bool,
        bypass: bool,
        base: usize,
    ) -> Result<Entered> {
        let value = child.get();
        if self.plans.is_idle(value.type_index()) {
            return Ok(Entered::Done(None));
        }
        let plan = match self.plans.get(value.type_index(), &self.links) {
            Ok(plan) => plan,
            Err(error) => return Err(self.failed(error, value, base)),
        };
        let shared = !in_place && child.is_shared();
        let generation = self.generation.get();
        let mut memo = None;
        if shared && self.share && !bypass {
            match self.results.borrow().get(value, region as usize) {
                Some((then, kept)) if then == generation => {
                    return Ok(Entered::Done(outcome_of(kept, value)));
                }
                _ => memo = Some(value.clone()),
            }
        }
        let at_root = base == self.frames.borrow().len();
        let noted = (shared || (at_root && !in_place)) && value.as_object().is_some();
        let call = !bypass && self.order == Order::Post;
        let mut rest = Rest { region, call, replaced: false, noted, memo, generation };
        if bypass || self.order == Order::Post {
            return self.descend(child, plan, in_place, rest, base);
        }
        let Some(link) = plan.link else { return self.descend(child, plan, in_place, rest, base) };
        if self.order == Order::Own {
            let outcome = self.own(link, &child, &plan, region, in_place, base)?;
            return self.settle(child, outcome, rest, base).map(Entered::Done);
        }
        let called = self.links.call(link, &value.as_view(), region, None).and_then(expected);
        let new = match called {
            Ok(result) => outcome_of(result, value),
            Err(error) => return Err(self.failed(error, value, base)),
        };
        match new {
            // A callback may have kept the value.
            None => {
                let in_place = in_place && value.as_object().is_some_and(ObjectRef::is_unique);
                self.descend(child, plan, in_place, rest, base)
            }
            Some(new) => {
                let plan = match self.plans.get(new.type_index(), &self.links) {
                    Ok(plan) => plan,
                    Err(error) => return Err(self.failed(error, value, base)),
                };
                rest.replaced = true;
                let in_place = in_place && new.as_object().is_some_and(ObjectRef::is_unique);
                self.descend(Value::Owned(new), plan, in_place, rest, base)
            }
        }
    }

    /// Begins to map the children of a value. Completes a value without children immediately.
    fn descend(
        &self,
        child: Value,
        plan: Rc<Plan>,
        in_place: bool,
        mut rest: Rest,
        base: usize,
    ) -> Result<Entered> {
        let value = child.get();
        let region = rest.region;
        let Some(node) = value.as_object() else {
            return self.settle(child, None, rest, base).map(Entered::Done);
        };
        if let Shape::Hook(_) = plan.shape {
            let outcome = self.by_hook(value, &plan, region, in_place, base)?;
            return self.settle(child, outcome, rest, base).map(Entered::Done);
        }
        let is_node = plan.free_var || plan.dag_node;
        if is_node {
            if let Some(known) = self.recorded(value) {
                let outcome = outcome_of(known, value);
                return self.settle(child, outcome, rest, base).map(Entered::Done);
            }
            if plan.free_var && region == Region::None {
                // A use of a variable that has not changed, or that is free.
                return self.settle(child, None, rest, base).map(Entered::Done);
            }
        }
        if let Shape::Leaf = plan.shape {
            if is_node {
                self.remember(value, &plan, &None, region);
            }
            return self.settle(child, None, rest, base).map(Entered::Done);
        }
        rest.noted &= !rest.replaced;
        if rest.noted && !self.seen.borrow_mut().insert(value) {
            return Err(self.failed(fail::cycle(value.type_key()), value, base));
        }
        let in_place = in_place && !is_node;
        let children = match Children::of(&plan.shape, node, in_place) {
            Ok(children) => children,
            Err(error) => return Err(self.failed(error, value, base)),
        };
        let inner = if plan.free_var && region == Region::Simple { Region::None } else { region };
        // A borrowed value stays in place until it is replaced by its result: its parent does not change, or is not
        // shared, or a snapshot of the elements holds it.
        let mut frames = self.frames.borrow_mut();
        frames.push(Frame { node: child, plan, children, changes: Vec::new(), in_place, inner, rest });
        Ok(Entered::Children)
    }

    /// Calls a callback that replaces the default mutation of a value and maps the children itself.
    #[cold]
    fn own(
        &self,
        link: u32,
        child: &Value,
        plan: &Rc<Plan>,
        region: Region,
        in_place: bool,
        base: usize,
    ) -> Result<Outcome> {
        let value = child.get();
        let called = self.nested(value, plan, region, |mutator| {
            let tool = Some((mutator, in_place));
            expected(self.links.call(link, &value.as_view(), region, tool)?)
        });
        match called {
            Ok(result) => Ok(outcome_of(result, value)),
            Err(error) => Err(self.failed(error, value, base)),
        }
    }

    /// Mutates a value by calling the hook of its type.
    #[cold]
    fn by_hook(
        &self,
        value: &Any,
        plan: &Rc<Plan>,
        region: Region,
        in_place: bool,
        base: usize,
    ) -> Result<Outcome> {
        let Shape::Hook(hook) = &plan.shape else { return Ok(None) };
        let hook = plan.in_place.as_ref().filter(|_| in_place).unwrap_or(hook);
        let called = self.nested(value, plan, region, |mutator| {
            Tool::of(mutator, ToolKind::Mutator)?.call_hook(hook, &value.as_view())
        });
        match called {
            Ok(result) => Ok(outcome_of(result, value)),
            Err(error) => Err(self.failed(error, value, base)),
        }
    }

    /// Runs `body` with a mutator, with which `body` can map the children of `value`.
    fn nested<R>(
        &self,
        value: &Any,
        plan: &Rc<Plan>,
        region: Region,
        body: impl FnOnce(&ObjectRef) -> Result<R>,
    ) -> Result<R> {
        let _nested = Nested::enter()?;
        let mutator = self.mutator.get_or_init(|| tool::make(ToolKind::Mutator, &TABLE));
        let rest = Rest { region, call: false, replaced: false, noted: false, memo: None, generation: 0 };
        let frame = Frame {
            // SAFETY: the caller keeps the value as long as the callback runs, and the frame is removed afterwards.
            node: unsafe { Value::lent(value) },
            plan: Rc::clone(plan),
            children: Children::Chosen,
            changes: Vec::new(),
            in_place: false,
            inner: region,
            rest,
        };
        self.frames.borrow_mut().push(frame);
        let depth = self.frames.borrow().len();
        let lent = Tool::of(mutator, ToolKind::Mutator)?;
        let walk = core::ptr::from_ref(self).cast();
        let levels = self.levels.replace(0);
        let result = lent.lend(&TABLE, walk, region, || body(mutator));
        self.levels.set(levels);
        // No mutation below this value follows. (An error is described after the frame has been removed.)
        self.frames.borrow_mut().truncate(depth - 1);
        result
    }

    #[cold]
    #[inline(never)]
    fn failed(&self, error: Error, value: &Any, base: usize) -> Error {
        let frames = self.frames.borrow();
        let mut objects = Vec::new();
        if value.as_object().is_some() {
            objects.push(value.clone());
        }
        objects.extend(frames[base.min(frames.len())..].iter().rev().map(|frame| frame.node.get().clone()));
        let way = frames.iter().map(|frame| (frame.node.get(), &*frame.plan, &frame.children));
        self.described.add(error, objects, way, value)
    }
}

// ---- Mutators

/// Function table of the mutators that this crate creates.
static TABLE: tool::Table = tool::Table {
    go: mutate,
    go_in_place: mutate_in_place,
    remap_get: remap_get_native,
    remap_set: remap_set_native,
};

unsafe extern "C" fn mutate(mutator: *mut TVMFFIObject, value: TVMFFIAny) -> TVMFFIAny {
    // SAFETY: as the caller of this function guarantees.
    tool::native(|| unsafe { mutate_raw(mutator, value, false) })
}

unsafe extern "C" fn mutate_in_place(mutator: *mut TVMFFIObject, value: TVMFFIAny) -> TVMFFIAny {
    // SAFETY: as the caller of this function guarantees.
    tool::native(|| unsafe { mutate_raw(mutator, value, true) })
}

/// Mutates a value with a mutator that this crate created.
///
/// # Safety
/// `mutator` must be a valid mutator of this crate and `value` a valid view.
unsafe fn mutate_raw(mutator: *mut TVMFFIObject, value: TVMFFIAny, in_place: bool) -> Result<Any> {
    // SAFETY: as the caller guarantees.
    let mutator = unsafe { tool::borrowed(mutator) }?;
    // SAFETY: as the caller guarantees.
    let view = unsafe { AnyView::from_raw(value) };
    mutate_by(&mutator, &view, false, in_place)
}

/// Applies to `value` the map that `mutator` belongs to. Returns a new value, or the marker for an
/// unchanged value. If `default` is true, the callback for `value` itself is not called. `in_place`
/// is true if the caller holds the only reference to `value` and allows it to be changed.
pub(crate) fn mutate_by(
    mutator: &ObjectRef,
    value: &AnyView<'_>,
    default: bool,
    in_place: bool,
) -> Result<Any> {
    let tool = Tool::of(mutator, ToolKind::Mutator)?;
    let Some(walk) = tool.walk(&TABLE)? else {
        return if default { default_mutate(tool, value, in_place) } else { tool.go(value, in_place) };
    };
    // SAFETY: a map is available to its mutator during a callback only, on this thread, and is only ever borrowed
    // shared. Its callbacks outlive it, so their lifetime does not matter here.
    let map = unsafe { &*walk.cast::<Mapping<'_>>() };
    let region = tool.region();
    let unique = in_place && value.as_object().is_some_and(ObjectRef::is_unique);
    let outcome = if unique {
        // SAFETY: the caller holds the only reference for the time of the call, so the value is not a borrowed string
        // either.
        let held = core::mem::ManuallyDrop::new(unsafe { Any::from_raw(*value.as_raw()) });
        // SAFETY: the caller holds the only reference for the time of the call, so the value is not a borrowed string
        // either.
        map.part(unsafe { Value::lent(&held) }, region, true, default)
    } else {
        map.part(Value::Owned(value.to_owned()), region, false, default)
    };
    outcome.map(|outcome| outcome.unwrap_or_else(unchanged))
}

/// Mutates the children of a value in the default way, with a mutator that another library created.
pub(crate) fn default_mutate(tool: Tool<'_>, value: &AnyView<'_>, in_place: bool) -> Result<Any> {
    let _nested = Nested::enter()?;
    let plan = Plans::new(Purpose::Mutate).get(value.type_index(), &Links::all())?;
    let Some(node) = value.as_object() else { return Ok(unchanged()) };
    if let Shape::Hook(hook) = &plan.shape {
        return tool.call_hook(plan.in_place.as_ref().filter(|_| in_place).unwrap_or(hook), value);
    }
    let is_container = matches!(plan.shape, Shape::Array | Shape::List | Shape::Map | Shape::Dict);
    if in_place && is_container && node.is_unique() {
        return mutate_elements_in_place(tool, node, &plan);
    }
    let is_node = plan.free_var || plan.dag_node;
    let outer = tool.region();
    if is_node {
        let known = tool.remap_get(value)?;
        if !known.is_none() {
            return Ok(known);
        }
        if plan.free_var && outer == Region::None {
            return Ok(unchanged());
        }
    }
    let clamped = plan.free_var && outer == Region::Simple;
    let inner = if clamped { Region::None } else { outer };
    let mut children = Children::of(&plan.shape, node, false)?;
    let mut changes = Vec::new();
    while let Some((child, opens)) = children.next(&plan, node)? {
        tool.set_region(inner.with(opens));
        let answer = tool.go(&child.get().as_view(), false);
        tool.set_region(outer);
        if let Some(new) = outcome_of(answer?, child.get()) {
            changes.push((children.position(), new));
        }
    }
    let result =
        if changes.is_empty() { unchanged() } else { rebuild::with_changes(node, &plan, children, changes)? };
    let changed = result.type_index() != kTVMFFIUnchanged;
    if is_node && (plan.dag_node || outer == Region::Pattern || changed) {
        tool.remap_set(value, &result.as_view())?;
    }
    Ok(result)
}

/// Mutates the elements of a container, to which no other code refers, and replaces those that change. Returns the container if
/// an element was replaced, and else the marker for an unchanged value.
fn mutate_elements_in_place(tool: Tool<'_>, node: &ObjectRef, plan: &Plan) -> Result<Any> {
    let mut children = Children::of(&plan.shape, node, true)?;
    let mut is_changed = false;
    while let Some((child, _)) = children.next(plan, node)? {
        // SAFETY: the container is not shared, and its child stays in place until it is mutated.
        let (child, only) = unsafe { rebuild::only_here(child, None, node) };
        let answer = tool.go(&child.get().as_view(), only)?;
        if let Some(new) = outcome_of(answer, child.get()) {
            // SAFETY: the container is not shared.
            drop(unsafe { children.replace(node, new) });
            is_changed = true;
        }
    }
    Ok(if is_changed { Any::from(node.clone()) } else { unchanged() })
}

unsafe extern "C" fn remap_get_native(mutator: *mut TVMFFIObject, variable: TVMFFIAny) -> TVMFFIAny {
    tool::native(|| {
        // SAFETY: called with the mutator to which this table belongs.
        let mutator = unsafe { tool::borrowed(mutator) }?;
        // SAFETY: a view that is valid for the call.
        remap_get(&mutator, &unsafe { AnyView::from_raw(variable) })
    })
}

unsafe extern "C" fn remap_set_native(
    mutator: *mut TVMFFIObject,
    variable: TVMFFIAny,
    value: TVMFFIAny,
) -> TVMFFIAny {
    tool::native(|| {
        // SAFETY: called with the mutator to which this table belongs.
        let mutator = unsafe { tool::borrowed(mutator) }?;
        // SAFETY: a view that is valid for the call.
        let variable = unsafe { AnyView::from_raw(variable) };
        // SAFETY: a view that is valid for the call.
        let value = unsafe { AnyView::from_raw(value) };
        remap_set(&mutator, &variable, &value).map(|()| Any::NONE)
    })
}

fn checked_key(variable: &AnyView<'_>) -> Result<Any> {
    if variable.as_object().is_none() {
        bail!("TypeError", "Variable-remap key must be an object-backed value");
    }
    Ok(variable.to_owned())
}

/// Returns the recorded replacement of a variable, or None if none is recorded.
pub(crate) fn remap_get(mutator: &ObjectRef, variable: &AnyView<'_>) -> Result<Any> {
    let tool = Tool::of(mutator, ToolKind::Mutator)?;
    let Some(walk) = tool.walk(&TABLE)? else { return tool.remap_get(variable) };
    // SAFETY: as in `mutate_by`.
    let map = unsafe { &*walk.cast::<Mapping<'_>>() };
    Ok(map.recorded(&checked_key(variable)?).unwrap_or_default())
}

/// Records a replacement for a variable.
pub(crate) fn remap_set(mutator: &ObjectRef, variable: &AnyView<'_>, value: &AnyView<'_>) -> Result<()> {
    let tool = Tool::of(mutator, ToolKind::Mutator)?;
    let Some(walk) = tool.walk(&TABLE)? else { return tool.remap_set(variable, value) };
    // SAFETY: as in `mutate_by`.
    let map = unsafe { &*walk.cast::<Mapping<'_>>() };
    map.record(&checked_key(variable)?, value.to_owned(), true);
    Ok(())
}
