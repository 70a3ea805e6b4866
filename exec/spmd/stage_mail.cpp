#include "exec/spmd/stage_mail.hpp"

#include "core/base/error.hpp"

namespace pipewright::exec::graphs {

StageMail::StageMail(const std::vector<int>& ranks) {
  for (const int rank : ranks) boxes_[rank];
}

void StageMail::post(int to, const MailKey& key, std::vector<float> values) {
  Box& box = boxes_.at(to);
  const std::lock_guard lock(box.guard);
  box.waiting[key].push_back(std::move(values));
  box.arrived.notify_all();
}

std::vector<float> StageMail::take(int rank, const MailKey& key) {
  Box& box = boxes_.at(rank);
  std::unique_lock lock(box.guard);
  box.arrived.wait(lock, [&] { return box.closed || box.waiting.contains(key); });
  const auto found = box.waiting.find(key);
  if (found == box.waiting.end()) throw RunError("another rank failed");
  std::vector<float> values = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) box.waiting.erase(found);
  return values;
}

void StageMail::close() noexcept {
  for (auto& [rank, box] : boxes_) {
    const std::lock_guard lock(box.guard);
    box.closed = true;
    box.arrived.notify_all();
  }
}

}  // namespace pipewright::exec::graphs
