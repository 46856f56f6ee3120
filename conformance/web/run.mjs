// Runs the conformance corpus in a WebAssembly module: node run.mjs MODULE
import { readFile } from "node:fs/promises";

const text = new TextDecoder();
let memory;
const host = {
  report: (address, length) => console.log(text.decode(new Uint8Array(memory.buffer, address, length))),
};
// What the JavaScript package provides; this program has no functions of JavaScript, and no sessions.
const anyfn = {
  host_call: () => -1,
  host_drop: () => {},
  host_is_lent: () => 0,
  host_random: () => -1,
  host_now: () => performance.now() / 1000,
};
const { instance } = await WebAssembly.instantiate(await readFile(process.argv[2]), { host, anyfn });
memory = instance.exports.memory;
process.exitCode = instance.exports.run_corpus() === 0 ? 0 : 1;
