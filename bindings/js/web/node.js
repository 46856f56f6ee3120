'use strict';
// The package over the WebAssembly module, in Node.js.

const fs = require('node:fs');
const path = require('node:path');

const web = require('./index.js');

/** Path of the WebAssembly module of the package. */
const wasmFile = path.join(__dirname, '..', 'prebuilds', 'web', 'anyfn.wasm');

/** Returns what `source` names: the bytes of a file, or the source itself. */
function read(source = wasmFile) {
  const isFile = typeof source === 'string' ? !/^https?:/.test(source) : source instanceof URL && source.protocol === 'file:';
  return isFile ? fs.readFileSync(source) : source;
}

/** Loads the runtime and returns the package. `source` is a file, by default that of the package, or what pages use. */
const instantiate = async (source, options) => web.instantiate(read(source), options);

/** Loads the runtime of a file, of bytes or of a compiled module, and returns the package. */
const instantiateSync = (source, options) => web.instantiateSync(read(source), options);

module.exports = { instantiate, instantiateSync, wasmFile };
