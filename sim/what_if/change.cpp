#include "sim/what_if/change.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "core/base/comma_list.hpp"
#include "core/base/error.hpp"
#include "core/base/suggest.hpp"
#include "core/base/trimmed.hpp"
#include "core/base/words.hpp"
#include "core/costs/action_times.hpp"

namespace pipewright::sim {
namespace {

constexpr int kPlaces = 6;  // of a factor
constexpr std::int64_t kMostFactor = 1000;
constexpr int kMostNumber = 1'000'000'000;  // of a rank, stage or micro-batch

constexpr std::array kKinds = {ActionKind::F, ActionKind::I, ActionKind::W, ActionKind::B,
                               ActionKind::Opt};

struct Name {
  std::string_view text;
  WhatOf of;
  bool numbered;  // ":" and which
};
constexpr std::array kNames = {
    Name{"pairs", WhatOf::Pairs, false},
    Name{"messages", WhatOf::Messages, false},
    Name{"collectives", WhatOf::Collectives, false},
    Name{"stages", WhatOf::Stages, false},
    Name{"micro-batches", WhatOf::MicroBatches, false},
    Name{"rank", WhatOf::Rank, true},
    Name{"stage", WhatOf::Stage, true},
    Name{"micro-batch", WhatOf::MicroBatch, true},
    Name{"action", WhatOf::Action, true},
    Name{"link", WhatOf::Link, true},
};

/// Of anything but a Kind, which has an action's name.
const Name& name_of(WhatOf of) {
  return *std::find_if(kNames.begin(), kNames.end(), [of](const Name& n) { return n.of == of; });
}

template <class Number>
std::optional<Number> whole_number(std::string_view text, Number most) {
  const auto number = number_of_word<Number>(text);
  return number && *number >= 0 && *number <= most ? number : std::nullopt;
}

/// "0.9", "2", ".5"
std::optional<Factor> factor_of(std::string_view text) {
  const auto point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  std::string places(point == text.npos ? "" : text.substr(point + 1));
  if (whole.empty() && places.empty()) return std::nullopt;
  if (places.size() > kPlaces || (point != text.npos && places.empty())) return std::nullopt;
  places.resize(kPlaces, '0');
  const auto above = whole.empty() ? 0 : whole_number<std::int64_t>(whole, kMostFactor);
  const auto below = whole_number<std::int64_t>(places, Factor::kOne);
  if (!above || !below) return std::nullopt;
  const Factor factor{*above * Factor::kOne + *below};
  return factor.millionths <= kMostFactor * Factor::kOne ? std::optional(factor) : std::nullopt;
}

/// "0.9", without zeros at its end.
std::string decimal(std::int64_t millionths) {
  std::string text = std::to_string(millionths / Factor::kOne);
  std::string places = std::to_string(Factor::kOne + millionths % Factor::kOne).substr(1);
  while (!places.empty() && places.back() == '0') places.pop_back();
  return places.empty() ? text : text + "." + places;
}

/// Reads one change; complaints begin with it.
class Reader {
 public:
  Reader(std::string_view text, const std::string& what) : text_(text), what_(what) {}

  Change read() {
    const auto equals = text_.rfind('=');
    if (equals == text_.npos) fail("expected TARGET=FACTOR, such as rank:3=0.9");
    read_target(trimmed(text_.substr(0, equals)));
    read_value(trimmed(text_.substr(equals + 1)));
    return change_;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw InputError(what_ + " \"" + std::string(text_) + "\": " + why);
  }

  void read_target(std::string_view target) {
    for (const ActionKind kind : kKinds) {
      if (target != pipewright::to_string(kind)) continue;
      change_.kind = kind;
      return;
    }
    const auto colon = target.find(':');
    const std::string_view word = target.substr(0, colon);
    const auto name = std::find_if(kNames.begin(), kNames.end(),
                                   [word](const Name& each) { return each.text == word; });
    if (name == kNames.end() || name->numbered == (colon == target.npos)) fail_target(word);
    change_.of = name->of;
    if (name->numbered) read_which(target.substr(colon + 1));
  }

  [[noreturn]] void fail_target(std::string_view word) const {
    std::vector<std::string_view> names;
    for (const ActionKind kind : kKinds) names.push_back(pipewright::to_string(kind));
    for (const Name& name : kNames) names.push_back(name.text);
    fail(
        "expected F, I, W, B, OPT, pairs, messages, collectives, rank:R, stage:S, micro-batch:M, "
        "action:2F5, link:0-1, stages or micro-batches before the =" +
        did_you_mean(word, names));
  }

  void read_which(std::string_view which) {
    if (change_.of == WhatOf::Action) {
      const std::optional<Cell> cell = parse_timed_action(which);
      if (!cell || cell->action.kind == ActionKind::Opt)
        fail("expected a computation behind action:, such as 2F5 or (0F7;2B3)OVERLAP_F_B");
      change_.action = *cell;
      return;
    }
    if (change_.of == WhatOf::Link) {
      const auto dash = which.find('-');
      if (dash == which.npos) fail("expected two ranks behind link:, such as link:0-1");
      change_.number = number(which.substr(0, dash));
      change_.to = number(which.substr(dash + 1));
      return;
    }
    change_.number = number(which);
  }

  int number(std::string_view text) const {
    const auto found = whole_number<int>(trimmed(text), kMostNumber);
    if (!found) fail("expected a number behind " + std::string(name_of(change_.of).text) + ":");
    return *found;
  }

  void read_value(std::string_view value) {
    const bool all = change_.of == WhatOf::Stages || change_.of == WhatOf::MicroBatches;
    if (all) {
      if (value != "mean") fail("expected mean behind the =");
      change_.becomes = Becomes::Mean;
      return;
    }
    if (change_.of == WhatOf::Rank && value == "median") {
      change_.becomes = Becomes::Median;
      return;
    }
    const auto factor = factor_of(value);
    if (!factor) {
      fail(std::string("expected a factor from 0 to 1000 with at most six decimal places") +
           (change_.of == WhatOf::Rank ? ", or median," : "") + " behind the =");
    }
    change_.factor = *factor;
  }

  std::string_view text_;
  const std::string& what_;
  Change change_;
};

std::string which_of(const Change& change, std::string_view between) {
  if (change.of == WhatOf::Action) return pipewright::to_string(change.action);
  std::string text = std::to_string(change.number);
  if (change.of == WhatOf::Link) text += std::string(between) + std::to_string(change.to);
  return text;
}

/// "F", "messages", "link:0-1", with what stands before its number and between two.
std::string target_text(const Change& change, std::string_view before, std::string_view between) {
  if (change.of == WhatOf::Kind) return std::string(pipewright::to_string(change.kind));
  const Name& name = name_of(change.of);
  std::string text(name.text);
  return name.numbered ? text.append(before) + which_of(change, between) : text;
}

std::string in_words(const Change& change) {
  if (change.of == WhatOf::Stages) return "stages balanced";
  if (change.of == WhatOf::MicroBatches) return "micro-batches alike";
  const std::string target = target_text(change, " ", " to ");
  if (change.becomes == Becomes::Median) return target + ": as fast as the median";
  const std::int64_t faster = Factor::kOne - change.factor.millionths;
  if (change.factor.millionths == 0) return target + ": free";
  if (faster == 0) return target + ": as it is";
  return target + ": " + decimal((faster > 0 ? faster : -faster) * 100) +
         (faster > 0 ? " % faster" : " % slower");
}

template <class Text>
std::string joined(const std::vector<Change>& changes, std::string_view between, Text text) {
  std::string all;
  for (const Change& change : changes)
    all += (all.empty() ? "" : std::string(between)) + text(change);
  return all;
}

}  // namespace

std::vector<Change> parse_changes(std::string_view text, const std::string& what) {
  std::vector<Change> changes;
  for (const std::string& part : split_at_commas(text))
    changes.push_back(Reader(trimmed(part), what).read());
  return changes;
}

std::string to_string(const Change& change) {
  const std::string text = target_text(change, ":", "-");
  if (change.becomes == Becomes::Mean) return text + "=mean";
  if (change.becomes == Becomes::Median) return text + "=median";
  return text + "=" + decimal(change.factor.millionths);
}

std::string to_string(const std::vector<Change>& changes) {
  return joined(changes, ",", [](const Change& change) { return to_string(change); });
}

std::string in_words(const std::vector<Change>& changes) {
  return joined(changes, ", ", [](const Change& change) { return in_words(change); });
}

}  // namespace pipewright::sim
