#include "tools/output/candidate_table.hpp"

#include <algorithm>
#include <sstream>

#include "planner/configurations/stage_replicas.hpp"
#include "planner/estimate/parallel_space.hpp"
#include "tools/cli/figures.hpp"
#include "tools/cli/table.hpp"

namespace pipewright::tools {
namespace {

/// "4+3+3+2"; where four or more neighbours are equal "4 + 30x3 + 4".
std::string layers_text(const planner::Candidate& candidate) {
  constexpr int kLeastRun = 4;
  std::vector<std::pair<int, int>> runs;  // layers of a stage, how many such stages
  for (const StagePlan& stage : candidate.stages) {
    const int layers = stage.end_layer - stage.first_layer;
    if (runs.empty() || runs.back().first != layers) runs.emplace_back(layers, 0);
    ++runs.back().second;
  }
  const bool is_short =
      std::all_of(runs.begin(), runs.end(), [](const auto& run) { return run.second < kLeastRun; });
  std::string text;
  const auto add = [&](const std::string& part) {
    text += (text.empty() ? "" : is_short ? "+" : " + ") + part;
  };
  for (const auto& [layers, stages] : runs) {
    if (stages >= kLeastRun) {
      add(std::to_string(stages) + "x" + std::to_string(layers));
    } else {
      for (int s = 0; s < stages; ++s) add(std::to_string(layers));
    }
  }
  return text;
}

/// "1f1b-rr 2,1,1", of many stages only how many there are.
std::string schedule_text(const planner::Candidate& candidate) {
  constexpr std::size_t kMostLetters = 15;
  const std::vector<int>& counts = candidate.parallel.stage_replicas;
  if (counts.empty()) return candidate.schedule;
  const std::string text = planner::replicas_text(counts);
  return candidate.schedule + " " +
         (text.size() <= kMostLetters ? text : std::to_string(counts.size()) + " stages");
}

/// "by stage: full on 0-2, none on 3"; of many runs of stages only how many there are of each.
std::string by_stage_text(const std::vector<LayerRecompute>& of_stage) {
  constexpr std::size_t kMostLetters = 40;
  std::string text = describe_recompute(of_stage);
  if (text.size() > kMostLetters) {
    text.clear();
    for (const auto kind :
         {LayerRecompute::Whole, LayerRecompute::Attention, LayerRecompute::None}) {
      const auto count = std::count(of_stage.begin(), of_stage.end(), kind);
      if (count == 0) continue;
      text += (text.empty() ? "" : ", ") + std::string(to_string(kind)) + " on " +
              std::to_string(count);
    }
    text += " of " + std::to_string(of_stage.size());
  }
  return "by stage: " + text;
}

/// "selective, sp, ZeRO 1": what else a row divides or saves; "" for nothing.
std::string savings_text(const planner::ParallelSetup& parallel) {
  std::string text;
  const auto add = [&](bool is_there, const std::string& part) {
    if (is_there) text += (text.empty() ? "" : ", ") + part;
  };
  add(parallel.context > 1,
      "cp " + std::to_string(parallel.context) + (parallel.ring ? " p2p" : ""));
  add(parallel.experts > 1, "ep " + std::to_string(parallel.experts));
  add(parallel.expert_tensor() != parallel.tensor,
      "etp " + std::to_string(parallel.expert_tensor()));
  add(parallel.zero > 0 && parallel.data > 1, planner::zero_text(parallel));
  add(parallel.sequence_parallel, "sp");
  add(parallel.recompute.by_stage, by_stage_text(parallel.recompute.of_stage));
  add(parallel.recompute.of_all == LayerRecompute::Whole, "full recompute");
  add(parallel.recompute.of_all == LayerRecompute::Attention, "selective recompute");
  add(parallel.order.of_ranks == planner::RankOrder::DataOutermost,
      "order " + std::string(name_of(parallel.order.of_ranks)));
  add(!parallel.order.of_nodes.empty(), "nodes " + to_text(parallel.order.of_nodes));
  return text;
}

std::string times_text(double ratio) {
  const auto hundredths = static_cast<std::int64_t>(ratio * 100 + 0.5);
  std::string text = std::to_string(hundredths / 100) + ".";
  return text + (hundredths % 100 < 10 ? "0" : "") + std::to_string(hundredths % 100) + "x";
}

/// A column of numbers or words, and what a row has there.
struct TableCell {
  std::string title, text;
  Table::Align align = Table::Align::Right;
};

/// Which degrees differ from 1 anywhere.
struct Shown {
  bool tensor = false, data = false, savings = false;

  explicit Shown(const planner::SearchResult& result) {
    for (const auto* list : {&result.ranked, &result.baselines, &result.front}) {
      for (const planner::Candidate& row : *list) {
        tensor = tensor || row.parallel.tensor > 1;
        data = data || row.parallel.data > 1;
        savings = savings || !savings_text(row.parallel).empty();
      }
    }
  }
};

std::vector<TableCell> cells_of(const CandidateRow& row, const Shown& shown, Nanoseconds baseline) {
  const planner::Candidate& candidate = *row.candidate;
  const planner::ParallelSetup& parallel = candidate.parallel;
  const double gain = candidate.step.value == 0 ? 1.0
                                                : static_cast<double>(baseline.value) /
                                                      static_cast<double>(candidate.step.value);
  const auto left = Table::Align::Left;
  std::vector<TableCell> cells{{"#", row.place}, {"schedule", schedule_text(candidate), left}};
  if (shown.tensor) cells.push_back({"tp", std::to_string(parallel.tensor)});
  cells.push_back({"pp", std::to_string(parallel.pipeline)});
  if (shown.data) cells.push_back({"dp", std::to_string(parallel.data)});
  cells.push_back({"vpp", std::to_string(parallel.chunks)});
  cells.push_back(
      {"batches",
       std::to_string(parallel.micro_batches) + " x " + std::to_string(parallel.micro_batch_size),
       left});
  cells.push_back({"step", format_duration(candidate.step)});
  cells.push_back({"bubble", percent_text(candidate.bubble_ratio)});
  cells.push_back({"memory", format_bytes(candidate.peak_bytes)});
  cells.push_back({"gain", baseline.value > 0 ? times_text(gain) : ""});
  return cells;
}

/// What is too long for a column of a narrow terminal.
std::vector<TableCell> long_cells_of(const CandidateRow& row, const Shown& shown) {
  std::vector<TableCell> cells;
  if (shown.savings)
    cells.push_back({"with", savings_text(row.candidate->parallel), Table::Align::Left});
  cells.push_back({"layers", layers_text(*row.candidate), Table::Align::Left});
  return cells;
}

std::string table_text(const std::vector<CandidateRow>& rows,
                       const std::vector<std::vector<TableCell>>& cells, const Terminal& terminal) {
  std::vector<Table::Column> columns;
  for (const TableCell& cell : cells.front()) columns.push_back({cell.title, cell.align});
  Table table(columns);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::vector<std::string> texts;
    for (const TableCell& cell : cells[i]) texts.push_back(cell.text);
    table.add(texts, rows[i].ink);
  }
  return table.text(terminal);
}

bool fits(const std::string& table, int width) {
  std::istringstream lines(table);
  std::string line;
  while (std::getline(lines, line)) {
    if (columns_of(line) > static_cast<std::size_t>(width)) return false;
  }
  return true;
}

/// "with ZeRO 1, sp; layers 3 + 30x2 + 1".
std::string named_text(const std::vector<TableCell>& cells) {
  std::string text;
  for (const TableCell& cell : cells) {
    if (!cell.text.empty()) text += (text.empty() ? "" : "; ") + cell.title + " " + cell.text;
  }
  return text;
}

/// The lines of a table, each row's with what belongs to it below.
std::string with_second_lines(const std::string& table,
                              const std::vector<std::vector<TableCell>>& details,
                              const Terminal& terminal) {
  constexpr int kIndent = 6;
  std::istringstream lines(table);
  std::string text, line;
  std::getline(lines, line);
  text = line + "\n";
  for (const auto& cells : details) {
    std::getline(lines, line);
    text += line + "\n" + wrapped(named_text(cells), terminal.width, kIndent);
  }
  return text;
}

}  // namespace

std::string candidates_text(const std::vector<CandidateRow>& rows, const planner::SearchResult& all,
                            Nanoseconds baseline, const Terminal& terminal) {
  if (rows.empty()) return "";
  const Shown shown(all);
  std::vector<std::vector<TableCell>> cells, details, whole;
  for (const CandidateRow& row : rows) {
    cells.push_back(cells_of(row, shown, baseline));
    details.push_back(long_cells_of(row, shown));
    whole.push_back(cells.back());
    whole.back().insert(whole.back().end(), details.back().begin(), details.back().end());
  }
  if (!terminal.cuts_rows) return table_text(rows, whole, terminal);
  // A table sets its columns closer where they would not fit, and breaks rows that still do not.
  Terminal measured = terminal;
  measured.color = false;
  const auto is_whole = [&](const std::vector<std::vector<TableCell>>& table) {
    Terminal endless = measured;
    endless.width = 1 << 20;
    const std::string wide = table_text(rows, table, endless);
    const int closer = static_cast<int>(table.front().size()) - 1;
    return fits(wide, terminal.width + closer);
  };
  if (is_whole(whole)) return table_text(rows, whole, terminal);
  if (is_whole(cells))
    return with_second_lines(table_text(rows, cells, terminal), details, terminal);
  std::string text;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string line = named_text(cells[i]) + "; " + named_text(details[i]);
    text += painted(terminal, rows[i].ink, wrapped(line, terminal.width, 0));
  }
  return text;
}

traces::PageTable candidates_page_table(const std::string& title,
                                        const std::vector<CandidateRow>& rows,
                                        const planner::SearchResult& all, Nanoseconds baseline) {
  const Shown shown(all);
  traces::PageTable table{title, {}, {}};
  for (const CandidateRow& row : rows) {
    std::vector<TableCell> cells = cells_of(row, shown, baseline);
    for (TableCell& cell : long_cells_of(row, shown)) cells.push_back(std::move(cell));
    if (table.header.empty()) {
      for (const TableCell& cell : cells) table.header.push_back(cell.title);
    }
    table.rows.emplace_back();
    for (TableCell& cell : cells) table.rows.back().push_back(std::move(cell.text));
  }
  return table;
}

}  // namespace pipewright::tools
