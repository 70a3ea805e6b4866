// What a run leaves, by what it ran on.
#pragma once

#include <variant>

#include "exec/devices/cpu/device.hpp"
#include "exec/devices/cuda/run.hpp"
#include "exec/runtime/runtime.hpp"

namespace pipewright::tools {

/// Of the paced device, which computes nothing; of CPUs; of GPUs.
using DeviceResult = std::variant<exec::RunResult, exec::cpu::CpuResult, exec::cuda::CudaResult>;

inline const exec::RunResult& run_of(const DeviceResult& result) {
  return std::visit([](const auto& one) -> const exec::RunResult& { return one; }, result);
}

/// nullptr where nothing was trained, evaluated or predicted.
inline const exec::TrainingResult* training_of(const DeviceResult& result) {
  if (const auto* cpu = std::get_if<exec::cpu::CpuResult>(&result)) return cpu;
  return std::get_if<exec::cuda::CudaResult>(&result);
}

/// What GPUs did, kernel by kernel; null where nobody asked.
inline const GpuWorkLog* work_of(const DeviceResult& result) {
  const auto* gpu = std::get_if<exec::cuda::CudaResult>(&result);
  return gpu != nullptr && gpu->work ? &*gpu->work : nullptr;
}

}  // namespace pipewright::tools
