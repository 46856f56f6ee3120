'use strict';
// Errors: classes by kind, and the conversion between exceptions and the texts of native errors.

const { TAG } = require('./values.js');

const KIND = Symbol.for('anyfn.kind');
const BUILT_IN = { EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };

/** Base class of the errors whose kind is not a built-in class. Every error that comes from native code is an instance. */
class AnyfnError extends Error {
  constructor(message, options) {
    super(message, options);
    define(this, 'kind', this.constructor.kind ?? this.constructor.name);
  }

  get name() {
    return this.kind ?? this.constructor.name;
  }

  set name(value) {
    define(this, 'name', value);
  }

  static [Symbol.hasInstance](value) {
    if (this !== AnyfnError) return Function.prototype[Symbol.hasInstance].call(this, value);
    return Function.prototype[Symbol.hasInstance].call(this, value) || (value instanceof Error && KIND in value);
  }
}

function define(error, name, value) {
  Object.defineProperty(error, name, { value, writable: true, configurable: true, enumerable: false });
}

const classes = new Map([['Error', AnyfnError]]);
// Kinds come from native code and may be any string.
const CLASSES_MAX = 1024;

/** Returns the class of the errors of a kind. */
function classOfKind(kind) {
  const known = classes.get(kind);
  if (known) return known;
  if (Object.hasOwn(BUILT_IN, kind)) return BUILT_IN[kind];
  const made = { [kind]: class extends AnyfnError {} }[kind];
  made.kind = kind;
  if (classes.size < CLASSES_MAX) classes.set(kind, made);
  return made;
}

/**
 * Registers the class of the errors of a kind: native errors of the kind become instances, and an instance that leaves a callback
 * becomes an error of the kind.
 */
function registerError(kind, cls) {
  if (typeof kind === 'function') return registerError(kind.name, kind);
  if (typeof cls !== 'function' || !(cls.prototype instanceof Error)) {
    throw new TypeError('registerError: expected a kind and a class that extends Error');
  }
  classes.set(kind, cls);
  Object.defineProperty(cls.prototype, 'kind', { value: kind, writable: true, configurable: true });
  return cls;
}

const NATIVE_FRAME = /^\s*File "(.*)", line (\d+), in (.*)$/;
const JS_FRAME = /^\s*at (?:async )?(?:(.*?) \()?(.*?):(\d+)(?::\d+)?\)?$/;
const LINES_MAX = 64;

/** Makes the exception of a native error. `slot` refers to the native error. */
function makeError(slot, [kind, message, backtrace], cause, above) {
  const cls = classOfKind(kind);
  const options = cause === undefined ? undefined : { cause };
  const make = (made) => {
    define(made, 'kind', kind);
    define(made, KIND, kind);
    define(made, TAG, slot);
    return made;
  };
  let error;
  try {
    error = make(new cls(message, options));
  } catch {
    // The constructor of a registered class throws, or its instances are frozen.
    error = make(new AnyfnError(message, options));
  }
  if (Error.captureStackTrace) Error.captureStackTrace(error, above);
  const frames = backtrace.split('\n').slice(0, LINES_MAX).map(shownFrame).filter(Boolean);
  const stack = String(error.stack);
  // V8 begins the stack with the name and the message, which may have several lines.
  const at = stack.indexOf('\n    at ');
  const rest = at < 0 ? '' : stack.slice(at);
  define(error, 'stack', `${kind}: ${message}${frames.map((frame) => `\n${frame}`).join('')}${rest}`);
  return error;
}

function shownFrame(line) {
  const parts = NATIVE_FRAME.exec(line);
  if (parts) return `    at ${parts[3]} (${parts[1]}:${parts[2]})`;
  return line.trim() && `    at ${line.trim()}`;
}

/** Describes a thrown value: `[kind, message, backtrace, cause]`. */
function describe(thrown) {
  if (!(thrown instanceof Error)) return ['Error', shownValue(thrown), '', undefined];
  const kind = typeof thrown.kind === 'string' ? thrown.kind : String(thrown.name || thrown.constructor?.name || 'Error');
  const lines = [];
  for (const line of String(thrown.stack ?? '').split('\n')) {
    const parts = JS_FRAME.exec(line);
    if (parts && lines.length < LINES_MAX) lines.push(`  File "${parts[2]}", line ${parts[3]}, in ${parts[1] ?? '<anonymous>'}\n`);
  }
  return [kind, String(thrown.message), lines.join(''), thrown.cause ?? undefined];
}

function shownValue(value) {
  try {
    return typeof value === 'object' && value !== null ? JSON.stringify(value) ?? 'an object' : String(value);
  } catch {
    return 'a value that cannot be shown';
  }
}

// A value with a function `then` is a promise to `await` and `Promise.resolve`, which a namespace is not.
const isKind = (name) => typeof name === 'string' && name !== 'then';

/** Classes of errors by kind, such as `errors.ValueError`. */
const errors = new Proxy(Object.create(null), {
  get: (_, name) => (isKind(name) ? classOfKind(name) : undefined),
  has: (_, name) => isKind(name),
});

module.exports = { AnyfnError, errors, registerError, classOfKind, makeError, describe };
