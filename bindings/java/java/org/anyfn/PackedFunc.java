package org.anyfn;

import org.jspecify.annotations.Nullable;

/**
 * A function that takes any values and returns any value. Native functions ({@link Function}) are instances, and a lambda of this type can
 * be passed to native code, which may keep it and call it later from any thread.
 *
 * <p>Arguments and results are values of these classes, in both directions:
 *
 * <table>
 * <caption>Conversions</caption>
 * <tr><th>Java to native</th><th>native type</th><th>native to Java</th></tr>
 * <tr><td>{@code null}</td><td>None</td><td>{@code null}</td></tr>
 * <tr><td>{@link Long}, {@link Integer}, {@link Short}, {@link Byte}</td><td>int</td><td>{@link Long}</td></tr>
 * <tr><td>{@link java.math.BigInteger}</td><td>int, or {@code ffi.BigInt} beyond 64 bits</td><td>{@link Long}, {@link java.math.BigInteger}</td></tr>
 * <tr><td>{@link Double}, {@link Float}</td><td>float</td><td>{@link Double}</td></tr>
 * <tr><td>{@link Boolean}</td><td>bool</td><td>{@link Boolean}</td></tr>
 * <tr><td>{@link String}</td><td>string</td><td>{@link String}</td></tr>
 * <tr><td>{@code byte[]}</td><td>bytes</td><td>{@code byte[]}</td></tr>
 * <tr><td>{@link java.util.List}, {@code Object[]}</td><td>{@code ffi.Array}</td><td>{@link ArrayRef}</td></tr>
 * <tr><td>{@link java.util.Map}</td><td>{@code ffi.Map}</td><td>{@link MapRef}</td></tr>
 * <tr><td>direct buffers of {@link java.nio}</td><td>tensor over the same memory</td><td>{@link Tensor}</td></tr>
 * <tr><td>{@link PackedFunc}</td><td>function</td><td>the same object if it is a lambda, otherwise {@link Function}</td></tr>
 * <tr><td>other functional interfaces, see {@link Function#from}</td><td>function</td><td>{@link Function}</td></tr>
 * <tr><td>records of types that {@link ObjectType#define(String, Class)} has defined</td><td>an object</td><td>{@link ObjectRef}</td></tr>
 * <tr><td>{@link Throwable}</td><td>{@code ffi.Error}</td><td>the same exception</td></tr>
 * <tr><td>{@link DType}, {@link Device}, {@link OpaquePointer}</td><td>data type, device, pointer</td><td>the same class</td></tr>
 * <tr><td>{@link NativeObject}</td><td>the object</td><td>an object of the same class</td></tr>
 * </table>
 */
@FunctionalInterface
public interface PackedFunc {
  /**
   * Calls the function.
   *
   * @param args the arguments
   * @return the result, or null
   * @throws Exception what the function throws. An exception that leaves a lambda passes through native code unchanged
   */
  @Nullable Object invoke(@Nullable Object... args) throws Exception;
}
