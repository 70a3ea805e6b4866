// A serial run on the CPU beside one on GPUs, step by step; keeps the worst of all. Where the ranks
// are several processes each looks at its own stages, and all of them get the worst. One thread at
// a time, while the ranks stand still.
#pragma once

#include <optional>
#include <vector>

#include "exec/devices/cpu/serial.hpp"
#include "exec/devices/cpu/verify.hpp"
#include "exec/devices/cuda/device.hpp"
#include "exec/runtime/peers.hpp"

namespace pipewright::exec::cuda {

class RunVerifier {
 public:
  /// `how` must outlive it.
  explicit RunVerifier(const CudaTraining& how);

  /// `devices` by rank, null where it lives in another process; `peers` null: there is none.
  void compare(const Program& program, int step, const std::vector<Device*>& devices, Peers* peers);
  const std::optional<VerifyReport>& worst() const { return worst_; }

 private:
  VerifyReport report_of(const std::vector<ParameterView>& run, bool is_all) const;
  void keep(const VerifyReport& found);
  void compare_replicas(const Program& program, const std::vector<Device*>& devices, Peers* peers);

  const cpu::Training& training_;
  const Numerics numerics_;
  SerialRun serial_;
  std::optional<VerifyReport> worst_;
};

}  // namespace pipewright::exec::cuda
