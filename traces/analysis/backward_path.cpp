#include "traces/analysis/backward_path.hpp"

#include <algorithm>

#include "core/program/start_rules.hpp"

namespace pipewright::traces {

BackwardPath::BackwardPath(const Program& program, const Timeline& timeline, Times times)
    : program_(program), timeline_(timeline), times_(times), lanes_(lane_table(program)) {
  place_of_.resize(program.code.size());
  for (std::uint32_t place = 0; place < lanes_.instructions.size(); ++place)
    place_of_[lanes_.instructions[place]] = place;
  places_.resize(static_cast<std::size_t>(program.ranks()));
  for (int r = 0; r < program.ranks(); ++r)
    places_[static_cast<std::size_t>(r)] = places_in_flight(program, RankId(r));
}

InstructionId BackwardPath::last() const {
  InstructionId at = kNoInstruction;
  for (InstructionId id = 0; id < program_.code.size(); ++id) {
    if (ended(id) && (at == kNoInstruction || timeline_.end[id] > timeline_.end[at])) at = id;
  }
  return at;
}

void BackwardPath::before_end(InstructionId id, std::int64_t until, std::vector<PathStep>& steps) {
  cursor_ = timeline_.end[id];
  until_ = until;
  steps_ = &steps;
  walk(through(id));
}

void BackwardPath::before_start(InstructionId id, std::int64_t until,
                                std::vector<PathStep>& steps) {
  cursor_ = timeline_.start[id];
  until_ = until;
  steps_ = &steps;
  walk(id);
}

/// From the start of `began`.
void BackwardPath::walk(InstructionId began) {
  // Measured clocks may contradict the order; no path is longer than its instructions.
  for (std::size_t left = program_.code.size(); cursor_ > until_ && left > 0; --left) {
    const InstructionId before = last_before(began);
    add(began, before == kNoInstruction ? until_ : timeline_.end[before], PathKind::Wait);
    if (before == kNoInstruction) return;
    began = through(before);
  }
  add(began, until_, PathKind::Wait);
}

void BackwardPath::add(InstructionId id, std::int64_t from, PathKind kind) {
  from = std::clamp(from, until_, cursor_);
  steps_->push_back({id, from, cursor_, kind});
  cursor_ = from;
}

/// Adds the time of the instruction itself; the one whose start comes before that (of a transfer
/// one of its ends, of a collective one of its members).
InstructionId BackwardPath::through(InstructionId id) {
  const Instruction& in = program_.code[id];
  if (in.in_collective()) return through_collective(id);
  if (!is_transfer(in.kind)) {
    add(id, timeline_.start[id], PathKind::Compute);
    return id;
  }
  // Its message was there before it was ready, or it left at once.
  if (timeline_.start[id] >= timeline_.end[id]) return id;
  const InstructionId other = in.has(Instruction::kMismatch) ? kNoInstruction : in.link;
  std::int64_t moving = timeline_.moving[id];
  // Measured clocks are not exact: nothing moves before it is sent.
  if (times_ == Times::Measured && other != kNoInstruction && is_recv(in.kind) &&
      timeline_.start[other] < timeline_.end[id])
    moving = std::max(moving, timeline_.start[other]);
  add(id, moving, PathKind::Message);
  InstructionId later = id;
  if (other != kNoInstruction && timeline_.start[other] <= moving &&
      (timeline_.start[id] > moving || timeline_.start[other] > timeline_.start[id] ||
       (timeline_.start[other] == timeline_.start[id] && is_send(program_.code[other].kind))))
    later = other;
  const InstructionId busy = overtaker(id, moving);
  if (busy != kNoInstruction && timeline_.end[busy] > timeline_.start[later]) {
    add(id, timeline_.end[busy], PathKind::Wait);
    return through(busy);
  }
  add(later, timeline_.start[later], PathKind::Wait);
  return later;
}

InstructionId BackwardPath::through_collective(InstructionId id) {
  add(id, timeline_.moving[id], PathKind::Collective);
  InstructionId last = id;
  for (const auto& member : program_.collectives[program_.code[id].route].members) {
    if (ended(member.instruction) && timeline_.start[member.instruction] > timeline_.start[last])
      last = member.instruction;
  }
  add(last, timeline_.start[last], PathKind::Wait);
  return last;
}

/// What ended last of all that `id` waits for before it may start.
InstructionId BackwardPath::last_before(InstructionId id) const {
  InstructionId last = kNoInstruction;
  const auto look = [&](InstructionId input) {
    if (input == kNoInstruction || !ended(input)) return true;
    if (last == kNoInstruction || timeline_.end[input] > timeline_.end[last]) last = input;
    return true;
  };
  const auto rank = static_cast<std::size_t>(lanes_.rank_of_lane[lanes_.lane_of[id]].value);
  const InstructionId first = program_.rank_begin[rank];
  const Instruction& in = program_.code[id];
  look_at_lane(id, look);
  const bool on_compute_lane = lanes_.lane_of[id] == lanes_.rank_lane_begin[rank];
  const bool at_start = in.has(Instruction::kAtStart);
  for (InstructionId before = id; before-- > first;) {
    // What is beside the compute lane is issued when that comes there (§2).
    if (!places_[rank].empty() && !program_.code[before].has(Instruction::kAtStart))
      look(places_[rank][before - first]);
    if (lanes_.lane_of[before] != lanes_.rank_lane_begin[rank]) continue;
    if (!on_compute_lane && !at_start) look(before);
    break;
  }
  if (!places_[rank].empty()) look(places_[rank][id - first]);
  for_each_input(program_, id, first, look);
  if (in.is_communication()) look(overtaker(id, timeline_.start[id]));
  return last;
}

/// Of measured times the last computation that stands after the transfer on its rank and had ended
/// `by` then; else none.
InstructionId BackwardPath::overtaker(InstructionId id, std::int64_t by) const {
  InstructionId last = kNoInstruction;
  if (times_ == Times::Simulated) return last;
  const auto rank = static_cast<std::size_t>(lanes_.rank_of_lane[lanes_.lane_of[id]].value);
  for (InstructionId after = id + 1; after < program_.rank_begin[rank + 1]; ++after) {
    if (program_.code[after].is_communication()) continue;
    if (!ended(after) || timeline_.end[after] > by) break;
    last = after;
  }
  return last;
}

/// The operation in front of it in its lane: one instruction, or a joined batch.
template <class Look>
void BackwardPath::look_at_lane(InstructionId id, Look look) const {
  const std::uint32_t begin = lanes_.lane_begin[lanes_.lane_of[id]];
  std::uint32_t place = place_of_[id];
  const std::uint32_t own = program_.batch_of(id);
  while (place > begin && own != kNoBatch &&
         program_.batch_of(lanes_.instructions[place - 1]) == own)
    --place;
  if (place == begin) return;
  const std::uint32_t batch = program_.batch_of(lanes_.instructions[place - 1]);
  do {
    look(lanes_.instructions[--place]);
  } while (place > begin && batch != kNoBatch &&
           program_.batch_of(lanes_.instructions[place - 1]) == batch);
}

}  // namespace pipewright::traces
