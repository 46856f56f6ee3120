'use strict';
// Memory: objects, strings, tensors and callbacks are made and dropped. With ANYFN_SOAK, a million of each.

const assert = require('node:assert/strict');
const { test } = require('node:test');

const { anyfn, samples, run } = require('./support.js');

const sample = samples();
const COUNT = process.env.ANYFN_SOAK ? 1000000 : 100000;
// Bytes that the process may grow by. Each kind would need more if it leaked its objects.
const GROWTH = 24e6;

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
  errors: () => {
    try {
      apply(() => { throw new Error('x'); });
    } catch (error) {
      return error;
    }
  },
};
// Slow ones.
const FEWER = new Set(['tensors', 'typed arrays', 'errors']);

const rss = () => (globalThis.gc?.(), process.memoryUsage().rss);

for (const [name, make] of Object.entries(KINDS)) {
  const count = FEWER.has(name) ? COUNT / 10 : COUNT;
  // Node.js releases the memory of typed arrays in the event loop.
  const turn = name === 'typed arrays' ? 1000 : 0;
  test(`${count} ${name} in ${turn ? 'many turns' : 'one turn'} of the event loop`, async () => {
    const round = async (count) => {
      for (let i = 1; i <= count; i += 1) {
        make();
        if (turn && i % turn === 0) await new Promise(setImmediate);
      }
    };
    await round(count / 4);
    await new Promise(setImmediate);
    const before = rss();
    await round(count);
    const grown = rss() - before;
    assert.ok(grown < GROWTH, `${Math.round(grown / 1e6)} MB`);
    await new Promise(setImmediate);
  });
}

test('native objects are released after a collection, without further calls', async () => {
  const before = anyfn.getGlobalFunc('testing.live_objects_by_type');
  const live = () => before().get('testing.Point') ?? 0;
  let kept = Array.from({ length: 5000 }, () => makePoint(1, 2));
  assert.ok(live() === 0 || live() >= kept.length);
  kept = null;
  for (let i = 0; i < 50 && live() > 100; i += 1) {
    globalThis.gc?.();
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  assert.ok(live() <= 100, `${live()} points live`);
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
