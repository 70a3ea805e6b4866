#include "planner/search/explanation.hpp"

#include <algorithm>

#include "planner/base/number_text.hpp"
#include "planner/branches/evaluation.hpp"
#include "planner/branches/named_configuration.hpp"
#include "planner/configurations/rank_limits.hpp"
#include "planner/plans/executable.hpp"
#include "planner/search/job_costs.hpp"
#include "planner/search/measured_fit.hpp"
#include "planner/search/nearest_possible.hpp"
#include "planner/search/requested_kind.hpp"

namespace pipewright::planner {
namespace {

constexpr double kKindSeconds = 20;  // of counted work, to find the best of a kind

std::string percent_more(Nanoseconds step, Nanoseconds best) {
  return percent(static_cast<double>(step.value) / static_cast<double>(best.value) - 1);
}

bool is_over(Bytes peak, Bytes limit) { return limit.value > 0 && peak > limit; }

/// What the explanation of one question has at hand.
class Question {
 public:
  Question(const Job& job, const Profile* profile, const SearchOptions& options,
           const SearchResult& found, const std::string& text)
      : job_(job),
        profile_(profile),
        options_(options),
        found_(found),
        text_(text),
        costs_(costs_of_job(job, profile, options.cores)) {
    options_.keep = 1;
    options_.synthesis = options_.front = options_.only_executable = false;
    options_.budget_seconds = kKindSeconds;
    options_.share = {};
    options_.journal = nullptr;
  }

  Explanation answer() {
    if (const auto missing = unknown_here()) return refused(*missing);
    std::optional<Candidate> best = best_of_kind();
    if (!best) return answer_without_any();
    // An order of tune's own was simulated when it was found.
    if (best->synthesised) return answer_row(*best, {}, std::nullopt);
    const NamedConfiguration asked = read_configuration(text_, job_, &*best);
    if (const auto rule = broken_rule(asked, job_, *costs_)) return refused(*rule);
    return answer_configuration(asked.configuration);
  }

 private:
  /// Degrees that a job planned layer by layer does not have.
  std::optional<std::string> unknown_here() const {
    if (costs_->is_estimated()) return std::nullopt;
    const ParallelSetup asked = read_configuration(text_, job_, nullptr).configuration.parallel;
    for (const auto& [name, degree] :
         {std::pair("tp", asked.tensor), std::pair("cp", asked.context),
          std::pair("ep", asked.experts)}) {
      if (degree > 1)
        return std::string(name) + "=" + std::to_string(degree) +
               " belongs to jobs that are estimated: this one is planned layer by layer, with "
               "pipeline and data parallelism only.";
    }
    return std::nullopt;
  }

  Explanation refused(const std::string& why) const {
    return {{"No: nothing with " + text_ + " is possible.", why}, std::nullopt, false};
  }

  /// A row of the table where there is one, for these are the best of all; else searched for.
  std::optional<Candidate> best_of_kind() const {
    if (found_.complete) {
      for (const Candidate& row : found_.ranked) {
        if (is_of_kind(text_, job_, row)) return row;
      }
    }
    SearchResult kind = search(job_of_kind(text_, job_), profile_, without_nearest());
    if (kind.ranked.empty()) return std::nullopt;
    return std::move(kind.ranked.front());
  }

  SearchOptions without_nearest() const {
    SearchOptions options = options_;
    options.nearest = false;
    return options;
  }

  /// The nearest reason: a rule about what was asked, about its schedule on the best mesh, or
  /// memory.
  Explanation answer_without_any() const {
    if (const auto rule = rule_of_degrees()) return refused(*rule);
    const Job on_mesh = job_of_mesh(text_, job_);
    const SearchResult mesh = search(on_mesh, profile_, without_nearest());
    if (!mesh.ranked.empty()) {
      const NamedConfiguration asked = read_configuration(text_, job_, &mesh.ranked.front());
      if (const auto rule = broken_rule(asked, job_, *costs_)) return refused(*rule);
    }
    const Job kind = job_of_kind(text_, job_);
    const SearchResult nothing = search(kind, profile_, without_nearest());
    const NearestPossible nearest = nearest_possible(kind, profile_, options_, nothing);
    if (nearest.candidate) {
      const NamedConfiguration asked = read_configuration(text_, job_, &*nearest.candidate);
      if (!broken_rule(asked, job_, *costs_)) return answer_configuration(asked.configuration);
    }
    Explanation explanation = refused(nearest.sentences.front());
    explanation.sentences.insert(explanation.sentences.end(), nearest.sentences.begin() + 1,
                                 nearest.sentences.end());
    return explanation;
  }

  /// What devices, batch and degrees forbid, everything else being 1.
  std::optional<std::string> rule_of_degrees() const {
    const NamedConfiguration asked = read_configuration(text_, job_, nullptr);
    const ParallelSetup& parallel = asked.configuration.parallel;
    if (!asked.too_many_devices.empty()) return asked.too_many_devices;
    ParallelSetup mesh = parallel;
    mesh.chunks = 1;
    if (const auto reason = costs_->refusal(mesh))
      return "A rule forbids it: " + reason->sentence + ".";
    const RequestedValues values = read_requested(text_);
    if (costs_->is_estimated() && values.count("dp") == 0) {
      if (const auto left = does_not_divide(parallel)) return left;
    }
    const bool says_batch = values.count("dp") + values.count("micro_batches") != 0;
    if (asked.other_batch.empty() || !says_batch) return std::nullopt;
    return asked.other_batch;
  }

  /// Where the text names no dp, the other degrees have to divide the devices.
  std::optional<std::string> does_not_divide(const ParallelSetup& parallel) const {
    const int devices = job_.cluster.devices();
    std::string product;
    int of_replica = 1;
    for (const auto& [name, degree] :
         {std::pair("tp", parallel.tensor), std::pair("pp", parallel.pipeline),
          std::pair("cp", parallel.context)}) {
      if (degree == 1) continue;
      product += (product.empty() ? "" : " * ") + std::string(name) + "=" + std::to_string(degree);
      of_replica *= degree;
    }
    if (devices % of_replica == 0) return std::nullopt;
    const int replicas = devices / of_replica, used = replicas * of_replica;
    int lower = of_replica, higher = of_replica;
    while (devices % lower != 0) --lower;
    while (devices % higher != 0) ++higher;
    return "It says " + product + ", which does not divide the " + std::to_string(devices) +
           " devices: " + std::to_string(replicas) + " replicas take " + std::to_string(used) +
           " of them and leave " + std::to_string(devices - used) +
           " idle. Add dp=" + std::to_string(replicas) + " to ask for that, or take " +
           std::to_string(lower) + " or " + std::to_string(higher) + ", which divide the devices.";
  }

  Explanation answer_configuration(const Configuration& configuration) const {
    const Branch branch = branch_of(configuration, *costs_);
    const Evaluation evaluation = evaluate_any(job_, *costs_, configuration);
    if (evaluation.pruned)
      return refused("The best of it, " + describe(unpriced(configuration)) + ", " +
                     sentence_of(*evaluation.pruned) + ".");
    return answer_row(evaluation.candidate, evaluation.rank_peaks, Nanoseconds(branch.bound));
  }

  Explanation answer_row(const Candidate& row, const std::vector<Bytes>& rank_peaks,
                         std::optional<Nanoseconds> bound) const {
    Explanation explanation;
    explanation.candidate = row;
    std::vector<std::string>& sentences = explanation.sentences;
    sentences.emplace_back();  // the answer, once it is known
    if (row.parallel.recompute.by_stage)
      sentences.push_back(
          "Stages compute again: " + describe_recompute(row.parallel.recompute.of_stage) + ".");
    sentences.push_back(
        "Simulated: " + format_duration(row.step) + " a step, " + percent(row.bubble_ratio) +
        " of the ranks' time in bubbles" +
        (bound ? "; no order of these stages ends before " + format_duration(*bound) + "." : "."));
    judge_memory(row, rank_peaks, explanation);
    sentences.front() = verdict(row, explanation.is_possible);
    const auto place =
        std::find_if(found_.ranked.begin(), found_.ranked.end(), [&](const Candidate& other) {
          return describe(other) == describe(row) && other.partition == row.partition;
        });
    if (place != found_.ranked.end())
      sentences.push_back("It is number " + std::to_string(place - found_.ranked.begin() + 1) +
                          " of the table.");
    for (const std::string& what : missing_everywhere(job_, row.parallel))
      sentences.push_back("The executor cannot run it: it has no " + what + ".");
    return explanation;
  }

  /// "No: the best of tp=8, …, takes 18.0 s a step, 10.4 % longer than the best of all, …".
  std::string verdict(const Candidate& row, bool is_possible) const {
    const std::string of_kind = "the best of " + text_ + ", " + describe(row) + ", ";
    if (!is_possible)
      return "No: it does not fit. Even " + of_kind + "needs more memory than a rank has.";
    if (found_.ranked.empty())
      return "Yes: " + of_kind + "takes " + format_duration(row.step) + " a step.";
    const Candidate& best = found_.ranked.front();
    const std::string than =
        "the best of all, " + describe(best) + " (" + format_duration(best.step) + ")";
    if (describe(row) == describe(best) && row.partition == best.partition)
      return "Yes: it is the best of all, " + describe(best) + ", " + format_duration(best.step) +
             " a step.";
    const std::string fixed = fixed_otherwise(job_, row);
    const std::string ruled_out = fixed.empty() ? "" : " The job rules it out: " + fixed + ".";
    const std::string takes = of_kind + "takes " + format_duration(row.step) + " a step, ";
    if (row.step > best.step)
      return "No: " + of_kind + "takes " + format_duration(row.step) +
             " a step. The best of all, " + describe(best) + ", takes " +
             format_duration(best.step) + ": this takes " + percent_more(row.step, best.step) +
             " longer." + ruled_out;
    if (row.step == best.step) return "It is as fast: " + takes + "as " + than + "." + ruled_out;
    return "It would be faster: " + takes + percent_more(best.step, row.step) + " less than " +
           than + "." + ruled_out;
  }

  /// Sets is_possible. Where nodes differ in memory, a rank that does not hold the most may be
  /// over.
  void judge_memory(const Candidate& row, const std::vector<Bytes>& rank_peaks,
                    Explanation& explanation) const {
    const RankLimits limits = limits_of(*costs_, row.parallel, costs_->memory_limit());
    const Bytes limit = limits.of(row.fullest_rank);
    explanation.is_possible = !is_over(row.peak_bytes, limit);
    explanation.sentences.push_back(
        "Rank " + std::to_string(row.fullest_rank) + " holds the most, " +
        format_bytes(row.peak_bytes) + " (" + format_bytes(row.state_bytes) +
        " of weights, gradients and optimizer state)" +
        (explanation.is_possible ? "." : ": over the " + format_bytes(limit) + " allowed."));
    if (!explanation.is_possible || limits.own.empty()) return;
    for (std::size_t r = 0; r < rank_peaks.size(); ++r) {
      const Bytes peak = rank_peaks[r], own = limits.of(static_cast<int>(r));
      if (!is_over(peak, own)) continue;
      explanation.is_possible = false;
      explanation.sentences.push_back("Rank " + std::to_string(r) + " holds " + format_bytes(peak) +
                                      ", over the " + format_bytes(own) +
                                      " that its nodes' devices allow.");
      return;
    }
  }

  const Job& job_;
  const Profile* profile_;
  SearchOptions options_;
  const SearchResult& found_;
  const std::string& text_;
  const std::unique_ptr<ConfigurationCosts> costs_;
};

}  // namespace

Explanation explain(const Job& job, const Profile* profile, int cores, const SearchResult& found,
                    const std::string& text, const SearchOptions& options) {
  SearchOptions own = options;
  own.cores = cores;
  return Question(job, profile, own, found, text).answer();
}

}  // namespace pipewright::planner
