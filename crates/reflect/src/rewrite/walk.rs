//! Walks, which call callbacks for all values of a graph.
//!
//! The path from the root is a list of frames, so graphs of any depth can be walked. Only callbacks that continue the
//! walk themselves, and hooks of types, recurse; the depth of both is limited.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell, RefCell};

use anyfn::abi::{TVMFFIAny, TVMFFIObject, kTVMFFIBool, kTVMFFIInt, kTVMFFINone, kTVMFFIVisitInterrupt};
use anyfn::{Any, AnyView, Error, ObjectRef, Result, bail};

use super::children::{self, Children, Value};
use super::fail::{self, Described};
use super::links::Links;
use super::plan::{Plan, Plans, Purpose, Shape};
use super::seen::Seen;
use super::tool::{self, Tool, ToolKind};
use super::{Order, Region};
use crate::guard::Nested;
use crate::value::same_bits;

/// Value whose children are being walked.
struct Frame {
    /// Value whose children are being walked. It is borrowed if the frame of its parent keeps it alive: the
    /// parent does not change, or its frame holds a snapshot of the elements.
    node: Value,
    plan: Rc<Plan>,
    children: Children,
    /// Definition region that the value is in; `inner` is the region of its children.
    region: Region,
    inner: Region,
    /// True if the callback for the value is called after the children have been walked.
    call: bool,
    /// True if `Walk::seen` contains the value because its children are being walked. The set is used to
    /// detect cycles.
    noted: bool,
}

/// Value whose children are being walked by recursion. The levels of a recursion form a list from the innermost level to
/// the outermost one, which takes the place of frames on the explicit stack.
struct Level<'l> {
    outer: Option<&'l Level<'l>>,
    node: &'l Any,
    plan: &'l Rc<Plan>,
    /// Number of children that have been begun.
    at: Cell<usize>,
    region: Region,
    inner: Region,
}

/// Maximum number of levels of one recursion. Values below them are walked with the explicit stack, so graphs of any depth
/// can be walked.
const LEVELS_MAX: usize = 32;

/// State of a walk over a graph.
pub(crate) struct Walk<'a> {
    links: Links<'a>,
    order: Order,
    /// True if each object is visited only once.
    once: bool,
    plans: Plans,
    frames: RefCell<Vec<Frame>>,
    /// Ancestors of the current value that may be reached again, recorded to detect cycles. If
    /// `once` is true, contains instead all visited objects that may be reached again.
    seen: RefCell<Seen>,
    visitor: OnceCell<ObjectRef>,
    described: Described,
    /// Number of levels that recursion may still use. Zero while a callback or hook has a visitor, since a visit through it
    /// takes the path from the root from the explicit stack.
    levels: Cell<usize>,
}

/// Interrupt (an `ffi.VisitInterrupt`) with which a callback ended the walk early; `None` if no callback
/// ended it.
type Stop = Option<Any>;

/// Result of entering a value: how the walk continues.
enum Entered {
    /// The walk continues with the children of the value.
    Children,
    /// The walk continues with the next value.
    Done,
    Stop(Any),
}

impl<'a> Walk<'a> {
    pub(crate) fn new(links: Links<'a>, order: Order, once: bool) -> Walk<'a> {
        Walk {
            links,
            order,
            once,
            plans: Plans::new(Purpose::Visit),
            frames: RefCell::new(Vec::new()),
            seen: RefCell::new(Seen::default()),
            visitor: OnceCell::new(),
            described: Described::default(),
            levels: Cell::new(if order == Order::Own { 0 } else { LEVELS_MAX }),
        }
    }

    /// Consumes the walk and returns its callbacks.
    pub(crate) fn into_links(self) -> Links<'a> {
        self.links
    }

    /// Walks the graph of `root`. Returns the interrupt with which a callback ended the walk, or `None`.
    pub(crate) fn run(&self, root: &AnyView<'_>) -> Result<Stop> {
        self.part(root.to_owned(), Region::None, false)
    }

    /// Walks `root` and all values that are reached from it. If `bypass` is true, the callback for `root`
    /// itself is not called.
    fn part(&self, root: Any, region: Region, bypass: bool) -> Result<Stop> {
        let base = self.frames.borrow().len();
        if self.levels.get() > 0 && !bypass {
            return self.visit(&root, 2, region, true, base, None);
        }
        self.part_of(Value::Owned(root), region, bypass, true, base)
    }

    /// Walks a value and all values that are reached from it with the explicit stack. `base` is the index of the frame at
    /// which the objects begin that an error names.
    fn part_of(&self, root: Value, region: Region, bypass: bool, at_root: bool, base: usize) -> Result<Stop> {
        let bottom = self.frames.borrow().len();
        let result = self.enter(root, region, bypass, at_root, base).and_then(|entered| match entered {
            Entered::Children => self.work_off(bottom, base),
            Entered::Done => Ok(None),
            Entered::Stop(interrupt) => Ok(Some(interrupt)),
        });
        if !matches!(result, Ok(None)) {
            self.unwind(bottom);
        }
        result
    }

    /// Walks a value and all values that are reached from it by recursion, which takes half the time of the explicit stack.
    /// `own` is the reference count that the value has if no other code refers to it.
    fn visit(
        &self,
        value: &Any,
        own: usize,
        region: Region,
        at_root: bool,
        base: usize,
        outer: Option<&Level<'_>>,
    ) -> Result<Stop> {
        let index = value.type_index();
        if index == kTVMFFINone || self.plans.is_idle(index) {
            return Ok(None);
        }
        let plan = match self.plans.get(index, &self.links) {
            Ok(plan) => plan,
            Err(error) => return Err(self.failed_at(outer, error, value, base)),
        };
        let is_plain = matches!(plan.shape, Shape::Leaf | Shape::Array | Shape::Fields(_));
        if !is_plain || self.levels.get() == 0 {
            return self.with_frames(value, own, region, at_root, base, outer);
        }
        let matters = self.once || !matches!(plan.shape, Shape::Leaf);
        let shared = matters && (at_root || value.as_object().is_some_and(|object| object.use_count() > own));
        if shared && self.once && !self.seen.borrow_mut().insert(value) {
            return Ok(None);
        }
        if let (Some(link), Order::Pre) = (plan.link, self.order) {
            match self.call(link, value, region) {
                Ok(Answer::Advance) => {}
                Ok(Answer::Skip) => return Ok(None),
                Ok(Answer::Stop(interrupt)) => return Ok(Some(interrupt)),
                Err(error) => return Err(self.failed_at(outer, error, value, base)),
            }
        }
        if let (Some(node), false) = (value.as_object(), matches!(plan.shape, Shape::Leaf)) {
            let noted = shared && !self.once;
            if noted && !self.seen.borrow_mut().insert(value) {
                return Err(self.failed_at(outer, fail::cycle(value.type_key()), value, base));
            }
            let inner = if plan.free_var && region == Region::Simple { Region::None } else { region };
            let level = Level { outer, node: value, plan: &plan, at: Cell::new(0), region, inner };
            self.levels.set(self.levels.get() - 1);
            let result = self.visit_children(node, &level, base);
            self.levels.set(self.levels.get() + 1);
            if noted {
                self.seen.borrow_mut().remove(value);
            }
            if !matches!(result, Ok(None)) {
                return result;
            }
        }
        let (Some(link), Order::Post) = (plan.link, self.order) else { return Ok(None) };
        match self.call(link, value, region) {
            Ok(Answer::Stop(interrupt)) => Ok(Some(interrupt)),
            Ok(_) => Ok(None),
            Err(error) => Err(self.failed_at(outer, error, value, base)),
        }
    }

    /// Walks the children of `node`, the value of `level`.
    fn visit_children(&self, node: &ObjectRef, level: &Level<'_>, base: usize) -> Result<Stop> {
        let Shape::Fields(members) = &level.plan.shape else {
            for value in children::elements(node) {
                level.at.set(level.at.get() + 1);
                let result = self.visit(value, 1, level.inner, false, base, Some(level));
                if !matches!(result, Ok(None)) {
                    return result;
                }
            }
            return Ok(None);
        };
        for member in members {
            level.at.set(level.at.get() + 1);
            let region = level.inner.with(member.opens);
            // SAFETY: the plan is that of exactly the object's type, and the level keeps the object.
            let result = if let Some(value) = unsafe { member.field.lend_unchecked(node) } {
                self.visit(&value, 1, region, false, base, Some(level))
            } else {
                // SAFETY: the plan is that of exactly the object's type.
                match unsafe { member.field.get_unchecked(node) } {
                    Ok(value) => self.visit(&value, 2, region, false, base, Some(level)),
                    Err(error) => return Err(self.failed_at(level.outer, error, level.node, base)),
                }
            };
            if !matches!(result, Ok(None)) {
                return result;
            }
        }
        Ok(None)
    }

    /// Walks a value and all values that are reached from it with the explicit stack, to which the levels of the recursion
    /// are added meanwhile.
    #[inline(never)]
    fn with_frames(
        &self,
        value: &Any,
        own: usize,
        region: Region,
        at_root: bool,
        base: usize,
        outer: Option<&Level<'_>>,
    ) -> Result<Stop> {
        let bottom = self.frames.borrow().len();
        self.add_frames(outer);
        // SAFETY: the caller keeps the value during this call.
        let lent = unsafe { Value::lent(value) };
        let value = if own == 1 { lent } else { Value::Owned(value.clone()) };
        // The explicit stack continues with recursion for the values that it reaches, which therefore counts as a level.
        let levels = self.levels.get();
        self.levels.set(levels.saturating_sub(1));
        let result = self.part_of(value, region, false, at_root, base);
        self.levels.set(levels);
        self.frames.borrow_mut().truncate(bottom);
        result
    }

    /// Adds a frame to the explicit stack for each level of a recursion.
    fn add_frames(&self, level: Option<&Level<'_>>) {
        let mut levels = Vec::new();
        let mut next = level;
        while let Some(level) = next {
            levels.push(level);
            next = level.outer;
        }
        let mut frames = self.frames.borrow_mut();
        for level in levels.into_iter().rev() {
            let children = match &level.plan.shape {
                Shape::Fields(_) => Children::Fields(level.at.get() as u32),
                _ => Children::Elements(level.at.get()),
            };
            // SAFETY: the level keeps the value, and the caller removes the frame before the level ends.
            let node = unsafe { Value::lent(level.node) };
            let (plan, region, inner) = (Rc::clone(level.plan), level.region, level.inner);
            frames.push(Frame { node, plan, children, region, inner, call: false, noted: false });
        }
    }

    /// Adds to an error the location at which the error occurred, as [`Walk::failed`] does, during a recursion whose
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

    /// Removes all stack frames from index `base` on, after an error or an interrupt.
    #[cold]
    fn unwind(&self, base: usize) {
        loop {
            let mut frames = self.frames.borrow_mut();
            if frames.len() <= base {
                return;
            }
            let frame = frames.pop();
            drop(frames);
            if let Some(frame) = frame
                && frame.noted
                && !self.once
            {
                self.seen.borrow_mut().remove(frame.node.get());
            }
        }
    }

    /// Processes the frames on the explicit stack from index `bottom` on.
    fn work_off(&self, bottom: usize, base: usize) -> Result<Stop> {
        loop {
            let mut frames = self.frames.borrow_mut();
            let last = frames.len() == bottom + 1;
            let Some(frame) = frames.last_mut() else { return Ok(None) };
            let Some(node) = frame.node.get().as_object() else { return Ok(None) };
            match frame.children.next(&frame.plan, node) {
                Ok(Some((child, opens))) => {
                    let region = frame.inner.with(opens);
                    drop(frames);
                    if self.levels.get() > 0 {
                        let own = if let Value::Lent(_) = &child { 1 } else { 2 };
                        if let Some(interrupt) = self.visit(child.get(), own, region, false, base, None)? {
                            return Ok(Some(interrupt));
                        }
                        continue;
                    }
                    if let Entered::Stop(interrupt) = self.enter(child, region, false, false, base)? {
                        return Ok(Some(interrupt));
                    }
                }
                Ok(None) => {
                    let owns_nothing = matches!(frame.node, Value::Lent(_)) && frame.children.owns_nothing();
                    if frame.noted && !self.once {
                        self.seen.borrow_mut().remove(frame.node.get());
                    }
                    if frame.call {
                        let frame = frames.pop();
                        drop(frames);
                        let Some(frame) = frame else { return Ok(None) };
                        if let Some(interrupt) =
                            self.after(frame.node.get(), &frame.plan, frame.region, base)?
                        {
                            return Ok(Some(interrupt));
                        }
                    } else if owns_nothing {
                        // Dropped in place, since it releases nothing and so runs no foreign code.
                        let len = frames.len() - 1;
                        frames.truncate(len);
                    } else {
                        let frame = frames.pop();
                        drop(frames);
                        drop(frame);
                    }
                    if last {
                        return Ok(None);
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

    /// Calls the callback for a value whose children have been visited.
    #[inline]
    fn after(&self, value: &Any, plan: &Plan, region: Region, base: usize) -> Result<Stop> {
        let Some(link) = plan.link else { return Ok(None) };
        match self.call(link, value, region) {
            Ok(Answer::Stop(interrupt)) => Ok(Some(interrupt)),
            Ok(_) => Ok(None),
            Err(error) => Err(self.failed(error, value, base)),
        }
    }

    #[inline]
    fn enter(&self, child: Value, region: Region, bypass: bool, at_root: bool, base: usize) -> Result<Entered> {
        let value = child.get();
        if value.type_index() == kTVMFFINone || self.plans.is_idle(value.type_index()) {
            return Ok(Entered::Done);
        }
        let plan = match self.plans.get(value.type_index(), &self.links) {
            Ok(plan) => plan,
            Err(error) => return Err(self.failed(error, value, base)),
        };
        let matters = self.once || !matches!(plan.shape, Shape::Leaf);
        let shared = matters && (at_root || child.is_shared());
        if shared && self.once && !bypass && !self.seen.borrow_mut().insert(value) {
            return Ok(Entered::Done);
        }
        if let (Some(link), false) = (plan.link, bypass || self.order == Order::Post) {
            let answer = match self.order {
                Order::Own => self.own(link, child, plan, region, base),
                _ => match self.call(link, value, region) {
                    Ok(Answer::Advance) => return self.descend(child, plan, region, false, shared, base),
                    other => other.map_err(|error| self.failed(error, value, base)),
                },
            };
            return Ok(match answer? {
                Answer::Stop(interrupt) => Entered::Stop(interrupt),
                _ => Entered::Done,
            });
        }
        self.descend(child, plan, region, !bypass && self.order == Order::Post, shared, base)
    }

    #[inline]
    fn descend(
        &self,
        child: Value,
        plan: Rc<Plan>,
        region: Region,
        call: bool,
        shared: bool,
        base: usize,
    ) -> Result<Entered> {
        let value = child.get();
        let call = call && plan.link.is_some();
        let node = match (&plan.shape, value.as_object()) {
            (Shape::Leaf, _) | (_, None) => {
                return Ok(match call.then(|| self.after(value, &plan, region, base)).transpose()?.flatten() {
                    Some(interrupt) => Entered::Stop(interrupt),
                    None => Entered::Done,
                });
            }
            (Shape::Hook(_), _) => return self.by_hook(child, plan, region, call, base),
            (_, Some(node)) => node,
        };
        let noted = shared && !self.once;
        if noted && !self.seen.borrow_mut().insert(value) {
            return Err(self.failed(fail::cycle(value.type_key()), value, base));
        }
        let children = match Children::of(&plan.shape, node, false) {
            Ok(children) => children,
            Err(error) => return Err(self.failed(error, value, base)),
        };
        let inner = if plan.free_var && region == Region::Simple { Region::None } else { region };
        let mut frames = self.frames.borrow_mut();
        frames.push(Frame { node: child, plan, children, region, inner, call, noted });
        Ok(Entered::Children)
    }

    /// Calls a callback that replaces the default visit of a value and visits the children itself.
    #[cold]
    fn own(&self, link: u32, child: Value, plan: Rc<Plan>, region: Region, base: usize) -> Result<Answer> {
        let value = child.into_owned();
        let called = self.nested(&value, plan, region, |visitor| {
            let answer = self.links.call(link, &value.as_view(), region, Some((visitor, false)))?;
            interrupt_of(answer)
        });
        called.map_err(|error| self.failed(error, &value, base))
    }

    /// Visits the children of a value by calling the hook of its type.
    #[cold]
    fn by_hook(
        &self,
        child: Value,
        plan: Rc<Plan>,
        region: Region,
        call: bool,
        base: usize,
    ) -> Result<Entered> {
        let value = child.into_owned();
        let Shape::Hook(hook) = &plan.shape else { return Ok(Entered::Done) };
        let called = self.nested(&value, Rc::clone(&plan), region, |visitor| {
            let visitor = Tool::of(visitor, ToolKind::Visitor)?;
            interrupt_of(visitor.call_hook(hook, &value.as_view())?)
        });
        match called {
            Ok(Answer::Stop(interrupt)) => return Ok(Entered::Stop(interrupt)),
            Ok(_) => {}
            Err(error) => return Err(self.failed(error, &value, base)),
        }
        match call.then(|| self.after(&value, &plan, region, base)).transpose()?.flatten() {
            Some(interrupt) => Ok(Entered::Stop(interrupt)),
            None => Ok(Entered::Done),
        }
    }

    /// Runs `body` with a visitor, with which `body` can visit the children of `value`.
    fn nested<R>(
        &self,
        value: &Any,
        plan: Rc<Plan>,
        region: Region,
        body: impl FnOnce(&ObjectRef) -> Result<R>,
    ) -> Result<R> {
        let _nested = Nested::enter()?;
        let visitor = self.visitor.get_or_init(|| tool::make(ToolKind::Visitor, &TABLE));
        let node = Value::Owned(value.clone());
        let (children, call, noted) = (Children::Chosen, false, false);
        self.frames.borrow_mut().push(Frame { node, plan, children, region, inner: region, call, noted });
        let depth = self.frames.borrow().len();
        let lent = Tool::of(visitor, ToolKind::Visitor)?;
        let levels = self.levels.replace(0);
        let result = lent.lend(&TABLE, core::ptr::from_ref(self).cast(), region, || body(visitor));
        self.levels.set(levels);
        if result.is_ok() {
            self.frames.borrow_mut().truncate(depth - 1);
        }
        result
    }

    #[inline]
    fn call(&self, link: u32, value: &Any, region: Region) -> Result<Answer> {
        answer_of(self.links.call(link, &value.as_view(), region, None)?)
    }

    /// Adds to an error the location at which the error occurred: `value` and the objects on the
    /// path to `value`, from frame `base` on.
    #[cold]
    #[inline(never)]
    fn failed(&self, error: Error, value: &Any, base: usize) -> Error {
        let frames = self.frames.borrow();
        let mut objects = Vec::new();
        let is_last = |frame: &Frame| same_bits(frame.node.get(), value);
        if value.as_object().is_some() && !frames.last().is_some_and(is_last) {
            objects.push(value.clone());
        }
        objects.extend(frames[base.min(frames.len())..].iter().rev().map(|frame| frame.node.get().clone()));
        let way = frames.iter().map(|frame| (frame.node.get(), &*frame.plan, &frame.children));
        self.described.add(error, objects, way, value)
    }
}

/// Decoded return value of a callback.
pub(crate) enum Answer {
    Advance,
    Skip,
    Stop(Any),
}

fn answer_of(answer: Any) -> Result<Answer> {
    match answer.type_index() {
        kTVMFFINone => Ok(Answer::Advance),
        kTVMFFIInt | kTVMFFIBool => {
            Ok(if answer.as_view().bits() == 1 { Answer::Skip } else { Answer::Advance })
        }
        kTVMFFIVisitInterrupt => Ok(Answer::Stop(answer)),
        _ => bail!(
            "TypeError",
            "CallExpected: result type mismatch, expected WalkResult, but got {}",
            answer.type_key()
        ),
    }
}

fn interrupt_of(answer: Any) -> Result<Answer> {
    match answer.type_index() {
        kTVMFFINone => Ok(Answer::Skip),
        kTVMFFIVisitInterrupt => Ok(Answer::Stop(answer)),
        _ => bail!(
            "TypeError",
            "CallExpected: result type mismatch, expected Optional<ffi.VisitInterrupt>, but got {}",
            answer.type_key()
        ),
    }
}

// ---- Visitors

/// Function table of the visitors that this crate creates.
static TABLE: tool::Table =
    tool::Table { go: visit, go_in_place: visit, remap_get: no_remap, remap_set: no_remap_set };

unsafe extern "C" fn visit(visitor: *mut TVMFFIObject, value: TVMFFIAny) -> TVMFFIAny {
    tool::native(|| {
        // SAFETY: called with the visitor to which this table belongs.
        let visitor = unsafe { tool::borrowed(visitor) }?;
        // SAFETY: a view that is valid for the call.
        visit_by(&visitor, &unsafe { AnyView::from_raw(value) }, false)
    })
}

unsafe extern "C" fn no_remap(_visitor: *mut TVMFFIObject, _variable: TVMFFIAny) -> TVMFFIAny {
    Any::NONE.into_raw()
}

unsafe extern "C" fn no_remap_set(_: *mut TVMFFIObject, _: TVMFFIAny, _: TVMFFIAny) -> TVMFFIAny {
    Any::NONE.into_raw()
}

/// Visits `value` in the walk that `visitor` belongs to. Returns None, or the interrupt with which
/// a callback ended the walk. If `default` is true, the callback for `value` itself is not called.
pub(crate) fn visit_by(visitor: &ObjectRef, value: &AnyView<'_>, default: bool) -> Result<Any> {
    let tool = Tool::of(visitor, ToolKind::Visitor)?;
    match tool.walk(&TABLE)? {
        Some(walk) => {
            // SAFETY: a walk is available to its visitor during a callback only, on this thread, and is only ever
            // borrowed shared. Its callbacks outlive it, so their lifetime does not matter here.
            let walk = unsafe { &*walk.cast::<Walk<'_>>() };
            walk.part(value.to_owned(), tool.region(), default).map(Option::unwrap_or_default)
        }
        None if default => default_visit(tool, value),
        None => tool.go(value, false),
    }
}

/// Visits the children of a value in the default way, with a visitor that another library created.
pub(crate) fn default_visit(tool: Tool<'_>, value: &AnyView<'_>) -> Result<Any> {
    let _nested = Nested::enter()?;
    let plan = Plans::new(Purpose::Visit).get(value.type_index(), &Links::default())?;
    let Some(node) = value.as_object() else { return Ok(Any::NONE) };
    if let Shape::Hook(hook) = &plan.shape {
        return tool.call_hook(hook, value);
    }
    let outer = tool.region();
    let clamped = plan.free_var && outer == Region::Simple;
    let inner = if clamped { Region::None } else { outer };
    let mut children = Children::of(&plan.shape, node, false)?;
    while let Some((child, opens)) = children.next(&plan, node)? {
        tool.set_region(inner.with(opens));
        let answer = tool.go(&child.get().as_view(), false);
        tool.set_region(outer);
        match answer {
            Ok(answer) if answer.is_none() => {}
            other => return other,
        }
    }
    Ok(Any::NONE)
}
