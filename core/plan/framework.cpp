#include "core/plan/framework.hpp"

#include <algorithm>

#include "core/order/element_type.hpp"

namespace pipewright {

std::vector<FrameworkTraits> known_frameworks() {
  return {megatron_core(),      nemo(),
          megatron_lm(),        megatron_lm_of_2021(),
          megatron_deepspeed(), megatron_deepspeed_timed(),
          llm_foundry(),        maxtext(),
          torchtitan(),         torchtitan_of_2024(),
          torchtitan_eager()};
}

FrameworkTraits with_gradients(FrameworkTraits traits, double bytes) {
  const double more = bytes - traits.gradient_bytes;
  traits.gradient_bytes = traits.tied_gradient_bytes = bytes;
  traits.accumulate_bytes += 2 * more;
  // The converted one is written, and read again.
  if (traits.converts_gradients && bytes > 2) traits.accumulate_bytes += 2 * bytes;
  traits.optimizer_bytes += more;
  return traits;
}

FrameworkTraits with_gradients(FrameworkTraits traits, std::string_view type) {
  const ElementType* const known = element_type(type);
  return known == nullptr ? traits : with_gradients(traits, static_cast<double>(known->bytes));
}

const ProductFormat* product_format(double bytes) {
  const auto found = std::ranges::find(kProductFormats, bytes, &ProductFormat::bytes);
  return found == kProductFormats.end() ? nullptr : &*found;
}

FrameworkTraits with_products(FrameworkTraits traits, std::string_view type) {
  const auto format = std::ranges::find(kProductFormats, type, &ProductFormat::name);
  if (format == kProductFormats.end() || format->bytes == traits.product_bytes ||
      format->bytes == 2)
    return traits;
  traits.product_bytes = format->bytes;
  if (format->scales_tensors()) {  // the largest number of each product's factor, then converts it
    traits.forward_kernels += 8;
    traits.backward_kernels += 8;
    traits.optimizer_bytes += 4 + 2 * format->bytes;
    return traits;
  }
  traits.forward_kernels += 2;
  traits.backward_kernels += 4;
  traits.optimizer_bytes += 2 + 2 * format->bytes;
  // There is no 16-bit weight for the state to complete.
  traits.state_bytes = std::max(traits.state_bytes, FrameworkTraits{}.state_bytes);
  return traits;
}

FrameworkTraits megatron_deepspeed() {
  return {.name = "megatron-deepspeed",
          .launch_seconds = 44e-6,
          .forward_kernels = 20,
          .backward_kernels = 44,
          .attention_core_kernels = 4,
          .fused_kernels = true,
          .loss_bytes_per_logit = 52,
          .gradient_bytes = 2,
          .accumulate_bytes = 6,
          .converts_gradients = true,
          .gather_bytes = 6,
          .gathers_tensors = true,
          .part_seconds = 7.5e-6,
          .optimizer_bytes = 36,
          .step_overhead_seconds = 3e-3,
          .divides_sequence = false,
          .interleaves = false,
          .waits_for_messages = true,
          .gathers_activations = true};
}

FrameworkTraits megatron_deepspeed_timed() {
  FrameworkTraits traits = megatron_deepspeed();
  traits.name = "megatron-deepspeed-timed";
  traits.forward_kernels = 28;  // its script asks for no fused ones
  traits.backward_kernels = 60;
  traits.attention_core_kernels = 8;
  traits.fused_kernels = false;
  traits.gradient_bytes = 4;
  traits.optimizer_bytes = 62;
  traits.reduction_bytes = 28;
  traits.sends_mask = traits.sends_whole_gradients = true;
  return traits;
}

FrameworkTraits megatron_lm() {
  FrameworkTraits traits = megatron_deepspeed();
  traits.name = "megatron-lm";
  traits.gradient_bytes = traits.tied_gradient_bytes = 4;
  traits.accumulate_bytes = 8;
  traits.fuses_accumulation = traits.hides_gradient_messages = true;
  traits.divides_sequence = traits.interleaves = true;
  traits.waits_for_messages = traits.gathers_activations = traits.gathers_tensors = false;
  traits.converts_gradients = false;
  traits.gather_bytes = traits.part_seconds = 0;
  return traits;
}

FrameworkTraits megatron_lm_of_2021() {
  FrameworkTraits traits = megatron_lm();
  traits.name = "megatron-lm-2021";
  traits.fuses_accumulation = traits.hides_gradient_messages = traits.divides_sequence = false;
  return traits;
}

FrameworkTraits megatron_core() {
  FrameworkTraits traits = megatron_lm();
  traits.name = "megatron-core";
  traits.flash_attention = true;
  traits.dropout = false;
  traits.fused_loss = traits.keeps_weight_buffers = true;
  traits.loss_bytes_per_logit = 30;
  return traits;
}

FrameworkTraits nemo() {
  FrameworkTraits traits = with_gradients(megatron_core(), 2);
  traits.name = "nemo";
  traits.state_bytes = 10;
  traits.chunks_messages = true;
  return traits;
}

FrameworkTraits llm_foundry() {
  FrameworkTraits traits = with_gradients(megatron_core(), 2);  // mixed_precision: PURE
  traits.name = "llm-foundry";
  traits.keeps_weight_buffers = traits.hides_gradient_messages = false;
  traits.fuses_accumulation = false;
  traits.flash_rate = kTritonAttention;
  return traits;
}

FrameworkTraits maxtext() {
  FrameworkTraits traits = with_gradients(megatron_core(), 2);
  traits.name = "maxtext";
  traits.launch_seconds = 5e-6;
  traits.keeps_weight_buffers = traits.pads_vocabulary = false;
  traits.hides_gradient_messages = false;
  traits.keeps_queries = traits.skips_last_product = true;
  return traits;
}

FrameworkTraits torchtitan() {
  FrameworkTraits traits = megatron_core();
  traits.name = "torchtitan";
  traits.forward_kernels = 14;
  traits.backward_kernels = 30;
  traits.flash_rate = kFlashAttention2;
  traits.keeps_weight_buffers = traits.pads_vocabulary = false;
  traits.fuses_accumulation = traits.hides_gradient_messages = false;
  traits.fused_loss = false;
  traits.loss_bytes_per_logit = 10;
  traits.accumulate_bytes = 6;
  traits.gather_bytes = 4;
  traits.optimizer_bytes = 46;
  traits.selects_operators = traits.keeps_received = true;
  traits.skips_last_product = traits.keeps_gathered = true;
  return traits;
}

FrameworkTraits torchtitan_of_2024() {
  FrameworkTraits traits = torchtitan();
  traits.name = "torchtitan-2024";
  traits.loss_bytes_per_logit = 40;
  traits.loss_kept_bytes = 12;
  traits.divided_loss_kept_bytes = 16;
  return traits;
}

FrameworkTraits torchtitan_eager() {
  FrameworkTraits traits = torchtitan_of_2024();
  traits.name = "torchtitan-eager";
  traits.forward_kernels = 34;
  traits.backward_kernels = 63;
  traits.fused_kernels = false;
  return traits;
}

}  // namespace pipewright
