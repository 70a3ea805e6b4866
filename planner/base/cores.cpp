#include "planner/base/cores.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

namespace pipewright::planner {
namespace {

namespace fs = std::filesystem;

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

int cores_of_mask() {
  // The kernel refuses a set that is smaller than its own with EINVAL.
  for (int most = 1024; most <= 1 << 20; most *= 2) {
    const std::unique_ptr<cpu_set_t, FreeCpuSet> set(CPU_ALLOC(most));
    const std::size_t bytes = CPU_ALLOC_SIZE(most);
    if (set == nullptr) break;
    if (sched_getaffinity(0, bytes, set.get()) == 0) return CPU_COUNT_S(bytes, set.get());
    if (errno != EINVAL) break;
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

std::string text_of(const fs::path& file) {
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

/// This process's control group below the root; version 2 has the line "0::/a/b".
fs::path own_group() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.starts_with("0::/")) return line.substr(4);
  }
  return {};
}

}  // namespace

std::optional<int> cores_of_quota(std::string_view cpu_max) {
  std::istringstream text{std::string(cpu_max)};
  std::int64_t quota = 0, period = 0;
  if (!(text >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return static_cast<int>(std::clamp<std::int64_t>(quota / period, 1, 1 << 20));
}

int cores_of_this_machine() {
  int cores = std::max(1, cores_of_mask());
  // A group may use no more than each group around it.
  for (fs::path group = own_group();; group = group.parent_path()) {
    const auto quota = cores_of_quota(text_of(fs::path("/sys/fs/cgroup") / group / "cpu.max"));
    if (quota) cores = std::min(cores, *quota);
    if (group.empty()) return cores;
  }
}

}  // namespace pipewright::planner
