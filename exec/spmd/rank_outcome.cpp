#include "exec/spmd/rank_outcome.hpp"

#include "exec/base/packing.hpp"

namespace pipewright::exec::graphs {
namespace {

using PartsByNumber = std::map<std::size_t, LocalArray>;

void put(Packer& packer, const PartsByNumber& parts) {
  packer.put<std::uint64_t>(parts.size());
  for (const auto& [tensor, array] : parts) {
    packer.put<std::uint64_t>(tensor);
    packer.put_all<std::int64_t>(array.part.offset);
    packer.put_all<std::int64_t>(array.part.shape);
    packer.put_all<float>(array.values);
  }
}

PartsByNumber get_parts(Unpacker& unpacker) {
  PartsByNumber parts;
  for (auto left = unpacker.get<std::uint64_t>(); left > 0; --left) {
    LocalArray& array = parts[unpacker.get<std::uint64_t>()];
    array.part.offset = unpacker.get_all<std::int64_t>();
    array.part.shape = unpacker.get_all<std::int64_t>();
    array.values = unpacker.get_all<float>();
  }
  return parts;
}

}  // namespace

std::string to_bytes(const RankOutcome& outcome) {
  Packer packer;
  packer.put_all<double>(outcome.losses);
  packer.put_all<std::int64_t>(outcome.step_ns);
  packer.put_all<ActionSpan>(outcome.spans.actions);
  packer.put_all<ActionSpan>(outcome.spans.parts);
  packer.put<spmd::StepMemory>(outcome.memory);
  packer.put<std::int64_t>(outcome.bytes_read);
  put(packer, outcome.parameters);
  put(packer, outcome.first_gradients);
  const PackedBytes bytes = packer.take();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

RankOutcome outcome_of(std::string_view bytes) {
  Unpacker unpacker(std::as_bytes(std::span(bytes)));
  RankOutcome outcome;
  outcome.losses = unpacker.get_all<double>();
  outcome.step_ns = unpacker.get_all<std::int64_t>();
  outcome.spans.actions = unpacker.get_all<ActionSpan>();
  outcome.spans.parts = unpacker.get_all<ActionSpan>();
  outcome.memory = unpacker.get<spmd::StepMemory>();
  outcome.bytes_read = unpacker.get<std::int64_t>();
  outcome.parameters = get_parts(unpacker);
  outcome.first_gradients = get_parts(unpacker);
  return outcome;
}

}  // namespace pipewright::exec::graphs
