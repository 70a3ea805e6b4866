// The command with the stand-in for the CUDA module beside it, which does a GPU's work on the host:
// what `run --device cuda` saves, loads, evaluates and predicts is what CPUs do, bit for bit.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/gpu/stand_in_folder.hpp"

namespace pipewright::test {
namespace gpu_commands_test {

using nlohmann::json;

constexpr const char* kNumerics = " --numerics exact ";

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class GpuCommands : public OnStandIn {
 protected:
  CommandResult run(const std::string& words) const {
    return shell("./pipewright run " + words, folder_);
  }
  json result_of(const std::string& words) const {
    const CommandResult result = run(words + " --json");
    EXPECT_EQ(result.status, 0) << words << "\n" << result.err;
    return json::parse(result.out, nullptr, false);
  }
  /// What ranks have held beside what is planned.
  static void expect_predicted_memory(const json& result, double most_apart) {
    for (std::size_t rank = 0; rank < result.at("peak_bytes").size(); ++rank) {
      const double held = result.at("peak_bytes").at(rank).get<double>() -
                          result.at("unplanned_bytes").at(rank).get<double>();
      EXPECT_NEAR(result.at("predicted_peak_bytes").at(rank).get<double>() / held, 1, most_apart);
    }
  }
  static std::vector<double> losses_of(const json& result) {
    std::vector<double> losses;
    for (const json& step : result.at("steps")) losses.push_back(step.at("loss"));
    return losses;
  }

  /// A plan of two stages with two ranks each.
  void expect_to_go_on(const std::string& name, const json& model, const json& strategy) const {
    SCOPED_TRACE(name);
    ASSERT_EQ(write_small_job(folder_).status, 0);
    json job = json::parse(small_job(R"(, "tuner_save_path": ")" + name + R"(.plan")", 4));
    json transformer = {
        {"hidden", 32}, {"heads", 4}, {"ffn", 48}, {"vocabulary", 256}, {"sequence", 16}};
    transformer.update(model);
    job["model"] = {{"schema", "pipewright.model/1"}, {"transformer", transformer}};
    job["strategy"] = {{"pp_degree", 2}, {"accumulate_steps", 4}, {"schedule_mode", "1f1b"}};
    job["strategy"].update(strategy);
    folder_.write(name + ".json", job.dump());
    const CommandResult tuned = shell("./pipewright tune " + name + ".json -q", folder_);
    ASSERT_EQ(tuned.status, 0) << tuned.err;
    const std::string plan = name + ".plan -q", exact = plan + std::string(kNumerics);
    const json result = result_of(exact + "--device cuda --steps 6 --verify");
    EXPECT_EQ(result.at("verify").at("bitwise"), true);
    EXPECT_EQ(result.at("verify").at("parameters_bitwise"), true);
    expect_predicted_memory(result_of(plan + " --device cuda --steps 2"), 0.05);
    const auto whole = losses_of(result);
    EXPECT_EQ(whole, losses_of(result_of(exact + "--device cpu --steps 6")));
    const std::vector<double> rest(whole.begin() + 3, whole.end());
    for (const auto& [first, second] : {std::pair{"cpu", "cuda"}, {"cuda", "cpu"}}) {
      const std::string saved = name + "-by-" + first;
      result_of(exact + "--device " + first + " --steps 3 --save-checkpoint " + saved);
      EXPECT_EQ(losses_of(result_of(exact + "--device " + second + " --steps 6 --load-checkpoint " +
                                    saved + " --verify")),
                rest);
    }
    const std::string evaluate =
        exact + "--mode evaluate --load-checkpoint " + name + "-by-cuda --device ";
    const json evaluation = result_of(evaluate + "cuda").at("evaluation");
    EXPECT_GT(evaluation.at("samples"), 0);
    EXPECT_EQ(evaluation, result_of(evaluate + "cpu").at("evaluation"));
  }
};

TEST_F(GpuCommands, ATrainingGoesOnOnTheOtherDevice) {
  ASSERT_EQ(write_small_job(folder_).status, 0);
  const std::string exact = "plan.json -q" + std::string(kNumerics);
  const auto whole = losses_of(result_of(exact + "--device cpu --steps 6"));
  ASSERT_EQ(whole.size(), 6U);
  const std::vector<double> rest(whole.begin() + 3, whole.end());
  for (const auto& [first, second] : {std::pair{"cpu", "cuda"}, {"cuda", "cpu"}}) {
    const std::string saved = std::string("saved-by-") + first;
    result_of(exact + "--device " + first + " --steps 3 --save-checkpoint " + saved);
    EXPECT_EQ(losses_of(result_of(exact + "--device " + second + " --steps 6 --load-checkpoint " +
                                  saved + " --verify")),
              rest);
  }
}

TEST_F(GpuCommands, ADataSetIsEvaluatedAndPredictedAsOnCpus) {
  ASSERT_EQ(write_small_job(folder_).status, 0);
  ASSERT_EQ(run("plan.json -q --device cuda --steps 2 --save-checkpoint saved").status, 0);
  const std::string run = "plan.json -q --load-checkpoint saved" + std::string(kNumerics);
  const json on_cpu = result_of(run + "--mode evaluate --device cpu");
  const json on_gpu = result_of(run + "--mode evaluate --device cuda");
  EXPECT_GT(on_gpu.at("evaluation").at("samples"), 8);
  EXPECT_EQ(on_gpu.at("evaluation"), on_cpu.at("evaluation"));
  for (const char* device : {"cpu", "cuda"})
    result_of(run + "--mode predict --device " + device + " --output " + device + ".npy");
  const std::string outputs = bytes_of(folder_.path() / "cuda.npy");
  EXPECT_GT(outputs.size(), 8U * 8 * 256 * 4);
  EXPECT_TRUE(outputs == bytes_of(folder_.path() / "cpu.npy"));
}

TEST_F(GpuCommands, ALlamaTrainsWithTheSerialRunsBits) {
  ASSERT_EQ(write_small_job(folder_).status, 0);
  json job = json::parse(small_job(R"(, "tuner_save_path": "llama.plan")"));
  job["model"] = {{"schema", "pipewright.model/1"},
                  {"transformer",
                   {{"style", "llama"},
                    {"hidden", 32},
                    {"layers", 4},
                    {"heads", 4},
                    {"kv_heads", 2},
                    {"ffn", 48},
                    {"vocabulary", 256},
                    {"sequence", 16}}}};
  folder_.write("llama.json", job.dump());
  const CommandResult tuned = shell("./pipewright tune llama.json -q", folder_);
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  const json result = result_of("llama.plan --device cuda --verify" + std::string(kNumerics));
  EXPECT_EQ(result.at("verify").at("bitwise"), true);
  EXPECT_EQ(result.at("verify").at("parameters_bitwise"), true);
}

TEST_F(GpuCommands, AnImageModelTrainsGoesOnAndIsEvaluatedAsOnCpus) {
  folder_.write("images.json", R"({"schema": "pipewright.job/1", "model": "resnet-tiny",
      "cluster": {"preset": "local-cpu", "devices": 2}, "global_batch": 8,
      "strategy": {"pp_degree": 2, "accumulate_steps": 4}, "training": {"steps": 4},
      "tuner_save_path": "images.plan"})");
  const CommandResult tuned = shell("./pipewright tune images.json -q", folder_);
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  const std::string exact = "images.plan -q" + std::string(kNumerics);
  const json result = result_of(exact + "--device cuda --verify");
  EXPECT_EQ(result.at("verify").at("bitwise"), true);
  EXPECT_EQ(result.at("verify").at("parameters_bitwise"), true);
  const auto whole = losses_of(result);
  ASSERT_EQ(whole.size(), 4U);
  const std::vector<double> rest(whole.begin() + 2, whole.end());
  for (const auto& [first, second] : {std::pair{"cpu", "cuda"}, {"cuda", "cpu"}}) {
    const std::string saved = std::string("images-by-") + first;
    result_of(exact + "--device " + first + " --steps 2 --save-checkpoint " + saved);
    EXPECT_EQ(losses_of(result_of(exact + "--device " + second + " --load-checkpoint " + saved +
                                  " --verify")),
              rest);
    const std::string evaluate = exact + "--mode evaluate --load-checkpoint " + saved;
    EXPECT_EQ(result_of(evaluate + " --device cuda").at("evaluation"),
              result_of(evaluate + " --device cpu").at("evaluation"));
  }
  expect_predicted_memory(result_of("images.plan -q --device cuda --steps 2"), 0.05);
}

/// Ranks of two stages, two of each, which divide layers or sequences; what one device has saved
/// the other goes on with, also whole. Evaluations have the CPU's numbers.
TEST_F(GpuCommands, DividedLayersTrainAndGoOnOnTheOtherDevice) {
  for (const bool divides_rows : {false, true})
    expect_to_go_on(divides_rows ? "rows" : "layers", {{"layers", 4}},
                    {{"mp_degree", 2}, {"use_sequence_parallel", divides_rows}});
}

TEST_F(GpuCommands, LatentAttentionTrainsAndGoesOnOnTheOtherDevice) {
  const json widths = {
      {"query_rank", 12}, {"key_value_rank", 8}, {"plain", 8}, {"rotary", 4}, {"value", 8}};
  const json latent = {{"style", "llama"}, {"layers", 4}, {"latent_attention", widths}};
  expect_to_go_on("latent", latent, {{"mp_degree", 2}});
  expect_to_go_on("latent-context", latent, {{"cp_degree", 2}, {"cp_comm_type", "all_gather"}});
}

/// They are no actions of their own when the trace is analysed, and a graph has them too.
TEST_F(GpuCommands, ATraceShowsTheKernelsOfItsActions) {
  ASSERT_EQ(write_small_job(folder_).status, 0);
  for (const char* graph : {"--cuda-graph", "--no-cuda-graph"}) {
    const json result = result_of(
        "plan.json -q --device cuda --steps 4 --trace trace.json "
        "--trace-kernels " +
        std::string(graph));
    EXPECT_GT(result.at("gpu_work").at("kernels"), 4 * 2 * 2);
    EXPECT_EQ(result.at("gpu_work").at("strays"), 0);
    EXPECT_EQ(result.at("gpu_work").at("dropped"), 0);
    json trace = json::parse(bytes_of(folder_.path() / "trace.json"));
    EXPECT_NE(trace.at("metadata").at("gpu_work").get<std::string>().find("kernels"),
              std::string::npos);
    json without = trace;
    without["traceEvents"] = json::array();
    std::set<std::string> actions, launching;
    for (const json& event : trace.at("traceEvents")) {
      const std::string category = event.value("cat", "");
      if (category == "compute") actions.insert(event.at("args").at("action"));
      if (category == "kernel") launching.insert(event.at("args").value("launched_by", ""));
      const bool is_work = category == "kernel" || category.starts_with("gpu_mem");
      if (!is_work) without["traceEvents"].push_back(event);
    }
    for (const std::string& action : actions) EXPECT_TRUE(launching.contains(action)) << action;
    folder_.write("without.json", without.dump());
    for (const char* file : {"trace.json", "without.json"})
      ASSERT_EQ(shell("./pipewright analyze " + std::string(file) + " --json > " + file + ".said",
                      folder_)
                    .status,
                0);
    const auto said = [&](const std::string& file) {
      json fields = json::parse(bytes_of(folder_.path() / (file + ".said")));
      fields.erase("trace");
      return fields;
    };
    EXPECT_EQ(said("trace.json"), said("without.json"));
  }
  const CommandResult told =
      run("plan.json --device cuda --steps 1 --trace trace.json --trace-kernels");
  ASSERT_EQ(told.status, 0) << told.err;
  EXPECT_NE(told.out.find("copies and"), std::string::npos) << told.out;
}

/// As under Nsight. Where the stand-in for CUPTI was not built, nobody refuses.
TEST_F(GpuCommands, AnotherProfilerLeavesNoRoomForKernels) {
  if (!std::filesystem::exists(folder_.path() / "libcupti.so.13"))
    GTEST_SKIP() << "built without CUPTI's header (pip: nvidia-cuda-cupti)";
  ASSERT_EQ(write_small_job(folder_).status, 0);
  const CommandResult refused = shell(
      "PIPEWRIGHT_OTHER_PROFILER=1 ./pipewright run plan.json --device cuda --trace "
      "trace.json --trace-kernels",
      folder_);
  EXPECT_EQ(refused.status, 3) << refused.err;
  EXPECT_NE(refused.err.find("while no other profiler has attached"), std::string::npos)
      << refused.err;
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "trace.json"));
}

TEST_F(GpuCommands, KernelsNeedATrace) {
  ASSERT_EQ(write_small_job(folder_).status, 0);
  for (const char* words : {"plan.json --device cuda --trace-kernels",
                            "plan.json --device cpu --trace trace.json --trace-kernels"}) {
    const CommandResult refused = run(words);
    EXPECT_EQ(refused.status, 2) << refused.out;
    EXPECT_NE(refused.err.find("--trace-kernels"), std::string::npos) << refused.err;
  }
}

TEST_F(GpuCommands, DoctorSaysThatKernelsCanBeRecorded) {
  const CommandResult doctor = shell("./pipewright doctor", folder_);
  ASSERT_EQ(doctor.status, 0) << doctor.err;
  EXPECT_NE(doctor.out.find("--trace-kernels"), std::string::npos) << doctor.out;
}

/// Keys gathered, and round the ring.
TEST_F(GpuCommands, DividedSequencesTrainAndGoOnOnTheOtherDevice) {
  for (const char* type : {"all_gather", "p2p"}) {
    expect_to_go_on(std::string("sequences-") + type, {{"layers", 4}},
                    {{"cp_degree", 2}, {"cp_comm_type", type}});
  }
}

/// All rows go to all experts, so that what is held is what is predicted.
TEST_F(GpuCommands, DividedExpertsTrainAndGoOnOnTheOtherDevice) {
  const json experts = {
      {"style", "llama"}, {"layers", 4}, {"experts", 4}, {"top_k", 4}, {"balance_loss", 0.01}};
  expect_to_go_on("experts", experts, {{"dp_degree", 2}, {"ep_degree", 2}});
  expect_to_go_on("shards", experts, {{"sharding_degree", 2}, {"ep_degree", 2}});
  expect_to_go_on("folded", experts,
                  {{"mp_degree", 2},
                   {"ep_degree", 2},
                   {"expert_tensor_parallel_size", 1},
                   {"use_sequence_parallel", true}});
}

/// The calls of NCCL that --dry-run shows are read back and judged.
TEST_F(GpuCommands, DividedGradientsAndWeightsTrainAndGoOnOnTheOtherDevice) {
  for (const int zero : {2, 3}) {
    const std::string name = "zero" + std::to_string(zero);
    expect_to_go_on(name, {{"layers", 4}},
                    {{"sharding_degree", 2},
                     {"sharding_stage", zero},
                     {"schedule_mode", "interleaved"},
                     {"vpp_degree", 2}});
    const CommandResult shown = run(name + ".plan --transport nccl --dry-run");
    EXPECT_EQ(shown.status, 0) << shown.err;
    EXPECT_NE(shown.out.find("ncclReduceScatter"), std::string::npos);
    EXPECT_NE(shown.out.find("ncclAllGather"), std::string::npos);
    const std::string forward = name + ".plan -q" + std::string(kNumerics) +
                                "--mode evaluate --load-checkpoint " + name + "-by-cuda --device ";
    EXPECT_EQ(result_of(forward + "cuda").at("evaluation"),
              result_of(forward + "cpu").at("evaluation"));
  }
}

/// Copies for other replicas lie on the host.
TEST_F(GpuCommands, ReplicasHoldWhatIsPredicted) {
  ASSERT_EQ(write_small_job(folder_).status, 0);
  for (const char* degree : {"dp_degree", "sharding_degree"}) {
    json job = json::parse(small_job(R"(, "tuner_save_path": "replicas.plan")"));
    job["strategy"] = {{"pp_degree", 1}, {"accumulate_steps", 4}, {degree, 2}};
    folder_.write("replicas.json", job.dump());
    ASSERT_EQ(shell("./pipewright tune replicas.json -q", folder_).status, 0);
    expect_predicted_memory(result_of("replicas.plan --device cuda --steps 2 --verify"), 0.02);
  }
}

}  // namespace gpu_commands_test
}  // namespace pipewright::test
