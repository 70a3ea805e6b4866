// Devices that do what another one does, except where a test says otherwise.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>

#include "exec/runtime/device.hpp"

namespace pipewright::test {

/// Does what the inner one does; a test overrides what should differ.
class DeviceAround : public exec::Device {
 public:
  explicit DeviceAround(std::unique_ptr<exec::Device> inner) : inner_(std::move(inner)) {}

  void begin_step(int step) override { inner_->begin_step(step); }
  void compute(InstructionId id) override { inner_->compute(id); }
  exec::PayloadPtr give(InstructionId send) override { return inner_->give(send); }
  void accept(InstructionId recv, exec::PayloadPtr payload) override {
    inner_->accept(recv, std::move(payload));
  }
  void end_step() override { inner_->end_step(); }

 protected:
  std::unique_ptr<exec::Device> inner_;
};

/// What goes wrong at one instruction.
enum class Fault : std::uint8_t { Throws, WorksOn, HasNoMemory };

/// Paced, but for one instruction, at which it fails or works on without looking at any clock until
/// `let_go` is set.
class FaultyDevice final : public DeviceAround {
 public:
  FaultyDevice(std::unique_ptr<exec::Device> inner, InstructionId where, Fault fault,
               std::atomic<bool>& let_go)
      : DeviceAround(std::move(inner)), where_(where), fault_(fault), let_go_(let_go) {}

  void compute(InstructionId id) override {
    if (id != where_) return inner_->compute(id);
    if (fault_ == Fault::Throws) throw std::runtime_error("the device fell off the bus");
    if (fault_ == Fault::HasNoMemory) throw std::bad_alloc();
    while (!let_go_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  const InstructionId where_;
  const Fault fault_;
  std::atomic<bool>& let_go_;
};

}  // namespace pipewright::test
