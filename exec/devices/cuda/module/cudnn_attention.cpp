#include "exec/devices/cuda/module/cudnn_attention.hpp"

#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <unordered_map>

#include "exec/devices/cuda/module/kernels.hpp"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // the front end takes cuDNN's functions from it
}

namespace pipewright::exec::cuda {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// Of the graphs' tensors.
enum Id : std::int64_t {
  kQuery = 1,
  kKey,
  kValue,
  kContext,
  kLogSums,
  kDContext,
  kDQuery,
  kDKey,
  kDValue
};

/// Why there is none; empty: it is open.
const std::string& why_not_open() {
  static const std::string why = [] {
    // Which runtime the front end looks for: that of this module.
    const std::string runtime = "libcudart.so." + std::to_string(CUDART_VERSION / 1000);
    setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", runtime.c_str(), 0);
    fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (fe::cudnn_dlhandle != nullptr) return std::string();
    const char* const reason = dlerror();
    return std::string(reason != nullptr ? reason : "libcudnn.so.9 cannot be opened");
  }();
  return why;
}

int refused(fe::error_t error, const char* what) {
  return error.is_good() ? 0 : failed(std::string(what) + ": cuDNN says " + error.get_message());
}

/// Where the tensors of a shape lie: [samples][heads][sequence][width of a head] each.
class Layout {
 public:
  explicit Layout(const pipewright_cuda_attention& shape) : s_(shape) {}

  fe::graph::Tensor_attributes query(Id id) const {
    return in_rows(id, s_.heads, s_.head_width, s_.queries);
  }
  fe::graph::Tensor_attributes key(Id id) const {
    return in_rows(id, s_.key_heads, s_.head_width, s_.keys);
  }
  fe::graph::Tensor_attributes value(Id id) const {
    return in_rows(id, s_.key_heads, s_.value_width, s_.values);
  }
  fe::graph::Tensor_attributes context(Id id) const {
    return in_rows(id, s_.heads, s_.value_width, {s_.heads * s_.value_width, s_.value_width});
  }
  fe::graph::Tensor_attributes log_sums() const {
    return fe::graph::Tensor_attributes()
        .set_uid(kLogSums)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({s_.samples, s_.heads, s_.sequence, 1})
        .set_stride({std::int64_t{s_.heads} * s_.sequence, s_.sequence, 1, 1});
  }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(s_.head_width)); }

 private:
  fe::graph::Tensor_attributes in_rows(Id id, int heads, int width,
                                       const pipewright_cuda_heads& at) const {
    return fe::graph::Tensor_attributes()
        .set_uid(id)
        .set_data_type(fe::DataType_t::BFLOAT16)
        .set_dim({s_.samples, heads, s_.sequence, width})
        .set_stride({std::int64_t{s_.sequence} * at.stride, at.step, at.stride, 1});
  }

  const pipewright_cuda_attention s_;
};

fe::graph::Graph new_graph(int sms) {
  fe::graph::Graph graph;
  graph.set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  if (sms > 0) graph.set_sm_count(sms);
  return graph;
}

/// As a result it lies as `where` says.
void put_out(const Tensor& tensor, const fe::graph::Tensor_attributes& where) {
  tensor->set_output(true)
      .set_uid(where.get_uid())
      .set_data_type(where.get_data_type())
      .set_dim(where.get_dim())
      .set_stride(where.get_stride());
}

fe::graph::Graph forward_graph(const Layout& layout, int sms) {
  fe::graph::Graph graph = new_graph(sms);
  const auto how = fe::graph::SDPA_attributes()
                       .set_name("attention")
                       .set_generate_stats(true)
                       .set_causal_mask(true)
                       .set_attn_scale(layout.scale());
  const auto [context, log_sums] =
      graph.sdpa(graph.tensor(layout.query(kQuery)), graph.tensor(layout.key(kKey)),
                 graph.tensor(layout.value(kValue)), how);
  put_out(context, layout.context(kContext));
  put_out(log_sums, layout.log_sums());
  return graph;
}

/// Its sums have one order, so the same arguments give the same bits.
fe::graph::Graph backward_graph(const Layout& layout, int sms) {
  fe::graph::Graph graph = new_graph(sms);
  const auto how = fe::graph::SDPA_backward_attributes()
                       .set_name("attention, backward")
                       .set_causal_mask(true)
                       .set_deterministic_algorithm(true)
                       .set_attn_scale(layout.scale());
  const auto [query, key, value] = graph.sdpa_backward(
      graph.tensor(layout.query(kQuery)), graph.tensor(layout.key(kKey)),
      graph.tensor(layout.value(kValue)), graph.tensor(layout.context(kContext)),
      graph.tensor(layout.context(kDContext)), graph.tensor(layout.log_sums()), how);
  put_out(query, layout.query(kDQuery));
  put_out(key, layout.key(kDKey));
  put_out(value, layout.value(kDValue));
  return graph;
}

/// One of cuDNN's functions.
template <class Function>
Function* of_cudnn(const char* name) {
  return reinterpret_cast<Function*>(dlsym(fe::cudnn_dlhandle, name));
}

struct Attention {
  explicit Attention(const pipewright_cuda_attention& shape) : layout(shape) {}
  ~Attention() {
    if (handle != nullptr) of_cudnn<decltype(cudnnDestroy)>("cudnnDestroy")(handle);
  }
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  Layout layout;
  cudnnHandle_t handle = nullptr;
  fe::graph::Graph forward, backward;
  std::int64_t workspace_bytes = 0;
};

int build(fe::graph::Graph& graph, Attention& of, const char* what) {
  if (refused(graph.build(of.handle, {fe::HeurMode_t::A}), what) != 0) return 1;
  std::int64_t bytes = 0;
  if (refused(graph.get_workspace_size(bytes), what) != 0) return 1;
  of.workspace_bytes = std::max(of.workspace_bytes, bytes);
  return 0;
}

int is_there() {
  return why_not_open().empty() ? 0 : failed("cuDNN cannot be loaded: " + why_not_open());
}

int version() {
  if (!why_not_open().empty()) return 0;
  return static_cast<int>(of_cudnn<decltype(cudnnGetVersion)>("cudnnGetVersion")());
}

int start(Attention& of, void* stream, int sms) {
  cudnnStatus_t status = of_cudnn<decltype(cudnnCreate)>("cudnnCreate")(&of.handle);
  if (status == CUDNN_STATUS_SUCCESS) {
    status = of_cudnn<decltype(cudnnSetStream)>("cudnnSetStream")(
        of.handle, static_cast<cudaStream_t>(stream));
  }
  if (status != CUDNN_STATUS_SUCCESS)
    return failed("starting cuDNN: error " + std::to_string(static_cast<int>(status)));
  of.forward = forward_graph(of.layout, sms);
  of.backward = backward_graph(of.layout, sms);
  return build(of.forward, of, "attention") != 0 ||
         build(of.backward, of, "attention's gradient") != 0;
}

void* attention(void* stream, int sms, const pipewright_cuda_attention* shape) try {
  if (is_there() != 0) return nullptr;
  auto made = std::make_unique<Attention>(*shape);
  return start(*made, stream, sms) == 0 ? made.release() : nullptr;
} catch (const std::exception& error) {
  static_cast<void>(failed(std::string("cuDNN's front end: ") + error.what()));
  return nullptr;
}

void release_attention(void* which) { delete static_cast<Attention*>(which); }

std::size_t workspace_bytes(void* which) {
  return static_cast<std::size_t>(static_cast<Attention*>(which)->workspace_bytes);
}

/// cuDNN's arguments are not const, whatever it does with them.
void* argument(const void* array) { return const_cast<void*>(array); }

using Arguments = std::unordered_map<std::int64_t, void*>;

int attend(void* which, const void* queries, const void* keys, const void* values, void* context,
           float* log_sums, void* workspace) {
  auto& of = *static_cast<Attention*>(which);
  Arguments arguments = {{kQuery, argument(queries)},
                         {kKey, argument(keys)},
                         {kValue, argument(values)},
                         {kContext, context},
                         {kLogSums, log_sums}};
  return refused(of.forward.execute(of.handle, arguments, workspace), "attention");
}

int attend_backward(void* which, const void* queries, const void* keys, const void* values,
                    const void* context, const float* log_sums, const void* dcontext,
                    void* dqueries, void* dkeys, void* dvalues, void* workspace) {
  auto& of = *static_cast<Attention*>(which);
  Arguments arguments = {{kQuery, argument(queries)},
                         {kKey, argument(keys)},
                         {kValue, argument(values)},
                         {kContext, argument(context)},
                         {kLogSums, argument(log_sums)},
                         {kDContext, argument(dcontext)},
                         {kDQuery, dqueries},
                         {kDKey, dkeys},
                         {kDValue, dvalues}};
  return refused(of.backward.execute(of.handle, arguments, workspace), "attention's gradient");
}

}  // namespace

void offer_attention(pipewright_cuda& table) {
  table.attention_is_there = is_there;
  table.attention_version = version;
  table.attention = attention;
  table.release_attention = release_attention;
  table.attention_workspace = workspace_bytes;
  table.attend = attend;
  table.attend_backward = attend_backward;
}

}  // namespace pipewright::exec::cuda
