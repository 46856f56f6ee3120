'use strict';
// Loads compiled functions: a position-independent WebAssembly module that imports memory, table and stack of the runtime
// (`wasm-ld -shared`), so that it works on the runtime's tensors without a copy. Its code stays loaded as long as the runtime.

const PREFIX = '__tvm_ffi_';
const CONTEXT = '__tvm_ffi__library_ctx';
const METADATA = '__tvm_ffi__metadata_';
// The convention gives other names after the prefix a meaning of their own.
const FUNCTION = /^__tvm_ffi_(?!_(metadata_|doc_|library_ctx$|library_bin$))/;

// Number of parameters of a function that the convention describes.
const PARAMETERS = 4;

// Flags of an import: their mask, and an import that may be missing.
const BINDING = 3;
const WEAK = 1;

/** Functions of the runtime that compiled code calls through variables, by the name of the variable. */
const VARIABLES = {
  __TVMFFIFunctionCall: 'TVMFFIFunctionCall',
  __TVMFFIEnvModLookupFromImports: 'anyfn_web_lookup',
  __TVMFFIHandleInitOnce: 'TVMFFIHandleInitOnce',
  __TVMFFIErrorSetRaisedFromCStr: 'TVMFFIErrorSetRaisedFromCStr',
  __TVMFFIErrorSetRaisedFromCStrParts: 'TVMFFIErrorSetRaisedFromCStrParts',
  __TVMFFIStringFromByteArray: 'TVMFFIStringFromByteArray',
  __TVMBackendAllocWorkspace: 'TVMBackendAllocWorkspace',
  __TVMBackendFreeWorkspace: 'TVMBackendFreeWorkspace',
  __TVMBackendParallelLaunch: 'TVMBackendParallelLaunch',
  __TVMBackendParallelBarrier: 'TVMBackendParallelBarrier',
};

/** Functions of the C library and the compiler that compiled code may call. The names of single-precision ones end with `f`. */
const MATH = { __proto__: null };

/** Adds a function of doubles, and that of floats. */
function define(name, f) {
  MATH[name] = f;
  MATH[`${name}f`] = f.length === 1 ? (x) => Math.fround(f(x)) : (x, y) => Math.fround(f(x, y));
}

for (const name of [
  'acos', 'acosh', 'asin', 'asinh', 'atan', 'atanh', 'cbrt', 'cos', 'cosh', 'exp', 'expm1', 'log', 'log10', 'log1p', 'log2', 'sin', 'sinh',
  'tan', 'tanh',
]) {
  define(name, Math[name]);
}
define('atan2', Math.atan2);
define('hypot', (x, y) => Math.hypot(x, y));
define('fmod', (x, y) => x % y);
define('exp2', (x) => 2 ** x);
define('exp10', (x) => 10 ** x);
// Halves are rounded away from zero, as in C.
define('round', (x) => Math.sign(x) * Math.round(Math.abs(x)));
// In C, these powers are 1 also where the exponent is not a number, or infinite.
define('pow', (x, y) => (x === 1 || (x === -1 && Math.abs(y) === Infinity) ? 1 : x ** y));
define('erf', erf);

/** The error function: by its series up to 3, whose terms are all positive, and beyond by the continued fraction of 1 - erf. */
function erf(x) {
  const [size, square] = [Math.abs(x), x * x];
  if (!(size < 6)) return Math.sign(x);
  if (size < 3) {
    let [term, sum] = [1, 1];
    for (let n = 1; term > sum * 1e-17; n += 1) {
      term *= (2 * square) / (2 * n + 1);
      sum += term;
    }
    return x * (2 / Math.sqrt(Math.PI)) * Math.exp(-square) * sum;
  }
  let fraction = size;
  for (let n = 60; n > 0; n -= 1) fraction = size + n / 2 / fraction;
  return Math.sign(x) * (1 - Math.exp(-square) / (Math.sqrt(Math.PI) * fraction));
}

const words = new Uint32Array(2);
const double = new Float64Array(words.buffer);

/** Rounds a number of at most 2 ** 52, halves to even. */
function roundEven(x) {
  const below = Math.floor(x);
  const rest = x - below;
  return below + Number(rest > 0.5 || (rest === 0.5 && below % 2 === 1));
}

/** Returns the bits of a number with half precision. */
function toHalf(x) {
  double[0] = x;
  const sign = (words[1] >>> 16) & 0x8000;
  const size = Math.abs(x);
  if (Number.isNaN(x)) return sign | 0x7e00;
  // The next number is 2 ** 16, from which half the distance is rounded up.
  if (size >= 65520) return sign | 0x7c00;
  if (size < 2 ** -14) return sign | roundEven(size * 2 ** 24);
  const exponent = ((words[1] >>> 20) & 0x7ff) - 1023;
  // The mantissa carries into the exponent if it is rounded to the next power of two.
  return sign | (((exponent + 14) << 10) + roundEven(size * 2 ** (10 - exponent)));
}

/** Returns the number of which these are the bits. */
function fromHalf(bits) {
  const exponent = (bits >>> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  const sign = bits & 0x8000 ? -1 : 1;
  if (exponent === 0x1f) return fraction ? NaN : sign * Infinity;
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
}

MATH.__truncdfhf2 = toHalf;
MATH.__truncsfhf2 = toHalf;
MATH.__extendhfsf2 = fromHalf;

const SECTION = 'the section dylink.0 of the WebAssembly module';

/** Reads the section that says how much memory and how many places of the table a module needs, and which imports may be missing. */
function readNeeds(module) {
  const [section] = WebAssembly.Module.customSections(module, 'dylink.0');
  if (section === undefined) {
    throw new TypeError('the WebAssembly module is not position-independent; link it with `wasm-ld -shared --experimental-pic`');
  }
  const bytes = new Uint8Array(section);
  let at = 0;
  const number = () => {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = bytes[at];
      if (byte === undefined || shift > 28) throw new TypeError(`${SECTION} is malformed`);
      at += 1;
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value >>> 0;
    }
  };
  const text = () => {
    const size = number();
    at += size;
    return new TextDecoder().decode(bytes.subarray(at - size, at));
  };
  const needs = { memory: 0, memoryAlign: 1, table: 0, tableAlign: 1, weak: new Set() };
  while (at < bytes.length) {
    const kind = number();
    const end = number() + at;
    if (kind === 1) {
      needs.memory = number();
      needs.memoryAlign = 2 ** number();
      needs.table = number();
      needs.tableAlign = 2 ** number();
    } else if (kind === 4) {
      for (let left = number(); left > 0; left -= 1) {
        text(); // The module is always `env`.
        const name = text();
        if ((number() & BINDING) === WEAK) needs.weak.add(name);
      }
    }
    at = end;
  }
  if (needs.memoryAlign > 2 ** 16 || needs.memory > 2 ** 31) throw new TypeError(`${SECTION} asks for too much memory`);
  if (needs.tableAlign > 2 ** 16 || needs.table > 2 ** 24) throw new TypeError(`${SECTION} asks for too many places of the table`);
  return needs;
}

/** Throws if a module needs what the runtime lacks, or has no functions. Returns the names of its functions. */
function check(module, runtime, weak, env) {
  const defined = new Map(WebAssembly.Module.exports(module).map(({ name, kind }) => [name, kind]));
  const isFunction = (name) => typeof runtime[name] === 'function';
  const missing = new Set();
  for (const { module: from, name, kind } of WebAssembly.Module.imports(module)) {
    const isWeak = weak.has(name);
    if (from === 'GOT.mem' && kind === 'global') {
      if (!isWeak && defined.get(name) !== 'global') missing.add(name);
    } else if (from === 'GOT.func' && kind === 'global') {
      if (isWeak || defined.get(name) === 'function' || isFunction(name)) continue;
      missing.add(name in MATH ? `${name} (a function of JavaScript, whose address cannot be taken)` : name);
    } else if (from !== 'env') missing.add(`${from}.${name}`);
    else if (kind === 'function' ? !isWeak && !isFunction(name) && !(name in MATH) : !(name in env)) missing.add(name);
  }
  if (missing.size) throw new TypeError(`the WebAssembly module needs what the runtime lacks: ${[...missing].join(', ')}`);
  const functions = [...defined].filter(([name, kind]) => kind === 'function' && FUNCTION.test(name)).map(([name]) => name);
  if (functions.length === 0) throw new TypeError('the WebAssembly module has no functions that begin with __tvm_ffi_');
  return functions;
}

/** Returns the compiled module of a source: the bytes of a .wasm file, or a compiled module. */
function compiledOf(source) {
  if (source instanceof WebAssembly.Module) return source;
  if (!ArrayBuffer.isView(source) && !/ArrayBuffer\]$/.test(Object.prototype.toString.call(source))) {
    throw new TypeError(
      'expected the bytes of a .wasm file or a WebAssembly.Module, which `await WebAssembly.compileStreaming(response)` makes of a response',
    );
  }
  return new WebAssembly.Module(source);
}

/** Positions of functions in the tables of the runtimes. */
const positions = new WeakMap();

/** Returns the address of a function: its position in the table. */
function addressOf(table, f) {
  if (!positions.has(table)) positions.set(table, new Map());
  const places = positions.get(table);
  let place = places.get(f);
  if (place === undefined) {
    place = table.grow(1);
    table.set(place, f);
    places.set(f, place);
  }
  return place;
}

/** Returns what compiled code calls if it does not check that a weak function exists. */
const missingFunction = (name) => () => {
  throw new Error(`compiled code has called ${name}, which does not exist`);
};

const aligned = (address, align) => Math.ceil(address / align) * align;

/**
 * Instantiates compiled code. `runtime` are the exports of the runtime, `memory` its memory, and `die(error)` reports that it has ended.
 * Returns the names of the functions with their positions in the table, and a function that sets the module to which they belong.
 */
function link(module, runtime, memory, die) {
  const needs = readNeeds(module);
  const table = runtime.__indirect_function_table;
  const env = {
    __proto__: null,
    memory: memory.memory,
    __indirect_function_table: table,
    __stack_pointer: runtime.__stack_pointer,
    __memory_base: undefined,
    __table_base: undefined,
  };
  const functions = check(module, runtime, needs.weak, env);
  const got = { __proto__: null, 'GOT.mem': { __proto__: null }, 'GOT.func': { __proto__: null } };
  for (const { module: from, name, kind } of WebAssembly.Module.imports(module)) {
    if (from !== 'env') got[from][name] = new WebAssembly.Global({ value: 'i32', mutable: true }, 0);
    else if (kind === 'function') env[name] = runtime[name] ?? MATH[name] ?? missingFunction(name);
  }

  // Blocks are aligned to 64 bytes.
  const size = needs.memory + Math.max(0, needs.memoryAlign - 64);
  const block = needs.memory === 0 ? 0 : memory.reserve(size);
  const memoryBase = aligned(block, needs.memoryAlign);
  memory.u8.fill(0, memoryBase, memoryBase + needs.memory);
  let exports;
  try {
    const tableBase = needs.table === 0 ? 0 : aligned(table.grow(needs.table + needs.tableAlign - 1), needs.tableAlign);
    env.__memory_base = new WebAssembly.Global({ value: 'i32' }, memoryBase | 0);
    env.__table_base = new WebAssembly.Global({ value: 'i32' }, tableBase);
    ({ exports } = new WebAssembly.Instance(module, { __proto__: null, env, ...got }));
    for (const name of functions) {
      for (const f of [exports[name], exports[METADATA + name.slice(PREFIX.length)]]) {
        if (typeof f === 'function' && f.length !== PARAMETERS) {
          throw new TypeError(
            `${name} of the WebAssembly module has ${f.length} parameters, where the library convention demands ${PARAMETERS}`,
          );
        }
      }
    }
  } catch (error) {
    // A module without memory, or with an import of another type, has not run. A trap in it leaves the stack of the runtime as it is.
    if (error instanceof WebAssembly.RuntimeError) die(error);
    if (block && !exports) memory.free(block, size);
    throw error;
  }
  memory.check();

  const dataAddress = (name) => (exports[name] instanceof WebAssembly.Global ? exports[name].value + memoryBase : undefined);
  for (const [name, place] of Object.entries(got['GOT.mem'])) place.value = dataAddress(name) ?? 0;
  for (const [name, place] of Object.entries(got['GOT.func'])) {
    const f = exports[name] ?? runtime[name];
    if (typeof f === 'function') place.value = addressOf(table, f);
  }
  try {
    exports.__wasm_apply_data_relocs?.();
    memory.check();
    for (const [variable, name] of Object.entries(VARIABLES)) {
      const address = dataAddress(variable);
      if (address !== undefined && runtime[name]) memory.u32[address >>> 2] = addressOf(table, runtime[name]);
    }
    (exports._initialize ?? exports.__wasm_call_ctors)?.();
  } catch (error) {
    die(error);
  }
  memory.check();
  return {
    names: functions.map((name) => name.slice(PREFIX.length)),
    positions: functions.map((name) => addressOf(table, exports[name])),
    metadata: functions.map((name) => {
      const f = exports[METADATA + name.slice(PREFIX.length)];
      return typeof f === 'function' ? addressOf(table, f) : 0;
    }),
    setModule: (handle) => {
      const address = dataAddress(CONTEXT);
      if (address !== undefined) memory.u32[address >>> 2] = handle;
    },
  };
}

module.exports = { link, compiledOf };
