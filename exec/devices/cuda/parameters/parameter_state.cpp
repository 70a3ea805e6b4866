// The parameters of a stage on a GPU as a checkpoint has them: copies on the host, from which it is
// saved and into which it is read.
#include <string_view>

#include "exec/checkpoint/checkpoint.hpp"
#include "exec/devices/cuda/parameters.hpp"

namespace pipewright::exec::cuda {

void Parameters::list_state(bool has_all_values) {
  kept_.clear();
  const auto keep = [&](std::size_t place, std::string_view slot, const ElementRange& range,
                        float* at, bool is_shared_out) {
    kept_.push_back({place, range.begin, slot, at, is_shared_out, AlignedFloats(range.size())});
  };
  const auto moments = slot_names(OptimizerKind::AdamW);
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const Placed& p = all_[i];
    const Section& section = section_of(p);
    const auto keep_own = [&](std::string_view slot, const Buffer& array) {
      const Held own = kept_of(p);
      keep(i, slot, own.range, array.floats() + own.at, is_shared_out() && !section.is_statistics);
    };
    if (has_all_values)
      keep(i, kValueSlot, {0, p.size}, divides_values() ? nullptr : values_.floats() + p.offset,
           false);
    else
      keep_own(kValueSlot, values_);
    if (!mean_ || section.is_statistics) continue;
    keep_own(moments[0], mean_);
    keep_own(moments[1], square_);
  }
}

void Parameters::make_room_for_state() { list_state(true); }

void Parameters::fetch_state() {
  list_state(!divides_values());
  for (Kept& one : kept_) copy_floats(one.at, one.on_host.size(), one.on_host.data());
  queue_.finish(queue_.record(queue_.computing()), {});
}

std::vector<StateView> Parameters::state() {
  std::vector<StateView> views;
  for (Kept& one : kept_) {
    const Placed& p = all_[one.place];
    views.push_back({.parameter = p.host->name,
                     .slot = one.slot,
                     .first = static_cast<std::int64_t>(one.first),
                     .total = static_cast<std::int64_t>(p.size),
                     .is_shared_out = one.is_shared_out,
                     .values = one.on_host,
                     .is_copy = p.host->is_copy || (p.host->is_replicas_copy && !one.is_shared_out),
                     .is_of_experts = p.host->is_of_experts,
                     .slice = p.host->slice});
  }
  return views;
}

void Parameters::store_state() {
  const Buffer values = room_for_values();
  for (const Kept& one : kept_) {
    float* const to = one.slot == kValueSlot ? values.floats() + all_[one.place].offset : one.at;
    copy_floats(one.on_host.data(), one.on_host.size(), to);
  }
  keep_values(values);
  queue_.finish(queue_.record(queue_.computing()), {});
  drop_state();
}

}  // namespace pipewright::exec::cuda
