#include "planner/export/pytorch_single.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.hpp"

namespace pipewright::planner {
namespace {

/// The list of one rank, whose stage has its number.
class SingleList {
 public:
  SingleList(int stage, int stages)
      : stage_(stage), first_(stage == 0), last_(stage + 1 == stages) {}

  void compute(ActionKind kind, int m) { add(kind, m); }
  void receive_activation(int m) { add_if(!first_, ActionKind::RecvF, m); }
  void receive_gradient(int m) { add_if(!last_, ActionKind::RecvB, m); }
  void send_activation(int m) { add_if(!last_, ActionKind::SendF, m); }
  void send_gradient(int m) { add_if(!first_, ActionKind::SendB, m); }
  void wait_for_activation(int m) { add_if(!last_, ActionKind::WaitSendF, m); }
  void wait_for_gradient(int m) { add_if(!first_, ActionKind::WaitSendB, m); }
  /// The last send and the receive behind it are one batch, which is waited for at once.
  void exchange_with_next(int sent, int received) {
    if (last_) return;
    exchange(ActionKind::SendF, sent, ActionKind::RecvB, received);
    wait_for_activation(sent);
  }
  void exchange_with_previous(int sent, int received) {
    if (first_) return;
    exchange(ActionKind::SendB, sent, ActionKind::RecvF, received);
    wait_for_gradient(sent);
  }

  std::vector<Cell> take() { return std::move(cells_); }

 private:
  void add(ActionKind kind, int m) {
    cells_.push_back({{kind, StageId(stage_), MicroBatchId(m)}, std::nullopt});
  }
  void add_if(bool there, ActionKind kind, int m) {
    if (there) add(kind, m);
  }
  void exchange(ActionKind send, int sent, ActionKind receive, int received) {
    add(send, sent);
    cells_.back().batched = true;
    add(receive, received);
  }

  const int stage_;
  const bool first_, last_;
  std::vector<Cell> cells_;
};

std::vector<Cell> one_f_one_b(int stage, int stages, int micro_batches) {
  SingleList list(stage, stages);
  const int warm_up = std::min(micro_batches, stages - stage);
  for (int f = 0; f < warm_up; ++f) {
    list.receive_activation(f);
    list.compute(ActionKind::F, f);
    if (f > 0) list.wait_for_activation(f - 1);
    if (f + 1 < warm_up) list.send_activation(f);  // the last one leaves with the first gradient
  }
  int f = warm_up, b = 0;
  while (true) {
    list.exchange_with_next(f - 1, b);
    list.compute(ActionKind::B, b++);
    if (f == micro_batches) break;
    list.exchange_with_previous(b - 1, f);
    list.compute(ActionKind::F, f++);
  }
  list.send_gradient(b - 1);
  for (; b < micro_batches; ++b) {
    list.receive_gradient(b);
    list.compute(ActionKind::B, b);
    list.wait_for_gradient(b - 1);
    list.send_gradient(b);
  }
  list.wait_for_gradient(b - 1);
  return list.take();
}

std::vector<Cell> gpipe(int stage, int stages, int micro_batches) {
  SingleList list(stage, stages);
  for (int m = 0; m < micro_batches; ++m) {
    list.receive_activation(m);
    list.compute(ActionKind::F, m);
    list.send_activation(m);
  }
  for (int m = 0; m < micro_batches; ++m) list.wait_for_activation(m);
  for (int m = 0; m < micro_batches; ++m) {
    list.receive_gradient(m);
    list.compute(ActionKind::B, m);
    list.send_gradient(m);
  }
  for (int m = 0; m < micro_batches; ++m) list.wait_for_gradient(m);
  return list.take();
}

}  // namespace

Order torch_single_list(std::string_view schedule_class, int ranks, int micro_batches) {
  const bool is_1f1b = schedule_class == "Schedule1F1B";
  if (!is_1f1b && schedule_class != "ScheduleGPipe") {
    throw InputError("what PyTorch's " + std::string(schedule_class) +
                     " does is not known here: Schedule1F1B and ScheduleGPipe, and all schedules "
                     "with a list of actions, are; give its lists instead");
  }
  if (ranks < 1 || micro_batches < 1) {
    throw InputError("a schedule has a rank and a micro-batch at least, not " +
                     std::to_string(ranks) + " and " + std::to_string(micro_batches));
  }
  if (is_1f1b && micro_batches < ranks) {
    throw InputError("Schedule1F1B needs as many micro-batches as ranks, not " +
                     std::to_string(micro_batches) + " for " + std::to_string(ranks));
  }
  Order order;
  order.placement = Placement::loop(ranks, 1);
  order.micro_batches = micro_batches;
  for (int r = 0; r < ranks; ++r) {
    order.ranks.push_back(is_1f1b ? one_f_one_b(r, ranks, micro_batches)
                                  : gpipe(r, ranks, micro_batches));
  }
  return order;
}

}  // namespace pipewright::planner
