import { instantiate } from './web.mjs';

/** Makes tensors that are garbage at once. Returns the size of the memory at the end. */
export async function rounds(module) {
  const anyfn = await instantiate(module, { imports: { host: { report: () => {} } } });
  const apply = anyfn.getGlobalFunc('testing.apply');
  for (let round = 0; round < 40; round += 1) {
    for (let each = 0; each < 1000; each += 1) apply((x) => x, anyfn.empty([1024]));
    gc();
    await new Promise((resolve) => setTimeout(resolve, 0));
  }
  return anyfn.empty([1]).data.buffer.byteLength;
}

if (typeof document === 'undefined') onmessage = async ({ data }) => postMessage(await rounds(data));
