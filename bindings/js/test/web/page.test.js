'use strict';
// Runs the package over the WebAssembly module in a page: the conformance corpus, the guide, the example, workers.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { spawnSync } = require('node:child_process');
const { test } = require('node:test');

const { findBrowser, runPage } = require('./browser.js');
const { pageFiles } = require('./support.js');
const { folder, skip, ROOT } = require('../support.js');
const { samples, expected } = require('../pages.js');
const { wasmFile } = require('../../web/node.js');

const noBrowser = !findBrowser() && 'no browser (`apt-get install chromium-headless-shell`)';
const noPackage = noBrowser || (!fs.existsSync(wasmFile) && `no ${wasmFile}`);
const PAGES = path.join(__dirname, 'page');

/** Returns what a page reports, or fails. */
async function resultOf(script, more) {
  const { result, error } = await runPage(pageFiles(script, more));
  assert.equal(error, undefined);
  return result;
}

test('corpus', { skip: skip('page', noBrowser) }, async () => {
  const { passed, failed, skipped } = await resultOf('corpus.mjs');
  assert.deepEqual(failed, []);
  assert.ok(passed > 500, `${passed} cases`);
  console.log(`${passed} cases; not supported: ${JSON.stringify(skipped)}`);
});

test('defects', { skip: noBrowser }, async () => {
  assert.deepEqual(await resultOf('defects.mjs'), {
    text: '日本語 🦀 a\0b \ufeffé',
    integer: String(2n ** 62n + 1n),
    same: true,
    forever: 'RangeError',
    grown: [0, 1, 2],
    later: 42,
    isolated: false,
  });
});

test('workers', { skip: noBrowser }, async () => {
  assert.deepEqual(await resultOf('worker.mjs', { '/in-worker.mjs': path.join(PAGES, 'in-worker.mjs') }), ['oneone', '🦀🦀']);
});

test('a worker that is terminated in a call, and a page that is loaded again in one', { skip: noBrowser }, async () => {
  const result = await resultOf('ends.mjs', { '/in-ends.mjs': path.join(PAGES, 'in-ends.mjs') });
  assert.deepEqual(result, { afterReload: 'page', afterTerminate: 'page', ended: [true, true, true], next: 'worker' });
});

test('memory does not grow in a page and in a worker', { skip: noBrowser }, async () => {
  const result = await resultOf('flat.mjs', { '/flat-rounds.mjs': path.join(PAGES, 'flat-rounds.mjs') });
  // Without releases, it would take 160 MB.
  for (const bytes of result) assert.ok(bytes < 40e6, `${bytes} bytes`);
});

test('docs/browser.md', { skip: skip('docs/browser.md', noPackage) }, async () => {
  const source = samples('docs/browser.md', 'js');
  const program = Buffer.from(source.replace("from 'anyfn'", "from './anyfn.mjs'"));
  const lines = await resultOf('guide.mjs', { '/guide-program.mjs': program });
  assert.equal(lines.map((line) => `${line}\n`).join(''), expected(source));
});

test('docs/browser.md, loading the runtime', { skip: noPackage }, async () => {
  // `test_wasm.py` runs the second sample, for which the compiler makes a file.
  const [load] = samples('docs/browser.md', 'javascript').split('const response');
  assert.match(load, /from 'anyfn\/web'/);
  const program = Buffer.from(`${load.replace("'anyfn/web'", "'./web.mjs'")}\nconsole.log(anyfn.tensor([1, 2]).size);\n`);
  assert.deepEqual(await resultOf('guide.mjs', { '/guide-program.mjs': program }), ['2']);
});

const ESBUILD = path.join(ROOT, '.x/typescript/node_modules/.bin/esbuild');
const noBundler = noPackage || (!fs.existsSync(ESBUILD) && 'no esbuild; `./x test` installs it');

test('a bundler takes the package by its condition `browser`', { skip: skip('bundler', noBundler) }, async () => {
  const dir = folder();
  fs.mkdirSync(path.join(dir, 'node_modules'));
  fs.symlinkSync(path.join(ROOT, 'bindings/js'), path.join(dir, 'node_modules/anyfn'));
  fs.writeFileSync(
    path.join(dir, 'main.mjs'),
    "import anyfn, { tensor } from 'anyfn';\ndocument.getElementById('out').textContent = anyfn.convert((x) => x.size)(tensor([1, 2]));\n",
  );
  const options = ['main.mjs', '--bundle', '--format=esm', '--platform=browser', '--outfile=main.js'];
  const { status, stderr } = spawnSync(ESBUILD, options, { cwd: dir, encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  // Beside the bundle lies only what docs/browser.md says.
  const files = { '/main.mjs': path.join(dir, 'main.js'), '/anyfn.mjs': undefined, '/web.mjs': undefined };
  assert.equal(await resultOf('example.mjs', files), '2');
});

test('examples/browser', { skip: skip('examples/browser', noPackage) }, async () => {
  const text = await resultOf('example.mjs', { '/main.mjs': path.join(ROOT, 'examples/browser/main.mjs') });
  assert.equal(
    text,
    'hello page\npage.Point(x=1, y=2.5)\n10,2 3,4\nValueError: Cannot find global function page.gret; did you mean page.greet?\n',
  );
});
