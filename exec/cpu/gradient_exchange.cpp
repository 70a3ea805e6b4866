#include "exec/cpu/gradient_exchange.hpp"

#include <algorithm>

namespace pipewright::exec::cpu {
namespace {

constexpr auto kByInstruction = [](const auto& a, const auto& b) { return a.first < b.first; };

}  // namespace

GradientExchange::GradientExchange(const Program& program) : collectives_(collectives_of(program)) {
  for (std::uint32_t c = 0; c < collectives_.size(); ++c) {
    const auto& members = collectives_[c].members;
    const int count = static_cast<int>(members.size());
    tables_.push_back(
        {std::vector<GradientPart>(members.size()), std::make_unique<std::atomic<int>>(count)});
    for (std::uint32_t m = 0; m < members.size(); ++m) {
      of_reduction_.emplace_back(members[m].instruction, c);
      if (members[m].before != kNoInstruction) after_.emplace_back(members[m].before, Duty{c, m});
    }
  }
  std::sort(after_.begin(), after_.end(), kByInstruction);
  std::sort(of_reduction_.begin(), of_reduction_.end());
}

std::span<const std::pair<InstructionId, GradientExchange::Duty>> GradientExchange::due_after(
    InstructionId computation) const {
  const auto [first, last] = std::equal_range(after_.begin(), after_.end(),
                                              std::pair{computation, Duty{}}, kByInstruction);
  return {first, last};
}

std::vector<GradientExchange::Duty> GradientExchange::due_at_start(RankId rank) const {
  std::vector<Duty> duties;
  for (std::uint32_t c = 0; c < collectives_.size(); ++c) {
    const auto& members = collectives_[c].members;
    for (std::uint32_t m = 0; m < members.size(); ++m) {
      if (members[m].rank == rank && members[m].before == kNoInstruction) duties.push_back({c, m});
    }
  }
  return duties;
}

void GradientExchange::lay_down(const Duty& duty, GradientPart part) {
  tables_[duty.collective].parts[duty.member] = std::move(part);
}

const std::uint32_t* GradientExchange::collective_of(InstructionId reduction) const {
  const auto at = std::lower_bound(of_reduction_.begin(), of_reduction_.end(),
                                   std::pair{reduction, std::uint32_t{0}});
  return at == of_reduction_.end() || at->first != reduction ? nullptr : &at->second;
}

void GradientExchange::done(std::uint32_t collective) {
  Table& table = tables_[collective];
  if (table.readers->fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  for (GradientPart& part : table.parts) part = {};
  // The next step's; its parts are laid down after all ranks have met.
  table.readers->store(static_cast<int>(table.parts.size()), std::memory_order_relaxed);
}

}  // namespace pipewright::exec::cpu
