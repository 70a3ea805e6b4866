#include "core/program/lower.hpp"

#include <array>

#include "core/base/error.hpp"
#include "core/base/large_pages.hpp"
#include "core/program/collectives.hpp"
#include "core/program/lowering.hpp"

namespace pipewright {
namespace {

/// What an action consists of, before it. The first part follows on a run of transfers in its
/// place.
void put_parts(const Instruction& in, const lowering::Draft& draft, lowering::PartLists& parts,
               bool& after_run, Program& program) {
  const Action action{
      .kind = in.kind, .stage = StageId(in.stage), .micro_batch = MicroBatchId(in.micro_batch)};
  const std::size_t first = program.code.size();
  parts.append(action, in.has(Instruction::kPair) ? &draft.partners[in.link] : nullptr, program);
  if (program.code.size() == first) return;
  for (std::size_t id = first; id < program.code.size(); ++id)
    program.code[id].flags |= Instruction::kOnComputeLane;
  if (after_run && program.policy.issue == Issue::Grouped)
    program.code[first].flags |= Instruction::kJoinsRun;
  after_run = false;
}

using FlagsByKind = std::array<std::uint8_t, static_cast<std::size_t>(kActionKinds)>;

FlagsByKind flags_of_kinds(const CommPolicy& policy, bool after_run) {
  FlagsByKind flags = {};
  for (std::size_t kind = 0; kind < flags.size(); ++kind)
    flags[kind] = lowering::flags_by_place(policy, static_cast<ActionKind>(kind), after_run);
  return flags;
}

/// One code array from the lists; flags that depend on position alone.
void concatenate(lowering::Draft& draft, const Order& order, Program& program) {
  lowering::PartLists parts(order, program);
  const bool has_parts = !order.parts.empty();
  std::size_t total = 0;
  for (const auto& row : draft.ranks) total += row.size();
  program.code.reserve(total);
  use_large_pages(program.code);
  const CommPolicy& policy = program.policy;
  const bool joins = policy.batches != Batches::Apart && policy.issue != Issue::Grouped &&
                     policy.post == Post::Early && policy.run_order == RunOrder::AsLowered;
  const FlagsByKind flags[] = {flags_of_kinds(policy, false), flags_of_kinds(policy, true)};
  program.rank_begin.push_back(0);
  for (std::size_t r = 0; r < draft.ranks.size(); ++r) {
    auto& row = draft.ranks[r];
    bool after_run = false;
    for (std::size_t k = 0; k < row.size(); ++k) {
      if (has_parts && is_compute(row[k].kind)) put_parts(row[k], draft, parts, after_run, program);
      const auto id = static_cast<InstructionId>(program.code.size());
      Instruction& in = program.code.emplace_back(row[k]);
      if (in.has(Instruction::kPair)) {
        program.pairs.emplace_back(id, draft.partners[in.link]);
        in.link = kNoInstruction;
      }
      const bool transfer = is_transfer(in.kind);
      if (transfer && in.link != kNoInstruction) {
        if (joins) program.joined.emplace_back(id, in.link);
        in.link = kNoInstruction;
      }
      in.flags |= flags[after_run ? 1 : 0][static_cast<std::size_t>(in.kind)];
      after_run = transfer;
      if (!draft.versions.empty()) {
        program.versions.resize(id, -1);
        program.versions.push_back(draft.versions[r][k]);
      }
      if (program.code.size() >= kNoInstruction)
        throw InputError("the schedule has more than 4,294,967,294 instructions");
    }
    program.rank_begin.push_back(static_cast<InstructionId>(program.code.size()));
  }
}

/// Throws InputError for what ranks that update at different times cannot do together.
void refuse_asynchronous(const Program& program, const LowerOptions& options) {
  if (!program.asynchronous) return;
  if (options.clips)
    throw InputError(
        "the ranks of an asynchronous schedule update at different times, so their "
        "gradients have no common norm to clip; set clip_grad_norm to 0");
  if (!options.tied.empty())
    throw InputError(
        "the ranks of an asynchronous schedule update at different times, so they cannot share "
        "the weights of a tied head; take a synchronous schedule, or an untied head");
  if (program.sharding.divides_gradients())
    throw InputError(
        "the replicas of an asynchronous schedule cannot divide gradients or weights among them "
        "(ZeRO stage " +
        std::to_string(program.sharding.zero) + "); take a synchronous schedule, or ZeRO stage 1");
}

}  // namespace

Program lower(const Order& order, const CommPolicy& policy, const LowerOptions& options) {
  if (order.stages() > 65535)
    throw InputError("a schedule may have at most 65,535 stages; this one has " +
                     std::to_string(order.stages()));
  Program program;
  program.policy = policy;
  program.placement = order.placement;
  program.stages = order.stages();
  program.micro_batches = order.micro_batches;
  program.calls = order.calls;
  program.mesh = order.mesh;
  program.devices = order.devices;
  program.sharding = options.sharding == Sharding{} ? order.sharding : options.sharding;
  program.fragment = options.fragment;
  const lowering::Updates updates{.wanted = options.optimizer,
                                  .sharded = options.sharded,
                                  .sharding = program.sharding,
                                  .clips = options.clips,
                                  .early = policy.issue == Issue::Stream,
                                  .tied = options.tied};
  if (lowering::lower_at_once(order, updates, program)) {
    program.transfers_added = true;
    lowering::connect_ranks(program);
    // Without these and without calls there is no collective.
    if (options.clips || !options.tied.empty() || !order.calls.empty())
      find_collectives(order, program);
    return program;
  }
  const lowering::OrderFacts facts = lowering::facts_of(order);
  program.transfers_added = !facts.transfers;
  program.asynchronous = facts.asynchronous;
  refuse_asynchronous(program, options);
  {
    lowering::Draft draft = lowering::list_instructions(order, facts, updates);
    lowering::arrange(draft, policy, static_cast<std::size_t>(devices_of_rank(order.devices)));
    concatenate(draft, order, program);
  }
  lowering::join_batches(program);
  lowering::match_transfers(program);
  lowering::connect_ranks(program);
  find_collectives(order, program);
  lowering::find_inputs(program);
  lowering::chain_parts(program);
  return program;
}

Order with_transfers(const Order& order) {
  const Program program = lower(order, CommPolicy{});
  Order listed{.ranks = {},
               .placement = order.placement,
               .micro_batches = order.micro_batches,
               .messages = order.messages,
               .calls = order.calls,
               .groups = order.groups,
               .parts = order.parts,
               .mesh = order.mesh,
               .sharding = order.sharding};
  for (int r = 0; r < program.ranks(); ++r) listed.ranks.push_back(cells_of(program, RankId(r)));
  return listed;
}

std::vector<Cell> cells_of(const Program& program, RankId rank) {
  const auto r = static_cast<std::size_t>(rank.value);
  std::vector<Cell> list;
  list.reserve(program.rank_begin[r + 1] - program.rank_begin[r]);
  for (InstructionId id = program.rank_begin[r]; id < program.rank_begin[r + 1]; ++id)
    if (program.action_of_part(id) == nullptr) list.push_back(program.cell(id));
  return list;
}

}  // namespace pipewright
