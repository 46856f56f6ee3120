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
 * Loads the runtime, and returns the package with a runtime of its own. `source` is a URL, a response, the bytes or a compiled module; in
 * Node.js also the path of a file, by default that of the package (`anyfn/anyfn.wasm`).
 */
export function instantiate(
  source?: string | URL | object | Promise<object> | ArrayBuffer | ArrayBufferView | CompiledModule,
  options?: InstantiateOptions,
): Promise<Package>;

/** Loads the runtime from bytes or a compiled module, in Node.js also from a file, and returns the package. */
export function instantiateSync(
  source?: string | URL | ArrayBuffer | ArrayBufferView | CompiledModule,
  options?: InstantiateOptions,
): Package;
