#include "exec/devices/metered/device.hpp"

#include <cstdint>

#include "exec/base/waiting.hpp"

namespace pipewright::exec::local {

MeteredDevice::MeteredDevice(std::unique_ptr<Device> inner, RankId rank, Clock& clock,
                             std::mutex& turn)
    : inner_(std::move(inner)), rank_(rank), clock_(clock), turn_(turn) {}

void MeteredDevice::compute(InstructionId id) {
  const std::int64_t start = clock_.now();
  std::int64_t used = 0;
  {
    const std::scoped_lock lock(turn_);
    const std::int64_t before = thread_cpu_ns();
    inner_->compute(id);
    used = thread_cpu_ns() - before;
  }
  if (used > 0) clock_.sleep_until(rank_, start + used);
}

}  // namespace pipewright::exec::local
