// pipewright export: a plan in the files of other tools.
#include "planner/export/export.hpp"

#include "core/base/error.hpp"
#include "planner/export/stock_verdicts.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/session.hpp"
#include "tools/commands/commands.hpp"

namespace pipewright::tools {
namespace {

using planner::ExportedPlan;
using planner::ExportFormat;

/// The text as a JSON value where it is JSON, so that a script need not unpack it twice.
Json contents_of(const std::string& text) {
  return text.starts_with('{') ? Json::parse(text) : Json(text);
}

Json fields_of(const ExportFormat& format, const ExportedPlan& exported) {
  Json fields = {{"format", format.name},
                 {"tool", format.tool},
                 {"verdict", exported.refusals.empty() ? "ok" : "impossible"}};
  if (exported.refusals.empty()) {
    fields["contents"] = contents_of(exported.text);
  } else {
    fields["refusals"] = exported.refusals;
  }
  fields["notes"] = exported.notes;
  return {{"export", fields}};
}

ExportedPlan written(const ExportFormat& format, const Plan& plan, const Arguments& arguments) {
  const auto torch = arguments.text("--torch");
  if (!torch) return format.write(plan);
  if (format.name != "pytorch-csv") {
    throw InputError("--torch is of --format pytorch-csv; --format is " + std::string(format.name));
  }
  return planner::export_pytorch_csv(plan, *planner::torch_release(*torch));
}

int export_plan(const Arguments& arguments, Session& session) {
  const auto name = arguments.text("--format");
  if (!name) {
    std::string list;
    for (const ExportFormat& format : planner::export_formats()) {
      list += (list.empty() ? "" : ", ") + std::string(format.name);
    }
    throw InputError("missing --format; choose one of " + list);
  }
  const ExportFormat& format = planner::find_export_format(*name);
  const Plan plan = load_plan(arguments.positionals().front());
  ExportedPlan exported = written(format, plan, arguments);
  if (exported.refusals.empty()) {
    for (std::string& sentence : planner::stock_verdicts(plan, format.name))
      exported.notes.push_back(std::move(sentence));
  }
  if (session.json()) session.print_result(fields_of(format, exported));
  for (const std::string& refusal : exported.refusals) session.note(refusal);
  if (!exported.refusals.empty()) return kAnswerIsNo;
  for (const std::string& note : exported.notes) session.note("note: " + note);
  if (const auto path = arguments.text("--out")) {
    session.save(*path, exported.text);
    session.wrote(*path, " for " + std::string(format.tool));
  } else if (!session.json()) {
    session.print(exported.text);
  }
  return kDone;
}

Flag format_flag() {
  Flag flag{.group = "Output", .name = "--format", .argument = "FORMAT", .help = "whose file"};
  for (const ExportFormat& format : planner::export_formats()) {
    flag.choices.emplace_back(format.name);
  }
  flag.checked = true;
  return flag;
}

}  // namespace

Command export_command() {
  Command command;
  command.name = "export";
  command.summary = "write a plan as another tool's configuration";
  command.description =
      "What the other tool cannot do as the plan does is refused with exit status 1; what it "
      "leaves to its user is a note on stderr, and a comment where the file may have them. "
      "Versions: PyTorch 2.13, Megatron-LM core 0.16, torchtitan 0.3, PaddlePaddle 3.3, DeepSpeed "
      "0.19.";
  command.examples = {
      {"export examples/plan.json --format megatron -o flags.sh", "bash arrays, to be sourced"},
      {"export examples/plan.json --format torchtitan -o flags.sh",
       "the flags of its command line"},
      {"export examples/plan.json --format pytorch-csv", "the order, for PyTorch's runtime"},
  };
  command.positionals = {
      {.name = "FILE", .help = "a plan.json; - is standard input", .least = 1, .most = 1}};
  command.flags = {
      format_flag(),
      {.group = "Output",
       .name = "--torch",
       .argument = "RELEASE",
       .help = "of pytorch-csv, whose runtime takes an order that writes its transfers "
               "(2.13 unless given)",
       .choices = {"2.13", "2.15"},
       .checked = true},
      {.group = "Output",
       .name = "--out",
       .argument = "FILE",
       .help = "write to a file instead of standard output",
       .short_name = 'o',
       .is_file = true,
       .writes = Writes::File}};
  command.run = export_plan;
  return command;
}

}  // namespace pipewright::tools
