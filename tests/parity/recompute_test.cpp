// Layers that are computed again in front of their backward: nothing changes but the memory.
#include <gtest/gtest.h>

#include "tests/parity/outcome.hpp"

namespace pipewright::tests {
namespace recompute_test {

using exec::Numerics;
using Kind = RecomputeSpec::Kind;

std::vector<RecomputeSpec> ways() {
  return {{Kind::Full},
          {Kind::Selective},
          {Kind::Listed, {2, std::string("head")}},
          {Kind::Listed, {0, 2}, {1}}};
}

/// Pipelined with recomputed layers, and without, has the same bits.
void expect_no_trace(const Program& program, const Model& model, Numerics numerics) {
  Setting setting(program, model);
  setting.training.options.numerics = numerics;
  const Outcome expected = pipelined(program, setting.training);
  for (const RecomputeSpec& spec : ways()) {
    SCOPED_TRACE(to_json(spec).dump());
    setting.training.options.recompute = recompute_of(model, spec);
    expect_equal(pipelined(program, setting.training), expected);
  }
}

class Recompute : public testing::TestWithParam<const planner::Schedule*> {};

TEST_P(Recompute, LeavesTheBitsOfARunThatKeepsEverything) {
  for (const int ranks : {1, 2, 4}) {
    const std::optional<Program> program = program_of(*GetParam(), ranks);
    if (!program) continue;
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    expect_no_trace(*program, small_transformer(), Numerics::Exact);
    expect_no_trace(*program, small_llama(), Numerics::Exact);
    expect_no_trace(*program, small_mixtral(), Numerics::Exact);
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, Recompute, testing::ValuesIn(synchronous_schedules()),
                         [](const auto& one) { return name_of(*one.param); });

TEST(RecomputeInFastNumerics, LeavesTheSameBitsToo) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "pipedream"}) {
    for (const int ranks : {1, 2, 4}) {
      SCOPED_TRACE(schedule + std::to_string(ranks));
      const Program program = program_of({schedule, ranks, 8, 1, "torch"});
      expect_no_trace(program, small_transformer(), Numerics::Fast);
    }
  }
}

}  // namespace recompute_test
}  // namespace pipewright::tests
