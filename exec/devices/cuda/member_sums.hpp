// What ranks bring together which divide a stage's layers (exec/layers/tensor_group.hpp), of arrays
// that lie on GPUs: sums, whole or each rank's rows of them, rows of all, what goes round, and rows
// that go to their experts. By a transport that does it where they lie, or by way of the hosts. One
// thread at a time, the rank's.
#pragma once

#include <functional>
#include <vector>

#include "exec/collectives/group.hpp"
#include "exec/devices/cuda/payload.hpp"
#include "exec/devices/cuda/queue.hpp"
#include "exec/layers/tensor_group.hpp"

namespace pipewright::exec::cuda {

class MemberSums {
 public:
  /// The queue must outlive it; `between` as Queue::finish() has it.
  MemberSums(Queue& queue, std::function<void()> between)
      : queue_(queue), between_(std::move(between)) {}

  /// For the transport, after what is on the computing stream. Not in exact numerics, whose sums
  /// are chains that members go on with in turns.
  PartPtr part_of(const Wanted& wanted);
  /// It has come together; the computing stream goes on behind that.
  void take(const PartPtr& together);
  /// By way of the hosts: waits, for this GPU and for the other members, who call it for the same.
  /// Throws as the group does. Of what is not exchanged.
  void bring_together(const Wanted& wanted, const AxisGroup& members, collectives::Group& group);
  /// The same of rows that go to the members who hold their experts.
  void bring_together(ExchangeOfMembers& exchange, collectives::Group& group);
  /// Of a rehearsal: of sums the rank's own turns alone; rows are zeros.
  void rehearse(const Wanted& wanted, const AxisGroup& members);

 private:
  ArrayOfGroup array_of(const Wanted& wanted) const;
  void go_on_in_turns(const SumOfMembers& sum, int index, collectives::Group& group);
  template <class Number>
  void add_up(const ArrayOfGroup& array, collectives::Group& group);
  void gather(const ArrayOfGroup& array, collectives::Group& group);
  RoundOfGroup round_of(const RingOfMembers& ring) const;
  void pass_on(const RoundOfGroup& round, collectives::Group& group);
  template <class Number>
  void download(const ArrayOfGroup& array, std::vector<Number>& to);
  template <class Number>
  void upload(const std::vector<Number>& from, const ArrayOfGroup& array);
  void copy(void* to, const void* from, std::size_t bytes);

  Queue& queue_;
  const std::function<void()> between_;
};

}  // namespace pipewright::exec::cuda
