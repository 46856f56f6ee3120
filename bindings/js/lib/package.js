'use strict';
// The package: what it exports, over functions that native code provides. In Node.js these are the functions of the addon.
//
// Files, each of which uses only those before it: `values`, `errors`, `functions`, `objects`, `containers`, `tensor`, `module`.

const values = require('./values.js');
const { AnyfnError, errors, registerError, makeError, describe } = require('./errors.js');
const { createFunctions } = require('./functions.js');
const { createObjects } = require('./objects.js');
const { createContainers } = require('./containers.js');
const { createTensors } = require('./tensor.js');
const { createModules } = require('./module.js');

const { TAG, CONTENT, DType, Device, OpaquePointer, Bytes, Float, DEVICES, runtime } = values;
const [ERROR, FUNCTION, DTYPE, DEVICE] = [67, 68, 5, 6];
// Number of objects that a sweep visits at least after a garbage collection.
const SWEEP_MIN = 20000;

function createPackage(native) {
  const functions = createFunctions(native);
  const objects = createObjects(native);
  const containers = createContainers(native, objects);
  const tensors = createTensors(native, objects);
  const modules = createModules(native, objects);
  const { ArrayRef, MapRef, Shape } = containers;

  const words = new Map();
  function wrap(slot, index, direct) {
    const above = native.above?.() ?? wrap;
    if (index === FUNCTION) return functions.wrapFunction(slot, direct);
    if (index === ERROR) return makeError(slot, native.errorTexts(slot), native.errorCause(slot), above);
    return objects.wrapObject(slot, index);
  }

  function word(index, content) {
    if (index !== DTYPE && index !== DEVICE) return new OpaquePointer(content);
    const key = `${index}:${content}`;
    let known = words.get(key);
    if (!known) words.set(key, (known = index === DTYPE ? new DType(content) : new Device(content)));
    return known;
  }

  const isPlain = (value) => {
    const prototype = Object.getPrototypeOf(value);
    return prototype === null || Object.getPrototypeOf(prototype) === null;
  };
  const converting = new Set();

  /** Converts a JavaScript collection to a native container. */
  function convertObject(value) {
    if (converting.has(value)) throw new TypeError('cannot convert a collection that contains itself');
    converting.add(value);
    try {
      if (Array.isArray(value)) return new ArrayRef(value);
      if (value instanceof Map) return new MapRef(value);
      if (typeof value.then === 'function') {
        throw new TypeError('a promise cannot be converted to a native value; await it first');
      }
      if (isPlain(value)) return new MapRef(Object.entries(value));
    } finally {
      converting.delete(value);
    }
    const name = value.constructor?.name ?? 'this class';
    throw new TypeError(`an object of class ${name} cannot be converted to a native value`);
  }

  Object.assign(runtime, { parseDType: native.parseDType, dtypeText: native.dtypeText });
  native.init({
    tag: TAG,
    content: CONTENT,
    wrap,
    word,
    bytes: (buffer) => new Bytes(buffer),
    isBytes: (array) => array instanceof Bytes || (typeof Buffer !== 'undefined' && Buffer.isBuffer(array)),
    convert: convertObject,
    describe,
    watch: (promise, number) => {
      promise.then(
        (value) => native.settle(number, true, value),
        (error) => native.settle(number, false, error),
      );
    },
  });

  // Each garbage collection frees the current witness; then the objects whose wrappers it has freed are released.
  if (typeof FinalizationRegistry !== 'undefined') {
    const registry = new FinalizationRegistry(() => {
      native.sweep(Math.max(SWEEP_MIN, native.live() / 4));
      registry.register({}, undefined);
    });
    registry.register({}, undefined);
    // A registry that is itself freed calls nothing.
    native.registry = registry;
  }

  /** Returns a global function. With `allowMissing`, returns undefined if there is none. */
  function getGlobalFunc(name, { allowMissing = false } = {}) {
    return allowMissing ? native.findGlobal(name) : native.requireGlobal(name);
  }

  /** Registers a global function. A function that exists is replaced only with `override`. */
  function registerFunc(name, f, { override = false, bigint = false } = {}) {
    if (typeof name === 'function') return registerFunc(name.name, name, f);
    if (f === undefined) return (given) => registerFunc(name, given, { override, bigint });
    if (typeof f !== 'function') throw new TypeError('registerFunc: expected a name and a function');
    native.setGlobal(name, functions.convertFunction(f, { bigint }), override);
    return f;
  }

  /** Converts a value to a native one: functions to PackedFunc, arrays to ArrayRef, Maps and plain objects to MapRef. */
  function convert(value, options) {
    if (typeof value === 'function') return functions.convertFunction(value, options);
    if (typeof value !== 'object' || value === null || value[TAG] !== undefined) return value;
    if (ArrayBuffer.isView(value)) return value instanceof Bytes ? value : tensors.tensor(value);
    return convertObject(value);
  }

  const device = (type, index) => (index === undefined && typeof type === 'string' ? Device.from(type) : Device.of(type, index ?? 0));

  /** Requests a WebGPU device. */
  async function requestWebGPU(options) {
    if (native.requestWebGPU === undefined) {
      throw new errors.RuntimeError('the package for Node.js has no WebGPU devices; pages have them (docs/webgpu.md)');
    }
    return native.requestWebGPU(options);
  }

  /** Makes a module of kernels in WGSL. */
  function webgpuModule(source, kernels) {
    if (native.webgpuModule === undefined) throw new errors.RuntimeError('the package for Node.js has no WebGPU devices; pages have them');
    return native.webgpuModule(source, kernels);
  }

  return {
    getGlobalFunc,
    registerFunc,
    removeGlobalFunc: (name) => native.removeGlobal(name),
    listGlobalFuncNames: () => native.listGlobals(),
    convert,
    callAsync: functions.callAsync,
    PackedFunc: functions.PackedFunc,
    ...modules,
    ObjectRef: objects.ObjectRef,
    registerObject: objects.registerObject,
    defineType: objects.defineType,
    classOf: objects.classOf,
    getField: objects.getField,
    typeAttribute: (key, name, { bigint = false } = {}) => native.typeAttribute(native.typeIndex(key), name, bigint),
    ...containers,
    ...tensors,
    DType,
    dtype: (text) => DType.parse(text),
    Device,
    device,
    cpu: (index = 0) => device(DEVICES.cpu, index),
    requestWebGPU,
    webgpuModule,
    OpaquePointer,
    opaque: (address) => new OpaquePointer(BigInt.asUintN(64, BigInt(address))),
    Bytes,
    bytes: (content) => Bytes.from(content),
    Float,
    float: (value) => new Float(value),
    AnyfnError,
    errors,
    registerError,
    structuralEqual: (a, b) => native.getGlobal('ffi.StructuralEqual')(a, b, false, false),
    structuralHash: (value) => native.getGlobal('ffi.StructuralHash').bigint(value, false, false),
    saveJson: (value) => native.getGlobal('ffi.ToJSONGraphString')(value, null),
    loadJson: (text) => native.getGlobal('ffi.FromJSONGraphString')(text),
  };
}

module.exports = { createPackage };
