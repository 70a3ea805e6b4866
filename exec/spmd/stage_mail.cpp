#include "exec/spmd/stage_mail.hpp"

#include "core/base/error.hpp"

namespace pipewright::exec::graphs {

void PigeonHoles::put(const MailKey& key, std::vector<float> values) {
  waiting_[key].push_back(std::move(values));
}

std::vector<float> PigeonHoles::take(const MailKey& key) {
  const auto found = waiting_.find(key);
  std::vector<float> values = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) waiting_.erase(found);
  return values;
}

ThreadMail::ThreadMail(const std::vector<int>& ranks) {
  for (const int rank : ranks) boxes_[rank];
}

void ThreadMail::post(int to, const MailKey& key, std::vector<float> values) {
  Box& box = boxes_.at(to);
  const std::lock_guard lock(box.guard);
  box.holes.put(key, std::move(values));
  box.arrived.notify_all();
}

std::vector<float> ThreadMail::take(int rank, const MailKey& key) {
  Box& box = boxes_.at(rank);
  std::unique_lock lock(box.guard);
  box.arrived.wait(lock, [&] { return box.closed || box.holes.has(key); });
  if (!box.holes.has(key)) throw RunError("another rank failed");
  return box.holes.take(key);
}

void ThreadMail::close() noexcept {
  for (auto& [rank, box] : boxes_) {
    const std::lock_guard lock(box.guard);
    box.closed = true;
    box.arrived.notify_all();
  }
}

void ProcessMail::post(int to, const MailKey& key, std::vector<float> values) {
  const auto& [message, micro_batch, own] = key;
  Packer packer;
  packer.put<std::uint64_t>(message);
  packer.put<std::uint64_t>(micro_batch);
  packer.put_all<float>(values);
  post_.post(to, packer.take());
}

std::vector<float> ProcessMail::take(int, const MailKey& key) {
  const int from = std::get<2>(key);
  while (!holes_.has(key)) {
    const PackedBytes bytes = post_.take(from);
    Unpacker unpacker(bytes);
    const auto message = unpacker.get<std::uint64_t>(), micro_batch = unpacker.get<std::uint64_t>();
    holes_.put({message, micro_batch, from}, unpacker.get_all<float>());
  }
  return holes_.take(key);
}

}  // namespace pipewright::exec::graphs
