// What the events of traces are called, by us and by PyTorch, and which of them the reader needs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/order/cells.hpp"
#include "traces/chrome/read_trace.hpp"
#include "traces/events/raw_trace.hpp"

namespace pipewright::traces {

/// "m3" with letter 'm' is 3.
std::optional<int> numbered(std::string_view word, char letter);

/// args.action of our own traces; of a call its kind, as in trace_timeline().
std::optional<Cell> cell_of_action(std::string_view text);

/// "gloo:recv", "nccl:recv 0<-1": what a back end calls a receive. Not "c10d::recv_", which only
/// issues one.
bool is_backend_receive(std::string_view name);

/// "ncclDevKernel_SendRecv(…)", "ncclKernel_AllReduce_RING_LL_Sum_float(…)".
bool is_nccl_kernel(const RawEvent& event);

/// An operator or kernel that computes.
bool is_operator(const RawEvent& event, bool on_gpu);

/// A call of the host that may have started something on a device.
bool is_launch(const RawEvent& event);

/// The number of a slice "ProfilerStep#7" of the host.
std::optional<int> marked_step_number(const RawEvent& event);

/// Whether the reader looks at an event. Takes the name out of the many that need none.
bool is_of_use(RawEvent& event);

/// The rank in a file's name: "rank3.json.gz", "trace_rank-3.json", "Rank 3.json".
std::optional<int> rank_in_file_name(const std::string& file);

}  // namespace pipewright::traces
