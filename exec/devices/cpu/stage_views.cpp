#include "exec/devices/cpu/stage_views.hpp"

#include <algorithm>

#include "exec/base/packing.hpp"

namespace pipewright::exec::cpu {
namespace {

std::size_t index(StageId stage) { return static_cast<std::size_t>(stage.value); }

/// Calls f(stage id, stage) for what the Device of each rank of this process holds.
template <class F>
void for_stages(const Program& program, const Devices& devices, const F& f) {
  for (std::size_t r = 0; r < devices.size(); ++r) {
    if (devices[r] == nullptr) continue;
    const auto ids = program.placement.stages_of(RankId(static_cast<std::int64_t>(r)));
    const auto stages = devices[r]->stages();
    for (std::size_t i = 0; i < ids.size(); ++i) f(ids[i], *stages[i]);
  }
}

PackedBytes packed(const Program& program, const Devices& devices) {
  Packer packer;
  for_stages(program, devices, [&](StageId id, const Stage& stage) {
    const std::vector<ParameterView> views = stage.parameters();
    packer.put<bool>(true);
    packer.put<std::int64_t>(id.value);
    packer.put<std::uint64_t>(views.size());
    for (const ParameterView& view : views) {
      packer.put_text(view.name);
      packer.put_all(view.value);
      packer.put_all(view.gradient);
      packer.put<bool>(view.is_copy);
    }
  });
  packer.put<bool>(false);
  return packer.take();
}

}  // namespace

StageViews::StageViews(const Program& program, const Devices& devices, Peers* peers)
    : stages_(static_cast<std::size_t>(program.stages)) {
  if (peers != nullptr) {
    for (const PackedBytes& bytes : peers->share(packed(program, devices))) unpack(bytes);
    return;
  }
  for_stages(program, devices, [&](StageId id, const Stage& stage) {
    stages_[index(id)].push_back(stage.parameters());
  });
}

void StageViews::unpack(const PackedBytes& bytes) {
  Unpacker unpacker(bytes);
  const auto copy = [&] {
    const std::vector<float> values = unpacker.get_all<float>();
    copies_.push_back(std::make_unique<AlignedFloats>(values.begin(), values.end()));
    return std::span<const float>(*copies_.back());
  };
  while (unpacker.get<bool>()) {
    Views& views =
        stages_.at(static_cast<std::size_t>(unpacker.get<std::int64_t>())).emplace_back();
    const auto count = unpacker.get<std::uint64_t>();
    for (std::uint64_t i = 0; i < count; ++i) {
      ParameterView view;
      view.name = unpacker.get_text();
      view.value = copy();
      view.gradient = copy();
      view.is_copy = unpacker.get<bool>();
      views.push_back(std::move(view));
    }
  }
}

std::size_t StageViews::replicas() const {
  std::size_t most = 0;
  for (const auto& of_stage : stages_) most = std::max(most, of_stage.size());
  return most;
}

std::vector<ParameterView> StageViews::replica(std::size_t n) const {
  std::vector<ParameterView> all;
  for (const auto& of_stage : stages_) {
    if (of_stage.empty()) continue;
    const Views& views = of_stage[std::min(n, of_stage.size() - 1)];
    all.insert(all.end(), views.begin(), views.end());
  }
  return all;
}

}  // namespace pipewright::exec::cpu
