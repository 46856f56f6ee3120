'use strict';
// The package as `npm pack` makes it, installed in an empty folder.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { spawnSync } = require('node:child_process');
const { test } = require('node:test');

const { folder, skip, ROOT } = require('./support.js');
const { samples, expected } = require('./pages.js');

test('the version is that of the workspace', () => {
  const [, version] = /^version = "(.*)"$/m.exec(fs.readFileSync(path.join(ROOT, 'Cargo.toml'), 'utf8'));
  assert.equal(require('../package.json').version, version);
});

const npm = spawnSync('npm', ['--version'], { encoding: 'utf8' });

test('npm pack', { skip: skip('npm pack', npm.error && 'no npm') }, () => {
  const dir = folder();
  const command = (program, args) => {
    const env = { ...process.env, ANYFN_JS_FOLDER: '', npm_config_cache: path.join(dir, 'cache') };
    const { status, stdout, stderr } = spawnSync(program, args, { cwd: dir, encoding: 'utf8', env });
    assert.equal(status, 0, `${program} ${args.join(' ')}\n${stdout}\n${stderr}`);
    return stdout;
  };
  const [packed] = JSON.parse(command('npm', ['pack', '--json', '--offline', path.join(ROOT, 'bindings/js')]));
  const names = packed.files.map((file) => file.path);
  assert.ok(names.includes('index.d.ts') && names.includes('lib/package.js'));
  for (const library of ['anyfn.node', 'libanyfn.so', 'libanyfn_devices.so']) assert.ok(names.some((name) => name.endsWith(`/${library}`)), library);
  assert.ok(!names.some((name) => /^(test|src)\/|Cargo/.test(name)), names.join(' '));
  fs.writeFileSync(path.join(dir, 'package.json'), '{}');
  command('npm', ['install', '--offline', '--no-audit', '--no-fund', '--ignore-scripts', path.join(dir, packed.filename)]);
  for (const page of ['bindings/js/README.md', 'README.md']) {
    const source = samples(page, 'js');
    fs.writeFileSync(path.join(dir, 'module.mjs'), source);
    assert.equal(command(process.execPath, ['module.mjs']), expected(source));
    fs.writeFileSync(path.join(dir, 'common.cjs'), source.replace("import anyfn from 'anyfn';", "const anyfn = require('anyfn');"));
    assert.equal(command(process.execPath, ['common.cjs']), expected(source));
  }
});
