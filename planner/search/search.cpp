#include "planner/search/search.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <queue>
#include <sstream>
#include <tuple>

#include "core/base/error.hpp"
#include "core/base/units.hpp"
#include "planner/base/parallel.hpp"
#include "planner/branches/evaluation.hpp"
#include "planner/branches/evaluation_key.hpp"
#include "planner/branches/known_peaks.hpp"
#include "planner/branches/space.hpp"
#include "planner/costs/cost_model.hpp"
#include "planner/plans/executable.hpp"
#include "planner/search/budget.hpp"
#include "planner/search/job_costs.hpp"
#include "planner/search/nearest_possible.hpp"
#include "planner/search/plan_of_candidate.hpp"
#include "planner/search/record.hpp"
#include "planner/search/winners.hpp"

namespace pipewright::planner {
namespace {

constexpr std::size_t kMeshes = 64;       // grown between two looks at the best so far
constexpr std::size_t kSimulations = 16;  // simulated between two such looks

/// Schedules that hide messages inside stages have bounds of their own.
enum class Tried : std::uint8_t { All, OneAtATime, Overlapping };

struct Mesh {
  ParallelSetup setup;
  std::int64_t least = 0;  // no step on it is shorter; with first_possible: nothing holds less
  Tried tried = Tried::All;
};

/// What a mesh is tried with.
enum class TrialKind { Schedules, Baseline };

/// One call of search(): what all configurations share.
class ScheduleSearch {
 public:
  ScheduleSearch(const Job& job, const Profile* profile, const SearchOptions& options)
      : job_(job),
        options_(options),
        costs_(costs_of_job(job, profile, options.cores)),
        choices_(job, costs_->is_estimated()),
        threads_(options.threads > 0 ? options.threads : cores_of_this_machine()),
        keep_(static_cast<std::size_t>(std::max(1, options.keep))),
        limit_(costs_->memory_limit()),
        goes_on_(options.journal != nullptr && !options.journal->known.empty()),
        budget_{static_cast<std::int64_t>(options.budget_seconds * 1e9)},
        begin_(std::chrono::steady_clock::now()) {
    if (options.progress) meanwhile_ = [this] { options_.progress(progress_); };
  }

  SearchResult run() {
    report("searching", {});
    SearchSpace space;
    while_reporting([&] { space = search_space(job_, *costs_); });
    result_.pruned = std::move(space.left_out.counts);
    result_.examples = std::move(space.left_out.examples);
    const std::vector<Mesh> meshes = sorted(space.meshes);
    const Bytes whole_limit = limit_;
    const bool synthesises = options_.synthesis && synthesises_winners(job_);
    // The winners must not depend on how many rows are shown.
    const std::size_t rows = synthesises ? std::max(keep_, kRowsForWinners) : keep_;
    std::vector<Evaluation> ranked =
        best_of(meshes, TrialKind::Schedules, rows, LeftOut::TooSlowForTable);
    if (!ranked.empty()) leader_ = ranked.front().candidate;
    if (!options_.first_possible || ranked.empty())
      add_baselines(meshes, sorted(space.only_to_compare), ranked);
    std::sort(ranked.begin(), ranked.end(), better);
    if (synthesises && result_.complete) {
      report("improving orders", ranked);
      result_.synthesis = synthesise_winners(
          {job_, *costs_, limit_, threads_, budget_.left_ns(), meanwhile_}, ranked);
      std::sort(ranked.begin(), ranked.end(), better);
    }
    if (ranked.size() > keep_) ranked.resize(keep_);
    for (Evaluation& outcome : ranked) result_.ranked.push_back(std::move(outcome.candidate));
    result_.configurations = result_.evaluated;
    for (const auto& [why, number] : result_.pruned)
      result_.configurations += why == LeftOut::Stuck ? 0 : number;  // these were simulated
    if (options_.front) add_front(meshes);
    if (result_.ranked.empty() && !costs_->chooses_recompute()) {
      result_.examples[LeftOut::OverMemory] =
          "training.recompute says what is computed again; \"recompute\": \"auto\" in strategy "
          "lets "
          "the search choose";
    }
    limit_ = whole_limit;
    if (!result_.ranked.empty() && !options_.first_possible) {
      report("making the plan", {});
      while_reporting([&] { result_.best = plan_of_candidate(job_, *costs_, result_, limit_); });
      check_prediction();
      result_.rank_memory = costs_->rank_memory(result_.ranked.front().parallel);
    }
    result_.elapsed_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                             std::chrono::steady_clock::now() - begin_)
                             .count();
    return std::move(result_);
  }

 private:
  std::vector<Mesh> sorted(const std::vector<ParallelSetup>& setups) {
    std::vector<Mesh> meshes;
    for (const ParallelSetup& setup : setups) {
      if (options_.only_executable && !missing_everywhere(job_, setup).empty()) {
        ++result_.pruned[LeftOut::NotExecutable];
      } else {
        meshes.push_back({setup, 0});
      }
    }
    budget_.spend(static_cast<std::int64_t>(meshes.size()), kMeshNs);
    for_each(meshes.size(), [&](std::size_t i) {
      const ParallelSetup& setup = meshes[i].setup;
      // Then the meshes that may hold least come first.
      meshes[i].least =
          options_.first_possible ? costs_->least_memory(setup).value : costs_->least_step(setup);
    });
    if (!options_.first_possible && choices_.may_overlap()) add_overlapping(meshes);
    std::stable_sort(meshes.begin(), meshes.end(),
                     [](const Mesh& a, const Mesh& b) { return a.least < b.least; });
    return meshes;
  }

  /// Each mesh in which something is sent inside stages twice, with the two bounds.
  void add_overlapping(std::vector<Mesh>& meshes) {
    const std::size_t all = meshes.size();
    for (std::size_t i = 0; i < all; ++i) {
      const ParallelSetup& setup = meshes[i].setup;
      if (setup.pipeline == 1 || setup.tensor * setup.context * setup.experts == 1) continue;
      meshes[i].tried = Tried::OneAtATime;
      meshes.push_back({setup, 0, Tried::Overlapping});
    }
    for_each(meshes.size() - all, [&](std::size_t i) {
      meshes[all + i].least = costs_->least_overlapped_step(meshes[all + i].setup);
    });
  }

  /// The best naive configuration on one rank, and on several; those the job allows as a plan
  /// also enter the ranking.
  void add_baselines(const std::vector<Mesh>& meshes, const std::vector<Mesh>& only_to_compare,
                     std::vector<Evaluation>& ranked) {
    std::vector<Mesh> one, several;
    for (const Mesh& mesh : meshes) {
      if (mesh.tried == Tried::Overlapping) continue;
      (mesh.setup.pipeline == 1 ? one : several).push_back(mesh);
    }
    const bool can_be_plan = choices_.allows_baseline();
    add_baseline(one.empty() ? only_to_compare : one, can_be_plan && !one.empty(), ranked);
    add_baseline(several, can_be_plan, ranked);
  }

  void add_baseline(const std::vector<Mesh>& meshes, bool can_be_plan,
                    std::vector<Evaluation>& ranked) {
    auto best = best_of(meshes, TrialKind::Baseline, 1, LeftOut::TooSlowForBaseline);
    if (best.empty()) return;
    result_.baselines.push_back(best.front().candidate);
    const bool is_there = std::any_of(ranked.begin(), ranked.end(), [&](const Evaluation& outcome) {
      return !better(outcome, best.front()) && !better(best.front(), outcome);
    });
    if (can_be_plan && !is_there) ranked.push_back(std::move(best.front()));
  }

  /// The fastest below each memory limit, which falls by a twentieth from one to the next.
  void add_front(const std::vector<Mesh>& meshes) {
    if (result_.ranked.empty()) return;
    const auto pruned = result_.pruned;  // the table's certificate stays as it is
    result_.front = {result_.ranked.front()};
    while (result_.complete) {
      limit_ = Bytes(result_.front.back().peak_bytes.value / 20 * 19);
      auto next = best_of(meshes, TrialKind::Schedules, 1, LeftOut::TooSlowForFront);
      if (limit_.value == 0 || next.empty()) break;
      result_.front.push_back(std::move(next.front().candidate));
    }
    result_.pruned = pruned;
  }

  const ShapeChoices::Shapes& shapes_on(const Mesh& mesh) {
    const ParallelSetup& setup = mesh.setup;
    const std::tuple key(setup.pipeline, setup.micro_batches, setup.data > 1, setup.tensor > 1,
                         setup.context > 1, mesh.tried);
    const auto [entry, is_new] = shapes_.try_emplace(key);
    if (is_new) {
      entry->second = choices_.on(setup);
      const bool overlapping = mesh.tried == Tried::Overlapping;
      if (mesh.tried != Tried::All) {
        std::erase_if(entry->second.list, [&](const Shape& shape) {
          return shape.schedule->traits.overlaps != overlapping;
        });
      }
      if (overlapping) entry->second.left_out = {};  // counted with the others
      const LeftOutExamples& examples = entry->second.left_out.examples;
      result_.examples.insert(examples.begin(), examples.end());
    }
    return entry->second;
  }

  /// Counts the configurations of the meshes from `from` on, which nobody has looked at.
  void leave_out(const std::vector<Mesh>& meshes, std::size_t from, TrialKind trial,
                 LeftOut reason) {
    for (std::size_t i = from; i < meshes.size(); ++i) {
      std::size_t count = choices_.baseline_on(meshes[i].setup) ? 1 : 0;
      if (trial == TrialKind::Schedules) {
        const ShapeChoices::Shapes& shapes = shapes_on(meshes[i]);
        count = shapes.list.size();
        add_counts(shapes.left_out.counts, result_.pruned);
      }
      if (count > 0)
        result_.pruned[reason] += cuts_tried(*costs_) * static_cast<std::int64_t>(count);
    }
  }

  std::vector<Branch> grow(const std::vector<Mesh>& meshes, std::size_t begin, std::size_t end,
                           TrialKind trial) {
    std::vector<std::vector<Shape>> shapes(end - begin);
    for (std::size_t i = begin; i < end; ++i) {
      const ParallelSetup& setup = meshes[i].setup;
      auto& own = shapes[i - begin];
      if (trial == TrialKind::Baseline) {
        if (const auto shape = choices_.baseline_on(setup)) own.push_back(*shape);
      } else {
        const ShapeChoices::Shapes& found = shapes_on(meshes[i]);
        own = found.list;
        add_counts(found.left_out.counts, result_.pruned);
      }
    }
    for (const auto& own : shapes) budget_.spend(static_cast<std::int64_t>(own.size()), kShapeNs);
    std::vector<Branches> grown(end - begin);
    for_each(grown.size(), [&](std::size_t i) {
      if (!shapes[i].empty())
        grown[i] = branches_of(*costs_, meshes[begin + i].setup, shapes[i], limit_);
    });
    std::vector<Branch> branches;
    for (Branches& each : grown) {
      add_counts(each.pruned, result_.pruned);
      for (Branch& branch : each.open) branches.push_back(std::move(branch));
    }
    return branches;
  }

  /// Branches wait in the order of their bounds, equal ones in the order in which they grew.
  struct Waiting {
    std::int64_t bound = 0;
    std::size_t index = 0;
    bool operator>(const Waiting& other) const {
      return std::tie(bound, index) > std::tie(other.bound, other.index);
    }
  };
  using Queue = std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>>;

  /// The `count` best, best first; `too_slow` is said of what cannot be among them. What has the
  /// least bound is always next, meshes before their branches. Batches have fixed sizes: what is
  /// skipped depends on the batches before, not on which thread was faster.
  std::vector<Evaluation> best_of(const std::vector<Mesh>& meshes, TrialKind trial,
                                  std::size_t count, LeftOut too_slow) {
    std::vector<Branch> branches;
    Queue waiting;
    std::vector<Evaluation> best;
    std::size_t next = 0;  // of the meshes
    ToBeat beat{.why = too_slow};
    const auto is_beaten = [&](std::int64_t bound) {
      return (options_.first_possible && !best.empty()) || bound > beat.step;
    };
    while (next < meshes.size() || !waiting.empty()) {
      const bool grows = next < meshes.size() &&
                         (waiting.empty() ||
                          (!options_.first_possible && meshes[next].least <= waiting.top().bound));
      if (is_beaten(grows ? meshes[next].least : waiting.top().bound) || is_over_budget()) break;
      if (grows) {
        const std::size_t end = std::min(next + kMeshes, meshes.size());
        for (Branch& branch : grow(meshes, next, end, trial)) {
          waiting.push({branch.bound, branches.size()});
          branches.push_back(std::move(branch));
        }
        next = end;
      } else {
        simulate_some(branches, waiting, is_beaten, beat, best);
        if (best.size() > count) best.resize(count);
        if (best.size() == count && !options_.exhaustive)
          beat.step = best.back().candidate.step.value;
        report("searching", best);
      }
    }
    const LeftOut reason = result_.complete ? too_slow : LeftOut::OverBudget;
    if (!waiting.empty()) result_.pruned[reason] += static_cast<std::int64_t>(waiting.size());
    leave_out(meshes, next, trial, reason);
    return best;
  }

  template <class IsBeaten>
  void simulate_some(const std::vector<Branch>& branches, Queue& waiting, const IsBeaten& is_beaten,
                     const ToBeat& beat, std::vector<Evaluation>& best) {
    std::vector<std::size_t> taken;
    while (!waiting.empty() && taken.size() < kSimulations && !is_beaten(waiting.top().bound)) {
      taken.push_back(waiting.top().index);
      waiting.pop();
    }
    std::vector<const Branch*> batch;
    for (const std::size_t index : taken) batch.push_back(&branches[index]);
    std::vector<Evaluation> outcomes = evaluate_all(batch, beat);
    for (Evaluation& outcome : outcomes) {
      if (outcome.simulated) ++result_.evaluated;
      if (outcome.pruned) {
        ++result_.pruned[*outcome.pruned];
      } else {
        best.push_back(std::move(outcome));
      }
    }
    std::sort(best.begin(), best.end(), better);
  }

  /// In the order of the batch. What the journal has is read from it, the rest is simulated, each
  /// process a part of it.
  std::vector<Evaluation> evaluate_all(const std::vector<const Branch*>& batch,
                                       const ToBeat& beat) {
    std::vector<Evaluation> outcomes(batch.size());
    std::vector<Journaled> journaled = look_up(batch, beat);
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (journaled[i].outcome) {
        outcomes[i] = *std::move(journaled[i].outcome);
      } else {
        open.push_back(i);
      }
    }
    for (const std::size_t i : open) budget_.spend(1, simulation_ns(*batch[i]));
    const auto own = static_cast<std::size_t>(options_.share.process);
    const auto step = static_cast<std::size_t>(options_.share.processes);
    std::vector<std::size_t> mine;
    for (std::size_t k = own; k < open.size(); k += step) mine.push_back(open[k]);
    for_each(mine.size(), [&](std::size_t k) {
      const std::size_t i = mine[k];
      if (!journaled[i].chosen)
        journaled[i].chosen = choose(*costs_, *batch[i], limit_, known_peaks_, beat);
      outcomes[i] = evaluate(job_, *costs_, *std::move(journaled[i].chosen));
    });
    if (step > 1) exchange(batch, open, mine, outcomes);
    for (const std::size_t i : open) {
      if (!journaled[i].key.empty() && options_.journal->add)
        options_.journal->add(journaled[i].key, record_of(outcomes[i], limit_));
    }
    return outcomes;
  }

  /// What the journal says of a branch.
  struct Journaled {
    std::optional<ChosenBranch> chosen;
    std::string key;  // empty: there is no journal, or it is left out before it is simulated
    std::optional<Evaluation> outcome;
  };

  /// Of each branch; without a journal nothing.
  std::vector<Journaled> look_up(const std::vector<const Branch*>& batch, const ToBeat& beat) {
    std::vector<Journaled> found(batch.size());
    if (options_.journal == nullptr) return found;
    for_each(found.size(), [&](std::size_t i) {
      Journaled& one = found[i];
      one.chosen = choose(*costs_, *batch[i], limit_, known_peaks_, beat);
      if (one.chosen->left_out) {
        // What a search that goes on has looked at before is not taken off its budget again.
        if (goes_on_) one.outcome = evaluate(job_, *costs_, *std::move(one.chosen));
        return;
      }
      one.key = key_of(one.chosen->configuration, evaluation_key(job_, *costs_, *one.chosen));
      const auto record = options_.journal->known.find(one.key);
      if (record != options_.journal->known.end())
        one.outcome = evaluation_of(record->second, *batch[i], limit_);
    });
    return found;
  }

  /// Sends a line for each evaluation that this process made, and takes those of the others.
  void exchange(const std::vector<const Branch*>& batch, const std::vector<std::size_t>& open,
                const std::vector<std::size_t>& mine, std::vector<Evaluation>& outcomes) {
    std::string text;
    for (const std::size_t i : mine) text += record_of(outcomes[i], limit_) + "\n";
    const std::vector<std::string> texts = options_.share.exchange(text);
    for (std::size_t process = 0; process < texts.size(); ++process) {
      std::istringstream lines(texts[process]);
      std::string line;
      for (std::size_t k = process; k < open.size() && std::getline(lines, line); k += texts.size())
        outcomes[open[k]] = evaluation_of(line, *batch[open[k]], limit_).value();
    }
  }

  /// The plan was simulated once more: what a journal said of it is then known to be true.
  void check_prediction() const {
    const Nanoseconds planned = result_.best->predicted.step, found = result_.ranked.front().step;
    if (planned == found) return;
    if (options_.journal != nullptr && !options_.journal->known.empty()) {
      throw InputError("the search journal says " + format_duration(found) +
                       " of the best configuration, which takes " + format_duration(planned) +
                       "; it is of another state of pipewright, or was altered: begin a new one");
    }
    throw_bug(__FILE__, __LINE__, "the plan's prediction differs from the search's");
  }

  static std::int64_t simulation_ns(const Branch& branch) {
    const auto& [schedule, parallel, even_layers, rank_evened] = branch.configuration;
    const auto actions =
        3 * static_cast<std::int64_t>(branch.stages->size()) * parallel.micro_batches;
    return actions * kInstructionNs * (schedule->traits.cost_driven ? kTriesByCosts : 1);
  }

  bool is_over_budget() {
    if (budget_.is_spent()) result_.complete = false;
    return !result_.complete;
  }

  void report(std::string_view phase, const std::vector<Evaluation>& best) {
    if (!options_.progress) return;
    if (!leader_ && !best.empty()) shown_ = best.front().candidate;
    const std::optional<Candidate>& shown = leader_ ? leader_ : shown_;
    progress_ = {phase, result_.evaluated, sum_of(result_.pruned), shown ? &*shown : nullptr};
    options_.progress(progress_);
  }

  template <class Work>
  void for_each(std::size_t count, const Work& work) const {
    for_each_index(count, threads_, work, meanwhile_);
  }
  /// For what only one thread can do.
  template <class Work>
  void while_reporting(const Work& work) const {
    for_each(1, [&](std::size_t) { work(); });
  }

  const Job& job_;
  const SearchOptions& options_;
  const std::unique_ptr<ConfigurationCosts> costs_;
  const ShapeChoices choices_;
  const int threads_;
  const std::size_t keep_;
  Bytes limit_;
  const bool goes_on_;  // the journal was not empty
  KnownPeaks known_peaks_;
  SearchBudget budget_;
  const std::chrono::steady_clock::time_point begin_;
  std::map<std::tuple<int, int, bool, bool, bool, Tried>, ShapeChoices::Shapes> shapes_;
  std::optional<Candidate> leader_;  // of the table, once that is full: what follows compares
  std::optional<Candidate> shown_;   // the best before
  SearchProgress progress_;          // as last reported
  Meanwhile meanwhile_;              // reports it again; empty: nobody asks
  SearchResult result_;
};

}  // namespace

namespace {

SearchResult search_open_or_executable(const Job& job, const Profile* profile,
                                       const SearchOptions& options) {
  if (!options.only_executable) return ScheduleSearch(job, profile, options).run();
  SearchOptions open = options;
  open.only_executable = false;
  SearchResult all = ScheduleSearch(job, profile, open).run();
  if (all.ranked.empty() || missing_everywhere(job, all.ranked.front().parallel).empty())
    return all;
  SearchResult result = ScheduleSearch(job, profile, options).run();
  result.elapsed_ns += all.elapsed_ns;
  result.not_executable = all.ranked.front();
  if (result.best) {
    result.best->tuner.reasons.push_back(
        "Faster, but not in the executor: " + describe(all.ranked.front()) + ", " +
        format_duration(all.ranked.front().step) + " a step; tuner_run_mode asks for a plan that " +
        "can be run.");
  }
  return result;
}

}  // namespace

SearchResult search(const Job& job, const Profile* profile, const SearchOptions& options) {
  SearchResult result = search_open_or_executable(job, profile, options);
  if (result.ranked.empty() && options.nearest && !options.first_possible)
    result.nearest = nearest_possible(job, profile, options, result).sentences;
  return result;
}

}  // namespace pipewright::planner
