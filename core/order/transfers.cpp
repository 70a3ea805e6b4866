#include "core/order/transfers.hpp"

#include <algorithm>
#include <tuple>

#include "core/order/forward_order.hpp"
#include "core/order/problems.hpp"

namespace pipewright {
namespace {

/// One written end, with the tensor that it carries.
struct End {
  bool forward = false;  // an activation
  int producer = 0, micro_batch = 0;
  bool send = false;

  auto tensor() const { return std::tuple(!forward, producer, micro_batch); }
};

bool carries_activation(ActionKind kind) {
  return kind == ActionKind::SendF || kind == ActionKind::RecvF;
}

End end_of(const Action& a) {
  const bool forward = carries_activation(a.kind), send = is_send(a.kind);
  const int producer = send ? a.stage.value : a.stage.value + (forward ? -1 : 1);
  return {
      .forward = forward, .producer = producer, .micro_batch = a.micro_batch.value, .send = send};
}

class TransferCheck {
 public:
  TransferCheck(const Order& order, std::size_t most) : order_(order), most_(most) {}

  std::vector<std::string> find() {
    for (int r = 0; r < order_.rank_count(); ++r) {
      const auto& row = order_.ranks[static_cast<std::size_t>(r)];
      for (std::size_t k = 0; k < row.size(); ++k) {
        if (is_pipeline_transfer(row[k].action.kind)) judge_place(RankId(r), k, row[k].action);
      }
    }
    std::sort(ends_.begin(), ends_.end(),
              [](const End& a, const End& b) { return a.tensor() < b.tensor(); });
    judge_tensors(true);
    if (!is_forward_only(order_)) judge_tensors(false);
    return std::move(problems_);
  }

 private:
  void say(std::string problem) {
    if (problems_.size() < most_) problems_.push_back(std::move(problem));
  }

  void judge_place(RankId rank, std::size_t cell, const Action& a) {
    ends_.push_back(end_of(a));
    if (a.stage.value >= order_.stages() || a.micro_batch.value >= order_.micro_batches) return;
    const RankId home = order_.placement.rank_of(a.stage, a.micro_batch);
    if (home == rank) return;
    say(place_text(rank, cell) + ": " + to_string(a) + " stands on rank " +
        std::to_string(rank.value) + ", but stage " + std::to_string(a.stage.value) +
        " is on rank " + std::to_string(home.value));
  }

  void judge_tensors(bool forward) {
    const int first = forward ? 0 : 1, last = order_.stages() - (forward ? 1 : 0);
    for (int s = first; s < last && problems_.size() < most_; ++s) {
      for (int m = 0; m < order_.micro_batches && problems_.size() < most_; ++m) {
        judge_tensor(forward, s, forward ? s + 1 : s - 1, m);
      }
    }
  }

  void judge_tensor(bool forward, int from, int to, int micro_batch) {
    const std::tuple wanted(!forward, from, micro_batch);
    auto end = std::lower_bound(ends_.begin(), ends_.end(), wanted,
                                [](const End& e, const auto& t) { return e.tensor() < t; });
    int sends = 0, receives = 0;
    for (; end != ends_.end() && end->tensor() == wanted; ++end) ++(end->send ? sends : receives);
    const MicroBatchId m(micro_batch);
    const bool same_rank =
        order_.placement.rank_of(StageId(from), m) == order_.placement.rank_of(StageId(to), m);
    if (sends == receives && (same_rank || sends == 1)) return;
    const Action send{forward ? ActionKind::SendF : ActionKind::SendB, StageId(from), m};
    const Action receive{forward ? ActionKind::RecvF : ActionKind::RecvB, StageId(to), m};
    say(place_of(send, receive, sends, receives) + "expected one " + to_string(send) + " and one " +
        to_string(receive) + ", found " + std::to_string(sends) + " and " +
        std::to_string(receives));
  }

  /// The place of the end that is one too many, else of the end without a partner, else of the
  /// computation whose tensor nobody sends.
  std::string place_of(const Action& send, const Action& receive, int sends, int receives) const {
    std::string text = sends > 1      ? place_text(order_, send, 2)
                       : receives > 1 ? place_text(order_, receive, 2)
                       : sends > 0    ? place_text(order_, send)
                                      : place_text(order_, receive);
    if (text.empty()) text = place_text(order_, producer_of(send));
    return text.empty() ? text : text + ": ";
  }

  Action producer_of(const Action& send) const {
    Action producer{ActionKind::F, send.stage, send.micro_batch};
    if (send.kind == ActionKind::SendF) return producer;
    producer.kind = ActionKind::B;
    if (place_text(order_, producer).empty()) producer.kind = ActionKind::I;
    return producer;
  }

  const Order& order_;
  const std::size_t most_;
  std::vector<End> ends_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> transfer_problems(const Order& order, std::size_t most) {
  if (!order.has_transfers()) return {};
  return TransferCheck(order, most).find();
}

}  // namespace pipewright
