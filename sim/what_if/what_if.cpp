#include "sim/what_if/what_if.hpp"

#include <algorithm>
#include <iterator>
#include <set>

#include "core/base/error.hpp"
#include "sim/what_if/path_shares.hpp"

namespace pipewright::sim {
namespace {

constexpr std::size_t kShown = 3;      // of ranks, of links, …
constexpr std::size_t kMostTried = 8;  // of which these are the best

class WhatIfs {
 public:
  WhatIfs(const TimedProgram& program, const Timeline& as_it_is)
      : program_(program),
        makespan_ns_(as_it_is.makespan_ns),
        path_(traces::critical_path(program.program(), as_it_is)) {}

  WhatIf answer(std::vector<Change> changes) const {
    WhatIf what_if{.changes = std::move(changes)};
    Times times = program_.times();
    for (const Change& change : what_if.changes) program_.apply(change, times);
    what_if.path_ns = time_on_path(what_if.changes, program_, path_);
    const Result result = program_.simulate(times);
    if (!result.finished) return what_if;
    what_if.makespan_ns = result.timeline.makespan_ns;
    what_if.gain_ns = makespan_ns_ - result.timeline.makespan_ns;
    return what_if;
  }

  std::vector<WhatIf> run() {
    add_kinds();
    add_best(WhatOf::Rank);
    if (ranks_are_not_stages()) add_best(WhatOf::Stage);
    const Change alike{.of = WhatOf::MicroBatches, .becomes = Becomes::Mean};
    if (changes_something(alike)) add_best(WhatOf::MicroBatch);
    add_best(WhatOf::Action);
    add_best(WhatOf::Link);
    add(Change{.of = WhatOf::Messages, .factor = {0}});
    add({.of = WhatOf::Stages, .becomes = Becomes::Mean});
    add(alike);
    if (const auto rank = straggler())
      add({.of = WhatOf::Rank, .becomes = Becomes::Median, .number = *rank});
    std::stable_sort(found_.begin(), found_.end(), [](const WhatIf& a, const WhatIf& b) {
      return a.gain_ns != b.gain_ns ? a.gain_ns > b.gain_ns : a.path_ns > b.path_ns;
    });
    return std::move(found_);
  }

 private:
  bool changes_something(const Change& change) const {
    if (!program_.fault_of(change).empty()) return false;
    if (change.of == WhatOf::Messages) return program_.messages_take_time();
    Times times = program_.times();
    program_.apply(change, times);
    return times != program_.times();
  }

  void add(const Change& change) {
    if (changes_something(change)) found_.push_back(answer({change}));
  }

  void add_kinds() {
    for (const ActionKind kind :
         {ActionKind::F, ActionKind::I, ActionKind::W, ActionKind::B, ActionKind::Opt})
      add({.factor = kTenthFaster, .kind = kind});
    for (const WhatOf of : {WhatOf::Pairs, WhatOf::Messages, WhatOf::Collectives})
      add({.of = of, .factor = kTenthFaster});
  }

  /// Those with the largest gain. A gain is no larger than the change of what is on the path, so
  /// what is less on it than the third best gains is not tried. (Where a policy lets faster actions
  /// make a step longer, this bound is a guess.)
  void add_best(WhatOf of) {
    std::vector<WhatIf> best;
    const auto by_gain = [](const WhatIf& a, const WhatIf& b) { return a.gain_ns > b.gain_ns; };
    std::size_t tried = 0;
    for (const OnPath& on_it : on_path(of, program_, path_)) {
      const bool enough = best.size() >= kShown && best[kShown - 1].gain_ns >= on_it.shorter_ns;
      if (enough || tried == kMostTried) break;
      ++tried;
      best.push_back(answer({on_it.change}));
      std::stable_sort(best.begin(), best.end(), by_gain);
    }
    best.resize(std::min(best.size(), kShown));
    found_.insert(found_.end(), best.begin(), best.end());
  }

  bool ranks_are_not_stages() const {
    std::set<std::pair<int, int>> together;
    std::set<int> ranks, stages;
    for (const TimedAction& action : program_.actions()) {
      if (!has_stage(action.cell.action.kind)) continue;
      together.emplace(action.rank.value, action.cell.action.stage.value);
      ranks.insert(action.rank.value);
      stages.insert(action.cell.action.stage.value);
    }
    return together.size() > ranks.size() || together.size() > stages.size();
  }

  /// The rank whose actions take longest beyond the median elsewhere, all together.
  std::optional<int> straggler() const {
    const auto& ns = program_.times().actions_ns;
    const std::vector<traces::PlacedTime> placed = program_.placed_times(ns);
    const traces::MedianElsewhere medians(placed);
    std::vector<std::int64_t> excess(static_cast<std::size_t>(program_.program().ranks()));
    for (std::size_t a = 0; a < ns.size(); ++a) {
      if (const auto median = medians.of(a))
        excess[static_cast<std::size_t>(program_.actions()[a].rank.value)] +=
            std::max<std::int64_t>(0, ns[a] - *median);
    }
    const auto most = std::max_element(excess.begin(), excess.end());
    if (most == excess.end() || *most == 0) return std::nullopt;
    return static_cast<int>(most - excess.begin());
  }

  const TimedProgram& program_;
  const std::int64_t makespan_ns_;
  const std::vector<traces::PathStep> path_;
  std::vector<WhatIf> found_;
};

}  // namespace

std::vector<Change> changes_for(const TimedProgram& program, std::string_view text,
                                const std::string& what) {
  std::vector<Change> changes = parse_changes(text, what);
  for (const Change& change : changes) {
    if (const std::string why = program.fault_of(change); !why.empty())
      throw InputError(what + " \"" + to_string(change) + "\": " + why);
  }
  return changes;
}

WhatIf what_if(const TimedProgram& program, const Timeline& as_it_is, std::vector<Change> changes) {
  return WhatIfs(program, as_it_is).answer(std::move(changes));
}

std::vector<WhatIf> what_ifs(const TimedProgram& program, const Timeline& as_it_is) {
  return WhatIfs(program, as_it_is).run();
}

std::vector<WhatIf> answers(const TimedProgram& program, const Timeline& as_it_is,
                            std::vector<std::vector<Change>> asked, bool what_ifs_too) {
  WhatIfs questions(program, as_it_is);
  std::vector<WhatIf> found;
  for (std::vector<Change>& changes : asked) found.push_back(questions.answer(std::move(changes)));
  if (what_ifs_too) std::ranges::move(questions.run(), std::back_inserter(found));
  return found;
}

}  // namespace pipewright::sim
