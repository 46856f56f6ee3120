import { instantiate } from './web.mjs';

onmessage = async ({ data: { module, text } }) => {
  const anyfn = await instantiate(module, { imports: { host: { report: () => {} } } });
  anyfn.registerFunc('worker.twice', (x) => x + x);
  postMessage(anyfn.getGlobalFunc('testing.apply')(anyfn.getGlobalFunc('worker.twice'), text));
};
