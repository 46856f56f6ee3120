package org.anyfn;

import static org.anyfn.Runner.check;
import static org.anyfn.Runner.equal;
import static org.anyfn.Runner.fails;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** Sessions: Java as client and as server. */
final class SessionTest {
  private SessionTest() {}

  /** The program of a process that serves sessions. */
  static final class Worker {
    public static void main(String[] args) {
      Function.register("java.worker.add", given -> (Long) given[0] + (Long) given[1]);
      Function.register("java.worker.apply", given -> ((PackedFunc) given[0]).invoke(given[1]));
      Function.register("java.worker.fail", given -> {
        throw new AnyfnException.KeyError("in the worker");
      });
      Function.register("java.worker.sum", given -> {
        double sum = 0;
        for (float element : ((Tensor) given[0]).toFloatArray()) {
          sum += element;
        }
        return sum;
      });
      Function.register("java.worker.fill", given -> {
        float[] elements = new float[(int) ((Tensor) given[0]).size()];
        java.util.Arrays.fill(elements, (Long) given[1]);
        ((Tensor) given[0]).set(elements);
        return null;
      });
      if (args.length == 0) {
        Session.serveSpawned();
      } else {
        Session.serveClient();
      }
      System.exit(0);
    }
  }

  static List<String> worker(String... args) {
    List<String> command = new ArrayList<>(Runner.java());
    command.add(Worker.class.getName());
    command.addAll(List.of(args));
    return command;
  }

  private static void use(Session session) throws Exception {
    equal(session.getFunction("java.worker.add").invoke(40, 2), 42L);
    equal(session.getFunction("java.worker.add").invokeAsync(1, 2).get(20, TimeUnit.SECONDS), 3L);
    // The peer calls back.
    equal(session.getFunction("java.worker.apply").invoke((PackedFunc) args -> args[0] + " and back", "there"), "there and back");
    AnyfnException error = fails(AnyfnException.KeyError.class, () -> session.getFunction("java.worker.fail").invoke());
    check(error.getMessage().contains("in the worker"), error.getMessage());
    ObjectRef there = session.send(Tensor.of(new float[] {1, 2, 3}));
    equal(session.getFunction("java.worker.sum").invoke(there), 6.0);
    session.getFunction("java.worker.fill").invoke(there, 7);
    equal(session.fetch(there).toFloatArray()[2], 7f);
  }

  @Test
  static void closing() throws Exception {
    Session session = Session.spawn(worker());
    session.close();
    session.close();
    check(session.object().isClosed(), "it is closed");
    Session failing = Session.spawn(worker());
    failing.object().close();
    failing.close();
    Session.Server server = Session.Server.start(worker("client"), Map.of("grant", Map.of("functions", List.of("java.worker.*"))));
    server.close();
    server.close();
  }

  @Test
  static void spawned() throws Exception {
    try (Session session = Session.spawn(worker())) {
      use(session);
      check(session.info().containsKey("version"), "info " + session.info());
    }
  }

  @Test
  static void serverWithKey() throws Exception {
    Path folder = Samples.folder();
    Path key = folder.resolve("client.key");
    Files.createFile(key, PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
    Files.writeString(key, (String) Function.get("rpc.make_key").invoke("java"));
    Map<String, ?> options = Map.of("key_file", key.toString(), "grant", Map.of("functions", List.of("java.worker.*")));
    try (Session.Server server = Session.Server.start(worker("client"), options)) {
      try (Session session = Session.connect(server.host(), server.port(), key)) {
        use(session);
        fails(AnyfnException.PermissionError.class, () -> session.getFunction("ffi.Shape").invoke(1));
      }
      fails(AnyfnException.class, () -> Session.connect(server.host(), server.port()));
    }
    LibrariesTest.delete(folder);
  }

  @Test
  static void noServer() {
    fails(AnyfnException.ConnectionError.class, () -> Session.connect("127.0.0.1", 1));
  }
}
