#include "exec/spmd/timed_group.hpp"

#include <utility>

#include "exec/base/waiting.hpp"

namespace pipewright::exec::graphs {
namespace {

using collectives::Group;
using collectives::PartsIn;
using collectives::PartsOut;
using collectives::Summands;

class TimedGroup final : public Group {
 public:
  TimedGroup(std::unique_ptr<Group> group, PartSpans& parts)
      : group_(std::move(group)), parts_(parts) {}

  int member() const override { return group_->member(); }
  int members() const override { return group_->members(); }

  bool all_reduce(Summands values) override {
    return noted([&] { return group_->all_reduce(values); });
  }
  bool reduce_scatter(Summands values) override {
    return noted([&] { return group_->reduce_scatter(values); });
  }
  void all_gather(PartsIn all) override {
    noted([&] { return group_->all_gather(all), true; });
  }
  void all_to_all(PartsOut out, PartsIn in) override {
    noted([&] { return group_->all_to_all(out, in), true; });
  }
  void broadcast(int root, std::span<std::byte> bytes) override {
    noted([&] { return group_->broadcast(root, bytes), true; });
  }
  void give_up(const std::string& why) noexcept override { group_->give_up(why); }

 private:
  template <class Call>
  bool noted(Call call) {
    const std::int64_t begin_ns = local::steady_ns();
    const bool answer = call();
    if (parts_.is_open) parts_.spans.push_back({begin_ns, local::steady_ns()});
    return answer;
  }

  std::unique_ptr<Group> group_;
  PartSpans& parts_;
};

}  // namespace

GroupsByRanks timed(GroupsByRanks groups, PartSpans& parts) {
  for (auto& [ranks, group] : groups) {
    if (group->members() > 1) group = std::make_unique<TimedGroup>(std::move(group), parts);
  }
  return groups;
}

}  // namespace pipewright::exec::graphs
