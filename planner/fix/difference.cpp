#include "planner/fix/difference.hpp"

#include <algorithm>

#include "core/base/count_of.hpp"
#include "core/order/cells.hpp"

namespace pipewright::planner {
namespace {

constexpr std::size_t kShown = 3;  // moves of a rank that are named

std::string line_of_rank(RankId rank, const std::vector<std::string>& moves) {
  std::string line = "rank " + std::to_string(rank.value) + ": ";
  for (std::size_t k = 0; k < std::min(moves.size(), kShown); ++k)
    line += (k == 0 ? "" : ", ") + moves[k];
  if (moves.size() > kShown) line += ", and " + std::to_string(moves.size() - kShown) + " more";
  return line;
}

}  // namespace

std::vector<std::string> policy_difference(const CommPolicy& from, const CommPolicy& to) {
  std::vector<std::string> lines;
  const auto field = [&](const char* name, const std::string& was, const std::string& is) {
    if (was != is) lines.push_back(std::string(name) + ": " + was + " -> " + is);
  };
  field("issue", std::string(to_string(from.issue)), std::string(to_string(to.issue)));
  field("channel", std::string(to_string(from.channel)), std::string(to_string(to.channel)));
  field("post", std::string(to_string(from.post)), std::string(to_string(to.post)));
  field("run_order", std::string(to_string(from.run_order)), std::string(to_string(to.run_order)));
  field("send_f", to_string(from.send_f), to_string(to.send_f));
  field("send_b", to_string(from.send_b), to_string(to.send_b));
  field("connect", std::string(to_string(from.connect)), std::string(to_string(to.connect)));
  field("buffers", std::string(to_string(from.buffers)), std::string(to_string(to.buffers)));
  field("batches", std::string(to_string(from.batches)), std::string(to_string(to.batches)));
  field("in_flight", std::to_string(from.in_flight), std::to_string(to.in_flight));
  field("device_queues", std::to_string(from.device_queues), std::to_string(to.device_queues));
  return lines;
}

std::vector<std::string> move_difference(const std::vector<Hoist>& moves) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < moves.size();) {
    std::vector<std::string> of_rank;
    const RankId rank = moves[begin].rank;
    for (; begin < moves.size() && moves[begin].rank == rank; ++begin)
      of_rank.push_back(to_string(moves[begin].what) + " before " + to_string(moves[begin].before));
    lines.push_back(line_of_rank(rank, of_rank));
  }
  return lines;
}

std::vector<std::string> list_difference(const Order& from, const Order& to) {
  std::vector<std::string> lines;
  for (std::size_t r = 0; r < to.ranks.size(); ++r) {
    const auto &was = from.ranks[r], &is = to.ranks[r];
    std::vector<std::string> places;
    for (std::size_t k = 0; k < std::min(was.size(), is.size()); ++k) {
      if (!(was[k] == is[k]))
        places.push_back(to_string(is[k], to.calls) + " where " + to_string(was[k], from.calls) +
                         " stood");
    }
    if (!places.empty()) lines.push_back(line_of_rank(RankId(static_cast<int>(r)), places));
  }
  return lines;
}

std::string count_of_moves(const std::vector<Hoist>& moves) {
  const auto sends = static_cast<std::size_t>(std::count_if(
      moves.begin(), moves.end(), [](const Hoist& h) { return is_send(h.what.action.kind); }));
  const std::size_t receives = moves.size() - sends;
  if (sends == 0) return count_of(receives, "receive");
  if (receives == 0) return count_of(sends, "send");
  return count_of(receives, "receive") + " and " + count_of(sends, "send");
}

}  // namespace pipewright::planner
