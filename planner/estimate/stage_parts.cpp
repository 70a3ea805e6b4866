#include "planner/estimate/stage_parts.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>

#include "core/plan/rank_axes.hpp"
#include "planner/estimate/adapters.hpp"
#include "planner/estimate/exposed_messages.hpp"
#include "planner/estimate/step_parts.hpp"

namespace pipewright::planner {
namespace {

constexpr const char *kTensor = "tp", *kContext = "cp";

/// A computation, whose seconds count in proportion to those of the others, or a call, whose count
/// as they are.
struct Piece {
  Call call;
  double seconds = 0;
};
using PieceList = std::vector<Piece>;

Piece computation(const char* name, double seconds) {
  return {{.kind = ActionKind::Part, .data = name}, seconds};
}

void append(PieceList& list, const PieceList& more) {
  list.insert(list.end(), more.begin(), more.end());
}

/// Of one block on one rank.
class BlockPieces {
 public:
  BlockPieces(const EstimateContext& context, const ParallelSetup& setup, const NodeRates& node,
              BlockKind kind)
      : setup_(setup),
        group_(expert_group_name(setup.division())),
        kind_(kind),
        work_(block_work(context.model, context.framework, setup, kind)),
        sent_(exposed_messages(context.framework, node, context.machine.devices_per_node, setup,
                               work_)),
        rows_(std::llround(block_sizes(context.model, setup).rows)),
        hidden_(context.model.hidden) {
    const DeviceRates& device = node.device;
    const int out = work_.mixer_products - 1;
    const auto products = [&](int first, int end) {
      return products_seconds(device, work_, first, end) +
             adapter_seconds(device, work_, first, end);
    };
    KernelSeconds core;
    if (kind.mixer != Mixer::None) {
      entering_ = products(0, out);
      core = mixer_core_seconds(device, work_);
      mixed_ = core + products(out, out + 1);
    }
    feed_forward_ = products(out + 1, work_.products_used);
    left_out_ = left_out_of_recompute(device, context.framework, work_);
    if (selects_operators(context.framework, setup.recompute.of_all))
      again_ = operators_again(device, context.model, work_);
    else if (setup.recompute.of_all == LayerRecompute::Attention && kind.has_attention())
      again_.after_mixer = core.forward;
  }

  PieceList forward() const { return forward_without({}); }

  /// What B does in the order in which it does it; of I without the gradients of weights.
  PieceList backward(bool with_weights) const {
    const auto seconds = [&](const KernelSeconds& kernels) {
      return kernels.backward - (with_weights ? 0 : kernels.weight);
    };
    PieceList list;
    if (setup_.recompute.of_all == LayerRecompute::Whole) append(list, forward_without(left_out_));
    add_feed_forward(list, sent_.backward, 0, "combine",
                     seconds(feed_forward_) + again_.feed_forward, "dispatch");
    add_mixer(list, sent_.backward, 2, seconds(mixed_) + again_.after_mixer,
              seconds(entering_) + again_.entering);
    return list;
  }

 private:
  PieceList forward_without(const LeftOutOfRecompute& left_out) const {
    PieceList list;
    add_mixer(list, sent_.forward, 0, entering_.forward - left_out.entering,
              mixed_.forward - left_out.after_mixer);
    add_feed_forward(list, sent_.forward, 2, "dispatch", feed_forward_.forward - left_out.last,
                     left_out.returned > 0 ? nullptr : "combine");
    return list;
  }

  void add_call(PieceList& list, ActionKind kind, const char* group, const std::string& data,
                std::int64_t rows, std::int64_t columns, double seconds) const {
    list.push_back({{.kind = kind,
                     .group = group,
                     .data = data,
                     .shape = {{rows, columns}},
                     .dtype = "bfloat16"},
                    seconds});
  }

  /// Under sequence parallelism a rank has its part of the rows between the halves of a block.
  void enter(PieceList& list, const char* half, double seconds) const {
    if (seconds > 0)
      add_call(list, ActionKind::AllGather, kTensor, std::string(half) + "-in", rows_, hidden_,
               seconds);
  }
  void leave(PieceList& list, const char* half, double seconds) const {
    if (seconds <= 0) return;
    const bool scatters = setup_.sequence_parallel;
    add_call(list, scatters ? ActionKind::ReduceScatter : ActionKind::AllReduce, kTensor,
             scatters ? std::string(half) + "-out" : half, rows_, hidden_, seconds);
  }

  /// Heads for rows and back, around attention: `first` and `then` are computed before and after
  /// the first exchange. Its tensor parallel messages are those from `place` on.
  void add_mixer(PieceList& list, const MessageSeconds& sent, std::size_t place, double first,
                 double then) const {
    if (kind_.mixer == Mixer::None) return;
    const char* const name = kind_.mixer == Mixer::Mamba ? "mamba" : "attention";
    enter(list, name, sent.tensor[place]);
    if (setup_.context == 1 || !kind_.has_attention()) {
      list.push_back(computation(name, first + then));
    } else {
      add_exchanged_attention(list, sent, first, then);
    }
    leave(list, name, sent.tensor[place + 1]);
  }
  void add_exchanged_attention(PieceList& list, const MessageSeconds& sent, double first,
                               double then) const {
    const auto columns = std::llround(work_.context_message / 4 /
                                      static_cast<double>(std::max(rows_, std::int64_t{1})));
    list.push_back(computation("projection", first));
    add_call(list, ActionKind::AllToAll, kContext, "heads", rows_, columns, sent.context / 2);
    list.push_back(computation("attention", then));
    add_call(list, ActionKind::AllToAll, kContext, "rows", rows_, columns, sent.context / 2);
  }

  void add_feed_forward(PieceList& list, const MessageSeconds& sent, std::size_t place,
                        const char* before, double seconds, const char* after) const {
    if (kind_.feed_forward == FeedForward::None) return;
    const bool experts = kind_.has_experts();
    const char* const name = experts ? "experts" : "mlp";
    // The ranks that divide an expert gather the copies that came.
    if (experts) add_experts_call(list, before);
    enter(list, name, sent.tensor[place]);
    list.push_back(computation(name, seconds));
    leave(list, name, sent.tensor[place + 1]);
    if (experts && after != nullptr) add_experts_call(list, after);
  }

  void add_experts_call(PieceList& list, const char* data) const {
    if (setup_.experts == 1) return;
    const auto copies = std::llround(work_.expert_message / 2 / static_cast<double>(hidden_));
    add_call(list, ActionKind::AllToAll, group_.c_str(), data, copies, hidden_,
             sent_.forward.experts / 2);
  }

  const ParallelSetup& setup_;
  const std::string group_;  // that exchanges rows between experts
  BlockKind kind_;
  BlockWork work_;
  BlockMessages sent_;
  std::int64_t rows_, hidden_;
  KernelSeconds entering_, mixed_, feed_forward_;
  LeftOutOfRecompute left_out_;
  OperatorsAgain again_;  // under selective recompute
};

/// The pieces of an action of a stage.
struct StagePieces {
  const EstimateContext& context;
  const ParallelSetup& setup;
  const NodeRates& node;
  const StagePlan& stage;

  PieceList of(ActionKind kind) const {
    const Architecture& model = context.model;
    const double rows = block_sizes(model, setup).rows;
    const EndSeconds embedding = embedding_seconds(model, context.framework, node, context.machine,
                                                   setup, rows),
                     head =
                         head_seconds(model, context.framework, node, context.machine, setup, rows);
    const auto end = [&](const EndSeconds& seconds) {
      if (kind == ActionKind::F) return seconds.forward;
      return seconds.input + (kind == ActionKind::B ? seconds.weight : 0);
    };
    std::array<std::optional<PieceList>, kBlockKinds> blocks;
    std::vector<PieceList> layers;
    if (stage.first_layer == 0) layers.push_back({computation("embedding", end(embedding))});
    const int last = model.blocks + 1;
    for (int layer = std::max(stage.first_layer, 1); layer < std::min(stage.end_layer, last);
         ++layer) {
      const BlockKind of_block = model.kind_of(layer - 1);
      std::optional<PieceList>& pieces = blocks[of_block.index()];
      if (!pieces) {
        const BlockPieces block(context, setup, node, of_block);
        pieces = kind == ActionKind::F ? block.forward() : block.backward(kind == ActionKind::B);
      }
      layers.push_back(*pieces);
    }
    if (stage.end_layer > last) layers.push_back({computation("head", end(head))});
    if (kind != ActionKind::F) std::reverse(layers.begin(), layers.end());
    PieceList all;
    for (const PieceList& each : layers) append(all, each);
    return all;
  }
};

/// The pieces as parts whose weights are nanoseconds and, of computations, as many together as
/// `time` leaves them, which is then lessened by the calls; nullopt where there is no call, or no
/// nanosecond for each computation. A call that is wholly beside computations has no part: without
/// a weight of its own it would take what its message does.
std::optional<ActionParts> parts_of_action(StageId stage, ActionKind kind, PieceList pieces,
                                           double scale, Nanoseconds& time) {
  const auto weight = [&](const Piece& piece) { return std::llround(piece.seconds * scale * 1e9); };
  std::erase_if(pieces, [&](const Piece& piece) {
    return piece.call.kind != ActionKind::Part && weight(piece) == 0;
  });
  ActionParts action{stage, kind, {}};
  action.parts.reserve(pieces.size());
  double seconds = 0;
  std::int64_t left = time.value;
  for (const Piece& piece : pieces) {
    Part& part = action.parts.emplace_back(piece.call, 0);
    if (part.is_computation()) {
      seconds += piece.seconds;
    } else {
      part.weight = weight(piece);
      left -= part.weight;
    }
  }
  const bool calls =
      std::ranges::any_of(action.parts, [](const Part& part) { return !part.is_computation(); });
  if (!calls) return std::nullopt;
  const Nanoseconds computing(left);
  Part* last = nullptr;
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    if (!action.parts[k].is_computation()) continue;
    last = &action.parts[k];
    last->weight = std::max<std::int64_t>(
        1, std::llround(pieces[k].seconds / seconds * static_cast<double>(computing.value)));
    left -= last->weight;
  }
  if (last == nullptr || last->weight + left < 1) return std::nullopt;
  last->weight += left;  // what rounding left over
  time = computing;
  return action;
}

}  // namespace

StageParts estimated_stage_parts(const EstimateContext& context, const ParallelSetup& setup,
                                 std::span<const StagePlan> stages,
                                 std::span<const StageCosts> whole, double scale) {
  StageParts result{{}, {whole.begin(), whole.end()}};
  const bool sends = setup.tensor > 1 || setup.context > 1 || setup.experts > 1;
  const bool stand_apart = setup.context > 1 && setup.experts > 1;  // without an axis
  const bool are_folded = setup.division().folds_experts();
  if (!sends || (stand_apart && !are_folded)) return result;
  if (setup.expert_tensor() != setup.tensor && !are_folded) return result;
  const RankNodes ranks = nodes_of_ranks(context.machine, setup);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    ParallelSetup own = setup;
    own.recompute = {.of_all = setup.recompute.at(s)};
    const auto place =
        static_cast<std::size_t>(ranks.place(static_cast<int>(stages[s].rank.value)));
    const StagePieces pieces{context, own, ranks.nodes[place], stages[s]};
    StageCosts& costs = result.computations[s];
    const std::pair<ActionKind, Nanoseconds*> actions[] = {
        {ActionKind::F, &costs.f}, {ActionKind::B, &costs.b}, {ActionKind::I, &costs.i}};
    for (const auto& [kind, time] : actions) {
      auto parts =
          parts_of_action(StageId(static_cast<int>(s)), kind, pieces.of(kind), scale, *time);
      if (parts) result.parts.push_back(std::move(*parts));
    }
  }
  return result;
}

}  // namespace pipewright::planner
