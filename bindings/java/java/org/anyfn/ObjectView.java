package org.anyfn;

/**
 * A Java object that stands for a native one, such as an accessor that {@link Accessors} has written. Where a value is passed to native
 * code, the native object is passed.
 */
public interface ObjectView {
  /**
   * Returns the native object.
   *
   * @return the object
   */
  ObjectRef object();

  /**
   * Checks that an object is of a type, or of one that derives from it.
   *
   * @param object the object
   * @param typeKey the key of the type
   * @throws AnyfnException.TypeError if it is of another type
   */
  static void check(ObjectRef object, String typeKey) {
    if (!ObjectType.of(typeKey).isAssignableFrom(object.type())) {
      throw new AnyfnException.TypeError("expected an object of type " + typeKey + ", got " + object.typeKey());
    }
  }
}
