'use strict';
// Containers: Array, List, Map, Dict and Shape, with the protocols of JavaScript.

const { TAG } = require('./values.js');
const { OWNER } = require('./functions.js');

/** Key of the property that is true if a container returns integers as bigints. */
const BIG = Symbol('anyfn.big');

function createContainers(native, { ObjectRef, setClass }) {
  const functions = new Map();

  /** Calls a global function for a container. */
  function on(container, name, ...args) {
    let f = functions.get(name);
    if (!f) functions.set(name, (f = native.getGlobal(name)));
    return container[BIG] ? native.callBig(f[TAG], container, ...args) : f(container, ...args);
  }

  class Container extends ObjectRef {
    /** The same container, which returns integers as bigints. */
    get bigint() {
      const view = Object.create(Object.getPrototypeOf(this));
      view[TAG] = this[TAG];
      view[OWNER] = this;
      view[BIG] = true;
      return view;
    }

    get size() {
      return Number(on(this, `${this.typeKey}Size`));
    }
  }

  /** A sequence. */
  class Sequence extends Container {
    get length() {
      return this.size;
    }

    /** Returns the element at an index, or undefined. */
    at(index) {
      const at = Math.trunc(index) || 0;
      const size = this.size;
      const place = at < 0 ? at + size : at;
      return place >= 0 && place < size ? this._get(place) : undefined;
    }

    /** Returns the element at an index; a negative or too large index is an error. */
    get(index) {
      return this._get(index);
    }

    _get(index) {
      return on(this, `${this.typeKey}GetItem`, index);
    }

    *values() {
      for (let index = 0; index < this.size; index += 1) yield this._get(index);
    }

    *keys() {
      for (let index = 0; index < this.size; index += 1) yield index;
    }

    *entries() {
      for (let index = 0; index < this.size; index += 1) yield [index, this._get(index)];
    }

    [Symbol.iterator]() {
      return this.values();
    }

    forEach(f) {
      for (const [index, value] of this.entries()) f(value, index, this);
    }

    map(f) {
      return this.toArray().map((value, index) => f(value, index, this));
    }

    includes(value) {
      return on(this, `${this.typeKey}Contains`, value);
    }

    /** Returns the elements as a JavaScript array. */
    toArray() {
      return [...this];
    }

    toJSON() {
      return this.toArray();
    }
  }

  /** An immutable sequence, `ffi.Array`. */
  class ArrayRef extends Sequence {
    constructor(items = []) {
      return native.apply(native.getGlobal('ffi.Array')[TAG], Array.from(items), false);
    }
  }

  /** A mutable sequence, `ffi.List`. */
  class ListRef extends Sequence {
    constructor(items = []) {
      return native.apply(native.getGlobal('ffi.List')[TAG], Array.from(items), false);
    }

    set(index, value) {
      on(this, 'ffi.ListSetItem', index, value);
      return this;
    }

    push(...values) {
      for (const value of values) on(this, 'ffi.ListAppend', value);
      return this.size;
    }

    /** Removes and returns the last element, or undefined. */
    pop() {
      const { size } = this;
      return size ? on(this, 'ffi.ListPop', size - 1) : undefined;
    }

    clear() {
      on(this, 'ffi.ListClear');
    }
  }

  /** A mapping. */
  class Mapping extends Container {
    /** Returns the value of a key, or undefined. */
    get(key) {
      return this.has(key) ? on(this, `${this.typeKey}GetItem`, key) : undefined;
    }

    has(key) {
      return Number(on(this, `${this.typeKey}Count`, key)) > 0;
    }

    *entries() {
      if (!this.size) return;
      const iterate = on(this, `${this.typeKey}ForwardIterFunctor`);
      const step = this[BIG] ? iterate.bigint : iterate;
      // Commands of the iterator: 0 key, 1 value, 2 advance.
      do yield [step(0), step(1)];
      while (iterate(2));
    }

    *keys() {
      for (const [key] of this.entries()) yield key;
    }

    *values() {
      for (const [, value] of this.entries()) yield value;
    }

    [Symbol.iterator]() {
      return this.entries();
    }

    forEach(f) {
      for (const [key, value] of this.entries()) f(value, key, this);
    }

    /** Returns the entries as a JavaScript Map. */
    toMap() {
      return new Map(this.entries());
    }

    toJSON() {
      return Object.fromEntries([...this.entries()].map(([key, value]) => [String(key), value]));
    }
  }

  /** Returns keys and values in turn. */
  function flat(entries) {
    if (typeof entries !== 'object' || entries === null) throw new TypeError('expected entries, as in [[key, value]], or an object');
    const all = Array.from(Symbol.iterator in entries ? entries : Object.entries(entries));
    for (const entry of all) {
      if (!Array.isArray(entry) || entry.length !== 2) throw new TypeError('expected each entry to be an array of a key and a value');
    }
    return all.flat(1);
  }

  /** An immutable mapping, `ffi.Map`. */
  class MapRef extends Mapping {
    constructor(entries = []) {
      return native.apply(native.getGlobal('ffi.Map')[TAG], flat(entries), false);
    }
  }

  /** A mutable mapping, `ffi.Dict`. */
  class DictRef extends Mapping {
    constructor(entries = []) {
      return native.apply(native.getGlobal('ffi.Dict')[TAG], flat(entries), false);
    }

    set(key, value) {
      on(this, 'ffi.DictSetItem', key, value);
      return this;
    }

    /** Removes a key. Returns true if it existed. */
    delete(key) {
      const had = this.has(key);
      if (had) on(this, 'ffi.DictErase', key);
      return had;
    }

    clear() {
      on(this, 'ffi.DictClear');
    }
  }

  /** The extents of a tensor, `ffi.Shape`. */
  class Shape extends ObjectRef {
    constructor(extents = []) {
      return native.apply(native.getGlobal('ffi.Shape')[TAG], Array.from(extents), false);
    }

    get length() {
      return this.toArray().length;
    }

    at(index) {
      return this.toArray().at(index);
    }

    /** Returns the extents as a JavaScript array. */
    toArray() {
      return native.shape(this[TAG]);
    }

    toJSON() {
      return this.toArray();
    }

    [Symbol.iterator]() {
      return this.toArray()[Symbol.iterator]();
    }
  }

  setClass(69, 'ffi.Shape', Shape);
  setClass(71, 'ffi.Array', ArrayRef);
  setClass(72, 'ffi.Map', MapRef);
  setClass(75, 'ffi.List', ListRef);
  setClass(76, 'ffi.Dict', DictRef);

  return { ArrayRef, ListRef, MapRef, DictRef, Shape };
}

module.exports = { createContainers };
