// JSON's texts, flags and stored ids where every byte is in its own place, so
// that a sanitizer sees a step beyond it.

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.h"
#include "feistel.h"
#include "json_texts.h"
#include "token_texts.h"

namespace hpgrain {
namespace {

uint64_t Random(uint64_t* state) { return Mix64(*state += 0x9E3779B9u); }

// The texts under "text", of lines that lie in memory of just their size.
std::vector<std::string> Texts(const std::string& block) {
  const std::vector<uint8_t> exact(block.begin(), block.end());
  const JsonTexts read = ReadJsonTexts(
      {exact.data(), static_cast<int64_t>(exact.size())}, {"text"});
  std::vector<std::string> texts;
  for (size_t i = 0; i < read.found.size(); ++i) {
    const auto* const bytes =
        reinterpret_cast<const char*>(read.texts[0].bytes.get());
    const int64_t begin = read.splits[0][i];
    const int64_t size = read.splits[0][i + 1] - begin;
    texts.push_back(read.found[i] != 0
                        ? std::string(bytes + begin,
                                      static_cast<size_t>(size))
                        : "doubt");
  }
  return texts;
}

void TextsOfEachLineAreFound() {
  using Strings = std::vector<std::string>;
  CHECK(Texts("{\"text\": \"a\"}\n\n{\"text\": \"\\ud83d\\ude42\"}") ==
        Strings({"a", "\xf0\x9f\x99\x82"}));
  CHECK(Texts("{\"text\": \"long enough for words\", \"text\": \"b\"}") ==
        Strings({"b"}));
  const std::string whole =
      "{\"a\": [1.5e-3, {\"b\": null}], \"text\": \"\\u00e9 \xe4\xb8\xad\"}";
  for (size_t size = 0; size < whole.size(); ++size) {
    for (const auto& text : Texts(whole.substr(0, size))) {
      CHECK(text == "doubt");
    }
  }
  CHECK(Texts(whole) == Strings({"\xc3\xa9 \xe4\xb8\xad"}));
}

void AnyBytesAreReadWithoutAStepBeyond() {
  const std::string pieces[] = {"{\"text\": \"", "\"}",  "\\u", "d83d", "\\n",
                                "\xf0\x9f",      "\x99", "[",   "]",    "{",
                                "}",             ",",    ":",   "\"",   "0",
                                "-",             "true", "\n",  "e",    "x"};
  uint64_t state = 1;
  for (int run = 0; run < 20000; ++run) {
    std::string block;
    for (uint64_t left = Random(&state) % 12; left > 0; --left) {
      block += pieces[Random(&state) % 20];
    }
    Texts(block);
  }
}

void FlagsStopAtTheEnd() {
  const std::vector<uint8_t> table(kNumCodePoints, 1);
  std::vector<uint8_t> flags(1);
  for (const std::string text : {"\xc3\xa9", "1234567\xc3\xa9", "12345678"}) {
    const std::vector<uint8_t> exact(text.begin(), text.end());
    const std::vector<int64_t> splits = {
        0, static_cast<int64_t>(exact.size())};
    TextFlags({exact.data(), splits[1]}, {splits.data(), 2},
              {table.data(), kNumCodePoints}, {flags.data(), 1});
    CHECK(flags[0] == (text != "12345678"));
    const std::vector<int64_t> cut = {0, splits[1] - 1};
    if (flags[0] != 0) {
      CHECK_THROWS(TextFlags({exact.data(), cut[1]}, {cut.data(), 2},
                             {table.data(), kNumCodePoints},
                             {flags.data(), 1}),
                   std::invalid_argument, "not UTF-8");
    }
  }
}

void IdsAreStoredWithTheirEods() {
  const std::vector<uint32_t> ids = {9, 5, 7, 1, 9};
  const std::vector<int64_t> splits = {1, 3, 3, 4};
  const std::vector<uint32_t> special = {1, 9};
  const StoredIds rule = {{special.data(), 2}, 10, 2};
  const Span<const uint32_t> in = {ids.data(), 5};
  const Span<const int64_t> bounds = {splits.data(), 4};
  CHECK(CountStored(in, bounds, rule) == 5);
  std::vector<uint16_t> out(5);
  std::vector<int64_t> lengths(3);
  bool flags[3] = {true, true, false};
  StoreIds<uint16_t>(in, bounds, rule, out.data(), lengths.data(), flags);
  CHECK(out == std::vector<uint16_t>({5, 7, 2, 1, 2}));
  CHECK(lengths == std::vector<int64_t>({3, 0, 2}));
  CHECK(!flags[0] && !flags[1] && flags[2]);
}

}  // namespace
}  // namespace hpgrain

int main() {
  hpgrain::TextsOfEachLineAreFound();
  hpgrain::AnyBytesAreReadWithoutAStepBeyond();
  hpgrain::FlagsStopAtTheEnd();
  hpgrain::IdsAreStoredWithTheirEods();
  return Failures() != 0;
}
