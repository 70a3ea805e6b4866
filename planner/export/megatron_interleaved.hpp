// What Megatron-LM's interleaved loop sends and receives, and when: read in Megatron core 0.16.1,
// forward_backward_pipelining_with_interleaving() and p2p_communication.py. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/order/order.hpp"
#include "sim/judgement.hpp"

namespace pipewright::planner {

/// How the loop exchanges: overlap_p2p_comm, overlap_p2p_comm_warmup_flush and batch_p2p_comm.
enum class MegatronExchange : std::uint8_t {
  Overlap,      // Megatron-LM's default: one by one; not waited for between warm-up and cool-down
  WarmupFlush,  // nor there; each receive of these a computation earlier
  Batched,      // --no-overlap-p2p-communication: batches, each waited for at once
  EvenOdd,      // neither, in core's configuration alone: one by one, each waited for at once
};
/// "overlap", "warmup-flush", "batched", "even-odd".
std::vector<std::string> megatron_exchange_names();
/// Throws InputError naming the choices.
MegatronExchange parse_megatron_exchange(std::string_view name);
std::string_view to_string(MegatronExchange exchange);

/// The order with every transfer and wait as the loop posts them; batches of `Batched` are the
/// calls of batch_isend_irecv(). A transfer waited for at once is followed by HOST_SYNC, or, where
/// transfers that are not waited for are under way, by WAIT_SEND. Between warm-up and cool-down
/// `Overlap` waits for some receives earlier than for their use, with groups larger than p: such
/// waits have no action and are left out. Throws InputError for an order that the loop does not
/// run, such as another schedule, groups below p, or transfers of its own. O(actions).
Order megatron_interleaved_list(const Order& order, MegatronExchange exchange);

/// The communicators that carry the list: "lazy" where init_process_group() had no device_id, as in
/// Megatron-LM, "eager" where it had.
std::vector<sim::NamedPolicy> megatron_interleaved_policies(MegatronExchange exchange, int ranks);

}  // namespace pipewright::planner
