/*
 * Start of a program on the STM32F405 (Cortex-M4F), and the services that <anyfn/board.h> asks for: USART1 is the serial line of the
 * sessions (PA9, PA10), USART2 prints text for the developer (PA2, PA3), and the system timer counts cycles.
 *
 * Tested in QEMU only (machine `netduinoplus2`), for which ANYFN_EMULATED is defined: the emulator has no clock tree, runs at 168 MHz,
 * and ends by a semihosting call. A real chip runs at the 16 MHz with which it starts.
 */
#include <anyfn/board.h>

#include <errno.h>
#include <string.h>

#define REG(address) (*(volatile uint32_t*)(address))

#ifdef ANYFN_EMULATED
enum { CLOCK_HZ = 168000000 };
#else
enum { CLOCK_HZ = 16000000 };
#endif
#ifndef ANYFN_BAUD
#define ANYFN_BAUD 115200
#endif

enum { USART1 = 0x40011000, USART2 = 0x40004400, SR = 0, DR = 4, BRR = 8, CR1 = 12 };
enum { RXNE = 1 << 5, TXE = 1 << 7, ENABLE = 1 << 13 | 1 << 3 | 1 << 2 };

extern uint8_t _data_start[], _data_end[], _data_load[], _bss_start[], _bss_end[], _heap_start[], _heap_end[], _stack_end[];
extern void (*__init_array_start[])(void);
extern void (*__init_array_end[])(void);
int main(void);

/* --- Cycles ---------------------------------------------------------------------------------------------------------------------- */

static volatile uint32_t wraps;

static void tick(void) { ++wraps; }

uint64_t anyfn_board_cycles(void) {
  uint32_t state = anyfn_board_enter();
  uint32_t high = wraps, low = REG(0xE000E018);
  if (REG(0xE000ED04) & 1u << 26) { /* The timer has wrapped, and its interrupt is pending. */
    low = REG(0xE000E018);
    ++high;
  }
  anyfn_board_leave(state);
  return ((uint64_t)high << 24) + (0xFFFFFF - low);
}

uint32_t anyfn_board_hz(void) { return CLOCK_HZ; }

/* --- Interrupts ------------------------------------------------------------------------------------------------------------------ */

uint32_t anyfn_board_enter(void) {
  uint32_t state;
  __asm__ volatile("mrs %0, primask\n\tcpsid i" : "=r"(state)::"memory");
  return state;
}

void anyfn_board_leave(uint32_t state) { __asm__ volatile("msr primask, %0" ::"r"(state) : "memory"); }

void anyfn_board_wait(void) { __asm__ volatile("wfi" ::: "memory"); }

/* --- Serial line ----------------------------------------------------------------------------------------------------------------- */

/* Bytes that have arrived; the interrupt handler adds them, so that none is lost while a function runs. */
static volatile uint8_t arrived[2048];
static volatile uint32_t arrived_end, arrived_start;

static void usart1(void) {
  while (REG(USART1 + SR) & RXNE) {
    uint8_t byte = (uint8_t)REG(USART1 + DR);
    if (arrived_end - arrived_start < sizeof arrived) arrived[arrived_end++ % sizeof arrived] = byte;
  }
}

size_t anyfn_board_read(void* out, size_t size) {
  size_t count = 0;
  while (count < size && arrived_start != arrived_end) ((uint8_t*)out)[count++] = arrived[arrived_start++ % sizeof arrived];
  return count;
}

static void print(uint32_t usart, const void* bytes, size_t size) {
  size_t i;
  for (i = 0; i < size; ++i) {
    while (!(REG(usart + SR) & TXE)) {
    }
    REG(usart + DR) = ((const uint8_t*)bytes)[i];
  }
}

void anyfn_board_write(const void* bytes, size_t size) { print(USART1, bytes, size); }

void anyfn_board_log(const char* text, size_t size) { print(USART2, text, size); }

/* --- Memory ---------------------------------------------------------------------------------------------------------------------- */

static uint8_t* heap_top = _heap_start;

void* _sbrk(ptrdiff_t more) {
  uint8_t* old = heap_top;
  if (more > _heap_end - heap_top) {
    errno = ENOMEM;
    return (void*)-1;
  }
  heap_top += more;
  return old;
}

size_t anyfn_board_ram(void) {
  const uint8_t* untouched = _heap_end;
  while (untouched < _stack_end && *untouched == 0xA5) ++untouched;
  return (size_t)(heap_top - _data_start) + (size_t)(_stack_end - untouched);
}

size_t anyfn_board_flash(void) { return (size_t)(_data_load - (const uint8_t*)0x08000000) + (size_t)(_data_end - _data_start); }

/* --- Start and end --------------------------------------------------------------------------------------------------------------- */

void anyfn_board_exit(int code) {
#ifdef ANYFN_EMULATED
  uint32_t reason[2] = {0x20026, (uint32_t)code};
  register uint32_t call __asm__("r0") = 0x20;
  register uint32_t* block __asm__("r1") = reason;
  __asm__ volatile("bkpt 0xab" ::"r"(call), "r"(block) : "memory");
#endif
  (void)code;
  for (;;) anyfn_board_wait();
}

void anyfn_board_stop(void) {
  static const char text[] = "the program has ended: a fault, a panic or no memory\n";
  anyfn_board_log(text, sizeof text - 1);
  anyfn_board_exit(70);
}

void _exit(int code) {
  anyfn_board_exit(code);
  for (;;) {
  }
}

static void open_usart(uint32_t usart) {
  REG(usart + BRR) = (CLOCK_HZ + ANYFN_BAUD / 2) / ANYFN_BAUD;
  REG(usart + CR1) = ENABLE;
}

__attribute__((noreturn)) void reset(void) {
  void (**init)(void);
  memcpy(_data_start, _data_load, (size_t)(_data_end - _data_start));
  memset(_bss_start, 0, (size_t)(_bss_end - _bss_start));
  memset(_heap_end, 0xA5, (size_t)((uint8_t*)__builtin_frame_address(0) - 64 - _heap_end));
  REG(0xE000ED88) |= 0xFu << 20; /* floating point */
  __asm__ volatile("dsb\n\tisb");
#ifndef ANYFN_EMULATED
  REG(0x40023830) |= 1u << 0;             /* clock of port A */
  REG(0x40023844) |= 1u << 4;             /* of USART1 */
  REG(0x40023840) |= 1u << 17;            /* of USART2 */
  REG(0x40020000) |= 0x2u << 4 | 0x2u << 6 | 0x2u << 18 | 0x2u << 20; /* PA2, PA3, PA9, PA10: alternate functions, */
  REG(0x40020020) |= 0x7u << 8 | 0x7u << 12;                          /* number 7 */
  REG(0x40020024) |= 0x7u << 4 | 0x7u << 8;
#endif
  open_usart(USART1);
  open_usart(USART2);
  REG(USART1 + CR1) = ENABLE | RXNE;
  REG(0xE000E104) = 1u << (37 - 32); /* interrupt of USART1 */
  REG(0xE000E014) = 0xFFFFFF;        /* system timer, with the clock of the processor */
  REG(0xE000E018) = 0;
  REG(0xE000E010) = 7;
  for (init = __init_array_start; init < __init_array_end; ++init) (*init)();
  anyfn_board_exit(main());
  for (;;) {
  }
}

static void fault(void) { anyfn_board_stop(); }

static void ignored(void) {}

__attribute__((section(".vectors"), used)) static void (*const vectors[16 + 82])(void) = {
    (void (*)(void))_stack_end, reset,   ignored, fault, fault, fault, fault, 0, 0, 0, 0, fault, ignored, 0, ignored, tick,
    [16 + 37] = usart1,
};
