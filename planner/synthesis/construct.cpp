#include "planner/synthesis/construct.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>

namespace pipewright::planner::synthesis {
namespace {

constexpr double kMostSlack = 1e9;
constexpr std::int64_t kUrgent = 1500;  // key of a W beyond the backlog: between F and I

}  // namespace

ListScheduler::ListScheduler(const Problem& problem)
    : problem_(problem),
      arrival_(2 * at(problem.stages) * at(problem.micro_batches)),
      clock_(at(problem.ranks)),
      held_(at(problem.ranks)),
      least_(at(problem.ranks)),
      cursor_(at(problem.ranks)),
      done_(4 * at(problem.stages)) {
  while (leaves_ < at(problem.ranks)) leaves_ *= 2;
  wake_.assign(leaves_, kNever);
  winner_.assign(2 * leaves_, 0);
  for (std::size_t leaf = 0; leaf < leaves_; ++leaf)
    winner_[leaves_ + leaf] = static_cast<int>(leaf);
  for (int r = 0; r < problem.ranks; ++r) alone_.push_back(peak_of_one(problem, r));
}

void ListScheduler::reset(const Rules& rules) {
  std::fill(arrival_.begin(), arrival_.end(), kNever);
  const auto m = static_cast<std::ptrdiff_t>(problem_.micro_batches);
  for (int k = 0; k < problem_.micro_batches; ++k) arrival_[at(k)] = k * rules.pace;
  std::fill(arrival_.end() - m, arrival_.end(), 0);
  std::fill(clock_.begin(), clock_.end(), 0);
  std::fill(held_.begin(), held_.end(), 0);
  std::transform(problem_.work.begin(), problem_.work.end(), problem_.update.begin(),
                 least_.begin(), std::plus<>());
  std::fill(done_.begin(), done_.end(), 0);
  std::copy(problem_.first.begin(), problem_.first.end() - 1, cursor_.begin());
  for (int r = 0; r < problem_.ranks; ++r)
    set_wake(r, problem_.stages_of[at(r)].empty() ? kNever : 0);
}

bool ListScheduler::run(const Rules& rules, Sequence& sequence, std::int64_t most) {
  sequence.resize(problem_.size());
  reset(rules);
  ++steps_;
  for (std::size_t left = problem_.size(); left > 0;) {
    const int rank = winner_[1];
    const std::int64_t now = wake_[at(rank)];
    if (now == kNever) return false;
    const Choice choice = choose(rank, rules, now);
    if (!choice.taken) {
      set_wake(rank, choice.start);
      continue;
    }
    ++steps_;
    if (take(rank, choice.token, now, sequence) > most) return false;
    --left;
  }
  value_ = *std::max_element(least_.begin(), least_.end());
  return true;
}

ListScheduler::Choice ListScheduler::choose(int rank, const Rules& rules, std::int64_t now) const {
  const int m = problem_.micro_batches;
  const std::size_t half = at(problem_.stages) * at(m);
  struct Candidate {
    std::int64_t key;
    Token token;
    std::int64_t arrival;
  };
  Candidate best{-kNever, 0, kNever};
  std::array<Candidate, 64> later;
  std::size_t waiting = 0;
  const auto consider = [&](Token token, std::int64_t key, std::int64_t arrival) {
    if (arrival <= now) {
      if (key > best.key) best = {key, token, arrival};
    } else if (arrival != kNever && waiting < later.size()) {
      later[waiting++] = {key, token, arrival};
    }
  };
  const auto& stages = problem_.stages_of[at(rank)];
  const bool room =
      done_[token_of(stages.front(), Forward)] - done_[token_of(stages.front(), Input)] <
      rules.depth[at(rank)];
  for (const int s : stages) {
    const Token f = token_of(s, Forward), i = token_of(s, Input), w = token_of(s, Weight);
    const std::size_t row = at(s) * at(m);
    if (done_[i] < done_[f]) {
      const std::int64_t arrival = arrival_[half + row + at(done_[i])];
      if (arrival != kNever && fits(rank, i)) consider(i, key_of(rules, i), arrival);
    }
    if (done_[f] < m && (room || s != stages.front())) {
      const std::int64_t arrival = arrival_[row + at(done_[f])];
      const std::int64_t key = key_of(rules, f);
      if (arrival != kNever && (arrival > now || key > best.key) && fits(rank, f))
        consider(f, key, arrival);
    }
    if (problem_.kinds == 3 && done_[w] < done_[i] && (problem_.memory[w] <= 0 || fits(rank, w)))
      consider(w, key_of(rules, w), now);
  }
  const bool found = best.arrival != kNever;
  const std::int64_t patience =
      found ? problem_.duration[best.token] * rules.patience[best.token] / 256 : kNever;
  Choice choice{best.token, now, found};
  std::int64_t soonest = kNever;
  for (std::size_t k = 0; k < waiting; ++k) {
    if (found && (later[k].key <= best.key || later[k].arrival - now >= patience)) continue;
    soonest = std::min(soonest, later[k].arrival);
  }
  if (!found || soonest != kNever) choice = {0, soonest, false};
  return choice;
}

std::int64_t ListScheduler::key_of(const Rules& rules, Token token) const {
  const int k = done_[token];
  if (!rules.due.empty()) return -rules.due[token * at(problem_.micro_batches) + at(k)];
  if (kind_of(token) != Weight) return rules.key[token] - rules.period * k;
  const bool urgent = done_[token - 1] - k > rules.backlog[token >> 2];
  return urgent ? kUrgent : rules.key[token];
}

bool ListScheduler::fits(int rank, Token token) const {
  const std::int64_t limit = problem_.limit[at(rank)];
  if (limit == kNever) return true;
  const std::int64_t held = held_[at(rank)] + problem_.memory[token];
  if (kind_of(token) != Forward) return held <= limit;
  return held <= limit && can_finish(rank, held, token);
}

/// Whether the rank's micro-batches can be finished, oldest first, after one more action `next`.
bool ListScheduler::can_finish(int rank, std::int64_t held, Token next) const {
  const std::int64_t limit = problem_.limit[at(rank)];
  if (held + alone_[at(rank)] <= limit) return true;
  const auto& stages = problem_.stages_of[at(rank)];
  const auto done = [&](Token t, int k) { return k < done_[t] + (t == next ? 1 : 0); };
  const Kind last = problem_.kinds == 3 ? Weight : Input;
  int oldest = problem_.micro_batches, newest = 0;
  for (const int s : stages) {
    oldest = std::min(oldest, done_[token_of(s, last)]);
    newest = std::max(newest, done_[token_of(s, Forward)]);
  }
  for (int k = oldest; k <= newest; ++k) {
    const auto grow = [&](Token t) {
      if (done(t, k)) return true;
      held += problem_.memory[t];
      return held <= limit;
    };
    for (const int s : stages) {
      if (done(token_of(s, Input), k) && last == Weight && !grow(token_of(s, Weight))) return false;
    }
    if (!done(token_of(stages.front(), Forward), k)) break;
    for (const int s : stages) {
      if (!grow(token_of(s, Forward))) return false;
    }
    for (auto s = stages.rbegin(); s != stages.rend(); ++s) {
      const bool had_input = done(token_of(*s, Input), k);
      if (!grow(token_of(*s, Input))) return false;
      if (!had_input && last == Weight && !grow(token_of(*s, Weight))) return false;
    }
    if (held + alone_[at(rank)] <= limit) return true;
  }
  return true;
}

std::int64_t ListScheduler::take(int rank, Token token, std::int64_t now, Sequence& sequence) {
  const std::size_t m = at(problem_.micro_batches), stage = token >> 2;
  const std::int64_t end = now + problem_.time(token, done_[token]);
  const std::size_t k = at(done_[token]++);
  const bool first = cursor_[at(rank)] == problem_.first[at(rank)];
  // The span begins with the rank's first action, so the time before it does not count.
  if (!first || problem_.objective == Objective::Makespan)
    least_[at(rank)] += now - clock_[at(rank)];
  sequence[cursor_[at(rank)]++] = token;
  held_[at(rank)] += problem_.memory[token];
  clock_[at(rank)] = end;
  const bool over = cursor_[at(rank)] == problem_.first[at(rank) + 1];
  set_wake(rank, over ? kNever : end);
  if (kind_of(token) == Forward && stage + 1 < at(problem_.stages)) {
    arrive((stage + 1) * m + k, problem_.rank_of[stage + 1], end + problem_.forward_latency[stage]);
  } else if (kind_of(token) == Input && stage > 0) {
    arrive((at(problem_.stages) + stage - 1) * m + k, problem_.rank_of[stage - 1],
           end + problem_.backward_latency[stage]);
  }
  return least_[at(rank)];
}

void ListScheduler::set_wake(int rank, std::int64_t time) {
  wake_[at(rank)] = time;
  for (std::size_t node = (leaves_ + at(rank)) / 2; node > 0; node /= 2) {
    const int left = winner_[2 * node], right = winner_[2 * node + 1];
    winner_[node] = wake_[at(right)] < wake_[at(left)] ? right : left;
  }
}

void ListScheduler::arrive(std::size_t arrival, int rank, std::int64_t time) {
  arrival_[arrival] = time;
  const std::int64_t wake = wake_[at(rank)];
  const std::int64_t sooner = std::max(clock_[at(rank)], std::min(wake, time));
  if (sooner != wake) set_wake(rank, sooner);
}

namespace {

/// What the usual rules differ in; every rank has the same.
struct Habit {
  int forward_slope = 1, input_slope = -1;  // deeper stages first (1) or last (-1)
  int forward_patience = 0, weight_patience = 0;
  int backlog = 0;
};

Rules empty_rules(const Problem& problem, const Habit& habit) {
  Rules rules;
  rules.key.assign(4 * at(problem.stages), 0);
  rules.patience.assign(4 * at(problem.stages), 0);
  rules.backlog.assign(at(problem.stages), habit.backlog);
  rules.depth.assign(at(problem.ranks), problem.micro_batches);
  for (int s = 0; s < problem.stages; ++s) {
    rules.patience[token_of(s, Forward)] = habit.forward_patience;
    rules.patience[token_of(s, Weight)] = habit.weight_patience;
  }
  return rules;
}

Rules fixed_rules(const Problem& problem, const Habit& habit) {
  Rules rules = empty_rules(problem, habit);
  for (int s = 0; s < problem.stages; ++s) {
    const int place = s * 400 / problem.stages;
    rules.key[token_of(s, Forward)] = 1000 + habit.forward_slope * place;
    rules.key[token_of(s, Input)] = 3000 + habit.input_slope * place;
    rules.key[token_of(s, Weight)] = place;
  }
  return rules;
}

/// 1F1B's depth: as many micro-batches as there are stages from the rank's first one on.
void limit_depth(const Problem& problem, Rules& rules) {
  for (int r = 0; r < problem.ranks; ++r) {
    if (!problem.stages_of[at(r)].empty())
      rules.depth[at(r)] = problem.stages - problem.stages_of[at(r)].front();
  }
}

void add_fixed(const Problem& problem, std::vector<Rules>& all) {
  for (const int forward_slope : {1, -1}) {
    for (const int input_slope : {-1, 1}) {
      for (const int forward_patience : {0, 96, 256}) {
        for (const int weight_patience : {0, 96, 256}) {
          for (const int backlog : {0, 1, problem.micro_batches}) {
            all.push_back(fixed_rules(
                problem, {forward_slope, input_slope, forward_patience, weight_patience, backlog}));
            all.push_back(all.back());
            limit_depth(problem, all.back());
          }
        }
      }
    }
  }
}

/// What the rank's micro-batches hold over time by the timetable, in memory times ns a micro-batch.
double held_over_time(const Problem& problem, const Rules& rules, int rank) {
  double area = 0;
  for (const int s : problem.stages_of[at(rank)]) {
    const Token f = token_of(s, Forward), i = token_of(s, Input), w = token_of(s, Weight);
    const std::int64_t way = rules.key[f] - rules.key[i] + problem.duration[i];
    area += static_cast<double>(problem.memory[f]) * static_cast<double>(way);
    area += static_cast<double>(problem.memory[f] + problem.memory[i]) *
            static_cast<double>(problem.duration[w]);
  }
  return area;
}

void set_slack(const Problem& problem, int slowed, double scale, Rules& rules) {
  rules.slack.assign(4 * at(problem.stages), 0);
  for (int s = 0; s < problem.stages; ++s) {
    const bool late = s >= problem.stages / 2;
    const auto slack = static_cast<std::int64_t>(
        scale * static_cast<double>(problem.duration[token_of(s, Forward)]));
    if ((slowed >> (late ? 1 : 0) & 1) != 0) rules.slack[token_of(s, Forward)] = slack;
    if ((slowed >> (late ? 3 : 2) & 1) != 0) rules.slack[token_of(s, Input)] = slack;
  }
  set_timetable(problem, rules);
}

/// The factor by which to slow the stages of `slowed` so that the timetable uses this part of the
/// memory; 1 where there is no limit.
double scale_for_memory(const Problem& problem, int slowed, double part, Rules& rules) {
  double scale = kMostSlack;
  for (int r = 0; r < problem.ranks; ++r) {
    if (!problem.limited(r)) continue;
    set_slack(problem, slowed, 0, rules);
    const double none = held_over_time(problem, rules, r);
    set_slack(problem, slowed, 1, rules);
    const double more = held_over_time(problem, rules, r) - none;
    const double room =
        part * static_cast<double>(problem.limit[at(r)]) * static_cast<double>(rules.period);
    if (more > 0) scale = std::min(scale, std::max(0.0, (room - none) / more));
  }
  return scale == kMostSlack ? 1.0 : scale;
}

/// Timetables whose way out and way back are slowed down in the first or the second half of the
/// stages, as far as a part of the memory allows.
void add_timetables(const Problem& problem, std::vector<Rules>& all) {
  const std::int64_t work = *std::max_element(problem.work.begin(), problem.work.end());
  const std::int64_t least = std::max<std::int64_t>(1, work / problem.micro_batches);
  for (const double part : {0.95, 0.7}) {
    for (const int percent : {100, 104, 110, 120, 140}) {
      for (int slowed = 0; slowed < 16; ++slowed) {
        if (slowed == 0 && part < 0.9) continue;
        Rules rules =
            empty_rules(problem, {.forward_patience = 128, .weight_patience = 128, .backlog = 1});
        for (int s = 0; s < problem.stages; ++s) rules.patience[token_of(s, Input)] = 64;
        rules.period = least * percent / 100;
        set_slack(problem, slowed, scale_for_memory(problem, slowed, part, rules), rules);
        for (const bool paced : {false, true}) {
          rules.pace = paced ? rules.period : 0;
          all.push_back(rules);
        }
      }
    }
  }
}

}  // namespace

void set_timetable(const Problem& problem, Rules& rules) {
  std::int64_t time = 0;
  for (int s = 0; s < problem.stages; ++s) {
    const Token f = token_of(s, Forward);
    time += rules.slack[f];
    rules.key[f] = -time;
    time += problem.duration[f] + problem.forward_latency[at(s)];
  }
  for (int s = problem.stages - 1; s >= 0; --s) {
    const Token i = token_of(s, Input);
    time += rules.slack[i];
    rules.key[i] = -time;
    time += problem.duration[i] + problem.backward_latency[at(s)];
  }
  for (int s = 0; s < problem.stages; ++s) rules.key[token_of(s, Weight)] = -kNever / 2;
}

std::vector<Rules> usual_rules(const Problem& problem) {
  std::vector<Rules> all;
  add_fixed(problem, all);
  add_timetables(problem, all);
  return all;
}

}  // namespace pipewright::planner::synthesis
