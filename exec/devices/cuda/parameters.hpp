// The parameters of a stage on a GPU: weights, gradients and what the optimizer keeps, each in one
// array with all parameters one after another, so that scaling, settling and the update are one
// kernel each. The host's Parameters say names, sizes, order and how weights start; the GPU makes
// the numbers, and the host has none before download().
//
// With numbers of bfloat16 there is one more array, which layers read: the weights, rounded by each
// update. So AdamW's state is 18 bytes a parameter there, and 16 elsewhere.
//
// In the array, those that do not decay come first, and of both kinds those that count for the
// norm. Replicas that share the update out (ZeRO 1) have equal parts of the array each: one range,
// whatever parameters it cuts, of which a replica keeps what the optimizer keeps, and with numbers
// of bfloat16 the weights themselves too. Behind the weights come statistics, which are always
// float32, and then, where replicas hold other experts, these, which their holders alone share out.
//
// Replicas that divide gradients (ZeRO 2) keep them of own parts alone, too, and those that divide
// weights (ZeRO 3) what layers read. Whole arrays stand in their place while they are needed, of
// the memory of computations (exec/devices/cuda/parameters/divided_parameters.cpp).
//
// In exact numerics a gradient's array holds a micro-batch's part until settle(), and the sums are
// order-free (exec/base/fixed_point.hpp). Work is put on the queue's computing stream; functions
// that wait say so. One thread at a time; the Queue must outlive it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exec/devices/cuda/pinned.hpp"
#include "exec/devices/cuda/queue.hpp"
#include "exec/devices/cuda/unwritten_gradients.hpp"
#include "exec/layers/optimizer.hpp"
#include "exec/training/gradient_norm.hpp"
#include "exec/training/gradient_part.hpp"
#include "exec/training/stage_weights.hpp"

namespace pipewright::exec::cuda {

/// Of the replicas that share the update out, which one this is, and what else they divide.
struct OwnShard {
  ShardPlace place = {};
  Sharding sharding = {};
};

class Parameters final : public StageWeights, public SharedOutWeights {
 public:
  struct Start {
    const OptimizerSpec& optimizer;
    std::uint64_t seed = 1;
    bool trains = true;  // else there are weights alone
    OwnShard shard = {};
    bool experts_differ = false;  // among replicas
  };
  /// Tells `host` where the weights and gradients are; it must outlive this, and so must
  /// `unwritten`. Weights that the host has are copied. Functions that wait call `between` as
  /// Queue::finish() does.
  Parameters(Queue& queue, UnwrittenGradients& unwritten, const std::vector<Parameter*>& host,
             const Start& start, std::function<void()> between);

  /// But for exact numerics they are only noted as unwritten.
  void clear_gradients() override;
  /// All gradients, one after another, with zeros in the gaps: the array itself. Of replicas that
  /// share the update out it ends with zeros, so that all parts are equal.
  Buffer gradients();
  /// Of them those in front that all replicas have alike, statistics too; and of weights alone,
  /// whose replicas' parts are equal.
  std::size_t common_floats() const { return common_floats_; }
  std::size_t weight_numbers() const { return sections_.front().room(); }
  void add_parts(std::span<const std::size_t> places, int micro_batch) override;
  void settle() override;
  void scale(float factor, bool with_statistics) override;
  /// By a factor on the GPU.
  void scale_by(const float* factor);
  /// What updates of this step multiply by. Nothing is under way.
  void begin_step(int step);
  /// By what begin_step() has said.
  void update(int step) override;

  /// Enqueues the copy to the host of what tells whether gradients were numbers; read_health() when
  /// the stream is done: then not_finite() names a parameter whose gradient was none.
  void ask_for_health();
  void read_health();
  /// Whatever the gradients were so far.
  void forget_health();
  std::string not_finite() const override { return not_finite_; }

  /// The squares of the gradients that count for the norm, to a sum of four words on the GPU.
  void add_squares(std::int64_t* total);
  /// Where a norm that has no meaning is noted.
  int* norm_flag() const { return bad_.ids() + all_.size(); }
  /// Waits; of all elements.
  SquareSum squares(std::span<const ElementRange> ranges) override;
  /// Waits.
  GradientPart part(std::span<const std::size_t> places) override;
  /// Waits.
  void set(std::size_t place, const Summands& summands) override;

  SharedOutWeights* shared_out() override { return is_shared_out() ? this : nullptr; }
  std::vector<ElementRange> ranges_of(const StageParameters& parameters,
                                      const ShardPlace& place) const override;
  void own(const std::vector<ElementRange>& ranges, const Sharding& sharding) override;
  /// Both wait.
  GradientPart owned_part(std::span<const ElementRange> ranges, bool with_gradients) const override;
  void take(std::span<const ElementRange> ranges, bool with_experts,
            const GradientPart& part) override;
  /// Of replicas that share them out: whether all weights are one array of equal parts.
  bool are_equal_parts() const { return common_floats_ == room_; }
  /// Of what layers read the array itself, equal parts of which the replicas have made; and what
  /// follows when it is whole.
  Buffer read_weights() const {
    if (divides_weights()) return whole_weights_;
    return read_ ? read_ : values_;
  }

  bool has_whole_gradients() const override { return static_cast<bool>(own_gradients_.values); }
  void make_whole_gradients() override;
  /// Waits.
  GradientPart hand_over_whole_gradients() override;
  /// The same where they lie: all of them, one after another, with zeros in the gaps. Bug where
  /// there are none.
  Buffer take_whole_gradients();
  /// To the own part of the sum what such an array has of it.
  void add_own_part(const Buffer& whole);
  /// Waits.
  void add(std::size_t place, const Summands& summands) override;
  void make_whole_weights() override;
  void drop_whole_weights() override;
  /// Of a whole array, in numbers. Those of all stages of a rank are lent from blocks for so many,
  /// so that one block is for all of them.
  std::size_t whole_numbers() const { return room_; }
  void lend_blocks_for(std::size_t numbers) { numbers_of_blocks_ = numbers; }
  /// Waits, without `between`. Weights and gradients as they stand, into the host's Parameters.
  void download();

  /// Nothing is left to let go.
  void forget_training() override {}
  std::vector<StateView> state() override;
  /// Waits, without `between`.
  void fetch_state() override;
  void make_room_for_state() override;
  /// Waits, without `between`.
  void store_state() override;
  /// The host's copies go.
  void drop_state() { kept_.clear(); }

  std::int64_t bytes() const override;

 private:
  struct Placed {
    Parameter* host;
    std::size_t size, offset;  // in numbers
    std::size_t section;
  };
  /// Of the array: parameters that the same replicas share out in equal parts, with zeros behind.
  struct Section {
    bool is_statistics = false;  // which layers update
    bool is_apart = false;       // of experts that differ among replicas
    PartOfAll part = {};
    std::size_t begin = 0, end = 0, decay_from = 0;
    std::size_t part_floats = 0;  // of each part; together at least those of the section
    ElementRange own;             // of the array: what update() updates
    std::size_t kept = 0;         // where that begins in arrays of own parts

    std::size_t room() const { return part_floats * part.count; }
    ElementRange part_at(std::size_t index) const;
  };

  /// Elements of a parameter, and where they begin in an array.
  struct Held {
    ElementRange range;
    std::size_t at = 0;
  };
  struct GradientArrays {
    Buffer values, high, low;  // the last two in exact numerics
  };

  bool is_shared_out() const { return shard_.place.of_all.count > 1; }
  bool divides_gradients() const { return is_shared_out() && shard_.sharding.divides_gradients(); }
  bool divides_weights() const { return is_shared_out() && shard_.sharding.divides_weights(); }
  /// With numbers of bfloat16, of the weights themselves a replica has its part alone.
  bool divides_values() const { return divides_weights() || (read_ && is_shared_out()); }
  /// Elements of a parameter that are in a range of the array.
  static ElementRange overlap(const Placed& p, const ElementRange& range);
  const Section& section_of(const Placed& p) const { return sections_[p.section]; }
  /// A section's own part, of values, which are of own parts alone, or of all.
  float* own_values(const Section& section) const {
    return values_.floats() + (divides_values() ? section.kept : section.own.begin);
  }
  float* own_gradients(const Section& section) const {
    return gradients_.floats() + (divides_gradients() ? section.kept : section.own.begin);
  }
  /// Of the own part, in arrays of own parts.
  Held kept_of(const Placed& p) const;
  /// Of the gradient what there is now, in the array as it is now.
  Held held_gradient(const Placed& p) const;
  /// Of that array.
  std::size_t gradient_floats() const {
    return divides_gradients() && !has_whole_gradients() ? kept_floats_ : floats_;
  }
  void clear_gradient_arrays();
  void point_at_gradients();
  void point_at_weights();
  void for_gradients_of_weights(
      const std::function<void(float* at, std::size_t count)>& with) const;
  void put(std::size_t place, const Summands& summands, bool on_top);
  void put_sums(std::size_t place, const Summands& summands, bool on_top);
  void drop_whole_gradients();
  Buffer whole_array(std::size_t number_bytes) const;
  /// A parameter's values, all of them; where replicas keep their own parts alone, a statistic's.
  float* value_of(const Placed& p) const {
    const Section& section = section_of(p);
    return values_.floats() +
           (divides_values() ? section.kept + p.offset - section.begin : p.offset);
  }
  /// Nothing where there are none.
  void copy_floats(const float* from, std::size_t floats, float* to) const {
    if (floats > 0) queue_.copy(to, from, floats * sizeof(float));
  }
  void copy_words(const std::int64_t* from, std::size_t words, std::int64_t* to) const {
    if (words > 0) queue_.copy(to, from, words * sizeof(std::int64_t));
  }
  Buffer room_for_values();
  void keep_values(const Buffer& whole);
  void list_state(bool has_all_values);
  bool is_exact() const { return queue_.site().precision == Precision::Exact; }
  void place(const std::vector<Parameter*>& host);
  void place_section(Section section, const std::function<bool(const Parameter&)>& is_in);
  void start(const Placed& p, std::uint64_t seed, float* to);
  void prepare_training();
  void update(const Section& one);
  void for_sections_of_weights(const std::function<void(const Section&)>& with) const;
  Buffer zeros(std::size_t bytes);
  /// What nobody has added to becomes 0.
  void clear_rest();
  void finish() const;
  FixedPointSums sum_of(std::size_t place, const Summands& summands);
  void add_sums(std::size_t place, const FixedPointSums& more, FixedPointSums& sum);
  void note_not_finite(const std::string& clause);

  Queue& queue_;
  UnwrittenGradients& unwritten_;
  const OptimizerSpec optimizer_;
  const std::function<void()> between_;
  std::vector<Placed> all_;
  std::size_t floats_ = 0;         // of all, with the gaps between them
  std::size_t common_floats_ = 0;  // of the array, without experts that differ among replicas
  std::size_t room_ = 0;           // of the array; at least floats_
  std::size_t kept_floats_ = 0;    // of own parts
  const OwnShard shard_;
  const bool experts_differ_;
  std::vector<Section> sections_;
  std::vector<ElementRange> counted_;  // for the norm
  Buffer read_;                        // by layers; empty: the values are
  Buffer values_, gradients_, mean_, square_, high_, low_, bad_, partial_, total_;
  GradientArrays own_gradients_;  // while whole ones stand in their place
  Buffer whole_weights_;          // of divided ones, while there are some
  std::size_t numbers_of_blocks_ = 0;
  Buffer factors_;                                // AdamW: as staged_factors_
  Pinned<pipewright_cuda_adamw> staged_factors_;  // of parameters that do not decay, and that do
  Pinned<int> health_;
  /// An array that a checkpoint has.
  struct Kept {
    std::size_t place = 0, first = 0;  // and the parameter's element that it begins with
    std::string_view slot;
    float* at = nullptr;
    bool is_shared_out = false;
    AlignedFloats on_host;
  };
  std::vector<Kept> kept_;  // from fetch_state() on
  std::string not_finite_;  // the first clause
};

}  // namespace pipewright::exec::cuda
