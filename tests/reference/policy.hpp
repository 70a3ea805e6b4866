// What the interpreter is told besides the order: the communication policy (sections 1.2 to 2.1 and
// 4) and the costs (5).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace pipewright::reference {

enum class Issue { Inline, Stream, Grouped };
enum class Channel { Rank, Pair, Edge, Tag, Direction };
enum class Post { Early, Deferred, AtStart };
enum class RunOrder { AsLowered, EvenOdd };
enum class Batches { Apart, Mixed, Joined };  // section 2.4

/// Section 4.2 or 4.3 for one kind of send.
struct Protocol {
  enum class Credit { None, Messages, Bytes, Unlimited };  // None: rendezvous
  Credit credit = Credit::None;
  std::int64_t amount = 0;
};

struct Policy {
  Issue issue = Issue::Stream;
  Channel channel = Channel::Edge;
  Post post = Post::Early;
  RunOrder run_order = RunOrder::AsLowered;
  Protocol forward;         // SEND_F, and SEND
  Protocol backward;        // SEND_B
  bool first_use = false;   // connections are made by their first transfer (section 2.2)
  bool registered = false;  // buffers: every SEND meets its RECV (4.3)
  int in_flight = 0;        // section 2.2; 0: no limit
  Batches batches = Batches::Apart;
  int device_queues = 0;  // section 3.3; 0: no limit
};

/// Integer nanoseconds. What is not given is 0, but B (I + W) and FB (the sum of its two actions).
/// Section 5, in whole nanoseconds and bytes; device d is on node d / per_node, all on one where
/// that is 0.
struct CollectiveTerms {
  std::int64_t launch = 0, step = 0, part = 0, bulk = 0, bytes_per_second = 1;
  std::int64_t per_node = 0, across_step = 0, across_bytes_per_second = 1;
};

struct Costs {
  std::map<std::string, std::int64_t> kind;  // "F", "I", "W", "B", "FB", "OPT", "REDUCE_GRAD" ...
  std::map<std::string, std::map<int, std::int64_t>>
      kind_and_stage;  // wins over `kind`; FB: the stage of the first action
  std::map<std::string, std::int64_t> actions;  // by name, "0F3", "0F7 2B3": wins over both
  std::int64_t latency = 0;
  std::map<std::string, std::int64_t> latency_of;  // by the SEND's name, wins over `latency`
  std::map<std::string, std::int64_t> bytes;  // "SEND_F", "SEND_B", or the SEND's name, which wins
  std::map<int, std::int64_t> parameter_bytes;   // by stage: what collectives move; none: no bytes
  std::int64_t tied_bytes = 0;                   // what REDUCE_TIED moves
  std::optional<std::int64_t> bytes_per_second;  // of every route; none: bytes take no time
  std::optional<CollectiveTerms> collectives;    // none: rings over the routes
};

}  // namespace pipewright::reference
