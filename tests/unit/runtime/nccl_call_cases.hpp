// Small Programs, their NCCL calls in words, and the verdict on what is read back from them.
#pragma once

#include <string>
#include <vector>

#include "core/program/lower.hpp"
#include "exec/transports/nccl/calls.hpp"
#include "exec/transports/nccl/read_back.hpp"
#include "sim/engine.hpp"

namespace pipewright::exec::nccl {
namespace nccl_calls_test {

inline Program program_of(const std::string& csv, const CommPolicy& policy = {},
                          bool fragment = false) {
  return lower(read_order_csv(csv, "order.csv"), policy, {.fragment = fragment});
}

inline CostTable sizes(int stages, std::int64_t message, std::int64_t parameters = 0) {
  CostTable costs = CostTable::uniform(stages, {});
  costs.activation_bytes.assign(static_cast<std::size_t>(stages) - 1, Bytes(message));
  costs.gradient_bytes = costs.activation_bytes;
  costs.parameter_bytes.assign(static_cast<std::size_t>(stages), Bytes(parameters));
  return costs;
}

inline constexpr const char* kTwoRanks = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";

/// "ncclSend 1SEND_F0 @to 1 <0F0": the stream, and the calls whose events it waits for.
inline std::vector<std::string> lines_of(const RankCalls& rank) {
  std::vector<std::string> lines;
  for (const Call& call : rank.calls) {
    std::string line(to_string(call.kind));
    if (call.kind != CallKind::GroupStart && call.kind != CallKind::GroupEnd)
      line += " " + to_string(call.cell) + " @" + rank.streams[call.stream];
    for (const std::uint32_t wait : call.waits_for) line += " <" + to_string(rank.calls[wait].cell);
    lines.push_back(line);
  }
  return lines;
}

inline std::vector<std::string> names_of(const CommunicatorPlan& plan) {
  std::vector<std::string> names;
  for (const Communicator& one : plan.communicators) names.push_back(name_of(one));
  return names;
}

inline Verdict verdict_of(const ReadBack& read) {
  return sim::check(read.program, CostTable::uniform(read.program.stages, {})).verdict;
}

}  // namespace nccl_calls_test
}  // namespace pipewright::exec::nccl
