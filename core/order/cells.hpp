// The cells of an order as text: an action, a pair, a call, or a batch of transfer ends, which is
// written as one cell and held as several.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/order/action.hpp"
#include "core/order/call.hpp"

namespace pipewright {

inline constexpr std::string_view kBatchName = "BATCH_P2P";

/// "an action such as 2F0, …": what an order's cell may be, for the complaint about one that is
/// not.
std::string_view expected_cell();

/// Reads one cell; a batch gives several (all but the last are `batched`). Empty where the text is
/// no cell.
std::vector<Cell> parse_cells(std::string_view text, CallTable& calls);

/// The end of what is written as one with the cell at `begin`: behind it, or behind its batch.
std::size_t written_end(std::span<const Cell> cells, std::size_t begin);
/// One cell, or the whole of a batch: "(0SEND_F0;2RECV_F0)BATCH_P2P". `calls` by number.
std::string to_string(std::span<const Cell> written, std::span<const Call> calls);
std::string to_string(const Cell& cell, std::span<const Call> calls);
std::string to_string(const Action& action, std::span<const Call> calls);

}  // namespace pipewright
