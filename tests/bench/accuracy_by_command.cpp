// Whether the figures of docs/evidence/accuracy.md are what a user gets: each published step asked
// of `pipewright estimate`, with files of its model, cluster and framework and with its degrees as
// flags, beside what bench_accuracy takes.
//   bench_accuracy_by_command PIPEWRIGHT FOLDER [N]   (for the files, which stay; each Nth row)
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>

#include "core/base/json.hpp"
#include "tests/bench/measured_commands.hpp"

namespace pipewright {
namespace {

/// Of the last row that disagreed most, for whoever looks for why.
struct Disagreement {
  double most = 0;
  std::string row;
};

struct FileCounts {
  int rows = 0, same = 0, no_room = 0;
  double error = 0;  // sum of |predicted - measured| / measured, by the command
  Disagreement worst;
  std::map<std::string, int> not_asked;
};

/// What the command prints, as JSON; discarded where it is none.
Json answer(const std::string& command, const std::vector<std::string>& words) {
  std::string line = command;
  for (const std::string& word : words) line += " '" + word + "'";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen((line + " 2>/dev/null").c_str(), "r"),
                                                   pclose);
  std::string text;
  char part[4096];
  while (pipe && fgets(part, sizeof part, pipe.get()) != nullptr) text += part;
  return Json::parse(text, nullptr, false);
}

void ask(const test::MeasuredCase& row, const std::string& command,
         const std::filesystem::path& folder, FileCounts& counts) {
  std::string why_not;
  const auto words = test::command_of(row, folder, why_not);
  if (!words) {
    ++counts.not_asked[why_not];
    return;
  }
  const Json said = answer(command, *words);
  ++counts.rows;
  if (said.is_discarded() || !said.contains("best") || said["best"].is_null()) {
    ++counts.no_room;
    return;
  }
  const double seconds = said["best"]["step_ns"].get<double>() * 1e-9;
  const double expected = test::predicted(row);
  const double apart = std::abs(seconds / expected - 1);
  counts.error += std::abs(seconds / row.measured - 1);
  if (apart < 1e-6) ++counts.same;
  if (apart > counts.worst.most) counts.worst = {apart, row.name + ", " + folder.string()};
}

void print(const std::string& file, const FileCounts& counts) {
  const int told = counts.rows - counts.no_room;
  std::printf("| `%s` | %d | %d | %d | %.1f %% | %.2g |", file.c_str(), counts.rows, counts.same,
              counts.no_room, told > 0 ? 100 * counts.error / told : 0.0, counts.worst.most);
  for (const auto& [reason, rows] : counts.not_asked) std::printf(" %d: %s;", rows, reason.c_str());
  if (counts.worst.most >= 1e-6) std::printf(" (%s)", counts.worst.row.c_str());
  std::printf(" |\n");
}

}  // namespace
}  // namespace pipewright

int main(int argc, char** argv) {
  using namespace pipewright;
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr, "bench_accuracy_by_command PIPEWRIGHT FOLDER [N]\n");
    return 2;
  }
  const std::filesystem::path golden = PIPEWRIGHT_GOLDEN_DIR;
  if (!std::filesystem::exists(golden / "measured")) {
    std::printf("golden/measured is not here; nothing to compare with\n");
    return 0;
  }
  auto tables = test::measured_tables(golden / "measured");
  const auto second = test::second_collection(golden / "measured2");
  tables.insert(tables.end(), second.begin(), second.end());
  std::printf(
      "| file | rows asked | same figure | no room | mean error | apart at most | not asked |\n"
      "|---|---|---|---|---|---|---|\n");
  const std::size_t each = argc == 4 ? std::stoul(argv[3]) : 1;
  int different = 0;
  for (const test::MeasuredTable& table : tables) {
    FileCounts counts;
    for (std::size_t k = 0; k < table.cases.size(); k += each) {
      if (table.cases[k].quantity != test::Quantity::StepSeconds) continue;
      ask(table.cases[k], argv[1], std::filesystem::path(argv[2]) / table.file / std::to_string(k),
          counts);
    }
    if (counts.rows + static_cast<int>(counts.not_asked.size()) == 0) continue;
    print(table.file, counts);
    different += counts.rows - counts.no_room - counts.same;
  }
  return different == 0 ? 0 : 1;
}
