#include "find_id.h"

#include <algorithm>
#include <atomic>
#include <limits>

namespace hpgrain {
namespace {

std::atomic<int64_t> scanned_bytes{0};

template <typename T>
void Scan(const uint8_t* in, int64_t count, int64_t id, int64_t position,
          std::vector<int64_t>* positions) {
  if (id < static_cast<int64_t>(std::numeric_limits<T>::min()) ||
      id > static_cast<int64_t>(std::numeric_limits<T>::max())) {
    return;
  }
  const T wanted = static_cast<T>(id);
  // Most blocks hold none; counting has no exit and becomes wide.
  constexpr int64_t kBlock = 256;
  for (int64_t block = 0; block < count; block += kBlock) {
    const int64_t end = std::min(block + kBlock, count);
    int32_t hits = 0;
    for (int64_t i = block; i < end; ++i) {
      hits += LoadUnaligned<T>(in, i) == wanted;
    }
    for (int64_t i = block; hits > 0; ++i) {
      if (LoadUnaligned<T>(in, i) != wanted) continue;
      positions->push_back(position + i);
      --hits;
    }
  }
}

void ScanAny(int dtype_code, const uint8_t* in, int64_t count, int64_t id,
             int64_t position, std::vector<int64_t>* positions) {
  switch (dtype_code) {
    case 1:
      return Scan<uint8_t>(in, count, id, position, positions);
    case 2:
      return Scan<int8_t>(in, count, id, position, positions);
    case 3:
      return Scan<int16_t>(in, count, id, position, positions);
    case 4:
      return Scan<int32_t>(in, count, id, position, positions);
    case 5:
      return Scan<int64_t>(in, count, id, position, positions);
    default:
      return Scan<uint16_t>(in, count, id, position, positions);
  }
}

}  // namespace

IdPlaces FindId(const RowPlansView& plans, const FileSet& set, int64_t id) {
  CheckPlans(plans, /*with_boundary=*/false);
  CheckFiles(set);
  IdPlaces places;
  places.row_splits.reserve(plans.row_splits.size);
  places.row_splits.push_back(0);
  FileFinder finder(set);
  std::vector<uint8_t> buffer;
  int64_t read = 0;
  for (int64_t row = 0; row < plans.num_rows(); ++row) {
    int64_t position = 0;
    for (int64_t p = plans.row_splits[row]; p < plans.row_splits[row + 1];
         ++p) {
      const TokenFile& file = finder.Find(p, plans.source[p]);
      const int64_t bytes = PieceBytes(file, plans, p);
      const int64_t count = plans.length[p];
      const int64_t size = count * file.item_size;
      const uint8_t* in = nullptr;
      if (file.tokens != nullptr) {
        in = file.tokens + bytes;
      } else {
        if (static_cast<int64_t>(buffer.size()) < size) buffer.resize(size);
        ReadExactly(file.fd, bytes, size, buffer.data());
        in = buffer.data();
      }
      read += size;
      ScanAny(file.dtype_code, in, count, id, position, &places.positions);
      position += count;
    }
    places.row_splits.push_back(
        static_cast<int64_t>(places.positions.size()));
  }
  scanned_bytes.fetch_add(read, std::memory_order_relaxed);
  return places;
}

int64_t ScannedBytes() { return scanned_bytes.load(std::memory_order_relaxed); }

}  // namespace hpgrain
