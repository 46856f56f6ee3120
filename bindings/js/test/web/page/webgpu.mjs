// Uses WebGPU devices in a page: tensors, kernels in WGSL, errors, memory, and a device that is lost. Reports what it has seen.

import { instantiate } from './web.mjs';
import { report } from './report.mjs';

const SAXPY = `
struct Numbers { a: f32, n: i32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> numbers: Numbers;

@compute @workgroup_size(64)
fn saxpy(@builtin(global_invocation_id) id: vec3<u32>) {
  let i = i32(id.x);
  if (i < numbers.n) { y[i] += numbers.a * x[i]; }
}
`;
const PARAMS = { saxpy: ['float32', 'pointer', 'pointer', 'int32', 'blockIdx.x'] };
const INCREMENT = `
@group(0) @binding(0) var<storage, read_write> x: array<i32>;
@compute @workgroup_size(1) fn increment() { x[0] += 1; }
@compute @workgroup_size(1, 1, 1) fn slow() { for (var i = 0; i < 1000; i++) { x[0] += 1; } }
`;
const BOTH = `
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(1) fn both() { x[0] += 1; y[0] += 1; }
`;

/** Returns what a function throws, or what its promise rejects with. */
async function thrown(f) {
  try {
    await f();
    return 'nothing';
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
}

const load = () => instantiate('./testing.wasm', { imports: { host: { report: () => {} } } });

async function use() {
  const anyfn = await load();
  const seen = {};
  seen.unrequested = await thrown(() => anyfn.tensor([1], { device: 'webgpu:0' }));
  seen.noFeature = await thrown(() => anyfn.requestWebGPU({ features: ['no-such-feature'] }));
  seen.noLimit = await thrown(() => anyfn.requestWebGPU({ limits: { maxBufferSize: 2 ** 52 } }));
  seen.wrongLimit = await thrown(() => anyfn.requestWebGPU({ limits: { maxWings: 2 } }));

  const gpu = await anyfn.requestWebGPU();
  seen.device = [String(gpu.device), gpu.adapter.length > 0, gpu.lost, gpu.limits.maxStorageBuffersPerShaderStage];
  seen.devices = anyfn.getGlobalFunc('anyfn.devices')().toArray().map(String);
  seen.attributes = [1, 3, 8].map((attribute) => anyfn.getGlobalFunc('runtime.GetDeviceAttr')(15, 0, attribute));

  // Tensors.
  const numbers = Float32Array.from({ length: 1000 }, (_, i) => i / 7);
  const x = anyfn.tensor(numbers, { device: 'webgpu:0' });
  const back = x.to('cpu');
  seen.promise = back instanceof Promise;
  const copy = await back;
  seen.roundTrip = [String(copy.device), copy.data.every((value, i) => value === numbers[i]), await x.to('webgpu:0') === x];
  seen.nested = await anyfn.tensor([[1, 2], [3, 4]], { dtype: 'int32', device: gpu.device }).toArray();
  seen.bytes = [...(await anyfn.tensor(new Uint8Array([1, 2, 3, 4, 5]), { device: 'webgpu' }).toBytes())];
  seen.empty = [await anyfn.empty([0, 3], 'float32', 'webgpu:0').toArray(), await anyfn.empty([3], { dtype: 'uint32', device: 'webgpu:0' }).toArray()];
  seen.data = await thrown(() => x.data);
  seen.blocking = await thrown(() => anyfn.getGlobalFunc('anyfn.tensor_to_bytes')(x));
  seen.contiguous = await anyfn.getGlobalFunc('anyfn.tensor_copy')(x).to('cpu').then(({ data }) => data[999] === numbers[999]);

  // Kernels.
  const kernels = anyfn.webgpuModule(SAXPY, PARAMS);
  await gpu.prepare(kernels);
  const saxpy = kernels.getFunction('saxpy');
  const y = anyfn.empty([1000], 'float32', 'webgpu:0');
  saxpy(2, x, y, 1000, 16);
  saxpy(0.5, x, y, 500, 16);
  const result = (await y.to('cpu')).data;
  seen.saxpy = [kernels.kind, result.every((value, i) => Math.abs(value - numbers[i] * (i < 500 ? 2.5 : 2)) < 1e-4)];
  const counter = anyfn.empty([1], 'int32', 'webgpu:0');
  const increment = anyfn.webgpuModule(INCREMENT, { increment: ['pointer'], slow: ['pointer', 'threadIdx.x'] });
  const [one, slow] = [increment.getFunction('increment'), increment.getFunction('slow')];
  for (let round = 0; round < 1000; round += 1) one(counter);
  slow(counter, 1);
  // Work before the copy is seen by it, and work after it is not.
  const before = counter.to('cpu');
  one(counter);
  seen.order = [(await before).data[0], (await counter.toArray())[0]];
  const half = anyfn.tensor(numbers, { device: 'webgpu:0' });
  const view = anyfn.getGlobalFunc('runtime.TVMTensorCreateView');
  const [first, second] = [0, 512].map((offset) => view(half, new anyfn.Shape([128]), anyfn.dtype('float32'), offset));
  saxpy(1, first, second, 128, 2);
  seen.shared = (await half.to('cpu')).data.slice(128, 130).every((value, i) => Math.abs(value - (numbers[128 + i] + numbers[i])) < 1e-4);
  saxpy(1, x, y, 0, 0);

  // Memory is used again, with zeros where it must have them, and what was queued for its first use is not disturbed.
  const used = anyfn.tensor(numbers, { device: 'webgpu:0' });
  saxpy(1, used, y, 1000, 16);
  used.dispose();
  const again = anyfn.empty([1000], { device: 'webgpu:0' });
  saxpy(1, again, y, 1000, 16);
  again.dispose();
  const written = anyfn.tensor(numbers.map(() => 1), { device: 'webgpu:0' });
  saxpy(1, written, y, 1000, 16);
  seen.again = [gpu.memory.reused > 1, (await y.to('cpu')).data.every((value, i) => Math.abs(value - numbers[i] * (i < 500 ? 3.5 : 3) - 1) < 1e-3)];

  // Wrong arguments.
  const small = anyfn.tensor([1, 2, 3, 4]);
  const unaligned = view(half, new anyfn.Shape([8]), anyfn.dtype('float32'), 4);
  seen.wrong = [
    await thrown(() => saxpy(1, small, y, 4, 1)),
    await thrown(() => saxpy(1, anyfn.tensor(Int32Array.of(1), { device: 'webgpu:0' }), y, 1, 1)),
    await thrown(() => saxpy(1, x, y, 4)),
    await thrown(() => saxpy(1, x, y, 2 ** 40, 1)),
    await thrown(() => saxpy(1, x, y, 1.5, 1)),
    await thrown(() => saxpy(1, x, y, 4, -1)),
    await thrown(() => saxpy(1, x, y, 4, 70000)),
    await thrown(() => saxpy(1, x, unaligned, 8, 1)),
    await thrown(() => slow(counter, 2)),
    await thrown(() => anyfn.webgpuModule(INCREMENT, { increment: ['pointer', 'threadIdx.y'] }).getFunction('increment')(counter, 2)),
    await thrown(() => anyfn.webgpuModule(INCREMENT, { 'increment(': ['pointer'] })),
    await thrown(() => anyfn.webgpuModule(BOTH, { both: ['pointer', 'pointer'] }).getFunction('both')(y, y)),
    await thrown(() => anyfn.webgpuModule(SAXPY, { other: ['pointer'] })),
    await thrown(() => anyfn.webgpuModule(SAXPY, { saxpy: ['pointer', 'int64'] })),
    await thrown(() => anyfn.webgpuModule('var<immediate> n: i32; @compute @workgroup_size(1) fn f() {}', { f: ['pointer'] })),
    await thrown(() => anyfn.tensor([1], { device: 'gpu:0' })),
  ];
  const half16 = anyfn.webgpuModule('enable f16; @group(0) @binding(0) var<storage, read_write> x: array<f32>; @compute @workgroup_size(1) fn f() { x[0] = f32(1.5h); }', { f: ['pointer'] });
  seen.half = [await thrown(() => half16.getFunction('f')(y)), await thrown(() => gpu.prepare(half16))];
  // A source that does not compile: the browser tells it later, and `prepare` at once.
  const broken = anyfn.webgpuModule('@group(0) @binding(0) var<storage, read_write> x: array<f32>;\n@compute @workgroup_size(1) fn f() {\n  x[0] = y;\n}', { f: ['pointer'] });
  const f = broken.getFunction('f');
  const total = (await counter.toArray())[0];
  one(counter);
  f(y);
  one(counter);
  seen.broken = [await thrown(() => y.to('cpu')), await thrown(() => f(y)), await thrown(() => gpu.prepare(broken)), (await y.toArray()).length];
  // Launches before and after the broken one are executed.
  seen.others = (await counter.toArray())[0] - total;
  // The copies of views for a launch that fails are freed.
  const inUse = gpu.memory.used;
  await thrown(() => saxpy(1, first, unaligned, 8, 1));
  seen.copies = gpu.memory.used - inUse;
  // A page that launches kernels all the time can still read.
  let isRead = false;
  const reading = counter.toArray().then(() => (isRead = true));
  for (const end = performance.now() + 5000; !isRead && performance.now() < end; ) {
    one(counter);
    const { port1, port2 } = new MessageChannel();
    await new Promise((resolve) => {
      port1.onmessage = resolve;
      port2.postMessage(null);
    });
    port1.close();
  }
  seen.busy = isRead;
  await reading;
  seen.large = await thrown(() => anyfn.empty([2 ** 29 - 1], 'uint8', 'webgpu:0'));

  // A second device.
  const other = await anyfn.requestWebGPU();
  const z = anyfn.tensor(numbers, { device: 'webgpu:1' });
  seen.other = [await thrown(() => saxpy(1, x, z, 4, 1)), (await (await x.to('webgpu:1')).to('cpu')).data[7] === numbers[7], await thrown(() => anyfn.empty([1], 'int8', 'webgpu:2'))];
  const pending = z.to('cpu');
  other.destroy();
  seen.lost = [await thrown(() => pending), await thrown(() => z.to('cpu')), await thrown(() => anyfn.empty([1], 'float32', 'webgpu:1')), await thrown(() => other.synchronize()), other.lost];
  z.dispose();
  const third = await anyfn.requestWebGPU();
  seen.third = [String(third.device), await anyfn.tensor([5], { device: third.device }).toArray()];
  third.gpuDevice.destroy();
  await third.gpuDevice.lost;
  seen.destroyed = await thrown(() => anyfn.tensor([5], { device: 'webgpu:2' }));
  seen.still = await y.toArray().then((all) => all.length);

  // Out of memory. The device of the test has no limit that can be reached, so that its answer is replaced.
  const pop = gpu.gpuDevice.popErrorScope;
  gpu.gpuDevice.popErrorScope = function () {
    return pop.call(this).then((error) => error ?? new GPUOutOfMemoryError('no memory left'));
  };
  const poor = anyfn.empty([12345], 'float32', 'webgpu:0');
  seen.memory = await thrown(() => poor.to('cpu'));
  delete gpu.gpuDevice.popErrorScope;
  await thrown(() => gpu.synchronize());
  // The buffer that could not be made is not used for other tensors. This one is too large for any device.
  const create = gpu.gpuDevice.createBuffer;
  gpu.gpuDevice.createBuffer = function (description) {
    return create.call(this, { ...description, size: 2 ** 50 });
  };
  const [held, freed] = [anyfn.empty([54321], 'float32', 'webgpu:0'), anyfn.empty([23456], 'float32', 'webgpu:0')];
  delete gpu.gpuDevice.createBuffer;
  freed.dispose();
  seen.refused = await thrown(() => gpu.synchronize());
  held.dispose();
  seen.replaced = [];
  for (const size of [54321, 23456]) seen.replaced.push((await anyfn.empty([size], 'float32', 'webgpu:0').toArray()).length);
  seen.afterwards = await thrown(() => gpu.synchronize());

  // Tensors come and go.
  poor.dispose();
  const start = gpu.memory;
  let most = 0;
  for (let round = 0; round < 1000; round += 1) {
    const t = anyfn.tensor(numbers, { device: 'webgpu:0' });
    saxpy(1, x, t, 1000, 16);
    if (round % 50 === 0) most = Math.max(most, (await t.to('cpu')).size);
    t.dispose();
  }
  await gpu.synchronize();
  const end = gpu.memory;
  seen.flat = [end.used <= start.used, end.allocated - start.allocated < 4, end.reused - start.reused > 990, end.blocks <= start.blocks];
  const released = gpu.releaseMemory();
  seen.released = [released > 0, gpu.memory.kept];

  // Those that are dropped are freed after a garbage collection.
  for (let round = 0; round < 1000; round += 1) anyfn.tensor(numbers, { device: 'webgpu:0' });
  for (let round = 0; round < 20 && gpu.memory.blocks > start.blocks + 10; round += 1) {
    gc();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  seen.collected = gpu.memory.blocks <= start.blocks + 10 ? 'all' : gpu.memory.blocks - start.blocks;
  return seen;
}

await report(use);
