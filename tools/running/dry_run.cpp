#include "tools/running/dry_run.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "exec/devices/cuda/issue_order.hpp"
#include "exec/devices/cuda/slow_link.hpp"
#include "exec/transports/nccl/calls.hpp"
#include "exec/transports/nccl/policy_support.hpp"
#include "exec/transports/nccl/read_back.hpp"
#include "sim/engine.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/table.hpp"
#include "tools/output/verdict.hpp"

namespace pipewright::tools {
namespace {

using exec::nccl::Call;
using exec::nccl::CallKind;
using exec::nccl::Communicator;
using exec::nccl::RankCalls;
using exec::nccl::StepCalls;

bool is_group_mark(const Call& call) {
  return call.kind == CallKind::GroupStart || call.kind == CallKind::GroupEnd;
}
/// Whether NCCL has a part in it.
bool is_on_communicator(const Call& call) {
  return call.communicator != exec::nccl::kNoCommunicator;
}

Json ranks_of(const Communicator& communicator) {
  Json ranks = Json::array();
  for (const RankId rank : communicator.members) ranks.push_back(rank.value);
  return ranks;
}

// --- JSON ---

Json communicator_fields(const StepCalls& step) {
  Json list = Json::array();
  for (const Communicator& one : step.plan.communicators)
    list.push_back({{"name", exec::nccl::name_of(one)},
                    {"ranks", ranks_of(one)},
                    {"most_ctas", one.most_ctas}});
  return list;
}

Json warm_up_fields(const StepCalls& step) {
  Json list = Json::array();
  for (const auto& one : step.plan.warm_ups)
    list.push_back({{"communicator", one.communicator}, {"edges", one.edges}});
  return list;
}

Json call_fields(const Call& call) {
  Json fields = {{"call", std::string(to_string(call.kind))}};
  if (is_group_mark(call)) return fields;
  fields["action"] = text_of(call);
  fields["stream"] = call.stream;
  fields["waits_for"] = call.waits_for;
  if (!is_on_communicator(call)) return fields;
  fields["communicator"] = call.communicator;
  if (call.peer >= 0) fields["peer"] = call.peer;
  fields["count"] = call.count;
  fields["element_bytes"] = call.element_bytes;
  return fields;
}

Json rank_fields(const StepCalls& step) {
  Json list = Json::array();
  for (std::size_t r = 0; r < step.ranks.size(); ++r) {
    const RankId rank(static_cast<std::int64_t>(r));
    const auto share = exec::nccl::share_of(step.plan, rank);
    Json calls = Json::array();
    for (const Call& call : step.ranks[r].calls) calls.push_back(call_fields(call));
    list.push_back({{"rank", rank.value},
                    {"communicators", step.plan.joined_by(rank)},
                    {"ctas", share.ctas},
                    {"buffer_bytes", share.buffers.value},
                    {"streams", step.ranks[r].streams},
                    {"calls", std::move(calls)}});
  }
  return list;
}

Json policy_fields(const CommPolicy& policy) {
  Json list = Json::array();
  for (const auto& term : exec::nccl::policy_fields(policy))
    list.push_back({{"field", std::string(term.field)}, {"value", term.value}, {"how", term.how}});
  return list;
}

// --- Text ---

std::string terms_text(const CommPolicy& policy, int width) {
  std::string text = "how NCCL gives the policy:\n";
  for (const auto& term : exec::nccl::policy_fields(policy))
    text += wrapped(std::string(term.field) + " = " + term.value + ": " + term.how, width, 2);
  return text;
}

std::string communicators_text(const StepCalls& step, int width) {
  std::string text = "communicators, in the order in which they are made and connected:\n";
  for (std::size_t c = 0; c < step.plan.communicators.size(); ++c) {
    const Communicator& one = step.plan.communicators[c];
    std::string line = std::to_string(c) + " " + exec::nccl::name_of(one) + ", at most " +
                       std::to_string(one.most_ctas) + " CTAs, connected by ";
    std::string how;
    for (const auto& warm_up : step.plan.warm_ups) {
      if (warm_up.communicator != c) continue;
      if (!how.empty()) how += " and ";
      how += warm_up.edges.empty() ? "a sum of one element"
                                   : "a group over " + std::to_string(warm_up.edges.size()) +
                                         (warm_up.edges.size() == 1 ? " edge" : " edges");
    }
    text += wrapped(line + (how.empty() ? "its first call" : how), width, 2);
  }
  return text;
}

std::string element_name(const Call& call) {
  if (call.part && !call.part->call.dtype.empty()) return call.part->call.dtype;
  return call.element_bytes == 8 ? "float64" : "float32";
}

std::string call_text(const StepCalls& step, const RankCalls& rank, const Call& call) {
  std::string text(to_string(call.kind));
  if (is_group_mark(call)) return text;
  text += " " + text_of(call);
  if (is_on_communicator(call)) {
    const Communicator& communicator = step.plan.communicators[call.communicator];
    if (call.peer >= 0) text += ", peer " + std::to_string(call.peer);
    text += ", " + (call.count > 0 ? std::to_string(call.count) + " " + element_name(call)
                                   : std::string("size not known"));
    text += ", " + exec::nccl::name_of(communicator);
  }
  if (rank.streams.size() > 1) text += ", stream \"" + rank.streams[call.stream] + "\"";
  for (const std::uint32_t wait : call.waits_for)
    text += (wait == call.waits_for.front() ? ", after " : " and ") + text_of(rank.calls[wait]);
  return text;
}

std::string rank_text(const StepCalls& step, std::size_t r, int width) {
  const auto share = exec::nccl::share_of(step.plan, RankId(static_cast<std::int64_t>(r)));
  std::string text = "rank " + std::to_string(r) + ": " + std::to_string(share.communicators) +
                     " communicators, " + std::to_string(share.ctas) + " CTAs, " +
                     format_bytes(share.buffers) + " of NCCL's buffers\n";
  for (const Call& call : step.ranks[r].calls)
    text += wrapped(call_text(step, step.ranks[r], call), width, 2);
  return text;
}

std::vector<std::string> sentences_of(const StepCalls& step, const exec::nccl::ReadBack& read) {
  std::vector<std::string> sentences;
  for (const RankCalls& rank : step.ranks)
    sentences.insert(sentences.end(), rank.problems.begin(), rank.problems.end());
  sentences.insert(sentences.end(), read.problems.begin(), read.problems.end());
  return sentences;
}

}  // namespace

int show_nccl_calls(const Subject& subject, exec::Numerics numerics, Session& session) {
  exec::nccl::ByHosts hosts{numerics == exec::Numerics::Exact};
  if (const Plan* plan = subject.plan())
    hosts = exec::nccl::by_hosts(subject.program, plan->model, plan->stages, numerics);
  const StepCalls step = exec::nccl::calls_of(subject.program, subject.costs, hosts);
  const auto read = exec::nccl::read_back(step, subject.program.fragment);
  const WaitReport report = sim::check(read.program, subject.costs);
  const std::vector<std::string> sentences = sentences_of(step, read);
  const bool good = report.verdict == Verdict::Ok && sentences.empty();
  if (session.json()) {
    Json fields = {{"policy", policy_fields(subject.program.policy)},
                   {"communicators", communicator_fields(step)},
                   {"warm_ups", warm_up_fields(step)},
                   {"ranks", rank_fields(step)}};
    fields.update(verdict_fields(read.program, report, sentences));
    session.print_result(fields);
    return good ? kDone : kAnswerIsNo;
  }
  const Terminal& terminal = session.terminal();
  session.print(wrapped(subject.title, terminal.width, 0));
  session.print(wrapped("policy " + policy_text(subject.program.policy), terminal.width, 0));
  session.print(terms_text(subject.program.policy, terminal.width));
  session.print(communicators_text(step, terminal.width));
  for (std::size_t r = 0; r < step.ranks.size(); ++r)
    session.print(rank_text(step, r, terminal.width));
  session.print("the calls, read back: ");
  session.print(verdict_text(read.program, report, sentences, terminal));
  return good ? kDone : kAnswerIsNo;
}

int show_issue_order(const Arguments& arguments, const Subject& subject, Session& session) {
  const Program& program = subject.program;
  const auto issued = exec::cuda::issue_order_of(program, subject.costs);
  std::vector<std::int64_t> least_ns;
  if (const auto link = arguments.text("--slow-link"))
    least_ns = transfer_ns(program, subject.costs, exec::cuda::parse_slow_link(*link));
  Json order = Json::array();
  std::string text;
  for (std::size_t place = 0; place < issued.order.size(); ++place) {
    const InstructionId id = issued.order[place];
    const int rank = program.rank_of(id).value;
    Json waits = Json::array();
    std::string line = "rank " + std::to_string(rank) + "  " + program.text(id);
    for (const InstructionId wait : issued.waits_of(place)) {
      line += (waits.empty() ? ", after " : " and ") + program.text(wait);
      waits.push_back({{"rank", program.rank_of(wait).value}, {"action", program.text(wait)}});
    }
    Json fields = {{"rank", rank}, {"action", program.text(id)}, {"waits_for", std::move(waits)}};
    if (is_send(program.code[id].kind) && !least_ns.empty()) {
      const std::int64_t least = least_ns[program.code[id].route];
      fields["held_ns"] = least;
      line += ", held for " + format_duration(Nanoseconds(least));
    }
    order.push_back(std::move(fields));
    text += wrapped(line, session.terminal().width, 2);
  }
  const int status = issued.is_whole() ? kDone : kAnswerIsNo;
  if (session.json()) {
    Json fields = {{"issue_order", std::move(order)}};
    fields.update(verdict_fields(program, issued.stuck, {}));
    session.print_result(fields);
    return status;
  }
  session.print(wrapped(subject.title, session.terminal().width, 0));
  session.print(
      wrapped("policy " + policy_text(subject.program.policy), session.terminal().width, 0));
  session.print("one host thread would enqueue:\n" + text);
  session.print(verdict_text(program, issued.stuck, {}, session.terminal()));
  return status;
}

}  // namespace pipewright::tools
