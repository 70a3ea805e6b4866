#include "exec/devices/cuda/tied_tables.hpp"

#include <algorithm>
#include <memory>

#include "core/base/error.hpp"
#include "exec/devices/cuda/payload.hpp"

namespace pipewright::exec::cuda {

PartPtr TiedTables::tables(std::span<StageGradients* const> counted) {
  const TableGradient sum = stages_.front()->table_gradient();
  for (Stage* const stage : stages_) {
    const TableGradient table = stage->table_gradient();
    const bool counts = std::find(counted.begin(), counted.end(), stage) != counted.end();
    const ElementRange own = counts ? table.own : ElementRange{};
    const auto clear = [&](std::size_t begin, std::size_t end) {
      if (begin < end) queue_.clear(table.at + begin, (end - begin) * sizeof(float));
    };
    clear(0, own.begin);
    clear(own.end, table.size);
    if (table.at != sum.at) queue_.run(queue_.cuda().kernels.add_to, sum.size, table.at, sum.at);
  }
  if (!transport_sums_) return copies_.bring(sum.at, sum.size);
  return std::make_shared<DevicePart>(ArrayOfGroup{sum.at, sum.size},
                                      queue_.record(queue_.computing()));
}

void TiedTables::take(const std::vector<PartPtr>& parts) {
  const TableGradient whole = stages_.front()->table_gradient();
  if (!copies_.add_up(parts, whole.at, whole.size)) {
    const auto* sum = dynamic_cast<const DevicePart*>(parts.front().get());
    if (sum == nullptr) throw RunError("received what is no sum of a tied table's gradients");
    queue_.wait(queue_.computing(), sum->ready);
  }
  for (Stage* const stage : stages_) {
    const TableGradient table = stage->table_gradient();
    if (table.at != whole.at) queue_.copy(table.at, whole.at, whole.size * sizeof(float));
  }
}

}  // namespace pipewright::exec::cuda
