/*
 * Start-up code and the C functions that a program without a C library needs: compiled functions, <anyfn/anyfn.h> and the runtime call
 * them. `module.export("program", ["main.c"], runtime="static")` compiles this file and links it with -ffunction-sections and
 * --gc-sections, so a program contains only the functions that it uses. For Linux on x86-64 and AArch64; the program has one thread.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- System calls ----------------------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
enum {
  READ = 0, WRITE = 1, CLOSE = 3, LSEEK = 8, MMAP = 9, MUNMAP = 11, YIELD = 24, GETPID = 39, KILL = 62, SET_TLS = 158, EXIT = 231,
  OPENAT = 257
};

static long system_call(long number, long a, long b, long c, long d, long e, long f) {
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}

__asm__(".globl _start\n.type _start, @function\n_start:\n  xor %ebp, %ebp\n  mov %rsp, %rdi\n  and $-16, %rsp\n  call anyfn_start\n  hlt\n");
#elif defined(__aarch64__)
enum {
  OPENAT = 56, CLOSE = 57, LSEEK = 62, READ = 63, WRITE = 64, EXIT = 94, YIELD = 124, KILL = 129, GETPID = 172, MUNMAP = 215, MMAP = 222
};

static long system_call(long number, long a, long b, long c, long d, long e, long f) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}

__asm__(".globl _start\n.type _start, %function\n_start:\n  mov x29, #0\n  mov x30, #0\n  mov x0, sp\n  bl anyfn_start\n  brk #1\n");
#else
#error "programs without a C library exist for x86-64 and AArch64 only"
#endif

/* The file <errno.h> declares `errno` by this function. */
int* __errno_location(void) {
  static int number;
  return &number;
}

/* Returns the result of a system call, or -1 with the number of the error in `errno`. */
static long checked(long result) {
  if (result >= 0 || result < -4095) return result;
  *__errno_location() = (int)-result;
  return -1;
}

ssize_t read(int file, void* out, size_t size) { return checked(system_call(READ, file, (long)out, (long)size, 0, 0, 0)); }
ssize_t write(int file, const void* bytes, size_t size) {
  return checked(system_call(WRITE, file, (long)bytes, (long)size, 0, 0, 0));
}
int sched_yield(void) { return (int)system_call(YIELD, 0, 0, 0, 0, 0, 0); }
int close(int file) { return (int)checked(system_call(CLOSE, file, 0, 0, 0, 0, 0)); }
off_t lseek(int file, off_t offset, int from) { return checked(system_call(LSEEK, file, offset, from, 0, 0, 0)); }

int open(const char* path, int flags, ...) {
  va_list args;
  int mode;
  va_start(args, flags);
  mode = flags & O_CREAT ? va_arg(args, int) : 0;
  va_end(args);
  return (int)checked(system_call(OPENAT, AT_FDCWD, (long)path, flags, mode, 0, 0));
}

void _exit(int code) {
  for (;;) system_call(EXIT, code, 0, 0, 0, 0, 0);
}

void abort(void) {
  system_call(KILL, system_call(GETPID, 0, 0, 0, 0, 0, 0), 6 /* SIGABRT */, 0, 0, 0, 0);
  _exit(127);
}

/* --- Bytes ------------------------------------------------------------------------------------------------------------------------- */

/* Compilers replace loops by calls of these functions, also in the functions themselves. */
#if defined(__clang__)
#define KEEP_LOOPS __attribute__((no_builtin))
#else
#define KEEP_LOOPS __attribute__((optimize("no-tree-loop-distribute-patterns")))
#endif

KEEP_LOOPS void* memcpy(void* to, const void* from, size_t size) {
#if defined(__x86_64__)
  void* at = to;
  __asm__ volatile("rep movsb" : "+D"(at), "+S"(from), "+c"(size) : : "memory");
#else
  for (size_t i = 0; i < size; ++i) ((char*)to)[i] = ((const char*)from)[i];
#endif
  return to;
}

KEEP_LOOPS void* memmove(void* to, const void* from, size_t size) {
  if ((uintptr_t)to - (uintptr_t)from >= size) return memcpy(to, from, size);
  while (size-- > 0) ((char*)to)[size] = ((const char*)from)[size];
  return to;
}

KEEP_LOOPS void* memset(void* out, int byte, size_t size) {
#if defined(__x86_64__)
  void* at = out;
  __asm__ volatile("rep stosb" : "+D"(at), "+c"(size) : "a"(byte) : "memory");
#else
  for (size_t i = 0; i < size; ++i) ((char*)out)[i] = (char)byte;
#endif
  return out;
}

KEEP_LOOPS int memcmp(const void* a, const void* b, size_t size) {
  const unsigned char *left = a, *right = b;
  for (; size > 0; --size, ++left, ++right) {
    if (*left != *right) return *left - *right;
  }
  return 0;
}

/* Returns 0 for equal bytes. */
int bcmp(const void* a, const void* b, size_t size) { return memcmp(a, b, size); }

KEEP_LOOPS size_t strlen(const char* text) {
  size_t size = 0;
  while (text[size]) ++size;
  return size;
}

KEEP_LOOPS int strcmp(const char* a, const char* b) {
  while (*a && *a == *b) ++a, ++b;
  return (unsigned char)*a - (unsigned char)*b;
}

/* --- Memory ------------------------------------------------------------------------------------------------------------------------ */

/* Each block begins with a head. Blocks of at most LARGE bytes have powers of two as sizes and are kept in lists when they are freed;
   larger ones are mappings of their own. */
typedef struct Head {
  size_t capacity; /* Bytes behind this head. */
  struct Head* block;
} Head;

enum { LARGE = 1 << 16, ARENA = 1 << 18, PAGE = 4096 };

/* Freed blocks of 2^n bytes. */
static Head* freed[17];
static char *arena, *arena_end;

static void* map(size_t size) {
  const long memory = system_call(MMAP, 0, (long)size, 3 /* read, write */, 0x22 /* private, anonymous */, -1, 0);
  return memory < 0 && memory >= -4095 ? NULL : (void*)memory;
}

void* malloc(size_t size) {
  size_t whole = sizeof(Head) * 2;
  int bin = 5;
  Head* block;
  if (size > PTRDIFF_MAX - 2 * PAGE) return NULL;
  if (size + sizeof(Head) > LARGE) {
    whole = (size + sizeof(Head) + PAGE - 1) / PAGE * PAGE;
    block = map(whole);
    if (block == NULL) return NULL;
  } else {
    for (; whole < size + sizeof(Head); whole *= 2) ++bin;
    block = freed[bin];
    if (block != NULL) {
      freed[bin] = block->block;
    } else {
      if ((size_t)(arena_end - arena) < whole) {
        char* fresh = map(ARENA);
        if (fresh == NULL) return NULL;
        arena = fresh, arena_end = fresh + ARENA;
      }
      block = (Head*)arena;
      arena += whole;
    }
  }
  block->capacity = whole - sizeof(Head);
  block->block = block;
  return block + 1;
}

void free(void* memory) {
  Head* block;
  size_t whole;
  int bin = 5;
  if (memory == NULL) return;
  block = ((Head*)memory - 1)->block;
  whole = block->capacity + sizeof(Head);
  if (whole > LARGE) {
    system_call(MUNMAP, (long)block, (long)whole, 0, 0, 0, 0);
    return;
  }
  while ((size_t)1 << bin < whole) ++bin;
  block->block = freed[bin];
  freed[bin] = block;
}

int posix_memalign(void** out, size_t alignment, size_t size) {
  uintptr_t memory, aligned;
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) return 22 /* EINVAL */;
  if (size > PTRDIFF_MAX || alignment > PTRDIFF_MAX - size) return 12 /* ENOMEM */;
  memory = (uintptr_t)malloc(alignment <= sizeof(Head) ? size : size + alignment);
  if (memory == 0) return 12 /* ENOMEM */;
  aligned = (memory + alignment - 1) & ~(uintptr_t)(alignment - 1);
  if (aligned != memory) {
    Head* head = (Head*)(aligned - sizeof(Head));
    head->block = (Head*)(memory - sizeof(Head));
    head->capacity = head->block->capacity - (aligned - memory);
  }
  *out = (void*)aligned;
  return 0;
}

void* aligned_alloc(size_t alignment, size_t size) {
  void* memory;
  return posix_memalign(&memory, alignment, size) ? NULL : memory;
}

void* calloc(size_t count, size_t size) {
  size_t whole;
  void* memory = __builtin_mul_overflow(count, size, &whole) ? NULL : malloc(whole);
  return memory == NULL ? NULL : memset(memory, 0, whole);
}

void* realloc(void* memory, size_t size) {
  void* larger;
  if (memory == NULL) return malloc(size);
  if (((Head*)memory - 1)->capacity >= size) return memory;
  larger = malloc(size);
  if (larger == NULL) return NULL;
  memcpy(larger, memory, ((Head*)memory - 1)->capacity);
  free(memory);
  return larger;
}

/* --- Printing: without buffers, in the formats of `format.c` ----------------------------------------------------------------------- */

#undef stdin
#undef stdout
#undef stderr
/* A stream is the number of its file, increased by one. */
FILE* stdin = (FILE*)(uintptr_t)1;
FILE* stdout = (FILE*)(uintptr_t)2;
FILE* stderr = (FILE*)(uintptr_t)3;

static int put(FILE* stream, const char* bytes, size_t size) {
  while (size > 0) {
    const ssize_t written = write((int)(uintptr_t)stream - 1, bytes, size);
    if (written < 0 && *__errno_location() == 4 /* EINTR */) continue;
    if (written <= 0) return EOF;
    bytes += written, size -= (size_t)written;
  }
  return 0;
}

int vfprintf(FILE* stream, const char* format, va_list args) {
  char text[1024];
  const int length = vsnprintf(text, sizeof text, format, args);
  return put(stream, text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1) ? EOF : length;
}

int fprintf(FILE* stream, const char* format, ...) {
  va_list args;
  int length;
  va_start(args, format);
  length = vfprintf(stream, format, args);
  va_end(args);
  return length;
}

int printf(const char* format, ...) {
  va_list args;
  int length;
  va_start(args, format);
  length = vfprintf(stdout, format, args);
  va_end(args);
  return length;
}

size_t fwrite(const void* bytes, size_t size, size_t count, FILE* stream) {
  return put(stream, bytes, size * count) ? 0 : count;
}
int fputs(const char* text, FILE* stream) { return put(stream, text, strlen(text)); }
int fputc(int letter, FILE* stream) {
  const char byte = (char)letter;
  return put(stream, &byte, 1) ? EOF : (unsigned char)byte;
}
#undef putc
int putc(int letter, FILE* stream) { return fputc(letter, stream); }
#undef putchar
int putchar(int letter) { return fputc(letter, stdout); }
int puts(const char* text) { return fputs(text, stdout) || putchar('\n') == EOF ? EOF : 0; }

/* --- What the options of some compilers call: checks of buffers and of the stack --------------------------------------------------- */

void __stack_chk_fail(void) {
  fputs("the stack of the program was overwritten\n", stderr);
  abort();
}

/* AArch64 compares with this variable; x86-64 with a word of the thread's block. */
uintptr_t __stack_chk_guard = (uintptr_t)0x5bd1e995a3c6f700;

static void check_size(size_t size, size_t room) {
  if (size > room) __stack_chk_fail();
}

void* __memcpy_chk(void* to, const void* from, size_t size, size_t room) {
  check_size(size, room);
  return memcpy(to, from, size);
}

void* __memset_chk(void* out, int byte, size_t size, size_t room) {
  check_size(size, room);
  return memset(out, byte, size);
}

void* __memmove_chk(void* to, const void* from, size_t size, size_t room) {
  check_size(size, room);
  return memmove(to, from, size);
}

int __vfprintf_chk(FILE* stream, int flag, const char* format, va_list args) {
  (void)flag;
  return vfprintf(stream, format, args);
}

int __fprintf_chk(FILE* stream, int flag, const char* format, ...) {
  va_list args;
  int length;
  (void)flag;
  va_start(args, format);
  length = vfprintf(stream, format, args);
  va_end(args);
  return length;
}

int __printf_chk(int flag, const char* format, ...) {
  va_list args;
  int length;
  (void)flag;
  va_start(args, format);
  length = vfprintf(stdout, format, args);
  va_end(args);
  return length;
}

int __vsnprintf_chk(char* out, size_t size, int flag, size_t room, const char* format, va_list args) {
  (void)flag;
  check_size(size, room);
  return vsnprintf(out, size, format, args);
}

int __snprintf_chk(char* out, size_t size, int flag, size_t room, const char* format, ...) {
  va_list args;
  int length;
  (void)flag;
  check_size(size, room);
  va_start(args, format);
  length = vsnprintf(out, size, format, args);
  va_end(args);
  return length;
}

/* --- Start and end ----------------------------------------------------------------------------------------------------------------- */

typedef void (*Step)(int argc, char** argv, char** envp);
extern const Step __init_array_start[], __init_array_end[];
extern int main(int argc, char** argv, char** envp);
extern const unsigned char __ehdr_start[];

typedef struct {
  uint32_t type, flags;
  uint64_t offset, address, physical, file_size, memory_size, alignment;
} Segment;

/* Makes the block of thread-local variables, as the linker has laid it out for a program with one thread. */
static void make_thread_block(void) {
  /* Behind the variables, x86-64 has the address of this place and, at 40 bytes, the value that guards the stack. Before them, AArch64
     has 16 bytes. */
  static _Alignas(64) unsigned char memory[4096];
  const Segment* segment = (const Segment*)(__ehdr_start + *(const uint64_t*)(__ehdr_start + 32));
  const int count = *(const uint16_t*)(__ehdr_start + 56);
  unsigned char* place = memory + sizeof memory - 64;
  int i;
  for (i = 0; i < count; ++i, ++segment) {
    if (segment->type != 7 /* PT_TLS */) continue;
    if (segment->alignment > 64 || segment->memory_size > sizeof memory - 128) abort();
#if defined(__x86_64__)
    memcpy(place - (segment->memory_size + segment->alignment - 1) / segment->alignment * segment->alignment,
           (const void*)segment->address, segment->file_size);
#else
    place = memory;
    memcpy(place + (16 + segment->alignment - 1) / segment->alignment * segment->alignment, (const void*)segment->address,
           segment->file_size);
#endif
  }
#if defined(__x86_64__)
  ((void**)place)[0] = place;
  ((uintptr_t*)place)[5] = __stack_chk_guard;
  system_call(SET_TLS, 0x1002 /* ARCH_SET_FS */, (long)place, 0, 0, 0, 0);
#else
  __asm__ volatile("msr tpidr_el0, %0" : : "r"(place));
#endif
}

static void (*at_exit[32])(void);
static int at_exit_count;

int atexit(void (*step)(void)) {
  if (at_exit_count == (int)(sizeof at_exit / sizeof *at_exit)) return -1;
  at_exit[at_exit_count++] = step;
  return 0;
}

void exit(int code) {
  while (at_exit_count > 0) at_exit[--at_exit_count]();
  _exit(code);
}

static char** environment;

char* getenv(const char* name) {
  const size_t size = strlen(name);
  char** at;
  for (at = environment; *at; ++at) {
    if (memcmp(*at, name, size) == 0 && (*at)[size] == '=') return *at + size + 1;
  }
  return NULL;
}

#if defined(__aarch64__)
static const unsigned long* auxiliary;

/* Compiled functions ask for the features of the processor. */
unsigned long getauxval(unsigned long type) {
  const unsigned long* at;
  for (at = auxiliary; at[0]; at += 2) {
    if (at[0] == type) return at[1];
  }
  return 0;
}
#endif

/* Called by `_start` with the address of the arguments that the system has put on the stack. */
__attribute__((used)) void anyfn_start(long* stack) {
  const int argc = (int)stack[0];
  char** argv = (char**)(stack + 1);
  const Step* step;
  environment = argv + argc + 1;
#if defined(__aarch64__)
  char** at = environment;
  while (*at) ++at;
  auxiliary = (const unsigned long*)(at + 1);
#endif
  make_thread_block();
  for (step = __init_array_start; step < __init_array_end; ++step) (*step)(argc, argv, environment);
  exit(main(argc, argv, environment));
}
