import { instantiate } from './web.mjs';

onmessage = async ({ data: { module, isEndless } }) => {
  const anyfn = await instantiate(module, { imports: { host: { report: () => {} } } });
  const apply = anyfn.getGlobalFunc('testing.apply');
  const result = apply(() => {
    if (!isEndless) return 'worker';
    postMessage('in the call');
    for (;;);
  });
  postMessage(result);
};
