// The fixes that are tried, each as a candidate that is not proved yet. Pure functions.
#pragma once

#include <string>

#include "planner/fix/fix.hpp"
#include "planner/fix/hoisting.hpp"

namespace pipewright::planner {

struct FixCandidate {
  Fix fix;              // without its steps
  std::string refusal;  // not empty: it does not apply, and why
};

/// issue = grouped: what stands between two computations starts together, as one NCCL group. The
/// fix of NVIDIA/nccl issue 479 and Megatron's batched exchange.
FixCandidate grouped_transfers(const Order& order, const CommPolicy& policy);
/// Transfer ends moved earlier where a cycle of waits asks for it (planner/fix/hoisting.hpp).
FixCandidate moved_ends(const Order& listed, const CommPolicy& policy, const CostTable& costs,
                        const LowerOptions& options, HoistMoves wanted);
/// Both: ends are moved under issue = grouped, where most cycles do not arise. Only for transfers
/// on the computing lane (issue = inline).
FixCandidate grouped_and_moved(const Order& listed, const CommPolicy& policy,
                               const CostTable& costs, const LowerOptions& options,
                               HoistMoves wanted);
/// post = early: receives where lowering or the file puts them.
FixCandidate early_receives(const Order& order, const CommPolicy& policy);
/// run_order = even-odd: Megatron's unbatched exchange.
FixCandidate even_odd_runs(const Order& order, const CommPolicy& policy);
/// issue = stream, channel = edge: a queue for each direction of a pair of ranks, PyTorch's one
/// communicator for each directed edge (pytorch/pytorch issue 172668).
FixCandidate split_channel(const Order& order, const CommPolicy& policy);
/// The same with post = early, where receives are posted elsewhere.
FixCandidate split_channel_early(const Order& order, const CommPolicy& policy);
/// connect = ready: a warm-up exchange on every edge before the step (NVIDIA/nccl issue 783).
/// Applies only where connections are made at their first use.
FixCandidate ready_connections(const Order& order, const CommPolicy& policy);
/// The least in_flight with which the Program ends. Applies only where there is a limit.
FixCandidate more_in_flight(const Order& order, const CommPolicy& policy, const CostTable& costs,
                            const LowerOptions& options);
/// Both limits lifted: connect = ready and in_flight = 0.
FixCandidate unlimited_issue(const Order& order, const CommPolicy& policy);
/// Drops the written transfer ends: lowering puts each receive at the moment of its send. The
/// result ends under every policy if the computations can end at all.
FixCandidate listed_anew(const Order& listed, const CommPolicy& policy);
/// The calls of all ranks in one order (planner/fix/call_order.hpp).
FixCandidate one_call_order(const Order& order, const CommPolicy& policy);
/// batches = apart: the ends of each batch by themselves (pytorch/PiPPy pull 1000).
FixCandidate batches_apart(const Order& order, const CommPolicy& policy);
/// One more forward before the first backward on each rank where a backward stands before a forward
/// that the cycle of the computations waits for; again while there is such a rank, at most 16
/// times. Lowering then places the transfers again.
FixCandidate warmed_up(const Order& listed, const CommPolicy& policy, const CostTable& costs,
                       const LowerOptions& options);

}  // namespace pipewright::planner
