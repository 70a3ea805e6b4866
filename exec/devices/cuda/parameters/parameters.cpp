#include "exec/devices/cuda/parameters.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "exec/base/random.hpp"
#include "exec/devices/cpu/owned_arrays.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec::cuda {
namespace {

/// Where a parameter may begin: what cuBLAS likes best, and more than its loads need.
constexpr std::size_t kAlignedFloats = 64;

std::size_t in_whole_packs(std::size_t floats) {
  return (floats + kAlignedFloats - 1) / kAlignedFloats * kAlignedFloats;
}

pipewright_cuda_slice slice_of(const Slice& part) {
  PIPEWRIGHT_ASSERT(part.ranges.size() <= PIPEWRIGHT_CUDA_SLICE_RANGES,
                    "a part of a matrix in more ranges of columns than a GPU knows");
  pipewright_cuda_slice slice{part.columns, part.rows.begin, part.width(), {}};
  for (std::size_t i = 0; i < part.ranges.size(); ++i)
    slice.ranges[i] = {part.ranges[i].begin, part.ranges[i].count};
  return slice;
}

}  // namespace

Parameters::Parameters(Queue& queue, UnwrittenGradients& unwritten,
                       const std::vector<Parameter*>& host, const Start& start,
                       std::function<void()> between)
    : queue_(queue),
      unwritten_(unwritten),
      optimizer_(start.optimizer),
      between_(std::move(between)),
      shard_(start.shard),
      experts_differ_(start.experts_differ) {
  place(host);
  if (queue.site().precision == Precision::Bfloat16)
    read_ = zeros((divides_weights() ? kept_floats_ : room_) * sizeof(Bfloat16));
  values_ = zeros((divides_values() ? kept_floats_ : room_) * sizeof(float));
  bad_ = zeros((all_.size() + 1) * sizeof(int));
  if (start.trains) prepare_training();
  health_ = Pinned<int>(queue.cuda(), all_.size() + 1);
  std::fill_n(health_.data(), health_.size(), 0);
  point_at_weights();
  if (gradients_) point_at_gradients();
  const Buffer values = room_for_values();
  for (const Placed& p : all_) this->start(p, start.seed, values.floats() + p.offset);
  keep_values(values);
  queue_.finish(queue_.record(queue_.computing()), {});
}

/// Of what layers read; of divided weights only statistics, unless there are whole ones.
void Parameters::point_at_weights() {
  const Buffer read = read_weights();
  for (const Placed& p : all_) {
    if (p.host->is_statistic)
      p.host->device_value = value_of(p);
    else if (read)
      p.host->device_value = reinterpret_cast<float*>(static_cast<std::byte*>(read.at()) +
                                                      p.offset * queue_.number_bytes());
    else
      p.host->device_value = nullptr;
  }
}

/// Where all weights are made, or put, before a part of them is kept: in the place of gradients.
Buffer Parameters::room_for_values() {
  if (!divides_values()) return values_;
  if (gradients_ && !divides_gradients()) return gradients_;
  Buffer room = queue_.memory().take(floats_ * sizeof(float));
  queue_.clear(room.at(), room.bytes());
  return room;
}

/// Keeps what is to be kept, and rounds for layers what they read.
void Parameters::keep_values(const Buffer& whole) {
  if (divides_values()) {
    for (const Section& one : sections_)
      copy_floats(whole.floats() + one.own.begin, one.own.size(), own_values(one));
  }
  if (read_ && divides_weights())
    queue_.run(queue_.kernels().round, kept_floats_, values_.floats(), read_.at());
  else if (read_)
    queue_.run(queue_.kernels().round, floats_, whole.floats(), read_.at());
  if (divides_values()) queue_.clear(whole.at(), floats_ * sizeof(float));
}

void Parameters::prepare_training() {
  gradients_ = zeros((divides_gradients() ? kept_floats_ : room_) * sizeof(float));
  if (optimizer_.kind == OptimizerKind::AdamW) {
    mean_ = zeros(kept_floats_ * sizeof(float));
    square_ = zeros(kept_floats_ * sizeof(float));
    staged_factors_ = Pinned<pipewright_cuda_adamw>(queue_.cuda(), 2);
    factors_ = zeros(2 * sizeof(pipewright_cuda_adamw));
  }
  if (is_exact()) {
    high_ = zeros(gradient_floats() * sizeof(std::int64_t));
    low_ = zeros(gradient_floats() * sizeof(std::int64_t));
  }
  if (optimizer_.clip_grad_norm <= 0) return;
  partial_ = zeros(PIPEWRIGHT_CUDA_SQUARE_WORDS * sizeof(std::int64_t));
  total_ = zeros(4 * sizeof(std::int64_t));
}

/// In the order of the host's list, with the offsets of the array's order.
void Parameters::place(const std::vector<Parameter*>& host) {
  for (Parameter* p : host) {
    const auto declared = static_cast<std::size_t>(p->start.size);
    all_.push_back({p, p->value.empty() ? declared : p->value.size(), 0, 0});
  }
  const auto is_statistic = [](const Parameter& p) { return p.is_statistic; };
  const auto is_apart = [this](const Parameter& p) { return experts_differ_ && p.is_of_experts; };
  const auto has = [&](const auto& is_in) {
    return std::any_of(host.begin(), host.end(), [&](const Parameter* p) { return is_in(*p); });
  };
  place_section({.part = shard_.place.of_all},
                [=](const Parameter& p) { return !is_statistic(p) && !is_apart(p); });
  if (has(is_statistic)) place_section({.is_statistics = true}, is_statistic);
  common_floats_ = room_;
  if (has(is_apart)) place_section({.is_apart = true, .part = shard_.place.of_experts}, is_apart);
}

void Parameters::for_sections_of_weights(const std::function<void(const Section&)>& with) const {
  for (const Section& one : sections_) {
    if (!one.is_statistics) with(one);
  }
}

void Parameters::place_section(Section section,
                               const std::function<bool(const Parameter&)>& is_in) {
  section.begin = floats_ = room_;
  // Replicas have one order, whichever of them counts. A copy that all share out counts by parts.
  enum Turn { kCounts, kReplicasCopy, kCopy, kTurns };
  const auto turn_of = [this](const Parameter& p) {
    if (p.is_copy) return kCopy;
    return p.is_replicas_copy && !is_shared_out() ? kReplicasCopy : kCounts;
  };
  for (const bool decays : {false, true}) {
    if (decays) section.decay_from = floats_;
    const std::size_t begin = floats_;
    for (int turn = 0; turn < kTurns; ++turn) {
      for (Placed& p : all_) {
        if (!is_in(*p.host) || p.host->decays != decays || turn_of(*p.host) != turn) continue;
        p.offset = floats_;
        p.section = sections_.size();
        floats_ += in_whole_packs(p.size);
      }
      if (turn == kCounts && !section.is_statistics) counted_.push_back({begin, floats_});
    }
  }
  section.end = floats_;
  const PartOfAll& part = section.part;
  section.part_floats = in_whole_packs((section.end - section.begin + part.count - 1) / part.count);
  section.own = section.part_at(part.index);
  section.kept = kept_floats_;
  kept_floats_ += section.own.size();
  room_ += section.room();
  sections_.push_back(section);
}

ElementRange Parameters::Section::part_at(std::size_t index) const {
  return {std::min(end, begin + index * part_floats),
          std::min(end, begin + (index + 1) * part_floats)};
}

void Parameters::start(const Placed& p, std::uint64_t seed, float* to) {
  const Parameter& of = *p.host;
  if (!of.value.empty()) return queue_.copy(to, of.value.data(), p.size * sizeof(float));
  const std::uint64_t key = key_of(seed, of.name);
  if (of.slice.is_whole())
    return queue_.run(queue_.kernels().start, p.size, key, of.start.bound, of.start.value, to);
  const pipewright_cuda_slice slice = slice_of(of.slice);
  queue_.run(queue_.kernels().start_part, p.size, key, of.start.bound, of.start.value, &slice, to);
}

Buffer Parameters::zeros(std::size_t bytes) {
  Buffer made = queue_.weights().take(bytes);
  queue_.clear(made.at(), bytes);
  return made;
}

void Parameters::finish() const { queue_.finish(queue_.record(queue_.computing()), between_); }

void Parameters::clear_gradients() {
  if (is_exact() || divides_gradients()) return clear_gradient_arrays();
  for (const Placed& p : all_) unwritten_.add({p.host->device_gradient, p.size});
}

void Parameters::clear_gradient_arrays() {
  for (const Buffer* array : {&gradients_, &high_, &low_})
    if (*array) queue_.clear(array->at(), array->bytes());
}

void Parameters::clear_rest() {
  unwritten_.take_all([this](const UnwrittenGradients::Array& gradient) {
    queue_.clear(gradient.at, gradient.size * sizeof(float));
  });
}

Buffer Parameters::gradients() {
  clear_rest();
  return gradients_;
}

void Parameters::add_parts(std::span<const std::size_t> places, int) {
  if (!is_exact()) return;
  for (const std::size_t i : places) {
    const Placed& p = all_[i];
    queue_.run(queue_.kernels().fixed_add, p.size, p.host->device_gradient,
               high_.longs() + p.offset, low_.longs() + p.offset, bad_.ids() + i);
  }
}

void Parameters::settle() {
  clear_rest();
  if (!is_exact()) return;
  queue_.run(queue_.kernels().fixed_round, gradient_floats(), high_.longs(), low_.longs(),
             gradients_.floats());
}

/// Those that are here.
void Parameters::for_gradients_of_weights(
    const std::function<void(float* at, std::size_t count)>& with) const {
  for_sections_of_weights([&](const Section& one) {
    if (!divides_gradients()) return with(gradients_.floats() + one.begin, one.end - one.begin);
    if (one.own.size() > 0) with(own_gradients(one), one.own.size());
  });
}

void Parameters::scale(float factor, bool with_statistics) {
  clear_rest();
  PIPEWRIGHT_ASSERT(!with_statistics, "gradients of versions on a GPU");
  for_gradients_of_weights(
      [&](float* at, std::size_t count) { queue_.run(queue_.kernels().scale, count, factor, at); });
}

void Parameters::scale_by(const float* factor) {
  clear_rest();
  for_gradients_of_weights([&](float* at, std::size_t count) {
    queue_.run(queue_.kernels().scale_by, count, factor, at);
  });
}

void Parameters::begin_step(int step) {
  if (!factors_) return;
  for (const bool decays : {false, true}) {
    const AdamFactors f = adam_factors(optimizer_, step, decays);
    staged_factors_.data()[decays ? 1 : 0] = {f.keep_mean,   f.take_mean, f.keep_square,
                                              f.take_square, f.rate,      f.square_correction,
                                              f.epsilon,     f.keep_value};
  }
}

/// The factors go by way of memory, so that a step that is replayed takes those of its own time.
/// The gaps between parameters stay 0.
void Parameters::update(int) {
  clear_rest();
  if (factors_) queue_.copy(factors_.at(), staged_factors_.data(), factors_.bytes());
  for_sections_of_weights([this](const Section& one) {
    if (one.own.size() > 0) update(one);
  });
}

void Parameters::update(const Section& one) {
  const ElementRange& own = one.own;
  const float* const gradients = own_gradients(one);
  Bfloat16* const read =
      read_ ? static_cast<Bfloat16*>(read_.at()) + (divides_weights() ? one.kept : own.begin)
            : nullptr;
  if (optimizer_.kind == OptimizerKind::Sgd) {
    const auto rate = static_cast<float>(optimizer_.learning_rate);
    return queue_.run(queue_.kernels().sgd, own.size(), rate, gradients, own_values(one), read);
  }
  const std::size_t decay_from = std::clamp(one.decay_from, own.begin, own.end) - own.begin;
  queue_.run(queue_.kernels().adamw, own.size(), decay_from,
             static_cast<const pipewright_cuda_adamw*>(factors_.at()), gradients,
             mean_.floats() + one.kept, square_.floats() + one.kept, own_values(one), read);
}

// --- What the host wants to know ---

void Parameters::ask_for_health() {
  queue_.copy(health_.data(), bad_.at(), health_.size() * sizeof(int));
}

void Parameters::read_health() {
  for (std::size_t i = 0; i < all_.size(); ++i) {
    if (health_.data()[i] != 0)
      note_not_finite("the gradient of \"" + all_[i].host->name + "\" is not a number below 4e12");
  }
}

void Parameters::forget_health() { queue_.clear(bad_.at(), health_.size() * sizeof(int)); }

void Parameters::note_not_finite(const std::string& clause) {
  if (not_finite_.empty()) not_finite_ = clause;
}

void Parameters::add_squares(std::int64_t* total) {
  PIPEWRIGHT_ASSERT(static_cast<bool>(partial_), "a norm of a run that does not clip");
  clear_rest();
  for (const ElementRange& all : counted_) {
    for (const Section& one : sections_) {
      const ElementRange range{std::clamp(all.begin, one.own.begin, one.own.end),
                               std::clamp(all.end, one.own.begin, one.own.end)};
      if (range.size() == 0) continue;
      queue_.run(queue_.kernels().add_squares, range.size(),
                 own_gradients(one) + (range.begin - one.own.begin), partial_.longs(), total,
                 norm_flag());
    }
  }
}

/// The ranges are those of own().
SquareSum Parameters::squares(std::span<const ElementRange>) {
  Pinned<std::int64_t> found(queue_.cuda(), 4);
  queue_.clear(total_.at(), 4 * sizeof(std::int64_t));
  add_squares(total_.longs());
  queue_.copy(found.data(), total_.at(), 4 * sizeof(std::int64_t));
  ask_for_health();
  finish();
  read_health();
  if (health_.data()[all_.size()] != 0)
    note_not_finite("a gradient is not a number below 2e12, and cannot be clipped");
  if (!not_finite_.empty()) return {};
  return {{found.data()[0], found.data()[1]}, {found.data()[2], found.data()[3]}};
}

GradientPart Parameters::part(std::span<const std::size_t> places) {
  clear_rest();
  GradientPart part;
  std::vector<FixedPointSums::Words> high, low;
  part.gradients.reserve(places.size());
  high.reserve(places.size());
  low.reserve(places.size());
  for (const std::size_t i : places) {
    const Held held = held_gradient(all_[i]);
    const std::size_t size = held.range.size();
    if (!is_exact()) {
      AlignedFloats& to = part.gradients.emplace_back(size);
      copy_floats(gradients_.floats() + held.at, size, to.data());
      continue;
    }
    copy_words(high_.longs() + held.at, size, high.emplace_back(size).data());
    copy_words(low_.longs() + held.at, size, low.emplace_back(size).data());
  }
  ask_for_health();
  finish();
  read_health();
  for (std::size_t k = 0; k < high.size(); ++k)
    part.sums.emplace_back(std::move(high[k]), std::move(low[k]));
  return part;
}

FixedPointSums Parameters::sum_of(std::size_t place, const Summands& summands) {
  FixedPointSums sum(all_[place].size);
  for (const FixedPointSums* one : summands.sums) add_sums(place, *one, sum);
  return sum;
}

void Parameters::add_sums(std::size_t place, const FixedPointSums& more, FixedPointSums& sum) {
  if (sum.add(more)) return;
  note_not_finite("the gradients of \"" + all_[place].host->name + "\" add up to more than 4e12");
  sum.clear();
}

void Parameters::set(std::size_t place, const Summands& summands) {
  is_exact() ? put_sums(place, summands, false) : put(place, summands, false);
}

/// The sum is taken on the host, where the summands are; what is copied stays there until it is on
/// the GPU.
void Parameters::put(std::size_t place, const Summands& summands, bool on_top) {
  const Held held = held_gradient(all_[place]);
  const ElementRange& range = summands.range;
  float* const to = gradients_.floats() + (held.at + range.begin - held.range.begin);
  if (!divides_gradients()) static_cast<void>(unwritten_.take(to));
  AlignedFloats sum(range.size(), 0.0F);
  if (on_top) {
    copy_floats(to, sum.size(), sum.data());
    finish();
  }
  for (const AlignedFloats* one : summands.gradients)
    add_to(range.size(), one->data() + range.begin, sum.data());
  copy_floats(sum.data(), sum.size(), to);
  finish();
}

void Parameters::put_sums(std::size_t place, const Summands& summands, bool on_top) {
  const Held held = held_gradient(all_[place]);
  const std::size_t size = held.range.size();
  if (size == 0) return;
  FixedPointSums sum = sum_of(place, summands);
  if (size < sum.size()) sum = cpu::slice_of(sum, 0, held.range);
  std::int64_t *const high = high_.longs() + held.at, *const low = low_.longs() + held.at;
  if (on_top) {
    FixedPointSums::Words own_high(size), own_low(size);
    copy_words(high, size, own_high.data());
    copy_words(low, size, own_low.data());
    finish();
    add_sums(place, FixedPointSums(std::move(own_high), std::move(own_low)), sum);
  }
  queue_.clear(gradients_.floats() + held.at, size * sizeof(float));
  copy_words(sum.high().data(), size, high);
  copy_words(sum.low().data(), size, low);
  finish();
}

void Parameters::download() {
  clear_rest();
  // Where there is nothing wider of all of it.
  std::vector<std::pair<Parameter*, std::vector<Bfloat16>>> narrow;
  for (const Placed& p : all_) {
    const Held held = held_gradient(p);
    p.host->first_gradient = held.range.begin;
    p.host->gradient.resize(held.range.size());
    copy_floats(gradients_.floats() + held.at, held.range.size(), p.host->gradient.data());
    const Held own = divides_weights() ? kept_of(p) : Held{{0, p.size}};
    p.host->first_value = own.range.begin;
    p.host->value.resize(own.range.size());
    if (divides_weights())
      copy_floats(values_.floats() + own.at, own.range.size(), p.host->value.data());
    else if (divides_values() && !p.host->is_statistic)
      queue_.copy(narrow.emplace_back(p.host, p.size).second.data(), p.host->device_value,
                  p.size * sizeof(Bfloat16));
    else
      copy_floats(value_of(p), p.size, p.host->value.data());
  }
  queue_.finish(queue_.record(queue_.computing()), {});
  for (const auto& [host, numbers] : narrow)
    std::copy(numbers.begin(), numbers.end(), host->value.begin());
}

std::int64_t Parameters::bytes() const { return queue_.weights().figures().live_bytes; }

}  // namespace pipewright::exec::cuda
