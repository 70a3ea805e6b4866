#include "exec/devices/cpu/stage_views.hpp"

#include <algorithm>

#include "core/order/devices.hpp"
#include "exec/base/packing.hpp"

namespace pipewright::exec::cpu {
namespace {

std::size_t index(StageId stage) { return static_cast<std::size_t>(stage.value); }

/// Calls f(stage id, stage) for what each rank of this process holds.
template <class F>
void for_stages(const Program& program, const StagesOfRanks& ranks, const F& f) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto ids = program.placement.stages_of(RankId(static_cast<std::int64_t>(r)));
    for (std::size_t i = 0; i < ranks[r].size(); ++i) f(ids[i], *ranks[r][i]);
  }
}

void put_slice(const Slice& slice, Packer& packer) {
  packer.put<std::int64_t>(slice.columns);
  packer.put<Range>(slice.rows);
  packer.put_all(std::span<const Range>(slice.ranges));
}

Slice slice_from(Unpacker& unpacker) {
  Slice slice;
  slice.columns = unpacker.get<std::int64_t>();
  slice.rows = unpacker.get<Range>();
  slice.ranges = unpacker.get_all<Range>();
  return slice;
}

/// Writes a part's numbers to where they lie in the whole array, which grows as far as needed.
void scatter(std::span<const float> part, const Slice& slice, AlignedFloats& whole) {
  for (std::size_t i = 0; i < part.size(); ++i) {
    const auto place = static_cast<std::size_t>(slice.place_of(static_cast<std::int64_t>(i)));
    if (place >= whole.size()) whole.resize(place + 1);
    whole[place] = part[i];
  }
}

PackedBytes packed(const Program& program, const StagesOfRanks& ranks) {
  Packer packer;
  for_stages(program, ranks, [&](StageId id, const TrainableStage& stage) {
    const std::vector<ParameterView> views = stage.parameters();
    packer.put<bool>(true);
    packer.put<std::int64_t>(id.value);
    packer.put<std::uint64_t>(views.size());
    for (const ParameterView& view : views) {
      packer.put_text(view.name);
      packer.put_all(view.value);
      packer.put_all(view.gradient);
      packer.put<bool>(view.is_copy);
      packer.put<bool>(view.is_of_experts);
      put_slice(view.slice, packer);
      for (const std::size_t one : {view.first_value, view.first_gradient, view.elements})
        packer.put<std::uint64_t>(one);
    }
  });
  packer.put<bool>(false);
  return packer.take();
}

}  // namespace

StageViews::StageViews(const Program& program, const StagesOfRanks& ranks, Peers* peers)
    : devices_(program.devices),
      parts_(static_cast<std::size_t>(devices_of_rank(program.devices))),
      groups_(static_cast<std::size_t>(program.sharding.groups)),
      stages_(static_cast<std::size_t>(program.stages)) {
  if (peers != nullptr) {
    for (const PackedBytes& bytes : peers->share(packed(program, ranks))) unpack(bytes);
    return;
  }
  for_stages(program, ranks, [&](StageId id, const TrainableStage& stage) {
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
      view.is_of_experts = unpacker.get<bool>();
      view.slice = slice_from(unpacker);
      for (std::size_t* const one : {&view.first_value, &view.first_gradient, &view.elements})
        *one = static_cast<std::size_t>(unpacker.get<std::uint64_t>());
      views.push_back(std::move(view));
    }
  }
}

std::size_t StageViews::replicas() const {
  std::size_t most = 0;
  for (const auto& of_stage : stages_) most = std::max(most, of_stage.size() / parts_);
  return most;
}

std::vector<ParameterView> StageViews::replica(std::size_t n) {
  whole_.clear();
  Views all;
  for (const auto& of_stage : stages_) {
    if (of_stage.empty()) continue;
    const std::size_t at = std::min(n, of_stage.size() / parts_ - 1) * parts_;
    std::vector<Views> parts;
    for (std::size_t p = 0; p < parts_; ++p) parts.push_back(joined(of_stage, at + p));
    put_together(parts, all);
  }
  return all;
}

/// Whether ranks of a stage at these places have another place along tp.
bool StageViews::differ_along_tp(std::size_t a, std::size_t b) const {
  const auto place = [&](std::size_t rank) {
    return coordinate_of(devices_, kTensorAxis, RankId(static_cast<std::int64_t>(rank % parts_)));
  };
  return place(a) != place(b);
}

/// Those of the rank at this place, with the parts that the replicas of its group have.
StageViews::Views StageViews::joined(std::span<const Views> of_stage, std::size_t at) {
  Views views = of_stage[at];
  const std::size_t ranks = of_stage.size() / groups_;  // of a group
  const std::size_t begin = at / ranks * ranks;
  const auto join = [&](std::size_t parameter, std::span<const float> ParameterView::*array,
                        std::size_t ParameterView::*first) {
    ParameterView& view = views[parameter];
    if ((view.*array).size() == view.elements) return;
    AlignedFloats& whole =
        *whole_.emplace_back(std::make_unique<AlignedFloats>(view.elements, 0.0F));
    for (std::size_t r = begin; r < begin + ranks; ++r) {
      const ParameterView& part = of_stage[r][parameter];
      if (differ_along_tp(r, at) || part.slice != view.slice) continue;
      std::copy((part.*array).begin(), (part.*array).end(),
                whole.begin() + static_cast<std::ptrdiff_t>(part.*first));
    }
    view.*array = whole;
    view.*first = 0;
  };
  for (std::size_t p = 0; p < views.size(); ++p) {
    join(p, &ParameterView::value, &ParameterView::first_value);
    join(p, &ParameterView::gradient, &ParameterView::first_gradient);
  }
  return views;
}

/// The ranks that divide a stage have the same parameters in the same order, whole or a part each.
void StageViews::put_together(std::span<const Views> parts, Views& all) {
  for (std::size_t p = 0; p < parts.front().size(); ++p) {
    if (parts.front()[p].slice.is_whole()) {
      for (std::size_t place = 0; place < parts.size(); ++place) {
        ParameterView view = parts[place][p];
        const RankId rank(static_cast<std::int64_t>(place));
        view.is_copy |= coordinate_of(devices_, kContextAxis, rank) > 0;
        all.push_back(std::move(view));
      }
      continue;
    }
    ParameterView view = parts.front()[p];
    AlignedFloats& value = *whole_.emplace_back(std::make_unique<AlignedFloats>());
    AlignedFloats& gradient = *whole_.emplace_back(std::make_unique<AlignedFloats>());
    for (const Views& part : parts) {
      scatter(part[p].value, part[p].slice, value);
      scatter(part[p].gradient, part[p].slice, gradient);
    }
    view.value = value;
    view.gradient = gradient;
    view.slice = {};
    all.push_back(std::move(view));
  }
}

}  // namespace pipewright::exec::cpu
