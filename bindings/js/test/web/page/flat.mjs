// Reports the sizes of the memory in the page and in a worker after many tensors and callbacks.

import { rounds } from './flat-rounds.mjs';
import { report } from './report.mjs';

await report(async () => {
  const module = await WebAssembly.compileStreaming(fetch('./testing.wasm'));
  const inWorker = new Promise((resolve, reject) => {
    const worker = new Worker('./flat-rounds.mjs', { type: 'module' });
    worker.onmessage = ({ data }) => (worker.terminate(), resolve(data));
    worker.onerror = (event) => reject(new Error(event.message));
    worker.postMessage(module);
  });
  return [await rounds(module), await inWorker];
});
