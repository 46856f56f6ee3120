package org.anyfn;

import java.lang.ref.Reference;
import org.jspecify.annotations.Nullable;

/** A native object. Its fields are read and set by name, whatever language defines its type. */
public sealed class ObjectRef implements NativeObject permits Function, Tensor, Module, Shape {
  final Handle handle;
  final int typeIndex;

  ObjectRef(long address, int typeIndex) {
    this.typeIndex = typeIndex;
    handle = Handle.of(this, address);
  }

  /** Returns the address of the native object, and keeps it alive until {@link Handle#leave} is called. */
  final long enter() {
    long object = handle.enter();
    // Without this, the object might be collected, and so closed, before its handle is in use.
    Reference.reachabilityFence(this);
    return object;
  }

  /** Returns a new reference of the native object. */
  final long retained() {
    long object = handle.retained();
    Reference.reachabilityFence(this);
    return object;
  }

  /**
   * Reads a field.
   *
   * @param name the name of the field
   * @return its value
   * @throws AnyfnException.AttributeError if there is no such field
   */
  public @Nullable Object field(String name) {
    ObjectType.Field found = ObjectType.ofIndex(typeIndex).find(name);
    long object = enter();
    try {
      return Frame.read(
          (frame, room) -> {
            Native.getField(object, found.typeIndex(), found.position(), frame, room);
            return true;
          });
    } finally {
      handle.leave();
    }
  }

  /**
   * Sets a field.
   *
   * @param name the name of the field
   * @param value the new value
   * @throws AnyfnException.AttributeError if there is no such field
   * @throws AnyfnException.TypeError if the value has the wrong type, or the field is read-only
   */
  public void setField(String name, @Nullable Object value) {
    ObjectType.Field found = ObjectType.ofIndex(typeIndex).find(name);
    long object = enter();
    try {
      Frame.write(value, place -> Native.setField(object, found.typeIndex(), found.position(), place));
    } finally {
      handle.leave();
    }
  }

  /**
   * Calls a method of the object's type.
   *
   * @param method the name of the method
   * @param args the arguments after the object. A static method receives only these
   * @return the result
   * @throws AnyfnException.AttributeError if there is no such method
   */
  public @Nullable Object call(String method, @Nullable Object... args) {
    return ObjectType.ofIndex(typeIndex).call(this, method, args);
  }

  /**
   * Returns the type of the object.
   *
   * @return the type
   */
  public ObjectType type() {
    return ObjectType.ofIndex(typeIndex);
  }

  /**
   * Reads the fields into a record, whose components have the names of fields.
   *
   * @param <R> the class of the record
   * @param record the class of the record
   * @return a new record
   */
  public <R extends Record> R toRecord(Class<R> record) {
    return ObjectType.toRecord(this, record);
  }

  @Override
  public String typeKey() {
    return Value.text(Native.typeKey(typeIndex));
  }

  @Override
  public boolean isSame(@Nullable Object other) {
    return Value.isSame(this, other);
  }

  /** Returns true if the other object refers to the same native object. {@link Graph#isEqual} compares the fields. */
  @Override
  public boolean equals(@Nullable Object other) {
    return isSame(other);
  }

  @Override
  public int hashCode() {
    return Long.hashCode(handle.identity());
  }

  @Override
  public String toString() {
    return isClosed() ? "closed " + typeKey() : (String) Globals.call("ffi.ReprPrint", this);
  }

  @Override
  public void close() {
    handle.close();
  }

  @Override
  public boolean isClosed() {
    return handle.isClosed();
  }
}
