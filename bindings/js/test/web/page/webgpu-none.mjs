// Requests a WebGPU device in a browser that has no adapter, and reports the errors.

import { instantiate } from './web.mjs';
import { report } from './report.mjs';

await report(async () => {
  const anyfn = await instantiate('./testing.wasm', { imports: { host: { report: () => {} } } });
  const told = [];
  for (const options of [undefined, { powerPreference: 'low-power', features: ['shader-f16'] }]) {
    told.push(await anyfn.requestWebGPU(options).then(String, (error) => `${error.name}: ${error.message}`));
  }
  return told;
});
