'use strict';
// Sessions over WebSocket: from Node.js and from a page, as a client and as a server behind a proxy.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { spawn } = require('node:child_process');
const { once } = require('node:events');
const { test } = require('node:test');

const { findBrowser, runPage } = require('./browser.js');
const { pageFiles } = require('./support.js');
const { folder, skip, ROOT } = require('../support.js');
const { bundle } = require('../../tools/bundle.js');
const { runSessions, servePage, errorOf } = require('./session.cases.js');
const web = require('../../web/node.js');

const COMMAND = process.env.ANYFN_COMMAND ?? path.join(ROOT, 'target/debug/anyfn');
const SAMPLES = process.env.ANYFN_TESTING_LIB ?? path.join(ROOT, 'target/debug/libanyfn_testing.so');
const noServer = [COMMAND, SAMPLES, web.wasmFile].filter((file) => !fs.existsSync(file)).map((file) => `no ${file}`)[0];
const noSocket = noServer ?? (typeof WebSocket === 'undefined' && 'no WebSocket in this Node.js (`--experimental-websocket`, or version 22)');
const noBrowser = noServer ?? (!findBrowser() && 'no browser (`apt-get install chromium-headless-shell`)');

const KEY = `alice:${Buffer.alloc(32, 7).toString('base64url')}`;
const WRONG = `alice:${Buffer.alloc(32, 8).toString('base64url')}`;

/** Starts `anyfn rpc ...`. Returns the address at which it listens, and what ends it. */
async function start(...words) {
  const child = spawn(COMMAND, ['rpc', ...words, '--port', '0'], { stdio: ['ignore', 'pipe', 'ignore'] });
  process.on('exit', () => child.kill('SIGKILL'));
  const gone = once(child, 'exit').then(([code]) => {
    throw new Error(`anyfn rpc ${words.join(' ')} ended with code ${code}`);
  });
  gone.catch(() => {});
  const [line] = await Promise.race([once(child.stdout.setEncoding('utf8'), 'data'), gone]);
  const address = /listening at (\S+)/.exec(line)[1];
  const stop = async () => {
    child.kill('SIGKILL');
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
  };
  return { url: `ws://${address}`, stop, child };
}

async function withServer(run, ...words) {
  const keyFile = path.join(folder(), 'alice.key');
  fs.writeFileSync(keyFile, KEY, { mode: 0o600 });
  const server = await start('server', '--key-file', keyFile, '--load', SAMPLES, '--allow', 'testing.*', '--log', '/dev/null', ...words);
  try {
    return await run(server);
  } finally {
    await server.stop();
  }
}

const instance = () => web.instantiateSync();

test('a client in Node.js', { skip: skip('sessions', noSocket) }, () =>
  withServer(async ({ url }) => {
    assert.equal(await runSessions(instance(), { url, key: KEY, wrong: WRONG }), 'sessions work');
  }));

test('a server that ends, and calls in progress', { skip: noSocket }, () =>
  withServer(async ({ url, stop }) => {
    const session = await instance().connect(url, { key: KEY });
    const apply = await session.getFunction('testing.apply');
    const pending = errorOf(apply(() => new Promise(() => {}), 1));
    await new Promise((resolve) => setTimeout(resolve, 100));
    await stop();
    assert.equal((await pending)[0], 'ConnectionError');
    assert.equal(session.ended.name, 'ConnectionError');
  }));

test('a client and a server at a proxy, both in Node.js', { skip: noSocket }, async () => {
  const proxy = await start('proxy');
  const [there, here] = [instance(), instance()];
  try {
    const server = await servePage(there, { proxy: proxy.url, name: 'node', key: KEY });
    const sessions = await Promise.all([1, 2, 3].map(() => here.connect(`${proxy.url}/node`, { key: KEY })));
    for (const session of sessions) {
      const add = await session.getFunction('page.add');
      assert.equal(await add(2, 3), 5);
      assert.equal(await add('a', 'b'), 'ab');
    }
    const [session] = sessions;
    assert.equal(await (await session.getFunction('page.later'))('x'), 'x');
    assert.equal(await (await session.getFunction('page.call'))(async (x) => 2 * x, 4), 9);
    assert.deepEqual(await errorOf((await session.getFunction('page.fail'))()), ['RangeError', 'the page is closed']);
    const [kind, message] = await errorOf(session.getFunction('hidden.thing'));
    assert.equal(kind, 'PermissionError');
    assert.match(message, /functions: \['hidden.thing'\]/);
    assert.equal((await errorOf(session.getFunction('anyfn.web.set_global')))[0], 'PermissionError');
    const tensor = await session.tensor(Float64Array.of(1, 2, 3));
    assert.deepEqual((await tensor.read()).toArray(), [1, 2, 3]);
    assert.equal((await session.info()).arch, 'wasm32');
    // What a client uploads has to be a module.
    const [, why] = await errorOf(session.load(new Uint8Array([0, 1, 2, 3])));
    assert.match(why, /WebAssembly/);
    assert.equal((await errorOf(here.connect(`${proxy.url}/node`, { key: WRONG })))[0], 'PermissionError');
    assert.equal((await errorOf(here.connect(`${proxy.url}/node`)))[0], 'PermissionError');
    server.stop();
    const [ended] = await errorOf((await Promise.resolve(sessions[1])).getFunction('page.add'));
    assert.equal(ended, 'ConnectionError');
    await assert.rejects(servePage(there, { proxy: 'ws://127.0.0.1:9', name: 'node', key: KEY }), { name: 'ConnectionError' });
    await assert.rejects(servePage(there, { proxy: proxy.url, name: 'a/b', key: KEY }), { name: 'TypeError' });
    await assert.rejects(there.serve(proxy.url, { name: 'x', grants: 1 }), { name: 'ValueError', message: /unknown grant or limit `grants`/ });
  } finally {
    await proxy.stop();
  }
});

test('a client that does not prove its key keeps nobody out for long', { skip: noSocket }, async () => {
  const proxy = await start('proxy');
  const [there, here] = [instance(), instance()];
  const errors = [];
  const options = { name: 'node', key: KEY, functions: ['page.*'], sessions: 1, timeout: 0.5, onError: (error) => errors.push(error) };
  const server = await there.serve(proxy.url, options);
  try {
    const silent = new WebSocket(`${proxy.url}/node`);
    const closed = new Promise((resolve) => {
      silent.onclose = resolve;
    });
    silent.onopen = () => silent.send(new Uint8Array([0x61]));
    const { code } = await closed;
    assert.equal(code, 4000);
    const session = await here.connect(`${proxy.url}/node`, { key: KEY });
    session.close();
    server.stop();
    // Stopping is no error.
    assert.deepEqual(errors, []);
  } finally {
    await proxy.stop();
  }
});

/** Returns what a page reports. `inputs` are the addresses that it uses. */
async function inPage(script, inputs) {
  const cases = path.join(folder(), 'cases.mjs');
  fs.writeFileSync(cases, bundle(path.join(__dirname, 'session.cases.js'), ['runSessions', 'servePage']));
  const { result, error } = await runPage(
    pageFiles(script, { '/session-cases.mjs': cases, '/inputs.json': Buffer.from(JSON.stringify(inputs)) }),
  );
  assert.equal(error, undefined);
  return result;
}

test('a client in a page', { skip: skip('sessions in a page', noBrowser) }, () =>
  withServer(async ({ url }) => {
    assert.equal(await inPage('session.mjs', { url, key: KEY, wrong: WRONG }), 'sessions work');
  }, '--allow-origin', '*'));

test('a page of an origin that is not allowed', { skip: noBrowser }, () =>
  withServer(async ({ url }) => {
    await assert.rejects(inPage('session.mjs', { url, key: KEY, wrong: WRONG }), /ConnectionError/);
  }, '--allow-origin', 'https://other.example'));
