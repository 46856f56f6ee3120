// Runs the conformance corpus in a page.

import { instantiate } from './web.mjs';
import { runCorpus } from './corpus-all.mjs';
import { report } from './report.mjs';

await report(async () => {
  const anyfn = await instantiate('/testing.wasm', { imports: { host: { report: () => {} } } });
  const { texts, unsupported } = await (await fetch('/texts.json')).json();
  return runCorpus(anyfn, texts, unsupported);
});
