#include "traces/page/page_data.hpp"

#include <algorithm>

#include "traces/analysis/critical_path.hpp"
#include "traces/analysis/memory_profile.hpp"
#include "traces/analysis/tensor_ends.hpp"
#include "traces/analysis/trace_timeline.hpp"
#include "traces/page/columns.hpp"
#include "traces/page/page_rows.hpp"

namespace pipewright::traces {
namespace {

using Numbers = std::vector<std::int64_t>;

/// What a reference may lead to.
enum class RowKind : std::uint8_t { None, Action, Message, Member };

struct Reference {
  RowKind row = RowKind::None;
  std::uint32_t number = 0;  // row + 1; 0: none
};

class Writer {
 public:
  Writer(const Program& program, const Timeline& timeline, const CostTable& costs)
      : program_(program), timeline_(timeline), costs_(costs) {
    rows_.resize(program.code.size());
  }

  PageData run(const PageExtras& extras) {
    add_actions();
    if (!extras.other_rows.empty())
      columns_.add("action.other", extras.other_rows, Coding::Difference);
    add_members();
    add_messages();
    add_bubbles(extras.bubbles != nullptr ? *extras.bubbles : explain_bubbles(program_, timeline_));
    if (extras.bubbles != nullptr && extras.roots != nullptr)
      add_roots(*extras.bubbles, *extras.roots);
    add_path(extras.times);
    add_memory();
    add_names(extras.stuck);
    add_ranks(extras.ranks);
    facts_["columns"] = columns_.directory();
    return {std::move(facts_), columns_.packed()};
  }

 private:
  std::int64_t length(InstructionId id) const { return timeline_.end[id] - timeline_.start[id]; }
  bool ended(InstructionId id) const { return timeline_.end[id] != kNotEnded; }

  /// Of a rank by start; numbers them.
  std::vector<InstructionId> actions_of(std::size_t rank) {
    std::vector<InstructionId> own =
        drawn_actions(program_, timeline_, RankId(static_cast<std::int64_t>(rank)));
    for (const InstructionId id : own) rows_[id] = {RowKind::Action, ++actions_};
    return own;
  }

  void add_actions() {
    Numbers counts, kinds, stages, micro_batches, gaps, lengths, versions, parts;
    Numbers pairs, pair_kinds, pair_stages, pair_micro_batches;
    for (std::size_t r = 0; r + 1 < program_.rank_begin.size(); ++r) {
      const std::vector<InstructionId> own = actions_of(r);
      counts.push_back(static_cast<std::int64_t>(own.size()));
      std::int64_t cursor = 0;
      for (const InstructionId id : own) {
        const Cell cell = drawn_cell(program_, id);
        kinds.push_back(static_cast<std::int64_t>(cell.action.kind));
        stages.push_back(cell.action.stage.value);
        micro_batches.push_back(cell.action.micro_batch.value);
        versions.push_back(cell.action.version);
        gaps.push_back(timeline_.start[id] - cursor);
        lengths.push_back(length(id));
        cursor = timeline_.end[id];
        const auto row = static_cast<std::int64_t>(rows_[id].number) - 1;
        if (program_.code[id].kind == ActionKind::Part) parts.push_back(row);
        if (!cell.partner) continue;
        pairs.push_back(row);
        pair_kinds.push_back(static_cast<std::int64_t>(cell.partner->kind));
        pair_stages.push_back(cell.partner->stage.value);
        pair_micro_batches.push_back(cell.partner->micro_batch.value);
      }
    }
    columns_.add("action.count", counts);
    columns_.add("action.kind", kinds, Coding::Difference);
    columns_.add("action.stage", stages, Coding::Difference);
    columns_.add("action.micro_batch", micro_batches, Coding::Difference);
    columns_.add("action.gap", gaps);
    columns_.add("action.length", lengths, Coding::Difference);
    if (!program_.versions.empty()) columns_.add("action.version", versions, Coding::Difference);
    columns_.add("part.action", parts, Coding::Difference);
    columns_.add("pair.action", pairs, Coding::Difference);
    columns_.add("pair.kind", pair_kinds, Coding::Difference);
    columns_.add("pair.stage", pair_stages, Coding::Difference);
    columns_.add("pair.micro_batch", pair_micro_batches, Coding::Difference);
  }

  /// Of collectives, and calls that are none.
  void add_members() {
    Numbers ranks, kinds, stages, groups, starts, waits, lengths;
    for (std::size_t r = 0; r + 1 < program_.rank_begin.size(); ++r) {
      for (InstructionId id = program_.rank_begin[r]; id < program_.rank_begin[r + 1]; ++id) {
        const Instruction& in = program_.code[id];
        if (is_drawn_action(in) || is_transfer(in.kind) || is_wait(in.kind) || !ended(id)) continue;
        rows_[id] = {RowKind::Member, static_cast<std::uint32_t>(ranks.size()) + 1};
        const std::int64_t moving = std::max(timeline_.moving[id], timeline_.start[id]);
        ranks.push_back(static_cast<std::int64_t>(r));
        kinds.push_back(static_cast<std::int64_t>(in.kind));
        stages.push_back(in.stage);
        groups.push_back(in.in_collective() ? static_cast<std::int64_t>(in.route) + 1 : 0);
        starts.push_back(timeline_.start[id]);
        waits.push_back(moving - timeline_.start[id]);
        lengths.push_back(timeline_.end[id] - moving);
      }
    }
    columns_.add("member.rank", ranks, Coding::Difference);
    columns_.add("member.kind", kinds, Coding::Difference);
    columns_.add("member.stage", stages, Coding::Difference);
    columns_.add("member.collective", groups, Coding::Difference);
    columns_.add("member.start", starts, Coding::Difference);
    columns_.add("member.wait", waits);
    columns_.add("member.length", lengths);
  }

  void add_messages() {
    const TensorEnds tensors = tensor_ends_of(program_);
    Numbers from, to, kinds, stages, micro_batches, producers, consumers;
    Numbers ready, waits, sent, taken, lengths;
    for (InstructionId id = 0; id < program_.code.size(); ++id) {
      const Instruction& in = program_.code[id];
      if (!is_send(in.kind) || in.link == kNoInstruction || !ended(id) || !ended(in.link)) continue;
      rows_[id] = rows_[in.link] = {RowKind::Message, static_cast<std::uint32_t>(from.size()) + 1};
      const Route& route = program_.routes[in.route];
      const InstructionId producer = tensors.producer[id], consumer = tensors.consumer[id];
      from.push_back(route.source.value);
      to.push_back(route.destination.value);
      kinds.push_back(static_cast<std::int64_t>(in.kind));
      stages.push_back(in.stage);
      micro_batches.push_back(in.micro_batch);
      producers.push_back(number_of(producer));
      consumers.push_back(number_of(consumer));
      const bool made = producers.back() != 0;
      const std::int64_t moving = std::max(timeline_.moving[id], timeline_.start[id]);
      ready.push_back(timeline_.start[id] - (made ? timeline_.end[producer] : 0));
      waits.push_back(moving - timeline_.start[id]);
      sent.push_back(timeline_.end[id] - moving);
      taken.push_back(timeline_.start[in.link] - moving);
      lengths.push_back(timeline_.end[in.link] - moving);
    }
    columns_.add("message.from", from, Coding::Difference);
    columns_.add("message.to", to, Coding::Difference);
    columns_.add("message.kind", kinds, Coding::Difference);
    columns_.add("message.stage", stages, Coding::Difference);
    columns_.add("message.micro_batch", micro_batches, Coding::Difference);
    columns_.add("message.producer", producers, Coding::Difference);
    columns_.add("message.consumer", consumers, Coding::Difference);
    columns_.add("message.ready", ready);     // from the end of the producer, else from 0
    columns_.add("message.wait", waits);      // from there until data moves
    columns_.add("message.sent", sent);       // from then on: until the SEND has ended,
    columns_.add("message.taken", taken);     // the RECV stands ready (negative: it did),
    columns_.add("message.length", lengths);  // and it has ended
  }

  std::int64_t number_of(InstructionId id) const {
    return id == kNoInstruction ? 0 : static_cast<std::int64_t>(rows_[id].number);
  }

  void add_reference(InstructionId id, Numbers& rows, Numbers& numbers) const {
    rows.push_back(id == kNoInstruction ? 0 : static_cast<std::int64_t>(rows_[id].row));
    numbers.push_back(number_of(id));
  }

  void add_bubbles(const BubbleReport& report) {
    Numbers counts(static_cast<std::size_t>(program_.ranks()), 0);
    Numbers gaps, lengths, causes, waiting, rows, numbers;
    std::int64_t cursor = 0;
    const Bubble* last = nullptr;
    for (const Bubble& bubble : report.bubbles) {
      if (last == nullptr || last->rank != bubble.rank) cursor = 0;
      last = &bubble;
      ++counts[static_cast<std::size_t>(bubble.rank.value)];
      gaps.push_back(bubble.start_ns - cursor);
      lengths.push_back(bubble.end_ns - bubble.start_ns);
      cursor = bubble.end_ns;
      causes.push_back(static_cast<std::int64_t>(bubble.cause));
      waiting.push_back(number_of(bubble.waiting));
      add_reference(bubble.waits_for, rows, numbers);
    }
    columns_.add("bubble.count", counts);
    columns_.add("bubble.gap", gaps);
    columns_.add("bubble.length", lengths);
    columns_.add("bubble.cause", causes);
    columns_.add("bubble.waiting", waiting, Coding::Difference);
    columns_.add("bubble.for_row", rows);
    columns_.add("bubble.for_number", numbers, Coding::Difference);
  }

  /// The spans that a bubble is made of follow each other from its start to its end.
  void add_roots(const BubbleReport& report, const RootReport& roots) {
    Numbers counts, lengths, causes, rows, numbers;
    auto span = roots.spans.begin();
    for (const Bubble& bubble : report.bubbles) {
      const auto first = span;
      for (;
           span != roots.spans.end() && span->rank == bubble.rank && span->end_ns <= bubble.end_ns;
           ++span) {
        lengths.push_back(span->end_ns - span->start_ns);
        causes.push_back(static_cast<std::int64_t>(span->cause));
        add_reference(span->root, rows, numbers);
      }
      counts.push_back(span - first);
    }
    for (int c = 0; c < kRootCauses; ++c)
      facts_["root_causes"].push_back(std::string(to_string(static_cast<RootCause>(c))));
    columns_.add("root.count", counts);
    columns_.add("root.length", lengths);
    columns_.add("root.cause", causes);
    columns_.add("root.row", rows);
    columns_.add("root.number", numbers, Coding::Difference);
  }

  void add_path(Times times) {
    Numbers kinds, lengths, rows, numbers;
    for (const PathStep& step : critical_path(program_, timeline_, times)) {
      kinds.push_back(static_cast<std::int64_t>(step.kind));
      lengths.push_back(step.end_ns - step.start_ns);
      add_reference(step.instruction, rows, numbers);
    }
    columns_.add("path.kind", kinds);
    columns_.add("path.length", lengths);
    columns_.add("path.row", rows);
    columns_.add("path.number", numbers, Coding::Difference);
  }

  void add_memory() {
    Numbers counts, times, bytes, activations;
    Numbers alive_counts, alive_stages, alive_micro_batches, alive_weights, alive_bytes;
    Json peaks = Json::array();
    for (const MemoryProfile& rank : memory_profiles(program_, timeline_, costs_)) {
      counts.push_back(static_cast<std::int64_t>(rank.steps.size()));
      for (const HeldStep& step : rank.steps) {
        times.push_back(step.at_ns);
        bytes.push_back(step.bytes);
        activations.push_back(step.activations);
      }
      alive_counts.push_back(static_cast<std::int64_t>(rank.peak.alive.size()));
      for (const AliveActivation& each : rank.peak.alive) {
        alive_stages.push_back(each.stage.value);
        alive_micro_batches.push_back(each.micro_batch.value);
        alive_weights.push_back(each.for_weights_alone ? 1 : 0);
        alive_bytes.push_back(each.bytes);
      }
      peaks.push_back({{"at_ns", rank.peak.at_ns},
                       {"bytes", rank.peak.bytes},
                       {"activations", rank.peak.activations},
                       {"during", number_of(rank.peak.instruction)},
                       {"constant_bytes", rank.peak.constant_bytes},
                       {"other_bytes", rank.peak.other_bytes()}});
    }
    facts_["peaks"] = std::move(peaks);
    columns_.add("memory.count", counts);
    columns_.add("memory.time", times, Coding::Difference);
    columns_.add("memory.bytes", bytes, Coding::Difference);
    columns_.add("memory.activations", activations, Coding::Difference);
    columns_.add("alive.count", alive_counts);
    columns_.add("alive.stage", alive_stages, Coding::Difference);
    columns_.add("alive.micro_batch", alive_micro_batches, Coding::Difference);
    columns_.add("alive.for_weights", alive_weights);
    columns_.add("alive.bytes", alive_bytes, Coding::Difference);
  }

  void add_names(const WaitReport* report) {
    const std::vector<StuckSpan> stuck = stuck_spans(program_, lane_table(program_), timeline_);
    facts_["makespan_ns"] = timeline_.makespan_ns;
    facts_["end_ns"] = trace_end_ns(timeline_, !stuck.empty());
    facts_["has_bytes"] = !costs_.memory.empty();
    for (int k = 0; k < kActionKinds; ++k)
      facts_["kinds"].push_back(std::string(to_string(static_cast<ActionKind>(k))));
    for (int c = 0; c < kBubbleCauses; ++c)
      facts_["causes"].push_back(std::string(to_string(static_cast<BubbleCause>(c))));
    for (int k = 0; k < kPathKinds; ++k)
      facts_["path_kinds"].push_back(std::string(to_string(static_cast<PathKind>(k))));
    facts_["stuck"] = Json::array();
    for (const StuckSpan& each : stuck) {
      facts_["stuck"].push_back({{"rank", program_.rank_of(each.instruction).value},
                                 {"start_ns", each.start_ns},
                                 {"name", program_.text(each.instruction)}});
    }
    facts_["cycle"] = Json::array();
    if (report == nullptr) return;
    for (const WaitStep& step : report->shown()) {
      if (step.waits_for == kNoInstruction) continue;
      facts_["cycle"].push_back({{"rank", step.rank.value},
                                 {"name", program_.text(step.instruction)},
                                 {"other_rank", program_.rank_of(step.waits_for).value},
                                 {"waits_for", program_.text(step.waits_for)}});
    }
  }

  void add_ranks(const std::vector<int>& numbers) {
    facts_["ranks"] = program_.ranks();
    facts_["rank_numbers"] = Json::array();
    for (int r = 0; r < program_.ranks(); ++r)
      facts_["rank_numbers"].push_back(numbers.empty() ? r
                                                       : numbers.at(static_cast<std::size_t>(r)));
  }

  const Program& program_;
  const Timeline& timeline_;
  const CostTable& costs_;
  Columns columns_;
  Json facts_ = Json::object();
  std::vector<Reference> rows_;  // by instruction
  std::uint32_t actions_ = 0;
};

}  // namespace

PageData page_data(const Program& program, const Timeline& timeline, const CostTable& costs,
                   const PageExtras& extras) {
  return Writer(program, timeline, costs).run(extras);
}

}  // namespace pipewright::traces
