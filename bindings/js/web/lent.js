'use strict';
// The typed arrays that calls in progress have lent to native code, and the copies of their memory in the memory of the module.
//
// Arrays that overlap share one copy, a *region*. The regions of a call are sorted, so that a call may lend many arrays.

const { DL_TENSOR, setTensor } = require('./memory.js');

/** Throws if an array was detached or resized, else returns the bytes of a region. */
function bytesOf({ buffer, start, end }) {
  if (buffer.byteLength < end) throw new TypeError('a typed array was detached or resized while it was lent to native code');
  return new Uint8Array(buffer, start, end - start);
}

class Lent {
  /** `memory()` returns the memory of the module. */
  constructor(memory) {
    this.memory = memory;
    /** The arrays with the tensors that describe them, in the order in which they were lent. */
    this.list = [];
    /** Address of a tensor -> the array. */
    this.byTensor = new Map();
    /** Buffer -> its regions in the innermost call, sorted by their start, which do not overlap; undefined if there are none. */
    this.regions = undefined;
  }

  get length() {
    return this.list.length;
  }

  /** Returns the array that a tensor describes, or undefined. */
  at(tensor) {
    return this.byTensor.get(tensor);
  }

  /** Begins a call. Returns what `leave` needs. */
  enter() {
    const { regions } = this;
    this.regions = undefined;
    return regions;
  }

  /** Ends a call, after its arrays were given back. */
  leave(regions) {
    this.regions = regions;
  }

  /** Stores a tensor that describes the memory of an array, or a copy of it, and returns its address. */
  lend(array, code, bits) {
    const memory = this.memory();
    const tensor = memory.push(DL_TENSOR + 8);
    const one = { tensor, array, region: undefined };
    let data = array.byteOffset;
    if (array.buffer !== memory.memory.buffer) {
      one.region = this.regionFor(array);
      one.region.ones.push(one);
      data = one.region.address + array.byteOffset - one.region.start;
    }
    setTensor(memory, tensor, data, code, bits, array.length);
    this.list.push(one);
    this.byTensor.set(tensor, one);
    return tensor;
  }

  /** Returns a region for an array: one for all overlapping arrays of a call. */
  regionFor({ buffer, byteOffset, byteLength }) {
    const memory = this.memory();
    let [start, end] = [byteOffset, byteOffset + byteLength];
    this.regions ??= new Map();
    let sorted = this.regions.get(buffer);
    if (sorted === undefined) this.regions.set(buffer, (sorted = []));
    // The first region that ends behind the start of the array.
    let [low, high] = [0, sorted.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle].end > start) high = middle;
      else low = middle + 1;
    }
    let next = low;
    while (next < sorted.length && sorted[next].start < end) next += 1;
    const joined = sorted.slice(low, next);
    if (joined.length === 1 && joined[0].start <= start && end <= joined[0].end) return joined[0];
    for (const region of joined) {
      start = Math.min(start, region.start);
      end = Math.max(end, region.end);
    }
    // The address keeps the alignment that the elements have in their buffer.
    const skip = start % 16;
    const block = memory.reserve(end - start + skip);
    const region = { buffer, start, end, address: block + skip, block, size: end - start + skip, ones: joined.flatMap(({ ones }) => ones) };
    for (const one of region.ones) {
      one.region = region;
      memory.u32[one.tensor >>> 2] = region.address + one.array.byteOffset - start;
    }
    sorted.splice(low, joined.length, region);
    for (const old of joined) memory.free(old.block, old.size);
    return region;
  }

  /** Returns the regions of the arrays from one on. */
  regionsFrom(mark) {
    const found = new Set();
    for (let index = mark; index < this.list.length; index += 1) {
      const { region } = this.list[index];
      if (region !== undefined) found.add(region);
    }
    return found;
  }

  /** Copies the arrays of calls to the memory of the module. */
  copyIn(mark) {
    const memory = this.memory();
    for (const region of this.regionsFrom(mark)) memory.u8.set(bytesOf(region), region.address);
  }

  /** Copies what native code has written back to the arrays. */
  copyOut(mark) {
    const memory = this.memory();
    for (const region of this.regionsFrom(mark)) {
      const { address, start, end } = region;
      bytesOf(region).set(memory.u8.subarray(address, address + end - start));
    }
  }

  /** Ends the lending of the arrays from one on. */
  giveBack(mark) {
    if (this.list.length === mark) return;
    const regions = this.regionsFrom(mark);
    for (const { tensor } of this.list.splice(mark)) this.byTensor.delete(tensor);
    for (const { block, size } of regions) this.memory().free(block, size);
  }
}

module.exports = { Lent };
