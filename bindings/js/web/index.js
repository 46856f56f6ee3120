'use strict';
// The package over the WebAssembly module, for pages, workers and other hosts. `node.js` adds the file of the package for Node.js.

const { createPackage } = require('../lib/package.js');
const { createNative } = require('./native.js');

/** Compiles a WebAssembly module: a URL, a `Response` or the promise of one, the bytes, or a compiled module. */
async function compile(given) {
  const source = await given;
  if (source instanceof WebAssembly.Module) return source;
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return WebAssembly.compile(source);
  const isResponse = typeof Response !== 'undefined' && source instanceof Response;
  const response = isResponse ? source : await fetch(source);
  if (!response.ok) throw new Error(`cannot load ${response.url || source}: status ${response.status}`);
  // Only modules of this media type may be compiled while they are loaded.
  const isWasm = (response.headers.get('content-type') ?? '').split(';')[0].trim() === 'application/wasm';
  return isWasm ? WebAssembly.compileStreaming(response) : WebAssembly.compile(await response.arrayBuffer());
}

/** Returns the package with a runtime of its own, in a compiled module. `imports` are further imports of the module. */
function connect(module, { imports = {} } = {}) {
  return createPackage(createNative((own) => new WebAssembly.Instance(module, { ...imports, ...own })));
}

/** Loads the runtime and returns the package. */
async function instantiate(source, options) {
  return connect(await compile(source), options);
}

/** Loads the runtime of bytes or of a compiled module, and returns the package. Not for large modules on the main thread of a page. */
function instantiateSync(source, options) {
  return connect(source instanceof WebAssembly.Module ? source : new WebAssembly.Module(source), options);
}

module.exports = { instantiate, instantiateSync };
