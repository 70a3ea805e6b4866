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

using planner::Cure;
using planner::CureReport;
using planner::Touches;

constexpr std::size_t kMostChangedLines = 8;  // of the difference, in text

LowerOptions options_of(const Subject& subject) {
  const auto& stages = subject.costs.stages;
  const bool update = std::any_of(stages.begin(), stages.end(),
                                  [](const StageCosts& each) { return each.opt.value > 0; });
  if (subject.plan) return planner::lowering_of_plan(*subject.plan);
  return {.fragment = subject.program.fragment, .optimizer = update};
}

std::string cost_text(const Cure& cure) {
  const std::string step = "step " + format_duration(Nanoseconds(cure.step_ns_after));
  if (!cure.step_ns_before) return step + " (there is no batched step to compare it with)";
  return step + ", " + signed_percent_text(cure.cost_percent() / 100) + " against " +
         format_duration(Nanoseconds(*cure.step_ns_before)) +
         " of the same computations exchanged in batches";
}

/// The flags of check and simulate that ask for the policy.
std::string policy_flags(const CommPolicy& policy) {
  if (name_of(policy) != "custom") return "--preset " + std::string(name_of(policy));
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
  return flags;
}

Plan cured_plan(const Plan& plan, const Cure& cure) {
  Plan cured = plan;
  cured.policy = cure.policy;
  if (cure.change.touches != Touches::Policy) {
    cured.schedule.name = "custom";
    cured.schedule.parameters.clear();
    cured.schedule.order = cure.order;
  }
  cured.tuner.reasons.push_back("Cured of a hang: " + cure.change.sentence + ".");
  planner::fill_prediction(cured);
  return cured;
}

}  // namespace

std::vector<Flag> cure_flags() {
  return {{.group = "Output",
           .name = "--fix",
           .help = "find the least change that cures it, prove it, and say what it costs"},
          {.group = "Output",
           .name = "--out",
           .argument = "FILE",
           .help = "with --fix: write the cured plan, or the cured order as CSV",
           .short_name = 'o',
           .is_file = true,
           .writes = Writes::File}};
}

CureReport cure_of(const Subject& subject) {
  return planner::cure(subject.order, subject.program.policy, subject.costs, options_of(subject));
}

Program cured_program(const Subject& subject, const Cure& cure) {
  return lower(cure.order, cure.policy, options_of(subject));
}

Json fix_fields(const CureReport& report) {
  if (report.cures.empty()) return nullptr;
  const Cure& cure = report.cures.front();
  Json before = nullptr;
  if (cure.step_ns_before) before = *cure.step_ns_before;
  return {{"name", cure.name},
          {"sentence", cure.change.sentence},
          {"changes", std::string(to_string(cure.change.touches))},
          {"policy", to_json(cure.policy)},
          {"difference", cure.difference},
          {"step_ns_before", before},
          {"step_ns_after", cure.step_ns_after},
          {"order", rows_json(cure.order)}};
}

std::string cure_text(const CureReport& report, const Terminal& terminal) {
  if (report.cures.empty()) {
    return painted(terminal, Ink::Red, "no cure") + "\n" +
           wrapped(report.sentence, terminal.width, 2);
  }
  const Cure& cure = report.cures.front();
  std::string text = painted(terminal, Ink::Green, "cure: " + cure.name) + "\n" +
                     wrapped(cure.change.sentence, terminal.width, 2);
  for (std::size_t k = 0; k < std::min(cure.difference.size(), kMostChangedLines); ++k)
    text += wrapped(cure.difference[k], terminal.width, 4);
  if (cure.difference.size() > kMostChangedLines) {
    text +=
        "    and " + std::to_string(cure.difference.size() - kMostChangedLines) + " more lines\n";
  }
  text += wrapped("proved: it ends under " + policy_text(cure.policy), terminal.width, 2);
  text += wrapped(cost_text(cure), terminal.width, 2);
  if (report.cures.size() == 1) return text;
  text += "other cures:\n";
  for (std::size_t k = 1; k < report.cures.size(); ++k) {
    const Cure& other = report.cures[k];
    text += wrapped(other.name + ": " + cost_text(other), terminal.width, 2);
  }
  return text;
}

void save_cured(const Subject& subject, const Cure& cure, const std::string& path,
                Session& session) {
  if (subject.plan) {
    session.save(path, to_text(to_json(cured_plan(*subject.plan, cure))));
    session.wrote(path, ", a plan that ends");
    return;
  }
  Order cured = cure.order;
  cured.fragment = subject.order.fragment;
  session.save(path, write_order_csv(cured));
  session.wrote(path, "; it ends under " + policy_flags(cure.policy));
}

}  // namespace pipewright::tools
