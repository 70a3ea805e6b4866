// What ranks held at their worst moment, beside what the plan's table says they would.
#pragma once

#include <string>

#include "core/base/json.hpp"
#include "core/costs/costs.hpp"
#include "core/plan/plan.hpp"
#include "exec/base/numerics.hpp"
#include "exec/evaluation/evaluation.hpp"
#include "exec/training/training_result.hpp"

namespace pipewright::tools {

/// Replaces a plan's memory table by that of the run that is asked for; the plan's own is that of a
/// training in fast numerics. `costs`, the plan's as flags have changed them, get the table too
/// unless they have one of the user's own (--mem). A plan without a table stays as it is.
void take_memory_of_run(Plan& plan, CostTable& costs, exec::RunMode mode, exec::Numerics numerics,
                        bool has_own_table);

/// A run on GPUs: what ranks copy for other replicas lies on the host.
void leave_out_copies(CostTable& costs);

/// "peak memory 4.20 MiB on rank 0, predicted 4.30 MiB; predictions are off by -1.2% to +2.4%".
/// Without a table the first part alone; if all were right "as predicted for every rank"; empty
/// where nothing was measured.
std::string memory_text(const exec::TrainingResult& result, const CostTable& costs);

/// "peak_bytes" by rank, and "predicted_peak_bytes" where there is a table.
void put_memory(const exec::TrainingResult& result, const CostTable& costs, Json& fields);

}  // namespace pipewright::tools
