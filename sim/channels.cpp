#include "sim/channels.hpp"

#include <algorithm>
#include <queue>

#include "core/base/large_pages.hpp"
#include "core/program/program_walk.hpp"
#include "sim/links.hpp"

namespace pipewright::sim {
namespace {

constexpr std::uint32_t kEventsOfPulse = 1U << 16;

/// The walk, driven by events in the order of time.
class Channels {
 public:
  Channels(const Program& program, const CostTable& costs, const Durations& durations)
      : program_(program),
        durations_(durations),
        links_(program, costs, durations),
        walk_(program, durations.route_bytes(), *this) {
    const std::size_t n = program.code.size();
    for (auto* const times : {&start_, &end_, &moving_})
      assign_in_large_pages(*times, n, kNotEnded);
  }

  Result run(const Pulse& pulse) {
    std::uint32_t events = 0;
    walk_.begin();
    walk_.go_on();
    // An instant: everything that happens at now_, then the links, which need to know all who ask.
    settle();
    while (!events_.empty()) {
      now_ = events_.top().time;
      while (!events_.empty() && events_.top().time == now_) {
        const Event event = events_.top();
        events_.pop();
        if (++events % kEventsOfPulse == 0 && pulse) pulse();
        if (!is_transfer(code(event.id).kind) && !code(event.id).in_collective()) {
          walk_.computation_ended(event.id);
        } else if (!links_.on_event({event.time, event.id, event.stamp}, requested_)) {
          continue;
        } else if (code(event.id).in_collective()) {
          walk_.collective_ended(code(event.id).route);
        } else {
          walk_.message_ended(event.id);
        }
        walk_.go_on();
      }
      settle();
    }
    return result();
  }

 private:
  friend ProgramWalk<Channels>;
  struct Event {
    std::int64_t time;
    InstructionId id;     // a computation, a collective's first member, or a message's SEND
    std::uint32_t stamp;  // of a message: see Links
    bool operator<(const Event& o) const {
      return time != o.time ? time > o.time : id > o.id;
    }  // for a min-heap
  };

  const Instruction& code(InstructionId id) const { return program_.code[id]; }

  /// The end of an instant: what meets without credit, in program order, then the links.
  void settle() {
    while (walk_.meet_one()) {
    }
    links_.settle(now_, requested_);
    for (const Links::Event& e : requested_) events_.push({e.time, e.send, e.stamp});
    requested_.clear();
  }

  // What the walk asks and tells.
  bool takes_no_time(InstructionId send) const {
    return durations_.route_ns()[code(send).route] == 0;
  }
  bool has_ended(InstructionId id) const { return end_[id] != kNotEnded; }
  void on_ready(InstructionId id) { start_[id] = now_; }
  void on_ended(InstructionId id) { end_[id] = now_; }
  void start_computation(InstructionId id) {
    start_[id] = moving_[id] = now_;
    events_.push({now_ + durations_.compute(id), id, 0});
  }
  void start_message(InstructionId send) {
    moving_[send] = now_;
    if (code(send).link != kNoInstruction) moving_[code(send).link] = now_;
    links_.request(send, now_, requested_);
  }
  void start_collective(std::uint32_t index) {
    const auto& members = program_.collectives[index].members;
    for (const Collective::Member& member : members) moving_[member.instruction] = now_;
    // At once: one that takes no time belongs to this instant.
    std::vector<Links::Event> begun;
    links_.begin_collective(index, now_, begun);
    for (const Links::Event& e : begun) events_.push({e.time, e.send, e.stamp});
  }

  Result result() {
    Result result;
    result.finished =
        std::all_of(end_.begin(), end_.end(), [](std::int64_t end) { return end != kNotEnded; });
    for (const std::int64_t end : end_)
      result.timeline.makespan_ns = std::max(result.timeline.makespan_ns, end);
    if (!result.finished) {
      for (InstructionId id = 0; id < program_.code.size(); ++id) {
        result.progress.ended.push_back(end_[id] != kNotEnded);
        result.progress.left.push_back(walk_.has_left(id));
      }
    }
    result.timeline.start = std::move(start_);
    result.timeline.end = std::move(end_);
    result.timeline.moving = std::move(moving_);
    return result;
  }

  const Program& program_;
  const Durations& durations_;
  Links links_;
  ProgramWalk<Channels> walk_;
  std::vector<std::int64_t> start_, end_, moving_;
  std::priority_queue<Event> events_;
  std::vector<Links::Event> requested_;
  std::int64_t now_ = 0;
};

}  // namespace

Result run_channels(const Program& program, const CostTable& costs, const Durations& durations,
                    const Pulse& pulse) {
  return Channels(program, costs, durations).run(pulse);
}

}  // namespace pipewright::sim
