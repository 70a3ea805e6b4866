// A message that lies on a GPU: what give() hands to the transport and accept() gets from it.
#pragma once

#include <utility>

#include "core/units.hpp"
#include "exec/cuda/pool.hpp"
#include "exec/transport.hpp"

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
  Event ready;  // behind the work that made it; null: it is there
  RankId owner;
};

}  // namespace pipewright::exec::cuda
