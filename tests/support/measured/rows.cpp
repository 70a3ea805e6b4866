#include "tests/support/measured/rows.hpp"

#include <stdexcept>

namespace pipewright::test {

using planner::ParallelSetup;

std::ifstream open_measured(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return file;
}

nlohmann::json read_measured(const std::filesystem::path& path) {
  auto file = open_measured(path);
  return nlohmann::json::parse(file);
}

FrameworkTraits megatron_core_in_tests() {
  FrameworkTraits traits = megatron_core();
  traits.name = "megatron-core in its tests";
  traits.backward_kernels += 12;
  traits.fuses_accumulation = false;
  return traits;
}

std::string degrees_text(const ParallelSetup& setup) {
  return "tp" + std::to_string(setup.tensor) + " dp" + std::to_string(setup.data) + " pp" +
         std::to_string(setup.pipeline) + " mbs" + std::to_string(setup.micro_batch_size);
}

std::vector<ParallelSetup> with_sizes_and_chunks(const ParallelSetup& setup, int blocks, int batch,
                                                 const std::vector<int>& sizes,
                                                 const std::vector<int>& chunks) {
  std::vector<ParallelSetup> all;
  const int samples = batch / setup.data;
  for (const int size : sizes) {
    for (const int chunk : chunks) {
      if (samples % size != 0 || blocks % (setup.pipeline * chunk) != 0) continue;
      if (setup.pipeline == 1 && chunk > 1) continue;
      ParallelSetup next = setup;
      next.micro_batch_size = size;
      next.micro_batches = samples / size;
      next.chunks = chunk;
      all.push_back(next);
    }
  }
  return all;
}

namespace {

/// The data are SQuAD's questions with their paragraphs, of 500 characters and more
/// (arXiv:1606.05250 §3.1), packed into whole sequences (packed_sequence in NeMo's and
/// Megatron-Bridge's recipes). Whether a sample has 100 tokens or 400 changes no row by more than
/// 1 %: attention within so few takes next to nothing.
constexpr int kTokensOfSquad = 200;

}  // namespace

/// Adapters are on linear_qkv alone (NeMo's finetune_performance_optimizations and
/// Megatron-Bridge's perf_recipes/llama), of rank 16, of Llama 8B 8 (Megatron-Bridge,
/// recipes/llama: llama3_70b_peft_config, llama31_8b_peft_config). Messages are not sent in chunks:
/// NeMo's recipe adds that callback only where all weights are trained, and Megatron-Bridge's turns
/// it off.
void adapt_as_megatron(MeasuredCase& row) {
  row.model.lora = {row.model.name == "llama3-8b" ? 8 : 16, {"linear_qkv"}};
  row.model.sample_tokens = kTokensOfSquad;
  row.framework.chunks_messages = false;
}

/// Adapters of rank 16 are on all linear layers of a block (NVIDIA-NeMo/Automodel,
/// examples/llm_benchmark: "target_modules: '*_proj'"; before, match_all_linear), which its models
/// hold joined where they can. But for the 8B's file all have activation_checkpointing: true; those
/// without a pipeline divide rows among tensor parallel ranks (sequence_parallel: true), those with
/// one do not, and a sharding group of one shares out nothing.
void adapt_as_automodel(MeasuredCase& row, int sharding_group, const std::string& kernels) {
  row.model.lora = {16, default_lora_modules()};
  if (row.model.name != "llama3-8b") row.setup.recompute.of_all = LayerRecompute::Whole;
  if (row.setup.pipeline > 1) row.setup.sequence_parallel = false;
  if (sharding_group == 1) row.setup.zero = 0;
  if (kernels.starts_with("TE")) return;
  const FrameworkTraits unfused = megatron_deepspeed_timed();  // PyTorch's own kernels
  row.framework.forward_kernels = unfused.forward_kernels;
  row.framework.backward_kernels = unfused.backward_kernels;
  row.framework.fused_kernels = false;
}

}  // namespace pipewright::test
