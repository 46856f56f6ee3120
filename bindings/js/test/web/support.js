'use strict';
// What the tests of the WebAssembly module share.

const fs = require('node:fs');
const path = require('node:path');

const { folder, ROOT } = require('../support.js');
const { FILES } = require('../corpus.js');
const { bundle, write } = require('../../tools/bundle.js');
const web = require('../../web/node.js');

/** Module with the runtime, the sample functions and the corpus: that of the package `anyfn-conformance-web`. */
const TESTING = process.env.ANYFN_TESTING_WASM ?? path.join(ROOT, 'target/targets/wasm32-unknown-unknown/small/anyfn_conformance_web.wasm');

/** Imports of that module that its own program needs. */
const IMPORTS = { host: { report: () => {} } };

/** What the corpus needs that cannot exist in a WebAssembly module, with the reason. */
const UNSUPPORTED = {
  threads: 'a WebAssembly module without shared memory has one thread',
  modules: 'a page has no files and no shared libraries',
};

const texts = () => Object.fromEntries(FILES.map((name) => [name, fs.readFileSync(path.join(ROOT, 'conformance/cases', `${name}.json`), 'utf8')]));

/** Returns the package over the module with the sample functions. */
const instantiate = () => web.instantiateSync(TESTING, { imports: IMPORTS });

/** Returns the files of a page that runs a script, for `runPage`. */
function pageFiles(script, more = {}) {
  const dir = folder();
  write(dir);
  const corpus = path.join(dir, 'corpus-all.mjs');
  fs.writeFileSync(corpus, bundle(path.join(__dirname, '..', 'corpus.js'), ['runCorpus']));
  return {
    '/page.html': path.join(__dirname, 'page/page.html'),
    '/page.mjs': path.join(__dirname, 'page', script),
    '/report.mjs': path.join(__dirname, 'page/report.mjs'),
    '/web.mjs': path.join(dir, 'web.mjs'),
    '/anyfn.mjs': path.join(dir, 'anyfn.mjs'),
    '/anyfn.wasm': web.wasmFile,
    '/corpus-all.mjs': corpus,
    '/testing.wasm': TESTING,
    '/texts.json': Buffer.from(JSON.stringify({ texts: texts(), unsupported: UNSUPPORTED })),
    ...more,
  };
}

module.exports = { TESTING, IMPORTS, UNSUPPORTED, texts, instantiate, pageFiles };
