'use strict';
// The native objects that JavaScript objects refer to. A JavaScript object contains a number, the *slot* of its native object. Slots
// differ between instances of the module, and from the integers that the addon uses, so that an object of another one is an error.

// Number of new slots after which the table is swept for the first time.
const SWEEP_MIN = 4096;

let last = 0.5;

class Slots {
  constructor(release) {
    this.release_ = release;
    /** Slot -> handle and weak reference to the JavaScript object. */
    this.entries = new Map();
    /** Handle -> slot. */
    this.byHandle = new Map();
    this.fresh = 0;
    this.rest = undefined;
  }

  get live() {
    return this.entries.size;
  }

  has(slot) {
    return this.entries.has(slot);
  }

  /** Returns the handle of a slot. */
  handle(slot) {
    const entry = this.entries.get(slot);
    if (entry === undefined) throw new Error('this object was disposed of, or belongs to another thread');
    return entry.handle;
  }

  /** Returns the JavaScript object of a native object, or undefined. */
  wrapperOf(handle) {
    const slot = this.byHandle.get(handle);
    return slot === undefined ? undefined : this.entries.get(slot).wrapper?.deref();
  }

  /** Makes a slot that owns a reference to an object, and the JavaScript object of it. */
  add(handle, make) {
    if (this.fresh > Math.max(SWEEP_MIN, this.live / 2)) this.sweep(Infinity);
    this.fresh += 1;
    last += 1;
    const slot = last;
    const entry = { handle, wrapper: undefined };
    this.entries.set(slot, entry);
    try {
      const wrapper = make(slot);
      entry.wrapper = new WeakRef(wrapper);
      this.byHandle.set(handle, slot);
      return wrapper;
    } catch (error) {
      this.release(slot);
      throw error;
    }
  }

  /** Releases a slot. Does nothing if it was released. */
  release(slot) {
    const entry = this.entries.get(slot);
    if (entry === undefined) return;
    this.entries.delete(slot);
    if (this.byHandle.get(entry.handle) === slot) this.byHandle.delete(entry.handle);
    this.release_(entry.handle);
  }

  /** Releases the slots whose JavaScript objects are gone, among at most `limit`. A sweep continues where the last one ended. */
  sweep(limit) {
    if (limit >= this.live) this.rest = undefined;
    this.rest ??= this.entries[Symbol.iterator]();
    for (let left = limit; left > 0; left -= 1) {
      const { value, done } = this.rest.next();
      if (done) {
        this.rest = undefined;
        this.fresh = 0;
        return;
      }
      const [slot, entry] = value;
      if (entry.wrapper !== undefined && entry.wrapper.deref() === undefined) this.release(slot);
    }
  }
}

module.exports = { Slots };
