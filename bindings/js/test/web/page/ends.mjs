// A call is in progress when the page is loaded again, and when a worker is terminated.

import { instantiate } from './web.mjs';
import { report } from './report.mjs';

const IMPORTS = { imports: { host: { report: () => {} } } };

/** Starts a worker. Returns the first message of its call, which ends only if `isEndless` is false. */
const start = (module, isEndless) =>
  new Promise((resolve, reject) => {
    const worker = new Worker('./in-ends.mjs', { type: 'module' });
    worker.onmessage = ({ data }) => (worker.terminate(), resolve(data));
    worker.onerror = (event) => reject(new Error(event.message));
    worker.postMessage({ module, isEndless });
  });

await report(async () => {
  const module = await WebAssembly.compileStreaming(fetch('./testing.wasm'));
  const anyfn = await instantiate(module, IMPORTS);
  const apply = anyfn.getGlobalFunc('testing.apply');
  if (sessionStorage.getItem('loaded') === null) {
    sessionStorage.setItem('loaded', 'once');
    apply(() => location.reload());
    await new Promise(() => {});
  }
  const afterReload = apply((x) => x, 'page');
  const ended = [];
  for (let round = 0; round < 3; round += 1) ended.push((await start(module, true)) === 'in the call');
  return { afterReload, afterTerminate: apply((x) => x, 'page'), ended, next: await start(module, false) };
});
