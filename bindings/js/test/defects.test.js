'use strict';
// Defects of other runtimes' JavaScript, each with the test that would show it here.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');

const { anyfn, samples, run, folder, TESTING } = require('./support.js');

const sample = samples();
const echo = sample('echo');
const apply = sample('apply');

test('every number becomes a float', () => {
  assert.equal(sample('add_i64')(1, 2), 3);
  assert.throws(() => sample('add_i64')(1.5, 2), { name: 'TypeError', message: /float/ });
});

test('64-bit integers are cut to 32 bits', () => {
  assert.equal(sample('add_i64')(2 ** 40, 1), 2 ** 40 + 1);
  assert.equal(sample('add_i64').bigint(2n ** 62n, 1n), 2n ** 62n + 1n);
  assert.equal(apply((x) => x, -(2 ** 40)), -(2 ** 40));
});

test('text that is not ASCII comes back garbled', () => {
  for (const text of ['é', '🦀', 'a\0b', '日本語 ✓ ünï']) {
    assert.equal(echo(text), text);
    assert.equal(apply((x) => x, text), text);
    assert.deepEqual([...new anyfn.MapRef({ [text]: text })], [[text, text]]);
  }
});

test('a view ignores its data type, and some types cannot be read', () => {
  const names = ['int8', 'int16', 'int32', 'int64', 'uint8', 'uint16', 'uint32', 'uint64', 'float32', 'float64'];
  for (const name of names) {
    const tensor = anyfn.tensor([1, 2], undefined, name);
    assert.equal(String(tensor.dtype), name);
    assert.deepEqual(tensor.toArray().map(Number), [1, 2]);
    assert.equal(tensor.data.BYTES_PER_ELEMENT, tensor.dtype.bits / 8);
  }
  const half = anyfn.tensor(Uint16Array.of(0x3c00), [1], 'float16');
  assert.deepEqual([String(half.dtype), half.data[0]], ['float16', 0x3c00]);
});

test('a tensor that a callback receives cannot be passed on', () => {
  const x = new Float32Array(new SharedArrayBuffer(8)).fill(1.5);
  assert.equal(sample('pass_on_read_only')(x, (array) => sample('tensor_sum')(array)), 3);
  assert.equal(sample('lend_constants')((tensor) => sample('tensor_describe')(tensor).length > 0), true);
});

test('objects need scopes, which interleave across await', async () => {
  const make = async (n) => {
    const list = new anyfn.ListRef([n]);
    await new Promise(setImmediate);
    list.push(n);
    return list.toArray();
  };
  assert.deepEqual(await Promise.all([make(1), make(2)]), [[1, 1], [2, 2]]);
});

test('the kind of an error is lost, and a thrown string breaks', () => {
  assert.throws(() => apply(() => { throw new anyfn.errors.KeyError('k'); }), { name: 'KeyError', kind: 'KeyError' });
  assert.throws(() => sample('raise_error')('IndexError', 'i'), { name: 'IndexError' });
  assert.throws(() => apply(() => { throw 'text'; }), (error) => error === 'text');
});

test('callbacks of asynchronous calls take no strings or objects, and a promise of null fails', async () => {
  const point = sample('make_point')(1, 2);
  assert.equal(await apply.callAsync([async (a, b) => `${a} ${b.x}`, 'text', point]), 'text 1');
  assert.equal(await apply.callAsync([async () => null]), null);
  const many = await Promise.all([1, 2, 3].map((x) => apply.callAsync([async (y) => y, x])));
  assert.deepEqual(many, [1, 2, 3]);
});

test('the part for all hosts uses modules of Node.js', () => {
  const filesOf = (folder) => fs.readdirSync(path.join(__dirname, '..', folder)).map((file) => path.join(__dirname, '..', folder, file));
  for (const file of [...filesOf('lib'), ...filesOf('web')].filter((each) => /\.js$/.test(each) && !each.endsWith('web/node.js'))) {
    const text = fs.readFileSync(file, 'utf8');
    for (const [, name] of text.matchAll(/require\('([^']*)'\)/g)) assert.match(name, /^\.\.?\//, file);
    assert.doesNotMatch(text, /\beval\b|new Function|process\./, file);
  }
});

test('a library of another version is noticed late', () => {
  const dir = folder();
  const built = path.dirname(require.resolve(`../prebuilds/${process.platform}-${process.arch}/anyfn.node`));
  fs.copyFileSync(path.join(built, 'anyfn.node'), path.join(dir, 'anyfn.node'));
  fs.copyFileSync(TESTING, path.join(dir, 'libanyfn.so'));
  const { code, err } = run('', { env: { ANYFN_JS_FOLDER: dir } });
  assert.equal(code, 1);
  assert.match(err, /libanyfn\.so/);
});
