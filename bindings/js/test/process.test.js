'use strict';
// Processes and worker threads: how environments begin and end.

const assert = require('node:assert/strict');
const path = require('node:path');
const { test } = require('node:test');

const { run } = require('./support.js');

const PACKAGE = JSON.stringify(path.join(__dirname, '..'));
const SUPPORT = JSON.stringify(path.join(__dirname, 'support.js'));
const WORKER = `
  const { Worker } = require('node:worker_threads');
  const work = (source) => new Worker(\`const { parentPort, workerData } = require('node:worker_threads');
    const anyfn = require(${PACKAGE}); const sample = require(${SUPPORT}).samples(); \${source}\`, { eval: true });
  const ended = (worker) => new Promise((resolve) => worker.on('exit', resolve));
  const said = (worker) => new Promise((resolve, reject) => (worker.once('message', resolve), worker.once('error', reject)));
`;

function check(source, expected, options) {
  const { code, signal, out, err } = run(source, options);
  assert.deepEqual({ code, signal, out: out.trim() }, { code: 0, signal: null, out: expected }, err);
}

test('process.exit with live objects, callbacks and pending calls', () => {
  check(
    `
    globalThis.kept = Array.from({ length: 1000 }, () => sample('make_point')(1, 2));
    globalThis.list = new anyfn.ListRef([() => 1, anyfn.convert(() => 2)]);
    globalThis.data = anyfn.tensor([1, 2, 3]).data;
    sample('keep')(() => 1);
    anyfn.registerFunc('js.left', () => 1);
    sample('sleep').callAsync([20, false]);
    sample('apply').callAsync([() => 1]);
    console.log('end');
    process.exit(0);
  `,
    'end',
  );
});

test('process.exit inside a callback', () => {
  check(`sample('apply')(() => (console.log('in'), process.exit(0)));`, 'in');
  check(`sample('apply_on_thread')(() => (console.log('in'), process.exit(0)));`, 'in');
});

test('an uncaught exception that passed through native code ends the process as any other', () => {
  const { code, err } = run(`sample('apply')(() => { throw new RangeError('not caught'); });`);
  assert.equal(code, 1);
  assert.match(err, /RangeError: not caught/);
});

test('each worker has its own environment', () => {
  check(
    `${WORKER}
    (async () => {
      sample('keep')((x) => x + 1);
      const worker = work("parentPort.postMessage([sample('echo')('w'), sample('apply')((x) => x * 2, 4), sample('call_kept_on_thread')(1)])");
      const end = ended(worker);
      console.log((await said(worker)).join(' '), await end);
    })();
  `,
    'w 8 2 0',
  );
});

test('a function of a worker that has ended is an error', () => {
  check(
    `${WORKER}
    (async () => {
      const worker = work("anyfn.registerFunc('js.worker', () => 'here'); parentPort.postMessage(1); parentPort.once('message', () => process.exit())");
      await said(worker);
      console.log(await anyfn.getGlobalFunc('js.worker').callAsync());
      const end = ended(worker);
      worker.postMessage(0);
      await end;
      try { anyfn.getGlobalFunc('js.worker')(); } catch (error) { console.log(error.kind, error.message); }
    })();
  `,
    'here\nRuntimeError the JavaScript environment that defined this function has ended',
  );
});

test('the addon stays mapped when only workers have loaded it', () => {
  const script = `
    const { Worker } = require('node:worker_threads');
    const source = \`const anyfn = require(${PACKAGE}); require(${SUPPORT}).samples();
      anyfn.registerFunc('js.gone', () => 1, { override: true }); globalThis.kept = anyfn.tensor([1]).data;
      require('node:worker_threads').parentPort.postMessage(anyfn.getGlobalFunc('testing.add_i64')(1, 2));\`;
    (async () => {
      for (let i = 0; i < 5; i += 1) {
        const worker = new Worker(source, { eval: true });
        worker.on('message', (x) => process.stdout.write(x + ' '));
        await new Promise((resolve) => worker.on('exit', resolve));
      }
    })();
  `;
  const { spawnSync } = require('node:child_process');
  const { status, stdout, stderr } = spawnSync(process.execPath, ['-e', script], { encoding: 'utf8' });
  assert.deepEqual([status, stdout.trim()], [0, '3 3 3 3 3'], stderr);
});

test('a worker that is terminated in a loop, in a call, and while a thread waits for it', () => {
  check(
    `${WORKER}
    (async () => {
      for (const source of [
        "parentPort.postMessage(1); for (;;) sample('apply')(() => [1].map((x) => x));",
        "parentPort.postMessage(1); sample('sleep')(0.3, false);",
        "sample('sleep').callAsync([0.3, false]); parentPort.postMessage(1);",
        "sample('apply').callAsync([() => new Promise(() => {})]); setTimeout(() => parentPort.postMessage(1), 50);",
        "parentPort.postMessage(1); sample('apply_on_thread')(() => { for (;;); });",
        "parentPort.postMessage(1); for (;;) anyfn.tensor([1, 2, 3]).data;",
      ]) {
        const worker = work(source);
        await said(worker);
        await new Promise((resolve) => setTimeout(resolve, 20));
        console.log(await worker.terminate());
      }
      console.log(sample('echo')('alive'));
    })();
  `,
    '1\n1\n1\n1\n1\n1\nalive',
  );
});

test('a function of a worker writes to a typed array that it borrows, also after it has awaited', () => {
  check(
    `${WORKER}
    (async () => {
      const worker = work(\`
        anyfn.registerFunc('js.write', (tensor) => void (tensor.data[0] = 41));
        anyfn.registerFunc('js.write_later', async (tensor) => (await null, void (tensor.data[1] = 42)));
        parentPort.postMessage(1); parentPort.once('message', () => process.exit());
      \`);
      await said(worker);
      const x = Float32Array.of(1, 2);
      for (const name of ['js.write', 'js.write_later']) anyfn.getGlobalFunc(name)(x);
      console.log(x.join(' '));
      worker.postMessage(0);
    })();
  `,
    '41 42',
  );
});

test('process.exit while a worker waits for a function of the main thread', () => {
  check(
    `${WORKER}
    anyfn.registerFunc('js.main', (x) => x + 1);
    const worker = work("parentPort.postMessage(1); const f = anyfn.getGlobalFunc('js.main'); for (let x = 0; ; ) x = f(x);");
    worker.once('message', () => setTimeout(() => {
      // The worker waits when this ends.
      const end = Date.now() + 50;
      while (Date.now() < end);
      console.log('end');
      process.exit(0);
    }, 50));
  `,
    'end',
    { timeout: 20000 },
  );
});

test('process.exit in a function that a worker waits for', () => {
  check(
    `${WORKER}
    anyfn.registerFunc('js.main', (text) => (console.log(text), process.exit(0)));
    work("anyfn.getGlobalFunc('js.main')('a string that is stored in an object');");
  `,
    'a string that is stored in an object',
    { timeout: 20000 },
  );
});

test('a thread that waits for a worker learns that it was terminated', () => {
  check(
    `${WORKER}
    (async () => {
      const worker = work("anyfn.registerFunc('js.slow', () => new Promise(() => {})); parentPort.postMessage(1); setInterval(() => {}, 1000);");
      await said(worker);
      const pending = anyfn.getGlobalFunc('js.slow').callAsync().catch((error) => error.message);
      await new Promise((resolve) => setTimeout(resolve, 50));
      await worker.terminate();
      console.log(await pending);
    })();
  `,
    'the JavaScript environment that defined this function has ended',
  );
});

test('a folder without the addon is named', () => {
  const { code, err } = run('', { env: { ANYFN_JS_FOLDER: '/nowhere' } });
  assert.equal(code, 1);
  assert.match(err, /no working addon[\s\S]*\/nowhere\/anyfn\.node: no such file/);
});

test('ES modules and CommonJS share one package', () => {
  const url = JSON.stringify(path.join(__dirname, '..', 'index.mjs'));
  check(
    `import(${url}).then((module) => {
      const names = Object.keys(module).filter((name) => name !== 'default').sort();
      console.log(JSON.stringify(names) === JSON.stringify(Object.keys(anyfn).sort()), module.ObjectRef === anyfn.ObjectRef);
    });`,
    'true true',
  );
});
