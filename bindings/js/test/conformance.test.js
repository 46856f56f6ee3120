'use strict';
// Runs the conformance corpus through the JavaScript API.

const assert = require('node:assert/strict');
const { test } = require('node:test');

const { samples } = require('./support.js');
const { cases, callback, make, owned, plain, call, run } = require('./cases.js');

samples();

const objects = cases('objects');
for (const one of objects) if (one.name.startsWith('define ')) run(one);
call('anyfn.device_enable_null');

test('values go out and come back', async (t) => {
  for (const { name, value } of cases('values')) {
    await t.test(name, () => {
      const made = make(value);
      assert.deepEqual(plain(call('testing.echo', made)), plain(made));
      assert.deepEqual(plain(call('testing.apply', callback('echo'), owned(made))), plain(made));
    });
  }
});

for (const file of ['calls', 'errors', 'named', 'operations', 'objects', 'tensors']) {
  test(file, async (t) => {
    for (const one of cases(file)) {
      await t.test(one.name, () => {
        if (!one.error) return assert.deepEqual(plain(run(one)), plain(make(one.result)));
        assert.throws(
          () => run(one),
          (error) => {
            assert.equal(error.message, one.error.message);
            assert.equal(error.kind ?? error.name, one.error.kind);
            return true;
          },
        );
        assert.equal(call('testing.echo', 1), 1n);
      });
    }
  });
}
