'use strict';
// Asynchronous calls, callbacks from other threads, cancellation.

const assert = require('node:assert/strict');
const { test } = require('node:test');

const { anyfn, samples, run } = require('./support.js');

const sample = samples();
const sleep = sample('sleep');

test('calls run beside the event loop, and beside each other', async () => {
  let ticks = 0;
  const timer = setInterval(() => (ticks += 1), 5);
  const began = Date.now();
  assert.deepEqual(await Promise.all([1, 2, 3, 4].map(() => sleep.callAsync([0.2, false]))), [0.2, 0.2, 0.2, 0.2]);
  clearInterval(timer);
  assert.ok(ticks > 5, `${ticks} ticks`);
  assert.ok(Date.now() - began < 700);
});

test('errors reject the promise, with the stack of the caller', async () => {
  const error = await sample('raise_error').callAsync(['ValueError', 'later']).catch((error) => error);
  assert.ok(error instanceof anyfn.errors.ValueError);
  assert.match(error.stack, /async\.test\.js/);
  await assert.rejects(sample('echo').callAsync([Symbol('x')]), TypeError);
  await assert.rejects(anyfn.callAsync(5, []), TypeError);
});

test('an AbortSignal cancels a call', async () => {
  const controller = new AbortController();
  const began = Date.now();
  const promise = sleep.callAsync([30, true], { signal: controller.signal });
  setTimeout(() => controller.abort(new RangeError('enough')), 20);
  await assert.rejects(promise, { name: 'RangeError', message: 'enough' });
  assert.ok(Date.now() - began < 5000);
  await assert.rejects(sleep.callAsync([0, false], { signal: AbortSignal.abort() }), { name: 'AbortError' });
  await assert.rejects(sleep.callAsync([30, true], { signal: AbortSignal.timeout(20) }), { name: 'TimeoutError' });
  assert.equal(await sleep.callAsync([0, false], { signal: new AbortController().signal }), 0);
});

test('native code on another thread calls JavaScript in the event loop, and awaits its promises', async () => {
  const apply = sample('apply');
  assert.equal(await apply.callAsync([(x) => x + 1, 1]), 2);
  assert.equal(await apply.callAsync([async (x) => (await 1, x * 2), 21]), 42);
  await assert.rejects(apply.callAsync([() => Promise.reject(new RangeError('rejected'))]), { name: 'RangeError', message: 'rejected' });
  const reason = { odd: true };
  assert.equal(await apply.callAsync([async () => { throw reason; }]).catch((error) => error), reason);
  const doubled = await Promise.all(Array.from({ length: 200 }, (_, i) => apply.callAsync([async (x) => x * 2, i])));
  assert.deepEqual(doubled, Array.from({ length: 200 }, (_, i) => 2 * i));
});

test('more calls than threads wait for promises that wait for calls', async () => {
  const nested = () => sample('apply').callAsync([async () => sleep.callAsync([0.01, false])]);
  const results = await Promise.all(Array.from({ length: 150 }, nested));
  assert.deepEqual(results, Array(150).fill(0.01));
});

test('callbacks from many threads at once', () => {
  let calls = 0;
  const sum = sample('apply_on_threads')((i) => ((calls += 1), i), 16);
  assert.deepEqual([calls, sum], [16, 120]);
});

test('a typed array cannot be lent to an asynchronous call', async () => {
  await assert.rejects(sample('tensor_sum').callAsync([new Float32Array(2)]), { name: 'TypeError', message: /anyfn\.tensor/ });
  assert.equal(await sample('tensor_sum').callAsync([anyfn.tensor([1, 2])]), 3);
});

test('named arguments and bigints', async () => {
  assert.equal(await sample('defaults').with({ s: 'y' }).callAsync([1]), '1 2 y None [1, 2]');
  assert.equal(await sample('echo').callAsync([2n ** 60n], { bigint: true }), 2n ** 60n);
  await assert.rejects(sample('echo').callAsync([2n ** 60n]), RangeError);
});

test('a pending call keeps the process alive, an unused function does not', () => {
  assert.equal(run(`sample('sleep').callAsync([0.2, false]).then(console.log);`).out, '0.2\n');
  const began = Date.now();
  assert.equal(run(`sample('keep')(() => 1);`).code, 0);
  assert.ok(Date.now() - began < 5000);
});

test('a thread waits until the event loop runs', () => {
  const { out } = run(`
    const started = sample('apply').callAsync([() => 1]);
    const end = Date.now() + 300;
    while (Date.now() < end);
    started.then((value) => console.log('later', value));
  `);
  assert.equal(out, 'later 1\n');
});

test('threads wait for each other while the thread of the environment serves them', () => {
  const busy = (i) => {
    const end = Date.now() + 450;
    while (Date.now() < end);
    return i;
  };
  assert.equal(sample('apply_on_threads')(busy, 13), 78);
});

test('a thread notices a native call that began after its own call', async () => {
  const started = sample('apply').callAsync([() => 'too late']).catch((error) => error);
  // The event loop does not run until the thread has posted its call.
  const end = Date.now() + 200;
  while (Date.now() < end);
  assert.equal(sample('apply')(sleep, 6.5, false), 6.5);
  assert.match((await started).message, /one native call for 5 seconds/);
});

test('a function that waits for itself by a thread is an error, not a deadlock', async () => {
  // `apply` is not registered as blocking, and calls a function that waits for a thread.
  const began = Date.now();
  assert.throws(() => sample('apply')(sample('apply_on_thread'), (x) => x, 1), {
    name: 'RuntimeError',
    message: /callAsync, or register the native function as blocking/,
  });
  assert.ok(Date.now() - began < 20000);
  assert.equal(await sample('apply').callAsync([sample('apply_on_thread'), (x) => x, 1]), 1);
});
