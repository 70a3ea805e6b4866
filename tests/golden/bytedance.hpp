// ByteDance's traces of three production jobs (arXiv 2505.05713): each step as costs of its passes.
#pragma once

#include <string>
#include <vector>

#include "core/costs/costs.hpp"
#include "core/program/program.hpp"

namespace pipewright::golden {

struct ReplayedStep {
  Program program;  // of all replicas, 1F1B under the papers' model
  CostTable costs;
  double slowest_ms = 0;  // measured: the slowest replica's first start to its last end
};

/// Of the job "sequence", "stage" or "worker"; empty where its file is not there.
std::vector<ReplayedStep> bytedance_steps(const std::string& job);

}  // namespace pipewright::golden
