// One open .idx/.bin pair, as the kernels see it: borrowed memory only.

#ifndef HPGRAIN_TOKEN_FILE_H_
#define HPGRAIN_TOKEN_FILE_H_

#include <cstdint>

#include "span.h"

namespace hpgrain {

// Bytes a token takes under a dtype code of the format, 0 for no such code.
int ItemSize(int dtype_code);

struct TokenFile {
  // int32, int64 and int64 arrays, at any address: in the file they follow a
  // header of 34 bytes.
  const uint8_t* lengths = nullptr;
  const uint8_t* pointers = nullptr;
  const uint8_t* document_indices = nullptr;
  int64_t num_sequences = 0;
  int64_t num_document_indices = 0;
  int dtype_code = 0;
  int item_size = 0;
  // The mapped .bin, or nullptr where it is read through `fd`.
  const uint8_t* tokens = nullptr;
  int fd = -1;
  int64_t num_bytes = 0;

  int64_t Length(int64_t i) const { return LoadUnaligned<int32_t>(lengths, i); }
  int64_t Pointer(int64_t i) const {
    return LoadUnaligned<int64_t>(pointers, i);
  }
  int64_t DocumentIndex(int64_t d) const {
    return LoadUnaligned<int64_t>(document_indices, d);
  }
};

// Reads `size` bytes at `offset` with pread, however many calls it takes.
// Throws ReadError with the numbers where the file ends early or fails.
void ReadExactly(int fd, int64_t offset, int64_t size, uint8_t* out);

}  // namespace hpgrain

#endif  // HPGRAIN_TOKEN_FILE_H_
