'use strict';
// The types of the package: their names, and the examples of the guides under `tsc --strict`.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { spawnSync } = require('node:child_process');
const { test } = require('node:test');

const { anyfn, folder, skip, ROOT } = require('./support.js');
const { samples } = require('./pages.js');
const { write } = require('../tools/bundle.js');

const PACKAGE = path.join(ROOT, 'bindings/js');
const TSC = path.join(ROOT, '.x/typescript/node_modules/typescript/bin/tsc');

test('the types declare the names of the package', () => {
  const text = fs.readFileSync(path.join(PACKAGE, 'index.d.ts'), 'utf8');
  const declared = new Set([...text.matchAll(/^export (?:function|class|const) (\w+)/gm)].map((match) => match[1]));
  assert.deepEqual([...declared].sort(), Object.keys(anyfn).sort());
});

test('the types of the entry point for pages declare the names that it exports', () => {
  const dir = folder();
  write(dir);
  const source = fs.readFileSync(path.join(dir, 'anyfn.mjs'), 'utf8');
  const exported = [...source.matchAll(/^export const \{([^}]*)\}/gm)].flatMap(([, names]) => names.match(/\w+/g));
  const named = (file) => [...fs.readFileSync(path.join(PACKAGE, file), 'utf8').matchAll(/^export (?:function|class|const) (\w+)/gm)].map(([, name]) => name);
  assert.deepEqual([...new Set([...named('index.d.ts'), ...named('browser.d.mts')])].sort(), exported.sort());
  const sessions = /^export interface Sessions \{[^]*?^\}/m.exec(fs.readFileSync(path.join(PACKAGE, 'web/index.d.ts'), 'utf8'))[0];
  assert.deepEqual([...sessions.matchAll(/^ {2}(\w+)\(/gm)].map(([, name]) => name).sort(), named('browser.d.mts').sort());
});

test('the types declare the members of the classes', () => {
  const text = fs.readFileSync(path.join(PACKAGE, 'index.d.ts'), 'utf8');
  for (const name of ['ObjectRef', 'ArrayRef', 'ListRef', 'MapRef', 'DictRef', 'Shape', 'Tensor', 'Module', 'DType', 'Device']) {
    const body = new RegExp(`^export class ${name}\\b[^]*?^}`, 'm').exec(text)[0];
    for (const [, member] of body.matchAll(/^ {2}(?:readonly )?(\w+)[(:<]/gm)) {
      if (member !== 'constructor') assert.ok(member in anyfn[name].prototype, `${name}.${member}`);
    }
    const own = Object.getOwnPropertyNames(anyfn[name].prototype).filter((member) => !/^(constructor|_.*|toString|toJSON)$/.test(member));
    for (const member of own) assert.match(body, new RegExp(`\\b${member}\\b`), `${name}.${member} is not declared`);
  }
});

const RIGHT = `
import anyfn, { getGlobalFunc, registerFunc, Tensor, type PackedFunc, type Convertible } from 'anyfn';
const f: PackedFunc = getGlobalFunc('x');
const maybe: PackedFunc | undefined = getGlobalFunc('x', { allowMissing: true });
const n: number = registerFunc('y', (a: number, b: string) => a + b.length)(1, 'x');
const t: Tensor = anyfn.tensor(new Float32Array(2), [2]);
const p: Promise<number> = f.callAsync([1, [2n, { a: null }], new Map([[1, t]])], { signal: new AbortController().signal });
const value: Convertible = [1, 'x', (a: number) => a, new Uint8Array(1)];
for (const [k, v] of new anyfn.MapRef<string, number>({ a: 1 })) console.log(k.length + v);
console.log(maybe?.signature?.params[0].name, n, p, value, f.with({ a: 1 })(2), new anyfn.errors.ValueError('x').kind);
`;
const WEB = `
import { instantiate, instantiateSync, type Package } from 'anyfn/web';
import type { Tensor, WebGPUTensor } from 'anyfn';
const anyfn: Package = await instantiate(fetch('anyfn.wasm'), { imports: { host: { report: () => {} } } });
const n: number = anyfn.registerFunc('y', (a: number) => a)(1);
const t = instantiateSync(new Uint8Array(8)).tensor([1]);
const gpu = await anyfn.requestWebGPU({ features: ['shader-f16'], limits: { maxBufferSize: 2 ** 28 }, powerPreference: 'low-power' });
const x = anyfn.tensor(new Float32Array(2), { device: 'webgpu:0' });
const y: WebGPUTensor = anyfn.empty([2], { device: 'webgpu:0' });
const z: WebGPUTensor = anyfn.tensor([1]).to(gpu.device);
const type: number = gpu.device.type;
const here: Promise<Tensor> = x.to('cpu');
const there: WebGPUTensor = (await here).to('webgpu:0');
anyfn.getGlobalFunc('f')(x, y.reshape([1, 2]), await there.toArray(), anyfn.tensor([1], { dtype: 'int32' }).to(gpu.device));
await gpu.prepare(anyfn.webgpuModule('..', { f: ['pointer', 'float32', 'blockIdx.x'] }));
console.log((await here).data, type, z.device.equals(gpu.device), (await x.to(gpu.device)).shape, gpu.memory.used, await gpu.synchronize());
console.log(n, t.shape, anyfn.loadModule(new WebAssembly.Module(new ArrayBuffer(8))).kind);
`;
const PAGE = `
import anyfn, { connect, makeKey, serve, tensor, type PackedFunc } from 'anyfn';
import type { Session, PageServer } from 'anyfn/web';
const session: Session = await connect('ws://host:9190', { key: makeKey('x'), timeout: 5 });
const server: PageServer = await serve('ws://host:9190', { name: 'page', key: makeKey('y') });
const f: PackedFunc = anyfn.getGlobalFunc('x');
const again: Promise<Session> = anyfn.connect(new URL('ws://host:9190'));
console.log(session.ended, server, f(tensor([1])), again);
// @ts-expect-error: the URL is missing.
connect();
`;
const WRONG = [
  `import { connect } from 'anyfn'; connect('ws://host:9190');`,
  `import { instantiateSync } from 'anyfn/web'; instantiateSync(5);`,
  `import { getGlobalFunc } from 'anyfn'; getGlobalFunc(5);`,
  `import { getGlobalFunc } from 'anyfn'; getGlobalFunc('x', { allowMissing: true })();`,
  `import anyfn from 'anyfn'; anyfn.convert(Symbol('x'));`,
  `import anyfn from 'anyfn'; new anyfn.Tensor();`,
  `import anyfn from 'anyfn'; anyfn.nothing;`,
  `import anyfn from 'anyfn'; anyfn.tensor(new Float32Array(1)).shape = [1];`,
  `import anyfn from 'anyfn'; anyfn.tensor([1], { device: 'webgpu:0' }).to('cpu').shape;`,
  `import anyfn from 'anyfn'; anyfn.empty([1], { device: (await anyfn.requestWebGPU()).device }).to('cpu').shape;`,
  `import anyfn from 'anyfn'; anyfn.tensor([1]).to((await anyfn.requestWebGPU()).device).data;`,
  `import anyfn from 'anyfn'; anyfn.tensor([1], { devise: 'cpu' });`,
  `import anyfn from 'anyfn'; anyfn.requestWebGPU({ powerPreference: 'much' });`,
];

test('tsc --strict', { skip: skip('tsc --strict', !fs.existsSync(TSC) && 'no TypeScript; `./x test` installs it') }, () => {
  const dir = folder();
  fs.mkdirSync(path.join(dir, 'node_modules'));
  fs.symlinkSync(PACKAGE, path.join(dir, 'node_modules/anyfn'));
  const options = {
    strict: true, noEmit: true, module: 'node16', moduleResolution: 'node16', target: 'es2022', lib: ['es2022', 'dom'],
    types: [], preserveSymlinks: true, noImplicitAny: true,
  };
  const check = (files, more = {}) => {
    fs.writeFileSync(path.join(dir, 'tsconfig.json'), JSON.stringify({ compilerOptions: { ...options, ...more }, files }));
    return spawnSync(process.execPath, [TSC, '-p', dir], { encoding: 'utf8' });
  };
  // The guides are JavaScript; what they leave without types is `any` here.
  const any = (text) => text.replace(/catch \(error\)/g, 'catch (error: any)').replace(/\((values|value|name|x|f|a, b|w, h)(, factor)?\) =>/g, (_, names, more = '') =>
    `(${(names + more).split(', ').map((name) => `${name}: any`).join(', ')}) =>`);
  const files = ['docs/javascript.md', 'docs/start/javascript.md', 'bindings/js/README.md', 'README.md'].map((page, index) => {
    const members = (text) => text.replace(/this\.(left|right)\.value/g, '(this as any).$1.value');
    fs.writeFileSync(path.join(dir, `page${index}.mts`), members(any(samples(page, 'js'))));
    return `page${index}.mts`;
  });
  fs.writeFileSync(path.join(dir, 'right.mts'), RIGHT);
  fs.writeFileSync(path.join(dir, 'web.mts'), WEB);
  fs.writeFileSync(path.join(dir, 'common.cts'), `import anyfn = require('anyfn');\nconst f: anyfn.PackedFunc = anyfn.getGlobalFunc('x');\nf(1);\n`);
  WRONG.forEach((text, index) => fs.writeFileSync(path.join(dir, `wrong${index}.mts`), text));
  const { stdout } = check([...files, 'right.mts', 'web.mts', 'common.cts', ...WRONG.map((_, index) => `wrong${index}.mts`)]);
  const isWrong = (line) => /wrong\d+\.mts\(1/.test(line);
  // Lines that are indented explain the one above.
  assert.equal(stdout.split('\n').filter((line) => /^\S/.test(line) && !isWrong(line)).join('\n'), '');
  WRONG.forEach((text, index) => assert.ok(stdout.includes(`wrong${index}.mts(1`), `${text}\n${stdout}`));
  fs.writeFileSync(path.join(dir, 'page.mts'), PAGE);
  assert.equal(check(['page.mts'], { customConditions: ['browser'] }).stdout, '');
});
