// Another process leaves while the last step's end is told: that step has ended all the same.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/program/lower.hpp"
#include "exec/devices/paced/device.hpp"
#include "exec/runtime/peers.hpp"
#include "exec/transports/local/transport.hpp"
#include "planner/schedules/registry.hpp"
#include "tests/support/forwarding_transport.hpp"

namespace pipewright::exec {
namespace last_step_test {

/// Ranks of this process, with another one beside them that is gone when clocks are compared.
class WithLeavingPeer final : public test::ForwardingTransport, public Peers {
 public:
  using ForwardingTransport::ForwardingTransport;

  Peers* peers() override { return this; }
  int process() const override { return 0; }
  int processes() const override { return 1; }
  std::vector<PackedBytes> share(PackedBytes own) override { return {std::move(own)}; }
  std::vector<ClockError> clocks() override { throw Stopped{}; }
  void post_progress(std::uint64_t) override {}
  std::uint64_t progress_elsewhere() const override { return 0; }
  bool ended_elsewhere() const override { return false; }
  EndOfRun end_elsewhere() const override { return {}; }
  std::vector<LostRank> lost(std::int64_t) override { return {}; }
  void hand_in(PackedBytes, EndOfRun) noexcept override {}
  std::vector<PackedBytes> handed_in(std::int64_t) override { return {}; }
};

TEST(LastStep, IsShownThoughAnotherProcessLeavesAtItsEnd) {
  const Program program = lower(planner::make_order("gpipe", {1, 2, 1, {}}), CommPolicy{});
  CostTable costs;
  costs.stages = {{.f = Nanoseconds(1000), .i = Nanoseconds(1000), .w = Nanoseconds(1000)}};
  for (const int steps : {1, 3}) {
    local::LocalTransport local(program, local::paced_messages(program, costs),
                                local::ClockKind::Virtual);
    WithLeavingPeer transport(local);
    const RunResult result = paced::run_paced(program, costs, {.steps = steps}, transport);
    EXPECT_TRUE(result.finished());
    EXPECT_EQ(static_cast<int>(result.steps.size()), steps);
    EXPECT_EQ(result.timeline.end.size(), program.code.size());
    EXPECT_GT(result.figures.makespan_ns, 0);
    EXPECT_TRUE(result.clocks.empty());
  }
}

}  // namespace last_step_test
}  // namespace pipewright::exec
