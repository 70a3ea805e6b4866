#include "core/base/suggest.hpp"

#include <gtest/gtest.h>

namespace pipewright {
namespace suggest_test {

const std::vector<std::string_view> kSchedules = {"naive", "gpipe", "1f1b", "interleaved", "zb-h1"};

TEST(Suggest, SlipsAreFound) {
  EXPECT_EQ(nearest_name("gpip", kSchedules), "gpipe");
  EXPECT_EQ(nearest_name("GPipe", kSchedules), "gpipe");
  EXPECT_EQ(nearest_name("1fb1", kSchedules), "1f1b");  // two letters swapped: one slip
  EXPECT_EQ(nearest_name("zbh1", kSchedules), "zb-h1");
  EXPECT_EQ(nearest_name("interlaeved", kSchedules), "interleaved");
  EXPECT_EQ(nearest_name("inter", kSchedules), "interleaved");  // the beginning of a name
}

TEST(Suggest, WhatIsFarIsNotSuggested) {
  for (const char* text : {"", "x", "dualpipe", "2f2f", "in", "completely different"}) {
    EXPECT_EQ(nearest_name(text, kSchedules), "") << text;
  }
  EXPECT_EQ(nearest_name(std::string(100'000, 'g'), kSchedules), "");
}

TEST(Suggest, WordsForTheMessage) {
  EXPECT_EQ(did_you_mean("gpip", kSchedules), " (did you mean \"gpipe\"?)");
  EXPECT_EQ(did_you_mean("far away", kSchedules), "");
}

}  // namespace suggest_test
}  // namespace pipewright
