// The attention of exec/devices/cuda/module_api.h by its definition, in double: forwards it leaves
// log sums, and backwards it makes probabilities from them, as cuDNN's does
// (Dao and others, arXiv 2205.14135, algorithm 4).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "exec/devices/cuda/bfloat16.hpp"
#include "exec/devices/cuda/module_api.h"

namespace pipewright::tests {

class HostAttention {
 public:
  using Number = exec::cuda::Bfloat16;

  explicit HostAttention(const pipewright_cuda_attention& shape) : s_(shape) {}

  void forward(const Number* qkv, Number* context, float* log_sums) const {
    for (int head = 0; head < s_.samples * s_.heads; ++head) {
      for (int row = 0; row < s_.sequence; ++row) {
        const std::vector<double> scores = scores_of(qkv, head, row);
        double largest = scores[0], sum = 0;
        for (double score : scores) largest = std::max(largest, score);
        for (double score : scores) sum += std::exp(score - largest);
        const double log_sum = largest + std::log(sum);
        log_sums[at(head, row)] = static_cast<float>(log_sum);
        for (int j = 0; j < s_.head_width; ++j) {
          double total = 0;
          for (int key = 0; key <= row; ++key)
            total += std::exp(scores[at(key)] - log_sum) * value(qkv, head, key, j);
          context[of_context(head, row, j)] = static_cast<float>(total);
        }
      }
    }
  }

  void backward(const Number* qkv, const Number* context, const float* log_sums,
                const Number* dcontext, Number* dqkv) const {
    std::vector<double> gradients(at(s_.samples * s_.sequence) * at(row_width()), 0.0);
    for (int head = 0; head < s_.samples * s_.heads; ++head) {
      for (int row = 0; row < s_.sequence; ++row) {
        const std::vector<double> scores = scores_of(qkv, head, row);
        double shared = 0;  // of the row: context · dcontext
        for (int j = 0; j < s_.head_width; ++j)
          shared += as_double(context[of_context(head, row, j)]) * gradient(dcontext, head, row, j);
        for (int key = 0; key <= row; ++key) {
          const double p = std::exp(scores[at(key)] - static_cast<double>(log_sums[at(head, row)]));
          double dp = 0;
          for (int j = 0; j < s_.head_width; ++j) {
            const double dy = gradient(dcontext, head, row, j);
            dp += dy * value(qkv, head, key, j);
            gradients[of_value(head, key, j)] += p * dy;
          }
          const double ds = p * (dp - shared) * scale();
          for (int j = 0; j < s_.head_width; ++j) {
            gradients[of_query(head, row, j)] += ds * as_double(qkv[of_key(head, key, j)]);
            gradients[of_key(head, key, j)] += ds * as_double(qkv[of_query(head, row, j)]);
          }
        }
      }
    }
    for (std::size_t i = 0; i < gradients.size(); ++i) dqkv[i] = static_cast<float>(gradients[i]);
  }

 private:
  static std::size_t at(int place) { return static_cast<std::size_t>(place); }
  static double as_double(Number number) { return static_cast<double>(static_cast<float>(number)); }

  std::size_t at(int head, int row) const { return at(head) * at(s_.sequence) + at(row); }
  int row_width() const { return (s_.heads + 2 * s_.key_heads) * s_.head_width; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(s_.head_width)); }

  // Places of number j of a head in a row of its sample; `head` counts through all samples.
  std::size_t in_row(int head, int row, int column, int width) const {
    return (at(head / s_.heads) * at(s_.sequence) + at(row)) * at(width) + at(column);
  }
  int key_head(int head) const { return head % s_.heads / (s_.heads / s_.key_heads); }
  std::size_t of_context(int head, int row, int j) const {
    return in_row(head, row, head % s_.heads * s_.head_width + j, s_.heads * s_.head_width);
  }
  std::size_t of_query(int head, int row, int j) const {
    return in_row(head, row, head % s_.heads * s_.head_width + j, row_width());
  }
  std::size_t of_key(int head, int row, int j) const {
    return in_row(head, row, (s_.heads + key_head(head)) * s_.head_width + j, row_width());
  }
  std::size_t of_value(int head, int row, int j) const {
    return of_key(head, row, j) + at(s_.key_heads) * at(s_.head_width);
  }
  double value(const Number* qkv, int head, int row, int j) const {
    return as_double(qkv[of_value(head, row, j)]);
  }
  double gradient(const Number* dcontext, int head, int row, int j) const {
    return as_double(dcontext[of_context(head, row, j)]);
  }

  /// Of the keys up to the row's own place.
  std::vector<double> scores_of(const Number* qkv, int head, int row) const {
    std::vector<double> scores(at(row) + 1, 0.0);
    for (int key = 0; key <= row; ++key) {
      for (int j = 0; j < s_.head_width; ++j) {
        scores[at(key)] +=
            scale() * as_double(qkv[of_query(head, row, j)]) * as_double(qkv[of_key(head, key, j)]);
      }
    }
    return scores;
  }

  pipewright_cuda_attention s_;
};

}  // namespace pipewright::tests
