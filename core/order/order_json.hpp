// An order as a JSON document, "pipewright.order/1": what a CSV holds, and the placement, which a
// CSV can only show by its rows. docs/schemas/order.schema.json is the same for machines.
//
//   "ranks"          for each rank its cells, in PyTorch's grammar; "" is an idle slot
//   "rank_of_stage"  optional: by stage a rank, or by stage a list of ranks by micro-batch.
//                    Without it the placement is read off the rows, as in a CSV
//   "messages"       optional: shape and type at ends of transfers (core/order/message_format.hpp)
#pragma once

#include "core/base/json.hpp"
#include "core/order/order.hpp"

namespace pipewright {

/// Unlike in a CSV, a rank with an empty list is a rank (that computes nothing). Throws InputError
/// with file and pointer for what is no order, and where a row contradicts "rank_of_stage".
Order read_order_json(const JsonCursor& document);

/// Whether a text is meant as JSON: else an order in it is a CSV.
bool looks_like_json(std::string_view text);
/// An order of either form. Throws InputError.
Order read_order(std::string_view text, const std::string& file);

/// By rank, each cell as text; "" is an idle slot.
Json rows_json(const Order& order);

/// "parts" of a document (core/order/parts.hpp), of whatever stages.
std::vector<ActionParts> read_parts(const JsonCursor& lists);
Json parts_json(const std::vector<ActionParts>& parts);

/// Idle slots at the end of a list are dropped, as in a CSV. "rank_of_stage" is written wherever
/// every stage has a rank.
Json to_json(const Order& order);

}  // namespace pipewright
