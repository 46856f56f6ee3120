'use strict';
// Errors in both directions.

const assert = require('node:assert/strict');
const { test } = require('node:test');

const { anyfn, WASM, samples, run } = require('./support.js');

const sample = samples();
const apply = sample('apply');

function thrown(f) {
  try {
    f();
  } catch (error) {
    return error;
  }
  return assert.fail('nothing was thrown');
}

test('a native error has the class of its kind', () => {
  const raise = sample('raise_error');
  for (const kind of ['ValueError', 'IndexError', 'MyOwnError', 'not an identifier', 'toString', '__proto__']) {
    const error = thrown(() => raise(kind, 'told so'));
    assert.ok(error instanceof anyfn.AnyfnError && error instanceof Error, kind);
    assert.deepEqual([error.kind, error.name, error.message], [kind, kind, 'told so']);
    assert.ok(error instanceof anyfn.errors[kind]);
  }
  for (const cls of [TypeError, RangeError, SyntaxError]) {
    const error = thrown(() => raise(cls.name, 'told so'));
    assert.ok(error instanceof cls && error instanceof anyfn.AnyfnError);
  }
  assert.ok(!(new TypeError('x') instanceof anyfn.AnyfnError));
});

test('a registered class is used in both directions', () => {
  class ParseFailure extends Error {}
  anyfn.registerError('ParseFailure', ParseFailure);
  assert.ok(thrown(() => sample('raise_error')('ParseFailure', 'x')) instanceof ParseFailure);
  assert.match(sample('describe_error')(new ParseFailure('y')), /^ParseFailure: y/);
  assert.throws(() => anyfn.registerError('Odd', class {}), TypeError);
});

test('classes of kinds can be extended', () => {
  class Missing extends anyfn.errors.KeyError {
    constructor(key) {
      super(`no ${key}`);
      this.name = 'Missing';
    }
  }
  const error = thrown(() => apply(() => { throw new Missing('x'); }));
  assert.deepEqual([error.name, error.kind, error.message, error instanceof anyfn.errors.KeyError], ['Missing', 'KeyError', 'no x', true]);
  assert.match(sample('describe_error')(new Missing('y')), /^KeyError: no y/);
});

test('an exception returns as the same object', () => {
  class Own extends Error {
    constructor(message, extra) {
      super(message);
      this.name = 'Own';
      this.extra = extra;
    }
  }
  const error = new Own('mine', { x: 1 });
  assert.equal(thrown(() => apply(() => { throw error; })), error);
  assert.equal(thrown(() => apply(apply, () => { throw error; })), error);
  if (!WASM) assert.equal(thrown(() => sample('apply_on_thread')(() => { throw error; })), error);
});

test('anything can be thrown', () => {
  for (const value of ['text', 5, null, undefined, { a: 1 }, Symbol('s'), 10n, () => 1]) {
    assert.equal(thrown(() => apply(() => { throw value; })), value);
  }
  const awkward = new Error('x');
  Object.defineProperty(awkward, 'message', { get() { throw new Error('in a getter'); } });
  assert.ok(thrown(() => apply(() => { throw awkward; })) instanceof Error);
  assert.equal(sample('echo')(1), 1);
});

test('one stack through JavaScript and native code', () => {
  function thrower() {
    throw new anyfn.errors.ValueError('deep');
  }
  const { stack } = thrown(() => apply(thrower));
  assert.match(stack, /ValueError: deep\n\s+at thrower .*errors\.test\.js/);
  const native = thrown(() => sample('raise_error')('ValueError', 'told\nso'));
  const lines = native.stack.split('\n');
  assert.equal(lines[0], 'ValueError: told');
  assert.ok(lines.some((line) => /errors\.test\.js/.test(line)), native.stack);
  assert.ok(!native.stack.includes('at wrap '), native.stack);
});

test('causes', () => {
  const inner = new RangeError('inner');
  const outer = new TypeError('outer', { cause: inner });
  assert.match(sample('describe_causes')(outer).toArray().join(' '), /TypeError.*outer.*RangeError.*inner/);
  const error = thrown(() => sample('raise_error_with_cause')('ValueError', 'first', 'KeyError', 'second'));
  assert.ok(error.cause instanceof Error, String(error));
  const cycle = new Error('cycle');
  cycle.cause = cycle;
  assert.equal(thrown(() => apply(() => { throw cycle; })), cycle);
});

test('errors are values, too', () => {
  const error = new anyfn.errors.KeyError('a value');
  assert.equal(sample('echo')(error), error);
});

test('a promise as a result is an error that says what to do', () => {
  assert.throws(() => apply(async () => 1), { name: 'TypeError', message: /callAsync/ });
  assert.throws(() => apply(() => Promise.resolve(1)), TypeError);
});

test('a native error whose registered class cannot be used keeps its kind and message', () => {
  class Frozen extends Error {
    constructor(message) {
      super(message);
      Object.freeze(this);
    }
  }
  class Throwing extends Error {
    constructor() {
      super();
      throw new RangeError('from the constructor');
    }
  }
  for (const cls of [Frozen, Throwing]) {
    anyfn.registerError('Unusable', cls);
    assert.throws(() => sample('raise_error')('Unusable', 'native'), { kind: 'Unusable', message: 'native' });
  }
});

test('a string that the engine cannot represent is an error', () => {
  const { code, out, err } = run(`
    const half = 'x'.repeat(2 ** 28);
    const text = anyfn.getGlobalFunc('ffi.ToJSONGraphString');
    try { console.log(text([half, half + 'y'], null)); } catch (error) { console.log(error.name, error.message); }
  `);
  assert.match(out, /^RangeError a string of \d+ bytes is too long/, err);
  assert.equal(code, 0);
});

test('the namespace of the classes can be awaited, and is no promise', async () => {
  assert.equal(await anyfn.errors, anyfn.errors);
  assert.ok(!('then' in anyfn.errors));
  assert.deepEqual((await Promise.all([anyfn.errors, 1]))[1], 1);
});
