#include "exec/devices/cuda/module/cublas_products.hpp"

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exec/devices/cuda/column_major.hpp"
#include "exec/devices/cuda/module/kernels.hpp"

namespace pipewright::exec::cuda {
namespace {

int refused(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return 0;
  return failed(std::string(what) + ": cuBLAS says " + cublasGetStatusString(status));
}

cudaDataType_t type_of(bool is_bf16) { return is_bf16 ? CUDA_R_16BF : CUDA_R_32F; }

cublasOperation_t operation(const BlasFactor& factor) {
  return factor.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

// --- Products that bring more with them ---

/// What decides which kernel is taken.
using Shape = std::array<std::int64_t, 13>;

/// cuBLASLt's objects for products of one shape.
class Fused {
 public:
  Fused(const BlasCall& call, cublasLtEpilogue_t epilogue, int sms) {
    cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    set(CUBLASLT_MATMUL_DESC_TRANSA, operation(call.first));
    set(CUBLASLT_MATMUL_DESC_TRANSB, operation(call.second));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(call.result_is_bf16));
    if (sms > 0) set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, sms);
    first_ = layout(call.first, call.m, call.k, call.factors_are_bf16);
    second_ = layout(call.second, call.k, call.n, call.factors_are_bf16);
    cublasLtMatrixLayoutCreate(&result_, type_of(call.result_is_bf16),
                               static_cast<std::uint64_t>(call.m),
                               static_cast<std::uint64_t>(call.n), call.result_leading);
  }
  ~Fused() {
    for (cublasLtMatrixLayout_t one : {first_, second_, result_}) cublasLtMatrixLayoutDestroy(one);
    cublasLtMatmulDescDestroy(product_);
  }
  Fused(const Fused&) = delete;
  Fused& operator=(const Fused&) = delete;

  /// False: cuBLASLt has no kernel for it.
  bool choose(cublasLtHandle_t handle, std::size_t workspace_bytes, const Shape& shape) {
    cublasLtMatmulPreference_t wanted = nullptr;
    cublasLtMatmulPreferenceCreate(&wanted);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
      cublasLtMatmulPreferenceSetAttribute(wanted, what, &value, sizeof value);
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(shape[10]));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(shape[11]));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<std::uint32_t>(shape[12]));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<std::uint32_t>(shape[12]));
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle, product_, first_, second_, result_, result_, wanted, 1, &chosen_, &found);
    cublasLtMatmulPreferenceDestroy(wanted);
    return status == CUBLAS_STATUS_SUCCESS && found > 0;
  }

  cublasStatus_t multiply(cublasLtHandle_t handle, const BlasCall& call, const void* beside,
                          void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, beside);
    return cublasLtMatmul(handle, product_, &call.alpha, call.first.data, first_, call.second.data,
                          second_, &call.beta, call.result, result_, call.result, result_,
                          &chosen_.algo, workspace, workspace_bytes, stream);
  }

 private:
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t what, const Value& value) {
    cublasLtMatmulDescSetAttribute(product_, what, &value, sizeof value);
  }
  static cublasLtMatrixLayout_t layout(const BlasFactor& factor, int rows, int columns,
                                       bool is_bf16) {
    if (factor.transposed) std::swap(rows, columns);
    cublasLtMatrixLayout_t made = nullptr;
    cublasLtMatrixLayoutCreate(&made, type_of(is_bf16), static_cast<std::uint64_t>(rows),
                               static_cast<std::uint64_t>(columns), factor.leading);
    return made;
  }

  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t first_ = nullptr, second_ = nullptr, result_ = nullptr;
  cublasLtMatmulHeuristicResult_t chosen_{};
};

/// The largest power of two up to 256 that divides an address.
std::int64_t alignment(const void* at) {
  const auto address = reinterpret_cast<std::uintptr_t>(at) | 256;
  return static_cast<std::int64_t>(address & (~address + 1));
}

cublasLtEpilogue_t epilogue_of(const pipewright_cuda_gemm& g) {
  return g.bias != nullptr ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_BGRADA;
}

Shape shape_of(const pipewright_cuda_gemm& g, const BlasCall& call) {
  return {call.m,
          call.n,
          call.k,
          call.first.transposed,
          call.second.transposed,
          call.first.leading,
          call.second.leading,
          call.result_leading,
          call.result_is_bf16,
          epilogue_of(g),
          alignment(call.first.data),
          alignment(call.second.data),
          alignment(call.result)};
}

struct Blas {
  ~Blas() {
    if (handle != nullptr) static_cast<void>(cublasDestroy(handle));
  }
  /// It is cuBLASLt's too (cuBLAS guide, cublasLtHandle_t).
  cublasLtHandle_t lt() const { return reinterpret_cast<cublasLtHandle_t>(handle); }
  /// Null: there is no kernel for it.
  Fused* fused(const pipewright_cuda_gemm& g, const BlasCall& call) {
    const Shape shape = shape_of(g, call);
    const auto [place, is_new] = made.try_emplace(shape);
    if (is_new) {
      auto one = std::make_unique<Fused>(call, epilogue_of(g), sms);
      if (one->choose(lt(), workspace_bytes, shape)) place->second = std::move(one);
    }
    return place->second.get();
  }

  cublasHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  int sms = 0;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  std::map<Shape, std::unique_ptr<Fused>> made;
};

// --- The table ---

void release_blas(void* blas) { delete static_cast<Blas*>(blas); }

void* blas(void* on, int sms, void* workspace, std::size_t workspace_bytes) {
  auto made = std::make_unique<Blas>();
  made->stream = static_cast<cudaStream_t>(on);
  made->sms = sms;
  made->workspace = workspace;
  made->workspace_bytes = workspace_bytes;
  // The workspace comes last: setting the stream takes it away again.
  if (refused(cublasCreate(&made->handle), "starting cuBLAS") == 0 &&
      refused(cublasSetStream(made->handle, made->stream), "starting cuBLAS") == 0 &&
      refused(cublasSetSmCountTarget(made->handle, sms), "starting cuBLAS") == 0 &&
      refused(cublasSetWorkspace(made->handle, workspace, workspace_bytes), "starting cuBLAS") == 0)
    return made.release();
  return nullptr;
}

cublasComputeType_t compute_type(int precision) {
  if (precision == PIPEWRIGHT_CUDA_TF32) return CUBLAS_COMPUTE_32F_FAST_TF32;
  return precision == PIPEWRIGHT_CUDA_BF16 ? CUBLAS_COMPUTE_32F : CUBLAS_COMPUTE_32F_PEDANTIC;
}

int gemm_fuses(void* which, const pipewright_cuda_gemm* g, int precision) {
  if (precision != PIPEWRIGHT_CUDA_BF16 || g->outer != 1 || g->inner != 1) return 0;
  return static_cast<Blas*>(which)->fused(*g, blas_call(*g, 0, precision)) != nullptr ? 1 : 0;
}

int multiply_fused(Blas& blas, const pipewright_cuda_gemm& g, const BlasCall& call) {
  Fused* const fused = blas.fused(g, call);
  if (fused == nullptr) return failed("a matrix product: cuBLASLt has none such");
  const void* const beside = g.bias != nullptr ? g.bias : g.column_sums;
  return refused(
      fused->multiply(blas.lt(), call, beside, blas.workspace, blas.workspace_bytes, blas.stream),
      "a matrix product");
}

int gemm(void* which, const pipewright_cuda_gemm* g, int precision) {
  auto& blas = *static_cast<Blas*>(which);
  if (g->bias != nullptr || g->column_sums != nullptr)
    return multiply_fused(blas, *g, blas_call(*g, 0, precision));
  for (int outer = 0; outer < g->outer; ++outer) {
    const BlasCall of = blas_call(*g, outer, precision);
    const cublasStatus_t status = cublasGemmStridedBatchedEx(
        blas.handle, operation(of.first), operation(of.second), of.m, of.n, of.k, &of.alpha,
        of.first.data, type_of(of.factors_are_bf16), of.first.leading, of.first.step,
        of.second.data, type_of(of.factors_are_bf16), of.second.leading, of.second.step, &of.beta,
        of.result, type_of(of.result_is_bf16), of.result_leading, of.result_step, of.count,
        compute_type(precision), CUBLAS_GEMM_DEFAULT);
    if (refused(status, "a matrix product") != 0) return 1;
  }
  return 0;
}

// --- Products of several shapes in one launch: cuBLAS 12.5 and newer ---

#if CUBLAS_VERSION >= 120500
// Where the library that is loaded is older, this is null.
#pragma weak cublasGemmGroupedBatchedEx

/// All pointers of 16-bit and TF32 products at 16 bytes (cuBLAS guide, cublasGemmGroupedBatchedEx;
/// it allows less where k is odd).
bool begin_at_packs(const pipewright_cuda_gemm& g) {
  return alignment(g.a.data) >= 16 && alignment(g.b.data) >= 16 && alignment(g.c) >= 16;
}

/// Its results have the type of its factors: gradients of weights in float32 have not.
int gemms_group(void*, const pipewright_cuda_gemm* gemms, int count, int precision) {
  if (cublasGemmGroupedBatchedEx == nullptr) return 0;
  const bool all = std::all_of(gemms, gemms + count, [&](const pipewright_cuda_gemm& g) {
    return g.outer == 1 && g.inner == 1 && g.bias == nullptr && g.column_sums == nullptr &&
           (precision != PIPEWRIGHT_CUDA_BF16 || g.c_is_float == 0) && begin_at_packs(g);
  });
  return all ? 1 : 0;
}

/// Each group is one product. All arrays but those of pointers are the host's.
int grouped_gemm(void* which, const pipewright_cuda_gemm* gemms, int count, int precision,
                 void* const* pointers) {
  std::vector<cublasOperation_t> first_as, second_as;
  std::vector<int> m, n, k, first_leading, second_leading, result_leading;
  std::vector<float> alpha, beta;
  for (int i = 0; i < count; ++i) {
    const BlasCall of = blas_call(gemms[i], 0, precision);
    first_as.push_back(operation(of.first));
    second_as.push_back(operation(of.second));
    m.push_back(of.m);
    n.push_back(of.n);
    k.push_back(of.k);
    first_leading.push_back(of.first.leading);
    second_leading.push_back(of.second.leading);
    result_leading.push_back(of.result_leading);
    alpha.push_back(of.alpha);
    beta.push_back(of.beta);
  }
  const std::vector<int> one_each(static_cast<std::size_t>(count), 1);
  const cudaDataType_t type = type_of(precision == PIPEWRIGHT_CUDA_BF16);
  void* const* const a = pointers;  // what cuBLAS sees as the second factor (column_major.hpp)
  void* const* const b = a + count;
  return refused(cublasGemmGroupedBatchedEx(
                     static_cast<Blas*>(which)->handle, first_as.data(), second_as.data(), m.data(),
                     n.data(), k.data(), alpha.data(), b, type, first_leading.data(), a, type,
                     second_leading.data(), beta.data(), b + count, type, result_leading.data(),
                     count, one_each.data(), compute_type(precision)),
                 "products of several experts");
}
#else
int gemms_group(void*, const pipewright_cuda_gemm*, int, int) { return 0; }
int grouped_gemm(void*, const pipewright_cuda_gemm*, int, int, void* const*) {
  return failed("products of several experts: cuBLAS is older than 12.5");
}
#endif

}  // namespace

void offer_products(pipewright_cuda& table) {
  table.blas = blas;
  table.release_blas = release_blas;
  table.gemm = gemm;
  table.gemm_fuses = gemm_fuses;
  table.gemms_group = gemms_group;
  table.grouped_gemm = grouped_gemm;
}

}  // namespace pipewright::exec::cuda
