#include "exec/runtime.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

#include "core/error.hpp"
#include "exec/local/waiting.hpp"
#include "exec/rank.hpp"
#include "exec/watchdog.hpp"

namespace pipewright::exec {
namespace {

class Run {
 public:
  Run(const Program& program, const CostTable& costs, Transport& transport,
      const DeviceFactory& make_device, const RunOptions& options)
      : program_(program),
        costs_(costs),
        transport_(transport),
        make_device_(make_device),
        options_(options) {
    record_.reset(program.code.size());
    for (const RankId rank : transport.local_ranks()) {
      ranks_.push_back(
          {rank, std::make_unique<RankRun>(program, rank, transport, record_), std::nullopt});
    }
  }

  RunResult to_the_end() {
    const StopCause cause = run_threads();
    if (error_) std::rethrow_exception(error_);
    // A run that was about to be stopped when it ended has ended.
    if (static_cast<int>(result_.steps.size()) == options_.steps) {
      choose_timeline();
      result_.figures = figures_of(program_, result_.timeline, costs_);
      return std::move(result_);
    }
    if (cause == StopCause::NoProgress) throw_if_slow();
    result_.outcome = cause == StopCause::Interrupted ? Outcome::Interrupted : Outcome::Stuck;
    collect_step();
    result_.timeline = std::move(record_.timeline);
    result_.timeline_step = static_cast<int>(result_.steps.size());
    result_.progress = std::move(record_.progress);
    if (result_.outcome == Outcome::Stuck) explain();
    return std::move(result_);
  }

 private:
  struct Rank {
    RankId id;
    std::unique_ptr<RankRun> run;
    std::optional<double> loss;
  };

  StopCause run_threads();
  void run_rank(Rank& rank) noexcept;
  void run_steps(Rank& rank);
  void fail(const Rank& rank, const std::string& what);
  void fail(std::exception_ptr error);
  void end_step();
  void collect_step();
  void choose_timeline();
  void throw_if_slow() const;
  void explain();

  const Program& program_;
  const CostTable& costs_;
  Transport& transport_;
  const DeviceFactory& make_device_;
  const RunOptions& options_;
  std::vector<Rank> ranks_;
  Record record_;
  RunResult result_;                 // written while all ranks stand still
  std::vector<Timeline> timelines_;  // by step, if the median is wanted
  std::mutex error_mutex_;
  std::exception_ptr error_;  // the first; guarded by error_mutex_ until the threads have ended
};

// --- Threads ---

StopCause Run::run_threads() {
  Watchdog watchdog(transport_, record_, options_.watchdog_ns, options_.interrupted);
  {
    std::vector<std::jthread> threads;  // joined where this block is left, whatever happens
    try {
      for (Rank& rank : ranks_) {
        threads.emplace_back([this, &rank] { run_rank(rank); });
      }
    } catch (const std::system_error& e) {
      transport_.stop();
      throw MachineError("cannot start a thread for each of " + std::to_string(ranks_.size()) +
                         " ranks: " + e.what());
    }
  }
  return watchdog.finish();
}

void Run::run_rank(Rank& rank) noexcept {
  local::ask_for_exact_sleeps();
  try {
    run_steps(rank);
  } catch (const Stopped&) {
    // Somebody else knows why.
  } catch (const std::exception& e) {
    fail(rank, e.what());
  }
}

void Run::run_steps(Rank& rank) {
  const std::unique_ptr<Device> device = make_device_(rank.id, transport_);
  for (int step = 0; step < options_.steps; ++step) {
    device->begin_step(step);
    transport_.meet(rank.id, [this] { record_.between_steps.store(false); });
    rank.run->walk(*device);
    device->timestamps(record_.timeline);
    rank.loss = device->loss();
    transport_.meet(rank.id, [this] { end_step(); });
  }
}

void Run::fail(const Rank& rank, const std::string& what) {
  std::string where = "rank " + std::to_string(rank.id.value);
  if (rank.run->at() < program_.code.size()) where += ", " + program_.text(rank.run->at());
  where += ", step " + std::to_string(result_.steps.size());
  fail(std::make_exception_ptr(RunError(where + ": " + what)));
}

void Run::fail(std::exception_ptr error) {
  {
    const std::scoped_lock lock(error_mutex_);
    if (!error_) error_ = std::move(error);
  }
  transport_.stop();
}

// --- Between steps: one rank's thread, all others stand still ---

void Run::end_step() {
  record_.between_steps.store(true);
  collect_step();
  StepResult step;
  step.step_ns = record_.timeline.makespan_ns;
  for (const Rank& rank : ranks_) {
    if (rank.loss) step.loss = step.loss.value_or(0) + *rank.loss;
  }
  try {
    if (options_.on_step) options_.on_step(static_cast<int>(result_.steps.size()), step);
  } catch (...) {
    fail(std::current_exception());
    throw Stopped{};
  }
  result_.steps.push_back(step);
  if (!options_.median_timeline) timelines_.clear();
  timelines_.push_back(std::move(record_.timeline));
  record_.reset(program_.code.size());
}

void Run::collect_step() {
  transport_.report(record_.timeline, record_.progress);
  Timeline& timeline = record_.timeline;
  const auto last = std::max_element(timeline.end.begin(), timeline.end.end());
  timeline.makespan_ns = last == timeline.end.end() ? 0 : std::max<std::int64_t>(0, *last);
}

// --- After the run ---

void Run::choose_timeline() {
  if (timelines_.empty()) return;
  std::size_t chosen = timelines_.size() - 1;
  if (options_.median_timeline) {
    const std::size_t first =
        std::min(static_cast<std::size_t>(std::max(0, options_.warm_up_steps)), chosen);
    std::vector<std::size_t> by_time;
    for (std::size_t step = first; step < timelines_.size(); ++step) by_time.push_back(step);
    std::stable_sort(by_time.begin(), by_time.end(), [&](std::size_t a, std::size_t b) {
      return timelines_[a].makespan_ns < timelines_[b].makespan_ns;
    });
    chosen = by_time[(by_time.size() - 1) / 2];
  }
  result_.timeline = std::move(timelines_[chosen]);
  result_.timeline_step = options_.median_timeline ? static_cast<int>(chosen) : options_.steps - 1;
}

/// Patience ran out while a rank was computing: that is no deadlock.
void Run::throw_if_slow() const {
  std::string where;
  for (const Rank& rank : ranks_) {
    if (!rank.run->computes()) continue;
    if (!where.empty()) where += ", ";
    where += "rank " + std::to_string(rank.id.value) + " in " + program_.text(rank.run->at());
  }
  if (where.empty()) return;
  throw RunError("nothing has ended for " + format_duration(Nanoseconds(options_.watchdog_ns)) +
                 " while computing (" + where +
                 "); if the computation may take that long, raise --watchdog");
}

void Run::explain() {
  result_.stuck = explain_stuck(program_, result_.progress, costs_.message_bytes(program_));
}

}  // namespace

RunResult run(const Program& program, const CostTable& costs, Transport& transport,
              const DeviceFactory& make_device, const RunOptions& options) {
  return Run(program, costs, transport, make_device, options).to_the_end();
}

}  // namespace pipewright::exec
