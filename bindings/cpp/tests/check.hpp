// Checks that the test programs share.
#ifndef ANYFN_CPP_TESTS_CHECK_HPP_
#define ANYFN_CPP_TESTS_CHECK_HPP_

#include <anyfn/anyfn.hpp>

#include <cstdio>
#include <cstdlib>

// Ends the program if the condition is false.
#define CHECK(...)                                                             \
  do {                                                                         \
    if (!(__VA_ARGS__)) {                                                      \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #__VA_ARGS__);   \
      std::exit(1);                                                            \
    }                                                                          \
  } while (0)

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// Prints an unexpected error.
inline void check_error(const anyfn::Error& error, const char* kind, const std::string& part, const char* file, int line) {
  if (error.kind() == kind && contains(error.message(), part)) return;
  std::fprintf(stderr, "%s:%d: expected %s: ..%s.., got %s\n", file, line, kind, part.c_str(), error.what());
  std::exit(1);
}

// Checks that a statement throws an error of a kind whose message contains a text.
#define CHECK_ERROR(kind, part, ...)                             \
  do {                                                           \
    bool has_thrown = false;                                     \
    try {                                                        \
      (void)(__VA_ARGS__);                                       \
    } catch (const anyfn::Error& error) {                        \
      has_thrown = true;                                         \
      check_error(error, kind, part, __FILE__, __LINE__);        \
    }                                                            \
    CHECK(has_thrown && #__VA_ARGS__);                           \
  } while (0)

#endif  // ANYFN_CPP_TESTS_CHECK_HPP_
