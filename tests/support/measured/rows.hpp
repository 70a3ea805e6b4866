// What the readers of golden/measured/ share: files, names of rows, candidates where the authors'
// setup is not told.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/measured/cases.hpp"

namespace pipewright::test {

/// Throws std::runtime_error for a file that is not there.
std::ifstream open_measured(const std::filesystem::path& path);
nlohmann::json read_measured(const std::filesystem::path& path);

/// "tp4 dp2 pp8 mbs1".
std::string degrees_text(const planner::ParallelSetup& setup);

/// `setup` with every micro-batch size of `sizes` and every interleaving of `chunks` that a batch
/// and the model's blocks allow.
std::vector<planner::ParallelSetup> with_sizes_and_chunks(const planner::ParallelSetup& setup,
                                                          int blocks, int batch,
                                                          const std::vector<int>& sizes,
                                                          const std::vector<int>& chunks);

/// Megatron core as its functional tests run it: with --no-gradient-accumulation-fusion, so that
/// each of a block's twelve parameters has a sum of its own, and bit for bit the same each time.
FrameworkTraits megatron_core_in_tests();

/// What the files of LoRA's recipes say of adapters, and of what else a run that trains all weights
/// does otherwise: NVIDIA's for Megatron core.
void adapt_as_megatron(MeasuredCase& row);

/// NVIDIA's Automodel, of a page's columns "FSDP" (members of a sharding group) and "Kernel
/// Optimizations" ("-": PyTorch's own).
void adapt_as_automodel(MeasuredCase& row, int sharding_group, const std::string& kernels);

/// Every n-th row of a table is one that efficiencies are fitted to.
inline bool is_fitted(const MeasuredTable& table, std::size_t every) {
  return table.cases.size() % every == 0;
}

}  // namespace pipewright::test
