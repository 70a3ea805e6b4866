#include "core/model/tensor_split.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "core/model/find_layer.hpp"
#include "core/model/tie.hpp"

namespace pipewright {
namespace {

bool is_activation(LayerKind kind) {
  return kind == LayerKind::Relu || kind == LayerKind::Gelu || kind == LayerKind::Swiglu;
}

/// What lies between two linear layers, and the second of them.
struct Between {
  std::size_t second = 0;
  bool joins_halves = false;  // swiglu
};

/// Where `first` gives what it computes to another linear layer through activations alone. Of two
/// that join halves the ranks would have to divide quarters: such a pair stays whole.
std::optional<Between> between_pair(const std::vector<Layer>& chain, std::size_t first) {
  Between between;
  for (std::size_t k = first + 1; k < chain.size(); ++k) {
    if (chain[k].kind == LayerKind::Linear && !chain[k].tied) {
      between.second = k;
      return between;
    }
    if (!is_activation(chain[k].kind)) return std::nullopt;
    if (chain[k].kind == LayerKind::Swiglu && std::exchange(between.joins_halves, true))
      return std::nullopt;
  }
  return std::nullopt;
}

/// What the ranks have to divide: a number, and what it counts.
struct Divided {
  std::string path, what;
  int number = 0;
};

std::string path_of(const std::vector<Layer>& chain, std::size_t k, const std::string& outer) {
  return outer + std::to_string(k) + (chain[k].name.empty() ? "" : "." + chain[k].name);
}

void collect(const std::vector<Layer>& chain, const std::string& outer, bool splits_linear,
             std::vector<Divided>& all) {
  const std::vector<Split> splits = splits_of(chain);
  for (std::size_t k = 0; k < chain.size(); ++k) {
    const Layer& layer = chain[k];
    const std::string path = path_of(chain, k, outer);
    if (layer.kind == LayerKind::CausalSelfAttention) {
      const bool shares = layer.kv_heads > 0 && layer.kv_heads < layer.heads;
      all.push_back(
          {path, shares ? "heads of keys" : "heads", shares ? layer.kv_heads : layer.heads});
    } else if (layer.kind == LayerKind::LatentAttention) {
      all.push_back({path, "heads", layer.heads});
    } else if (splits_linear && splits[k] == Split::Columns) {
      for (const Range& range : column_ranges(chain, k))
        all.push_back({path, "columns", static_cast<int>(range.count)});
    } else if (layer.kind == LayerKind::Residual || layer.kind == LayerKind::Sequential) {
      collect(layer.inner, path + "/", true, all);
      collect(layer.shortcut, path + "/shortcut/", true, all);
    } else if (layer.kind == LayerKind::MixtureOfExperts) {
      collect(layer.shared, path + "/shared/", true, all);
    }
  }
}

void collect_experts(const std::vector<Layer>& chain, const std::string& outer,
                     std::vector<Divided>& all) {
  for (std::size_t k = 0; k < chain.size(); ++k) {
    const Layer& layer = chain[k];
    const std::string path = path_of(chain, k, outer);
    if (layer.kind == LayerKind::MixtureOfExperts)
      all.push_back({path, "experts", layer.choice.experts});
    collect_experts(layer.inner, path + "/", all);
    collect_experts(layer.shortcut, path + "/shortcut/", all);
    collect_experts(layer.shared, path + "/shared/", all);
  }
}

/// The divisors of a number beside another number: "1 and 4".
std::string nearest_divisors(int number, int beside) {
  int below = 1, above = number;
  for (int d = 1; d <= number; ++d) {
    if (number % d != 0) continue;
    if (d < beside) below = d;
    if (d > beside) above = std::min(above, d);
  }
  return above > beside ? std::to_string(below) + " and " + std::to_string(above)
                        : std::to_string(below);
}

/// What so many ranks do not divide, as a sentence; "" if they divide all.
std::string undivided(const std::string& axis, const std::vector<Divided>& all, int ranks) {
  for (const Divided& one : all) {
    if (one.number % ranks == 0) continue;
    return axis + " " + std::to_string(ranks) + " does not divide the " +
           std::to_string(one.number) + " " + one.what + " of layer \"" + one.path +
           "\"; the nearest that do are " + nearest_divisors(one.number, ranks);
  }
  return "";
}

}  // namespace

std::int64_t Slice::width() const {
  return std::accumulate(ranges.begin(), ranges.end(), std::int64_t{0},
                         [](std::int64_t sum, const Range& range) { return sum + range.count; });
}

std::int64_t Slice::place_of(std::int64_t i) const {
  if (is_whole()) return i;
  const std::int64_t own = width();
  std::int64_t column = i % own;
  for (const Range& range : ranges) {
    if (column < range.count) {
      column += range.begin;
      break;
    }
    column -= range.count;
  }
  return (rows.begin + i / own) * columns + column;
}

std::vector<Range> Slice::places_of(const Range& own) const {
  if (is_whole()) return {own};
  std::vector<Range> places;
  const std::int64_t end = own.begin + own.count;
  std::int64_t at = own.begin / width() * width();  // the part's number that comes next
  while (at < end) {
    const std::int64_t row = (rows.begin + at / width()) * columns;
    for (const Range& range : ranges) {
      const std::int64_t from = std::max(at, own.begin), to = std::min(at + range.count, end);
      const std::int64_t begin = row + range.begin + (from - at);
      at += range.count;
      if (from >= to) continue;
      if (!places.empty() && places.back().begin + places.back().count == begin)
        places.back().count += to - from;
      else
        places.push_back({begin, to - from});
    }
  }
  return places;
}

Slice columns_of(std::int64_t rows, const std::vector<Range>& ranges, int index, int parts) {
  Slice slice{.columns = 0, .rows = {0, rows}, .ranges = {}};
  for (const Range& range : ranges) {
    const std::int64_t each = range.count / parts;
    slice.ranges.push_back({range.begin + index * each, each});
    slice.columns = std::max(slice.columns, range.begin + range.count);
  }
  return slice;
}

Slice rows_of(std::int64_t rows, std::int64_t columns, int index, int parts) {
  const std::int64_t each = rows / parts;
  return {.columns = columns, .rows = {index * each, each}, .ranges = {{0, columns}}};
}

Slice other_part(const Slice& slice, int index, int other) {
  Slice part = slice;
  const std::int64_t further = other - index;
  if (slice.width() == slice.columns) {
    part.rows.begin += further * slice.rows.count;
  } else {
    for (Range& range : part.ranges) range.begin += further * range.count;
  }
  return part;
}

std::vector<Split> splits_of(const std::vector<Layer>& chain) {
  std::vector<Split> splits(chain.size(), Split::Whole);
  for (std::size_t k = 0; k < chain.size(); ++k) {
    if (chain[k].kind != LayerKind::Linear || chain[k].tied || splits[k] != Split::Whole) continue;
    if (const auto between = between_pair(chain, k)) {
      splits[k] = Split::Columns;
      splits[between->second] = Split::Rows;
    }
  }
  return splits;
}

std::vector<Range> column_ranges(const std::vector<Layer>& chain, std::size_t linear) {
  const std::int64_t width = chain[linear].out;
  const auto between = between_pair(chain, linear);
  if (between && between->joins_halves) return {{0, width / 2}, {width / 2, width / 2}};
  return {{0, width}};
}

namespace {

/// The model's last layer, if that is a linear one that is not of a pair.
const Layer* head_of(const Model& model) {
  const Layer* last = &model.layers.back();
  bool is_paired = false;
  while (last->kind == LayerKind::Sequential) {
    is_paired = splits_of(last->inner).back() != Split::Whole;
    last = &last->inner.back();
  }
  return last->kind == LayerKind::Linear && !is_paired ? last : nullptr;
}

}  // namespace

VocabularySplit vocabulary_split(const Model& model, int ranks) {
  if (ranks == 1 || model.layers.empty()) return {};
  const Layer& first = model.layers.front();
  const Layer* const head = head_of(model);
  VocabularySplit split;
  split.embedding = first.kind == LayerKind::Embedding && first.vocabulary % ranks == 0;
  split.head =
      head != nullptr && model.loss == LossKind::SoftmaxCrossEntropy && head->out % ranks == 0;
  if (tie_of(model)) split.embedding = split.head = split.embedding && split.head && head->tied;
  return split;
}

std::string tensor_fault(const Model& model, int ranks) {
  if (ranks == 1) return "";
  std::vector<Divided> all;
  collect(model.layers, "", false, all);
  if (all.empty())
    return "tensor parallelism divides attention, and pairs of linear layers inside a residual or "
           "sequential layer; this model has neither, so take tp 1";
  return undivided("tp", all, ranks);
}

std::string sequence_fault(const Model& model, int ranks) {
  const std::string axis = "sequence parallelism with tp " + std::to_string(ranks);
  if (ranks == 1)
    return "sequence parallelism divides rows among the ranks of tp, so tp has to be at least 2";
  const Layer* first = &model.layers.front();
  while (first->kind == LayerKind::Sequential) first = &first->inner.front();
  if (first->kind != LayerKind::Embedding)
    return "sequence parallelism begins after an embedding, and this model does not begin with "
           "one; leave it out";
  if (model.sequence % ranks == 0) return "";
  return axis + " does not divide the " + std::to_string(model.sequence) +
         " tokens of a sample; the nearest tp that do are " +
         nearest_divisors(model.sequence, ranks);
}

std::string expert_fault(const Model& model, int ranks) {
  if (ranks == 1) return "";
  std::vector<Divided> all;
  collect_experts(model.layers, "", all);
  if (all.empty())
    return "expert parallelism divides mixtures of experts, and this model has none; take ep 1";
  return undivided("ep", all, ranks);
}

std::string expert_fault(const Model& model, const StageDivision& ranks) {
  const std::string fault = expert_fault(model, ranks.expert_holders());
  if (!fault.empty() || !ranks.folds_experts()) return fault;
  const auto graph = find_layer(model, [](const Layer& layer) {
    std::vector<Divided> inside;
    if (layer.kind == LayerKind::Graph) collect_experts({layer}, "", inside);
    return !inside.empty();
  });
  if (!graph) return "";
  return "layer \"" + graph->path +
         "\" is a graph with experts inside, whose ranks along tp all have the same rows; leave "
         "out "
         "expert_tensor_parallel_size";
}

}  // namespace pipewright
