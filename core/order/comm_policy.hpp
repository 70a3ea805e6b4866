// How a Program communicates (docs/semantics.md §1.2-§4): each field is named
// in the plan, presets bundle them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pipewright {

enum class Issue : std::uint8_t {
  Inline,   // a transfer occupies the compute lane; `channel` has no meaning
  Stream,   // issuing is instant; computations wait only for the receives of
            // their own inputs
  Grouped,  // a run of transfers starts together and the lane goes on when all
            // have ended (one NCCL group)
};
enum class Channel : std::uint8_t { Rank, Pair, Edge, Tag, Direction };
enum class Post : std::uint8_t {
  Early,     // receives where lowering or the CSV puts them
  Deferred,  // immediately before their consumer
  AtStart,   // issued at time 0 (the papers' model)
};
enum class RunOrder : std::uint8_t { AsLowered, EvenOdd };
enum class Connect : std::uint8_t {
  Ready,     // connections are there before the step begins
  FirstUse,  // made by the first transfer of a directed rank edge, which holds up both hosts (§2.2)
};
enum class Buffers : std::uint8_t {
  Plain,
  Registered,  // with the library, or captured in a graph: no copy on the way, so every send meets
               // its receive
};

/// What a batch that the order names is (docs/semantics.md §2.4).
enum class Batches : std::uint8_t {
  Apart,   // its members one by one
  Mixed,   // one operation over the group's communicator if it both sends and receives, else apart
  Joined,  // one operation
};

/// Rendezvous, or eager with credit per directed rank edge. Exactly one of the
/// limits is set for a finite credit.
struct Protocol {
  enum class Kind : std::uint8_t { Rendezvous, EagerUnlimited, EagerMessages, EagerBytes };
  Kind kind = Kind::Rendezvous;
  std::int64_t credit = 0;  // messages or bytes, for the two finite kinds

  bool operator==(const Protocol&) const = default;
};

/// What in_flight and device_queues may be at most.
inline constexpr int kMostInFlight = 1'000'000;
inline constexpr int kMostDeviceQueues = 1024;

/// The default is what NCCL guarantees with a communicator for each directed
/// edge.
struct CommPolicy {
  Issue issue = Issue::Stream;
  Channel channel = Channel::Edge;
  Post post = Post::Early;
  RunOrder run_order = RunOrder::AsLowered;
  Protocol send_f;
  Protocol send_b;
  Connect connect = Connect::Ready;
  Buffers buffers = Buffers::Plain;
  /// The most transfer ends of a rank that are issued and have not ended, counted as a ring is
  /// (§2.2); 0: no limit. Under `stream` only.
  int in_flight = 0;
  Batches batches = Batches::Apart;
  /// How many queues of a device the calls of a rank share (§3.3); 0: each stream has its own. No
  /// preset limits them, for it depends on the device and on what else runs there.
  int device_queues = 0;

  bool operator==(const CommPolicy&) const = default;
  /// True if no transfer can ever wait for anything but its own data: tag
  /// matching, unlimited credit, receives at time 0.
  bool is_free_of_waits() const;
};

/// How it is known that a system communicates as its preset says.
enum class Evidence : std::uint8_t {
  Run,    // tried on the system itself
  Read,   // read in its source
  Model,  // a model of several systems, or of reports
};

struct CommPolicyPreset {
  std::string_view name;
  std::string_view models;  // one line: which real system it reproduces
  CommPolicy policy;
  Evidence evidence = Evidence::Model;
  std::string_view alias = {};  // another name that means the same; "": none
};

const std::vector<CommPolicyPreset>& comm_policy_presets();
/// The names of the presets, each followed by its alias.
std::vector<std::string_view> comm_policy_names();
/// What PyTorch over NCCL does by default, by release and set-up: the presets under which an order
/// that names no policy is judged.
const std::vector<std::string_view>& stock_torch_presets();
/// Throws InputError with a suggestion for an unknown name.
const CommPolicy& comm_policy_preset(std::string_view name);
/// The preset's name if the policy equals one, whatever its device_queues; else "custom".
std::string_view name_of(const CommPolicy& policy);

std::string_view to_string(Issue);
std::string_view to_string(Channel);
std::string_view to_string(Post);
std::string_view to_string(RunOrder);
std::string_view to_string(Connect);
std::string_view to_string(Buffers);
std::string_view to_string(Batches);
/// "run", "read in the source", "a model".
std::string_view to_string(Evidence);
/// "rendezvous", "eager", "eager:2" (messages), "eager:4095B" (bytes).
std::string to_string(const Protocol&);
// Each throws InputError naming the choices.
Issue parse_issue(std::string_view);
Channel parse_channel(std::string_view);
Post parse_post(std::string_view);
RunOrder parse_run_order(std::string_view);
Connect parse_connect(std::string_view);
Buffers parse_buffers(std::string_view);
Batches parse_batches(std::string_view);
Protocol parse_protocol(std::string_view);

}  // namespace pipewright
