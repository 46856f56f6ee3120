'use strict';
// WebGPU devices in a page, on the adapter SwiftShader, which Chromium has on machines without a GPU.

const assert = require('node:assert/strict');
const { test } = require('node:test');

const { findBrowser, runPage } = require('./browser.js');
const { instantiate, pageFiles } = require('./support.js');
const { skip } = require('../support.js');

const noBrowser = !findBrowser() && 'no browser (`apt-get install chromium-headless-shell`)';

/** Returns what a page reports, or fails. */
async function resultOf(script, options) {
  const { result, error } = await runPage(pageFiles(script), options);
  assert.equal(error, undefined);
  return result;
}

test('there are no WebGPU devices in Node.js', async () => {
  await assert.rejects(instantiate().requestWebGPU(), { name: 'RuntimeError', message: /WebGPU is not available: there is no `navigator\.gpu`/ });
});

test('a browser without an adapter', { skip: noBrowser }, async () => {
  const [plain, asked] = await resultOf('webgpu-none.mjs');
  assert.match(plain, /^RuntimeError: (the browser has no WebGPU adapter for the request \(any adapter\); |WebGPU is not available)/);
  assert.match(asked, /^RuntimeError: (the browser has no .* \(powerPreference "low-power", features \["shader-f16"\]\)|WebGPU is not available)/);
});

test('tensors, kernels, errors and memory', { skip: skip('webgpu', noBrowser), timeout: 180000 }, async () => {
  const seen = await resultOf('webgpu.mjs', { webgpu: true, timeout: 150000 });
  assert.match(seen.unrequested, /device webgpu:0 is not available: no WebGPU device was requested; call `await anyfn\.requestWebGPU\(\)` first/);
  assert.match(seen.noFeature, /^RuntimeError: the WebGPU adapter .* lacks the features no-such-feature; it has /);
  assert.match(seen.noLimit, /^RuntimeError: the WebGPU adapter .* has maxBufferSize \d+, and 4503599627370496 was requested/);
  assert.equal(seen.wrongLimit, 'ValueError: WebGPU has no limit `maxWings`');
  assert.deepEqual(seen.device, ['webgpu:0', true, null, 8]);
  assert.deepEqual(seen.devices, ['cpu:0', 'webgpu:0']);
  assert.deepEqual(seen.attributes, [256, 16384, '[256, 256, 64]']);

  assert.equal(seen.promise, true);
  assert.deepEqual(seen.roundTrip, ['cpu:0', true, true]);
  assert.deepEqual(seen.nested, [[1, 2], [3, 4]]);
  assert.deepEqual(seen.bytes, [1, 2, 3, 4, 5]);
  assert.deepEqual(seen.empty, [[], [0, 0, 0]]);
  assert.match(seen.data, /^TypeError: the tensor is on webgpu:0; copy it to the CPU first \(`await x\.to\(anyfn\.cpu\(\)\)`\)/);
  assert.match(seen.blocking, /^RuntimeError: the memory of webgpu:0 cannot be read during a call, .*`await x\.to\('cpu'\)`/);
  assert.equal(seen.contiguous, true);

  assert.deepEqual(seen.saxpy, ['webgpu', true]);
  assert.deepEqual(seen.order, [2000, 2001]);
  assert.equal(seen.shared, true);
  assert.deepEqual(seen.again, [true, true]);
  const wrong = [
    /^ValueError: argument 1 of kernel `saxpy`: expected a tensor on webgpu but got one on cpu:0; copy it to the device first \(x\.to\('webgpu:0'\)\)/,
    /^TypeError: argument 1 of kernel `saxpy`: expected a tensor of float32 but got int32/,
    /^TypeError: kernel `saxpy`: expected 5 arguments but got 4/,
    /^OverflowError: argument 3 of kernel `saxpy`: 1099511627776 does not fit into int32/,
    /^TypeError: argument 3 of kernel `saxpy`: expected a number of type int32/,
    /^ValueError: kernel `saxpy`: blockIdx\.x is -1, which is negative/,
    /^ValueError: kernel `saxpy`: 70000 blocks along blockIdx\.x are more than maxComputeWorkgroupsPerDimension of webgpu:0, 65535/,
    /^ValueError: argument 2 of kernel `saxpy`: the tensor begins at byte 4 of its memory, and WebGPU binds multiples of 256 bytes; pass a copy/,
    /^ValueError: kernel `slow`: threadIdx\.x is 2, and the source says 1/,
    /^ValueError: kernel `increment`: threadIdx\.y is 2, and the source says 1/,
    /^ValueError: kernel `increment\(`: expected the name of an entry point/,
    /^ValueError: argument 1 of kernel `both`: the kernel writes to the tensor and to argument 0 of kernel `both`, and their memory overlaps/,
    /^ValueError: kernel `other`: the source has no entry point/,
    /^ValueError: kernel `saxpy`: expected `pointer`, a type of numbers \(int32, uint32, float32\) or, at the end, a thread axis, got `int64`/,
    /^ValueError: kernel `f`: WebGPU has no immediates/,
    /^TypeError: expected a device such as anyfn\.cpu\(\) or 'cpu:0', got 'gpu:0'/,
  ];
  wrong.forEach((text, index) => assert.match(seen.wrong[index], text));
  for (const text of seen.half) {
    assert.match(text, /^RuntimeError: kernel `f` needs the feature shader-f16 of WebGPU, which was not requested for webgpu:0; `requestWebGPU\(\{ features: /);
  }
  for (const text of seen.broken.slice(0, 3)) {
    assert.match(text, /^RuntimeError: kernel `f` cannot be compiled for webgpu:0:\n {2}line 3:10: unresolved value 'y'\n {4}x\[0\] = y;/);
  }
  assert.equal(seen.broken[3], 1000);
  assert.equal(seen.others, 2);
  assert.equal(seen.copies, 0);
  assert.equal(seen.busy, true);
  assert.match(seen.large, /^MemoryError: 536870911 bytes are more than the limit of webgpu:0, maxBufferSize 268435456/);

  assert.match(seen.other[0], /^ValueError: argument 2 of kernel `saxpy`: the tensor is on webgpu:1, and others are on webgpu:0/);
  assert.equal(seen.other[1], true);
  assert.match(seen.other[2], /device webgpu:2 is not available: only 2 WebGPU devices were requested/);
  for (const text of seen.lost.slice(0, 4)) assert.match(text, /^RuntimeError: device webgpu:1 (was lost|is not available: it was lost) \(it was destroyed\)/);
  assert.equal(seen.lost[4], 'it was destroyed');
  assert.deepEqual(seen.third, ['webgpu:2', [5]]);
  assert.match(seen.destroyed, /device webgpu:2 is not available: it was lost \(it was destroyed/);
  assert.equal(seen.still, 1000);
  assert.match(seen.memory, /^MemoryError: webgpu:0 has not enough memory for \d+ bytes \(a tensor of 49380 bytes\): no memory left/);
  assert.match(seen.refused, /^RuntimeError: webgpu:0 cannot create a buffer of \d+ bytes \(a tensor of 217284 bytes\)/);
  assert.deepEqual(seen.replaced, [54321, 23456]);
  assert.equal(seen.afterwards, 'nothing');
  assert.deepEqual(seen.flat, [true, true, true, true]);
  assert.deepEqual(seen.released, [true, 0]);
  assert.equal(seen.collected, 'all');
});
