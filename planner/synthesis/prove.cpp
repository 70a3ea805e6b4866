#include "planner/synthesis/prove.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <unordered_map>

#include "planner/synthesis/prove_bound.hpp"
#include "planner/synthesis/prove_state.hpp"

namespace pipewright::planner::synthesis {
namespace {

/// What has been done, packed: equal keys are equal states but for times.
using Key = std::array<std::uint64_t, 2>;
struct KeyHash {
  std::size_t operator()(const Key& key) const {
    std::uint64_t x = key[0] * 0x9e3779b97f4a7c15ull ^ (key[1] + 0x7f4a7c15ull);
    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9ull;
    return static_cast<std::size_t>(x ^ (x >> 32));
  }
};

/// States seen, with their times: what a later state must not be later than.
class Seen {
 public:
  explicit Seen(const Problem& problem)
      : problem_(problem), bits_(std::bit_width(static_cast<unsigned>(problem.micro_batches)) + 1) {
    usable_ = at(problem.stages) * 3 * at(bits_) <= 128;
  }

  /// True if a state with the same actions done was there that is nowhere later; else notes it.
  bool dominated(const ProofState& state) {
    if (!usable_) return false;
    times_of(state);
    auto& known = states_[key_of(state)];
    for (const auto& times : known) {
      if (std::equal(times.begin(), times.end(), times_.begin(),
                     [](std::int64_t a, std::int64_t b) { return a <= b; }))
        return true;
    }
    if (stored_ >= kMost) return false;
    std::erase_if(known, [&](const auto& times) {
      return std::equal(times_.begin(), times_.end(), times.begin(),
                        [](std::int64_t a, std::int64_t b) { return a <= b; });
    });
    stored_ += times_.size();
    known.push_back(times_);
    return false;
  }

 private:
  static constexpr std::size_t kMost = 60'000'000;  // numbers, 8 bytes each

  Key key_of(const ProofState& state) const {
    Key key{0, 0};
    std::size_t bit = 0;
    const auto put = [&](std::uint64_t value, int width) {
      for (int b = 0; b < width; ++b, ++bit) key[bit / 64] |= (value >> b & 1) << (bit % 64);
    };
    for (int s = 0; s < problem_.stages; ++s) {
      for (const Kind kind : {Forward, Input, Weight}) {
        const Token token = token_of(s, kind);
        put(static_cast<std::uint64_t>(state.done[token]), bits_ - 1);
        put(state.left_out[token], 1);
      }
    }
    return key;
  }

  /// When each rank is free, and when what has been made for it and not been used arrives.
  void times_of(const ProofState& state) {
    times_.assign(state.clock.begin(), state.clock.end());
    const int last = problem_.stages - 1;
    for (int s = 0; s <= last; ++s) {
      const std::int64_t clock = state.clock[at(problem_.rank_of[at(s)])];
      const auto note = [&](Token token, Token from) {
        for (int k = state.done[token]; k < state.done[from]; ++k)
          times_.push_back(std::max(clock, state.arrival[state.input_place(token, k)]));
      };
      if (s > 0) note(token_of(s, Forward), token_of(s - 1, Forward));
      if (s < last) note(token_of(s, Input), token_of(s + 1, Input));
    }
    // A later first start is better for the span.
    for (const std::int64_t begin : state.begin) times_.push_back(-begin);
  }

  const Problem& problem_;
  int bits_;
  bool usable_ = false;
  std::size_t stored_ = 0;
  std::vector<std::int64_t> times_;
  std::unordered_map<Key, std::vector<std::vector<std::int64_t>>, KeyHash> states_;
};

/// True if each rank's first action is the first micro-batch on its way through stages that are the
/// first of their ranks: it then starts at the same time in every order.
bool starts_are_fixed(const Problem& problem) {
  int deepest = 0;
  std::vector<bool> first(at(problem.stages), false);
  for (const auto& stages : problem.stages_of) {
    if (stages.empty()) continue;
    deepest = std::max(deepest, stages.front());
    first[at(stages.front())] = true;
  }
  return std::all_of(first.begin(), first.begin() + deepest + 1, [](bool is) { return is; });
}

class Proof {
 public:
  Proof(Search& search, std::int64_t& nodes)
      : search_(search),
        problem_(search.problem),
        nodes_(nodes),
        state_(search.problem),
        bound_(search.problem),
        seen_(search.problem),
        cut_(search.problem.objective == Objective::Makespan || starts_are_fixed(search.problem)) {
    for (int r = 0; r < problem_.ranks; ++r) {
      std::int64_t most = 0;
      for (const int s : problem_.stages_of[at(r)]) {
        for (const Kind kind : {Forward, Input, Weight}) {
          most += std::max<std::int64_t>(0, problem_.memory[token_of(s, kind)]) *
                  problem_.micro_batches;
        }
      }
      roomy_.push_back(most <= problem_.limit[at(r)]);
    }
  }

  bool run() { return visit(); }

 private:
  struct Option {
    Token token;
    std::int64_t start;
  };

  int rank_of(Token token) const { return problem_.rank_of[at(stage_of(token))]; }

  /// False: out of nodes.
  bool visit() {
    if (search_.optimal()) return true;
    if (state_.left == 0) {
      search_.offer(state_.sequence(), "branch and bound", "proof");
      return true;
    }
    if (nodes_-- <= 0) return false;
    ++search_.evaluated;
    if (bound_.of(state_) >= search_.to_beat() || seen_.dominated(state_)) return true;
    const Option first = ends_first();
    if (first.start == kNever) return true;  // everything is left out or out of memory
    return branch(first);
  }

  Option ends_first() const {
    Option best{0, kNever};
    std::int64_t end = kNever;
    for (int s = 0; s < problem_.stages; ++s) {
      for (const Kind kind : {Forward, Input, Weight}) {
        if (kind == Weight && problem_.kinds == 2) continue;
        const Token token = token_of(s, kind);
        const std::int64_t start = state_.start_of(token);
        if (start == kNever || start + problem_.duration[token] >= end) continue;
        end = start + problem_.duration[token];
        best = {token, start};
      }
    }
    return best;
  }

  bool branch(const Option& first) {
    const int rank = rank_of(first.token);
    const std::int64_t end = cut_ ? first.start + problem_.duration[first.token] : kNever;
    std::array<Option, 64> options;
    std::size_t count = 0;
    for (const int s : problem_.stages_of[at(rank)]) {
      for (const Kind kind : {Input, Forward, Weight}) {
        if (kind == Weight && problem_.kinds == 2) continue;
        const Token token = token_of(s, kind);
        const std::int64_t start = state_.start_of(token);
        if (start == kNever || (start >= end && token != first.token)) continue;
        if (count < options.size()) options[count++] = {token, start};
      }
    }
    std::stable_sort(options.begin(), options.begin() + static_cast<std::ptrdiff_t>(count),
                     [](const Option& a, const Option& b) { return a.start < b.start; });
    for (std::size_t o = 0; o < count; ++o) {
      const auto undo = state_.take(options[o].token, options[o].start);
      const bool done = visit();
      state_.take_back(undo);
      if (!done) return false;
    }
    const bool takes = problem_.memory[first.token] > 0 && !roomy_[at(rank)];
    if (cut_ && !takes) return true;
    return without(cut_ ? 1 : count, cut_ ? &first : options.data());
  }

  /// Goes on with the options left out until the rank has taken something else.
  bool without(std::size_t count, const Option* options) {
    std::vector<Token> tokens;
    for (std::size_t o = 0; o < count; ++o) tokens.push_back(options[o].token);
    for (const Token token : tokens) state_.left_out[token] = 1;
    const bool done = visit();
    for (const Token token : tokens) state_.left_out[token] = 0;
    return done;
  }

  Search& search_;
  const Problem& problem_;
  std::int64_t& nodes_;
  ProofState state_;
  NodeBound bound_;
  Seen seen_;
  bool cut_;
  std::vector<bool> roomy_;  // by rank: everything fits at once
};

}  // namespace

bool prove(Search& search, std::int64_t& nodes) {
  if (search.optimal()) return true;
  return Proof(search, nodes).run();
}

}  // namespace pipewright::planner::synthesis
