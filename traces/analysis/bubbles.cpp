#include "traces/analysis/bubbles.hpp"

#include <algorithm>
#include <numeric>

#include "core/program/start_rules.hpp"
#include "traces/analysis/action_excess.hpp"
#include "traces/analysis/bubble_gap.hpp"
#include "traces/analysis/tensor_ends.hpp"

namespace pipewright::traces {
namespace {

/// One rank at a time, along its compute lane.
class Explainer {
 public:
  Explainer(const Program& program, const Timeline& timeline)
      : program_(program), timeline_(timeline), tensor_ends_(tensor_ends_of(program)) {}

  BubbleReport run() {
    report_.ranks.resize(static_cast<std::size_t>(program_.ranks()));
    for (int r = 0; r < program_.ranks(); ++r) explain_rank(RankId(r));
    for (const BubbleTotals& rank : report_.ranks) {
      for (std::size_t c = 0; c < rank.ns.size(); ++c) report_.total.ns[c] += rank.ns[c];
    }
    return std::move(report_);
  }

 private:
  void explain_rank(RankId rank) {
    rank_ = rank;
    places_ = places_in_flight(program_, rank);
    const InstructionId begin = program_.rank_begin[static_cast<std::size_t>(rank.value)];
    const InstructionId end = program_.rank_begin[static_cast<std::size_t>(rank.value) + 1];
    std::int64_t cursor = 0;
    InstructionId previous = kNoInstruction;
    bool finished = true;
    for (InstructionId id = begin; id < end; ++id) {
      if (timeline_.end[id] == kNotEnded) {
        finished = false;
        continue;
      }
      if (program_.code[id].is_communication()) continue;
      const std::int64_t start = timeline_.start[id];
      if (start > cursor) {
        if (previous == kNoInstruction) {
          add(cursor, start, BubbleCause::Fill, id, kNoInstruction);
        } else {
          explain_gap(cursor, previous, id);
        }
      }
      cursor = std::max(cursor, timeline_.end[id]);
      previous = id;
    }
    BubbleCause rest = previous == kNoInstruction ? BubbleCause::Fill : BubbleCause::Drain;
    if (!finished) rest = BubbleCause::Stuck;
    add(cursor, timeline_.makespan_ns, rest, kNoInstruction, kNoInstruction);
  }

  void explain_gap(std::int64_t from, InstructionId previous, InstructionId id) {
    pending_.clear();
    const InstructionId first = program_.rank_begin[static_cast<std::size_t>(rank_.value)];
    const bool one_by_one = program_.policy.issue == Issue::Inline;
    const bool runs = program_.policy.issue != Issue::Stream;  // the transfers held the lane
    for (InstructionId between = previous + 1; between < id; ++between) {
      const Instruction& in = program_.code[between];
      if (!in.is_communication()) continue;
      if (runs || in.has(Instruction::kOnComputeLane)) add_pending(between, from);
      // In front of an end without a place in flight the lane stands until an older one ends.
      const InstructionId place = places_.empty() ? kNoInstruction : places_[between - first];
      if (place != kNoInstruction) add_pending(place, from);
    }
    if (!one_by_one) {
      add_input(program_.code[id].link, from);
      for (const auto& row : program_.extra_inputs_of(id)) add_input(row.second, from);
    }
    parts_.clear();
    split_gap(from, timeline_.start[id], pending_, !one_by_one, parts_);
    for (const GapPart& part : parts_) add(part.from, part.to, part.cause, id, part.waits_for);
  }

  void add_input(InstructionId input, std::int64_t from) {
    if (input == kNoInstruction) return;
    const Instruction& in = program_.code[input];
    if (is_transfer(in.kind) || in.in_collective()) add_pending(input, from);
  }

  void add_pending(InstructionId id, std::int64_t gap_start) {
    if (timeline_.end[id] == kNotEnded) return;
    PendingTransfer pending{.from = std::max(gap_start, timeline_.start[id]),
                            .to = timeline_.end[id],
                            .made = gap_start,
                            .excess = 0,
                            .producer = kNoInstruction,
                            .transfer = id};
    // Of a collective, and of a SEND that is waited for: what comes before its data moves is
    // waiting for the others, the rest is the transfer.
    if (!is_recv(program_.code[id].kind)) pending.made = std::max(gap_start, timeline_.moving[id]);
    const InstructionId producer = tensor_ends_.producer[id];
    if (is_recv(program_.code[id].kind) && producer != kNoInstruction &&
        timeline_.end[producer] != kNotEnded) {
      pending.made = timeline_.end[producer];
      pending.producer = producer;
      const InstructionId consumer = tensor_ends_.consumer[id];
      if (consumer != kNoInstruction)
        pending.excess = excess_over_consumer(program_, timeline_, producer, consumer);
    }
    pending_.push_back(pending);
  }

  void add(std::int64_t from, std::int64_t to, BubbleCause cause, InstructionId waiting,
           InstructionId waits_for) {
    if (to <= from) return;
    report_.bubbles.push_back({rank_, from, to, cause, waiting, waits_for});
    report_.ranks[static_cast<std::size_t>(rank_.value)].ns[static_cast<std::size_t>(cause)] +=
        to - from;
  }

  const Program& program_;
  const Timeline& timeline_;
  const TensorEnds tensor_ends_;
  std::vector<InstructionId> places_;  // places_in_flight() of rank_
  BubbleReport report_;
  RankId rank_;
  std::vector<PendingTransfer> pending_;  // of the gap at hand
  std::vector<GapPart> parts_;
};

}  // namespace

std::string_view to_string(BubbleCause cause) {
  constexpr std::array<std::string_view, kBubbleCauses> kNames = {
      "fill",     "drain", "waiting for data", "imbalance", "waiting for a transfer",
      "overhead", "stuck"};
  return kNames[static_cast<std::size_t>(cause)];
}

std::int64_t BubbleTotals::sum() const {
  return std::accumulate(ns.begin(), ns.end(), std::int64_t{0});
}

BubbleReport explain_bubbles(const Program& program, const Timeline& timeline) {
  return Explainer(program, timeline).run();
}

}  // namespace pipewright::traces
