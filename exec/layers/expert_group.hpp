// The ranks that divide the experts of a stage among them, as one of them sees it (GShard, arXiv
// 2006.16668): each has rows of its own and the same number of experts, sends rows to those who
// hold their experts, and gets back what these make of them. A layer pauses for such an exchange
// (exec/layers/pause_point.hpp). One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/model/tensor_split.hpp"
#include "core/plan/rank_axes.hpp"
#include "exec/layers/pause_point.hpp"

namespace pipewright::exec {

/// Each member sends some rows of `width` numbers to every member, its own included.
struct ExchangeOfMembers {
  std::string what;         // a name that is unique in the stage and direction
  int rows = 0, width = 0;  // that a member sends at most, as the plan counts them
  const float* out = nullptr;
  float* in = nullptr;
  std::vector<std::size_t> rows_out, rows_in;  // by member
  /// Where members do not know yet what comes: as many whole numbers for each member of
  /// `counts_out` become `counts_in`, and make_room() says from them where to put it. Before that
  /// counts_in holds what is to be expected; `most_in` rows may come from each member.
  std::vector<std::int32_t> counts_out, counts_in;
  int most_in = 0;
  std::function<void()> make_room;
};

/// Members are those along tp, where experts differ along it, these for each place along cp, and
/// all of these for each along ep, as ranks lie in a block.
class ExpertGroup {
 public:
  /// The member at `place`. The point must outlive it.
  ExpertGroup(const StageDivision& place, const StageDivision& ranks, PausePoint& point)
      : ranks_(ranks),
        replica_((ranks.experts_differ_along_context() ? place.context : 0) +
                 ranks.expert_replicas() / ranks.experts * place.experts),
        index_((ranks.folds_experts() ? place.tensor : 0) +
               ranks.expert_holders() / ranks.expert_replicas() * replica_),
        name_(expert_group_name(ranks)),
        point_(point) {}

  int index() const { return index_; }
  int size() const { return ranks_.expert_holders(); }
  /// Those along tp have experts, and rows, of their own.
  bool is_folded() const { return ranks_.folds_experts(); }
  /// Those along cp, too.
  bool differs_along_context() const { return ranks_.experts_differ_along_context(); }
  /// Whose rows are one micro-batch's, one after another; and how many there are.
  int members_of_micro_batch() const { return size() / ranks_.experts; }
  int micro_batches() const { return ranks_.experts; }
  /// Its place among the members that are replicas of one another in all but experts.
  int replica() const { return replica_; }

  /// For co_await: until `exchange`, which stays where it is, has taken place.
  PausePoint::Pause exchanged(ExchangeOfMembers& exchange) {
    return point_.until({.exchange = &exchange, .axis = name_});
  }

 private:
  const StageDivision ranks_;
  const int replica_, index_;
  const std::string name_;
  PausePoint& point_;
};

}  // namespace pipewright::exec
