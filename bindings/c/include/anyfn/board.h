/*
 * What a program on a board without an operating system needs besides the rest of the C API: docs/boards.md is the guide.
 *
 *     #include <anyfn/anyfn.h>
 *     #include <anyfn/board.h>
 *
 *     ANYFN_LINKED(matmul)                     // the kernel `matmul.o`, which `module.export` has written
 *
 *     int main(void) {
 *       static const char* const grants[] = {"ffi.SystemLib", "anyfn.board.*"};
 *       anyfn_board_serve(grants, 2);          // sessions over the serial line; does not return
 *     }
 *
 * Link `libanyfn_board.a`, and an implementation of the functions of the first part, such as
 * `crates/board/support/stm32f405/board.c`. Memory comes from `malloc`, `memalign`, `realloc` and `free` of the C library.
 */
#ifndef ANYFN_BOARD_H_
#define ANYFN_BOARD_H_

#include <anyfn/c_api.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- Services that the board provides ------------------------------------------------------------------------------------------ */

/** Returns the number of cycles of the processor's clock since some time in the past. Never decreases. */
uint64_t anyfn_board_cycles(void);

/** Returns the number of cycles per second, which is not 0. */
uint32_t anyfn_board_hz(void);

/** Disables interrupts. Returns the previous state for anyfn_board_leave(). Calls may nest. */
uint32_t anyfn_board_enter(void);

/** Restores the state that anyfn_board_enter() has returned. */
void anyfn_board_leave(uint32_t state);

/** Prints text for the developer, such as the reason for the end of the program. May do nothing. */
void anyfn_board_log(const char* text, size_t size);

/** Ends the program after an error that it cannot survive, for example by a reset. Must not return. */
void anyfn_board_stop(void);

/** Takes at most `size` bytes that have arrived on the serial line and returns their number, without waiting. Only for sessions. */
size_t anyfn_board_read(void* out, size_t size);

/** Sends bytes over the serial line, and may wait until they are sent. Only for sessions. */
void anyfn_board_write(const void* bytes, size_t size);

/** Waits until an interrupt occurs, at most some 100 ms. May return at any time, or at once. Only for sessions. */
void anyfn_board_wait(void);

/** Returns the number of bytes of flash that the program occupies; 0 if that is not known. Only for sessions. */
size_t anyfn_board_flash(void);

/** Returns the number of bytes of RAM that the program has used so far (variables, heap, the deepest stack), or 0. Only for sessions. */
size_t anyfn_board_ram(void);

/* --- Functions for the program -------------------------------------------------------------------------------------------------- */

/**
 * Serves sessions over the serial line, one after the other, and does not return. A client may look up the global functions whose names
 * `grants` contains; a name that ends in `*` stands for all names with this prefix.
 */
void anyfn_board_serve(const char* const* grants, size_t count);

/** Takes the raised error and prints its kind and message by anyfn_board_log(). */
void anyfn_board_print_error(void);

/**
 * Registers the compiled function `name`, which is linked into the program, before `main` begins. The module that `ffi.SystemLib`
 * returns contains it.
 */
#define ANYFN_LINKED(name)                                                                                              \
  extern int __tvm_ffi_##name(void* context, const TVMFFIAny* args, int32_t count, TVMFFIAny* result);               \
  __attribute__((constructor)) static void anyfn_linked_##name(void) {                                                  \
    (void)TVMFFIEnvModRegisterSystemLibSymbol("__tvm_ffi_" #name, (void*)(uintptr_t)&__tvm_ffi_##name);                  \
  }

/* --- Functions of the support for boards of this project ------------------------------------------------------------------------ */

/** Ends an emulated program with an exit status; on a real chip, waits forever. */
void anyfn_board_exit(int code);

#ifdef __cplusplus
}
#endif

#endif /* ANYFN_BOARD_H_ */
