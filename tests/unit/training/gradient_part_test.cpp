// A part of a sum of gradients, as bytes and back.
#include "exec/training/gradient_exchange.hpp"

#include <gtest/gtest.h>

#include "core/base/error.hpp"

namespace pipewright::exec::cpu {
namespace gradient_part_test {

GradientPart sample() {
  GradientPart part;
  part.micro_batches = 3;
  part.gradients = {{1.0F, -2.5F, 3.0F}, {}, {0x1p-40F}};
  FixedPointSums sums(2);
  EXPECT_TRUE(sums.add(std::vector<float>{-1.5F, 1e-9F}));
  part.sums = {sums, FixedPointSums()};
  return part;
}

TEST(GradientPart, ComesBackFromItsBytes) {
  for (const GradientPart& part : {sample(), GradientPart{}})
    EXPECT_EQ(gradient_part_of(to_bytes(part)), part);
}

TEST(GradientPart, ComesBackFromTheMessageThatAnotherProcessGets) {
  const GradientMessage message(sample());
  const PackedPart packed(message.pack());
  const std::vector<PartPtr> messages{std::make_shared<PackedPart>(packed),
                                      std::make_shared<GradientMessage>(sample())};
  std::vector<GradientPart> arrived;
  for (const GradientPart* part : parts_of(messages, arrived)) EXPECT_EQ(*part, sample());
}

TEST(GradientPart, CutOrLongerBytesAreRefused) {
  std::vector<std::byte> bytes = to_bytes(sample());
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(gradient_part_of(std::span(bytes).first(size)), RunError) << size;
  bytes.push_back(std::byte{0});
  EXPECT_THROW(gradient_part_of(bytes), RunError);
}

TEST(GradientPart, AnAbsurdCountIsRefusedBeforeMemoryIsAskedFor) {
  std::vector<std::byte> bytes = to_bytes(sample());
  for (std::size_t i = 8; i < 16; ++i) bytes[i] = std::byte{0x7F};  // the number of arrays
  EXPECT_THROW(gradient_part_of(bytes), RunError);
}

}  // namespace gradient_part_test
}  // namespace pipewright::exec::cpu
