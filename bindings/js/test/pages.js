'use strict';
// Samples in the Markdown pages of the project.

const fs = require('node:fs');
const path = require('node:path');

const { ROOT } = require('./support.js');

/** Returns the samples of a page in a language, as one program. */
function samples(page, language) {
  const text = fs.readFileSync(path.join(ROOT, page), 'utf8');
  return [...text.matchAll(new RegExp(`\`\`\`${language}\n([^]*?)\`\`\``, 'g'))].map((match) => match[1]).join('\n');
}

/** Returns what a program must print, by the comments behind `console.log` and the comments on lines of their own that follow. */
function expected(source) {
  const lines = source.split('\n');
  const found = [];
  lines.forEach((line, index) => {
    const comment = /console\.log\(.*\); *(?:\)\);)? *\/\/ (.*)$/.exec(line) ?? /console\.log\(.*\)\); *\/\/ (.*)$/.exec(line);
    if (comment) found.push(comment[1]);
    else if (/^\/\/ /.test(line) && /console\.log.*\/\//.test(lines[index - 1] ?? '')) found.push(line.slice(3));
  });
  return found.map((line) => `${line}\n`).join('');
}

module.exports = { samples, expected };
