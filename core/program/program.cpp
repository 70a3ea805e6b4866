#include "core/program/program.hpp"

#include <algorithm>
#include <array>

#include "core/order/cells.hpp"
#include "core/order/forward_order.hpp"
#include "core/program/queue_key.hpp"

namespace pipewright {
namespace {

/// Compares a row of a table sorted by instruction with an instruction.
struct ByInstruction {
  template <class Row>
  bool operator()(const Row& row, InstructionId id) const {
    return row.first < id;
  }
  template <class Row>
  bool operator()(InstructionId id, const Row& row) const {
    return id < row.first;
  }
};

constexpr std::int64_t kCollectiveLane = -1, kGroupLane = -4, kFirstLine = -8;

/// "" for what is no call, too.
std::string line_of(const Program& program, const Instruction& in) {
  return is_call(in.kind) ? line_of(program.call(in)) : "";
}

/// The lines of a rank, in the order of their first calls.
class Lines {
 public:
  explicit Lines(int device_queues) : queues_(static_cast<std::size_t>(device_queues)) {}
  std::int64_t key_of(const std::string& line) {
    const auto known = std::find(names_.begin(), names_.end(), line);
    auto number = static_cast<std::size_t>(known - names_.begin());
    if (known == names_.end()) names_.push_back(line);
    if (queues_ > 0) number %= queues_;
    return kFirstLine - static_cast<std::int64_t>(number);
  }

 private:
  std::size_t queues_;
  std::vector<std::string> names_;
};

/// Equal for the instructions of a rank that stand in one line beside the compute lane.
std::int64_t lane_key(const Program& program, const Instruction& in, Channel channel) {
  if (in.in_collective()) return kCollectiveLane;
  return queue_key(program.routes[in.route], is_send(in.kind), channel);
}

}  // namespace

RankId Program::rank_of(InstructionId id) const {
  const auto after = std::upper_bound(rank_begin.begin(), rank_begin.end(), id);
  return RankId(static_cast<std::int64_t>(after - rank_begin.begin()) - 1);
}

Cell Program::cell(InstructionId id) const {
  const Instruction& in = code[id];
  Cell cell{
      {.kind = in.kind, .stage = StageId(in.stage), .micro_batch = MicroBatchId(in.micro_batch)},
      std::nullopt};
  if (!versions.empty()) cell.action.version = versions[id];
  if (in.has(Instruction::kPair)) {
    cell.partner = std::lower_bound(pairs.begin(), pairs.end(), id, ByInstruction{})->second;
  }
  return cell;
}

std::string Program::text(InstructionId id) const {
  const Instruction& in = code[id];
  const Action* of = action_of_part(id);
  if (of != nullptr && in.kind == ActionKind::Part) return to_string(*of) + "." + call(in).data;
  if (of != nullptr) return to_string(call(in)) + " of " + to_string(*of);
  return is_call(in.kind) ? to_string(call(in)) : to_string(cell(id));
}

const Action* Program::action_of_part(InstructionId id) const {
  const auto found = std::lower_bound(part_of.begin(), part_of.end(), id, ByInstruction{});
  return found != part_of.end() && found->first == id ? &found->second : nullptr;
}

bool Program::ends_parts(InstructionId id) const {
  return id > 0 && action_of_part(id - 1) != nullptr && action_of_part(id) == nullptr;
}

std::span<const std::pair<InstructionId, InstructionId>> Program::extra_inputs_of(
    InstructionId id) const {
  if (!code[id].has(Instruction::kExtraInput)) return {};
  const auto [first, last] =
      std::equal_range(extra_inputs.begin(), extra_inputs.end(), id, ByInstruction{});
  return {first, last};
}

std::uint32_t Program::batch_of(InstructionId id) const {
  const auto found = std::lower_bound(joined.begin(), joined.end(), id, ByInstruction{});
  return found != joined.end() && found->first == id ? found->second : kNoBatch;
}

std::vector<InstructionId> issue_order(const Program& program, RankId rank) {
  std::vector<InstructionId> ends;
  const auto r = static_cast<std::size_t>(rank.value);
  for (const bool at_start : {true, false}) {
    for (InstructionId id = program.rank_begin[r]; id < program.rank_begin[r + 1]; ++id) {
      const Instruction& in = program.code[id];
      const bool queued = is_transfer(in.kind) || !in.has(Instruction::kOnComputeLane);
      if (queued && in.has(Instruction::kAtStart) == at_start) ends.push_back(id);
    }
  }
  return ends;
}

LaneTable lane_table(const Program& program) {
  LaneTable table;
  table.lane_of.resize(program.code.size());
  const bool by_transfer =
      program.policy.issue == Issue::Stream && program.policy.channel == Channel::Tag;
  const Channel channel = queue_channel(program.policy);
  const bool has_group_queues = program.has_group_queues();
  // Lane of (peer, direction) for the rank at hand; peers of a rank are few, so a list beats a map.
  std::vector<std::pair<std::int64_t, std::uint32_t>> known;
  for (int r = 0; r < program.ranks(); ++r) {
    table.rank_lane_begin.push_back(static_cast<std::uint32_t>(table.rank_of_lane.size()));
    table.rank_of_lane.emplace_back(r);  // the compute lane
    known.clear();
    Lines lines(program.policy.device_queues);
    for (InstructionId id = program.rank_begin[static_cast<std::size_t>(r)];
         id < program.rank_begin[static_cast<std::size_t>(r) + 1]; ++id) {
      const Instruction& in = program.code[id];
      if (in.has(Instruction::kOnComputeLane)) {
        table.lane_of[id] = table.rank_lane_begin.back();
        continue;
      }
      const std::string line = line_of(program, in);
      const bool in_line = !line.empty();
      const bool in_group = !in_line && has_group_queues && program.batch_of(id) != kNoBatch;
      const bool alone = by_transfer && is_transfer(in.kind) && !in_group && !in_line;
      std::int64_t key = in_line ? lines.key_of(line) : lane_key(program, in, channel);
      if (in_group) key = kGroupLane - (channel == Channel::Direction ? key : 0);
      const auto found = alone ? known.end()
                               : std::find_if(known.begin(), known.end(),
                                              [&](const auto& k) { return k.first == key; });
      if (found != known.end()) {
        table.lane_of[id] = found->second;
        continue;
      }
      table.lane_of[id] = static_cast<std::uint32_t>(table.rank_of_lane.size());
      table.rank_of_lane.emplace_back(r);
      if (!alone) known.emplace_back(key, table.lane_of[id]);
    }
  }
  table.rank_lane_begin.push_back(static_cast<std::uint32_t>(table.rank_of_lane.size()));

  // First in, first served: receives issued at time 0 come before everything that is issued later.
  std::vector<std::uint32_t> at_start(table.rank_of_lane.size(), 0);
  table.lane_begin.assign(table.rank_of_lane.size() + 1, 0);
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    ++table.lane_begin[table.lane_of[id] + 1];
    if (program.code[id].has(Instruction::kAtStart)) ++at_start[table.lane_of[id]];
  }
  for (std::size_t l = 1; l < table.lane_begin.size(); ++l)
    table.lane_begin[l] += table.lane_begin[l - 1];
  std::vector<std::uint32_t> later(table.lane_begin.begin(), table.lane_begin.end() - 1);
  for (std::size_t l = 0; l < later.size(); ++l) {
    later[l] += at_start[l];
    at_start[l] = table.lane_begin[l];
  }
  table.instructions.resize(program.code.size());
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    auto& next = program.code[id].has(Instruction::kAtStart) ? at_start : later;
    table.instructions[next[table.lane_of[id]]++] = id;
  }
  return table;
}

std::string lane_name(const Program& program, const LaneTable& table, std::uint32_t lane) {
  const InstructionId first = table.lane_begin[lane] < table.lane_begin[lane + 1]
                                  ? table.instructions[table.lane_begin[lane]]
                                  : kNoInstruction;
  if (table.number_of(lane) == 0) return "compute";
  const std::string line = line_of(program, program.code[first]);
  if (!line.empty()) return program.policy.device_queues == 1 ? "calls" : line;
  if (program.code[first].in_collective()) return "collectives";
  if (program.policy.issue == Issue::Stream && program.policy.channel == Channel::Rank)
    return "comm";
  const Instruction& in = program.code[first];
  const Route& route = program.routes[in.route];
  const std::string what = std::array<std::string, 3>{
      "activations", "gradients", "others"}[static_cast<std::size_t>(direction_of(route))];
  const bool by_direction =
      program.policy.issue == Issue::Stream && program.policy.channel == Channel::Direction;
  if (program.has_group_queues() && program.batch_of(first) != kNoBatch)
    return "mixed batches" + (by_direction ? " of " + what : "");
  if (by_direction) return what;
  if (program.policy.issue == Issue::Stream && program.policy.channel == Channel::Tag)
    return program.text(first);
  const std::string peer =
      std::to_string((is_send(in.kind) ? route.destination : route.source).value);
  if (program.policy.issue == Issue::Stream && program.policy.channel == Channel::Pair)
    return "peer " + peer;
  return (is_send(in.kind) ? "to " : "from ") + peer;
}

bool is_forward_only(const Program& program) {
  const auto has_backward = [](const auto& pair) { return belongs_to_backward(pair.second.kind); };
  return std::none_of(program.code.begin(), program.code.end(),
                      [](const Instruction& in) { return belongs_to_backward(in.kind); }) &&
         std::none_of(program.pairs.begin(), program.pairs.end(), has_backward);
}

}  // namespace pipewright
