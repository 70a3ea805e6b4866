#include "exec/runtime/program_checksum.hpp"

#include <span>

#include "exec/base/checksum.hpp"
#include "exec/base/packing.hpp"

namespace pipewright::exec {

std::uint64_t checksum_of(const Program& program) {
  Packer packer;
  packer.put_all(std::span<const InstructionId>(program.rank_begin));
  for (const Instruction& in : program.code) {
    packer.put<ActionKind>(in.kind);
    packer.put<std::uint8_t>(in.flags);
    packer.put<std::uint16_t>(in.stage);
    packer.put<std::uint32_t>(in.micro_batch);
    packer.put<InstructionId>(in.link);
  }
  for (const auto& [id, second] : program.pairs) {
    packer.put<InstructionId>(id);
    packer.put_text(to_string(second));
  }
  packer.put_all(std::span<const std::int32_t>(program.versions));
  for (const Call& call : program.calls) packer.put_text(to_string(call));
  for (const auto& [id, action] : program.part_of) {
    packer.put<InstructionId>(id);
    packer.put_text(to_string(action));
  }
  for (const auto* const axes : {&program.mesh, &program.devices}) {
    packer.put<std::uint64_t>(axes->size());
    for (const MeshAxis& axis : *axes) {
      packer.put_text(axis.name);
      packer.put<int>(axis.devices);
    }
  }
  packer.put<int>(program.sharding.zero);
  packer.put<int>(program.sharding.groups);
  for (const Collective& collective : program.collectives) {
    for (const Collective::Member& member : collective.members)
      packer.put<InstructionId>(member.instruction);
  }
  return checksum_of(packer.take(), {});
}

}  // namespace pipewright::exec
