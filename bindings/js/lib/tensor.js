'use strict';
// Tensors, and their memory as typed arrays.

const { TAG, DType, Device } = require('./values.js');
const { OWNER } = require('./functions.js');

const INFO = Symbol('anyfn.info');
const DATA = Symbol('anyfn.data');
// Types of devices.
const [CPU, WEBGPU] = [1, 15];
// Typed arrays by code and bits of the data type. Elements that JavaScript has no type for are shown by their bits.
const ARRAYS = {
  '0:8': Int8Array, '0:16': Int16Array, '0:32': Int32Array, '0:64': BigInt64Array,
  '1:8': Uint8Array, '1:16': Uint16Array, '1:32': Uint32Array, '1:64': BigUint64Array,
  '2:16': Uint16Array, '2:32': Float32Array, '2:64': Float64Array, '4:16': Uint16Array, '6:8': Uint8Array,
};

/** Returns the class of the typed array that shows elements of a type. */
function arrayClass({ code, bits, lanes }) {
  return (lanes === 1 && ARRAYS[`${code}:${bits}`]) || Uint8Array;
}

/** Throws if a number does not fit into a type of integers, where a typed array would keep its lowest bits. Fractions are cut off. */
function checkRange(elements, type) {
  const { code, bits } = type;
  if (code !== 0 && code !== 1) return;
  const [low, high] = code === 0 ? [-(2 ** (bits - 1)), 2 ** (bits - 1)] : [0, 2 ** bits];
  elements.forEach((element, index) => {
    // A bigint is compared exactly.
    const value = typeof element === 'bigint' ? element : Math.trunc(Number(element));
    if (!(value >= low && value < high)) throw new RangeError(`tensor: the number ${String(element)} at index ${index} does not fit into ${type}`);
  });
}

function createTensors(native, { ObjectRef, setClass }) {
  const call = (name, ...args) => native.getGlobal(name)(...args);
  const isAsync = (tensor) => tensor.device.type === WEBGPU && native.readTensor !== undefined;

  /** A tensor. */
  class Tensor extends ObjectRef {
    constructor() {
      throw new TypeError('Tensor has no constructor; use tensor(array, shape) or empty(shape)');
    }

    get [INFO]() {
      const info = native.tensorInfo(this[TAG]);
      Object.defineProperty(this, INFO, { value: info, configurable: true });
      return info;
    }

    get shape() {
      return [...this[INFO][0]];
    }

    get dtype() {
      return this[INFO][1];
    }

    get device() {
      return this[INFO][2];
    }

    /** Strides in elements, or null if the tensor is compact. */
    get strides() {
      const strides = this[INFO][3];
      return strides && [...strides];
    }

    get isContiguous() {
      return this[INFO][5];
    }

    get isReadOnly() {
      return this[INFO][6];
    }

    /** Number of elements. */
    get size() {
      return this[INFO][0].reduce((size, extent) => size * extent, 1);
    }

    /**
     * The memory of the tensor as a typed array, without a copy. The tensor must be contiguous and on the CPU. Elements of types
     * that JavaScript lacks are shown as integers of their size (float16, bfloat16) or as bytes. The array of a read-only tensor is
     * a copy. In a page, the array is detached when the memory of the runtime grows; the property is then another array.
     */
    get data() {
      const known = this[DATA];
      if (known !== undefined && known.buffer.byteLength > 0) return known;
      const buffer = native.tensorBuffer(this[TAG]);
      if (buffer === undefined) throw new Error('this host does not allow buffers of native memory; use toBytes()');
      const cls = arrayClass(this.dtype);
      let array;
      if (ArrayBuffer.isView(buffer)) {
        array = new cls(buffer.buffer, buffer.byteOffset, buffer.byteLength / cls.BYTES_PER_ELEMENT);
        // The memory stays in use as long as the view.
        array[OWNER] = buffer;
      } else array = new cls(buffer);
      Object.defineProperty(this, DATA, { value: array, configurable: true });
      return array;
    }

    /** Returns the elements as nested JavaScript arrays; for a tensor on a WebGPU device, a promise of them. */
    toArray() {
      if (isAsync(this)) return this.to('cpu').then((here) => here.toArray());
      const { data } = this.to(Device.of('cpu')).contiguous();
      if (data.length !== this.size) throw new TypeError(`elements of type ${this.dtype} are no numbers; use data or toBytes()`);
      const elements = Array.from(data);
      if (this.dtype.toString() === 'bool') elements.forEach((value, index) => (elements[index] = value !== 0));
      const { shape } = this;
      const nest = (dimension, from, count) => {
        if (dimension === shape.length) return elements[from];
        const step = shape[dimension] === 0 ? 0 : count / shape[dimension];
        return Array.from({ length: shape[dimension] }, (_, index) => nest(dimension + 1, from + index * step, step));
      };
      return nest(0, 0, elements.length);
    }

    /** Returns a copy of the content as bytes; for a tensor on a WebGPU device, a promise of it. */
    toBytes() {
      if (isAsync(this)) return this.to('cpu').then((here) => here.toBytes());
      return call('anyfn.tensor_to_bytes', this);
    }

    reshape(shape) {
      return call('anyfn.tensor_reshape', this, shapeOf(shape));
    }

    contiguous() {
      return this.isContiguous ? this : call('anyfn.tensor_contiguous', this);
    }

    /**
     * Returns the tensor on a device; a copy unless it is there already. For a tensor on a WebGPU device, returns a promise of a tensor, which
     * contains what the work that was queued before has written.
     */
    to(device) {
      const target = Device.from(device);
      if (!isAsync(this)) return this.device.equals(target) ? this : call('anyfn.tensor_to_device', this, target);
      if (this.device.equals(target)) return Promise.resolve(this);
      const { shape, dtype } = this;
      const here = native.readTensor(this[TAG], () => empty(shape, dtype));
      return target.type === CPU ? here : here.then((copy) => copy.to(target));
    }

    toString() {
      return `Tensor(shape=[${this.shape.join(', ')}], dtype=${this.dtype}, device=${this.device})`;
    }
  }
  setClass(70, 'ffi.Tensor', Tensor);

  /** Returns the options that take the place of shape and data type: `{shape, dtype, device}`. */
  function optionsOf(given, dtype, device) {
    const isOptions = typeof given === 'object' && given !== null && given[TAG] === undefined && typeof given[Symbol.iterator] !== 'function';
    if (!isOptions) return { dtype, device };
    const wrong = Object.keys(given).find((name) => !['shape', 'dtype', 'device'].includes(name));
    if (wrong !== undefined) throw new TypeError(`expected the options shape, dtype and device, got '${wrong}'`);
    return given;
  }

  const shapeOf = (shape) => native.apply(native.getGlobal('ffi.Shape')[TAG], Array.from(shape), false);
  const dtypeOf = (dtype) => (typeof dtype === 'string' ? DType.parse(dtype) : dtype);

  /** Makes a tensor with a copy of the content of a typed array, or of nested arrays of numbers. Options may take the place of the shape. */
  function tensor(content, given, givenDtype, givenDevice) {
    const options = optionsOf(given, givenDtype, givenDevice);
    const made = tensorHere(content, options === given ? options.shape : given, options.dtype);
    const device = options.device === undefined ? made.device : Device.from(options.device);
    if (made.device.equals(device)) return made;
    try {
      return made.to(device);
    } finally {
      made.dispose();
    }
  }

  function tensorHere(content, shape, dtype) {
    if (Array.isArray(content) || typeof content === 'number') {
      const found = [];
      for (let level = content; Array.isArray(level); level = level[0]) found.push(level.length);
      const check = (level, depth) => {
        const fits = depth < found.length ? Array.isArray(level) && level.length === found[depth] : !Array.isArray(level);
        if (!fits) throw new TypeError('tensor: the nested arrays differ in length');
        if (depth < found.length) for (const element of level) check(element, depth + 1);
      };
      check(content, 0);
      const elements = [content].flat(Infinity);
      const type = dtypeOf(dtype ?? 'float32');
      const cls = ARRAYS[`${type.code}:${type.bits}`];
      if (!cls || type.bits === 16 && type.code !== 0 && type.code !== 1) {
        throw new TypeError(`tensor: numbers cannot be converted to ${type}; pass a typed array`);
      }
      const big = cls === BigInt64Array || cls === BigUint64Array;
      checkRange(elements, type);
      return native.tensorMake(cls.from(elements, big ? BigInt : Number), shape ?? found, type);
    }
    if (!ArrayBuffer.isView(content) || content instanceof DataView) {
      throw new TypeError('tensor: expected a typed array or nested arrays of numbers');
    }
    // As an argument, an instance of Bytes or Buffer represents bytes, which have no data type.
    const type = dtype ?? (content instanceof Uint8Array ? 'uint8' : undefined);
    return native.tensorMake(content, shape ?? [content.length], type === undefined ? undefined : dtypeOf(type));
  }

  /** Makes a tensor of zeros. Options may take the place of the data type. */
  function empty(shape, given, givenDevice) {
    const { dtype = 'float32', device = 'cpu' } = optionsOf(given, given, givenDevice);
    return call('anyfn.tensor_zeros', shapeOf(shape), dtypeOf(dtype), Device.from(device));
  }

  return { Tensor, tensor, empty };
}

module.exports = { createTensors };
