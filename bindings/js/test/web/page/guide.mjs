// Runs the program of a guide in a page, and reports what it prints.

import { report } from './report.mjs';

const lines = [];
console.log = (...values) => lines.push(values.join(' '));
await report(async () => {
  await import('./guide-program.mjs');
  return lines;
});
