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

namespace pipewright::exec {
namespace last_step_test {

/// Ranks of this process, with another one beside them that is gone when clocks are compared.
class WithLeavingPeer final : public Transport, public Peers {
 public:
  explicit WithLeavingPeer(Transport& inner) : inner_(inner) {}

  Peers* peers() override { return this; }
  std::int64_t now() const override { return inner_.now(); }
  void sleep_until(RankId r, std::int64_t t) override { inner_.sleep_until(r, t); }
  std::vector<RankId> local_ranks() const override { return inner_.local_ranks(); }
  void meet(RankId r, const std::function<void()>& f) override { inner_.meet(r, f); }
  void issue(RankId r, InstructionId id, PayloadPtr data) override {
    inner_.issue(r, id, std::move(data));
  }
  void provide(RankId r, InstructionId id, PayloadPtr data) override {
    inner_.provide(r, id, std::move(data));
  }
  void wait(RankId r, InstructionId id) override { inner_.wait(r, id); }
  PayloadPtr take(RankId r, InstructionId id) override { return inner_.take(r, id); }
  void stop() noexcept override { inner_.stop(); }
  bool stands_still_within(std::int64_t t) override { return inner_.stands_still_within(t); }
  void end_watch() noexcept override { inner_.end_watch(); }
  std::uint64_t ended_count() const override { return inner_.ended_count(); }
  void report(Timeline& t, Progress& p) const override { inner_.report(t, p); }

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

 private:
  Transport& inner_;
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
