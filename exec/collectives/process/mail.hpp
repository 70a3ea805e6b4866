// Letters between the members of groups, over the link of a job: from one process to another,
// numbered, in a group. Letters of all groups arrive at one Mail, which keeps those that nobody
// waits for yet. One Mail a process, made by all processes alike; it is a run of the link. Any
// thread, one at a time for each group.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "exec/base/packing.hpp"
#include "exec/collectives/group.hpp"
#include "exec/transports/process/link.hpp"

namespace pipewright::exec::collectives {

struct Letter {
  PackedBytes bytes;
  std::uint64_t whole = 0;  // what the sender has for the receiver in all, where it says so
  bool fine = true;         // see Group::all_reduce
};

class Mail {
 public:
  explicit Mail(mpi::Link& link);

  mpi::Link& link() { return link_; }
  /// The number of the next group; every process counts alike. `look`: see Group.
  std::uint32_t open_group(Look look);
  /// The process leaves; `sent`: how many letters it has sent to each of `to`.
  void close_group(std::uint32_t group, std::span<const int> to,
                   std::span<const std::uint64_t> sent) noexcept;

  /// Waits only while very many letters are on their way. Throws as receive().
  void send(std::uint32_t group, int to, std::uint64_t number, Letter letter);
  /// Waits for it. Throws RunError where the sender has left or is gone, or anybody has given up
  /// the group, and what the group's `look` throws.
  Letter receive(std::uint32_t group, int from, std::uint64_t number);
  /// Until all letters have left: what is half sent needs this process to go on.
  void flush(std::uint32_t group);
  /// What a wait does, once: takes what has come, lets go on what is half sent, looks who is there.
  /// Throws GivenUp or RunError where any process of the job is gone.
  void advance(std::uint32_t group);
  void require_all_present();
  /// Tells these processes that the group ends, and why.
  void give_up(std::uint32_t group, std::span<const int> to, const std::string& why) noexcept;

 private:
  using Key = std::tuple<std::uint32_t, int, std::uint64_t>;  // group, from, number

  template <class Done>
  bool hear(std::uint32_t group, const Done& done);
  template <class Done, class Look>
  void wait_until(std::uint32_t group, const Done& done, const Look& look);
  void file(mpi::ArrivedFrame arrived);
  void tell(std::uint32_t group, std::span<const int> to);

  mpi::Link& link_;
  const mpi::LinkRun run_;
  std::vector<Look> looks_;  // by group
  std::size_t on_their_way_ = 0;
  int turns_ = 0;  // of advance()
  std::map<Key, Letter> letters_;
  std::map<std::uint32_t, std::string> given_up_;                   // by group
  std::map<std::pair<std::uint32_t, int>, std::uint64_t> last_of_;  // who has left, by group
  std::set<std::uint32_t> closed_, told_;
};

}  // namespace pipewright::exec::collectives
