'use strict';
// Functions: the registry, calls in both directions, named arguments, release.

const assert = require('node:assert/strict');
const { test } = require('node:test');

const { anyfn, WASM, samples } = require('./support.js');

const sample = samples();

test('the registry', () => {
  const f = anyfn.registerFunc('js.add', (a, b) => a + b);
  assert.equal(f(1, 2), 3);
  const registered = anyfn.getGlobalFunc('js.add');
  assert.ok(registered instanceof anyfn.PackedFunc && registered(1, 2) === 3);
  assert.equal(sample('echo')(registered), registered);
  assert.ok(anyfn.listGlobalFuncNames().includes('js.add'));
  assert.throws(() => anyfn.registerFunc('js.add', () => 0), { name: 'RuntimeError', message: /js\.add/ });
  anyfn.registerFunc('js.add', () => 0, { override: true });
  assert.equal(anyfn.getGlobalFunc('js.add')(1, 2), 0);
  assert.equal(anyfn.removeGlobalFunc('js.add'), true);
  assert.equal(anyfn.removeGlobalFunc('js.add'), false);
  assert.equal(anyfn.getGlobalFunc('js.add', { allowMissing: true }), undefined);
  assert.throws(() => anyfn.getGlobalFunc('testing.ech'), { name: 'ValueError', message: /did you mean testing\.echo/ });
  assert.throws(() => anyfn.registerFunc('js.none', 5), TypeError);
  // As a decorator, and by the name of the function.
  anyfn.registerFunc('js.decorated')(() => 7);
  anyfn.registerFunc(function jsNamed() {
    return 8;
  });
  assert.equal(anyfn.getGlobalFunc('js.decorated')() + anyfn.getGlobalFunc('jsNamed')(), 15);
});

test('a PackedFunc is a function', () => {
  const echo = sample('echo');
  assert.equal(typeof echo, 'function');
  assert.equal(echo.name, '');
  assert.ok(echo instanceof anyfn.PackedFunc && echo instanceof Function);
  assert.ok(!((x) => x instanceof anyfn.PackedFunc)(() => 1));
  assert.deepEqual([1, 2].map((x) => echo(x)), [1, 2]);
  assert.equal(echo.call(null, 3), 3);
  assert.equal(echo.apply(null, [4]), 4);
  assert.throws(() => new anyfn.PackedFunc(), TypeError);
  const converted = anyfn.convert((x) => x + 1);
  assert.ok(converted instanceof anyfn.PackedFunc);
  assert.equal(converted(1), 2);
});

test('functions with many arguments', () => {
  const count = anyfn.convert((...args) => args.length);
  for (const n of [0, 1, 7, 8, 9, 10, 100, 1000]) assert.equal(count(...new Array(n).fill(n)), n);
});

test('named arguments', () => {
  const defaults = sample('defaults');
  assert.equal(defaults.with({ s: 'y' })(1), '1 2 y None [1, 2]');
  assert.equal(defaults.with({ v: [7], a: 5 })(), '5 2 x None [7]');
  const { params, returns } = defaults.signature;
  assert.deepEqual([params[1], params[3].type, returns], [{ name: 'b', type: 'int', default: 2 }, 'Optional<float>', 'ffi.String']);
  assert.equal(sample('echo').signature?.params.length ?? 1, 1);
  assert.throws(() => defaults.with({ nonsense: 1 })(), { name: 'TypeError', message: /nonsense/ });
  assert.throws(() => defaults.with(5), TypeError);
});

test('a wrong argument is named', () => {
  assert.throws(() => sample('add_i64')('x', 1), {
    name: 'TypeError',
    message: 'Mismatched type on argument #0 when calling: `testing.add_i64(0: int, 1: int) -> int`. Expected `int` but got `str`',
  });
});

test('callbacks are called at once, nested, and later', () => {
  const apply = sample('apply');
  assert.equal(apply((a, b) => a * b, 6, 7), 42);
  const depth = (n) => (n === 0 ? 0 : 1 + apply(depth, n - 1));
  assert.equal(depth(200), 200);
  const forever = () => apply(forever);
  assert.throws(forever, RangeError);
  sample('keep')((x) => x + 1);
  assert.equal(sample('call_kept')(1), 2);
  sample('drop_kept')();
});

test('a function that is registered as blocking may wait for a thread that calls JavaScript', { skip: WASM && 'no threads' }, () => {
  assert.equal(sample('apply_on_thread')((x) => x + 1, 41), 42);
  const nested = (n) => (n === 0 ? 0 : 1 + sample('apply_on_thread')(nested, n - 1));
  assert.equal(nested(10), 10);
  assert.throws(() => sample('apply_on_thread')(() => { throw new RangeError('on a thread'); }), {
    name: 'RangeError',
    message: 'on a thread',
  });
});

test('dispose of a function that was looked up by name', () => {
  const apply = sample('apply');
  assert.equal(apply, sample('apply'));
  const inner = () => (apply.dispose(), assert.throws(() => apply(() => 1), { message: /disposed of/ }), 6);
  // A call within a call of the same function.
  assert.equal(apply(() => apply(inner)), 6);
  assert.throws(() => apply(() => 1), { message: /disposed of/ });
  assert.throws(() => apply.bigint(() => 1), { message: /disposed of/ });
  const again = sample('apply');
  assert.notEqual(again, apply);
  assert.equal(again((...args) => args.length), 0);
});

test('dispose releases a function, also during its own call', () => {
  const f = anyfn.convert(() => 5);
  f.dispose();
  f.dispose();
  assert.throws(() => f(), { message: /disposed of/ });
  assert.throws(() => sample('echo')(f), { message: /disposed of/ });
  const g = anyfn.convert(() => (g.dispose(), 6));
  assert.equal(g(), 6);
  assert.throws(() => g(), { message: /disposed of/ });
  if (Symbol.dispose) assert.equal(g[Symbol.dispose], g.dispose);
});

test('the view with bigints keeps its function alive', () => {
  const big = anyfn.convert((x) => x).bigint;
  globalThis.gc?.();
  assert.equal(big(1), 1n);
});

test('a wrong number is no function', { skip: WASM && 'no addon' }, () => {
  const native = require('../node/native.js').load();
  for (const slot of [-1, 1e9, 2 ** 40, 2 ** 53, NaN, Infinity, 0.5 + 2 ** 31]) {
    assert.throws(() => native.call(slot), Error);
    assert.throws(() => native.release(String(slot)), Error);
  }
  assert.throws(() => native.call(), TypeError);
  assert.throws(() => native.call('0'), Error);
  assert.throws(() => native.getField(-5, 0, 0), Error);
  // Nor is the slot of another object.
  const bigint = Object.getOwnPropertyDescriptor(anyfn.PackedFunc.prototype, 'bigint').get;
  assert.throws(() => bigint.call(new anyfn.ListRef())(), { name: 'TypeError', message: /not a function/ });
  const [tag] = Object.getOwnPropertySymbols(sample('nop'));
  assert.throws(() => native.callAsync(new anyfn.ListRef()[tag], []), { name: 'TypeError', message: /not a function/ });
  assert.throws(() => native.tensorInfo(sample('nop')[tag]), TypeError);
  assert.throws(() => native.errorTexts(sample('nop')[tag]), TypeError);
});
