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
  struct Arrays {
    const Number *queries, *keys, *values;
  };
  struct Gradients {
    Number *queries, *keys, *values;
  };

  explicit HostAttention(const pipewright_cuda_attention& shape) : s_(shape) {}

  void forward(const Arrays& of, Number* context, float* log_sums) const {
    for (int head = 0; head < s_.samples * s_.heads; ++head) {
      for (int row = 0; row < s_.sequence; ++row) {
        const std::vector<double> scores = scores_of(of, head, row);
        double largest = scores[0], sum = 0;
        for (double score : scores) largest = std::max(largest, score);
        for (double score : scores) sum += std::exp(score - largest);
        const double log_sum = largest + std::log(sum);
        log_sums[at(head, row)] = static_cast<float>(log_sum);
        for (int j = 0; j < s_.value_width; ++j) {
          double total = 0;
          for (int key = 0; key <= row; ++key)
            total += std::exp(scores[at(key)] - log_sum) * value(of, head, key, j);
          context[of_context(head, row, j)] = static_cast<float>(total);
        }
      }
    }
  }

  void backward(const Arrays& of, const Number* context, const float* log_sums,
                const Number* dcontext, const Gradients& to) const {
    std::vector<double> dqueries(numbers(s_.queries)), dkeys(numbers(s_.keys)),
        dvalues(numbers(s_.values));
    for (int head = 0; head < s_.samples * s_.heads; ++head) {
      for (int row = 0; row < s_.sequence; ++row) {
        const std::vector<double> scores = scores_of(of, head, row);
        double shared = 0;  // of the row: context · dcontext
        for (int j = 0; j < s_.value_width; ++j)
          shared += as_double(context[of_context(head, row, j)]) * gradient(dcontext, head, row, j);
        for (int key = 0; key <= row; ++key) {
          const double p = std::exp(scores[at(key)] - static_cast<double>(log_sums[at(head, row)]));
          double dp = 0;
          for (int j = 0; j < s_.value_width; ++j) {
            const double dy = gradient(dcontext, head, row, j);
            dp += dy * value(of, head, key, j);
            dvalues[of_value(head, key, j)] += p * dy;
          }
          const double ds = p * (dp - shared) * scale();
          for (int j = 0; j < s_.head_width; ++j) {
            dqueries[of_query(head, row, j)] += ds * as_double(of.keys[of_key(head, key, j)]);
            dkeys[of_key(head, key, j)] += ds * as_double(of.queries[of_query(head, row, j)]);
          }
        }
      }
    }
    for (int head = 0; head < s_.samples * s_.heads; ++head) {
      for (int row = 0; row < s_.sequence; ++row) {
        for (int j = 0; j < s_.head_width; ++j) {
          put(dqueries, of_query(head, row, j), to.queries);
          put(dkeys, of_key(head, row, j), to.keys);
        }
        for (int j = 0; j < s_.value_width; ++j) put(dvalues, of_value(head, row, j), to.values);
      }
    }
  }

 private:
  static std::size_t at(int place) { return static_cast<std::size_t>(place); }
  static double as_double(Number number) { return static_cast<double>(static_cast<float>(number)); }
  static void put(const std::vector<double>& from, std::size_t place, Number* to) {
    to[place] = static_cast<float>(from[place]);
  }

  std::size_t at(int head, int row) const { return at(head) * at(s_.sequence) + at(row); }
  std::size_t numbers(const pipewright_cuda_heads& where) const {
    return at(s_.samples * s_.sequence) * at(where.stride);
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(s_.head_width)); }

  // Places of number j of a head in a row of its sample; `head` counts through all samples.
  std::size_t in_row(int head, int row, int of_row, const pipewright_cuda_heads& where,
                     int j) const {
    return (at(head / s_.heads) * at(s_.sequence) + at(row)) * at(where.stride) +
           at(of_row * where.step + j);
  }
  int own_head(int head) const { return head % s_.heads; }
  int key_head(int head) const { return own_head(head) / (s_.heads / s_.key_heads); }
  std::size_t of_context(int head, int row, int j) const {
    return in_row(head, row, own_head(head), {s_.heads * s_.value_width, s_.value_width}, j);
  }
  std::size_t of_query(int head, int row, int j) const {
    return in_row(head, row, own_head(head), s_.queries, j);
  }
  std::size_t of_key(int head, int row, int j) const {
    return in_row(head, row, key_head(head), s_.keys, j);
  }
  std::size_t of_value(int head, int row, int j) const {
    return in_row(head, row, key_head(head), s_.values, j);
  }
  double value(const Arrays& of, int head, int row, int j) const {
    return as_double(of.values[of_value(head, row, j)]);
  }
  double gradient(const Number* dcontext, int head, int row, int j) const {
    return as_double(dcontext[of_context(head, row, j)]);
  }

  /// Of the keys up to the row's own place.
  std::vector<double> scores_of(const Arrays& of, int head, int row) const {
    std::vector<double> scores(at(row) + 1, 0.0);
    for (int key = 0; key <= row; ++key) {
      for (int j = 0; j < s_.head_width; ++j) {
        scores[at(key)] += scale() * as_double(of.queries[of_query(head, row, j)]) *
                           as_double(of.keys[of_key(head, key, j)]);
      }
    }
    return scores;
  }

  pipewright_cuda_attention s_;
};

}  // namespace pipewright::tests
