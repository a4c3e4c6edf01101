// Reading rows and making fields, over arrays without a byte to spare.

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "errors.h"
#include "fields.h"
#include "find_id.h"
#include "gather.h"
#include "pair.h"

namespace hpgrain {
namespace {

struct Piece {
  int64_t sequence;
  int64_t offset;
  int32_t length;
};

// Plans of one row over source 0.
struct OneRow {
  explicit OneRow(const std::vector<Piece>& pieces)
      : row_splits{0, static_cast<int64_t>(pieces.size())},
        source(pieces.size(), 0) {
    for (const Piece& piece : pieces) {
      sequence.push_back(piece.sequence);
      offset.push_back(piece.offset);
      length.push_back(piece.length);
    }
  }
  RowPlansView view() const {
    const int64_t size = row_splits[1];
    return {{row_splits.data(), 2}, {source.data(), size},
            {sequence.data(), size}, {offset.data(), size},
            {length.data(), size},   {}};
  }
  std::vector<int64_t> row_splits;
  std::vector<int32_t> source;
  std::vector<int64_t> sequence;
  std::vector<int64_t> offset;
  std::vector<int32_t> length;
};

const int32_t kSources[] = {0};

std::vector<int32_t> Read(const Pair& pair, const OneRow& row, int64_t begin,
                          int64_t end, int64_t vocab_size, BadId* bad) {
  std::vector<int32_t> out(end - begin, -7);
  const FileSet set{{kSources, 1}, {&pair.file}};
  *bad = Gather(row.view(), set, {begin, end, 0, vocab_size},
                {out.data(), end - begin});
  return out;
}

void GatherReadsEveryWindow() {
  const Pair pair({3, 0, 2, 4});
  const OneRow row({{0, 1, 2}, {2, 0, 2}, {3, 1, 3}, {0, 0, 1}});
  const std::vector<int32_t> whole = {1, 2, 3, 4, 6, 7, 8, 0, 0, 0};
  for (int64_t begin = 0; begin <= 10; ++begin) {
    for (int64_t end = begin; end <= 10; ++end) {
      BadId bad;
      const auto out = Read(pair, row, begin, end, 9, &bad);
      CHECK(bad.piece == -1);
      CHECK(out == std::vector<int32_t>(whole.begin() + begin,
                                        whole.begin() + end));
    }
  }
}

void GatherNamesBadIdsAndPieces() {
  const Pair pair({3, 0, 2, 4});
  BadId bad;
  Read(pair, OneRow({{0, 0, 3}, {2, 0, 2}, {3, 0, 4}}), 0, 9, 7, &bad);
  CHECK(bad.piece == 2 && bad.position == 7 && bad.id == 7);
  for (const Piece piece :
       {Piece{-1, 0, 1}, Piece{4, 0, 1}, Piece{0, 0, 4}, Piece{0, -1, 1},
        Piece{0, 0, -1}, Piece{0, INT64_MAX, INT32_MAX},
        Piece{INT64_MIN, INT64_MIN, INT32_MIN}}) {
    CHECK_THROWS(Read(pair, OneRow({piece}), 0, 9, 9, &bad),
                 std::out_of_range, "piece 0");
  }
  const Pair cut({3, 2}, {0, 8});
  CHECK_THROWS(Read(cut, OneRow({{1, 0, 2}}), 0, 2, 9, &bad),
               std::out_of_range, "the .bin has 10 bytes");
}

void ReadingByDescriptorIsTheSame() {
  char name[] = "/tmp/hpgrain_gather_XXXXXX";
  const int fd = mkstemp(name);
  CHECK(fd >= 0);
  Pair pair({3, 0, 2, 4});
  CHECK(write(fd, pair.tokens.data(), 18) == 18);
  pair.file.tokens = nullptr;
  pair.file.fd = fd;
  BadId bad;
  const OneRow row({{3, 0, 4}, {0, 0, 3}});
  CHECK((Read(pair, row, 1, 6, 0, &bad) ==
         std::vector<int32_t>{6, 7, 8, 0, 1}));
  CHECK(ftruncate(fd, 13) == 0);
  CHECK_THROWS(Read(pair, row, 0, 7, 0, &bad), ReadError, "the .bin ended");
  close(fd);
  CHECK_THROWS(Read(pair, row, 0, 7, 0, &bad), ReadError, "failed");
  unlink(name);
}

void FindIdNamesEveryPlace() {
  const Pair pair({3, 0, 2, 4});
  const OneRow row({{0, 1, 2}, {2, 0, 2}, {0, 0, 3}});
  const FileSet set{{kSources, 1}, {&pair.file}};
  CHECK((FindId(row.view(), set, 2).positions == std::vector<int64_t>{1, 6}));
  CHECK(FindId(row.view(), set, -1).positions.empty());
  CHECK(FindId(row.view(), set, 65538).positions.empty());
}

void FieldsOfAnyWindowStayInside() {
  const std::vector<int32_t> text = {10, 11, 12, 13, 14, 15, 16};
  const std::vector<int64_t> starts = {0, 2, 3, 6};
  const std::vector<int64_t> splits = {0, 4};
  for (int64_t length = 0; length <= 7; ++length) {
    for (int64_t begin = 0; begin <= 6; ++begin) {
      for (int64_t end = begin; end <= 6; ++end) {
        const int64_t width = end - begin;
        const std::vector<int32_t> tokens(text.begin() + begin,
                                          text.begin() + end + 1);
        std::vector<int32_t> ints(4 * width, -7);
        std::vector<float> mask(width, -7);
        FieldsConfig config;
        config.begin = begin;
        config.end = end;
        config.seq_length = 6;
        config.reset_position_ids = true;
        int32_t* const data = ints.data();
        MakeFields({{tokens.data(), width + 1}, 1, width + 1,
                    {splits.data(), 2}, {starts.data(), 4}, {&length, 1}},
                   config,
                   {{data, width}, {data + width, width},
                    {data + 2 * width, width}, {data + 3 * width, width},
                    {mask.data(), width}});
        for (int64_t c = 0; c < width; ++c) {
          const int64_t t = begin + c;
          const bool real = t < length;
          const bool labelled = t + 1 < length && t != 1 && t != 2 && t != 5;
          CHECK(data[c] == (real ? 10 + t : 0));
          CHECK(data[width + c] == (labelled ? 11 + t : kIgnoreIndex));
          CHECK(mask[c] == (labelled ? 1.0f : 0.0f));
          const int64_t start = t < 2 ? 0 : t < 3 ? 2 : 3;
          CHECK(data[2 * width + c] == t - (real ? start : length));
          CHECK(data[3 * width + c] ==
                (!real ? 0 : t < 2 ? 1 : t < 3 ? 2 : 3));
        }
      }
    }
  }
}

}  // namespace
}  // namespace hpgrain

int main() {
  hpgrain::GatherReadsEveryWindow();
  hpgrain::GatherNamesBadIdsAndPieces();
  hpgrain::ReadingByDescriptorIsTheSame();
  hpgrain::FindIdNamesEveryPlace();
  hpgrain::FieldsOfAnyWindowStayInside();
  return Failures() != 0;
}
