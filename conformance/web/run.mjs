// Runs the conformance corpus in a WebAssembly module: node run.mjs MODULE
import { readFile } from "node:fs/promises";

const text = new TextDecoder();
let memory;
const host = {
  report: (address, length) => console.log(text.decode(new Uint8Array(memory.buffer, address, length))),
};
const { instance } = await WebAssembly.instantiate(await readFile(process.argv[2]), { host });
memory = instance.exports.memory;
process.exitCode = instance.exports.run_corpus() === 0 ? 0 : 1;
