'use strict';
// Runs a page in a browser without a window: serves its files, and receives what the page reports.

const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');
const { spawn, spawnSync } = require('node:child_process');

const { folder } = require('../support.js');

const PROGRAMS = ['chromium-headless-shell', 'chromium', 'chromium-browser', 'google-chrome'];
const POLICY = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self' ws://127.0.0.1:*";
const TYPES = { '.html': 'text/html; charset=utf-8', '.mjs': 'text/javascript', '.js': 'text/javascript', '.wasm': 'application/wasm', '.json': 'application/json' };

/** Returns the program of the browser, or undefined. */
function findBrowser() {
  const named = process.env.ANYFN_BROWSER;
  return (named ? [named] : PROGRAMS).find((program) => !spawnSync(program, ['--version'], { timeout: 60000 }).error);
}

/** Serves files: `files` maps the path of a URL to the path of a file, or to a Buffer. `received` is called with the page's report. */
function serve(files, received) {
  const server = http.createServer((request, response) => {
    if (request.method === 'POST' && request.url === '/report') {
      let body = '';
      request.setEncoding('utf8');
      request.on('data', (part) => (body += part));
      request.on('end', () => {
        response.end();
        received(JSON.parse(body));
      });
      return;
    }
    const name = request.url.split('?')[0];
    const file = files[name];
    if (file === undefined) {
      response.writeHead(404).end();
      return;
    }
    const type = TYPES[path.extname(name)] ?? 'application/octet-stream';
    response.writeHead(200, { 'content-type': type, 'content-security-policy': POLICY });
    response.end(typeof file === 'string' ? fs.readFileSync(file) : file);
  });
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server)));
}

/** Options with which Chromium has a WebGPU adapter on machines without a GPU: SwiftShader, which runs on the processor. */
const WEBGPU = ['--enable-unsafe-webgpu', '--enable-features=Vulkan', '--use-vulkan=swiftshader', '--use-webgpu-adapter=swiftshader'];

/** Opens the page `/page.html` of the files in the browser, with a WebGPU adapter if `webgpu` is true. Returns what the page reports. */
async function runPage(files, { timeout = 60000, webgpu = false } = {}) {
  let received;
  const reported = new Promise((resolve) => (received = resolve));
  const server = await serve(files, received);
  const dir = folder();
  const url = `http://127.0.0.1:${server.address().port}/page.html`;
  const options = ['--no-sandbox', '--disable-dev-shm-usage', '--remote-debugging-port=0'];
  options.push(...(webgpu ? WEBGPU : ['--disable-gpu']));
  options.push('--js-flags=--expose-gc', `--user-data-dir=${dir}`);
  const browser = spawn(findBrowser(), [...options, url], { stdio: ['ignore', 'ignore', 'pipe'], detached: true });
  let told = '';
  browser.stderr.setEncoding('utf8').on('data', (part) => (told = (told + part).slice(-2000)));
  let timer;
  const ended = new Promise((_, reject) => {
    browser.on('error', reject);
    browser.on('exit', (code) => reject(new Error(`the browser ended with code ${code}: ${told}`)));
    timer = setTimeout(() => reject(new Error(`the page has reported nothing within ${timeout} ms: ${told}`)), timeout);
  });
  try {
    return await Promise.race([reported, ended]);
  } finally {
    clearTimeout(timer);
    browser.removeAllListeners('exit');
    const gone = new Promise((resolve) => browser.on('exit', resolve));
    try {
      process.kill(-browser.pid, 'SIGKILL');
      await gone;
    } catch {
      // It has ended by itself.
    }
    server.closeAllConnections();
    server.close();
    fs.rmSync(dir, { recursive: true, force: true, maxRetries: 5 });
  }
}

module.exports = { findBrowser, runPage };
