#include "exec/runtime/flight_recorder.hpp"

#include <algorithm>

namespace pipewright::exec {
namespace {

constexpr int kStateBits = 2;

}  // namespace

std::string_view to_string(FlightState state) {
  switch (state) {
    case FlightState::Started:
      return "started";
    case FlightState::Issued:
      return "issued";
    case FlightState::Waiting:
      return "waiting";
    case FlightState::Ended:
      return "ended";
  }
  return "started";
}

FlightRecorder::FlightRecorder(std::size_t capacity) : slots_(capacity == 0 ? 0 : capacity + 1) {}

void FlightRecorder::note(const FlightEntry& entry) {
  if (slots_.empty()) return;
  Slot& slot = slots_[next_];
  if (++next_ == slots_.size()) next_ = 0;
  slot.who.store(std::uint64_t{entry.instruction} << 32U | entry.waits_for,
                 std::memory_order_release);
  slot.what.store(static_cast<std::uint64_t>(entry.time_ns) << kStateBits |
                      static_cast<std::uint64_t>(entry.state),
                  std::memory_order_release);
  count_.store(count_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

std::vector<FlightEntry> FlightRecorder::recent() const {
  std::vector<FlightEntry> entries;
  if (slots_.empty()) return entries;
  const std::uint64_t end = count_.load(std::memory_order_acquire), kept = slots_.size() - 1;
  const std::uint64_t begin = std::max(first_.load(), end > kept ? end - kept : 0);
  for (std::uint64_t i = begin; i < end; ++i) {
    const Slot& slot = slots_[i % slots_.size()];
    const std::uint64_t who = slot.who.load(std::memory_order_acquire);
    const std::uint64_t what = slot.what.load(std::memory_order_acquire);
    entries.push_back({static_cast<InstructionId>(who >> 32U),
                       static_cast<FlightState>(what & ((1U << kStateBits) - 1)),
                       static_cast<InstructionId>(who),
                       static_cast<std::int64_t>(what) >> kStateBits});
  }
  // What the writer has come round to meanwhile may be torn: entry i is overwritten while `now` is
  // i + slots_.size().
  const std::uint64_t now = count_.load(std::memory_order_acquire);
  const std::uint64_t whole = now >= slots_.size() ? now - slots_.size() + 1 : 0;
  if (whole > begin) {
    entries.erase(entries.begin(),
                  entries.begin() + static_cast<std::ptrdiff_t>(std::min(whole, end) - begin));
  }
  return entries;
}

}  // namespace pipewright::exec
