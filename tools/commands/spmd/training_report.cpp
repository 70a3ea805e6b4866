#include "tools/commands/spmd/training_report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/base/units.hpp"
#include "core/spmd/reshard_cases.hpp"
#include "tools/cli/figures.hpp"
#include "tools/cli/table.hpp"

namespace pipewright::tools {
namespace {

/// Of losses, gradients and parameters, relative: sums in another order are as far apart.
constexpr double kMostDifference = 1e-6;

std::string digits_text(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

struct Comparison {
  exec::graphs::ArrayDifference losses, gradients, parameters;  // the largest of any
  double bound = kMostDifference;

  bool agrees() const {
    return std::max({losses.relative, gradients.relative, parameters.relative}) <= bound;
  }
};

std::vector<float> as_floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

void take_larger(exec::graphs::ArrayDifference& of_all, const exec::graphs::ArrayDifference& one) {
  of_all.relative = std::max(of_all.relative, one.relative);
  of_all.same_bits = of_all.same_bits && one.same_bits;
}

Comparison compared(const Trained& trained) {
  Comparison comparison;
  if (trained.pipeline) {  // roundings of a sum of so many
    comparison.bound *= std::sqrt(static_cast<double>(trained.pipeline->schedule.micro_batches));
  }
  for (std::size_t step = 0; step < trained.divided.losses.size(); ++step) {
    take_larger(comparison.losses,
                exec::graphs::difference(as_floats({trained.divided.losses[step]}),
                                         as_floats({trained.serial.losses[step]})));
  }
  for (const auto& [name, values] : trained.divided.parameters) {
    take_larger(comparison.parameters,
                exec::graphs::difference(values, trained.serial.parameters.at(name)));
    take_larger(comparison.gradients, exec::graphs::difference(trained.divided.gradients.at(name),
                                                               trained.serial.gradients.at(name)));
  }
  return comparison;
}

std::string difference_text(const exec::graphs::ArrayDifference& one) {
  return one.same_bits ? "the same bits" : "off by " + digits_text(one.relative, 2);
}

void print_losses(const Trained& trained, Session& session) {
  Table table({{"step"},
               {"loss", Table::Align::Right},
               {"on one rank", Table::Align::Right},
               {"difference"}});
  for (std::size_t step = 0; step < trained.divided.losses.size(); ++step) {
    const double loss = trained.divided.losses[step], serial = trained.serial.losses[step];
    table.add({std::to_string(step), digits_text(loss, 7), digits_text(serial, 7),
               difference_text(exec::graphs::difference(as_floats({loss}), as_floats({serial})))});
  }
  session.print(table.text(session.terminal()));
}

const spmd::GraphTensor& tensor_of(const Trained& trained, std::size_t array) {
  return trained.graph.tensors[trained.steps.arrays[array].tensor];
}

std::string layout_text(const Trained& trained, std::size_t array) {
  const spmd::TrainingArray& one = trained.steps.arrays[array];
  const spmd::NamedMesh& mesh = trained.graph.meshes[one.mesh];
  const std::string text = text_of(one.layout, mesh.mesh);
  return trained.graph.meshes.size() > 1 ? mesh.name + ": " + text : text;
}

void print_moves(const Trained& trained, Session& session) {
  Table table({{"tensor"}, {"from"}, {"to"}, {"bytes", Table::Align::Right}, {"steps"}});
  for (const spmd::TrainingStep& step : trained.steps.steps) {
    if (step.kind != spmd::TrainingStep::Kind::Move) continue;
    const std::size_t from = *step.inputs[0], to = *step.outputs[0];
    const bool is_gradient = trained.steps.arrays[to].is_gradient;
    table.add({(is_gradient ? "gradient of " : "") + tensor_of(trained, from).name,
               layout_text(trained, from), layout_text(trained, to),
               std::to_string(step.plan.bytes), spmd::text_of(step.plan.steps)});
  }
  session.print(table.text(session.terminal()));
}

constexpr std::pair<const char*, std::int64_t spmd::StepMemory::*> kMemoryRows[] = {
    {"parameters", &spmd::StepMemory::parameters},
    {"gradients", &spmd::StepMemory::gradients},
    {"states", &spmd::StepMemory::states},
    {"all", &spmd::StepMemory::all},
};

/// What layouts say is of one micro-batch.
void print_memory(const Trained& trained, Session& session) {
  const spmd::StepMemory formula = memory_of(trained.graph, trained.steps);
  Table table({{"most at once, of the fullest rank"},
               {trained.pipeline ? "of one micro-batch" : "by layouts", Table::Align::Right},
               {"held", Table::Align::Right},
               {"on one rank", Table::Align::Right}});
  const auto bytes = [](std::int64_t count) { return format_bytes(Bytes(count)); };
  for (const auto& [name, value] : kMemoryRows) {
    table.add({name, bytes(formula.*value), bytes(trained.divided.memory.*value),
               bytes(trained.serial.memory.*value)});
  }
  session.print(table.text(session.terminal()));
}

/// The median of the steps, but for the first where there are more: it makes room and connections.
double usual_ns(std::vector<std::int64_t> steps) {
  if (steps.size() > 1) steps.erase(steps.begin());
  const auto middle = steps.begin() + std::ssize(steps) / 2;
  std::nth_element(steps.begin(), middle, steps.end());
  return static_cast<double>(*middle);
}

/// As expected, and as it was; nothing of an update is expected.
std::string times_text(const Trained& trained) {
  const auto& pipeline = trained.pipeline;
  const std::string expected =
      pipeline ? expected_text(*pipeline, trained.cluster)
               : "on " + trained.cluster + " a step would take " + time_text(trained.expected_ns);
  return expected + "; here it took " + time_text(usual_ns(trained.divided.step_ns)) +
         ", and on one rank " + time_text(usual_ns(trained.serial.step_ns));
}

Json to_json(const exec::graphs::ArrayDifference& one) {
  return {{"same_bits", one.same_bits}, {"relative", one.relative}};
}

Json to_json(const spmd::StepMemory& memory) {
  Json fields;
  for (const auto& [name, value] : kMemoryRows) fields[name] = memory.*value;
  return fields;
}

}  // namespace

bool agrees(const Trained& trained) { return compared(trained).agrees(); }

void print_training(const Trained& trained, Session& session) {
  session.print(times_text(trained) + "\n\n");
  print_losses(trained, session);
  session.print("\n");
  print_moves(trained, session);
  session.print("\n");
  print_memory(trained, session);
  if (trained.divided.bytes_read > 0) {
    const auto bytes = [](std::int64_t count) { return format_bytes(Bytes(count)); };
    session.print("\nread of the saved state: " + bytes(trained.divided.bytes_read) +
                  " by the rank that needs most, " + bytes(trained.serial.bytes_read) +
                  " by one rank\n");
  }
  const Comparison comparison = compared(trained);
  session.print("\nagainst one rank: losses " + difference_text(comparison.losses) +
                "; gradients of the first step " + difference_text(comparison.gradients) +
                "; parameters in the end " + difference_text(comparison.parameters) + "\n");
  if (!comparison.agrees()) {
    session.print(
        "more than " + digits_text(comparison.bound, 2) +
        " of the largest element, which is taken for wrong; sums of many thousand numbers "
        "may differ by as much in another order\n");
  }
}

Json to_json(const Trained& trained) {
  const Comparison comparison = compared(trained);
  Json moves = Json::array();
  for (const spmd::TrainingStep& step : trained.steps.steps) {
    if (step.kind != spmd::TrainingStep::Kind::Move) continue;
    const std::size_t from = *step.inputs[0], to = *step.outputs[0];
    moves.push_back({{"tensor", tensor_of(trained, from).name},
                     {"gradient", trained.steps.arrays[to].is_gradient},
                     {"from", layout_text(trained, from)},
                     {"to", layout_text(trained, to)},
                     {"bytes", step.plan.bytes},
                     {"steps", spmd::text_of(step.plan.steps)}});
  }
  Json fields = {{"losses", trained.divided.losses},
                 {"serial_losses", trained.serial.losses},
                 {"moves", std::move(moves)},
                 {"times",
                  {{"cluster", trained.cluster},
                   {"expected_ns", trained.expected_ns},
                   {"step_ns", trained.divided.step_ns},
                   {"serial_step_ns", trained.serial.step_ns}}},
                 {"bytes", bytes_of(trained.steps)},
                 {"bytes_read", trained.divided.bytes_read},
                 {"memory",
                  {{"formula", to_json(memory_of(trained.graph, trained.steps))},
                   {"held", to_json(trained.divided.memory)},
                   {"serial", to_json(trained.serial.memory)}}},
                 {"difference",
                  {{"losses", to_json(comparison.losses)},
                   {"gradients", to_json(comparison.gradients)},
                   {"parameters", to_json(comparison.parameters)}}},
                 {"agrees", comparison.agrees()}};
  if (trained.pipeline) fields["pipeline"] = expected_json(*trained.pipeline, trained.cluster);
  return fields;
}

}  // namespace pipewright::tools
