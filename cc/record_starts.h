// Where the records of a text file begin: lines, rows of CSV, or elements of
// one JSON array. The file is looked at block by block, however it is cut.

#ifndef HPGRAIN_RECORD_STARTS_H_
#define HPGRAIN_RECORD_STARTS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "span.h"

namespace hpgrain {

enum class RecordKind {
  kJsonLines,  // lines of more than white space
  kTextLines,  // lines of more than "\r"
  kCsvRows,    // rows of more than "\r"s, the header among them
  kJsonArray,  // what stands between the commas of the outermost array
};

// "json_lines", "text_lines", "csv_rows" or "json_array"; throws else.
RecordKind RecordKindNamed(std::string_view name);

// Follows one file. What begins with a line begins at the line's first byte.
// An array's elements begin with their first byte that is not white space,
// missing ones with the comma or bracket in their place; the place after the
// array's end is given as the last of them.
class RecordStarts {
 public:
  // `offset` is the place in the file of the first byte that will be fed.
  RecordStarts(RecordKind kind, int64_t offset);

  // Appends the starts that the next bytes of the file show.
  void Feed(Span<const uint8_t> block, std::vector<int64_t>* starts);

  // Bytes of the file up to the last one fed.
  int64_t offset() const { return offset_; }

  // Whether the array was closed; false for the other kinds.
  bool closed() const { return state_ == State::kAfter; }

  // Where something else than white space follows the array; -1 for nowhere.
  int64_t rest() const { return rest_; }

 private:
  enum class State {
    kBlank,      // of the record nothing but what may be left out was seen
    kInside,     // the record's start is known (lines: up to the line's end)
    kReturned,   // text and CSV: "\r" was seen
    kField,      // CSV: in a field, or after its quotes went wrong
    kQuoted,     // CSV: between quotes
    kQuote,      // CSV: after a quote between quotes
    kBroken,     // CSV: the rest of the line belongs to no field
    kBefore,     // array: its bracket was not seen
    kString,     // array: in a string
    kEscape,     // array: after a backslash in a string
    kAfter,      // array: it was closed
  };

  void Lines(Span<const uint8_t> block, std::vector<int64_t>* starts);
  void Rows(Span<const uint8_t> block, std::vector<int64_t>* starts);
  void Elements(Span<const uint8_t> block, std::vector<int64_t>* starts);
  // The place of the quote that ends a string, or the block's end.
  const uint8_t* StringEnd(const uint8_t* p, const uint8_t* end);

  RecordKind kind_;
  State state_;
  int64_t offset_;
  int64_t start_;      // of the line that is looked at
  int64_t depth_ = 0;  // array: brackets that are open inside it
  int64_t rest_ = -1;
  bool first_ = true;  // array: no comma was seen
  bool known_ = false;  // CSV and array: the record's start was appended
};

}  // namespace hpgrain

#endif  // HPGRAIN_RECORD_STARTS_H_
