/*
 * A program for pages that calls the compiled matrix product with bias and relu of the demonstration on the CPU (`dense.wasm`) and on
 * a WebGPU device (`dense-webgpu.wasm`). `page.cjs` serves these files, and receives what the page reports.
 */
import anyfn from './anyfn.mjs';

const [N, M, K, CALLS] = [512, 512, 512, 3];

/* Returns numbers whose products and sums are exact. */
const numbers = (count) => Float32Array.from({ length: count }, (_, i) => ((i * 7919) % 23) - 11);
const [a, b, bias] = [numbers(N * K), numbers(K * M), numbers(M)];

const load = async (file) => anyfn.loadModule(await WebAssembly.compileStreaming(fetch(file))).getFunction('dense');

/* Calls the function several times on a device. Returns the result and the time of the fastest call, with that of the copy back. */
async function run(dense, device) {
  const [left, right] = [anyfn.tensor(a, { shape: [N, K], device }), anyfn.tensor(b, { shape: [K, M], device })];
  const [third, out] = [anyfn.tensor(bias, { device }), anyfn.empty([N, M], { device })];
  let best = Infinity;
  let copy;
  for (let call = 0; call < CALLS; ++call) {
    const start = performance.now();
    dense(left, right, third, out);
    copy = await out.to('cpu');
    best = Math.min(best, performance.now() - start);
  }
  return { result: copy.data.slice(), ms: best };
}

function isRight(result) {
  let right = true;
  for (let i = 0; i < N; ++i) {
    const row = Float32Array.from(bias);
    for (let k = 0; k < K; ++k) for (let j = 0; j < M; ++j) row[j] += a[i * K + k] * b[k * M + j];
    for (let j = 0; j < M; ++j) right &&= result[i * M + j] === Math.max(row[j], 0);
  }
  return right;
}

async function main() {
  const here = await run(await load('./dense.wasm'), 'cpu');
  const told = { cpu: { right: isRight(here.result), ms: here.ms } };
  try {
    const gpu = await anyfn.requestWebGPU();
    const there = await run(await load('./dense-webgpu.wasm'), 'webgpu:0');
    told.webgpu = { right: there.result.every((value, i) => value === here.result[i]), ms: there.ms, adapter: gpu.adapter };
  } catch (error) {
    told.webgpu = { error: `${error.name}: ${error.message}` };
  }
  return told;
}

const told = await main().then((result) => ({ result }), (error) => ({ error: String(error.stack) }));
await fetch('/report', { method: 'POST', body: JSON.stringify(told) });
