'use strict';
// The package over the WebAssembly module, for pages, workers and other hosts. `node.js` adds the file of the package for Node.js.

const { createPackage } = require('../lib/package.js');
const { createNative } = require('./native.js');
const { createSessions } = require('./session.js');

/** Makes the package over the functions of an instance. */
function packageOf(native) {
  const anyfn = createPackage(native);
  return Object.assign(anyfn, createSessions(native, anyfn));
}

/** Compiles a WebAssembly module: a URL, a `Response` or the promise of one, the bytes, or a compiled module. */
async function compile(given) {
  const source = await given;
  if (source === undefined || source === null) {
    throw new TypeError('expected a URL, a Response, the bytes or the compiled module of anyfn.wasm');
  }
  if (source instanceof WebAssembly.Module) return source;
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return WebAssembly.compile(source);
  const isResponse = typeof Response !== 'undefined' && source instanceof Response;
  const response = isResponse ? source : await fetch(source);
  if (!response.ok) throw new Error(`cannot load ${response.url || source}: status ${response.status}`);
  // Only modules of this media type may be compiled while they are loaded.
  const isWasm = (response.headers.get('content-type') ?? '').split(';')[0].trim() === 'application/wasm';
  return isWasm ? WebAssembly.compileStreaming(response) : WebAssembly.compile(await response.arrayBuffer());
}

/** Loads the runtime and returns the package, with a runtime of its own. `imports` are further imports of the module. */
async function instantiate(source, { imports = {} } = {}) {
  const native = createNative();
  const instance = await WebAssembly.instantiate(await compile(source), { ...imports, ...native.imports });
  return packageOf(native.start(instance));
}

/** Loads the runtime of bytes or of a compiled module, and returns the package. Not for large modules on the main thread of a page. */
function instantiateSync(source, { imports = {} } = {}) {
  const native = createNative();
  const module = source instanceof WebAssembly.Module ? source : new WebAssembly.Module(source);
  return packageOf(native.start(new WebAssembly.Instance(module, { ...imports, ...native.imports })));
}

module.exports = { instantiate, instantiateSync };
