'use strict';
// Kernels in WGSL: functions that queue launches on WebGPU devices. Pipelines are compiled at the first launch on a device, and kept.

const { ANY, VALUE, OBJECT } = require('./memory.js');
const { Device } = require('../lib/values.js');

const [INT, BOOL, FLOAT, DL_TENSOR_PTR, TENSOR] = [1, 2, 3, 7, 70];
const WEBGPU = 15;
const COMPUTE = 0x4;

/** Custom section of a WebAssembly module with the kernels that its code launches (`compiler/driver/src/write.rs`). */
const SECTION = 'anyfn.webgpu';
const MARKER = '// Function: ';
const PARAMETERS = '// Parameters: ';
/** Member of the struct of numbers with the number of blocks, which lie in two dimensions then (`compiler/codegen-c/src/wgsl`). */
const BLOCKS = 'anyfn_blocks';

const AXES = ['blockIdx.x', 'blockIdx.y', 'blockIdx.z', 'threadIdx.x', 'threadIdx.y', 'threadIdx.z'];
/** Types of numbers: how they are stored, and their range. */
const NUMBERS = {
  int32: ['setInt32', -(2 ** 31), 2 ** 31 - 1],
  uint32: ['setUint32', 0, 2 ** 32 - 1],
  float32: ['setFloat32'],
};
/** Data types of tensors by the type of elements in WGSL: code and bits. */
const ELEMENTS = { f32: [2, 32, 'float32'], i32: [0, 32, 'int32'], u32: [1, 32, 'uint32'], f16: [2, 16, 'float16'] };
const CODES = { 0: 'int', 1: 'uint', 2: 'float', 4: 'bfloat', 6: 'bool' };

function createKernels({ host, stateOf, tensorAt, errorOf }) {
  /** Functions that launch kernels -> the kernels. */
  const known = new WeakMap();

  const invalid = (name, message) => errorOf('ValueError', `kernel \`${name}\`: ${message}`);

  /** Reads what a launch needs to know from a source in WGSL. */
  function parse(name, source, params) {
    const code = source.replace(/\/\/[^\n]*|\/\*[^]*?\*\//g, ' ');
    const first = params.findIndex((param) => AXES.includes(param));
    const given = first < 0 ? params : params.slice(0, first);
    const axes = first < 0 ? [] : params.slice(first);
    const wrong = [...given.filter((param) => param !== 'pointer' && !NUMBERS[param]), ...axes.filter((axis) => !AXES.includes(axis))];
    if (wrong.length) {
      const types = Object.keys(NUMBERS).join(', ');
      throw invalid(name, `expected \`pointer\`, a type of numbers (${types}) or, at the end, a thread axis, got \`${wrong[0]}\``);
    }
    if (!/^[\p{XID_Start}_]\p{XID_Continue}*$/u.test(name)) throw invalid(name, 'expected the name of an entry point, an identifier of WGSL');
    const entry = new RegExp(`@workgroup_size\\s*\\(([^)]*)\\)[^{]*?\\bfn\\s+${name}\\s*\\(`).exec(code) ??
      new RegExp(`@compute\\b[^{]*?\\bfn\\s+${name}\\s*\\(`).exec(code);
    if (entry === null) throw invalid(name, `the source has no entry point \`@compute @workgroup_size(..) fn ${name}(..)\``);
    if (/\bvar\s*<\s*(immediate|push_constant)\s*>/.test(code)) {
      throw invalid(name, 'WebGPU has no immediates; declare the numbers with `var<uniform>` at the binding after the buffers');
    }
    // Sizes that are no literals are unknown, and those that are left out are 1.
    const said = entry[1]?.split(',').filter((size) => size.trim()).map((size) => Number(/^\s*(\d+)[iu]?\s*$/.exec(size)?.[1]));
    const sizes = said ? [...said, 1, 1] : [];
    const buffers = [];
    for (const [, binding, access, type] of code.matchAll(
      /@binding\s*\(\s*(\d+)\s*u?\s*\)[^;]*?\bvar\s*<\s*storage\s*(?:,\s*(read|read_write)\s*)?>\s*\w+\s*:\s*([^;]+);/g,
    )) {
      const [, element] = /^array\s*<\s*(\w+)\s*(?:,[^>]*)?>/.exec(type.trim()) ?? [];
      buffers[binding] = { isWritten: access === 'read_write', element: ELEMENTS[element] };
    }
    const pointers = given.filter((param) => param === 'pointer').length;
    for (let binding = 0; binding < pointers; binding += 1) {
      if (buffers[binding] === undefined) {
        throw invalid(name, `parameter \`pointer\` number ${binding} needs a buffer \`@group(0) @binding(${binding}) var<storage, ..>\``);
      }
    }
    if (buffers.length > pointers) throw invalid(name, `the source declares ${buffers.length} buffers, and ${pointers} are passed`);
    const isFolded = new RegExp(`\\b${BLOCKS}\\s*:\\s*u32`).test(code);
    const needsF16 = /\benable\s+f16\b/.test(code);
    return { name, source, given, axes, sizes, buffers, isFolded, needsF16, numbers: given.length - pointers + Number(isFolded) };
  }

  /** Returns the kernels in the source of a module that the compiler has made. */
  function split(source) {
    return source.split(new RegExp(`^(?=${MARKER})`, 'm')).filter((part) => part.startsWith(MARKER)).map((part) => {
      const [first, second] = part.split('\n', 2);
      return parse(first.slice(MARKER.length), part, second.slice(PARAMETERS.length).split(', '));
    });
  }

  function descriptionsOf(kernel, state) {
    const { gpu, name } = state;
    if (kernel.needsF16 && !gpu.features.has('shader-f16')) {
      throw errorOf('RuntimeError', `kernel \`${kernel.name}\` needs the feature shader-f16 of WebGPU, which was not requested for ${name}; ` +
        "`requestWebGPU({ features: ['shader-f16'] })` does");
    }
    const [count, most] = [kernel.buffers.length, state.limits.maxStorageBuffersPerShaderStage];
    if (count > most) throw invalid(kernel.name, `it has ${count} buffers, more than maxStorageBuffersPerShaderStage of ${name}, ${most}`);
    const code = gpu.createShaderModule({ code: kernel.source, label: kernel.name });
    const entries = kernel.buffers.map(({ isWritten }, binding) => ({
      binding,
      visibility: COMPUTE,
      buffer: { type: isWritten ? 'storage' : 'read-only-storage' },
    }));
    if (kernel.numbers) entries.push({ binding: entries.length, visibility: COMPUTE, buffer: { type: 'uniform' } });
    const layout = gpu.createBindGroupLayout({ entries, label: kernel.name });
    const pipeline = {
      label: kernel.name,
      layout: gpu.createPipelineLayout({ bindGroupLayouts: [layout] }),
      compute: { module: code, entryPoint: kernel.name },
    };
    return { code, layout, pipeline };
  }

  /** Returns the error of a kernel that the browser does not compile, with the browser's messages and the lines of the source. */
  async function explain(kernel, state, code, { message }) {
    const lines = kernel.source.split('\n');
    const { messages = [] } = (await code.getCompilationInfo?.()) ?? {};
    const told = messages
      .filter(({ type }) => type === 'error')
      .map(({ lineNum, linePos, message: text }) => `  line ${lineNum}:${linePos}: ${text}${lineNum ? `\n    ${lines[lineNum - 1]?.trim()}` : ''}`);
    const error = errorOf('RuntimeError', `kernel \`${kernel.name}\` cannot be compiled for ${state.name}:\n${told.join('\n') || `  ${message}`}`);
    state.pipelines.set(kernel, { error });
    return error;
  }

  /** Returns the compiled kernel for a device. */
  function compiled(kernel, state) {
    const found = state.pipelines.get(kernel);
    if (found !== undefined) {
      if (found.error) throw found.error;
      return found;
    }
    let code;
    const made = state.scoped(
      ['validation', 'internal'],
      () => {
        const all = descriptionsOf(kernel, state);
        code = all.code;
        return { name: kernel.name, layout: all.layout, pipeline: state.gpu.createComputePipeline(all.pipeline), isProven: false };
      },
      (error) => explain(kernel, state, code, error),
    );
    state.pipelines.set(kernel, made);
    Promise.all(state.checks).then(() => (made.isProven = true));
    return made;
  }

  /** Compiles a kernel for a device while the page goes on. */
  async function compileLater(kernel, state) {
    if (state.pipelines.has(kernel)) return void compiled(kernel, state);
    state.gpu.pushErrorScope('validation');
    let all;
    let made;
    try {
      all = descriptionsOf(kernel, state);
      made = state.gpu.createComputePipelineAsync(all.pipeline);
    } finally {
      // The promise reports the error.
      state.gpu.popErrorScope().catch(() => undefined);
    }
    try {
      state.pipelines.set(kernel, { name: kernel.name, layout: all.layout, pipeline: await made, isProven: true });
    } catch (error) {
      if (state.lost !== undefined) throw state.lostError();
      throw await explain(kernel, state, all.code, error);
    }
  }

  /** Reads a number at an address, for the parameter at `index`. */
  function numberAt(at, kernel, index, type) {
    const { i32, u32, f64 } = host.memory();
    const kind = i32[at >>> 2];
    const word = (at + VALUE) >>> 2;
    const isWhole = kind === INT || kind === BOOL;
    if (!isWhole && !(kind === FLOAT && type === 'float32')) {
      throw new TypeError(`argument ${index} of kernel \`${kernel.name}\`: expected a number of type ${type}`);
    }
    const value = isWhole ? i32[word + 1] * 2 ** 32 + u32[word] : f64[(at + VALUE) >>> 3];
    const [, low, high] = NUMBERS[type];
    if (value < low || value > high) {
      throw errorOf('OverflowError', `argument ${index} of kernel \`${kernel.name}\`: ${value} does not fit into ${type}`);
    }
    return value;
  }

  /** Returns the tensor that is the argument at `index`. */
  function tensorArgument(at, kernel, index, { element }) {
    const { i32, u32 } = host.memory();
    const kind = i32[at >>> 2];
    const where = `argument ${index} of kernel \`${kernel.name}\``;
    if (kind !== DL_TENSOR_PTR && kind !== TENSOR) throw new TypeError(`${where}: expected a tensor on a WebGPU device`);
    const address = u32[(at + VALUE) >>> 2];
    const tensor = tensorAt(kind === TENSOR ? address + OBJECT : address);
    if (tensor.type !== WEBGPU) {
      const device = Device.of(tensor.type, tensor.index);
      const text = `${where}: expected a tensor on webgpu but got one on ${device}; copy it to the device first (x.to('webgpu:0'))`;
      throw errorOf('ValueError', text);
    }
    if (element && (tensor.code !== element[0] || tensor.bits !== element[1])) {
      throw new TypeError(`${where}: expected a tensor of ${element[2]} but got ${CODES[tensor.code] ?? 'type'}${tensor.bits}`);
    }
    if (!tensor.isCompact) throw errorOf('ValueError', `${where}: the tensor is not contiguous; \`contiguous()\` makes a compact copy`);
    tensor.where = where;
    return tensor;
  }

  /** Queues a launch with the arguments at an address. */
  function launch(kernel, args, count) {
    const { given, axes, name } = kernel;
    if (count !== given.length + axes.length) {
      throw new TypeError(`kernel \`${name}\`: expected ${given.length + axes.length} arguments but got ${count}`);
    }
    const tensors = [];
    const numbers = new DataView(new ArrayBuffer(4 * kernel.numbers));
    let written = 0;
    given.forEach((param, index) => {
      const at = args + ANY * index;
      if (param === 'pointer') tensors.push(tensorArgument(at, kernel, index, kernel.buffers[tensors.length]));
      else {
        numbers[NUMBERS[param][0]](written, numberAt(at, kernel, index, param), true);
        written += 4;
      }
    });
    const grid = [1, 1, 1];
    for (const [index, axis] of axes.entries()) {
      const extent = numberAt(args + ANY * (given.length + index), kernel, given.length + index, 'int32');
      if (extent < 0) throw invalid(name, `${axis} is ${extent}, which is negative`);
      const dimension = AXES.indexOf(axis);
      if (dimension < 3) grid[dimension] = extent;
      else if (kernel.sizes[dimension - 3] > 0 && kernel.sizes[dimension - 3] !== extent) {
        throw invalid(name, `${axis} is ${extent}, and the source says ${kernel.sizes[dimension - 3]}`);
      }
    }
    if (grid.includes(0)) return;
    if (tensors.length === 0) throw invalid(name, 'a launch needs a tensor, whose device runs it');
    const state = stateOf(tensors[0].index);
    state.check();
    const most = state.limits.maxComputeWorkgroupsPerDimension;
    if (kernel.isFolded) {
      numbers.setUint32(written, grid[0], true);
      if (grid[0] > most) {
        grid[1] = Math.ceil(grid[0] / most);
        grid[0] = Math.ceil(grid[0] / grid[1]);
      }
    }
    const over = grid.findIndex((blocks) => blocks > most);
    if (over >= 0) {
      const limit = `maxComputeWorkgroupsPerDimension of ${state.name}, ${most}`;
      throw invalid(name, `${grid[over]} blocks along ${AXES[over]} are more than ${limit}`);
    }
    const temporary = [];
    try {
      const entries = bind(kernel, tensors, state, temporary);
      state.launch(compiled(kernel, state), entries, new Uint8Array(numbers.buffer), grid);
    } finally {
      // Work is executed in order, so the memory can be used again at once.
      temporary.forEach((block) => state.give(block));
    }
  }

  /** Throws if the memory of two tensors that a kernel writes overlaps. The browser would refuse all work that is submitted with the launch. */
  function checkWritten(tensors) {
    tensors.forEach((one, index) => {
      const other = tensors.slice(0, index).find((two) => two.number === one.number && two.offset < one.offset + one.bytes && one.offset < two.offset + two.bytes);
      if (other === undefined) return;
      const text = `the kernel writes to the tensor and to ${other.where}, and their memory overlaps; pass tensors that share no memory`;
      throw errorOf('ValueError', `${one.where}: ${text}`);
    });
  }

  /** Returns the entries of the bind group for the tensors of a launch. Adds the blocks of copies, which the caller frees, to `temporary`. */
  function bind(kernel, tensors, state, temporary) {
    const { maxStorageBufferBindingSize: most, minStorageBufferOffsetAlignment: step } = state.limits;
    const outputs = tensors.filter((_, index) => kernel.buffers[index].isWritten);
    checkWritten(outputs);
    const written = new Set(outputs.map(({ number }) => number));
    return tensors.map((tensor, binding) => {
      const { number, index, offset, bytes, where } = tensor;
      if (index !== state.index) {
        const copy = `(await x.to('cpu')).to('${state.name}')`;
        throw errorOf('ValueError', `${where}: the tensor is on webgpu:${index}, and others are on ${state.name}; copy it: ${copy}`);
      }
      const size = Math.max(4, Math.ceil(bytes / 4) * 4);
      if (size > most) {
        const request = '`requestWebGPU({ limits: { maxStorageBufferBindingSize: .. } })` asks for more';
        throw errorOf('ValueError', `${where}: the tensor has ${bytes} bytes, more than maxStorageBufferBindingSize of ${state.name}, ${most}; ${request}`);
      }
      const block = state.block(number, offset, bytes);
      if (offset % step === 0 && (kernel.buffers[binding].isWritten || !written.has(number))) {
        return { binding, resource: { buffer: block.buffer, offset, size } };
      }
      if (kernel.buffers[binding].isWritten || offset % 4) {
        const text = `the tensor begins at byte ${offset} of its memory, and WebGPU binds multiples of ${step} bytes; pass a copy of the view`;
        throw errorOf('ValueError', `${where}: ${text}`);
      }
      // A buffer that is written cannot be read by another binding of the same launch.
      const copy = state.allocate(size, false);
      temporary.push(copy);
      state.commands().copyBufferToBuffer(block.buffer, offset, copy.buffer, 0, size);
      return { binding, resource: { buffer: copy.buffer, offset: 0, size } };
    });
  }

  /** Makes a module of kernels. */
  function moduleOf(kernels) {
    const functions = kernels.map((kernel) => {
      const f = (args, count) => launch(kernel, args, count);
      known.set(f, kernel);
      return host.rawFunction(f);
    });
    return host.ask('kernels', kernels.map(({ name }) => name), functions);
  }

  return {
    /** Adds the kernels in a WebAssembly module to the module of its host code. */
    attach(code, module) {
      const [section] = WebAssembly.Module.customSections(code, SECTION);
      if (section === undefined) return;
      const imported = moduleOf(split(new TextDecoder().decode(section)));
      module.importModule(imported);
    },
    /** Makes a module of kernels in WGSL: `params` lists the parameters of each kernel. */
    module(source, params) {
      const all = Object.entries(params ?? {});
      if (typeof source !== 'string' || all.length === 0) {
        throw new TypeError("expected a source in WGSL and the parameters of its kernels, such as { scale: ['pointer', 'float32', 'blockIdx.x'] }");
      }
      return moduleOf(all.map(([name, list]) => parse(name, source, [...list])));
    },
    async prepare(module, state) {
      state.check();
      const modules = [module, ...module.imports].filter(({ kind }) => kind === 'webgpu');
      const kernels = modules.flatMap((one) => one.functionNames().map((name) => known.get(host.rawOf(one.getFunction(name)))));
      await Promise.all(kernels.map((kernel) => compileLater(kernel, state)));
    },
  };
}

module.exports = { createKernels };
