#include "exec/runtime/runtime.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>

#include "core/base/error.hpp"
#include "exec/base/waiting.hpp"
#include "exec/runtime/final_state.hpp"
#include "exec/runtime/rank.hpp"
#include "exec/runtime/shown_step.hpp"
#include "exec/runtime/watchdog.hpp"

namespace pipewright::exec {
namespace {

// How long process 0 waits for what the others saw of a run that does not finish.
constexpr std::int64_t kHandInNs = 1'000'000'000;

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an error without a name";
  }
}

class Run {
 public:
  Run(const Program& program, const CostTable& costs, Transport& transport,
      const DeviceFactory& make_device, const RunOptions& options)
      : program_(program),
        costs_(costs),
        transport_(transport),
        make_device_(make_device),
        options_(options),
        shown_(options.warm_up_steps, options.median_timeline) {
    record_.reset(program.code.size());
    const auto entries = static_cast<std::size_t>(std::max(0, options.flight_entries));
    for (const RankId rank : transport.local_ranks()) {
      ranks_.push_back({rank, std::make_unique<RankRun>(program, rank, transport, record_, entries,
                                                        options.verify_payloads)});
    }
  }

  RunResult to_the_end() {
    run_threads();
    if (error_) std::rethrow_exception(error_);
    result_.first_step = options_.first_step;
    if (result_.outcome == Outcome::Diverged) {
      complete_result();
      throw RunFailed(std::move(result_));
    }
    // A run that was about to be stopped when it ended has ended.
    if (failure_.empty() && static_cast<int>(result_.steps.size()) == options_.steps) {
      complete_result();
      return std::move(result_);
    }
    RunResult result = unfinished();
    if (!result.failure.empty()) throw RunFailed(std::move(result));
    return result;
  }

 private:
  struct Rank {
    RankId id;
    std::unique_ptr<RankRun> run;
    std::optional<double> loss;
    std::string not_finite;
    bool dead = false;  // guarded by error_mutex_
  };

  void run_threads();
  void run_rank(Rank& rank) noexcept;
  void run_steps(Rank& rank);
  void fail(Rank& rank, const std::string& what);
  void fail(std::exception_ptr error);
  void look_at_all(StopCause cause);
  void look_at_step(FinalState& last);
  void tell_overdue() noexcept;
  void end_step();
  StepPart collect_step();
  bool diverges(const StepPart& step);
  void complete_result();
  RunResult unfinished() const;
  std::string why_slow(const FlightReport& report) const;

  const Program& program_;
  const CostTable& costs_;
  Transport& transport_;
  const DeviceFactory& make_device_;
  const RunOptions& options_;
  std::vector<Rank> ranks_;
  Record record_;
  RunResult result_;          // written while all ranks stand still
  ShownStep shown_;           // written while all ranks stand still
  std::mutex record_mutex_;   // held to write record_ for all ranks, or to copy it
  std::mutex error_mutex_;    // guards what follows until the threads have ended
  std::exception_ptr error_;  // from on_step
  std::string failure_;       // of the first rank that failed
  EndOfRun end_;              // what the other processes are told
  bool by_others_ = false;
  std::optional<FinalState> last_;
  StepLog last_steps_;  // that had ended then
};

// --- Threads ---

void Run::run_threads() {
  Watchdog watchdog(transport_, record_, options_.watchdog_ns, options_.interrupted,
                    {.before_stop = [this](StopCause cause) { look_at_all(cause); },
                     .overdue = [this] { tell_overdue(); },
                     .grace_ns = options_.grace_ns});
  std::vector<std::jthread> threads;  // joined where this function is left, whatever happens
  try {
    for (Rank& rank : ranks_) {
      threads.emplace_back([this, &rank] { run_rank(rank); });
    }
  } catch (const std::system_error& e) {
    transport_.stop();
    throw MachineError("cannot start a thread for each of " + std::to_string(ranks_.size()) +
                       " ranks: " + e.what() +
                       "; raise the limits of processes and memory (ulimit -u, ulimit -v), or use "
                       "fewer ranks");
  }
}

void Run::run_rank(Rank& rank) noexcept {
  local::ask_for_exact_sleeps();
  try {
    run_steps(rank);
  } catch (const Stopped&) {
    // Somebody else knows why.
  } catch (const std::bad_alloc&) {
    fail(rank, "not enough memory");
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
    {
      const std::scoped_lock lock(record_mutex_);
      device->timestamps(record_.timeline);
    }
    rank.loss = device->loss();
    rank.not_finite = device->not_finite();
    transport_.meet(rank.id, [this] { end_step(); });
    if (result_.outcome == Outcome::Diverged) return;  // in every process after the same step
  }
}

void Run::fail(Rank& rank, const std::string& what) {
  {
    const std::scoped_lock lock(error_mutex_);
    rank.dead = true;
    if (failure_.empty()) {
      failure_ = "rank " + std::to_string(rank.id.value);
      if (rank.run->at() < program_.code.size()) failure_ += ", " + program_.text(rank.run->at());
      failure_ += ", step " + std::to_string(result_.steps.size()) + ": " + what;
    }
  }
  look_at_all(StopCause::Failed);
  record_.failed.store(true);
  transport_.stop();
}

void Run::fail(std::exception_ptr error) {
  {
    const std::scoped_lock lock(error_mutex_);
    // The other processes are told a sentence: a look without one would say that nothing is wrong.
    if (failure_.empty()) failure_ = text_of(error);
    if (!error_) error_ = std::move(error);
  }
  record_.failed.store(true);
  transport_.stop();
}

/// The ranks still are where they were.
void Run::look_at_all(StopCause cause) {
  const std::scoped_lock lock(error_mutex_);
  if (last_) return;
  FinalState& last = last_.emplace();
  last.cause = cause;
  Peers* const peers = transport_.peers();
  if (cause == StopCause::PeerLost) {
    const std::vector<LostRank> lost = peers->lost(options_.watchdog_ns);
    failure_ = lost_text(lost);
    for (const LostRank& one : lost) last.lost.push_back(one.rank);
    end_.by_loss = std::any_of(lost.begin(), lost.end(),
                               [](const LostRank& one) { return !one.has_given_up; });
  }
  if (cause == StopCause::Elsewhere) {
    end_ = peers->end_elsewhere();
    failure_ = end_.why.empty() ? "another process has ended the run" : end_.why;
  }
  by_others_ = (cause == StopCause::PeerLost || cause == StopCause::Elsewhere) && !end_.by_loss;
  if (cause != StopCause::Elsewhere) end_.why = failure_;
  last.failure = failure_;
  const std::int64_t now = local::steady_ns();
  for (const Rank& rank : ranks_) {
    last.ranks.push_back({rank.id, rank.run->standing(), now, rank.dead,
                          transport_.awaits_time(rank.id), rank.run->recorder().recent()});
  }
  look_at_step(last);
  if (peers != nullptr) peers->hand_in(packed(program_, transport_.local_ranks(), last), end_);
}

/// Between two steps there is nothing to be seen of a step.
void Run::look_at_step(FinalState& last) {
  const std::unique_lock<std::mutex> record(record_mutex_, std::try_to_lock);
  if (!record.owns_lock()) return;
  record_.copy_to(last.timeline, last.progress);
  transport_.report(last.timeline, last.progress);
  last_steps_ = result_.steps;
}

/// On the watchdog's thread.
void Run::tell_overdue() noexcept {
  if (!options_.on_overdue) return;
  try {
    options_.on_overdue(unfinished());
  } catch (...) {
    // Nobody to tell: run() goes on waiting for the ranks.
  }
}

// --- Between steps: one rank's thread, all others stand still ---

void Run::end_step() {
  record_.between_steps.store(true);
  const std::scoped_lock lock(record_mutex_);
  const StepPart part = collect_step();
  const StepResult step{part.loss, record_.timeline.makespan_ns};
  const bool is_over = diverges(part);
  try {
    if (options_.on_step && !is_over)
      options_.on_step(static_cast<int>(result_.steps.size()), step);
  } catch (const Stopped&) {
    throw;  // while processes shared something: somebody else knows why
  } catch (...) {
    fail(std::current_exception());
    throw Stopped{};
  }
  result_.steps.push_back(step);
  Peers* const peers = transport_.peers();
  const bool is_last = is_over || static_cast<int>(result_.steps.size()) == options_.steps;
  record_.timeline = shown_.add(std::move(record_.timeline));
  record_.reset(program_.code.size());
  // At the very end: the step has ended even where another process leaves now.
  if (peers != nullptr && is_last) result_.clocks = peers->clocks();
}

/// What the ranks say of the step; their times are in record_.
StepPart Run::collect_step() {
  transport_.report(record_.timeline, record_.progress);
  StepPart all;
  for (const Rank& rank : ranks_) {
    if (rank.loss) all.loss = all.loss.value_or(0) + *rank.loss;
    if (all.not_finite.empty()) all.not_finite = rank.not_finite;
  }
  if (Peers* const peers = transport_.peers()) {
    all.timeline = std::move(record_.timeline);
    const auto parts = peers->share(packed(program_, transport_.local_ranks(), all));
    all.loss.reset();  // comes back among the others, in the same order everywhere
    all.not_finite.clear();
    for (const PackedBytes& part : parts) merge(program_, part, all);
    record_.timeline = std::move(all.timeline);
  }
  Timeline& timeline = record_.timeline;
  const auto last = std::max_element(timeline.end.begin(), timeline.end.end());
  timeline.makespan_ns = last == timeline.end.end() ? 0 : std::max<std::int64_t>(0, *last);
  return all;
}

/// Every process has the same facts, so all of them leave after the same step.
bool Run::diverges(const StepPart& step) {
  std::string what;
  if (step.loss && !std::isfinite(*step.loss))
    what = std::isnan(*step.loss) ? "the loss is not a number" : "the loss is infinite";
  if (!step.not_finite.empty()) what += (what.empty() ? "" : ", and ") + step.not_finite;
  if (what.empty()) return false;
  result_.outcome = Outcome::Diverged;
  result_.failure =
      "the training diverges: in step " +
      std::to_string(options_.first_step + static_cast<int>(result_.steps.size()) + 1) + " " +
      what + "; lower the learning rate, or clip the gradients";
  return true;
}

// --- After the run ---

void Run::complete_result() {
  ShownStep::Step shown = shown_.take();
  result_.timeline = std::move(shown.timeline);
  result_.timeline_step = shown.step;
  result_.figures = figures_of(program_, result_.timeline, costs_);
}

/// What the last look saw, explained. Also while ranks still run.
RunResult Run::unfinished() const {
  RunResult result;
  FinalState last = last_.value_or(FinalState{});
  if (Peers* const peers = transport_.peers()) {
    for (const PackedBytes& bytes : peers->handed_in(kHandInNs)) merge(program_, bytes, last);
    complete(program_, last);
  }
  result.timeline = std::move(last.timeline);
  result.progress = std::move(last.progress);
  result.steps = last_steps_;
  result.first_step = options_.first_step;
  result.timeline_step = static_cast<int>(result.steps.size());
  if (result.timeline.end.size() != program_.code.size()) {
    Record nothing;
    nothing.reset(program_.code.size());
    result.timeline = std::move(nothing.timeline);
    result.progress = std::move(nothing.progress);
  }
  for (const std::int64_t end : result.timeline.end)
    result.timeline.makespan_ns = std::max(result.timeline.makespan_ns, end);
  result.outcome = Outcome::Interrupted;
  if (last.cause == StopCause::Interrupted) return result;
  WaitReport waits = explain_stuck(program_, result.progress, costs_.message_bytes(program_));
  const bool stuck = waits.verdict != Verdict::Ok;
  const bool patience = last.cause == StopCause::NoProgress;
  result.report =
      flight_report(program_, result.progress, std::move(waits), std::move(last.ranks), patience);
  if (!last.failure.empty()) {
    result.outcome = Outcome::Failed;
    result.failure = last.failure;
    result.peer_lost = end_.by_loss;
    result.by_others = by_others_;
  } else if (patience && !stuck) {
    result.outcome = Outcome::Slow;
    result.failure = why_slow(result.report);
  } else {
    result.outcome = Outcome::Stuck;
    result.stuck = result.report.waits;
  }
  return result;
}

/// Patience ran out while ranks were computing, or a message was on its way: that is no deadlock.
std::string Run::why_slow(const FlightReport& report) const {
  std::string where;
  for (const RankReport& rank : report.ranks) {
    if (rank.state != RankState::Slow || rank.first_unfinished == kNoInstruction) continue;
    where += (where.empty() ? "rank " : ", rank ") + std::to_string(rank.rank.value) + " in " +
             program_.text(rank.first_unfinished);
  }
  return "nothing has ended for " + format_duration(Nanoseconds(options_.watchdog_ns)) +
         (where.empty()
              ? " while data is on its way; if a transfer may take that long"
              : " while computing (" + where + "); if the computation may take that long") +
         ", raise --watchdog";
}

}  // namespace

std::string_view to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::Finished:
      return "finished";
    case Outcome::Stuck:
      return "stuck";
    case Outcome::Interrupted:
      return "interrupted";
    case Outcome::Slow:
      return "slow";
    case Outcome::Failed:
      return "failed";
    case Outcome::Diverged:
      return "diverged";
  }
  return "finished";
}

RunResult run(const Program& program, const CostTable& costs, Transport& transport,
              const DeviceFactory& make_device, const RunOptions& options) {
  if (!program.joined.empty()) {
    throw InputError("batches = " + std::string(to_string(program.policy.batches)) + ": " +
                     program.text(program.joined.front().first) + " on rank " +
                     std::to_string(program.rank_of(program.joined.front().first).value) +
                     " is in a batch that is one operation; check and simulate support that, run "
                     "does not: take --batches apart");
  }
  return Run(program, costs, transport, make_device, options).to_the_end();
}

}  // namespace pipewright::exec
