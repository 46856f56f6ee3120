'use strict';
// The linear memory of the WebAssembly module: views that survive its growth, the stack of arguments, and texts.

// Offsets of the ABI on 32-bit targets, which the module checks (`crates/web/src/values.rs`).
const ANY = 16;
const VALUE = 8;
const OBJECT = 24;
const TYPE_INDEX = 8;
const DL_TENSOR = 40;

// Length up to which texts are copied character by character, which takes less time than the encoder.
const SHORT = 64;

// Bytes of the stack on which the arguments of calls in progress lie.
const STACK = 1 << 18;

// A byte order mark is a character like any other, and malformed sequences are replaced.
const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
const encoder = new TextEncoder();

const SURROGATE = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/;

/** Throws if a string has a lone surrogate. */
function checkSurrogates(text) {
  const found = SURROGATE.exec(text);
  if (found) {
    throw new TypeError(
      `the string has a lone surrogate at index ${found.index}, which UTF-8 cannot represent; \`toWellFormed\` replaces it`,
    );
  }
}

class Memory {
  /** `alloc` and `free` are functions of the module. */
  constructor(memory, { alloc, free }) {
    this.memory = memory;
    this.alloc = alloc;
    this.free = free;
    this.refresh();
    this.base = this.reserve(STACK);
    this.end = this.base + STACK;
    /** First byte of the stack that is not in use. */
    this.top = this.base;
  }

  /** Makes the views again. They are empty after the memory has grown. */
  refresh() {
    const { buffer } = this.memory;
    this.u8 = new Uint8Array(buffer);
    this.i32 = new Int32Array(buffer);
    this.u32 = new Uint32Array(buffer);
    this.f64 = new Float64Array(buffer);
    this.i64 = new BigInt64Array(buffer);
    this.u64 = new BigUint64Array(buffer);
  }

  check() {
    if (this.u8.length === 0) this.refresh();
  }

  /** Allocates memory, or throws. */
  reserve(size) {
    // Arguments of the module are numbers of 32 bits.
    const address = size < 2 ** 32 ? this.alloc(size) >>> 0 : 0;
    if (address === 0) throw new RangeError(`cannot allocate ${size} bytes in the memory of the WebAssembly module`);
    this.check();
    return address;
  }

  /** Takes bytes of the stack. Their owner sets `top` back. */
  push(size) {
    const address = this.top;
    const top = address + ((size + 15) & ~15);
    if (top > this.end) throw new RangeError('too many arguments in calls that are in progress');
    this.top = top;
    return address;
  }

  /** Runs `use(address, size)` with a copy of bytes in memory. */
  withBytes(bytes, use) {
    const size = bytes.length;
    const mark = this.top;
    const onStack = mark + size <= this.end;
    const { buffer, byteOffset } = bytes;
    const isOwn = buffer === this.memory.buffer;
    const address = onStack ? this.push(size) : this.reserve(size);
    try {
      // Views of this memory are detached if it has grown.
      if (isOwn) this.u8.copyWithin(address, byteOffset, byteOffset + size);
      else this.u8.set(bytes, address);
      return use(address, size);
    } finally {
      if (onStack) this.top = mark;
      else this.free(address, size);
    }
  }

  /** Runs `use(address, size)` with the UTF-8 of a text in memory. Lone surrogates are replaced if `isLenient`, else an error. */
  withText(text, use, isLenient = false) {
    const most = text.length * 3;
    const mark = this.top;
    if (mark + most > this.end) {
      const bytes = encoder.encode(text);
      if (!isLenient && bytes.length !== text.length) checkSurrogates(text);
      return this.withBytes(bytes, use);
    }
    const address = this.push(most);
    try {
      if (text.length <= SHORT) {
        let index = 0;
        for (; index < text.length; index += 1) {
          const unit = text.charCodeAt(index);
          if (unit >= 0x80) break;
          this.u8[address + index] = unit;
        }
        if (index === text.length) return use(address, index);
      }
      const { written } = encoder.encodeInto(text, this.u8.subarray(address, address + most));
      if (!isLenient && written !== text.length) checkSurrogates(text);
      return use(address, written);
    } finally {
      this.top = mark;
    }
  }

  /** Returns a text. */
  text(address, size) {
    if (size < 24) {
      let text = '';
      for (let at = address; at < address + size; at += 1) {
        const byte = this.u8[at];
        if (byte >= 0x80) return decoder.decode(this.u8.subarray(address, address + size));
        text += String.fromCharCode(byte);
      }
      return text;
    }
    try {
      return decoder.decode(this.u8.subarray(address, address + size));
    } catch {
      throw new RangeError(`a string of ${size} bytes is too long for this JavaScript engine`);
    }
  }
}

/** Stores the description of a tensor of one dimension in main memory, whose shape lies behind it. */
function setTensor({ i32, u32, i64, u64 }, tensor, data, code, bits, length) {
  const word = tensor >>> 2;
  u32[word] = data;
  i32[word + 1] = 1; // CPU
  i32[word + 2] = 0;
  i32[word + 3] = 1; // ndim
  i32[word + 4] = code | (bits << 8) | (1 << 16);
  u32[word + 5] = tensor + DL_TENSOR; // shape
  u32[word + 6] = 0;
  u64[(tensor + 32) >>> 3] = 0n;
  i64[(tensor + DL_TENSOR) >>> 3] = BigInt(length);
}

module.exports = { Memory, setTensor, ANY, VALUE, OBJECT, TYPE_INDEX, DL_TENSOR };
