'use strict';
// PackedFunc: native functions as JavaScript functions.

const { TAG, INSPECT } = require('./values.js');

/** Appends the frames of a stack to an error that has no frames of JavaScript. */
function withFrames(error, stack) {
  if (error instanceof Error && error[TAG] !== undefined && typeof stack === 'string') {
    const frames = stack.slice(stack.indexOf('\n'));
    if (!error.stack.endsWith(frames)) error.stack += frames;
  }
  return error;
}

/** Key of the object that keeps the slot of another one in use. */
const OWNER = Symbol('anyfn.owner');

/** Returns the signature that a function reports (docs/signature.md) as `{name, params, returns, doc}`. */
function readSignature({ name = '', doc = '', arg_names: names = [], arg_defaults: defaults = {}, type_schema: schema }) {
  const { params = [], return: returns = [] } = (schema ? JSON.parse(schema).named_args : undefined) ?? {};
  const shown = ({ type, args = [] } = { type: 'Any' }) => type + (args.length ? `<${args.map(shown).join(', ')}>` : '');
  return {
    name,
    doc,
    params: names.map((param, index) => ({
      name: param,
      type: shown(params[index]),
      ...(Object.hasOwn(defaults, param) ? { default: defaults[param] } : {}),
    })),
    returns: shown(returns[0]),
  };
}

function createFunctions(native) {
  const { call, callBig } = native;

  /** A native function. Instances are functions; `instanceof PackedFunc` tells them apart. */
  class PackedFunc extends Function {
    constructor() {
      throw new TypeError('PackedFunc has no constructor; use convert(f)');
    }

    /** The function that returns integers as bigints. */
    get bigint() {
      const slot = this[TAG];
      return asPackedFunc((...args) => callBig(slot, ...args), slot, this);
    }

    /** Returns a function that passes named arguments along with its positional ones. */
    with(named) {
      return bindNamed(this, named);
    }

    /** Calls the function on another thread. Returns a promise of its result. */
    callAsync(args = [], options = {}) {
      return callAsync(this, args, options);
    }

    /** The signature of the function, or null. */
    get signature() {
      const text = native.signature(this[TAG]);
      return text === undefined ? null : readSignature(JSON.parse(text));
    }

    /** Releases the function. Calling it afterwards is an error. */
    dispose() {
      native.release(this[TAG]);
    }

    [INSPECT]() {
      return `[PackedFunc${this.name ? `: ${this.name}` : ''}]`;
    }
  }
  if (Symbol.dispose) PackedFunc.prototype[Symbol.dispose] = PackedFunc.prototype.dispose;

  function asPackedFunc(f, slot, owner) {
    f[TAG] = slot;
    if (owner) f[OWNER] = owner;
    Object.setPrototypeOf(f, PackedFunc.prototype);
    return f;
  }

  /**
   * Makes the JavaScript function of the native function in a slot. `direct` is a function that calls it, if native code has made one. An
   * arrow that is the default of a parameter would have the name of the parameter.
   */
  const wrapFunction = (slot, direct) => asPackedFunc(direct ?? ((...args) => call(slot, ...args)), slot);

  let callNamed;
  function bindNamed(f, given) {
    if (typeof given !== 'object' || given === null) throw new TypeError('with: expected an object of named arguments');
    const named = { ...given };
    // A call with positional arguments lends typed arrays; the elements of containers are copies.
    const arrange = (args) => {
      if (Object.keys(named).length === 0) return [f, args];
      const arranged = native.arrange(f[TAG], args, Object.keys(named), Object.values(named));
      if (arranged) return [f, arranged];
      callNamed ??= native.getGlobal('ffi.FunctionCallNamed');
      return [callNamed, [f, args, named]];
    };
    const callWith = (bigint) => (...args) => {
      const [callee, all] = arrange(args);
      return native.apply(callee[TAG], all, bigint);
    };
    const bound = callWith(false);
    bound.bigint = callWith(true);
    bound.callAsync = async (args = [], options = {}) => callAsync(...arrange(args), options);
    return bound;
  }

  /** Calls a function on another thread; see `PackedFunc.callAsync`. */
  function callAsync(f, args = [], options = {}) {
    const { signal, bigint = f?.[OWNER] !== undefined } = options;
    if (signal?.aborted) return Promise.reject(signal.reason);
    let started;
    try {
      if (!(f instanceof PackedFunc)) f = convertFunction(f);
      started = native.callAsync(f[TAG], Array.from(args), bigint);
    } catch (error) {
      return Promise.reject(error);
    }
    // The exception of a failed call is made in the event loop, whose stack does not lead here.
    const here = {};
    Error.captureStackTrace?.(here, callAsync);
    const [settled, number] = started;
    const promise = settled.catch((error) => {
      throw withFrames(error, here.stack);
    });
    if (!signal) return promise;
    return new Promise((resolve, reject) => {
      const abort = () => {
        native.cancel(number);
        reject(signal.reason);
      };
      signal.addEventListener('abort', abort, { once: true });
      const end = () => signal.removeEventListener('abort', abort);
      promise.then(
        (value) => (end(), resolve(value)),
        (error) => (end(), reject(error)),
      );
    });
  }

  /** Makes a PackedFunc of a JavaScript function. With `bigint`, it receives integers as bigints. */
  function convertFunction(f, { bigint = false } = {}) {
    if (f instanceof PackedFunc) return f;
    if (typeof f !== 'function') throw new TypeError('expected a function');
    return native.wrapFunction(f, bigint);
  }

  return { PackedFunc, wrapFunction, callAsync, convertFunction };
}

module.exports = { createFunctions, OWNER };
