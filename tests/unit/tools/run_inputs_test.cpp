// What processes compare before they begin, and the sentence when it differs.
#include "tools/running/run_inputs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "exec/data/data.hpp"
#include "tools/cli/session.hpp"
#include "tools/input/subject.hpp"
#include "tools/output/step_lines.hpp"

namespace pipewright::tools {
namespace run_inputs_test {

RunInputs seed_of(int seed) { return {{"steps", "20"}, {"training.seed", std::to_string(seed)}}; }

TEST(InputsDifference, IsNothingAmongEqualOnes) {
  EXPECT_EQ(inputs_difference({}), "");
  EXPECT_EQ(inputs_difference({seed_of(1)}), "");
  EXPECT_EQ(inputs_difference({seed_of(1), seed_of(1), seed_of(1)}), "");
}

TEST(InputsDifference, NamesTheInputItsValuesAndTheirRanks) {
  EXPECT_EQ(inputs_difference({seed_of(1), seed_of(7), seed_of(1)}),
            "  training.seed: 1 on ranks 0 and 2; 7 on rank 1\n");
  EXPECT_EQ(inputs_difference({seed_of(1), seed_of(1), seed_of(1), seed_of(7), seed_of(1),
                               seed_of(1), seed_of(7)}),
            "  training.seed: 1 on ranks 0-2, 4 and 5; 7 on ranks 3 and 6\n");
}

TEST(InputsDifference, WhatOnlySomeHaveBeenGivenDiffersToo) {
  RunInputs loads = seed_of(1);
  loads.push_back({"load-checkpoint", "step 4"});
  EXPECT_EQ(inputs_difference({seed_of(1), loads}),
            "  load-checkpoint: not given on rank 0; step 4 on rank 1\n");
  EXPECT_EQ(inputs_difference({loads, seed_of(2)}),
            "  training.seed: 1 on rank 0; 2 on rank 1\n"
            "  load-checkpoint: step 4 on rank 0; not given on rank 1\n");
}

TEST(InputsDifference, OfManyValuesTheFirstFewAreNamed) {
  std::vector<RunInputs> all;
  for (int rank = 0; rank < 9; ++rank) all.push_back(seed_of(rank));
  EXPECT_EQ(inputs_difference(all),
            "  training.seed: 0 on rank 0; 1 on rank 1; 2 on rank 2; 3 on rank 3; and 5 more "
            "values\n");
}

/// Of examples/plan.json as a training.
class InputsOfTraining : public testing::Test {
 protected:
  InputsOfTraining()
      : plan_(load_plan(PIPEWRIGHT_SOURCE_DIR "/examples/plan.json")),
        subject_(subject_of_plan(plan_, "plan.json", Arguments(with_subject_flags()))) {
    training_.model = &plan_.model;
    data_ = exec::text_source(plan_.model, {.samples = 1, .micro_batches = 1},
                              std::string(1000, 'a'), "text");
    training_.data = data_.get();
  }

  static Command with_subject_flags() {
    Command command;
    command.flags = subject_flags();
    return command;
  }
  RunInputs inputs() const {
    return inputs_of_training(plan_, subject_.program, training_, 6, false, cuda_);
  }
  /// What another rank, given these GPUs, would be refused by.
  std::string difference_with(const CudaRequest& cuda) const {
    return inputs_difference(
        {inputs(), inputs_of_training(plan_, subject_.program, training_, 6, false, cuda)});
  }

  Plan plan_;
  Subject subject_;
  std::unique_ptr<exec::DataSource> data_;
  exec::cpu::Training training_;
  std::optional<CudaRequest> cuda_;
};

TEST_F(InputsOfTraining, EachIsNamedOnce) {
  std::vector<std::string> names;
  for (const RunInput& input : inputs()) {
    EXPECT_EQ(std::count(names.begin(), names.end(), input.name), 0) << input.name;
    names.push_back(input.name);
  }
  EXPECT_GT(names.size(), 15U);
}

/// All that plan.json has is compared, but for what was predicted of it.
TEST_F(InputsOfTraining, HoldEveryKeyOfThePlanThatDecides) {
  const RunInputs all = inputs();
  const auto has = [&](const std::string& name) {
    return std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.name == name; });
  };
  const std::vector<std::string> decide_nothing = {
      "schema", "cluster_fingerprint", "predicted", "executable", "tuner", "training"};
  const Json plan = to_json(plan_);
  for (const auto& [key, value] : plan.items())
    EXPECT_NE(has(key), std::count(decide_nothing.begin(), decide_nothing.end(), key) > 0) << key;
  for (const auto& [key, value] : plan.at("training").items()) {
    const bool is_of_run = key == "steps" || key == "data";
    EXPECT_TRUE(has(is_of_run ? key : "training." + key) || key == "assumed") << key;
  }
}

TEST_F(InputsOfTraining, OfGpusHoldPrecisionGraphsAndLinks) {
  EXPECT_NE(difference_with({}).find("  device: cpu"), std::string::npos);
  cuda_ = CudaRequest{};
  EXPECT_EQ(inputs_difference({inputs(), inputs()}), "");
  CudaRequest cuda;
  cuda.precision = exec::cuda::Precision::Tf32;
  EXPECT_EQ(difference_with(cuda), "  precision: fp32 on rank 0; tf32 on rank 1\n");
  cuda = {};
  cuda.graph = GraphUse::Never;
  EXPECT_EQ(difference_with(cuda), "  cuda-graph: where allowed on rank 0; no on rank 1\n");
  cuda = {};
  cuda.over_nccl = true;
  EXPECT_EQ(difference_with(cuda), "  transport nccl: no on rank 0; yes on rank 1\n");
  cuda = {};
  cuda.hold_ns = {0, 7};
  EXPECT_NE(difference_with(cuda).find("  slow-link: "), std::string::npos);
}

/// The list that is written piece by piece is the document's, byte for byte.
TEST(ListOfAResult, IsWrittenAsIfItWereInTheDocument) {
  for (const int steps : {0, 1, 3, 5'000}) {
    exec::RunResult result;
    Json whole = Json::array();
    for (int i = 0; i < steps; ++i) {
      const double loss = i == 2 ? std::nan("") : 0.5 * i;
      result.steps.push_back({i % 4 == 1 ? std::nullopt : std::optional(loss), 10 * i});
      Json step = Json::object();
      step["loss"] = i % 4 == 1 ? Json(nullptr) : Json(loss);
      step["step_ns"] = 10 * i;
      whole.push_back(step);
    }
    const auto written = [](const auto& print) {
      Session session(Terminal{}, true, true);
      testing::internal::CaptureStdout();
      print(session);
      session.flush();
      return testing::internal::GetCapturedStdout();
    };
    const Json fields = parse_json(
        R"({"outcome": "\"steps\": []", "nested": {"steps": []}, "steps": [], "last": [1, 2, 3]})",
        "");
    Json expected = fields;
    expected["steps"] = whole;
    EXPECT_EQ(written([&](Session& session) { session.print_result(fields, steps_list(result)); }),
              written([&](Session& session) { session.print_result(expected); }))
        << steps;
  }
}

}  // namespace run_inputs_test
}  // namespace pipewright::tools
