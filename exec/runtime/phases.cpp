#include "exec/runtime/phases.hpp"

#include <array>

#include "exec/base/waiting.hpp"

namespace pipewright::exec {

std::string_view to_string(Phase phase) {
  constexpr std::array<std::string_view, 6> kNames = {"build",     "plan",       "parallel",
                                                      "init_comm", "initialize", "steps"};
  return kNames[static_cast<std::size_t>(phase)];
}

void PhaseLog::begin(Phase phase) {
  finish();
  const std::int64_t now = local::steady_ns();
  if (!has_begun_) zero_ns_ = now;
  has_begun_ = is_open_ = true;
  open_ = {phase, now - zero_ns_, now - zero_ns_};
}

void PhaseLog::finish() {
  if (!is_open_) return;
  is_open_ = false;
  open_.end_ns = local::steady_ns() - zero_ns_;
  spans_.push_back(open_);
}

}  // namespace pipewright::exec
