package org.anyfn;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A connection to a process, here or on another machine. Functions, containers and objects pass in both directions.
 *
 * <p>Calls wait for the peer. On virtual threads use {@link Function#invokeAsync(Object...)}, which waits elsewhere.
 */
public final class Session implements AutoCloseable {
  /** First bytes of a shared library. */
  private static final byte[] ELF = {0x7f, 'E', 'L', 'F'};

  private final ObjectRef session;

  private Session(Object session) {
    this.session = (ObjectRef) session;
  }

  /**
   * Connects to a server without a key, which is possible on loopback addresses.
   *
   * @param host the name or address of the machine
   * @param port the port
   * @return the session
   * @throws AnyfnException.ConnectionError if there is no such server
   */
  public static Session connect(String host, int port) {
    return new Session(Globals.call("rpc.connect", host, port));
  }

  /**
   * Connects to a server with a key.
   *
   * @param host the name or address of the machine
   * @param port the port
   * @param keyFile a file with the key, which only its owner may read
   * @return the session
   * @throws AnyfnException.ConnectionError if there is no such server, or it does not know the key
   */
  public static Session connect(String host, int port, Path keyFile) {
    return new Session(Globals.call("rpc.connect", host, port, null, null, keyFile.toString()));
  }

  /**
   * Connects to a server that may take long to begin the session, such as one on an emulated board.
   *
   * @param host the name or address of the machine
   * @param port the port
   * @param keyFile a file with the key, which only its owner may read, or null for a server without keys
   * @param limit the time until the session must have begun; that of the other methods is 10 seconds
   * @return the session
   * @throws AnyfnException.ConnectionError if there is no such server, or it does not know the key
   * @throws AnyfnException.TimeoutError if the session has not begun in time
   */
  public static Session connect(String host, int port, @Nullable Path keyFile, Duration limit) {
    return new Session(Globals.call("rpc.connect", host, port, null, limit.toNanos() * 1e-9, keyFile == null ? null : keyFile.toString()));
  }

  /**
   * Starts a program and connects to it. The program must call the global function {@code rpc.serve_spawned}, see {@link #serveSpawned}.
   *
   * @param command the program and its arguments
   * @return the session
   */
  public static Session spawn(List<String> command) {
    return new Session(Globals.call("rpc.spawn", command));
  }

  /** Serves the session of {@link #spawn} until it ends. The program that {@code spawn} starts calls this. */
  public static void serveSpawned() {
    Globals.call("rpc.serve_spawned");
  }

  /** Serves a client of a {@link Server} until it ends. The program that the server starts for each client calls this. */
  public static void serveClient() {
    Globals.call("rpc.serve_session");
  }

  /**
   * Returns a function of the peer.
   *
   * @param name the name of a global function there
   * @return a function that calls it
   * @throws AnyfnException if there is none, or the session may not call it
   */
  public Function getFunction(String name) {
    return (Function) session.call("get_function", name);
  }

  /**
   * Registers a function at the peer: it runs here.
   *
   * @param name the name
   * @param function the function
   */
  public void setFunction(String name, PackedFunc function) {
    session.call("set_function", name, function);
  }

  /**
   * Uploads a library to the peer, and loads it there. A file that the peer already has is not sent again.
   *
   * @param library a shared library for the processor of the peer
   * @return a module whose functions run at the peer
   * @throws IOException if the file cannot be read
   * @throws IllegalArgumentException if the file is not a shared library; nothing is sent
   * @throws AnyfnException.PermissionError if the session may not upload
   */
  public Module load(Path library) throws IOException {
    byte[] content = Files.readAllBytes(library);
    // A file that was named by mistake may contain secrets.
    if (content.length < ELF.length || !Arrays.equals(content, 0, ELF.length, ELF, 0, ELF.length)) {
      throw new IllegalArgumentException("cannot load " + library + ": it is not a shared library (an ELF file)");
    }
    return (Module) session.call("load_file", session.call("send_file", (Object) content));
  }

  /**
   * Copies a tensor to the peer.
   *
   * @param tensor a tensor of this process
   * @return the tensor at the peer, to be passed to functions of the session
   */
  public ObjectRef send(Tensor tensor) {
    try (Shape shape = Shape.of(tensor.shape())) {
      ObjectRef remote = (ObjectRef) session.call("allocate", shape, tensor.dtype());
      remote.call("write", tensor);
      return remote;
    }
  }

  /**
   * Copies a tensor from the peer.
   *
   * @param remote a tensor at the peer
   * @return a tensor of this process
   */
  public Tensor fetch(ObjectRef remote) {
    Shape shape = (Shape) remote.field("shape");
    Tensor tensor = Tensor.zeros((DType) remote.field("dtype"), shape.toArray());
    remote.call("read", tensor);
    return tensor;
  }

  /**
   * Describes the peer: version, operating system, devices, permissions.
   *
   * @return the description
   */
  public Map<?, ?> info() {
    return (Map<?, ?>) session.call("info");
  }

  /**
   * Returns the native object of the session, with its other methods.
   *
   * @return the object
   */
  public ObjectRef object() {
    return session;
  }

  /** Ends the session. Does nothing if it was closed. */
  @Override
  public void close() {
    if (session.isClosed()) {
      return;
    }
    try {
      session.call("close");
    } finally {
      session.close();
    }
  }

  /** A server on a thread of this process, which starts a process for each client. */
  public static final class Server implements AutoCloseable {
    private final ObjectRef server;

    private Server(Object server) {
      this.server = (ObjectRef) server;
    }

    /**
     * Starts a server.
     *
     * @param worker the command line of the processes of its clients, which call {@link Session#serveClient}
     * @param options {@code host}, {@code port}, {@code key_file}, {@code grant} and so on, as docs/rpc-server.md describes them
     * @return the server
     */
    public static Server start(List<String> worker, Map<String, ?> options) {
      return new Server(Globals.call("rpc.start_server", worker, json(options)));
    }

    /**
     * Returns the address at which the server listens.
     *
     * @return the address
     */
    public String host() {
      return (String) server.field("host");
    }

    /**
     * Returns the port at which the server listens.
     *
     * @return the port
     */
    public int port() {
      return Math.toIntExact((Long) server.field("port"));
    }

    /** Ends the server and its sessions. Does nothing if it was closed. */
    @Override
    public void close() {
      if (server.isClosed()) {
        return;
      }
      try {
        server.call("stop");
      } finally {
        server.close();
      }
    }
  }

  private static String json(Object value) {
    if (value instanceof Map<?, ?> map) {
      List<String> entries = new ArrayList<>();
      map.forEach((name, entry) -> entries.add(json(name) + ":" + json(entry)));
      return "{" + String.join(",", entries) + "}";
    }
    if (value instanceof Iterable<?> list) {
      List<String> elements = new ArrayList<>();
      list.forEach(element -> elements.add(json(element)));
      return "[" + String.join(",", elements) + "]";
    }
    if (value instanceof Number || value instanceof Boolean || value == null) {
      return String.valueOf(value);
    }
    StringBuilder text = new StringBuilder("\"");
    for (char c : value.toString().toCharArray()) {
      if (c < ' ' || c == '"' || c == '\\') {
        text.append(String.format("\\u%04x", (int) c));
      } else {
        text.append(c);
      }
    }
    return text.append('"').toString();
  }
}
