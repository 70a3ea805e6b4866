// A job that trains in milliseconds: a text model of four layers, on two ranks unless said.
#pragma once

#include <string>

#include "tests/support/command_runner.hpp"

namespace pipewright::test {

/// `rest` follows the other keys, with a comma in front. Data are the file "text" beside it.
inline std::string small_job(const std::string& rest, int ranks = 2) {
  const std::string count = std::to_string(ranks);
  return R"({"schema": "pipewright.job/1", "model": {"name": "small",
         "loss": "softmax_cross_entropy", "sequence": 8, "layers": [
         {"kind": "embedding", "vocabulary": 256, "out": 16}, {"kind": "linear", "out": 24},
         {"kind": "gelu"}, {"kind": "linear", "out": 256}]},
         "cluster": {"preset": "local-cpu", "devices": )" +
         count + R"(}, "global_batch": 8,
         "strategy": {"pp_degree": )" +
         count + R"(, "accumulate_steps": 4, "schedule_mode": "1f1b"},
         "training": {"steps": 6, "learning_rate": 0.01, "data": "text"})" +
         rest + "}";
}

/// Writes the job, its text and its plan: job.json, text, plan.json.
inline CommandResult write_small_job(const Folder& folder, int ranks = 2) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "the quick brown fox number " + std::to_string(i * i);
  folder.write("text", text);
  folder.write("job.json", small_job(R"(, "tuner_save_path": "plan.json")", ranks));
  return pipewright("tune job.json -q", folder);
}

}  // namespace pipewright::test
