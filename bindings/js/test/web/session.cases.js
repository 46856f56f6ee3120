'use strict';
// Sessions as a client, for Node.js and for a page: each case uses the package and the address of a server with the sample functions.

/** Throws unless two values are equal as JSON. */
function equal(actual, expected) {
  const [a, b] = [actual, expected].map((value) => JSON.stringify(value));
  if (a !== b) throw new Error(`expected ${b}, got ${a}`);
}

/** Returns kind and message of the error with which a promise is rejected. */
async function errorOf(promise) {
  try {
    await promise;
  } catch (error) {
    return [error.name, error.message];
  }
  throw new Error('expected an error');
}

async function useSession(session, anyfn) {
  const get = (name) => session.getFunction(`testing.${name}`);
  const [echo, apply] = [await get('echo'), await get('apply')];
  for (const value of [0, -7, 2 ** 40, 1.5, true, null, 'short', '日本語 🦀'.repeat(100)]) equal(await echo(value), value);
  equal((await echo([1, ['a', 2.5]])).toArray().length, 2);
  equal((await echo('x'.repeat(2 ** 21))).length, 2 ** 21);
  // Many calls at once.
  equal(await Promise.all(Array.from({ length: 50 }, (_, index) => echo(index))), Array.from({ length: 50 }, (_, index) => index));
  // Callbacks, also ones that wait, call back, or fail.
  equal(await apply((x) => 2 * x, 21), 42);
  equal(await apply(async (x) => (await echo(x)) + 1, 4), 5);
  const [, message] = await errorOf(apply(() => {
    throw new RangeError('out of paper');
  }, 0));
  equal(message, 'out of paper');
  // Functions of the server are values.
  const again = await echo(echo);
  equal(await again(3), 3);
  // Tensors.
  const there = await session.tensor(new Float32Array([1, 2, 3, 4]), [2, 2]);
  equal([there.shape, String(there.dtype)], [[2, 2], 'float32']);
  equal((await there.read()).toArray(), [[1, 2], [3, 4]]);
  const zeros = await session.empty([2, 2]);
  await zeros.assign(there);
  await there.write(new Float32Array([5, 6, 7, 8]));
  equal([(await zeros.read()).toArray(), (await there.read()).toArray()], [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]);
  equal(await (await get('tensor_sum'))(there), 26);
  const [kind] = await errorOf(there.write(new Float32Array(3)));
  equal(kind, 'ValueError');
  const large = await session.tensor(new Float32Array(2 ** 20).fill(0.5));
  equal((await large.read()).data.every((value) => value === 0.5), true);
  equal((await errorOf(session.getFunction('secret.thing')))[0], 'PermissionError');
  equal((await session.functionNames()).includes('testing.echo'), true);
  equal((await session.info()).pointer_bits, 64);
  // A call that is given up; the session goes on.
  const never = (x) => new Promise((resolve) => setTimeout(() => resolve(x), 3000));
  equal((await errorOf(apply.callAsync([never, 1], { timeout: 0.2 })))[0], 'TimeoutError');
  const controller = new AbortController();
  setTimeout(() => controller.abort(new Error('enough')), 50);
  equal((await errorOf(apply.callAsync([never, 1], { signal: controller.signal })))[1], 'enough');
  equal(await echo('still'), 'still');
}

/** Runs all cases. `url` is a server with a key, of which `wrong` is a wrong one. */
async function runSessions(anyfn, { url, key, wrong }) {
  const session = await anyfn.connect(url, { key });
  await useSession(session, anyfn);
  equal((await errorOf(anyfn.connect(url, { key: wrong })))[0], 'PermissionError');
  equal((await errorOf(anyfn.connect(url)))[0], 'PermissionError');
  equal((await errorOf(anyfn.connect('ws://127.0.0.1:9', { key })))[0], 'ConnectionError');
  equal((await errorOf(anyfn.connect(url, { key: 'no key' })))[0], 'ValueError');
  const echo = await session.getFunction('testing.echo');
  const pending = echo(1);
  session.close();
  equal((await errorOf(pending))[0], 'ConnectionError');
  equal((await errorOf(echo(1)))[0], 'ConnectionError');
  return 'sessions work';
}

/** Serves functions of this package at a proxy. */
function servePage(anyfn, { proxy, name, key }) {
  anyfn.registerFunc('page.add', (a, b) => a + b, { override: true });
  anyfn.registerFunc('page.later', (x) => new Promise((resolve) => setTimeout(() => resolve(x), 20)), { override: true });
  anyfn.registerFunc('page.call', async (f, x) => (await f(x)) + 1, { override: true });
  anyfn.registerFunc('page.fail', () => {
    throw new RangeError('the page is closed');
  }, { override: true });
  anyfn.registerFunc('hidden.thing', () => 1, { override: true });
  return anyfn.serve(proxy, { name, key, functions: ['page.*'], upload: true });
}

module.exports = { runSessions, servePage, errorOf, equal };
