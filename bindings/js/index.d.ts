// Types of the package. `test/types.test.js` compares the names with those of the package, and checks the examples of the guides.

/** A JavaScript value that can be passed to native code. */
export type Convertible =
  | null
  | undefined
  | boolean
  | number
  | bigint
  | string
  | ArrayBuffer
  | ArrayBufferView
  | Float
  | DType
  | Device
  | OpaquePointer
  | ObjectRef
  | PackedFunc
  | Error
  | ((...args: any[]) => unknown)
  | readonly Convertible[]
  | ReadonlyMap<Convertible, Convertible>
  | { readonly [key: string]: Convertible };

/** A typed array that can be passed as a tensor, or that `Tensor.data` returns. */
export type TypedArray =
  | Int8Array
  | Uint8Array
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | Float32Array
  | Float64Array
  | BigInt64Array
  | BigUint64Array;

export interface CallOptions {
  /** Cancels the call when it is aborted: the promise is immediately rejected with `signal.reason`. */
  signal?: AbortSignal;
  /** True to return every integer as a bigint. Default: false. */
  bigint?: boolean;
}

export interface Signature {
  name: string;
  doc: string;
  params: { name: string; type: string; default?: unknown }[];
  returns: string;
}

/** A native function with some arguments bound by name, as `PackedFunc.with` returns it. */
export interface NamedFunc {
  (...args: Convertible[]): any;
  /** The same function, which returns every integer as a bigint. */
  readonly bigint: (...args: Convertible[]) => any;
  callAsync(args?: readonly Convertible[], options?: CallOptions): Promise<any>;
}

/** A native function, called like any JavaScript function. Created by `getGlobalFunc`, `Module.getFunction` and `convert`. */
export interface PackedFunc {
  (...args: Convertible[]): any;
  /** The same function, which returns every integer as a bigint. */
  readonly bigint: PackedFunc;
  /** Names, types and defaults of the parameters, or null if the function has no signature. */
  readonly signature: Signature | null;
  /** Binds arguments by name. The returned function takes the remaining arguments by position. */
  with(named: { readonly [name: string]: Convertible }): NamedFunc;
  /** Calls the function on another thread, and returns a promise of its result. Typed arrays are refused: pass a `Tensor`. */
  callAsync(args?: readonly Convertible[], options?: CallOptions): Promise<any>;
  /** Releases the function immediately, without waiting for the garbage collector. Calling it afterwards is an error. */
  dispose(): void;
}
export const PackedFunc: { prototype: PackedFunc; [Symbol.hasInstance](value: unknown): value is PackedFunc };

/** Returns the global function of a name. If it does not exist, throws, or returns undefined with `allowMissing`. */
export function getGlobalFunc(name: string, options?: { allowMissing?: false }): PackedFunc;
export function getGlobalFunc(name: string, options: { allowMissing: boolean }): PackedFunc | undefined;

export interface RegisterOptions {
  /** True to replace an existing function of this name. Default: false: a name that is already registered is an error. */
  override?: boolean;
  /** True to pass integers to the function as bigints, and to convert every number that it returns to a float. Default: false. */
  bigint?: boolean;
}

/** Registers `f` as a global function, and returns it. Without a name, `f.name` is used; without `f`, returns a decorator. */
export function registerFunc<F extends (...args: any[]) => unknown>(name: string, f: F, options?: RegisterOptions): F;
export function registerFunc<F extends (...args: any[]) => unknown>(f: F): F;
export function registerFunc(name: string): <F extends (...args: any[]) => unknown>(f: F) => F;

/** Removes a global function. Returns true if it existed. */
export function removeGlobalFunc(name: string): boolean;
/** Returns the names of all global functions. */
export function listGlobalFuncNames(): string[];

/**
 * Converts a function to a PackedFunc, an array to an ArrayRef, a Map or plain object to a MapRef, and copies a typed array to a Tensor.
 * With `bigint`, the function receives integers as bigints.
 */
export function convert(f: (...args: any[]) => unknown, options?: { bigint?: boolean }): PackedFunc;
export function convert(items: readonly Convertible[]): ArrayRef;
export function convert(entries: ReadonlyMap<Convertible, Convertible>): MapRef;
export function convert(array: TypedArray): Tensor;
export function convert(value: Convertible): any;

/** Calls a function on another thread, as `PackedFunc.callAsync` does. */
export function callAsync(f: PackedFunc | ((...args: any[]) => unknown), args?: readonly Convertible[], options?: CallOptions): Promise<any>;

/** A native object. Its class has a property for each field of the native type, and its methods. */
export class ObjectRef {
  constructor(fields?: { readonly [name: string]: Convertible });
  /** Unique name of the object's type, such as `ffi.Array`. */
  readonly typeKey: string;
  static readonly typeKey: string;
  /** Returns true if this object and `other` refer to the same native object. */
  sameAs(other: unknown): boolean;
  /** Releases the object immediately, without waiting for the garbage collector. Using it afterwards is an error. */
  dispose(): void;
  toString(): string;
}

export interface FieldOptions {
  /** Type of the field, such as `int`, `float`, `str`, `Any`, or the key of an object type. Default: `Any`. */
  type?: string;
  /** Documentation of the field. */
  doc?: string;
  /** Default value of the field. */
  default?: Convertible;
  /** Function that returns the default value of each new object. */
  defaultFactory?: (() => Convertible) | PackedFunc;
  /** True if the field cannot be assigned after construction. Default: false. */
  readOnly?: boolean;
  /** False if the constructor does not accept the field. Default: true. */
  init?: boolean;
  /** False to omit the field from the printed form. Default: true. */
  repr?: boolean;
  /** False to ignore the field in recursive comparison and hashing. Default: true. */
  compare?: boolean;
  /** Role in structural equality: ignored, or a definition of variables (docs/operations.md). Default: compared. */
  structural?: 'ignore' | 'def' | 'defPattern';
}
/** Fields of a type by name, each declared by the name of its type or by options. */
export type Fields = { readonly [name: string]: string | FieldOptions };
/** How structural equality compares objects of a type (docs/operations.md). */
export type Structural = 'tree' | 'var' | 'dag' | 'constTree' | 'unique';
export interface ObjectClass {
  new (fields?: { readonly [name: string]: Convertible }): any;
  readonly typeKey: string;
  readonly prototype: ObjectRef;
}

/** Registers the class of the type `key`. A class with a static property `fields` defines the type; otherwise it must exist. */
export function registerObject<C extends abstract new (...args: any[]) => ObjectRef>(key: string, cls: C): C;
export function registerObject(key: string): <C extends abstract new (...args: any[]) => ObjectRef>(cls: C) => C;
/** Defines the type `key` without a class statement, and returns its class. */
export function defineType(
  key: string,
  description?: {
    fields?: Fields;
    methods?: { [name: string]: (this: any, ...args: any[]) => unknown };
    parent?: ObjectClass | typeof ObjectRef;
    doc?: string;
    structural?: Structural;
  },
): ObjectClass;
/** Returns the class of the type `key`. An unknown type is a `TypeError`. */
export function classOf(key: string): ObjectClass;
/** Returns the value of a field. With `bigint`, integers are returned as bigints. */
export function getField(object: ObjectRef, name: string, options?: { bigint?: boolean }): any;
/** Returns the attribute `name` of the type `key`, such as `__ffi_repr__`, or undefined. */
export function typeAttribute(key: string, name: string, options?: { bigint?: boolean }): any;

/** An immutable sequence, `ffi.Array`. Elements are read by `at` or `get`, not by `array[index]`. */
export class ArrayRef<T = any> extends ObjectRef implements Iterable<T> {
  constructor(items?: Iterable<Convertible>);
  /** The same container, which returns every integer as a bigint. */
  readonly bigint: this;
  readonly length: number;
  readonly size: number;
  /** Returns an element, or undefined if the index is out of range. Negative indices count from the end. */
  at(index: number): T | undefined;
  /** Returns an element. An index that is negative or out of range is an error. */
  get(index: number): T;
  includes(value: Convertible): boolean;
  keys(): IterableIterator<number>;
  values(): IterableIterator<T>;
  entries(): IterableIterator<[number, T]>;
  forEach(f: (value: T, index: number, array: this) => void): void;
  map<U>(f: (value: T, index: number, array: this) => U): U[];
  toArray(): T[];
  toJSON(): T[];
  [Symbol.iterator](): IterableIterator<T>;
}

/** A mutable sequence, `ffi.List`. */
export class ListRef<T = any> extends ObjectRef implements Iterable<T> {
  constructor(items?: Iterable<Convertible>);
  readonly bigint: this;
  readonly length: number;
  readonly size: number;
  at(index: number): T | undefined;
  get(index: number): T;
  set(index: number, value: Convertible): this;
  push(...values: Convertible[]): number;
  pop(): T | undefined;
  clear(): void;
  includes(value: Convertible): boolean;
  keys(): IterableIterator<number>;
  values(): IterableIterator<T>;
  entries(): IterableIterator<[number, T]>;
  forEach(f: (value: T, index: number, list: this) => void): void;
  map<U>(f: (value: T, index: number, list: this) => U): U[];
  toArray(): T[];
  toJSON(): T[];
  [Symbol.iterator](): IterableIterator<T>;
}

type Entries = Iterable<readonly [Convertible, Convertible]> | { readonly [key: string]: Convertible };

/** An immutable mapping, `ffi.Map`. */
export class MapRef<K = any, V = any> extends ObjectRef implements Iterable<[K, V]> {
  constructor(entries?: Entries);
  readonly bigint: this;
  readonly size: number;
  get(key: Convertible): V | undefined;
  has(key: Convertible): boolean;
  keys(): IterableIterator<K>;
  values(): IterableIterator<V>;
  entries(): IterableIterator<[K, V]>;
  forEach(f: (value: V, key: K, map: this) => void): void;
  toMap(): Map<K, V>;
  toJSON(): { [key: string]: V };
  [Symbol.iterator](): IterableIterator<[K, V]>;
}

/** A mutable mapping, `ffi.Dict`. */
export class DictRef<K = any, V = any> extends ObjectRef implements Iterable<[K, V]> {
  constructor(entries?: Entries);
  readonly bigint: this;
  readonly size: number;
  get(key: Convertible): V | undefined;
  has(key: Convertible): boolean;
  set(key: Convertible, value: Convertible): this;
  delete(key: Convertible): boolean;
  clear(): void;
  keys(): IterableIterator<K>;
  values(): IterableIterator<V>;
  entries(): IterableIterator<[K, V]>;
  forEach(f: (value: V, key: K, dict: this) => void): void;
  toMap(): Map<K, V>;
  toJSON(): { [key: string]: V };
  [Symbol.iterator](): IterableIterator<[K, V]>;
}

/** The extents of a tensor, `ffi.Shape`. */
export class Shape extends ObjectRef implements Iterable<number> {
  constructor(extents?: Iterable<number | bigint>);
  readonly length: number;
  at(index: number): number | undefined;
  toArray(): number[];
  toJSON(): number[];
  [Symbol.iterator](): IterableIterator<number>;
}

/** A tensor. */
export class Tensor extends ObjectRef {
  private constructor();
  readonly shape: number[];
  readonly dtype: DType;
  readonly device: Device;
  /** Strides in elements, or null if the tensor is compact. */
  readonly strides: number[] | null;
  readonly isContiguous: boolean;
  readonly isReadOnly: boolean;
  /** Number of elements. */
  readonly size: number;
  /**
   * Typed array that shares the memory of the tensor, which must be contiguous and on the CPU. Elements of types without a typed array
   * appear as integers of their size (float16 as `Uint16Array`) or as bytes.
   */
  readonly data: TypedArray;
  /** Copies the elements to nested arrays, from any device. */
  toArray(): any;
  /** Returns a copy of the elements as bytes. */
  toBytes(): Bytes;
  /** Returns a tensor of another shape that shares the memory. One extent may be -1, and is then inferred. */
  reshape(shape: Iterable<number>): Tensor;
  /** Returns this tensor if it is contiguous, otherwise a contiguous copy. */
  contiguous(): Tensor;
  /** Returns this tensor if it is on the device, otherwise a copy on the device. */
  to(device: WebGPUName): WebGPUTensor;
  to(device: Device | string): Tensor;
}

/** A WebGPU device, or its name, such as `webgpu:0`. */
export type WebGPUName = 'webgpu' | `webgpu:${number}` | WebGPUDevice['device'];

/**
 * A tensor on a WebGPU device, which exists in pages: an object of the class `Tensor`. Copies to the CPU are promises. They contain what the
 * work that was queued before has written, and reject with the first error of that work.
 */
export type WebGPUTensor = Omit<Tensor, 'to' | 'toArray' | 'toBytes' | 'reshape' | 'contiguous' | 'data'> & ObjectRef & {
  to(device: WebGPUName): Promise<WebGPUTensor>;
  to(device: Device | string): Promise<Tensor>;
  toArray(): Promise<any>;
  toBytes(): Promise<Bytes>;
  reshape(shape: Iterable<number>): WebGPUTensor;
  contiguous(): WebGPUTensor;
};

export interface TensorOptions {
  /** Default: that of the content. */
  shape?: readonly number[];
  /** Default: that of a typed array, `float32` for numbers. */
  dtype?: DType | string;
  /** Default: the CPU. */
  device?: Device | string;
}

/**
 * Creates a tensor with a copy of a typed array or of nested arrays of numbers. Default `shape`: that of the content. Default `dtype`: that
 * of the typed array, `float32` for numbers. Options may take the place of `shape`.
 */
export function tensor(content: TypedArray | Uint8ClampedArray | number | readonly unknown[], options: TensorOptions & { device: WebGPUName }): WebGPUTensor;
export function tensor(content: TypedArray | Uint8ClampedArray | number | readonly unknown[], options: TensorOptions): Tensor;
export function tensor(content: TypedArray | Uint8ClampedArray, shape?: readonly number[], dtype?: DType | string): Tensor;
export function tensor(content: number | readonly unknown[], shape?: readonly number[], dtype?: DType | string): Tensor;
/** Creates a tensor filled with zeros. Defaults: `dtype` float32, `device` CPU. Options may take the place of `dtype`. */
export function empty(shape: Iterable<number>, options: { dtype?: DType | string; device: WebGPUName }): WebGPUTensor;
export function empty(shape: Iterable<number>, options: { dtype?: DType | string; device?: Device | string }): Tensor;
export function empty(shape: Iterable<number>, dtype: DType | string | undefined, device: WebGPUName): WebGPUTensor;
export function empty(shape: Iterable<number>, dtype?: DType | string, device?: Device | string): Tensor;

export interface WebGPUOptions {
  /** Which adapter the browser should prefer, on machines that have several. Default: the browser decides. */
  powerPreference?: 'low-power' | 'high-performance';
  /** True to request an adapter that works without a GPU. Default: false. */
  forceFallbackAdapter?: boolean;
  /** Features that the device must have, such as `shader-f16`. Default: none. */
  features?: readonly string[];
  /** Limits that the device must have, by their names in WebGPU, such as `maxBufferSize`. Default: those of WebGPU. */
  limits?: { readonly [name: string]: number };
}

/** A WebGPU device, as `requestWebGPU` returns it. */
export interface WebGPUDevice {
  /** The device, such as `webgpu:0`. Tensors on it have the type `WebGPUTensor`. */
  readonly device: Device & { readonly type: 15 };
  /** The `GPUDevice` of the browser. */
  readonly gpuDevice: any;
  /** Name of the adapter. */
  readonly adapter: string;
  /** Limits of the device, by their names in WebGPU. */
  readonly limits: any;
  /** Features of the device, such as `shader-f16`. */
  readonly features: string[];
  /** Reason why the device was lost, or null. */
  readonly lost: string | null;
  /**
   * Bytes of the buffers of tensors (`used`) and of freed buffers that are kept for new tensors (`kept`); numbers of buffers that were created
   * so far (`allocated`), of tensors for which a kept one served (`reused`), and of tensors that exist (`blocks`).
   */
  readonly memory: { used: number; kept: number; allocated: number; reused: number; blocks: number };
  /** Waits for all queued work. Rejects with the first error of it that was not reported before. */
  synchronize(): Promise<void>;
  /** Compiles the kernels of a module, so that errors of the compilation are found here, and the first launch is fast. */
  prepare(module: Module): Promise<void>;
  /** Destroys freed buffers that are kept. Returns the number of bytes. */
  releaseMemory(): number;
  /** Destroys the device and the content of its tensors. Using them afterwards is an error. */
  destroy(): void;
}

/**
 * Requests a WebGPU device of the browser. The first one is `webgpu:0`. Rejects with a `RuntimeError` that says what was requested if the
 * browser or the adapter does not provide it. The package for Node.js has no WebGPU devices.
 */
export function requestWebGPU(options?: WebGPUOptions): Promise<WebGPUDevice>;

/**
 * Creates a module of kernels in WGSL. `kernels` lists the parameters of each kernel, in the order of its arguments: `pointer` for a tensor, the
 * type of a number (`int32`, `uint32`, `float32`), and at the end the axes whose extents a launch passes, such as `blockIdx.x`.
 */
export function webgpuModule(source: string, kernels: { readonly [name: string]: readonly string[] }): Module;

/** A collection of functions by name, usually a loaded library. */
export class Module extends ObjectRef {
  private constructor();
  /** Kind of the module, such as `opencl`. */
  readonly kind: string;
  /** Modules that this module refers to, and that are exported together with it. */
  readonly imports: Module[];
  /** Returns a function. With `imports`, also searches the imported modules; with `allowMissing`, returns undefined if there is none. */
  getFunction(name: string, options?: { imports?: boolean; allowMissing?: false }): PackedFunc;
  getFunction(name: string, options: { imports?: boolean; allowMissing: boolean }): PackedFunc | undefined;
  functionNames(options?: { imports?: boolean }): string[];
  importModule(module: Module): void;
}

/** Loads a library file as a module. In a page, the argument is the content of a `.wasm` file: its bytes, or a `WebAssembly.Module`. */
export function loadModule(source: string | URL | ArrayBuffer | ArrayBufferView | object): Module;

/** Element type of a tensor, such as `float32`: the code of DLPack, the number of bits, and the number of vector lanes. */
export class DType {
  private constructor();
  static parse(text: string): DType;
  readonly code: number;
  readonly bits: number;
  readonly lanes: number;
  equals(other: unknown): boolean;
  toString(): string;
}
export function dtype(text: string): DType;

/** A device, such as `opencl:0`. `type` is the number that DLPack assigns to the device type, and `name` its name. */
export class Device {
  private constructor();
  readonly type: number;
  readonly index: number;
  readonly name: string;
  equals(other: unknown): boolean;
  toString(): string;
}
/** Returns the device of a type and an index, or of a name such as `opencl:0`. */
export function device(type: string | number, index?: number): Device;
export function cpu(index?: number): Device;

/** A native address, which JavaScript can pass to native code but not dereference. */
export class OpaquePointer {
  private constructor();
  readonly address: bigint;
  equals(other: unknown): boolean;
  toString(): string;
}
export function opaque(address: number | bigint): OpaquePointer;

/** A byte string, as native code returns it. It converts to bytes, unlike other `Uint8Array`s, which convert to tensors. */
export class Bytes extends Uint8Array {}
export function bytes(content: ArrayLike<number> | Iterable<number>): Bytes;

/** A number that is passed as a float, even if its value is an integer. Created by `float`. */
export class Float {
  constructor(value: number);
  valueOf(): number;
}
export function float(value: number): Float;

/**
 * Base class of errors whose kind is not the name of a built-in JavaScript error class. `instanceof AnyfnError` is true for every error
 * that comes from native code, including those of built-in classes.
 */
export class AnyfnError extends Error {
  /** Kind of the error, such as `ValueError`. */
  kind: string;
}
/** Classes of errors by kind, such as `errors.ValueError`. */
export const errors: { readonly [kind: string]: new (message?: string, options?: { cause?: unknown }) => AnyfnError };
/**
 * Registers a class for a kind of error: native errors of the kind are thrown as instances, and an instance that a callback throws reaches
 * native code as an error of the kind. Without a kind, the name of the class is used.
 */
export function registerError<C extends new (message?: string) => Error>(kind: string, cls: C): C;
export function registerError<C extends new (message?: string) => Error>(cls: C): C;

/** Returns true if two values are structurally equal. */
export function structuralEqual(a: Convertible, b: Convertible): boolean;
/** Returns the structural hash, which is the same for structurally equal values, in every process. */
export function structuralHash(value: Convertible): bigint;
/** Saves a value, with all objects that it refers to, as JSON text. */
export function saveJson(value: Convertible): string;
/** Loads a value from JSON text that `saveJson` has written. */
export function loadJson(text: string): any;
