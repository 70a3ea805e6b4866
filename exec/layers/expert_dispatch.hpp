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
    RunBegins begins;
    std::int64_t rows = 0;
  };
  struct Received {
    Buffer rows;
    Runs runs;
  };
  /// Where the rows of each expert begin among those that are sent. Waits for the device.
  RunBegins begins_in(const Routes& routes) const;
  /// To the experts, for the first time: nobody knows yet how many rows come.
  Task<Received> send_first(Buffer sorted, int width, const RunBegins& sent);
  /// The same way again.
  Task<Buffer> send(Buffer sorted, int width, const RunBegins& sent, const Runs& received);
  /// What became of received rows goes back to where they came from.
  Task<Buffer> send_back(Buffer made, int width, const RunBegins& sent, const Runs& received);

 private:
  using Counts = std::vector<std::int32_t>;

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
