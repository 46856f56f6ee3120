'use strict';
// Native objects: a class for each type, with its fields and methods.

const { TAG, INSPECT } = require('./values.js');

function createObjects(native) {
  const call = (name, ...args) => native.getGlobal(name)(...args);
  const classes = new Map();

  /** A native object. Its class has accessors for the fields and methods of the type. */
  class ObjectRef {
    constructor(fields = {}) {
      const index = indexOf(new.target);
      return construct(index, fields);
    }

    /** Key of the object's type. */
    get typeKey() {
      return this.constructor.typeKey ?? 'ffi.Object';
    }

    /** Returns true if this and another object are the same native object. */
    sameAs(other) {
      return other?.[TAG] !== undefined && native.address(this[TAG]) === native.address(other[TAG]);
    }

    /** Releases the object. Using it afterwards is an error. */
    dispose() {
      native.release(this[TAG]);
    }

    toString() {
      return call('ffi.ReprPrint', this);
    }

    [INSPECT]() {
      return native.isAlive(this[TAG]) ? this.toString() : `[disposed ${this.typeKey}]`;
    }
  }
  if (Symbol.dispose) ObjectRef.prototype[Symbol.dispose] = ObjectRef.prototype.dispose;
  ObjectRef.typeKey = 'ffi.Object';
  classes.set(64, ObjectRef);

  /** Returns the type index that a class represents. */
  function indexOf(cls) {
    const index = Object.hasOwn(cls, 'typeIndex') ? cls.typeIndex : undefined;
    if (index === undefined) throw new TypeError(`${cls.name} represents no native type; register it with registerObject`);
    return index;
  }

  function construct(index, fields) {
    const key = native.typeKey(index);
    if (typeof fields !== 'object' || fields === null || Array.isArray(fields) || fields[TAG] !== undefined) {
      throw new TypeError(`${key}: expected an object with the fields, as in new ${key.split('.').pop()}({name: value})`);
    }
    return call('ffi.MakeObjectFromPackedArgs', key, ...Object.entries(fields).flat());
  }

  const hidden = (value) => ({ value, writable: true, configurable: true, enumerable: false });

  /** Adds the fields and methods of a type to its class. */
  function addMembers(cls, index, [, , , fields, methods]) {
    fields.forEach(([name, , writable], position) => {
      Object.defineProperty(cls.prototype, name, {
        configurable: true,
        enumerable: true,
        get() {
          return native.getField(this[TAG], index, position, false);
        },
        set: writable
          ? function (value) {
              native.setField(this[TAG], index, position, value);
            }
          : function () {
              throw new TypeError(`the field '${name}' of ${native.typeKey(index)} is read-only`);
            },
      });
    });
    for (const [name, , isStatic, method] of methods) {
      if (method === undefined || name === 'constructor') continue;
      const target = isStatic ? cls : cls.prototype;
      if (Object.hasOwn(target, name)) continue;
      const f = isStatic
        ? (...args) => method(...args)
        : function (...args) {
            return method(this, ...args);
          };
      Object.defineProperty(target, name, hidden(f));
    }
  }

  function setKey(cls, index, key) {
    Object.defineProperty(cls, 'typeKey', hidden(key));
    Object.defineProperty(cls, 'typeIndex', hidden(index));
  }

  /** Returns the class of a type, by its index. Classes are made when they are needed. */
  function classOfIndex(index) {
    const known = classes.get(index);
    if (known) return known;
    const info = native.typeInfo(index);
    if (!info) throw new TypeError(`unknown type index ${index}`);
    const parent = info[1] < 0 ? ObjectRef : classOfIndex(info[1]);
    const name = info[0].split('.').pop();
    const cls = { [name]: class extends parent {} }[name];
    setKey(cls, index, info[0]);
    classes.set(index, cls);
    addMembers(cls, index, info);
    return cls;
  }

  /** Returns the class of a type, by its key. */
  function classOf(key) {
    const index = native.typeIndex(key);
    if (index < 0) throw new TypeError(`unknown type '${key}'`);
    return classOfIndex(index);
  }

  /** Registers the class of a built-in type. */
  function setClass(index, key, cls) {
    setKey(cls, index, key);
    classes.set(index, cls);
  }

  /** Makes the JavaScript object of a native object. */
  function wrapObject(slot, index) {
    const object = Object.create((classes.get(index) ?? classOfIndex(index)).prototype);
    object[TAG] = slot;
    return object;
  }

  function positionOf(object, name) {
    for (let index = native.typeIndex(object.typeKey); index >= 0; ) {
      const info = native.typeInfo(index);
      const position = info[3].findIndex(([field]) => field === name);
      if (position >= 0) return [index, position];
      index = info[1];
    }
    throw new TypeError(`an object of type ${object.typeKey} has no field '${name}'`);
  }

  /** Reads a field by its name. With `bigint`, integers are bigints. */
  function getField(object, name, { bigint = false } = {}) {
    const [index, position] = positionOf(object, name);
    return native.getField(object[TAG], index, position, bigint);
  }

  const STRUCTURAL = { tree: 1, var: 2, dag: 3, constTree: 4, unique: 5 };
  const FIELD_STRUCTURAL = { ignore: 8, defPattern: 16, def: 4096 };
  const WRITABLE = 1;

  function describeField(name, given) {
    const options = typeof given === 'string' ? { type: given } : given;
    if (typeof options !== 'object' || options === null) {
      throw new TypeError(`field '${name}': expected the name of a type, or an object with options`);
    }
    let flags = options.readOnly ? 0 : WRITABLE;
    if (options.structural !== undefined) flags |= oneOf('structural', options.structural, FIELD_STRUCTURAL);
    if (options.init === false) flags |= 512;
    if (options.repr === false) flags |= 64;
    if (options.compare === false) flags |= 128 | 256;
    const told = { name, type: options.type ?? 'Any', flags, doc: options.doc ?? '' };
    if ('default' in options) told.default = options.default;
    if ('defaultFactory' in options) told.default_factory = options.defaultFactory;
    return told;
  }

  function oneOf(name, value, known) {
    if (!Object.hasOwn(known, value)) {
      throw new TypeError(`expected ${name} to be one of ${Object.keys(known).join(', ')}, got '${value}'`);
    }
    return known[value];
  }

  /**
   * Registers a class for a type. A class with a static property `fields` defines the type, with these fields and the methods of
   * the class; otherwise the type must exist.
   */
  function registerObject(key, cls) {
    if (cls === undefined) return (given) => registerObject(key, given);
    if (typeof cls !== 'function' || !(cls === ObjectRef || cls.prototype instanceof ObjectRef)) {
      throw new TypeError('registerObject: expected a class that extends ObjectRef');
    }
    const fields = Object.hasOwn(cls, 'fields') ? cls.fields : undefined;
    if (fields === undefined) {
      const index = native.typeIndex(key);
      if (index < 0) throw new TypeError(`unknown type '${key}': define it with a static property \`fields\``);
      register(cls, index, key);
      return cls;
    }
    const parent = Object.getPrototypeOf(cls);
    const options = { doc: cls.doc ?? '' };
    if (cls.structural !== undefined) options.structural = oneOf('structural', cls.structural, STRUCTURAL);
    const told = Object.entries(fields).map(([name, given]) => describeField(name, given));
    for (const { name } of told) {
      if (name in ObjectRef.prototype) throw new TypeError(`field '${name}' of ${key}: the name is reserved`);
    }
    const index = call('ffi.TypeDefine', key, parent === ObjectRef ? null : indexOf(parent), told, options);
    register(cls, index, key);
    addMethods(cls, index);
    return cls;
  }

  function register(cls, index, key) {
    setKey(cls, index, key);
    classes.set(index, cls);
    addMembers(cls, index, native.typeInfo(index));
  }

  /** Registers the methods of a class as methods of its type. */
  function addMethods(cls, index) {
    const fields = new Set(native.typeInfo(index)[3].map(([name]) => name));
    for (const [target, isStatic] of [[cls.prototype, false], [cls, true]]) {
      for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(target))) {
        const own = isStatic ? ['prototype', 'fields'] : ['constructor'];
        if (typeof value !== 'function' || own.includes(name) || name.startsWith('_') || fields.has(name)) continue;
        const f = isStatic ? (...args) => value.apply(cls, args) : (self, ...args) => value.apply(self, args);
        native.addMethod(index, name, f, '', isStatic);
      }
    }
  }

  /** Defines a type by a description instead of a class, and returns its class. */
  function defineType(key, { fields = {}, methods = {}, parent = ObjectRef, doc, structural } = {}) {
    const name = key.split('.').pop();
    const cls = { [name]: class extends parent {} }[name];
    Object.defineProperty(cls, 'fields', hidden(fields));
    if (doc !== undefined) Object.defineProperty(cls, 'doc', hidden(doc));
    if (structural !== undefined) Object.defineProperty(cls, 'structural', hidden(structural));
    for (const [method, f] of Object.entries(methods)) Object.defineProperty(cls.prototype, method, hidden(f));
    return registerObject(key, cls);
  }

  return { ObjectRef, wrapObject, setClass, classOf, getField, registerObject, defineType };
}

module.exports = { createObjects };
