'use strict';
// Sessions over WebSocket: a page as a client (`connect`) and as a server (`serve`). The module has the protocol as a state machine
// (`crates/web/src/session`); this file moves the bytes, and runs what has arrived, in the event loop.

const { TAG } = require('../lib/values.js');
const { OWNER } = require('../lib/functions.js');
const { classOfKind } = require('../lib/errors.js');

/** Numbers of services; those of `crates/protocol/src/code.rs`. */
const [MODULE_FUNCTION, MODULE_NAMES, EMPTY, LOAD, TIME, INFO, COPY, NAMES] = [2, 3, 4, 11, 12, 13, 16, 19];
const TICK_MS = 1000;
const CONNECT_SECONDS = 10;
// Maximum number of bytes that wait in the WebSocket before no further calls of the peer are run.
const BUFFERED_MAX = 64 * 2 ** 20;
// Size of a message. The server accepts up to four times as many bytes.
const PIECE = 2 ** 18;
// Pauses between attempts to reach a proxy.
const [PAUSE_MIN_MS, PAUSE_MAX_MS] = [250, 15000];

const errorOf = (kind, message) => new (classOfKind(kind))(message);
const isKey = (key) => key === undefined || key === null || typeof key === 'string';

function createSessions(native, anyfn) {
  const ask = (name, ...args) => native.ask(`session_${name}`, ...args);

  /** One end of a session: the state of the protocol, and the WebSocket. */
  class Line {
    constructor(url, { WebSocket = globalThis.WebSocket } = {}) {
      if (WebSocket === undefined) throw new TypeError('this host has no WebSocket; pass the class as the option `WebSocket`');
      this.url = String(url);
      this.calls = new Map();
      this.ended = undefined;
      this.socket = new WebSocket(this.url);
      this.socket.binaryType = 'arraybuffer';
      this.socket.onmessage = ({ data }) => this.receive(data);
      this.socket.onopen = () => this.flush();
      this.socket.onerror = () => {
        this.failed = true;
        // Some hosts close a WebSocket that could not be opened without an event.
        setTimeout(() => this.lost('the connection failed or was refused'), 100);
      };
      this.socket.onclose = ({ code, reason }) => {
        const told = reason || (code === 1006 || this.failed ? 'the connection failed or was refused' : 'the peer closed the connection');
        this.lost(told);
      };
      this.timer = setInterval(() => this.attempt(() => ask('tick', this.state)), TICK_MS);
      this.timer.unref?.();
    }

    /** Runs a step of the session, and then what has become possible. An error ends the session. */
    attempt(step) {
      if (this.ended) return;
      try {
        step();
      } catch (error) {
        this.end(error);
        return;
      }
      this.turn();
    }

    receive(data) {
      this.attempt(() => {
        if (typeof data === 'string') throw errorOf('ConnectionError', `${this.url}: expected binary messages, got a message of text`);
        if (ask('receive', this.state, data) && !this.isOpen) {
          this.isOpen = true;
          this.opened?.();
        }
      });
    }

    /** Delivers results, runs calls of the peer, and sends what results. */
    turn() {
      this.deliver();
      while (!this.ended && this.isOpen && this.socket.bufferedAmount < BUFFERED_MAX) {
        let next;
        try {
          next = ask('turn', this.state);
        } catch (error) {
          this.end(error);
          return;
        }
        if (next === null || next === undefined) break;
        if (next !== true) this.run(next.get(0));
        this.deliver();
      }
      this.flush();
    }

    /** Runs a JavaScript function for the peer. It may return a promise. */
    async run(incoming) {
      let result;
      try {
        const { value, big } = native.javascript(incoming.id);
        const args = [...incoming.args].map((arg) => this.wrap(arg));
        result = await value(...args);
        if (big && typeof result === 'number') result = anyfn.float(result);
        ask('answer', incoming, result);
      } catch (error) {
        try {
          ask('fail', incoming, error instanceof Error ? error : new Error(String(error)));
        } catch {
          ask('fail', incoming, new Error('the function has thrown a value that cannot be sent'));
        }
      }
      this.turnLater();
    }

    turnLater() {
      this.attempt(() => {});
    }

    deliver() {
      for (const number of ask('ready', this.state)) {
        const waiting = this.calls.get(number);
        if (!waiting) continue;
        this.calls.delete(number);
        try {
          const taken = ask('take', waiting.call);
          if (taken.size === 0) this.calls.set(number, waiting);
          else waiting.resolve(taken.get(0));
        } catch (error) {
          waiting.reject(error);
        }
      }
    }

    flush() {
      if (this.socket.readyState !== 1) return;
      const out = ask('output', this.state);
      for (let at = 0; at < out.length; at += PIECE) this.socket.send(out.subarray(at, at + PIECE));
    }

    /** Returns the promise of the result of a call that `start` begins. */
    call(start, { signal, timeout } = {}) {
      if (signal?.aborted) return Promise.reject(signal.reason);
      if (this.ended) return Promise.reject(this.ended);
      return new Promise((resolve, reject) => {
        const call = start();
        const number = call.number;
        let timer;
        const stop = (error) => {
          if (!this.calls.delete(number)) return;
          ask('cancel', call);
          this.turnLater();
          finish();
          reject(error);
        };
        const abort = () => stop(signal.reason);
        const finish = () => {
          clearTimeout(timer);
          signal?.removeEventListener('abort', abort);
        };
        const settle = (f) => (value) => {
          finish();
          f(value);
        };
        this.calls.set(number, { call, resolve: settle((value) => resolve(this.wrap(value))), reject: settle(reject) });
        signal?.addEventListener('abort', abort, { once: true });
        if (timeout !== undefined) {
          timer = setTimeout(() => stop(errorOf('TimeoutError', `no result within the time limit of ${timeout} seconds`)), timeout * 1000);
        }
        this.turn();
      });
    }

    /** Returns what JavaScript code works with: functions of the peer return promises. */
    wrap(value) {
      if ((typeof value !== 'function' && typeof value !== 'object') || value === null || !(value[TAG] >= 0)) return value;
      if (value instanceof anyfn.PackedFunc) return ask('is_remote', value) ? remoteFunction(this, value) : value;
      if (value instanceof anyfn.Module) return ask('is_remote', value) ? new RemoteModule(this, value) : value;
      return value.typeKey === 'rpc.Tensor' ? new RemoteTensor(this, value) : value;
    }

    lost(why) {
      if (this.ended) return;
      try {
        ask('lost', this.state, why);
        this.end(errorOf('ConnectionError', `${this.url}: ${why}`));
      } catch (error) {
        this.end(error);
      }
    }

    end(error) {
      if (this.ended) return;
      this.ended = error;
      clearInterval(this.timer);
      try {
        this.flush();
        if (this.isOpen) ask('close', this.state);
        this.deliver();
      } catch {
        // The state of the protocol has ended as well.
      }
      for (const { reject } of this.calls.values()) reject(error);
      this.calls.clear();
      if (this.socket.readyState < 2) this.socket.close();
      this.over?.(error);
    }

    close() {
      if (this.ended) return;
      try {
        ask('close', this.state);
        this.flush();
      } finally {
        this.end(errorOf('ConnectionError', 'the session was closed'));
      }
    }
  }

  /** Returns the function that calls a function of the peer. */
  function remoteFunction(line, packed) {
    const start = (args) => () => ask('call', line.state, packed, ...args);
    const f = (...args) => line.call(start(args));
    f.callAsync = (args = [], options = {}) => line.call(start(args), options);
    f.timeEvaluator = async ({ device = anyfn.cpu(), number = 10, repeat = 1, minRepeatMs = 0 } = {}) =>
      line.call(() => ask('service', line.state, TIME, packed, device, number, repeat, minRepeatMs));
    Object.defineProperty(f, 'signature', { get: () => packed.signature });
    f[TAG] = packed[TAG];
    f[OWNER] = packed;
    return f;
  }

  /** Object of the peer, which can be an argument of its functions. */
  class Remote {
    constructor(line, value) {
      this.line = line;
      this[OWNER] = value;
      this[TAG] = value[TAG];
    }

    /** Releases the object of the peer. */
    dispose() {
      this[OWNER].dispose();
      this.line.turnLater();
    }
  }
  if (Symbol.dispose) Remote.prototype[Symbol.dispose] = Remote.prototype.dispose;

  /** Tensor in the memory of the peer. */
  class RemoteTensor extends Remote {
    get shape() {
      return [...this[OWNER].shape];
    }

    get dtype() {
      return this[OWNER].dtype;
    }

    get device() {
      return this[OWNER].device;
    }

    /** Copies the elements of a tensor or a typed array to the peer. */
    async write(content, options) {
      const given = content instanceof anyfn.Tensor ? content.contiguous() : content;
      await this.line.call(() => ask('write', this.line.state, this, given), options);
    }

    /** Returns a tensor of this page with a copy of the elements. */
    async read(options) {
      const bytes = await this.line.call(() => ask('read', this.line.state, this), options);
      return native.tensorMake(bytes, this.shape, this.dtype);
    }

    /** Copies the elements of another tensor of the same session. */
    async assign(other, options) {
      await this.line.call(() => ask('service', this.line.state, COPY, other, this), options);
    }
  }

  /** Module of the peer. */
  class RemoteModule extends Remote {
    async getFunction(name) {
      const answer = await this.line.call(() => ask('service', this.line.state, MODULE_FUNCTION, this, String(name)));
      const found = ask('described', this.line.state, answer);
      if (found === null) throw new TypeError(`module has no function '${name}'`);
      return this.line.wrap(found);
    }

    async functionNames() {
      return (await this.line.call(() => ask('service', this.line.state, MODULE_NAMES, this))).toArray();
    }
  }

  /** Session with a server. */
  class Session {
    constructor(line) {
      this.line = line;
    }

    /** Returns a global function of the server. It returns promises. */
    getFunction(name, options) {
      return this.line.call(() => ask('lookup', this.line.state, String(name)), options);
    }

    /** Returns the names of the functions that the session may call. */
    async functionNames() {
      return (await this.line.call(() => ask('service', this.line.state, NAMES))).toArray();
    }

    /** Returns a description of the server. */
    async info() {
      return Object.fromEntries(await this.line.call(() => ask('service', this.line.state, INFO)));
    }

    /** Returns a tensor of zeros in the memory of the server. */
    empty(shape, dtype = 'float32', device = anyfn.cpu()) {
      const type = typeof dtype === 'string' ? anyfn.dtype(dtype) : dtype;
      return this.line.call(() => ask('service', this.line.state, EMPTY, anyfn.getGlobalFunc('ffi.Shape')(...shape), type, device));
    }

    /** Returns a tensor in the memory of the server with a copy of a tensor, a typed array or nested arrays. */
    async tensor(content, shape, dtype) {
      const here = content instanceof anyfn.Tensor ? content : anyfn.tensor(content, shape, dtype);
      const there = await this.empty(here.shape, here.dtype);
      await there.write(here);
      return there;
    }

    /** Sends the content of a library to the server and loads it there. */
    async load(content, options) {
      let digest;
      await this.line.call(() => {
        const started = ask('upload', this.line.state, anyfn.bytes(new Uint8Array(content)));
        digest = started.get(0);
        return started.get(1);
      }, options);
      return this.line.call(() => ask('service', this.line.state, LOAD, digest), options);
    }

    /** Error that has ended the session, or undefined. */
    get ended() {
      return this.line.ended;
    }

    /** Ends the session. Calls in progress are rejected. */
    close() {
      this.line.close();
    }
  }
  if (Symbol.dispose) Session.prototype[Symbol.dispose] = Session.prototype.close;

  /**
   * Opens a session with a server: `ws://host:port` for `anyfn rpc server`, `ws://host:port/name` for one that waits at a proxy. `key`
   * is the string that `anyfn rpc key` prints.
   */
  function connect(url, { key, timeout = CONNECT_SECONDS, signal, WebSocket } = {}) {
    if (!isKey(key)) return Promise.reject(new TypeError('connect: expected a string as `key`'));
    if (signal?.aborted) return Promise.reject(signal.reason);
    return new Promise((resolve, reject) => {
      const state = ask('client', String(url), key ?? null);
      // A proxy waits as long for the server as this client does, and then says what is missing. A server ignores the query.
      const isName = /^[^/]*\/\/[^/]+\/[^?]+$/.test(String(url));
      const line = new Line(isName ? `${url}?wait=${Math.max(0, Math.round(timeout * 1000 - 500))}` : url, { WebSocket });
      line.state = state;
      const fail = (error) => {
        finish();
        line.over = undefined;
        line.end(error);
        reject(error);
      };
      const abort = () => fail(signal.reason);
      const timer = setTimeout(() => fail(errorOf('TimeoutError', `${url}: no answer within ${timeout} seconds`)), timeout * 1000);
      const finish = () => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', abort);
      };
      signal?.addEventListener('abort', abort, { once: true });
      line.over = fail;
      line.opened = () => {
        finish();
        line.over = undefined;
        resolve(new Session(line));
      };
    });
  }

  /** Compiles a module that the client has sent, and answers. */
  async function load(incoming) {
    try {
      const content = incoming.args.get(0);
      const code = await WebAssembly.compile(content.slice());
      ask('answer', incoming, anyfn.loadModule(code));
    } catch (error) {
      ask('fail', incoming, error);
    }
  }

  /** Server of this page. It waits at a proxy for clients, each of which gets a session of its own. */
  class Server {
    constructor(url, { name, key, timeout = CONNECT_SECONDS, WebSocket, sessions = 8, onSession, onError, ...grant }) {
      if (!/^[A-Za-z0-9._-]{1,64}$/.test(name ?? '')) {
        throw new TypeError(`serve: expected a \`name\` of 1 to 64 letters, digits, '.', '_' and '-', got ${JSON.stringify(name)}`);
      }
      if (!isKey(key)) throw new TypeError('serve: expected a string as `key`');
      this.url = `${String(url).replace(/\/$/, '')}/${name}?role=server`;
      Object.assign(this, { key, timeout, WebSocket, sessions, onSession, onError });
      this.grant = Object.fromEntries(Object.entries(grant).map(([entry, value]) => [entry.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`), value]));
      this.lines = new Set();
      this.pause = PAUSE_MIN_MS;
      // A mistake in the options is told at once.
      this.begin();
    }

    begin() {
      return ask('server', 'client', this.key ?? null, this.grant, (incoming) => {
        load(incoming).then(() => [...this.lines].forEach((line) => line.turnLater()));
      });
    }

    /** Waits at the proxy for the next client. */
    wait() {
      if (this.stopped || this.waiting || this.lines.size >= this.sessions) return;
      const state = this.begin();
      const line = new Line(this.url, { WebSocket: this.WebSocket });
      line.state = state;
      this.waiting = line;
      this.lines.add(line);
      const { receive } = line;
      let isTaken = false;
      let limit;
      const opened = line.socket.onopen;
      line.socket.onopen = (event) => {
        this.pause = PAUSE_MIN_MS;
        opened(event);
        this.registered?.();
      };
      line.receive = (data) => {
        if (!isTaken) {
          // The first bytes are those of a client; the next one needs another connection.
          isTaken = true;
          // A client that does not prove its key must not keep others out.
          limit = setTimeout(() => {
            line.end(errorOf('TimeoutError', `the client has not opened its session within ${this.timeout} seconds`));
          }, this.timeout * 1000);
          this.waiting = undefined;
          this.wait();
        }
        receive.call(line, data);
      };
      line.opened = () => {
        clearTimeout(limit);
        this.onSession?.();
      };
      line.over = (error) => {
        clearTimeout(limit);
        this.lines.delete(line);
        if (isTaken) {
          this.wait();
          return;
        }
        this.waiting = undefined;
        if (this.stopped) return;
        this.onError?.(error);
        this.failed?.(error);
        if (this.stopped) return;
        this.retry = setTimeout(() => this.wait(), this.pause);
        this.pause = Math.min(this.pause * 2, PAUSE_MAX_MS);
      };
    }

    /** Ends the sessions and leaves the proxy. */
    stop() {
      this.stopped = true;
      clearTimeout(this.retry);
      for (const line of [...this.lines]) line.close();
    }
  }
  if (Symbol.dispose) Server.prototype[Symbol.dispose] = Server.prototype.stop;

  /**
   * Offers functions of this page to clients that reach it by a name at a proxy (`anyfn rpc proxy`). Returns the server once it waits
   * there; it then waits again after each client, and after the proxy was not reachable.
   */
  function serve(url, options = {}) {
    return new Promise((resolve, reject) => {
      const server = new Server(url, options);
      server.registered = () => {
        server.registered = server.failed = undefined;
        resolve(server);
      };
      server.failed = (error) => {
        server.stop();
        reject(error);
      };
      server.wait();
    });
  }

  /** Returns a new key with a name, for `connect` and `serve`. */
  const makeKey = (name) => ask('make_key', String(name));

  return { connect, serve, makeKey };
}

module.exports = { createSessions };
