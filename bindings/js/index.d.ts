// Types of the package. `test/types.test.js` compares the names with those of the package, and checks the examples of the guides.

/** A value that converts to a native one. */
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

/** A typed array that shows the elements of a tensor. */
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
  /** Cancels the call: the promise is rejected with the reason of the signal. */
  signal?: AbortSignal;
  /** Returns integers as bigints. Default: false. */
  bigint?: boolean;
}

export interface Signature {
  name: string;
  doc: string;
  params: { name: string; type: string; default?: unknown }[];
  returns: string;
}

/** A native function with named arguments. */
export interface NamedFunc {
  (...args: Convertible[]): any;
  /** The function that returns integers as bigints. */
  readonly bigint: (...args: Convertible[]) => any;
  callAsync(args?: readonly Convertible[], options?: CallOptions): Promise<any>;
}

/** A native function. Instances are functions. */
export interface PackedFunc {
  (...args: Convertible[]): any;
  /** The function that returns integers as bigints. */
  readonly bigint: PackedFunc;
  /** The signature that the function reports, or null. */
  readonly signature: Signature | null;
  /** Returns a function that passes named arguments along with its positional ones. */
  with(named: { readonly [name: string]: Convertible }): NamedFunc;
  /** Calls the function on another thread. */
  callAsync(args?: readonly Convertible[], options?: CallOptions): Promise<any>;
  /** Releases the function. Calling it afterwards is an error. */
  dispose(): void;
}
export const PackedFunc: { prototype: PackedFunc; [Symbol.hasInstance](value: unknown): value is PackedFunc };

/** Returns a global function. A missing one is an error, or undefined with `allowMissing`. */
export function getGlobalFunc(name: string, options?: { allowMissing?: false }): PackedFunc;
export function getGlobalFunc(name: string, options: { allowMissing: boolean }): PackedFunc | undefined;

export interface RegisterOptions {
  /** Replaces a function of the same name. Default: false, which makes it an error. */
  override?: boolean;
  /** Passes integers to the function as bigints; the numbers that it returns are floats. Default: false. */
  bigint?: boolean;
}

/** Registers a global function, and returns it. */
export function registerFunc<F extends (...args: any[]) => unknown>(name: string, f: F, options?: RegisterOptions): F;
export function registerFunc<F extends (...args: any[]) => unknown>(f: F): F;
export function registerFunc(name: string): <F extends (...args: any[]) => unknown>(f: F) => F;

/** Removes a global function. Returns true if it existed. */
export function removeGlobalFunc(name: string): boolean;
/** Returns the names of all global functions. */
export function listGlobalFuncNames(): string[];

/** Converts a function to a PackedFunc, an array to an ArrayRef, a Map or plain object to a MapRef, a typed array to a Tensor. */
export function convert(f: (...args: any[]) => unknown, options?: { bigint?: boolean }): PackedFunc;
export function convert(items: readonly Convertible[]): ArrayRef;
export function convert(entries: ReadonlyMap<Convertible, Convertible>): MapRef;
export function convert(array: TypedArray): Tensor;
export function convert(value: Convertible): any;

/** Calls a function on another thread. */
export function callAsync(f: PackedFunc | ((...args: any[]) => unknown), args?: readonly Convertible[], options?: CallOptions): Promise<any>;

/** A native object. Its class has accessors for the fields and methods of the type. */
export class ObjectRef {
  constructor(fields?: { readonly [name: string]: Convertible });
  /** Key of the object's type. */
  readonly typeKey: string;
  static readonly typeKey: string;
  /** Returns true if this and another object are the same native object. */
  sameAs(other: unknown): boolean;
  /** Releases the object. Using it afterwards is an error. */
  dispose(): void;
  toString(): string;
}

export interface FieldOptions {
  /** Type of the field, such as `int`, `float`, `str`, `Any`, or the key of an object type. Default: `Any`. */
  type?: string;
  doc?: string;
  default?: Convertible;
  defaultFactory?: (() => Convertible) | PackedFunc;
  /** Makes the field read-only after construction. Default: false. */
  readOnly?: boolean;
  init?: boolean;
  repr?: boolean;
  compare?: boolean;
  structural?: 'ignore' | 'def' | 'defPattern';
}
export type Fields = { readonly [name: string]: string | FieldOptions };
export type Structural = 'tree' | 'var' | 'dag' | 'constTree' | 'unique';
export interface ObjectClass {
  new (fields?: { readonly [name: string]: Convertible }): any;
  readonly typeKey: string;
  readonly prototype: ObjectRef;
}

/** Registers a class for a type. A class with a static property `fields` defines the type. */
export function registerObject<C extends abstract new (...args: any[]) => ObjectRef>(key: string, cls: C): C;
export function registerObject(key: string): <C extends abstract new (...args: any[]) => ObjectRef>(cls: C) => C;
/** Defines a type, and returns its class. */
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
/** Returns the class of a type. */
export function classOf(key: string): ObjectClass;
/** Reads a field by its name. With `bigint`, integers are bigints. */
export function getField(object: ObjectRef, name: string, options?: { bigint?: boolean }): any;
/** Returns a value that a type has registered under a name, or undefined. */
export function typeAttribute(key: string, name: string, options?: { bigint?: boolean }): any;

/** An immutable sequence, `ffi.Array`. */
export class ArrayRef<T = any> extends ObjectRef implements Iterable<T> {
  constructor(items?: Iterable<Convertible>);
  /** The same container, which returns integers as bigints. */
  readonly bigint: this;
  readonly length: number;
  readonly size: number;
  at(index: number): T | undefined;
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
  /** The memory of the tensor as a typed array, without a copy. */
  readonly data: TypedArray;
  /** Returns the elements as nested arrays. */
  toArray(): any;
  /** Returns a copy of the content. */
  toBytes(): Bytes;
  reshape(shape: Iterable<number>): Tensor;
  contiguous(): Tensor;
  to(device: Device): Tensor;
}

/** Makes a tensor with a copy of the content of a typed array, or of nested arrays of numbers. */
export function tensor(content: TypedArray | Uint8ClampedArray, shape?: readonly number[], dtype?: DType | string): Tensor;
export function tensor(content: number | readonly unknown[], shape?: readonly number[], dtype?: DType | string): Tensor;
/** Makes a tensor of zeros. Default: `float32`, on the CPU. */
export function empty(shape: Iterable<number>, dtype?: DType | string, device?: Device): Tensor;

/** A module, which is usually a loaded library. */
export class Module extends ObjectRef {
  private constructor();
  readonly kind: string;
  readonly imports: Module[];
  getFunction(name: string, options?: { imports?: boolean; allowMissing?: false }): PackedFunc;
  getFunction(name: string, options: { imports?: boolean; allowMissing: boolean }): PackedFunc | undefined;
  functionNames(options?: { imports?: boolean }): string[];
  importModule(module: Module): void;
}

/** Loads a library. */
export function loadModule(path: string | URL): Module;

/** The type of an element of a tensor. */
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

/** A device: its type and its index. */
export class Device {
  private constructor();
  readonly type: number;
  readonly index: number;
  readonly name: string;
  equals(other: unknown): boolean;
  toString(): string;
}
export function device(type: string | number, index?: number): Device;
export function cpu(index?: number): Device;

/** An address that native code passes on. */
export class OpaquePointer {
  private constructor();
  readonly address: bigint;
  equals(other: unknown): boolean;
  toString(): string;
}
export function opaque(address: number | bigint): OpaquePointer;

/** A byte string. Other typed arrays are tensors. */
export class Bytes extends Uint8Array {}
export function bytes(content: ArrayLike<number> | Iterable<number>): Bytes;

/** A number that is passed as a float even if it is an integer. */
export class Float {
  constructor(value: number);
  valueOf(): number;
}
export function float(value: number): Float;

/** Base class of the errors whose kind is not a built-in class. Every error that comes from native code is an instance. */
export class AnyfnError extends Error {
  /** Kind of the error, such as `ValueError`. */
  kind: string;
}
/** Classes of errors by kind, such as `errors.ValueError`. */
export const errors: { readonly [kind: string]: new (message?: string, options?: { cause?: unknown }) => AnyfnError };
/** Registers the class of the errors of a kind, in both directions. */
export function registerError<C extends new (message?: string) => Error>(kind: string, cls: C): C;
export function registerError<C extends new (message?: string) => Error>(cls: C): C;

/** Returns true if two values are structurally equal. */
export function structuralEqual(a: Convertible, b: Convertible): boolean;
/** Returns a hash that structurally equal values share in every process. */
export function structuralHash(value: Convertible): bigint;
/** Returns an object and all objects that it refers to as JSON. */
export function saveJson(value: Convertible): string;
/** Returns the object that `saveJson` has written. */
export function loadJson(text: string): any;
