// What a saved state of a graph consists of: its arrays by name, and how each was divided. Which
// process wrote which part follows from that (state.json in the folder;
// docs/distributed-tensors.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.hpp"
#include "core/spmd/graph/graph.hpp"
#include "core/spmd/reshard.hpp"

namespace pipewright::exec::graphs {

struct SavedArray {
  std::string name;  // of saved_name()
  spmd::Shape shape;
  spmd::Distribution lies;
};

struct StateDescription {
  int step = 0;  // steps done
  int save = 0;  // how often the folder was saved into before
  std::vector<SavedArray> arrays;

  /// nullptr: there is none of that name.
  const SavedArray* find(const std::string& name) const;
};

inline constexpr std::string_view kSavedValue = "value";
/// "value/w_up"; of the optimizer's states "mean/w_up".
std::string saved_name(std::string_view kind, const std::string& parameter);

inline constexpr int kMostSaves = 1'000'000'000;

/// A process's part, which the first of those writes that have the same.
struct WrittenPart {
  int rank = 0;
  spmd::LocalPart part;
};
/// All of an array that are not empty, each once.
std::vector<WrittenPart> written_parts(const SavedArray& array);

/// Throws InputError with the place: a layout that does not fit, or is not summed; sizes beyond
/// what a run takes.
StateDescription read_state_description(const JsonCursor& document);
Json to_json(const StateDescription& description);

}  // namespace pipewright::exec::graphs
