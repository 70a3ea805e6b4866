#include "tests/support/measured_rows.hpp"

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

FrameworkTraits megatron_lm_of_2021() {
  FrameworkTraits traits = megatron_lm();
  traits.fuses_accumulation = traits.hides_gradient_messages = false;
  return traits;
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

}  // namespace pipewright::test
