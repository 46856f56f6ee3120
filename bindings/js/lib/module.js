'use strict';
// Modules: libraries of functions.

const { TAG } = require('./values.js');

function createModules(native, { ObjectRef, setClass }) {
  const call = (name, ...args) => native.getGlobal(name)(...args);

  /** A module, which is usually a loaded library. */
  class Module extends ObjectRef {
    constructor() {
      throw new TypeError('Module has no constructor; use loadModule(path)');
    }

    /** Returns a function of the module. With `allowMissing`, returns undefined if there is none. */
    getFunction(name, { imports = false, allowMissing = false } = {}) {
      const f = native.moduleFunction(this[TAG], name, imports);
      if (f === null && !allowMissing) {
        throw new TypeError(`module has no function '${name}'; it has ${this.functionNames().join(', ') || 'none'}`);
      }
      return f ?? undefined;
    }

    functionNames({ imports = false } = {}) {
      return call('ffi.ModuleListFunctions', this, imports).toArray();
    }

    importModule(module) {
      call('ffi.ModuleImportModule', this, module);
    }

    get imports() {
      return call('ffi.ModuleGetImports', this).toArray();
    }

    get kind() {
      return call('ffi.ModuleGetKind', this);
    }

    toString() {
      return `Module(${this.kind})`;
    }
  }
  setClass(73, 'ffi.Module', Module);

  /** Loads a library. Over the WebAssembly module, `path` is the content of a .wasm file: its bytes, or a `WebAssembly.Module`. */
  function loadModule(path) {
    const loaded = native.loadModule?.(path);
    if (loaded !== undefined) return loaded;
    if (path instanceof URL) path = decodeURIComponent(path.pathname);
    return call('ffi.ModuleLoadFromFile', String(path));
  }

  return { Module, loadModule };
}

module.exports = { createModules };
