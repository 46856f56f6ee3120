'use strict';
// Values that are not native objects: data types, devices, opaque pointers, bytes, and numbers that must be floats.

/** Key of the property that contains the slot of a native object, or the negative tag of a value. */
const TAG = Symbol('anyfn.tag');
/** Key of the property that contains the content of a tagged value. */
const CONTENT = Symbol('anyfn.content');
const INSPECT = Symbol.for('nodejs.util.inspect.custom');

// The addon defines the tags with the same numbers (`src/lower.rs`).
const FLOAT = -1;
const DTYPE = -2;
const DEVICE = -3;
const OPAQUE = -4;

/** A value of eight bytes. */
class Word {
  constructor(content) {
    this[CONTENT] = content;
    Object.freeze(this);
  }

  equals(other) {
    return other instanceof Word && other[TAG] === this[TAG] && other[CONTENT] === this[CONTENT];
  }

  toJSON() {
    return this.toString();
  }

  [INSPECT]() {
    return `${this.constructor.name}(${this})`;
  }
}

/** A number that is passed as a float even if it is an integer. */
class Float {
  constructor(value) {
    this[CONTENT] = Number(value);
    Object.freeze(this);
  }

  valueOf() {
    return this[CONTENT];
  }

  [INSPECT]() {
    return `Float(${this[CONTENT]})`;
  }
}
Float.prototype[TAG] = FLOAT;

// Functions of the native code, which the package sets.
const runtime = { parseDType: undefined, dtypeText: undefined };

/** The type of an element of a tensor. */
class DType extends Word {
  /** Parses a name such as `float32`, `int8x16`, `bool` or `float8_e4m3fn`. */
  static parse(text) {
    return runtime.parseDType(text);
  }

  get code() {
    return Number(this[CONTENT] & 0xffn);
  }

  get bits() {
    return Number((this[CONTENT] >> 8n) & 0xffn);
  }

  get lanes() {
    return Number((this[CONTENT] >> 16n) & 0xffffn);
  }

  toString() {
    return runtime.dtypeText(this);
  }
}
DType.prototype[TAG] = DTYPE;

const DEVICES = {
  cpu: 1, cuda: 2, cuda_host: 3, opencl: 4, vulkan: 7, metal: 8, vpi: 9, rocm: 10, rocm_host: 11, ext_dev: 12,
  cuda_managed: 13, oneapi: 14, webgpu: 15, hexagon: 16, maia: 17, trn: 18,
};

/** A device: its type and its index. */
class Device extends Word {
  /** Returns a device, or the one that a text such as `webgpu:0` names. */
  static from(device) {
    if (device instanceof Device) return device;
    const [, name, index = 0] = /^(\w+?)(?::(\d{1,9}))?$/.exec(String(device)) ?? [];
    if (name === undefined || !(name in DEVICES)) {
      throw new TypeError(`expected a device such as anyfn.cpu() or 'cpu:0', got ${typeof device === 'string' ? `'${device}'` : typeof device}`);
    }
    return Device.of(name, Number(index));
  }

  static of(type, index = 0) {
    const number = typeof type === 'number' ? type : DEVICES[type];
    if (!Number.isInteger(number)) throw new TypeError(`unknown device '${type}'`);
    return new Device(BigInt.asUintN(32, BigInt(number)) | (BigInt.asUintN(32, BigInt(index)) << 32n));
  }

  get type() {
    return Number(BigInt.asIntN(32, this[CONTENT]));
  }

  get index() {
    return Number(BigInt.asIntN(32, this[CONTENT] >> 32n));
  }

  get name() {
    return Object.keys(DEVICES).find((name) => DEVICES[name] === this.type) ?? `device${this.type}`;
  }

  toString() {
    return `${this.name}:${this.index}`;
  }
}
Device.prototype[TAG] = DEVICE;

/** An address that native code passes on. */
class OpaquePointer extends Word {
  get address() {
    return this[CONTENT];
  }

  toString() {
    return `0x${this[CONTENT].toString(16)}`;
  }
}
OpaquePointer.prototype[TAG] = OPAQUE;

/** A byte string. Other typed arrays are tensors. */
class Bytes extends Uint8Array {}

module.exports = { TAG, CONTENT, INSPECT, Word, Float, DType, Device, OpaquePointer, Bytes, DEVICES, runtime };
