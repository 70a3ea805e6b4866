#include "tools/input/memory_limit.hpp"

namespace pipewright::tools {

std::vector<std::string> over_memory(const std::vector<RankFigures>& ranks, Bytes limit) {
  std::vector<std::string> sentences;
  for (std::size_t r = 0; limit.value > 0 && r < ranks.size(); ++r) {
    if (ranks[r].peak_bytes <= limit.value) continue;
    sentences.push_back("rank " + std::to_string(r) + " needs " +
                        format_bytes(Bytes(ranks[r].peak_bytes)) + ", over the limit of " +
                        format_bytes(limit));
  }
  return sentences;
}

}  // namespace pipewright::tools
