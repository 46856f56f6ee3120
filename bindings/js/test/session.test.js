'use strict';
// A session with a process of Python: functions of both languages call each other.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');

const { anyfn, folder, skip, ROOT } = require('./support.js');

const PYTHON = path.join(ROOT, '.x/venv/bin/python');
const PROGRAM = `
import importlib, sys
import anyfn
importlib.import_module(sys.argv[1])
anyfn.get_global_func('rpc.serve_spawned')()
`;

test('functions of Python and JavaScript call each other', { skip: skip('sessions with Python', !fs.existsSync(PYTHON) && 'no Python environment') }, async () => {
  const dir = folder();
  fs.writeFileSync(
    path.join(dir, 'fold.py'),
    `import anyfn
@anyfn.register_func("fold.sum")
def total(values, add):
    result = 0
    for value in values:
        result = add(result, value)
    return result
@anyfn.register_func("fold.fail")
def fail():
    raise KeyError("in Python")
`,
  );
  process.env.PYTHONPATH = [path.join(ROOT, 'bindings/python'), dir].join(path.delimiter);
  const session = anyfn.getGlobalFunc('rpc.spawn')([PYTHON, '-c', PROGRAM, 'fold']);
  const sum = session.get_function('fold.sum');
  assert.equal(sum([1, 2, 3], (a, b) => a + b), 6);
  assert.equal(await sum.callAsync([['a', 'b'], async (a, b) => `${a}${b}`]), '0ab');
  assert.throws(() => session.get_function('fold.fail')(), { name: 'KeyError' });
  session.dispose();
});

test('a function that Python compiles and exports runs in Node.js', { skip: skip('sessions with Python', !fs.existsSync(PYTHON) && 'no Python environment') }, (t) => {
  const dir = folder();
  const build = `
import anyfn
from anyfn import te
n = 64
a, b = te.placeholder((n, n), name="a"), te.placeholder((n, n), name="b")
k = te.reduce_axis((0, n), name="k")
c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
anyfn.build([a, b, c], name="matmul").export("matmul.so")
`;
  const { spawnSync } = require('node:child_process');
  const env = { ...process.env, PYTHONPATH: path.join(ROOT, 'bindings/python'), ANYFN_CACHE_DIR: dir };
  const built = spawnSync(PYTHON, ['-c', build], { cwd: dir, encoding: 'utf8', env });
  if (/libanyfn_compiler/.test(built.stderr)) return t.skip(skip('a compiled function in Node.js', 'no library of the compiler'));
  assert.equal(built.status, 0, built.stderr);
  const matmul = anyfn.loadModule(path.join(dir, 'matmul.so')).getFunction('matmul');
  const n = 64;
  const a = Float32Array.from({ length: n * n }, (_, i) => (i * 7) % 13);
  const b = Float32Array.from({ length: n * n }, (_, i) => (i * 5) % 11);
  const [ta, tb, tc] = [anyfn.tensor(a, [n, n]), anyfn.tensor(b, [n, n]), anyfn.empty([n, n])];
  matmul(ta, tb, tc);
  const expected = (i, j) => Array.from({ length: n }, (_, k) => a[i * n + k] * b[k * n + j]).reduce((x, y) => x + y, 0);
  for (const [i, j] of [[0, 0], [3, 60], [63, 63]]) assert.equal(tc.data[i * n + j], expected(i, j));
  // A flat typed array has the wrong number of dimensions.
  assert.throws(() => matmul(a, tb, tc), { name: /Error/, message: /a/ });
});
