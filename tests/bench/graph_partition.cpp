// Operator graphs: our optimum and CPU time (median of 3) beside the published exact program's,
// instance by instance. Arguments: files; without any, all of the golden data.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/json.hpp"
#include "planner/graph_partition/optimum.hpp"

namespace pipewright {
namespace {

struct Published {
  std::string load = "-", seconds = "-";
};

std::map<std::string, Published> published(const std::filesystem::path& folder) {
  std::map<std::string, Published> rows;
  const std::string file = (folder / "optima.json").string();
  if (!std::filesystem::exists(file)) return rows;
  const Json document = parse_json(read_text(file), file);
  for (const Json& row : document.at("rows")) {
    Published& entry = rows[row.at(0).get<std::string>()];
    if (row.at(1).is_null()) {
      entry = {"none", "> 550"};
    } else {
      entry = {row.at(1).dump(), row.at(2).dump()};
    }
  }
  return rows;
}

void print_row(const std::filesystem::path& path, const Published& theirs) {
  std::optional<planner::GraphPartition> result;
  // From the file's text to the devices, in CPU seconds, as the published program was timed.
  std::vector<double> seconds;
  for (int i = 0; i < 3; ++i) {
    const std::clock_t start = std::clock();
    const Json document = parse_json(read_text(path.string()), path.string());
    result = planner::optimal_graph_partition(
        planner::read_operator_graph(JsonCursor(document, path.string())));
    seconds.push_back(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  std::sort(seconds.begin(), seconds.end());
  const double taken = seconds[1];
  const std::string name = path.stem().string();
  if (!result) {
    std::printf("%-36s no partition fits the memory  %.4f s\n", name.c_str(), taken);
    return;
  }
  const bool proved =
      std::abs(result->largest_load - result->lower_bound) <= 1e-9 * (1 + result->lower_bound);
  std::printf("%-36s %7lld %8lld %12lld  %-20.12g %-6s %9.4f   %-20s %s\n", name.c_str(),
              static_cast<long long>(result->elements), static_cast<long long>(result->ideals),
              static_cast<long long>(result->stages_tried), result->largest_load,
              proved ? "yes" : "no", taken, theirs.load.c_str(), theirs.seconds.c_str());
  std::fflush(stdout);
}

int run(const std::vector<std::filesystem::path>& given) {
  const std::filesystem::path folder = std::filesystem::path(PIPEWRIGHT_GOLDEN_DIR) / "partition";
  std::vector<std::filesystem::path> paths = given;
  const auto theirs = published(folder);
  if (paths.empty() && std::filesystem::exists(folder)) {
    for (const auto& [name, entry] : theirs) paths.push_back(folder / (name + ".json"));
  }
  std::printf("%-36s %7s %8s %12s  %-20s %-6s %9s   %-20s %s\n", "instance", "element", "ideals",
              "stages", "largest load", "proved", "CPU s", "published load", "its CPU s");
  for (const auto& path : paths) {
    const auto row = theirs.find(path.stem().string());
    print_row(path, row == theirs.end() ? Published{} : row->second);
  }
  return 0;
}

}  // namespace
}  // namespace pipewright

int main(int argc, char** argv) {
  try {
    return pipewright::run({argv + 1, argv + argc});
  } catch (const pipewright::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
