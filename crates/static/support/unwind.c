/*
 * The precompiled libraries of Rust refer to this function, which continues the unwinding of the stack. The runtime does not unwind,
 * so it is never called. Programs without a C library and libraries are linked with it, so that they need no library of the compiler.
 */
#include <stdlib.h>

void _Unwind_Resume(void* exception) {
  (void)exception;
  abort();
}
