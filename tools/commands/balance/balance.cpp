// pipewright balance: micro-batches of unequal length dealt out anew.
#include <algorithm>
#include <cstdio>

#include "core/base/error.hpp"
#include "core/costs/action_times.hpp"
#include "planner/balance/dealing.hpp"
#include "sim/engine.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/cli/figures.hpp"
#include "tools/cli/session.hpp"
#include "tools/cli/table.hpp"
#include "tools/commands/commands.hpp"
#include "tools/input/subject.hpp"
#include "tools/output/verdict.hpp"

namespace pipewright::tools {
namespace {

/// A rank that is named as slow takes more than so many times what it takes in most replicas.
constexpr double kSlow = 1.1;

struct SlowRank {
  int replica = 0, rank = 0;
  double times = 1;
};

std::vector<SlowRank> slow_ranks(const planner::Loads& loads) {
  std::vector<SlowRank> slow;
  for (int r = 0; r < loads.shape().replicas; ++r) {
    for (int q = 0; q < loads.shape().ranks; ++q) {
      if (loads.slowness(r, q) > kSlow) slow.push_back({r, q, loads.slowness(r, q)});
    }
  }
  std::ranges::stable_sort(slow, std::ranges::greater(), &SlowRank::times);
  return slow;
}

/// Where the micro-batch of a place is now.
struct Origin {
  int replica = 0, micro_batch = 0;
};
Origin origin_of(int micro_batch, const ReplicaShape& shape) {
  return {micro_batch / shape.micro_batches, micro_batch % shape.micro_batches};
}

std::string dealing_csv(const planner::Dealt& dealt, const ReplicaShape& shape) {
  std::string text = "replica,micro_batch,from_replica,from_micro_batch\n";
  for (std::size_t place = 0; place < dealt.dealing.size(); ++place) {
    const Origin to = origin_of(static_cast<int>(place), shape),
                 from = origin_of(dealt.dealing[place], shape);
    for (const int number : {to.replica, to.micro_batch, from.replica})
      text += std::to_string(number) + ",";
    text += std::to_string(from.micro_batch) + "\n";
  }
  return text;
}

Json fields_of(const planner::Dealt& dealt, const std::vector<SlowRank>& slow,
               const ReplicaShape& shape) {
  Json replicas = Json::array();
  for (int r = 0; r < shape.replicas; ++r) {
    const auto of = static_cast<std::size_t>(r);
    Json micro_batches = Json::array();
    for (int k = 0; k < shape.micro_batches; ++k) {
      const Origin from =
          origin_of(dealt.dealing[of * static_cast<std::size_t>(shape.micro_batches) +
                                  static_cast<std::size_t>(k)],
                    shape);
      micro_batches.push_back({{"replica", from.replica}, {"micro_batch", from.micro_batch}});
    }
    replicas.push_back({{"before_ns", dealt.before_ns[of]},
                        {"after_ns", dealt.after_ns[of]},
                        {"micro_batches", std::move(micro_batches)}});
  }
  Json ranks = Json::array();
  for (const SlowRank& each : slow)
    ranks.push_back({{"replica", each.replica}, {"rank", each.rank}, {"times", each.times}});
  return {{"balance",
           {{"before_ns", dealt.slowest_before()},
            {"after_ns", dealt.slowest_after()},
            {"least_ns", dealt.least_ns},
            {"simulated", dealt.simulated},
            {"replicas", std::move(replicas)},
            {"slow_ranks", std::move(ranks)}}}};
}

std::string range_text(const std::vector<std::int64_t>& ends) {
  const auto [least, most] = std::ranges::minmax_element(ends);
  const std::string latest = format_duration(Nanoseconds(*most));
  return *least == *most ? latest : format_duration(Nanoseconds(*least)) + " to " + latest;
}

void print_balance(const Subject& subject, const planner::Dealt& dealt,
                   const std::vector<SlowRank>& slow, Session& session) {
  const auto line = [&](const std::string& text) {
    session.print(wrapped(text, session.terminal().width, 0));
  };
  line(subject.title);
  line(subject.costs_text);
  line("replicas end after " + range_text(dealt.before_ns) + " as they are");
  const double gain =
      1 - static_cast<double>(dealt.slowest_after()) / static_cast<double>(dealt.slowest_before());
  line(gain > 0 ? "dealt out they end after " + range_text(dealt.after_ns) + ", the slowest " +
                      percent_text(gain) + " earlier"
                : "no other dealing was found that ends earlier");
  line("no dealing ends before " + format_duration(Nanoseconds(dealt.least_ns)) + "; " +
       std::to_string(dealt.simulated) + " simulated");
  constexpr std::size_t kListed = 5;
  for (std::size_t k = 0; k < std::min(slow.size(), kListed); ++k) {
    char times[16];
    std::snprintf(times, sizeof times, "%.2f", slow[k].times);
    line("rank " + std::to_string(slow[k].rank) + " of replica " + std::to_string(slow[k].replica) +
         " takes " + times +
         " times what it takes elsewhere: it keeps that, whichever micro-batches it gets");
  }
  if (slow.size() > kListed)
    line("... and " + std::to_string(slow.size() - kListed) + " more ranks");
}

int run_balance(const Arguments& arguments, Session& session) {
  session.progress("reading and lowering ...");
  const Subject subject = read_subject(arguments, Purpose::Predict, session);
  if (!subject.problems.empty()) {
    WaitReport report;
    report.verdict = Verdict::Invalid;
    return show_verdict(subject, report, session);
  }
  if (subject.costs.actions == nullptr) {
    throw InputError(
        "all micro-batches cost the same; give what they take with --costs FILE (analyze "
        "--costs-out writes it of a trace), or a plan with costs.actions");
  }
  const ReplicaShape& shape = subject.costs.actions->shape();
  const planner::Loads loads(subject.program, subject.costs, shape);
  if (!sim::simulate(subject.program, subject.costs).finished)
    return show_verdict(subject, sim::check(subject.program, subject.costs), session);
  session.progress("dealing out ...");
  const planner::Dealt dealt = planner::deal_out(subject.program, subject.costs, loads);
  const auto slow = slow_ranks(loads);
  if (session.json()) {
    session.print_result(fields_of(dealt, slow, shape));
  } else {
    print_balance(subject, dealt, slow, session);
  }
  if (const auto file = arguments.text("--out")) {
    session.save(*file, dealing_csv(dealt, shape));
    session.wrote(*file);
  }
  if (const auto file = arguments.text("--costs-out")) {
    std::vector<ActionTime> rows = loads.rows(dealt.dealing);
    for (const ActionTime& row : subject.costs.actions->rows()) {
      if (row.action.action.kind == ActionKind::Opt) rows.push_back(row);
    }
    session.save(*file, write_action_times_csv(rows));
    session.wrote(*file, "; next: pipewright simulate --costs " + *file);
  }
  return kDone;
}

}  // namespace

Command balance_command() {
  Command command;
  command.name = "balance";
  command.summary = "deal micro-batches of unequal length out to replicas, in an order";
  command.description =
      "What each micro-batch takes is read from --costs, or from a plan's costs.actions. A "
      "sequence "
      "that is long is so on every rank; what only one rank takes longer for stays with that rank. "
      "Every replica gets as many micro-batches as it has, so that the slowest one ends as early "
      "as was found, by simulation. Exit status 1: the order gets stuck.";
  command.examples = {
      {"balance -s 1f1b -p 2 -m 4 --dp 2 --costs examples/passes.csv -o dealing.csv",
       "which micro-batch goes where"},
      {"balance -s 1f1b -p 2 -m 4 --dp 2 --costs examples/passes.csv --costs-out dealt.csv --json",
       "costs as simulate, check and report read them"},
  };
  command.positionals = {subject_file()};
  command.flags = subject_flags();
  command.flags.push_back({.group = "Output",
                           .name = "--out",
                           .argument = "FILE",
                           .help = "write where each micro-batch goes, a CSV with the head "
                                   "replica,micro_batch,from_replica,from_micro_batch",
                           .short_name = 'o',
                           .is_file = true,
                           .writes = Writes::File});
  command.flags.push_back({.group = "Output",
                           .name = "--costs-out",
                           .argument = "FILE",
                           .help = "write what the actions then take, as simulate --costs reads it",
                           .is_file = true,
                           .writes = Writes::File});
  command.run = run_balance;
  return command;
}

}  // namespace pipewright::tools
