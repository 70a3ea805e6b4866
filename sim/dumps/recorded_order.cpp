#include "sim/dumps/recorded_order.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "sim/dumps/operations.hpp"

namespace pipewright::sim {
namespace {

bool is_gloo(const RecordedCall& call) { return call.backend == "gloo"; }

/// Names that calls of an order may have, no two alike, by group.
std::vector<std::string> group_names(const DumpedJob& job) {
  std::vector<std::string> names;
  for (std::size_t g = 0; g < job.groups.size(); ++g) {
    std::string name = as_call_name(job.groups[g].name);
    if (name.empty() || std::ranges::count(names, name) != 0) name += "." + std::to_string(g);
    names.push_back(std::move(name));
  }
  return names;
}

/// The calls of dumps that become cells, each as its communicator has it.
class OrderMaker {
 public:
  OrderMaker(const DumpedJob& job, Guarantee guarantee)
      : job_(job), guarantee_(guarantee), names_(group_names(job)) {}

  RecordedOrder made(const OpenCalls& open) {
    RecordedOrder recorded;
    const auto ranks = static_cast<std::size_t>(job_.ranks());
    recorded.order.ranks.resize(ranks);
    recorded.origin.resize(ranks);
    recorded.owed.resize(ranks);
    for (std::size_t r = 0; r < ranks; ++r) add_rank(r, open[r], recorded);
    recorded.order.calls = calls_.take();
    const OrderExtent extent = extent_of(recorded.order);
    recorded.order.placement =
        placement_of_rows(recorded.order, extent.stages, extent.micro_batches);
    add_groups(recorded.order);
    find_owed_members(open, recorded);
    find_owed_ends(recorded);
    return recorded;
  }

 private:
  Call made_call(std::size_t rank, std::size_t at) const {
    const RecordedCall& recorded = job_.dumps[rank].calls[at];
    const RecordedGroup& group = job_.groups[recorded.group];
    Call call = call_of(recorded, group);
    std::string communicator = names_[recorded.group];
    const bool alone = recorded.is_transfer && recorded.batch == RecordedCall::kNoBatch;
    if (alone && guarantee_ == Guarantee::ByCommunicator) {
      const auto [low, high] = std::minmax(recorded.source, recorded.destination);
      communicator += "." + std::to_string(low) + "-" + std::to_string(high);
    }
    if (recorded.is_transfer) {
      call.data = communicator;
    } else {
      call.group = names_[recorded.group];
    }
    if (!is_gloo(recorded)) call.stream = communicator;
    return call;
  }

  void add_cell(std::size_t rank, std::size_t at, bool batched, RecordedOrder& recorded) {
    recorded.order.ranks[rank].push_back(
        {.action = calls_.action_of(made_call(rank, at)), .partner = {}, .batched = batched});
    recorded.origin[rank].push_back(at);
  }

  /// In the order of the record; transfers of a batch stand together, where its first one does.
  void add_rank(std::size_t rank, const std::vector<std::size_t>& open, RecordedOrder& recorded) {
    const std::vector<RecordedCall>& calls = job_.dumps[rank].calls;
    std::map<std::int64_t, std::vector<std::size_t>> batches;
    for (const std::size_t at : open) {
      if (calls[at].is_transfer && calls[at].batch != RecordedCall::kNoBatch)
        batches[calls[at].batch].push_back(at);
    }
    for (const std::size_t at : open) {
      const auto batch = calls[at].is_transfer ? batches.find(calls[at].batch) : batches.end();
      if (batch == batches.end()) {
        add_cell(rank, at, false, recorded);
      } else if (batch->second.front() == at) {
        for (const std::size_t member : batch->second)
          add_cell(rank, member, member != batch->second.back(), recorded);
      }
    }
  }

  void add_groups(Order& order) const {
    for (std::size_t g = 0; g < job_.groups.size(); ++g) {
      Group group{names_[g], job_.groups[g].ranks};
      std::ranges::sort(group.ranks);
      order.groups.push_back(std::move(group));
    }
  }

  /// A member of a collective that has fewer calls of the group than another one.
  void find_owed_members(const OpenCalls& open, RecordedOrder& recorded) const {
    std::vector<std::map<std::size_t, std::vector<std::size_t>>> of_group(job_.groups.size());
    for (std::size_t r = 0; r < open.size(); ++r) {
      for (const std::size_t at : open[r]) {
        const RecordedCall& call = job_.dumps[r].calls[at];
        if (!call.is_transfer) of_group[call.group][r].push_back(at);
      }
    }
    for (std::size_t g = 0; g < of_group.size(); ++g) {
      const auto& own = of_group[g];
      const auto most =
          std::ranges::max_element(own, {}, [](const auto& calls) { return calls.second.size(); });
      if (most == own.end()) continue;
      for (const RankId rank : job_.groups[g].ranks) {
        const auto r = static_cast<std::size_t>(rank.value);
        const auto has = own.find(r);
        for (std::size_t k = has == own.end() ? 0 : has->second.size(); k < most->second.size();
             ++k)
          recorded.owed[r].push_back(made_call(most->first, most->second[k]));
      }
    }
  }

  /// An end of a transfer whose other end is not there.
  void find_owed_ends(RecordedOrder& recorded) const {
    using Edge = std::tuple<std::string, RankId, RankId>;  // communicator, from, to
    std::map<Edge, std::vector<Call>> sends, recvs;        // as their other ends
    const Order& order = recorded.order;
    for (int r = 0; r < order.rank_count(); ++r) {
      for (const Cell& cell : order.ranks[static_cast<std::size_t>(r)]) {
        if (!is_transfer(cell.action.kind)) continue;
        Call other = order.call(cell.action);
        const RankId peer = other.peer;
        const bool is_sent = other.kind == ActionKind::NamedSend;
        other.kind = is_sent ? ActionKind::NamedRecv : ActionKind::NamedSend;
        other.peer = RankId(r);
        auto& ends =
            is_sent ? sends[{other.data, RankId(r), peer}] : recvs[{other.data, peer, RankId(r)}];
        ends.push_back(std::move(other));
      }
    }
    for (auto& [edge, ends] : sends)
      owe_beyond(recvs[edge].size(), ends, std::get<2>(edge), recorded);
    for (auto& [edge, ends] : recvs)
      owe_beyond(sends[edge].size(), ends, std::get<1>(edge), recorded);
  }

  static void owe_beyond(std::size_t met, const std::vector<Call>& ends, RankId rank,
                         RecordedOrder& recorded) {
    auto& owed = recorded.owed[static_cast<std::size_t>(rank.value)];
    for (std::size_t k = met; k < ends.size(); ++k) owed.push_back(ends[k]);
  }

  const DumpedJob& job_;
  const Guarantee guarantee_;
  const std::vector<std::string> names_;
  CallTable calls_;
};

}  // namespace

std::string_view to_string(Guarantee guarantee) {
  switch (guarantee) {
    case Guarantee::ByCommunicator:
      return "the calls of each communicator in their order";
    case Guarantee::ByGroup:
      return "one communicator for all calls of a group (NCCL with device_id, or PyTorch up to "
             "2.11)";
    case Guarantee::ByDevice:
      return "one call of a device after the other, which is all that NCCL guarantees for several "
             "communicators";
  }
  return "";
}

std::vector<Guarantee> guarantees_of(const DumpedJob& job) {
  const bool gloo = std::ranges::all_of(
      job.dumps, [](const Dump& dump) { return std::ranges::all_of(dump.calls, is_gloo); });
  if (gloo) return {Guarantee::ByCommunicator};
  return {Guarantee::ByCommunicator, Guarantee::ByGroup, Guarantee::ByDevice};
}

CommPolicy policy_of(Guarantee guarantee) {
  CommPolicy policy = comm_policy_preset("torch-gloo");
  policy.channel = Channel::Tag;  // a communicator is the tag of its transfers, and their stream
  policy.batches = Batches::Joined;
  if (guarantee == Guarantee::ByDevice) policy.device_queues = 1;
  return policy;
}

RecordedOrder recorded_order(const DumpedJob& job, const OpenCalls& open, Guarantee guarantee) {
  return OrderMaker(job, guarantee).made(open);
}

Order continued_order(const RecordedOrder& recorded) {
  Order order = recorded.order;
  CallTable calls;
  for (auto& row : order.ranks) {
    for (Cell& cell : row) cell.action = calls.action_of(order.call(cell.action));
  }
  for (std::size_t r = 0; r < order.ranks.size(); ++r) {
    if (recorded.owed[r].empty()) continue;
    order.ranks[r].push_back({.action = calls.action_of({.kind = ActionKind::HostSync})});
    for (const Call& call : recorded.owed[r])
      order.ranks[r].push_back({.action = calls.action_of(call)});
  }
  order.calls = calls.take();
  return order;
}

}  // namespace pipewright::sim
