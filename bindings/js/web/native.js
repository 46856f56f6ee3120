'use strict';
// The functions that the package uses (`lib/package.js`), over the exports of the WebAssembly module. The addon for Node.js provides
// the same functions (`src/lib.rs`).
//
// Conversions in the direction of native code are called *lowering*, in the other direction *lifting*. A lowered value is owned by the
// frame of its call; the module releases it when the call has ended.

const { Memory, ANY, VALUE, OBJECT, TYPE_INDEX, DL_TENSOR } = require('./memory.js');
const { Slots } = require('./slots.js');
const { Lent } = require('./lent.js');
const { link, compiledOf } = require('./modules.js');
const { createWebGPU } = require('./webgpu.js');
const { classOfKind } = require('../lib/errors.js');

/** Version of the interface of the module; `crates/web/src/lib.rs` has the same number. */
const VERSION = 1;

const [NONE, INT, BOOL, FLOAT, OPAQUE, DTYPE, DEVICE, DL_TENSOR_PTR, BYTES_PTR] = [0, 1, 2, 3, 4, 5, 6, 7, 9];
const [SMALL_STR, SMALL_BYTES, OBJECTS, STR, BYTES, ERROR, FUNCTION, ARRAY, BIGINT] = [11, 12, 64, 65, 66, 67, 68, 71, 78];
const [MAKE_STR, MAKE_BYTES, MAKE_BIGINT] = [0, 1, 2];

// Maximum number of nested calls: a stack that overflows in the module would end it.
const DEPTH_MAX = 256;
// Number of arguments beyond which they do not lie on the stack.
const LONG = 1024;
const CAUSES_MAX = 32;
const LIMIT = 2 ** 53;
/** Start of the names of the functions of the module that the package uses. */
const OWN = 'anyfn.web.';

/** Code and bits of the data types of typed arrays, by the name of the class. */
const DTYPES = {
  Int8Array: [0, 8], Uint8Array: [1, 8], Uint8ClampedArray: [1, 8], Int16Array: [0, 16], Uint16Array: [1, 16], Int32Array: [0, 32],
  Uint32Array: [1, 32], Float32Array: [2, 32], Float64Array: [2, 64], BigInt64Array: [0, 64], BigUint64Array: [1, 64],
};
const kindOf = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Uint8Array.prototype), Symbol.toStringTag).get;

const NO_ARRAYS = 'callAsync cannot lend a typed array, because JavaScript goes on during the call; pass a tensor (`anyfn.tensor(array)`)';
const NO_PROMISES =
  'the function returned a promise, for which native code on the thread of the event loop cannot wait; call the native function with ' +
  'callAsync, or return a value';

/** Calls a function in a task of its own, before which the event loop goes on. Timers of hidden pages wait for up to a minute. */
function inLaterTask(f) {
  if (typeof setImmediate === 'function') {
    setImmediate(f);
    return;
  }
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => {
    port1.close();
    f();
  };
  port2.postMessage(null);
}

const isDetached = (buffer) => {
  if (buffer.byteLength > 0 || !(buffer instanceof ArrayBuffer)) return false;
  try {
    return new Uint8Array(buffer) === undefined;
  } catch {
    return true;
  }
};

/**
 * Makes the functions. Returns the imports with which the module must be instantiated, and `start(instance)`, which returns the functions.
 */
function createNative() {
  const slots = new Slots((handle) => {
    if (!death) exports.anyfn_web_release(handle);
  });
  /** JavaScript values that native objects refer to, by number. */
  const values = [];
  const freeValues = [];
  const lent = new Lent(() => memory);
  /** Position in `lent` of the first array whose content native code has. JavaScript has the content of those before it. */
  let shared = 0;
  let depth = 0;
  /** The function of the package's interface that was called last; stacks of native errors begin above it. */
  let above;
  /** The exception that has ended the module. */
  let death;
  let hooks;

  const imports = {
    anyfn: {
      host_call: callJavaScript,
      host_drop: (id) => {
        values[id] = undefined;
        freeValues.push(id);
      },
      host_random: (address, size) => {
        try {
          const random = new Uint8Array(size >>> 0);
          // The host gives at most 65,536 bytes at a time.
          for (let at = 0; at < random.length; at += 65536) globalThis.crypto.getRandomValues(random.subarray(at, at + 65536));
          memory.check();
          memory.u8.set(random, address >>> 0);
          return 0;
        } catch {
          return -1;
        }
      },
      host_now: () => performance.now() / 1000,
      host_is_lent: (tensor) => (lent.at(tensor >>> 0) ? 1 : 0),
    },
  };

  /** Reports that the module has ended: by a panic, a trap of compiled code, or a stack overflow. */
  function die(error) {
    death ??= error;
    throw dead();
  }

  function dead() {
    const why = `${death.name}: ${death.message}`;
    return new Error(`the WebAssembly module of anyfn has stopped and cannot be used any more (${why}); reload the page or the worker`, {
      cause: death,
    });
  }

  let instance;
  let memory;
  let callNative;
  /** The exports of the module. They make the views of its memory again if it has grown. */
  const exports = {};

  /** Connects the instance of the module, and returns the functions. */
  function start(given) {
    instance = given;
    for (const [name, value] of Object.entries(instance.exports)) {
      if (!name.startsWith('anyfn_web_')) continue;
      exports[name] = (...args) => {
        if (death) throw dead();
        let result;
        try {
          result = value(...args);
        } catch (error) {
          die(error);
        }
        memory?.check();
        return result;
      };
    }
    callNative = instance.exports.anyfn_web_call;
    const version = instance.exports.anyfn_web_init?.();
    if (version !== VERSION) {
      throw new Error(
        `the WebAssembly module has version ${version} of the interface, and the package version ${VERSION}; use the anyfn.wasm of the same release`,
      );
    }
    memory = new Memory(instance.exports.memory, { alloc: exports.anyfn_web_alloc, free: exports.anyfn_web_free });
    return native;
  }

  function keep(value) {
    const id = freeValues.length ? freeValues.pop() : values.length;
    values[id] = value;
    return id;
  }

  // Lowering

  function setPlain(at, type) {
    memory.i32[at >>> 2] = type;
    memory.i32[(at >>> 2) + 1] = 0;
    memory.i32[(at >>> 2) + 3] = 0;
  }

  /** Stores an object, whose reference passes to the value. */
  function setObject(at, type, handle) {
    setPlain(at, type);
    memory.u32[(at + VALUE) >>> 2] = handle;
  }

  function setSlot(at, slot) {
    const handle = slots.handle(slot);
    exports.anyfn_web_retain(handle);
    setObject(at, memory.i32[(handle + TYPE_INDEX) >>> 2], handle);
  }

  function setWord(at, type, bits) {
    setPlain(at, type);
    memory.u64[(at + VALUE) >>> 3] = bits;
  }

  function setFloat(at, value) {
    setPlain(at, FLOAT);
    memory.f64[(at + VALUE) >>> 3] = value;
  }

  /** Makes a string, bytes or a large integer. */
  function setMade(at, kind, address, size) {
    const code = exports.anyfn_web_make(kind, address, size, at);
    if (code) throw takeValue(at, false);
  }

  function setText(at, text, isLenient) {
    const { length } = text;
    if (length < 8) {
      const first = at + VALUE;
      let index = 0;
      for (; index < length; index += 1) {
        const unit = text.charCodeAt(index);
        if (unit >= 0x80) break;
        memory.u8[first + index] = unit;
      }
      if (index === length) {
        memory.i32[at >>> 2] = SMALL_STR;
        memory.i32[(at >>> 2) + 1] = length;
        memory.u8.fill(0, first + length, first + 8);
        return;
      }
      setPlain(at, NONE);
    }
    memory.withText(text, (address, size) => setMade(at, MAKE_STR, address, size), isLenient);
  }

  function setBytes(at, bytes) {
    memory.withBytes(bytes, (address, size) => setMade(at, MAKE_BYTES, address, size));
  }

  function setBigInt(at, value) {
    if (BigInt.asIntN(64, value) === value) {
      setPlain(at, INT);
      memory.i64[(at + VALUE) >>> 3] = value;
      return;
    }
    const words = [];
    let rest = value;
    do {
      words.push(BigInt.asUintN(64, rest));
      rest >>= 64n;
    } while (rest !== 0n && rest !== -1n);
    words.push(BigInt.asUintN(64, rest));
    const bytes = new Uint8Array(BigUint64Array.from(words).buffer);
    memory.withBytes(bytes, (address, size) => setMade(at, MAKE_BIGINT, address, size));
  }

  /** Converts a value. `arrays` says what typed arrays become: `lend`, `copy`, or the reason why they are refused. */
  function lower(value, at, arrays) {
    switch (typeof value) {
      case 'number':
        if (Number.isInteger(value) && value < LIMIT && value > -LIMIT && !Object.is(value, -0)) {
          memory.i32[at >>> 2] = INT;
          memory.i32[(at >>> 2) + 1] = 0;
          memory.i32[(at >>> 2) + 2] = value;
          memory.i32[(at >>> 2) + 3] = Math.floor(value / 4294967296);
        } else setFloat(at, value);
        return;
      case 'string':
        setText(at, value, false);
        return;
      case 'undefined':
        setPlain(at, NONE);
        memory.i32[(at >>> 2) + 2] = 0;
        return;
      case 'boolean':
        setPlain(at, BOOL);
        memory.i32[(at >>> 2) + 2] = Number(value);
        return;
      case 'bigint':
        setBigInt(at, value);
        return;
      case 'function':
        if (value[hooks.tag] >= 0) setSlot(at, value[hooks.tag]);
        else setObject(at, FUNCTION, makeFunction(value, false));
        return;
      case 'object':
        if (value === null) {
          setPlain(at, NONE);
          memory.i32[(at >>> 2) + 2] = 0;
        } else lowerObject(value, at, arrays);
        return;
      default:
        throw new TypeError('a symbol cannot be converted to a native value');
    }
  }

  function makeFunction(value, big) {
    return exports.anyfn_web_function(keep({ value, big, isFunction: true })) >>> 0;
  }

  function lowerObject(value, at, arrays) {
    if (ArrayBuffer.isView(value) && !(value instanceof DataView)) {
      lowerArray(value, at, arrays);
      return;
    }
    const tag = value[hooks.tag];
    if (typeof tag === 'number') {
      if (tag >= 0) {
        setSlot(at, tag);
        return;
      }
      const content = value[hooks.content];
      if (tag === -1) setFloat(at, content);
      else setWord(at, [DTYPE, DEVICE, OPAQUE][-2 - tag], content);
      return;
    }
    const name = Object.prototype.toString.call(value);
    if (value instanceof ArrayBuffer || name === '[object SharedArrayBuffer]') {
      if (isDetached(value)) throw detached();
      setBytes(at, new Uint8Array(value));
    } else if (value instanceof Error || name === '[object Error]') {
      setError(at, value, CAUSES_MAX);
    } else {
      const slot = hooks.convert(value)[hooks.tag];
      if (!(slot >= 0)) throw new TypeError('the package returned no native object');
      setSlot(at, slot);
    }
  }

  const detached = () => new TypeError('the ArrayBuffer is detached: its memory was transferred elsewhere');

  function lowerArray(array, at, arrays) {
    if (array.byteLength === 0 && isDetached(array.buffer)) throw detached();
    const kind = kindOf.call(array);
    if ((kind === 'Uint8Array' || kind === 'Uint8ClampedArray') && hooks.isBytes(array)) {
      setBytes(at, array);
      return;
    }
    const dtype = DTYPES[kind];
    if (dtype === undefined) throw new TypeError('typed arrays of this class cannot be converted to a tensor');
    if (arrays !== 'lend' && arrays !== 'copy') throw new TypeError(arrays);
    if (arrays === 'copy') {
      // The module copies what a call has lent.
      const mark = lent.length;
      const outer = lent.enter();
      const view = memory.push(ANY);
      try {
        lend(array, dtype, view);
        lent.copyIn(mark);
        const code = exports.anyfn_web_own(view, at);
        if (code) throw takeValue(at, false);
      } finally {
        lent.giveBack(mark);
        lent.leave(outer);
      }
      return;
    }
    lend(array, dtype, at);
  }

  /** Stores a tensor that describes the memory of a typed array, or a copy of it. */
  function lend(array, [code, bits], at) {
    setObject(at, DL_TENSOR_PTR, lent.lend(array, code, bits));
  }

  // Errors

  /** Stores the native error of a thrown value. */
  function setError(at, thrown, causes) {
    if ((typeof thrown === 'object' || typeof thrown === 'function') && thrown !== null) {
      const slot = thrown[hooks.tag];
      if (slot >= 0 && memory.i32[(slots.handle(slot) + TYPE_INDEX) >>> 2] === ERROR) {
        setSlot(at, slot);
        return;
      }
    }
    let [kind, message, backtrace, cause] = ['Error', 'a JavaScript exception that cannot be described', '', undefined];
    try {
      [kind, message, backtrace, cause] = hooks.describe(thrown);
    } catch {
      // A getter of the exception has thrown, or there is no stack left.
    }
    callFrame(globalHandle('make_error'), 5, at, (args) => {
      setText(args, String(kind), true);
      setText(args + ANY, String(message), true);
      setText(args + 2 * ANY, String(backtrace), true);
      if (cause !== undefined && causes > 0) setError(args + 3 * ANY, cause, causes - 1);
      const id = keep({ value: thrown, big: false, isFunction: false });
      const context = exports.anyfn_web_function(id) >>> 0;
      setObject(args + 4 * ANY, FUNCTION, context);
    });
  }

  // Lifting

  function tooLarge(value) {
    return new RangeError(
      `the integer ${value} is not exact as a number; \`.bigint\` of a function or a container, or the option \`bigint\` of getField and ` +
        'convert, gives integers as bigints',
    );
  }

  /** Converts a borrowed value. */
  function lift(at, big) {
    const type = memory.i32[at >>> 2];
    const word = (at + VALUE) >>> 2;
    switch (type) {
      case NONE:
        return null;
      case INT: {
        if (big) return memory.i64[(at + VALUE) >>> 3];
        const value = memory.i32[word + 1] * 4294967296 + memory.u32[word];
        if (!Number.isSafeInteger(value)) throw tooLarge(memory.i64[(at + VALUE) >>> 3]);
        return value;
      }
      case FLOAT:
        return memory.f64[(at + VALUE) >>> 3];
      case BOOL:
        return memory.i32[word] !== 0 || memory.i32[word + 1] !== 0;
      case SMALL_STR:
        return memory.text(at + VALUE, Math.min(memory.u32[(at >>> 2) + 1], 7));
      case SMALL_BYTES:
        return liftBytes(at + VALUE, Math.min(memory.u32[(at >>> 2) + 1], 7));
      case STR:
      case BYTES: {
        const content = (memory.u32[word] + OBJECT) >>> 2;
        const [address, size] = [memory.u32[content], memory.u32[content + 1]];
        return type === STR ? memory.text(address, size) : liftBytes(address, size);
      }
      case DTYPE:
      case DEVICE:
      case OPAQUE:
        return hooks.word(type, memory.u64[(at + VALUE) >>> 3]);
      case DL_TENSOR_PTR: {
        const tensor = memory.u32[word];
        const one = lent.at(tensor);
        if (one === undefined) throw new TypeError('a borrowed tensor cannot be converted');
        if (one.region || !isDetached(one.array.buffer)) return one.array;
        // The memory of the module has grown since the array, which is a view of it, was passed.
        const length = Number(memory.i64[(tensor + DL_TENSOR) >>> 3]);
        return new globalThis[kindOf.call(one.array)](memory.memory.buffer, memory.u32[tensor >>> 2], length);
      }
      case BYTES_PTR: {
        const content = memory.u32[word] >>> 2;
        return content === 0 ? null : liftBytes(memory.u32[content], memory.u32[content + 1]);
      }
      case BIGINT:
        return liftBigInt(at, big);
      default:
        if (type < OBJECTS) return liftCopied(at, big);
        exports.anyfn_web_retain(memory.u32[word]);
        return liftHandle(memory.u32[word], type);
    }
  }

  function liftBytes(address, size) {
    return hooks.bytes(memory.u8.slice(address, address + size).buffer);
  }

  function liftBigInt(at, big) {
    if (!big) throw tooLarge('beyond 64 bits');
    const mark = memory.top;
    const content = memory.push(8);
    exports.anyfn_web_words(at, content);
    const [address, size] = [memory.u32[content >>> 2], memory.u32[(content >>> 2) + 1]];
    memory.top = mark;
    const words = new BigUint64Array(memory.u8.slice(address, address + size).buffer);
    const bits = words.reduceRight((value, word) => (value << 64n) | word, 0n);
    return BigInt.asIntN(8 * size, bits);
  }

  /** Converts a borrowed string, or takes an object out of a variable, via an owned value. */
  function liftCopied(at, big) {
    const type = memory.i32[at >>> 2];
    const mark = memory.top;
    const out = memory.push(ANY);
    try {
      setPlain(out, NONE);
      const code = exports.anyfn_web_own(at, out);
      const same = memory.i32[out >>> 2] === type;
      const value = same && !code ? undefined : takeValue(out, big);
      if (code) throw value;
      if (!same) return value;
      throw new TypeError(`a value of type ${ask('type_key', type)} cannot be converted to a JavaScript value`);
    } finally {
      memory.top = mark;
    }
  }

  /** Converts an owned value, and releases it. */
  function takeValue(at, big) {
    const type = memory.i32[at >>> 2];
    if (type >= OBJECTS && type !== STR && type !== BYTES && type !== BIGINT) {
      const handle = memory.u32[(at + VALUE) >>> 2];
      memory.i32[at >>> 2] = NONE;
      return handle === 0 ? null : liftHandle(handle, type);
    }
    if (type === DL_TENSOR_PTR) {
      throw new TypeError('the function returned a borrowed DLTensor*, which has no owner; it must return a tensor');
    }
    try {
      return lift(at, big);
    } finally {
      if (type >= OBJECTS) exports.anyfn_web_drop(at, 1);
    }
  }

  /** Converts an owned reference to an object. */
  function liftHandle(handle, type) {
    if (type === FUNCTION) {
      const known = slots.wrapperOf(handle);
      const id = known === undefined ? exports.anyfn_web_id(handle) : -1;
      const own = id >= 0 && values[id].isFunction && !values[id].big ? values[id].value : known;
      if (own !== undefined) {
        exports.anyfn_web_release(handle);
        return own;
      }
    } else if (type === ERROR) {
      const id = exports.anyfn_web_thrown(handle);
      if (id >= 0) {
        const { value } = values[id];
        exports.anyfn_web_release(handle);
        return value;
      }
    }
    return wrap(handle, type);
  }

  /** Returns the JavaScript object of an owned reference. */
  function wrap(handle, type) {
    const known = slots.wrapperOf(handle);
    if (known !== undefined) {
      exports.anyfn_web_release(handle);
      return known;
    }
    return slots.add(handle, (slot) => hooks.wrap(slot, type));
  }

  const wrapHandle = (handle) => wrap(handle, memory.i32[(handle + TYPE_INDEX) >>> 2]);

  /** Converts an array, and the arrays in it, to JavaScript arrays. */
  function liftDeep(at) {
    if (memory.i32[at >>> 2] !== ARRAY) return lift(at, false);
    const cell = memory.u32[(at + VALUE) >>> 2] + OBJECT;
    const [address, size] = [memory.u32[cell >>> 2], memory.u32[(cell + 8) >>> 2]];
    return Array.from({ length: size }, (_, index) => liftDeep(address + ANY * index));
  }

  // Calls

  /**
   * Calls a function with arguments that `fill(address)` stores. Stores the result at `out`, or throws. If a function can be released
   * while its arguments are converted, `fill` looks it up after that, and returns it.
   */
  function callFrame(handle, count, out, fill) {
    if (death) throw dead();
    const mark = memory.top;
    const entered = above;
    const isLong = count > LONG;
    const args = isLong ? memory.reserve(ANY * count) : memory.push(ANY * count);
    for (let index = 0; index < count; index += 1) memory.i32[(args + ANY * index) >>> 2] = NONE;
    const [lentBefore, outer, outerShared] = [lent.length, lent.enter(), shared];
    depth += 1;
    let isFilled = false;
    try {
      const callee = fill(args) ?? handle;
      isFilled = true;
      if (lent.length > lentBefore) lent.copyIn(lentBefore);
      shared = lentBefore;
      let code;
      try {
        code = callNative(callee, args, count, out);
      } catch (error) {
        die(error);
      }
      above = entered;
      memory.check();
      if (lent.length > lentBefore) {
        try {
          lent.copyOut(lentBefore);
        } catch (error) {
          exports.anyfn_web_drop(out, 1);
          throw error;
        }
      }
      if (code) throw takeValue(out, false);
    } finally {
      if (!isFilled && !death) exports.anyfn_web_drop(args, count);
      if (!death) {
        lent.giveBack(lentBefore);
        if (isLong) memory.free(args, ANY * count);
      }
      lent.leave(outer);
      shared = outerShared;
      depth -= 1;
      memory.top = mark;
    }
  }

  /** Calls a function, and returns its result as `read(address)` gives it. */
  function callWith(handle, count, fill, read) {
    const mark = memory.top;
    const out = memory.push(ANY);
    try {
      callFrame(handle, count, out, fill);
      return read(out);
    } finally {
      memory.top = mark;
    }
  }

  function callSlot(slot, args, big) {
    const handle = handleOfFunction(slot);
    if (depth >= DEPTH_MAX) throw new RangeError(`calls and collections are nested more than ${DEPTH_MAX} deep`);
    return callWith(
      handle,
      args.length,
      (at) => {
        for (let index = 0; index < args.length; index += 1) lower(args[index], at + ANY * index, 'lend');
        return handleOfFunction(slot);
      },
      (out) => takeValue(out, big),
    );
  }

  function handleOfFunction(slot) {
    const entry = slots.entries.get(slot);
    if (entry === undefined) throw new Error('this function was disposed of, or belongs to another thread');
    const { handle } = entry;
    if (memory.i32[(handle + TYPE_INDEX) >>> 2] !== FUNCTION) throw new TypeError('this object is not a function');
    return handle;
  }

  /** Calls a JavaScript function for native code. Returns 0 or -1, and throws only if the module has ended. */
  function callJavaScript(id, args, count, result) {
    [args, result] = [args >>> 0, result >>> 0];
    const mark = memory.top;
    const from = shared;
    const copies = [];
    /** Gives native code what the function has written to borrowed arrays. */
    const handBack = () => {
      if (shared > from) lent.copyIn(from);
      shared = from;
      for (const [view, copy] of copies.splice(0)) writeBack(view, copy);
    };
    try {
      memory.check();
      const { value, big, isFunction, isRaw } = values[id];
      if (isRaw) {
        value(args, count);
        return 0;
      }
      if (!isFunction) throw new TypeError('a JavaScript value that is not a function was called');
      if (lent.length > from) lent.copyOut(from);
      shared = lent.length;
      const list = [];
      for (let at = args; at < args + ANY * count; at += ANY) list.push(liftArgument(at, big, copies));
      const returned = value(...list);
      memory.check();
      if (returned instanceof Promise) throw new TypeError(NO_PROMISES);
      handBack();
      if (big && typeof returned === 'number') setFloat(result, returned);
      else lower(returned, result, 'copy');
      return 0;
    } catch (thrown) {
      // Frames of a module that has ended are left at once.
      if (death) throw thrown;
      try {
        handBack();
      } catch (error) {
        // What the function has thrown says more.
        if (death) throw error;
      }
      try {
        memory.check();
        setPlain(result, NONE);
        setError(result, thrown, CAUSES_MAX);
      } catch (error) {
        if (death) throw error;
        setPlain(result, NONE);
      }
      return -1;
    } finally {
      shared = from;
      memory.top = mark;
    }
  }

  /** Converts an argument of a callback. A tensor that native code has borrowed from elsewhere is copied, and written back later. */
  function liftArgument(at, big, copies) {
    const tensor = memory.u32[(at + VALUE) >>> 2];
    const isForeign = memory.i32[at >>> 2] === DL_TENSOR_PTR && tensor !== 0 && lent.at(tensor) === undefined;
    if (!isForeign) return lift(at, big);
    const copy = ask('copy_of_view', { [VIEW]: at });
    copies.push([at, copy]);
    return copy;
  }

  function writeBack(view, copy) {
    // A view that must not be written has a mark.
    if (memory.i32[(view >>> 2) + 1] !== 0) return;
    ask('write_back', { [VIEW]: view }, copy);
  }

  /** Key of the address of a borrowed value, which is passed on as it is. */
  const VIEW = Symbol('anyfn.view');

  const handles = new Map();

  function globalHandle(name) {
    let handle = handles.get(name);
    if (handle === undefined) {
      handle = find(OWN + name);
      if (handle === 0) throw new Error(`the WebAssembly module has no function ${OWN}${name}`);
      handles.set(name, handle);
    }
    return handle;
  }

  function find(name) {
    return memory.withText(String(name), (address, size) => exports.anyfn_web_global(address, size)) >>> 0;
  }

  function lowerAll(args, at) {
    args.forEach((arg, index) => {
      const to = at + ANY * index;
      const view = arg?.[VIEW];
      if (view === undefined) lower(arg, to, 'lend');
      else memory.u8.copyWithin(to, view, view + ANY);
    });
  }

  /** Calls a function of the module for the package. */
  function ask(name, ...args) {
    return callWith(globalHandle(name), args.length, (at) => lowerAll(args, at), (out) => takeValue(out, false));
  }

  /** As `ask`, and returns arrays as JavaScript arrays. */
  function askDeep(name, ...args) {
    return callWith(
      globalHandle(name),
      args.length,
      (at) => lowerAll(args, at),
      (out) => {
        try {
          return liftDeep(out);
        } finally {
          exports.anyfn_web_drop(out, 1);
        }
      },
    );
  }

  const at = (slot) => ({ [hooks.tag]: slot });

  /** Releases the memory of tensors whose typed arrays are gone. */
  const viewed = new FinalizationRegistry((handle) => {
    if (!death) exports.anyfn_web_release(handle);
  });

  // Asynchronous calls

  const pending = new Map();
  let lastNumber = 0;

  function callAsync(slot, args, big) {
    handleOfFunction(slot);
    const block = memory.reserve(ANY * args.length);
    let handle;
    for (let index = 0; index < args.length; index += 1) memory.i32[(block + ANY * index) >>> 2] = NONE;
    try {
      args.forEach((arg, index) => lower(arg, block + ANY * index, NO_ARRAYS));
      // The conversion of an argument may have released the function.
      handle = handleOfFunction(slot);
    } catch (error) {
      exports.anyfn_web_drop(block, args.length);
      memory.free(block, ANY * args.length);
      throw error;
    }
    exports.anyfn_web_retain(handle);
    lastNumber += 1;
    const number = lastNumber;
    const call = { isCancelled: false };
    pending.set(number, call);
    const run = () => {
      pending.delete(number);
      try {
        if (call.isCancelled) {
          throw new (classOfKind('CancelledError'))('the call was cancelled');
        }
        const move = (to) => {
          memory.u8.copyWithin(to, block, block + ANY * args.length);
          for (let index = 0; index < args.length; index += 1) memory.i32[(block + ANY * index) >>> 2] = NONE;
        };
        return callWith(handle, args.length, move, (out) => takeValue(out, big));
      } finally {
        if (!death) {
          exports.anyfn_web_drop(block, args.length);
          memory.free(block, ANY * args.length);
          exports.anyfn_web_release(handle);
        }
      }
    };
    const promise = new Promise(inLaterTask).then(run);
    return [promise, number];
  }

  const webgpu = createWebGPU({
    memory: () => memory,
    ask,
    handleOf: (object) => slots.handle(object[hooks.tag]),
    // Its JavaScript object is a PackedFunc, as for functions that return bigints.
    rawFunction: (value) => wrap(exports.anyfn_web_function(keep({ value, big: true, isFunction: true, isRaw: true })) >>> 0, FUNCTION),
    rawOf: (f) => values[exports.anyfn_web_id(slots.handle(f[hooks.tag]))]?.value,
  });

  const native = {
    requestWebGPU: webgpu.request,
    webgpuModule: webgpu.module,
    /** Copies a tensor from a WebGPU device to the tensor that `make` returns: a promise. */
    readTensor: (slot, make) => webgpu.read(slots.handle(slot), make),
    init: (given) => {
      hooks = given;
      webgpu.start();
      // The package works after users have removed or replaced functions with these names.
      for (const name of askDeep('list_globals')) if (name.startsWith(OWN)) globalHandle(name.slice(OWN.length));
    },
    apply: (slot, args, big) => callSlot(slot, args, big),
    callAsync,
    cancel: (number) => {
      const call = pending.get(number);
      if (call) call.isCancelled = true;
    },
    getGlobal: (name) => {
      const handle = find(name);
      return handle === 0 ? undefined : wrapHandle(handle);
    },
    findGlobal: (name) => native.getGlobal(name),
    requireGlobal: (name) => {
      const handle = find(name);
      return handle === 0 ? ask('require_global', String(name)) : wrapHandle(handle);
    },
    setGlobal: (name, f, isOverride) => void ask('set_global', String(name), f, Boolean(isOverride)),
    removeGlobal: (name) => ask('remove_global', String(name)),
    listGlobals: () => askDeep('list_globals'),
    wrapFunction: (f, big) => wrap(makeFunction(f, big), FUNCTION),
    release: (slot) => slots.release(slot),
    sweep: (limit) => slots.sweep(limit),
    live: () => slots.live,
    /** Number of JavaScript values that native objects refer to. */
    kept: () => values.length - freeValues.length,
    isAlive: (slot) => slots.has(slot),
    address: (slot) => BigInt(slots.handle(slot)),
    typeIndex: (key) => ask('type_index', String(key)),
    typeKey: (index) => ask('type_key', index),
    typeInfo: (index) => askDeep('type_info', index) ?? undefined,
    isInstance: (index, parent) => ask('is_instance', index, parent),
    getField: (slot, index, position, big) =>
      callWith(globalHandle('get_field'), 3, (to) => lowerAll([at(slot), index, position], to), (out) => takeValue(out, big)),
    setField: (slot, index, position, value) => {
      callWith(
        globalHandle('set_field'),
        4,
        (to) => {
          lowerAll([at(slot), index, position], to);
          lower(value, to + 3 * ANY, 'copy');
        },
        () => undefined,
      );
    },
    addMethod: (index, name, f, doc, isStatic) => void ask('add_method', index, name, f, doc, isStatic),
    typeAttribute: (index, name, big) =>
      callWith(
        globalHandle('type_attribute'),
        2,
        (to) => lowerAll([index, name], to),
        (out) => {
          const cell = (memory.u32[(out + VALUE) >>> 2] + OBJECT) >>> 2;
          try {
            return memory.u32[cell + 2] === 0 ? undefined : lift(memory.u32[cell], big);
          } finally {
            exports.anyfn_web_drop(out, 1);
          }
        },
      ),
    errorTexts: (slot) => [0, 1, 2].map((which) => ask('error_text', at(slot), which)),
    errorCause: (slot) => ask('error_cause', at(slot)) ?? undefined,
    signature: (slot) => ask('signature', at(slot)) ?? undefined,
    arrange: (slot, args, names, given) => {
      const sources = askDeep('arrange', at(slot), args.length, names);
      return sources?.map(([from, value]) => (from === 2 ? value : [args, given][from][value]));
    },
    tensorInfo: (slot) => askDeep('tensor_info', at(slot)),
    tensorBuffer: (slot) => {
      const [, , device, , , isContiguous, isReadOnly, address, size] = askDeep('tensor_info', at(slot));
      if (device.type !== 1) throw new TypeError(`the tensor is on ${device}; copy it to the CPU first (\`await x.to(anyfn.cpu())\`)`);
      if (!isContiguous) throw new TypeError('the tensor is not contiguous; `contiguous()` makes a compact copy');
      // JavaScript has no arrays that cannot be written.
      if (isReadOnly) return memory.u8.slice(address, address + size).buffer;
      if (size === 0) return new ArrayBuffer(0);
      const view = new Uint8Array(memory.memory.buffer, address, size);
      const handle = slots.handle(slot);
      exports.anyfn_web_retain(handle);
      viewed.register(view, handle);
      return view;
    },
    tensorMake: (array, shape, dtype) => {
      for (const extent of shape) {
        if (!Number.isSafeInteger(extent)) throw new TypeError(`expected an integer as the extent of a shape, got ${extent}`);
      }
      return ask('tensor_make', array, shape, dtype ?? null);
    },
    shape: (slot) => askDeep('shape', at(slot)),
    /** Loads compiled functions: the bytes of a WebAssembly module, or a compiled one. */
    loadModule: (source) => {
      if (typeof source === 'string' || source instanceof URL) return undefined;
      const code = compiledOf(source);
      const { names, positions, metadata, setModule } = link(code, instance.exports, memory, die);
      const made = ask('module', names, positions, metadata);
      setModule(slots.handle(made[hooks.tag]));
      webgpu.attach(code, made);
      return made;
    },
    moduleFunction: (slot, name, imports) => native.getGlobal('ffi.ModuleGetFunction')(at(slot), name, imports),
    /** Calls a function of the module (`anyfn.web.*`). */
    ask,
    /** Returns the JavaScript function with a number. */
    javascript: (id) => values[id],
    parseDType: (text) => ask('parse_dtype', String(text)),
    dtypeText: (dtype) => ask('dtype_text', dtype),
  };
  for (const [name, f] of Object.entries(native)) {
    native[name] = (...args) => {
      above = native[name];
      return f(...args);
    };
  }
  native.call = function call(slot, ...args) {
    above = call;
    return callSlot(slot, args, false);
  };
  native.callBig = function callBig(slot, ...args) {
    above = callBig;
    return callSlot(slot, args, true);
  };
  native.above = () => above;
  return { imports, start };
}

module.exports = { createNative, VERSION };
