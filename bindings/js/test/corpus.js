'use strict';
// Values and cases of the conformance corpus in JavaScript, for every host: it uses nothing of Node.js.

/** Files of the corpus. */
const FILES = ['values', 'calls', 'errors', 'named', 'operations', 'objects', 'tensors'];

/** Reads the text of a file of the corpus. Integers become strings, because numbers cannot represent all of them. */
function parse(text) {
  return JSON.parse(text.replace(/(?<!\\)"int": ?(-?\d+)/g, '"int": "$1"').replace(/(?<=[[ ])(-?\d{16,})(?=[,\]])/g, '"$1"'));
}

const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
const fromHex = (text) => Uint8Array.from(text.match(/../g) ?? [], (byte) => parseInt(byte, 16));

/** Returns the functions for the corpus over a package. */
function createCorpus(anyfn) {
  // Integers are bigints in both directions, so that they differ from floats.
  const CALLBACKS = {
    echo: (x) => x,
    count: (...args) => BigInt(args.length),
    fail: () => {
      throw new anyfn.errors.ValueError('callback failed');
    },
  };
  const callback = (name) => anyfn.convert(CALLBACKS[name], { bigint: true });

  const FLOATS = { nan: NaN, inf: Infinity, '-inf': -Infinity };
  const ARRAYS = {
    int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
    uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array,
    float32: Float32Array, float64: Float64Array, bool: Uint8Array, float16: Uint16Array,
  };

  /** Converts a number to the bits of a float16; the numbers of the corpus are exact. */
  function halfBits(value) {
    if (value === 0) return Object.is(value, -0) ? 0x8000 : 0;
    const sign = value < 0 ? 0x8000 : 0;
    const exponent = Math.floor(Math.log2(Math.abs(value)));
    return sign | ((exponent + 15) << 10) | ((Math.abs(value) / 2 ** exponent - 1) * 1024);
  }

  function makeTensor({ dtype, shape, data }) {
    const cls = ARRAYS[dtype];
    const big = cls === BigInt64Array || cls === BigUint64Array;
    const convert = big ? BigInt : dtype === 'float16' ? halfBits : (x) => Number(FLOATS[x] ?? x);
    const array = cls.from(data.flat(Infinity), convert);
    const natural = dtype !== 'bool' && dtype !== 'float16';
    return natural && shape.length === 1 ? array : anyfn.tensor(array, shape, dtype);
  }

  const call = (name, ...args) => anyfn.getGlobalFunc(name).bigint(...args);

  /** Converts a value of the corpus to a JavaScript value. `scope` contains the named values of the case. */
  function make(value, scope = {}) {
    if (value === null || typeof value === 'boolean') return value;
    const [[tag, body]] = Object.entries(value);
    switch (tag) {
      case 'int':
      case 'bigint':
        return BigInt(body);
      case 'float':
        return anyfn.float(FLOATS[body] ?? Number(body));
      case 'str':
        return body;
      case 'bytes':
        return anyfn.bytes(fromHex(body));
      case 'dtype':
        return anyfn.dtype(body);
      case 'device':
        return anyfn.device(...body);
      case 'opaque':
        return anyfn.opaque(body);
      case 'global':
        return anyfn.getGlobalFunc(body);
      case 'callback':
        return callback(body);
      case 'let':
        return scope[body];
      case 'call':
        return call(body[0], ...body.slice(1).map((item) => make(item, scope)));
      case 'field':
        return anyfn.getField(make(body[0], scope), body[1], { bigint: true });
      case 'set':
        make(body[0], scope)[body[1]] = make(body[2], scope);
        return null;
      case 'attribute':
        return anyfn.typeAttribute(body[0], body[1], { bigint: true });
      case 'array':
        return body.map((item) => make(item, scope));
      case 'map':
        return new Map(body.map(([key, item]) => [make(key, scope), make(item, scope)]));
      case 'shape':
        return new anyfn.Shape(body);
      case 'tensor':
        return makeTensor(body);
      default:
        throw new Error(`unknown value ${JSON.stringify(value)}`);
    }
  }

  /** Returns a value that may be passed to native code that calls JavaScript: an ArrayBuffer cannot be lent to such code. */
  const owned = (value) => (ArrayBuffer.isView(value) && !(value instanceof anyfn.Bytes) ? anyfn.tensor(value) : value);

  const number = (value) => ['float', Object.is(value, -0) ? '-0' : String(value)];
  const NAMES = new Map(Object.entries(ARRAYS).map(([name, cls]) => [cls, name]).reverse());

  /** Converts a value to arrays and strings that can be compared. */
  function plain(value) {
    if (typeof value === 'bigint') return ['int', String(value)];
    if (typeof value === 'number') return number(value);
    if (value instanceof anyfn.Float) return number(Number(value));
    if (value instanceof anyfn.Bytes) return ['bytes', hex(value)];
    if (ArrayBuffer.isView(value)) return ['tensor', NAMES.get(value.constructor), [value.length], bytesOf(value)];
    if (value instanceof anyfn.Tensor) {
      const compact = value.to(anyfn.cpu()).contiguous();
      return ['tensor', String(value.dtype), value.shape, hex(compact.toBytes())];
    }
    if (value instanceof anyfn.DType || value instanceof anyfn.Device || value instanceof anyfn.OpaquePointer) {
      return [value.constructor.name, String(value)];
    }
    if (value instanceof anyfn.Shape) return ['shape', value.toArray()];
    if (value instanceof anyfn.ArrayRef) return ['array', value.bigint.toArray().map(plain)];
    if (value instanceof anyfn.MapRef) return ['map', [...value.bigint].map(([k, v]) => [plain(k), plain(v)])];
    if (Array.isArray(value)) return ['array', value.map(plain)];
    if (value instanceof Map) return ['map', [...value].map(([k, v]) => [plain(k), plain(v)])];
    return value;
  }

  const bytesOf = (array) => hex(new Uint8Array(array.buffer, array.byteOffset, array.byteLength));

  /** Makes the call that a case describes, and returns its result. */
  function run(one) {
    const scope = {};
    for (const [name, value] of one.let ?? []) scope[name] = make(value, scope);
    const args = one.args.map((arg) => make(arg, scope));
    const f = anyfn.getGlobalFunc(one.call);
    if (!one.kwargs) return f.bigint(...args);
    const named = Object.fromEntries(Object.entries(one.kwargs).map(([name, value]) => [name, make(value, scope)]));
    return f.with(named).bigint(...args);
  }

  /** Returns the value that a case must have, and the one that it has; or the error. */
  function outcome(one) {
    try {
      return { result: plain(run(one)) };
    } catch (error) {
      return { error: { kind: error.kind ?? error.name, message: error.message } };
    }
  }

  const same = (found, wanted) => {
    const [a, b] = [found, wanted].map((value) => JSON.stringify(value));
    return a === b ? undefined : `expected ${b}, got ${a}`;
  };

  /** Runs a case of a file. Returns undefined if it passes, and what is wrong otherwise. */
  function check(file, one) {
    if (file === 'values') {
      const wanted = plain(make(one.value));
      const out = same(plain(call('testing.echo', make(one.value))), wanted);
      return out ?? same(plain(call('testing.apply', callback('echo'), owned(make(one.value)))), wanted);
    }
    const wanted = one.error ? { error: { kind: one.error.kind, message: one.error.message } } : { result: plain(make(one.result)) };
    const wrong = same(outcome(one), wanted);
    return wrong ?? (call('testing.echo', 1) === 1n ? undefined : 'testing.echo(1) fails after it');
  }

  return { callback, make, owned, plain, call, run, check };
}

/**
 * Runs the whole corpus. `texts` contains the text of each file. `unsupported` maps what a case may need to the reason why the host lacks
 * it. Returns `{passed, failed, skipped}`: a number, texts, and the number of cases by reason.
 */
function runCorpus(anyfn, texts, unsupported = {}) {
  const corpus = createCorpus(anyfn);
  const report = { passed: 0, failed: [], skipped: {} };
  const all = FILES.flatMap((file) => parse(texts[file]).map((one) => [file, one]));
  anyfn.getGlobalFunc('anyfn.device_enable_null')();
  const isFirst = ([, one]) => one.name.startsWith('define ');
  for (const [file, one] of [...all.filter(isFirst), ...all.filter((each) => !isFirst(each))]) {
    const reason = unsupported[one.needs];
    if (reason) {
      report.skipped[reason] = (report.skipped[reason] ?? 0) + 1;
      continue;
    }
    let wrong;
    try {
      wrong = corpus.check(file, one);
    } catch (error) {
      wrong = String(error?.stack ?? error);
    }
    if (wrong) report.failed.push(`${file}, ${one.name}: ${wrong}`);
    else report.passed += 1;
  }
  return report;
}

module.exports = { FILES, parse, createCorpus, runCorpus };
