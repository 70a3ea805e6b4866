// Whether nothing can happen any more in a run of several processes: process 0 asks all of them,
// twice, whether they wait and how many frames they have sent and received. If both times all
// waited, all that was sent had been received, and no number has changed between the two, then
// nothing was under way when the first question ended, and nobody will ever send again (the
// four-counter method; F. Mattern, Algorithms for distributed termination detection, 1987). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace pipewright::exec::mpi {

struct MessageCounts {
  bool waits = false;  // and nothing on the machine can make it go on without a frame
  std::uint64_t sent = 0, received = 0;
  bool operator==(const MessageCounts&) const = default;
};

class TerminationDetection {
 public:
  explicit TerminationDetection(int processes) : now_(static_cast<std::size_t>(processes)) {}

  bool is_asking() const { return asking_; }
  /// The question that is open; answers to others are no answers.
  std::uint64_t question() const { return question_; }
  void ask() {
    asking_ = true;
    ++question_;
    now_.assign(now_.size(), std::nullopt);
  }
  /// True: nothing can happen any more.
  bool answer(int process, std::uint64_t question, const MessageCounts& state) {
    if (!asking_ || question != question_) return false;
    now_[static_cast<std::size_t>(process)] = state;
    std::uint64_t sent = 0, received = 0;
    bool all_wait = true;
    for (const auto& one : now_) {
      if (!one) return false;
      sent += one->sent;
      received += one->received;
      all_wait = all_wait && one->waits;
    }
    asking_ = false;
    const bool quiet = all_wait && sent == received;
    const bool twice = quiet && now_ == before_;
    before_ = now_;
    return twice;
  }

 private:
  bool asking_ = false;
  std::uint64_t question_ = 0;
  std::vector<std::optional<MessageCounts>> now_, before_;
};

}  // namespace pipewright::exec::mpi
