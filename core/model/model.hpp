// The model as a chain of layers: what the partitioner cuts into stages and the
// executor trains.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.hpp"
#include "core/base/units.hpp"

namespace pipewright {

enum class LayerKind : std::uint8_t {
  Linear,  // in -> out, with a bias unless bias = false
  Relu,
  Gelu,                 // tanh form
  LayerNorm,            // over the last dimension, with scale and shift
  CausalSelfAttention,  // qkv and output projections included; `in` wide,
                        // `heads` heads, keys and values shared by `heads / kv_heads` of them
  Embedding,            // token ids -> out wide; plus learned positions if positions > 0
  Residual,             // x + inner(x), or shortcut(x) + inner(x)
  Sequential,           // inner layers kept together: the partitioner does not cut it (a
                        // transformer block)
  Conv2d,               // image -> image_out, `groups` groups of channels apart, with a bias of
                        // each channel unless bias = false
  BatchNorm,            // each channel over the micro-batch, with scale and shift
  MaxPool,              // the largest of each window
  AveragePool,          // the mean of each window; what lies outside of the image counts as 0
  GlobalAveragePool,    // each channel's mean
  Graph,                // inner layers that name their inputs; the partitioner does not cut it
  Add,                  // within a Graph: the sum of its inputs
  Concat,               // within a Graph: its inputs side by side; of images, their channels
  Custom,               // a user's own, by name (exec/layers/own_layer.hpp)
  RmsNorm,              // over the last dimension, with scale
  Swiglu,               // silu(first half) · second half of a row
  MixtureOfExperts,     // each row through the experts that a router chooses for it, their outputs
                        // weighted and added (core/model/experts.hpp)
  LatentAttention,      // causal self-attention through narrow layers (core/model/latent.hpp)
};
inline constexpr int kGraphInput = -1;
enum class LossKind : std::uint8_t { SoftmaxCrossEntropy, Mse };

/// A row that is an image: channel by channel, each row by row.
struct ImageShape {
  int channels = 0, height = 0, width = 0;

  int pixels() const { return height * width; }
  int numbers() const { return channels * pixels(); }
  bool operator==(const ImageShape&) const = default;
};

/// A square that moves over the channels of an image in steps of `stride`, starting `padding`
/// outside of it.
struct Window {
  int size = 1, stride = 1, padding = 0;

  bool operator==(const Window&) const = default;
};

/// What is known of a layer that a user has written.
struct CustomLayer {
  std::string type;                             // its name in the program's LayerFactory
  std::map<std::string, std::string> settings;  // for its maker
  std::int64_t weights = 0;
  double operations = 0;  // of F for a row, and of I and of W
  std::int64_t kept = 0;  // bytes of a row that F keeps for I and W, beside its input
  std::int64_t held = 0;  // bytes of a row that F, I and W hold besides while they run

  bool operator==(const CustomLayer&) const = default;
};

enum class RouterScores : std::uint8_t { Softmax, Sigmoid };

/// How a mixture of experts chooses among them (docs/plan-format.md, "Mixtures of experts").
struct ExpertChoice {
  int experts = 0;
  int top_k = 0;  // experts of a row
  RouterScores scores = RouterScores::Softmax;
  bool normalises = true;      // the chosen scores of a row are made to add up to 1
  double scaling = 1;          // of the weights that come of it
  int groups = 1;              // of experts, side by side
  int top_groups = 1;          // groups in which a row's experts are
  double capacity_factor = 0;  // rows that an expert takes, of an even share; 0: all that come
  double balance_loss = 0;     // coefficient of the load-balancing loss
  double balance_rate = 0;     // by which each update moves the experts' bias; 0: they have none
  double z_loss = 0;           // coefficient of the loss that keeps the router's logits small

  bool operator==(const ExpertChoice&) const = default;
};

/// Queries, keys and values through narrow layers (DeepSeek-V2, arXiv 2405.04434 §2.1): the widths
/// of these, and of the parts of a head.
struct LatentWidths {
  int query_rank = 0;      // 0: queries come from the row itself
  int key_value_rank = 0;  // 0: plain attention
  int plain = 0;           // a query's and key's part without positions
  int rotary = 0;          // the part with positions; the key's is one for all heads
  int value = 0;

  bool is_used() const { return key_value_rank > 0; }
  int query() const { return plain + rotary; }
  bool operator==(const LatentWidths&) const = default;
};

struct Layer {
  std::string name;
  LayerKind kind = LayerKind::Linear;
  int in = 0, out = 0;  // widths (features of a row)
  int heads = 0;
  int kv_heads = 0;        // CausalSelfAttention: of keys and values; 0: as many as heads
  double rotary_base = 0;  // of attention: of rotary positions; 0: it has none
  LatentWidths latent;     // LatentAttention
  int vocabulary = 0, positions = 0;
  bool bias = true;
  bool tied = false;            // Linear: its matrix is the token table of the model's embedding
  std::vector<Layer> inner;     // Residual, Sequential, Graph; MixtureOfExperts: of each expert
  std::vector<Layer> shortcut;  // Residual: what x goes through before it is added; often nothing
  std::vector<Layer> shared;    // MixtureOfExperts: what every row goes through; added, often none
  ExpertChoice choice;          // MixtureOfExperts; `bias` is its router's
  ImageShape image, image_out;  // of the layers of core/model/image.hpp: before and after
  Window window;                // Conv2d, MaxPool, AveragePool
  int groups = 1;               // Conv2d
  /// Within a Graph, where the input comes from: an inner layer before it, or kGraphInput.
  std::vector<int> inputs;
  CustomLayer custom;

  bool operator==(const Layer&) const = default;
};

struct Model {
  std::string name;
  std::vector<Layer> layers;
  LossKind loss = LossKind::SoftmaxCrossEntropy;
  int sequence = 1;  // rows of a sample: tokens of a sequence; 1 for plain vectors
  int bytes_per_element = 4;
};

/// {"schema":"pipewright.model/1", "preset":"gpt-tiny"} or
/// {"transformer":{style, hidden, layers, heads, ffn, vocabulary, sequence}} or
/// {"layers":[…], "loss":…}.
Model read_model(const JsonCursor& document);
Json to_json(const Model& model);
/// "mlp" (1024 -> 4096 -> 1024), "gpt-tiny", "llama-tiny", "mixtral-tiny" and "deepseek-tiny"
/// (byte level), "gpt3-175b", "resnet50" (images of 224x224), "resnet50-small" (32x32, ten
/// classes), "resnet-tiny" (16x16, four classes).
/// Throws InputError with a suggestion.
Model model_preset(std::string_view name);
std::vector<std::string_view> model_preset_names();
std::string_view to_string(LayerKind kind);

}  // namespace pipewright
