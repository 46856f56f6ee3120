'use strict';
// What is particular to the WebAssembly module: its memory, its end, its instances, and compiled functions.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const zlib = require('node:zlib');
const { spawnSync } = require('node:child_process');
const { test } = require('node:test');

const { folder, skip, ROOT } = require('../support.js');
const { IMPORTS, TESTING, instantiate } = require('./support.js');
const { createPackage } = require('../../lib/package.js');
const { createNative } = require('../../web/native.js');
const web = require('../../web/node.js');

const anyfn = instantiate();
const sample = (name, of = anyfn) => of.getGlobalFunc(`testing.${name}`);

test('the memory of a tensor is shown again after the memory of the module has grown', () => {
  const x = anyfn.tensor([1, 2, 3]);
  const before = x.data;
  const large = anyfn.empty([1 << 24]);
  assert.equal(before.length, 0, 'the buffer is detached');
  x.data[0] = 10;
  assert.deepEqual([...x.data], [10, 2, 3]);
  assert.equal(x.data, x.data);
  assert.equal(x.data.buffer, large.data.buffer, 'both are views of the memory of the module');
  assert.throws(() => sample('echo')(before), { name: 'TypeError', message: /detached/ });
});

test('a view of the memory of the module is passed without a copy', () => {
  const [x, y] = [anyfn.tensor([1, 2, 3, 4]), anyfn.tensor([10, 20])];
  sample('saxpy')(1, x.data.subarray(1, 3), y.data);
  assert.deepEqual(y.toArray(), [12, 23]);
});

test('typed arrays that overlap share the copy that native code sees', () => {
  const all = Float32Array.of(1, 2, 3, 4, 5, 6);
  sample('saxpy')(1, all.subarray(0, 2), all.subarray(2, 4));
  assert.deepEqual([...all], [1, 2, 4, 6, 5, 6]);
  const count = anyfn.convert((...arrays) => arrays.map((array) => array[0]));
  const parts = [all.subarray(3, 5), all.subarray(0, 2), all.subarray(1, 6)];
  assert.deepEqual(count(...parts).toArray(), [6, 1, 2]);
});

test('a call with many arrays that overlap and many that do not', () => {
  const all = Float64Array.from({ length: 4000 }, (_, i) => i);
  const seen = anyfn.convert((...arrays) => arrays.reduce((sum, array) => sum + array[0], 0));
  // Neighbours, from both ends and in the middle, and arrays that join others.
  const apart = Array.from({ length: 1000 }, (_, i) => all.subarray(4 * i, 4 * i + 2)).sort((a, b) => (a.byteOffset % 37) - (b.byteOffset % 37));
  assert.equal(seen(...apart), apart.reduce((sum, array) => sum + array[0], 0));
  const joined = [...apart, all.subarray(1, 3001), all.subarray(2999, 4000), all.subarray(0, 0)];
  sample('apply')((...arrays) => arrays.forEach((array) => (array[0] = -1)), ...joined);
  const wanted = Float64Array.from({ length: 4000 }, (_, i) => (i % 4 === 0 || i === 1 || i === 2999 ? -1 : i));
  assert.deepEqual(all, wanted);
});

test('a callback sees what native code has written, and the other way round', () => {
  const x = Float32Array.of(1, 2);
  const sum = sample('pass_on_read_only')(x, (array) => {
    assert.equal(array, x);
    array[0] = 5;
    return sample('tensor_sum')(array);
  });
  assert.equal(sum, 7);
  assert.equal(x[0], 5);
});

test('a typed array keeps what a callback writes around further calls', () => {
  const [pass, apply] = [sample('pass_on_read_only'), sample('apply')];
  const x = Float32Array.of(1, 2, 3, 4);
  pass(x, (y) => {
    y[0] = 5;
    apply(() => 0);
    assert.equal(y[0], 5);
    y[3] = 9;
    pass(y.subarray(0, 1), () => 0);
    assert.equal(y[3], 9);
    return 0;
  });
  assert.deepEqual([...x], [5, 2, 3, 9]);
  assert.throws(() => pass(x, (y) => { y[1] = 7; throw new Error('after the write'); }), { message: 'after the write' });
  assert.deepEqual([...x], [5, 7, 3, 9]);
});

test('a call while the arguments of another one are converted leaves typed arrays as they are', () => {
  const fill = anyfn.empty([100]);
  fill.data.fill(77);
  fill.dispose();
  const x = Float32Array.of(1, 2, 3);
  assert.equal(sample('count')(x, { get a() { return sample('apply')(() => 1); } }), 2);
  assert.deepEqual([...x], [1, 2, 3]);
});

test('a function may be disposed of while its arguments are converted, and while it runs', async () => {
  const make = () => anyfn.convert((...args) => args.length);
  const f = make();
  const argument = (g) => ({ get a() { g.dispose(); return 1; } });
  assert.throws(() => f(1, argument(f)), { message: /disposed of/ });
  const g = make();
  await assert.rejects(async () => g.callAsync([argument(g)]), { message: /disposed of/ });
  const h = anyfn.convert(() => (h.dispose(), 5));
  assert.equal(h(), 5);
  assert.equal(sample('echo')(1), 1);
});

test('a view of the memory is passed to a callback although the memory grows before', () => {
  const x = anyfn.tensor([1, 2, 3]);
  const seen = sample('apply')((y) => [y.constructor.name, ...y], x.data, { get a() { anyfn.empty([1 << 24]); return 1; } });
  assert.deepEqual(seen.toArray(), ['Float32Array', 1, 2, 3]);
});

test('bytes that are a view of the memory are copied although it grows for them', () => {
  const own = instantiate();
  const x = own.empty([1 << 22], 'uint8');
  x.data.fill(65);
  const bytes = Buffer.from(x.data.buffer, x.data.byteOffset, x.data.byteLength);
  const copy = sample('echo', own)(bytes);
  assert.equal(copy.length, 1 << 22);
  assert.equal(Buffer.from(copy).at(-1), 65);
});

test('the package works after its functions were removed from the registry', () => {
  const own = instantiate();
  for (const name of own.listGlobalFuncNames()) if (name.startsWith('anyfn.web.')) own.removeGlobalFunc(name);
  assert.throws(() => sample('apply', own)(() => { throw new Error('mine'); }), { message: 'mine' });
  assert.deepEqual(own.tensor([1, 2]).toArray(), [1, 2]);
});

test('what is passed to load the runtime or a module is checked', async () => {
  const { instantiate: load } = require('../../web/index.js');
  await assert.rejects(load(), { name: 'TypeError', message: /a URL, a Response/ });
  for (const wrong of [undefined, {}, new Response('x')]) {
    assert.throws(() => anyfn.loadModule(wrong), { name: 'TypeError', message: /the bytes of a \.wasm file/ });
  }
});

test('an exception travels through native frames as the same object, and leaves the module intact', () => {
  const thrown = { any: 'value' };
  const apply = sample('apply');
  for (let round = 0; round < 1000; round += 1) {
    try {
      apply(apply, apply, () => {
        throw thrown;
      });
      assert.fail('nothing was thrown');
    } catch (error) {
      assert.equal(error, thrown);
    }
  }
  assert.equal(sample('echo')('still here'), 'still here');
});

test('a recursion without end is a RangeError, after which the module works', () => {
  const apply = sample('apply');
  const forever = () => apply(forever);
  for (let round = 0; round < 3; round += 1) assert.throws(forever, { name: 'RangeError' });
  let deep = [];
  for (let level = 0; level < 100000; level += 1) deep = [deep];
  assert.throws(() => sample('echo')(deep), { name: 'RangeError' });
  assert.equal(sample('echo')(1), 1);
});

test('calls with many arguments', () => {
  const count = sample('count');
  for (const n of [1000, 1024, 1025, 20000]) assert.equal(count(...new Array(n).fill('text that is long')), n);
  const echo = sample('echo');
  const nested = (level) => (level === 0 ? 0 : 1 + sample('apply')(nested, level - 1, ...new Array(1000).fill(0)));
  assert.equal(nested(10), 10);
  assert.throws(() => nested(100), { name: 'RangeError' });
  assert.equal(echo(1), 1);
});

test('an allocation that fails is an error', () => {
  assert.throws(() => anyfn.empty([1 << 29], 'float32'), { name: 'MemoryError' });
  assert.equal(sample('echo')(1), 1);
});

test('instances do not share objects', () => {
  const other = instantiate();
  const list = new anyfn.ListRef([1]);
  assert.throws(() => sample('echo', other)(list), { message: /disposed of, or belongs/ });
  other.registerFunc('web.only', () => 1);
  assert.equal(anyfn.getGlobalFunc('web.only', { allowMissing: true }), undefined);
});

test('a module of another version is refused', () => {
  assert.throws(() => web.instantiateSync(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0])), { message: /version undefined .* anyfn\.wasm/ });
});

test('a file cannot be opened, and says what to pass', () => {
  assert.throws(() => anyfn.loadModule('f.so'), { name: 'RuntimeError', message: /pass the bytes of a \.wasm file/ });
});

test('asynchronous calls run later on the same thread', async () => {
  const order = [];
  const promise = sample('apply').callAsync([() => (order.push('call'), 5)]);
  order.push('main');
  assert.equal(await promise, 5);
  assert.deepEqual(order, ['main', 'call']);
  await assert.rejects(sample('apply').callAsync([async () => 1]), { name: 'TypeError', message: /promise/ });
  await assert.rejects(sample('echo').callAsync([new Float32Array(1)]), { name: 'TypeError', message: /pass a tensor/ });
  const controller = new AbortController();
  const aborted = sample('apply').callAsync([() => order.push('never')], { signal: controller.signal });
  controller.abort(new Error('no more'));
  await assert.rejects(aborted, { message: 'no more' });
  await new Promise((resolve) => setTimeout(resolve, 5));
  assert.equal(order.length, 2);
});

test('objects, strings, tensors and callbacks are released', { skip: !globalThis.gc && 'no gc' }, async () => {
  const native = createNative();
  const imports = { ...IMPORTS, ...native.imports };
  const functions = native.start(new WebAssembly.Instance(new WebAssembly.Module(fs.readFileSync(TESTING)), imports));
  const anyfn = createPackage(functions);
  const sample = (name) => anyfn.getGlobalFunc(`testing.${name}`);
  const apply = sample('apply');
  const size = () => anyfn.empty([1]).data.buffer.byteLength;
  const rounds = async (count) => {
    for (let round = 0; round < count; round += 1) {
      for (let each = 0; each < 1000; each += 1) {
        new anyfn.ListRef([each, `a string of ${each} that is long`]);
        anyfn.empty([64]);
        apply((x) => x, `another string of ${each}`);
      }
      await new Promise(setImmediate);
      globalThis.gc();
      await new Promise(setImmediate);
    }
  };
  await rounds(8);
  const before = size();
  await rounds(30);
  // When garbage is collected varies, but 32 bytes of each object would take 2.9 MB.
  assert.ok(size() - before < 1 << 20, `${size() - before} bytes`);
  functions.sweep(Infinity);
  assert.ok(functions.live() < 2500, `${functions.live()} objects`);
  assert.ok(functions.kept() < 10, `${functions.kept()} values`);
});

const noPackage = !fs.existsSync(web.wasmFile) && `no ${web.wasmFile}`;

test('the module of the package is as small as docs/sizes.md says', { skip: skip('size of anyfn.wasm', noPackage) }, () => {
  const size = zlib.gzipSync(fs.readFileSync(web.wasmFile), { level: 9 }).length;
  const page = fs.readFileSync(path.join(ROOT, 'docs/sizes.md'), 'utf8');
  const told = Number(/^\| `anyfn\.wasm` \| [\d,]+ KB \| (\d+) KB \|/m.exec(page)[1]);
  assert.ok(size <= told * 1000, `it has ${size} bytes`);
  assert.ok(size > told * 900, `docs/sizes.md says ${told} KB, but it has only ${size} bytes`);
});

test('the module of the package runs in Node.js', { skip: noPackage }, async () => {
  const own = await web.instantiate();
  own.registerFunc('own.add', (a, b) => a + b);
  assert.equal(own.getGlobalFunc('own.add')(1, 2), 3);
  assert.deepEqual(own.tensor([[1, 2]]).reshape([2]).toArray(), [1, 2]);
});

const CLANG = ['clang', 'clang-19', 'clang-16'].find((name) => !spawnSync(name, ['--version']).error);
const LINKER = ['wasm-ld-19', 'wasm-ld-16', 'wasm-ld'].map((name) => spawnSync('which', [name], { encoding: 'utf8' }).stdout.trim()).find(Boolean);
const noCompiler = (!CLANG || !LINKER) && 'no Clang or no wasm-ld (`apt-get install clang lld-19`)';

/** Compiles C code for a page. */
function compile(source) {
  const dir = folder();
  const [from, to] = [path.join(dir, 'f.c'), path.join(dir, 'f.wasm')];
  fs.writeFileSync(from, source);
  const object = path.join(dir, 'f.o');
  const flags = ['--target=wasm32-unknown-emscripten', '-ffreestanding', '-O2', '-fPIC', '-fvisibility=hidden', '-c', from, '-o', object];
  const options = ['-shared', '--experimental-pic', '--no-entry', '--unresolved-symbols=import-dynamic'];
  const link = [...options, '--export-if-defined=__wasm_call_ctors', object, '-o', to];
  for (const [program, args] of [[CLANG, flags], [LINKER, link]]) {
    const done = spawnSync(program, args, { encoding: 'utf8' });
    assert.equal(done.status, 0, done.stderr);
  }
  return fs.readFileSync(to);
}

const EXPORT = '__attribute__((visibility("default")))';
const VALUE = `
typedef struct { int type; unsigned small; union { long long i; double f; void* p; } v; } value;
typedef struct { void* data; int device[2], ndim; unsigned char code, bits; unsigned short lanes; long long *shape, *strides; } tensor;
extern void TVMFFIErrorSetRaisedFromCStr(const char*, const char*);
`;

test('a compiled function works on the tensors of the runtime', { skip: skip('compiled', noCompiler) }, () => {
  const module = anyfn.loadModule(
    compile(`${VALUE}
static int calls = 40;
${EXPORT} int __tvm_ffi_twice(void* self, const value* args, int count, value* result) {
  if (count != 1 || args[0].type != 70) return TVMFFIErrorSetRaisedFromCStr("TypeError", "twice: expected a tensor"), -1;
  tensor* t = (tensor*)((char*)args[0].v.p + 24);
  for (long long i = 0; i < t->shape[0]; ++i) ((float*)t->data)[i] *= 2;
  result->type = 1;
  result->v.i = ++calls;
  return 0;
}
`),
  );
  assert.equal(module.kind, 'wasm');
  assert.deepEqual(module.functionNames(), ['twice']);
  const twice = module.getFunction('twice');
  const x = anyfn.tensor([1, 2, 3]);
  const { data } = x;
  assert.equal(twice(x), 41);
  assert.deepEqual([...data], [2, 4, 6]);
  assert.equal(x.data, data, 'no copy was made');
  assert.throws(() => twice(5), { name: 'TypeError', message: 'twice: expected a tensor' });
  assert.equal(twice(x), 42);
  assert.throws(() => module.getFunction('thrice'), { name: 'TypeError', message: /it has twice/ });
});

test('a JavaScript function is called from inside a compiled function', { skip: skip('compiled', noCompiler) }, () => {
  const module = anyfn.loadModule(
    compile(`${VALUE}
${EXPORT} void* __tvm_ffi__library_ctx;
${EXPORT} int (*__TVMFFIFunctionCall)(void*, const value*, int, value*);
${EXPORT} int (*__TVMFFIEnvModLookupFromImports)(void*, const char*, void**);
${EXPORT} int __tvm_ffi_ask(void* self, const value* args, int count, value* result) {
  void* f = 0;
  if (__TVMFFIEnvModLookupFromImports(__tvm_ffi__library_ctx, "web.answer", &f)) return -1;
  return __TVMFFIFunctionCall(f, args, count, result);
}
`),
  );
  const ask = module.getFunction('ask');
  assert.throws(() => ask(1), { name: 'ValueError', message: /web\.answer/ });
  anyfn.registerFunc('web.answer', (x) => `answer ${x}`);
  assert.equal(ask(7), 'answer 7');
  const thrown = new RangeError('from JavaScript');
  anyfn.registerFunc('web.answer', () => { throw thrown; }, { override: true });
  assert.throws(() => ask(7), (error) => error === thrown);
});

test('mathematical functions of compiled code', { skip: skip('compiled', noCompiler) }, () => {
  const of = (name) =>
    anyfn
      .loadModule(compile(`${VALUE} double ${name}(double);
${EXPORT} int __tvm_ffi_f(void* s, const value* a, int n, value* r) { r->type = 3; r->v.f = ${name}(a[0].v.f); return 0; }`))
      .getFunction('f');
  const round = of('round');
  for (const [x, y] of [[0.5, 1], [-0.5, -1], [2.5, 3], [-2.5, -3], [0.49999999999999994, 0], [2 ** 53 - 1, 2 ** 53 - 1]]) {
    assert.equal(round(anyfn.float(x)), y);
  }
  for (const x of [-0, -0.2]) assert.ok(Object.is(round(anyfn.float(x)), -0), `round(${x})`);
  assert.equal(of('sin')(anyfn.float(1)), Math.sin(1));
  assert.ok(Math.abs(of('erf')(anyfn.float(0.5)) - 0.5204998778130465) < 1e-15);
  assert.equal(of('exp10')(anyfn.float(2)), 100);
});

test('powers of one are one, as in C', { skip: skip('compiled', noCompiler) }, () => {
  const source = (type, name) => `${VALUE} ${type} ${name}(${type}, ${type});
${EXPORT} int __tvm_ffi_f(void* s, const value* a, int n, value* r) { r->type = 3; r->v.f = ${name}(a[0].v.f, a[1].v.f); return 0; }`;
  for (const [type, name] of [['double', 'pow'], ['float', 'powf']]) {
    const pow = anyfn.loadModule(compile(source(type, name))).getFunction('f');
    for (const [x, y] of [[1, NaN], [1, Infinity], [-1, Infinity], [-1, -Infinity]]) assert.equal(pow(anyfn.float(x), anyfn.float(y)), 1);
    assert.ok(Number.isNaN(pow(anyfn.float(2), NaN)));
    assert.equal(pow(anyfn.float(2), anyfn.float(10)), 1024);
  }
});

test('numbers with half precision in C code', { skip: skip('compiled', noCompiler) }, () => {
  const module = anyfn.loadModule(
    compile(`${VALUE}
${EXPORT} int __tvm_ffi_round(void* s, const value* a, int n, value* r) {
  volatile __fp16 half = a[0].v.f;
  return r->type = 3, r->v.f = half, 0;
}`),
  );
  const round = module.getFunction('round');
  for (const [x, y] of [
    [0.1, 0.0999755859375], [65519.9, 65504], [65520, Infinity], [-1e300, -Infinity], [2 ** -24, 2 ** -24], [2 ** -25, 0],
    [3 * 2 ** -25, 2 ** -23], [2049, 2048], [2051, 2052], [NaN, NaN], [-0, -0],
  ]) {
    assert.ok(Object.is(round(anyfn.float(x)), y), `${x} became ${round(anyfn.float(x))}`);
  }
});

test('constructors of C code run once', { skip: skip('compiled', noCompiler) }, () => {
  const source = (more) => `${VALUE} static volatile int n = 1;
__attribute__((constructor)) static void start(void) { n *= 7; }
${more}
${EXPORT} int __tvm_ffi_n(void* s, const value* a, int count, value* r) { return r->type = 1, r->v.i = n, 0; }`;
  assert.equal(anyfn.loadModule(compile(source(''))).getFunction('n')(), 7);
  const both = `extern void __wasm_call_ctors(void); ${EXPORT} void _initialize(void) { __wasm_call_ctors(); }`;
  assert.equal(anyfn.loadModule(compile(source(both))).getFunction('n')(), 7);
});

test('weak symbols may be missing', { skip: skip('compiled', noCompiler) }, () => {
  const module = anyfn.loadModule(
    compile(`${VALUE} __attribute__((weak)) extern int nowhere; __attribute__((weak)) int nobody(void);
${EXPORT} int __tvm_ffi__has(void* s, const value* a, int n, value* r) { return r->type = 1, r->v.i = (&nowhere ? nowhere : 0) + 2 * (nobody ? nobody() : 0), 0; }`),
  );
  assert.deepEqual(module.functionNames(), ['_has']);
  assert.equal(module.getFunction('_has')(), 0);
});

/** Returns a WebAssembly module: the content of its section dylink.0, and further sections. */
function handmade(dylink, ...sections) {
  const name = Buffer.from('dylink.0');
  const all = [[0, [name.length, ...name, ...dylink]], ...sections];
  return Buffer.from([0, 97, 115, 109, 1, 0, 0, 0, ...all.flatMap(([id, content]) => [id, content.length, ...content])]);
}

test('a section dylink.0 that is wrong is an error', { timeout: 20000 }, () => {
  const bits = (n) => [(n & 0x7f) | 0x80, ((n >>> 7) & 0x7f) | 0x80, ((n >>> 14) & 0x7f) | 0x80, ((n >>> 21) & 0x7f) | 0x80, n >>> 28];
  for (const [dylink, message] of [
    [[1], /malformed/],
    [[1, 4, 0x80], /malformed/],
    [[255, 255, 255, 255, 255, 255, 1], /malformed/],
    [[1, 4, 64, 40, 0, 0], /too much memory/],
    [[1, 8, ...bits(4294967280), 7, 0, 0], /too much memory/],
    [[1, 8, 0, 0, ...bits(4294967295), 0], /too many places/],
    [[1, 4, 0, 0, 0, 32], /too many places/],
  ]) {
    assert.throws(() => anyfn.loadModule(handmade(dylink)), { name: 'TypeError', message });
  }
  assert.equal(sample('echo')('a text that is long enough'), 'a text that is long enough');
});

test('imports cannot change objects of JavaScript', () => {
  const text = (t) => [t.length, ...Buffer.from(t)];
  const keys = Object.keys;
  for (const [from, name] of [['__proto__', 'polluted'], ['constructor', 'keys'], ['env', '__proto__'], ['GOT.mem', '__proto__']]) {
    const module = handmade([1, 4, 0, 0, 0, 0], [2, [1, ...text(from), ...text(name), 3, 0x7f, 1]]);
    assert.throws(() => anyfn.loadModule(module), { name: 'TypeError', message: /the runtime lacks/ });
  }
  assert.equal({}.polluted, undefined);
  assert.equal(Object.keys, keys);
});

test('code that cannot be placed anywhere is refused', { skip: skip('compiled', noCompiler) }, () => {
  assert.throws(() => anyfn.loadModule(fs.readFileSync(TESTING)), { name: 'TypeError', message: /position-independent/ });
  const missing = compile(`${EXPORT} int no_such_function(int); ${EXPORT} int __tvm_ffi_f(void* s, const void* a, int n, void* r) { return no_such_function(n); }`);
  assert.throws(() => anyfn.loadModule(missing), { name: 'TypeError', message: /no_such_function/ });
  const f = (before, body) => compile(`${VALUE} ${before} ${EXPORT} int __tvm_ffi_f(void* s, const value* a, int n, value* r) { ${body} }`);
  for (const [code, message] of [
    [f('extern int no_such_data[4];', 'return no_such_data[n];'), /lacks: no_such_data$/],
    [f('int no_such_function(int); static int (*volatile g)(int) = no_such_function;', 'return g(n);'), /lacks: no_such_function$/],
    [f('double sin(double); static double (*volatile g)(double) = sin;', 'return g(n);'), /sin \(a function of JavaScript, whose address/],
    [f('int toString(int);', 'return toString(n);'), /lacks: toString$/],
    [compile(`${EXPORT} int __tvm_ffi_f(void) { return 0; }`), /__tvm_ffi_f of the WebAssembly module has 0 parameters/],
  ]) {
    assert.throws(() => anyfn.loadModule(code), { name: 'TypeError', message });
  }
  assert.throws(() => anyfn.loadModule(compile(`${EXPORT} int f(void) { return 1; }`)), { name: 'TypeError', message: /__tvm_ffi_/ });
});

test('a module that is refused takes no memory', { skip: skip('compiled', noCompiler) }, () => {
  const own = instantiate();
  const size = () => own.empty([1]).data.buffer.byteLength;
  const large = 'static char large[1000000];';
  const use = (call) => `{ large[n] = ${call}; return large[n + 1]; }`;
  const head = `${EXPORT} int __tvm_ffi_f(void* s, const void* a, int n, void* r)`;
  const missing = compile(`${large} int no_such_function(int); ${head} ${use('no_such_function(1)')}`);
  // An import of the runtime with another type.
  const other = compile(`${large} double anyfn_web_alloc(double); ${head} ${use('anyfn_web_alloc(1)')}`);
  assert.throws(() => own.loadModule(other), WebAssembly.LinkError);
  const before = size();
  for (let round = 0; round < 20; round += 1) {
    assert.throws(() => own.loadModule(missing), { name: 'TypeError' });
    assert.throws(() => own.loadModule(other), WebAssembly.LinkError);
  }
  assert.equal(size(), before);
});

test('a trap in compiled code ends the runtime, also while it is linked', { skip: skip('compiled', noCompiler) }, () => {
  const f = `${VALUE} ${EXPORT} int __tvm_ffi_f(void* s, const value* a, int n, value* r) { return r->type = 1, r->v.i = 100 / a[0].v.i, 0; }`;
  const own = instantiate();
  const divide = own.loadModule(compile(f)).getFunction('f');
  assert.equal(divide(7), 14);
  assert.throws(() => divide(0), { message: /has stopped .*divide by zero/ });
  const other = instantiate();
  assert.throws(() => other.loadModule(compile(`${f} ${EXPORT} void _initialize(void) { __builtin_trap(); }`)), { message: /has stopped .*unreachable/ });
  assert.throws(() => other.getGlobalFunc('testing.echo'), { message: /has stopped/ });
});

test('a module that has stopped says so', () => {
  const other = instantiate();
  const panic = other.getGlobalFunc('testing.panic');
  assert.throws(() => panic('x'), { message: /has stopped/ });
  assert.throws(() => other.getGlobalFunc('testing.echo'), { message: /has stopped/ });
  assert.equal(sample('echo')(1), 1, 'the other instance works');
});
