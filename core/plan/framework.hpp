// Traits of training frameworks: what each does with the same model. docs/cost-model.md has the
// table with the source of each number; bench_accuracy judges them. Plain data; seconds and bytes.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace pipewright {

/// Numbers that products with weights read, as a job's matmul_dtype names them.
struct ProductFormat {
  std::string_view name;
  double bytes = 2;          // of a number, with its part of its block's scale
  std::string_view devices;  // that have such products, in words

  /// Beside the scales of its blocks a tensor has one of its own, so all of it is read before any
  /// of it is converted, and neither a norm nor an activation can write it.
  constexpr bool scales_tensors() const { return bytes < 1; }
};
/// mxfp8: 32 numbers with a scale of 8 bits (OCP Microscaling Formats 1.0 §5.2). nvfp4: 16 numbers
/// of 4 bits with one of 8 (arXiv:2509.25149 §2).
inline constexpr std::array<ProductFormat, 4> kProductFormats{{
    {"bf16", 2, "all"},
    {"fp8", 1, "Hopper, Blackwell and CDNA 3 and 4"},
    {"mxfp8", 1 + 1.0 / 32, "Blackwell and CDNA 4"},
    {"nvfp4", 0.5 + 1.0 / 16, "Blackwell's devices"},
}};
/// Null for a number of bytes that no format has.
const ProductFormat* product_format(double bytes);

/// What the training framework does with the same model.
struct FrameworkTraits {
  std::string name;
  std::string like;     // the known framework of which a user's own is a variant; "": it is one
  std::string sources;  // of a user's numbers, in words
  double launch_seconds = 0;       // host time to start one kernel
  bool blocking_launches = false;  // each starts when the one before has ended, a message too
  bool graphs_steps = false;       // a step is one CUDA graph: the host starts no kernel
  int forward_kernels = 0, backward_kernels = 0, attention_core_kernels = 0;  // of a block
  int embedding_kernels = 18, head_kernels = 42;  // both directions; with the loss
  int expert_kernels = 40;  // more of a block with experts, each direction, but for their products
  bool graphs_routing = false;   // of such a block attention, router and sorting are CUDA graphs
  bool groups_experts = false;   // one kernel multiplies for all experts of a device
  bool fused_kernels = false;    // bias, dropout, residual and masked softmax in one pass each
  bool flash_attention = false;  // no score ever reaches memory
  double flash_rate = 1;         // of the device's best; below 1: of FlashAttention-2's
  bool dropout = true;
  bool fused_loss = false;             // softmax and cross entropy write over the logits
  double loss_kept_bytes = 4;          // of a logit, where the loss is not fused
  double divided_loss_kept_bytes = 0;  // where tensor parallel ranks divide it; 0: as many
  bool keeps_weight_buffers = false;   // Transformer Engine; planner/estimate/memory_estimate.cpp
  bool pads_vocabulary = true;         // to what tensor cores load well, as Megatron-LM does
  double loss_bytes_per_logit = 0;     // memory traffic of softmax and cross entropy
  double product_bytes = 2;   // of a number that products with weights read (a ProductFormat's)
  double gradient_bytes = 2;  // of a weight's gradient that is kept and reduced
  double tied_gradient_bytes = 2;   // of a shared embedding's, added up between two stages
  double accumulate_bytes = 0;      // traffic to add a micro-batch's gradient to it
  bool fuses_accumulation = false;  // the product that makes a gradient adds it to the sum
  bool converts_gradients = false;  // … becomes a number of the sum's type in a pass of its own
  double gather_bytes = 0;          // traffic of the copies after each gather of a weight (ZeRO 3)
  // Under ZeRO 3 each tensor by itself, when the device has done all before it
  // (planner/estimate/tensor_exchange.hpp), and the host's time for each rank's part of it.
  bool gathers_tensors = false;
  double part_seconds = 0;
  bool scatters_once = false;  // under ZeRO 2 and 3 a step's gradients, which are whole until then
  double reduction_bytes = 0;  // traffic of the copies that a weight's reduction makes
  double optimizer_bytes = 0;  // traffic of a weight's update
  double state_bytes = 12;     // of the optimizer for a weight: 32-bit copy, two moments
  // Computed again before a block's backward (Megatron core's recompute_modules):
  bool recomputes_norms = false;        // layernorm
  bool recomputes_activations = false;  // moe_act: of experts
  bool recomputes_projections = false;  // mla_up_proj: from latent to queries, keys and values
  // Selective recompute by operator: kept is what attention and every second product give
  // (torchtitan's selective_ac_option "op"), in place of all but attention's scores.
  bool selects_operators = false;
  // Of a block that is computed again as a whole, what is kept all the same, or left out:
  bool keeps_queries = false;       // queries, keys and values
  bool keeps_mixed = false;         // what the product after attention gives
  bool skips_last_product = false;  // whose result no gradient needs, nor do experts send it back
  /// Whether less than its whole forward comes again.
  bool leaves_out_recompute() const { return keeps_queries || keeps_mixed || skips_last_product; }
  int offloaded_blocks = 0;  // whose activations wait in the host's memory; without a pipeline
  double step_overhead_seconds = 0;  // data, loss scale, clipping: what no other part has
  // Between tensor parallel ranks (planner/estimate/exposed_messages.hpp):
  bool divides_sequence = true;          // it has sequence parallelism
  bool hides_gradient_messages = false;  // those of I beside the products of W, gathers beside I's
  bool chunks_messages = false;    // the others in chunks, beside products that use or make them
  bool keeps_gathered = false;     // what sequence parallel ranks gather waits for the backward
  bool sends_tokens_once = false;  // to each device that holds some of their experts
  bool routes_in_turn = false;     // each token takes the experts after those of the one before
  bool hides_expert_messages = false;  // of a micro-batch, beside the work of another
  // Between stages (planner/estimate/stage_messages.hpp):
  bool interleaves = true;             // a rank may hold several stages
  bool waits_for_messages = false;     // the device stands still while long ones move, both ways
  bool sends_mask = false;             // the attention mask goes along, a square of the sequence
  bool gathers_activations = false;    // sent in parts by tensor parallel ranks, then put together
  bool sends_whole_gradients = false;  // every tensor parallel rank sends all of them, not its part
  bool keeps_received = false;  // each micro-batch has buffers of its own, which stay (PyTorch)
};
/// Megatron-DeepSpeed of 2021 and 2022, Microsoft's and BigScience's: Megatron-LM's fused kernels,
/// all messages exposed (megatron/mpu/layers.py of both), those between stages too: DeepSpeed
/// sends and receives on the stream that computes, and puts activations together that tensor
/// parallel ranks sent in parts (deepspeed/runtime/pipe/engine.py and p2p.py). ZeRO 3 as it was
/// until November 2021 (deepspeed/runtime/zero/partition_parameters.py): before it gathers a tensor
/// it waits for the device, and it makes, sends and copies a list of one part for each rank. Where
/// sums have 32 bits a gradient becomes one of 32 bits before it is added (bf16_optimizer.py).
FrameworkTraits megatron_deepspeed();
/// The same with PyTorch's own kernels and DeepSpeed 0.3 as AMP's authors changed it
/// (DachengLi1/AMP): reduces 32-bit gradients, sends the mask along and whole gradients.
FrameworkTraits megatron_deepspeed_timed();
/// Megatron-LM of 2022 with its fused kernels; gradients' messages beside products, as
/// arXiv:2205.05198 has them (§4.2.2); gradients added where they are made
/// (gradient_accumulation_fusion).
FrameworkTraits megatron_lm();
/// Megatron-LM of 2021 (arXiv:2104.04473), before either: a column-parallel layer waits for the sum
/// of its input's gradients (megatron/mpu/layers.py of BigScience's fork).
FrameworkTraits megatron_lm_of_2021();
/// Megatron core with Transformer Engine, from 2023 on.
FrameworkTraits megatron_core();
/// The same as NeMo's and Megatron-Bridge's recipes run it: tp_comm_overlap, gradients of 16 bits
/// (grad_sync_dtype bf16; grad_reduce_in_fp32 off), and of the 32-bit copies only what a 16-bit
/// weight lacks (store_param_remainders).
FrameworkTraits nemo();
/// MosaicML's llm-foundry of 2023 on Composer: PyTorch's FSDP, flash attention in Triton.
FrameworkTraits llm_foundry();
/// MaxText of 2024 and 2025 on GPUs, as NVIDIA's benchmarks run it (NVIDIA/dgxc-benchmarking,
/// maxtext/configure.sh): weights of 32 bits, gathered and their gradients scattered in 16 among
/// groups of replicas, remat_policy=save_qkv_proj. XLA computes again only what something reads,
/// and starts kernels from C++, which takes what a launch of CUDA takes.
FrameworkTraits maxtext();
/// torchtitan of 2025, each block and the loss by torch.compile: FSDP2 with gradients scattered in
/// 32 bits, FlashAttention-2, AdamW and clipping in passes of their own; checkpoints by operator
/// where they are selective, and else without what nothing reads (torch.compile leaves it out);
/// DTensor keeps what sequence parallel ranks gather (torchtitan/parallelize_llama.py).
FrameworkTraits torchtitan();
/// Of the end of 2024, each block by torch.compile, with PyTorch's loss in 32 bits.
FrameworkTraits torchtitan_of_2024();
/// The same without torch.compile: an operator a kernel, 32 bits wherever PyTorch's operators go.
FrameworkTraits torchtitan_eager();
/// The same with gradients of so many bytes, summed and exchanged: what adds a micro-batch's to the
/// sum reads and writes the sum, and the update reads it.
FrameworkTraits with_gradients(FrameworkTraits traits, double bytes);
/// … of the type that a job's grad_accum_dtype names; "": the framework's own.
FrameworkTraits with_gradients(FrameworkTraits traits, std::string_view type);

/// The same with products of the format of this name ("": the framework's own): each update
/// converts the weights, in both layouts, and a block starts more kernels.
FrameworkTraits with_products(FrameworkTraits traits, std::string_view type);

/// Those that a job can name, the default first.
std::vector<FrameworkTraits> known_frameworks();

/// The first flash attention in Triton, against FlashAttention-2, which is 1.3 to 2.5 times as fast
/// (arXiv:2307.08691 §4): the geometric mean.
inline constexpr double kTritonAttention = 1 / 1.8;

/// FlashAttention-2 itself, where the device's best is newer.
inline constexpr double kFlashAttention2 = 0.999999;

}  // namespace pipewright
