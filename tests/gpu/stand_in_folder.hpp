// A folder with the command and the stand-in for the CUDA module beside it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/small_job.hpp"

namespace pipewright::test {

class OnStandIn : public testing::Test {
 protected:
  void SetUp() override {
    const std::string build = std::filesystem::path(PIPEWRIGHT_COMMAND).parent_path();
    const std::string module = build + "/tests/gpu/stand_in/libpipewright_cuda.so";
    // The command looks for its module where it lies itself.
    const std::string cupti = build + "/tests/gpu/stand_in/libcupti.so.13";
    const std::string files =
        module + (std::filesystem::exists(cupti) ? " " + cupti : std::string());
    const CommandResult copied =
        shell("cp -l \"$PW\" " + files + " . || cp \"$PW\" " + files + " .", folder_);
    ASSERT_EQ(copied.status, 0) << copied.err;
  }

  Folder folder_;
};

}  // namespace pipewright::test
