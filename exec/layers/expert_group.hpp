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

#include "core/order/devices.hpp"
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

class ExpertGroup {
 public:
  /// Member `index` of `size`. The point must outlive it.
  ExpertGroup(int index, int size, PausePoint& point) : index_(index), size_(size), point_(point) {}

  int index() const { return index_; }
  int size() const { return size_; }

  /// For co_await: until `exchange`, which stays where it is, has taken place.
  PausePoint::Pause exchanged(ExchangeOfMembers& exchange) {
    return point_.until({.exchange = &exchange, .axis = kExpertAxis});
  }

 private:
  const int index_, size_;
  PausePoint& point_;
};

}  // namespace pipewright::exec
