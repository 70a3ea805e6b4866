#include "planner/estimate/stage_parts.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <ranges>
#include <string>
#include <utility>

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

/// Of F, B and I.
struct ActionPieces {
  PieceList f, b, i;

  const PieceList& of(ActionKind kind) const {
    return kind == ActionKind::F ? f : kind == ActionKind::B ? b : i;
  }
};

/// An action's pieces, layer by layer.
using LayerPieces = std::vector<const PieceList*>;

/// The pieces of a setup's stages. Layers of one kind have the same on alike nodes and under the
/// same recompute.
class StagePieces {
 public:
  StagePieces(const EstimateContext& context, const ParallelSetup& setup)
      : context_(context), setup_(setup), ranks_(nodes_of_ranks(context.machine, setup)) {}

  LayerPieces of(std::size_t s, const StagePlan& stage, ActionKind kind) {
    const int kind_of_node = ranks_.place(static_cast<int>(stage.rank.value));
    const NodeRates& node = ranks_.nodes[static_cast<std::size_t>(kind_of_node)];
    Place& place = places_[{kind_of_node, setup_.recompute.at(s)}];
    const Architecture& model = context_.model;
    LayerPieces layers;
    if (stage.first_layer == 0) layers.push_back(&embedding(place, node).of(kind));
    const int last = model.blocks + 1;
    for (int layer = std::max(stage.first_layer, 1); layer < std::min(stage.end_layer, last);
         ++layer)
      layers.push_back(&block(place, node, s, model.kind_of(layer - 1)).of(kind));
    if (stage.end_layer > last) layers.push_back(&head(place, node).of(kind));
    if (kind != ActionKind::F) std::ranges::reverse(layers);
    return layers;
  }

 private:
  struct Place {
    std::array<std::optional<ActionPieces>, kBlockKinds> blocks;
    std::optional<ActionPieces> embedding, head;
  };

  const ActionPieces& block(Place& place, const NodeRates& node, std::size_t s, BlockKind kind) {
    std::optional<ActionPieces>& pieces = place.blocks[kind.index()];
    if (!pieces) {
      ParallelSetup own = setup_;
      own.recompute = {.of_all = setup_.recompute.at(s)};
      const BlockPieces one(context_, own, node, kind);
      pieces = {one.forward(), one.backward(true), one.backward(false)};
    }
    return *pieces;
  }

  const ActionPieces& embedding(Place& place, const NodeRates& node) const {
    if (!place.embedding) {
      place.embedding =
          end_pieces("embedding", embedding_seconds(context_.model, context_.framework, node,
                                                    context_.machine, setup_, rows()));
    }
    return *place.embedding;
  }
  const ActionPieces& head(Place& place, const NodeRates& node) const {
    if (!place.head) {
      place.head = end_pieces("head", head_seconds(context_.model, context_.framework, node,
                                                   context_.machine, setup_, rows()));
    }
    return *place.head;
  }
  static ActionPieces end_pieces(const char* name, const EndSeconds& seconds) {
    return {{computation(name, seconds.forward)},
            {computation(name, seconds.input + seconds.weight)},
            {computation(name, seconds.input)}};
  }

  double rows() const { return block_sizes(context_.model, setup_).rows; }

  const EstimateContext& context_;
  const ParallelSetup& setup_;
  const RankNodes ranks_;
  std::map<std::pair<int, LayerRecompute>, Place> places_;  // by kind of node and recompute
};

/// An action's time, less what its calls take, divided among its computations in nanoseconds.
class SpreadTime {
 public:
  SpreadTime(const LayerPieces& layers, double scale, Nanoseconds time)
      : layers_(layers), scale_(scale), computing_(time.value) {
    int calls = 0;
    for_each_piece([&](const Piece& piece, std::int64_t weight) {
      if (is_computation(piece)) {
        seconds_ += piece.seconds;
      } else {
        computing_ -= weight;
        ++calls;
      }
    });
    std::int64_t last = 0;
    rest_ = computing_;
    for_each_piece([&](const Piece& piece, std::int64_t) {
      if (is_computation(piece)) rest_ -= last = share(piece);
    });
    is_possible_ = calls > 0 && last > 0 && last + rest_ >= 1;
  }

  /// Whether there is a call, and a nanosecond for each computation.
  bool is_possible() const { return is_possible_; }
  Nanoseconds computing() const { return Nanoseconds(computing_); }

  /// The pieces as parts whose weights are nanoseconds.
  ActionParts parts(StageId stage, ActionKind kind) const {
    ActionParts action{stage, kind, {}};
    Part* last = nullptr;
    std::size_t count = 0;
    for (const PieceList* layer : layers_) count += layer->size();
    action.parts.reserve(count);  // what `last` points to stays where it is
    for_each_piece([&](const Piece& piece, std::int64_t weight) {
      Part& part = action.parts.emplace_back(piece.call, weight);
      if (!is_computation(piece)) return;
      part.weight = share(piece);
      last = &part;
    });
    last->weight += rest_;  // what rounding left over
    return action;
  }

 private:
  static bool is_computation(const Piece& piece) { return piece.call.kind == ActionKind::Part; }

  /// Each piece with its weight as a call; a call that is wholly beside computations has no part:
  /// without a weight of its own it would take what its message does.
  template <class Each>
  void for_each_piece(Each each) const {
    for (const PieceList* layer : layers_) {
      for (const Piece& piece : *layer) {
        const std::int64_t weight =
            is_computation(piece) ? 0 : std::llround(piece.seconds * scale_ * 1e9);
        if (is_computation(piece) || weight != 0) each(piece, weight);
      }
    }
  }

  std::int64_t share(const Piece& piece) const {
    return std::max<std::int64_t>(
        1, std::llround(piece.seconds / seconds_ * static_cast<double>(computing_)));
  }

  const LayerPieces& layers_;
  const double scale_;
  std::int64_t computing_, rest_ = 0;
  double seconds_ = 0;  // of all computations
  bool is_possible_ = false;
};

constexpr std::pair<ActionKind, Nanoseconds StageCosts::*> kActions[] = {
    {ActionKind::F, &StageCosts::f},
    {ActionKind::B, &StageCosts::b},
    {ActionKind::I, &StageCosts::i}};

/// `each(stage, kind, spread)` for each action that consists of parts.
template <class Each>
void for_each_action(const EstimateContext& context, const ParallelSetup& setup,
                     std::span<const StagePlan> stages, std::span<const StageCosts> whole,
                     double scale, Each each) {
  const bool sends = setup.tensor > 1 || setup.context > 1 || setup.experts > 1;
  const bool stand_apart = setup.context > 1 && setup.experts > 1;  // without an axis
  const bool are_folded = setup.division().folds_experts();
  if (!sends || (stand_apart && !are_folded)) return;
  if (setup.expert_tensor() != setup.tensor && !are_folded) return;
  StagePieces pieces(context, setup);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    for (const auto& [kind, time] : kActions) {
      const LayerPieces layers = pieces.of(s, stages[s], kind);
      const SpreadTime spread(layers, scale, whole[s].*time);
      if (spread.is_possible()) each(s, kind, time, spread);
    }
  }
}

}  // namespace

StageParts estimated_stage_parts(const EstimateContext& context, const ParallelSetup& setup,
                                 std::span<const StagePlan> stages,
                                 std::span<const StageCosts> whole, double scale) {
  StageParts result{{}, {whole.begin(), whole.end()}};
  for_each_action(context, setup, stages, whole, scale,
                  [&](std::size_t s, ActionKind kind, auto time, const SpreadTime& spread) {
                    result.parts.push_back(spread.parts(StageId(static_cast<int>(s)), kind));
                    result.computations[s].*time = spread.computing();
                  });
  return result;
}

std::vector<StageCosts> estimated_stage_computations(const EstimateContext& context,
                                                     const ParallelSetup& setup,
                                                     std::span<const StagePlan> stages,
                                                     std::span<const StageCosts> whole,
                                                     double scale) {
  std::vector<StageCosts> computations(whole.begin(), whole.end());
  for_each_action(context, setup, stages, whole, scale,
                  [&](std::size_t s, ActionKind, auto time, const SpreadTime& spread) {
                    computations[s].*time = spread.computing();
                  });
  return computations;
}

}  // namespace pipewright::planner
