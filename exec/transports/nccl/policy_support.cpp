#include "exec/transports/nccl/policy_support.hpp"

#include <algorithm>

namespace pipewright::exec::nccl {
namespace {

bool is_eager(const Protocol& protocol) { return protocol.kind != Protocol::Kind::Rendezvous; }

std::string how_of(Issue issue) {
  switch (issue) {
    case Issue::Inline:
      return "calls go to the stream that computes";
    case Issue::Stream:
      return "calls go to streams of their own, which wait for the compute stream's event";
    case Issue::Grouped:
      return "each run is one ncclGroupStart/End on the stream that computes";
  }
  return {};
}

std::string how_of(const CommPolicy& policy) {
  if (policy.issue == Issue::Grouped)
    return "has no meaning; one communicator of all ranks, because a group is one launch only "
           "within one";
  if (policy.issue == Issue::Inline)
    return "has no meaning; a communicator of two ranks for each directed edge";
  switch (policy.channel) {
    case Channel::Rank:
      return "one communicator of all ranks";
    case Channel::Pair:
      return "a communicator for each pair of ranks";
    default:
      return "a communicator of two ranks for each directed edge (splitShare 0, few CTAs)";
  }
}

std::string how_of(Post post) {
  switch (post) {
    case Post::Early:
      return "receives are called where the list has them";
    case Post::Deferred:
      return "receives are called just before their consumer";
    case Post::AtStart:
      return "receives are called first; their buffers are there for the whole step";
  }
  return {};
}

/// The first SEND that stands before what it sends; kNoInstruction: none.
InstructionId ahead_of_its_data(const Program& program) {
  for (const auto& [id, input] : program.extra_inputs) {
    if (is_send(program.code[id].kind) && input > id) return id;
  }
  return kNoInstruction;
}

void refuse_eager(const Program& program, std::vector<std::string>& refusals) {
  for (const ActionKind kind : {ActionKind::SendF, ActionKind::SendB}) {
    const Protocol& protocol =
        kind == ActionKind::SendF ? program.policy.send_f : program.policy.send_b;
    if (!is_eager(protocol)) continue;
    const bool asked = std::any_of(program.code.begin(), program.code.end(), [&](const auto& in) {
      return in.kind == kind && !in.has(Instruction::kRendezvous);
    });
    if (!asked) continue;
    refusals.push_back("NCCL promises no send that ends before its receive, so " +
                       std::string(to_string(kind)) + " = " + to_string(protocol) +
                       " cannot be had; a Program that ends with --protocol rendezvous also ends "
                       "where NCCL copies ahead");
  }
}

/// The first transfer end with no rank at its other end, or with its own.
void refuse_odd_ends(const Program& program, std::vector<std::string>& refusals) {
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    if (!is_transfer(program.code[id].kind)) continue;
    const Route& route = program.routes[program.code[id].route];
    const bool open = route.source.value < 0 || route.destination.value < 0;
    if (!open && route.source != route.destination) continue;
    refusals.push_back(
        program.text(id) + " of rank " + std::to_string(program.rank_of(id).value) +
        (open ? " has no rank at its other end, so there is nobody to call NCCL with"
              : " goes to its own rank, which NCCL allows inside a group only; a tensor that stays "
                "on its rank needs no transfer"));
    return;
  }
}

/// Why what the order says there is not called; "" if it is.
std::string fault_of_call(const Program& program, const Instruction& in) {
  if (in.kind == ActionKind::NewGroup)
    return " makes a group inside a step; here communicators are made before the first one, so "
           "leave it out";
  if (in.kind == ActionKind::HostSync)
    return " waits for the device inside a step, which is no call of NCCL; leave it out, and check "
           "the order with it";
  if (is_transfer(in.kind) && is_call(in.kind) && !line_of(program.call(in)).empty())
    return " names a stream, and transfers have those that the policy gives them; leave it out";
  return "";
}

/// The first of them; and ranks that are several.
void refuse_odd_calls(const Program& program, std::vector<std::string>& refusals) {
  for (InstructionId id = 0; id < program.code.size(); ++id) {
    const std::string fault = fault_of_call(program, program.code[id]);
    if (fault.empty()) continue;
    refusals.push_back(program.text(id) + " of rank " + std::to_string(program.rank_of(id).value) +
                       fault);
    break;
  }
  if (devices_of_rank(program.mesh) > 1)
    refusals.push_back("its ranks stand for " + std::to_string(devices_of_rank(program.mesh)) +
                       " devices each, and every device calls NCCL; give a plan, or the order of "
                       "the devices");
}

}  // namespace

std::vector<PolicyField> policy_fields(const CommPolicy& policy) {
  const bool registered = policy.buffers == Buffers::Registered;
  std::string in_flight = "no limit";
  if (policy.in_flight > 0)
    in_flight = policy.issue == Issue::Stream
                    ? "the compute stream waits for the event of the end whose place is taken"
                    : "has no meaning";
  std::vector<PolicyField> terms = {
      {"issue", std::string(to_string(policy.issue)), how_of(policy.issue)},
      {"channel", std::string(to_string(policy.channel)), how_of(policy)},
      {"post", std::string(to_string(policy.post)), how_of(policy.post)},
      {"run_order", std::string(to_string(policy.run_order)), "calls follow the list"}};
  for (const auto& [field, protocol] :
       {std::pair("send_f", &policy.send_f), std::pair("send_b", &policy.send_b)}) {
    terms.push_back({field, to_string(*protocol),
                     registered ? "every send meets its receive, as registered buffers ask"
                                : "every send meets its receive; NCCL may copy ahead and nothing "
                                  "relies on it"});
  }
  terms.push_back({"connect", std::string(to_string(policy.connect)),
                   policy.connect == Connect::Ready
                       ? "groups of one element over every edge connect it before the first step"
                       : "the first call over an edge connects it and holds up both hosts"});
  terms.push_back({"buffers", std::string(to_string(policy.buffers)),
                   registered ? "no send relies on a copy, so none has to be registered"
                              : "none is registered with NCCL, and NCCL_GRAPH_REGISTER is 0"});
  terms.push_back({"in_flight", std::to_string(policy.in_flight), std::move(in_flight)});
  return terms;
}

std::vector<std::string> refusals_of(const Program& program) {
  std::vector<std::string> refusals;
  const CommPolicy& policy = program.policy;
  if (policy.issue == Issue::Stream && policy.channel == Channel::Tag)
    refusals.emplace_back(
        "NCCL matches the sends and receives of two ranks by their order and knows no tags; take "
        "--channel edge, or --preset torch-gloo");
  if (policy.issue == Issue::Stream && policy.channel == Channel::Direction)
    refusals.emplace_back(
        "channel = direction: two communicators of all ranks are not made here; take --channel "
        "edge, or rank");
  if (!program.joined.empty())
    refusals.push_back("batches = " + std::string(to_string(policy.batches)) +
                       ": a batch that is one operation is not called as one here; take --batches "
                       "apart");
  refuse_eager(program, refusals);
  refuse_odd_ends(program, refusals);
  refuse_odd_calls(program, refusals);
  const InstructionId ahead = ahead_of_its_data(program);
  if (policy.in_flight > 0 && policy.issue == Issue::Stream && ahead != kNoInstruction)
    refusals.push_back(program.text(ahead) +
                       " stands before what it sends. A stream can only wait for work that is "
                       "already enqueued, so NCCL would be called later than the order says, and "
                       "with in_flight the order of the calls decides which transfer may start. "
                       "Move it after the computation that makes its data, or take in_flight = 0");
  return refusals;
}

}  // namespace pipewright::exec::nccl
