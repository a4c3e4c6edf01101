#include "token_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "errors.h"

namespace hpgrain {

int ItemSize(int dtype_code) {
  switch (dtype_code) {
    case 1:  // uint8
    case 2:  // int8
      return 1;
    case 3:  // int16
    case 8:  // uint16
      return 2;
    case 4:  // int32
    case 7:  // float32
      return 4;
    case 5:  // int64
    case 6:  // float64
      return 8;
    default:
      return 0;
  }
}

void ReadExactly(int fd, int64_t offset, int64_t size, uint8_t* out) {
  // Linux reads at most 2 GiB less a page in one call.
  constexpr int64_t kMaxCall = int64_t{1} << 30;
  int64_t done = 0;
  while (done < size) {
    const int64_t wanted = std::min(size - done, kMaxCall);
    const ssize_t got =
        pread(fd, out + done, static_cast<size_t>(wanted), offset + done);
    if (got < 0) {
      if (errno == EINTR) continue;
      throw ReadError(Message("reading ", size, " bytes at byte ", offset,
                              " of the .bin failed after ", done, ": ",
                              std::strerror(errno), "."));
    }
    if (got == 0) {
      throw ReadError(Message("the .bin ended: ", size, " bytes at byte ",
                              offset, " were asked for, ", done,
                              " were there; the file was cut short after it "
                              "was opened."));
    }
    done += got;
  }
}

}  // namespace hpgrain
