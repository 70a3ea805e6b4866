// Rows on their way to the ranks that hold their experts, and back (exec/layers/expert_group.hpp).
// What a rank sends is sorted by expert, and so by rank; what comes to it are runs of one expert
// each, those of one rank after those of another (ExpertLinearShape). One thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exec/layers/expert_group.hpp"
#include "exec/layers/expert_ops.hpp"
#include "exec/layers/layer.hpp"

namespace pipewright::exec {

class ExpertDispatch {
 public:
  /// Of the mixture that stands at the site. Where that has no ExpertGroup, what is sent is
  /// received at once.
  ExpertDispatch(const LayerSite& site, const RouterShape& router);

  /// Of what came to this rank: where its runs begin, and how many rows it is.
  struct Runs {
    Buffer begin;
    std::int64_t rows = 0;
  };
  struct Received {
    Buffer rows;
    Runs runs;
  };
  /// To the experts, for the first time: nobody knows yet how many rows come. `sent`: where each
  /// expert's begin (Routes::begin).
  Task<Received> send_first(Buffer sorted, int width, const Buffer& sent);
  /// The same way again.
  Task<Buffer> send(Buffer sorted, int width, const Buffer& sent, const Runs& received);
  /// What became of received rows goes back to where they came from.
  Task<Buffer> send_back(Buffer made, int width, const Buffer& sent, const Runs& received);

 private:
  using Counts = std::vector<std::int32_t>;

  Counts counts_between(const Buffer& begin, int rows) const;
  Counts counts_of(const Runs& received) const {
    return counts_between(received.begin, static_cast<int>(received.rows));
  }
  std::vector<std::size_t> rows_by_member(const Counts& counts) const;
  ExchangeOfMembers exchange(const char* way, int width, const Buffer& out) const;
  Task<Buffer> carry(const char* way, Buffer out, int width, Counts counts_out, Counts counts_in,
                     std::size_t room);
  Buffer take(std::size_t rows, int width) const;

  TensorOps& ops_;
  ExpertGroup* const group_;
  const std::string name_;    // as one of calls
  const std::size_t runs_;    // of what it sends, and of what it gets
  const int even_;            // rows that a rank sends where they come evenly
  const int most_in_;         // that may come from each of them
  const std::size_t places_;  // that what it sends is sorted into
};

}  // namespace pipewright::exec
