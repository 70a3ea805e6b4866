#include "tools/output/fix_text.hpp"

#include <algorithm>
#include <cstdio>

#include "core/order/comm_policy_json.hpp"
#include "core/order/order_json.hpp"
#include "core/program/lower.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "tools/cli/figures.hpp"
#include "tools/cli/table.hpp"

namespace pipewright::tools {
namespace {

using planner::Fix;
using planner::FixReport;
using planner::Touches;

constexpr std::size_t kMostChangedLines = 8;  // of the difference, in text

std::string cost_text(const Fix& fix) {
  const std::string step = "step " + format_duration(Nanoseconds(fix.step_ns_after));
  if (!fix.step_ns_before) return step + " (there is no batched step to compare it with)";
  return step + ", " + signed_percent_text(fix.cost_percent() / 100) + " against " +
         format_duration(Nanoseconds(*fix.step_ns_before)) +
         " of the same computations exchanged in batches";
}

/// The flags of check and simulate that ask for the policy.
std::string policy_flags(const CommPolicy& policy) {
  const std::string queues =
      policy.device_queues == 0 ? "" : " --device-queues " + std::to_string(policy.device_queues);
  if (name_of(policy) != "custom") return "--preset " + std::string(name_of(policy)) + queues;
  std::string flags = "--issue " + std::string(to_string(policy.issue));
  if (policy.issue == Issue::Stream)
    flags += " --channel " + std::string(to_string(policy.channel));
  flags += " --post " + std::string(to_string(policy.post));
  if (policy.run_order != RunOrder::AsLowered)
    flags += " --run-order " + std::string(to_string(policy.run_order));
  flags += " --protocol " + to_string(policy.send_f) + "," + to_string(policy.send_b);
  if (policy.connect != Connect::Ready)
    flags += " --connect " + std::string(to_string(policy.connect));
  if (policy.buffers != Buffers::Plain)
    flags += " --buffers " + std::string(to_string(policy.buffers));
  if (policy.batches != Batches::Apart)
    flags += " --batches " + std::string(to_string(policy.batches));
  if (policy.in_flight != 0) flags += " --in-flight " + std::to_string(policy.in_flight);
  return flags + queues;
}

Plan fixed_plan(const Plan& plan, const Fix& fix) {
  Plan fixed = plan;
  fixed.policy = fix.policy;
  if (fix.change.touches != Touches::Policy) {
    fixed.schedule.name = "custom";
    fixed.schedule.parameters.clear();
    fixed.schedule.order = fix.order;
  }
  fixed.tuner.reasons.push_back("Changed to end a hang: " + fix.change.sentence + ".");
  planner::fill_prediction(fixed);
  return fixed;
}

}  // namespace

std::vector<Flag> fix_flags() {
  return {{.group = "Output",
           .name = "--fix",
           .help = "find the least change that fixes it, prove it, and say what it costs"},
          {.group = "Output",
           .name = "--out",
           .argument = "FILE",
           .help = "with --fix: write the fixed plan, or the fixed order as CSV",
           .short_name = 'o',
           .is_file = true,
           .writes = Writes::File}};
}

FixReport fix_of(const Subject& subject) {
  return planner::find_fixes(subject.order, subject.program.policy, subject.costs,
                             subject.lowering);
}

Program fixed_program(const LowerOptions& lowering, const Fix& fix) {
  return lower(fix.order, fix.policy, lowering);
}

Json fix_fields(const FixReport& report) {
  if (report.fixes.empty()) return nullptr;
  const Fix& fix = report.fixes.front();
  Json before = nullptr;
  if (fix.step_ns_before) before = *fix.step_ns_before;
  return {{"name", fix.name},
          {"sentence", fix.change.sentence},
          {"changes", std::string(to_string(fix.change.touches))},
          {"policy", to_json(fix.policy)},
          {"difference", fix.difference},
          {"step_ns_before", before},
          {"step_ns_after", fix.step_ns_after},
          {"order", rows_json(fix.order)}};
}

std::string fix_text(const FixReport& report, const Terminal& terminal) {
  if (report.fixes.empty()) {
    return painted(terminal, Ink::Red, "no fix") + "\n" +
           wrapped(report.sentence, terminal.width, 2);
  }
  const Fix& fix = report.fixes.front();
  std::string text = painted(terminal, Ink::Green, "fix: " + fix.name) + "\n" +
                     wrapped(fix.change.sentence, terminal.width, 2);
  for (std::size_t k = 0; k < std::min(fix.difference.size(), kMostChangedLines); ++k)
    text += wrapped(fix.difference[k], terminal.width, 4);
  if (fix.difference.size() > kMostChangedLines) {
    text +=
        "    and " + std::to_string(fix.difference.size() - kMostChangedLines) + " more lines\n";
  }
  text += wrapped("proved: it ends under " + policy_text(fix.policy), terminal.width, 2);
  const bool timed = fix.step_ns_before || fix.step_ns_after > 0;
  if (timed) text += wrapped(cost_text(fix), terminal.width, 2);
  if (report.fixes.size() == 1) return text;
  text += "other fixes:\n";
  for (std::size_t k = 1; k < report.fixes.size(); ++k) {
    const Fix& other = report.fixes[k];
    text += wrapped(other.name + ": " + cost_text(other), terminal.width, 2);
  }
  return text;
}

void save_fixed(const Subject& subject, const Fix& fix, const std::string& path, Session& session) {
  if (const Plan* plan = subject.plan()) {
    session.save(path, to_text(to_json(fixed_plan(*plan, fix))));
    session.wrote(path, ", a plan that ends");
    return;
  }
  Order fixed = fix.order;
  fixed.fragment = subject.order.fragment;
  session.save(path, write_order_csv(fixed));
  session.wrote(path, "; it ends under " + policy_flags(fix.policy));
}

}  // namespace pipewright::tools
