//! The native objects that JavaScript objects of an environment refer to.
//!
//! A JavaScript object contains a number, the *slot* of its native object. The table maps slots to native objects, and native
//! objects to the JavaScript objects that represent them, so that an object keeps its identity. It holds JavaScript objects by
//! weak references. These are cleared by the garbage collector at once, while finalizers wait for the event loop; so the table
//! is swept for cleared references as it grows, and a loop that never returns to the event loop does not accumulate native objects.
//!
//! The slot of a function that JavaScript has looked up by name also owns its [`Callee`](crate::callee::Callee). It outlives the slot if
//! the function is disposed of, because the JavaScript function still refers to it.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use anyfn::ObjectRef;
use anyfn::abi::TVMFFIObject;
use rustc_hash::FxHasher;

use crate::callee::OwnedCallee;
use crate::env::{Env, Ref, Value};

/// Number of new slots after which the table is swept for the first time.
const SWEEP_MIN: usize = 4096;
/// Number of slots that one step of a sweep visits, in a handle scope of its own.
const STEP: usize = 4096;
/// Number of low bits of a slot's number that contain its index; the others contain its generation.
const INDEX_BITS: u32 = 30;
const GENERATION_MAX: u32 = (1 << 22) - 1;

struct Slot {
    object: Option<ObjectRef>,
    /// Weak reference to the JavaScript object.
    wrapper: Ref,
    generation: u32,
    /// Number of calls in progress that use the object as their function.
    pins: u32,
    /// Number of bytes of the object that were reported to the garbage collector.
    bytes: i64,
    /// Target of the JavaScript object, if it is a function that calls this object directly.
    callee: Option<OwnedCallee>,
}

/// Target of a JavaScript function whose slot was released while the function exists.
struct Retired {
    callee: OwnedCallee,
    /// Weak reference to the JavaScript function.
    wrapper: Ref,
}

/// Table of slots.
#[derive(Default)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
    by_address: HashMap<usize, u32, BuildHasherDefault<FxHasher>>,
    /// Number of slots made since the last complete sweep.
    fresh: usize,
    /// Next index that the sweep visits.
    cursor: usize,
    retired: Vec<Retired>,
    /// Next index in `retired` that the sweep visits.
    retired_cursor: usize,
}

/// Content of a released slot, to be dropped when the table is no longer borrowed: a deleter may use the table.
pub(crate) struct Released {
    _object: Option<ObjectRef>,
    bytes: i64,
}

impl Slots {
    /// Returns the object of a slot, or `None` if the slot was released.
    #[inline]
    pub(crate) fn get(&self, number: f64) -> Option<(usize, &ObjectRef)> {
        // A number that is no slot is no integer, out of range, or has another generation. Conversions of signed integers are the
        // cheaper ones.
        let signed = number as i64;
        if signed as f64 != number || signed < 0 {
            return None;
        }
        let number = signed as u64;
        let index = (number & ((1 << INDEX_BITS) - 1)) as usize;
        let slot = self.slots.get(index)?;
        let object = slot.object.as_ref()?;
        (u64::from(slot.generation) == number >> INDEX_BITS).then_some((index, object))
    }

    /// Keeps the object of a slot alive during a call.
    #[inline]
    pub(crate) fn pin(&mut self, index: usize) {
        self.slots[index].pins += 1;
    }

    /// Ends the effect of [`Slots::pin`]. Returns what the slot held if it was released meanwhile.
    #[inline]
    pub(crate) fn unpin(&mut self, index: usize) -> Option<Released> {
        let slot = &mut self.slots[index];
        slot.pins -= 1;
        if slot.pins == 0 && slot.wrapper.is_none() { Some(self.clear(index)) } else { None }
    }

    /// Returns the JavaScript object that represents a native object.
    pub(crate) fn wrapper_of(&self, env: Env, object: *mut TVMFFIObject) -> Option<Value> {
        let index = *self.by_address.get(&object.addr())?;
        env.get(self.slots[index as usize].wrapper)
    }

    /// Makes a slot for an object. Returns its index and its number.
    pub(crate) fn add(&mut self, object: ObjectRef, bytes: i64, callee: Option<OwnedCallee>) -> (usize, f64) {
        self.fresh += 1;
        let slot = Slot { object: Some(object), wrapper: Ref::NONE, generation: 0, pins: 0, bytes, callee };
        let index = match self.free.pop() {
            Some(index) => {
                let index = index as usize;
                let generation = self.slots[index].generation;
                self.slots[index] = Slot { generation, ..slot };
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        let number = u64::from(self.slots[index].generation) << INDEX_BITS | index as u64;
        (index, number as f64)
    }

    /// Sets the JavaScript object of a slot.
    pub(crate) fn set_wrapper(&mut self, index: usize, wrapper: Ref) {
        let slot = &mut self.slots[index];
        slot.wrapper = wrapper;
        if let Some(object) = &slot.object {
            self.by_address.insert(object.as_handle().addr(), index as u32);
        }
    }

    /// Releases a slot. If calls use it, they release it when they end.
    pub(crate) fn release(&mut self, env: Env, index: usize) -> Option<Released> {
        let slot = &mut self.slots[index];
        let wrapper = std::mem::replace(&mut slot.wrapper, Ref::NONE);
        match (slot.callee.take(), &slot.object) {
            (Some(callee), Some(object)) => {
                callee.release(object);
                self.retired.push(Retired { callee, wrapper });
            }
            _ => env.delete(wrapper),
        }
        if self.slots[index].pins > 0 { None } else { Some(self.clear(index)) }
    }

    fn clear(&mut self, index: usize) -> Released {
        let slot = &mut self.slots[index];
        let object = slot.object.take();
        if let Some(object) = &object {
            let address = object.as_handle().addr();
            if self.by_address.get(&address) == Some(&(index as u32)) {
                self.by_address.remove(&address);
            }
        }
        // A slot is not used again when all its numbers were used.
        if slot.generation < GENERATION_MAX {
            slot.generation += 1;
            self.free.push(index as u32);
        }
        Released { _object: object, bytes: slot.bytes }
    }

    /// Returns true if many slots were made since the last sweep.
    pub(crate) fn is_sweep_due(&self) -> bool {
        self.fresh > SWEEP_MIN.max((self.live() + self.retired.len()) / 2)
    }

    /// Returns the number of slots in use.
    pub(crate) fn live(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Releases the slots whose JavaScript objects are gone, among at most `limit` slots. A sweep continues where the last one ended.
    pub(crate) fn sweep(&mut self, env: Env, limit: usize) -> Vec<Released> {
        let mut released = Vec::new();
        let mut left = limit.min(self.slots.len());
        if left == self.slots.len() {
            self.fresh = 0;
        }
        while left > 0 {
            let step = left.min(STEP);
            let swept = env.scoped(|| {
                for _ in 0..step {
                    if self.cursor >= self.slots.len() {
                        (self.cursor, self.fresh) = (0, 0);
                    }
                    let index = self.cursor;
                    self.cursor += 1;
                    let slot = &self.slots[index];
                    if !slot.wrapper.is_none() && env.get(slot.wrapper).is_none() {
                        released.extend(self.release(env, index));
                    }
                }
            });
            if swept.is_err() {
                break;
            }
            left -= step;
        }
        self.sweep_retired(env, limit);
        released
    }

    /// Frees what JavaScript functions have called that are gone, among at most `limit` of them.
    fn sweep_retired(&mut self, env: Env, limit: usize) {
        let mut left = limit.min(self.retired.len());
        while left > 0 {
            let step = left.min(STEP);
            let swept = env.scoped(|| {
                for _ in 0..step {
                    if self.retired_cursor >= self.retired.len() {
                        self.retired_cursor = 0;
                    }
                    let retired = &self.retired[self.retired_cursor];
                    if retired.callee.is_in_use() || env.get(retired.wrapper).is_some() {
                        self.retired_cursor += 1;
                    } else {
                        env.delete(self.retired.swap_remove(self.retired_cursor).wrapper);
                    }
                }
            });
            if swept.is_err() {
                break;
            }
            left -= step;
        }
    }

    /// Takes all objects out of the table, for an environment that ends.
    pub(crate) fn take_all(&mut self) -> Vec<ObjectRef> {
        self.by_address.clear();
        let take = |slot: &mut Slot| {
            let object = slot.object.take()?;
            if let Some(callee) = &slot.callee {
                callee.release(&object);
            }
            Some(object)
        };
        self.slots.iter_mut().filter_map(take).collect()
    }
}

/// Drops what slots held, and tells the garbage collector.
pub(crate) fn drop_released(env: Env, released: impl IntoIterator<Item = Released>) {
    let bytes: i64 = released.into_iter().map(|released| released.bytes).sum();
    if bytes != 0 {
        env.adjust_memory(-bytes);
    }
}
