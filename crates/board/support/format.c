/*
 * `snprintf` and `vsnprintf` for boards: what compiled kernels and <anyfn/anyfn.h> use for their messages, in less than 1 KB of flash.
 * The C library for small systems (newlib-nano) does not print 64-bit numbers, which are in these messages. Knows %s %c %d %i %u %x %p
 * %%, the sizes l, ll and z, and a precision of strings; prints any other conversion as it stands.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct {
  char* out;
  size_t size, length;
} Text;

static void put(Text* text, const char* bytes, size_t count) {
  size_t i;
  for (i = 0; i < count; ++i, ++text->length) {
    if (text->length + 1 < text->size) text->out[text->length] = bytes[i];
  }
}

static void put_number(Text* text, uint64_t number, unsigned base) {
  char digits[20];
  size_t at = sizeof digits;
  do {
    digits[--at] = "0123456789abcdef"[number % base];
    number /= base;
  } while (number);
  put(text, digits + at, sizeof digits - at);
}

int vsnprintf(char* out, size_t size, const char* format, va_list args) {
  Text text = {out, size, 0};
  while (*format) {
    const char* start = format;
    size_t limit = SIZE_MAX;
    size_t width = 0; /* Bytes that the sizes l, ll and z give a number. */
    if (*format++ != '%') {
      put(&text, start, 1);
      continue;
    }
    if (format[0] == '.' && format[1] == '*') {
      int given = va_arg(args, int);
      if (given >= 0) limit = (size_t)given;
      format += 2;
    }
    for (; *format == 'l' || *format == 'z'; ++format) width += *format == 'z' ? sizeof(size_t) : sizeof(long);
    switch (*format++) {
      case '%': put(&text, "%", 1); break;
      case 'c': {
        char letter = (char)va_arg(args, int);
        put(&text, &letter, 1);
        break;
      }
      case 's': {
        const char* string = va_arg(args, const char*);
        size_t length = 0;
        if (!string) string = "(null)";
        while (length < limit && string[length]) ++length;
        put(&text, string, length);
        break;
      }
      case 'd':
      case 'i': {
        int64_t number = width >= 8 ? va_arg(args, int64_t) : va_arg(args, int);
        if (number < 0) put(&text, "-", 1);
        put_number(&text, number < 0 ? -(uint64_t)number : (uint64_t)number, 10);
        break;
      }
      case 'u': put_number(&text, width >= 8 ? va_arg(args, uint64_t) : va_arg(args, unsigned), 10); break;
      case 'x': put_number(&text, width >= 8 ? va_arg(args, uint64_t) : va_arg(args, unsigned), 16); break;
      case 'p':
        put(&text, "0x", 2);
        put_number(&text, (uintptr_t)va_arg(args, void*), 16);
        break;
      default:
        if (!format[-1]) --format;
        put(&text, start, (size_t)(format - start));
    }
  }
  if (size) out[text.length < size ? text.length : size - 1] = 0;
  return (int)text.length;
}

int snprintf(char* out, size_t size, const char* format, ...) {
  va_list args;
  int length;
  va_start(args, format);
  length = vsnprintf(out, size, format, args);
  va_end(args);
  return length;
}
