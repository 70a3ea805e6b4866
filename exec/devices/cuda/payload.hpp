// What lies on a GPU and goes between ranks: messages, which give() hands to the transport and
// accept() gets from it, and parts of sums that the GPUs take themselves.
#pragma once

#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/units.hpp"
#include "exec/devices/cuda/pool.hpp"
#include "exec/layers/expert_group.hpp"
#include "exec/runtime/transport.hpp"

namespace pipewright::exec::cuda {

class DevicePayload final : public Payload {
 public:
  /// `owner`: the rank whose memory it lies in. A rank that gets a message in its own memory (from
  /// a transport that received it there) keeps it; another one copies it.
  DevicePayload(Buffer what, Event when, RankId whose)
      : buffer(std::move(what)), ready(std::move(when)), owner(whose) {}
  std::byte* data() override { return static_cast<std::byte*>(buffer.at()); }
  std::size_t size() const override { return buffer.bytes(); }
  MemoryKind memory() const override { return MemoryKind::Device; }

  Buffer buffer;
  Event ready;  // after the work that made it; null: it is there
  RankId owner;
};

/// Numbers that the ranks of a group bring together, each in place: all of them are summed, or each
/// rank is left with the sum of its part, or each brings its part, an equal one.
struct ArrayOfGroup {
  void* at = nullptr;
  std::size_t size = 0;
  bool is_narrow = false;  // bfloat16, else float32; of a norm float64
};

/// Arrays of so many bytes that go round the ranks of a group: each sends one to the next rank, and
/// gets that of the rank before.
struct RoundOfGroup {
  struct Hop {
    const void* sent = nullptr;
    void* arrived = nullptr;
  };
  std::vector<Hop> hops;
  std::size_t bytes = 0;  // of each
};

/// Rows that go to the members who hold their experts, of numbers of so many bytes. The exchange
/// stays where it is until it has taken place; whoever does that makes room for what comes.
struct ExchangeOfGroup {
  ExchangeOfMembers* rows = nullptr;
  std::size_t number_bytes = 0;
};

/// Of an array so many bytes in front.
struct FrontOfArray {
  Buffer array;
  std::size_t bytes = 0;
};

/// What a member brings to a sum, or has made of an array that is gathered, and where it finds the
/// whole: the same memory, its own. Only for a transport that sums on GPUs
/// (Device::leave_sums_to_transport()).
class DevicePart final : public Part {
 public:
  DevicePart() = default;  // nothing any more
  /// `behind`: bytes behind these, of which all members get the sum where of these they get a part.
  /// The rest of the array is of experts, of which each member has those that it holds.
  DevicePart(FrontOfArray what, std::size_t behind, Event when)
      : front(std::move(what)), bytes_behind(behind), ready(std::move(when)) {}
  DevicePart(FrontOfArray what, FrontOfArray also, Event when)
      : front(std::move(what)), beside(std::move(also)), ready(std::move(when)) {}
  DevicePart(const ArrayOfGroup& what, Event when) : of_group(what), ready(std::move(when)) {}
  DevicePart(RoundOfGroup what, Event when) : round(std::move(what)), ready(std::move(when)) {}
  DevicePart(const ExchangeOfGroup& what, Event when) : exchange(what), ready(std::move(when)) {}
  HostPayload pack() const override {
    PIPEWRIGHT_ASSERT(false, "a part that lies on a GPU is not packed");
    return HostPayload({});
  }

  ArrayOfGroup of_group;     // or this:
  RoundOfGroup round;        // or this:
  ExchangeOfGroup exchange;  // or these:
  FrontOfArray front;
  std::size_t bytes_behind = 0;
  FrontOfArray beside;  // is gathered too, if there is one
  Event ready;          // after the work that made the part; of what comes back, after the sum
};

}  // namespace pipewright::exec::cuda
