/*
 * A program for Node.js that calls the compiled matrix product with bias and relu of the demonstration:
 *
 *     node examples/te/dense.mjs dense.so
 *
 * or `dense.wasm`, compiled for pages, which the WebAssembly module of the package runs.
 *
 * Prints `key=value` lines: `right` is 1 if every element equals the result of plain loops.
 */
const file = process.argv[2];
const anyfn = file.endsWith('.wasm')
  ? await (await import('../../bindings/js/web/node.js')).default.instantiate()
  : (await import('../../bindings/js/index.mjs')).default;
const library = file.endsWith('.wasm') ? (await import('node:fs')).readFileSync(file) : file;

const [N, M, K, CALLS] = [512, 512, 512, 10];

/* Returns numbers whose products and sums are exact. */
const numbers = (count) => Float32Array.from({ length: count }, (_, i) => ((i * 7919) % 23) - 11);

const dense = anyfn.loadModule(library).getFunction('dense');
const [a, b, bias] = [numbers(N * K), numbers(K * M), numbers(M)];
/* A typed array is passed without a copy, as a tensor of one dimension; tensors of two have memory of their own. */
const [left, right, out] = [anyfn.tensor(a, [N, K]), anyfn.tensor(b, [K, M]), anyfn.empty([N, M])];

let best = Infinity;
for (let call = 0; call < CALLS; ++call) {
  const start = process.hrtime.bigint();
  dense(left, right, bias, out);
  best = Math.min(best, Number(process.hrtime.bigint() - start));
}

const result = out.data;
let isRight = true;
for (let i = 0; i < N; ++i) {
  const row = Float32Array.from(bias);
  for (let k = 0; k < K; ++k) for (let j = 0; j < M; ++j) row[j] += a[i * K + k] * b[k * M + j];
  for (let j = 0; j < M; ++j) isRight &&= result[i * M + j] === Math.max(row[j], 0);
}
console.log(`right=${isRight ? 1 : 0}`);
console.log(`ns_per_call=${best}`);
