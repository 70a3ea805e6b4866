#include "tools/running/result_notes.hpp"

#include <fstream>
#include <limits>
#include <optional>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "core/base/units.hpp"
#include "exec/runtime/verify_report.hpp"
#include "tools/cli/figures.hpp"
#include "tools/output/step_lines.hpp"
#include "tools/running/training.hpp"

namespace pipewright::tools {
namespace {

constexpr std::string_view kResultSchema = "pipewright.result/1";

constexpr std::int64_t kLargestInteger = std::numeric_limits<std::int64_t>::max();

std::int64_t integer_of(const JsonCursor& at) { return at.integer(0, kLargestInteger); }

/// A number that is not finite is null.
double number_of(const JsonCursor& at) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  return at.value().is_null() ? std::numeric_limits<double>::quiet_NaN()
                              : at.number(-kLargest, kLargest);
}

std::vector<double> losses_of(const JsonCursor& steps) {
  std::vector<double> losses;
  for (const JsonCursor& step : steps.elements()) losses.push_back(number_of(step.at("loss")));
  return losses;
}

traces::PageCheck check_of(const JsonCursor& verify, int step) {
  exec::VerifyReport report;
  const bool exact = verify.at("numerics").string() == exec::to_string(exec::Numerics::Exact);
  report.numerics = exact ? exec::Numerics::Exact : exec::Numerics::Fast;
  report.gradients.max_ulp = integer_of(verify.at("max_ulp"));
  report.gradients.norm_rel = number_of(verify.at("norm_rel"));
  report.gradients.bitwise = verify.at("bitwise").boolean();
  report.parameters.bitwise = verify.at("parameters_bitwise").boolean();
  return {verify_text(report, step), agrees(report)};
}

/// What is told of each configuration in words that fit into a table.
traces::PageTable ranked_table(const JsonCursor& ranked) {
  traces::PageTable table{"Ranked plans", {"#"}, {}};
  const std::vector<std::string> degrees = {
      "tp", "pp", "dp", "cp", "ep", "vpp", "micro_batches", "micro_batch_size"};
  table.header.emplace_back("schedule");
  table.header.insert(table.header.end(), degrees.begin(), degrees.end());
  for (const char* name : {"step", "bubble", "memory"}) table.header.emplace_back(name);
  for (const JsonCursor& each : ranked.elements()) {
    std::vector<std::string> row = {std::to_string(table.rows.size() + 1),
                                    each.at("schedule").string()};
    for (const std::string& degree : degrees)
      row.push_back(std::to_string(integer_of(each.at(degree))));
    row.push_back(format_duration(Nanoseconds(integer_of(each.at("step_ns")))));
    row.push_back(percent_text(number_of(each.at("bubble_ratio"))));
    row.push_back(format_bytes(Bytes(integer_of(each.at("peak_bytes")))));
    table.rows.push_back(std::move(row));
  }
  return table;
}

void add_run(const JsonCursor& root, traces::PageNotes& notes) {
  const auto first = root.find("first_step");
  const std::int64_t first_step = first ? integer_of(*first) : 0;
  notes.checks.push_back({"outcome of the run: " + root.at("outcome").string(),
                          root.at("outcome").string() == "finished"});
  notes.charts = loss_charts(losses_of(root.at("steps")), first_step);
  const auto verify = root.find("verify");
  if (verify && verify->value().is_object())
    notes.checks.push_back(check_of(*verify, static_cast<int>(first_step) + 1));
}

}  // namespace

bool is_result(const std::string& path) {
  constexpr std::size_t kBeginning = 200;
  if (!path.ends_with(".json")) return false;
  std::string text(kBeginning, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  return text.find("\"" + std::string(kResultSchema) + "\"") != std::string::npos;
}

traces::PageNotes read_result_notes(const std::string& path) {
  const Json document = parse_json(read_text(path), path);
  const JsonCursor root(document, path);
  traces::PageNotes notes;
  if (root.find("outcome") && root.find("steps")) {
    add_run(root, notes);
  } else if (const auto ranked = root.find("ranked")) {
    notes.tables.push_back(ranked_table(*ranked));
  } else {
    throw InputError(path, "",
                     "is a result of neither run nor tune; report shows the losses of a run and "
                     "the ranked table of a search");
  }
  return notes;
}

}  // namespace pipewright::tools
