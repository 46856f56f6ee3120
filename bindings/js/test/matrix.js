'use strict';
// Runs values and errors of the conformance corpus between JavaScript and the frontends whose libraries are given, for
// `bindings/python/tests/test_matrix.py`. Prints a line of JSON: [[defined in, called from, passed, failed], ..].
//
//     node matrix.js '{"define": [libraries], "run": {"C": library, ..}, "prefixes": {"C": "matrix.c", ..}}'

const { isDeepStrictEqual } = require('node:util');

const { anyfn, WASM, samples } = require('./support.js');
const { cases, callback, make, owned, plain, call } = require('./cases.js');

const { define, run, prefixes } = JSON.parse(process.argv[2]);
const NAME = WASM ? 'JavaScript in WebAssembly' : 'JavaScript';
const PREFIX = 'matrix.javascript';

samples();
const kept = define.map((path) => anyfn.loadModule(path));
for (const module of kept) module.getFunction('define', { allowMissing: true })?.();

const register = (name, f) => anyfn.registerFunc(`${PREFIX}.${name}`, f, { bigint: true });
register('echo', (x) => x);
// A function with bigints receives floats as numbers, and passes them on as floats.
register('apply', (f, ...args) => (f.bigint ?? f)(...args.map((arg) => (typeof arg === 'number' ? anyfn.float(arg) : arg))));
register('raise_error', (kind, message) => {
  throw new anyfn.errors[kind](message);
});

const VALUES = new Map(cases('values').map(({ name, value }) => [name, value]));
const names = [...VALUES.keys()];

function raises(message, f) {
  try {
    f();
  } catch (error) {
    return error.kind === 'ValueError' && error.message === message;
  }
  return false;
}

/** Runs all cases with the functions of a frontend. Returns how many checks passed and failed. */
function runInJavaScript(prefix) {
  const same = (value, f) => () => isDeepStrictEqual(plain(f(value)), plain(value));
  const checks = names.flatMap((name) => {
    const value = make(VALUES.get(name));
    return [
      [name, same(value, (x) => call(`${prefix}.echo`, x))],
      [name, same(value, (x) => call(`${prefix}.apply`, callback('echo'), owned(x)))],
    ];
  });
  checks.push(['raised', () => raises('told so', () => call(`${prefix}.raise_error`, 'ValueError', 'told so'))]);
  checks.push(['passed through', () => raises('callback failed', () => call(`${prefix}.apply`, callback('fail')))]);
  let passed = 0;
  for (const [name, check] of checks) {
    let held = false;
    try {
      held = check();
    } catch (error) {
      console.error(`${prefix}, ${name}: ${error.stack}`);
    }
    if (!held) console.error(`FAILED ${prefix}, ${name}`);
    passed += held;
  }
  return [passed, checks.length - passed];
}

const cells = [];
for (const [definedIn, prefix] of Object.entries({ ...prefixes, [NAME]: PREFIX })) {
  cells.push([definedIn, NAME, ...runInJavaScript(prefix)]);
}
for (const [calledFrom, [path, name]] of Object.entries(run)) {
  const module = anyfn.loadModule(path);
  kept.push(module);
  cells.push([NAME, calledFrom, ...module.getFunction(name)(PREFIX, names)]);
}
console.log(JSON.stringify(cells));
