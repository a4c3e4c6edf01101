// Checks of the C++ tests: each failure is printed, and counted by Failures().

#ifndef HPGRAIN_TESTS_CHECK_H_
#define HPGRAIN_TESTS_CHECK_H_

#include <cstdio>
#include <string>

inline int& Failures() {
  static int failures = 0;
  return failures;
}

// Prints `what` where `holds` is false.
inline void Check(bool holds, const char* what, const char* file, int line) {
  if (holds) return;
  std::printf("%s:%d: %s\n", file, line, what);
  ++Failures();
}

#define CHECK(condition) Check((condition), #condition, __FILE__, __LINE__)

// `statement` must throw an `Error` whose message holds `part`.
#define CHECK_THROWS(statement, Error, part)                              \
  do {                                                                    \
    std::string message = "nothing was thrown";                           \
    bool thrown = false;                                                  \
    try {                                                                 \
      statement;                                                          \
    } catch (const Error& error) {                                        \
      message = error.what();                                             \
      thrown = message.find(part) != std::string::npos;                   \
    }                                                                     \
    if (!thrown) std::printf("message: %s\n", message.c_str());           \
    Check(thrown, #statement " throws " part, __FILE__, __LINE__);        \
  } while (false)

#endif  // HPGRAIN_TESTS_CHECK_H_
