/*
 * Opens `dense-page.mjs` in Chromium, with the files of a folder and the package for pages (`./x test --only="javascript package for pages"`
 * builds it):
 *
 *     node examples/te/page.cjs FOLDER
 *
 * Prints what the page reports as JSON.
 */
'use strict';

const path = require('node:path');

const { runPage } = require('../../bindings/js/test/web/browser.js');

const folder = path.resolve(process.argv[2]);
const web = path.join(__dirname, '../../bindings/js/prebuilds/web');
const files = {
  '/page.html': Buffer.from('<!doctype html><meta charset="utf-8"><title>dense</title><script type="module" src="./page.mjs"></script>'),
  '/page.mjs': path.join(__dirname, 'dense-page.mjs'),
  ...Object.fromEntries(['anyfn.mjs', 'web.mjs', 'anyfn.wasm'].map((name) => [`/${name}`, path.join(web, name)])),
  ...Object.fromEntries(['dense.wasm', 'dense-webgpu.wasm'].map((name) => [`/${name}`, path.join(folder, name)])),
};

runPage(files, { webgpu: true, timeout: 240000 }).then(
  ({ result, error }) => {
    if (error !== undefined) throw new Error(error);
    console.log(JSON.stringify(result));
  },
).catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
