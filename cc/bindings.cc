// The Python module hpgrain._kernels: arrays in, arrays out, the GIL released
// while a kernel runs. All checks of values are in the kernels; here are those
// of shapes and dtypes.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "blend_tree.h"
#include "errors.h"
#include "feistel.h"
#include "fields.h"
#include "find_id.h"
#include "gather.h"
#include "numpy_arrays.h"
#include "open_file.h"
#include "row_plans.h"
#include "stable_rows.h"
#include "token_file.h"

namespace py = pybind11;

namespace hpgrain {
namespace {

using PlanTuple = std::tuple<Array<int64_t>, Array<int32_t>, Array<int64_t>,
                             Array<int64_t>, Array<int32_t>, Array<bool>>;

int64_t Width(int64_t begin, int64_t end) {
  if (begin < 0 || end < begin) {
    ThrowInvalid("the window [", begin, ", ", end,
                 ") is no range of positions.");
  }
  return end - begin;
}

RowPlansView View(const Array<int64_t>& row_splits,
                  const Array<int32_t>& source, const Array<int64_t>& sequence,
                  const Array<int64_t>& offset, const Array<int32_t>& length) {
  return {Flat(row_splits, "row_splits"), Flat(source, "source"),
          Flat(sequence, "sequence"), Flat(offset, "offset"),
          Flat(length, "length"), {}};
}

Key ToKey(const py::bytes& key) {
  const auto bytes = static_cast<std::string_view>(key);
  if (bytes.size() != 16) {
    ThrowInvalid("a key has 16 bytes, got ", bytes.size(), ".");
  }
  return KeyFromBytes(reinterpret_cast<const uint8_t*>(bytes.data()));
}

using OpenFiles = std::vector<std::shared_ptr<OpenFile>>;

std::shared_ptr<OpenFile> MakeOpenFile(
    const py::array& lengths, const py::array& pointers,
    const py::array& document_indices, int dtype_code,
    const py::object& tokens) {
  auto open = std::make_shared<OpenFile>();
  TokenFile& file = open->file;
  const auto length_span = Mapped<int32_t>(lengths, "lengths");
  const auto pointer_span = Mapped<int64_t>(pointers, "pointers");
  const auto document_span =
      Mapped<int64_t>(document_indices, "document_indices");
  if (length_span.size != pointer_span.size) {
    ThrowInvalid("lengths and pointers must hold one value a sequence; got ",
                 length_span.size, " and ", pointer_span.size, ".");
  }
  file.lengths = length_span.data;
  file.pointers = pointer_span.data;
  file.document_indices = document_span.data;
  file.num_sequences = length_span.size;
  file.num_document_indices = document_span.size;
  file.dtype_code = dtype_code;
  file.item_size = ItemSize(dtype_code);
  if (file.item_size == 0) {
    ThrowInvalid("dtype_code is ", dtype_code, "; the format has 1 to 8.");
  }
  if (py::isinstance<py::tuple>(tokens)) {
    const auto parts = py::reinterpret_borrow<py::tuple>(tokens);
    if (parts.size() != 2 && parts.size() != 3) {
      ThrowInvalid("tokens as a tuple must be (fd, num_bytes) or (fd, "
                   "num_bytes, owner); got ", parts.size(), " items.");
    }
    file.fd = parts[0].cast<int>();
    file.num_bytes = parts[1].cast<int64_t>();
    if (file.fd < 0 || file.num_bytes < 0) {
      ThrowInvalid("fd is ", file.fd, " and num_bytes ", file.num_bytes,
                   "; neither may be negative.");
    }
  } else if (py::isinstance<py::array>(tokens)) {
    const auto span =
        Mapped<uint8_t>(py::reinterpret_borrow<py::array>(tokens), "tokens");
    // An empty .bin has no address; nothing of it is ever read.
    static const uint8_t kNothing = 0;
    file.tokens = span.data == nullptr ? &kNothing : span.data;
    file.num_bytes = span.size;
  } else {
    ThrowInvalid("tokens must be a uint8 array or the tuple (fd, num_bytes).");
  }
  open->owners = {lengths, pointers, document_indices, tokens};
  return open;
}

FileSet ToFileSet(const Array<int32_t>& sources, const OpenFiles& files) {
  FileSet set;
  set.sources = Flat(sources, "sources");
  set.files.reserve(files.size());
  for (const auto& open : files) {
    set.files.push_back(open == nullptr ? nullptr : &open->file);
  }
  return set;
}

// The order and the array it searches.
struct OwnedRows {
  std::unique_ptr<StableRows> rows;
  std::optional<Array<int64_t>> starts;
};

py::array_t<int64_t> PermuteArray(const Array<int64_t>& index, int64_t size,
                                  const py::bytes& key) {
  const auto in = Flat(index, "index");
  const Key words = ToKey(key);
  py::array_t<int64_t> out(in.size);
  const Span<int64_t> to{out.mutable_data(), in.size};
  {
    const Unlocked unlocked;
    Permute(in, size, words, to);
  }
  return out;
}

py::tuple LocateArray(const BlendTree& tree, const Array<int64_t>& positions) {
  const auto in = Flat(positions, "positions");
  py::array_t<int32_t> source(in.size);
  py::array_t<int64_t> k(in.size);
  const Span<int32_t> source_out{source.mutable_data(), in.size};
  const Span<int64_t> k_out{k.mutable_data(), in.size};
  {
    const Unlocked unlocked;
    tree.Locate(in, source_out, k_out);
  }
  return py::make_tuple(source, k);
}

py::array_t<int64_t> CountsArray(const BlendTree& tree, int64_t position) {
  py::array_t<int64_t> out(tree.num_sources());
  const Span<int64_t> to{out.mutable_data(), out.size()};
  {
    const Unlocked unlocked;
    tree.Counts(position, to);
  }
  return out;
}

py::tuple MergeTuples(
    int64_t n, const std::vector<std::pair<Array<int64_t>, PlanTuple>>& in) {
  std::vector<PlansPart> parts;
  parts.reserve(in.size());
  for (const auto& [rows, plan] : in) {
    const auto& [row_splits, source, sequence, offset, length, boundary] =
        plan;
    PlansPart part;
    part.rows = Flat(rows, "rows");
    part.plans = View(row_splits, source, sequence, offset, length);
    part.plans.boundary = Bytes(Flat(boundary, "boundary"));
    parts.push_back(part);
  }
  RowPlans merged;
  {
    const Unlocked unlocked;
    merged = MergePlans(n, parts);
  }
  return ToTuple(std::move(merged));
}

py::tuple FindSegmentArrays(const Array<int64_t>& row_splits,
                            const Array<int32_t>& length,
                            const Array<bool>& boundary) {
  const auto splits = Flat(row_splits, "row_splits");
  const auto lengths = Flat(length, "length");
  const auto flags = Bytes(Flat(boundary, "boundary"));
  RowSegments segments;
  {
    const Unlocked unlocked;
    segments = FindSegments(splits, lengths, flags);
  }
  return py::make_tuple(ToArray<int64_t>(std::move(segments.row_splits)),
                        ToArray<int64_t>(std::move(segments.starts)),
                        ToArray<int64_t>(std::move(segments.lengths)));
}

py::tuple GatherArrays(const Array<int64_t>& row_splits,
                       const Array<int32_t>& source,
                       const Array<int64_t>& sequence,
                       const Array<int64_t>& offset,
                       const Array<int32_t>& length,
                       const Array<int32_t>& sources, const OpenFiles& files,
                       int64_t begin, int64_t end, int32_t pad_id,
                       int64_t vocab_size, py::array out) {
  const auto plans = View(row_splits, source, sequence, offset, length);
  const FileSet set = ToFileSet(sources, files);
  const int64_t width = Width(begin, end);
  const auto to = Output<int32_t>(
      out, "out", std::max<int64_t>(plans.num_rows(), 0), width);
  BadId bad;
  {
    const Unlocked unlocked;
    bad = Gather(plans, set, {begin, end, pad_id, vocab_size}, to);
  }
  return py::make_tuple(bad.piece, bad.position, bad.id);
}

py::tuple FindIdArrays(const Array<int64_t>& row_splits,
                       const Array<int32_t>& source,
                       const Array<int64_t>& sequence,
                       const Array<int64_t>& offset,
                       const Array<int32_t>& length,
                       const Array<int32_t>& sources, const OpenFiles& files,
                       int64_t id) {
  const auto plans = View(row_splits, source, sequence, offset, length);
  const FileSet set = ToFileSet(sources, files);
  IdPlaces places;
  {
    const Unlocked unlocked;
    places = FindId(plans, set, id);
  }
  return py::make_tuple(ToArray<int64_t>(std::move(places.row_splits)),
                        ToArray<int64_t>(std::move(places.positions)));
}

void MakeFieldArrays(const Array<int32_t>& tokens, int64_t begin, int64_t end,
                     int64_t seq_length, const Array<int64_t>& row_splits,
                     const Array<int64_t>& starts,
                     const Array<int64_t>& lengths, bool labels_are_shifted,
                     bool mask_boundary_labels, int64_t eod_id,
                     bool reset_position_ids, bool reset_attention_mask,
                     py::array input_ids, py::array labels,
                     py::array position_ids, py::array segment_ids,
                     py::array loss_mask) {
  if (tokens.ndim != 2) {
    ThrowInvalid("tokens must have two dimensions, got ", tokens.ndim, ".");
  }
  const int64_t rows = tokens.rows;
  const int64_t width = Width(begin, end);
  const FieldsInput input{tokens.values,
                          rows,
                          tokens.columns,
                          Flat(row_splits, "row_splits"),
                          Flat(starts, "starts"),
                          Flat(lengths, "lengths")};
  const FieldsOutput output{
      Output<int32_t>(input_ids, "input_ids", rows, width),
      Output<int32_t>(labels, "labels", rows, width),
      Output<int32_t>(position_ids, "position_ids", rows, width),
      Output<int32_t>(segment_ids, "segment_ids", rows, width),
      Output<float>(loss_mask, "loss_mask", rows, width)};
  const Unlocked unlocked;
  MakeFields(input,
             {begin, end, seq_length, labels_are_shifted, mask_boundary_labels,
              eod_id, reset_position_ids, reset_attention_mask},
             output);
}

}  // namespace

PYBIND11_MODULE(_kernels, m) {
  m.doc() = "Index arithmetic, token gathering and batch fields in C++.";
  using py::arg;

  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const ReadError& error) {
      py::set_error(PyExc_OSError, error.what());
    }
  });

  m.def("permute", &PermuteArray, arg("index"), arg("size"), arg("key"),
        "Place of each index under the keyed permutation of [0, size).");

  py::class_<BlendTree>(m, "BlendTree",
                        "Which source stands at each position of a blend.")
      .def(py::init([](const Array<int32_t>& children,
                       const Array<uint64_t>& weights, int64_t num_sources) {
             return BlendTree(Pairs(children, "children"),
                              Pairs(weights, "weights"), num_sources);
           }),
           arg("children"), arg("weights"), arg("num_sources"))
      .def_property_readonly("num_sources", &BlendTree::num_sources)
      .def("locate", &LocateArray, arg("positions"),
           "(source, k): whose row stands there, and which of its rows.")
      .def("counts", &CountsArray, arg("position"),
           "Rows of each source among the first `position`.");

  py::class_<OpenFile, std::shared_ptr<OpenFile>>(
      m, "TokenFile", "One open .idx/.bin pair; keeps its arrays alive.")
      .def(py::init(&MakeOpenFile), arg("lengths"), arg("pointers"),
           arg("document_indices"), arg("dtype_code"), arg("tokens"))
      .def_property_readonly(
          "num_sequences",
          [](const OpenFile& open) { return open.file.num_sequences; })
      .def_property_readonly(
          "num_tokens_bytes",
          [](const OpenFile& open) { return open.file.num_bytes; });

  py::class_<OwnedRows>(m, "StableRows",
                        "Row number -> pieces, in the stable order.")
      .def(py::init([](int64_t first_sequence, int64_t last_sequence,
                       int64_t seq_length, int64_t extra,
                       int64_t rows_per_epoch, int64_t num_tokens,
                       bool shuffle, bool keep_last,
                       std::optional<Array<int64_t>> starts) {
             StableRowsConfig config{first_sequence, last_sequence,
                                     seq_length,     extra,
                                     rows_per_epoch, num_tokens,
                                     shuffle,        keep_last,
                                     {}};
             if (starts) config.starts = Flat(*starts, "starts");
             auto owned = std::make_unique<OwnedRows>();
             owned->rows = std::make_unique<StableRows>(config);
             owned->starts = std::move(starts);
             return owned;
           }),
           arg("first_sequence"), arg("last_sequence"), arg("seq_length"),
           arg("extra"), arg("rows_per_epoch"), arg("num_tokens"),
           arg("shuffle"), arg("keep_last"), arg("starts") = py::none())
      .def(
          "plan",
          [](OwnedRows& self, const std::shared_ptr<OpenFile>& file,
             const Array<int64_t>& rows, int32_t source,
             const std::vector<std::pair<int64_t, py::bytes>>& keys)
              -> py::object {
            if (file == nullptr) ThrowInvalid("file is None.");
            const auto in = Flat(rows, "rows");
            std::vector<std::pair<int64_t, Key>> words;
            for (const auto& [epoch, key] : keys) {
              words.emplace_back(epoch, ToKey(key));
            }
            RowPlans plans;
            bool found = false;
            {
              const Unlocked unlocked;
              found = self.rows->Plan(file->file, in, source, words, &plans);
            }
            if (!found) return py::none();
            return ToTuple(std::move(plans));
          },
          arg("file"), arg("rows"), arg("source"),
          arg("keys") = std::vector<std::pair<int64_t, py::bytes>>(),
          "The arrays of records.RowPlans; None if an epoch's key is needed.");

  m.def("merge_plans", &MergeTuples, arg("n"), arg("parts"),
        "One plan of n rows from (rows, plan) parts.");
  m.def("find_segments", &FindSegmentArrays, arg("row_splits"),
        arg("length"), arg("boundary"),
        "The arrays of records.Segments for a plan's rows.");
  m.def("gather", &GatherArrays, arg("row_splits"), arg("source"),
        arg("sequence"), arg("offset"), arg("length"), arg("sources"),
        arg("files"), arg("begin"), arg("end"), arg("pad_id"),
        arg("vocab_size"), arg("out"),
        "Writes the rows' tokens; (-1, -1, 0), or the first bad id's place.");
  m.def("gathered_bytes", &GatheredBytes,
        "Token bytes that gather has read in this process.");
  m.def("reset_gathered_bytes", &ResetGatheredBytes,
        "Sets gathered_bytes to 0.");
  m.def("find_id", &FindIdArrays, arg("row_splits"), arg("source"),
        arg("sequence"), arg("offset"), arg("length"), arg("sources"),
        arg("files"), arg("id"), "Where an id stands in each row.");
  m.def("scanned_bytes", &ScannedBytes,
        "Token bytes that find_id has read in this process.");
  m.def("make_fields", &MakeFieldArrays, arg("tokens"), arg("begin"),
        arg("end"), arg("seq_length"), arg("row_splits"), arg("starts"),
        arg("lengths"), arg("labels_are_shifted"),
        arg("mask_boundary_labels"), arg("eod_id"), arg("reset_position_ids"),
        arg("reset_attention_mask"), arg("input_ids"), arg("labels"),
        arg("position_ids"), arg("segment_ids"), arg("loss_mask"),
        "Fills the first rows of the five fields, each [rows, end - begin].");
  BindMegatron(m);
  BindBlendIndex(m);
  BindPack(m);
  BindRecords(m);
  BindTexts(m);
}

}  // namespace hpgrain
