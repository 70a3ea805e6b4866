#include "core/order/comm_policy.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/base/error.hpp"
#include "core/base/suggest.hpp"
#include "core/base/units.hpp"

namespace pipewright {
namespace {

constexpr std::array<std::string_view, 3> kIssues = {"inline", "stream", "grouped"};
constexpr std::array<std::string_view, 5> kChannels = {"rank", "pair", "edge", "tag", "direction"};
constexpr std::array<std::string_view, 3> kPosts = {"early", "deferred", "at-start"};
constexpr std::array<std::string_view, 2> kRunOrders = {"as-lowered", "even-odd"};
constexpr std::array<std::string_view, 2> kConnects = {"ready", "first-use"};
constexpr std::array<std::string_view, 2> kBuffers = {"plain", "registered"};
constexpr std::array<std::string_view, 3> kBatches = {"apart", "mixed", "joined"};
constexpr std::array<std::string_view, 3> kEvidence = {"run", "read in the source", "a model"};

constexpr Protocol kRendezvous{};
constexpr Protocol kUnlimited{Protocol::Kind::EagerUnlimited, 0};
constexpr Protocol kOneMessage{Protocol::Kind::EagerMessages, 1};
// Open MPI's shared-memory transport: a send of 4000 bytes ends without its receive, one of 4096
// does not.
constexpr Protocol kMpiEager{Protocol::Kind::EagerBytes, 4095};

template <class Enum, std::size_t N>
Enum parse_choice(std::string_view text, const std::array<std::string_view, N>& names,
                  const char* what) {
  const auto found = std::find(names.begin(), names.end(), text);
  if (found != names.end()) return static_cast<Enum>(found - names.begin());
  std::string choices;
  for (const auto name : names) choices += (choices.empty() ? "" : ", ") + std::string(name);
  throw InputError(std::string(what) + ": unknown value \"" + std::string(text) + "\"" +
                   did_you_mean(text, {names.begin(), names.end()}) + "; choose one of " + choices);
}

CommPolicy policy(Issue issue, Channel channel, Post post, Protocol send_f = {},
                  Protocol send_b = {}, RunOrder run_order = RunOrder::AsLowered) {
  return {.issue = issue,
          .channel = channel,
          .post = post,
          .run_order = run_order,
          .send_f = send_f,
          .send_b = send_b};
}

/// PyTorch's runtime: streams of their own, receives where its lowering puts them.
CommPolicy torch(Channel channel, Batches batches) {
  CommPolicy torch = policy(Issue::Stream, channel, Post::Early);
  torch.batches = batches;
  return torch;
}

}  // namespace

bool CommPolicy::is_free_of_waits() const {
  return issue == Issue::Stream && channel == Channel::Tag && post == Post::AtStart &&
         send_f.kind == Protocol::Kind::EagerUnlimited &&
         send_b.kind == Protocol::Kind::EagerUnlimited && connect == Connect::Ready &&
         buffers == Buffers::Plain && in_flight == 0 && batches == Batches::Apart;
}

const std::vector<CommPolicyPreset>& comm_policy_presets() {
  static const std::vector<CommPolicyPreset> presets = {
      {"ideal", "the papers' model: a latency on each cross-rank dependency and nothing else",
       policy(Issue::Stream, Channel::Tag, Post::AtStart, kUnlimited, kUnlimited)},
      {"nccl-one-stream", "NCCL calls on the stream that computes",
       policy(Issue::Inline, Channel::Edge, Post::Early)},
      {"torch-2.11", "PyTorch up to 2.11, NCCL: all transfers of a rank in one order",
       torch(Channel::Rank, Batches::Joined), Evidence::Read},
      {"torch-2.12-lazy",
       "PyTorch from 2.12 on, NCCL, init_process_group without device_id: a communicator for each "
       "pair of ranks, for mixed batches the group's",
       torch(Channel::Pair, Batches::Mixed), Evidence::Read},
      {"torch-2.12-eager",
       "PyTorch from 2.12 on, NCCL, init_process_group with device_id: all transfers of a rank in "
       "one order",
       torch(Channel::Rank, Batches::Mixed), Evidence::Read},
      {"torch-2.14-per-direction",
       "PyTorch from 2.14 on with pipeline_per_direction_p2p: a communicator for activations and "
       "one for gradients",
       torch(Channel::Direction, Batches::Mixed), Evidence::Read},
      {"torch-2.15-per-edge",
       "PyTorch from 2.15 on with pipeline_per_edge_p2p: a communicator for each directed edge",
       torch(Channel::Edge, Batches::Joined), Evidence::Read},
      {"torch-gloo", "PyTorch on gloo, by directed edge, and a plan's default",
       torch(Channel::Edge, Batches::Apart), Evidence::Run, "torch"},
      {"torch-pair", "PyTorch pipelining with a communicator for each pair of ranks",
       policy(Issue::Stream, Channel::Pair, Post::Early)},
      {"torch-deferred", "PyTorch pipelining with each receive just before its consumer",
       policy(Issue::Stream, Channel::Edge, Post::Deferred)},
      {"megatron-even-odd", "Megatron-LM's unbatched exchange, ordered by the parity of the rank",
       policy(Issue::Inline, Channel::Edge, Post::Deferred, kRendezvous, kRendezvous,
              RunOrder::EvenOdd),
       Evidence::Read},
      {"megatron-batched", "Megatron-LM's batched exchange: one NCCL group",
       policy(Issue::Grouped, Channel::Edge, Post::Deferred), Evidence::Read},
      {"mpi-eager", "blocking MPI sends: small messages end at once, large ones meet their receive",
       policy(Issue::Inline, Channel::Edge, Post::Early, kMpiEager, kMpiEager), Evidence::Run},
      {"paddle-vpp",
       "PaddlePaddle's interleaved pass: a queue for each pair, one activation in flight on an "
       "edge",
       policy(Issue::Stream, Channel::Pair, Post::Early, kOneMessage, kRendezvous)},
  };
  return presets;
}

std::vector<std::string_view> comm_policy_names() {
  std::vector<std::string_view> names;
  for (const auto& preset : comm_policy_presets()) {
    names.push_back(preset.name);
    if (!preset.alias.empty()) names.push_back(preset.alias);
  }
  return names;
}

const std::vector<std::string_view>& stock_torch_presets() {
  static const std::vector<std::string_view> names = {"torch-2.11", "torch-2.12-lazy",
                                                      "torch-2.12-eager"};
  return names;
}

const CommPolicy& comm_policy_preset(std::string_view name) {
  for (const auto& preset : comm_policy_presets()) {
    if (!name.empty() && (preset.name == name || preset.alias == name)) return preset.policy;
  }
  const std::vector<std::string_view> names = comm_policy_names();
  std::string choices;
  for (const auto known : names) choices += (choices.empty() ? "" : ", ") + std::string(known);
  throw InputError("unknown communication preset \"" + std::string(name) + "\"" +
                   did_you_mean(name, names) + "; choose one of " + choices);
}

std::string_view name_of(const CommPolicy& policy) {
  CommPolicy asked = policy;
  asked.device_queues = 0;
  for (const auto& preset : comm_policy_presets()) {
    if (preset.policy == asked) return preset.name;
  }
  return "custom";
}

std::string_view to_string(Issue v) { return kIssues[static_cast<std::size_t>(v)]; }
std::string_view to_string(Channel v) { return kChannels[static_cast<std::size_t>(v)]; }
std::string_view to_string(Post v) { return kPosts[static_cast<std::size_t>(v)]; }
std::string_view to_string(RunOrder v) { return kRunOrders[static_cast<std::size_t>(v)]; }
std::string_view to_string(Connect v) { return kConnects[static_cast<std::size_t>(v)]; }
std::string_view to_string(Buffers v) { return kBuffers[static_cast<std::size_t>(v)]; }
std::string_view to_string(Batches v) { return kBatches[static_cast<std::size_t>(v)]; }
std::string_view to_string(Evidence v) { return kEvidence[static_cast<std::size_t>(v)]; }

std::string to_string(const Protocol& protocol) {
  switch (protocol.kind) {
    case Protocol::Kind::Rendezvous:
      return "rendezvous";
    case Protocol::Kind::EagerUnlimited:
      return "eager";
    case Protocol::Kind::EagerMessages:
      return "eager:" + std::to_string(protocol.credit);
    case Protocol::Kind::EagerBytes:
      return "eager:" + std::to_string(protocol.credit) + "B";
  }
  return "rendezvous";
}

Issue parse_issue(std::string_view text) { return parse_choice<Issue>(text, kIssues, "--issue"); }
Channel parse_channel(std::string_view text) {
  return parse_choice<Channel>(text, kChannels, "--channel");
}
Post parse_post(std::string_view text) { return parse_choice<Post>(text, kPosts, "--post"); }
RunOrder parse_run_order(std::string_view text) {
  return parse_choice<RunOrder>(text, kRunOrders, "--run-order");
}
Connect parse_connect(std::string_view text) {
  return parse_choice<Connect>(text, kConnects, "--connect");
}
Buffers parse_buffers(std::string_view text) {
  return parse_choice<Buffers>(text, kBuffers, "--buffers");
}
Batches parse_batches(std::string_view text) {
  return parse_choice<Batches>(text, kBatches, "--batches");
}

Protocol parse_protocol(std::string_view text) {
  if (text == "rendezvous") return kRendezvous;
  if (text == "eager") return kUnlimited;
  constexpr std::string_view kPrefix = "eager:";
  if (text.substr(0, kPrefix.size()) == kPrefix) {
    const std::string_view credit = text.substr(kPrefix.size());
    std::int64_t messages = 0;
    const auto [rest, error] =
        std::from_chars(credit.data(), credit.data() + credit.size(), messages);
    if (error == std::errc() && rest == credit.data() + credit.size() && messages >= 1) {
      return {Protocol::Kind::EagerMessages, messages};
    }
    if (!credit.empty() && credit.back() == 'B') {
      const Bytes bytes = parse_bytes(credit, "--protocol");
      if (bytes.value >= 1) return {Protocol::Kind::EagerBytes, bytes.value};
    }
  }
  throw InputError(
      "--protocol: unknown value \"" + std::string(text) +
      "\"; choose rendezvous, eager (unlimited), eager:N (N messages) or eager:NKiB (bytes)");
}

}  // namespace pipewright
