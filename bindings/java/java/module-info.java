/**
 * Functions that are defined in any language and called from any other.
 *
 * <p>The module loads a native library, so JDK 24 and later print a warning unless the program is started with
 * {@code --enable-native-access=org.anyfn}, or {@code ALL-UNNAMED} if the jar is on the class path.
 */
module org.anyfn {
  requires static org.jspecify;

  exports org.anyfn;
}
