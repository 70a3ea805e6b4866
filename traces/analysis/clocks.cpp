#include "traces/analysis/clocks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "core/base/error.hpp"
#include "core/base/units.hpp"

namespace pipewright::traces {
namespace {

constexpr std::int64_t kUnbounded = std::numeric_limits<std::int64_t>::max() / 4;

/// limit[a][b]: by how much more rank a's times may be shifted than rank b's. Difference
/// constraints; closed, they are the tightest that follow.
using Limits = std::vector<std::vector<std::int64_t>>;

Limits no_limits(std::size_t ranks) {
  return Limits(ranks, std::vector<std::int64_t>(ranks, kUnbounded));
}

/// `allowance` is what each limit is wider by, a message at a time.
template <class Allowance>
Limits limits_of(const std::vector<Message>& messages, std::size_t ranks, Allowance allowance) {
  Limits limit = no_limits(ranks);
  for (const Message& message : messages) {
    std::int64_t& most = limit[message.from][message.to];
    most = std::min(most, message.ended_ns - message.begun_ns + allowance(message));
  }
  return limit;
}

std::int64_t no_allowance(const Message&) { return 0; }

/// Floyd and Warshall. nullopt if the limits contradict each other.
std::optional<Limits> closed(Limits limit) {
  const std::size_t n = limit.size();
  for (std::size_t r = 0; r < n; ++r) limit[r][r] = std::min<std::int64_t>(0, limit[r][r]);
  for (std::size_t k = 0; k < n; ++k) {
    for (std::size_t a = 0; a < n; ++a) {
      if (limit[a][k] == kUnbounded) continue;
      for (std::size_t b = 0; b < n; ++b) {
        if (limit[k][b] == kUnbounded) continue;
        // Limits that contradict each other double with each round.
        const std::int64_t over = std::max(-kUnbounded, limit[a][k] + limit[k][b]);
        limit[a][b] = std::min(limit[a][b], over);
      }
    }
  }
  for (std::size_t r = 0; r < n; ++r) {
    if (limit[r][r] < 0) return std::nullopt;
  }
  return limit;
}

/// The fastest round trip between any two ranks; kUnbounded if there is none.
std::int64_t round_trip(const Limits& limit) {
  std::int64_t trip = kUnbounded;
  for (std::size_t a = 0; a < limit.size(); ++a) {
    for (std::size_t b = 0; b < limit.size(); ++b) {
      if (limit[a][b] < kUnbounded && limit[b][a] < kUnbounded)
        trip = std::min(trip, limit[a][b] + limit[b][a]);
    }
  }
  return trip;
}

/// By direction the fastest message for which the receiver stood still, if another one was as fast
/// but for a round trip: so fast is what they can be.
Limits confirmed_fastest(const std::vector<Message>& messages, std::size_t ranks,
                         std::int64_t trip) {
  Limits fastest = no_limits(ranks), second = no_limits(ranks);
  for (const Message& message : messages) {
    if (!message.awaited) continue;
    std::int64_t took = message.ended_ns - message.begun_ns;
    std::int64_t& least = fastest[message.from][message.to];
    if (took < least) std::swap(took, least);
    std::int64_t& next = second[message.from][message.to];
    next = std::min(next, took);
  }
  for (std::size_t a = 0; a < ranks; ++a) {
    for (std::size_t b = 0; b < ranks; ++b) {
      if (second[a][b] - fastest[a][b] > trip || second[a][b] == kUnbounded)
        fastest[a][b] = kUnbounded;
    }
  }
  return fastest;
}

/// Where the fastest message is confirmed in one direction alone, it is taken to be no slower than
/// the fastest round trip: a limit in the other direction.
Limits limits_by_round_trip(const std::vector<Message>& messages, const Limits& limit) {
  Limits result = no_limits(limit.size());
  const std::int64_t trip = round_trip(limit);
  if (trip == kUnbounded || trip < 0) return result;
  const Limits fastest = confirmed_fastest(messages, limit.size(), trip);
  for (std::size_t a = 0; a < limit.size(); ++a) {
    for (std::size_t b = 0; b < limit.size(); ++b) {
      if (fastest[a][b] < kUnbounded && fastest[b][a] == kUnbounded)
        result[b][a] = trip - fastest[a][b];
    }
  }
  return result;
}

Limits both(Limits limit, const Limits& other) {
  for (std::size_t a = 0; a < limit.size(); ++a) {
    for (std::size_t b = 0; b < limit.size(); ++b) limit[a][b] = std::min(limit[a][b], other[a][b]);
  }
  return limit;
}

bool all_hold_unshifted(const Limits& limit) {
  return std::all_of(limit.begin(), limit.end(), [](const auto& row) {
    return std::all_of(row.begin(), row.end(), [](std::int64_t most) { return most >= 0; });
  });
}

/// The clock of one rank against another's, as the messages between the two have it.
struct PairFit {
  double width = 0;   // of the offsets that are allowed
  double offset = 0;  // their middle, of the first rank less the second
  double drift = 0;
};

class Fitter {
 public:
  Fitter(std::vector<Message> messages, const std::vector<int>& ranks, const std::string& source)
      : messages_(std::move(messages)),
        ranks_(ranks),
        source_(source),
        shift_(ranks.size(), 0),
        drift_(ranks.size(), 0) {}

  ClockFit run() {
    count_acausal(fit_.acausal_before, fit_.worst_before_ns);
    fit_.messages = messages_.size();
    const Limits limit = limits();
    fit_.agreed = all_hold_unshifted(both(limit, limits_by_round_trip(messages_, limit)));
    if (!fit_.agreed) shift_all(along_tree(rough_offsets()));
    find_middle();
    const Limits bounds = bounds_of_shifts();
    const std::vector<std::int64_t> rough = shift_;
    if (!fit_.agreed) refine();
    count_acausal(fit_.acausal_after, fit_.worst_after_ns);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const std::int64_t most = bounds[r][0], least = -bounds[0][r];
      const bool bounded = most < kUnbounded && least > -kUnbounded;
      if (!bounded && !fit_.agreed) refuse_unbounded(r);
      fit_.shifts.push_back({.rank = ranks_[r],
                             .shift_ns = shift_[r],
                             .least_ns = bounded ? rough[r] + least : 0,
                             .most_ns = bounded ? rough[r] + most : 0,
                             .bounded = bounded,
                             .drift = drift_[r]});
    }
    return std::move(fit_);
  }

 private:
  using Pairs = std::vector<std::vector<std::optional<PairFit>>>;

  Limits limits() const { return limits_of(messages_, ranks_.size(), no_allowance); }

  void count_acausal(std::size_t& count, std::int64_t& worst) const {
    for (const Message& message : messages_) {
      const std::int64_t by = message.begun_ns - message.ended_ns;
      count += by > 0;
      worst = std::max(worst, by);
    }
  }

  void shift_all(const std::vector<double>& by) {
    for (std::size_t r = 0; r < by.size(); ++r) shift_[r] += std::llround(by[r]);
    for (Message& message : messages_) {
      message.begun_ns += std::llround(by[message.from]);
      message.ended_ns += std::llround(by[message.to]);
    }
  }

  /// Two-way differences (as NTP's, RFC 5905 §8): half of what the fastest messages of the two
  /// directions differ by. One direction alone: the fastest takes no time.
  Pairs rough_offsets() const {
    const Limits limit = limits();
    Pairs pairs(ranks_.size(), std::vector<std::optional<PairFit>>(ranks_.size()));
    for (std::size_t a = 0; a < ranks_.size(); ++a) {
      for (std::size_t b = 0; b < ranks_.size(); ++b) {
        const auto there = static_cast<double>(limit[a][b]),
                   back = static_cast<double>(limit[b][a]);
        if (a == b || limit[a][b] == kUnbounded) continue;
        const bool one_way = limit[b][a] == kUnbounded;
        pairs[a][b] = PairFit{one_way ? static_cast<double>(kUnbounded) : there + back,
                              one_way ? there : (there - back) / 2, 0};
        if (one_way) pairs[b][a] = PairFit{static_cast<double>(kUnbounded), -there, 0};
      }
    }
    return pairs;
  }

  /// From the first rank along the tree of the narrowest pairs (Prim).
  std::vector<double> along_tree(const Pairs& pairs, std::vector<double>* drifts = nullptr) const {
    const std::size_t n = ranks_.size();
    std::vector<double> offset(n, 0);
    std::vector<bool> reached(n, false);
    reached[0] = true;
    for (std::size_t step = 1; step < n; ++step) {
      const PairFit* best = nullptr;
      std::size_t from = 0, to = 0;
      for (std::size_t a = 0; a < n; ++a) {
        for (std::size_t b = 0; b < n; ++b) {
          if (reached[a] || !reached[b] || !pairs[a][b]) continue;
          if (best != nullptr && best->width <= pairs[a][b]->width) continue;
          best = &*pairs[a][b];
          from = b;
          to = a;
        }
      }
      if (best == nullptr) break;
      reached[to] = true;
      offset[to] = offset[from] + best->offset;
      if (drifts != nullptr) (*drifts)[to] = (*drifts)[from] + best->drift;
    }
    return offset;
  }

  void find_middle() {
    if (messages_.empty()) return;
    std::int64_t first = kUnbounded, last = -kUnbounded;
    for (const Message& message : messages_) {
      first = std::min({first, message.begun_ns, message.ended_ns});
      last = std::max({last, message.begun_ns, message.ended_ns});
    }
    fit_.middle_ns = first + (last - first) / 2;
  }

  double from_middle(const Message& message) const {
    return static_cast<double>(message.begun_ns - fit_.middle_ns);
  }

  /// At the middle, of clocks that drift by as much as they may.
  Limits bounds_of_shifts() const {
    const auto bounds = closed(limits_of(messages_, ranks_.size(), [&](const Message& message) {
      return static_cast<std::int64_t>(std::ceil(kMostDrift * std::abs(from_middle(message))));
    }));
    if (bounds) return *bounds;
    throw InputError(source_, "",
                     "and the traces of the other ranks contradict each other: whatever their "
                     "clocks are shifted by, and run apart by up to 500 ppm, some message ends "
                     "before it began; give files of one step");
  }

  /// The middle of what is allowed: the mean of the least and the greatest solution of the
  /// difference constraints, which is itself one.
  void refine() {
    Limits limit = limits();
    if (!closed(limit)) {
      correct_drift();
      limit = limits();
      if (!closed(limit)) limit = widened(limit);
    }
    auto closure = closed(both(limit, limits_by_round_trip(messages_, limit)));
    if (!closure) closure = closed(limit);
    std::vector<double> by(ranks_.size(), 0);
    for (std::size_t r = 1; r < ranks_.size(); ++r) {
      const std::int64_t most = (*closure)[r][0], least = -(*closure)[0][r];
      if (most < kUnbounded && least > -kUnbounded)
        by[r] = static_cast<double>(least) + static_cast<double>(most - least) / 2;
    }
    shift_all(by);
  }

  /// What no drift explains is spread over all messages: by as little as lets the limits agree.
  Limits widened(const Limits& limit) const {
    const auto by = [&](std::int64_t more) {
      Limits wider = limit;
      for (auto& row : wider) {
        for (std::int64_t& most : row) most = most == kUnbounded ? most : most + more;
      }
      return wider;
    };
    std::int64_t enough = 1;
    while (!closed(by(enough))) enough *= 2;
    std::int64_t little = enough / 2;
    while (enough - little > 1) {
      const std::int64_t middle = little + (enough - little) / 2;
      (closed(by(middle)) ? enough : little) = middle;
    }
    return by(enough);
  }

  void correct_drift() {
    Pairs pairs(ranks_.size(), std::vector<std::optional<PairFit>>(ranks_.size()));
    std::vector<std::vector<std::vector<const Message*>>> between(
        ranks_.size(), std::vector<std::vector<const Message*>>(ranks_.size()));
    for (const Message& message : messages_) between[message.from][message.to].push_back(&message);
    for (std::size_t a = 0; a < ranks_.size(); ++a) {
      for (std::size_t b = 0; b < ranks_.size(); ++b) {
        if (a != b && !between[a][b].empty() && !between[b][a].empty())
          pairs[a][b] = drifting(between[a][b], between[b][a]);
      }
    }
    const std::vector<double> by = along_tree(pairs, &drift_);
    for (Message& message : messages_) {
      const double from = from_middle(message);
      const double to = static_cast<double>(message.ended_ns - fit_.middle_ns);
      message.begun_ns += std::llround(drift_[message.from] * from);
      message.ended_ns += std::llround(drift_[message.to] * to);
    }
    shift_all(by);
  }

  /// The drift under which the messages leave the offset most room: the lines above one direction
  /// and below the other that lie farthest apart (Duda et al. 1987). The room is concave in it.
  PairFit drifting(const std::vector<const Message*>& there,
                   const std::vector<const Message*>& back) const {
    const auto least = [&](const std::vector<const Message*>& messages, double drift) {
      double found = std::numeric_limits<double>::max();
      for (const Message* message : messages) {
        found = std::min(found, static_cast<double>(message->ended_ns - message->begun_ns) -
                                    drift * from_middle(*message));
      }
      return found;
    };
    const auto fit = [&](double drift) {
      const double up = least(there, drift), down = least(back, -drift);
      return PairFit{up + down, (up - down) / 2, drift};
    };
    double low = -kMostDrift, high = kMostDrift;
    for (int i = 0; i < 60; ++i) {
      const double a = low + (high - low) / 3, b = high - (high - low) / 3;
      if (fit(a).width < fit(b).width)
        low = a;
      else
        high = b;
    }
    return fit((low + high) / 2);
  }

  [[noreturn]] void refuse_unbounded(std::size_t rank) const {
    throw InputError(source_, "rank " + std::to_string(ranks_[rank]),
                     "its clock cannot be set right: by the clocks as they are " +
                         std::to_string(fit_.acausal_before) + " of " +
                         std::to_string(fit_.messages) +
                         " messages end before they began, by up to " +
                         format_duration(Nanoseconds(fit_.worst_before_ns)) +
                         ", and no messages to and from this rank bound it; give the traces of all "
                         "ranks, of a step with forward and backward");
  }

  std::vector<Message> messages_;  // by the clocks as far as they are set right
  const std::vector<int>& ranks_;
  const std::string& source_;
  std::vector<std::int64_t> shift_;
  std::vector<double> drift_;
  ClockFit fit_;
};

}  // namespace

ClockFit fit_clocks(const std::vector<Message>& messages, const std::vector<int>& ranks,
                    const std::string& source) {
  return Fitter(messages, ranks, source).run();
}

std::int64_t correction_at(const ClockFit& fit, std::size_t rank, std::int64_t time_ns) {
  const ClockShift& clock = fit.shifts[rank];
  const std::int64_t shifted = time_ns + clock.shift_ns;
  return clock.shift_ns + std::llround(clock.drift * static_cast<double>(shifted - fit.middle_ns));
}

}  // namespace pipewright::traces
