'use strict';
// WebGPU devices: their memory, and the queue of their work. `kernels.js` launches kernels on them.
//
// Nothing blocks. Work is recorded in an encoder, which is submitted when the current task of the event loop ends, when something must
// happen before further work, or when much was recorded. Errors of the device arrive later, by error scopes: the first one is kept until a
// copy to main memory or `synchronize` reports it.

const { DL_TENSOR, OBJECT } = require('./memory.js');
const { classOfKind } = require('../lib/errors.js');
const { Device } = require('../lib/values.js');
const { createKernels } = require('./kernels.js');

// Sizes in bytes: of the smallest block, and of the freed blocks that a device keeps at most.
const LEAST = 256;
const KEPT_MAX = 64 * 2 ** 20;
// Number of freed blocks that a device keeps at most, and of those that are mapped to read them.
const BLOCKS_MAX = 256;
const STAGING_MAX = 8;
// Number of launches after which the work is submitted, and bytes of their numbers.
const LAUNCHES_MAX = 256;
const NUMBERS = 1 << 16;

// Flags of WebGPU, which has the same numbers in all browsers.
const [MAP_READ, COPY_SRC, COPY_DST, UNIFORM, STORAGE] = [0x1, 0x4, 0x8, 0x40, 0x80];
const READ = 0x1;

/** Attributes of devices that `runtime.GetDeviceAttr` tells, by number. */
const ATTRIBUTES = {
  1: ({ limits }) => limits.maxComputeInvocationsPerWorkgroup,
  3: ({ limits }) => limits.maxComputeWorkgroupStorageSize,
  5: ({ about }) => about,
  8: ({ limits: { maxComputeWorkgroupSizeX: x, maxComputeWorkgroupSizeY: y, maxComputeWorkgroupSizeZ: z } }) => `[${x}, ${y}, ${z}]`,
};

const errorOf = (kind, message) => new (classOfKind(kind))(message);

/** Returns the size of the block for an allocation: at most a quarter more, so that allocations of similar sizes share blocks. */
function sizeClass(bytes, most) {
  if (bytes <= LEAST) return LEAST;
  const quarter = 2 ** (Math.floor(Math.log2(bytes - 1)) - 2);
  const size = Math.ceil(bytes / quarter) * quarter;
  return size <= most ? size : Math.ceil(bytes / 4) * 4;
}

/** Returns the text of an adapter's description. */
function describe({ vendor = '', architecture = '', device = '', description = '' } = {}) {
  return [vendor, architecture, description || device].filter(Boolean).join(' ') || 'WebGPU adapter';
}

/** A device: memory, queue, and pending errors. Users see it as `WebGPUDevice`. */
class State {
  constructor(index, gpu, info) {
    this.name = `webgpu:${index}`;
    this.index = index;
    this.gpu = gpu;
    this.about = describe(info);
    this.limits = gpu.limits;
    /** Why the device was lost. */
    this.lost = undefined;
    /** Number of a block -> the block: its buffer, its size, and the bytes that were asked for. */
    this.blocks = new Map();
    /** Size of a block -> freed buffers. */
    this.kept = new Map();
    this.keptCount = 0;
    this.staging = [];
    /** Buffers that the browser could not make. They are not kept for other tensors. */
    this.invalid = new WeakSet();
    this.now = { used: 0, kept: 0, allocated: 0, reused: 0, submitted: 0 };
    /** Checks whose results have not arrived yet, and the error of the earliest one among those that have. */
    this.checks = new Set();
    this.failure = undefined;
    /** Number of checks so far. */
    this.steps = 0;
    this.encoder = undefined;
    this.pass = undefined;
    this.launches = 0;
    this.isScheduled = false;
    this.numbers = new Uint8Array(NUMBERS);
    this.numbersUsed = 0;
    this.uniform = undefined;
    this.pipelines = new WeakMap();
    gpu.lost.then(({ reason, message }) => {
      const what = reason === 'destroyed' ? 'it was destroyed' : reason || 'the browser gave no reason';
      this.lose(message ? `${what}: ${message}` : what);
    });
    gpu.addEventListener?.('uncapturederror', (event) => {
      event.preventDefault();
      this.fail(errorOf('RuntimeError', `${this.name}: ${event.error.message}`));
    });
  }

  /** Throws if the device was lost. */
  check() {
    if (this.lost !== undefined) throw this.lostError();
  }

  lostError() {
    return errorOf(
      'RuntimeError',
      `device ${this.name} was lost (${this.lost}), with the content of its tensors; \`await anyfn.requestWebGPU()\` gives another device`,
    );
  }

  lose(reason) {
    if (this.lost !== undefined) return;
    this.lost = reason;
    this.blocks.clear();
    this.kept.clear();
    this.keptCount = 0;
    this.staging = [];
    this.encoder = this.pass = undefined;
    Object.assign(this.now, { used: 0, kept: 0 });
  }

  /** Keeps the error of the earliest step, which explains those of later ones. `step` is its number. */
  fail(error, step = this.steps) {
    if (this.failure === undefined || step < this.failure.step) this.failure = { error, step };
  }

  /** Runs `make` within error scopes. `explain(error, filter)` returns the error, or the promise of it, for an error of the device. */
  scoped(filters, make, explain) {
    for (const filter of filters) this.gpu.pushErrorScope(filter);
    this.steps += 1;
    const step = this.steps;
    try {
      return make();
    } finally {
      for (const filter of [...filters].reverse()) {
        const check = this.gpu
          .popErrorScope()
          .then(async (error) => error && this.lost === undefined && this.fail(await explain(error, filter), step))
          // Scopes of a device that was lost end with an error of their own.
          .catch(() => undefined)
          .finally(() => this.checks.delete(check));
        this.checks.add(check);
      }
    }
  }

  /** Waits for the results of the checks so far, and throws the first error. A page that launches kernels all the time always has others. */
  async settle() {
    await Promise.all(this.checks);
    const { failure } = this;
    this.failure = undefined;
    if (failure !== undefined) throw failure.error;
    this.check();
  }

  // Memory

  createBuffer(size, usage, label) {
    let buffer;
    const explain = ({ message }, filter) => {
      this.discard(buffer, size);
      return filter === 'out-of-memory'
        ? errorOf('MemoryError', `${this.name} has not enough memory for ${size} bytes (${label}): ${message}`)
        : errorOf('RuntimeError', `${this.name} cannot create a buffer of ${size} bytes (${label}): ${message}`);
    };
    buffer = this.scoped(['validation', 'out-of-memory'], () => this.gpu.createBuffer({ size, usage, label }), explain);
    return buffer;
  }

  /** Makes sure that a buffer which the browser could not make is not used again. */
  discard(buffer, size) {
    this.invalid.add(buffer);
    if (buffer === this.uniform) this.uniform = undefined;
    const same = this.kept.get(size) ?? [];
    const at = same.indexOf(buffer);
    if (at < 0) return;
    same.splice(at, 1);
    this.now.kept -= size;
    this.keptCount -= 1;
  }

  /** Returns the buffer of a new block. */
  allocate(bytes, isZeroed) {
    this.check();
    const most = this.limits.maxBufferSize;
    if (bytes > most) {
      throw errorOf(
        'MemoryError',
        `${bytes} bytes are more than the limit of ${this.name}, maxBufferSize ${most}; \`requestWebGPU({ limits: { maxBufferSize: .. } })\` ` +
          'asks for more',
      );
    }
    const size = sizeClass(bytes, most);
    const buffer = this.kept.get(size)?.pop();
    this.now.used += size;
    if (buffer === undefined) {
      this.now.allocated += 1;
      // New buffers contain zeros.
      return { buffer: this.createBuffer(size, STORAGE | COPY_SRC | COPY_DST, `a tensor of ${bytes} bytes`), size, bytes };
    }
    this.now.reused += 1;
    this.now.kept -= size;
    this.keptCount -= 1;
    if (isZeroed) this.commands().clearBuffer(buffer);
    return { buffer, size, bytes };
  }

  free(number) {
    const block = this.blocks.get(number);
    if (block === undefined) return;
    this.blocks.delete(number);
    const { buffer, size } = block;
    this.now.used -= size;
    if (size > KEPT_MAX || this.keptCount >= BLOCKS_MAX || this.invalid.has(buffer)) {
      this.submit();
      buffer.destroy();
      return;
    }
    const same = this.kept.get(size);
    if (same) same.push(buffer);
    else this.kept.set(size, [buffer]);
    this.now.kept += size;
    this.keptCount += 1;
    if (this.now.kept > KEPT_MAX) this.releaseMemory(KEPT_MAX / 2);
  }

  /** Destroys kept buffers until at most `limit` bytes are kept, those of the largest size first. Returns the number of bytes. */
  releaseMemory(limit = 0) {
    const before = this.now.kept;
    if (before <= limit) return 0;
    // A buffer that recorded work uses must not be destroyed before the work is submitted.
    this.submit();
    for (const size of [...this.kept.keys()].sort((a, b) => b - a)) {
      const buffers = this.kept.get(size);
      while (buffers.length && this.now.kept > limit) {
        buffers.pop().destroy();
        this.now.kept -= size;
        this.keptCount -= 1;
      }
      if (buffers.length === 0) this.kept.delete(size);
    }
    return before - this.now.kept;
  }

  /** Returns the block of a tensor, with at least `bytes` bytes from `offset` on. */
  block(number, offset, bytes) {
    this.check();
    const block = this.blocks.get(number);
    if (block === undefined || offset + bytes > block.size) {
      throw errorOf('ValueError', `${bytes} bytes at offset ${offset} are not in the memory of ${this.name}`);
    }
    return block;
  }

  /** Returns the number of bytes that a copy to a block moves. WebGPU moves multiples of four. */
  copied(block, offset, bytes) {
    const isEnd = offset + bytes >= block.bytes;
    if (offset % 4 || (bytes % 4 && !isEnd)) {
      throw errorOf(
        'ValueError',
        `WebGPU copies multiples of 4 bytes: ${bytes} bytes at offset ${offset} of a tensor cannot be written alone; write the whole tensor`,
      );
    }
    return Math.ceil(bytes / 4) * 4;
  }

  write(number, offset, memory, address, bytes) {
    const block = this.block(number, offset, bytes);
    const size = this.copied(block, offset, bytes);
    // The queue writes at once, so that the recorded work must come before.
    this.submit();
    const { buffer, byteLength } = memory.u8;
    if (address + size <= byteLength) this.gpu.queue.writeBuffer(block.buffer, offset, buffer, address, size);
    else {
      const padded = new Uint8Array(size);
      padded.set(memory.u8.subarray(address, address + bytes));
      this.gpu.queue.writeBuffer(block.buffer, offset, padded);
    }
  }

  copy(from, fromOffset, to, toOffset, bytes) {
    const [source, target] = [this.block(from, fromOffset, bytes), this.block(to, toOffset, bytes)];
    const size = this.copied(target, toOffset, bytes);
    if (fromOffset % 4) throw errorOf('ValueError', `WebGPU copies from multiples of 4 bytes, not from offset ${fromOffset}; await x.to('cpu')`);
    if (source !== target) {
      this.commands().copyBufferToBuffer(source.buffer, fromOffset, target.buffer, toOffset, size);
      return;
    }
    // A buffer cannot be copied to itself.
    const between = this.allocate(size, false);
    this.commands().copyBufferToBuffer(source.buffer, fromOffset, between.buffer, 0, size);
    this.commands().copyBufferToBuffer(between.buffer, 0, target.buffer, toOffset, size);
    this.give(between);
  }

  /** Frees a block without a number. */
  give(block) {
    this.blocks.set(-1, block);
    this.free(-1);
  }

  /** Copies bytes to main memory, and returns the promise of `use(bytes)`. The copy comes after all work that was queued before. */
  async read(number, offset, bytes, use) {
    const block = this.block(number, offset, bytes);
    const skipped = offset % 4;
    const size = Math.ceil((bytes + skipped) / 4) * 4;
    const staging = this.stagingFor(size);
    this.commands().copyBufferToBuffer(block.buffer, offset - skipped, staging, 0, size);
    this.submit();
    let isMapped = false;
    try {
      await staging.mapAsync(READ, 0, size);
      isMapped = true;
      await this.settle();
      return use(new Uint8Array(staging.getMappedRange(0, size)).subarray(skipped, skipped + bytes));
    } catch (error) {
      if (this.lost !== undefined) throw this.lostError();
      // The error of an earlier step says more than that of the mapping.
      await this.settle();
      throw error instanceof Error && isMapped ? error : errorOf('RuntimeError', `${this.name} cannot copy ${bytes} bytes: ${error.message}`);
    } finally {
      if (isMapped && this.lost === undefined) staging.unmap();
      if (isMapped && this.lost === undefined && this.staging.length < STAGING_MAX && staging.size <= KEPT_MAX / 8) this.staging.push(staging);
      else staging.destroy();
    }
  }

  stagingFor(size) {
    const most = this.limits.maxBufferSize;
    const wanted = sizeClass(size, most);
    const at = this.staging.findIndex((one) => one.size === wanted);
    if (at >= 0) return this.staging.splice(at, 1)[0];
    return this.createBuffer(wanted, MAP_READ | COPY_DST, 'a copy to main memory');
  }

  // Work

  /** Returns the encoder for copies. */
  commands() {
    this.pass?.end();
    this.pass = undefined;
    return this.recorder();
  }

  recorder() {
    this.check();
    this.encoder ??= this.gpu.createCommandEncoder({ label: 'anyfn' });
    if (!this.isScheduled) {
      this.isScheduled = true;
      queueMicrotask(() => {
        this.isScheduled = false;
        if (this.lost === undefined) this.submit();
      });
    }
    return this.encoder;
  }

  /** Records a launch. `numbers` are bytes for the uniform block, to which the last entry of the bind group refers. */
  launch({ pipeline, layout, name, isProven }, entries, numbers, blocks) {
    // A pipeline that is invalid makes all work invalid that is submitted with it. So it is submitted alone until the browser has checked it.
    if (!isProven) this.submit();
    const step = this.limits.minUniformBufferOffsetAlignment;
    const size = Math.ceil(numbers.length / step) * step;
    if (this.launches >= LAUNCHES_MAX || this.numbersUsed + size > NUMBERS) this.submit();
    if (size) {
      this.uniform ??= this.createBuffer(NUMBERS, UNIFORM | COPY_DST, 'the numbers of launches');
      this.numbers.set(numbers, this.numbersUsed);
      const resource = { buffer: this.uniform, offset: this.numbersUsed, size: numbers.length };
      entries.push({ binding: entries.length, resource });
      this.numbersUsed += size;
    }
    const explain = ({ message }) => errorOf('RuntimeError', `kernel \`${name}\` cannot be launched on ${this.name}: ${message}`);
    this.scoped(['validation'], () => {
      const bindGroup = this.gpu.createBindGroup({ label: name, layout, entries });
      this.recorder();
      this.pass ??= this.encoder.beginComputePass({ label: 'anyfn' });
      this.pass.setPipeline(pipeline);
      this.pass.setBindGroup(0, bindGroup);
      this.pass.dispatchWorkgroups(...blocks);
    }, explain);
    this.launches += 1;
    if (!isProven) this.submit();
  }

  /** Submits the recorded work. */
  submit() {
    if (this.encoder === undefined || this.lost !== undefined) return;
    this.pass?.end();
    const { encoder } = this;
    this.encoder = this.pass = undefined;
    this.launches = 0;
    this.now.submitted += 1;
    const explain = ({ message }, filter) =>
      errorOf(filter === 'out-of-memory' ? 'MemoryError' : 'RuntimeError', `${this.name} cannot execute the work that was submitted last, and has done nothing of it: ${message}`);
    this.scoped(['validation', 'out-of-memory'], () => {
      if (this.numbersUsed) this.gpu.queue.writeBuffer(this.uniform, 0, this.numbers, 0, this.numbersUsed);
      this.numbersUsed = 0;
      this.gpu.queue.submit([encoder.finish()]);
    }, explain);
  }

  async synchronize() {
    this.check();
    this.submit();
    await this.gpu.queue.onSubmittedWorkDone();
    await this.settle();
  }
}

/**
 * Returns the functions of the package for WebGPU. `host` gives access to the runtime: `memory()`, `ask(name, ...args)`, which calls a function of
 * the module, and `rawFunction(f)`, which makes a function that is called with the address and the number of its arguments.
 */
function createWebGPU(host) {
  const states = [];
  let last = 0;
  const free = [];
  const stateOf = (index) => {
    const state = states[index];
    if (state === undefined) throw errorOf('RuntimeError', why(index));
    return state;
  };

  function why(index) {
    const state = states[index];
    if (state === undefined) {
      const count = states.length;
      return count === 0 ? 'no WebGPU device was requested; call `await anyfn.requestWebGPU()` first' : `only ${count} WebGPU devices were requested`;
    }
    return state.lost === undefined ? null : `it was lost (${state.lost}); \`await anyfn.requestWebGPU()\` gives another device`;
  }

  /** Registers the driver with the runtime. */
  function start() {
    host.ask(
      'webgpu_driver',
      why,
      (index, attribute) => ATTRIBUTES[attribute]?.(stateOf(index)) ?? null,
      (index, bytes, isZeroed) => {
        const block = stateOf(index).allocate(bytes, isZeroed);
        const number = free.length ? free.pop() : (last += 1);
        states[index].blocks.set(number, block);
        return number;
      },
      (index, number) => {
        states[index]?.free(number);
        free.push(number);
      },
      (index, number, offset, address, bytes) => stateOf(index).write(number, offset, host.memory(), address, bytes),
      (index, ...places) => stateOf(index).copy(...places),
      (index) => stateOf(index).submit(),
    );
  }

  /** Reads the description of a tensor at an address. */
  function tensorAt(address) {
    const { u32, i32, i64, u64 } = host.memory();
    const word = address >>> 2;
    const ndim = i32[word + 3];
    const [shape, strides] = [u32[word + 5] >>> 3, u32[word + 6] >>> 3];
    const dtype = u32[word + 4];
    let [count, isCompact] = [1, true];
    for (let dim = ndim - 1; dim >= 0; dim -= 1) {
      const extent = Number(i64[shape + dim]);
      if (strides && extent !== 1 && Number(i64[strides + dim]) !== count) isCompact = false;
      count *= extent;
    }
    const [code, bits] = [dtype & 0xff, (dtype >>> 8) & 0xff];
    const bytes = Math.ceil((count * bits * (dtype >>> 16)) / 8);
    const offset = Number(u64[(address + DL_TENSOR - 8) >>> 3]);
    const [type, index] = [i32[word + 1], i32[word + 2]];
    return { number: u32[word], type, index, code, bits, bytes, offset, isCompact: isCompact || count === 0 };
  }

  /** Copies a tensor to main memory: returns the promise of the tensor that `make` makes. */
  async function read(handle, make) {
    const { number, index, bytes, offset, isCompact } = tensorAt(handle + OBJECT);
    if (!isCompact) throw new TypeError('the tensor is not contiguous; `contiguous()` makes a compact copy');
    const state = stateOf(index);
    if (bytes === 0) {
      await state.synchronize();
      return make();
    }
    return state.read(number, offset, bytes, (content) => {
      const tensor = make();
      const { u8, u32 } = host.memory();
      const at = (host.handleOf(tensor) + OBJECT) >>> 2;
      u8.set(content, u32[at]);
      return tensor;
    });
  }

  const kernels = createKernels({ host, stateOf, tensorAt, errorOf });

  /** A WebGPU device of the page. */
  class WebGPUDevice {
    #state;

    constructor(state, device) {
      this.#state = state;
      /** The device, for `tensor`, `empty` and `to`. */
      this.device = device;
      /** The `GPUDevice` of the browser. */
      this.gpuDevice = state.gpu;
      /** Name of the adapter. */
      this.adapter = state.about;
      Object.freeze(this);
    }

    /** Limits of the device, by their names in WebGPU. */
    get limits() {
      return this.#state.limits;
    }

    /** Features of the device, such as `shader-f16`. */
    get features() {
      return [...this.#state.gpu.features];
    }

    /** Why the device was lost, or null. */
    get lost() {
      return this.#state.lost ?? null;
    }

    /** Bytes of the blocks in use and of the freed ones that are kept; number of blocks that were allocated and that were reused. */
    get memory() {
      const { used, kept, allocated, reused } = this.#state.now;
      return { used, kept, allocated, reused, blocks: this.#state.blocks.size };
    }

    /** Waits until all work that was queued has finished, and throws the first error of it. */
    synchronize() {
      return this.#state.synchronize();
    }

    /** Compiles the kernels of a module for the device, so that errors are thrown here and the first launch takes no time for it. */
    prepare(module) {
      return kernels.prepare(module, this.#state);
    }

    /** Destroys the buffers of freed tensors. Returns the number of bytes. */
    releaseMemory() {
      return this.#state.releaseMemory();
    }

    /** Destroys the device with all of its memory. */
    destroy() {
      this.#state.lose('it was destroyed');
      this.#state.gpu.destroy();
    }

    toString() {
      return `WebGPUDevice(${this.#state.name}, ${this.#state.about})`;
    }
  }

  async function request({ powerPreference, forceFallbackAdapter, features = [], limits = {} } = {}) {
    const gpu = globalThis.navigator?.gpu;
    if (gpu === undefined) {
      const why =
        globalThis.isSecureContext === false
          ? 'browsers offer it only to pages that are loaded by https or from localhost'
          : 'this browser or host does not have it, or it is switched off';
      throw errorOf('RuntimeError', `WebGPU is not available: there is no \`navigator.gpu\`; ${why}`);
    }
    const options = { ...(powerPreference && { powerPreference }), ...(forceFallbackAdapter && { forceFallbackAdapter }) };
    const adapter = await gpu.requestAdapter(options);
    if (!adapter) {
      const asked = Object.entries({ ...options, ...(features.length && { features }), ...(Object.keys(limits).length && { limits }) });
      const shown = asked.map(([name, value]) => `${name} ${JSON.stringify(value)}`).join(', ') || 'any adapter';
      throw errorOf(
        'RuntimeError',
        `the browser has no WebGPU adapter for the request (${shown}); chrome://gpu or about:support tell why, and functions that are compiled for ` +
          'the target `wasm` need none',
      );
    }
    const missing = features.filter((feature) => !adapter.features.has(feature));
    if (missing.length) {
      throw errorOf(
        'RuntimeError',
        `the WebGPU adapter ${describe(adapter.info)} lacks the features ${missing.join(', ')}; it has ${[...adapter.features].join(', ') || 'none'}`,
      );
    }
    for (const [name, value] of Object.entries(limits)) {
      const offered = adapter.limits[name];
      if (offered === undefined) throw errorOf('ValueError', `WebGPU has no limit \`${name}\``);
      const isTooMuch = name.startsWith('min') ? value < offered : value > offered;
      if (isTooMuch) {
        throw errorOf('RuntimeError', `the WebGPU adapter ${describe(adapter.info)} has ${name} ${offered}, and ${value} was requested`);
      }
    }
    const device = await adapter.requestDevice({ requiredFeatures: features, requiredLimits: limits });
    const state = new State(states.length, device, adapter.info);
    states.push(state);
    return new WebGPUDevice(state, Device.of('webgpu', state.index));
  }

  return { start, request, read, attach: kernels.attach, module: kernels.module };
}

module.exports = { createWebGPU };
