#include "tools/running/forward_run.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/base/error.hpp"
#include "core/order/forward_order.hpp"
#include "core/program/lower.hpp"
#include "exec/data/npy.hpp"
#include "exec/layers/layer.hpp"
#include "tools/cli/figures.hpp"

namespace pipewright::tools {
namespace {

std::string four_digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", value);
  return text;
}

exec::DataShape in_order(exec::DataShape shape, exec::RunMode mode) {
  shape.shuffled = false;
  shape.with_answers = mode == exec::RunMode::Evaluate;
  return shape;
}

}  // namespace

std::string mode_text(exec::RunMode mode) {
  if (mode == exec::RunMode::Train) return "train";
  return mode == exec::RunMode::Evaluate ? "evaluate" : "predict";
}

std::vector<Flag> forward_flags() {
  return {
      {.group = "Forward only",
       .name = "--mode",
       .argument = "MODE",
       .help = "evaluate: loss and metrics of a data set; predict: the model's outputs; both "
               "pipelined, with the forwards of the plan's order (train)",
       .choices = {"train", "evaluate", "predict"},
       .checked = true},
      {.group = "Forward only",
       .name = "--output",
       .argument = "FILE",
       .help = "of --mode predict: a .npy file with the outputs of the last layer, in the order of "
               "the samples",
       .is_file = true,
       .writes = Writes::File},
  };
}

std::optional<ForwardRequest> forward_request(const Arguments& arguments) {
  ForwardRequest request;
  const std::string mode = arguments.text_or("--mode", "train");
  if (mode == "predict") request.mode = exec::RunMode::Predict;
  request.output = arguments.text_or("--output", "");
  if (!request.output.empty() && mode != "predict")
    throw InputError("--output belongs to --mode predict");
  if (mode == "train") return std::nullopt;
  for (const char* flag : {"--verify", "--save-checkpoint"}) {
    if (!arguments.has(flag)) continue;
    throw InputError(std::string(flag) + " belongs to a training; --mode " + mode +
                     " changes no weights");
  }
  return request;
}

void take_forwards(Subject& subject, exec::RunMode mode) {
  subject.order = forward_order(subject.order);
  subject.lowering.optimizer = false;
  subject.program = lower(subject.order, subject.program.policy, subject.lowering);
  subject.title += ", " + mode_text(mode);
}

ForwardRun::ForwardRun(const Plan& plan, const exec::DataShape& shape, const exec::DataFiles& files,
                       const ForwardRequest& request, int most_steps)
    : request_(request),
      model_(plan.model),
      set_(exec::make_data_set(plan.model, in_order(shape, request.mode), files,
                               most_steps > 0 ? most_steps : 1)) {
  if (request.mode == exec::RunMode::Predict && request.output.empty()) {
    throw InputError("--mode predict needs a file for the outputs: --output predictions.npy");
  }
  std::int64_t steps = set_.steps(shape);
  if (most_steps > 0) steps = std::min<std::int64_t>(steps, most_steps);
  steps_ = static_cast<int>(steps);
}

void ForwardRun::use_in(exec::cpu::Training& training) {
  training.data = set_.source.get();
  training.mode = request_.mode;
  if (request_.mode != exec::RunMode::Predict) return;
  training.outputs = [this](std::span<const float> outputs) {
    outputs_.insert(outputs_.end(), outputs.begin(), outputs.end());
  };
}

void ForwardRun::save(const exec::EvaluationReport& report, Session& session) const {
  if (request_.mode != exec::RunMode::Predict) return;
  std::vector<std::int64_t> shape = {report.samples};
  if (model_.sequence > 1) shape.push_back(model_.sequence);
  shape.push_back(exec::width_in_front_of(model_, static_cast<int>(model_.layers.size())));
  session.save(request_.output, exec::npy_bytes(shape, outputs_));
  session.wrote(request_.output);
}

std::string evaluation_text(const exec::EvaluationReport& report) {
  std::string text =
      std::to_string(report.samples) + (report.samples == 1 ? " sample" : " samples");
  if (report.loss)
    text += ": loss " + (std::isfinite(*report.loss) ? four_digits(*report.loss) : "not finite");
  if (report.accuracy) text += ", accuracy " + percent_text(*report.accuracy);
  if (report.perplexity && std::isfinite(*report.perplexity))
    text += ", perplexity " + four_digits(*report.perplexity);
  if (report.not_finite_rows > 0)
    text +=
        "; " + std::to_string(report.not_finite_rows) + " of " + std::to_string(report.rows) +
        " rows of outputs hold what is no finite number: a model that diverged, or inputs that are "
        "none";
  return text + "\n";
}

Json evaluation_fields(const exec::EvaluationReport& report) {
  Json fields = {{"samples", report.samples}, {"not_finite_rows", report.not_finite_rows}};
  if (report.loss) fields["loss"] = *report.loss;
  if (report.accuracy) fields["accuracy"] = *report.accuracy;
  if (report.perplexity) fields["perplexity"] = *report.perplexity;
  return fields;
}

}  // namespace pipewright::tools
