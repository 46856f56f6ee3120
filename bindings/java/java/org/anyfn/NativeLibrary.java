package org.anyfn;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Set;

/**
 * Finds and loads the native libraries: the runtime, and the thin library between it and a Java VM. The runtime opens a third one, with the
 * drivers of devices, in the same folder when a device is first used.
 *
 * <p>A VM refuses to load a file for two class loaders. Each class loader therefore loads a copy of the thin library; a copy is used again
 * when its class loader is gone. All copies use the same runtime.
 */
final class NativeLibrary {
  private static final String RUNTIME = "libanyfn.so";
  private static final String DEVICES = "libanyfn_devices.so";
  private static final String THIN = "libanyfn_java.so";
  /** Maximum number of class loaders that use the package at the same time. */
  private static final int COPIES_MAX = 1000;

  private NativeLibrary() {}

  /** Loads the libraries for this class loader. */
  static void load() {
    String given = System.getProperty("org.anyfn.library.path");
    if (given != null) {
      Path folder = Path.of(given).toAbsolutePath();
      loadFrom(folder.resolve(RUNTIME), folder.resolve(THIN), null);
      return;
    }
    String platform = platform();
    byte[] runtime = resource(platform, RUNTIME);
    byte[] devices = resource(platform, DEVICES);
    byte[] thin = resource(platform, THIN);
    String digest = digest(runtime, devices, thin);
    if (!digest.equals(new String(resource(platform, "sha256"), StandardCharsets.US_ASCII).strip())) {
      throw new UnsatisfiedLinkError("the native libraries in the jar of anyfn are damaged: their digest is " + digest);
    }
    List<String> failures = new ArrayList<>();
    Throwable last = null;
    for (Path folder : candidates()) {
      Path ours = folder.resolve(digest.substring(0, 32));
      try {
        if (folder.equals(shared())) {
          // Otherwise another user could own the folder and replace ours.
          makePrivate(folder);
        }
        makePrivate(ours);
        place(ours.resolve(RUNTIME), runtime);
        place(ours.resolve(DEVICES), devices);
        place(ours.resolve(THIN), thin);
        loadFrom(ours.resolve(RUNTIME), ours.resolve(THIN), thin);
        return;
      } catch (IOException | UnsatisfiedLinkError | SecurityException failure) {
        failures.add("  " + ours + ": " + failure.getMessage());
        last = failure;
      }
    }
    UnsatisfiedLinkError error =
        new UnsatisfiedLinkError(
            "cannot load the native libraries of anyfn. The system property `org.anyfn.cache` names a folder into which they may be "
                + "extracted, `org.anyfn.library.path` one that contains them. Tried:\n" + String.join("\n", failures));
    error.initCause(last);
    throw error;
  }

  private static void loadFrom(Path runtime, Path thin, byte[] content) {
    for (int copy = 0; copy < COPIES_MAX; copy++) {
      Path file = copy == 0 ? thin : thin.resolveSibling("libanyfn_java-" + copy + ".so");
      try {
        if (copy > 0) {
          place(file, content != null ? content : Files.readAllBytes(thin));
        }
        System.load(file.toString());
      } catch (UnsatisfiedLinkError error) {
        if (String.valueOf(error.getMessage()).contains("another classloader")) {
          continue;
        }
        throw error;
      } catch (IOException error) {
        throw (UnsatisfiedLinkError) new UnsatisfiedLinkError("cannot copy " + thin + ": " + error.getMessage()).initCause(error);
      }
      byte[] reason = Native.attach(runtime.toString().getBytes(StandardCharsets.UTF_8), Callback.class);
      if (reason != null) {
        throw new UnsatisfiedLinkError(new String(reason, StandardCharsets.UTF_8));
      }
      return;
    }
    throw new UnsatisfiedLinkError(COPIES_MAX + " class loaders of this process use anyfn");
  }

  private static String platform() {
    String system = System.getProperty("os.name");
    String processor = System.getProperty("os.arch").toLowerCase(Locale.ROOT);
    String known =
        switch (processor) {
          case "amd64", "x86_64" -> "x86-64";
          case "aarch64", "arm64" -> "aarch64";
          default -> null;
        };
    if (!system.equals("Linux") || known == null) {
      throw new UnsatisfiedLinkError("anyfn has no native library for " + system + " on " + processor + "; it has for Linux on x86-64 and aarch64");
    }
    return "linux-" + known;
  }

  private static byte[] resource(String platform, String name) {
    try (InputStream stream = NativeLibrary.class.getResourceAsStream("native/" + platform + "/" + name)) {
      if (stream != null) {
        return stream.readAllBytes();
      }
    } catch (IOException error) {
      throw (UnsatisfiedLinkError) new UnsatisfiedLinkError("cannot read " + name + " in the jar of anyfn").initCause(error);
    }
    throw new UnsatisfiedLinkError(
        "this jar of anyfn has no native library for " + platform + "; the system property `org.anyfn.library.path` names a folder with " + RUNTIME
            + " and " + THIN);
  }

  /** Returns the digest of the libraries, in hexadecimal. */
  private static String digest(byte[]... contents) {
    try {
      MessageDigest digest = MessageDigest.getInstance("SHA-256");
      for (byte[] content : contents) {
        digest.update(content);
      }
      return HexFormat.of().formatHex(digest.digest());
    } catch (NoSuchAlgorithmException error) {
      throw new AssertionError("every Java platform has SHA-256", error);
    }
  }

  /** Returns the folders into which the libraries may be extracted, in the order in which they are tried. */
  private static List<Path> candidates() {
    String given = System.getProperty("org.anyfn.cache");
    if (given != null) {
      return List.of(Path.of(given).toAbsolutePath());
    }
    List<Path> folders = new ArrayList<>();
    String cache = System.getenv("XDG_CACHE_HOME");
    if (cache != null && cache.startsWith("/")) {
      folders.add(Path.of(cache, "anyfn", "java"));
    }
    folders.add(Path.of(System.getProperty("user.home"), ".cache", "anyfn", "java"));
    folders.add(shared());
    return folders;
  }

  /** Returns the folder in one that all users share. */
  private static Path shared() {
    return Path.of(System.getProperty("java.io.tmpdir"), "anyfn-java-" + System.getProperty("user.name")).toAbsolutePath();
  }

  /** Makes a folder that only this user may read, or checks that it is one. */
  private static void makePrivate(Path folder) throws IOException {
    Set<PosixFilePermission> ownerOnly = PosixFilePermissions.fromString("rwx------");
    if (folder.getParent() != null) {
      Files.createDirectories(folder.getParent());
    }
    if (!Files.isDirectory(folder, LinkOption.NOFOLLOW_LINKS)) {
      try {
        Files.createDirectory(folder, PosixFilePermissions.asFileAttribute(ownerOnly));
      } catch (java.nio.file.FileAlreadyExistsException error) {
        if (!Files.isDirectory(folder, LinkOption.NOFOLLOW_LINKS)) {
          throw error;
        }
      }
    }
    Path probe = Files.createTempFile(folder, "owner", null);
    try {
      if (!Files.getOwner(folder, LinkOption.NOFOLLOW_LINKS).equals(Files.getOwner(probe))) {
        throw new IOException("the folder belongs to another user");
      }
    } finally {
      Files.delete(probe);
    }
    if (!Files.getPosixFilePermissions(folder, LinkOption.NOFOLLOW_LINKS).equals(ownerOnly)) {
      throw new IOException("other users may use the folder; expected the permissions rwx------");
    }
  }

  /** Writes a file unless it exists with this content. Other processes see the old file or the whole new one. */
  private static void place(Path file, byte[] content) throws IOException {
    if (Files.isRegularFile(file, LinkOption.NOFOLLOW_LINKS) && Files.size(file) == content.length && MessageDigest.isEqual(Files.readAllBytes(file), content)) {
      return;
    }
    Path written = Files.createTempFile(file.getParent(), "new", ".so");
    try {
      Files.write(written, content);
      Files.move(written, file, StandardCopyOption.ATOMIC_MOVE);
    } finally {
      Files.deleteIfExists(written);
    }
  }
}
