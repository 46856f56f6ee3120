'use strict';
// Conversions of values: numbers, strings, bytes, collections.

const assert = require('node:assert/strict');
const { test } = require('node:test');

const { anyfn, samples } = require('./support.js');

const sample = samples();
const echo = sample('echo');
const typeKey = sample('type_key');

test('numbers follow the rule: an integer that is not -0 and below 2^53 is an int, any other number a float', () => {
  const LIMIT = 2 ** 53;
  for (const value of [0, 1, -1, 2 ** 31, -(2 ** 31) - 1, LIMIT - 1, 1 - LIMIT]) assert.equal(typeKey(value), 'int', value);
  for (const value of [-0, 0.5, LIMIT, -LIMIT, 1e300, NaN, Infinity, anyfn.float(1)]) {
    assert.equal(typeKey(value), 'float', String(value));
    assert.ok(Object.is(echo(value), Number(value)));
  }
  assert.equal(typeKey(1n), 'int');
  assert.equal(typeKey(true), 'bool');
  // A function that takes a float accepts an int.
  assert.equal(sample('add_f64')(1, 2), 3);
});

test('integers of 64 bits are exact, or an error', () => {
  for (const value of [2n ** 63n - 1n, -(2n ** 63n), 2n ** 53n + 1n, 2n ** 64n, -(2n ** 200n), 5n]) {
    assert.equal(echo.bigint(value), value);
  }
  assert.equal(echo(2n ** 53n - 1n), 2 ** 53 - 1);
  for (const value of [2n ** 53n, -(2n ** 53n), 2n ** 63n - 1n, 2n ** 64n]) {
    assert.throws(() => echo(value), { name: 'RangeError', message: /\.bigint/ });
  }
  const list = anyfn.convert([2n ** 60n]);
  assert.throws(() => list.get(0), RangeError);
  assert.deepEqual([...list.bigint], [2n ** 60n]);
});

test('callbacks receive integers as numbers, or as bigints on request', () => {
  const apply = sample('apply');
  assert.throws(() => apply((x) => x, 2n ** 60n), RangeError);
  const seen = [];
  const big = anyfn.convert((x) => (seen.push(x), x), { bigint: true });
  assert.equal(apply.bigint(big, 2n ** 60n), 2n ** 60n);
  assert.deepEqual(seen, [2n ** 60n]);
});

test('strings keep every character', () => {
  const texts = ['', 'a', 'abcdefg', 'abcdefgh', 'grüße', '简介', '🦀', 'a\0b', 'x'.repeat(250), 'ü'.repeat(126)];
  for (let length = 240; length < 270; length += 1) texts.push('🦀'.repeat(length / 4) + 'é'.repeat(length % 4));
  texts.push('\ufffd', 'é'.repeat(1e5), '🦀'.repeat(1e5));
  for (const text of texts) assert.equal(echo(text), text);
  assert.throws(() => echo('ab\ud800'), { name: 'TypeError', message: /lone surrogate at index 2/ });
  assert.throws(() => echo('x'.repeat(1000) + '\udc00y'), { name: 'TypeError', message: /index 1000/ });
});

test('bytes are not tensors', () => {
  for (const bytes of [anyfn.bytes([1, 2, 3]), Buffer.from([1, 2, 3]), new Uint8Array([1, 2, 3]).buffer]) {
    const back = echo(bytes);
    assert.ok(back instanceof anyfn.Bytes && back instanceof Uint8Array);
    assert.deepEqual([...back], [1, 2, 3]);
  }
  assert.ok(echo(new Uint8Array([1, 2, 3])) instanceof anyfn.Tensor);
  assert.equal(echo(anyfn.bytes([])).length, 0);
  assert.equal(echo(anyfn.bytes(new Array(1e5).fill(7))).length, 1e5);
});

test('nothing is null', () => {
  assert.equal(echo(null), null);
  assert.equal(echo(undefined), null);
});

test('collections become containers', () => {
  assert.deepEqual(echo([1, 'two', [3]]).toArray().slice(0, 2), [1, 'two']);
  assert.equal(echo({ a: 1, b: 2 }).get('b'), 2);
  assert.deepEqual(echo(new Map([[1, 'x']])).toMap(), new Map([[1, 'x']]));
  assert.equal(String(echo([])), '()');
  const cycle = [];
  cycle.push(cycle);
  assert.throws(() => echo(cycle), { name: 'TypeError', message: /contains itself/ });
  let deep = [];
  for (let i = 0; i < 100000; i += 1) deep = [deep];
  assert.throws(() => echo(deep), RangeError);
  assert.equal(echo(new Array(200000).fill(1)).length, 200000);
});

test('other values are refused with a reason', () => {
  assert.throws(() => echo(Symbol('x')), { name: 'TypeError', message: /symbol/ });
  assert.throws(() => echo(new Date()), { name: 'TypeError', message: /class Date/ });
  assert.throws(() => echo(Promise.resolve(1)), { name: 'TypeError', message: /await/ });
  assert.throws(() => echo(new DataView(new ArrayBuffer(8))), { name: 'TypeError', message: /DataView/ });
  class Own {}
  assert.throws(() => echo(new Own()), { name: 'TypeError', message: /class Own/ });
  const bad = new Proxy({}, { get: () => { throw new Error('trap'); } });
  assert.throws(() => echo(bad), { message: 'trap' });
  assert.equal(echo(1), 1);
});

test('data types, devices and pointers', () => {
  assert.equal(String(echo(anyfn.dtype('float32x4'))), 'float32x4');
  assert.throws(() => anyfn.dtype('flaot32'), { name: 'ValueError' });
  const device = echo(anyfn.device('cuda', 3));
  assert.deepEqual([device.type, device.index, device.name, String(device)], [2, 3, 'cuda', 'cuda:3']);
  assert.throws(() => anyfn.device('gpu'), TypeError);
  assert.equal(echo(anyfn.opaque(2n ** 47n)).address, 2n ** 47n);
  assert.ok(anyfn.dtype('int8').equals(anyfn.dtype('int8')) && !anyfn.dtype('int8').equals(anyfn.dtype('int16')));
});

test('containers have the protocols of JavaScript', () => {
  const array = new anyfn.ArrayRef(['a', 'b', 'c']);
  assert.deepEqual([...array], ['a', 'b', 'c']);
  assert.deepEqual([array.length, array.size, array.at(-1), array.at(5), array.get(1)], [3, 3, 'c', undefined, 'b']);
  assert.throws(() => array.get(3), { name: 'IndexError' });
  assert.deepEqual([...array.entries()], [[0, 'a'], [1, 'b'], [2, 'c']]);
  assert.deepEqual(array.map((x) => x + x), ['aa', 'bb', 'cc']);
  assert.ok(array.includes('b') && !array.includes('z'));
  assert.equal(JSON.stringify(array), '["a","b","c"]');
  const [first, ...rest] = array;
  assert.deepEqual([first, rest], ['a', ['b', 'c']]);

  const list = new anyfn.ListRef([1]);
  assert.equal(list.push(2, 3), 3);
  list.set(0, 'x');
  assert.deepEqual([...list], ['x', 2, 3]);
  assert.equal(list.pop(), 3);
  list.clear();
  assert.deepEqual([list.size, list.pop()], [0, undefined]);

  const map = new anyfn.MapRef({ x: 1, y: null });
  assert.deepEqual([map.size, map.get('x'), map.get('y'), map.get('z'), map.has('y')], [2, 1, null, undefined, true]);
  assert.deepEqual([...map], [['x', 1], ['y', null]]);
  assert.deepEqual([[...map.keys()], [...map.values()]], [['x', 'y'], [1, null]]);

  assert.deepEqual([...new anyfn.MapRef([[[1], [2]], [3, [4]]])].map((entry) => JSON.stringify(entry)), ['[[1],[2]]', '[3,[4]]']);
  assert.deepEqual([...new anyfn.DictRef(map)], [...map]);
  for (const wrong of [[1, 2], [[1, 2, 3], [4]], [['k']], 'ab', null]) {
    assert.throws(() => new anyfn.MapRef(wrong), { name: 'TypeError', message: /^expected/ });
  }

  const dict = new anyfn.DictRef();
  dict.set('k', 1).set('l', 2);
  assert.deepEqual([dict.delete('k'), dict.delete('k'), [...dict.keys()]], [true, false, ['l']]);
  assert.deepEqual([...new anyfn.Shape([2, 3])], [2, 3]);
});

test('objects keep their identity', () => {
  const list = new anyfn.ListRef([1]);
  assert.equal(echo(list), list);
  const f = anyfn.getGlobalFunc('testing.nop');
  assert.equal(anyfn.getGlobalFunc('testing.nop'), f);
  assert.equal(echo(f), f);
  const own = () => 1;
  assert.equal(echo(own), own);
});
