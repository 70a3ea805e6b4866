// Sections 2 to 5 of docs/semantics.md, read as slowly as possible: at every instant, look at every
// lane until nothing more happens; then go to the next instant at which something ends or arrives.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/reference/policy.hpp"
#include "tests/reference/program.hpp"

namespace pipewright::reference {

/// What has happened to each instruction; by instruction.
struct Happened {
  std::vector<std::optional<std::int64_t>> start, end;
  std::vector<std::optional<std::int64_t>>
      arrival;                    // SENDs that have left: when the message is there
  std::vector<bool> used_credit;  // SENDs that have left
  std::vector<std::optional<std::int64_t>> ready;  // RECVs: the moment they became ready
};

class Run {
 public:
  Run(const Program& program, const Policy& policy, const Costs& costs);

  /// Until nothing can start or go on. `now` is then the last instant at which something happened.
  void to_the_end();

  [[nodiscard]] const Happened& happened() const { return happened_; }
  [[nodiscard]] bool ended(int id) const;
  [[nodiscard]] bool left(int id) const { return happened_.arrival[id].has_value(); }
  [[nodiscard]] bool issued(int id) const;
  /// The host of its rank has passed it (section 2.2).
  [[nodiscard]] bool passed(int id) const { return passed_[id]; }
  /// Where the host of a rank stands for good, and for what: the other rank's first end of the
  /// connection, kNobody if there is none. Nothing if it passes its whole list.
  struct Stand {
    int at = kNobody, waits_for = kNobody;
  };
  [[nodiscard]] const std::vector<std::optional<Stand>>& hosts() const { return hosts_; }
  /// The transfer end that the compute lane of the rank has reached and may not issue for want of a
  /// place in flight, and the end whose place that would be.
  [[nodiscard]] std::optional<Stand> held(int rank) const;
  /// The first unfinished instruction of a lane, kNobody if all have ended.
  [[nodiscard]] int first_unfinished(const Lane& lane) const;
  /// At the head of its lane: the first unfinished instruction, or in one joined batch with it.
  [[nodiscard]] bool at_head(int id) const;
  /// A transfer end or member of a collective that is issued, at the head of its lane, and has its
  /// inputs.
  [[nodiscard]] bool ready(int id) const;
  /// It is no end of an operation that has yet to make connections (section 2.4), or that makes
  /// them now.
  [[nodiscard]] bool connected(int id) const;
  /// Of an end that makes a connection the other rank's end of it, kNobody if there is none.
  [[nodiscard]] std::optional<int> connects_with(int id) const;
  /// The protocol of this SEND is eager, and its message is not larger than the whole credit.
  [[nodiscard]] bool may_be_eager(int send) const;
  /// SENDs of the same edge and kind, in program order.
  [[nodiscard]] const std::vector<int>& same_credit(int send) const;

 private:
  void walk_hosts();
  bool has_inputs(int id) const;
  /// So that its operation may connect (2.4).
  bool stands(int id) const;
  bool connected(int id, std::set<int>& assumed) const;
  bool is_posted_at_start(int id) const;
  bool reached(int id) const;
  std::vector<int> issue_order(int rank, bool with_members = false) const;
  bool look_at(const Lane& lane);
  bool look_at(int id);
  bool compute(int id);
  bool collective(int id);
  bool of_one_call(int id, int other) const;
  bool send(int id);
  bool recv(int id);
  bool rendezvous_without_credit();
  bool gets_credit(int send) const;
  bool is_first_message(int send) const;
  void rendezvous(int send);
  std::optional<std::int64_t> next_instant() const;

  const Protocol& protocol_of(int send) const;
  std::int64_t bytes_of(int send) const;
  std::int64_t transfer_time(int send) const;
  std::int64_t computation_time(int id) const;
  std::int64_t collective_time(int member) const;
  std::int64_t grouped_time(int member, std::int64_t bytes) const;
  std::int64_t call_time(int member) const;
  bool counts(int member) const;
  std::int64_t price(int member, const std::string& kind, std::int64_t bytes) const;
  std::int64_t ring_time(std::int64_t steps, std::int64_t bytes, std::int64_t parts) const;

  const Program& program_;
  const Policy& policy_;
  const Costs& costs_;
  Happened happened_;
  std::int64_t now_ = 0;
  std::vector<std::vector<int>> same_credit_;  // by SEND
  std::vector<bool> passed_;
  std::vector<std::optional<Stand>> hosts_;  // by rank
};

}  // namespace pipewright::reference
