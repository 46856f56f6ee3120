/**
 * Functions that are defined in any language and called from any other.
 *
 * <p>{@link org.anyfn.Function} is a native function, and {@link org.anyfn.PackedFunc} the interface of native functions and lambdas. {@link
 * org.anyfn.Module} is a library of functions, {@link org.anyfn.Tensor} an array of numbers, and {@link org.anyfn.ObjectRef} any other native
 * object. Objects are released when the garbage collector frees them, or by {@code close}.
 *
 * <p>Types without {@code @Nullable} do not include null. The annotations are those of JSpecify, which programs do not need at run time.
 */
@NullMarked
package org.anyfn;

import org.jspecify.annotations.NullMarked;
