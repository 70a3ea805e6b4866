// LoRA in an architecture.json: what is read, what is refused, and how many weights are trained.
#include "core/model/lora.hpp"

#include <gtest/gtest.h>

#include "core/model/architecture_json.hpp"
#include "tests/support/expect_refusal.hpp"

namespace pipewright {
namespace lora_test {

using test::refusal;

Architecture read(const std::string& more) {
  const Json document = Json::parse(
      R"({"schema": "pipewright.architecture/1", "preset": "llama3-70b", )" + more + "}");
  return read_architecture(JsonCursor(document, "model.json"));
}

InputError refused(const std::string& more) {
  return refusal([&] { read(more); });
}

/// Of each layer rank x (in + out): hidden 8,192, 10,240 queries, keys and values, 28,672 inner.
TEST(Lora, TrainsItsAdaptersAlone) {
  const Architecture all = read(R"("lora": {"rank": 16})");
  EXPECT_EQ(all.lora.target_modules,
            (std::vector<std::string>{"linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"}));
  EXPECT_EQ(trained_parameters(all),
            80.0 * 16 * ((8192 + 10240) + (8192 + 8192) + (8192 + 2 * 28672) + (28672 + 8192)));
  EXPECT_EQ(parameters(all), parameters(architecture_preset("llama3-70b")));
  EXPECT_EQ(trained_parameters(architecture_preset("llama3-70b")), parameters(all));
}

/// PEFT adapts the seven matrices of Hugging Face's Llama: 207.1 million of 70.6 billion, as its
/// print_trainable_parameters() says of rank 16 on all linear layers.
TEST(Lora, HuggingFacesMatricesHaveAnAdapterEach) {
  const Architecture model = read(
      R"("lora": {"rank": 16, "target_modules":
          ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]})");
  EXPECT_EQ(trained_parameters(model), 207'093'760);
  EXPECT_EQ(read_architecture(JsonCursor(to_json(model), "again.json")), model);
}

TEST(Lora, WhatDoesNotFitIsRefusedWithItsPlace) {
  EXPECT_EQ(refused(R"("lora": {"rank": 0})").pointer(), "/lora/rank");
  EXPECT_EQ(refused(R"("lora": {"rank": 8, "target_modules": []})").pointer(),
            "/lora/target_modules");
  const InputError slip = refused(R"("lora": {"rank": 8, "target_modules": ["linear_qvk"]})");
  EXPECT_EQ(slip.pointer(), "/lora/target_modules/0");
  EXPECT_NE(slip.message().find("did you mean \"linear_qkv\""), std::string::npos) << slip.what();
  const InputError mixed =
      refused(R"("lora": {"rank": 8, "target_modules": ["linear_qkv", "up_proj"]})");
  EXPECT_EQ(mixed.pointer(), "/lora");
  EXPECT_NE(mixed.message().find("linear_qkv beside up_proj"), std::string::npos) << mixed.what();
  EXPECT_NE(refused(R"("lora": {"rank": 8, "target_modules": ["q_proj", "q_proj"]})")
                .message()
                .find("q_proj twice"),
            std::string::npos);
}

TEST(Lora, ModelsWhoseAdaptersAreNotEstimatedAreNamed) {
  const auto fault = [](const char* preset, std::vector<std::string> modules) {
    Architecture model = architecture_preset(preset);
    model.lora = {8, std::move(modules)};
    return lora_fault(model);
  };
  EXPECT_NE(fault("mixtral-8x7b", {"linear_fc1"}).find("LoRA on experts"), std::string::npos);
  EXPECT_EQ(fault("mixtral-8x7b", {"linear_qkv", "linear_proj"}), "");
  EXPECT_NE(fault("deepseek-v3", {"linear_proj"}).find("latent attention"), std::string::npos);
  EXPECT_NE(fault("nemotron-h-8b", {"linear_qkv"}).find("hybrid"), std::string::npos);
  EXPECT_NE(fault("gpt3-175b", {"gate_proj"}).find("not gated"), std::string::npos);
  EXPECT_NE(fault("llama3-8b", {}).find("on no module"), std::string::npos);
}

}  // namespace lora_test
}  // namespace pipewright
