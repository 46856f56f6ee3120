'use strict';
// Loads compiled functions: a position-independent WebAssembly module that imports memory, table and stack of the runtime
// (`wasm-ld -shared`), so that it works on the runtime's tensors without a copy. Its code stays loaded as long as the runtime.

const PREFIX = '__tvm_ffi_';
const CONTEXT = '__tvm_ffi__library_ctx';
const OTHER = '__tvm_ffi__';
const METADATA = '__tvm_ffi__metadata_';

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

/** Functions of the C library that compiled code may call. The names of single-precision ones end with `f`. */
const MATH = {};
for (const name of [
  'acos', 'acosh', 'asin', 'asinh', 'atan', 'atan2', 'atanh', 'cbrt', 'cos', 'cosh', 'exp', 'expm1', 'hypot', 'log', 'log10', 'log1p',
  'log2', 'pow', 'sin', 'sinh', 'tan', 'tanh',
]) {
  const f = Math[name];
  MATH[name] = f;
  MATH[`${name}f`] = (...args) => Math.fround(f(...args));
}
// Halves are rounded away from zero, as in C.
MATH.round = (x) => Math.sign(x) * Math.round(Math.abs(x));
MATH.roundf = MATH.round;
MATH.fmod = (x, y) => x % y;
MATH.fmodf = MATH.fmod;
MATH.exp2 = (x) => 2 ** x;
MATH.exp2f = (x) => Math.fround(2 ** x);
MATH.exp10 = (x) => 10 ** x;

/** Reads the section that says how much memory and how many places of the table a module needs. */
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
      at += 1;
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value >>> 0;
    }
  };
  while (at < bytes.length) {
    const kind = number();
    const end = number() + at;
    if (kind === 1) return { memory: number(), memoryAlign: number(), table: number(), tableAlign: number() };
    at = end;
  }
  return { memory: 0, memoryAlign: 0, table: 0, tableAlign: 0 };
}

/**
 * Instantiates compiled code. `runtime` are the exports of the runtime, and `memory` its memory. Returns the names of the functions with
 * their positions in the table, and a function that sets the module to which they belong.
 */
function link(module, runtime, memory) {
  const needs = readNeeds(module);
  const table = runtime.__indirect_function_table;
  const places = new Map();
  /** Returns the address of a function: its position in the table. */
  const addressOf = (f) => {
    let place = places.get(f);
    if (place === undefined) {
      place = table.grow(1);
      table.set(place, f);
      places.set(f, place);
    }
    return place;
  };
  const memoryBase = needs.memory === 0 ? 0 : alignedBlock(memory, needs.memory, 2 ** needs.memoryAlign);
  const tableBase = needs.table === 0 ? 0 : table.grow(needs.table);
  const env = {
    memory: memory.memory,
    __indirect_function_table: table,
    __stack_pointer: runtime.__stack_pointer,
    __memory_base: new WebAssembly.Global({ value: 'i32' }, memoryBase),
    __table_base: new WebAssembly.Global({ value: 'i32' }, tableBase),
  };
  const got = { 'GOT.mem': {}, 'GOT.func': {} };
  const missing = [];
  for (const { module: from, name, kind } of WebAssembly.Module.imports(module)) {
    if (from in got) got[from][name] = new WebAssembly.Global({ value: 'i32', mutable: true }, 0);
    else if (from === 'env' && kind === 'function') {
      const f = runtime[name] ?? MATH[name];
      if (f === undefined) missing.push(name);
      env[name] = f;
    } else if (from !== 'env' || !(name in env)) missing.push(`${from}.${name}`);
  }
  if (missing.length) throw new TypeError(`the WebAssembly module needs what the runtime lacks: ${missing.join(', ')}`);
  const { exports } = new WebAssembly.Instance(module, { env, ...got });
  memory.check();
  const dataAddress = (name) => (exports[name] instanceof WebAssembly.Global ? exports[name].value + memoryBase : undefined);
  for (const [name, place] of Object.entries(got['GOT.mem'])) place.value = dataAddress(name) ?? 0;
  for (const [name, place] of Object.entries(got['GOT.func'])) {
    const f = exports[name] ?? runtime[name];
    if (typeof f === 'function') place.value = addressOf(f);
  }
  exports.__wasm_apply_data_relocs?.();
  for (const [variable, name] of Object.entries(VARIABLES)) {
    const address = dataAddress(variable);
    if (address !== undefined && runtime[name]) memory.u32[address >>> 2] = addressOf(runtime[name]);
  }
  exports._initialize?.();
  exports.__wasm_call_ctors?.();
  memory.check();
  const functions = Object.entries(exports).filter(
    ([name, f]) => typeof f === 'function' && name.startsWith(PREFIX) && !name.startsWith(OTHER),
  );
  if (functions.length === 0) throw new TypeError('the WebAssembly module has no functions that begin with __tvm_ffi_');
  return {
    names: functions.map(([name]) => name.slice(PREFIX.length)),
    positions: functions.map(([, f]) => addressOf(f)),
    metadata: functions.map(([name]) => {
      const f = exports[METADATA + name.slice(PREFIX.length)];
      return typeof f === 'function' ? addressOf(f) : 0;
    }),
    setModule: (handle) => {
      const address = dataAddress(CONTEXT);
      if (address !== undefined) memory.u32[address >>> 2] = handle;
    },
  };
}

function alignedBlock(memory, size, align) {
  // Blocks are aligned to 64 bytes.
  const block = memory.reserve(size + Math.max(0, align - 64));
  const base = Math.ceil(block / align) * align;
  memory.u8.fill(0, base, base + size);
  return base;
}

module.exports = { link };
