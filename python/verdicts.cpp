// check(): will it hang, and why.
#include "python/verdicts.hpp"
#include "core/order/comm_policy_text.hpp"
#include "core/order/problems.hpp"
#include "core/program/verdict.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "python/bindings.hpp"
#include "sim/judgement.hpp"

namespace pipewright::python {
namespace {

VerdictObject judged(const Program& program, const CostTable& costs,
                     const std::vector<std::string>& problems) {
  VerdictObject verdict =
      verdict_on(program, sim::judge(problems, program, costs, heed_signals), problems);
  verdict.verdicts = {{std::string(name_of(program.policy)), verdict.word()}};
  return verdict;
}

VerdictObject check_order(const GivenOrder& given, std::optional<PolicyWord> policy,
                          const std::optional<std::string>& message_bytes) {
  if (!policy && !given.preset.empty()) policy = given.preset;
  const nb::gil_scoped_release release;
  const CostTable costs = costs_of({{}, {}, message_bytes}, given.order.stages()).table;
  const LowerOptions options{.fragment = given.fragment};
  if (policy) return judged(lower(given.order, policy_of(*policy), options), costs, given.problems);
  const sim::Judgements all =
      sim::judge_as_torch(given.order, options, given.problems, costs, heed_signals);
  VerdictObject verdict = verdict_on(all.program, all.worst().report, given.problems);
  verdict.policy = policy_text(all.program.policy, all.worst().policy);
  for (const sim::Judgement& each : all.all)
    verdict.verdicts[each.policy] = to_string(each.report.verdict);
  return verdict;
}

VerdictObject check_plan(const GivenPlan& given, const std::optional<PolicyWord>& policy,
                         const std::optional<std::string>& message_bytes) {
  const nb::gil_scoped_release release;
  const Plan& plan = given.plan;
  const CostTable costs = changed_costs(plan.costs, {{}, {}, message_bytes}).table;
  return judged(lower(planner::order_of_plan(plan), policy ? policy_of(*policy) : plan.policy,
                      planner::lowering_of_plan(plan)),
                costs, {});
}

}  // namespace

VerdictObject verdict_on(const Program& program, const WaitReport& report,
                         const std::vector<std::string>& problems) {
  VerdictObject verdict;
  verdict.fields = verdict_fields(program, report, problems);
  verdict.policy = policy_text(program.policy);
  verdict.explanation = verdict_title(report) + "\n";
  for (const std::string& line : verdict_reasons(program, report, problems))
    verdict.explanation += "  " + line + "\n";
  const std::string heads = stuck_heads_text(program, report);
  if (!heads.empty()) verdict.explanation += "  " + heads + "\n";
  return verdict;
}

void bind_verdicts(nb::module_& module) {
  nb::class_<VerdictObject>(module, "Verdict", "Whether an order ends, and if not, why.")
      .def_prop_ro("verdict", &VerdictObject::word,
                   "\"ok\", \"deadlock\", \"mismatch\" (messages are mixed up) or \"invalid\".")
      .def_prop_ro("ok", &VerdictObject::ok, "Whether it ends.")
      .def("__bool__", &VerdictObject::ok)
      .def_prop_ro(
          "cycle",
          [](const VerdictObject& self) {
            return nb::cast<nb::list>(to_python(self.fields["cycle"]));
          },
          "Who waits for whom, a dict a step: rank, instruction, waits_for, behind.")
      .def_prop_ro(
          "stuck",
          [](const VerdictObject& self) {
            return nb::cast<nb::list>(to_python(self.fields["stuck"]));
          },
          "What stands at the head of each lane that does not go on: rank, lane, instruction.")
      .def_prop_ro(
          "problems",
          [](const VerdictObject& self) {
            return self.fields["problems"].get<std::vector<std::string>>();
          },
          "What is wrong besides the cycle, in sentences.")
      .def_ro("policy", &VerdictObject::policy, "The policy under which it was judged, in words.")
      .def_ro("verdicts", &VerdictObject::verdicts,
              "The verdict by policy; of an order that names none under each way in which stock "
              "PyTorch may run it.")
      .def_ro("explanation", &VerdictObject::explanation, "As the command prints it.")
      .def("__str__", [](const VerdictObject& self) { return self.explanation; })
      .def("__repr__", [](const VerdictObject& self) { return "<Verdict " + self.word() + ">"; });
  module.def(
      "check", check_order, nb::arg("order"), nb::arg("policy") = nb::none(),
      nb::arg("message_bytes") = nb::none(),
      "Will it hang, and why? policy is a preset's name or a Policy. Without one an order is "
      "judged as stock PyTorch runs it over NCCL, by release, and the worst verdict counts; "
      "a schedule under the policy that it is about. message_bytes (\"4MiB\") is the size of "
      "each message, which eager protocols count.");
  module.def("check", check_plan, nb::arg("plan"), nb::arg("policy") = nb::none(),
             nb::arg("message_bytes") = nb::none(), "Of a plan, under its own policy.");
}

}  // namespace pipewright::python
