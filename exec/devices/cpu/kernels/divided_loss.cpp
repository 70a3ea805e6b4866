// Softmax cross-entropy of a part of each row's columns (exec/layers/divided/divided_loss.hpp).
// Sums go on where the columns before have stopped, in the sixteen parts of reduce.hpp, so that all
// parts together give the bits of whole rows.
#include <algorithm>
#include <cmath>

#include "exec/devices/cpu/kernels/exponential.hpp"
#include "exec/devices/cpu/kernels/reduce.hpp"
#include "exec/layers/ops.hpp"

namespace pipewright::exec {
namespace {

static_assert(kLossLanes == cpu::kLanes);

bool has_label(const LogitsPart& part, std::int32_t label) {
  return part.first <= label && label < part.first + part.own.width;
}

float largest(const LogitsPart& part, const float* facts) {
  return cpu::maximum(part.members, facts);
}

}  // namespace

void tell_logits(const LogitsPart& part, const float* logits, const std::int32_t* labels,
                 float* facts) {
  const int width = part.own.width;
  for (int r = 0; r < part.own.rows; ++r, logits += width, facts += part.members + 1) {
    facts[part.member] = cpu::maximum(width, logits);
    if (has_label(part, labels[r])) facts[part.members] = logits[labels[r] - part.first];
  }
}

void add_exponentials(const LogitsPart& part, const float* logits, const float* facts,
                      float* exponentials, float* sums) {
  const int width = part.own.width;
  for (int r = 0; r < part.own.rows; ++r) {
    const float maximum = largest(part, facts);
    for (int j = 0; j < width; ++j) exponentials[j] = cpu::clamp_exponent(logits[j] - maximum);
    for (int j = 0; j < width; ++j) exponentials[j] = cpu::exp_in_range(exponentials[j]);
    for (int j = 0; j < width; ++j) sums[(part.first + j) % kLossLanes] += exponentials[j];
    logits += width;
    exponentials += width;
    facts += part.members + 1;
    sums += kLossLanes;
  }
}

double finish_cross_entropy(const LogitsPart& part, const float* facts, const float* sums,
                            float* probabilities, double* of_rows) {
  double total = 0;
  for (int r = 0; r < part.own.rows; ++r) {
    const float sum = cpu::sum(kLossLanes, [sums](int lane) { return sums[lane]; });
    const float inverse = 1.0F / sum;
    for (int j = 0; j < part.own.width; ++j) probabilities[j] *= inverse;
    const double loss =
        std::log(static_cast<double>(sum)) +
        (static_cast<double>(largest(part, facts)) - static_cast<double>(facts[part.members]));
    if (of_rows != nullptr) of_rows[r] = loss;
    total += loss;
    probabilities += part.own.width;
    facts += part.members + 1;
    sums += kLossLanes;
  }
  return total;
}

void divided_cross_entropy_backward_input(const LogitsPart& part, const float* probabilities,
                                          const std::int32_t* labels, float scale, float* dlogits) {
  const int width = part.own.width;
  for (int r = 0; r < part.own.rows; ++r, probabilities += width, dlogits += width) {
    const int label = has_label(part, labels[r]) ? labels[r] - part.first : -1;
    const float of_label = label < 0 ? 0 : probabilities[label];
    for (int j = 0; j < width; ++j) dlogits[j] = probabilities[j] * scale;
    if (label >= 0) dlogits[label] = (of_label - 1.0F) * scale;
  }
}

}  // namespace pipewright::exec
