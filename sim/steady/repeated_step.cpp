#include "sim/steady/repeated_step.hpp"

#include <algorithm>
#include <limits>

#include "core/base/error.hpp"
#include "core/order/stages_by_rank.hpp"
#include "core/timeline/live_memory.hpp"
#include "core/timeline/ratios.hpp"

namespace pipewright::sim {
namespace {

/// a + n * b. Throws where that is more than 64 bits hold.
std::int64_t after_repetitions(std::int64_t a, std::int64_t n, std::int64_t b) {
  std::int64_t product = 0, sum = 0;
  if (__builtin_mul_overflow(n, b, &product) || __builtin_add_overflow(a, product, &sum)) {
    throw InputError(
        "the step takes more nanoseconds, or bytes, than 64 bits hold (292 years, 8 EiB); use "
        "fewer micro-batches or smaller costs");
  }
  return sum;
}

/// The peaks of a rank that walks the short list and holds what the repetitions put in besides.
class Peaks {
 public:
  Peaks(LiveMemory live, InstructionId begin) : live_(std::move(live)), at_(begin) {}

  /// To `end`, whatever the peak was before.
  void pass_to(InstructionId end) {
    live_.forget_peaks();
    for (; at_ < end; ++at_) live_.pass();
    look();
  }
  /// The part, and the same again so often. What it leaves behind adds up, so its own peak is the
  /// highest in the first repetition or in the last one.
  void pass_again(const RepeatedPart& part, std::int64_t repetitions) {
    const std::int64_t activations = live_.activations(), bytes = live_.bytes();
    pass_to(part.end);
    const std::int64_t times = after_repetitions(0, repetitions, part.times);
    activations_ = after_repetitions(activations_, times, live_.activations() - activations);
    bytes_ = after_repetitions(bytes_, times, live_.bytes() - bytes);
    look();
  }

  void set(RankFigures& rank) const {
    if (peak_activations_ > std::numeric_limits<int>::max()) {
      throw InputError("a rank holds " + std::to_string(peak_activations_) +
                       " activations at once, more than can be counted; use fewer micro-batches");
    }
    rank.peak_activations = static_cast<int>(peak_activations_);
    rank.peak_bytes = peak_bytes_;
  }

 private:
  void look() {
    peak_activations_ = std::max(peak_activations_, activations_ + live_.peak_activations());
    peak_bytes_ = std::max(peak_bytes_, after_repetitions(bytes_, 1, live_.peak_bytes()));
  }

  LiveMemory live_;
  InstructionId at_;
  std::int64_t activations_ = 0, bytes_ = 0;  // of the repetitions
  std::int64_t peak_activations_ = 0, peak_bytes_ = 0;
};

}  // namespace

Figures repeated(const Program& program, const CostTable& costs, const SteadyState& steady,
                 std::int64_t repetitions, Figures figures) {
  figures.makespan_ns = after_repetitions(figures.makespan_ns, repetitions, steady.step_ns);
  const auto stages = stages_by_rank(program.placement, program.micro_batches);
  std::int64_t all = 0;  // set_ratios() adds them up; here an overflow is noticed
  for (std::size_t r = 0; r < figures.ranks.size(); ++r) {
    RankFigures& rank = figures.ranks[r];
    rank.busy_ns = after_repetitions(rank.busy_ns, repetitions, steady.busy_ns[r]);
    rank.span_ns = after_repetitions(rank.span_ns, repetitions, steady.last_end_ns[r]);
    rank.last_end_ns = after_repetitions(rank.last_end_ns, repetitions, steady.last_end_ns[r]);
    all = after_repetitions(all, 1, rank.busy_ns);
    Peaks peaks(LiveMemory(program, costs, RankId(static_cast<std::int64_t>(r)), stages[r], false),
                program.rank_begin[r]);
    for (const auto& parts : steady.parts) {
      peaks.pass_to(parts[r].begin);
      peaks.pass_again(parts[r], repetitions);
    }
    peaks.pass_to(program.rank_begin[r + 1]);
    peaks.set(rank);
  }
  set_ratios(figures);
  return figures;
}

}  // namespace pipewright::sim
