#include "traces/events/paddle_jobs.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <tuple>
#include <vector>

#include "core/base/words.hpp"

namespace pipewright::traces {
namespace {

struct JobType {
  std::string_view name;
  std::string_view letter;  // of the action
};
/// Longer names first: "backward" begins "backward_b" too.
constexpr std::array<JobType, 5> kTypes = {{{"backward_b", "I"},
                                            {"backward_w", "W"},
                                            {"backward", "B"},
                                            {"forward", "F"},
                                            {"optimizer", ""}}};

std::optional<int> number_of(std::string_view text) {
  const auto number = number_of_word<int>(text);
  return number && *number >= 0 ? number : std::nullopt;
}

struct Job {
  const JobType* type = nullptr;
  int chunk = 0;
  int number = 0;  // in its GPU's list
  std::string place;
  RawEvent* event = nullptr;
  int step = 0, micro_batch = 0;
};

/// Without what needs the whole trace; no type where the event is none.
Job job_of(std::string_view name, std::string_view category) {
  Job job;
  if (!name.starts_with(category) || name.size() < category.size() + 2 ||
      name[category.size()] != '_')
    return job;
  const auto number = number_of(name.substr(category.size() + 1));
  const auto type = std::find_if(kTypes.begin(), kTypes.end(), [&](const JobType& each) {
    return category.starts_with(each.name);
  });
  if (!number || type == kTypes.end()) return job;
  const std::string_view chunk = category.substr(type->name.size());
  if (!chunk.empty() && !number_of(chunk)) return job;
  job.type = &*type;
  job.chunk = chunk.empty() ? 0 : *number_of(chunk);
  job.number = *number;
  return job;
}

/// By machine, then GPU: "GPU3(machine:1)", "GPU:3"; another text by itself.
std::tuple<int, int, std::string> place_key(const std::string& tid) {
  const auto number_after = [&](std::string_view word) {
    const auto at = tid.find(word);
    if (at == std::string::npos) return 0;
    std::string_view rest = std::string_view(tid).substr(at + word.size());
    if (rest.starts_with(':')) rest.remove_prefix(1);
    return number_of(rest.substr(0, rest.find_first_not_of("0123456789"))).value_or(0);
  };
  return {number_after("machine"), number_after("GPU"), tid};
}

/// Which micro-batches of a chunk have been computed in a step.
class Chunk {
 public:
  /// Of the job that comes next. Forwards and backwards come in turn, whole and of inputs alone;
  /// the gradients of weights come in the turn of these.
  int next(std::string_view letter) {
    if (letter == "F") return forwards_++;
    if (letter != "W") {
      if (letter == "I") without_weights_.push_back(backwards_);
      return letter.empty() ? 0 : backwards_++;
    }
    if (without_weights_.empty()) return weights_++;
    const int micro_batch = without_weights_.front();
    without_weights_.pop_front();
    weights_ = micro_batch + 1;
    return micro_batch;
  }

 private:
  int forwards_ = 0, backwards_ = 0, weights_ = 0;
  std::deque<int> without_weights_;
};

class JobNamer {
 public:
  explicit JobNamer(RawTrace& trace) : trace_(trace) {}

  void run() {
    std::map<std::string, std::string> thread_names;
    for (const RawEvent& event : trace_.events) {
      if (event.phase == "M" && event.name == "thread_name") thread_names[event.tid] = event.label;
    }
    std::map<std::tuple<int, int, std::string>, std::vector<Job>> jobs;
    for (RawEvent& event : trace_.events) {
      if (event.phase != "X" || !event.ts_ns) continue;
      Job job = job_of(event.name, event.category);
      if (job.type == nullptr) continue;
      const auto named = thread_names.find(event.tid);
      job.event = &event;
      jobs[place_key(named == thread_names.end() ? event.tid : named->second)].push_back(job);
    }
    if (jobs.empty()) return;
    for (auto& [place, own] : jobs) {
      number_steps(own);
      ranks_.push_back(std::move(own));
    }
    const bool turns = begins_with_last();
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) name(static_cast<int>(rank), turns);
  }

 private:
  /// A step begins where the numbers begin again.
  static void number_steps(std::vector<Job>& jobs) {
    std::stable_sort(jobs.begin(), jobs.end(),
                     [](const Job& a, const Job& b) { return *a.event->ts_ns < *b.event->ts_ns; });
    std::map<int, Chunk> chunks;  // in this step
    int step = 0, last = -1;
    for (Job& job : jobs) {
      if (job.number <= last) {
        ++step;
        chunks.clear();
      }
      last = job.number;
      job.step = step;
      job.micro_batch = chunks[job.chunk].next(job.type->letter);
    }
  }

  /// Whether the first forward of chunk 1 is on the last rank: the second stage of a V lies where
  /// the first one ended.
  bool begins_with_last() const {
    std::optional<std::int64_t> earliest;
    std::size_t rank_of_earliest = 0;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (const Job& job : ranks_[rank]) {
        if (job.type->letter != "F" || job.chunk != 1) continue;
        if (earliest && *earliest <= *job.event->ts_ns) continue;
        earliest = job.event->ts_ns;
        rank_of_earliest = rank;
      }
    }
    return earliest && ranks_.size() > 1 && rank_of_earliest + 1 == ranks_.size();
  }

  void name(int rank, bool turns) {
    const int ranks = static_cast<int>(ranks_.size());
    const std::string pid = std::to_string(rank);
    std::map<int, std::pair<std::int64_t, std::int64_t>> steps;  // from, to
    for (const Job& job : ranks_[static_cast<std::size_t>(rank)]) {
      const bool back = turns && job.chunk % 2 == 1;
      const int stage = job.chunk * ranks + (back ? ranks - 1 - rank : rank);
      RawEvent& event = *job.event;
      event.pid = event.tid = pid;
      event.name = job.type->letter.empty()
                       ? "OPT"
                       : "PP:" + std::to_string(stage) + std::string(job.type->letter) +
                             std::to_string(job.micro_batch);
      const std::int64_t end = *event.ts_ns + event.dur_ns.value_or(0);
      const auto [known, is_new] = steps.try_emplace(job.step, *event.ts_ns, end);
      if (!is_new) known->second.second = std::max(known->second.second, end);
    }
    RawEvent named;
    named.phase = "M";
    named.name = "process_name";
    named.pid = pid;
    named.label = "rank " + pid;
    trace_.events.push_back(named);
    for (const auto& [step, range] : steps) {
      RawEvent mark;
      mark.phase = "X";
      mark.name = "ProfilerStep#" + std::to_string(step);
      mark.pid = mark.tid = pid;
      mark.ts_ns = range.first;
      mark.dur_ns = range.second - range.first;
      trace_.events.push_back(mark);
    }
  }

  RawTrace& trace_;
  std::vector<std::vector<Job>> ranks_;
};

}  // namespace

bool is_paddle_job(const RawEvent& event) {
  return job_of(event.name, event.category).type != nullptr;
}

void name_paddle_jobs(RawTrace& trace) { JobNamer(trace).run(); }

}  // namespace pipewright::traces
