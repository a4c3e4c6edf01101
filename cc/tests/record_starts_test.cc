// Where records begin: the same however a file is cut into blocks.

#include "record_starts.h"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "check.h"
#include "feistel.h"

namespace hpgrain {
namespace {

using Places = std::vector<int64_t>;

struct Found {
  Places starts;
  bool closed;
  int64_t rest;
  int64_t offset;
};

// Each block lies in memory of its own, so that a step over its end is seen.
Found Scan(std::string_view kind, const std::string& text, size_t block,
           int64_t offset = 0) {
  RecordStarts scan(RecordKindNamed(kind), offset);
  Found found;
  for (size_t at = 0; at < text.size(); at += block) {
    const std::string part = text.substr(at, block);
    const std::vector<uint8_t> bytes(part.begin(), part.end());
    scan.Feed({bytes.data(), static_cast<int64_t>(bytes.size())},
              &found.starts);
  }
  found.closed = scan.closed();
  found.rest = scan.rest();
  found.offset = scan.offset();
  return found;
}

void CheckStarts(std::string_view kind, const std::string& text,
                 const Places& expected) {
  for (const size_t block : {1, 2, 3, 7, 1000}) {
    const Found found = Scan(kind, text, block);
    CHECK(found.starts == expected);
    CHECK(found.offset == static_cast<int64_t>(text.size()));
    if (found.starts != expected) std::printf("in %s\n", text.c_str());
  }
}

void LinesOfMoreThanSpace() {
  CheckStarts("json_lines", "", {});
  CheckStarts("json_lines", "a", {0});
  CheckStarts("json_lines", "a\n", {0});
  CheckStarts("json_lines", "a\n\n \t\r\v\f\n  b\r\nc", {0, 9, 14});
  CheckStarts("json_lines", "\n\n\n", {});
  CheckStarts("json_lines", std::string("\0\n\x1c\n", 4), {0, 2});
}

void LinesOfMoreThanAReturn() {
  CheckStarts("text_lines", "", {});
  CheckStarts("text_lines", "\r\n \n\n\r\r\n\rx\n\r", {2, 5, 8});
  CheckStarts("text_lines", "one\r\ntwo", {0, 5});
}

void RowsOfCsv() {
  CheckStarts("csv_rows", "", {});
  CheckStarts("csv_rows", "a,b\n1,2\n", {0, 4});
  CheckStarts("csv_rows", "a\n\n\r\n \nb", {0, 5, 7});
  // A quote inside a field is a character, at its beginning it opens one.
  CheckStarts("csv_rows", "a\nx\"y\nz\n", {0, 2, 6});
  CheckStarts("csv_rows", "a\n\"x\ny\"\nz\n", {0, 2, 8});
  CheckStarts("csv_rows", "a\n\"x\"\"\ny\"\r\nz\n", {0, 2, 11});
  CheckStarts("csv_rows", "a,\"b\nc\",d\ne", {0, 10});
  // What follows closed quotes is wrong up to the line's end.
  CheckStarts("csv_rows", "\"x\"y,\"z\nb\n", {0, 8});
  // So is what follows a return.
  CheckStarts("csv_rows", "a\rb,\"c\nd\n", {0, 7});
  CheckStarts("csv_rows", "\rb\nd\n", {0, 3});
  // Of returns alone no row is made.
  CheckStarts("csv_rows", "\r\r\r\na\r\r\n\r", {4});
  CheckStarts("csv_rows", "\"a\"\r\nd\n", {0, 5});
}

void ElementsOfAnArray() {
  // An empty array has no element, and so nothing but its end.
  CheckStarts("json_array", "[]", {2});
  CheckStarts("json_array", " [ \n] ", {5});
  CheckStarts("json_array", "[{}]", {1, 4});
  CheckStarts("json_array", "[{\"a\": [1, {\"b\": 2}]}, 3 ]\n", {1, 23, 26});
  // A bracket, a comma or a quote in a string is none.
  CheckStarts("json_array", "[\"],\\\"],\", \"\\\\\",1]", {1, 11, 16, 18});
  // A comma has an element on both sides, though it may be missing.
  CheckStarts("json_array", "[,]", {1, 2, 3});
  CheckStarts("json_array", "[1, ]", {1, 4, 5});
}

void AnArrayEnds() {
  for (const size_t block : {1, 2, 1000}) {
    CHECK(Scan("json_array", "[1] ", block).closed);
    CHECK(!Scan("json_array", "[1, [2]", block).closed);
    CHECK(!Scan("json_array", "[\"]", block).closed);
    CHECK(!Scan("json_array", "  ", block).closed);
    CHECK(Scan("json_array", "[1] ", block).rest == -1);
    CHECK(Scan("json_array", "[1] \n 2 3", block).rest == 6);
    CHECK(Scan("json_array", "[1]", block, 3).starts == (Places{4, 6}));
  }
  CHECK_THROWS(Scan("json_array", " x[", 1), std::invalid_argument, "byte 1");
}

void NamesAndOffsets() {
  CHECK_THROWS(RecordKindNamed("lines"), std::invalid_argument, "\"lines\"");
  CHECK_THROWS(RecordStarts(RecordKind::kCsvRows, -1), std::invalid_argument,
               "offset is -1");
  CHECK(Scan("json_lines", "a\nb", 2, 3).starts == (Places{3, 5}));
}

void CutsChangeNothing() {
  const std::string letters = "ab,\"\\[]{}\n\r \t:";
  uint64_t state = 1;
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    state = Mix64(state + round);
    for (uint64_t left = state % 40; left > 0; --left) {
      state = Mix64(state);
      text += letters[state % letters.size()];
    }
    for (const char* kind : {"json_lines", "text_lines", "csv_rows"}) {
      const Found whole = Scan(kind, text, 1000);
      for (const size_t block : {1, 2, 5}) {
        CHECK(Scan(kind, text, block).starts == whole.starts);
      }
    }
    const Found whole = Scan("json_array", "[" + text, 1000);
    for (const size_t block : {1, 2, 5}) {
      const Found cut = Scan("json_array", "[" + text, block);
      CHECK(cut.starts == whole.starts && cut.rest == whole.rest);
    }
  }
}

}  // namespace
}  // namespace hpgrain

int main() {
  hpgrain::LinesOfMoreThanSpace();
  hpgrain::LinesOfMoreThanAReturn();
  hpgrain::RowsOfCsv();
  hpgrain::ElementsOfAnArray();
  hpgrain::AnArrayEnds();
  hpgrain::NamesAndOffsets();
  hpgrain::CutsChangeNothing();
  return Failures() != 0;
}
