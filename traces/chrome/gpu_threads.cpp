#include "traces/chrome/gpu_threads.hpp"

#include <algorithm>
#include <map>

namespace pipewright::traces {
namespace {

/// A piece goes to the first thread of its stream that is free by then.
void deal(const GpuWork& piece, const std::string& stream, std::vector<GpuThread>& threads) {
  const auto free = std::find_if(threads.begin(), threads.end(), [&](const GpuThread& thread) {
    return thread.work.back()->end_ns <= piece.start_ns;
  });
  if (free != threads.end()) return free->work.push_back(&piece);
  const std::string number = threads.empty() ? "" : " #" + std::to_string(threads.size() + 1);
  threads.push_back({stream + number, {&piece}});
}

}  // namespace

std::vector<std::vector<GpuThread>> gpu_threads(int ranks, std::span<const GpuWork> work) {
  std::vector<std::map<std::uint32_t, std::vector<GpuThread>>> streams(
      static_cast<std::size_t>(ranks));
  for (const GpuWork& piece : work) {
    deal(piece, "GPU stream " + std::to_string(piece.stream),
         streams[static_cast<std::size_t>(piece.rank.value)][piece.stream]);
  }
  std::vector<std::vector<GpuThread>> by_rank(static_cast<std::size_t>(ranks));
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (auto& [stream, threads] : streams[rank])
      std::move(threads.begin(), threads.end(), std::back_inserter(by_rank[rank]));
  }
  return by_rank;
}

}  // namespace pipewright::traces
