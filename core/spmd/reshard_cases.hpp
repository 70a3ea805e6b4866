// Cases of reshards in the notation of PaddlePaddle's tests, and their answers.
#pragma once

#include "core/base/json.hpp"
#include "core/spmd/reshard.hpp"

namespace pipewright::spmd {

struct ReshardCase {
  std::string id;
  Shape shape;
  Distribution from, to;
};

/// The list "reshard_cases" of a document: "shape", and "in" and "out" with "mesh", lists of ranks,
/// and "placements", one for each of its dimensions. Throws InputError.
std::vector<ReshardCase> read_reshard_cases(const JsonCursor& document);

/// What each rank has before and afterwards, and the steps between.
Json answer_to(const ReshardCase& reshard_case, const ReshardPlan& plan);

/// What a step does and its bytes, without the processes.
Json summary_of(const ReshardStep& step);

/// "all_gather along 0, 96 B".
std::string text_of(const ReshardStep& step);
/// All steps, "none" without one.
std::string text_of(const std::vector<ReshardStep>& steps);

}  // namespace pipewright::spmd
