'use strict';
// A session with a process of Python: functions of both languages call each other.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');

const { anyfn, folder, ROOT } = require('./support.js');

const PYTHON = path.join(ROOT, '.x/venv/bin/python');
const PROGRAM = `
import importlib, sys
import anyfn
importlib.import_module(sys.argv[1])
anyfn.get_global_func('rpc.serve_spawned')()
`;

test('functions of Python and JavaScript call each other', { skip: !fs.existsSync(PYTHON) && 'no Python environment' }, async () => {
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
