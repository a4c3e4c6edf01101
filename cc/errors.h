// Error messages made of parts, and the error of a failed read.

#ifndef HPGRAIN_ERRORS_H_
#define HPGRAIN_ERRORS_H_

#include <sstream>
#include <stdexcept>
#include <string>

namespace hpgrain {

template <typename... Parts>
std::string Message(const Parts&... parts) {
  std::ostringstream stream;
  (stream << ... << parts);
  return stream.str();
}

// The wrong value entered: ValueError in Python.
template <typename... Parts>
[[noreturn]] void ThrowInvalid(const Parts&... parts) {
  throw std::invalid_argument(Message(parts...));
}

// A place that does not exist was named: IndexError in Python.
template <typename... Parts>
[[noreturn]] void ThrowOutOfRange(const Parts&... parts) {
  throw std::out_of_range(Message(parts...));
}

// The operating system could not read a file: OSError in Python.
class ReadError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace hpgrain

#endif  // HPGRAIN_ERRORS_H_
