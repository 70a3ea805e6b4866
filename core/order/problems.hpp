// What is wrong with a whole order, said before it is run, and what is worth knowing of one that is
// right (docs/semantics.md §7). Pure functions. Each sentence begins with the place of the fault:
// the rank, and the number of the cell in the rank's list, counted from 1 with the empty cells.
#pragma once

#include <string>
#include <vector>

#include "core/order/order.hpp"

namespace pipewright {

/// Enough sentences to see the pattern of a fault.
inline constexpr std::size_t kMostProblems = 20;

/// Empty if nothing is wrong. Every stage of every micro-batch needs one F and one B or I and W (a
/// forward-only order: one F; core/order/forward_order.hpp), each on its rank, the backward after
/// the F and W after I; every rank computes something; written transfer ends need a partner and a
/// consumer (core/order/transfers.hpp), waits what they wait for (core/order/waits.hpp); versions
/// and reductions as core/order/versions.hpp says; calls (core/order/call_faults.hpp), and an order
/// of calls alone needs nothing else; format_problems(). At most kMostProblems.
/// O(actions).
std::vector<std::string> problems_of(const Order& order);

/// True if something is missing that a part of a log may lack: an action of a stage that the order
/// computes, the other end of a transfer, or all computations of a rank.
bool is_incomplete(const Order& order);

/// Transfers whose two ends expect different tensors; of a fragment too. At most kMostProblems.
std::vector<std::string> format_problems(const Order& order);

/// format_problems() of a fragment, else problems_of().
std::vector<std::string> problems_of(const Order& order, bool fragment);

/// What is no fault, but surprises: fewer micro-batches than ranks; one stage a rank, out of order.
std::vector<std::string> notes_of(const Order& order);

/// "rank 1, action 5": where the action stands in the lists for the `number`-th time (1: first);
/// "" if nowhere. A linear search, for the sentences of a fault.
std::string place_text(const Order& order, const Action& action, int number = 1);
/// The same of a place at hand; `cell` counts from 0.
std::string place_text(RankId rank, std::size_t cell);

}  // namespace pipewright
