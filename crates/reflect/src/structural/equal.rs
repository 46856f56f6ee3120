//! Structural equality of two values, and the path to their first difference.

use alloc::boxed::Box;
use alloc::vec::Vec;

use anyfn::abi::{
    kTVMFFIArray, kTVMFFIBigInt, kTVMFFIBytes, kTVMFFIDict, kTVMFFIFieldFlagBitMaskSEqHashIgnore as IGNORE,
    kTVMFFIFloat, kTVMFFIList, kTVMFFIMap, kTVMFFISEqHashKindConstTreeNode as CONST_TREE,
    kTVMFFISEqHashKindDAGNode as DAG, kTVMFFISEqHashKindFreeVar as FREE_VAR,
    kTVMFFISEqHashKindUniqueInstance as UNIQUE, kTVMFFIShape, kTVMFFIStr, kTVMFFITensor,
};
use anyfn::reflection::Field;
use anyfn::{Any, Args, ObjectRef, Result, TensorView};

use super::path::{self, Step};
use super::{Options, Region, kind_of};
use crate::column::{Column, Hook, expected};
use crate::guard;
use crate::plan::{self, Plan, PlanCache, Plans};
use crate::table::Table;
use crate::value::{self, HeldObject, Mapping, is_watched};

static EQUAL: Column = Column::new("__s_equal__");
static PLANS: PlanCache = PlanCache::with_hooks(IGNORE, &EQUAL);

/// Returns true if two values are structurally equal.
///
/// Values of different types are different, but short and long strings have the same type. Containers are compared by
/// elements, Maps and Dicts by key; tensors by shape, data type and content; objects as their type specifies. Cycles
/// are equal if nothing on them differs.
///
/// # Errors
/// Returns `TypeError` for an object whose type does not specify how it is compared; `InternalError` for the content of
/// a tensor that is not contiguous in main memory; the error of a hook `__s_equal__`.
pub fn structural_equal(left: &Any, right: &Any, options: Options) -> Result<bool> {
    Equal::new(options, false).run(left.clone(), right.clone(), ROOT)
}

/// Returns the paths to the first difference between two values, one path for each value; `None` if
/// the values are equal. Both paths are objects of type `ffi.reflection.AccessPath`.
///
/// # Errors
/// Returns the errors of [`structural_equal`].
pub fn first_mismatch(left: &Any, right: &Any, options: Options) -> Result<Option<(ObjectRef, ObjectRef)>> {
    let mut equal = Equal::new(options, true);
    if equal.run(left.clone(), right.clone(), ROOT)? {
        return Ok(None);
    }
    let steps = core::mem::take(&mut equal.reverse);
    let mut paths = (path::root(), path::root());
    for (left, right) in steps.into_iter().rev() {
        paths = (path::extend(&paths.0, left), path::extend(&paths.1, right));
    }
    Ok(Some((paths.0.into_object(), paths.1.into_object())))
}

/// Reference count of a root value to which no other code refers: the caller and this operation hold one
/// reference each.
const ROOT: usize = 2;
/// Reference count of a value that was read from a field or an Array, if no other code refers to
/// the value: its container and this operation hold one reference each. The count of a value from
/// the snapshot of a List is higher by one.
const READ: usize = 2;
/// Reference count of an object that is borrowed from its parent, if no other code refers to the object.
const BORROWED: usize = 1;

/// Result of one step of a comparison.
enum StepResult {
    Equal,
    Unequal,
    /// The step pushed a pair of values on the stack. The children of this pair are compared next.
    Opened,
}

/// Pair of values of the same type whose content is being compared.
enum Content {
    Arrays { left: HeldObject, right: HeldObject },
    Lists(Box<(Vec<Any>, Vec<Any>)>),
    Pairs(Box<Pairs>),
    Objects { left: HeldObject, right: HeldObject, plan: &'static Plan },
}

/// Two Maps or Dicts being compared: the key-value pairs of the left one, which are looked up in the right
/// one.
struct Pairs {
    left: Vec<(Any, Any)>,
    right: Mapping,
    same_len: bool,
}

/// Pair of values whose content is being compared.
struct Frame {
    content: Content,
    /// Index of the element, key-value pair or field to be compared next.
    next: usize,
    /// Definition region of the two values being compared. `outer` is the region that becomes
    /// current again after their comparison.
    region: Region,
    outer: Region,
}

/// State of a structural comparison.
pub(super) struct Equal {
    stack: Vec<Frame>,
    region: Region,
    skip_tensor_content: bool,
    plans: Plans,
    /// Pairs of objects whose comparison has begun, by their addresses. The value of an entry is
    /// true while the two objects are assumed to be equal.
    met: Table<(usize, usize), bool>,
    /// Pairs of objects in `met`, in order of insertion. They are kept alive, so that addresses are not
    /// reused.
    log: Vec<(ObjectRef, ObjectRef)>,
    /// For the address of each bound variable or DAG node of the left value, the index of its pair
    /// in `bound`.
    left_to_right: Table<usize, u32>,
    right_to_left: Table<usize, u32>,
    bound: Vec<(ObjectRef, ObjectRef)>,
    /// True if the caller requested the path to the first difference.
    traced: bool,
    /// Path to the first difference, last step first.
    reverse: Vec<(Step, Step)>,
    /// Number of calls of [`Equal::nested`] that are in progress.
    depth: usize,
}

/// Maximum number of values that are compared by recursion. The values below them are compared with the explicit stack,
/// so graphs of any depth can be compared.
const NESTED_MAX: usize = 32;

impl Default for Equal {
    fn default() -> Equal {
        Equal::new(Options::default(), false)
    }
}

// SAFETY: besides values, which are `Send`, it holds references to types, which are never freed and are changed by
// atomic stores only.
unsafe impl Send for Equal {}

impl Equal {
    fn new(options: Options, traced: bool) -> Equal {
        Equal {
            stack: Vec::new(),
            region: Region::root(options),
            skip_tensor_content: options.skip_tensor_content,
            plans: Plans::new(&PLANS),
            met: Table::default(),
            log: Vec::new(),
            left_to_right: Table::default(),
            right_to_left: Table::default(),
            bound: Vec::new(),
            traced,
            reverse: Vec::new(),
            depth: 0,
        }
    }

    /// Returns true if two values are structurally equal. A hook may call this function while enclosing
    /// values are being compared.
    fn run(&mut self, left: Any, right: Any, own: usize) -> Result<bool> {
        if let Some(equal) = leaf(self.skip_tensor_content, &left, &right)? {
            return Ok(equal);
        }
        let (Some(left), Some(right)) = (left.into_object(), right.into_object()) else { return Ok(true) };
        if self.traced {
            self.run_stack(HeldObject::owned(left), HeldObject::owned(right), own)
        } else {
            self.nested(&left, &right, own, self.region)
        }
    }

    /// Compares the content of two objects of the same type with the explicit stack. The stack does not refer to the objects
    /// after the call.
    fn run_stack(&mut self, left: HeldObject, right: HeldObject, own: usize) -> Result<bool> {
        let base = self.stack.len();
        let outer = self.region;
        let mut step = self.open(left, right, own, outer);
        loop {
            match step {
                Ok(StepResult::Unequal) => {
                    self.unwind(base);
                    self.region = outer;
                    return Ok(false);
                }
                Err(error) => {
                    // A hook that called this comparison may continue.
                    self.stack.truncate(base);
                    self.region = outer;
                    return Err(error);
                }
                Ok(_) => {}
            }
            if self.stack.len() == base {
                return Ok(true);
            }
            step = self.advance();
        }
    }

    /// Removes the stack frames from index `base` on. Records the access path steps of these frames
    /// if the caller requested the path to the difference.
    fn unwind(&mut self, base: usize) {
        while self.stack.len() > base {
            let Some(frame) = self.stack.pop() else { return };
            if self.traced {
                let step = self.step_of(&frame);
                self.reverse.extend(step);
            }
        }
    }

    /// Returns the access path steps from the two values of `frame` to the children that were compared most
    /// recently.
    fn step_of(&self, frame: &Frame) -> Option<(Step, Step)> {
        let at = frame.next.checked_sub(1)?;
        match &frame.content {
            Content::Arrays { .. } | Content::Lists(_) => Some((Step::item(at), Step::item(at))),
            Content::Pairs(pairs) => {
                let key = pairs.left.get(at)?.0.clone();
                let other = self.counterpart(&key, &self.left_to_right, |bound| &bound.1);
                Some((Step::key(key), Step::key(other)))
            }
            Content::Objects { plan, .. } => {
                let field = plan.field(at)?;
                Some((Step::attr(field.name()), Step::attr(field.name())))
            }
        }
    }

    /// Compares the content of two objects of the same type by recursion, which takes half the time of the explicit
    /// stack. Values that need more than their read-only children, or lie too deep, are compared with the stack. `own` is
    /// the reference count that each object has if no other code refers to it, and `region` the definition region of the
    /// objects. Must not be called if the path to the difference was requested.
    fn nested(&mut self, left: &ObjectRef, right: &ObjectRef, own: usize, region: Region) -> Result<bool> {
        if self.depth >= NESTED_MAX {
            return self.with_stack(left, right, own, region);
        }
        self.depth += 1;
        let result = match left.type_index() {
            kTVMFFIArray => self.nested_arrays(left, right, own, region),
            kTVMFFIList | kTVMFFIMap | kTVMFFIDict => self.with_stack(left, right, own, region),
            _ => self.nested_objects(left, right, own, region),
        };
        self.depth -= 1;
        result
    }

    /// Compares two objects as `Equal::nested` does, but with the explicit stack.
    #[inline(never)]
    fn with_stack(&mut self, left: &ObjectRef, right: &ObjectRef, own: usize, region: Region) -> Result<bool> {
        let outer = core::mem::replace(&mut self.region, region);
        // SAFETY: the caller keeps the object alive during the call, and the stack refers to it only during the call.
        let left = unsafe { HeldObject::borrowed(left) };
        // SAFETY: the caller keeps the object alive during the call, and the stack refers to it only during the call.
        let right = unsafe { HeldObject::borrowed(right) };
        let result = self.run_stack(left, right, own);
        self.region = outer;
        result
    }

    fn nested_arrays(
        &mut self,
        left: &ObjectRef,
        right: &ObjectRef,
        own: usize,
        region: Region,
    ) -> Result<bool> {
        if self.meet(left, right, own) {
            return Ok(true);
        }
        let (left, right) = (value::elements(left), value::elements(right));
        if left.len() != right.len() {
            return Ok(false);
        }
        for (l, r) in left.iter().zip(right) {
            if !self.nested_values(l, r, region)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn nested_objects(
        &mut self,
        left: &ObjectRef,
        right: &ObjectRef,
        own: usize,
        region: Region,
    ) -> Result<bool> {
        let plan = self.plans.of(left)?;
        let kind = kind_of(plan)?;
        if matches!(kind, DAG | FREE_VAR)
            && let Some(bound) = self.is_bound(left, right)
        {
            return Ok(bound);
        }
        if plan.hooked || matches!(kind, DAG | FREE_VAR) {
            return self.with_stack(left, right, own, region);
        }
        if kind == UNIQUE || kind == CONST_TREE && left.ptr_eq(right) {
            return Ok(left.ptr_eq(right));
        }
        if self.meet(left, right, own) {
            return Ok(true);
        }
        for field in plan.fields.iter().copied() {
            // SAFETY: `left` keeps the object alive while the result is used.
            let l = unsafe { plan::lend(field, left) };
            // SAFETY: `right` keeps the object alive while the result is used.
            let r = unsafe { plan::lend(field, right) };
            let equal = match (l, r) {
                (Some(l), Some(r)) => self.nested_values(&l, &r, region.of(field))?,
                _ => self.nested_fields(field, left, right, region)?,
            };
            if !equal {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Compares two values whose parents do not change.
    #[inline(always)]
    fn nested_values(&mut self, left: &Any, right: &Any, region: Region) -> Result<bool> {
        if let Some(equal) = leaf(self.skip_tensor_content, left, right)? {
            return Ok(equal);
        }
        match (left.as_object(), right.as_object()) {
            (Some(left), Some(right)) => self.nested(left, right, BORROWED, region),
            _ => Ok(true),
        }
    }

    /// Compares the values of a field that may change or that only its getter can read.
    #[inline(never)]
    fn nested_fields(
        &mut self,
        field: Field,
        left: &ObjectRef,
        right: &ObjectRef,
        region: Region,
    ) -> Result<bool> {
        let (mut l, mut r) = (Any::NONE, Any::NONE);
        plan::read_into(field, left, &mut l)?;
        plan::read_into(field, right, &mut r)?;
        if let Some(equal) = leaf(self.skip_tensor_content, &l, &r)? {
            return Ok(equal);
        }
        match (l.as_object(), r.as_object()) {
            (Some(l), Some(r)) => self.nested(l, r, READ, region.of(field)),
            _ => Ok(true),
        }
    }

    /// Compares the content of two children of the topmost values on the stack. The parameters are those of
    /// `Equal::open`.
    fn open_child(
        &mut self,
        left: HeldObject,
        right: HeldObject,
        own: usize,
        outer: Region,
    ) -> Result<StepResult> {
        if self.traced || self.depth >= NESTED_MAX {
            return self.open(left, right, own, outer);
        }
        let equal = self.nested(&left, &right, own, self.region)?;
        self.region = outer;
        Ok(if equal { StepResult::Equal } else { StepResult::Unequal })
    }

    /// Compares the content of two children as `Equal::open_child` does, and takes over their references.
    fn open_values(&mut self, left: Any, right: Any, own: usize, outer: Region) -> Result<StepResult> {
        let (Some(left), Some(right)) = (left.into_object(), right.into_object()) else {
            self.region = outer;
            return Ok(StepResult::Equal);
        };
        self.open_child(HeldObject::owned(left), HeldObject::owned(right), own, outer)
    }

    /// Begins to compare the content of two objects of the same type. `own` is the reference count
    /// that each object has if no other code refers to it. `outer` is the definition region that
    /// becomes current again after the comparison of the two objects.
    fn open(&mut self, left: HeldObject, right: HeldObject, own: usize, outer: Region) -> Result<StepResult> {
        match left.type_index() {
            kTVMFFIArray => {
                if self.meet(&left, &right, own) {
                    self.region = outer;
                    return Ok(StepResult::Equal);
                }
                if !self.traced && value::elements(&left).len() != value::elements(&right).len() {
                    return Ok(StepResult::Unequal);
                }
                self.push(Content::Arrays { left, right }, outer);
                Ok(StepResult::Opened)
            }
            kTVMFFIList | kTVMFFIMap | kTVMFFIDict => self.open_containers(&left, &right, own, outer),
            _ => self.open_objects(left, right, own, outer),
        }
    }

    #[inline(always)]
    fn push(&mut self, content: Content, outer: Region) {
        self.stack.push(Frame { content, next: 0, region: self.region, outer });
    }

    /// Begins to compare two Lists, two Maps or two Dicts as `Equal::open` does.
    #[inline(never)]
    fn open_containers(
        &mut self,
        left: &ObjectRef,
        right: &ObjectRef,
        own: usize,
        outer: Region,
    ) -> Result<StepResult> {
        if self.meet(left, right, own) {
            self.region = outer;
            return Ok(StepResult::Equal);
        }
        let lengths;
        let content = if left.type_index() == kTVMFFIList {
            let snapshot = |list: &ObjectRef| value::list(list.clone())?.try_snapshot();
            let lists = (snapshot(left)?, snapshot(right)?);
            lengths = (lists.0.len(), lists.1.len());
            Content::Lists(Box::new(lists))
        } else {
            let (left, right) = (value::pairs(left)?, Mapping::of(right.clone())?);
            lengths = (left.len(), right.len());
            Content::Pairs(Box::new(Pairs { left, right, same_len: lengths.0 == lengths.1 }))
        };
        if !self.traced && lengths.0 != lengths.1 {
            return Ok(StepResult::Unequal);
        }
        self.push(content, outer);
        Ok(StepResult::Opened)
    }

    /// Records that the comparison of two objects has begun. Returns true if it had already begun, so that
    /// the two objects are assumed to be equal.
    #[inline]
    fn meet(&mut self, left: &ObjectRef, right: &ObjectRef, own: usize) -> bool {
        // A value without other references is not encountered again.
        let shared = left.use_count() > own && right.use_count() > own;
        if !shared && !is_watched(self.stack.len()) {
            return false;
        }
        let key = (value::address_of(left), value::address_of(right));
        if self.met.get(key) == Some(true) {
            return true;
        }
        self.met.set(key, true);
        self.log.push((left.clone(), right.clone()));
        false
    }

    #[inline]
    fn open_objects(
        &mut self,
        left: HeldObject,
        right: HeldObject,
        own: usize,
        outer: Region,
    ) -> Result<StepResult> {
        let plan = self.plans.of(&left)?;
        let kind = kind_of(plan)?;
        let decided = match kind {
            UNIQUE => Some(left.ptr_eq(&right)),
            CONST_TREE if left.ptr_eq(&right) => Some(true),
            DAG | FREE_VAR => self.is_bound(&left, &right),
            _ => None,
        };
        if decided == Some(false) {
            return Ok(StepResult::Unequal);
        }
        if decided.is_some() || self.meet(&left, &right, own) {
            self.region = outer;
            return Ok(StepResult::Equal);
        }
        if plan.hooked {
            return self.ask(left, right, plan, outer);
        }
        self.push(Content::Objects { left, right, plan }, outer);
        if kind == FREE_VAR {
            self.region = self.region.within_variable();
        }
        Ok(StepResult::Opened)
    }

    /// Returns true if two variables or DAG nodes are bound to each other, false if one of them is bound to
    /// another object, and `None` if neither is bound.
    fn is_bound(&self, left: &ObjectRef, right: &ObjectRef) -> Option<bool> {
        if let Some(at) = self.left_to_right.get(value::address_of(left)) {
            return Some(self.bound[at as usize].1.ptr_eq(right));
        }
        self.right_to_left.get(value::address_of(right)).map(|_| false)
    }

    fn bind(&mut self, left: &ObjectRef, right: &ObjectRef) {
        let at = self.bound.len() as u32;
        self.left_to_right.set(value::address_of(left), at);
        self.right_to_left.set(value::address_of(right), at);
        self.bound.push((left.clone(), right.clone()));
    }

    /// Returns the key under which the value for `key` is found in the other of the two Maps or
    /// Dicts being compared: the variable or DAG node bound to `key`, or `key` itself if it is not
    /// bound.
    fn counterpart(
        &self,
        key: &Any,
        table: &Table<usize, u32>,
        other: impl Fn(&(ObjectRef, ObjectRef)) -> &ObjectRef,
    ) -> Any {
        match key.as_object().and_then(|object| table.get(value::address_of(object))) {
            Some(at) => other(&self.bound[at as usize]).clone().into(),
            None => key.clone(),
        }
    }

    /// Continues the comparison of the topmost pair on the stack with the next children of the two
    /// values.
    fn advance(&mut self) -> Result<StepResult> {
        loop {
            let Some(frame) = self.stack.last_mut() else { return Ok(StepResult::Equal) };
            let at = frame.next;
            frame.next += 1;
            match &frame.content {
                Content::Arrays { left, right } => {
                    let (left, right) = (value::elements(left), value::elements(right));
                    let (Some(l), Some(r)) = (left.get(at), right.get(at)) else {
                        let lengths = (left.len(), right.len());
                        return Ok(self.end_of_sequence(lengths));
                    };
                    match leaf(self.skip_tensor_content, l, r)? {
                        Some(true) => continue,
                        Some(false) => return Ok(StepResult::Unequal),
                        None => {
                            let (Some(l), Some(r)) = (l.as_object(), r.as_object()) else { continue };
                            // SAFETY: the frame holds the Array, and is below the frame of its element.
                            let l = unsafe { HeldObject::borrowed(l) };
                            // SAFETY: the frame holds the Array, and is below the frame of its element.
                            let r = unsafe { HeldObject::borrowed(r) };
                            let own = l.own();
                            return self.open_child(l, r, own, self.region);
                        }
                    }
                }
                Content::Lists(lists) => {
                    let (left, right) = (&lists.0, &lists.1);
                    let (Some(l), Some(r)) = (left.get(at), right.get(at)) else {
                        let lengths = (left.len(), right.len());
                        return Ok(self.end_of_sequence(lengths));
                    };
                    match leaf(self.skip_tensor_content, l, r)? {
                        Some(true) => continue,
                        Some(false) => return Ok(StepResult::Unequal),
                        None => {
                            let (l, r) = (l.clone(), r.clone());
                            return self.open_values(l, r, READ + 1, self.region);
                        }
                    }
                }
                Content::Pairs(_) => match self.pair(at)? {
                    Some(step) => return Ok(step),
                    None => continue,
                },
                Content::Objects { left, right, plan } => {
                    let Some(field) = plan.field(at) else {
                        return Ok(self.end_of_object());
                    };
                    // SAFETY: the frame holds the object, and is below the frame of the value.
                    let lent = unsafe { plan::lend(field, left) };
                    // SAFETY: the frame holds the object, and is below the frame of the value.
                    if let (Some(l), Some(r)) = (lent, unsafe { plan::lend(field, right) }) {
                        match leaf(self.skip_tensor_content, &l, &r)? {
                            Some(true) => continue,
                            Some(false) => return Ok(StepResult::Unequal),
                            None => {
                                let (Some(l), Some(r)) = (l.as_object(), r.as_object()) else { continue };
                                // SAFETY: the frame holds the object, and is below the frame of the value.
                                let l = unsafe { HeldObject::borrowed(l) };
                                // SAFETY: the frame holds the object, and is below the frame of the value.
                                let r = unsafe { HeldObject::borrowed(r) };
                                let (own, outer) = (l.own(), self.region);
                                self.region = outer.of(field);
                                return self.open_child(l, r, own, outer);
                            }
                        }
                    }
                    let (mut l, mut r) = (Any::NONE, Any::NONE);
                    plan::read_into(field, left, &mut l)?;
                    plan::read_into(field, right, &mut r)?;
                    let outer = self.region;
                    match leaf(self.skip_tensor_content, &l, &r)? {
                        Some(true) => continue,
                        Some(false) => return Ok(StepResult::Unequal),
                        None => {
                            self.region = outer.of(field);
                            return self.open_values(l, r, READ, outer);
                        }
                    }
                }
            }
        }
    }

    /// Removes the topmost pair from the stack after its two values were found to be equal.
    #[inline]
    fn close(&mut self) {
        // Read and dropped in place. The frame was written word by word, and reading it back in larger pieces would
        // stall.
        if let Some(frame) = self.stack.last() {
            self.region = frame.outer;
            self.stack.truncate(self.stack.len() - 1);
        }
    }

    fn end_of_sequence(&mut self, (left, right): (usize, usize)) -> StepResult {
        if left == right {
            self.close();
            return StepResult::Equal;
        }
        self.stack.pop();
        let steps = if left > right {
            (Step::item(right), Step::missing_item(right))
        } else {
            (Step::missing_item(left), Step::item(left))
        };
        self.reverse.push(steps);
        StepResult::Unequal
    }

    #[inline]
    fn end_of_object(&mut self) -> StepResult {
        let Some(Frame { content: Content::Objects { plan, .. }, .. }) = self.stack.last() else {
            return StepResult::Equal;
        };
        if !matches!(plan.kind, DAG | FREE_VAR) {
            self.close();
            return StepResult::Equal;
        }
        match self.stack.pop() {
            Some(Frame { content: Content::Objects { left, right, plan }, region, outer, .. }) => {
                self.region = outer;
                self.compared(&left, &right, plan, region)
            }
            _ => StepResult::Equal,
        }
    }

    /// Completes the comparison of two objects whose fields are equal. Binds the two objects to each other if
    /// they are variables or DAG nodes. `region` is their definition region.
    fn compared(
        &mut self,
        left: &ObjectRef,
        right: &ObjectRef,
        plan: &'static Plan,
        region: Region,
    ) -> StepResult {
        match plan.kind {
            DAG => self.bind(left, right),
            FREE_VAR => {
                if region == Region::Use && !left.ptr_eq(right) {
                    return StepResult::Unequal;
                }
                self.bind(left, right);
            }
            _ => {}
        }
        StepResult::Equal
    }

    /// Looks up the key at index `at` of the left Map or Dict in the right one, and compares the
    /// values of the key. Returns `None` if these values are equal; the comparison then continues
    /// with the next key.
    fn pair(&mut self, at: usize) -> Result<Option<StepResult>> {
        let Some(Frame { content: Content::Pairs(pairs), .. }) = self.stack.last() else {
            return Ok(Some(StepResult::Equal));
        };
        let Pairs { left, right, same_len } = &**pairs;
        let Some((key, l)) = left.get(at) else {
            if *same_len {
                self.close();
                return Ok(Some(StepResult::Equal));
            }
            let steps = self.missing_pair()?;
            self.stack.pop();
            self.reverse.extend(steps);
            return Ok(Some(StepResult::Unequal));
        };
        let other = self.counterpart(key, &self.left_to_right, |bound| &bound.1);
        let Some(r) = right.get(&other)? else {
            let steps = (Step::key(key.clone()), Step::missing_key(other));
            self.stack.pop();
            self.reverse.push(steps);
            return Ok(Some(StepResult::Unequal));
        };
        let l = l.clone();
        Ok(match leaf(self.skip_tensor_content, &l, &r)? {
            Some(true) => None,
            Some(false) => Some(StepResult::Unequal),
            None => Some(self.open_values(l, r, READ, self.region)?),
        })
    }

    /// Returns the access path steps to a key that exists only in the right Map or Dict.
    fn missing_pair(&self) -> Result<Option<(Step, Step)>> {
        let Some(Frame { content: Content::Pairs(pairs), .. }) = self.stack.last() else {
            return Ok(None);
        };
        let Pairs { left, right, .. } = &**pairs;
        for (key, _) in right.pairs()? {
            let other = self.counterpart(&key, &self.right_to_left, |bound| &bound.0);
            if !left.iter().any(|(known, _)| *known == other) {
                return Ok(Some((Step::missing_key(other), Step::key(key))));
            }
        }
        Ok(None)
    }

    /// Compares two objects by calling the hook of their type.
    #[cold]
    fn ask(
        &mut self,
        left: HeldObject,
        right: HeldObject,
        plan: &'static Plan,
        outer: Region,
    ) -> Result<StepResult> {
        let Some(hook) = EQUAL.get(left.type_index())? else { return Ok(StepResult::Unequal) };
        let (region, steps) = (self.region, self.reverse.len());
        if plan.kind == FREE_VAR {
            self.region = region.within_variable();
        }
        let result = guard::lend(self, Equal::callback, |callback| hook_equal(&hook, &left, &right, callback))?;
        if !result.get::<bool>()? {
            return Ok(StepResult::Unequal);
        }
        self.reverse.truncate(steps);
        self.region = outer;
        Ok(self.compared(&left, &right, plan, region))
    }

    /// Callback that an `__s_equal__` hook receives, with the signature `(left, right, region kind, field
    /// name) -> bool`.
    fn callback(&mut self, args: Args<'_>) -> Result<Any> {
        let (left, right) = (args.get::<Any>(0)?, args.get::<Any>(1)?);
        let kind = if args.len() > 2 { args.get::<i64>(2)? } else { 0 };
        let (outer, met) = (self.region, self.log.len());
        self.region = outer.asked(kind);
        let equal = self.run(left, right, ROOT)?;
        self.region = outer;
        if !equal {
            // The hook may continue, so assumptions of equality made meanwhile are withdrawn.
            for (left, right) in self.log.drain(met..) {
                self.met.set((value::address_of(&left), value::address_of(&right)), false);
            }
            if self.traced {
                let name = if args.len() > 3 { args.get::<anyfn::String>(3)? } else { anyfn::String::from("") };
                self.reverse.push((Step::attr(&name), Step::attr(&name)));
            }
        }
        Any::new(equal)
    }
}

/// Compares two values unless their children must be compared. Returns `None` for two objects of
/// the same type that may have children.
#[inline]
fn leaf(skip_content: bool, left: &Any, right: &Any) -> Result<Option<bool>> {
    let index = left.type_index();
    if index != right.type_index() {
        let texts = value::is_string(index) && value::is_string(right.type_index())
            || value::is_bytes(index) && value::is_bytes(right.type_index());
        return Ok(Some(texts && value::bytes_of(left) == value::bytes_of(right)));
    }
    if !value::is_object(index) {
        if value::same_bits(left, right) {
            return Ok(Some(true));
        }
        let is_nan = |value: &Any| f64::from_bits(value::bits(value)).is_nan();
        return Ok(Some(index == kTVMFFIFloat && is_nan(left) && is_nan(right)));
    }
    match index {
        kTVMFFIStr | kTVMFFIBytes => Ok(Some(value::bytes_of(left) == value::bytes_of(right))),
        kTVMFFIBigInt | kTVMFFIShape | kTVMFFITensor => plain_object(skip_content, left, right).map(Some),
        _ => Ok(None),
    }
}

#[cold]
fn plain_object(skip_content: bool, left: &Any, right: &Any) -> Result<bool> {
    if value::same_bits(left, right) {
        return Ok(true);
    }
    match left.type_index() {
        kTVMFFIBigInt => Ok(value::words(left) == value::words(right)),
        kTVMFFIShape => Ok(*value::extents(left)? == *value::extents(right)?),
        _ => {
            let (left, right) = (left.get::<TensorView<'_>>()?, right.get::<TensorView<'_>>()?);
            if left.shape() != right.shape() || left.dtype() != right.dtype() {
                return Ok(false);
            }
            Ok(skip_content || *value::content(&left, "compare")? == *value::content(&right, "compare")?)
        }
    }
}

/// Calls a hook that compares two objects, such as `__s_equal__`, with the objects and a callback
/// that compares their children.
pub(crate) fn hook_equal(
    hook: &Hook,
    left: &ObjectRef,
    right: &ObjectRef,
    callback: &anyfn::PackedFunc,
) -> Result<Any> {
    use anyfn::abi::{TVMFFIAny, TVMFFIObjectHandle};
    use core::ffi::c_void;
    type Native =
        unsafe extern "C" fn(TVMFFIObjectHandle, TVMFFIObjectHandle, *const TVMFFIObjectHandle) -> TVMFFIAny;
    match hook {
        Hook::Function(function) => function.call((left, right, callback)),
        Hook::Native(code) => {
            // SAFETY: by the definition of the column, an address in it is such a function.
            let code = unsafe { core::mem::transmute::<*mut c_void, Native>(*code) };
            let callback = callback.as_object().as_handle();
            // SAFETY: called with valid objects and the address of a handle.
            let raw = unsafe { code(left.as_handle(), right.as_handle(), &callback) };
            // SAFETY: a hook returns an owned value.
            expected(unsafe { Any::from_raw(raw) })
        }
    }
}
