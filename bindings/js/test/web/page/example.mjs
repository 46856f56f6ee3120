// Runs an example in a page, and reports its text.

import { report } from './report.mjs';

const out = document.createElement('pre');
out.id = 'out';
document.body.append(out);
await report(async () => {
  await import('./main.mjs');
  return out.textContent;
});
