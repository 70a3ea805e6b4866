// What the two ends of a transfer say of the tensor that goes between them: an order may give the
// shape and type that an end expects, and `check` compares the two ends. A plan's stages need none
// of this, for both ends follow from one model.
//
//   "messages": [{"end": "0SEND_F", "shape": [4, 1024], "dtype": "bfloat16"},
//                {"end": "1RECV_F3", "shape": [2, 1024], "dtype": "bfloat16"}]
//
// An end without a micro-batch speaks for all of them; one with a micro-batch comes before it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/json.hpp"
#include "core/order/action.hpp"

namespace pipewright {

struct MessageFormat {
  ActionKind end = ActionKind::SendF;  // a transfer end
  StageId stage;                       // its stage
  std::optional<MicroBatchId> micro_batch;
  std::vector<std::int64_t> shape;  // row major; [] is a scalar
  std::string dtype;                // "float32", "bfloat16", …

  bool operator==(const MessageFormat&) const = default;
};

/// A list of extents. Throws InputError with file and pointer.
std::vector<std::int64_t> read_tensor_shape(const JsonCursor& shape);
/// Throws InputError with file and pointer, for an end that is described twice too.
std::vector<MessageFormat> read_message_formats(const JsonCursor& list);
Json to_json(const std::vector<MessageFormat>& formats);

struct FormatFault {
  Action send, recv;
  std::string sentence;  // "0SEND_F3 sends 4x1024 float32, 1RECV_F3 takes 2x1024 float32"
};
/// The transfers whose ends are both described, and differently; one for each micro-batch that is
/// named, or the first where none is. O(formats²).
std::vector<FormatFault> format_faults(const std::vector<MessageFormat>& formats);

}  // namespace pipewright
