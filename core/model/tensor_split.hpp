// How ranks divide the layers of a model among them (tensor parallelism; Shoeybi and others, arXiv
// 1909.08053): attention by heads; of two linear layers with nothing but activations between them
// the first by columns and the second by rows, so that what lies between needs no message; token
// tables by rows, and heads that give logits by columns; and mixtures by experts (expert
// parallelism). All other layers are whole on every rank. Pure functions.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "core/model/model.hpp"

namespace pipewright {

/// Along which axes ranks hold different experts besides those along ep, each expert whole: along
/// none, every rank of tp and cp having the same; along tp; along both
/// (core/model/expert_fold.hpp).
enum class ExpertFold : std::uint8_t { None, Tensor, TensorAndContext };

/// Ranks that divide the layers of a stage, along each axis; or the place of one of them.
struct StageDivision {
  int tensor = 1, experts = 1;
  /// Between the layers that they divide, those along tp have rows of a micro-batch each (sequence
  /// parallelism; Korthikanti and others, arXiv 2205.05198).
  bool rows = false;
  /// Ranks that have a part of every sequence each (context parallelism;
  /// core/model/context_split.hpp).
  int context = 1;
  ExpertFold fold = ExpertFold::None;
  /// Keys and values go round the ranks along cp, block by block (Megatron's cp_comm_type p2p;
  /// Liu and others, arXiv 2310.01889), in place of being gathered.
  bool ring = false;

  bool folds_experts() const { return fold != ExpertFold::None; }
  bool experts_differ_along_context() const { return fold == ExpertFold::TensorAndContext; }
  /// Ranks that hold all experts together; and of them those of one place along tp, which are
  /// replicas of one another in all else.
  int expert_holders() const { return (folds_experts() ? tensor : 1) * expert_replicas(); }
  int expert_replicas() const { return experts * (experts_differ_along_context() ? context : 1); }

  auto operator<=>(const StageDivision&) const = default;
};

/// Of the first rank along each axis.
inline constexpr StageDivision kFirstPlace{.tensor = 0, .experts = 0, .rows = false, .context = 0};

/// Of a linear layer's matrix.
enum class Split : std::uint8_t { Whole, Columns, Rows };

struct Range {
  std::int64_t begin = 0, count = 0;

  bool operator==(const Range&) const = default;
};

/// A part of a matrix [rows][columns]: the numbers that lie in these rows and columns, row by row.
struct Slice {
  std::int64_t columns = 0;  // of the whole matrix; 0: the part is the whole
  Range rows;
  std::vector<Range> ranges;  // of columns

  bool is_whole() const { return columns == 0; }
  /// Numbers of a row that are in the part.
  std::int64_t width() const;
  std::int64_t size() const { return rows.count * width(); }
  /// Where number i of the part lies in the whole.
  std::int64_t place_of(std::int64_t i) const;
  /// Where these numbers of the part lie in the whole: stretches, ascending.
  std::vector<Range> places_of(const Range& own) const;

  bool operator==(const Slice&) const = default;
};

/// Part `index` of `parts` of each range of columns: of queries, keys and values, or of the two
/// halves that swiglu joins. Each is divided evenly.
Slice columns_of(std::int64_t rows, const std::vector<Range>& ranges, int index, int parts);
Slice rows_of(std::int64_t rows, std::int64_t columns, int index, int parts);
/// What part `other` is of the array of which this is part `index`.
Slice other_part(const Slice& slice, int index, int other);

/// By layer of such a chain, as a residual or a sequential one holds it.
std::vector<Split> splits_of(const std::vector<Layer>& chain);
/// The ranges of columns that are divided each by itself, of a layer that is split by columns: its
/// width, or both halves where swiglu comes next.
std::vector<Range> column_ranges(const std::vector<Layer>& chain, std::size_t linear);

/// Whether so many ranks divide the token table of an embedding that is the model's first layer,
/// and the head that is its last one, also at the end of a sequential one: a linear layer in front
/// of a cross-entropy. A head that uses the table is divided with it. Not where the vocabulary does
/// not divide evenly.
struct VocabularySplit {
  bool embedding = false, head = false;
};
VocabularySplit vocabulary_split(const Model& model, int ranks);

/// Why so many ranks cannot divide the model, as a sentence with the layer and the nearest numbers
/// that can; "" if they can.
std::string tensor_fault(const Model& model, int ranks);
/// Why so many ranks along tp cannot divide the rows of a micro-batch, in the same way.
std::string sequence_fault(const Model& model, int ranks);
/// Why so many ranks cannot divide the experts of the model, in the same way.
std::string expert_fault(const Model& model, int ranks);
/// Why the ranks that hold all experts together cannot.
std::string expert_fault(const Model& model, const StageDivision& ranks);

}  // namespace pipewright
