#include "tools/output/measured_text.hpp"

#include "tools/cli/figures.hpp"
#include "tools/cli/table.hpp"

namespace pipewright::tools {
namespace {

double off_by(std::int64_t measured, std::int64_t predicted) {
  return static_cast<double>(measured) / static_cast<double>(predicted) - 1;
}

std::string peak_text(const planner::FittedStep& step) {
  if (!step.measured.ran()) return "out of memory, predicted " + format_bytes(step.predicted_peak);
  if (step.measured.peak.value == 0) return "";
  return format_bytes(step.measured.peak) + ", predicted " + format_bytes(step.predicted_peak);
}

}  // namespace

std::string measured_text(const planner::MeasuredFit& fit, const Terminal& terminal) {
  if (fit.steps.empty()) return "";
  using Align = Table::Align;
  Table table({{"measured", Align::Right},
               {"the fit says", Align::Right},
               {"off by", Align::Right},
               {"configuration"},
               {"memory"}});
  for (const planner::FittedStep& step : fit.steps) {
    const bool ran = step.measured.ran();
    table.add(
        {ran ? format_duration(step.measured.step) : "-", format_duration(step.predicted),
         ran ? signed_percent_text(off_by(step.measured.step.value, step.predicted.value)) : "-",
         step.measured.configuration, peak_text(step)});
  }
  const std::string spread =
      "Costs " + fit.summary() + "; another configuration is expected within " +
      percent_text(fit.times.spread) + " of what it says (one standard deviation).";
  return table.text(terminal) + wrapped(spread, terminal.width, 0);
}

Json measured_fields(const planner::MeasuredFit& fit) {
  const planner::CostScales scales = fit.scales();
  Json steps = Json::array();
  for (const planner::FittedStep& step : fit.steps) {
    Json one = {{"configuration", step.measured.configuration},
                {"predicted_ns", step.predicted.value},
                {"predicted_peak_bytes", step.predicted_peak.value}};
    if (step.measured.ran()) one["step_ns"] = step.measured.step.value;
    if (step.measured.peak.value > 0) one["peak_bytes"] = step.measured.peak.value;
    if (!step.measured.ran()) one["out_of_memory"] = true;
    steps.push_back(std::move(one));
  }
  return {{"scales",
           {{"time", scales.time},
            {"messages", scales.messages},
            {"launches", scales.launches},
            {"memory", scales.memory}}},
          {"fitted", fit.times.fitted},
          {"spread", fit.times.spread},
          {"memory_deviation", fit.memory.deviation},
          {"steps", std::move(steps)}};
}

}  // namespace pipewright::tools
