#include "tools/running/drawn_rows.hpp"

#include "core/base/error.hpp"
#include "planner/search/search_json.hpp"

namespace pipewright::tools {
namespace {

constexpr std::int64_t kMostDraws = 100'000;

std::string row_text(std::size_t row) { return "row " + std::to_string(row + 1); }

}  // namespace

Flag drawn_rows_flag() {
  return {.group = "Search",
          .name = "--samples",
          .argument = "N",
          .help =
              "choose among the first rows, within 10 % of the best, by N steps of each whose "
              "durations are drawn from the profile's spread: the least on average"};
}

std::optional<planner::DrawnChoice> choose_if_asked(const Arguments& arguments, const Job& job,
                                                    const std::optional<Profile>& profile,
                                                    int cores, planner::SearchResult& result) {
  const auto samples = arguments.integer("--samples", 1, kMostDraws);
  if (!samples) return std::nullopt;
  if (!profile)
    throw InputError("--samples draws from the spread of measurements; give them with --profile");
  return planner::choose_by_draws(job, *profile, cores, *samples, result);
}

void add_drawn_rows(const planner::DrawnChoice& choice, const planner::SearchResult& result,
                    Json& fields) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < choice.rows.size(); ++i) {
    const planner::DrawnRow& one = choice.rows[i];
    rows.push_back(
        {{"row", one.row + 1}, {"steps", to_json(one.steps)}, {"chosen", i == choice.best}});
  }
  if (!choice.rows.empty())
    fields["best"] = planner::candidate_fields(result.ranked[choice.rows[choice.best].row]);
  fields["drawn_rows"] = std::move(rows);
}

std::string drawn_rows_text(const planner::DrawnChoice& choice) {
  if (choice.rows.empty()) return "No row was drawn: ranks of GPUs that divide layers are not.";
  constexpr double kMostTimes = 0.9;
  std::string text = "Drawn " + std::to_string(choice.rows.front().steps.count) + " times each: ";
  for (const planner::DrawnRow& one : choice.rows) {
    const auto most = static_cast<std::int64_t>(one.steps.at(kMostTimes));
    text += row_text(one.row) + " " + format_duration(one.steps.mean) + " on average (90 % below " +
            format_duration(Nanoseconds(most)) + "), ";
  }
  text.resize(text.size() - 2);
  return text + "; " + row_text(choice.rows[choice.best].row) + " is chosen.";
}

}  // namespace pipewright::tools
