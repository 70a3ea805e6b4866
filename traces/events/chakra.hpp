// Chakra execution traces of MLCommons (.et), as ASTRA-sim takes them and Chakra's converter writes
// them: of each rank a graph of computations and messages, as messages of protocol buffers one
// after the other. https://github.com/mlcommons/chakra/blob/main/schema/protobuf/et_def.proto
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pipewright::traces {

/// Other: memory, storage, what only says something.
enum class ChakraKind : std::uint8_t { Other, Computation, Send, Receive, Collective };

struct ChakraNode {
  std::uint64_t id = 0;
  std::string name;
  ChakraKind kind = ChakraKind::Other;
  bool on_host = false;                                  // is_cpu_op
  std::vector<std::uint64_t> data_needs, control_needs;  // ids of what has to end before it
  std::int64_t start_ns = 0, duration_ns = 0;            // 0 where the file does not say
  std::optional<std::int64_t> source, target, tag;       // of a message: ranks
  std::optional<std::int64_t> bytes;                     // of a message or collective
};

/// What one rank did or is to do.
struct ChakraTrace {
  std::string file;
  int rank = 0;
  std::vector<ChakraNode> nodes;  // by id
};

/// By its name: "job.3.et", "job.3.et.gz".
bool is_chakra_file(std::string_view path);
/// The rank in such a name: 3.
std::optional<int> rank_of_chakra_file(std::string_view path);

/// Throws InputError where the bytes are no such file, are cut short, two nodes have one id, or a
/// node needs data of one that is not there.
ChakraTrace parse_chakra(std::string_view bytes, const std::string& file, int rank);

}  // namespace pipewright::traces
