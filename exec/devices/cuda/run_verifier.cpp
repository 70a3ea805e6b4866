#include "exec/devices/cuda/run_verifier.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "core/order/devices.hpp"
#include "exec/base/packing.hpp"
#include "exec/devices/cpu/checkpointing.hpp"
#include "exec/devices/cpu/stage_views.hpp"

namespace pipewright::exec::cuda {
namespace {

/// Each stage once: of the lowest rank here that holds it, or of the highest.
std::vector<ParameterView> views(const Program& program, const std::vector<Device*>& devices,
                                 bool from_the_front) {
  std::vector<const Stage*> stages(static_cast<std::size_t>(program.stages));
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const std::size_t r = from_the_front ? devices.size() - 1 - i : i;
    if (devices[r] == nullptr) continue;
    const auto ids = program.placement.stages_of(RankId(static_cast<std::int64_t>(r)));
    const auto held = devices[r]->stages();
    for (std::size_t k = 0; k < ids.size(); ++k)
      stages[static_cast<std::size_t>(ids[k].value)] = held[k];
  }
  std::erase(stages, nullptr);
  return parameters_of(stages);
}

void put(Packer& packer, const Difference& difference) {
  packer.put<double>(difference.norm_rel);
  packer.put<std::int64_t>(difference.max_ulp);
  packer.put<bool>(difference.bitwise);
  packer.put_text(difference.worst);
  packer.put<double>(difference.worst_norm_rel);
}

Difference get_difference(Unpacker& unpacker) {
  Difference difference;
  difference.norm_rel = unpacker.get<double>();
  difference.max_ulp = unpacker.get<std::int64_t>();
  difference.bitwise = unpacker.get<bool>();
  difference.worst = unpacker.get_text();
  difference.worst_norm_rel = unpacker.get<double>();
  return difference;
}

}  // namespace

RunVerifier::RunVerifier(const CudaTraining& how)
    : training_(how.training),
      numerics_(how.precision == Precision::Exact ? Numerics::Exact : Numerics::Fast),
      serial_(*training_.model, {.micro_batch_size = training_.micro_batch_size,
                                 .micro_batches = training_.micro_batches,
                                 .seed = training_.seed,
                                 .optimizer = training_.optimizer,
                                 .options = {numerics_, nullptr, {}}}) {
  if (training_.start != nullptr) cpu::restore(serial_.stage(), *training_.start);
}

/// Of a part of the model: its own arrays, without the copies of a table that others count.
VerifyReport RunVerifier::report_of(const std::vector<ParameterView>& run, bool is_all) const {
  std::vector<ParameterView> own = run, reference = serial_.stage().parameters();
  if (!is_all) {
    std::erase_if(own, [](const auto& view) { return view.is_copy; });
    std::set<std::string> names;
    for (const auto& view : own) names.insert(view.name);
    std::erase_if(reference, [&](const auto& view) { return !names.contains(view.name); });
  }
  VerifyReport report = verify(own, reference);
  report.numerics = numerics_;
  return report;
}

void RunVerifier::keep(const VerifyReport& found) {
  worst_ = worst_ ? worse_of(*worst_, found) : found;
}

/// Where ranks divide stages, or replicas arrays, all processes see all of their parts.
void RunVerifier::compare_replicas(const Program& program, const std::vector<Device*>& devices,
                                   Peers* peers) {
  cpu::StageViews views(program, cpu::stages_of_ranks(devices), peers);
  for (std::size_t n = 0; n < views.replicas(); ++n) keep(report_of(views.replica(n), true));
}

void RunVerifier::compare(const Program& program, int step, const std::vector<Device*>& devices,
                          Peers* peers) {
  const bool updates = std::any_of(program.code.begin(), program.code.end(),
                                   [](const auto& in) { return in.kind == ActionKind::Opt; });
  const int at = training_.first_step() + step;
  updates ? serial_.step(*training_.data, at) : serial_.gradients(*training_.data, at);
  if (devices_of_rank(program.devices) > 1 || program.sharding.divides_gradients())
    return compare_replicas(program, devices, peers);
  for (const bool from_the_front : {true, false}) {
    const VerifyReport own = report_of(views(program, devices, from_the_front), peers == nullptr);
    if (peers == nullptr) {
      keep(own);
      continue;
    }
    Packer packer;
    put(packer, own.gradients);
    put(packer, own.parameters);
    packer.put<int>(own.compared);
    for (const PackedBytes& bytes : peers->share(packer.take())) {
      Unpacker unpacker(bytes);
      VerifyReport other;
      other.numerics = numerics_;
      other.gradients = get_difference(unpacker);
      other.parameters = get_difference(unpacker);
      other.compared = unpacker.get<int>();
      keep(other);
    }
  }
}

}  // namespace pipewright::exec::cuda
