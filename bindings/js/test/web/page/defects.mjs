// What must not happen in a page: a JavaScript exception that skips native frames, text that is garbled, integers that are cut, memory that
// is lost when it grows, and a call that blocks the page for ever.

import { instantiate } from './web.mjs';
import { report } from './report.mjs';

await report(async () => {
  const anyfn = await instantiate('./testing.wasm', { imports: { host: { report: () => {} } } });
  const sample = (name) => anyfn.getGlobalFunc(`testing.${name}`);
  const found = {};
  found.text = sample('echo')('日本語 🦀 a\0b \ufeffé');
  found.integer = String(sample('add_i64').bigint(2n ** 62n, 1n));
  const thrown = new RangeError('mine');
  try {
    sample('apply')(sample('apply'), () => {
      throw thrown;
    });
  } catch (error) {
    found.same = error === thrown;
  }
  const forever = () => sample('apply')(forever);
  try {
    forever();
  } catch (error) {
    found.forever = error.name;
  }
  const x = anyfn.tensor([1, 2]);
  const { data } = x;
  anyfn.empty([1 << 22]);
  found.grown = [data.length, ...x.data];
  found.later = await sample('apply').callAsync([(a) => a + 1, 41]);
  found.isolated = crossOriginIsolated;
  return found;
});
