'use strict';
// Measures calls from Node.js through anyfn and through a plain addon, alternately in one process.
//
//     node calls.js ADDON TESTING_LIBRARY [ROW..]
//
// Prints `name=nanoseconds` for anyfn and `name@plain=nanoseconds` for the addon.

const path = require('node:path');

const anyfn = require(path.join(__dirname, '../../bindings/js'));

const [addon, library, ...only] = process.argv.slice(2);
const plain = require(path.resolve(addon));
const kept = anyfn.loadModule(path.resolve(library));
const get = (name) => anyfn.getGlobalFunc(`testing.${name}`);

const [nop, add3, echo, sum, callN] = ['nop', 'add3_i64', 'echo', 'tensor_sum', 'call_n_with'].map(get);
const text = 'a string of thirty-six bytes, in here';
const array = Float32Array.from([1, 2, 3, 4]);
const one = (x) => x;

// Each entry is a loop of its own, so that the engine optimises it for one callee.
const ROWS = {
  js_call_0: [
    (n) => { for (let i = 0; i < n; i += 1) nop(); },
    (n) => { for (let i = 0; i < n; i += 1) plain.nop(); },
  ],
  js_call_3_numbers: [
    (n) => { for (let i = 0; i < n; i += 1) add3(i, 2, 3); },
    (n) => { for (let i = 0; i < n; i += 1) plain.add3(i, 2, 3); },
  ],
  js_echo_string: [
    (n) => { for (let i = 0; i < n; i += 1) echo(text); },
    (n) => { for (let i = 0; i < n; i += 1) plain.echo(text); },
  ],
  js_typed_array: [
    (n) => { for (let i = 0; i < n; i += 1) sum(array); },
    (n) => { for (let i = 0; i < n; i += 1) plain.sum(array); },
  ],
  js_callback: [(n) => callN(one, n, 1), (n) => plain.loop(one, n)],
};

const CALLS = 100000;
const ROUNDS = 15;

function time(loop) {
  const start = process.hrtime.bigint();
  loop(CALLS);
  return Number(process.hrtime.bigint() - start) / CALLS;
}

for (const [name, loops] of Object.entries(ROWS)) {
  if (only.length && !only.includes(name)) continue;
  const best = [Infinity, Infinity];
  for (let round = 0; round < ROUNDS; round += 1) {
    loops.forEach((loop, index) => (best[index] = Math.min(best[index], time(loop))));
  }
  console.log(`${name}=${best[0].toFixed(2)}`);
  console.log(`${name}@plain=${best[1].toFixed(2)}`);
}
if (!kept) throw new Error('the library of sample functions is not loaded');
