// How far the steady clocks of two machines are apart: of many questions and answers the one that
// came back soonest tells most (NTP, RFC 5905 §8: offset = ((t1 - t0) + (t1 - t2)) / 2 where the
// answer carries one time t1, wrong by at most half the round trip). Pure.
#pragma once

#include <cstdint>
#include <limits>

namespace pipewright::exec::mpi {

struct ClockOffset {
  std::int64_t offset_ns = 0;  // to be added to this clock for that of process 0
  std::int64_t bound_ns = 0;   // the largest error
};

class OffsetEstimate {
 public:
  /// Asked at `asked_ns`, answered when the other clock showed `there_ns`, back at `back_ns`.
  void add(std::int64_t asked_ns, std::int64_t there_ns, std::int64_t back_ns) {
    const std::int64_t round_trip = back_ns - asked_ns;
    if (round_trip >= best_round_trip_) return;
    best_round_trip_ = round_trip;
    best_ = {there_ns - asked_ns - round_trip / 2, round_trip / 2 + 1};
  }
  ClockOffset result() const { return best_; }

 private:
  std::int64_t best_round_trip_ = std::numeric_limits<std::int64_t>::max();
  ClockOffset best_;
};

}  // namespace pipewright::exec::mpi
