'use strict';
// Tensors and typed arrays.

const assert = require('node:assert/strict');
const { test } = require('node:test');

const { anyfn, WASM, samples, skip } = require('./support.js');

const sample = samples();

test('a typed array is passed without a copy', () => {
  const x = Float32Array.from([1, 2, 3]);
  const y = Float32Array.from([10, 20, 30]);
  sample('saxpy')(2, x, y);
  assert.deepEqual([...y], [12, 24, 36]);
  const z = new Float32Array(3);
  sample('saxpy').with({ y: z, x, a: 3 })();
  assert.deepEqual([...z], [3, 6, 9]);
  const part = new Float32Array(y.buffer, 4, 2);
  sample('saxpy')(1, Float32Array.from([1, 1]), part);
  assert.deepEqual([...y], [12, 25, 37]);
});

test('every class of typed arrays', () => {
  for (const cls of [Int8Array, Uint8Array, Uint8ClampedArray, Int16Array, Uint16Array, Int32Array, Uint32Array, Float32Array, Float64Array, BigInt64Array, BigUint64Array]) {
    const big = cls.name.startsWith('Big');
    const array = cls.from(big ? [1n, 2n] : [1, 2]);
    const back = sample('echo')(array);
    assert.ok(back instanceof anyfn.Tensor);
    assert.deepEqual([...back.data], [...array]);
    assert.equal(back.data.constructor, cls === Uint8ClampedArray ? Uint8Array : cls);
  }
});

test('the memory of a tensor is a typed array without a copy', () => {
  const tensor = anyfn.tensor([[1, 2], [3, 4]]);
  assert.deepEqual([tensor.shape, String(tensor.dtype), String(tensor.device), tensor.size], [[2, 2], 'float32', 'cpu:0', 4]);
  tensor.data[3] = 40;
  assert.equal(sample('tensor_sum')(tensor), 46);
  assert.equal(tensor.data, tensor.data);
  assert.deepEqual(tensor.reshape([4]).toArray(), [1, 2, 3, 40]);
  const { data } = tensor;
  tensor.dispose();
  globalThis.gc?.();
  assert.equal(data[3], 40);
});

test('tensors are made of arrays', () => {
  assert.deepEqual(anyfn.tensor(5).shape, []);
  assert.deepEqual(anyfn.tensor([], [0], 'int8').toArray(), []);
  assert.deepEqual(anyfn.tensor([1, 2], undefined, 'int64').toArray(), [1n, 2n]);
  assert.deepEqual(anyfn.tensor(Int32Array.from([1, 2, 3, 4]), [2, 2]).toArray(), [[1, 2], [3, 4]]);
  assert.deepEqual(anyfn.tensor([true, false], undefined, 'bool').toArray(), [true, false]);
  assert.deepEqual(anyfn.empty([2, 1], 'uint8').toArray(), [[0], [0]]);
  assert.throws(() => anyfn.tensor([[1], [2, 3]]), { name: 'TypeError', message: /differ in length/ });
  for (const ragged of [[[1, 2, 3], [4, 5], [6, 7, 8, 9]], [[1, 2], 3, 4], [1, [2]], [[1], [[2]]]]) {
    assert.throws(() => anyfn.tensor(ragged), { name: 'TypeError', message: /differ in length/ });
  }
  assert.throws(() => anyfn.tensor(Int32Array.from([1, 2, 3]), [2, 2]), { name: 'ValueError' });
  for (const extent of [2.5, NaN, Infinity]) {
    assert.throws(() => anyfn.tensor(new Float32Array(4), [extent, 2]), { name: 'TypeError', message: /expected an integer as the extent/ });
  }
  for (const bytes of [Buffer.from([1, 2]), anyfn.bytes([1, 2]), Uint8Array.of(1, 2)]) {
    const tensor = anyfn.tensor(bytes);
    assert.deepEqual([String(tensor.dtype), tensor.toArray()], ['uint8', [1, 2]]);
  }
  assert.throws(() => anyfn.tensor(new DataView(new ArrayBuffer(4))), { name: 'TypeError', message: /expected a typed array/ });
  assert.throws(() => anyfn.tensor('x'), TypeError);
  assert.throws(() => anyfn.tensor([1], [1], 'float16'), { name: 'TypeError', message: /typed array/ });
  assert.throws(() => new anyfn.Tensor(), TypeError);
});

test('numbers that do not fit into the type of a tensor are refused', () => {
  const wrong = [[300, 'uint8'], [-1, 'uint8'], [128, 'int8'], [NaN, 'int32'], [Infinity, 'uint16'], [2 ** 32, 'uint32'], [2n ** 63n, 'int64'], [-1n, 'uint64']];
  for (const [number, dtype] of wrong) {
    const message = `tensor: the number ${number} at index 1 does not fit into ${dtype}`;
    assert.throws(() => anyfn.tensor([0, number], undefined, dtype), (error) => error instanceof RangeError && error.message === message);
  }
  const right = [[255.9, 'uint8', 255], [-128, 'int8', -128], [2 ** 32 - 1, 'uint32', 2 ** 32 - 1], [2n ** 63n - 1n, 'int64', 2n ** 63n - 1n], [1e300, 'float64', 1e300]];
  for (const [number, dtype, kept] of right) assert.equal(anyfn.tensor([number], undefined, dtype).data[0], kept);
});

test('shape, type and device may be options, and devices names', () => {
  const tensor = anyfn.tensor([1, 2, 3, 4], { shape: [2, 2], dtype: 'int16', device: 'cpu:0' });
  assert.deepEqual([tensor.toArray(), String(tensor.dtype)], [[[1, 2], [3, 4]], 'int16']);
  assert.equal(anyfn.tensor(Float64Array.of(1), { device: anyfn.cpu() }).toArray()[0], 1);
  assert.equal(String(anyfn.empty([2], { dtype: 'uint8', device: 'cpu' }).dtype), 'uint8');
  assert.equal(tensor.to('cpu'), tensor);
  assert.ok(anyfn.device('cuda:1').equals(anyfn.device('cuda', 1)));
  assert.throws(() => anyfn.tensor([1], { devise: 'cpu' }), { name: 'TypeError', message: /the options shape, dtype and device, got 'devise'/ });
  assert.throws(() => tensor.to('gpu'), { name: 'TypeError', message: "expected a device such as anyfn.cpu() or 'cpu:0', got 'gpu'" });
  assert.throws(() => anyfn.tensor([1], { device: 'cuda:0' }), { name: 'RuntimeError', message: /device cuda:0 is not available/ });
});

test('WebGPU devices exist in pages', async () => {
  await assert.rejects(anyfn.requestWebGPU(), { name: 'RuntimeError', message: /WebGPU/ });
  if (!WASM) assert.throws(() => anyfn.webgpuModule('', {}), { name: 'RuntimeError', message: /pages have them/ });
});

test('elements that are smaller or larger than numbers are bytes', () => {
  const small = anyfn.empty([2 ** 23 + 1], 'int4');
  assert.equal(small.data.length, 2 ** 22 + 1);
  assert.equal(small.data.reduce((sum, x) => sum + x), 0);
  assert.deepEqual(small.toBytes().length, small.data.length);
  const lanes = anyfn.tensor(Float32Array.of(1, 2, 3, 4), [2], 'float32x2');
  assert.deepEqual([...new Float32Array(lanes.data.buffer, lanes.data.byteOffset, 4)], [1, 2, 3, 4]);
  for (const tensor of [small, lanes]) assert.throws(() => tensor.toArray(), { name: 'TypeError', message: /toBytes/ });
  assert.deepEqual(anyfn.tensor(Uint8Array.of(1, 2), [2], 'float8_e4m3fn').toArray(), [1, 2]);
});

test('the memory of a read-only tensor cannot be written', () => {
  const tensor = sample('pass_on_read_only')(Float32Array.of(1, 2), sample('echo'));
  assert.equal(tensor.isReadOnly, true);
  tensor.data[0] = 5;
  assert.equal(sample('tensor_sum')(tensor), 3);
});

test('tensors on other devices and with strides say what to do', () => {
  const device = anyfn.getGlobalFunc('anyfn.device_enable_null')();
  const there = anyfn.tensor([1, 2]).to(device);
  assert.throws(() => there.data, { name: 'TypeError', message: /cpu\(\)/ });
  assert.deepEqual(there.toArray(), [1, 2]);
  const turned = anyfn.getGlobalFunc('anyfn.tensor_permute')(anyfn.tensor([[1, 2], [3, 4]]), new anyfn.Shape([1, 0]));
  assert.throws(() => turned.data, { name: 'TypeError', message: /contiguous/ });
  assert.deepEqual(turned.toArray(), [[1, 3], [2, 4]]);
});

test('a callback receives the typed array that was lent', () => {
  const x = new Float32Array(new SharedArrayBuffer(8));
  let seen;
  sample('pass_on_read_only')(x, (array) => {
    seen = array;
  });
  assert.equal(seen, x);
  // A tensor of native code becomes one that may be kept.
  let kept;
  sample('lend_constants')((tensor) => {
    kept = tensor;
  });
  assert.deepEqual(kept.toArray(), [5, 6]);
});

test('a detached buffer is refused', () => {
  const x = new Float32Array(4);
  structuredClone(x.buffer, { transfer: [x.buffer] });
  assert.throws(() => sample('tensor_sum')(x), { name: 'TypeError', message: /detached/ });
  assert.throws(() => sample('echo')(x.buffer), { name: 'TypeError', message: /detached/ });
  // An empty one is not.
  assert.equal(sample('tensor_sum')(new Float32Array(0)), 0);
});

const detach = (array) => void structuredClone(array.buffer, { transfer: [array.buffer] });

test('JavaScript cannot detach a buffer while native code has its address', { skip: WASM && 'typed arrays are copied' }, () => {
  const x = Float32Array.of(1, 2);
  let called = 0;
  const f = () => {
    called += 1;
    detach(x);
  };
  const refused = { name: 'TypeError', message: /borrows an ArrayBuffer.*anyfn\.tensor/ };
  assert.throws(() => sample('pass_on_read_only')(x, f), refused);
  // Native code that ignores the error of one callback cannot make another one.
  assert.throws(() => sample('apply')(sample('apply'), f, x), refused);
  // While a thread uses the memory, this one runs the callbacks of other threads.
  assert.throws(() => sample('apply_on_thread')(f, x), refused);
  assert.deepEqual([called, [...x]], [0, [1, 2]]);
  // No native code has the address of an array that is passed to a JavaScript function.
  anyfn.registerFunc('js.detach', detach, { override: true });
  anyfn.getGlobalFunc('js.detach')(x);
  assert.equal(x.length, 0);
  const tensor = anyfn.tensor([1, 2]);
  assert.equal(sample('pass_on_read_only')(tensor, (same) => same.data[1]), 2);
});

test('JavaScript cannot detach a buffer while later arguments are converted', { skip: WASM && 'typed arrays are copied' }, () => {
  const array = anyfn.getGlobalFunc('ffi.Array');
  const x = new Float64Array(1 << 16);
  const getter = {
    get a() {
      detach(x);
      return 1;
    },
  };
  assert.throws(() => array(x, getter), { name: 'TypeError', message: /detached or resized while other arguments/ });
  const y = new Float64Array(1 << 16);
  const proxy = new Proxy({}, { get: () => detach(y) });
  assert.throws(() => array.with({})(1, y, proxy), { name: 'TypeError', message: /detached or resized while other arguments/ });
  const bytes = Object.setPrototypeOf(anyfn.bytes([1, 2, 3]), new Proxy(anyfn.Bytes.prototype, {
    getPrototypeOf(target) {
      detach(bytes);
      return Object.getPrototypeOf(target);
    },
  }));
  assert.throws(() => sample('echo')(bytes), { name: 'TypeError', message: /ArrayBuffer is detached/ });
});

test('an instance of the package that was loaded again lends as well', { skip: WASM && 'typed arrays are copied' }, () => {
  const { cache } = require;
  const loaded = { ...cache };
  for (const name of Object.keys(cache)) delete cache[name];
  try {
    const again = require('..');
    assert.notEqual(again, anyfn);
    const x = Float32Array.of(1, 2);
    for (const { getGlobalFunc } of [anyfn, again]) assert.deepEqual(getGlobalFunc('testing.echo')(x).toArray(), [1, 2]);
    // The other instance does not know the array; its functions are refused as well.
    const f = again.convert(() => 1);
    again.registerFunc('js.again', f);
    assert.throws(() => anyfn.getGlobalFunc('js.again')(x), { name: 'TypeError', message: /borrows an ArrayBuffer/ });
  } finally {
    for (const name of Object.keys(cache)) delete cache[name];
    Object.assign(cache, loaded);
  }
});

test('a resizable buffer is lent only to functions that do not call JavaScript', { skip: (WASM && 'typed arrays are copied') || skip('resizable buffers', !ArrayBuffer.prototype.resize && 'Node.js 18 has no resizable buffers') }, () => {
  const buffer = new ArrayBuffer(16, { maxByteLength: 1 << 20 });
  const x = new Float32Array(buffer);
  x.fill(1);
  assert.equal(sample('tensor_sum')(x), 4);
  assert.throws(() => sample('pass_on_read_only')(x, () => buffer.resize(0)), { name: 'TypeError', message: /borrows/ });
  buffer.resize(8);
  assert.equal(sample('tensor_sum')(x), 2);
  const kept = sample('echo')(x);
  buffer.resize(0);
  assert.deepEqual(kept.toArray(), [1, 1]);
});

test('shared memory is lent, too', () => {
  const x = new Float32Array(new SharedArrayBuffer(8)).fill(3);
  assert.equal(sample('tensor_sum')(x), 6);
});

test('native code that keeps a typed array keeps a copy', () => {
  const x = Float32Array.from([1]);
  const kept = sample('echo')(x);
  x[0] = 5;
  assert.equal(kept.data[0], 1);
});
