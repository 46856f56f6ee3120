'use strict';
// The conformance corpus for the package under test, in Node.js.

const fs = require('node:fs');
const path = require('node:path');

const { anyfn, ROOT } = require('./support.js');
const { FILES, parse, createCorpus } = require('./corpus.js');

const text = (name) => fs.readFileSync(path.join(ROOT, 'conformance/cases', `${name}.json`), 'utf8');

/** Returns the cases of a file of the corpus. */
const cases = (name) => parse(text(name));

/** Returns the texts of all files of the corpus. */
const texts = () => Object.fromEntries(FILES.map((name) => [name, text(name)]));

module.exports = { cases, texts, ...createCorpus(anyfn) };
