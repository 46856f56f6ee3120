'use strict';
// Runs the conformance corpus over the WebAssembly module, in Node.js.

const assert = require('node:assert/strict');
const { test } = require('node:test');

const { runCorpus } = require('../corpus.js');
const { UNSUPPORTED, texts, instantiate } = require('./support.js');

test('corpus', () => {
  const { passed, failed, skipped } = runCorpus(instantiate(), texts(), UNSUPPORTED);
  assert.deepEqual(failed, []);
  assert.ok(passed > 500, `${passed} cases`);
  console.log(`${passed} cases; not supported: ${JSON.stringify(skipped)}`);
});
