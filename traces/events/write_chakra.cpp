#include "traces/events/write_chakra.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "core/base/error.hpp"
#include "traces/analysis/tensor_ends.hpp"

namespace pipewright::traces {
namespace {

// Numbers of the schema's fields and enumerations.
constexpr int kVersion = 1;                                            // of GlobalMetadata
constexpr int kId = 1, kName = 2, kType = 3, kDataNeeds = 5;           // of Node
constexpr int kDuration = 7, kAttribute = 10;                          // of Node
constexpr int kAttributeName = 1, kInt32 = 7, kInt64 = 9, kBool = 27;  // of AttributeProto
constexpr int kComputation = 4, kSend = 5, kReceive = 6;               // NodeType

void add_varint(std::string& bytes, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(0x80 | (value & 0x7f));
  bytes += static_cast<char>(value);
}

void add_number(std::string& bytes, int field, std::uint64_t value) {
  add_varint(bytes, static_cast<std::uint64_t>(field) << 3);
  add_varint(bytes, value);
}

void add_bytes(std::string& bytes, int field, const std::string& value) {
  add_varint(bytes, static_cast<std::uint64_t>(field) << 3 | 2);
  add_varint(bytes, value.size());
  bytes += value;
}

std::string attribute(const std::string& name, int field, std::int64_t value) {
  std::string bytes;
  add_bytes(bytes, kAttributeName, name);
  add_number(bytes, field, static_cast<std::uint64_t>(value));
  return bytes;
}

void add_message(std::string& file, const std::string& message) {
  add_varint(file, message.size());
  file += message;
}

class ChakraWriter {
 public:
  ChakraWriter(const Program& program, const Timeline& timeline, const CostTable& costs)
      : program_(program), timeline_(timeline), costs_(costs), ends_(tensor_ends_of(program)) {}

  std::vector<std::string> run() {
    if (program_.has_collectives() || !program_.calls.empty()) {
      throw InputError(
          "collectives are not written as Chakra traces; expected a step without sums over "
          "replicas "
          "and divided layers");
    }
    sent_by_.resize(program_.code.size());
    taken_by_.resize(program_.code.size());
    for (InstructionId id = 0; id < program_.code.size(); ++id) {
      const ActionKind kind = program_.code[id].kind;
      if (is_send(kind) && ends_.producer[id] != kNoInstruction)
        sent_by_[ends_.producer[id]].push_back(id);
      if (is_recv(kind) && ends_.consumer[id] != kNoInstruction)
        taken_by_[ends_.consumer[id]].push_back(id);
    }
    std::vector<std::string> files;
    for (int r = 0; r < program_.ranks(); ++r) files.push_back(file_of(RankId(r)));
    return files;
  }

 private:
  std::string file_of(RankId rank) {
    std::string about, file;
    add_bytes(about, kVersion, "0.0.4");
    add_message(file, about);
    made_.clear();
    std::uint64_t next = 0;
    std::vector<std::uint64_t> before;  // the computation before, where there is one
    const auto first = program_.rank_begin[static_cast<std::size_t>(rank.value)];
    const auto last = program_.rank_begin[static_cast<std::size_t>(rank.value) + 1];
    for (InstructionId id = first; id < last; ++id) {
      const ActionKind kind = program_.code[id].kind;
      if (!is_compute(kind) && kind != ActionKind::Opt) continue;
      std::vector<std::uint64_t> needs = before;
      add_own_inputs(program_.cell(id), needs);
      for (const InstructionId receive : taken_by_[id]) {
        needs.push_back(next);
        add_message(file, message_node(next++, receive, before));
      }
      std::sort(needs.begin(), needs.end());
      needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
      before = {next};
      note_outputs(program_.cell(id), next);
      add_message(file, computation_node(next++, id, needs));
      for (const InstructionId send : sent_by_[id])
        add_message(file, message_node(next++, send, before));
    }
    return file;
  }

  using Tensor = std::tuple<bool, int, int>;  // a gradient, of a stage, of a micro-batch

  static bool makes_gradient(const Action& action) {
    return action.kind == ActionKind::B || action.kind == ActionKind::I;
  }
  static std::vector<Action> actions_in(const Cell& cell) {
    if (cell.partner) return {cell.action, *cell.partner};
    return {cell.action};
  }

  /// What earlier computations of the rank made for this one: program order alone says too little
  /// where a reader asks which forward a backward is of.
  void add_own_inputs(const Cell& cell, std::vector<std::uint64_t>& needs) const {
    const auto add = [&](bool gradient, int stage, int micro_batch) {
      const auto made = made_.find({gradient, stage, micro_batch});
      if (made != made_.end()) needs.push_back(made->second);
    };
    for (const Action& action : actions_in(cell)) {
      const int stage = action.stage.value, micro_batch = action.micro_batch.value;
      if (action.kind == ActionKind::F) add(false, stage - 1, micro_batch);
      if (action.kind == ActionKind::W) add(true, stage, micro_batch);
      if (!makes_gradient(action)) continue;
      add(false, stage, micro_batch);
      add(true, stage + 1, micro_batch);
    }
  }

  void note_outputs(const Cell& cell, std::uint64_t number) {
    for (const Action& action : actions_in(cell)) {
      if (action.kind == ActionKind::F || makes_gradient(action))
        made_[{makes_gradient(action), action.stage.value, action.micro_batch.value}] = number;
    }
  }

  std::string node(std::uint64_t number, InstructionId id, int type,
                   const std::vector<std::uint64_t>& needs) const {
    std::string bytes;
    add_number(bytes, kId, number);
    add_bytes(bytes, kName, program_.text(id));
    add_number(bytes, kType, static_cast<std::uint64_t>(type));
    std::string packed;
    for (const std::uint64_t need : needs) add_varint(packed, need);
    if (!packed.empty()) add_bytes(bytes, kDataNeeds, packed);
    add_bytes(bytes, kAttribute, attribute("is_cpu_op", kBool, 0));
    return bytes;
  }

  std::string computation_node(std::uint64_t number, InstructionId id,
                               const std::vector<std::uint64_t>& needs) const {
    std::string bytes = node(number, id, kComputation, needs);
    const std::int64_t took = timeline_.end[id] - timeline_.start[id];
    const std::int64_t rounded = (took + 500) / 1000;
    add_number(bytes, kDuration,
               static_cast<std::uint64_t>(took > 0 ? std::max<std::int64_t>(1, rounded) : 0));
    return bytes;
  }

  std::string message_node(std::uint64_t number, InstructionId id,
                           const std::vector<std::uint64_t>& needs) const {
    const Instruction& end = program_.code[id];
    const Route& route = program_.routes[end.route];
    const bool sends = is_send(end.kind);
    std::string bytes = node(number, id, sends ? kSend : kReceive, needs);
    const std::int64_t size = std::max<std::int64_t>(1, costs_.message_bytes(route).value);
    add_bytes(bytes, kAttribute, attribute("comm_size", kInt64, size));
    add_bytes(bytes, kAttribute, attribute("comm_src", kInt32, route.source.value));
    add_bytes(bytes, kAttribute, attribute("comm_dst", kInt32, route.destination.value));
    // Both ends name the SEND.
    const InstructionId tag = sends ? id : end.link;
    add_bytes(bytes, kAttribute, attribute("comm_tag", kInt32, tag));
    return bytes;
  }

  const Program& program_;
  const Timeline& timeline_;
  const CostTable& costs_;
  const TensorEnds ends_;
  std::map<Tensor, std::uint64_t> made_;                        // on this rank, by which node
  std::vector<std::vector<InstructionId>> sent_by_, taken_by_;  // by computation
};

}  // namespace

std::vector<std::string> chakra_files(const Program& program, const Timeline& timeline,
                                      const CostTable& costs) {
  return ChakraWriter(program, timeline, costs).run();
}

}  // namespace pipewright::traces
