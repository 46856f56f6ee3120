// Uses the package in workers of a page.

import { report } from './report.mjs';

await report(async () => {
  const module = await WebAssembly.compileStreaming(fetch('./testing.wasm'));
  const ask = (text) =>
    new Promise((resolve, reject) => {
      const worker = new Worker('./in-worker.mjs', { type: 'module' });
      worker.onmessage = ({ data }) => (worker.terminate(), resolve(data));
      worker.onerror = (event) => reject(new Error(event.message));
      worker.postMessage({ module, text });
    });
  return Promise.all([ask('one'), ask('🦀')]);
});
