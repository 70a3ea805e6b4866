// What a kernel does for one element, or one row, of a mixture of experts: the router's choice, the
// places of rows sorted by expert, and rows on their way there and back. As
// exec/devices/cpu/kernels/experts.cpp has it, step for step where that shows in the bits. A row
// has to know how many before it took the same expert, so these are counted in blocks of rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "exec/base/host_device.hpp"
#include "exec/devices/cpu/kernels/exponential.hpp"
#include "exec/devices/cpu/kernels/logarithm.hpp"
#include "exec/devices/cuda/bfloat16.hpp"
#include "exec/devices/cuda/elements.hpp"
#include "exec/devices/cuda/module_api.h"
#include "exec/devices/cuda/packs.hpp"
#include "exec/devices/cuda/rows.hpp"

namespace pipewright::exec::cuda {

/// Routes::kDropped of exec/layers/expert_ops.hpp.
inline constexpr std::int32_t kDroppedRow = -1;

// --- The router ---

struct Smaller {
  PIPEWRIGHT_HOST_DEVICE float operator()(float a, float b) const { return b < a ? b : a; }
};

/// One of several numbers: the largest comes first, of equal ones that with the lower place.
struct Ranked {
  float value;
  int place;

  PIPEWRIGHT_HOST_DEVICE bool comes_before(const Ranked& other) const {
    return value > other.value || (value == other.value && place < other.place);
  }
};
inline constexpr Ranked kNoneYet{0, -1};

/// Of value(j) for j in [0, n) the one that comes next behind `last`; where the rest are no
/// numbers, `otherwise`, so that every place is one of the n.
template <class Lanes, class Value>
PIPEWRIGHT_HOST_DEVICE inline Ranked next_of(const Lanes& lanes, int n, const Ranked& last,
                                             int otherwise, Value value) {
  constexpr float kLeast = -std::numeric_limits<float>::infinity();
  const auto is_left = [last](const Ranked& one) {
    return last.place < 0 || last.comes_before(one);
  };
  const auto left = [=](int j) {
    const Ranked one{value(j), j};
    return is_left(one) ? one.value : kLeast;
  };
  const float most = lanes.reduce_places(n, kLeast, Larger{}, left);
  const auto place = [=](int j) {
    const Ranked one{value(j), j};
    return static_cast<float>(is_left(one) && one.value == most ? j : n);
  };
  const auto first =
      static_cast<int>(lanes.reduce_places(n, static_cast<float>(n), Smaller{}, place));
  return {most, first < n ? first : otherwise};
}

/// A row's logits, and what makes scores of them.
struct RowScores {
  const float* logits;
  bool is_sigmoid;
  float most, sum, inverse;  // of the softmax

  PIPEWRIGHT_HOST_DEVICE float softmax(int j) const {
    return cpu::exp_in_range(cpu::clamp_exponent(logits[j] - most)) * inverse;
  }
  PIPEWRIGHT_HOST_DEVICE float operator()(int j) const {
    return is_sigmoid ? ExactSigmoid::of_negative(-logits[j]) : softmax(j);
  }
};

template <class Lanes>
PIPEWRIGHT_HOST_DEVICE inline RowScores scores_of(const Lanes& lanes,
                                                  const pipewright_cuda_router& of,
                                                  const float* logits) {
  RowScores scores{logits, of.sigmoid != 0, 0, 0, 0};
  const float start = logits[0];
  const float most = lanes.reduce(of.experts, start, Larger{}, Same{}, logits);
  const auto power = [most](float at) { return cpu::exp_in_range(cpu::clamp_exponent(at - most)); };
  scores.most = most;
  scores.sum = lanes.sum(of.experts, power, logits);
  scores.inverse = 1.0F / scores.sum;
  return scores;
}

/// Whom a row goes to, and with which weights. group_sums[rows][groups] is scratch.
struct Route {
  pipewright_cuda_router of;
  const float *logits, *bias;  // bias may be null
  float *group_sums, *weights;
  std::int32_t* expert;

  /// A score that decides who is chosen.
  struct Rank {
    RowScores scores;
    const float* bias;
    PIPEWRIGHT_HOST_DEVICE float operator()(int j) const {
      return bias != nullptr ? scores(j) + bias[j] : scores(j);
    }
  };
  PIPEWRIGHT_HOST_DEVICE static float sum_of_two_largest(const Rank& rank, int begin, int n) {
    float first = -std::numeric_limits<float>::infinity(), second = first;
    for (int j = begin; j < begin + n; ++j) {
      const float x = rank(j), smaller = x < first ? x : first;
      second = second < smaller ? smaller : second;
      first = first < x ? x : first;
    }
    return first + second;
  }
  /// In ascending order of experts.
  PIPEWRIGHT_HOST_DEVICE static void insert(int k, int best, float score, std::int32_t* experts,
                                            float* of_experts) {
    int at = k;
    for (; at > 0 && experts[at - 1] > best; --at) {
      experts[at] = experts[at - 1];
      of_experts[at] = of_experts[at - 1];
    }
    experts[at] = best;
    of_experts[at] = score;
  }

  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t row) const {
    const pipewright_cuda_router how = of;
    const Rank rank{scores_of(lanes, how, logits + row * static_cast<std::size_t>(how.experts)),
                    bias};
    const bool has_groups = how.top_groups < how.groups;
    const int each = how.experts / how.groups;
    float* const sums = group_sums + row * static_cast<std::size_t>(how.groups);
    Ranked last_group = kNoneYet;
    if (has_groups) {
      lanes.each_place(how.groups,
                       [=](int g) { sums[g] = sum_of_two_largest(rank, g * each, each); });
      lanes.sync();
      for (int k = 0; k < how.top_groups; ++k)
        last_group = next_of(lanes, how.groups, last_group, k, [=](int g) { return sums[g]; });
    }
    const auto open = [=](int j) {
      const bool is_out = has_groups && last_group.comes_before({sums[j / each], j / each});
      return is_out ? -std::numeric_limits<float>::infinity() : rank(j);
    };
    const std::size_t first = row * static_cast<std::size_t>(how.top_k);
    std::int32_t* const chosen = expert + first;
    float* const of_chosen = weights + first;
    Ranked best = kNoneYet;
    for (int k = 0; k < how.top_k; ++k) {
      best = next_of(lanes, how.experts, best, k, open);
      const int place = best.place;
      const float score = rank.scores(place);
      lanes.first([=] { insert(k, place, score, chosen, of_chosen); });
    }
    lanes.first([=] {
      float sum = 0;
      for (int k = 0; k < how.top_k; ++k) sum += of_chosen[k];
      for (int k = 0; k < how.top_k; ++k) {
        if (how.normalises != 0) of_chosen[k] /= sum;
        of_chosen[k] *= how.scaling;
      }
    });
  }
};

/// Its I, as the formulas in front of the CPU's route_backward() say.
struct RouteBackward {
  pipewright_cuda_router of;
  float balance, z, all;  // module_api.h
  const float *logits, *weights;
  const std::int32_t* expert;
  const float *choices, *dweights;  // choices may be null
  float* dlogits;

  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t row) const {
    const int n = of.experts, top_k = of.top_k;
    const std::size_t at = row * static_cast<std::size_t>(n),
                      first = row * static_cast<std::size_t>(top_k);
    const RowScores u = scores_of(lanes, of, logits + at);
    const float of_z = z * (u.most + cpu::log_of_normal(u.sum));
    const std::int32_t* const chosen = expert + first;
    const float *const dweight = dweights + first, *const weight = weights + first;
    float mean = 0, scale = of.scaling;
    if (of.normalises != 0) {
      float sum = 0;
      for (int k = 0; k < top_k; ++k) sum += u(chosen[k]);
      scale = of.scaling / sum;
      const auto along = [](float d, float w) { return d * w; };
      mean = lanes.sum(top_k, along, dweight, weight) / of.scaling;
    }
    const auto dp = [counts = choices, total = all, by = balance](int j) {
      return counts == nullptr ? 0.0F : counts[j] / total * by;
    };
    float of_sum = 1, dp_mean = 0;  // a sigmoid's P is u made to add up to 1
    if (u.is_sigmoid) {
      of_sum = 1.0F / lanes.reduce_places(n, 0.0F, Plus{}, u);
      const auto along = [=](int j) { return dp(j) * u(j); };
      dp_mean = lanes.reduce_places(n, 0.0F, Plus{}, along) * of_sum;
    }
    const auto du = [=](int j) {
      float d = u.is_sigmoid ? (dp(j) - dp_mean) * of_sum : dp(j);
      for (int k = 0; k < top_k; ++k)
        if (chosen[k] == j) d += (dweight[k] - mean) * scale;
      return d;
    };
    float* const to = dlogits + at;
    if (u.is_sigmoid) {
      lanes.sync();  // dlogits may be the logits
      lanes.each_place(n, [=](int j) {
        const float own = u(j), p = u.softmax(j);
        to[j] = du(j) * own * (1.0F - own) + of_z * p;
      });
    } else {
      const auto along = [=](int j) { return du(j) * u(j); };
      const float of_all = lanes.reduce_places(n, 0.0F, Plus{}, along);
      lanes.sync();
      lanes.each_place(n, [=](int j) { to[j] = u(j) * (du(j) - of_all + of_z); });
    }
  }
};

/// y[i] += bias[column of i], of logits, which are floats.
template <class T>
struct RouterBias {
  std::size_t width;
  const T* bias;
  float* y;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const { y[i] = y[i] + bias[i % width]; }
};

// --- Places ---

/// The rows of a micro-batch, chunk by chunk, in blocks of PIPEWRIGHT_CUDA_ROUTED_ROWS; element
/// (block, expert) of a kernel goes through the block's.
struct RoutedBlocks {
  std::size_t of_chunk, chunks, top_k, experts;  // rows of a chunk
  const std::int32_t* expert;                    // [rows][top_k]

  PIPEWRIGHT_HOST_DEVICE std::size_t blocks_of_chunk() const {
    return (of_chunk + PIPEWRIGHT_CUDA_ROUTED_ROWS - 1) / PIPEWRIGHT_CUDA_ROUTED_ROWS;
  }
  PIPEWRIGHT_HOST_DEVICE std::size_t elements() const {
    return chunks * blocks_of_chunk() * experts;
  }
  PIPEWRIGHT_HOST_DEVICE std::size_t chunk_of(std::size_t block) const {
    return block / blocks_of_chunk();
  }
  /// visit(pair) for those of the block that chose the expert, in the order of rows.
  template <class Visit>
  PIPEWRIGHT_HOST_DEVICE void for_each_pair(std::size_t block, std::size_t wanted,
                                            Visit visit) const {
    const std::size_t begin = block % blocks_of_chunk() * PIPEWRIGHT_CUDA_ROUTED_ROWS;
    const std::size_t rest = of_chunk - begin;
    const std::size_t rows =
        rest < PIPEWRIGHT_CUDA_ROUTED_ROWS ? rest : PIPEWRIGHT_CUDA_ROUTED_ROWS;
    const std::size_t first = (chunk_of(block) * of_chunk + begin) * top_k;
    for (std::size_t pair = first; pair < first + rows * top_k; ++pair)
      if (expert[pair] == static_cast<std::int32_t>(wanted)) visit(pair);
  }
};

/// counts[block][expert].
struct CountInBlocks {
  RoutedBlocks of;
  std::int32_t* counts;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    std::int32_t count = 0;
    of.for_each_pair(i / of.experts, i % of.experts, [&](std::size_t) { ++count; });
    counts[i] = count;
  }
};

/// Element (chunk, expert): the sum over the chunk's blocks, exact as long as a float is.
struct CountInChunks {
  RoutedBlocks of;
  const std::int32_t* counts;
  bool adds;
  float* sums;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const std::size_t chunk = i / of.experts, blocks = of.blocks_of_chunk();
    std::int32_t sum = 0;
    for (std::size_t b = chunk * blocks; b < (chunk + 1) * blocks; ++b)
      sum += counts[b * of.experts + i % of.experts];
    sums[i] = (adds ? sums[i] : 0.0F) + static_cast<float>(sum);
  }
};

/// Element expert, by the counts of all, which are whole numbers.
struct Balance {
  std::size_t experts;
  float rate;
  const float* counts;
  float* bias;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t e) const {
    double all = 0;
    for (std::size_t i = 0; i < experts; ++i) all += static_cast<double>(counts[i]);
    const double missing = all / static_cast<double>(experts) - static_cast<double>(counts[e]);
    const int sign = (missing > 0 ? 1 : 0) - (missing < 0 ? 1 : 0);
    bias[e] += rate * static_cast<float>(sign);
  }
};

/// How many rows of a chunk an expert takes at most.
struct RoomInChunks {
  std::int64_t capacity;  // negative: nobody is dropped
  const float* earlier;   // [chunks][experts]; null: nobody chose before
  std::size_t experts;

  PIPEWRIGHT_HOST_DEVICE std::int64_t of(std::size_t chunk, std::size_t expert) const {
    if (capacity < 0) return std::numeric_limits<std::int32_t>::max();
    const auto before = earlier == nullptr
                            ? std::int64_t{0}
                            : static_cast<std::int64_t>(earlier[chunk * experts + expert]);
    return before < capacity ? capacity - before : 0;
  }
};

/// Element expert: counts become those of the blocks before within the chunk, and begin[run + 1]
/// the rows of the run that are taken.
struct CountBefore {
  RoutedBlocks of;
  RoomInChunks room;
  std::int32_t *counts, *begin;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t e) const {
    const std::size_t blocks = of.blocks_of_chunk();
    for (std::size_t chunk = 0; chunk < of.chunks; ++chunk) {
      std::int32_t before = 0;
      for (std::size_t b = chunk * blocks; b < (chunk + 1) * blocks; ++b) {
        std::int32_t& own = counts[b * of.experts + e];
        const std::int32_t count = own;
        own = before;
        before += count;
      }
      const std::int64_t most = room.of(chunk, e);
      begin[e * of.chunks + chunk + 1] = before < most ? before : static_cast<std::int32_t>(most);
    }
  }
};

/// The one element: rows of runs to where they begin.
struct RunsBegin {
  std::size_t runs;
  std::int32_t* begin;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t) const {
    begin[0] = 0;
    for (std::size_t i = 0; i < runs; ++i) begin[i + 1] += begin[i];
  }
};

/// Element (block, expert).
struct PlaceInBlocks {
  RoutedBlocks of;
  RoomInChunks room;
  const std::int32_t *before, *begin;
  std::int32_t *place, *row;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const std::size_t block = i / of.experts, e = i % of.experts, chunk = of.chunk_of(block);
    const std::int64_t most = room.of(chunk, e);
    const std::int32_t first = begin[e * of.chunks + chunk];
    std::int32_t taken = before[i];
    of.for_each_pair(block, e, [&](std::size_t pair) {
      const std::int32_t own = taken++;
      place[pair] = own < most ? first + own : kDroppedRow;
      if (own < most) row[first + own] = static_cast<std::int32_t>(pair / of.top_k);
    });
  }
};

/// Behind the last place.
struct NoRows {
  const std::int32_t* end;
  std::int32_t* row;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    if (i >= static_cast<std::size_t>(*end)) row[i] = kDroppedRow;
  }
};
template <class T>
struct ClearBehind {
  std::size_t width;
  const std::int32_t* end;
  T* rows;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    if (i >= static_cast<std::size_t>(*end) * width) rows[i] = 0.0F;
  }
};

// --- Rows ---

/// Whether a pack of elements of such rows lies in one of them, where a pack may begin.
template <class F>
PIPEWRIGHT_HOST_DEVICE inline bool has_packs(std::size_t width) {
  return width % static_cast<std::size_t>(F::kPack) == 0;
}

/// gathered[place] = x[row[place]].
template <class T>
struct GatherRows {
  std::size_t width;
  const std::int32_t* row;
  const T* x;
  T* gathered;

  static constexpr int kPack = kPackOf<T>;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    const std::int32_t from = row[i / width];
    gathered[i] = from == kDroppedRow
                      ? 0.0F
                      : static_cast<float>(x[static_cast<std::size_t>(from) * width + i % width]);
  }
  PIPEWRIGHT_HOST_DEVICE void pack(std::size_t i) const {
    const std::int32_t from = row[i / width];
    if (from == kDroppedRow || !has_packs<GatherRows>(width)) return one_by_one(*this, i);
    Loaded<T, kPack> all(x + static_cast<std::size_t>(from) * width + i % width);
    all.store(gathered + i);
  }
};

/// y[row] = the sum over its places of weight · z[place], or of z[place] where weights are null.
template <class T>
struct WeighRows {
  std::size_t width, top_k;
  const std::int32_t* place;
  const float* weights;
  const T* z;
  T* y;

  /// add(where the row lies that comes to the place, weight) for each place of the row.
  template <class Add>
  PIPEWRIGHT_HOST_DEVICE void for_each_place(std::size_t i, Add add) const {
    const std::size_t first = i / width * top_k;
    for (std::size_t pair = first; pair < first + top_k; ++pair) {
      if (place[pair] == kDroppedRow) continue;
      add(z + static_cast<std::size_t>(place[pair]) * width + i % width,
          weights == nullptr ? 1.0F : weights[pair]);
    }
  }
  static constexpr int kPack = kPackOf<T>;
  PIPEWRIGHT_HOST_DEVICE void operator()(std::size_t i) const {
    float sum = 0;
    for_each_place(i, [&](const T* from, float weight) { sum += weight * *from; });
    y[i] = sum;
  }
  PIPEWRIGHT_HOST_DEVICE void pack(std::size_t i) const {
    if (!has_packs<WeighRows>(width)) return one_by_one(*this, i);
    float sums[kPack] = {};
    for_each_place(i, [&](const T* from, float weight) {
      const Loaded<T, kPack> all(from);
      for (int k = 0; k < kPack; ++k) sums[k] += weight * all[k];
    });
    Loaded<T, kPack> to;
    for (int k = 0; k < kPack; ++k) to[k] = sums[k];
    to.store(y + i);
  }
};

/// Of a pair of a row and one of its experts. dz may be z.
template <class T>
struct WeighRowsBackward {
  int width, top_k;
  const std::int32_t* place;
  const float* weights;
  const T *dy, *z;
  T* dz;
  float* dweights;

  template <class Lanes>
  PIPEWRIGHT_HOST_DEVICE void operator()(const Lanes& lanes, std::size_t pair) const {
    const std::int32_t own = place[pair];
    float* const to = dweights + pair;
    if (own == kDroppedRow) {
      lanes.first([=] { *to = 0; });
      return;
    }
    const std::size_t at = static_cast<std::size_t>(own) * static_cast<std::size_t>(width);
    const T* const d =
        dy + pair / static_cast<std::size_t>(top_k) * static_cast<std::size_t>(width);
    const float weight = weights[pair];
    const auto along = [](float from, float g) { return from * g; };
    const float product = lanes.sum(width, along, z + at, d);
    lanes.map(
        width, [weight](float g) { return weight * g; }, dz + at, d);
    lanes.first([=] { *to = product; });
  }
};

}  // namespace pipewright::exec::cuda
