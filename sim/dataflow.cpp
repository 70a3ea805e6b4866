#include "sim/dataflow.hpp"

#include <algorithm>

#include "core/base/large_pages.hpp"
#include "core/timeline/timeline.hpp"
#include "sim/awake_ranks.hpp"
#include "sim/first_row.hpp"

namespace pipewright::sim {
namespace {

constexpr std::uint32_t kTurnsOfPulse = 1U << 14;  // a rank takes a few steps a turn

class Walk {
 public:
  Walk(const Program& program, const Durations& durations, std::vector<std::int64_t>& end)
      : program_(program),
        durations_(durations),
        end_(end.data()),
        awake_(static_cast<std::size_t>(program.ranks())) {
    for (int r = 0; r < program.ranks(); ++r) {
      const InstructionId begin = program.rank_begin[static_cast<std::size_t>(r)];
      ranks_.push_back({begin, program.rank_begin[static_cast<std::size_t>(r) + 1]});
      ranks_.back().pair = first_row(program.pairs, begin);
      ranks_.back().extra = first_row(program.extra_inputs, begin);
    }
    for (std::size_t i = 0; i < program.routes.size(); ++i)
      hops_.push_back({durations.route_ns()[i], program.routes[i].destination});
  }

  std::int64_t run(const Pulse& pulse) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) awake_.push(static_cast<std::uint32_t>(r));
    for (std::uint32_t turn = 1; !awake_.empty(); ++turn) {
      if (turn % kTurnsOfPulse == 0 && pulse) pulse();
      advance(awake_.pop());
    }
    return last_;
  }

 private:
  struct Rank {
    InstructionId at, stop;
    InstructionId blocked_on = kNoInstruction;  // the input it waits for
    std::int64_t clock = 0;
    std::size_t pair = 0, extra = 0;  // rows of pairs and extra_inputs, at or before `at`'s
  };

  /// What a message takes on a route, and where it ends.
  struct Hop {
    std::int64_t ns;
    RankId destination;
  };

  void advance(std::uint32_t index) {
    Rank& rank = ranks_[index];
    const Instruction* const code = program_.code.data();
    const Hop* const hops = hops_.data();
    std::int64_t clock = rank.clock;
    InstructionId at = rank.at;
    InstructionId blocked_on = kNoInstruction;
    for (; at < rank.stop; ++at) {
      const Instruction& in = code[at];
      if (is_compute(in.kind) &&
          (in.flags & (Instruction::kPair | Instruction::kExtraInput)) == 0) {
        if (in.link != kNoInstruction) {
          const std::int64_t arrived = end_[in.link];
          if (arrived == kNotEnded) {
            blocked_on = in.link;
            break;
          }
          clock = std::max(clock, arrived);
        }
        clock += durations_.plain(at, in);
        end_[at] = clock;
      } else if (is_send(in.kind)) {
        if (in.has(Instruction::kExtraInput)) {
          // Its producer stands later: it leaves when that ends (see late_sends()).
          has_late_sends_ = true;
          continue;
        }
        end_[at] = clock;
        if (in.link != kNoInstruction) deliver(in.link, clock, hops[in.route]);
      } else if (!is_transfer(in.kind)) {
        if (!general(rank, at, clock, blocked_on)) break;
      }
      // A RECV was posted at time 0: its end is written by its SEND.
    }
    // Other ranks come first; by the time this one goes on, what it reads next is in the cache.
    __builtin_prefetch(code + at + 4);
    __builtin_prefetch(code + at + 8);
    __builtin_prefetch(end_ + at, 1);
    __builtin_prefetch(end_ + at + 8, 1);
    rank.at = at;
    rank.clock = clock;
    rank.blocked_on = blocked_on;
    last_ = std::max(last_, clock);
    if (has_late_sends_) late_sends(index);
  }

  /// Computations with several inputs, pairs, OPT, REDUCE_GRAD, waits. False: blocked.
  bool general(Rank& rank, InstructionId at, std::int64_t& clock, InstructionId& blocked_on) {
    const Instruction& in = program_.code[at];
    std::int64_t start = clock;
    const auto take = [&](InstructionId input) {
      if (input == kNoInstruction) return true;
      if (end_[input] == kNotEnded) {
        blocked_on = input;
        return false;
      }
      start = std::max(start, end_[input]);
      return true;
    };
    if (!take(in.link)) return false;
    if (in.has(Instruction::kExtraInput)) {
      const auto& rows = program_.extra_inputs;
      while (rows[rank.extra].first < at) ++rank.extra;
      for (std::size_t row = rank.extra; row < rows.size() && rows[row].first == at; ++row) {
        if (!take(rows[row].second)) return false;
      }
    }
    if (in.has(Instruction::kPair)) {
      while (program_.pairs[rank.pair].first < at) ++rank.pair;
      clock = start + durations_.pair(at, in, program_.pairs[rank.pair].second);
    } else {
      clock = start + durations_.compute(at);
    }
    end_[at] = clock;
    return true;
  }

  void deliver(InstructionId receive, std::int64_t left, const Hop& hop) {
    const std::int64_t arrival = left + hop.ns;
    end_[receive] = arrival;
    last_ = std::max(last_, arrival);
    Rank& peer = ranks_[static_cast<std::size_t>(hop.destination.value)];
    if (peer.blocked_on != receive) return;
    peer.blocked_on = kNoInstruction;
    awake_.push(static_cast<std::uint32_t>(hop.destination.value));
  }

  /// Sends of a malformed order that were issued before their data was made.
  void late_sends(std::uint32_t index) {
    const Rank& rank = ranks_[index];
    for (InstructionId id = program_.rank_begin[index]; id < rank.at; ++id) {
      const Instruction& in = program_.code[id];
      if (!is_send(in.kind) || end_[id] != kNotEnded) continue;
      std::int64_t ready = 0;
      for (const auto& [self, input] : program_.extra_inputs_of(id)) {
        ready = end_[input] == kNotEnded || ready == kNotEnded ? kNotEnded
                                                               : std::max(ready, end_[input]);
      }
      if (ready == kNotEnded) continue;
      end_[id] = ready;
      if (ranks_[index].blocked_on == id) {  // a WAIT_SEND of it
        ranks_[index].blocked_on = kNoInstruction;
        awake_.push(index);
      }
      if (in.link != kNoInstruction) deliver(in.link, ready, hops_[in.route]);
    }
  }

  const Program& program_;
  const Durations& durations_;
  std::int64_t* end_;
  std::vector<Rank> ranks_;
  std::vector<Hop> hops_;  // by route
  AwakeRanks awake_;
  std::int64_t last_ = 0;
  bool has_late_sends_ = false;
};

}  // namespace

std::int64_t run_dataflow(const Program& program, const Durations& durations,
                          std::vector<std::int64_t>& end, const Pulse& pulse) {
  assign_in_large_pages(end, program.code.size(), kNotEnded);
  return Walk(program, durations, end).run(pulse);
}

}  // namespace pipewright::sim
