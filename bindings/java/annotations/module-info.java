/** What the package needs of JSpecify to be compiled: the names of two annotations. Nothing of this is in the jar. */
module org.jspecify {
  exports org.jspecify.annotations;
}
