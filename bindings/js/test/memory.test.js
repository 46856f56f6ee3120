'use strict';
// Memory: objects, strings, tensors and callbacks are made and dropped. With ANYFN_SOAK, a million of each.

const assert = require('node:assert/strict');
const { test } = require('node:test');

const { anyfn, samples, run } = require('./support.js');

const sample = samples();
const COUNT = process.env.ANYFN_SOAK ? 1000000 : 100000;
// Bytes that the process may grow by. With ANYFN_SOAK, each kind would need more if it leaked its objects.
const GROWTH = 24e6;
// Number of native objects that may be left, because a sweep begins after 4096 of them. Each kind makes more.
const LEFT = 6000;

const apply = sample('apply');
const echo = sample('echo');
const makePoint = sample('make_point');
const text = 'a string that is stored in an object';
const KINDS = {
  objects: () => makePoint(1, 2),
  containers: () => new anyfn.ListRef([1, 2]),
  strings: () => echo(text),
  tensors: () => anyfn.tensor(new Float32Array(64)),
  'typed arrays': () => anyfn.tensor(new Float32Array(64)).data,
  callbacks: () => apply((x) => x, 1),
  functions: () => anyfn.convert(() => 1),
  'functions by name': () => anyfn.getGlobalFunc('testing.nop').dispose(),
  errors: () => {
    try {
      apply(() => { throw new Error('x'); });
    } catch (error) {
      return error;
    }
  },
};
// Slow ones.
const FEWER = new Set(['tensors', 'typed arrays', 'errors', 'functions by name']);
// Node.js releases the memory of these in the event loop.
const IN_TURNS = new Set(['typed arrays', 'functions by name']);

// Objects of the addon that refer to native ones, and objects of the runtime and of the sample functions.
const addon = require('../node/native.js').load();
const counts = ['testing.live_objects_by_type', 'anyfn.live_objects'].map((name) => anyfn.getGlobalFunc(name));
const live = () => counts.reduce((sum, count) => [...count().values()].reduce((a, b) => a + b, sum), addon.live());

/** Returns the number of native objects when garbage collections free no more of them. */
async function liveInTheEnd(enough) {
  for (let i = 0; i < 50 && live() > enough; i += 1) {
    globalThis.gc?.();
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  return live();
}

const rss = () => (globalThis.gc?.(), process.memoryUsage().rss);

for (const [name, make] of Object.entries(KINDS)) {
  const count = FEWER.has(name) ? COUNT / 10 : COUNT;
  const turn = IN_TURNS.has(name) ? 1000 : 0;
  test(`${count} ${name} in ${turn ? 'many turns' : 'one turn'} of the event loop`, async () => {
    const round = async (count) => {
      for (let i = 1; i <= count; i += 1) {
        make();
        if (turn && i % turn === 0) await new Promise(setImmediate);
      }
    };
    await round(count / 4);
    await new Promise(setImmediate);
    const [before, liveBefore] = [rss(), await liveInTheEnd(0)];
    await round(count);
    const grown = rss() - before;
    assert.ok(grown < GROWTH, `${Math.round(grown / 1e6)} MB`);
    await new Promise(setImmediate);
    const left = (await liveInTheEnd(liveBefore + LEFT)) - liveBefore;
    assert.ok(left <= LEFT, `${left} native objects`);
  });
}

test('callbacks are released after the calls', async () => {
  const refs = Array.from({ length: 100 }, () => {
    const f = (x) => x;
    assert.equal(apply(f, 1), 1);
    return new WeakRef(f);
  });
  const left = () => refs.filter((ref) => ref.deref()).length;
  for (let i = 0; i < 50 && left() > 1; i += 1) {
    await new Promise((resolve) => setTimeout(resolve, 5));
    globalThis.gc?.();
  }
  if (globalThis.gc) assert.ok(left() <= 1, `${left()} functions`);
});

test('native objects are released after a collection, without further calls', async () => {
  const before = await liveInTheEnd(0);
  let kept = Array.from({ length: 5000 }, () => makePoint(1, 2));
  // A slot and a native object each. Objects of earlier tests may be released meanwhile.
  assert.ok(live() >= before + kept.length);
  kept = null;
  const left = (await liveInTheEnd(before + 100)) - before;
  assert.ok(left <= 100, `${left} objects`);
});

test('asynchronous calls leave nothing', async () => {
  const round = async (count) => {
    for (let i = 0; i < count; i += 100) await Promise.all(Array.from({ length: 100 }, () => apply.callAsync([(x) => x, text])));
  };
  await round(COUNT / 50);
  const before = rss();
  await round(COUNT / 10);
  assert.ok(rss() - before < GROWTH);
});

test('a worker that makes and drops objects', () => {
  const { code, out, err } = run(
    `const { Worker, isMainThread } = require('node:worker_threads');
    const source = \`const anyfn = require(\${JSON.stringify(require.resolve(${JSON.stringify(require.resolve('..'))}))});
      const sample = require(${JSON.stringify(require.resolve('./support.js'))}).samples();
      for (let i = 0; i < ${COUNT / 10}; i += 1) { sample('make_point')(1, 2); sample('apply')((x) => x, 'a string on the heap'); }\`;
    (async () => {
      const round = () => new Promise((resolve) => new Worker(source, { eval: true }).on('exit', resolve));
      await round(); await round();
      const before = process.memoryUsage().rss;
      for (let i = 0; i < 6; i += 1) await round();
      console.log(process.memoryUsage().rss - before < 40e6);
    })();`,
    { timeout: 600000 },
  );
  assert.deepEqual([code, out.trim()], [0, 'true'], err);
});
