// simulate(): the predicted timeline, as arrays that NumPy reads where they lie.
#include <nanobind/ndarray.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/costs/action_times.hpp"
#include "core/timeline/timeline.hpp"
#include "planner/plans/program_of_plan.hpp"
#include "python/bindings.hpp"
#include "python/verdicts.hpp"
#include "python/what_ifs.hpp"
#include "sim/judgement.hpp"
#include "traces/analysis/trace_timeline.hpp"
#include "traces/pictures/svg.hpp"

namespace pipewright::python {
namespace {

/// A picture of more takes a browser long.
constexpr std::size_t kMostDrawnUnasked = 20'000;

struct SimulatedTimeline {
  Program program;
  CostTable costs;
  Timeline timeline;
  Figures figures;
  std::vector<std::int32_t> rank;  // by instruction
  std::string title;
  VerdictObject verdict;
};

template <class Value>
using Column = nb::ndarray<nb::numpy, const Value, nb::ndim<1>>;

/// A member of all instructions, read where it lies.
template <class Value>
Column<Value> member_column(const SimulatedTimeline& self, Value Instruction::*member) {
  static_assert(sizeof(Instruction) % sizeof(Value) == 0);
  const std::vector<Instruction>& code = self.program.code;
  const std::int64_t stride = sizeof(Instruction) / sizeof(Value);
  return Column<Value>(code.empty() ? nullptr : &(code.front().*member), {code.size()},
                       nb::handle(), {stride});
}

template <class Value>
Column<Value> column(const std::vector<Value>& values) {
  return Column<Value>(values.data(), {values.size()}, nb::handle());
}

std::vector<std::int32_t> ranks_of(const Program& program) {
  std::vector<std::int32_t> ranks(program.code.size());
  for (int r = 0; r < program.ranks(); ++r) {
    const auto at = static_cast<std::size_t>(r);
    std::fill(ranks.begin() + program.rank_begin[at], ranks.begin() + program.rank_begin[at + 1],
              r);
  }
  return ranks;
}

/// Of an order that is not run.
Timeline nothing_of(const Program& program) {
  const std::vector<std::int64_t> never(program.code.size(), kNotEnded);
  return {never, never, never, 0};
}

SimulatedTimeline simulated(Program program, CostTable costs,
                            const std::vector<std::string>& problems, std::string title) {
  SimulatedTimeline self;
  self.title = std::move(title);
  self.program = std::move(program);
  heed_signals();
  WaitReport report;
  if (problems.empty()) {
    sim::Result result = sim::simulate(self.program, costs, heed_signals);
    self.timeline = std::move(result.timeline);
    if (!result.finished)
      report = explain_stuck(self.program, result.progress, costs.message_bytes(self.program));
  } else {
    report.verdict = Verdict::Invalid;
    self.timeline = nothing_of(self.program);
  }
  heed_signals();
  self.figures = figures_of(self.program, self.timeline, costs);
  self.rank = ranks_of(self.program);
  self.verdict = verdict_on(self.program, report, problems);
  self.costs = std::move(costs);
  return self;
}

SimulatedTimeline simulate_order(const GivenOrder& given, const PolicyWord& policy,
                                 const CostWords& words) {
  const nb::gil_scoped_release release;
  const CostTable costs = costs_of(words, given.order.stages()).table;
  return simulated(lower(given.order, policy_of(policy),
                         {.fragment = given.fragment, .optimizer = times_updates(costs)}),
                   costs, given.problems, given.title);
}

SimulatedTimeline simulate_plan(const GivenPlan& given, const std::optional<PolicyWord>& policy,
                                const CostWords& words) {
  const nb::gil_scoped_release release;
  const Plan& plan = given.plan;
  return simulated(lower(planner::order_of_plan(plan), policy ? policy_of(*policy) : plan.policy,
                         planner::lowering_of_plan(plan)),
                   changed_costs(plan.costs, words).table, {}, given.title);
}

std::string svg_of(const SimulatedTimeline& self, int width) {
  const nb::gil_scoped_release release;
  return traces::svg_timeline(traces::trace_timeline(self.program, self.timeline),
                              {.title = self.title, .width = width});
}

/// What-ifs are simulations, of a step that ends.
const SimulatedTimeline& ended(const SimulatedTimeline& self) {
  if (self.verdict.ok()) return self;
  throw InputError("a what-if needs a step that ends; this one is " + self.verdict.word());
}

template <class Figure>
std::vector<Figure> by_rank(const SimulatedTimeline& self, Figure RankFigures::*figure) {
  std::vector<Figure> values;
  for (const RankFigures& rank : self.figures.ranks) values.push_back(rank.*figure);
  return values;
}

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (int kind = 0; kind < kActionKinds; ++kind)
    names.emplace_back(to_string(static_cast<ActionKind>(kind)));
  return names;
}

using TimelineClass = nb::class_<SimulatedTimeline>;

void bind_figures(TimelineClass& timeline) {
  timeline.def_ro("verdict", &SimulatedTimeline::verdict, "Whether the step ends, and if not, why.")
      .def_ro("title", &SimulatedTimeline::title)
      .def_prop_ro(
          "makespan_ns", [](const SimulatedTimeline& self) { return self.figures.makespan_ns; },
          "The step's time.")
      .def_prop_ro(
          "bubble_ratio", [](const SimulatedTimeline& self) { return self.figures.bubble_ratio; },
          "Share of the step in which ranks compute nothing, of all ranks (docs/metrics.md).")
      .def_prop_ro(
          "span_bubble_ratio",
          [](const SimulatedTimeline& self) { return self.figures.span_bubble_ratio; },
          "The zero-bubble papers' figure (docs/metrics.md).")
      .def_prop_ro(
          "busy_ns",
          [](const SimulatedTimeline& self) { return by_rank(self, &RankFigures::busy_ns); },
          "By rank: the time in which it computes.")
      .def_prop_ro(
          "span_ns",
          [](const SimulatedTimeline& self) { return by_rank(self, &RankFigures::span_ns); },
          "By rank: from its first start to its last end.")
      .def_prop_ro(
          "peak_activations",
          [](const SimulatedTimeline& self) {
            return by_rank(self, &RankFigures::peak_activations);
          },
          "By rank: the most activations alive at once.")
      .def_prop_ro(
          "peak_bytes",
          [](const SimulatedTimeline& self) { return by_rank(self, &RankFigures::peak_bytes); },
          "By rank: the most that it holds; 0 without mem.");
}

void bind_arrays(TimelineClass& timeline) {
  const auto keeps_it = nb::rv_policy::reference_internal;
  timeline
      .def_prop_ro(
          "start_ns", [](const SimulatedTimeline& self) { return column(self.timeline.start); },
          keeps_it,
          "By instruction, from the start of the step; of a transfer when it was ready; -1: never.")
      .def_prop_ro(
          "end_ns", [](const SimulatedTimeline& self) { return column(self.timeline.end); },
          keeps_it, "By instruction; -1: never.")
      .def_prop_ro(
          "moving_ns", [](const SimulatedTimeline& self) { return column(self.timeline.moving); },
          keeps_it, "By instruction: when the data of a transfer began to move; -1: never.")
      .def_prop_ro(
          "rank", [](const SimulatedTimeline& self) { return column(self.rank); }, keeps_it,
          "By instruction; those of a rank stand together, in program order.")
      .def_prop_ro(
          "kind",
          [](const SimulatedTimeline& self) {
            const auto& code = self.program.code;
            return Column<std::uint8_t>(
                code.empty() ? nullptr : reinterpret_cast<const std::uint8_t*>(&code.front().kind),
                {code.size()}, nb::handle(), {std::int64_t{sizeof(Instruction)}});
          },
          keeps_it, "By instruction: an index into kinds().")
      .def_prop_ro(
          "stage",
          [](const SimulatedTimeline& self) { return member_column(self, &Instruction::stage); },
          keeps_it, "By instruction.")
      .def_prop_ro(
          "micro_batch",
          [](const SimulatedTimeline& self) {
            return member_column(self, &Instruction::micro_batch);
          },
          keeps_it, "By instruction.")
      .def("__len__", [](const SimulatedTimeline& self) { return self.program.code.size(); })
      .def(
          "text",
          [](const SimulatedTimeline& self, std::size_t instruction) {
            if (instruction >= self.program.code.size())
              throw nb::index_error("no instruction has this number");
            return self.program.text(static_cast<InstructionId>(instruction));
          },
          nb::arg("instruction"), "An instruction in PyTorch's grammar, such as \"2SEND_F0\".");
}

void bind_questions(TimelineClass& timeline) {
  timeline
      .def(
          "what_ifs",
          [](const SimulatedTimeline& self) {
            const nb::gil_scoped_release release;
            return what_ifs_of(ended(self).program, self.costs, self.timeline);
          },
          "What the step would take if kinds of actions, ranks, stages or links were 10 % faster, "
          "messages free, stages balanced: a list of WhatIf by gain, each simulated "
          "(docs/metrics.md).")
      .def(
          "suppose",
          [](const SimulatedTimeline& self, const std::string& changes) {
            const nb::gil_scoped_release release;
            return supposed(ended(self).program, self.costs, self.timeline, changes);
          },
          nb::arg("changes"),
          "The same for changes of your own, such as \"rank:3=0.9,link:0-1=0\" "
          "(docs/metrics.md).");
}

}  // namespace

void bind_timelines(nb::module_& module) {
  TimelineClass timeline(module, "Timeline",
                         "When each instruction runs. The arrays are NumPy's, read only, and lie "
                         "in the timeline itself: nothing is copied.");
  bind_figures(timeline);
  bind_arrays(timeline);
  bind_questions(timeline);
  timeline
      .def("svg", svg_of, nb::arg("width") = 1000,
           "The picture, as `pipewright simulate --svg` writes it; width in pixels.")
      .def("_repr_svg_",
           [](const SimulatedTimeline& self) -> std::optional<std::string> {
             if (self.program.code.size() > kMostDrawnUnasked) return std::nullopt;
             return svg_of(self, 1000);
           })
      .def("__repr__", [](const SimulatedTimeline& self) {
        return "<Timeline " + self.title + ", " + self.verdict.word() + ", " +
               format_duration(Nanoseconds(self.figures.makespan_ns)) + ">";
      });
  module.def("kinds", kind_names, "The names of the kinds of instructions, by number.");
  using Words = std::optional<std::string>;
  module.def(
      "simulate",
      [](const GivenOrder& order, const PolicyWord& policy, const Words& cost, const Words& mem,
         const Words& message_bytes) {
        return simulate_order(order, policy, {cost, mem, message_bytes});
      },
      nb::arg("order"), nb::arg("policy") = "ideal", nb::arg("cost") = nb::none(),
      nb::arg("mem") = nb::none(), nb::arg("message_bytes") = nb::none(),
      "The predicted timeline of a step. cost (\"F=1ms,B=2ms,comm=10us\"), mem and "
      "message_bytes are written as for the command (docs/cli.md); without a policy "
      "transfers are a latency and nothing else. An order that hangs has a timeline too: its "
      "verdict says why.");
  module.def(
      "simulate",
      [](const GivenPlan& plan, const std::optional<PolicyWord>& policy, const Words& cost,
         const Words& mem, const Words& message_bytes) {
        return simulate_plan(plan, policy, {cost, mem, message_bytes});
      },
      nb::arg("plan"), nb::arg("policy") = nb::none(), nb::arg("cost") = nb::none(),
      nb::arg("mem") = nb::none(), nb::arg("message_bytes") = nb::none(),
      "Of a plan, under its own policy and costs, changed by what is given.");
}

}  // namespace pipewright::python
