'use strict';
// What the tests share: the package, and the library of sample functions.

const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { spawnSync } = require('node:child_process');

// With ANYFN_JS_WASM, the tests run over this WebAssembly module, which contains the sample functions.
const WASM = process.env.ANYFN_JS_WASM;
const PACKAGE = WASM
  ? `require(${JSON.stringify(path.join(__dirname, '..', 'web', 'node.js'))}).instantiateSync(${JSON.stringify(WASM)}, { imports: { host: { report() {} } } })`
  : `require(${JSON.stringify(path.join(__dirname, '..'))})`;

let loaded;

/** Returns the package under test. */
function load() {
  loaded ??= WASM ? require('../web/node.js').instantiateSync(WASM, { imports: { host: { report() {} } } }) : require('..');
  return loaded;
}

const ROOT = path.join(__dirname, '..', '..', '..');
const TESTING = process.env.ANYFN_TESTING_LIB ?? path.join(ROOT, 'bindings/python/anyfn/lib/libanyfn_testing.so');

let testing;

/** Loads the sample functions, and returns a function that returns one of them by its name without `testing.`. */
function samples() {
  if (!WASM) testing ??= load().loadModule(TESTING);
  return (name) => load().getGlobalFunc(`testing.${name}`);
}

/** Runs a script in a process of its own. It finds the package as `anyfn`, and the sample functions as `sample`. */
function run(source, { args = [], env = {}, timeout = 60000 } = {}) {
  const header = `'use strict';
const anyfn = ${PACKAGE};
const sample = require(${JSON.stringify(__filename)}).samples();
`;
  const result = spawnSync(process.execPath, [...args, '-e', header + source], {
    encoding: 'utf8',
    timeout,
    env: { ...process.env, ...env },
  });
  return { code: result.status, signal: result.signal, out: result.stdout, err: result.stderr };
}

/** Returns the reason why a test is skipped, if any, and reports it to `./x test`. */
function skip(test, reason) {
  if (reason && process.env.ANYFN_SKIPS) fs.appendFileSync(process.env.ANYFN_SKIPS, `${test}\t${reason}\n`);
  return reason;
}

/** Returns a new empty folder, which is removed when the process exits. */
function folder() {
  const created = fs.mkdtempSync(path.join(os.tmpdir(), 'anyfn-js-'));
  process.on('exit', () => fs.rmSync(created, { recursive: true, force: true }));
  return created;
}

module.exports = {
  get anyfn() {
    return load();
  },
  WASM,
  samples,
  run,
  folder,
  skip,
  ROOT,
  TESTING,
};
