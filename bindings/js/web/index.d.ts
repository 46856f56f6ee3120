// Types of `anyfn/web`: the package over the runtime as a WebAssembly module.

import type * as anyfn from '../index.js';

/** The package, with the names of `anyfn`, and sessions. */
export type Package = typeof anyfn & Sessions;

/** Options of a call of a remote function. */
export interface RemoteCallOptions {
  /** Cancels the call when it is aborted. */
  signal?: AbortSignal;
  /** Time limit in seconds. */
  timeout?: number;
}

/** A function of another process. */
export interface RemoteFunction {
  (...args: unknown[]): Promise<any>;
  callAsync(args?: Iterable<unknown>, options?: RemoteCallOptions): Promise<any>;
  /** Returns a function that measures this one at the remote end. `minRepeatMs` is in milliseconds. */
  timeEvaluator(options?: { device?: anyfn.Device; number?: number; repeat?: number; minRepeatMs?: number }): Promise<RemoteFunction>;
  readonly signature: anyfn.PackedFunc['signature'];
}

/** A tensor in the memory of another process. */
export interface RemoteTensor {
  readonly shape: number[];
  readonly dtype: anyfn.DType;
  readonly device: anyfn.Device;
  /** Copies elements to the remote end. */
  write(content: anyfn.Tensor | ArrayBufferView, options?: RemoteCallOptions): Promise<void>;
  /** Returns a tensor with a copy of the elements. */
  read(options?: RemoteCallOptions): Promise<anyfn.Tensor>;
  /** Copies the elements of another tensor of the same session. */
  assign(other: RemoteTensor, options?: RemoteCallOptions): Promise<void>;
  dispose(): void;
}

/** A module of another process. */
export interface RemoteModule {
  getFunction(name: string): Promise<RemoteFunction>;
  functionNames(): Promise<string[]>;
  dispose(): void;
}

/** A session with a server. */
export interface Session {
  getFunction(name: string, options?: RemoteCallOptions): Promise<RemoteFunction>;
  functionNames(): Promise<string[]>;
  info(): Promise<Record<string, unknown>>;
  empty(shape: Iterable<number>, dtype?: string | anyfn.DType, device?: anyfn.Device): Promise<RemoteTensor>;
  tensor(content: anyfn.Tensor | ArrayBufferView | unknown[], shape?: number[], dtype?: string): Promise<RemoteTensor>;
  load(content: ArrayBuffer | ArrayBufferView, options?: RemoteCallOptions): Promise<RemoteModule>;
  /** The error that has ended the session. */
  readonly ended: Error | undefined;
  close(): void;
}

export interface ConnectOptions extends RemoteCallOptions {
  /** The key, as `anyfn rpc key` prints it. */
  key?: string;
  /** The class of WebSockets, where the host has none. */
  WebSocket?: unknown;
}

export interface ServeOptions {
  /** Name under which clients find the page at the proxy. */
  name: string;
  key?: string;
  /** Global functions that clients may call: names, or prefixes followed by `*`. */
  functions?: string[];
  /** True if clients may send WebAssembly modules. */
  upload?: boolean;
  /** Maximum number of sessions, including clients that have not proved their key; 8 by default. */
  sessions?: number;
  /** Time in seconds in which a client has to prove its key; 10 by default. */
  timeout?: number;
  handles?: number;
  calls?: number;
  memoryBytes?: number;
  storeBytes?: number;
  messageBytes?: number;
  callSeconds?: number;
  idleSeconds?: number;
  onSession?: () => void;
  onError?: (error: Error) => void;
  WebSocket?: unknown;
}

/** A page that serves. */
export interface PageServer {
  stop(): void;
}

export interface Sessions {
  /** Opens a session with a server: `ws://host:port`, or `ws://host:port/name` for one that waits at a proxy. */
  connect(url: string | URL, options?: ConnectOptions): Promise<Session>;
  /** Offers functions of this runtime to clients that reach it by a name at a proxy. */
  serve(url: string | URL, options: ServeOptions): Promise<PageServer>;
  /** Returns a new key. */
  makeKey(name: string): string;
}

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
