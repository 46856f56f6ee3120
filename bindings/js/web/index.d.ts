// Types of `anyfn/web`: the package over the runtime as a WebAssembly module.

import type * as anyfn from '../index.js';

/** The package, with the names of `anyfn`. */
export type Package = typeof anyfn;

/** A compiled `WebAssembly.Module`. */
type CompiledModule = object;

export interface InstantiateOptions {
  /** Further imports of the module, for a module that contains more than the runtime. */
  imports?: Record<string, Record<string, unknown>>;
}

/**
 * Loads the runtime, and returns the package with a runtime of its own. `source` is a URL, a response, the bytes or a compiled module. In
 * Node.js it may also be the path of a file, and is by default that of the package (`anyfn/anyfn.wasm`); elsewhere it is required.
 */
export function instantiate(
  source?: string | URL | object | Promise<object> | ArrayBuffer | ArrayBufferView | CompiledModule,
  options?: InstantiateOptions,
): Promise<Package>;

/** Loads the runtime from bytes or a compiled module, and returns the package. A string or a URL, which name a file, only in Node.js. */
export function instantiateSync(
  source?: string | URL | ArrayBuffer | ArrayBufferView | CompiledModule,
  options?: InstantiateOptions,
): Package;
