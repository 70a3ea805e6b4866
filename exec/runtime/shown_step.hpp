// Which step of a run its timeline shows, in bounded memory: the one whose time is the median of
// the steps after the warm-up. Of an even number the smaller of the middle two, of equal times the
// earlier step. All of them compete while there are few; once there are more than fit, of a run of
// any length every 2nd, every 4th and so on, counted from the first: so those that compete are
// spread evenly over the run.
#pragma once

#include <cstddef>
#include <vector>

#include "core/timeline/timeline.hpp"

namespace pipewright::exec {

class ShownStep {
 public:
  /// At most so many steps compete, and fewer where their timelines would take more bytes than
  /// these, but never fewer than kFewest.
  static constexpr std::size_t kMost = 256, kFewest = 8;
  static constexpr std::size_t kMostBytes = std::size_t{4} << 20;

  struct Step {
    int step = 0;  // of the run, from 0
    Timeline timeline;
  };

  /// `warm_up` steps compete only if there is no other: then the last of them is shown.
  /// `median`: false shows the last step.
  ShownStep(int warm_up, bool median) : warm_up_(warm_up), median_(median) {}

  /// The next step. Returns a timeline that is needed no more, for its memory.
  Timeline add(Timeline timeline);
  /// At the end. Nothing of a run without steps.
  Step take();

 private:
  void thin_out();

  const int warm_up_;
  const bool median_;
  int added_ = 0;
  int stride_ = 1;
  std::vector<Step> competing_;
  std::vector<Timeline> spare_;
};

}  // namespace pipewright::exec
