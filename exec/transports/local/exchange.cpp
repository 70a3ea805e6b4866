#include "exec/transports/local/exchange.hpp"

#include <algorithm>
#include <utility>

namespace pipewright::exec::local {

Exchange::Exchange(const Program& program, MessageCosts costs)
    : program_(program),
      costs_(std::move(costs)),
      ends_(program, 0, static_cast<InstructionId>(program.code.size())),
      machine_(program, costs_.bytes, *this) {}

void Exchange::reset() {
  ends_.reset();
  machine_.reset();
  events_ = {};
  just_ended_.clear();
  now_ = 0;
}

// --- From outside ---

void Exchange::issue(InstructionId end, PayloadPtr data, std::int64_t now) {
  now_ = std::max(now_, now);
  ends_.issue(end, std::move(data));
  machine_.issue(end);
  machine_.run();
}

void Exchange::provide(InstructionId send, PayloadPtr data, std::int64_t now) {
  now_ = std::max(now_, now);
  ends_.provide(send, std::move(data));
  machine_.look_at(send);
  machine_.run();
}

std::optional<std::int64_t> Exchange::next_event() const {
  if (events_.empty()) return std::nullopt;
  return events_.top().time;
}

void Exchange::run_events(std::int64_t until) {
  while (!events_.empty() && events_.top().time <= until) {
    const Event event = events_.top();
    events_.pop();
    now_ = std::max(now_, event.time);
    const Instruction& in = program_.code[event.send];
    in.in_collective() ? machine_.collective_ended(in.route) : message_ended(event.send);
    machine_.run();
  }
  now_ = std::max(now_, until);
}

bool Exchange::settle(std::int64_t now) {
  now_ = std::max(now_, now);
  return machine_.meet_one();
}

std::vector<InstructionId> Exchange::take_just_ended() { return std::exchange(just_ended_, {}); }

void Exchange::report(Timeline& timeline, Progress& progress) const {
  ends_.report(timeline, progress);
  for (InstructionId id = 0; id < program_.code.size(); ++id)
    progress.left[id] = machine_.has_left(id);
}

// --- What the machine tells ---

void Exchange::start_message(InstructionId send, bool) {
  const InstructionId recv = program_.code[send].link;
  ends_.moves(send, now_);
  if (recv != kNoInstruction) ends_.moves(recv, now_);
  if (transfer_ns(send) == 0) return message_ended(send);
  events_.push({now_ + transfer_ns(send), send});
}

void Exchange::message_ended(InstructionId send) {
  const InstructionId recv = program_.code[send].link;
  if (recv != kNoInstruction) ends_.payload(recv) = std::move(ends_.payload(send));
  machine_.message_ended(send);
}

void Exchange::start_collective(std::uint32_t index) {
  const auto& members = program_.collectives[index].members;
  for (const Collective::Member& member : members) ends_.moves(member.instruction, now_);
  const std::int64_t takes = costs_.of_collective(index);
  if (takes == 0) return machine_.collective_ended(index);
  events_.push({now_ + takes, members.front().instruction});
}

void Exchange::on_ended(InstructionId id) {
  ends_.end(id, now_);
  just_ended_.push_back(id);
  if (!program_.part_of.empty()) machine_.look_at_queues(program_.rank_of(id));
}

}  // namespace pipewright::exec::local
