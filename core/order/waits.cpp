#include "core/order/waits.hpp"

#include <map>
#include <tuple>

#include "core/order/problems.hpp"

namespace pipewright {
namespace {

/// One walk along a rank's list, counting what has come and what has been waited for.
class RankWaits {
 public:
  RankWaits(const std::vector<Cell>& row, RankId rank) : row_(row), rank_(rank) {}

  void find(std::size_t most, std::vector<std::string>& problems) {
    for (std::size_t k = 0; k < row_.size() && problems.size() < most; ++k) {
      const Action& a = row_[k].action;
      if (is_send(a.kind) || a.kind == ActionKind::ReduceGrad) ++seen_[key(a)];
      if (!is_wait(a.kind)) continue;
      const Action awaited{awaited_kind(a.kind), a.stage, a.micro_batch};
      const int turn = ++waited_[key(awaited)];
      if (turn > seen_[key(awaited)]) problems.push_back(sentence(k, a, awaited, turn));
    }
  }

 private:
  static std::tuple<ActionKind, int, int> key(const Action& a) {
    return {a.kind, a.stage.value, a.micro_batch.value};
  }

  std::string sentence(std::size_t cell, const Action& wait, const Action& awaited, int turn) {
    const std::string text =
        place_text(rank_, cell) + ": " + to_string(wait) + " waits for " + to_string(awaited);
    const std::size_t at = place_of(awaited, turn);
    if (at < row_.size()) {
      return text + ", which comes after it (" + place_text(rank_, at) +
             "): the rank can never go on; write the wait after it";
    }
    if (turn > 1) {
      return text + " once more than the rank has it; one " + to_string(wait) +
             " is too many, or stands on the wrong rank";
    }
    return text +
           ", which the rank does not have; an order with waits writes its sends, receives " +
           "and reductions too";
  }

  /// The place of the number-th such action. Only first actions count: transfer ends and reductions
  /// stand in no pair.
  std::size_t place_of(const Action& action, int number) const {
    std::size_t at = 0;
    for (; at < row_.size(); ++at) {
      if (key(row_[at].action) == key(action) && --number == 0) break;
    }
    return at;
  }

  const std::vector<Cell>& row_;
  const RankId rank_;
  std::map<std::tuple<ActionKind, int, int>, int> seen_, waited_;
};

}  // namespace

std::vector<std::string> wait_problems(const Order& order, std::size_t most) {
  std::vector<std::string> problems;
  for (int r = 0; r < order.rank_count(); ++r)
    RankWaits(order.ranks[static_cast<std::size_t>(r)], RankId(r)).find(most, problems);
  return problems;
}

}  // namespace pipewright
