'use strict';
// Runs the JavaScript of the guides and READMEs. `console.log(..); // text` must print the text.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { spawnSync } = require('node:child_process');
const { test } = require('node:test');

const { folder, skip, ROOT } = require('./support.js');
const { samples, expected } = require('./pages.js');

/** Returns a folder in which `anyfn` is an installed package. */
function project() {
  const dir = folder();
  fs.mkdirSync(path.join(dir, 'node_modules'));
  fs.symlinkSync(path.join(ROOT, 'bindings/js'), path.join(dir, 'node_modules/anyfn'));
  return dir;
}

function run(dir, file) {
  const { status, stdout, stderr } = spawnSync(process.execPath, ['--preserve-symlinks', file], { cwd: dir, encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  return stdout;
}

for (const page of ['docs/javascript.md', 'docs/start/javascript.md', 'bindings/js/README.md', 'README.md']) {
  test(page, (t) => {
    const dir = project();
    const source = samples(page, 'js');
    if (page === 'docs/start/javascript.md') {
      const cc = process.env.CC ?? 'cc';
      if (spawnSync(cc, ['--version']).error) return t.skip(skip(page, 'no C compiler'));
      fs.writeFileSync(path.join(dir, 'axpy.c'), samples(page, 'c'));
      const flags = ['-O2', '-shared', '-fPIC', '-I', path.join(ROOT, 'bindings/c/include'), 'axpy.c', '-o', 'axpy.so'];
      assert.equal(spawnSync(cc, flags, { cwd: dir, stdio: 'inherit' }).status, 0);
    }
    fs.writeFileSync(path.join(dir, 'page.mjs'), source);
    assert.equal(run(dir, 'page.mjs'), expected(source));
  });
}
