#include "tools/output/comparison_text.hpp"

#include "core/base/units.hpp"
#include "tools/cli/figures.hpp"
#include "tools/cli/table.hpp"

namespace pipewright::tools {
namespace {

std::string duration(std::int64_t ns) { return format_duration(Nanoseconds(ns)); }

/// What took no time has no error in percent: a message that is handed over by its pointer.
std::string error_text(const traces::ComparedTimes& times) {
  if (times.measured_ns == 0 && times.predicted_ns > 0) return "-";
  return signed_percent_text(times.error_percent() / 100);
}

Json times_fields(const traces::ComparedTimes& times) {
  return {{"predicted_ns", times.predicted_ns},
          {"measured_ns", times.measured_ns},
          {"error_percent", times.error_percent()}};
}

Json ratio_fields(const traces::ComparedRatio& ratio) {
  return {{"predicted", ratio.predicted}, {"measured", ratio.measured}};
}

Json with_times(Json fields, const traces::ComparedTimes& times) {
  fields.update(times_fields(times));
  return fields;
}

}  // namespace

std::string comparison_text(const traces::Comparison& comparison, const Terminal& terminal) {
  using Align = Table::Align;
  Table table({{"what"},
               {"count", Align::Right},
               {"predicted", Align::Right},
               {"measured", Align::Right},
               {"error", Align::Right}});
  const auto row = [&](const std::string& what, const std::string& count,
                       const traces::ComparedTimes& times, Ink ink) {
    table.add(
        {what, count, duration(times.predicted_ns), duration(times.measured_ns), error_text(times)},
        ink);
  };
  row("step", "1", comparison.step, Ink::Bold);
  for (const auto& kind : comparison.kinds) {
    row("all " + kind.kind, std::to_string(kind.count), kind.sum, Ink::Plain);
  }
  for (const auto& rank : comparison.ranks) {
    row("rank " + std::to_string(rank.rank) + " busy", "", rank.busy, Ink::Plain);
  }
  std::string text = table.text(terminal);
  if (!comparison.worst.action.empty()) {
    text += wrapped("worst action " + comparison.worst.action + " on rank " +
                        std::to_string(comparison.worst.rank) + ": predicted " +
                        duration(comparison.worst.times.predicted_ns) + ", measured " +
                        duration(comparison.worst.times.measured_ns),
                    terminal.width, 0);
  }
  text += "mean error of an action " + percent_text(comparison.mean_absolute_error_percent / 100) +
          "\n";
  if (comparison.only_predicted + comparison.only_measured > 0) {
    text += wrapped(std::to_string(comparison.only_predicted) + " actions are only predicted, " +
                        std::to_string(comparison.only_measured) + " only measured",
                    terminal.width, 0);
  }
  return text;
}

std::string bubble_text(const traces::Comparison& comparison, const Terminal& terminal) {
  std::string text = "bubble predicted " + percent_text(comparison.bubble.predicted) +
                     ", measured " + percent_text(comparison.bubble.measured);
  if (comparison.ranks.size() > 1) {
    text += "; predicted minus measured by rank, in points:";
    for (const traces::ComparedRatio& rank : comparison.bubble_of)
      text += " " + signed_percent_text(rank.difference());
  }
  return wrapped(text, terminal.width, 0);
}

Json comparison_fields(const traces::Comparison& comparison) {
  Json kinds = Json::array(), ranks = Json::array();
  for (const auto& kind : comparison.kinds) {
    kinds.push_back(with_times({{"kind", kind.kind}, {"count", kind.count}}, kind.sum));
  }
  for (const auto& rank : comparison.ranks) {
    Json fields = with_times({{"rank", rank.rank}}, rank.busy);
    fields["bubble"] = ratio_fields(comparison.bubble_of[ranks.size()]);
    ranks.push_back(std::move(fields));
  }
  return {
      {"step", times_fields(comparison.step)},
      {"bubble", ratio_fields(comparison.bubble)},
      {"compared_actions", comparison.compared_actions},
      {"mean_absolute_error_percent", comparison.mean_absolute_error_percent},
      {"worst", with_times({{"action", comparison.worst.action}, {"rank", comparison.worst.rank}},
                           comparison.worst.times)},
      {"kinds", kinds},
      {"busy_of_rank", ranks},
      {"only_predicted", comparison.only_predicted},
      {"only_measured", comparison.only_measured}};
}

}  // namespace pipewright::tools
