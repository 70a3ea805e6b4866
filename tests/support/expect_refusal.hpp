// What a reader has to say about a bad file: one InputError with the file, the place, and one line.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/base/error.hpp"

namespace pipewright::test {

/// The InputError that `action` throws; fails the test if it throws nothing or something else.
template <class Action>
InputError refusal(Action action) {
  try {
    action();
  } catch (const InputError& error) {
    return error;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not an InputError: " << error.what();
    return InputError("");
  }
  ADD_FAILURE() << "nothing was thrown";
  return InputError("");
}

/// One sentence on one line, without control characters.
inline void expect_one_line(const InputError& error) {
  const std::string text = error.what();
  EXPECT_FALSE(error.message().empty());
  EXPECT_LT(text.size(), 800U) << text;
  for (const char c : text) {
    EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) << text;
  }
}

}  // namespace pipewright::test
